"""Dropout: zero random elements, and scale up the other ones."""

from __future__ import annotations

from typing import Any

import numpy as np

from vmflow.instructions.blob import Array
from vmflow.kernels.choosing import Function, Problem, builds
from vmflow.kernels.problems.elementwise import CHEAP

from .random import kept_elements
from .spreading import spread


@builds("dropout")
def _dropout(problem: Problem) -> Function:
    (p,) = problem.attributes
    source, mask = problem.outputs
    to = source.dtype.numpy
    scale = to.type(1 / (1 - p))
    drawn = kept_elements(mask, p)

    def kernel(array: Array, seed: int, offset: int, out: Any) -> tuple[Array, Array]:
        kept = drawn(seed, offset)
        target = None if out is None else out[0]
        return np.multiply(array, np.multiply(kept, scale, dtype=to), target, order="C"), kept

    return kernel


@builds("dropout_gradient")
def _mask_and_scale(problem: Problem) -> Function:
    (p,) = problem.attributes
    (source,) = problem.outputs
    to = source.dtype.numpy
    scale = to.type(1 / (1 - p))

    def kernel(array: Array, kept: Array, out: Array | None) -> Array:
        return np.multiply(array, np.multiply(kept, scale, dtype=to), out, order="C")

    return spread(kernel, source, CHEAP * 2)
