"""Convolutions by columns: the windows of the input as a matrix, which is multiplied once; see `columns`.

Half precision is computed in float32.
"""

from __future__ import annotations

from math import prod
from typing import Any

from vmflow.kernels.choosing import Problem
from vmflow.kernels.numpy.half import computes_in
from vmflow.kernels.problems.convolution import Geometry

from .arrays import by_arrays
from .columns import columns, from_columns, from_pixels, pieces, pixels


def _matrices(weight: Any, it: Geometry) -> Any:
    """The weight as one matrix for each group: filters, of which there may be none, by taps."""
    return weight.reshape(it.groups, it.filters // it.groups, it.channels // it.groups * prod(it.kernel))


def _multiplied(xp: Any, matrices: Any, taps: Any, biases: list[Any], it: Geometry, out: Any) -> None:
    """Put the products of filters and columns, with the bias added, into (samples, filters, ...)."""
    found = xp.matmul(matrices, taps)
    for bias in biases:
        xp.add(found, bias.astype(found.dtype, copy=False).reshape(*found.shape[:2], 1), out=found)
    xp.copyto(out, from_pixels(found, it, len(out)), casting="unsafe")


@by_arrays("conv1d", "conv2d", "conv3d")
def _convolution(xp: Any, problem: Problem, array: Any, weight: Any, *rest: Any) -> None:
    *biases, out = rest
    it: Geometry = problem.details
    wide = computes_in(problem.inputs[0].dtype)
    matrices = _matrices(weight.astype(wide, copy=False), it)
    for piece in pieces(it, wide.itemsize):
        taps = columns(xp, array[piece].astype(wide, copy=False), it)
        _multiplied(xp, matrices, taps, biases, it, out[piece])


@by_arrays("conv1d_with_columns", "conv2d_with_columns", "conv3d_with_columns")
def _convolution_with_columns(xp: Any, problem: Problem, array: Any, weight: Any, *rest: Any) -> None:
    *biases, out, kept = rest
    it: Geometry = problem.details
    taps = columns(xp, array, it)
    _multiplied(xp, _matrices(weight, it), taps, biases, it, out)
    xp.copyto(kept, taps)


# Gradients


def _by_input(xp: Any, gradient: Any, weight: Any, it: Geometry, out: Any) -> None:
    matrices = _matrices(weight, it).swapaxes(1, 2)
    for piece in pieces(it, weight.itemsize):
        part = gradient[piece]
        taps = xp.matmul(matrices, pixels(part, it))
        xp.copyto(out[piece], from_columns(xp, taps, it, len(part)), casting="unsafe")


def _by_weight(xp: Any, gradient: Any, array: Any, it: Geometry, out: Any) -> None:
    total = xp.zeros(_matrices(out, it).shape, gradient.dtype)
    for piece in pieces(it, gradient.itemsize):
        xp.add(total, _from_taps(xp, gradient[piece], columns(xp, array[piece], it), it), out=total)
    xp.copyto(out, total.reshape(out.shape), casting="unsafe")


def _from_taps(xp: Any, gradient: Any, taps: Any, it: Geometry) -> Any:
    """The gradient by the weight's matrices, from the gradient and the columns of some samples."""
    return xp.matmul(pixels(gradient, it), taps.swapaxes(1, 2))


@by_arrays("conv1d_gradient", "conv2d_gradient", "conv3d_gradient")
def _gradients(xp: Any, problem: Problem, gradient: Any, array: Any, weight: Any, *outs: Any) -> None:
    """Attributes: among others which of the gradients are wanted, and whether `array` is the columns of the input."""
    it: Geometry = problem.details
    _, (by_input, by_weight, by_bias), source, has_columns = problem.attributes
    wide = computes_in(source.dtype)
    gradient, array, weight = [each.astype(wide, copy=False) for each in (gradient, array, weight)]
    wanted = iter(outs)
    if by_input:
        _by_input(xp, gradient, weight, it, next(wanted))
    if by_weight and has_columns:
        out = next(wanted)
        xp.copyto(out, _from_taps(xp, gradient, array, it).reshape(out.shape), casting="unsafe")
    elif by_weight:
        _by_weight(xp, gradient, array, it, next(wanted))
    if by_bias:
        every_pixel = (0, *range(2, gradient.ndim))
        xp.copyto(next(wanted), xp.sum(gradient, axis=every_pixel), casting="unsafe")


@by_arrays("conv1d_input_gradient", "conv2d_input_gradient", "conv3d_input_gradient")
def _input_gradient(xp: Any, problem: Problem, gradient: Any, weight: Any, out: Any) -> None:
    wide = computes_in(problem.inputs[0].dtype)
    _by_input(xp, gradient.astype(wide, copy=False), weight.astype(wide, copy=False), problem.details, out)


@by_arrays("conv1d_weight_gradient", "conv2d_weight_gradient", "conv3d_weight_gradient")
def _weight_gradient(xp: Any, problem: Problem, array: Any, gradient: Any, out: Any) -> None:
    wide = computes_in(problem.inputs[0].dtype)
    _by_weight(xp, gradient.astype(wide, copy=False), array.astype(wide, copy=False), problem.details, out)
