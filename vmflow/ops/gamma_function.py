"""The logarithm of the gamma function and its derivatives.

numpy has none of them.  They are computed in float64, whatever the operand's dtype, and rounded once.  The formulas are
those of the NIST Digital Library of Mathematical Functions, chapters 5 and 25.
"""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np

from vmflow import dtypes
from vmflow import interpreter as _interpreter
from vmflow.dtypes import FLOATING
from vmflow.instructions.blob import Array, meta
from vmflow.instructions.op_call import Kernel

from .destination import written
from .elementwise import DEAR, TO_FLOAT, elementwise
from .table import Attributes, Form, Inferred, Kinds, Metas, OpExpr, Size, array_module

if TYPE_CHECKING:
    from vmflow.autograd.node import OpNode
    from vmflow.tensors import Tensor

# From here on the asymptotic series below give all digits.
_FAR = 10
_EULER = 0.57721566490153286061
# Bernoulli's numbers B2, B4, ...
_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510, 43867 / 798, -174611 / 330)


def _polynomial(x: Array, coefficients: tuple[float, ...]) -> Array:
    """Highest power first."""
    total: Any = coefficients[0]
    for coefficient in coefficients[1:]:
        total = total * x + coefficient
    return cast("Array", total)


def _zeta(s: int, a: Any) -> Any:
    """Hurwitz's zeta function for s > 1 and a >= 0, by Euler's and Maclaurin's summation formula (25.2.9)."""
    total = sum([(a + place) ** float(-s) for place in range(_FAR + 2)])
    start = a + float(_FAR + 2)
    power = start ** float(-s)
    total = total + power * start / (s - 1) + power * 0.5
    factor = s / start
    for place, number in enumerate(_BERNOULLI, 1):
        total = total + power * factor * (number / math.factorial(2 * place))
        factor = factor * ((s + 2 * place - 1) * (s + 2 * place)) / (start * start)
    return total


@functools.cache
def _near_two() -> tuple[float, ...]:
    """The coefficients of log(gamma(2 + x)) by powers of x (5.7.3): of all but the last two bits for x up to a half."""
    high = [(-1) ** power * _zeta(power, 2.0) / power for power in range(28, 1, -1)]
    return (*high, 1 - _EULER, 0.0)


# By powers of 1 / x**2, highest first: what log(gamma(x)) has beyond Stirling's formula, times x (5.11.1).
_STIRLING = tuple([number / (2 * place * (2 * place - 1)) for place, number in enumerate(_BERNOULLI, 1)])[::-1]
# And what digamma(x) has beyond log(x) - 1 / (2 * x), times -x**2 (5.11.2).
_DIGAMMA = tuple([number / (2 * place) for place, number in enumerate(_BERNOULLI, 1)])[::-1]


def _lgamma_kernel(xp: Any) -> Kernel:
    """Left of 0.5 by reflection (5.5.3); elsewhere near 2, moved there by the recurrence (5.5.1), or far out."""

    def lgamma(array: Array, out: Array | None) -> Array:
        x = xp.asarray(array, dtype=xp.float64)
        reflected = x < 0.5
        y = xp.where(reflected, 1.0 - x, x)
        moderate = y < _FAR
        near = xp.where(moderate, y, 2.0)
        product = xp.ones_like(near)
        for _ in range(_FAR - 2):
            too_large = near > 2.5
            near = xp.where(too_large, near - 1.0, near)
            product = xp.where(too_large, product * near, product)
        below = near < 1.5
        offset = near - xp.where(below, 1.0, 2.0)
        series = _polynomial(offset, _near_two()) - xp.where(below, xp.log1p(offset), 0.0) + xp.log(product)
        far = xp.where(moderate, float(_FAR), y)
        stirling = (far - 0.5) * (xp.log(far) - 1.0) + (0.5 * math.log(2 * math.pi) - 0.5)
        stirling = stirling + _polynomial(1.0 / (far * far), _STIRLING) / far
        result = xp.where(moderate, series, stirling)
        sine = xp.abs(xp.sin(math.pi * (x - xp.rint(x))))
        # Of -inf the sine is nan; the limit is taken as infinite.
        reflection = xp.where(x == -xp.inf, xp.inf, math.log(math.pi) - xp.log(sine) - result)
        return xp.asarray(xp.where(reflected, reflection, result)).astype(array.dtype, copy=False)

    return lgamma


