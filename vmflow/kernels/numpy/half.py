"""Helpers to compute float16 and bfloat16 in float32."""

from __future__ import annotations

from typing import Any

from vmflow import dtypes
from vmflow.instructions.blob import Array
from vmflow.kernels.choosing import Function


def computes_in(dtype: dtypes.dtype) -> Any:
    """Return the numpy dtype to compute in: float32 for half precision, else `dtype` itself."""
    return (dtypes.float32 if dtypes.is_half(dtype) else dtype).numpy


def in_single(kernel: Function, half: bool) -> Function:
    """Return `kernel`; if `half`, wrapped to compute in float32 and cast the result to the first array's dtype."""
    if not half:
        return kernel

    def with_casts(*arguments: Any) -> Array:
        *arrays, _ = arguments
        return kernel(*[array.astype("float32") for array in arrays], None).astype(arrays[0].dtype)

    return with_casts


def rounded_once(function: Function) -> Function:
    """Wrap an elementwise function to compute in float32 if its first operand is of half precision."""
    of_half = in_single(function, True)

    def rounded(*arguments: Any) -> Array:
        half = arguments[0].dtype.name in ("float16", "bfloat16")
        return (of_half if half else function)(*arguments)

    return rounded
