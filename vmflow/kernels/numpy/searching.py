"""Positions of elements in a sorted sequence, membership among other elements, and counts.

The counts are of distinct elements (`unique`), of numbers (`bincount`) and of elements in bins (histograms).
"""

from __future__ import annotations

import math
from typing import Any, Literal, TypeAlias

import numpy as np

from vmflow.instructions.blob import Array
from vmflow.kernels.choosing import Problem, kernel_of

from .ordering import comparable


@kernel_of("searchsorted")
def _searchsorted(problem: Problem, array: Array, sought: Array, out: Array | None) -> Array:
    _, right, result = problem.attributes
    side: Literal["left", "right"] = "right" if right else "left"
    array, sought = comparable(array), comparable(sought)
    found = np.empty(sought.shape, result.numpy)
    if array.ndim == 1:
        found[...] = np.searchsorted(array, sought, side)
        return found
    for row in np.ndindex(array.shape[:-1]):
        found[row] = np.searchsorted(array[row], sought[row], side)
    return found


@kernel_of("isin")
def _isin(problem: Problem, array: Array, others: Array, out: Array | None) -> Array:
    (invert,) = problem.attributes
    found = np.isin(comparable(array), comparable(others), invert=invert)
    return np.ascontiguousarray(found).reshape(problem.outputs[0].shape)


# The distinct elements or slices; for each element or slice, the position of its equal among them; and their counts.
_Distinct: TypeAlias = tuple[Array, Array, Array]


@kernel_of("distinct")
def _distinct(problem: Problem, array: Array, out: Array | None) -> tuple[Array, ...]:
    consecutive, dim = problem.attributes
    outputs = problem.outputs
    find = _neighbours if consecutive else _sorted
    array = comparable(array)
    values, inverse, counts = find(array if dim is not None else array.reshape(-1), dim)
    results = tuple([np.zeros(meta.shape, meta.dtype.numpy) for meta in outputs])
    results[0][(*[slice(None)] * (dim or 0), slice(len(counts)))] = values
    results[1][...] = inverse.reshape(outputs[1].shape)
    results[2][: len(counts)] = counts
    results[3][...] = len(counts)
    return results


def _sorted(array: Array, dim: int | None) -> _Distinct:
    """Find the distinct elements, or slices along `dim`, in ascending order."""
    if dim is not None and not array.shape[dim]:
        return array, np.zeros(0, np.int64), np.zeros(0, np.int64)
    return np.unique(array, return_inverse=True, return_counts=True, axis=dim, equal_nan=False)


def _neighbours(array: Array, dim: int | None) -> _Distinct:
    """Find one of each run of equal elements, or of equal slices along `dim`."""
    rows = np.moveaxis(array, dim or 0, 0)
    differs = (rows[1:] != rows[:-1]).any(tuple(range(1, rows.ndim)))
    first = np.concatenate([np.ones(min(len(rows), 1), bool), differs])
    starts = np.flatnonzero(first)
    counts = np.diff(np.append(starts, len(rows)))
    return np.moveaxis(rows[starts], 0, dim or 0), np.cumsum(first) - 1, counts


@kernel_of("bincount_length")
def _bincount_length(problem: Problem, array: Array, out: Array | None) -> Array:
    if array.size and array.min() < 0:
        raise ValueError(f"bincount: the numbers cannot be negative, got {array.min()}")
    return np.asarray(int(array.max(initial=0)) + 1 if array.size else 0, np.int64)


@kernel_of("bincount")
def _bincount(problem: Problem, array: Array, *rest: Any) -> Array:
    (length,) = problem.attributes
    weights = rest[0].astype(np.float64) if len(rest) > 1 else None
    found = np.bincount(array.astype(np.int64), weights, length)
    if len(found) != length:
        raise RuntimeError(f"bincount: {len(found)} numbers where {length} were counted: they were changed meanwhile")
    return found.astype(problem.outputs[0].dtype.numpy)


@kernel_of("histogram")
def _histogram(problem: Problem, *arguments: Any) -> tuple[Array, Array]:
    _, bins, low, high, weighted, density = problem.attributes
    to = problem.outputs[0].dtype.numpy
    *arrays, _ = arguments
    wide = [array.astype(np.float64).reshape(-1) for array in arrays]
    edges = wide[-1] if bins is None else np.linspace(*_limits(low, high, wide[0]), bins + 1)
    known = ~np.isnan(wide[0])
    weights = wide[1][known] if weighted else None
    found, _ = np.histogram(wide[0][known], edges, weights=weights, density=density)
    return found.astype(to), edges.astype(to)


def _limits(low: float, high: float, array: Array) -> tuple[float, float]:
    """Return the range of the bins: `low` to `high`, or if these are equal, that of the elements, if there are any.

    A range whose ends are equal is widened by 1 on both sides.

    Raises:
        ValueError: if the elements' range is used, and not finite.
    """
    if low == high and array.size:
        low, high = float(array.min()), float(array.max())
        if not (math.isfinite(low) and math.isfinite(high)):
            raise ValueError(f"the elements' range from {low} to {high} is not finite; give one")
    return (low - 1, high + 1) if low == high else (low, high)
