"""Most exponentials, logarithms, roots, trigonometric and hyperbolic functions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from vmflow import dtypes, interpreter as _interpreter
from vmflow.dtypes import FLOATING
from vmflow.operands import check_tensors
from vmflow.ops.copying import cast
from vmflow.ops.declaration import public
from vmflow.ops.destination import out_by_copy
from vmflow.ops.in_place import copied_in_place

from .arithmetic import conj_if_complex, reciprocal
from .inference import EXPENSIVE, TO_FLOAT, elementwise
from .pointwise import binary, pair, unary
from .selection import where

if TYPE_CHECKING:
    from vmflow.autograd.node import OpNode
    from vmflow.tensors import Tensor

    from .pointwise import UnaryFunction


exp = unary(
    "exp",
    TO_FLOAT,
    cost=EXPENSIVE,
    doc="e to the power of each element.",
    example=("flow.exp(flow.tensor([0.0, 1.0]))", "tensor([1.0000, 2.7183])"),
)
expm1 = unary(
    "expm1",
    TO_FLOAT,
    cost=EXPENSIVE,
    doc="``exp(input) - 1``, accurate near zero.",
    example=("flow.expm1(flow.tensor([0.0, 1.0]))", "tensor([0.0000, 1.7183])"),
)
log = unary(
    "log",
    TO_FLOAT,
    cost=EXPENSIVE,
    doc="The natural logarithm; -inf at zero, nan for negative real numbers.",
    example=("flow.log(flow.tensor([1.0, 2.0]))", "tensor([0.0000, 0.6931])"),
)
log2 = unary(
    "log2",
    TO_FLOAT,
    cost=EXPENSIVE,
    doc="The logarithm to base 2.",
    example=("flow.log2(flow.tensor([1.0, 2.0, 3.0]))", "tensor([0.0000, 1.0000, 1.5850])"),
)
log10 = unary(
    "log10",
    TO_FLOAT,
    cost=EXPENSIVE,
    doc="The logarithm to base 10.",
    example=("flow.log10(flow.tensor([1.0, 10.0, 20.0]))", "tensor([0.0000, 1.0000, 1.3010])"),
)
log1p = unary(
    "log1p",
    TO_FLOAT,
    cost=EXPENSIVE,
    doc="``log(1 + input)``, accurate near zero.",
    example=("flow.log1p(flow.tensor([0.0, 1.0]))", "tensor([0.0000, 0.6931])"),
)
sqrt = unary(
    "sqrt",
    TO_FLOAT,
    doc="The square root; nan for negative real numbers.",
    example=("flow.sqrt(flow.tensor([4.0, 9.0]))", "tensor([2., 3.])"),
)
sin = unary(
    "sin",
    TO_FLOAT,
    cost=EXPENSIVE,
    doc="The sine of an angle in radians.",
    example=("flow.sin(flow.tensor([0.0, 1.0]))", "tensor([0.0000, 0.8415])"),
)
cos = unary(
    "cos",
    TO_FLOAT,
    cost=EXPENSIVE,
    doc="The cosine of an angle in radians.",
    example=("flow.cos(flow.tensor([0.0, 1.0]))", "tensor([1.0000, 0.5403])"),
)
tan = unary(
    "tan",
    TO_FLOAT,
    cost=EXPENSIVE,
    doc="The tangent of an angle in radians.",
    example=("flow.tan(flow.tensor([0.0, 1.0]))", "tensor([0.0000, 1.5574])"),
)
rsqrt = unary(
    "rsqrt",
    TO_FLOAT,
    doc="``1 / sqrt(input)``.",
    example=("flow.rsqrt(flow.tensor([4.0, 16.0]))", "tensor([0.5000, 0.2500])"),
)


@exp.op.gradient(outputs=(0,))
def _exp_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    return (gradient * conj_if_complex(node.output(0)),)


@expm1.op.gradient(outputs=(0,))
def _expm1_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    return (gradient * (conj_if_complex(node.output(0)) + 1),)


@log.op.gradient(inputs=(0,))
def _log_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    return (gradient / conj_if_complex(node.input(0)),)


@log2.op.gradient(inputs=(0,))
def _log2_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    return (gradient / (conj_if_complex(node.input(0)) * math.log(2)),)


@log10.op.gradient(inputs=(0,))
def _log10_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    return (gradient / (conj_if_complex(node.input(0)) * math.log(10)),)


@log1p.op.gradient(inputs=(0,))
def _log1p_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    return (gradient / (conj_if_complex(node.input(0)) + 1),)


@sqrt.op.gradient(outputs=(0,))
def _sqrt_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    return (gradient / (conj_if_complex(node.output(0)) * 2),)


@rsqrt.op.gradient(outputs=(0,))
def _rsqrt_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    root = conj_if_complex(node.output(0))
    return (gradient * (root * root * root * -0.5),)


@sin.op.gradient(inputs=(0,))
def _sin_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    return (gradient * cos(conj_if_complex(node.input(0))),)


@cos.op.gradient(inputs=(0,))
def _cos_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    return (-gradient * sin(conj_if_complex(node.input(0))),)


@tan.op.gradient(outputs=(0,))
def _tan_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    tangent = conj_if_complex(node.output(0))
    return (gradient * (tangent * tangent + 1),)


sinh = unary(
    "sinh",
    TO_FLOAT,
    cost=EXPENSIVE,
    doc="The hyperbolic sine.",
    example=("flow.sinh(flow.tensor([0.0, 1.0]))", "tensor([0.0000, 1.1752])"),
)
cosh = unary(
    "cosh",
    TO_FLOAT,
    cost=EXPENSIVE,
    doc="The hyperbolic cosine.",
    example=("flow.cosh(flow.tensor([0.0, 1.0]))", "tensor([1.0000, 1.5431])"),
)
asin = unary(
    "asin",
    TO_FLOAT,
    cost=EXPENSIVE,
    also=("arcsin",),
    doc="The arc sine, in radians; nan for real numbers outside [-1, 1].",
    example=("flow.asin(flow.tensor([0.0, 1.0]))", "tensor([0.0000, 1.5708])"),
)
acos = unary(
    "acos",
    TO_FLOAT,
    cost=EXPENSIVE,
    also=("arccos",),
    doc="The arc cosine, in radians; nan for real numbers outside [-1, 1].",
    example=("flow.acos(flow.tensor([1.0, 0.0]))", "tensor([0.0000, 1.5708])"),
)
atan = unary(
    "atan",
    TO_FLOAT,
    cost=EXPENSIVE,
    also=("arctan",),
    doc="The arc tangent, in radians.",
    example=("flow.atan(flow.tensor([0.0, 1.0]))", "tensor([0.0000, 0.7854])"),
)
asinh = unary(
    "asinh",
    TO_FLOAT,
    cost=EXPENSIVE,
    also=("arcsinh",),
    doc="The inverse hyperbolic sine.",
    example=("flow.asinh(flow.tensor([0.0, 1.0]))", "tensor([0.0000, 0.8814])"),
)
acosh = unary(
    "acosh",
    TO_FLOAT,
    cost=EXPENSIVE,
    also=("arccosh",),
    doc="The inverse hyperbolic cosine; nan for real numbers below 1.",
    example=("flow.acosh(flow.tensor([1.0, 2.0]))", "tensor([0.0000, 1.3170])"),
)
atanh = unary(
    "atanh",
    TO_FLOAT,
    cost=EXPENSIVE,
    also=("arctanh",),
    doc="The inverse hyperbolic tangent; infinite at -1 and 1, nan for other real numbers outside.",
    example=("flow.atanh(flow.tensor([0.0, 0.5]))", "tensor([0.0000, 0.5493])"),
)
exp2 = unary(
    "exp2",
    TO_FLOAT,
    cost=EXPENSIVE,
    most=FLOATING,
    doc="2 to the power of each element.",
    example=("flow.exp2(flow.tensor([0.0, 0.5, 1.0]))", "tensor([1.0000, 1.4142, 2.0000])"),
)


def _differentiate(function: UnaryFunction, derivative: Callable[[Tensor], Tensor]) -> None:
    """Declare the gradient rule: the gradient times `derivative` of the operand, or of its conjugate if complex."""

    @function.op.gradient(inputs=(0,))
    def _gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
        return (gradient * derivative(conj_if_complex(node.input(0))),)


_differentiate(sinh, cosh)
_differentiate(cosh, sinh)
_differentiate(asin, lambda x: rsqrt(1 - x * x))
_differentiate(acos, lambda x: -rsqrt(1 - x * x))
_differentiate(atan, lambda x: reciprocal(x * x + 1))
_differentiate(asinh, lambda x: rsqrt(x * x + 1))
# For complex numbers, the product of two roots is on acosh's branch everywhere, unlike the root of the product.
_differentiate(acosh, lambda x: rsqrt(x - 1) * rsqrt(x + 1))
_differentiate(atanh, lambda x: reciprocal(1 - x * x))
_differentiate(exp2, lambda x: exp2(x) * math.log(2))

hypot = pair(
    "hypot",
    TO_FLOAT,
    cost=EXPENSIVE,
    most=FLOATING,
    in_place=True,
    doc="``sqrt(input ** 2 + other ** 2)``, without overflow.",
    example=("flow.hypot(flow.tensor([3.0, 1.0]), flow.tensor([4.0, 1.0]))", "tensor([5.0000, 1.4142])"),
)
logaddexp = pair(
    "logaddexp",
    TO_FLOAT,
    cost=EXPENSIVE,
    most=FLOATING,
    doc="``log(exp(input) + exp(other))``, without overflow.",
    example=(
        "flow.logaddexp(flow.tensor([0.0, 1000.0]), flow.tensor([0.0, 1000.0]))",
        "tensor([6.9315e-01, 1.0007e+03])",
    ),
)


@hypot.op.gradient(inputs=(0, 1), outputs=(0,))
def _hypot_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor, Tensor]:
    scaled = gradient / node.output(0)
    return scaled * node.input(0), scaled * node.input(1)


@logaddexp.op.gradient(inputs=(0, 1), outputs=(0,))
def _logaddexp_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor, Tensor]:
    first, second = _shares(node, 1.0)
    return gradient * first, gradient * second


def _shares(node: OpNode, logarithm: float) -> tuple[Tensor, Tensor]:
    """Return the share of each operand's power in both powers' sum; `logarithm` is the natural one of their base."""
    from .activation import sigmoid  # which imports this module

    apart = (node.input(0) - node.input(1)) * logarithm
    # Where both operands are -inf, the shares are 0.
    nothing = node.output(0) == -math.inf
    return sigmoid(where(nothing, -math.inf, apart)), sigmoid(where(nothing, -math.inf, -apart))


@public()
@copied_in_place()
@out_by_copy()
def logit(input: Tensor, eps: float | None = None, *, out: Tensor | None = None) -> Tensor:
    """``log(input / (1 - input))`` of each element, which is first limited to [eps, 1 - eps] if `eps` is given.

    Raises:
        TypeError: if `input` is no tensor, or complex with `eps`, or if `eps` is neither a number nor a tensor.

    Example:
        >>> flow.logit(flow.tensor([0.5, 0.75]))
        tensor([0.0000, 1.0986])
    """
    check_tensors("logit", input)
    if input.dtype.category < FLOATING:
        input = cast(input, dtypes.get_default_dtype())
    if eps is not None:
        input = input.clamp(eps, 1 - eps)
    return log(input / (1 - input))


xlogy = binary(
    "xlogy",
    TO_FLOAT,
    cost=EXPENSIVE,
    most=FLOATING,
    doc="``input * log(other)``; 0 where `input` is 0, unless `other` is nan.",
    example=("flow.xlogy(flow.tensor([0.0, 2.0]), flow.tensor([0.0, 1.0]))", "tensor([0., 0.])"),
)
sinc = unary(
    "sinc",
    TO_FLOAT,
    cost=EXPENSIVE * 3,
    most=FLOATING,
    doc="``sin(pi * input) / (pi * input)``; 1 at 0.",
    example=("flow.sinc(flow.tensor([0.0, 0.5]))", "tensor([1.0000, 0.6366])"),
)
_ENTR = elementwise("entr", TO_FLOAT, cost=EXPENSIVE * 2, most=FLOATING)
logaddexp2 = pair(
    "logaddexp2",
    TO_FLOAT,
    cost=EXPENSIVE,
    most=FLOATING,
    doc="``log2(2 ** input + 2 ** other)``, without overflow.",
    example=(
        "flow.logaddexp2(flow.tensor([0.0, 1000.0]), flow.tensor([0.0, 1000.0]))",
        "tensor([1.0000e+00, 1.0010e+03])",
    ),
)


@xlogy.op.tensors.gradient(inputs=(0, 1))
def _xlogy_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor | None, Tensor | None]:
    first, second = node.needs
    factor, operand = node.input(0), node.input(1)
    return (
        where((factor == 0) & (operand <= 0), 0.0, xlogy(gradient, operand)) if first else None,
        gradient * factor / operand if second else None,
    )


@xlogy.op.scalar.gradient(inputs=(0,))
def _xlogy_scalar_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    operand, value = node.input(0), node.scalars[0]
    if node.attributes:
        return (gradient * value / operand,)
    if value > 0:
        return (gradient * math.log(value),)
    return (where(operand == 0, 0.0, gradient * (math.nan if value < 0 or value != value else -math.inf)),)


@sinc.op.gradient(inputs=(0,))
def _sinc_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    x = node.input(0) * math.pi
    small = abs(x) < 0.2
    # Near 0, cos(x) - sin(x) / x subtracts close numbers and loses digits: use five terms of the Taylor series, whose
    # relative error there is below 1e-15.
    square = where(small, x * x, 0.0)
    series = x * ((((square * (1 / 3991680) - 1 / 45360) * square + 1 / 840) * square - 1 / 30) * square + 1 / 3) * -1
    nonzero = where(small, 1.0, x)
    return (gradient * (where(small, series, (cos(nonzero) - sin(nonzero) / nonzero) / nonzero) * math.pi),)


@_ENTR.gradient(inputs=(0,))
def _entr_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    return (gradient * (-log(node.input(0)) - 1),)


@logaddexp2.op.gradient(inputs=(0, 1), outputs=(0,))
def _logaddexp2_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor, Tensor]:
    first, second = _shares(node, math.log(2))
    return gradient * first, gradient * second


def entr(input: Tensor) -> Tensor:
    """``-input * log(input)`` of each element; 0 at 0, -inf below.

    Raises:
        TypeError: if `input` is no tensor, or complex.

    Example:
        >>> flow.special.entr(flow.tensor([0.5, 0.0, -1.0]))
        tensor([0.3466, 0.0000,   -inf])
    """
    return _interpreter.dispatch(_ENTR, (input,))


def _converted(name: str, angle: Tensor, factor: float) -> Tensor:
    check_tensors(name, angle)
    if angle.dtype.is_complex:
        raise TypeError(f"{name} is not defined for {angle.dtype.name} tensors")
    return angle * factor


@public()
@copied_in_place()
@out_by_copy()
def deg2rad(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Each element converted from degrees to radians.

    Raises:
        TypeError: if `input` is no tensor, or complex.

    Example:
        >>> flow.deg2rad(flow.tensor([0.0, 180.0]))
        tensor([0.0000, 3.1416])
    """
    return _converted("deg2rad", input, math.pi / 180)


@public()
@copied_in_place()
@out_by_copy()
def rad2deg(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Each element converted from radians to degrees.

    Raises:
        TypeError: if `input` is no tensor, or complex.

    Example:
        >>> flow.rad2deg(flow.tensor([0.0, 1.0]))
        tensor([ 0.0000, 57.2958])
    """
    return _converted("rad2deg", input, 180 / math.pi)
