"""The regularized incomplete gamma functions, and Hurwitz's zeta function.

They are computed in float64 for all dtypes, and rounded once.  Numbers in brackets are formulas of the
NIST's Digital Library of Mathematical Functions (https://dlmf.nist.gov).
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from vmflow.instructions.blob import Array

from .special import STIRLING, beyond_poles, erfc_of_double, lgamma, polynomial, zeta
from .ufuncs import computes

# From this `a` on the density is computed by Stirling's formula, without differences of large logarithms.
LARGE: Final = 10.0
# The number of terms until a sum or fraction converges grows with the square root of the larger operand: up to `HUGE`,
# it is less than `MOST_TERMS`.
HUGE: Final = 1e6
MOST_TERMS: Final = 20_000
# A term below `SMALL` times the sum no longer changes it; a fraction's factor within `NEARLY_ONE` of 1 is only
# rounding.
SMALL: Final = 2.0**-54
NEARLY_ONE: Final = 2.0**-50
# The correction to the normal distribution (8.12.8), by powers of eta, highest first, and its term in 1 / a.
CORRECTION: Final = (1 / 2835, 1 / 864, -2 / 135, 1 / 12, -1 / 3)
NEXT_CORRECTION: Final = -1 / 540
# Below this first operand, the upper function of x < a + 1 can be too small for `1 - lower` to be precise.
TINY: Final = 0.1
# By powers of a, highest first, log(gamma(1 + a)) / a (5.7.3): (-1) ** k * zeta(k) / k, and minus Euler's constant.
LOG_GAMMA_BY_A: Final = (
    *(-1.0000305882363070 / 15, 1.0000612481350587 / 14, -1.0001227133475785 / 13, 1.0002460865533080 / 12),
    *(-1.0004941886041195 / 11, 1.0009945751278181 / 10, -1.0020083928260822 / 9, 1.0040773561979443 / 8),
    *(-1.0083492773819228 / 7, 1.0173430619844491 / 6, -1.0369277551433699 / 5, 1.0823232337111382 / 4),
    *(-1.2020569031595943 / 3, 1.6449340668482264 / 2, -0.5772156649015329),
)
# The alternating series of the upper function, for x < 1 + TINY, stops before this term.
ALTERNATING_TERMS: Final = 20


def _density(a: Array, x: Array) -> Array:
    """``x ** a * exp(-x) / gamma(a + 1)`` for positive operands."""
    large = a >= LARGE
    safe = np.where(large, a, LARGE)
    excess = (x - safe) / safe
    correction = polynomial(1.0 / (safe * safe), STIRLING) / safe
    by_stirling = np.exp(safe * (np.log1p(excess) - excess) - correction) / np.sqrt(2 * math.pi * safe)
    small = np.where(large, 1.0, a)
    direct = np.exp(small * np.log(x) - x - lgamma(small + 1.0, None))
    return np.where(large, by_stirling, direct)


def _lower_by_series(a: Array, x: Array) -> Array:
    """The sum over k of ``x ** k / ((a + 1) * ... * (a + k))`` (8.7.1)."""
    total = np.ones_like(x)
    active = np.arange(x.size)
    term, place = total.copy(), a.copy()
    for _ in range(MOST_TERMS):
        place = place + 1.0
        term = term * (x[active] / place)
        total[active] += term
        goes_on = term > total[active] * SMALL
        if not goes_on.any():
            break
        active, term, place = active[goes_on], term[goes_on], place[goes_on]
    return total


def _upper_of_tiny(a: Array, x: Array) -> Array:
    """The upper function for ``a < TINY`` and ``x < a + 1``, without a difference of nearly equal numbers (8.7.3)."""
    exponent = a * (np.log(x) - polynomial(a, LOG_GAMMA_BY_A))
    total, term = np.zeros_like(x), np.ones_like(x)
    for k in range(1, ALTERNATING_TERMS):
        term = term * (-x / k)
        total += term / (a + k)
    return np.asarray(-np.expm1(exponent) - a * np.exp(exponent) * total)


def _upper_by_fraction(a: Array, x: Array) -> Array:
    """The upper function's continued fraction (8.9.2), times ``a``, by W. Lentz's method (Applied Optics 15, 1976)."""
    result = np.empty_like(x)
    active = np.arange(x.size)
    b = x + 1.0 - a
    numerator = np.full_like(x, 1e300)
    inverse = 1.0 / b
    fraction = inverse.copy()
    place = 0
    while active.size and place < MOST_TERMS:
        place += 1
        factor = -place * (place - a)
        b = b + 2.0
        inverse = factor * inverse + b
        inverse = 1.0 / np.where(inverse == 0, 1e-300, inverse)
        numerator = b + factor / numerator
        numerator = np.where(numerator == 0, 1e-300, numerator)
        change = inverse * numerator
        fraction = fraction * change
        goes_on = np.abs(change - 1.0) > NEARLY_ONE
        if goes_on.all():
            continue
        result[active[~goes_on]] = (fraction * a)[~goes_on]
        active = active[goes_on]
        a, b, numerator, inverse, fraction = (value[goes_on] for value in (a, b, numerator, inverse, fraction))
    result[active] = fraction * a
    return result


def _upper_of_huge(a: Array, x: Array) -> Array:
    """The upper function for ``a >= HUGE``: the normal distribution's tail plus a correction (8.12.4)."""
    excess = (x - a) / a
    # For a small excess, a series is used, since excess - log(1 + excess) would lose digits.
    half_square = np.where(
        np.abs(excess) < 1e-3,
        excess * excess * polynomial(excess, (1 / 6, -1 / 5, 1 / 4, -1 / 3, 1 / 2)),
        excess - np.log1p(excess),
    )
    eta = np.copysign(np.sqrt(2 * half_square), excess)
    normal = erfc_of_double(eta * np.sqrt(a * 0.5), None) * 0.5
    near = np.clip(eta, -1.0, 1.0)  # beyond, the exponential is 0
    correction = polynomial(near, CORRECTION) + NEXT_CORRECTION / a
    return np.asarray(normal + np.exp(-a * half_square) / np.sqrt(2 * math.pi * a) * correction)


