"""Convolutions by columns: windows become columns, which are multiplied by the weight.

A kernel copies the windows of the input into a matrix of columns, one row per tap and channel, and multiplies it by the
weight, piece by piece if it is large ("im2col", K. Chellapilla et al., High Performance Convolutional Neural Networks
for Document Processing, 2006); see `columns`.  A pointwise convolution needs no copy.  C can convolve lines and images
with few filters without columns; see `_in_c` and `vmflow/kernels/native/convolution.c`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, Final, TypeAlias

import numpy as np

from vmflow import dtypes
from vmflow.instructions.blob import Array
from vmflow.kernels.choosing import Call, Function, Kernel, Placed, Problem, builds
from vmflow.kernels.native.images import Convolution
from vmflow.kernels.problems.convolution import Geometry, Wanted

from . import sums
from .columns import Layout, are_kept, memory_for, pieces
from .half import computes_in, in_single

# Groups of at least this many filters are left to BLAS, with columns.
_MANY_FILTERS: Final = 48


def _in_c(sizes: Geometry, dtype: np.dtype[Any]) -> Convolution | None:
    """Return the C functions of a convolution; None if none for its sizes are loaded now, or its groups have too many
    filters, see `_MANY_FILTERS`.
    """
    if sizes.rank > 2 or sizes.pointwise() or not sizes.samples or not sizes.filters or not all(sizes.columns_shape()):
        return None
    if sizes.filters // sizes.groups >= _MANY_FILTERS:
        return None
    # A one-dimensional convolution is a convolution of images of one row.
    ones = (sizes.size, sizes.kernel, sizes.output, sizes.stride, sizes.dilation)
    counts = (sizes.samples, sizes.groups, sizes.channels // sizes.groups, sizes.filters // sizes.groups)
    pairs = [(1, *pair)[-2:] for pair in ones] + [(0, *pair)[-2:] for pair in (sizes.before, sizes.behind)]
    return Convolution.of(dtype, (*counts, *[size for pair in pairs for size in pair]), sizes.rank)


def _forward_placed(native: Convolution) -> Placed:
    """Return the forward pass in C as a `choosing.Placed`."""
    return lambda inputs, outputs, scratch: native.forward.placed((*(*inputs, None)[:3], *outputs))


def _gradients_placed(native: Convolution, wanted: Wanted) -> Placed:
    """Return the wanted gradients in C as a `choosing.Placed`."""

    def placed(inputs: Sequence[Array], outputs: Sequence[Array], scratch: Array | None) -> list[Call] | None:
        gradient, source, weight = inputs
        by_input = native.by_input.placed((gradient, weight, outputs[0])) if wanted[0] else []
        if not wanted[1]:
            return by_input
        by_weight = native.by_weight.placed((source, gradient, *outputs[wanted[0] :], None)[:4])
        return None if by_input is None or by_weight is None else by_input + by_weight

    return placed


# Kernels


def _matrices(weight: Array, sizes: Geometry) -> Array:
    """Return the weight as one matrix for each group: (groups, filters of a group, taps of a group)."""
    return weight.reshape(
        sizes.groups, sizes.filters // sizes.groups, sizes.channels // sizes.groups * prod(sizes.kernel)
    )


def _forward(sizes: Geometry, native: Convolution | None) -> Function:
    def forward(array: Array, weight: Array, *rest: Any) -> Array:
        out = rest[-1]
        bias = rest[0] if len(rest) > 1 else None
        if native is not None:
            return native.convolved(array, weight, bias, out)
        if out is None:
            out = np.empty((sizes.samples, sizes.filters, *sizes.output), array.dtype)
        matrix = _matrices(weight, sizes)
        if sizes.pointwise():
            pixels = prod(sizes.output)
            source = array.reshape(sizes.samples, sizes.groups, sizes.channels // sizes.groups, pixels)
            np.matmul(matrix, source, out.reshape(sizes.samples, sizes.groups, sizes.filters // sizes.groups, pixels))
            return out if bias is None else np.add(out, bias.reshape(-1, *[1] * sizes.rank), out)
        columns = found = None
        for piece, layout in pieces(sizes, array.itemsize):
            columns = layout.columns(array[piece], columns)
            found = np.matmul(matrix, columns, memory_for(found, (*matrix.shape[:2], columns.shape[2]), array))
            out[piece] = layout.from_pixels(_with_bias(found, bias))
        return out

    return forward


def _with_bias(pixels: Array, bias: Array | None) -> Array:
    """Add the bias, unless it is None, to products (groups, filters of a group, output pixels) in place."""
    return pixels if bias is None else np.add(pixels, bias.reshape(*pixels.shape[:2], 1), pixels)


def _turned(sizes: Geometry) -> Geometry | None:
    """Return the convolution of the output's gradient that computes the gradient by the input; None if it costs more.

    None also if the stride is not 1, or a padding would be negative.
    """
    if set(sizes.stride) != {1} or sizes.filters * prod(sizes.size) > 1.5 * sizes.channels * prod(sizes.output):
        return None
    reach = [spread * (taps - 1) for spread, taps in zip(sizes.dilation, sizes.kernel, strict=True)]
    before = tuple([most - given for most, given in zip(reach, sizes.before, strict=True)])
    # So that there are as many windows as the input has pixels.
    behind = tuple(
        [
            size - output + most - first
            for size, output, most, first in zip(sizes.size, sizes.output, reach, before, strict=True)
        ]
    )
    if min(before + behind) < 0:
        return None
    return sizes._replace(
        channels=sizes.filters,
        size=sizes.output,
        filters=sizes.channels,
        output=sizes.size,
        before=before,
        behind=behind,
    )


def _turned_weight(weight: Array, sizes: Geometry) -> Array:
    """Return the weight for the convolution of `_turned`: kernels point-reflected, filters and channels exchanged."""
    parts = weight.reshape(sizes.groups, sizes.filters // sizes.groups, sizes.channels // sizes.groups, *sizes.kernel)
    reflected = parts[(slice(None),) * 3 + (slice(None, None, -1),) * sizes.rank]
    return reflected.swapaxes(1, 2).reshape(sizes.channels, sizes.filters // sizes.groups, *sizes.kernel)


# gradients(gradient, input or None, columns or None, weight or None, out) returns the wanted gradients.  The gradient
# by the input goes into `out`, an array or None, if it fits.
_Gradients: TypeAlias = Callable[..., tuple[Array, ...]]


def _gradients(sizes: Geometry, wanted: Wanted, native: Convolution | None, dtype: np.dtype[Any]) -> _Gradients:
    if native is None:
        return _gradients_by_columns(sizes, wanted, dtype)

    def gradients(
        gradient: Array, array: Any, columns: Any, weight: Any, out: Array | None = None
    ) -> tuple[Array, ...]:
        by_input = (native.input_gradient(gradient, weight, out),) if wanted[0] else ()
        return (*by_input, *native.weight_gradient(array, gradient, wanted[2])) if wanted[1] else by_input

    return gradients


def _gradients_by_columns(sizes: Geometry, wanted: Wanted, dtype: np.dtype[Any]) -> _Gradients:
    """Return the `_Gradients` function for arrays of this dtype where C does not compute all gradients.

    Gradients that need columns are computed together, since each begins by transposing the output's gradient.
    """
    turned = _turned(sizes) if wanted[0] and not sizes.pointwise() else None
    convolve = None if turned is None else _forward(turned, _in_c(turned, dtype))

    def by_pixel(gradient: Array, matrix: Array, out: Array) -> None:
        pixels = prod(sizes.output)
        source = gradient.reshape(sizes.samples, sizes.groups, sizes.filters // sizes.groups, pixels)
        np.matmul(matrix, source, out.reshape(sizes.samples, sizes.groups, sizes.channels // sizes.groups, pixels))

    def by_parameters(gradient: Array, array: Any, columns: Any, matrix: Any, by_input: Any) -> tuple[Array, Array]:
        """Return the gradients by weight, (groups, taps, filters of a group), and bias, (groups, filters of a group),
        zeros if not wanted; write the gradient by the input to `by_input`, unless this is None.
        """
        by_weight = np.zeros(
            (sizes.groups, sizes.channels // sizes.groups * prod(sizes.kernel), sizes.filters // sizes.groups),
            gradient.dtype,
        )
        by_bias = np.zeros((sizes.groups, sizes.filters // sizes.groups), gradient.dtype)
        # Kept columns were made in one piece.
        whole = [(slice(None), Layout(sizes, sizes.samples))]
        taps = steps = None
        for piece, layout in pieces(sizes, gradient.itemsize) if columns is None else whole:
            pixels = layout.pixels(gradient[piece])
            if by_input is not None:
                steps = memory_for(steps, (*matrix.shape[:2], pixels.shape[2]), gradient)
                by_input[piece] = layout.from_columns(np.matmul(matrix, pixels, steps))
            if wanted[1]:
                taps = layout.columns(array[piece], taps) if columns is None else columns
                by_weight += np.matmul(taps, pixels.swapaxes(1, 2))
            if wanted[2]:
                by_bias += sums.of_rows(pixels.reshape(sizes.filters, -1)).reshape(by_bias.shape)
        return by_weight, by_bias

    def gradients(
        gradient: Array, array: Any, columns: Any, weight: Any, out: Array | None = None
    ) -> tuple[Array, ...]:
        found: list[Array] = []
        rest = None
        matrix = _matrices(weight, sizes).swapaxes(1, 2) if wanted[0] else None
        if wanted[0]:
            found.append(memory_for(out, (sizes.samples, sizes.channels, *sizes.size), gradient))
            if sizes.pointwise():
                by_pixel(gradient, matrix, found[0])
            elif convolve is not None:
                convolve(gradient, _turned_weight(weight, sizes), found[0])
            else:
                rest = found[0]
            if rest is None and not (wanted[1] or wanted[2]):
                return tuple(found)
        by_weight, by_bias = by_parameters(gradient, array, columns, matrix, rest)
        if wanted[1]:
            turned = np.ascontiguousarray(by_weight.swapaxes(1, 2))
            found.append(turned.reshape(sizes.filters, sizes.channels // sizes.groups, *sizes.kernel))
        if wanted[2]:
            found.append(by_bias.reshape(sizes.filters))
        return tuple(found)

    return gradients


# Builders.  The details of each problem are a `Geometry`.


@builds("conv1d", "conv2d", "conv3d")
def _convolution(problem: Problem) -> Kernel:
    sizes: Geometry = problem.details
    dtype = problem.inputs[0].dtype
    half = dtypes.is_half(dtype)
    native = _in_c(sizes, computes_in(dtype))
    return Kernel(
        in_single(_forward(sizes, native), half),
        placed=None if half or native is None else _forward_placed(native),
        keeps=native is None and not half and are_kept(sizes, dtype.itemsize),
    )


@builds("conv1d_with_columns", "conv2d_with_columns", "conv3d_with_columns")
def _convolution_with_columns(problem: Problem) -> Function:
    sizes: Geometry = problem.details
    layout = Layout(sizes, sizes.samples)

    def forward(array: Array, weight: Array, *rest: Any) -> tuple[Array, Array]:
        *bias, out = rest
        result = np.empty((sizes.samples, sizes.filters, *sizes.output), array.dtype) if out is None else out[0]
        columns = layout.columns(array, None if out is None else out[1])
        pixels = _with_bias(np.matmul(_matrices(weight, sizes), columns), bias[0] if bias else None)
        result[...] = layout.from_pixels(pixels)
        return result, columns

    return forward


@builds("conv1d_gradient", "conv2d_gradient", "conv3d_gradient")
def _several_gradients(problem: Problem) -> Kernel:
    sizes: Geometry = problem.details
    _, wanted, source, has_columns = problem.attributes
    half, to, compute = dtypes.is_half(source.dtype), source.dtype.numpy, computes_in(source.dtype)
    # If columns were kept, C had no kernel in the forward pass; and without the weight's gradient, C computes the
    # bias's no faster.
    native = None if has_columns or wanted[1:] == (False, True) else _in_c(sizes, compute)
    gradients = _gradients(sizes, wanted, native, compute)

    def kernel(gradient: Array, array: Array, weight: Array, out: Any) -> tuple[Array, ...]:
        if half:
            gradient, array, weight = [value.astype("float32") for value in (gradient, array, weight)]
        # In half precision, `out` does not fit, so that other memory is taken.
        place = out[0] if out is not None and wanted[0] else None
        found = gradients(gradient, *((None, array) if has_columns else (array, None)), weight, place)
        return tuple([array.astype(to, copy=False) for array in found])

    return Kernel(kernel, placed=None if half or native is None else _gradients_placed(native, wanted))


@builds("conv1d_input_gradient", "conv2d_input_gradient", "conv3d_input_gradient")
def _input_gradient(problem: Problem) -> Function:
    gradients = _single_gradient(problem, (True, False, False))
    half = dtypes.is_half(problem.inputs[0].dtype)
    return in_single(lambda array, weight, out: gradients(array, None, None, weight, out)[0], half)


@builds("conv1d_weight_gradient", "conv2d_weight_gradient", "conv3d_weight_gradient")
def _weight_gradient(problem: Problem) -> Function:
    gradients = _single_gradient(problem, (False, True, False))
    half = dtypes.is_half(problem.inputs[0].dtype)
    return in_single(lambda array, gradient, out: gradients(gradient, array, None, None)[0], half)


def _single_gradient(problem: Problem, wanted: Wanted) -> _Gradients:
    compute = computes_in(problem.inputs[0].dtype)
    return _gradients(problem.details, wanted, _in_c(problem.details, compute), compute)
