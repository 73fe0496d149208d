"""Arithmetic: sums, products, quotients, powers, absolute values, signs, conjugates."""

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
from vmflow.operands import check_tensors, listed_tensors
from vmflow.ops.autocasting import autocast_as_op
from vmflow.ops.copying import cast
from vmflow.ops.declaration import METHODS, attribute, function, method, public
from vmflow.ops.destination import out_by_copy, written
from vmflow.ops.in_place import copied_in_place

from . import arithmetic_gradients
from .arithmetic_gradients import conj_if_complex as conj_if_complex
from .inference import EXPENSIVE, REVERSED, TO_FLOAT, TO_REAL, elementwise, number, result_dtype
from .pointwise import Binary, binary, change_by, pair, unary
from .selection import where

if TYPE_CHECKING:
    from vmflow.autograd.node import OpNode
    from vmflow.tensors import Tensor

    from .inference import Scalar


def _check_divisor(name: str, input: Tensor | Scalar, other: Tensor | Scalar) -> None:
    """Raise ZeroDivisionError if both operands are integers or bools, and the divisor `other` is a number, 0."""
    if isinstance(other, Number) and other == 0 and _common_dtype(input, other).category < FLOATING:
        raise ZeroDivisionError(f"{name}: integer division by zero")


def _common_dtype(*operands: Any) -> DType:
    return result_dtype(
        tuple([operand._blob.meta for operand in operands if isinstance(operand, _tensors.Tensor)]),
        tuple([type(number("dtype", operand)) for operand in operands if not isinstance(operand, _tensors.Tensor)]),
    )


_BY_ZERO = ("ZeroDivisionError: for an integer divided by zero; in the call itself if the divisor is a number.",)

