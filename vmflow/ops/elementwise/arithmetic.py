"""Arithmetic: sums, products, quotients, powers, and the functions of one operand that go with them."""

from __future__ import annotations

import cmath
import functools
import math
from collections.abc import Sequence
from numbers import Number
from typing import TYPE_CHECKING, Any

import numpy as np

from vmflow import dtypes, interpreter as _interpreter, tensor_operators, tensors as _tensors
from vmflow.dtypes import FLOATING, dtype as DType
from vmflow.ops.autocasting import autocast_as_op
from vmflow.ops.copying import cast
from vmflow.ops.declaration import METHODS, attribute, function, method, public
from vmflow.ops.destination import out_by_copy, written
from vmflow.ops.in_place import copied_in_place

from . import arithmetic_gradients
from .arithmetic_gradients import conj_if_complex as conj_if_complex
from .inference import DEAR, REVERSED, TO_FLOAT, TO_REAL, elementwise, number, result_dtype
from .pointwise import Binary, binary, change_by, check_tensors, pair, unary
from .selection import where

if TYPE_CHECKING:
    from vmflow.autograd.node import OpNode
    from vmflow.tensors import Tensor

    from .inference import Scalar


def _check_divisor(name: str, input: Tensor | Scalar, other: Tensor | Scalar) -> None:
    """Raise ZeroDivisionError if integers are to be divided by the number 0."""
    if isinstance(other, Number) and other == 0 and _common_dtype(input, other).category < FLOATING:
        raise ZeroDivisionError(f"{name}: integer division by zero")


def _common_dtype(*operands: Any) -> DType:
    return result_dtype(
        tuple([operand._blob.meta for operand in operands if isinstance(operand, _tensors.Tensor)]),
        tuple([type(number("dtype", operand)) for operand in operands if not isinstance(operand, _tensors.Tensor)]),
    )


_ADD = Binary("add")
_SUB = Binary("sub", bools="use logical_xor, or ~ to invert a mask")
mul = binary("mul", also=("multiply",), doc="``input * other``.")
_DIV = Binary("div", TO_FLOAT)
_POW = Binary("pow", cost=DEAR, least=dtypes.INTEGER)
floor_divide = binary(
    "floor_divide",
    least=dtypes.INTEGER,
    most=FLOATING,
    cost=DEAR,
    also=("__floordiv__",),
    reflected="__rfloordiv__",
    check=_check_divisor,
    doc="""The quotient rounded down.

    Raises:
        ZeroDivisionError: for an integer divided by zero; at the call if the divisor is a number.
    """,
)
METHODS["__ifloordiv__"] = METHODS["floor_divide_"]
_TRUNC_DIVIDE = Binary("trunc_divide", least=dtypes.INTEGER, most=FLOATING, cost=DEAR)
remainder = binary(
    "remainder",
    least=dtypes.INTEGER,
    most=FLOATING,
    cost=DEAR,
    also=("__mod__",),
    reflected="__rmod__",
    check=_check_divisor,
    doc="""The remainder of `floor_divide`; it has the divisor's sign.

    Raises:
        ZeroDivisionError: for an integer divided by zero; at the call if the divisor is a number.
    """,
)
METHODS["__imod__"] = METHODS["remainder_"]
fmod = binary(
    "fmod",
    least=dtypes.INTEGER,
    most=FLOATING,
    cost=DEAR,
    check=_check_divisor,
    doc="""The remainder of division rounded towards zero; it has the dividend's sign.

    Raises:
        ZeroDivisionError: for an integer divided by zero; at the call if the divisor is a number.
    """,
)
atan2 = binary(
    "atan2",
    TO_FLOAT,
    cost=DEAR,
    most=FLOATING,
    also=("arctan2",),
    doc="The angle, in radians, of the point (other, input).",
)

for _binary, _operator in (
    (_ADD, tensor_operators.ADD),
    (_SUB, tensor_operators.SUB),
    (mul.op, tensor_operators.MUL),
    (_DIV, tensor_operators.DIV),
):
    _operator.tensors, _operator.otherwise, _operator.in_place = _binary.tensors, _binary.of, _binary.into


