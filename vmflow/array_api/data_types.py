"""Data types by the array API standard, version 2024.12: their limits, kinds, promotion and conversion."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any, Final, NamedTuple

from vmflow import dtypes
from vmflow.devices import device as Device
from vmflow.dtypes import dtype as DType
from vmflow.operands import check_tensors, described
from vmflow.ops.creation import creation
from vmflow.ops.elementwise.inference import fitting
from vmflow.tensors import Tensor
from vmflow.transfers import beside

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
    """The result of `finfo`."""

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: DType


class IntegerInfo(NamedTuple):
    """The result of `iinfo`."""

    bits: int
    max: int
    min: int
    dtype: DType


def astype(x: Tensor, dtype: DType, /, *, copy: bool = True, device: Device | str | None = None) -> Tensor:
    """Convert `x`, of any shape, to `dtype`, and move it to `device` if given.

    The result is a copy, or `x` itself if `copy` is False and nothing changes.

    Raises:
        TypeError: if `dtype` is no dtype.

    Example:
        >>> flow.array_api.astype(flow.tensor([1, 2]), flow.float32)
        tensor([1., 2.])
    """
    check_tensors("astype", x)
    if not isinstance(dtype, DType):
        raise TypeError(f"astype: expected a dtype, got {described(dtype)}")
    return x.to(dtype=dtype, device=device, copy=copy)


def can_cast(from_: DType | Tensor, to: DType, /) -> bool:
    """Whether type promotion of `from_` (a dtype or a tensor of any shape) and the dtype `to` gives `to`.

    Raises:
        TypeError: if `from_` is neither a dtype nor a tensor, or `to` no dtype.

    Example:
        >>> flow.array_api.can_cast(flow.int8, flow.int32)
        True
        >>> flow.array_api.can_cast(flow.float32, flow.int32)
        False
    """
    source = _dtype_of("can_cast", from_)
    if not isinstance(to, DType):
        raise TypeError(f"can_cast: expected a dtype to cast to, got {described(to)}")
    if source.category == to.category == dtypes.INTEGER and source.is_signed and not to.is_signed:
        return False  # promote_types raises for uint64 with a signed dtype
    if source is dtypes.uint64 and to.category == dtypes.INTEGER:
        return to is dtypes.uint64
    return dtypes.promote_types(source, to) is to


def finfo(type: DType | Tensor, /) -> FloatInfo:
    """Limits of a floating-point dtype, or of a complex one's real dtype; a tensor of any shape stands for its dtype.

    Raises:
        TypeError: for other dtypes.

    Example:
        >>> flow.array_api.finfo(flow.float32).bits
        32
    """
    real_dtype = _dtype_of("finfo", type).to_real()
    limits = dtypes.finfo(real_dtype)
    return FloatInfo(limits.bits, limits.eps, limits.max, limits.min, limits.smallest_normal, real_dtype)


def iinfo(type: DType | Tensor, /) -> IntegerInfo:
    """Limits of an integer dtype; a tensor of any shape stands for its dtype.

    Raises:
        TypeError: for other dtypes.

    Example:
        >>> flow.array_api.iinfo(flow.int8).max
        127
    """
    limits = dtypes.iinfo(_dtype_of("iinfo", type))
    return IntegerInfo(limits.bits, limits.max, limits.min, _dtype_of("iinfo", type))


def isdtype(dtype: DType, kind: DType | str | tuple[DType | str, ...]) -> bool:
    """Whether `dtype` is one of the dtypes, or of one of the kinds of dtypes, that `kind` names.

    Args:
        dtype: the dtype.
        kind: a dtype, a kind such as "integral" or "real floating", or a tuple of these.

    Raises:
        ValueError: if a string names no kind.
        TypeError: if `dtype` is no dtype, or a kind is neither a dtype, a string nor a tuple.

    Example:
        >>> flow.array_api.isdtype(flow.int8, "integral")
        True
    """
    if not isinstance(dtype, DType):
        raise TypeError(f"isdtype: expected a dtype, got {described(dtype)}")
    if isinstance(kind, tuple):
        return any([isdtype(dtype, member) for member in kind])
    if isinstance(kind, DType):
        return dtype is kind
    if not isinstance(kind, str):
        raise TypeError(f"isdtype: expected a dtype, the name of a kind, or a tuple of these, got {kind!r}")
    if kind not in _KINDS:
        raise ValueError(f"isdtype: there is no kind {kind!r}; the kinds are {', '.join(_KINDS)}")
    return _KINDS[kind](dtype)


def result_type(*arrays_and_dtypes: Any) -> DType:
    """The dtype to which tensors of any shape, dtypes and numbers promote.

    Python numbers raise the kind, and widen no dtype of their kind.  Unlike in `vmflow.result_type`, 0-d tensors can
    widen.

    Raises:
        TypeError: if an argument is of another type, or no integer dtype holds all values.
        ValueError: if there is neither a tensor nor a dtype.

    Example:
        >>> flow.array_api.result_type(flow.int8, flow.int16)
        vmflow.int16
    """
    sized = [_dtype_of("result_type", dtype) for dtype in arrays_and_dtypes if isinstance(dtype, (Tensor, DType))]
    if not sized:
        raise ValueError("result_type: expected at least one tensor or dtype")
    numbers = [type(dtype) for dtype in arrays_and_dtypes if not isinstance(dtype, (Tensor, DType))]
    sized.sort(key=lambda dtype: dtype.category, reverse=True)  # so that the order of the arguments does not matter
    return reduce(dtypes.promote_scalar, numbers, reduce(dtypes.promote_types, sized))


def _dtype_of(name: str, owner: DType | Tensor) -> DType:
    if not isinstance(owner, (Tensor, DType)):
        raise TypeError(f"{name}: expected a dtype or a tensor, got {described(owner)}")
    return owner.dtype if isinstance(owner, Tensor) else owner


def together(name: str, *operands: Any) -> list[Tensor]:
    """Convert tensors and Python numbers to tensors of their common dtype; errors name the function `name`.

    Raises:
        TypeError: if no operand is a tensor, one is neither a tensor nor a number, or no integer dtype holds the values
            of all, as of uint64 and int8.
        ValueError, OverflowError: if a number is out of the range of the common dtype.
    """
    tensors = [operand for operand in operands if isinstance(operand, Tensor)]
    for operand in operands:
        if not isinstance(operand, (Tensor, bool, int, float, complex)):
            raise TypeError(f"{name}: expected tensors and Python numbers, got {type(operand).__name__}")
    if not tensors:
        raise TypeError(f"{name}: expected at least one tensor")
    try:
        kind = result_type(*operands)
    except TypeError as error:
        raise TypeError(f"{name}: {error}") from None
    return [
        operand.to(kind)
        if isinstance(operand, Tensor)
        else beside(creation.full((), fitting(name, operand, kind), dtype=kind, device=tensors[0].device), tensors[0])
        for operand in operands
    ]
