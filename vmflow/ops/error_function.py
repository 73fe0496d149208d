"""The error function, its complement and its inverse.

numpy has none of them.  They are computed in float64, whatever the operand's dtype, and rounded once; but for the error
function of float32, which is much asked for and has a kernel of its own.
"""

from __future__ import annotations

from math import pi, sqrt
from typing import TYPE_CHECKING

import numpy as np

from vmflow import interpreter as _interpreter
from vmflow.dtypes import FLOATING
from vmflow.instructions.blob import Array
from vmflow.kernels.numpy.normal import erf_of_single
from vmflow.kernels.numpy.tiles import in_tiles

from .destination import written
from .elementwise import DEAR, TO_FLOAT, elementwise, single_or
from .table import OpExpr
from .transcendental import exp

if TYPE_CHECKING:
    from vmflow.autograd.node import OpNode
    from vmflow.tensors import Tensor


def _erf_step(operands: list[Array], out: Array, scratch: list[Array]) -> None:
    """W. J. Cody's rational approximations (Math. Comp. 23, 1969), as tabulated in his CALERF; numpy has no erf."""
    (x,) = operands
    (size,) = scratch
    np.abs(x, size)
    near, middle, far = _ranges(size)
    result = np.empty_like(size)
    part = size[near]
    result[near] = part * _ratio(part * part, _ERF_P, _ERF_Q)
    part = size[middle]
    result[middle] = 1.0 - np.exp(-part * part) * _ratio(part, _ERFC_P, _ERFC_Q)
    part = np.minimum(size[far], 6.0)  # where 1 is reached
    result[far] = 1.0 - np.exp(-part * part) * _far(part)
    np.copysign(result, x, out)


def _ranges(size: Array) -> tuple[Array, Array, Array]:
    """Indices of what is near to 0, in the middle, and far out, where there also is what is no number."""
    near = size <= 0.46875
    up_to_middle = size <= 4.0
    return near.nonzero()[0], (near ^ up_to_middle).nonzero()[0], (~up_to_middle).nonzero()[0]


def _far(x: Array) -> Array:
    inverse = 1.0 / (x * x)
    return (_ONE_OVER_ROOT_PI - inverse * _ratio(inverse, _FAR_P, _FAR_Q)) / x


def _ratio(x: Array, numerator: tuple[float, ...], denominator: tuple[float, ...]) -> Array:
    """A ratio of polynomials, highest power first."""
    top = x * numerator[0]
    for coefficient in numerator[1:-1]:
        top += coefficient
        top *= x
    top += numerator[-1]
    bottom = x * denominator[0]
    for coefficient in denominator[1:-1]:
        bottom += coefficient
        bottom *= x
    bottom += denominator[-1]
    top /= bottom
    return top


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

erf_of_double = in_tiles(_erf_step, 1, single=False)


def _erf_kernel(array: Array, out: Array | None) -> Array:
    return (erf_of_double if array.dtype == np.float64 else erf_of_single)(array, out)


_ERF: OpExpr = elementwise("erf", single_or("erf", lambda xp: _erf_kernel), TO_FLOAT, cost=DEAR, most=FLOATING)


@_ERF.gradient(inputs=(0,))
def _erf_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    operand = node.input(0)
    return (gradient * (exp(-(operand * operand)) * (2 / sqrt(pi))),)


def erf(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The error function."""
    if out is not None:
        return written(_ERF, out, (input,))
    return _interpreter.dispatch(_ERF, (input,))


def _erfc_step(operands: list[Array], out: Array, scratch: list[Array]) -> None:
    """As `erf`, by the same approximations; far out the complement keeps its digits, which 1 - erf would lose."""
    (x,) = operands
    (size,) = scratch
    np.abs(x, size)
    near, middle, far = _ranges(size)
    beyond = np.empty_like(size)
    part = size[near]
    beyond[near] = 1.0 - part * _ratio(part * part, _ERF_P, _ERF_Q)
    part = size[middle]
    beyond[middle] = _gaussian(part) * _ratio(part, _ERFC_P, _ERFC_Q)
    part = np.minimum(size[far], 40.0)  # behind 27 nothing is left in float64
    beyond[far] = _gaussian(part) * _far(part)
    # Below 0 it is what is missing to 2: with the sign s of x, (1 - s) + s * beyond.
    np.copysign(1.0, x, size)
    np.multiply(beyond, size, beyond)
    np.subtract(1.0, size, size)
    np.add(beyond, size, out)


erfc_of_double = in_tiles(_erfc_step, 1, single=False)


def _gaussian(x: Array) -> Array:
    """``exp(-x * x)``; the square is taken in two parts, because its rounding error would be multiplied by x * x."""
    coarse = np.trunc(x * 16.0) / 16.0
    return np.asarray(np.exp(-coarse * coarse) * np.exp(-(x - coarse) * (x + coarse)))


def _erfinv_step(operands: list[Array], out: Array, scratch: list[Array]) -> None:
    """By the normal distribution's quantiles: M. J. Wichura's algorithm AS 241 (Applied Statistics 37, 1988)."""
    (x,) = operands
    (result,) = scratch
    inside = np.abs(x) <= 0.85
    central, outer = inside.nonzero()[0], (~inside).nonzero()[0]
    half = x[central] * 0.5
    result[central] = half * _ratio(0.180625 - half * half, _CENTRAL_P, _CENTRAL_Q)
    part = x[outer]
    # Half of what is missing to 1 is the probability of the tail; the difference is exact.
    distance = np.sqrt(-np.log((1.0 - np.abs(part)) * 0.5))
    middle = _ratio(np.minimum(distance, 5.0) - 1.6, _MIDDLE_P, _MIDDLE_Q)
    far = _ratio(np.clip(distance, 5.0, 30.0) - 5.0, _TAIL_P, _TAIL_Q)
    quantile = np.where(distance <= 5.0, middle, np.where(distance == np.inf, np.inf, far))
    result[outer] = np.where(np.abs(part) <= 1.0, np.copysign(quantile, part), np.nan)
    np.multiply(result, _ROOT_HALF, out)


_erfinv_kernel = in_tiles(_erfinv_step, 1, single=False)
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

_ERFC: OpExpr = elementwise("erfc", lambda xp: erfc_of_double, TO_FLOAT, cost=DEAR * 4, most=FLOATING)
_ERFINV: OpExpr = elementwise("erfinv", lambda xp: _erfinv_kernel, TO_FLOAT, cost=DEAR * 4, most=FLOATING)


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
