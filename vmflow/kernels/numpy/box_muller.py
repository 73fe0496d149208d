"""Pairs of normal numbers from pairs of uniform ones.

G. Box and M. Muller, A note on the generation of random normal deviates, Annals of Mathematical Statistics 29, 1958.

The logarithm, sine and cosine are polynomials here, in operations that IEEE 754 rounds in one way only.  So the same
words give the same numbers on every machine, and in `vmflow/kernels/native/random.c` and the kernels of
`vmflow/kernels/cuda/drawing.py`, which compute in the same order.  The polynomials of float32 are those of S. Moshier's
Cephes library, the ones of float64 those of Sun's fdlibm.  Above 0.1 in size, a normal number is wrong by less than 4
units in its last place, as a function of the angle and of the uniform number rounded to the dtype.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from .philox import Words

_Array = Any

# The bits of sqrt(1/2) in float32 and float64: the logarithms scale a number, by a power of 2, to the range from there
# to twice as much.  And the sizes of the two dtypes' fractions, in bits.
_ROOT: Final = 0x3F3504F3
_WIDE_ROOT: Final = 0x3FE6A09E667F3BCD
_FRACTION: Final = 23
_WIDE_FRACTION: Final = 52


def normals(words: Words) -> _Array:
    """Return a float32 normal number for each of an even number of words.

    The first word of a pair determines the radius of the pair's two numbers, the second one their angle.
    """
    radius = np.sqrt(-2 * logarithm(words[0::2].astype(np.float32) * 2.0**-32 + np.float32(2.0**-33)))
    # The angle's nearest multiple of a quarter turn, and the rest.
    turned = words[1::2] + np.uint32(1 << 29)
    quarters = turned >> np.uint32(30)
    rest = (turned & np.uint32((1 << 30) - 1)).astype(np.int32) - np.int32(1 << 29)
    sine, cosine = _sine_and_cosine(rest.astype(np.float32) * np.float32(2 * np.pi / 2**32))
    return _pairs(radius, sine, cosine, quarters)


def wide_normals(words: Words) -> _Array:
    """Return two float64 normal numbers for each four words, whose first two determine the radius of both numbers."""
    high, low = words[1::4].astype(np.float64), (words[0::4] >> np.uint32(11)).astype(np.float64)
    radius = np.sqrt(-2 * wide_logarithm(high * 2.0**-32 + low * 2.0**-53 + 2.0**-54))
    turned = (words[3::4].astype(np.uint64) << np.uint64(32) | words[2::4]) + np.uint64(1 << 61)
    quarters = turned >> np.uint64(62)
    rest = (turned & np.uint64((1 << 62) - 1)).astype(np.int64) - np.int64(1 << 61)
    sine, cosine = _wide_sine_and_cosine(rest.astype(np.float64) * (2 * np.pi / 2**64))
    return _pairs(radius, sine, cosine, quarters)


def _pairs(radius: _Array, sine: _Array, cosine: _Array, quarters: _Array) -> _Array:
    one, two = quarters.dtype.type(1), quarters.dtype.type(2)
    odd = (quarters & one) != 0
    across: _Array = np.where(odd, sine, cosine)
    up: _Array = np.where(odd, cosine, sine)
    across = np.where(((quarters + one) & two) != 0, -across, across)
    up = np.where((quarters & two) != 0, -up, up)
    return np.stack((radius * across, radius * up), axis=1).reshape(-1)


def logarithm(x: _Array) -> _Array:
    """The natural logarithm of numbers of float32 from 2**-33 to 1."""
    bits = x.view(np.int32) - np.int32(_ROOT)
    exponent = (bits >> np.int32(_FRACTION)).astype(np.float32)
    f = ((bits & np.int32((1 << _FRACTION) - 1)) + np.int32(_ROOT)).view(np.float32) - np.float32(1)
    square = f * f
    power = _polynomial(f, _LOGARITHM) * f * square
    power = power + exponent * np.float32(-2.12194440e-4)
    power = power - square * np.float32(0.5)
    return (f + power) + exponent * np.float32(0.693359375)


def _sine_and_cosine(x: _Array) -> tuple[_Array, _Array]:
    """Sines and cosines of float32 angles in radians, of up to an eighth of a turn."""
    square = x * x
    sine = _polynomial(square, _SINE) * square * x + x
    cosine = _polynomial(square, _COSINE) * (square * square) - square * np.float32(0.5) + np.float32(1)
    return sine, cosine


def wide_logarithm(x: _Array) -> _Array:
    """The natural logarithm of numbers of float64 from 2**-54 to 1."""
    bits = x.view(np.int64) - np.int64(_WIDE_ROOT)
    exponent = (bits >> np.int64(_WIDE_FRACTION)).astype(np.float64)
    f = ((bits & np.int64((1 << _WIDE_FRACTION) - 1)) + np.int64(_WIDE_ROOT)).view(np.float64) - 1.0
    ratio = f / (f + 2.0)
    square = ratio * ratio
    rest = _polynomial(square, _WIDE_LOGARITHM) * square
    half = f * f * 0.5
    small = ratio * (half + rest) + exponent * 1.90821492927058770002e-10
    return exponent * 6.93147180369123816490e-01 - ((half - small) - f)


def _wide_sine_and_cosine(x: _Array) -> tuple[_Array, _Array]:
    """Sines and cosines of float64 angles in radians, of up to an eighth of a turn."""
    square = x * x
    sine = _polynomial(square, _WIDE_SINE) * square * x + x
    cosine = _polynomial(square, _WIDE_COSINE) * (square * square) - square * 0.5 + 1.0
    return sine, cosine


def _polynomial(x: _Array, coefficients: tuple[float, ...]) -> _Array:
    kind = x.dtype.type
    found = x * kind(coefficients[0]) + kind(coefficients[1])
    for coefficient in coefficients[2:]:
        found = found * x + kind(coefficient)
    return found


# Coefficients, from the highest power on.
_LOGARITHM: Final = (
    7.0376836292e-2,
    -1.1514610310e-1,
    1.1676998740e-1,
    -1.2420140846e-1,
    1.4249322787e-1,
    -1.6668057665e-1,
    2.0000714765e-1,
    -2.4999993993e-1,
    3.3333331174e-1,
)
_SINE: Final = (-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1)
_COSINE: Final = (2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2)
_WIDE_LOGARITHM: Final = (
    1.479819860511658591e-01,
    1.531383769920937332e-01,
    1.818357216161805012e-01,
    2.222219843214978396e-01,
    2.857142874366239149e-01,
    3.999999999940941908e-01,
    6.666666666666735130e-01,
)
_WIDE_SINE: Final = (
    1.58969099521155010221e-10,
    -2.50507602534068634195e-08,
    2.75573137070700676789e-06,
    -1.98412698298579493134e-04,
    8.33333333332248946124e-03,
    -1.66666666666666324348e-01,
)
_WIDE_COSINE: Final = (
    -1.13596475577881948265e-11,
    2.08757232129817482790e-09,
    -2.75573143513906633035e-07,
    2.48015872894767294178e-05,
    -1.38888888888741095749e-03,
    4.16666666666666019037e-02,
)
