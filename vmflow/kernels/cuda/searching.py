"""Where elements belong in a sorted sequence, whether they are among others, and how many there are of each.

How many there are of anything is never asked here: what takes a place that is not known to exist goes behind the end.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from vmflow.kernels.choosing import Problem
from vmflow.streams.cuda.launching import Launcher

from .arrays import by_arrays
from .bits import as_bits, comparable, widened
from .checks import check_range


def _alike(array: Any, others: Any) -> tuple[Any, Any]:
    """Both in one dtype that is compared."""
    array, others = comparable(array), comparable(others)
    dtype = np.result_type(array.dtype, others.dtype)
    return array.astype(dtype, copy=False), others.astype(dtype, copy=False)


@by_arrays("searchsorted")
def _searchsorted(xp: Any, problem: Problem, array: Any, sought: Any, out: Any) -> None:
    _, right, _ = problem.attributes
    array, sought = _alike(array, sought)
    if array.ndim == 1:
        found = xp.searchsorted(array, sought, side="right" if right else "left")
    else:
        found = _search_rows(xp, array, sought, right)
    xp.copyto(out, found, casting="unsafe")


def _search_rows(xp: Any, rows: Any, sought: Any, right: bool) -> Any:
    """Where elements of each row of `sought` belong in the same one of `rows`, by halving what is left of it."""
    size = rows.shape[-1]
    low, high = xp.zeros(sought.shape, np.int64), xp.full(sought.shape, size, np.int64)
    for _ in range(size.bit_length()):
        middle = (low + high) // 2
        there = xp.take_along_axis(rows, xp.minimum(middle, size - 1), -1)
        behind = xp.logical_not(_less(xp, sought, there)) if right else _less(xp, there, sought)
        left = low < high
        low, high = xp.where(left & behind, middle + 1, low), xp.where(behind, high, xp.minimum(middle, high))
    return low


def _less(xp: Any, first: Any, second: Any) -> Any:
    """Whether elements come before others in ascending order, at the end of which are those that are not numbers."""
    less = first < second
    if first.dtype.kind == "f":
        less |= xp.isnan(second) & ~xp.isnan(first)
    return less


@by_arrays("isin")
def _isin(xp: Any, problem: Problem, array: Any, others: Any, out: Any) -> None:
    (invert,) = problem.attributes
    array, others = _alike(array, others)
    xp.copyto(out, xp.isin(array, others, invert=invert).reshape(out.shape))


# Distinct ones


@by_arrays("distinct")
def _distinct(xp: Any, problem: Problem, array: Any, *outs: Any) -> None:
    consecutive, dim = problem.attributes
    values, inverse, counts, count = outs
    items = array.reshape(-1, 1) if dim is None else _slices(xp, array, dim)
    total = len(items)
    order = xp.arange(total) if consecutive else _ascending(xp, comparable(items))
    ordered = comparable(items)[order]
    begins = xp.ones(total, bool)
    begins[1:] = xp.any(ordered[1:] != ordered[:-1], axis=1)
    group = xp.cumsum(begins, dtype=np.int64) - 1
    _put_first(xp, values, dim, as_bits(items)[order], xp.where(begins, group, total))
    where = xp.zeros(total, np.int64)
    where[order] = group
    xp.copyto(inverse, where.reshape(inverse.shape))
    counts.fill(0)
    number = xp.zeros(total, np.int64)
    add_at(xp, number, group, xp.ones(total, np.int64))
    xp.copyto(counts, number)
    xp.copyto(count, xp.sum(begins, dtype=np.int64))


def _slices(xp: Any, array: Any, dim: int) -> Any:
    """The slices along a dimension as rows of a matrix."""
    rows = xp.moveaxis(array, dim, 0)
    return rows.reshape(len(rows), prod(rows.shape[1:]))


def _ascending(xp: Any, items: Any) -> Any:
    """The order of the rows of a matrix, in which their first elements count most."""
    keys = widened(items) if items.dtype.kind != "b" else items.astype(np.uint8)
    if keys.shape[1] == 1:
        return xp.argsort(keys[:, 0], kind="stable")
    return xp.lexsort(xp.flip(keys.T, 0))


def _put_first(xp: Any, out: Any, dim: int | None, items: Any, places: Any) -> None:
    """Put rows where `places` say, those of the place behind the end nowhere; zeros where none is put."""
    room = xp.zeros((len(items) + 1, items.shape[1]), items.dtype)
    room[places] = items
    out = as_bits(out)
    found = room[: len(items)]
    if dim is None:
        xp.copyto(out, found.reshape(out.shape))
    else:
        rows = xp.moveaxis(out, dim, 0)
        xp.copyto(rows, found.reshape(rows.shape))


# Numbers of elements


def _check_numbers(launcher: Launcher, problem: Problem, operands: tuple[Any, ...]) -> None:
    def explain(position: int, value: int) -> Exception:
        return ValueError(f"bincount: the numbers cannot be negative, got {value}")

    check_range(launcher, operands[0], 0, np.iinfo(np.int64).max, explain)


@by_arrays("bincount_length", check=_check_numbers)
def _bincount_length(xp: Any, problem: Problem, array: Any, out: Any) -> None:
    if array.size:
        xp.copyto(out, xp.maximum(xp.max(array).astype(np.int64), 0) + 1)
    else:
        out.fill(0)


def _check_counted(launcher: Launcher, problem: Problem, operands: tuple[Any, ...]) -> None:
    (length,) = problem.attributes

    def explain(position: int, value: int) -> Exception:
        return RuntimeError(f"bincount: {value} where {length} numbers were counted: they were changed meanwhile")

    check_range(launcher, operands[0], 0, length, explain)


@by_arrays("bincount", check=_check_counted)
def _bincount(xp: Any, problem: Problem, array: Any, *rest: Any) -> None:
    *weights, out = rest
    (length,) = problem.attributes
    numbers = array.astype(np.int64)
    known = (numbers >= 0) & (numbers < length)
    xp.copyto(out, _total(xp, numbers, known, weights, length), casting="unsafe")


def _total(xp: Any, bins: Any, known: Any, weights: Any, length: int) -> Any:
    """How many elements each bin has, or how much they weigh together; of those alone that are known to be in one."""
    if weights:
        added = weights[0].astype(np.float64)
    else:
        added = xp.ones(bins.shape, np.int64)
    total = xp.zeros(length + 1, added.dtype)
    add_at(xp, total, xp.where(known, bins, length), added)
    return total[:length]


def _not_finite(problem: Problem, number: int) -> Exception:
    return ValueError("the elements' range is not finite; give one")


@by_arrays("histogram", verify=_not_finite)
def _histogram(xp: Any, problem: Problem, *arguments: Any) -> None:
    _, bins, low, high, weighted, density = problem.attributes
    *arrays, counts, edges, unbounded = arguments
    wide = [array.astype(np.float64).reshape(-1) for array in arrays]
    array = wide[0]
    borders = wide[-1] if bins is None else _borders(xp, array, low, high, bins)
    length = borders.size - 1
    unbounded.fill(0)
    if bins is not None:
        xp.copyto(unbounded, xp.logical_not(xp.all(xp.isfinite(borders))), casting="unsafe")
    # The last bin has both of its borders in it.
    places = xp.where(array == borders[-1], length - 1, xp.searchsorted(borders, array, side="right") - 1)
    known = (array >= borders[0]) & (array <= borders[-1])
    found = _total(xp, places, known, wide[1:2] if weighted else [], length)
    if density:
        found = found / (borders[1:] - borders[:-1]) / xp.sum(found)
    xp.copyto(counts, found, casting="unsafe")
    xp.copyto(edges, borders, casting="unsafe")


def _borders(xp: Any, array: Any, low: float, high: float, bins: int) -> Any:
    """The edges of bins of one width in the given range, or in that of the elements, widened if it is empty."""
    start, stop = xp.full((), low, np.float64), xp.full((), high, np.float64)
    if low == high and array.size:
        start, stop = xp.min(array), xp.max(array)
    single = start == stop
    start, stop = xp.where(single, start - 1, start), xp.where(single, stop + 1, stop)
    borders = xp.arange(bins + 1) * ((stop - start) / bins) + start
    borders[-1:] = stop
    return borders


def add_at(xp: Any, target: Any, places: Any, values: Any) -> None:
    """Add values, or rows of them, to a contiguous array at places along its first dimension; each repetition counts.

    The array module adds in a few dtypes only: others are added in one of them that is as exact.  The order in which
    the elements of one place are added is left to the device.
    """
    dtype = target.dtype
    if dtype.kind == "c":
        add_at(xp, target.real, places, values.real)
        add_at(xp, target.imag, places, values.imag)
    elif dtype == np.int64:
        # CUDA adds atomically only what has no sign, whose bits are the same.
        xp.add.at(target.view(np.uint64), places, values.astype(dtype, copy=False).view(np.uint64))
    elif dtype.itemsize < 4:
        wide = np.dtype(np.int32 if dtype.kind in "biu" else np.float32)
        total = target.astype(wide)
        xp.add.at(total, places, values.astype(wide))
        xp.copyto(target, total, casting="unsafe")
    else:
        xp.add.at(target, places, values)
