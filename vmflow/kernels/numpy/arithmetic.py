"""Arithmetic, comparisons and rounding, where numpy's functions do not suffice."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from vmflow.instructions.blob import Array
from vmflow.kernels.choosing import Function
from vmflow.kernels.numpy.selection import chosen

from .half import rounded_once
from .ufuncs import comparable, computes, constant, saturated, takes_numbers

takes_numbers(comparable, "eq", "ne", "lt", "le", "gt", "ge")
takes_numbers(saturated, "maximum", "minimum", "clamp_min", "clamp_max")
takes_numbers(lambda value, numpy_dtype: constant(bool(value), numpy_dtype), "logical_and", "logical_or", "logical_xor")


def _places(value: Any, numpy_dtype: np.dtype[Any]) -> Array:
    """Return the number of bits to shift by, as an operand; a negative number shifts all bits out, as in PyTorch."""
    return saturated(value if value >= 0 else np.iinfo(numpy_dtype).max, numpy_dtype)


takes_numbers(_places, "bitwise_left_shift", "bitwise_right_shift")


# Powers and quotients


@computes("pow")
def _power(base: Array, exponent: Array, out: Array | None) -> Array:
    if exponent.dtype.kind == "i" and (exponent < 0).any():
        # numpy raises an error for negative exponents of integers.  Here such powers are 0, as in PyTorch, except those
        # of the bases 1 and -1.
        unit = np.where(base == -1, 1 - 2 * (exponent & 1), base == 1)
        result = np.where(exponent < 0, unit, np.power(base, np.maximum(exponent, 0)))
        return result.astype(base.dtype, copy=False)
    if exponent.dtype.kind in "biuc":
        return np.power(base, exponent, out)
    # Where an exponent of 0.5 is broadcast, numpy takes the square root, which differs from the power for -inf and
    # -0.0.
    roots = exponent == 0.5
    odd = roots & ((base == -math.inf) | (base == 0)) if roots.any() else roots
    exact = np.abs(base) if odd.any() else None
    result = np.power(base, exponent, out)
    return result if exact is None else np.where(odd, exact, result)


def _squared_reciprocal(base: Array, out: Array | None) -> Array:
    # The reciprocal is taken first, since the square of a small number may be denormal, which has fewer digits.
    reciprocal = np.reciprocal(base, out)
    return np.multiply(reciprocal, reciprocal, out)


# By exponent, functions that take less time than numpy's power.
_QUICKLY: Final[dict[complex, Callable[[Array, Array | None], Array]]] = {
    -2: _squared_reciprocal,
    -1: lambda base, out: np.reciprocal(base, out),
    -0.5: lambda base, out: np.reciprocal(np.sqrt(base, out), out),
    0.5: lambda base, out: np.sqrt(base, out),
    2: lambda base, out: np.multiply(base, base, out),
    3: lambda base, out: np.multiply(np.multiply(base, base), base, out),
    4: lambda base, out: np.square(np.square(base), out),
}


@computes("pow_scalar")
@rounded_once
def _scalar_power(base: Array, exponent: Array, out: Array | None) -> Array:
    if exponent.ndim == 0:
        quick = _QUICKLY.get(exponent.item())
        # The functions other than the square are for floating-point bases only: they differ from numpy's powers of
        # complex infinities, and some are wrong for integers.
        if quick is not None and (base.dtype.kind == "f" or exponent == 2):
            return quick(base, out)
    return _power(base, exponent, out)


def _divided(divide: Function) -> Function:
    """Wrap a division to raise ZeroDivisionError if any integer divisor is 0, where numpy's would return 0."""

    def divided(dividend: Array, divisor: Array, out: Array | None) -> Array:
        if divisor.dtype.kind in "iu" and not divisor.all():
            raise ZeroDivisionError("integer division by zero")
        return divide(dividend, divisor, out)

    return divided


def _trunc_divide(dividend: Array, divisor: Array, out: Array | None) -> Array:
    if dividend.dtype.kind in "iu":
        # Integers are not divided in floating point, where large ones would lose digits.
        down = np.floor_divide(dividend, divisor)
        inexact = (dividend < 0) != (divisor < 0)
        inexact &= down * divisor != dividend
        return np.add(down, inexact, out)
    return np.trunc(np.true_divide(dividend, divisor), out)


