"""Counts of elements by value: distinct elements, numbers (bincount) and elements in bins (histogram).

An element that belongs to no bin gets the number behind that of the last bin, and is left out.  Elements are counted by
atomic additions, whose order does not change an integer; weights are always added in the same order.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import Any, Final

import numpy as np

from vmflow import dtypes
from vmflow.kernels.choosing import Kernel, Problem, builds
from vmflow.streams.cuda.arrays import DeviceArray
from vmflow.streams.cuda.driver import Argument
from vmflow.streams.cuda.launching import Launcher

from .arrays import PACKAGE, into_outs
from .checks import check_range
from .ordering import KEYS, key_bits, ordered
from .pointwise import bits_of, copy_array, fill_array
from .rows import RowReduction, reduce_rows, sums_in
from .running import running
from .scans import scan
from .scattering import ADD_TO_ZERO, Places, Slices, combine_at, known_keys
from .sorting import Sorted, sort_by_bits
from .sources import COMPUTED, STORED, CudaKernel
from .walks import Walk, Walked, contiguous, in_order, part_of, standing, steps_of, transposed, walk, walked

_INT64: Final = np.dtype(np.int64)
_FLOAT64: Final = np.dtype(np.float64)
_BOOL: Final = np.dtype(np.bool_)

# Distinct elements


@builds("distinct", package=PACKAGE)
def _build_distinct(problem: Problem) -> Kernel:
    consecutive, dim = problem.attributes
    running_count = running("cumsum", dtypes.bool_, dtypes.int64)

    def launch(launcher: Launcher, operands: tuple[Any, ...], outs: tuple[DeviceArray, ...]) -> None:
        values, inverse, counts, count = outs
        fill_array(launcher, values, 0)
        fill_array(launcher, counts, 0)
        items = _items(launcher, operands[0], dim)
        total, width = items.shape
        if not total:
            fill_array(launcher, count, 0)
            return
        order = 0 if consecutive or total == 1 else _ascending(launcher, items)
        begins, groups = launcher.scratch((total,), _BOOL), launcher.scratch((total,), _INT64)
        arrays = [standing(items, 1), standing(order, 1)]
        walk(launcher, _begins(items.dtype.name), (total,), [Walked(begins, (1,))], arrays, [(1,)], (width,))
        scan(launcher, running_count, (begins,), 0, groups)
        _put_first(launcher, items, order, begins, groups, _rows(values, dim))
        arrays = [Walked(groups, (1,)), standing(order, 1)]
        with in_order(launcher, inverse) as places, in_order(launcher, counts) as numbers:
            targets = [standing(places, 1), standing(numbers, 1)]
            walk(launcher, _GROUPED, (total,), targets, arrays, [(1,)])
        copy_array(launcher, part_of(groups, 0, total - 1, total).strided((), _INT64), count)

    return Kernel(into_outs(launch, problem), casts=True)


def _rows(array: DeviceArray, dim: int | None) -> DeviceArray:
    """Return a view in which dimension `dim` (None: 0) comes first, so that the slices along `dim` are the rows."""
    dim = dim or 0
    return transposed(array, (dim, *[axis for axis in range(array.ndim) if axis != dim]))


def _items(launcher: Launcher, array: DeviceArray, dim: int | None) -> DeviceArray:
    """Return a contiguous matrix with a row for each slice along `dim`, or for each element if `dim` is None."""
    rows = contiguous(launcher, array) if dim is None else contiguous(launcher, _rows(array, dim))
    count = array.size if dim is None else rows.shape[0]
    return rows.strided((count, 1 if dim is None else prod(rows.shape[1:])), array.dtype)


def _ascending(launcher: Launcher, items: DeviceArray) -> DeviceArray | int:
    """Return the row numbers of a matrix in the rows' lexicographic order; the number 0 if rows have no elements."""
    total, width = items.shape
    if width == 1:
        return ordered(launcher, items, 0).order
    order: DeviceArray | int = 0
    for column in reversed(range(width)):
        keys = launcher.scratch((total,), _INT64)
        _column_keys(items.dtype.name).launch_over(launcher, total, (keys, items, order, total, width, column))
        order = sort_by_bits(launcher, Sorted(keys, order), key_bits(items.dtype.name)).order
    return order


