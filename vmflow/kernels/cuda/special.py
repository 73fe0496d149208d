"""Special functions that neither CuPy's ufuncs nor numpy's are: the error function and its kin, the gamma function's.

The approximations are those of the CPU's kernels, all branches of which are computed for every element.  They are
computed in float64, whatever the operand's dtype.
"""

from __future__ import annotations

import math
from typing import Any

from vmflow.kernels.choosing import Problem
from vmflow.kernels.numpy import special as of_cpu
from vmflow.kernels.numpy.normal_quantile import CENTRE, SIDE, TAIL, ratio

from .arrays import by_arrays
from .functions import computes

# The error function


def _beyond(xp: Any, size: Any) -> Any:
    """erfc of what is at least 0.46875."""
    part = xp.clip(size, 0.46875, 4.0)
    middle = _gaussian(xp, part) * ratio(part, of_cpu.ERFC_P, of_cpu.ERFC_Q)
    part = xp.clip(size, 4.0, 40.0)  # behind 27 nothing is left in float64
    inverse = 1.0 / (part * part)
    far = of_cpu.ONE_OVER_ROOT_PI - inverse * ratio(inverse, of_cpu.FAR_P, of_cpu.FAR_Q)
    return xp.where(size <= 4.0, middle, _gaussian(xp, part) * far / part)


def _near(xp: Any, size: Any) -> Any:
    """erf of what is at most 0.46875."""
    part = xp.minimum(size, 0.46875)
    return part * ratio(part * part, of_cpu.ERF_P, of_cpu.ERF_Q)


def _gaussian(xp: Any, x: Any) -> Any:
    """``exp(-x * x)``; the square is taken in two parts, because its rounding error would be multiplied by x * x."""
    coarse = xp.trunc(x * 16.0) / 16.0
    return xp.exp(-coarse * coarse) * xp.exp(-(x - coarse) * (x + coarse))


def erfc(xp: Any, array: Any) -> Any:
    """The complement of the error function to 1, in float64."""
    x = array.astype("float64")
    size = xp.absolute(x)
    beyond = xp.where(size <= 0.46875, 1.0 - _near(xp, size), _beyond(xp, size))
    return xp.where(x < 0, 2.0 - beyond, beyond)


@computes("erfinv")
def _erfinv(xp: Any, array: Any) -> Any:
    """By the normal distribution's quantiles."""
    x = array.astype("float64")
    size = xp.absolute(x)
    half = xp.clip(x, -0.85, 0.85) * 0.5
    central = half * ratio(0.180625 - half * half, *CENTRE)
    # Half of what is missing to 1 is the probability of the tail; the difference is exact.
    outer = xp.copysign(tail_quantile(xp, xp.sqrt(-xp.log((1.0 - size) * 0.5))), x)
    outer = xp.where(size <= 1.0, outer, xp.nan)
    return xp.where(size <= 0.85, central, outer) * of_cpu.ROOT_HALF


def tail_quantile(xp: Any, distance: Any) -> Any:
    """The distance from the mean beyond which lies a probability of ``exp(-distance ** 2)``, of 0.075 or less."""
    middle = ratio(xp.minimum(distance, 5.0) - 1.6, *SIDE)
    far = ratio(xp.clip(distance, 5.0, 30.0) - 5.0, *TAIL)
    return xp.where(distance <= 5.0, middle, xp.where(distance == xp.inf, xp.inf, far))


# The gamma function


