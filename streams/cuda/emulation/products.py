"""Products of matrices by numpy, in place of cuBLASLt."""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import numpy as np

from vmflow.streams.cuda.arrays import DeviceArray

Array: TypeAlias = "np.ndarray[Any, Any]"

_FLOAT32: Final = np.dtype(np.float32)
# The dtype that products of half precision are computed in.
_WIDE: Final = {"float16": _FLOAT32, "bfloat16": _FLOAT32}

# The alignment, in bytes, of the address of a bias.
_ALIGNMENT: Final = 16

# TensorFloat32 has the exponent of float32, and its first 10 bits of mantissa of 23.
_DROPPED: Final = 13


def check_bias(bias: DeviceArray | None, out: DeviceArray) -> None:
    """Check whether cuBLASLt can add a bias to `out`, by dtypes, layouts and the address of the bias; None is accepted.

    Raises:
        ValueError: if it cannot.
    """
    if bias is None:
        return
    by_rows = out.shape[-1] == 1 or out.strides[-1] == out.itemsize
    real = out.dtype.kind != "c"
    if not (by_rows and real and bias.contiguous and bias.dtype == out.dtype and bias.pointer % _ALIGNMENT == 0):
        raise ValueError(f"no library adds a bias such as {bias!r} to {out!r} of strides {out.strides}")


def compute_product(out: Array, left: Array, right: Array, bias: Array | None, tf32: bool) -> None:
    """Compute ``out = left @ right + bias``, see `Driver.multiply`.

    Args:
        out, left, right, bias: the arrays.
        tf32: whether factors in float32 and complex64 are rounded to TensorFloat32.
    """
    factors = [array.astype(_WIDE.get(array.dtype.name, array.dtype), copy=False) for array in (left, right)]
    if tf32 and left.dtype in (np.float32, np.complex64):
        factors = [rounded_to_tf32(array) for array in factors]
    with np.errstate(all="ignore"):
        product = np.matmul(*factors)
        if bias is not None:
            product = product + bias.astype(product.dtype, copy=False)
        np.copyto(out, product, casting="unsafe")


def rounded_to_tf32(array: Array) -> Array:
    """Numbers in float32 or complex64, rounded to the nearest ones of TensorFloat32, in ties to the even one."""
    contiguous = np.ascontiguousarray(array)
    bits = contiguous.view(np.uint32)
    odd = (bits >> np.uint32(_DROPPED)) & np.uint32(1)
    half = np.uint32((1 << (_DROPPED - 1)) - 1)
    rounded = (bits + half + odd) & ~np.uint32((1 << _DROPPED) - 1)
    finite = np.isfinite(contiguous.view(np.float32))
    return np.where(finite, rounded, bits).view(array.dtype).reshape(array.shape)
