"""Activation functions and the error function, computed in tiles.

numpy has no error function, nor functions that build on it.  In float32 they are computed by the same few polynomials
for every element, without branches, since numpy is slow at branches.  The coefficients are minimax fits: least squares
in Chebyshev polynomials, reweighted until the errors are level (C. L. Lawson's iteration), in float64, then rounded.
"""

from __future__ import annotations

from math import pi, sqrt
from typing import Final

import numpy as np

from vmflow.instructions.blob import Array

from .special import erf_of_double, erfc_of_double
from .tiles import TILE, by_precision, constants, in_tiles, polynomial
from .ufuncs import computes

# Logistic functions


def _sigmoid_step(x: Array, out: Array) -> None:
    np.multiply(x, -1, out)
    # exp may overflow to infinity, whose reciprocal is right.  tanh would not overflow, but would lose small results.
    np.exp(out, out)
    np.add(out, 1, out)
    np.reciprocal(out, out)


def _silu_step(x: Array, out: Array, below: Array) -> None:
    np.negative(x, below)
    np.exp(below, below)
    np.add(below, 1, below)
    np.divide(x, below, out)


computes("sigmoid")(by_precision(in_tiles(_sigmoid_step, 0, single=True), in_tiles(_sigmoid_step, 0, single=False)))
computes("silu")(by_precision(in_tiles(_silu_step, 1, single=True), in_tiles(_silu_step, 1, single=False)))


# The error function and functions that build on it, in float32

# For |x| up to _BORDER, erf(x) / x - 1 is a polynomial in x * x; beyond, erfc(|x|) is the -8th power of a polynomial in
# |x| - _BORDER.
_BORDER: Final = np.float32(1.0940218)
_NEAR: Final = constants(
    (0.128379166, -0.376126021, 0.112833127, -0.0268422663, 0.00516630197, -0.000781729934, 7.22230907e-05), np.float32
)
_BEYOND: Final = constants(
    (1.30102396, 0.455127895, 0.218519896, 0.064245142, 0.0167339444, 0.00564338034, -0.000130182932, 0.000607183902),
    np.float32,
)
# A polynomial in |x| whose -8th power is twice the normal distribution's tail, 2 P(X > |x|).
TAIL: Final = constants(
    (
        1.0,
        0.0997378379,
        0.0447356589,
        0.00878046267,
        0.000651116658,
        0.000429718901,
        -8.02558643e-05,
        4.01382604e-05,
        -6.69397014e-06,
        6.65116261e-07,
    ),
    np.float32,
)
_HALF: Final = np.array(0.5, np.float32)
_MINUS_HALF: Final = np.array(-0.5, np.float32)
_ROOT_OF_DENSITY: Final = np.array(1 / sqrt(2 * pi), np.float32)
_SIGN: Final = np.array(-(1 << 31), np.int32)
# An array, since the minimum of two arrays is several times as quick as that of an array and a number.
_BORDERS: Final = np.full(TILE // 4, _BORDER, np.float32)
_ZEROS: Final = np.zeros(TILE // 4, np.float32)
# In products with the tail or the density, |x| is limited to 1e5, where both are 0; infinity times 0 would be nan.
_FAR: Final = 1e5
_FARTHEST: Final = np.full(TILE // 4, _FAR, np.float32)


def _minus_eighth_power(x: Array) -> None:
    for _ in range(3):
        np.square(x, x)
    np.reciprocal(x, x)


def _erf_step(x: Array, out: Array, near: Array, distance: Array, square: Array, power: Array) -> None:
    np.abs(x, distance)
    np.minimum(distance, _BORDERS[: x.size], out=near)
    np.subtract(distance, near, distance)
    polynomial(distance, _BEYOND, power)
    _minus_eighth_power(power)
    np.subtract(_ERFC_AT_BORDER, power, power)
    np.square(near, square)
    polynomial(square, _NEAR, distance)
    np.multiply(distance, near, distance)
    np.add(distance, near, distance)
    np.add(distance, power, distance)
    _copy_sign(x, distance, square, out)


def _copy_sign(x: Array, size: Array, scratch: Array, out: Array) -> None:
    """Compute ``numpy.copysign(size, x)`` of float32 numbers, `size` not negative, in less time than numpy."""
    bits = scratch.view(np.int32)
    np.bitwise_and(x.view(np.int32), _SIGN, bits)
    np.bitwise_or(size.view(np.int32), bits, out.view(np.int32))


# erfc(_BORDER) as `_erf_step` computes it, so that the difference of both is exactly 0 where |x| is smaller.
_ERFC_AT_BORDER: Final = np.array(_BEYOND[0])
_minus_eighth_power(_ERFC_AT_BORDER)


def _gelu_step_of_single(x: Array, out: Array, size: Array, power: Array) -> None:
    """Compute gelu, ``max(x, 0) - |x| P(X > |x|)``, in which nothing cancels where x is negative."""
    np.abs(x, size)
    np.minimum(size, _FARTHEST[: x.size], out=size)
    polynomial(size, TAIL, power)
    _minus_eighth_power(power)
    np.multiply(power, size, power)
    np.multiply(power, _HALF, power)
    np.maximum(x, _ZEROS[: x.size], out=size)
    np.subtract(size, power, out)


def _gelu_gradient_step_of_single(
    gradient: Array, x: Array, out: Array, size: Array, power: Array, density: Array
) -> None:
    np.square(x, density)
    np.multiply(density, _MINUS_HALF, density)
    np.exp(density, density)
    np.multiply(density, _ROOT_OF_DENSITY, density)
    np.abs(x, size)
    np.minimum(size, _FARTHEST[: x.size], out=size)
    np.multiply(density, size, density)
    polynomial(size, TAIL, power)
    _minus_eighth_power(power)
    # gelu'(x) - 1/2 is odd, and equals (1 - tail) / 2 + x * density for x > 0.
    np.multiply(power, _HALF, power)
    np.subtract(_HALF, power, power)
    np.add(power, density, power)
    _copy_sign(x, power, size, power)
    np.add(power, _HALF, power)
    np.multiply(power, gradient, out)


# The same in float64


def _gelu_step(x: Array, out: Array, chance: Array) -> None:
    np.multiply(x, -sqrt(0.5), chance)
    erfc_of_double(chance, chance)
    np.maximum(x, -_FAR, out=out)
    np.multiply(chance, out, chance)
    np.multiply(chance, 0.5, out)


def _gelu_gradient_step(gradient: Array, x: Array, out: Array, chance: Array, density: Array) -> None:
    np.clip(x, -_FAR, _FAR, out=chance)
    np.multiply(chance, -0.5, density)
    np.multiply(density, chance, density)
    np.exp(density, density)
    np.multiply(density, chance, density)
    np.multiply(density, 1 / sqrt(2 * pi), density)
    np.multiply(x, -sqrt(0.5), chance)
    erfc_of_double(chance, chance)
    np.multiply(chance, 0.5, chance)
    np.add(chance, density, chance)
    np.multiply(chance, gradient, out)


erf_of_single = in_tiles(_erf_step, 4, single=True)
computes("erf")(by_precision(erf_of_single, erf_of_double))
computes("gelu")(by_precision(in_tiles(_gelu_step_of_single, 2, single=True), in_tiles(_gelu_step, 1, single=False)))
computes("gelu_gradient")(
    by_precision(
        in_tiles(_gelu_gradient_step_of_single, 3, single=True), in_tiles(_gelu_gradient_step, 2, single=False)
    )
)