@public()
def add(input: Tensor | Scalar, other: Tensor | Scalar, *, alpha: Scalar = 1, out: Tensor | None = None) -> Tensor:
    """``input + alpha * other``; of bools the logical or.

    Raises:
        TypeError: for a floating-point `alpha` and integer tensors.
    """
    if out is not None:
        return _ADD.written(out, input, other if alpha == 1 else _scaled("add", input, other, alpha))
    return _ADD.of(input, other if alpha == 1 else _scaled("add", input, other, alpha))


@function()
@out_by_copy()
def add_n(inputs: Sequence[Tensor], *, out: Tensor | None = None) -> Tensor:
    """The sum of one or more tensors, which broadcast; a copy of a single one.

    Raises:
        TypeError, ValueError: for what is no list of tensors, and for an empty one.

    Example:
        >>> vmflow.add_n([vmflow.ones(2), vmflow.ones(2), vmflow.ones(2)])
        tensor([3., 3.])
    """
    if isinstance(inputs, _tensors.Tensor):
        raise TypeError("add_n: expected a list of tensors, got a tensor")
    tensors = list(inputs)
    if not tensors:
        raise ValueError("add_n: expected at least one tensor")
    check_tensors("add_n", *tensors)
    if len(tensors) == 1:
        return tensors[0].clone()
    return functools.reduce(add, tensors)


@public("subtract")
def sub(input: Tensor | Scalar, other: Tensor | Scalar, *, alpha: Scalar = 1, out: Tensor | None = None) -> Tensor:
    """``input - alpha * other``.

    Raises:
        TypeError: for bools, whose difference is not defined.
    """
    if out is not None:
        return _SUB.written(out, input, other if alpha == 1 else _scaled("sub", input, other, alpha))
    return _SUB.of(input, other if alpha == 1 else _scaled("sub", input, other, alpha))