computes("floor_divide")(_divided(np.floor_divide))
computes("trunc_divide")(_divided(_trunc_divide))
computes("remainder")(_divided(np.remainder))
computes("fmod")(_divided(np.fmod))


# Signs


@computes("sign")
def _sign(array: Array, out: Array | None) -> Array:
    if array.dtype.kind == "b":
        return array.copy()
    # Here the sign of nan is 0; numpy's is nan.
    above = np.greater(array, 0).astype(array.dtype)
    return np.subtract(above, np.less(array, 0).astype(array.dtype), out)


def _in_order(ufunc: Function) -> Function:
    """Wrap a ufunc of one operand so that it never writes to an array with gaps.

    numpy 2.4 computes wrong elements there: `negative` in place where neighbours are 16 bytes apart (64 for elements of
    8), and `signbit` into more than a few bools that are not next to each other.
    """

    def in_order(array: Array, out: Array | None = None) -> Array:
        if out is None or out.flags.c_contiguous:
            return ufunc(array, out)
        out[...] = ufunc(array)
        return out

    return in_order


computes("neg")(_in_order(np.negative))
_signbit_of_floats: Final = _in_order(np.signbit)


@computes("signbit")
def _signbit(array: Array, out: Array | None) -> Array:
    # numpy's signbit would cast integers and bools to floats.
    return _signbit_of_floats(array, out) if array.dtype.kind not in "biu" else np.less(array, 0, out)


@computes("heaviside")
def _heaviside(array: Array, values: Array, out: Array | None) -> Array:
    # numpy's heaviside turns integers into floats, and returns nan for nan.
    return np.where(array == 0, values, (array > 0).astype(values.dtype))


# Rounding, reciprocals of roots


@computes("round")
def _round(array: Array, out: Array | None) -> Array:
    # numpy's rint would turn integers into floats.
    return array.copy() if array.dtype.kind in "iu" else np.rint(array, out)


computes("rsqrt")(_QUICKLY[-0.5])


# The larger and the smaller


def _by_keyword(ufunc: Any) -> Function:
    """Wrap a ufunc of two operands to pass `out` by keyword: numpy deprecates it as maximum's third argument."""
    return lambda first, second, out: ufunc(first, second, out=out)


computes("maximum", "clamp_min")(_by_keyword(np.maximum))
computes("minimum", "clamp_max")(_by_keyword(np.minimum))
computes("fmax")(_by_keyword(np.fmax))
computes("fmin")(_by_keyword(np.fmin))

# From about this many elements on, `clip`, which begins in Python, is faster than a ufunc.
_MANY: Final = 8192

_INFINITY: Final = np.float32(np.inf)


def _limiting(ufunc: Function, least: bool) -> Function:
    """Wrap maximum (`least`) or minimum to use `clip` for many float32 or float64 and a number, where it is faster."""

    def limiting(first: Array, second: Array, out: Array | None) -> Array:
        array, limit = (second, first) if first.ndim < second.ndim else (first, second)
        if limit.ndim or array.size < _MANY or array.dtype.char not in "fd":
            return ufunc(first, second, out=out)
        return np.clip(array, limit, _INFINITY, out) if least else np.clip(array, -_INFINITY, limit, out)

    return limiting


_at_least: Final = _limiting(np.maximum, least=True)
computes("maximum_scalar", "clamp_min_scalar")(_at_least)
computes("minimum_scalar", "clamp_max_scalar")(_limiting(np.minimum, least=False))


@computes("relu")
def _relu(array: Array, out: Array | None) -> Array:
    return _at_least(array, array.dtype.type(0), out)


@computes("relu_gradient")
def _relu_gradient(result: Array, gradient: Array, out: Array | None) -> Array:
    dead = np.less_equal(result, 0)  # false where the result is nan: the gradient passes
    target = np.empty(dead.shape, gradient.dtype) if out is None else out
    return chosen(dead, np.zeros((), gradient.dtype), gradient, target)
