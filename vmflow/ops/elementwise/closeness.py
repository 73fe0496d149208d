"""Whether two tensors hold the same: exactly (`equal`), or up to rounding (`isclose`, `allclose`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vmflow import dtypes
from vmflow.ops.autocasting import autocast_as_op
from vmflow.ops.declaration import public
from vmflow.ops.reduction.reduction import all as all_of

from .arithmetic import abs
from .comparison import eq, isfinite, isnan
from .pointwise import check_tensors

if TYPE_CHECKING:
    from vmflow.tensors import Tensor


@public()
@autocast_as_op
def isclose(input: Tensor, other: Tensor, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> Tensor:
    """Whether ``|input - other| <= atol + rtol * |other|``, element by element; infinities are close to themselves.

    Args:
        input, other: of one dtype; they broadcast.
        rtol, atol: relative and absolute tolerance, not negative.
        equal_nan: whether two nan are close.

    Raises:
        TypeError: if they differ in dtype.
        ValueError: for a negative tolerance.
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
    """Whether all elements are close; see `isclose`.  Waits for the answer."""
    return bool(all_of(isclose(input, other, rtol, atol, equal_nan)).item())


@public()
def equal(input: Tensor, other: Tensor) -> bool:
    """Whether shapes and all elements are equal.  Waits for the answer."""
    check_tensors("equal", input, other)
    return input.shape == other.shape and bool(all_of(eq(input, other)).item())