_ADD = Binary("add")
_SUB = Binary("sub", bools="use logical_xor, or ~ to invert a mask")
mul = binary(
    "mul",
    also=("multiply",),
    doc="``input * other``.",
    example=("flow.mul(flow.tensor([1.0, 2.0]), flow.tensor([3, 4]))", "tensor([3., 8.])"),
)
_DIV = Binary("div", TO_FLOAT)
_POW = Binary("pow", cost=EXPENSIVE, least=dtypes.INTEGER)
floor_divide = binary(
    "floor_divide",
    least=dtypes.INTEGER,
    most=FLOATING,
    cost=EXPENSIVE,
    also=("__floordiv__",),
    reflected="__rfloordiv__",
    check=_check_divisor,
    doc="The quotient, rounded down.",
    example=("flow.floor_divide(flow.tensor([7, -7]), 2)", "tensor([ 3, -4])"),
    raises=_BY_ZERO,
)
METHODS["__ifloordiv__"] = METHODS["floor_divide_"]
_TRUNC_DIVIDE = Binary("trunc_divide", least=dtypes.INTEGER, most=FLOATING, cost=EXPENSIVE)
remainder = binary(
    "remainder",
    least=dtypes.INTEGER,
    most=FLOATING,
    cost=EXPENSIVE,
    also=("__mod__",),
    reflected="__rmod__",
    check=_check_divisor,
    doc="The remainder of `floor_divide`, with the sign of the divisor.",
    example=("flow.remainder(flow.tensor([7, -7]), 3)", "tensor([1, 2])"),
    raises=_BY_ZERO,
)
METHODS["__imod__"] = METHODS["remainder_"]
fmod = binary(
    "fmod",
    least=dtypes.INTEGER,
    most=FLOATING,
    cost=EXPENSIVE,
    check=_check_divisor,
    doc="The remainder of a division rounded towards zero, with the sign of the dividend.",
    example=("flow.fmod(flow.tensor([7, -7]), 3)", "tensor([ 1, -1])"),
    raises=_BY_ZERO,
)
atan2 = binary(
    "atan2",
    TO_FLOAT,
    cost=EXPENSIVE,
    most=FLOATING,
    also=("arctan2",),
    doc="The angle of the point (`other`, `input`) in radians.",
    example=("flow.atan2(flow.tensor([1.0, -1.0]), flow.tensor([0.0, 1.0]))", "tensor([ 1.5708, -0.7854])"),
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
    """``input + alpha * other``; for bools their logical or.  The shapes broadcast.

    Raises:
        TypeError: if neither operand is a tensor, or `alpha` is no number, no integer though the result is integer
            or bool, or complex though the result is not.
        ValueError: if the shapes do not broadcast.

    Example:
        >>> flow.add(flow.tensor([1, 2]), flow.tensor([[10], [20]]))
        tensor([[11, 12],
                [21, 22]])
        >>> flow.add(flow.tensor([1.0, 2.0]), 3, alpha=2)
        tensor([7., 8.])
    """
    if out is not None:
        return _ADD.written(out, input, other if alpha == 1 else _scaled("add", input, other, alpha))
    return _ADD.of(input, other if alpha == 1 else _scaled("add", input, other, alpha))


@function()
@out_by_copy()
def add_n(inputs: Sequence[Tensor], *, out: Tensor | None = None) -> Tensor:
    """The sum of one or more tensors, whose shapes broadcast; a copy of a single tensor.

    Raises:
        TypeError: if `inputs` is no sequence of tensors.
        ValueError: if `inputs` is empty, or the shapes do not broadcast.

    Example:
        >>> flow.add_n([flow.ones(2), flow.ones(2), flow.ones(2)])
        tensor([3., 3.])
    """
    if isinstance(inputs, _tensors.Tensor):
        raise TypeError("add_n: expected a list of tensors, got a tensor")
    tensors = listed_tensors("add_n", inputs)
    if not tensors:
        raise ValueError("add_n: expected at least one tensor")
    if len(tensors) == 1:
        return tensors[0].clone()
    return functools.reduce(add, tensors)


@public("subtract")
def sub(input: Tensor | Scalar, other: Tensor | Scalar, *, alpha: Scalar = 1, out: Tensor | None = None) -> Tensor:
    """``input - alpha * other``.  The shapes broadcast.

    Raises:
        TypeError: if neither operand is a tensor, one is bool, or `alpha` is as `add` refuses it.
        ValueError: if the shapes do not broadcast.

    Example:
        >>> flow.sub(flow.tensor([5, 7]), flow.tensor([1, 2]), alpha=2)
        tensor([3, 3])
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
    """``input / other``; integers give the default floating-point dtype.  The shapes broadcast.

    Args:
        input, other: tensors, or one of them a number.
        rounding_mode: None, "trunc" (round towards zero) or "floor"; integers stay integers if they are rounded.

    Raises:
        TypeError: if neither operand is a tensor; with a `rounding_mode`, if their common dtype is bool or complex.
        ValueError: for another `rounding_mode`, or if the shapes do not broadcast.
        ZeroDivisionError: for an integer divided by zero with a `rounding_mode`; when the result is read if the divisor
            is a tensor.

    Example:
        >>> flow.div(flow.tensor([7, -7]), 2)
        tensor([ 3.5000, -3.5000])
        >>> flow.div(flow.tensor([7, -7]), 2, rounding_mode="trunc")
        tensor([ 3, -3])
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
    """``input ** exponent``.  The shapes broadcast.

    Integers raised to negative exponents, given as an integer tensor, are rounded towards zero.

    Raises:
        TypeError: if neither operand is a tensor, or their common dtype is bool.
        ValueError: for an integer number as exponent that is negative, if `input` is an integer or bool tensor, or
            exceeds the dtype of an integer tensor `input`; if the shapes do not broadcast.

    Example:
        >>> flow.pow(flow.tensor([1, 2, 3]), 2)
        tensor([1, 4, 9])
        >>> flow.pow(2, flow.tensor([1.0, 0.5]))
        tensor([2.0000, 1.4142])
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
    """Return ``alpha * other``, the second operand of `add` and `sub`."""
    is_bool = isinstance(other, bool) or (isinstance(other, _tensors.Tensor) and other.dtype is dtypes.bool_)
    if is_bool and name in ("sub", "sub_"):
        return other  # which `sub` refuses
    for operand in (input, other):
        if not isinstance(operand, _tensors.Tensor):
            number(name, operand)  # or an error that names the function
    dtype = _common_dtype(input, other)
    if isinstance(other, _tensors.Tensor):
        return scaled(name, "alpha", other, alpha, dtype)
    product: Any = number(name, other) * _factor(name, "alpha", alpha, dtype)
    return bool(product) if dtype is dtypes.bool_ else product


def scaled(name: str, what: str, operand: Tensor, factor: Any, dtype: DType) -> Tensor:
    """Compute ``factor * operand``, a summand of a result of the dtype `dtype`, in that dtype.

    Args:
        name, what: of the function and of its argument `factor`, for errors.
        operand: a tensor.
        factor: a number.  For a bool result, it matters only whether it is 0.
        dtype: of the result.

    Raises:
        TypeError: if the factor is no number, no integer for a bool or integer result, or complex for a real result.
    """
    product: Tensor = cast(operand, dtype) * _factor(name, what, factor, dtype)
    return product


def _factor(name: str, what: str, given: Any, dtype: DType) -> Any:
    if not isinstance(given, (Number, np.generic)):
        described = "a tensor; read its value with .item()" if isinstance(given, _tensors.Tensor) else repr(given)
        raise TypeError(f"{name}: {what} must be a number, not {described}")
    factor: Any = number(name, given)
    if dtype.category < FLOATING and not isinstance(factor, int):
        raise TypeError(f"{name}: {what} must be an integer for integer tensors, not {factor!r}")
    if isinstance(factor, complex) and not dtype.is_complex:
        raise TypeError(f"{name}: {what} must be real for real tensors, not {factor!r}")
    return factor != 0 if dtype is dtypes.bool_ else factor


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
    # With complex exponents, powers and logarithms of negative bases exist as complex numbers only.
    if base.dtype.category < gradient.dtype.category:
        base = cast(base, gradient.dtype)
    first, second = node.needs
    # Masks of elements whose derivative is 0; the formula may give nan or -inf there (0 * 0**-1, 0 * log(0), log(0)).
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
    # The angle has no derivative at the origin (0, 0): the divisor 1 makes the gradient 0.
    scaled = gradient / where(distance == 0, 1.0, distance)
    return scaled * x if node.needs[0] else None, -scaled * y if node.needs[1] else None


@atan2.op.scalar.gradient(inputs=(0,))
def _atan2_scalar_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    operand, value = node.input(0), node.scalars[0]
    scaled = gradient * value / (operand * operand + value * value)
    return (-scaled if node.attributes == REVERSED else scaled,)


neg = unary(
    "neg",
    least=1,
    also=("negative", "__neg__"),
    doc="``-input``.",
    example=("flow.neg(flow.tensor([1, -2]))", "tensor([-1,  2])"),
)
abs = unary(
    "abs",
    TO_REAL,
    least=1,
    also=("absolute", "__abs__"),
    doc="The absolute value; the modulus of complex elements.",
    example=("flow.abs(flow.tensor([-1, 2]))", "tensor([1, 2])"),
)
sign = unary(
    "sign",
    most=FLOATING,
    doc="-1, 0 or 1 for a negative, zero or positive element; 0 for nan.",
    example=("flow.sign(flow.tensor([-2.0, 0.0, 3.0]))", "tensor([-1.,  0.,  1.])"),
)
gcd = pair(
    "gcd",
    least=dtypes.INTEGER,
    most=dtypes.INTEGER,
    cost=EXPENSIVE,
    in_place=True,
    doc="The greatest common divisor, which is not negative.",
    example=("flow.gcd(flow.tensor([12, 5]), flow.tensor([18, 10]))", "tensor([6, 5])"),
)
lcm = pair(
    "lcm",
    least=dtypes.INTEGER,
    most=dtypes.INTEGER,
    cost=EXPENSIVE,
    in_place=True,
    doc="The least common multiple, which is not negative.",
    example=("flow.lcm(flow.tensor([4, 5]), flow.tensor([6, 10]))", "tensor([12, 10])"),
)
_SQUARE = elementwise("square", least=1)
change_by(_SQUARE)
_CONJ = elementwise("conj", least=1)
reciprocal = unary(
    "reciprocal",
    TO_FLOAT,
    doc="``1 / input``.",
    example=("flow.reciprocal(flow.tensor([2.0, 4.0]))", "tensor([0.5000, 0.2500])"),
)


@public()
def square(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """``input * input`` of each element; bools become int64.

    Raises:
        TypeError: if `input` is no tensor.
        RuntimeError: if `out` has a dtype that cannot hold the result.

    Example:
        >>> flow.square(flow.tensor([2.0, -3.0]))
        tensor([4., 9.])
    """
    check_tensors("square", input)
    if out is not None:
        return pow(input, 2, out=out) if input.dtype is dtypes.bool_ else written(_SQUARE, out, (input,))
    return _interpreter.dispatch(_SQUARE, (input,)) if input.dtype is not dtypes.bool_ else pow(input, 2)


@public()
def conj(input: Tensor) -> Tensor:
    """The complex conjugate of each element; a real tensor is returned itself.

    Raises:
        TypeError: if `input` is no tensor.

    Example:
        >>> flow.conj(flow.tensor([1 + 2j]))
        tensor([1.-2.j])
    """
    check_tensors("conj", input)
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
    """``input + weight * (end - input)``: linear interpolation.  The shapes broadcast.

    Raises:
        TypeError: if `input` and `end` differ in dtype.
        ValueError: if the shapes do not broadcast.

    Example:
        >>> flow.lerp(flow.tensor([0.0, 10.0]), flow.tensor([10.0, 20.0]), 0.5)
        tensor([ 5., 15.])
    """
    check_tensors("lerp", input, end)
    if input.dtype is not end.dtype:
        raise TypeError(f"lerp: expected one dtype, got {input.dtype.name} and {end.dtype.name}")
    return input + weight * (end - input)


@public()
@copied_in_place()
@out_by_copy()
def addcmul(input: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: Scalar = 1, out: Tensor | None = None) -> Tensor:
    """``input + value * tensor1 * tensor2``.  The shapes broadcast.

    Raises:
        TypeError: if `value` is no number, or it has a fraction and all tensors are integer or bool, or it is complex
            and no tensor is.
        ValueError: if the shapes do not broadcast.

    Example:
        >>> flow.addcmul(flow.tensor([1.0, 2.0]), flow.tensor([3.0, 4.0]), flow.tensor([5.0, 6.0]), value=2)
        tensor([31., 50.])
    """
    return _with_product("addcmul", input, tensor1 * tensor2, value)


@public()
@copied_in_place()
@out_by_copy()
def addcdiv(input: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: Scalar = 1, out: Tensor | None = None) -> Tensor:
    """``input + value * tensor1 / tensor2``.  The shapes broadcast.

    Raises:
        TypeError: if `tensor1` and `tensor2` are both integer or bool, which ``.float()`` converts; for `value`, as
            `addcmul`.
        ValueError: if the shapes do not broadcast.

    Example:
        >>> flow.addcdiv(flow.tensor([1.0, 2.0]), flow.tensor([3.0, 4.0]), flow.tensor([2.0, 8.0]), value=2)
        tensor([4., 3.])
    """
    check_tensors("addcdiv", tensor1)
    if tensor1.dtype.category < FLOATING and tensor2.dtype.category < FLOATING:
        raise TypeError("addcdiv: integer division is not supported; convert with .float() first")
    return _with_product("addcdiv", input, tensor1 / tensor2, value)


def _with_product(name: str, input: Tensor, product: Tensor, value: Scalar) -> Tensor:
    return add(input, product if value == 1 else scaled(name, "value", product, value, _common_dtype(input, product)))


@public()
@copied_in_place()
@out_by_copy()
def float_power(input: Tensor | Scalar, exponent: Tensor | Scalar, *, out: Tensor | None = None) -> Tensor:
    """`pow` in double precision.  The shapes broadcast.

    The result is float64, or complex128 if an operand is complex.

    Raises:
        TypeError: if neither operand is a tensor.
        ValueError: if the shapes do not broadcast.

    Example:
        >>> flow.float_power(flow.tensor([2, 3]), -1)
        tensor([0.5000, 0.3333], dtype=vmflow.float64)
    """
    operands = [
        operand if isinstance(operand, _tensors.Tensor) else number("float_power", operand)
        for operand in (input, exponent)
    ]
    double = dtypes.complex128 if _common_dtype(*operands).is_complex else dtypes.float64
    base, power = (cast(operand, double) if isinstance(operand, _tensors.Tensor) else operand for operand in operands)
    # Numbers become floats or complex numbers, so that `pow` does not apply its rules for integers to them.
    widened: Any = float if double is dtypes.float64 else complex
    return pow(
        base if isinstance(base, _tensors.Tensor) else widened(base),
        power if isinstance(power, _tensors.Tensor) else widened(power),
    )


@function()
def rsub(input: Tensor, other: Tensor | Scalar, *, alpha: Scalar = 1) -> Tensor:
    """``other - alpha * input``.  The shapes broadcast.

    Raises:
        TypeError, ValueError: as `sub`.

    Example:
        >>> flow.rsub(flow.tensor([1, 2]), 10)
        tensor([9, 8])
    """
    check_tensors("rsub", input)
    return sub(other, input, alpha=alpha)


sign.op.gradient()(zero_gradients)


@public()
def adjoint(input: Tensor) -> Tensor:
    """The conjugate transposes of matrices: the last two dimensions exchanged.

    Raises:
        ValueError: if `input` has fewer than two dimensions.

    Example:
        >>> flow.adjoint(flow.tensor([[1 + 1j, 2]]))
        tensor([[1.-1.j],
                [2.-0.j]])
    """
    check_tensors("adjoint", input)
    if input.ndim < 2:
        raise ValueError(f"adjoint: expected matrices, got shape {list(input.shape)}")
    return conj(input.mT)


@attribute("mH")
def mH(self: Tensor) -> Tensor:
    """The conjugate transposes of matrices: the last two dimensions exchanged.

    Raises:
        IndexError: if the tensor has fewer than two dimensions.

    Example:
        >>> flow.tensor([[1 + 1j, 2]]).mH
        tensor([[1.-1.j],
                [2.-0.j]])
    """
    return conj(self.mT)


@attribute("H")
def H(self: Tensor) -> Tensor:
    """The conjugate transpose of a matrix; a 0-d tensor's conjugate.

    Raises:
        RuntimeError: if the tensor has another number of dimensions; use `mH` for batches of matrices.

    Example:
        >>> flow.tensor([[1, 2], [3, 4]]).H
        tensor([[1, 3],
                [2, 4]])
    """
    if self.ndim not in (0, 2):
        raise RuntimeError(f"H: expected a matrix, got shape {list(self.shape)}; use mH for batches of matrices")
    return conj(self.t())
