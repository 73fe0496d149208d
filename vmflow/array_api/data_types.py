"""Data types by the array API standard: what they hold, how they mix, and conversion."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any, Final, NamedTuple

from vmflow import dtypes
from vmflow.devices import device as Device
from vmflow.dtypes import dtype as DType
from vmflow.ops.creation import creation
from vmflow.tensors import Tensor

_KINDS: Final[dict[str, Callable[[DType], bool]]] = {
    "bool": lambda value: value.category == dtypes.BOOL,
    "signed integer": lambda value: value.category == dtypes.INTEGER and value.is_signed,
    "unsigned integer": lambda value: value.category == dtypes.INTEGER and not value.is_signed,
    "integral": lambda value: value.category == dtypes.INTEGER,
    "real floating": lambda value: value.category == dtypes.FLOATING,
    "complex floating": lambda value: value.category == dtypes.COMPLEX,
    "numeric": lambda value: value.category != dtypes.BOOL,
}


class FloatInfo(NamedTuple):
    """What `finfo` returns."""

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: DType


class IntegerInfo(NamedTuple):
    """What `iinfo` returns."""

    bits: int
    max: int
    min: int
    dtype: DType


def astype(x: Tensor, dtype: DType, /, *, copy: bool = True, device: Device | str | None = None) -> Tensor:
    """`x` as another dtype; a copy even of the same dtype, unless `copy` is False."""
    return x.to(dtype=dtype, device=device, copy=copy)


def can_cast(from_: DType | Tensor, to: DType, /) -> bool:
    """Whether promotion leads from the one to the other."""
    given = _dtype_of(from_)
    if given.category == to.category == dtypes.INTEGER and given.is_signed and not to.is_signed:
        return False  # nothing holds both uint64 and a signed integer
    if given is dtypes.uint64 and to.category == dtypes.INTEGER:
        return to is dtypes.uint64
    return dtypes.promote_types(given, to) is to


def finfo(type: DType | Tensor, /) -> FloatInfo:
    """Limits of a floating-point dtype, or of the parts of a complex one."""
    chosen = _dtype_of(type).to_real()
    found = dtypes.finfo(chosen)
    return FloatInfo(found.bits, found.eps, found.max, found.min, found.smallest_normal, chosen)


def iinfo(type: DType | Tensor, /) -> IntegerInfo:
    """Limits of an integer dtype."""
    found = dtypes.iinfo(_dtype_of(type))
    return IntegerInfo(found.bits, found.max, found.min, _dtype_of(type))


def isdtype(dtype: DType, kind: DType | str | tuple[DType | str, ...]) -> bool:
    """Whether `dtype` is, or is of, one of these kinds.

    Raises:
        ValueError: for a string that names no kind.
        TypeError: for anything else that is no dtype.
    """
    if isinstance(kind, tuple):
        return any([isdtype(dtype, one) for one in kind])
    if isinstance(kind, DType):
        return dtype is kind
    if not isinstance(kind, str):
        raise TypeError(f"isdtype: expected a dtype, the name of a kind, or a tuple of these, got {kind!r}")
    if kind not in _KINDS:
        raise ValueError(f"isdtype: there is no kind {kind!r}; known are {', '.join(_KINDS)}")
    return _KINDS[kind](dtype)


def result_type(*arrays_and_dtypes: Any) -> DType:
    """The dtype that these make together; Python numbers raise the kind and never widen.

    Raises:
        ValueError: if none of them is a tensor or dtype.
    """
    sized = [_dtype_of(dtype) for dtype in arrays_and_dtypes if isinstance(dtype, (Tensor, DType))]
    if not sized:
        raise ValueError("result_type: expected at least one tensor or dtype")
    numbers = [type(dtype) for dtype in arrays_and_dtypes if not isinstance(dtype, (Tensor, DType))]
    return reduce(dtypes.promote_scalar, numbers, reduce(dtypes.promote_types, sized))


def _dtype_of(it: DType | Tensor) -> DType:
    return it.dtype if isinstance(it, Tensor) else it


def together(name: str, *operands: Any) -> list[Tensor]:
    """Tensors and Python numbers as tensors of the dtype that they make together.

    Raises:
        TypeError: if none is a tensor, or one is neither.
    """
    tensors = [operand for operand in operands if isinstance(operand, Tensor)]
    for operand in operands:
        if not isinstance(operand, (Tensor, bool, int, float, complex)):
            raise TypeError(f"{name}: expected tensors and Python numbers, got {type(operand).__name__}")
    if not tensors:
        raise TypeError(f"{name}: expected at least one tensor")
    kind = result_type(*operands)
    return [
        operand.to(kind)
        if isinstance(operand, Tensor)
        else creation.full((), operand, dtype=kind, device=tensors[0].device)
        for operand in operands
    ]
