"""Functions computed approximately: exponentials, logarithms, roots, trigonometric and hyperbolic functions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from vmflow import dtypes
from vmflow import interpreter as _interpreter
from vmflow.dtypes import FLOATING

from .arithmetic import conj_if_complex, reciprocal
from .copying import cast
from .declaration import public
from .destination import written
from .elementwise import DEAR, TO_FLOAT, elementwise
from .pointwise import Binary
from .selection import where
from .table import OpExpr

if TYPE_CHECKING:
    from typing import TypeAlias

    from vmflow.autograd.node import OpNode
    from vmflow.tensors import Tensor

    from .elementwise import Scalar

    Function: TypeAlias = Callable[[Tensor], Tensor]

_EXP = elementwise("exp", TO_FLOAT, cost=DEAR)
_EXPM1 = elementwise("expm1", TO_FLOAT, cost=DEAR)
_LOG = elementwise("log", TO_FLOAT, cost=DEAR)
_LOG2 = elementwise("log2", TO_FLOAT, cost=DEAR)
_LOG10 = elementwise("log10", TO_FLOAT, cost=DEAR)
_LOG1P = elementwise("log1p", TO_FLOAT, cost=DEAR)
_SQRT = elementwise("sqrt", TO_FLOAT)
_SIN = elementwise("sin", TO_FLOAT, cost=DEAR)
_COS = elementwise("cos", TO_FLOAT, cost=DEAR)
_TAN = elementwise("tan", TO_FLOAT, cost=DEAR)
_RSQRT = elementwise("rsqrt", TO_FLOAT)


@public()
def exp(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """e to the power of each element."""
    if out is not None:
        return written(_EXP, out, (input,))
    return _interpreter.dispatch(_EXP, (input,))


@public()
def expm1(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """``exp(input) - 1``, accurate near zero."""
    if out is not None:
        return written(_EXPM1, out, (input,))
    return _interpreter.dispatch(_EXPM1, (input,))


@public()
def log(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The natural logarithm; nan below zero, -inf at zero."""
    if out is not None:
        return written(_LOG, out, (input,))
    return _interpreter.dispatch(_LOG, (input,))


