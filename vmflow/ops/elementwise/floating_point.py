"""Functions of floating-point representations: sign bits, adjacent numbers, exponents.

Also extrema that ignore nan, `heaviside` and `positive`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from vmflow import dtypes, interpreter as _interpreter
from vmflow.dtypes import FLOATING
from vmflow.operands import check_tensors
from vmflow.ops.autocasting import autocast_as_op
from vmflow.ops.copying import cast
from vmflow.ops.declaration import public
from vmflow.ops.destination import out_by_copy, outs_by_copy, written
from vmflow.ops.in_place import copied_in_place
from vmflow.ops.inquiry import result_type
from vmflow.ops.reduction.reduction import half_widened

from .comparison import isfinite
from .inference import TO_BOOL, TO_FLOAT, elementwise
from .pointwise import binary, change_by_pair, pair, unary
from .rounding import floor
from .selection import where
from .transcendental import exp2, log2

if TYPE_CHECKING:
    from vmflow.autograd.node import OpNode
    from vmflow.tensors import Tensor


signbit = unary(
    "signbit",
    TO_BOOL,
    most=FLOATING,
    in_place=False,
    doc="Whether the sign bit is set, as in negative numbers, -0.0 and some nan.",
    example=("flow.signbit(flow.tensor([-1.0, -0.0, 2.0]))", "tensor([ True,  True, False])"),
)
copysign = binary(
    "copysign",
    TO_FLOAT,
    most=FLOATING,
    doc="The magnitude of `input` with the sign of `other`.",
    example=("flow.copysign(flow.tensor([1.0, -2.0]), flow.tensor([-0.0, 3.0]))", "tensor([-1.,  2.])"),
)
nextafter = pair(
    "nextafter",
    least=FLOATING,
    most=FLOATING,
    in_place=True,
    doc="The next number after `input` towards `other` that the dtype holds.",
    example=(
        "flow.nextafter(flow.tensor([1.0]), flow.tensor([2.0])) - 1 == flow.finfo(flow.float32).eps",
        "tensor([True])",
    ),
)
fmax = pair(
    "fmax",
    most=FLOATING,
    doc="The larger of two elements; nan only if both are nan.",
    example=("flow.fmax(flow.tensor([1.0, flow.nan]), flow.tensor([3.0, 2.0]))", "tensor([3., 2.])"),
)
fmin = pair(
    "fmin",
    most=FLOATING,
    doc="The smaller of two elements; nan only if both are nan.",
    example=("flow.fmin(flow.tensor([1.0, flow.nan]), flow.tensor([3.0, 2.0]))", "tensor([1., 2.])"),
)
_HEAVISIDE = elementwise("heaviside", operands=2, most=FLOATING)


def _check_one_dtype(name: str, input: Tensor, other: Tensor) -> None:
    """Raise TypeError unless both operands of the op `name` have the same dtype."""
    if input.dtype is not other.dtype:
        raise TypeError(f"{name}: expected one dtype, got {input.dtype.name} and {other.dtype.name}")


change_by_pair(_HEAVISIDE, _check_one_dtype)


@copysign.op.tensors.gradient(inputs=(0,), outputs=(0,))
def _copysign_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor | None, Tensor | None]:
    first, second = node.needs
    return (
        _signed(gradient, node.input(0), node.output(0)) if first else None,
        gradient * 0.0 if second else None,
    )


@copysign.op.scalar.gradient(inputs=(0,), outputs=(0,))
def _copysign_scalar_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    return (_signed(gradient, node.input(0), node.output(0)) if not node.attributes else gradient * 0.0,)


def _signed(gradient: Tensor, before: Tensor, after: Tensor) -> Tensor:
    """Compute copysign's gradient by its first operand: `gradient`, negated where the op changed the sign, 0 at 0."""
    return where(before == 0, 0.0, where(before == after, gradient, -gradient))


@fmax.op.gradient(inputs=(0, 1))
def _fmax_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor | None, Tensor | None]:
    return _split(node, gradient, node.input(0) >= node.input(1))


@fmin.op.gradient(inputs=(0, 1))
def _fmin_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor | None, Tensor | None]:
    return _split(node, gradient, node.input(0) <= node.input(1))


def _split(node: OpNode, gradient: Tensor, first_wins: Tensor) -> tuple[Tensor | None, Tensor | None]:
    """Give each element of the gradient of fmax or fmin to the operand that was chosen: the first where `first_wins`.

    As in PyTorch, the first also counts as chosen where both are equal, or the second is nan.  An operand that requires
    no gradient gets None."""
    first_wins = first_wins | node.input(1).isnan()
    first, second = node.needs
    return where(first_wins, gradient, 0.0) if first else None, where(first_wins, 0.0, gradient) if second else None