@public("divide", "true_divide")
def div(
    input: Tensor | Scalar,
    other: Tensor | Scalar,
    *,
    rounding_mode: str | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """``input / other``; integers divide to the default floating-point dtype.

    Args:
        rounding_mode: None, "trunc" (towards zero) or "floor"; with either, integers stay integers.

    Raises:
        ValueError: for another `rounding_mode`.
        ZeroDivisionError: for an integer divided by zero in a rounding mode.
    """
    if rounding_mode is None:
        return _DIV.of(input, other) if out is None else _DIV.written(out, input, other)
    if rounding_mode == "floor":
        return floor_divide(input, other, out=out)
    if rounding_mode != "trunc":
        raise ValueError(f"div: rounding_mode must be None, 'trunc' or 'floor', not {rounding_mode!r}")
    _check_divisor("div", input, other)
    if out is not None:
        return _TRUNC_DIVIDE.written(out, input, other)
    return _TRUNC_DIVIDE.of(input, other)


@public("__pow__", reflected="__rpow__")
def pow(input: Tensor | Scalar, exponent: Tensor | Scalar, *, out: Tensor | None = None) -> Tensor:
    """``input ** exponent``; an integer to a negative power from a tensor is rounded towards zero.

    Raises:
        ValueError: for an integer tensor and an exponent that is a negative number, or does not fit its dtype.
    """
    _check_exponent("pow", input, exponent)
    if out is not None:
        return _POW.written(out, input, exponent)
    if (
        type(exponent) is int
        and exponent == 2
        and isinstance(input, _tensors.Tensor)
        and input.dtype is not dtypes.bool_
    ):
        return _interpreter.dispatch(_SQUARE, (input,))
    return _POW.of(input, exponent)


@method()
def add_(input: Tensor, other: Tensor | Scalar, *, alpha: Scalar = 1) -> Tensor:
    """In-place `add`."""
    return _ADD.into(input, other if alpha == 1 else _scaled("add_", input, other, alpha))


@method("subtract_")
def sub_(input: Tensor, other: Tensor | Scalar, *, alpha: Scalar = 1) -> Tensor:
    """In-place `sub`."""
    return _SUB.into(input, other if alpha == 1 else _scaled("sub_", input, other, alpha))


@method("divide_", "true_divide_")
def div_(input: Tensor, other: Tensor | Scalar, *, rounding_mode: str | None = None) -> Tensor:
    """In-place `div`."""
    if rounding_mode is None:
        return _DIV.into(input, other)
    if rounding_mode not in ("trunc", "floor"):
        raise ValueError(f"div_: rounding_mode must be None, 'trunc' or 'floor', not {rounding_mode!r}")
    _check_divisor("div_", input, other)
    return (floor_divide.op if rounding_mode == "floor" else _TRUNC_DIVIDE).into(input, other)


@method()
def pow_(input: Tensor, exponent: Tensor | Scalar) -> Tensor:
    """In-place `pow`."""
    _check_exponent("pow_", input, exponent)
    return _POW.into(input, exponent)


METHODS["__ipow__"] = METHODS["pow_"]


def _check_exponent(name: str, input: Tensor | Scalar, exponent: Tensor | Scalar) -> None:
    if isinstance(exponent, (int, np.integer)) and isinstance(input, _tensors.Tensor):
        if input.dtype.category < FLOATING and exponent < 0:
            raise ValueError(
                f"{name}: integers to a negative integer power are not integers; convert with .float() first"
            )
        if input.dtype.category == dtypes.INTEGER and exponent > dtypes.iinfo(input.dtype).max:
            raise ValueError(f"{name}: the exponent {exponent} does not fit into {input.dtype.name}")


def _scaled(name: str, input: Tensor | Scalar, other: Tensor | Scalar, alpha: Scalar) -> Tensor | Scalar:
    if not isinstance(alpha, (int, np.integer)) and _common_dtype(input, other).category < FLOATING:
        raise TypeError(f"{name}: alpha must be an integer for integer tensors, not {alpha!r}")
    factor = number(name, alpha)
    scaled: Tensor | Scalar = other * factor
    return scaled


_ADD.tensors.gradient()(arithmetic_gradients.of_add)
_ADD.scalar.gradient()(arithmetic_gradients.of_add_scalar)
_SUB.tensors.gradient()(arithmetic_gradients.of_sub)
_SUB.scalar.gradient()(arithmetic_gradients.of_sub_scalar)
mul.op.tensors.gradient(inputs=(0, 1), readers={0: 1, 1: 0})(arithmetic_gradients.of_mul)
mul.op.scalar.gradient()(arithmetic_gradients.of_mul_scalar)
_DIV.tensors.gradient(inputs=(0, 1))(arithmetic_gradients.of_div)
_DIV.scalar.gradient(inputs=(0,))(arithmetic_gradients.of_div_scalar)


@_POW.tensors.gradient(inputs=(0, 1), outputs=(0,))
def _pow_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor | None, Tensor | None]:
    base, exponent = node.input(0), node.input(1)
    if exponent.dtype.category < FLOATING:
        exponent = cast(exponent, gradient.dtype)
    if base.dtype.category < FLOATING:
        base = cast(base, gradient.dtype)
    first, second = node.needs
    # Where these hold, 0 * 0**-1 and 0 * log(0) would be nan and the derivative is 0.
    flat = exponent == 0
    flat_in_exponent = base == 0 if exponent.dtype.is_complex else (base == 0) & (exponent >= 0)
    return (
        gradient * conj_if_complex(where(flat, 0.0, exponent * base ** (exponent - 1))) if first else None,
        gradient * conj_if_complex(where(flat_in_exponent, 0.0, node.output(0) * base.log())) if second else None,
    )