@public()
def log2(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The logarithm to base 2."""
    if out is not None:
        return written(_LOG2, out, (input,))
    return _interpreter.dispatch(_LOG2, (input,))


@public()
def log10(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The logarithm to base 10."""
    if out is not None:
        return written(_LOG10, out, (input,))
    return _interpreter.dispatch(_LOG10, (input,))


@public()
def log1p(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """``log(1 + input)``, accurate near zero."""
    if out is not None:
        return written(_LOG1P, out, (input,))
    return _interpreter.dispatch(_LOG1P, (input,))


@public()
def sqrt(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The square root; nan below zero."""
    if out is not None:
        return written(_SQRT, out, (input,))
    return _interpreter.dispatch(_SQRT, (input,))


@public()
def rsqrt(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """``1 / sqrt(input)``."""
    if out is not None:
        return written(_RSQRT, out, (input,))
    return _interpreter.dispatch(_RSQRT, (input,))


@public()
def sin(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The sine, of radians."""
    if out is not None:
        return written(_SIN, out, (input,))
    return _interpreter.dispatch(_SIN, (input,))


@public()
def cos(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The cosine, of radians."""
    if out is not None:
        return written(_COS, out, (input,))
    return _interpreter.dispatch(_COS, (input,))


@public()
def tan(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The tangent, of radians."""
    if out is not None:
        return written(_TAN, out, (input,))
    return _interpreter.dispatch(_TAN, (input,))


@_EXP.gradient(outputs=(0,))
def _exp_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    return (gradient * conj_if_complex(node.output(0)),)


@_EXPM1.gradient(outputs=(0,))
def _expm1_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    return (gradient * (conj_if_complex(node.output(0)) + 1),)


@_LOG.gradient(inputs=(0,))
def _log_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    return (gradient / conj_if_complex(node.input(0)),)


@_LOG2.gradient(inputs=(0,))
def _log2_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    return (gradient / (conj_if_complex(node.input(0)) * math.log(2)),)


@_LOG10.gradient(inputs=(0,))
def _log10_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    return (gradient / (conj_if_complex(node.input(0)) * math.log(10)),)


@_LOG1P.gradient(inputs=(0,))
def _log1p_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    return (gradient / (conj_if_complex(node.input(0)) + 1),)


@_SQRT.gradient(outputs=(0,))
def _sqrt_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    return (gradient / (conj_if_complex(node.output(0)) * 2),)


@_RSQRT.gradient(outputs=(0,))
def _rsqrt_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    root = conj_if_complex(node.output(0))
    return (gradient * (root * root * root * -0.5),)


@_SIN.gradient(inputs=(0,))
def _sin_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    return (gradient * cos(conj_if_complex(node.input(0))),)


@_COS.gradient(inputs=(0,))
def _cos_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    return (-gradient * sin(conj_if_complex(node.input(0))),)


@_TAN.gradient(outputs=(0,))
def _tan_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    tangent = conj_if_complex(node.output(0))
    return (gradient * (tangent * tangent + 1),)


def _smooth(name: str, derivative: Function, most: int = dtypes.COMPLEX) -> OpExpr:
    """Declare an op of one operand whose derivative is a function of that."""
    op = elementwise(name, TO_FLOAT, cost=DEAR, most=most)

    @op.gradient(inputs=(0,))
    def _gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
        return (gradient * derivative(conj_if_complex(node.input(0))),)

    return op


@public()
def sinh(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The hyperbolic sine."""
    if out is not None:
        return written(_SINH, out, (input,))
    return _interpreter.dispatch(_SINH, (input,))


@public()
def cosh(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The hyperbolic cosine."""
    if out is not None:
        return written(_COSH, out, (input,))
    return _interpreter.dispatch(_COSH, (input,))


@public()
def asin(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The arc sine, in radians; nan outside [-1, 1]."""
    if out is not None:
        return written(_ASIN, out, (input,))
    return _interpreter.dispatch(_ASIN, (input,))


@public()
def acos(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The arc cosine, in radians; nan outside [-1, 1]."""
    if out is not None:
        return written(_ACOS, out, (input,))
    return _interpreter.dispatch(_ACOS, (input,))


@public()
def atan(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The arc tangent, in radians."""
    if out is not None:
        return written(_ATAN, out, (input,))
    return _interpreter.dispatch(_ATAN, (input,))


@public()
def asinh(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The inverse hyperbolic sine."""
    if out is not None:
        return written(_ASINH, out, (input,))
    return _interpreter.dispatch(_ASINH, (input,))


@public()
def acosh(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The inverse hyperbolic cosine; nan below 1."""
    if out is not None:
        return written(_ACOSH, out, (input,))
    return _interpreter.dispatch(_ACOSH, (input,))


@public()
def atanh(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The inverse hyperbolic tangent."""
    if out is not None:
        return written(_ATANH, out, (input,))
    return _interpreter.dispatch(_ATANH, (input,))


@public()
def exp2(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """2 to the power of each element."""
    if out is not None:
        return written(_EXP2, out, (input,))
    return _interpreter.dispatch(_EXP2, (input,))


_SINH = _smooth("sinh", lambda x: cosh(x))
_COSH = _smooth("cosh", lambda x: sinh(x))
_ASIN = _smooth("asin", lambda x: rsqrt(1 - x * x))
_ACOS = _smooth("acos", lambda x: -rsqrt(1 - x * x))
_ATAN = _smooth("atan", lambda x: reciprocal(x * x + 1))
_ASINH = _smooth("asinh", lambda x: rsqrt(x * x + 1))
_ACOSH = _smooth("acosh", lambda x: rsqrt((x - 1) * (x + 1)))
_ATANH = _smooth("atanh", lambda x: reciprocal(1 - x * x))
_EXP2 = _smooth("exp2", lambda x: exp2(x) * math.log(2), FLOATING)

_HYPOT = elementwise("hypot", TO_FLOAT, operands=2, cost=DEAR, most=FLOATING)
_LOGADDEXP = elementwise("logaddexp", TO_FLOAT, operands=2, cost=DEAR, most=FLOATING)


@_HYPOT.gradient(inputs=(0, 1), outputs=(0,))
def _hypot_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor, Tensor]:
    scaled = gradient / node.output(0)
    return scaled * node.input(0), scaled * node.input(1)


@_LOGADDEXP.gradient(inputs=(0, 1), outputs=(0,))
def _logaddexp_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor, Tensor]:
    total = node.output(0)
    # Where everything is -inf there is nothing to share, and -inf - -inf would be nan.
    total = where(total == -math.inf, 0.0, total)
    return gradient * exp(node.input(0) - total), gradient * exp(node.input(1) - total)


@public()
def hypot(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """``sqrt(input ** 2 + other ** 2)``, without overflow."""
    if out is not None:
        return written(_HYPOT, out, (input, other))
    return _interpreter.dispatch(_HYPOT, (input, other))


@public()
def logaddexp(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """``log(exp(input) + exp(other))``, without overflow."""
    if out is not None:
        return written(_LOGADDEXP, out, (input, other))
    return _interpreter.dispatch(_LOGADDEXP, (input, other))


@public()
def logit(input: Tensor, eps: float | None = None) -> Tensor:
    """``log(input / (1 - input))``, of numbers first limited to [eps, 1 - eps] if `eps` is given."""
    if input.dtype.category < FLOATING:
        input = cast(input, dtypes.get_default_dtype())
    if eps is not None:
        input = input.clamp(eps, 1 - eps)
    return log(input / (1 - input))


_XLOGY = Binary("xlogy", TO_FLOAT, cost=DEAR, most=FLOATING)
_SINC = elementwise("sinc", TO_FLOAT, cost=DEAR * 3, most=FLOATING)
_ENTR = elementwise("entr", TO_FLOAT, cost=DEAR * 2, most=FLOATING)
_LOGADDEXP2 = elementwise("logaddexp2", TO_FLOAT, operands=2, cost=DEAR, most=FLOATING)


@_XLOGY.tensors.gradient(inputs=(0, 1))
def _xlogy_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor | None, Tensor | None]:
    first, second = node.needs
    factor, operand = node.input(0), node.input(1)
    return (
        where((factor == 0) & (operand <= 0), 0.0, xlogy(gradient, operand)) if first else None,
        gradient * factor / operand if second else None,
    )


@_XLOGY.scalar.gradient(inputs=(0,))
def _xlogy_scalar_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    operand, value = node.input(0), node.scalars[0]
    if node.attributes:
        return (gradient * value / operand,)
    if value > 0:
        return (gradient * math.log(value),)
    return (where(operand == 0, 0.0, gradient * (math.nan if value < 0 or value != value else -math.inf)),)


@_SINC.gradient(inputs=(0,))
def _sinc_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    x = node.input(0) * math.pi
    small = abs(x) < 0.2
    # Near 0 the difference would lose its digits; five terms of the series have them all.
    square = where(small, x * x, 0.0)
    series = x * ((((square * (1 / 3991680) - 1 / 45360) * square + 1 / 840) * square - 1 / 30) * square + 1 / 3) * -1
    apart = where(small, 1.0, x)
    return (gradient * (where(small, series, (cos(apart) - sin(apart) / apart) / apart) * math.pi),)


@_ENTR.gradient(inputs=(0,))
def _entr_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    return (gradient * (-log(node.input(0)) - 1),)


@_LOGADDEXP2.gradient(inputs=(0, 1), outputs=(0,))
def _logaddexp2_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor, Tensor]:
    total = where(node.output(0) == -math.inf, 0.0, node.output(0))
    return gradient * exp2(node.input(0) - total), gradient * exp2(node.input(1) - total)


@public()
def xlogy(input: Tensor | Scalar, other: Tensor | Scalar, *, out: Tensor | None = None) -> Tensor:
    """``input * log(other)``; 0 where `input` is 0, unless `other` is nan."""
    if out is not None:
        return _XLOGY.written(out, input, other)
    return _XLOGY.of(input, other)


@public()
def sinc(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """``sin(pi * input) / (pi * input)``; 1 at 0."""
    if out is not None:
        return written(_SINC, out, (input,))
    return _interpreter.dispatch(_SINC, (input,))


def entr(input: Tensor) -> Tensor:
    """``-input * log(input)``; 0 at 0, -inf below."""
    return _interpreter.dispatch(_ENTR, (input,))


@public()
def logaddexp2(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """``log2(2 ** input + 2 ** other)``, without overflow."""
    if out is not None:
        return written(_LOGADDEXP2, out, (input, other))
    return _interpreter.dispatch(_LOGADDEXP2, (input, other))


@public()
def deg2rad(input: Tensor) -> Tensor:
    """Degrees to radians."""
    return input * (math.pi / 180)


@public()
def rad2deg(input: Tensor) -> Tensor:
    """Radians to degrees."""
    return input * (180 / math.pi)