@lru_cache(None)
def _column_keys(dtype: str) -> CudaKernel:
    name = f"column_keys_{dtype}"
    source = f"""{KEYS}
extern "C" __global__ void {name}(int64* keys, const {STORED[dtype]}* in, const int64* order, int64 count,
                                  int64 width, int64 column) {{
    const int64 threads = (int64)gridDim.x * blockDim.x;
    for (int64 i = (int64)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += threads)
        keys[i] = (int64)key_of(converted<{COMPUTED[dtype]}>(in[(order ? order[i] : i) * width + column]));
}}
"""
    return CudaKernel(name, source)


@lru_cache(None)
def _begins(dtype: str) -> Walk:
    """Build a program that tells for each row, in the order given by `order`, if any, whether it is the first one
    or differs from the row before it.
    """
    lines = (
        f"typedef {COMPUTED[dtype]} value;",
        "const int64 own = (order ? order[n_place] : n_place) * width;",
        "const int64 before = n_place == 0 ? own : (order ? order[n_place - 1] : n_place - 1) * width;",
        "bool differs = n_place == 0;",
        "for (int64 k = 0; k < width && !differs; k++)",
        "differs = converted<value>(x[own + k]) != converted<value>(x[before + k]);",
        "out[out_place] = differs;",
    )
    return Walk("begins", (("out", "bool"),), (("x", dtype), ("order", "int64")), ("n",), ("width",), lines)


def _put_first(
    launcher: Launcher,
    items: DeviceArray,
    order: DeviceArray | int,
    begins: DeviceArray,
    groups: DeviceArray,
    values: DeviceArray,
) -> None:
    """Copy the first row of each group of equal rows to `values`: of group n, counted from 1, to position n - 1."""
    total, width = items.shape
    group, *within = steps_of(values)
    shape, ndim = (total, *values.shape[1:]), values.ndim
    one = (1,) + (0,) * (ndim - 1)
    own = list(steps_of(items.strided((total, *values.shape[1:]), items.dtype)))
    arrays = [Walked(items, (0, *own[1:])), standing(order, ndim), Walked(begins, one), Walked(groups, one)]
    program = _first(bits_of(items.dtype))
    walk(launcher, program, shape, [Walked(values, (0, *within))], arrays, [one], (width, group))


@lru_cache(None)
def _first(dtype: str) -> Walk:
    lines = (
        "if (!begins[begins_place]) continue;",
        "const int64 row = order ? order[n_place] : n_place;",
        "out[out_place + (groups[groups_place] - 1) * stride] = x[x_place + row * width];",
    )
    arrays = (("x", dtype), ("order", "int64"), ("begins", "bool"), ("groups", "int64"))
    return Walk("put_first", (("out", dtype),), arrays, ("n",), ("width", "stride"), lines)


_GROUPED: Final = Walk(
    "grouped",
    (("inverse", "int64"), ("counts", "int64")),
    (("groups", "int64"), ("order", "int64")),
    ("n",),
    (),
    (
        "const int64 group = groups[groups_place] - 1;",
        "inverse[order ? order[n_place] : n_place] = group;",
        "atomicAdd((unsigned long long*)counts + group, 1ULL);",
    ),
)

# Numbers of elements

# The length of a bincount's result without `minlength`: the largest number plus one; 0 if there are no numbers.
_LENGTH: Final = RowReduction("length", "-1", "v", "p > q ? p : q", "total + 1", "int64")


@builds("bincount_length", package=PACKAGE)
def _build_bincount_length(problem: Problem) -> Kernel:
    def explain(position: int, value: int) -> Exception:
        return ValueError(f"bincount: the numbers cannot be negative, got {value}")

    def launch(launcher: Launcher, operands: tuple[Any, ...], outs: tuple[DeviceArray, ...]) -> None:
        (array,), (out,) = operands, outs
        check_range(launcher, array, 0, np.iinfo(np.int64).max, explain)
        reduce_rows(launcher, _LENGTH, array, range(array.ndim), out)

    return Kernel(into_outs(launch, problem), casts=True)