@computes("lgamma")
def lgamma(xp: Any, array: Any) -> Any:
    """Left of 0.5 by reflection; elsewhere near 2, moved there by the recurrence, or far out."""
    x = array.astype("float64")
    reflected = x < 0.5
    y = xp.where(reflected, 1.0 - x, x)
    moderate = y < of_cpu.FAR
    far = xp.where(moderate, float(of_cpu.FAR), y)
    stirling = (far - 0.5) * (xp.log(far) - 1.0) + (0.5 * math.log(2 * math.pi) - 0.5)
    stirling = stirling + of_cpu.polynomial(1.0 / (far * far), of_cpu.STIRLING) / far
    result = xp.where(moderate, _near_two(xp, xp.where(moderate, y, 2.0)), stirling)
    sine = xp.absolute(xp.sin(math.pi * (x - xp.rint(x))))
    # The sine of -inf is nan; the limit is taken as infinite.
    reflection = xp.where(x == -xp.inf, xp.inf, math.log(math.pi) - xp.log(sine) - result)
    return xp.where(reflected, reflection, result)


def _near_two(xp: Any, near: Any) -> Any:
    """The logarithm of the gamma function up to `FAR`."""
    product = xp.ones_like(near)
    for _ in range(of_cpu.FAR - 2):
        too_large = near > 2.5
        near = xp.where(too_large, near - 1.0, near)
        product = xp.where(too_large, product * near, product)
    below = near < 1.5
    offset = near - xp.where(below, 1.0, 2.0)
    logarithm = xp.where(below, xp.log1p(offset), 0.0)
    return of_cpu.polynomial(offset, of_cpu.near_two()) - logarithm + xp.log(product)


@computes("digamma")
def _digamma(xp: Any, array: Any) -> Any:
    """Left of 0 by reflection; elsewhere far out, moved there by the recurrence."""
    x = array.astype("float64")
    reflected = x < 0
    y = xp.where(reflected, 1.0 - x, x)
    total = xp.zeros_like(y)
    for _ in range(of_cpu.FAR):
        too_small = y < of_cpu.FAR
        total = xp.where(too_small, total - 1.0 / y, total)
        y = xp.where(too_small, y + 1.0, y)
    inverse = 1.0 / (y * y)
    total = total + (xp.log(y) - 0.5 / y - of_cpu.polynomial(inverse, of_cpu.DIGAMMA) * inverse)
    fraction = x - xp.rint(x)
    cotangent = xp.where(fraction == 0, xp.nan, 1.0 / xp.tan(math.pi * fraction))
    return xp.where(reflected, total - math.pi * cotangent, total)


@by_arrays("polygamma")
def _polygamma(xp: Any, problem: Problem, array: Any, out: Any) -> None:
    """Left of 0 by reflection, elsewhere by the zeta function."""
    (n,) = problem.attributes
    sign = -1.0 if n % 2 == 0 else 1.0
    x = array.astype("float64")
    reflected = x < 0
    value = sign * math.factorial(n) * of_cpu.zeta(n + 1, xp.where(reflected, 1.0 - x, x))
    cotangent = 1.0 / xp.tan(math.pi * (x - xp.rint(x)))
    polynomial = of_cpu.polynomial(cotangent, of_cpu.derivative_of_cotangent(n))
    xp.copyto(out, xp.where(reflected, -sign * value - math.pi ** (n + 1) * polynomial, value), casting="unsafe")


# Others


@computes("xlogy")
def _xlogy(xp: Any, factor: Any, array: Any) -> Any:
    product = xp.multiply(factor, xp.log(array))
    return xp.where(xp.logical_and(factor == 0, array == array), product.dtype.type(0), product)


@computes("sinc")
def _sinc(xp: Any, array: Any) -> Any:
    # Taken of the distance to the nearest integer, whose product with pi loses nothing.
    x = array.astype("float64")
    nearest = xp.rint(x)
    sine = xp.sin(math.pi * (x - nearest)) * (1.0 - 2.0 * (xp.fmod(nearest, 2.0) != 0))
    return xp.where(x == 0, 1.0, sine / (math.pi * x))


@computes("entr")
def _entr(xp: Any, array: Any) -> Any:
    x = array.astype("float64")
    return xp.where(x == 0, 0.0, xp.where(x < 0, -xp.inf, -x * xp.log(x)))
