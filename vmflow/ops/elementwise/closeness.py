"""Equality of tensors: exact (`equal`), and up to rounding (`isclose`, `allclose`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vmflow import dtypes
from vmflow.operands import check_tensors
from vmflow.ops.autocasting import autocast_as_op
from vmflow.ops.declaration import public
from vmflow.ops.reduction.reduction import all as all_of

from .arithmetic import abs
from .comparison import eq, isfinite, isnan

if TYPE_CHECKING:
    from vmflow.tensors import Tensor


@public()
@autocast_as_op
def isclose(input: Tensor, other: Tensor, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> Tensor:
    """Whether ``|input - other| <= atol + rtol * |other|`` for each element; infinities are close to themselves only.

    Args:
        input, other: of one dtype; the shapes broadcast.
        rtol, atol: relative and absolute tolerance, not negative.
        equal_nan: whether nan is close to nan.

    Raises:
        TypeError: if an operand is no tensor, or the dtypes differ.
        ValueError: if a tolerance is negative, or the shapes do not broadcast.

    Example:
        >>> flow.isclose(flow.tensor([1.0, 2.0]), flow.tensor([1.0, 2.1]))
        tensor([ True, False])
    """
    check_tensors("isclose", input, other)
    if input.dtype is not other.dtype:
        raise TypeError(f"isclose: expected one dtype, got {input.dtype.name} and {other.dtype.name}")
    if rtol < 0 or atol < 0:
        raise ValueError(f"isclose: tolerances cannot be negative, got rtol={rtol} and atol={atol}")
    same = eq(input, other)
    if equal_nan:
        same = same | (isnan(input) & isnan(other))
    if rtol == 0 and atol == 0:
        return same
    if input.dtype.category < dtypes.FLOATING:
        input, other = input.to(dtypes.float64), other.to(dtypes.float64)
    distance = abs(input - other)
    return same | (isfinite(distance) & isfinite(other) & (distance <= abs(other) * rtol + atol))


@public()
def allclose(input: Tensor, other: Tensor, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> bool:
    """Whether all elements are close by `isclose`.  Waits until the tensors are computed.

    Raises:
        TypeError, ValueError: as `isclose`.

    Example:
        >>> flow.allclose(flow.tensor([1.0, 2.0]), flow.tensor([1.0, 2.000001]))
        True
    """
    return bool(all_of(isclose(input, other, rtol, atol, equal_nan)).item())


@public()
def equal(input: Tensor, other: Tensor) -> bool:
    """Whether two tensors have the same shape and equal elements.  Waits for the elements if the shapes are the same.

    Raises:
        TypeError: if an operand is no tensor.
        RuntimeError: if the shapes are the same, but the devices are not.

    Example:
        >>> flow.equal(flow.tensor([1, 2]), flow.tensor([1, 2]))
        True
    """
    check_tensors("equal", input, other)
    return input.shape == other.shape and bool(all_of(eq(input, other)).item())
