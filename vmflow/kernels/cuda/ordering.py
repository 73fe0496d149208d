"""Positions of elements by their order: sorting, the k largest or smallest, the element of a rank, the most frequent.

Elements are compared by keys, integers of the same order; all nans have the same, largest key.  Each short row is
sorted by a block of threads, in shared memory; long rows are sorted all together, by a radix sort.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

from vmflow.kernels.choosing import Kernel, Problem, builds
from vmflow.streams.cuda.arrays import DeviceArray, contiguous_strides
from vmflow.streams.cuda.launching import Launcher

from .arrays import PACKAGE, into_outs
from .pointwise import copy_array, fill_array
from .rows import BLOCK, as_rows
from .sorting import Sorted, sort_by_bits
from .sources import COMPUTED, STORED, THREADS, CudaKernel
from .walks import Walk, Walked, part_of, walk

_INT64: Final = np.dtype(np.int64)

# The most elements of a row that a single block sorts.
_SHORT: Final = 1024

# By dtype, the number of bits of its keys; half precision has the keys of float32.
_BITS: Final = {
    "bool": 1, "uint8": 8, "uint16": 16, "uint32": 32, "uint64": 64, "int8": 8, "int16": 16, "int32": 32, "int64": 64,
    "float16": 32, "bfloat16": 32, "float32": 32, "float64": 64,
}  # fmt: skip

# Makes an unsigned key from a number, in the same order: a negative floating-point number has its bits inverted, and
# a positive one its sign bit set.
KEYS: Final = """
__device__ __forceinline__ uint64_t key_of(bool value) { return value; }
__device__ __forceinline__ uint64_t key_of(unsigned char value) { return value; }
__device__ __forceinline__ uint64_t key_of(unsigned short value) { return value; }
__device__ __forceinline__ uint64_t key_of(unsigned int value) { return value; }
__device__ __forceinline__ uint64_t key_of(unsigned long long value) { return value; }
__device__ __forceinline__ uint64_t key_of(signed char value) { return value + 128; }
__device__ __forceinline__ uint64_t key_of(short value) { return value + 32768; }
__device__ __forceinline__ uint64_t key_of(int value) { return (uint32_t)value ^ 0x80000000u; }
__device__ __forceinline__ uint64_t key_of(int64 value) { return (uint64_t)value ^ 0x8000000000000000ULL; }
__device__ __forceinline__ uint64_t key_of(float value) {
    const uint32_t bits = __float_as_int(value == 0 ? 0 : value);
    return value != value ? 0xffffffffu : bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}
__device__ __forceinline__ uint64_t key_of(double value) {
    const uint64_t bits = __double_as_longlong(value == 0 ? 0 : value), sign = 0x8000000000000000ULL;
    return value != value ? ~0ULL : bits & sign ? ~bits : bits | sign;
}
"""


def key_bits(dtype: str) -> int:
    """Return the number of bits of a dtype's keys, which are the lowest bits of an integer."""
    return _BITS[dtype]


class Ordered(NamedTuple):
    """An array's lines along a dimension as the rows, unsorted, of a contiguous matrix, and for each row the positions
    of its elements in sorted order.
    """

    rows: DeviceArray
    order: DeviceArray


def ordered(launcher: Launcher, array: DeviceArray, dim: int, descending: bool = False) -> Ordered:
    """Find the sorted order of a non-empty array's elements along `dim`; equal elements keep their order."""
    rows = as_rows(launcher, array, (dim,))
    count, size = rows.shape
    order = launcher.scratch(rows.shape, _INT64)
    if size <= _SHORT:
        padded = max(1 << (size - 1).bit_length(), 2)
        _short(array.dtype.name).launch(launcher, count, (order, rows, size, padded, int(descending)))
        return Ordered(rows, order)
    keys = launcher.scratch((count * size,), _INT64)
    bits = key_bits(array.dtype.name)
    turned = (1 << bits) - 1 if descending else 0
    turned -= (turned >> 63) << 64  # as a signed number
    _key_kernel(array.dtype.name).launch_over(launcher, keys.size, (keys, rows, keys.size, turned))
    found = sort_by_bits(launcher, Sorted(keys, 0), bits)
    if count > 1:
        assert isinstance(found.order, DeviceArray)
        numbers = launcher.scratch(keys.shape, _INT64)
        walk(launcher, _ROW, keys.shape, [Walked(numbers, (1,))], [Walked(found.order, (1,))], (), (size,))
        found = sort_by_bits(launcher, Sorted(numbers, found.order), (count - 1).bit_length())
    assert isinstance(found.order, DeviceArray)
    walk(launcher, _IN_ROW, keys.shape, [Walked(order, (1,))], [Walked(found.order, (1,))], (), (size,))
    return Ordered(rows, order)


