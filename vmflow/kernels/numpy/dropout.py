"""Dropout: zero a random part of the elements and scale up the rest."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from vmflow.instructions.blob import Array, TensorMeta
from vmflow.kernels.choosing import Function, Problem, builds
from vmflow.kernels.problems.elementwise import CHEAP

from .random import generator_at
from .spreading import spread

_MOST: Final = (1 << 64) - 1


@builds("dropout")
def _dropout(problem: Problem) -> Function:
    (p,) = problem.attributes
    source, mask = problem.outputs
    to = source.dtype.numpy
    scale = to.type(1 / (1 - p))

    def kernel(array: Array, seed: int, position: int, out: Any) -> tuple[Array, Array]:
        kept = np.asarray(kept_elements(generator_at(seed, position), mask, p))
        target = None if out is None else out[0]
        return np.multiply(array, np.multiply(kept, scale, dtype=to), target, order="C"), kept

    return kernel


def kept_elements(generator: np.random.Generator, mask: TensorMeta, p: float) -> np.ndarray[Any, Any]:
    """True with probability ``1 - p``.

    Sixteen random bits decide nearly always, half of what `random` spends on an element.  Where they equal those of p,
    one more number decides by the rest of p, so that the probability is exact.
    """
    words = generator.integers(0, _MOST, -(-mask.numel // 4), np.uint64, endpoint=True)
    bits = words.view(np.uint16)[: mask.numel]
    limit = int(p * 65536)
    kept = bits >= limit
    undecided = np.flatnonzero(bits == limit)
    kept[undecided] = generator.random(undecided.size) >= p * 65536 - limit
    return kept.reshape(mask.shape)


@builds("dropout_gradient")
def _mask_and_scale(problem: Problem) -> Function:
    (p,) = problem.attributes
    (source,) = problem.outputs
    to = source.dtype.numpy
    scale = to.type(1 / (1 - p))

    def kernel(array: Array, kept: Array, out: Array | None) -> Array:
        return np.multiply(array, np.multiply(kept, scale, dtype=to), out, order="C")

    return spread(kernel, source, CHEAP * 2)