@_POW.scalar.gradient(inputs=(0,), outputs=(0,))
def _pow_scalar_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    value = node.scalars[0]
    operand = node.input(0)
    if node.attributes == REVERSED:
        if value == 0:
            return (gradient * (0.0 if operand.dtype.is_complex else where(operand >= 0, 0.0, -math.inf)),)
        if isinstance(value, complex) or operand.dtype.is_complex:
            return (gradient * conj_if_complex(node.output(0) * cmath.log(value)),)
        return (gradient * node.output(0) * (math.log(value) if value > 0 else math.nan),)
    if value == 0:
        return (gradient * 0.0,)
    return (gradient * conj_if_complex(operand ** (value - 1) * value),)


@remainder.op.tensors.gradient(inputs=(0, 1))
def _remainder_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor | None, Tensor | None]:
    second = -gradient * floor_divide(node.input(0), node.input(1)) if node.needs[1] else None
    return gradient, second


@remainder.op.scalar.gradient(inputs=(0,))
def _remainder_scalar_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    if node.attributes == REVERSED:
        return (-gradient * floor_divide(node.scalars[0], node.input(0)),)
    return (gradient,)


@fmod.op.tensors.gradient(inputs=(0, 1))
def _fmod_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor | None, Tensor | None]:
    second = -gradient * _TRUNC_DIVIDE.of(node.input(0), node.input(1)) if node.needs[1] else None
    return gradient, second


@fmod.op.scalar.gradient(inputs=(0,))
def _fmod_scalar_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    if node.attributes == REVERSED:
        return (-gradient * _TRUNC_DIVIDE.of(node.scalars[0], node.input(0)),)
    return (gradient,)


def zero_gradients(node: OpNode, gradient: Tensor) -> tuple[Tensor | None, ...]:
    zero = gradient * 0.0
    return tuple([zero if needed else None for needed in node.needs])


for _steps in (floor_divide.op, _TRUNC_DIVIDE):
    _steps.tensors.gradient()(zero_gradients)
    _steps.scalar.gradient()(zero_gradients)


@atan2.op.tensors.gradient(inputs=(0, 1))
def _atan2_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor | None, Tensor | None]:
    y, x = node.input(0), node.input(1)
    distance = x * x + y * y
    # At the origin the angle has no derivative; it is taken as 0.
    scaled = gradient / where(distance == 0, 1.0, distance)
    return scaled * x if node.needs[0] else None, -scaled * y if node.needs[1] else None


@atan2.op.scalar.gradient(inputs=(0,))
def _atan2_scalar_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    operand, value = node.input(0), node.scalars[0]
    scaled = gradient * value / (operand * operand + value * value)
    return (-scaled if node.attributes == REVERSED else scaled,)


neg = unary("neg", least=1, also=("negative", "__neg__"), doc="``-input``.")
abs = unary(
    "abs",
    TO_REAL,
    least=1,
    also=("absolute", "__abs__"),
    doc="The absolute value; of complex elements the modulus, a real dtype.",
)
sign = unary("sign", most=FLOATING, doc="-1, 0 or 1 as the element is negative, zero or positive; 0 for nan.")
gcd = pair(
    "gcd",
    least=dtypes.INTEGER,
    most=dtypes.INTEGER,
    cost=DEAR,
    in_place=True,
    doc="The greatest common divisor, which is not negative; of integers.",
)
lcm = pair(
    "lcm",
    least=dtypes.INTEGER,
    most=dtypes.INTEGER,
    cost=DEAR,
    in_place=True,
    doc="The least common multiple, which is not negative; of integers.",
)
_SQUARE = elementwise("square", least=1)
change_by(_SQUARE)
_CONJ = elementwise("conj", least=1)
reciprocal = unary("reciprocal", TO_FLOAT, doc="``1 / input``.")