def write_order(launcher: Launcher, array: DeviceArray, dim: int, descending: bool, out: DeviceArray) -> None:
    """Write the positions of the elements along `dim` in sorted order to `out`; only the first ones if `out` is
    shorter.
    """
    _, order = ordered(launcher, array, dim, descending)
    copy_array(launcher, _along(part_of(order, 1, 0, out.shape[dim]), out.shape, dim), out)


_ROW: Final = Walk(
    "row_of", (("out", "int64"),), (("x", "int64"),), (), ("size",), ("out[out_place] = x[x_place] / size;",)
)
_IN_ROW: Final = Walk(
    "place_in_row", (("out", "int64"),), (("x", "int64"),), (), ("size",), ("out[out_place] = x[x_place] % size;",)
)


@lru_cache(None)
def _key_kernel(dtype: str) -> CudaKernel:
    source = f"""{KEYS}
extern "C" __global__ void keys_{dtype}(int64* keys, const {STORED[dtype]}* in, int64 count, int64 turned) {{
    const int64 threads = (int64)gridDim.x * blockDim.x;
    for (int64 i = (int64)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += threads)
        keys[i] = (int64)key_of(converted<{COMPUTED[dtype]}>(in[i])) ^ turned;
}}
"""
    return CudaKernel(f"keys_{dtype}", source)


@lru_cache(None)
def _short(dtype: str) -> CudaKernel:
    """Build the kernel that writes the positions of short rows' elements in sorted order, found by bitonic sort; equal
    keys keep their order.
    """
    source = f"""{KEYS}
extern "C" __global__ void sort_rows_{dtype}(int64* order, const {STORED[dtype]}* in, int64 size, int64 padded,
                                             int64 descending) {{
    __shared__ uint64_t keys[{_SHORT}];
    __shared__ int places[{_SHORT}];
    const {STORED[dtype]}* const row = in + blockIdx.x * size;
    for (int i = threadIdx.x; i < padded; i += {THREADS}) {{
        const uint64_t key = i < size ? key_of(converted<{COMPUTED[dtype]}>(row[i])) : 0;
        keys[i] = i >= size ? ~0ULL : descending ? ~key : key;
        places[i] = i;
    }}
    __syncthreads();
    for (int span = 2; span <= padded; span *= 2)
        for (int reach = span / 2; reach > 0; reach /= 2) {{
            for (int pair = threadIdx.x; pair < padded / 2; pair += {THREADS}) {{
                const int i = 2 * pair - (pair & (reach - 1)), j = i + reach;
                const uint64_t first = keys[i], second = keys[j];
                const int place = places[i], other = places[j];
                const bool wrong = second < first || (second == first && other < place);
                if (wrong == !(i & span)) {{
                    keys[i] = second;
                    keys[j] = first;
                    places[i] = other;
                    places[j] = place;
                }}
            }}
            __syncthreads();
        }}
    for (int i = threadIdx.x; i < size; i += {THREADS}) order[blockIdx.x * size + i] = places[i];
}}
"""
    return CudaKernel(f"sort_rows_{dtype}", source)


# The ops


def _along(rows: DeviceArray, shape: tuple[int, ...], dim: int) -> DeviceArray:
    """Return a view of a matrix as an array of `shape`, with its rows along `dim`: the inverse of `as_rows`."""
    kept = [axis for axis in range(len(shape)) if axis != dim]
    strides = contiguous_strides(tuple([shape[axis] for axis in kept]), rows.strides[0])
    by_axis = dict(zip([*kept, dim], [*strides, rows.itemsize], strict=True))
    return rows.strided(shape, rows.dtype, 0, tuple([by_axis[axis] for axis in range(len(shape))]))


@builds("argsort", "topk", package=PACKAGE)
def _build_order(problem: Problem) -> Kernel:
    *_, dim, descending = problem.attributes

    def launch(launcher: Launcher, operands: tuple[Any, ...], outs: tuple[DeviceArray, ...]) -> None:
        (array,), (out,) = operands, outs
        if not array.ndim:
            fill_array(launcher, out, 0)
        elif out.size:
            write_order(launcher, array, dim, descending, out)

    return Kernel(into_outs(launch, problem), casts=True)


# find(launcher, ordered, found): write the position of one element of each row into `found`, of shape (rows, 1).
_Find: TypeAlias = "Callable[[Launcher, Ordered, DeviceArray], None]"


