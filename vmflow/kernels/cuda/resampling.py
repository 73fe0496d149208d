"""Resampling by tables, which say of which elements of the input an element of the result is the weighted sum.

The host makes the tables once, so that both devices choose the same elements.
"""

from __future__ import annotations

from typing import Any

from vmflow.kernels.choosing import Problem
from vmflow.kernels.numpy.half import computes_in
from vmflow.kernels.numpy.resampling import Table, table

from .arrays import by_arrays


@by_arrays("resample")
def _resample(xp: Any, problem: Problem, array: Any, out: Any) -> None:
    every, transposed = problem.attributes
    tables = list(enumerate([table(along, transposed) for along in every], 2))[::-1]
    if not transposed and every[0].filter.startswith("nearest"):
        for axis, found in tables:
            array = xp.take(array, xp.asarray(found.places[:, 0]), axis=axis)
    else:
        array = array.astype(computes_in(problem.inputs[0].dtype), copy=False)
        for axis, found in tables:
            array = _weighted(xp, array, found, axis)
    xp.copyto(out, array, casting="unsafe")


def _weighted(xp: Any, array: Any, found: Table, axis: int) -> Any:
    """The weighted sums along one dimension."""
    places, weights = xp.asarray(found.places), xp.asarray(found.weights.astype(array.dtype))
    spread = (-1,) + (1,) * (array.ndim - axis - 1)
    result = None
    for tap in range(found.places.shape[1]):
        part = xp.take(array, places[:, tap], axis=axis) * weights[:, tap].reshape(spread)
        result = part if result is None else xp.add(result, part, out=result)
    return result
