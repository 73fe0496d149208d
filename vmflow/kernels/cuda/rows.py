"""Kernels that go through the rows of a matrix, one block of threads for each row, or part of a row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from math import prod
from typing import Any, Final, NamedTuple

import numpy as np

from vmflow.streams.cuda.arrays import DeviceArray, contiguous_strides
from vmflow.streams.cuda.launching import Launcher

from .complex_functions import COMPLEX_FUNCTIONS
from .pointwise import copy_array
from .sources import ELEMENTS_PRELUDE, STORED, THREADS, CudaKernel

_KERNELS: Final = 256

# Fewer than `_FEW_ROWS` rows, if longer than `_PART`, are cut into parts, so that more multiprocessors have blocks.
_PART: Final = 1 << 14
_FEW_ROWS: Final = 64
_MOST_PARTS: Final = 256

_WARP: Final = 32

# All threads of a block combine their values in a tree; each gets the result.
BLOCK: Final = """
template <typename T, typename Combine>
__device__ T of_block(T value, T* shared, Combine combine) {
    shared[threadIdx.x] = value;
    __syncthreads();
    for (int step = blockDim.x / 2; step > 0; step /= 2) {
        if (threadIdx.x < step) shared[threadIdx.x] = combine(shared[threadIdx.x], shared[threadIdx.x + step]);
        __syncthreads();
    }
    T result = shared[0];
    __syncthreads();
    return result;
}
"""

# Computes the `largest` element of a `row` of `columns`, nan if there is one, and the `total` of exp(element -
# largest).  This needs `BLOCK`, the type `value`, and an array of the block, `shared`.
LARGEST_AND_TOTAL: Final = """
    value largest = converted<value>(row[0]);
    for (int64 i = threadIdx.x; i < columns; i += blockDim.x) {
        const value v = converted<value>(row[i]);
        largest = v != v || v > largest ? v : largest;
    }
    largest = of_block(largest, shared, [](value p, value q) { return p != p || p > q ? p : q; });
    value total = 0;
    for (int64 i = threadIdx.x; i < columns; i += blockDim.x) total += exp(converted<value>(row[i]) - largest);
    total = of_block(total, shared, [](value p, value q) { return p + q; });
"""


def threads_for(columns: int) -> int:
    """Return a block's number of threads for one row: its elements, rounded up to a power of two from 32 to 256."""
    return min(THREADS, max(_WARP, 1 << (columns - 1).bit_length()))


