"""Products of matrices, of any strides and leading dimensions: of integers by our kernel, else by the driver."""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import Any, Final

import numpy as np

from vmflow.streams.cuda.arrays import DeviceArray
from vmflow.streams.cuda.launching import Launcher

from .pointwise import Pointwise, copy_array, launch_pointwise
from .sources import STORED, VARIABLES, CudaKernel
from .walks import contiguous

_FLOAT32: Final = np.dtype(np.float32)
_BIAS_ALIGNMENT: Final = 16


def multiply(
    launcher: Launcher, left: DeviceArray, right: DeviceArray, out: DeviceArray, bias: DeviceArray | None = None
) -> None:
    """Compute ``out = left @ right + bias``; half precision is rounded once.

    Args:
        launcher: of the stream.
        left, right: matrices (..., n, k) and (..., k, m) of one dtype, whose leading dimensions broadcast.
        out: (..., n, m), of the operands' dtype, or also float32 if that is half precision; it overlaps no operand.
        bias: (m,), of any dtype; or None.
    """
    if not out.size:
        return
    target = out if _fits(out) else launcher.scratch(out.shape, out.dtype)
    inner = left.shape[-1]
    if not inner:
        if bias is None:
            launcher.fill(target, 0)
        else:
            copy_array(launcher, _spread(bias, target), target)
    elif out.dtype.kind not in "iub":
        _multiply_floats(launcher, left, right, target, bias)
    elif bias is None:
        _multiply_integers(launcher, left, right, target)
    else:
        product = launcher.scratch(out.shape, out.dtype)
        _multiply_integers(launcher, left, right, product)
        _add_bias(launcher, product, bias, target)
    if target is not out:
        copy_array(launcher, target, out)


def _spread(bias: DeviceArray, out: DeviceArray) -> DeviceArray:
    """Return the bias broadcast to the shape of `out`."""
    return bias.strided(out.shape, bias.dtype, 0, (0,) * (out.ndim - 1) + bias.strides)


def _add_bias(launcher: Launcher, product: DeviceArray, bias: DeviceArray, out: DeviceArray) -> None:
    add = _sum(product.dtype.name, bias.dtype.name, out.dtype.name)
    launch_pointwise(launcher, add, (product, _spread(bias, out)), (), (out,))


def _multiply_floats(
    launcher: Launcher, left: DeviceArray, right: DeviceArray, out: DeviceArray, bias: DeviceArray | None
) -> None:
    # A bias that the library does not take is added afterwards, before the result is rounded to half precision.
    if bias is not None and not _adds(bias, out):
        wide = launcher.scratch(out.shape, _wide(out.dtype))
        _multiply_floats(launcher, left, right, wide, None)
        _add_bias(launcher, wide, bias, out)
        return
    if right.ndim == 2 and left.ndim > 2 and left.contiguous and out.contiguous:
        # All leading dimensions are merged to rows of one product: a batch of products would read `right` many times.
        rows = prod(left.shape[:-1])
        left, out = left.reshape(rows, left.shape[-1]), out.reshape(rows, out.shape[-1])
    batch = out.shape[:-2]
    left, right = [_ready(launcher, array, batch) for array in (left, right)]
    if not out.contiguous and len(batch) > 1:
        raise ValueError(f"the result of a batch of products has to be contiguous, not {out!r}")
    merged = _merged(out, batch)
    launcher.multiply(left, right, merged, bias)


def _adds(bias: DeviceArray, out: DeviceArray) -> bool:
    """Return whether the library can add this bias as it writes the product to `out`."""
    by_rows = out.shape[-1] == 1 or out.strides[-1] == out.itemsize
    whole = bias.contiguous and bias.dtype == out.dtype and bias.pointer % _BIAS_ALIGNMENT == 0
    return whole and out.dtype.kind != "c" and by_rows


