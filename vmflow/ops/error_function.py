"""The error function, its complement and its inverse.

numpy has none of them.  They are computed in float64, whatever the operand's dtype, and rounded once.
"""

from __future__ import annotations

from math import pi, sqrt
from typing import TYPE_CHECKING, Any

from vmflow import interpreter as _interpreter
from vmflow.dtypes import FLOATING
from vmflow.instructions.blob import Array
from vmflow.instructions.op_call import Kernel

from .destination import written
from .elementwise import DEAR, TO_FLOAT, elementwise
from .table import OpExpr
from .transcendental import exp

if TYPE_CHECKING:
    from vmflow.autograd.node import OpNode
    from vmflow.tensors import Tensor


def _erf_kernel(xp: Any) -> Kernel:
    """W. J. Cody's rational approximations (Math. Comp. 23, 1969), as tabulated in his CALERF; numpy has no erf."""

    def erf(array: Array, out: Array | None) -> Array:
        x = xp.abs(xp.asarray(array, dtype=xp.float64))
        result = xp.empty_like(x)
        small = x <= 0.46875
        z = xp.where(small, x * x, 0.0)
        result = x * _ratio(z, _ERF_P, _ERF_Q)
        middle = xp.clip(x, 0.46875, 4.0)
        tail = xp.exp(-middle * middle) * _ratio(middle, _ERFC_P, _ERFC_Q)
        large = xp.maximum(x, 4.0)
        inverse = 1.0 / (large * large)
        far = xp.exp(-large * large) / large * (_ONE_OVER_ROOT_PI - inverse * _ratio(inverse, _FAR_P, _FAR_Q))
        result = xp.where(small, result, 1.0 - xp.where(x <= 4.0, tail, far))
        result = xp.where(xp.isnan(x), x, result)
        return xp.asarray(xp.copysign(result, array)).astype(array.dtype, copy=False)

    return erf


def _ratio(x: Array, numerator: tuple[float, ...], denominator: tuple[float, ...]) -> Array:
    """A ratio of polynomials, highest power first."""
    top = bottom = 0.0
    for coefficient in numerator:
        top = top * x + coefficient
    for coefficient in denominator:
        bottom = bottom * x + coefficient
    return top / bottom


_ONE_OVER_ROOT_PI = 1 / sqrt(pi)
_ERF_P = (
    1.85777706184603153e-1,
    3.16112374387056560e0,
    1.13864154151050156e2,
    3.77485237685302021e2,
    3.20937758913846947e3,
)
_ERF_Q = (1.0, 2.36012909523441209e1, 2.44024637934444173e2, 1.28261652607737228e3, 2.84423683343917062e3)
_ERFC_P = (
    2.15311535474403846e-8,
    5.64188496988670089e-1,
    8.88314979438837594e0,
    6.61191906371416295e1,
    2.98635138197400131e2,
    8.81952221241769090e2,
    1.71204761263407058e3,
    2.05107837782607147e3,
    1.23033935479799725e3,
)
_ERFC_Q = (
    1.0,
    1.57449261107098347e1,
    1.17693950891312499e2,
    5.37181101862009858e2,
    1.62138957456669019e3,
    3.29079923573345963e3,
    4.36261909014324716e3,
    3.43936767414372164e3,
    1.23033935480374942e3,
)
_FAR_P = (
    1.63153871373020978e-2,
    3.05326634961232344e-1,
    3.60344899949804439e-1,
    1.25781726111229246e-1,
    1.60837851487422766e-2,
    6.58749161529837803e-4,
)
_FAR_Q = (
    1.0,
    2.56852019228982242e0,
    1.87295284992346047e0,
    5.27905102951428412e-1,
    6.05183413124413191e-2,
    2.33520497626869185e-3,
)

_ERF: OpExpr = elementwise("erf", _erf_kernel, TO_FLOAT, cost=DEAR * 8, most=FLOATING)


@_ERF.gradient(inputs=(0,))
def _erf_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    operand = node.input(0)
    return (gradient * (exp(-(operand * operand)) * (2 / sqrt(pi))),)


