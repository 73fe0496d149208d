"""The ops ``gather``, ``scatter`` and ``scatter_reduce``, and ops that fill parts of zeros."""

from __future__ import annotations

from typing import Any

import numpy as np

from vmflow import dtypes
from vmflow.instructions.blob import Array
from vmflow.kernels.choosing import Function, Problem, builds, kernel_of
from vmflow.kernels.native.indexing import Gather, Scatter
from vmflow.kernels.problems.gathering import Slices

from .half import computes_in

# Zeros with parts filled in


@builds("scatter_slices")
def _scatter_slices(problem: Problem) -> Function:
    axis = problem.attributes[1]
    (output,) = problem.outputs
    details: Slices = problem.details
    every = (slice(None),) * axis
    filled: list[Any] = [(*every, slice(*place)) for place in details.filled]
    empty: list[Any] = [(*every, slice(*gap)) for gap in details.gaps]
    has_signs = output.dtype.category >= dtypes.FLOATING and all(
        [meta.dtype is output.dtype for meta in problem.inputs]
    )

    def kernel(*arguments: Any) -> Array:
        *parts, out = arguments
        whole = np.empty(output.shape, output.dtype.numpy) if out is None else out
        # Only the gaps are set to zero, since `whole` may be large.
        for place in empty:
            whole[place] = 0
        for part, place in zip(parts, filled, strict=True):
            if has_signs:
                # Adding 0 turns -0.0 into 0.0, as adding the part to zeros does.
                np.add(part, 0, whole[place])
            else:
                whole[place] = part
        return whole

    return kernel


@kernel_of("scatter_diagonal")
def _scatter_diagonal(problem: Problem, part: Array, out: Array | None) -> Array:
    _, offset, first, second = problem.attributes
    (output,) = problem.outputs
    whole = np.zeros(output.shape, output.dtype.numpy)
    count = part.shape[-1]
    rows = np.arange(count) + (-offset if offset < 0 else 0)
    columns = np.arange(count) + (offset if offset > 0 else 0)
    np.moveaxis(whole, (first, second), (0, 1))[rows, columns] = np.moveaxis(part, -1, 0)
    return whole


@kernel_of("one_hot")
def _one_hot(problem: Problem, array: Array, out: Array | None) -> Array:
    (classes,) = problem.attributes
    if array.size and not (array.min() >= 0 and array.max() < classes):
        raise ValueError(f"one_hot: {array.min()} to {array.max()} are not all classes from 0 to {classes - 1}")
    result = np.zeros((array.size, classes), np.int64)
    result[np.arange(array.size), array.reshape(-1)] = 1
    return result.reshape(*array.shape, classes)


def add_at(array: Array, place: tuple[Any, ...], part: Array) -> None:
    """Add `part` to ``array[place]``; all values for a repeated index are added."""
    if array.dtype.itemsize == 2 and array.dtype.kind not in "iu":
        wide = array.astype(np.float32)  # sums in half precision would soon stop growing
        np.add.at(wide, place, part.astype(np.float32))
        array[...] = wide.astype(array.dtype)
    else:
        np.add.at(array, place, part)


# gather, scatter and similar ops


def check_places(name: str, places: Array, shape: tuple[int, ...], dim: int) -> None:
    """Raise IndexError unless all indices are from 0 to the dimension's size - 1: numpy would accept negative ones."""
    size = shape[dim] if shape else 1
    if places.size and not (places.min() >= 0 and places.max() < size):
        wrong = places[(places < 0) | (places >= size)].flat[0]
        raise IndexError(f"{name}: index {wrong} is out of range for dimension {dim} of size {size}")


def _along_axis(index: Array, dim: int) -> tuple[Array, ...]:
    """Return a tuple that indexes dimension `dim` by `index`, and the others by the places of the index's elements."""
    place = list(np.ogrid[tuple([slice(size) for size in index.shape])])
    place[dim : dim + 1] = [index]
    return tuple(place)


def _named(array: Array, places: Array, values: Array, dim: int) -> tuple[Array, tuple[Array, ...], Array]:
    """Return the array, the tuple of `_along_axis`, and the values; if all are 0-d, reshaped to one dimension."""
    if places.ndim:
        return array, _along_axis(places, dim), values
    return array.reshape(1), (places.reshape(1),), values.reshape(1)


@builds("gather")
def _gather(problem: Problem) -> Function:
    (dim,) = problem.attributes
    (output,) = problem.outputs
    is_for_c = output.shape and output.device.type == "cpu"
    in_c = Gather.of("gather", output.dtype.numpy, output.numel, dim) if is_for_c else None

    def kernel(array: Array, places: Array, out: Array | None) -> Array:
        if in_c is not None:
            found = in_c.call(array, places)
            if found is not None:
                return found
        check_places("gather", places, array.shape, dim)
        if places.ndim == 0:
            return array.copy()
        return np.ascontiguousarray(array[_along_axis(places, dim)])

    return kernel


@builds("scatter")
def _scatter(problem: Problem) -> Function:
    dim, how = problem.attributes
    name = "scatter" if how is None else f"scatter with reduce={how!r}"
    target, index, _ = problem.inputs
    is_for_c = how != "multiply" and index.shape and target.device.type == "cpu"
    in_name = "scatter_add" if how == "add" else "scatter"
    in_c = Scatter.of(in_name, target.dtype.numpy, index.numel, dim) if is_for_c else None

    def kernel(array: Array, places: Array, values: Array, out: Array | None) -> Array:
        values = values[tuple([slice(size) for size in places.shape])]
        result = array.copy(order="C")
        done = in_c.call(result, places, values) if in_c is not None else None
        if done:
            return result
        check_places(name, places, array.shape, dim)
        assert done is None, "an index is out of range, which has been checked"
        view, place, part = _named(result, places, values, dim)
        if how is None:
            view[place] = part
        elif how == "multiply":
            np.multiply.at(view, place, part)
        else:
            add_at(view, place, part)
        return result

    return kernel


@kernel_of("scatter_reduce")
def _scatter_reduce(problem: Problem, array: Array, places: Array, values: Array, out: Array | None) -> Array:
    dim, how, include_self = problem.attributes
    to = problem.outputs[0].dtype.numpy
    wide = computes_in(problem.outputs[0].dtype)  # sums in half precision would soon stop growing
    check_places("scatter_reduce", places, array.shape, dim)
    result = array.astype(wide, order="C")
    _reduce_at(*_named(result, places, values.astype(wide), dim), how, include_self)
    return result.astype(to, copy=False)


def _reduce_at(array: Array, place: tuple[Any, ...], values: Array, how: str, include_self: bool) -> None:
    """Reduce `values` into ``array[place]``, where places may repeat; the old elements count if `include_self`."""
    if not include_self:
        starts = {"sum": 0, "mean": 0, "prod": 1}
        array[place] = starts[how] if how in starts else _extreme(array.dtype, how == "amin")
    ufuncs = {"sum": np.add, "mean": np.add, "prod": np.multiply, "amax": np.maximum, "amin": np.minimum}
    ufuncs[how].at(array, place, values)
    if how == "mean":
        counts = np.full(array.shape, 1 if include_self else 0, np.int64)
        np.add.at(counts, place, 1)
        counts = np.maximum(counts, 1)
        array[...] = array // counts if array.dtype.kind in "iu" else array / counts.astype(array.real.dtype)


def _extreme(dtype: np.dtype[Any], highest: bool) -> Any:
    if dtype.kind == "b":
        return highest
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        return limits.max if highest else limits.min
    return np.inf if highest else -np.inf
