"""Activation functions, walked through in tiles."""

from __future__ import annotations

from math import pi, sqrt

import numpy as np

from vmflow.instructions.blob import Array
from vmflow.kernels.numpy.normal import gelu_gradient_of_single, gelu_of_single
from vmflow.kernels.numpy.special import erfc_of_double
from vmflow.kernels.numpy.tiles import by_precision, in_tiles

from .ufuncs import computes


def _sigmoid_step(x: Array, out: Array) -> None:
    # exp may overflow, to the infinity whose reciprocal is right.  By tanh there would be no infinity, but nothing left
    # of what is below 1e-8 either.
    np.multiply(x, -1, out)  # not negative(), see `arithmetic._in_order`
    np.exp(out, out)
    np.add(out, 1, out)
    np.reciprocal(out, out)


computes("sigmoid")(by_precision(in_tiles(_sigmoid_step, 0, single=True), in_tiles(_sigmoid_step, 0, single=False)))


def _gelu_step(x: Array, out: Array, chance: Array) -> None:
    np.multiply(x, -sqrt(0.5), chance)
    erfc_of_double(chance, chance)
    np.multiply(chance, x, chance)
    np.multiply(chance, 0.5, out)


def _gelu_gradient_step(gradient: Array, x: Array, out: Array, chance: Array, density: Array) -> None:
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


computes("gelu")(by_precision(gelu_of_single, in_tiles(_gelu_step, 1, single=False)))
computes("gelu_gradient")(by_precision(gelu_gradient_of_single, in_tiles(_gelu_gradient_step, 2, single=False)))


def _silu_step(x: Array, out: Array, below: Array) -> None:
    np.negative(x, below)
    np.exp(below, below)
    np.add(below, 1, below)
    np.divide(x, below, out)


computes("silu")(by_precision(in_tiles(_silu_step, 1, single=True), in_tiles(_silu_step, 1, single=False)))