def erf(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The error function."""
    if out is not None:
        return written(_ERF, out, (input,))
    return _interpreter.dispatch(_ERF, (input,))


def _erfc_kernel(xp: Any) -> Kernel:
    """As `erf`, by the same approximations; far out the complement keeps its digits, which 1 - erf would lose."""

    def erfc(array: Array, out: Array | None) -> Array:
        x = xp.asarray(array, dtype=xp.float64)
        size = xp.abs(x)
        small = size <= 0.46875
        near = 1.0 - x * _ratio(xp.where(small, x * x, 0.0), _ERF_P, _ERF_Q)
        middle = xp.clip(size, 0.46875, 4.0)
        tail = _gaussian(xp, middle) * _ratio(middle, _ERFC_P, _ERFC_Q)
        large = xp.clip(size, 4.0, 40.0)  # behind 27 nothing is left in float64
        inverse = 1.0 / (large * large)
        far = _gaussian(xp, large) / large * (_ONE_OVER_ROOT_PI - inverse * _ratio(inverse, _FAR_P, _FAR_Q))
        beyond = xp.where(size <= 4.0, tail, far)
        result = xp.where(small, near, xp.where(x < 0, 2.0 - beyond, beyond))
        return xp.asarray(result).astype(array.dtype, copy=False)

    return erfc


def _gaussian(xp: Any, x: Array) -> Array:
    """``exp(-x * x)``; the square is taken in two parts, because its rounding error would be multiplied by x * x."""
    coarse = xp.trunc(x * 16.0) / 16.0
    return xp.exp(-coarse * coarse) * xp.exp(-(x - coarse) * (x + coarse))


def _erfinv_kernel(xp: Any) -> Kernel:
    """By the normal distribution's quantiles: M. J. Wichura's algorithm AS 241 (Applied Statistics 37, 1988)."""

    def erfinv(array: Array, out: Array | None) -> Array:
        x = xp.asarray(array, dtype=xp.float64)
        centre = x * 0.5
        central = xp.abs(centre) <= 0.425
        inner = centre * _ratio(xp.where(central, 0.180625 - centre * centre, 0.0), _CENTRAL_P, _CENTRAL_Q)
        # Half of what is missing to 1 is the probability of the tail; the difference is exact.
        distance = xp.sqrt(-xp.log((1.0 - xp.abs(x)) * 0.5))
        middle = _ratio(xp.clip(distance, 0.0, 5.0) - 1.6, _MIDDLE_P, _MIDDLE_Q)
        far = _ratio(xp.clip(distance, 5.0, 30.0) - 5.0, _TAIL_P, _TAIL_Q)
        outer = xp.where(distance <= 5.0, middle, xp.where(distance == xp.inf, xp.inf, far))
        result = xp.where(central, inner, xp.copysign(outer, x)) * _ROOT_HALF
        result = xp.where(xp.abs(x) <= 1.0, result, xp.nan)
        return xp.asarray(result).astype(array.dtype, copy=False)

    return erfinv


_ROOT_HALF = sqrt(0.5)
_CENTRAL_P = (
    2.5090809287301226727e3,
    3.3430575583588128105e4,
    6.7265770927008700853e4,
    4.5921953931549871457e4,
    1.3731693765509461125e4,
    1.9715909503065514427e3,
    1.3314166789178437745e2,
    3.3871328727963666080e0,
)
_CENTRAL_Q = (
    5.2264952788528545610e3,
    2.8729085735721942674e4,
    3.9307895800092710610e4,
    2.1213794301586595867e4,
    5.3941960214247511077e3,
    6.8718700749205790830e2,
    4.2313330701600911252e1,
    1.0,
)
_MIDDLE_P = (
    7.74545014278341407640e-4,
    2.27238449892691845833e-2,
    2.41780725177450611770e-1,
    1.27045825245236838258e0,
    3.64784832476320460504e0,
    5.76949722146069140550e0,
    4.63033784615654529590e0,
    1.42343711074968357734e0,
)
_MIDDLE_Q = (
    1.05075007164441684324e-9,
    5.47593808499534494600e-4,
    1.51986665636164571966e-2,
    1.48103976427480074590e-1,
    6.89767334985100004550e-1,
    1.67638483018380384940e0,
    2.05319162663775882187e0,
    1.0,
)
_TAIL_P = (
    2.01033439929228813265e-7,
    2.71155556874348757815e-5,
    1.24266094738807843860e-3,
    2.65321895265761230930e-2,
    2.96560571828504891230e-1,
    1.78482653991729133580e0,
    5.46378491116411436990e0,
    6.65790464350110377720e0,
)
_TAIL_Q = (
    2.04426310338993978564e-15,
    1.42151175831644588870e-7,
    1.84631831751005468180e-5,
    7.86869131145613259100e-4,
    1.48753612908506148525e-2,
    1.36929880922735805310e-1,
    5.99832206555887937690e-1,
    1.0,
)

_ERFC: OpExpr = elementwise("erfc", _erfc_kernel, TO_FLOAT, cost=DEAR * 10, most=FLOATING)
_ERFINV: OpExpr = elementwise("erfinv", _erfinv_kernel, TO_FLOAT, cost=DEAR * 8, most=FLOATING)


@_ERFC.gradient(inputs=(0,))
def _erfc_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    operand = node.input(0)
    return (gradient * (exp(-(operand * operand)) * (-2 / sqrt(pi))),)


@_ERFINV.gradient(outputs=(0,))
def _erfinv_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    value = node.output(0)
    return (gradient * (exp(value * value) * (sqrt(pi) / 2)),)


def erfc(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """``1 - erf(input)``, accurate where that is small."""
    if out is not None:
        return written(_ERFC, out, (input,))
    return _interpreter.dispatch(_ERFC, (input,))


def erfinv(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The number whose `erf` is `input`; infinite at -1 and 1, nan outside."""
    if out is not None:
        return written(_ERFINV, out, (input,))
    return _interpreter.dispatch(_ERFINV, (input,))
