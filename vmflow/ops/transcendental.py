"""Element-wise functions beyond the everyday ones: inverse and hyperbolic functions, and their kin."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from vmflow import dtypes
from vmflow import interpreter as _interpreter
from vmflow.dtypes import FLOATING

from .elementwise import (
    DEAR,
    TO_FLOAT,
    conj_if_complex,
    elementwise,
    exp,
    isnan,
    log,
    reciprocal,
    rsqrt,
    trunc,
    where,
)

if TYPE_CHECKING:
    from typing import TypeAlias

    from vmflow.autograd.node import OpNode
    from vmflow.tensors import Tensor

    from .elementwise import Scalar

    Function: TypeAlias = Callable[[Tensor], Tensor]


def _function(name: str, ufunc: str, what: str, derivative: Function, most: int = dtypes.COMPLEX) -> Function:
    """Declare an op of one operand whose derivative is a function of that; return it."""
    op = elementwise(name, ufunc, TO_FLOAT, cost=DEAR, most=most)

    @op.gradient(inputs=(0,))
    def _gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
        return (gradient * derivative(conj_if_complex(node.input(0))),)

    def function(input: Tensor) -> Tensor:
        return _interpreter.dispatch(op, (input,))

    function.__name__ = function.__qualname__ = name
    function.__doc__ = what
    return function


sinh: Function = _function("sinh", "sinh", "The hyperbolic sine.", lambda x: cosh(x))
cosh: Function = _function("cosh", "cosh", "The hyperbolic cosine.", lambda x: sinh(x))
asin: Function = _function(
    "asin", "arcsin", "The arc sine, in radians; nan outside [-1, 1].", lambda x: rsqrt(1 - x * x)
)
acos: Function = _function(
    "acos", "arccos", "The arc cosine, in radians; nan outside [-1, 1].", lambda x: -rsqrt(1 - x * x)
)
atan: Function = _function("atan", "arctan", "The arc tangent, in radians.", lambda x: reciprocal(x * x + 1))
asinh: Function = _function("asinh", "arcsinh", "The inverse hyperbolic sine.", lambda x: rsqrt(x * x + 1))
acosh: Function = _function(
    "acosh", "arccosh", "The inverse hyperbolic cosine; nan below 1.", lambda x: rsqrt((x - 1) * (x + 1))
)
atanh: Function = _function("atanh", "arctanh", "The inverse hyperbolic tangent.", lambda x: reciprocal(1 - x * x))
exp2: Function = _function("exp2", "exp2", "2 to the power of each element.", lambda x: exp2(x) * math.log(2), FLOATING)

_HYPOT = elementwise("hypot", "hypot", TO_FLOAT, cost=DEAR, most=FLOATING)
_LOGADDEXP = elementwise("logaddexp", "logaddexp", TO_FLOAT, cost=DEAR, most=FLOATING)


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


def hypot(input: Tensor, other: Tensor) -> Tensor:
    """``sqrt(input ** 2 + other ** 2)``, without overflow."""
    return _interpreter.dispatch(_HYPOT, (input, other))


def logaddexp(input: Tensor, other: Tensor) -> Tensor:
    """``log(exp(input) + exp(other))``, without overflow."""
    return _interpreter.dispatch(_LOGADDEXP, (input, other))


def frac(input: Tensor) -> Tensor:
    """The part behind the point: ``input - trunc(input)``."""
    if input.dtype.category < FLOATING:
        raise TypeError(f"frac is not defined for {input.dtype.name} tensors")
    return input - trunc(input)


def logit(input: Tensor, eps: float | None = None) -> Tensor:
    """``log(input / (1 - input))``, of numbers first limited to [eps, 1 - eps] if `eps` is given."""
    if eps is not None:
        input = input.clamp(eps, 1 - eps)
    return log(input / (1 - input))


def nan_to_num(
    input: Tensor, nan: Scalar | None = None, posinf: Scalar | None = None, neginf: Scalar | None = None
) -> Tensor:
    """nan replaced by `nan`, or 0, and infinities by `posinf` and `neginf`, or the dtype's extremes."""
    if input.dtype.category < FLOATING:
        return input.clone()
    limits = dtypes.finfo(input.dtype)
    result = where(isnan(input), 0.0 if nan is None else nan, input)
    result = where(input == math.inf, limits.max if posinf is None else posinf, result)
    return where(input == -math.inf, limits.min if neginf is None else neginf, result)
