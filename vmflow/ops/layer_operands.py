"""What several layers ask of their operands: pairs of sizes, floating-point dtypes, and half precision in float32."""

from __future__ import annotations

from typing import Any

from vmflow import dtypes
from vmflow.dtypes import FLOATING
from vmflow.dtypes import dtype as DType
from vmflow.instructions.blob import Array, TensorMeta
from vmflow.instructions.op_call import Kernel

# Down and across.
Pair = tuple[int, int]


def pair(name: str, what: str, value: Any, least: int) -> Pair:
    """One integer for both directions, or two, down and across.

    Raises:
        TypeError: if it is neither.
        ValueError: if one is below `least`.
    """
    given = tuple(value) if isinstance(value, (tuple, list)) else (value, value)
    if len(given) == 1:
        given *= 2
    if len(given) != 2 or any(not hasattr(it, "__index__") or isinstance(it, bool) for it in given):
        raise TypeError(f"{name}: {what} must be an integer or a pair of integers, not {value!r}")
    first, second = int(given[0]), int(given[1])
    if first < least or second < least:
        raise ValueError(f"{name}: {what} must be at least {least}, got {value!r}")
    return first, second


def check_floating(name: str, source: TensorMeta) -> None:
    """Raise unless `source` has a floating-point dtype.

    Raises:
        TypeError: for another dtype.
    """
    if source.dtype.category != FLOATING:
        raise TypeError(f"{name} is not defined for {source.dtype.name} tensors; convert with .float() first")


def in_single(kernel: Kernel, half: bool) -> Kernel:
    """`kernel`, computing half precision in float32."""
    if not half:
        return kernel

    def with_casts(*arguments: Any) -> Array:
        *arrays, _ = arguments
        return kernel(*[it.astype("float32") for it in arrays], None).astype(arrays[0].dtype)

    return with_casts


def is_half(source: TensorMeta) -> bool:
    """Whether the dtype has sixteen bits."""
    return source.dtype in (dtypes.float16, dtypes.bfloat16)


def computes_in(source: TensorMeta) -> DType:
    """The dtype to compute in: float32 for half precision, else the tensor's own."""
    return dtypes.float32 if is_half(source) else source.dtype