def part_of_row(rows: int, length: int) -> int:
    """Return the number of elements of a row that one block reduces: a part of the row if rows are few and long."""
    parts = min(-(-length // _PART), _MOST_PARTS) if rows < _FEW_ROWS else 1
    return -(-length // parts) if parts > 1 else max(length, 1)


class RowReduction(NamedTuple):
    """A reduction of the rows of a matrix, in C++.

    Attributes:
        name: for people, and a part of the kernel's name.
        start: the neutral element of `combine`, in C++.
        take: turns an element (`x` as stored, `v` converted to the type of values) into a value.
        combine: combines two values, `p` and `q`.
        finish: turns the `total` of a row, and the `length` of the row, into the result.
        compute: the type of values, in C++.
    """

    name: str
    start: str
    take: str
    combine: str
    finish: str
    compute: str


def sums_in(dtype: np.dtype[Any]) -> RowReduction:
    """Return the reduction that adds up rows in this dtype, float32 or float64, or, for an integer dtype, in int64."""
    compute = STORED[dtype.name] if dtype.kind == "f" else "int64"
    return RowReduction("sum", "0", "v", "p + q", "total", compute)


# By C++ type of values, the numpy dtype of an array of them.
DTYPES: Final = {
    "float": np.float32,
    "double": np.float64,
    "int64": np.int64,
    "unsigned long long": np.uint64,
    "bool": np.bool_,
    "complex64": np.complex64,
    "complex128": np.complex128,
}


def reduce_rows(
    launcher: Launcher, reduction: RowReduction, source: DeviceArray, dims: Sequence[int], out: DeviceArray
) -> None:
    """Reduce an array along `dims`, into `out`, a contiguous array of the other dimensions."""
    matrix = as_rows(launcher, source, dims)
    rows, length = matrix.shape
    each = part_of_row(rows, length)
    if each < length:
        partial = launcher.scratch((rows, -(-length // each)), np.dtype(DTYPES[reduction.compute]))
        _launch(launcher, reduction._replace(finish="total"), matrix, partial, each, length)
        reduction = reduction._replace(name=f"{reduction.name}_of_parts", take="v")
        matrix, length_of_all, length = partial, length, partial.shape[1]
        _launch(launcher, reduction, matrix, out, length, length_of_all)
        return
    _launch(launcher, reduction, matrix, out, each, length)


def _launch(
    launcher: Launcher, reduction: RowReduction, matrix: DeviceArray, out: DeviceArray, each: int, length: int
) -> None:
    """Reduce each part of `each` elements of every row; `finish` gets the `length` of a whole row."""
    rows, columns = matrix.shape
    parts = max(-(-columns // each), 1)
    kernel = _reduction(reduction, matrix.dtype.name, out.dtype.name)
    kernel.launch(launcher, rows * parts, (out, matrix, columns, each, parts, length), threads_for(each))


@lru_cache(_KERNELS)
def _reduction(reduction: RowReduction, given: str, wanted: str) -> CudaKernel:
    name = f"{reduction.name}_{given}_{wanted}"
    complex_ = ELEMENTS_PRELUDE + COMPLEX_FUNCTIONS if reduction.compute.startswith("complex") else ""
    source = f"""{complex_}{BLOCK}
extern "C" __global__ void {name}({STORED[wanted]}* out, const {STORED[given]}* in, int64 columns, int64 each,
                                  int64 parts, int64 length) {{
    typedef {reduction.compute} value;
    __shared__ value shared[{THREADS}];
    auto combine = [](value p, value q) -> value {{ return {reduction.combine}; }};
    const int64 row = blockIdx.x / parts, begin = blockIdx.x % parts * each;
    const int64 end = begin + each < columns ? begin + each : columns;
    value total = {{{reduction.start}}};
    for (int64 i = begin + threadIdx.x; i < end; i += blockDim.x) {{
        const {STORED[given]} x = in[row * columns + i];
        const value v = converted<value>(x);
        total = combine(total, {reduction.take});
    }}
    total = of_block(total, shared, combine);
    if (threadIdx.x == 0) out[blockIdx.x] = converted<{STORED[wanted]}>({reduction.finish});
}}
"""
    return CudaKernel(name, source)


def softmax_rows(launcher: Launcher, matrix: DeviceArray, out: DeviceArray, logarithm: bool) -> None:
    """Compute the softmax of each row of a contiguous matrix, or its logarithm, into `out`."""
    rows, columns = matrix.shape
    if columns:
        _softmax(matrix.dtype.name, out.dtype.name, logarithm).launch(
            launcher, rows, (out, matrix, columns), threads_for(columns)
        )


@lru_cache(_KERNELS)
def _softmax(given: str, wanted: str, logarithm: bool) -> CudaKernel:
    compute = "double" if given == "float64" else "float"
    name = f"{'log_' if logarithm else ''}softmax_{given}_{wanted}"
    result = "v - largest - log(total)" if logarithm else "exp(v - largest) / total"
    source = f"""{BLOCK}
extern "C" __global__ void {name}({STORED[wanted]}* out, const {STORED[given]}* in, int64 columns) {{
    typedef {compute} value;
    __shared__ value shared[{THREADS}];
    const {STORED[given]}* row = in + blockIdx.x * columns;
    {LARGEST_AND_TOTAL}
    for (int64 i = threadIdx.x; i < columns; i += blockDim.x) {{
        const value v = converted<value>(row[i]);
        out[blockIdx.x * columns + i] = converted<{STORED[wanted]}>({result});
    }}
}}
"""
    return CudaKernel(name, source)


def as_rows(launcher: Launcher, array: DeviceArray, dims: Sequence[int]) -> DeviceArray:
    """Return the array as a contiguous matrix whose rows run through `dims`; copied if the array's layout differs."""
    kept = [axis for axis in range(array.ndim) if axis not in dims]
    order = [*kept, *sorted(dims)]
    shape = tuple([array.shape[axis] for axis in order])
    moved = array.strided(shape, array.dtype, 0, tuple([array.strides[axis] for axis in order]))
    if not moved.contiguous:
        copied = launcher.scratch(shape, array.dtype)
        copy_array(launcher, moved, copied)
        moved = copied
    rows = prod(shape[: len(kept)])
    return moved.strided((rows, prod(shape[len(kept) :])), array.dtype)


def back_from_rows(matrix: DeviceArray, shape: Sequence[int], dim: int) -> DeviceArray:
    """Return a matrix as an array of `shape`, with the matrix's rows along `dim`: the inverse of `as_rows`."""
    kept = [axis for axis in range(len(shape)) if axis != dim]
    order = [*kept, dim]
    strides = contiguous_strides(tuple([shape[axis] for axis in order]), matrix.itemsize)
    by_axis = dict(zip(order, strides, strict=True))
    return matrix.strided(tuple(shape), matrix.dtype, 0, tuple([by_axis[axis] for axis in range(len(shape))]))


def into_order(launcher: Launcher, outs: Sequence[DeviceArray], compute: Callable[..., None]) -> None:
    """Call `compute`, which writes contiguous arrays, and copy its results to the `outs` that are not contiguous."""
    targets = [out if out.contiguous else launcher.scratch(out.shape, out.dtype) for out in outs]
    compute(*targets)
    for target, out in zip(targets, outs, strict=True):
        if target is not out:
            copy_array(launcher, target, out)