@public()
@autocast_as_op
def heaviside(input: Tensor, values: Tensor, *, out: Tensor | None = None) -> Tensor:
    """0 where `input` is negative or nan, `values` where it is 0, 1 where it is positive.

    The shapes broadcast.  There is no gradient.

    Raises:
        TypeError: if an operand is no tensor, the dtypes differ, or they are complex.
        ValueError: if the shapes do not broadcast.

    Example:
        >>> flow.heaviside(flow.tensor([-1.0, 0.0, 2.0]), flow.tensor([0.5]))
        tensor([0.0000, 0.5000, 1.0000])
    """
    check_tensors("heaviside", input, values)
    _check_one_dtype("heaviside", input, values)
    if out is not None:
        return written(_HEAVISIDE, out, (input, values))
    return _interpreter.dispatch(_HEAVISIDE, (input, values))


@public()
@copied_in_place()
@autocast_as_op
@out_by_copy()
def ldexp(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """``input * 2 ** other``, also where ``2 ** other`` alone would overflow.  The shapes broadcast.

    Integers become floating-point.

    Raises:
        TypeError: if an operand is no tensor, or `other` is complex.
        ValueError: if the shapes do not broadcast.

    Example:
        >>> flow.ldexp(flow.tensor([1.0, 3.0]), flow.tensor([2, -1]))
        tensor([4.0000, 1.5000])
    """
    check_tensors("ldexp", input, other)
    if other.dtype.is_complex:
        raise TypeError(f"ldexp is not defined for exponents of {other.dtype.name}")
    common = result_type(input, other)
    if common.category < FLOATING:
        common = dtypes.get_default_dtype()
    wide = half_widened(cast(input, common))
    return cast(_scaled(wide, cast(other, wide.dtype.to_real())), common)


class Frexp(NamedTuple):
    """The result of `frexp`."""

    mantissa: Tensor
    exponent: Tensor


@public()
@outs_by_copy()
def frexp(input: Tensor, *, out: tuple[Tensor, Tensor] | None = None) -> Frexp:
    """The mantissas m and the int32 exponents e, with ``input == m * 2 ** e`` and ``0.5 <= |m| < 1``.

    Both have the shape of `input`.  0, infinities and nan are their own mantissas, with exponent 0.

    Raises:
        TypeError: if `input` is no tensor, or not floating-point.

    Example:
        >>> flow.frexp(flow.tensor([6.0, -0.1]))
        Frexp(mantissa=tensor([ 0.7500, -0.8000]), exponent=tensor([ 3, -3], dtype=vmflow.int32))
    """
    check_tensors("frexp", input)
    if not input.dtype.is_floating_point:
        raise TypeError(f"frexp is not defined for {input.dtype.name} tensors; convert with .float() first")
    double = input.to(dtypes.float64)
    regular = (double != 0) & isfinite(double)
    size = where(regular, double.detach().abs(), 1.0)
    power = floor(log2(size)) + 1
    # log2 may have been rounded to an adjacent integer: correct the exponent by one in both directions.
    power = power + (_scaled(size, -power) >= 1).to(dtypes.float64)
    power = power - (_scaled(size, -power) < 0.5).to(dtypes.float64)
    mantissa = where(regular, _scaled(double, where(regular, -power, 0.0)), double)
    return Frexp(mantissa.to(input.dtype), where(regular, power, 0.0).to(dtypes.int32))


def _scaled(input: Tensor, power: Tensor) -> Tensor:
    """Compute ``input * 2 ** power`` by three factors, since ``2 ** power`` may overflow or vanish alone: from the
    smallest to the largest number, the power is nearly twice that of the largest.
    """
    # Beyond this limit, the products of finite numbers but 0 are 0 or infinite.
    limit = 3 * (math.frexp(dtypes.finfo(power.dtype).max)[1] - 4)
    power = power.clamp(-limit, limit)
    third = floor(power / 3)
    factor = exp2(third)
    return input * factor * factor * exp2(power - third * 2)


@public()
def positive(input: Tensor) -> Tensor:
    """`input` itself, of any shape.

    Raises:
        TypeError: if `input` is no tensor, or bool.

    Example:
        >>> flow.positive(flow.tensor([1, -2]))
        tensor([ 1, -2])
    """
    check_tensors("positive", input)
    if input.dtype is dtypes.bool_:
        raise TypeError("positive is not defined for bool tensors")
    return input
