"""Special functions: the error and gamma functions and related ones, xlogy, sinc and entropy.

All but xlogy are computed in float64 for all dtypes, and rounded once; `activation` has float32's error function.
Numbers in parentheses are formulas of the NIST's Digital Library of Mathematical Functions (https://dlmf.nist.gov).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any, cast

import numpy as np

from vmflow.instructions.blob import Array
from vmflow.kernels.choosing import Function, Problem, builds
from vmflow.kernels.numpy.tiles import in_tiles

from .half import rounded_once
from .normal_quantile import CENTRE, SIDE, TAIL, normal_quantile, ratio
from .ufuncs import computes

# The error function


def _erf_step(x: Array, out: Array, size: Array) -> None:
    """Compute erf by W. J. Cody's rational approximations (Math. Comp. 23, 1969), as in CALERF; `size` becomes |x|."""
    np.abs(x, size)
    near, middle, far = _ranges(size)
    result = np.empty_like(size)
    part = size[near]
    result[near] = part * ratio(part * part, ERF_P, ERF_Q)
    part = size[middle]
    result[middle] = 1.0 - np.exp(-part * part) * ratio(part, ERFC_P, ERFC_Q)
    part = np.minimum(size[far], 6.0)  # where 1 is reached
    result[far] = 1.0 - np.exp(-part * part) * _far(part)
    np.copysign(result, x, out)


def _ranges(size: Array) -> tuple[Array, Array, Array]:
    """Return the indices of `size`, which is |x|, where x is near 0, in the middle, and far out; nan is far out."""
    near = size <= 0.46875
    up_to_middle = size <= 4.0
    return near.nonzero()[0], (near ^ up_to_middle).nonzero()[0], (~up_to_middle).nonzero()[0]


def _far(x: Array) -> Array:
    inverse = 1.0 / (x * x)
    return (ONE_OVER_ROOT_PI - inverse * ratio(inverse, FAR_P, FAR_Q)) / x


