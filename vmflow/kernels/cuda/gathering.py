"""Elements by an index for each, put, read and reduced, and zeros with parts filled in."""

from __future__ import annotations

from typing import Any

import numpy as np

from vmflow import dtypes
from vmflow.kernels.choosing import Problem
from vmflow.kernels.problems.gathering import Slices
from vmflow.streams.cuda.launching import Launcher

from .arrays import by_arrays
from .bits import as_bits, widened
from .checks import check_indices, check_range
from .scattering import add_at, changing, coordinates, extreme, places_along, put_at, reduce_at, within

# Zeros with parts filled in


@by_arrays("scatter_slices")
def _scatter_slices(xp: Any, problem: Problem, *arrays: Any) -> None:
    *parts, out = arrays
    details: Slices = problem.details
    every = (slice(None),) * problem.attributes[1]
    (output,) = problem.outputs
    same = all([meta.dtype is output.dtype for meta in problem.inputs])
    has_signs = output.dtype.category >= dtypes.FLOATING and same
    for gap in details.gaps:
        as_bits(out)[(*every, slice(*gap))] = 0
    for part, place in zip(parts, details.filled, strict=True):
        # Added to zero, -0.0 becomes what it is where overlapping parts are added.
        value = widened(part) + 0 if has_signs else part
        xp.copyto(out[(*every, slice(*place))], value, casting="unsafe")


@by_arrays("scatter_diagonal")
def _scatter_diagonal(xp: Any, problem: Problem, part: Any, out: Any) -> None:
    _, offset, first, second = problem.attributes
    count = part.shape[-1]
    rows = xp.arange(count) + max(-offset, 0)
    columns = xp.arange(count) + max(offset, 0)
    whole = as_bits(out)
    whole.fill(0)
    xp.moveaxis(whole, (first, second), (0, 1))[rows, columns] = xp.moveaxis(as_bits(part), -1, 0)


def _check_classes(launcher: Launcher, problem: Problem, operands: tuple[Any, ...]) -> None:
    (classes,) = problem.attributes

    def explain(position: int, value: int) -> Exception:
        return ValueError(f"one_hot: the elements, {value} among them, are not all classes from 0 to {classes - 1}")

    check_range(launcher, operands[0], 0, classes, explain)


@by_arrays("one_hot", check=_check_classes)
def _one_hot(xp: Any, problem: Problem, array: Any, out: Any) -> None:
    (classes,) = problem.attributes
    numbers = coordinates(xp, classes, array.ndim, array.ndim + 1)
    xp.copyto(out, array.reshape(*array.shape, 1) == numbers, casting="unsafe")


# gather, scatter and their kin


def _check(launcher: Launcher, problem: Problem, operands: tuple[Any, ...]) -> None:
    array, indices, *_ = operands
    check_indices(launcher, problem.op, indices, array.shape, problem.attributes[0])


@by_arrays("gather", check=_check)
def _gather(xp: Any, problem: Problem, array: Any, indices: Any, out: Any) -> None:
    (dim,) = problem.attributes
    indices = within(xp, "gather", indices, array.shape, dim)
    if not array.ndim:
        xp.copyto(out, array)
        return
    part = [slice(None) if axis == dim else slice(size) for axis, size in enumerate(indices.shape)]
    xp.copyto(as_bits(out), xp.take_along_axis(as_bits(array)[tuple(part)], indices, axis=dim))


@by_arrays("scatter", check=_check)
def _scatter(xp: Any, problem: Problem, array: Any, indices: Any, values: Any, out: Any) -> None:
    dim, how = problem.attributes
    values = values[tuple([slice(size) for size in indices.shape])]
    places = places_along(xp, within(xp, "scatter", indices, array.shape, dim), array.shape, dim)
    with changing(xp, array, out) as flat:
        if how is None:
            put_at(flat, places, values)
        elif how == "add":
            add_at(xp, flat, places, values)
        else:
            wide = widened(flat)
            reduce_at(xp, xp.multiply, wide, places, widened(values))
            xp.copyto(flat, wide, casting="unsafe")


@by_arrays("scatter_reduce", check=_check)
def _scatter_reduce(xp: Any, problem: Problem, array: Any, indices: Any, values: Any, out: Any) -> None:
    dim, how, include_self = problem.attributes
    values = widened(values[tuple([slice(size) for size in indices.shape])])
    places = places_along(xp, within(xp, "scatter_reduce", indices, array.shape, dim), array.shape, dim)
    flat = widened(array).reshape(-1).copy()
    _reduce(xp, flat, places, values.astype(flat.dtype, copy=False), how, include_self)
    xp.copyto(out, flat.reshape(out.shape), casting="unsafe")


def _reduce(xp: Any, flat: Any, places: Any, values: Any, how: str, include_self: bool) -> None:
    """Reduce `values` into ``flat[places]``, where each repetition of a place counts."""
    if not include_self:
        starts = {"sum": 0, "mean": 0, "prod": 1}
        flat[places] = starts[how] if how in starts else extreme(flat.dtype, how == "amin")
    if how in ("sum", "mean"):
        add_at(xp, flat, places, values)
    else:
        ufuncs = {"prod": xp.multiply, "amax": xp.maximum, "amin": xp.minimum}
        reduce_at(xp, ufuncs[how], flat, places, values)
    if how == "mean":
        counts = xp.full(flat.shape, int(include_self), np.int64)
        add_at(xp, counts, places, xp.ones(places.shape, np.int64))
        counts = xp.maximum(counts, 1)
        means = flat // counts if flat.dtype.kind in "iu" else flat / counts.astype(flat.real.dtype)
        xp.copyto(flat, means, casting="unsafe")