def _wide(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return _FLOAT32 if dtype.itemsize == 2 else dtype


@lru_cache(None)
def _sum(first: str, second: str, to: str) -> Pointwise:
    cast = f"converted<{VARIABLES[first]}>(x1)"
    return Pointwise("add", (first, second), (), (f"const {VARIABLES[first]} sum = x0 + {cast};",), (("sum", to),))


def _fits(array: DeviceArray) -> bool:
    """Return whether the library can write products directly into the array."""
    return array.contiguous or (array.ndim <= 3 and is_matrix(array))


def is_matrix(array: DeviceArray) -> bool:
    """Return whether the rows, or the columns, of each matrix of an array are contiguous and do not overlap."""
    (rows, columns), (down, across) = array.shape[-2:], array.strides[-2:]
    size = array.itemsize
    by_rows = (columns == 1 or across == size) and (rows == 1 or (down % size == 0 and down >= columns * size))
    by_columns = (rows == 1 or down == size) and (columns == 1 or (across % size == 0 and across >= rows * size))
    return by_rows or by_columns


def _ready(launcher: Launcher, array: DeviceArray, batch: tuple[int, ...]) -> DeviceArray:
    """Return an operand, broadcast to `batch`, in a layout that the library reads: at most one leading dimension."""
    if not is_matrix(array):
        array = contiguous(launcher, array, array.dtype)
    if not batch:
        return array
    missing = len(batch) + 2 - array.ndim
    shape = (1,) * missing + array.shape[:-2]
    strides = (0,) * missing + array.strides[:-2]
    strides = tuple([0 if size == 1 else stride for size, stride in zip(shape, strides, strict=True)])
    spread = array.strided((*batch, *array.shape[-2:]), array.dtype, 0, (*strides, *array.strides[-2:]))
    step = _step_of(batch, strides)
    if step is None:
        copied = launcher.scratch(spread.shape, spread.dtype)
        copy_array(launcher, spread, copied)
        return _merged(copied, batch)
    return array.strided((prod(batch), *array.shape[-2:]), array.dtype, 0, (step, *array.strides[-2:]))


def _merged(array: DeviceArray, batch: tuple[int, ...]) -> DeviceArray:
    """Merge the leading dimensions of a contiguous array into one; a single matrix has none."""
    if len(batch) <= 1:
        return array
    return array.strided((prod(batch), *array.shape[-2:]), array.dtype)


def _step_of(batch: tuple[int, ...], strides: tuple[int, ...]) -> int | None:
    """Return the bytes from each matrix of a batch to the next; None if they are not the same everywhere."""
    step, behind = 0, 1
    for size, stride in zip(reversed(batch), reversed(strides), strict=True):
        if size == 1:
            continue
        if behind == 1:
            step = stride
        elif stride != step * behind:
            return None
        behind *= size
    return step


def _multiply_integers(launcher: Launcher, left: DeviceArray, right: DeviceArray, out: DeviceArray) -> None:
    batch = out.shape[:-2]
    left, right = [contiguous(launcher, _ready(launcher, array, batch), array.dtype) for array in (left, right)]
    arguments = (out, left, right, out.size, out.shape[-2], out.shape[-1], left.shape[-1])
    _integers(out.dtype.name).launch_over(launcher, out.size, arguments)


@lru_cache(None)
def _integers(dtype: str) -> CudaKernel:
    name = f"multiply_{dtype}"
    source = f"""
extern "C" __global__ void {name}({STORED[dtype]}* out, const {STORED[dtype]}* left, const {STORED[dtype]}* right,
                                  int64 count, int64 rows, int64 columns, int64 inner) {{
    const int64 threads = (int64)gridDim.x * blockDim.x;
    for (int64 i = (int64)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += threads) {{
        const int64 column = i % columns, row = i / columns, matrix = row / rows;
        uint64_t total = 0;
        for (int64 k = 0; k < inner; ++k)
            total += (uint64_t)left[row * inner + k] * (uint64_t)right[(matrix * inner + k) * columns + column];
        out[i] = ({STORED[dtype]})total;
    }}
}}
"""
    return CudaKernel(name, source)