@public()
def square(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """``input * input``; bools become int64."""
    if out is not None:
        return pow(input, 2, out=out) if input.dtype is dtypes.bool_ else written(_SQUARE, out, (input,))
    return _interpreter.dispatch(_SQUARE, (input,)) if input.dtype is not dtypes.bool_ else pow(input, 2)


@public()
def conj(input: Tensor) -> Tensor:
    """The complex conjugate."""
    return _interpreter.dispatch(_CONJ, (input,)) if input.dtype.is_complex else input


@neg.op.gradient()
def _neg_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    return (-gradient,)


@abs.op.gradient(inputs=(0,))
def _abs_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    operand = node.input(0)
    if operand.dtype.is_complex:
        modulus = abs(operand)
        return (gradient * where(modulus == 0, 0.0, operand / modulus),)
    return (gradient * sign(operand),)


@_SQUARE.gradient(inputs=(0,))
def _square_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    return (gradient * (conj_if_complex(node.input(0)) * 2),)


@_CONJ.gradient()
def _conj_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    return (conj(gradient),)


@reciprocal.op.gradient(outputs=(0,))
def _reciprocal_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    inverse = conj_if_complex(node.output(0))
    return (-gradient * (inverse * inverse),)


@public()
@copied_in_place()
@autocast_as_op
@out_by_copy()
def lerp(input: Tensor, end: Tensor, weight: Tensor | Scalar, *, out: Tensor | None = None) -> Tensor:
    """``input + weight * (end - input)``.

    Raises:
        TypeError: if `input` and `end` differ in dtype.
    """
    if input.dtype is not end.dtype:
        raise TypeError(f"lerp: expected one dtype, got {input.dtype.name} and {end.dtype.name}")
    return input + weight * (end - input)


@public()
@copied_in_place()
@out_by_copy()
def addcmul(input: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: Scalar = 1, out: Tensor | None = None) -> Tensor:
    """``input + value * tensor1 * tensor2``."""
    return add(input, tensor1 * tensor2, alpha=value)


@public()
@copied_in_place()
@out_by_copy()
def addcdiv(input: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: Scalar = 1, out: Tensor | None = None) -> Tensor:
    """``input + value * tensor1 / tensor2``, of floating-point tensors.

    Raises:
        TypeError: for two integer tensors, whose quotient would not be of their dtype.
    """
    if tensor1.dtype.category < FLOATING and tensor2.dtype.category < FLOATING:
        raise TypeError("addcdiv: integer division is not supported; convert with .float() first")
    return add(input, tensor1 / tensor2, alpha=value)


@public()
@copied_in_place()
@out_by_copy()
def float_power(input: Tensor | Scalar, exponent: Tensor | Scalar, *, out: Tensor | None = None) -> Tensor:
    """`pow` in double precision: the result is float64, or complex128 if one of the operands is complex.

    >>> flow.float_power(flow.tensor([2, 3]), -1)
    tensor([0.5000, 0.3333], dtype=vmflow.float64)
    """
    double = dtypes.complex128 if _common_dtype(input, exponent).is_complex else dtypes.float64
    base, power = (cast(value, double) if isinstance(value, _tensors.Tensor) else value for value in (input, exponent))
    # A number that is no tensor must not be taken for an integer.
    widened: Any = float if double is dtypes.float64 else complex
    return pow(
        base if isinstance(base, _tensors.Tensor) else widened(base),
        power if isinstance(power, _tensors.Tensor) else widened(power),
    )


@function()
def rsub(input: Tensor, other: Tensor | Scalar, *, alpha: Scalar = 1) -> Tensor:
    """``other - alpha * input``."""
    return sub(other, input, alpha=alpha)


sign.op.gradient()(zero_gradients)


@public()
def adjoint(input: Tensor) -> Tensor:
    """`mH`: the last two dimensions exchanged, and conjugated.

    Raises:
        ValueError: for fewer than two dimensions.
    """
    if input.ndim < 2:
        raise ValueError(f"adjoint: expected matrices, got shape {list(input.shape)}")
    return conj(input.mT)


@attribute("mH")
def mH(self: Tensor) -> Tensor:
    """The last two dimensions exchanged, and conjugated."""
    return conj(self.mT)


@attribute("H")
def H(self: Tensor) -> Tensor:
    """The conjugated transpose of a matrix."""
    if self.ndim not in (0, 2):
        raise RuntimeError(f"H: expected a matrix, got shape {list(self.shape)}; use mH for batches of matrices")
    return conj(self.t())
