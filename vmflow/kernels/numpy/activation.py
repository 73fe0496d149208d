"""Activation functions, walked through in tiles."""

from __future__ import annotations

from math import pi, sqrt

import numpy as np

from vmflow.instructions.blob import Array
from vmflow.kernels.numpy.normal import gelu_gradient_of_single, gelu_of_single
from vmflow.kernels.numpy.special import erfc_of_double
from vmflow.kernels.numpy.tiles import in_tiles

from .ufuncs import computes


@computes("sigmoid")
def _sigmoid(array: Array, out: Array | None) -> Array:
    return (_sigmoid_of_double if array.dtype == np.float64 else _sigmoid_of_single)(array, out)


def _sigmoid_step(operands: list[Array], out: Array, scratch: list[Array]) -> None:
    # exp may overflow, to the infinity whose reciprocal is right.  By tanh there would be no infinity, but nothing left
    # of what is below 1e-8 either.
    (x,) = operands
    np.multiply(x, -1, out)  # not negative(), see `arithmetic._in_order`
    np.exp(out, out)
    np.add(out, 1, out)
    np.reciprocal(out, out)


_sigmoid_of_single = in_tiles(_sigmoid_step, 0, single=True)
_sigmoid_of_double = in_tiles(_sigmoid_step, 0, single=False)


@computes("gelu")
def _gelu(array: Array, out: Array | None) -> Array:
    return (_gelu_of_double if array.dtype == np.float64 else gelu_of_single)(array, out)


@computes("gelu_gradient")
def _gelu_gradient(gradient: Array, array: Array, out: Array | None) -> Array:
    if gradient.shape != array.shape:
        gradient, array = np.broadcast_arrays(gradient, array)
    return (_gelu_gradient_of_double if array.dtype == np.float64 else gelu_gradient_of_single)(gradient, array, out)


def _gelu_step(operands: list[Array], out: Array, scratch: list[Array]) -> None:
    (x,) = operands
    (chance,) = scratch
    np.multiply(x, -sqrt(0.5), chance)
    erfc_of_double(chance, chance)
    np.multiply(chance, x, chance)
    np.multiply(chance, 0.5, out)


def _gelu_gradient_step(operands: list[Array], out: Array, scratch: list[Array]) -> None:
    gradient, x = operands
    chance, density = scratch
    np.multiply(x, -sqrt(0.5), chance)
    erfc_of_double(chance, chance)
    np.multiply(chance, 0.5, chance)
    np.multiply(x, -0.5, density)
    np.multiply(density, x, density)
    np.exp(density, density)
    np.multiply(density, x, density)
    np.multiply(density, 1 / sqrt(2 * pi), density)
    np.add(chance, density, chance)
    np.multiply(chance, gradient, out)


_gelu_of_double = in_tiles(_gelu_step, 1, single=False)
_gelu_gradient_of_double = in_tiles(_gelu_gradient_step, 2, single=False)


@computes("silu")
def _silu(array: Array, out: Array | None) -> Array:
    return (_silu_of_double if array.dtype == np.float64 else _silu_of_single)(array, out)


def _silu_step(operands: list[Array], out: Array, scratch: list[Array]) -> None:
    (x,) = operands
    (below,) = scratch
    np.negative(x, below)
    np.exp(below, below)
    np.add(below, 1, below)
    np.divide(x, below, out)


_silu_of_single = in_tiles(_silu_step, 1, single=True)
_silu_of_double = in_tiles(_silu_step, 1, single=False)