def _incomplete(first: Array, second: Array, upper: bool) -> Array:
    arrays = np.broadcast_arrays(first, second)
    a, x = (np.asarray(array, np.float64).ravel() for array in arrays)
    below, above = (1.0, 0.0) if upper else (0.0, 1.0)
    result = np.full_like(a, np.nan)
    valid = (a >= 0) & (x >= 0)
    result[valid & (x == 0) & (a > 0)] = below
    result[valid & (a == 0) & (x > 0)] = above
    infinite = valid & (a > 0) & ((a == np.inf) != (x == np.inf))
    result[infinite] = np.where(a[infinite] == np.inf, below, above)
    plain = valid & (a > 0) & (x > 0) & (a < np.inf) & (x < np.inf)
    huge = a >= HUGE
    chosen = (plain & huge).nonzero()[0]
    found = _upper_of_huge(a[chosen], x[chosen])
    result[chosen] = found if upper else 1.0 - found
    by_series = x < a + 1.0
    if upper:
        chosen = (plain & by_series & (a < TINY)).nonzero()[0]
        result[chosen] = _upper_of_tiny(a[chosen], x[chosen])
        plain &= ~(by_series & (a < TINY))
    chosen = (plain & ~huge & by_series).nonzero()[0]
    found = _density(a[chosen], x[chosen]) * _lower_by_series(a[chosen], x[chosen])
    result[chosen] = 1.0 - found if upper else found
    chosen = (plain & ~huge & ~by_series).nonzero()[0]
    found = _density(a[chosen], x[chosen]) * _upper_by_fraction(a[chosen], x[chosen])
    result[chosen] = found if upper else 1.0 - found
    return result.reshape(arrays[0].shape).astype(first.dtype, copy=False)


@computes("igamma")
def _igamma(first: Array, second: Array, out: Array | None) -> Array:
    return _incomplete(first, second, upper=False)


@computes("igammac")
def _igammac(first: Array, second: Array, out: Array | None) -> Array:
    return _incomplete(first, second, upper=True)


@computes("zeta")
def _zeta(exponent: Array, start: Array, out: Array | None) -> Array:
    """Hurwitz's zeta function: infinity at its poles; nan for an exponent below 1, and for a fractional exponent with a
    negative fractional `start`.
    """
    s, q = (np.asarray(array, np.float64) for array in np.broadcast_arrays(exponent, start))
    whole = q == np.rint(q)
    valid = (s > 1) & ((q > 0) | (~whole & (q == q) & (s == np.rint(s))))
    exponents = np.where(valid, s, 2.0)
    total = beyond_poles(lambda place: zeta(exponents, place), np.where(valid, q, 1.0), np.fmod(exponents, 2.0) == 1)
    pole = (s == 1) | ((s > 1) & (q <= 0) & whole)
    result = np.where(pole, np.inf, np.where(valid, total, np.nan))
    result = np.where(np.isnan(s) | np.isnan(q), np.nan, result)
    return np.asarray(result).astype(exponent.dtype, copy=False)