@builds("bincount", package=PACKAGE)
def _build_bincount(problem: Problem) -> Kernel:
    (length,) = problem.attributes

    def explain(position: int, value: int) -> Exception:
        return RuntimeError(f"bincount: {value} where {length} numbers were counted: they were changed meanwhile")

    def launch(launcher: Launcher, operands: tuple[Any, ...], outs: tuple[DeviceArray, ...]) -> None:
        numbers, *weights = operands
        check_range(launcher, numbers, 0, length, explain)
        found = _totals(launcher, known_keys(launcher, numbers, length), length, weights)
        copy_array(launcher, found, outs[0])

    return Kernel(into_outs(launch, problem), casts=True)


def _totals(launcher: Launcher, bins: DeviceArray, length: int, weights: list[DeviceArray]) -> DeviceArray:
    """Return the number of elements in each bin, or the sum of their weights; elements in bins from `length` on are
    left out.
    """
    found = launcher.scratch((length,), _FLOAT64 if weights else _INT64)
    if length:
        launcher.fill(found, 0)
    if weights:
        (values,) = weights
        places, rest = Places(bins, length + 1, 0), (steps_of(values), values.shape, Slices())
        combine_at(launcher, ADD_TO_ZERO, found, places, values, *rest, skipped=length)
    else:
        walk(launcher, _COUNTED, bins.shape, [standing(found, 1)], [Walked(bins, (1,))], (), (length,))
    return found


_COUNTED: Final = Walk(
    "count_bins",
    (("counts", "int64"),),
    (("bins", "int64"),),
    (),
    ("length",),
    (
        "const int64 bin = bins[bins_place];",
        "if (bin < length) atomicAdd((unsigned long long*)counts + bin, 1ULL);",
    ),
)

# Histograms


@builds("histogram", package=PACKAGE)
def _build_histogram(problem: Problem) -> Kernel:
    _, bins, low, high, weighted, density = problem.attributes

    def unbounded(position: int, value: int) -> Exception:
        return ValueError("the elements' range is not finite; give one")

    def descending(position: int, value: int) -> Exception:
        return ValueError(f"histogram: edge {position + 1} of the bins is less than the one before; sort the edges")

    def launch(launcher: Launcher, operands: tuple[Any, ...], outs: tuple[DeviceArray, ...]) -> None:
        array, (counts, edges) = operands[0], outs
        if bins is None:
            borders = contiguous(launcher, operands[-1], _FLOAT64)
            falls = launcher.scratch((borders.size - 1,), _INT64)
            walk(launcher, _FALLS, falls.shape, [Walked(falls, (1,))], [Walked(borders, (1,))])
            check_range(launcher, falls, 0, 1, descending)
        else:
            borders, wrong = _borders(launcher, array, low, high, bins)
            check_range(launcher, wrong, 0, 1, unbounded)
        length = borders.size - 1
        places = launcher.scratch((array.size,), _INT64)
        flat = contiguous(launcher, array).strided((array.size,), array.dtype)
        arrays = [Walked(flat, (1,)), standing(borders, 1)]
        walk(launcher, _bin(array.dtype.name), flat.shape, [Walked(places, (1,))], arrays, (), (length,))
        found = _totals(launcher, places, length, [operands[1]] if weighted else [])
        if density:
            found = _densities(launcher, found, borders)
        copy_array(launcher, found, counts)
        copy_array(launcher, borders, edges)

    return Kernel(into_outs(launch, problem), casts=True)


_FALLS: Final = Walk(
    "falls",
    (("out", "int64"),),
    (("borders", "float64"),),
    (),
    (),
    ("out[out_place] = borders[borders_place] > borders[borders_place + 1];",),
)


