"""Convolutions by im2col: the windows of the input become a matrix, which is multiplied by the weight; see `columns`.

Matrices have the dtype of the operands.  Products have the dtype in which sums are computed: float32 for half
precision.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from vmflow.kernels.choosing import Kernel, Problem, builds
from vmflow.kernels.numpy.half import computes_in
from vmflow.kernels.problems.convolution import Geometry
from vmflow.streams.cuda.arrays import DeviceArray, contiguous_strides
from vmflow.streams.cuda.launching import Launcher

from .arrays import PACKAGE, into_outs
from .columns import column_shape, from_columns, pieces, to_columns
from .pointwise import Pointwise, copy_array, launch_pointwise
from .products import multiply
from .rows import reduce_rows, sums_in
from .sources import VARIABLES
from .walks import contiguous, part_of, transposed


def _matrices(launcher: Launcher, weight: DeviceArray, sizes: Geometry) -> DeviceArray:
    """Return the weight as one matrix for each group: (groups, filters of a group, taps of a group)."""
    return contiguous(launcher, weight, weight.dtype).strided(_matrix_shape(sizes), weight.dtype)


def _matrix_shape(sizes: Geometry) -> tuple[int, int, int]:
    return sizes.groups, sizes.filters // sizes.groups, sizes.channels // sizes.groups * prod(sizes.kernel)


def _columns(launcher: Launcher, array: DeviceArray, sizes: Geometry, out: DeviceArray | None = None) -> DeviceArray:
    """Return the windows of images as (groups, taps of a group, output pixels of all samples): in `out` if it is
    contiguous and has the images' dtype, else in scratch memory.
    """
    groups, taps, _ = sizes.columns_shape()
    samples = array.shape[0]
    if out is None or not out.contiguous or out.dtype != array.dtype:
        out = launcher.scratch((groups, taps, samples * prod(sizes.output)), array.dtype)
    to_columns(launcher, array, sizes, out, contiguous_strides(column_shape(sizes, samples), 1))
    return out


def _pixels(launcher: Launcher, array: DeviceArray, sizes: Geometry) -> DeviceArray:
    """Return the gradient of a convolution's output as (groups, filters of a group, output pixels of all samples)."""
    moved = contiguous(launcher, transposed(array, (1, 0, *range(2, array.ndim))), array.dtype)
    return moved.strided(
        (sizes.groups, sizes.filters // sizes.groups, array.shape[0] * prod(sizes.output)), array.dtype
    )


def _put_pixels(
    launcher: Launcher, pixels: DeviceArray, biases: tuple[DeviceArray, ...], sizes: Geometry, out: DeviceArray
) -> None:
    """Copy products, in the shape of `_pixels`, to the output (samples, filters, ...), and add each filter's bias, if
    there is one.
    """
    shape = (sizes.filters, out.shape[0], *sizes.output)
    _put_images(launcher, transposed(pixels.strided(shape, pixels.dtype), (1, 0, *range(2, len(shape)))), biases, out)


def _put_images(launcher: Launcher, images: DeviceArray, biases: tuple[DeviceArray, ...], out: DeviceArray) -> None:
    """Copy images (samples, filters, ...) to `out`, and add each filter's bias, if there is one."""
    if not biases:
        copy_array(launcher, images, out)
        return
    (bias,) = biases
    rank = out.ndim - 2
    spread = bias.strided(bias.shape + (1,) * rank, bias.dtype, 0, bias.strides + (0,) * rank)
    function = _add(images.dtype.name, bias.dtype.name, out.dtype.name)
    launch_pointwise(launcher, function, (images, spread), (), (out,))


@lru_cache(None)
def _add(first: str, second: str, to: str) -> Pointwise:
    return Pointwise("add", (first, second), (), (f"const {VARIABLES[first]} sum = x0 + x1;",), (("sum", to),))


def _convolve(
    launcher: Launcher, sizes: Geometry, wide: np.dtype[Any], operands: tuple[DeviceArray, ...], out: DeviceArray
) -> None:
    array, weight, *biases = operands
    matrices = _matrices(launcher, weight, sizes)
    if _has_columns(sizes):
        _multiply_images(launcher, matrices, array, tuple(biases), wide, out)
        return
    for piece in pieces(sizes, array.itemsize):
        taps = _columns(launcher, _samples(array, piece), sizes)
        _multiply_columns(launcher, matrices, taps, tuple(biases), sizes, wide, _samples(out, piece))


def _has_columns(sizes: Geometry) -> bool:
    """Return whether each image is already its matrix of columns: the convolution is pointwise, and has one group."""
    return sizes.groups == 1 and sizes.pointwise()


def _multiply_images(
    launcher: Launcher,
    matrices: DeviceArray,
    images: DeviceArray,
    biases: tuple[DeviceArray, ...],
    wide: np.dtype[Any],
    out: DeviceArray,
) -> None:
    """Multiply the only matrix of `matrices` by each image, as a matrix (channels, pixels), and add the bias, if there
    is one.
    """
    _, rows, columns = matrices.shape
    samples, pixels, dtype = images.shape[0], prod(images.shape[2:]), matrices.dtype
    source = contiguous(launcher, images, dtype).strided((samples, columns, pixels), dtype)
    for_each = matrices.strided((samples, rows, columns), dtype, 0, (0, *matrices.strides[1:]))
    fits = out.contiguous and out.dtype == wide and not biases
    found = out if fits else launcher.scratch(out.shape, wide)
    multiply(launcher, for_each, source, found.strided((samples, rows, pixels), wide))
    if not fits:
        _put_images(launcher, found, biases, out)


def _multiply_columns(
    launcher: Launcher,
    matrices: DeviceArray,
    taps: DeviceArray,
    biases: tuple[DeviceArray, ...],
    sizes: Geometry,
    wide: np.dtype[Any],
    out: DeviceArray,
) -> None:
    found = launcher.scratch((*matrices.shape[:2], taps.shape[2]), wide)
    multiply(launcher, matrices, taps, found)
    _put_pixels(launcher, found, biases, sizes, out)


def _samples(array: DeviceArray, piece: slice) -> DeviceArray:
    return part_of(array, 0, piece.start, piece.stop)


@builds("conv1d", "conv2d", "conv3d", package=PACKAGE)
def _build_convolution(problem: Problem) -> Kernel:
    sizes: Geometry = problem.details
    wide = computes_in(problem.inputs[0].dtype)

    def launch(launcher: Launcher, operands: tuple[Any, ...], outs: tuple[DeviceArray, ...]) -> None:
        _convolve(launcher, sizes, wide, operands, outs[0])

    return Kernel(into_outs(launch, problem), casts=True)


@builds("conv1d_with_columns", "conv2d_with_columns", "conv3d_with_columns", package=PACKAGE)
def _build_with_columns(problem: Problem) -> Kernel:
    sizes: Geometry = problem.details
    wide = computes_in(problem.inputs[0].dtype)

    def launch(launcher: Launcher, operands: tuple[Any, ...], outs: tuple[DeviceArray, ...]) -> None:
        array, weight, *biases = operands
        out, kept = outs
        taps = _columns(launcher, array, sizes, kept)
        _multiply_columns(launcher, _matrices(launcher, weight, sizes), taps, tuple(biases), sizes, wide, out)
        if taps is not kept:
            copy_array(launcher, taps, kept)

    return Kernel(into_outs(launch, problem), casts=True)


# Gradients


def _by_input(
    launcher: Launcher,
    sizes: Geometry,
    wide: np.dtype[Any],
    gradient: DeviceArray,
    weight: DeviceArray,
    out: DeviceArray,
) -> None:
    matrices = transposed(_matrices(launcher, weight, sizes), (0, 2, 1))
    if _has_columns(sizes):
        _multiply_images(launcher, matrices, gradient, (), wide, out)
        return
    for piece in pieces(sizes, wide.itemsize):
        pixels = _pixels(launcher, _samples(gradient, piece), sizes)
        taps = launcher.scratch((*matrices.shape[:2], pixels.shape[2]), wide)
        multiply(launcher, matrices, pixels, taps)
        steps = contiguous_strides(column_shape(sizes, piece.stop - piece.start), 1)
        from_columns(launcher, taps, steps, sizes, _samples(out, piece))


def _by_weight(
    launcher: Launcher,
    sizes: Geometry,
    wide: np.dtype[Any],
    gradient: DeviceArray,
    array: DeviceArray,
    out: DeviceArray,
) -> None:
    total = _weight_total(launcher, sizes, wide, out)
    part = total
    for piece in pieces(sizes, array.itemsize):
        if piece.start:
            part = launcher.scratch(total.shape, wide)
        taps = _columns(launcher, _samples(array, piece), sizes)
        _from_taps(launcher, sizes, _samples(gradient, piece), taps, part)
        if piece.start:
            launch_pointwise(launcher, _add(wide.name, wide.name, wide.name), (total, part), (), (total,))
    if not sizes.samples:
        launcher.fill(total, 0)
    _put_weight(launcher, total, out)


def _weight_total(launcher: Launcher, sizes: Geometry, wide: np.dtype[Any], out: DeviceArray) -> DeviceArray:
    """Return contiguous memory for the gradient of the weight, in the shape of `_matrices`: a view of `out`, if its
    dtype and strides allow that.
    """
    if out.contiguous and out.dtype == wide:
        return out.strided(_matrix_shape(sizes), wide)
    return launcher.scratch(_matrix_shape(sizes), wide)


def _put_weight(launcher: Launcher, total: DeviceArray, out: DeviceArray) -> None:
    if total.pointer != out.pointer:
        copy_array(launcher, total.strided(out.shape, total.dtype), out)


def _from_taps(launcher: Launcher, sizes: Geometry, gradient: DeviceArray, taps: DeviceArray, out: DeviceArray) -> None:
    """Compute the gradient of the weight's matrices: the gradient of the output times the transposed columns."""
    multiply(launcher, _pixels(launcher, gradient, sizes), transposed(taps, (0, 2, 1)), out)


@builds("conv1d_gradient", "conv2d_gradient", "conv3d_gradient", package=PACKAGE)
def _build_gradients(problem: Problem) -> Kernel:
    """Build the kernel of a convolution's gradients.  Attributes: among others, the wanted gradients (by input, weight,
    bias), and whether the second operand holds the input's columns.
    """
    sizes: Geometry = problem.details
    _, (by_input, by_weight, by_bias), source, has_columns = problem.attributes
    wide = computes_in(source.dtype)

    def launch(launcher: Launcher, operands: tuple[Any, ...], outs: tuple[DeviceArray, ...]) -> None:
        gradient, array, weight = operands
        wanted = iter(outs)
        if by_input:
            _by_input(launcher, sizes, wide, gradient, weight, next(wanted))
        if by_weight and has_columns:
            out = next(wanted)
            total = _weight_total(launcher, sizes, wide, out)
            _from_taps(launcher, sizes, gradient, contiguous(launcher, array, gradient.dtype), total)
            _put_weight(launcher, total, out)
        elif by_weight:
            _by_weight(launcher, sizes, wide, gradient, array, next(wanted))
        if by_bias:
            every_pixel = (0, *range(2, gradient.ndim))
            reduce_rows(launcher, sums_in(wide), gradient, every_pixel, next(wanted))

    return Kernel(into_outs(launch, problem), casts=True)


@builds("conv1d_input_gradient", "conv2d_input_gradient", "conv3d_input_gradient", package=PACKAGE)
def _build_input_gradient(problem: Problem) -> Kernel:
    sizes: Geometry = problem.details
    wide = computes_in(problem.inputs[0].dtype)

    def launch(launcher: Launcher, operands: tuple[Any, ...], outs: tuple[DeviceArray, ...]) -> None:
        gradient, weight = operands
        _by_input(launcher, sizes, wide, gradient, weight, outs[0])

    return Kernel(into_outs(launch, problem), casts=True)


@builds("conv1d_weight_gradient", "conv2d_weight_gradient", "conv3d_weight_gradient", package=PACKAGE)
def _build_weight_gradient(problem: Problem) -> Kernel:
    sizes: Geometry = problem.details
    wide = computes_in(problem.inputs[0].dtype)

    def launch(launcher: Launcher, operands: tuple[Any, ...], outs: tuple[DeviceArray, ...]) -> None:
        array, gradient = operands
        _by_weight(launcher, sizes, wide, gradient, array, outs[0])

    return Kernel(into_outs(launch, problem), casts=True)
