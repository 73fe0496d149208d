"""Scans (running sums and the like) along a dimension: each element is combined with all before it, always in one
order.

A line is the elements along the dimension.  Each block of threads has one line, or several adjacent ones, and goes
along them by as many elements as it has threads.  Few long lines are cut into parts: their totals are computed first,
and carried into the parts behind.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import prod
from typing import Final, NamedTuple

import numpy as np

from vmflow.streams.cuda.arrays import DeviceArray
from vmflow.streams.cuda.launching import Launcher

from .complex_functions import COMPLEX_FUNCTIONS
from .pointwise import apart
from .sources import ELEMENTS_PRELUDE, STORED, THREADS, CudaKernel
from .walks import contiguous, in_order

# The most adjacent lines of a block: so many that its reads are whole memory transactions.
_WIDTH: Final = 32

# Lines longer than `_PART` are cut into parts, at most `_MOST_PARTS`, if there are fewer than `_FEW_BLOCKS` blocks.
_FEW_BLOCKS: Final = 64
_PART: Final = 1 << 13
_MOST_PARTS: Final = 256


class Scan(NamedTuple):
    """A scan, in C++.

    Attributes:
        name: for people, and a part of the kernel's name.
        value: the definition of the type `value`, in C++.
        nbytes: the bytes of a value.
        load: turns the elements at the place `at` of arrays x0, x1, ... into a value: element `i` of `size` along the
            line; places are `inner` apart.
        combine: combines two values, `p` before `q`; associative but for rounding.
        store: turns the value `v` of element `i` into the result.
    """

    name: str
    value: str
    nbytes: int
    load: str
    combine: str
    store: str


def scan(
    launcher: Launcher, steps: Scan, arrays: Sequence[DeviceArray], dim: int, out: DeviceArray, reverses: bool = False
) -> None:
    """Compute a scan of `arrays`, of one shape, along `dim` into `out`; from the dimension's end, if it `reverses`."""
    if not out.size:
        return
    arrays = [contiguous(launcher, apart(launcher, array, out)) for array in arrays]
    size, inner = out.shape[dim], prod(out.shape[dim + 1 :])
    rows = out.size // size
    width = min(_WIDTH, 1 << (inner.bit_length() - 1))
    groups = -(-rows // width)
    parts = min(-(-size // _PART), _MOST_PARTS) if groups < _FEW_BLOCKS else 1
    each = -(-size // parts)
    parts = -(-size // each)
    kernels = _kernels(steps, tuple([array.dtype.name for array in arrays]), out.dtype.name)
    sizes = (rows, size, inner, width, each, parts, int(reverses))
    carries: DeviceArray | int = 0
    if parts > 1:
        carries = launcher.scratch((rows * parts * steps.nbytes,), np.dtype(np.uint8))
        kernels.lines.launch(launcher, groups * parts, (0, carries, *arrays, 0, *sizes))
        kernels.carries.launch_over(launcher, rows, (carries, rows, parts))
    with in_order(launcher, out) as whole:
        kernels.lines.launch(launcher, groups * parts, (whole, 0, *arrays, carries, *sizes))


class _Kernels(NamedTuple):
    """The kernel that goes along lines, and the kernel that turns the totals of a line's parts into running totals."""

    lines: CudaKernel
    carries: CudaKernel


@lru_cache(None)
def _kernels(steps: Scan, given: tuple[str, ...], wanted: str) -> _Kernels:
    name = f"{steps.name}_{'_'.join([*given, wanted])}"
    arrays = "".join([f"const {STORED[dtype]}* x{number}, " for number, dtype in enumerate(given)])
    common = f"""{ELEMENTS_PRELUDE}{COMPLEX_FUNCTIONS}
{steps.value}
__device__ __forceinline__ value combined(value p, value q) {{ return {steps.combine}; }}
"""
    lines = f"""{common}
extern "C" __global__ void {name}({STORED[wanted]}* out, value* totals, {arrays}const value* carries, int64 rows,
                                  int64 size, int64 inner, int64 width, int64 each, int64 parts, int64 reverses) {{
    __shared__ value shared[{THREADS}];
    const int lanes = {THREADS} / (int)width, lane = threadIdx.x / (int)width, column = threadIdx.x % (int)width;
    const int64 part = blockIdx.x % parts, row = blockIdx.x / parts * width + column;
    const int64 begin = part * each, end = begin + each < size ? begin + each : size;
    const int64 base = row / inner * inner * size + row % inner;
    value carry = value();
    bool carried = false;
    if (carries && part > 0 && row < rows) {{
        carry = carries[row * parts + part - 1];
        carried = true;
    }}
    for (int64 start = begin; start < end; start += lanes) {{
        const int64 i = reverses ? size - 1 - start - lane : start + lane, at = base + i * inner;
        const bool there = row < rows && start + lane < end;
        value v = value();
        if (there) v = {steps.load};
        shared[threadIdx.x] = v;
        __syncthreads();
        for (int reach = 1; reach < lanes; reach *= 2) {{
            if (lane >= reach) v = combined(shared[threadIdx.x - reach * (int)width], v);
            __syncthreads();
            shared[threadIdx.x] = v;
            __syncthreads();
        }}
        if (carried) v = combined(carry, v);
        if (there && out) out[at] = converted<{STORED[wanted]}>({steps.store});
        const value last = shared[(end - start < lanes ? (int)(end - start) - 1 : lanes - 1) * (int)width + column];
        carry = carried ? combined(carry, last) : last;
        carried = true;
        __syncthreads();
    }}
    if (totals && row < rows && lane == 0) totals[row * parts + part] = carry;
}}
"""
    carries = f"""{common}
extern "C" __global__ void carries_of_{name}(value* totals, int64 rows, int64 parts) {{
    const int64 threads = (int64)gridDim.x * blockDim.x;
    for (int64 row = (int64)blockIdx.x * blockDim.x + threadIdx.x; row < rows; row += threads)
        for (int64 part = 1; part < parts; part++)
            totals[row * parts + part] = combined(totals[row * parts + part - 1], totals[row * parts + part]);
}}
"""
    return _Kernels(CudaKernel(name, lines, (0, 1)), CudaKernel(f"carries_of_{name}", carries))