def _extreme(name: str, sign: str, start: str) -> RowReduction:
    return RowReduction(name, start, "v", f"p != p || p {sign} q ? p : q", "total", "double")


_INFINITY: Final = "__longlong_as_double(0x7ff0000000000000LL)"
_LOWEST: Final = _extreme("amin", "<", _INFINITY)
_HIGHEST: Final = _extreme("amax", ">", f"-{_INFINITY}")


def _borders(
    launcher: Launcher, array: DeviceArray, low: float, high: float, bins: int
) -> tuple[DeviceArray, DeviceArray]:
    """Return the edges of `bins` bins of equal width from `low` to `high`, or, if both are equal, over the elements'
    range, if there are elements (see `_BORDERS`); and an array of one integer: 1 if an edge is not finite, else 0.
    """
    limits = launcher.scratch((2,), _FLOAT64)
    for place, (limit, reduction) in enumerate([(low, _LOWEST), (high, _HIGHEST)]):
        target = part_of(limits, 0, place, place + 1)
        if low == high and array.size:
            reduce_rows(launcher, reduction, array, range(array.ndim), target)
        else:
            fill_array(launcher, target, limit)
    borders, wrong = launcher.scratch((bins + 1,), _FLOAT64), launcher.scratch((1,), _INT64)
    launcher.fill(wrong, 0)
    numbers: tuple[Argument, ...] = (bins,)
    walk(launcher, _BORDERS, (bins + 1,), [Walked(borders, (1,)), standing(wrong, 1)], [standing(limits, 1)], [(1,)],
         numbers)  # fmt: skip
    return borders, wrong


# A range whose limits are equal is widened by 1 on both sides.
_BORDERS: Final = Walk(
    "borders",
    (("out", "float64"), ("wrong", "int64")),
    (("limits", "float64"),),
    ("n",),
    ("bins",),
    (
        "const bool single = limits[0] == limits[1];",
        "const double start = single ? limits[0] - 1 : limits[0], stop = single ? limits[1] + 1 : limits[1];",
        "const double border = n_place == bins ? stop : n_place * ((stop - start) / bins) + start;",
        "out[out_place] = border;",
        "if (!(border - border == 0)) atomicMax(wrong, 1LL);",
    ),
)


@lru_cache(None)
def _bin(dtype: str) -> Walk:
    """Build a program that finds the bin of each element by bisection.  The last bin includes both of its edges; an
    element in no bin gets the number of bins.
    """
    lines = (
        "const double v = converted<double>(x[x_place]);",
        "int64 low = 0, high = length + 1;",
        "while (low < high) {",
        "const int64 middle = (low + high) / 2;",
        "if (borders[middle] <= v) low = middle + 1; else high = middle;",
        "}",
        "const bool known = v >= borders[0] && v <= borders[length];",
        "out[out_place] = !known ? length : v == borders[length] ? length - 1 : low - 1;",
    )
    arrays = (("x", dtype), ("borders", "float64"))
    return Walk("bin_of", (("out", "int64"),), arrays, (), ("length",), lines)


def _densities(launcher: Launcher, found: DeviceArray, borders: DeviceArray) -> DeviceArray:
    """Return the bins' counts, or sums of weights, divided by their total and by the bins' widths."""
    total, result = launcher.scratch((1,), _FLOAT64), launcher.scratch(found.shape, _FLOAT64)
    reduce_rows(launcher, sums_in(_FLOAT64), found, (0,), total)
    arrays = [walked(found), Walked(borders, (1,)), standing(total, 1)]
    walk(launcher, _density(found.dtype.name), found.shape, [walked(result)], arrays)
    return result


@lru_cache(None)
def _density(dtype: str) -> Walk:
    lines = (
        "const double width = borders[borders_place + 1] - borders[borders_place];",
        "out[out_place] = converted<double>(x[x_place]) / width / total[0];",
    )
    return Walk("density", (("out", "float64"),), (("x", dtype), ("borders", "float64"), ("total", "float64")), (), (),
                lines)  # fmt: skip
