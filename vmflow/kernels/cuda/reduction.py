"""Reductions along dimensions: sums, products, means, norms and extrema, and where extrema are."""

from __future__ import annotations

from math import prod
from typing import Any

from vmflow import dtypes
from vmflow.kernels.choosing import Problem

from .arrays import by_arrays


def _wide(problem: Problem) -> Any:
    """The dtype to accumulate in: sums of half precision would lose everything past 2048 ones."""
    source, output = problem.inputs[0].dtype, problem.outputs[0].dtype
    return dtypes.float32.numpy if dtypes.is_half(source) else output.numpy


@by_arrays("sum")
def _sum(xp: Any, problem: Problem, array: Any, out: Any) -> None:
    dims, keepdim = problem.attributes
    xp.copyto(out, xp.sum(array, axis=dims, dtype=_wide(problem), keepdims=keepdim), casting="unsafe")


@by_arrays("mean")
def _mean(xp: Any, problem: Problem, array: Any, out: Any) -> None:
    dims, keepdim = problem.attributes
    total = xp.sum(array, axis=dims, dtype=_wide(problem), keepdims=keepdim)
    count = prod([array.shape[dim] for dim in dims])
    xp.copyto(out, xp.true_divide(total, count), casting="unsafe")