def _one_of_each_row(problem: Problem, dim: int, find: _Find) -> Kernel:
    """Build the kernel of an op that writes the position of one element of each line along `dim`, found by `find`."""

    def launch(launcher: Launcher, operands: tuple[Any, ...], outs: tuple[DeviceArray, ...]) -> None:
        (array,), (out,) = operands, outs
        if not array.ndim:
            fill_array(launcher, out, 0)
        elif array.size:
            given = ordered(launcher, array, dim)
            found = launcher.scratch((given.rows.shape[0], 1), _INT64)
            find(launcher, given, found)
            copy_array(launcher, _along(found, out.shape, dim), out)

    return Kernel(into_outs(launch, problem), casts=True)


@builds("element_of_rank", package=PACKAGE)
def _build_rank(problem: Problem) -> Kernel:
    _, place, dim, nan_wins = problem.attributes
    (source,) = problem.inputs
    program = _rank(source.dtype.name, bool(nan_wins and source.dtype.is_floating_point))

    def find(launcher: Launcher, given: Ordered, found: DeviceArray) -> None:
        count, size = given.rows.shape
        arrays = [Walked(given.rows, (size,)), Walked(given.order, (size,))]
        walk(launcher, program, (count,), [Walked(found, (1,))], arrays, (), (place, size))

    return _one_of_each_row(problem, dim, find)


@lru_cache(None)
def _rank(dtype: str, checks: bool) -> Walk:
    """Build the program that writes for each unsorted row the position of the element of a rank, by the row's sorted
    order; if it `checks`, of the first nan, if any, found by bisection, since nans are at the end of that order.
    """
    lines = ["int64 at = place;"]
    if checks:
        lines += [
            "auto is_number = [&](int64 n) {",
            f"const {COMPUTED[dtype]} v = converted<{COMPUTED[dtype]}>(x[x_place + order[order_place + n]]);",
            "return v == v;",
            "};",
            "if (!is_number(size - 1)) {",
            "int64 low = 0, high = size - 1;",
            "while (low < high) {",
            "const int64 middle = (low + high) / 2;",
            "if (is_number(middle)) low = middle + 1; else high = middle;",
            "}",
            "at = low;",
            "}",
        ]
    lines.append("out[out_place] = order[order_place + at];")
    arrays = (("x", dtype), ("order", "int64"))
    return Walk("element_of_rank", (("out", "int64"),), arrays, (), ("place", "size"), tuple(lines))


@builds("mode", package=PACKAGE)
def _build_mode(problem: Problem) -> Kernel:
    (dim,) = problem.attributes
    kernel = _mode(problem.inputs[0].dtype.name)

    def find(launcher: Launcher, given: Ordered, found: DeviceArray) -> None:
        count, size = given.rows.shape
        kernel.launch(launcher, count, (found, given.rows, given.order, size))

    return _one_of_each_row(problem, dim, find)


@lru_cache(None)
def _mode(dtype: str) -> CudaKernel:
    """Build the kernel of ``mode``: for each unsorted row, the position of the last element in the first of the longest
    runs of equal elements in sorted order; nan equals nothing.
    """
    source = f"""{KEYS}{BLOCK}
struct run {{ int64 length, last; }};
extern "C" __global__ void mode_{dtype}(int64* out, const {STORED[dtype]}* in, const int64* order, int64 size) {{
    __shared__ run shared[{THREADS}];
    const {STORED[dtype]}* const row = in + blockIdx.x * size;
    const int64* const places = order + blockIdx.x * size;
    auto value = [&](int64 n) {{ return converted<{COMPUTED[dtype]}>(row[places[n]]); }};
    auto better = [](run p, run q) {{
        return p.length > q.length || (p.length == q.length && p.last <= q.last) ? p : q;
    }};
    run best = {{0, 0}};
    for (int64 n = threadIdx.x; n < size; n += blockDim.x) {{
        const auto own = value(n);
        if (own == own && n + 1 < size && value(n + 1) == own) continue;
        int64 low = 0, high = n;
        const uint64_t key = own == own ? key_of(own) : ~0ULL;
        while (low < high) {{
            const int64 middle = (low + high) / 2;
            if (key_of(value(middle)) < key) low = middle + 1; else high = middle;
        }}
        best = better(best, run{{own == own ? n - low + 1 : 1, n}});
    }}
    best = of_block(best, shared, better);
    if (threadIdx.x == 0) out[blockIdx.x] = places[best.last];
}}
"""
    return CudaKernel(f"mode_{dtype}", source)