ONE_OVER_ROOT_PI = 1 / math.sqrt(math.pi)
ERF_P = (
    1.85777706184603153e-1,
    3.16112374387056560e0,
    1.13864154151050156e2,
    3.77485237685302021e2,
    3.20937758913846947e3,
)
ERF_Q = (1.0, 2.36012909523441209e1, 2.44024637934444173e2, 1.28261652607737228e3, 2.84423683343917062e3)
ERFC_P = (
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
ERFC_Q = (
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
FAR_P = (
    1.63153871373020978e-2,
    3.05326634961232344e-1,
    3.60344899949804439e-1,
    1.25781726111229246e-1,
    1.60837851487422766e-2,
    6.58749161529837803e-4,
)
FAR_Q = (
    1.0,
    2.56852019228982242e0,
    1.87295284992346047e0,
    5.27905102951428412e-1,
    6.05183413124413191e-2,
    2.33520497626869185e-3,
)

erf_of_double = in_tiles(_erf_step, 1, single=False)


def _erfc_step(x: Array, out: Array, size: Array) -> None:
    """Compute erfc by the approximations of erf; far out it keeps its digits, which 1 - erf would lose."""
    np.abs(x, size)
    near, middle, far = _ranges(size)
    beyond = np.empty_like(size)
    part = size[near]
    beyond[near] = 1.0 - part * ratio(part * part, ERF_P, ERF_Q)
    part = size[middle]
    beyond[middle] = _gaussian(part) * ratio(part, ERFC_P, ERFC_Q)
    part = np.minimum(size[far], 40.0)  # from 28 on, erfc is 0 in float64
    beyond[far] = _gaussian(part) * _far(part)
    # Below 0, erfc is 2 - beyond: with the sign s of x, (1 - s) + s * beyond.
    np.copysign(1.0, x, size)
    np.multiply(beyond, size, beyond)
    np.subtract(1.0, size, size)
    np.add(beyond, size, out)


erfc_of_double = in_tiles(_erfc_step, 1, single=False)
computes("erfc")(erfc_of_double)


def _erfcx_step(x: Array, out: Array, size: Array) -> None:
    """Compute erfcx by the approximations of erfc without their factor, the exponential; near 0 by that of erf."""
    np.abs(x, size)
    near, middle, far = _ranges(size)
    beyond = np.empty_like(size)
    part = size[near]
    beyond[near] = np.exp(part * part) * (1.0 - part * ratio(part * part, ERF_P, ERF_Q))
    part = size[middle]
    beyond[middle] = ratio(part, ERFC_P, ERFC_Q)
    beyond[far] = _far(size[far])
    # Below 0, erfcx is 2 exp(x * x) - beyond.
    np.copyto(out, np.where(x < 0, 2.0 / _gaussian(np.minimum(size, 27.0)) - beyond, beyond))


computes("erfcx")(in_tiles(_erfcx_step, 1, single=False))


@computes("ndtri")
def _ndtri(array: Array, out: Array | None) -> Array:
    return normal_quantile(array).astype(array.dtype, copy=False)


def _gaussian(x: Array) -> Array:
    """``exp(-x * x)``; the square is taken in two parts, because its rounding error would be multiplied by x * x."""
    coarse = np.trunc(x * 16.0) / 16.0
    return np.asarray(np.exp(-coarse * coarse) * np.exp(-(x - coarse) * (x + coarse)))


def _erfinv_step(x: Array, out: Array, result: Array) -> None:
    """Compute erfinv by the normal distribution's quantiles."""
    inside = np.abs(x) <= 0.85
    central, outer = inside.nonzero()[0], (~inside).nonzero()[0]
    half = x[central] * 0.5
    result[central] = half * ratio(0.180625 - half * half, *CENTRE)
    part = x[outer]
    # Half of 1 - |x|, which is exact, is the probability of the tail.
    distance = np.sqrt(-np.log((1.0 - np.abs(part)) * 0.5))
    middle = ratio(np.minimum(distance, 5.0) - 1.6, *SIDE)
    far = ratio(np.clip(distance, 5.0, 30.0) - 5.0, *TAIL)
    quantile = np.where(distance <= 5.0, middle, np.where(distance == np.inf, np.inf, far))
    result[outer] = np.where(np.abs(part) <= 1.0, np.copysign(quantile, part), np.nan)
    np.multiply(result, ROOT_HALF, out)


computes("erfinv")(in_tiles(_erfinv_step, 1, single=False))
ROOT_HALF = math.sqrt(0.5)


# The gamma function

FAR = 10
_EULER = 0.57721566490153286061
# Bernoulli's numbers B2, B4, ...
BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510, 43867 / 798, -174611 / 330)


def polynomial(x: Array, coefficients: tuple[float, ...]) -> Array:
    """Return a polynomial of `x`; `coefficients` begin with the highest power's."""
    total: Any = coefficients[0]
    for coefficient in coefficients[1:]:
        total = total * x + coefficient
    return cast("Array", total)


# The number of zeta's terms that are added one by one; Euler's and Maclaurin's formula gives the rest.
FIRST_TERMS = 12


def rest_of_zeta(s: Any, q: Any) -> Any:
    """The sum of ``(q + k) ** -s`` over all k from 0, divided by ``q ** (1 - s) / (s - 1)``, for large q (25.11.43)."""
    inverse = 1.0 / q
    total = 1.0 + (s - 1.0) * inverse * 0.5
    factor = ((s - 1.0) * inverse) * (s * inverse)
    for order, number in enumerate(BERNOULLI, 1):
        total = total + factor * (number / math.factorial(2 * order))
        factor = factor * ((s + (2 * order - 1)) * inverse) * ((s + 2 * order) * inverse)
    # Limited by integrals, as the series diverges where s is larger than q.  The rest is then a small part of zeta.
    return np.clip(total, 1.0, 1.0 + (s - 1.0) * inverse)


def zeta(s: Any, q: Any) -> Any:
    """Hurwitz's zeta function for s > 1 and q >= 0."""
    far = q + float(FIRST_TERMS)
    power = np.power(far, 1.0 - s)
    # Where the power underflows to 0, the rest is 0, though the series of a huge s is infinite.  The smallest terms are
    # added first.
    total = np.where(power == 0, 0.0, power / (s - 1.0) * rest_of_zeta(s, far))
    for place in range(FIRST_TERMS - 1, -1, -1):
        total = total + np.power(q + float(place), -s)
    return total


def beyond_poles(of_positive: Callable[[Array], Array], q: Array, odd: Any) -> Array:
    """Hurwitz's zeta function of every q, in a number of steps that does not depend on q.

    The sum of the terms with negative bases is the difference of two sums with positive ones.

    Args:
        of_positive: the function of 0 and positive numbers.
        q: numbers other than -inf.
        odd: whether terms change their sign with their base, as those of odd exponents do; an array or a bool.
    """
    below = q < 0
    if not below.any():
        return of_positive(q)
    fraction = np.where(below, -q - np.floor(-q), 0.5)
    result = of_positive(np.where(below, 1.0 - fraction, q))
    negative = of_positive(fraction)
    beyond = of_positive(np.where(below, 1.0 - q, 1.0))
    # If both sums overflow, the one from the smaller base is the larger, and equal ones cancel out.
    same = odd & (fraction == 0.5)
    beyond = np.where(np.isinf(negative) & ~same, 0.0, beyond)
    both = np.isinf(result) & np.isinf(negative)
    apart = np.where(both, np.where(same, 0.0, np.copysign(np.inf, fraction - 0.5)), result - negative)
    joined = np.where(odd, apart + beyond, result + (negative - beyond))
    return np.where(below, np.where(fraction == 0, np.inf, joined), result)


@functools.cache
def near_two() -> tuple[float, ...]:
    """The coefficients of log(gamma(2 + x)), highest power first (5.7.3): precise but for two bits if |x| <= 0.5."""
    high = [(-1) ** power * zeta(power, 2.0) / power for power in range(28, 1, -1)]
    return (*high, 1 - _EULER, 0.0)


# By powers of 1 / x**2, highest first: the rest of log(gamma(x)) beyond Stirling's formula, times x (5.11.1).
STIRLING = tuple([number / (2 * place * (2 * place - 1)) for place, number in enumerate(BERNOULLI, 1)])[::-1]
# By powers of 1 / x**2, highest first: the rest of digamma(x) beyond log(x) - 1 / (2 * x), times -x**2 (5.11.2).
DIGAMMA = tuple([number / (2 * place) for place, number in enumerate(BERNOULLI, 1)])[::-1]


@computes("lgamma")
def lgamma(array: Array, out: Array | None) -> Array:
    """log(|gamma(x)|): below 0.5 by reflection (5.5.3), up to `FAR` moved near 2 (5.5.1), beyond by Stirling."""
    x = np.asarray(array, dtype=np.float64)
    reflected = x < 0.5
    y = np.where(reflected, 1.0 - x, x)
    moderate = y < FAR
    near = np.where(moderate, y, 2.0)
    product = np.ones_like(near)
    for _ in range(FAR - 2):
        too_large = near > 2.5
        near = np.where(too_large, near - 1.0, near)
        product = np.where(too_large, product * near, product)
    below = near < 1.5
    offset = near - np.where(below, 1.0, 2.0)
    series = polynomial(offset, near_two()) - np.where(below, np.log1p(offset), 0.0) + np.log(product)
    far = np.where(moderate, float(FAR), y)
    stirling = (far - 0.5) * (np.log(far) - 1.0) + (0.5 * math.log(2 * math.pi) - 0.5)
    stirling = stirling + polynomial(1.0 / (far * far), STIRLING) / far
    result = np.where(moderate, series, stirling)
    sine = np.abs(np.sin(math.pi * (x - np.rint(x))))
    # The sine of -inf is nan; the limit is taken as infinite.
    reflection = np.where(x == -np.inf, np.inf, math.log(math.pi) - np.log(sine) - result)
    return np.asarray(np.where(reflected, reflection, result)).astype(array.dtype, copy=False)


@computes("digamma")
def _digamma(array: Array, out: Array | None) -> Array:
    """digamma(x): below 0 by reflection (5.5.4); moved up to `FAR` (5.5.2), and there by a series (5.11.2)."""
    x = np.asarray(array, dtype=np.float64)
    reflected = x < 0
    y = np.where(reflected, 1.0 - x, x)
    total = np.zeros_like(y)
    for _ in range(FAR):
        too_small = y < FAR
        total = np.where(too_small, total - 1.0 / y, total)
        y = np.where(too_small, y + 1.0, y)
    inverse = 1.0 / (y * y)
    total = total + (np.log(y) - 0.5 / y - polynomial(inverse, DIGAMMA) * inverse)
    fraction = x - np.rint(x)
    cotangent = np.where(fraction == 0, np.nan, 1.0 / np.tan(math.pi * fraction))
    result = np.where(reflected, total - math.pi * cotangent, total)
    return np.asarray(result).astype(array.dtype, copy=False)


@builds("polygamma")
def _polygamma(problem: Problem) -> Function:
    (n,) = problem.attributes
    to = problem.outputs[0].dtype.numpy
    sign = -1.0 if n % 2 == 0 else 1.0
    unit, scale, scale_of_rest = polygamma_scales(n)

    def of_positive(q: Array) -> Array:
        """Hurwitz's zeta function of n + 1, times n!; either factor may be too large or too small for float64."""
        # Each power is two square roots, with its scale in between: these underflow only if the product does.
        far = q + float(FIRST_TERMS)
        half = np.power(far / unit, -0.5 * n)
        total = half * scale_of_rest * half * rest_of_zeta(n + 1.0, far)
        for place in range(FIRST_TERMS - 1, -1, -1):
            half = np.power((q + float(place)) / unit, -0.5 * (n + 1))
            total = total + half * scale * half
        return cast("Array", total)

    def kernel(array: Array, out: Array | None) -> Array:
        """polygamma(n, x) by the zeta function (25.11.12)."""
        x = np.asarray(array, dtype=np.float64)
        value = sign * beyond_poles(of_positive, np.where(x == -np.inf, np.nan, x), n % 2 == 0)
        return np.asarray(value).astype(to, copy=False)

    return kernel


def polygamma_scales(n: int) -> tuple[float, float, float]:
    """Return a power of 2, here u, and ``n! / u ** (n + 1)`` and ``(n - 1)! / u ** n``.

    A term of polygamma(n, x) is a quotient of n! and a power, which may both overflow though the quotient does not.
    """
    exponent = round(math.lgamma(n + 1) / (n + 1) / math.log(2))
    scale = Fraction(math.factorial(n), 2 ** (exponent * (n + 1)))
    scale_of_rest = Fraction(math.factorial(n - 1), 2 ** (exponent * n))
    return 2.0**exponent, float(scale), float(scale_of_rest)


# Others


@computes("xlogy")
@rounded_once
def _xlogy(factor: Array, array: Array, out: Array | None) -> Array:
    product = factor * np.log(array)
    return np.where((factor == 0) & ~np.isnan(array), np.zeros((), product.dtype), product)


@computes("sinc")
def _sinc(array: Array, out: Array | None) -> Array:
    # The sine is taken of the distance to the nearest integer, whose product with pi loses no digits.
    x = np.asarray(array, dtype=np.float64)
    nearest = np.rint(x)
    sine = np.sin(math.pi * (x - nearest)) * (1.0 - 2.0 * (np.fmod(nearest, 2.0) != 0))
    result = np.where(x == 0, 1.0, sine / (math.pi * x))
    return np.asarray(result).astype(array.dtype, copy=False)


@computes("entr")
def _entr(array: Array, out: Array | None) -> Array:
    x = np.asarray(array, dtype=np.float64)
    result = np.where(x == 0, 0.0, np.where(x < 0, -np.inf, -x * np.log(x)))
    return np.asarray(result).astype(array.dtype, copy=False)
