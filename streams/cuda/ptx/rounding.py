"""Floating-point arithmetic that rounds once, in any direction, as GPUs do.

Numpy rounds to the nearest and has no fused multiply-add.  Other results are computed in a wider format if there is
one, where necessary by *rounding to odd*: a result that is not exact gets an odd last bit, which tells on which side
the exact value is.  Rounding this result to a format of at least two bits fewer is as good as rounding the exact value
(Boldo and Melquiond, 2008).
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Final, Literal

import numpy as np

from .types import BFLOAT16, SIGNED, UNSIGNED, Array, DType

Mode = Literal["rn", "rz", "rm", "rp"]
MODES: Final[tuple[Mode, ...]] = ("rn", "rz", "rm", "rp")

_SINGLE: Final = np.dtype(np.float32)
_DOUBLE: Final = np.dtype(np.float64)

# The bits of a double that do not fit into a normal single, and their pattern half way between two singles.
_BEYOND_SINGLE: Final = np.uint64((1 << 29) - 1)
_HALF_WAY: Final = np.uint64(1 << 28)

# Doubles below this number may lie half way between two subnormal singles with bits other than `_HALF_WAY`.
_SMALLEST_NORMAL_SINGLE: Final = 2.0**-126

# Veltkamp's constant, by which a double is split into two halves.
_SPLITTER: Final = 134217729.0

# For a product between these bounds, neither the halves of factors below the upper bound nor the product's error leave
# the range of doubles.
_SPLIT_BELOW: Final = 2.0**480
_SPLIT_ABOVE: Final = 2.0**-440

# The smallest positive normal number of each dtype; written out, because numpy's finfo does not know bfloat16.
_SMALLEST_NORMAL: Final = {
    np.dtype(np.float16): 2.0**-14,
    BFLOAT16: _SMALLEST_NORMAL_SINGLE,
    _SINGLE: _SMALLEST_NORMAL_SINGLE,
    _DOUBLE: 2.0**-1022,
}

# The NaN of GPUs.
_NAN_BITS: Final = {2: 0x7FFF, 4: 0x7FFFFFFF, 8: 0x7FFFFFFFFFFFFFFF}


def neighbour(values: Array, up: Array) -> Array:
    """The next greater number where `up`, the next smaller elsewhere; not for NaN, or beyond infinity."""
    unsigned = UNSIGNED[values.dtype.itemsize]
    signed = np.dtype(unsigned.str.replace("u", "i"))
    bits = values.view(signed)
    sign = np.array(1 << (8 * unsigned.itemsize - 1), np.uint64).astype(unsigned).view(signed)
    zero = (bits & ~sign) == 0
    away = (bits >= 0) == up
    step = np.where(away, 1, -1).astype(signed)
    small = np.where(up, np.array(1, signed), sign | np.array(1, signed))
    stepped: Array = np.where(zero, small, bits + step).view(values.dtype)
    return stepped


def _directed(rounded: Array, error: Array, mode: Mode) -> Array:
    """Turn values rounded to nearest into values rounded in the direction of `mode`.

    Args:
        error: has the sign of the exact value less `rounded`; NaN stands for 0.
    """
    if mode == "rn":
        return rounded
    negative = np.signbit(rounded)
    down = error < 0 if mode == "rm" else (error < 0) & ~negative if mode == "rz" else np.zeros(error.shape, bool)
    up = error > 0 if mode == "rp" else (error > 0) & negative if mode == "rz" else np.zeros(error.shape, bool)
    moved = down | up
    if not moved.any():
        return rounded
    stepped: Array = np.where(moved, neighbour(rounded, up), rounded)
    return stepped


def to_odd(rounded: Array, error: Array) -> Array:
    """Round a double to odd: `rounded`, rounded to nearest, gets an odd last bit unless it is exact."""
    even = (rounded.view(np.uint64) & np.uint64(1)) == 0
    wrong = even & (error != 0) & np.isfinite(rounded) & ~np.isnan(error)
    if not wrong.any():
        return rounded
    odd: Array = np.where(wrong, neighbour(rounded, error > 0), rounded)
    return odd


def narrow(values: Array, dtype: DType, mode: Mode = "rn") -> Array:
    """Round floats of 32 or 64 bits to a narrower format, once; NaN becomes the NaN of GPUs."""
    if dtype == BFLOAT16 and values.dtype == _DOUBLE:
        values = _odd_single(values)
    result = values.astype(dtype)
    if mode != "rn":
        wide = result.astype(values.dtype)
        # A finite number less an infinity has the right sign, but an infinity less itself is NaN, not zero.
        result = _directed(result, np.where(values == wide, 0.0, values - wide), mode)
    nan = np.isnan(values)
    if nan.any():
        result = np.where(nan, _NAN[dtype.itemsize, dtype.str, dtype.name], result)
    return result


_NAN: Final[dict[tuple[int, str, str], Array]] = {
    (dtype.itemsize, dtype.str, dtype.name): np.array(_NAN_BITS[dtype.itemsize], UNSIGNED[dtype.itemsize]).view(dtype)
    for dtype in (np.dtype(np.float16), BFLOAT16, _SINGLE, _DOUBLE)
}


def _odd_single(values: Array) -> Array:
    """Round doubles to singles, with an odd last bit if not exact."""
    toward_zero = narrow(values, _SINGLE, "rz")
    inexact = (toward_zero.astype(np.float64) != values) & ~np.isnan(values)
    odd: Array = (toward_zero.view(np.uint32) | inexact.astype(np.uint32)).view(np.float32)
    return odd


def integer_to_float(values: Array, dtype: DType, mode: Mode) -> Array:
    """Round integers to a float format, once."""
    if mode == "rn" and dtype.itemsize >= 4:
        return values.astype(dtype)
    # Doubles hold each half of an integer of 64 bits exactly.
    whole = values.astype(UNSIGNED[8] if values.dtype.kind == "u" else SIGNED[8])
    high = (whole >> whole.dtype.type(32)).astype(np.float64) * 2.0**32
    low = (whole & whole.dtype.type(0xFFFFFFFF)).astype(np.float64)
    nearest = high + low
    return _finish(nearest, _sum_error(high, low, nearest), dtype, mode)


def round_number(number: int | float, dtype: DType) -> Array:
    """One number, rounded once to the nearest number of a float format; NaN keeps its sign.

    Raises:
        OverflowError: if an integer is too great for a double.
    """
    double = np.array([float(number)])
    rest = _sign(Fraction(number) - Fraction(float(number))) if isinstance(number, int) else 0
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isnan(double).any():
            return double.astype(dtype)
        return _finish(double, np.array([float(rest)]), dtype, "rn")


def _sum_error(a: Array, b: Array, total: Array) -> Array:
    """The exact ``a + b`` less its rounded value `total` (Knuth)."""
    part = total - a
    error: Array = (a - (total - part)) + (b - part)
    return error


def _product_error(a: Array, b: Array, product: Array) -> Array:
    """The exact ``a * b`` less its rounded value `product` (Dekker)."""
    a_high, b_high = _upper_half(a), _upper_half(b)
    a_low, b_low = a - a_high, b - b_high
    error: Array = a_low * b_low - (((product - a_high * b_high) - a_low * b_high) - a_high * b_low)
    return error


def _upper_half(value: Array) -> Array:
    scaled = _SPLITTER * value
    half: Array = scaled - (scaled - value)
    return half


def add(a: Array, b: Array, mode: Mode) -> Array:
    """``a + b`` in the format of both, which has 16, 32 or 64 bits."""
    if mode == "rn":
        return np.asarray(a + b)
    wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
    total = _sum(wide_a, wide_b, mode)
    # The sum of two doubles may be beyond the greatest; then the nearest value is infinite.
    beyond = np.isinf(total) & np.isfinite(wide_a) & np.isfinite(wide_b)
    error = np.where(beyond, -total, _sum_error(wide_a, wide_b, total))
    return _finish(total, error, a.dtype, mode)


def _sum(a: Array, b: Array, mode: Mode) -> Array:
    """``a + b`` of doubles, rounded to nearest; in mode "rm", opposite numbers give -0.0 (IEEE 754, 6.3)."""
    total = a + b
    if mode == "rm":
        total = np.where((total == 0) & (np.signbit(a) != np.signbit(b)), -0.0, total)
    return np.asarray(total)


def multiply(a: Array, b: Array, mode: Mode) -> Array:
    """``a * b`` in the format of both."""
    if mode == "rn":
        return np.asarray(a * b)
    if a.dtype == _DOUBLE:
        return fma(a, b, np.where(np.signbit(a) ^ np.signbit(b), -0.0, 0.0), mode)
    return narrow(a.astype(np.float64) * b.astype(np.float64), a.dtype, mode)


def _finish(total: Array, error: Array, dtype: DType, mode: Mode) -> Array:
    """Round an exact value: `total` is the nearest double; `error` has the sign of the rest, NaN standing for 0."""
    if dtype == _DOUBLE:
        return _directed(total, error, mode)
    return narrow(to_odd(total, error), dtype, mode)


def divide(a: Array, b: Array, mode: Mode) -> Array:
    """``a / b`` in the format of both, of 32 or 64 bits."""
    if mode == "rn":
        return np.asarray(a / b)
    if a.dtype == _DOUBLE:
        return _exactly(lambda x, y: x / y, mode, a, b, nearest=a / b)
    # A quotient of singles that is no single is far enough from one for doubles to distinguish them.
    return narrow(a.astype(np.float64) / b.astype(np.float64), a.dtype, mode)


def square_root(a: Array, mode: Mode) -> Array:
    """The square root of floats of 32 or 64 bits."""
    nearest: Array = np.sqrt(a)
    if mode == "rn":
        return nearest
    if a.dtype == _DOUBLE:
        # Only the residue's sign is used, since the residue may be too small for a double.
        side = _exactly(lambda x, root: Fraction(_sign(x - root * root)), "rn", a, nearest, nearest=np.zeros_like(a))
        return _directed(nearest, side, mode)
    return narrow(np.sqrt(a.astype(np.float64)), a.dtype, mode)


def fma(a: Array, b: Array, c: Array, mode: Mode = "rn") -> Array:
    """``a * b + c``, rounded once, in the format of all three."""
    if a.dtype == _DOUBLE:
        return _fma_double(a, b, c, mode)
    wide = c.astype(np.float64)
    product = a.astype(np.float64) * b.astype(np.float64)
    total = _sum(product, wide, mode)
    if a.dtype == _SINGLE and mode == "rn" and not _may_round_twice(total):
        return total.astype(np.float32)
    error = _sum_error(product, wide, total)
    return _finish(total, error, a.dtype, mode)


def _may_round_twice(total: Array) -> bool:
    """Whether any of these doubles may be half way between two singles."""
    half_way = (total.view(np.uint64) & _BEYOND_SINGLE) == _HALF_WAY
    return bool(half_way.any() or ((np.abs(total) < _SMALLEST_NORMAL_SINGLE) & (total != 0)).any())


def _fma_double(a: Array, b: Array, c: Array, mode: Mode) -> Array:
    a, b, c = np.broadcast_arrays(a, b, c)
    product = a * b
    simple = _sum(product, c, mode)
    size = np.abs(product)
    usual = (size < _SPLIT_BELOW) & (size > _SPLIT_ABOVE) & (np.abs(c) < _SPLIT_BELOW)
    usual &= (np.abs(a) < _SPLIT_BELOW) & (np.abs(b) < _SPLIT_BELOW)
    usual &= (np.abs(c) > _SPLIT_ABOVE) | (c == 0)
    result = simple
    if mode == "rn" and usual.any():
        low = _product_error(a, b, product)
        middle = c + low
        middle_error = _sum_error(c, low, middle)
        high = product + middle
        high_error = _sum_error(product, middle, high)
        rest = middle_error + high_error
        rest = to_odd(rest, _sum_error(middle_error, high_error, rest))
        result = np.where(usual, high + rest, simple)
    elif mode != "rn":
        usual = np.zeros(simple.shape, bool)
    # With a factor of zero or a non-finite operand, numpy's result is exact already.
    unusual = ~usual & np.isfinite(a) & np.isfinite(b) & np.isfinite(c) & (a != 0) & (b != 0)
    if unusual.any():
        result = np.array(result)
        result[unusual] = _exactly(
            lambda x, y, z: x * y + z, mode, a[unusual], b[unusual], c[unusual], nearest=simple[unusual]
        )
    return result


def _exactly(formula: Callable[..., Fraction], mode: Mode, *operands: Array, nearest: Array) -> Array:
    """Compute a formula by fractions, element by element, and round the results.

    The result is `nearest` where the formula gives 0 or divides by 0, or an operand is not finite.
    """
    result = np.array(nearest)
    flat = result.reshape(-1)
    columns = [np.broadcast_to(operand, result.shape).reshape(-1).tolist() for operand in operands]
    for position, row in enumerate(zip(*columns, strict=True)):
        if not all(map(np.isfinite, row)):
            continue
        try:
            exact = formula(*map(Fraction, row))
        except ZeroDivisionError:
            continue
        if exact != 0:
            flat[position] = round_fraction(exact, mode)
    return result


def round_fraction(exact: Fraction, mode: Mode) -> float:
    """A fraction that is not zero, rounded to a double in this rounding mode."""
    try:
        nearest = exact.numerator / exact.denominator
    except OverflowError:
        nearest = np.inf if exact > 0 else -np.inf
    if mode == "rn":
        return float(nearest)
    if np.isinf(nearest):
        error = -1.0 if nearest > 0 else 1.0
    else:
        error = float(_sign(exact - Fraction(nearest)))
    signed = np.array([np.copysign(nearest, 1 if exact > 0 else -1)])
    return float(_directed(signed, np.array([error]), mode)[0])


def _sign(number: Fraction) -> int:
    return (number > 0) - (number < 0)


def flush(values: Array) -> Array:
    """The values, with zeros of their sign in place of subnormal numbers."""
    small = np.abs(values) < _SMALLEST_NORMAL[values.dtype]
    if not small.any():
        return values
    flushed: Array = np.where(small, np.copysign(np.array(0, values.dtype), values), values)
    return flushed
