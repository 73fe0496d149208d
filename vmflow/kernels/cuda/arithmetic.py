"""Arithmetic, comparisons and rounding, where the array module's functions are not just what is wanted."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from .functions import ElementFunction, computes

# Powers


@computes("pow")
def _power(xp: Any, base: Any, exponent: Any) -> Any:
    if exponent.dtype.kind == "i":
        # numpy has no negative ones.  A fraction rounded towards zero is 0, except for the powers of 1 and -1.
        unit = xp.where(base == -1, 1 - 2 * (exponent & 1), base == 1)
        return xp.where(exponent < 0, unit, xp.power(base, xp.maximum(exponent, 0)))
    result = xp.power(base, exponent)
    if exponent.dtype.kind != "f" or exponent.shape == base.shape:
        return result
    # numpy takes the square root where an exponent of 0.5 is broadcast, which is not the power of -inf and -0.0.
    odd = xp.logical_and(exponent == 0.5, xp.logical_or(base == -np.inf, base == 0))
    return xp.where(odd, xp.absolute(base), result)


def _squared_reciprocal(xp: Any, base: Any) -> Any:
    # In this order, since the square of a small number may be denormal, which has fewer digits.
    return xp.square(xp.reciprocal(base))


@computes("rsqrt")
def _reciprocal_root(xp: Any, array: Any) -> Any:
    return xp.reciprocal(xp.sqrt(array))


# As on the CPU.
_QUICKLY: Final[dict[complex, ElementFunction]] = {
    -2: _squared_reciprocal,
    -1: lambda xp, base: xp.reciprocal(base),
    -0.5: _reciprocal_root,
    0.5: lambda xp, base: xp.sqrt(base),
    2: lambda xp, base: xp.multiply(base, base),
    3: lambda xp, base: xp.multiply(xp.multiply(base, base), base),
    4: lambda xp, base: xp.square(xp.square(base)),
}


@computes("pow_scalar")
def _scalar_power(xp: Any, base: Any, exponent: Any) -> Any:
    if isinstance(exponent, np.generic):
        quick = _QUICKLY.get(exponent.item())
        # For infinite complex numbers, a product differs from a power.
        if quick is not None and (base.dtype.kind == "f" or exponent == 2):
            return quick(xp, base)
    return _power(xp, base, exponent)


# Quotients and remainders


@computes("floor_divide")
def _floor_divide(xp: Any, dividend: Any, divisor: Any) -> Any:
    if dividend.dtype.kind in "iu":
        return xp.floor_divide(dividend, divisor)
    # A quotient may be rounded up to a whole number that it does not reach.  The remainder tells.
    rest = xp.fmod(dividend, divisor)
    quotient = xp.true_divide(dividend, divisor)
    below = xp.logical_and(rest != 0, (rest < 0) != (divisor < 0))
    exact = xp.true_divide(dividend - rest, divisor) - below
    whole = xp.floor(exact)
    whole = whole + (exact - whole > 0.5)
    whole = xp.where(exact == 0, xp.copysign(exact - exact, quotient), whole)
    return xp.where(divisor == 0, quotient, whole)


@computes("trunc_divide")
def _trunc_divide(xp: Any, dividend: Any, divisor: Any) -> Any:
    if dividend.dtype.kind not in "iu":
        return xp.trunc(xp.true_divide(dividend, divisor))
    # Through floating point, large integers would lose digits.
    down = xp.floor_divide(dividend, divisor)
    inexact = xp.logical_and((dividend < 0) != (divisor < 0), down * divisor != dividend)
    return xp.add(down, inexact)


@computes("remainder")
def _remainder(xp: Any, dividend: Any, divisor: Any) -> Any:
    if dividend.dtype.kind in "iu":
        return xp.remainder(dividend, divisor)
    rest = xp.fmod(dividend, divisor)
    other_side = xp.logical_and(rest != 0, (rest < 0) != (divisor < 0))
    rest = xp.where(other_side, rest + divisor, rest)
    return xp.where(rest == 0, xp.copysign(rest, divisor), rest)


@computes("fmod")
def _fmod(xp: Any, dividend: Any, divisor: Any) -> Any:
    if dividend.dtype.kind not in "iu":
        return xp.fmod(dividend, divisor)
    rest = xp.remainder(dividend, divisor)
    return xp.where(xp.logical_and(rest != 0, (rest < 0) != (dividend < 0)), rest - divisor, rest)


# Bits.  CUDA leaves shifts by more places than an integer has undefined.


@computes("bitwise_left_shift")
def _left_shift(xp: Any, array: Any, places: Any) -> Any:
    last = 8 * places.dtype.itemsize - 1
    inside = xp.logical_and(places >= 0, places <= last)
    return xp.where(inside, xp.left_shift(array, xp.minimum(xp.maximum(places, 0), last)), array.dtype.type(0))


@computes("bitwise_right_shift")
def _right_shift(xp: Any, array: Any, places: Any) -> Any:
    last = 8 * places.dtype.itemsize - 1
    inside = xp.logical_and(places >= 0, places <= last)
    sign = xp.where(array < 0, array.dtype.type(-1 if array.dtype.kind == "i" else 0), array.dtype.type(0))
    return xp.where(inside, xp.right_shift(array, xp.minimum(xp.maximum(places, 0), last)), sign)


# Truth


def _of_truth(name: str) -> ElementFunction:
    """A logical function; CuPy has none of complex numbers."""

    def function(xp: Any, *operands: Any) -> Any:
        return getattr(xp, name)(*[operand != 0 if operand.dtype.kind == "c" else operand for operand in operands])

    return function


for _name in ("logical_and", "logical_or", "logical_xor", "logical_not"):
    computes(_name)(_of_truth(_name))


# Signs


@computes("sign")
def _sign(xp: Any, array: Any) -> Any:
    if array.dtype.kind == "b":
        return array
    # The array module's sign of nan is nan.
    above = xp.greater(array, 0).astype(array.dtype)
    return above - xp.less(array, 0).astype(array.dtype)


@computes("neg")
def _negative(xp: Any, array: Any) -> Any:
    # Not into the result's place: numpy 2.4, which computes on emulated devices, is wrong there, see the CPU's kernel.
    return xp.negative(array)


@computes("signbit")
def _signbit(xp: Any, array: Any) -> Any:
    return xp.signbit(array) if array.dtype.kind not in "biu" else xp.less(array, 0)


@computes("heaviside")
def _heaviside(xp: Any, array: Any, values: Any) -> Any:
    return xp.where(array == 0, values, (array > 0).astype(values.dtype))


# Rounding


@computes("round")
def _round(xp: Any, array: Any) -> Any:
    # The array module would turn integers into floats.
    return array if array.dtype.kind in "iu" else xp.rint(array)
