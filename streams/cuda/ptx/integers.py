"""Arithmetic of integers and bits, as functions of arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from .types import SIGNED, UNSIGNED, Array, DType

Function = Callable[..., Any]


def wide_of(dtype: DType) -> DType:
    """The dtype of integers of twice the size, up to 64 bits, and the same signedness."""
    return (SIGNED if dtype.kind == "i" else UNSIGNED)[2 * dtype.itemsize]


def multiply_wide(a: Array, b: Array) -> Array:
    """The whole product of integers of up to 32 bits, of twice the size."""
    wide = wide_of(a.dtype)
    return np.asarray(a.astype(wide) * b.astype(wide))


def multiply_high(a: Array, b: Array) -> Array:
    """The upper half of the product."""
    if a.dtype.itemsize < 8:
        return (multiply_wide(a, b) >> (8 * a.dtype.itemsize)).astype(a.dtype)
    high = _high_of_64(a.view(np.uint64), b.view(np.uint64))
    if a.dtype.kind == "i":
        zero = np.uint64(0)
        high = high - np.where(a < 0, b.view(np.uint64), zero) - np.where(b < 0, a.view(np.uint64), zero)
    return high.view(a.dtype)


def _high_of_64(a: Array, b: Array) -> Array:
    half, mask = np.uint64(32), np.uint64(0xFFFFFFFF)
    a_low, a_high, b_low, b_high = a & mask, a >> half, b & mask, b >> half
    cross = a_high * b_low + (a_low * b_low >> half)
    other = a_low * b_high + (cross & mask)
    return np.asarray(a_high * b_high + (cross >> half) + (other >> half))


def divide(a: Array, b: Array) -> Array:
    """The quotient, rounded toward zero; all bits are ones where `b` is zero."""
    quotient = np.floor_divide(a, b)
    if a.dtype.kind == "i":
        inexact = (quotient * b != a) & ((a < 0) != (b < 0)) & (b != 0)
        quotient = quotient + inexact.astype(a.dtype)
    zero = b == 0
    return np.where(zero, ~a.dtype.type(0), quotient) if zero.any() else quotient


def remainder(a: Array, b: Array) -> Array:
    """The remainder of a division, with the sign of `a`; `a` where `b` is zero."""
    rest = np.fmod(a, b)
    zero = b == 0
    return np.where(zero, a, rest) if zero.any() else rest


def add_saturated(a: Array, b: Array) -> Array:
    """``a + b`` of integers of up to 32 bits, limited to the range of their type."""
    return _clamped(a.astype(np.int64) + b.astype(np.int64), a.dtype)


def subtract_saturated(a: Array, b: Array) -> Array:
    """``a - b`` of integers of up to 32 bits, limited to the range of their type."""
    return _clamped(a.astype(np.int64) - b.astype(np.int64), a.dtype)


def _clamped(values: Array, dtype: DType) -> Array:
    bounds = np.iinfo(dtype)
    return np.asarray(np.clip(values, bounds.min, bounds.max)).astype(dtype)


def sum_of_differences(a: Array, b: Array, c: Array) -> Array:
    """``c + |a - b|``."""
    return np.asarray(c + np.where(a > b, a - b, b - a))


def multiply_low_of_24_bits(a: Array, b: Array) -> Array:
    """The low 32 of the 48 bits of the product of numbers of 24 bits."""
    return np.asarray(_low_24_bits(a) * _low_24_bits(b))


def multiply_high_of_24_bits(a: Array, b: Array) -> Array:
    """The upper 32 of the 48 bits of the product of numbers of 24 bits."""
    return (multiply_wide(_low_24_bits(a), _low_24_bits(b)) >> 16).astype(a.dtype)


def _low_24_bits(a: Array) -> Array:
    """The low 24 bits of a factor, sign-extended if signed."""
    if a.dtype.kind == "i":
        return np.asarray((a << 8) >> 8)
    return np.asarray(a & a.dtype.type(0xFFFFFF))


# Bits


def leading_zeros(a: Array) -> Array:
    """The number of 0 bits above the highest 1 bit of unsigned integers, for 0 the size in bits; as 32-bit integers."""
    bits = 8 * a.dtype.itemsize
    if bits == 64:
        high = leading_zeros((a >> np.uint64(32)).astype(np.uint32))
        low = leading_zeros(a.astype(np.uint32))
        return np.where(high == 32, high + low, high)
    return (bits - np.frexp(a.astype(np.float64))[1]).astype(np.uint32)


def count_ones(a: Array) -> Array:
    """The number of 1 bits of unsigned integers; as 32-bit integers."""
    return np.bitwise_count(a).astype(np.uint32)


def find_highest(a: Array) -> Array:
    """The position of the highest bit that differs from the sign (if unsigned, from 0); all bits ones if none does."""
    unsigned = a.view(UNSIGNED[a.dtype.itemsize])
    if a.dtype.kind == "i":
        unsigned = np.where(a < 0, ~unsigned, unsigned)
    return np.asarray(np.uint32(8 * a.dtype.itemsize - 1) - leading_zeros(unsigned))


def shift_to_highest(a: Array) -> Array:
    """The shift to the left that moves the bit of `find_highest` to the front; all bits ones if there is none."""
    highest = find_highest(a)
    return np.where(highest == np.uint32(0xFFFFFFFF), highest, np.uint32(8 * a.dtype.itemsize - 1) - highest)


_REVERSED: Final = np.array([int(f"{number:08b}"[::-1], 2) for number in range(256)], np.uint8)


def reverse_bits(a: Array) -> Array:
    """The bits in the opposite order."""
    swapped = np.ascontiguousarray(a).byteswap()
    return _REVERSED[swapped.view(np.uint8)].view(a.dtype)


def shift_left(a: Array, amount: Array) -> Array:
    """``a << amount``, which is zero if the amount is at least the size in bits."""
    return np.asarray(np.left_shift(a, _limited(amount, a.dtype)))


def shift_right(a: Array, amount: Array) -> Array:
    """``a >> amount``, which is zero or the sign if the amount is at least the size in bits."""
    return np.asarray(np.right_shift(a, _limited(amount, a.dtype)))


def _limited(amount: Array, dtype: DType) -> Array:
    """Return the amounts of a shift as integers of `dtype`, where 64 stands for all greater ones."""
    # A cast alone would make great amounts negative, or small if `dtype` has 16 bits.
    return np.asarray(np.minimum(amount, np.uint32(64))).astype(dtype)


def funnel_shift(to_left: bool, wraps: bool) -> Function:
    """``shf``: the upper half of two words shifted left as one, or the lower half shifted right, by up to 32 bits.

    Amounts from 32 on count as 32, or modulo 32 if `wraps`.
    """

    def shift(low: Array, high: Array, amount: Array) -> Array:
        count = (amount & np.uint32(31) if wraps else np.minimum(amount, np.uint32(32))).astype(np.uint64)
        whole = (high.astype(np.uint64) << np.uint64(32)) | low
        moved = (whole << count) >> np.uint64(32) if to_left else whole >> count
        return np.asarray(moved).astype(np.uint32)

    return shift


def extract_field(a: Array, start: Array, length: Array) -> Array:
    """``bfe``: `length` bits from `start` on, of which the highest is extended where `a` is signed."""
    bits = np.int64(8 * a.dtype.itemsize)
    unsigned = a.view(UNSIGNED[a.dtype.itemsize])
    start, length = (start & np.uint32(255)).astype(np.int64), (length & np.uint32(255)).astype(np.int64)
    kept = np.minimum(length, np.maximum(bits - start, 0))
    field = shift_right(unsigned, start.astype(np.uint32)) & _ones(kept, unsigned.dtype)
    if a.dtype.kind == "u":
        return field
    last = np.minimum(start + length - 1, bits - 1)
    sign = (shift_right(unsigned, np.maximum(last, 0).astype(np.uint32)) & unsigned.dtype.type(1)).astype(bool)
    extended = field | np.where(sign & (length > 0), ~_ones(kept, unsigned.dtype), unsigned.dtype.type(0))
    return extended.view(a.dtype)


def insert_field(value: Array, into: Array, start: Array, length: Array) -> Array:
    """``bfi``: `into` with the `length` low bits of `value` from `start` on."""
    start, length = start & np.uint32(255), (length & np.uint32(255)).astype(np.int64)
    mask = shift_left(_ones(length, value.dtype), start)
    return np.asarray((into & ~mask) | (shift_left(value, start) & mask))


def _ones(count: Array, dtype: DType) -> Array:
    """Return integers whose lowest `count` bits are ones."""
    one = np.ones(1, dtype)
    return np.where(count >= 8 * dtype.itemsize, ~np.zeros(1, dtype), shift_left(one, count) - one)


def permute_bytes(low: Array, high: Array, selector: Array) -> Array:
    """``prmt``: four of the eight bytes, each as it is or its sign in all eight bits."""
    whole = (high.astype(np.uint64) << np.uint64(32)) | low
    result = np.zeros(1, np.uint32)
    for position in range(4):
        choice = (selector >> np.uint32(4 * position)) & np.uint32(15)
        byte = (whole >> ((choice & np.uint32(7)) * np.uint32(8)).astype(np.uint64)).astype(np.uint8)
        sign = np.where(byte >= 128, np.uint32(255), np.uint32(0))
        result = result | np.where(choice >= 8, sign, byte.astype(np.uint32)) << np.uint32(8 * position)
    return result


def logic_of_three(table: int) -> Function:
    """``lop3``: the function of three bits whose values are the bits of a table."""

    def combine(a: Array, b: Array, c: Array) -> Array:
        result = np.zeros(1, np.uint32)
        for number in range(8):
            if table >> number & 1:
                term = (a if number & 4 else ~a) & (b if number & 2 else ~b) & (c if number & 1 else ~c)
                result = result | term
        return result

    return combine


def dot_of_bytes(a_signed: bool, b_signed: bool) -> Function:
    """``dp4a``: the sum of four products of bytes, and of `c`."""

    def dot(a: Array, b: Array, c: Array) -> Array:
        total = c.astype(np.int64)
        for position in range(4):
            total = total + _byte(a, position, a_signed) * _byte(b, position, b_signed)
        return total.astype(np.uint64).astype(np.uint32)

    return dot


def _byte(values: Array, position: int, signed: bool) -> Array:
    byte = (values >> np.uint32(8 * position)).astype(np.uint8)
    return (byte.view(np.int8) if signed else byte).astype(np.int64)
