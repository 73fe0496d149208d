"""Dropout: zero a random part of the elements and scale up the rest."""

from __future__ import annotations

from typing import Any

from vmflow.kernels.choosing import Problem

from .arrays import by_arrays
from .half import widened
from .philox import kept_elements


@by_arrays("dropout")
def _dropout(xp: Any, problem: Problem, array: Any, seed: int, offset: int, out: Any, kept: Any) -> None:
    (p,) = problem.attributes
    found = kept_elements(xp, array.shape, p, seed, offset)
    _scale(xp, problem, array, found, out)
    xp.copyto(kept, found)


@by_arrays("dropout_gradient")
def _dropout_gradient(xp: Any, problem: Problem, array: Any, kept: Any, out: Any) -> None:
    _scale(xp, problem, array, kept, out)


def _scale(xp: Any, problem: Problem, array: Any, kept: Any, out: Any) -> None:
    (p,) = problem.attributes
    to = problem.outputs[0].dtype.numpy
    scale = to.type(1 / (1 - p)).item()  # as the dtype has it
    wide = widened(array, problem.outputs[0].dtype)
    xp.copyto(out, wide * xp.where(kept, scale, 0.0).astype(wide.dtype), casting="unsafe")
