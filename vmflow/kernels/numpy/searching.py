"""Where elements belong in a sorted sequence, whether they are among others, and how many lie in each bin."""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np

from vmflow.instructions.blob import Array
from vmflow.kernels.choosing import Function, Problem, builds

from .ordering import comparable


@builds("searchsorted")
def _searchsorted(problem: Problem) -> Function:
    _, right, result = problem.attributes
    to = result.numpy
    side: Literal["left", "right"] = "right" if right else "left"

    def kernel(array: Array, sought: Array, out: Array | None) -> Array:
        array, sought = comparable(array), comparable(sought)
        found = np.empty(sought.shape, to)
        if array.ndim == 1:
            found[...] = np.searchsorted(array, sought, side)
            return found
        for row in np.ndindex(array.shape[:-1]):
            found[row] = np.searchsorted(array[row], sought[row], side)
        return found

    return kernel


@builds("isin")
def _isin(problem: Problem) -> Function:
    (invert,) = problem.attributes
    (output,) = problem.outputs

    def kernel(array: Array, others: Array, out: Array | None) -> Array:
        found = np.isin(comparable(array), comparable(others), invert=invert)
        return np.ascontiguousarray(found).reshape(output.shape)

    return kernel


@builds("histogram")
def _histogram(problem: Problem) -> Function:
    _, bins, low, high, weighted, density = problem.attributes
    to = problem.outputs[0].dtype.numpy

    def kernel(*arguments: Any) -> tuple[Array, Array]:
        *arrays, _ = arguments
        wide = [it.astype(np.float64).reshape(-1) for it in arrays]
        edges = wide[-1] if bins is None else np.linspace(*_limits(low, high, wide[0]), bins + 1)
        known = ~np.isnan(wide[0])
        weights = wide[1][known] if weighted else None
        found, _ = np.histogram(wide[0][known], edges, weights=weights, density=density)
        return found.astype(to), edges.astype(to)

    return kernel


def _limits(low: float, high: float, array: Array) -> tuple[float, float]:
    """The range that is parted into bins: the given one, or that of the elements, widened if it is none."""
    if low == high and array.size:
        low, high = float(array.min()), float(array.max())
        if not (math.isfinite(low) and math.isfinite(high)):
            raise ValueError(f"the elements' range from {low} to {high} is not finite; give one")
    return (low - 1, high + 1) if low == high else (low, high)