def _digamma_kernel(xp: Any) -> Kernel:
    """Left of 0 by reflection (5.5.4); elsewhere far out, moved there by the recurrence (5.5.2)."""

    def digamma(array: Array, out: Array | None) -> Array:
        x = xp.asarray(array, dtype=xp.float64)
        reflected = x < 0
        y = xp.where(reflected, 1.0 - x, x)
        total = xp.zeros_like(y)
        for _ in range(_FAR):
            too_small = y < _FAR
            total = xp.where(too_small, total - 1.0 / y, total)
            y = xp.where(too_small, y + 1.0, y)
        inverse = 1.0 / (y * y)
        total = total + (xp.log(y) - 0.5 / y - _polynomial(inverse, _DIGAMMA) * inverse)
        fraction = x - xp.rint(x)
        cotangent = xp.where(fraction == 0, xp.nan, 1.0 / xp.tan(math.pi * fraction))
        result = xp.where(reflected, total - math.pi * cotangent, total)
        return xp.asarray(result).astype(array.dtype, copy=False)

    return digamma


_LGAMMA = elementwise("lgamma", _lgamma_kernel, TO_FLOAT, cost=DEAR * 20, most=FLOATING)
_DIGAMMA_OP = elementwise("digamma", _digamma_kernel, TO_FLOAT, cost=DEAR * 15, most=FLOATING)


# The largest n whose factorial is a float.
_MOST_DERIVATIVES: Final = 170


def _infer_polygamma(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    (n,) = cast("tuple[int]", attributes)
    (source,) = metas
    if source.dtype.category > FLOATING:
        raise TypeError(f"polygamma is not defined for {source.dtype.name} tensors")
    if n > _MOST_DERIVATIVES:
        raise ValueError(f"polygamma: n must be at most {_MOST_DERIVATIVES}, beyond which numbers overflow, got {n}")
    dtype = source.dtype if source.dtype.category == FLOATING else dtypes.get_default_dtype()
    output = meta(source.shape, dtype, source.device)
    xp = array_module(source.device)
    sign = -1.0 if n % 2 == 0 else 1.0
    scale = sign * math.factorial(n)
    cotangents = _derivative_of_cotangent(n)

    def kernel(array: Array, out: Array | None) -> Array:
        """Left of 0 by reflection (5.15.6), elsewhere by the zeta function (25.11.12)."""
        x = xp.asarray(array, dtype=xp.float64)
        reflected = x < 0
        value = scale * _zeta(n + 1, xp.where(reflected, 1.0 - x, x))
        cotangent = 1.0 / xp.tan(math.pi * (x - xp.rint(x)))
        reflection = -sign * value - math.pi ** (n + 1) * _polynomial(cotangent, cotangents)
        return xp.asarray(xp.where(reflected, reflection, value)).astype(output.dtype.numpy, copy=False)

    return Inferred(output, kernel, output.numel * DEAR * 60)


def _derivative_of_cotangent(n: int) -> tuple[float, ...]:
    """The n-th derivative of the cotangent, as a polynomial of it, highest power first."""
    polynomial = np.polynomial.Polynomial([0.0, 1.0])
    for _ in range(n):
        polynomial = polynomial.deriv() * np.polynomial.Polynomial([-1.0, 0.0, -1.0])
    return tuple([float(it) for it in polynomial.coef[::-1]])


_POLYGAMMA = OpExpr("polygamma", _infer_polygamma, Form(1, tuple[Size]))


@_LGAMMA.gradient(inputs=(0,))
def _lgamma_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    return (gradient * digamma(node.input(0)),)


@_DIGAMMA_OP.gradient(inputs=(0,))
def _digamma_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    return (gradient * polygamma(1, node.input(0)),)


@_POLYGAMMA.gradient(inputs=(0,))
def _polygamma_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    (n,) = cast("tuple[int]", node.attributes)
    return (gradient * polygamma(n + 1, node.input(0)),)


def lgamma(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The logarithm of the absolute value of the gamma function; infinite at 0, -1, -2, ..."""
    if out is not None:
        return written(_LGAMMA, out, (input,))
    return _interpreter.dispatch(_LGAMMA, (input,))


def digamma(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The derivative of `lgamma`; -inf at 0, nan at -1, -2, ..."""
    if out is not None:
        return written(_DIGAMMA_OP, out, (input,))
    return _interpreter.dispatch(_DIGAMMA_OP, (input,))


def polygamma(n: int, input: Tensor) -> Tensor:
    """The n-th derivative of `digamma`.

    Args:
        n: from 0, which is `digamma` itself, to 100.
        input: of any real dtype; integers give the default dtype.

    Raises:
        TypeError, ValueError: for an `n` that is no integer, or out of that range.
    """
    if not isinstance(n, int) or isinstance(n, bool):
        raise TypeError(f"polygamma: n is an integer, not {n!r}")
    if not 0 <= n <= 100:
        raise ValueError(f"polygamma: n must be from 0 to 100, not {n}")
    return _interpreter.dispatch(_POLYGAMMA, (input,), (n,)) if n else digamma(input)


def polygamma_of(input: Tensor, n: int) -> Tensor:
    """`polygamma`, with the arguments in the order of the method."""
    return polygamma(n, input)
