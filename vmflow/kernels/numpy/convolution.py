"""How convolutions are computed: columns, products, and back.

A kernel copies the windows of the input into a matrix of columns, one row per tap and channel, and multiplies once
("im2col", K. Chellapilla et al., High Performance Convolutional Neural Networks for Document Processing, 2006).  The
copy costs as much as the product when its innermost runs are short.  Hence two layouts: small images with many samples
are copied with the batch innermost, large images with their rows innermost.  Where there is a C compiler, float32 goes
another way, without columns, see `vmflow/kernels/native/convolution.c`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import product
from math import prod
from typing import Any, Final

import numpy as np

from vmflow import dtypes
from vmflow.instructions.blob import Array
from vmflow.kernels.choosing import Call, Function, Kernel, Placed, Problem, builds
from vmflow.kernels.native.images import Convolution
from vmflow.kernels.problems.convolution import Geometry, Sizes, Wanted

from . import sums
from .half import in_single

# Columns beyond this many bytes are made and multiplied piece by piece.  A larger buffer does not stay in the cache,
# and is given fresh pages each time: 32 x 64 x 32 x 32 with 64 3 x 3 filters took 62 ms with one buffer of 75 MB and 47
# with four of 18 MB.
COLUMN_BYTES: Final = 8 << 20

# From which images on the rows are long enough to be copied one by one, and below which batch there is nothing to gain.
_LONG_ROW: Final = 32
_SMALL_BATCH: Final = 8


@lru_cache(1024)
def _in_c(it: Geometry) -> Convolution | None:
    """The convolution in C; None if it is not written there, or a product does it as well."""
    if it.rank > 2 or it.pointwise() or not it.samples or not it.filters or not all(it.columns_shape()):
        return None
    # A line is an image of one row.
    ones = (it.size, it.kernel, it.output, it.stride, it.dilation)
    counts = (it.samples, it.groups, it.channels // it.groups, it.filters // it.groups)
    pairs = [(1, *pair)[-2:] for pair in ones] + [(0, *pair)[-2:] for pair in (it.before, it.behind)]
    return Convolution((*counts, *[size for pair in pairs for size in pair]), it.rank)


def _forward_placed(it: Geometry) -> Placed:
    """See `vmflow.kernels.choosing.Placed`."""
    native = _in_c(it)

    def placed(inputs: Sequence[Array], outputs: Sequence[Array], scratch: Array | None) -> list[Call] | None:
        given = (*inputs, None)[:3]
        return None if native is None else native.calls(("convolution", (*given, *outputs)))

    return placed


def _gradients_placed(it: Geometry, wanted: Wanted) -> Placed:
    """The same of the gradients."""
    native = _in_c(it)

    def placed(inputs: Sequence[Array], outputs: Sequence[Array], scratch: Array | None) -> list[Call] | None:
        gradient, source, weight = inputs
        # As `_gradients`.
        if native is None or wanted[1:] == (False, True):
            return None
        calls: list[tuple[str, tuple[Array | None, ...]]] = []
        if wanted[0]:
            calls.append(("convolution_input_gradient", (gradient, weight, outputs[0])))
        if wanted[1]:
            calls.append(("convolution_weight_gradient", (source, gradient, *outputs[wanted[0] :], None)[:4]))
        return native.calls(*calls)

    return placed


# Columns and back


class Layout:
    """Where the batch stands while columns are made, and how to get there and back.

    Arrays "inside" have the channels first; then come the samples and the image, or the image and the samples.
    """

    def __init__(self, geometry: Geometry, samples: int) -> None:
        self.geometry = geometry
        self.samples = samples
        self.batch_last = geometry.output[-1] < _LONG_ROW and samples >= _SMALL_BATCH
        spatial = tuple(range(2, geometry.rank + 2))
        self.to_inside = (1, *spatial, 0) if self.batch_last else (1, 0, *spatial)
        back = tuple([axis - 1 for axis in spatial])
        self.to_outside = (geometry.rank + 1, 0, *back) if self.batch_last else (1, 0, *spatial)

    def inside(self, channels: int, size: Sizes) -> tuple[int, ...]:
        """The shape of images inside."""
        return (channels, *size, self.samples) if self.batch_last else (channels, self.samples, *size)

    def image(self, parts: Iterable[slice]) -> tuple[slice, ...]:
        """An index of an array inside that cuts the image."""
        every = slice(None)
        return (every, *parts) if self.batch_last else (every, every, *parts)

    def interior(self) -> tuple[slice, ...]:
        """Where, in the padded images inside, the input is."""
        it = self.geometry
        return self.image([slice(before, before + size) for before, size in zip(it.before, it.size, strict=True)])

    def padded_shape(self) -> tuple[int, ...]:
        """The shape of padded images inside."""
        it = self.geometry
        return self.inside(it.channels, tuple([sum(each) for each in zip(it.before, it.size, it.behind, strict=True)]))

    def padded(self, array: Array) -> Array:
        """The input inside, with its padding."""
        moved = array.transpose(self.to_inside)
        if not any(self.geometry.before + self.geometry.behind):
            return np.ascontiguousarray(moved) if self.batch_last else moved
        result = np.zeros(self.padded_shape(), array.dtype)
        result[self.interior()] = moved
        return result

    def columns(self, array: Array, room: Array | None = None) -> Array:
        """The input's windows: (groups, taps of a group, output pixels), in `room` if it is of that shape."""
        it = self.geometry
        source = self.padded(array)
        channel, *rest = source.strides
        sample = rest.pop(-1 if self.batch_last else 0)
        steps = [length * step for length, step in zip(rest, it.stride, strict=True)]
        windows = np.lib.stride_tricks.as_strided(
            source,
            (it.channels, *it.kernel, *self.inside(it.channels, it.output)[1:]),
            (
                channel,
                *[length * step for length, step in zip(rest, it.dilation, strict=True)],
                *((*steps, sample) if self.batch_last else (sample, *steps)),
            ),
        )
        result = _room(room, (*it.columns_shape()[:2], self.samples * prod(it.output)), array)
        np.copyto(result.reshape(windows.shape), windows)
        return result

    def pixels(self, array: Array) -> Array:
        """An output, or its gradient, as (groups, filters of a group, output pixels)."""
        it = self.geometry
        return np.ascontiguousarray(array.transpose(self.to_inside)).reshape(
            it.groups, it.filters // it.groups, self.samples * prod(it.output)
        )

    def from_pixels(self, pixels: Array) -> Array:
        """The other way round, as a view of shape (samples, filters, ...)."""
        it = self.geometry
        return pixels.reshape(self.inside(it.filters, it.output)).transpose(self.to_outside)

    def from_columns(self, columns: Array) -> Array:
        """Columns added up where they came from, as a view of shape (samples, channels, ...)."""
        it = self.geometry
        taps = columns.reshape(it.channels, *it.kernel, *self.inside(it.channels, it.output)[1:])
        result = np.zeros(self.padded_shape(), columns.dtype)
        for tap in product(*map(range, it.kernel)):
            result[self.image(map(_reached, tap, it.dilation, it.output, it.stride))] += taps[(slice(None), *tap)]
        return result[self.interior()].transpose(self.to_outside)


def _room(room: Array | None, shape: tuple[int, ...], like: Array) -> Array:
    """`room` if it is contiguous memory of that shape and of the dtype of `like`, else new memory.

    What is used again is in the cache, and its pages are there.
    """
    if room is not None and room.shape == shape and room.dtype == like.dtype and room.flags.c_contiguous:
        return room
    return np.empty(shape, like.dtype)


def _reached(tap: int, dilation: int, output: int, stride: int) -> slice:
    """Where a tap of the kernel comes to lie along a padded dimension."""
    first = tap * dilation
    return slice(first, first + (output - 1) * stride + 1, stride)


def _pieces(geometry: Geometry, itemsize: int) -> Iterator[tuple[slice, Layout]]:
    """The batch cut so that the columns of each piece fit the buffer."""
    each = geometry.channels * prod(geometry.kernel) * prod(geometry.output) * itemsize
    size = max(1, min(geometry.samples, COLUMN_BYTES // max(each, 1)))
    if geometry.samples and geometry.samples % size:
        # Equal pieces, so that no small one is left over.
        size = -(-geometry.samples // -(-geometry.samples // size))
    layout = None
    for start in range(0, geometry.samples, size):
        count = min(size, geometry.samples - start)
        if layout is None or layout.samples != count:
            layout = Layout(geometry, count)
        yield slice(start, start + count), layout


# Kernels


def _matrices(weight: Array, it: Geometry) -> Array:
    """The weight as one matrix for each group: filters, of which there may be none, by taps."""
    return weight.reshape(it.groups, it.filters // it.groups, it.channels // it.groups * prod(it.kernel))


def _forward(it: Geometry) -> Function:
    native = _in_c(it)

    def forward(array: Array, weight: Array, *rest: Any) -> Array:
        out = rest[-1]
        bias = rest[0] if len(rest) > 1 else None
        if native is not None and native.ready() and array.dtype == "float32":
            return native.forward(array, weight, bias, out)
        if out is None:
            out = np.empty((it.samples, it.filters, *it.output), array.dtype)
        matrix = _matrices(weight, it)
        if it.pointwise():
            return _forward_pointwise(array, matrix, bias, out)
        columns = pixels = None
        for piece, layout in _pieces(it, array.itemsize):
            columns = layout.columns(array[piece], columns)
            pixels = np.matmul(matrix, columns, _room(pixels, (*matrix.shape[:2], columns.shape[2]), array))
            out[piece] = layout.from_pixels(_with_bias(pixels, bias))
        return out

    def _forward_pointwise(array: Array, matrix: Array, bias: Array | None, out: Array) -> Array:
        pixels = prod(it.output)
        source = array.reshape(it.samples, it.groups, it.channels // it.groups, pixels)
        np.matmul(matrix, source, out.reshape(it.samples, it.groups, it.filters // it.groups, pixels))
        if bias is not None:
            np.add(out, _on_filters(bias, it), out)
        return out

    return forward


def _on_filters(vector: Array, it: Geometry) -> Array:
    """A vector over filters, shaped to broadcast over outputs."""
    return vector.reshape(-1, *[1] * it.rank)


def _with_bias(pixels: Array, bias: Array | None) -> Array:
    """The bias added to (groups, filters of a group, output pixels) in place.

    Here it runs along whole images; while they are copied to where they go, along other strides, it would cost more.
    """
    return pixels if bias is None else np.add(pixels, bias.reshape(*pixels.shape[:2], 1), pixels)


def _forward_with_columns(it: Geometry) -> Function:
    layout = Layout(it, it.samples)

    def forward(array: Array, weight: Array, *rest: Any) -> tuple[Array, Array]:
        *bias, out = rest
        result = np.empty((it.samples, it.filters, *it.output), array.dtype) if out is None else out[0]
        columns = layout.columns(array, None if out is None else out[1])
        pixels = _with_bias(np.matmul(_matrices(weight, it), columns), bias[0] if bias else None)
        result[...] = layout.from_pixels(pixels)
        return result, columns

    return forward


def _turned(it: Geometry) -> Geometry | None:
    """The convolution of the gradient that gives the gradient by the input, where that is the cheaper way to it.

    The other way is to make columns and add them up, which costs more than to copy as many.
    """
    if set(it.stride) != {1} or it.filters * prod(it.size) > 1.5 * it.channels * prod(it.output):
        return None
    reach = [spread * (taps - 1) for spread, taps in zip(it.dilation, it.kernel, strict=True)]
    before = tuple([most - given for most, given in zip(reach, it.before, strict=True)])
    # So that there are as many windows as the input has pixels, also if the last of its own windows ended before it.
    behind = tuple(
        [
            size - output + most - first
            for size, output, most, first in zip(it.size, it.output, reach, before, strict=True)
        ]
    )
    if min(before + behind) < 0:
        return None
    return it._replace(
        channels=it.filters, size=it.output, filters=it.channels, output=it.size, before=before, behind=behind
    )


def _turned_weight(weight: Array, it: Geometry) -> Array:
    """The weight of that convolution: each kernel point-reflected, channels in the place of filters."""
    parts = weight.reshape(it.groups, it.filters // it.groups, it.channels // it.groups, *it.kernel)
    reflected = parts[(slice(None),) * 3 + (slice(None, None, -1),) * it.rank]
    return reflected.swapaxes(1, 2).reshape(it.channels, it.filters // it.groups, *it.kernel)


def _gradients(it: Geometry, wanted: Wanted) -> Callable[..., tuple[Array, ...]]:
    """From (gradient, input or None, columns or None, weight or None, out) to the gradients wanted.

    That by the input goes into `out`, an array or None, if it fits.
    """
    by_columns, native = _gradients_by_columns(it, wanted), _in_c(it)
    if native is None or wanted[1:] == (False, True):
        return by_columns

    def gradients(
        gradient: Array, array: Any, columns: Any, weight: Any, out: Array | None = None
    ) -> tuple[Array, ...]:
        # Where columns were kept there were no kernels in C when the convolution was recorded.
        if columns is None and native.ready() and gradient.dtype == "float32":
            return _gradients_in_c(native, wanted, gradient, array, weight, out)
        return by_columns(gradient, array, columns, weight, out)

    return gradients


def _gradients_in_c(
    native: Convolution, wanted: Wanted, gradient: Array, array: Any, weight: Any, out: Array | None
) -> tuple[Array, ...]:
    by_input = (native.input_gradient(gradient, weight, out),) if wanted[0] else ()
    return (*by_input, *native.weight_gradient(array, gradient, wanted[2])) if wanted[1] else by_input


def _gradients_by_columns(it: Geometry, wanted: Wanted) -> Callable[..., tuple[Array, ...]]:
    """The same by numpy.

    They are computed together because each begins by turning the same array inside out.
    """
    turned = _turned(it) if wanted[0] and not it.pointwise() else None
    convolve = None if turned is None else _forward(turned)

    def by_pixel(gradient: Array, matrix: Array, out: Array) -> None:
        pixels = prod(it.output)
        source = gradient.reshape(it.samples, it.groups, it.filters // it.groups, pixels)
        np.matmul(matrix, source, out.reshape(it.samples, it.groups, it.channels // it.groups, pixels))

    def by_parameters(gradient: Array, array: Any, columns: Any, matrix: Any, by_input: Any) -> tuple[Array, Array]:
        """The gradients by weight and bias; also that by the input, piece by piece, if there is an array for it."""
        by_weight = np.zeros(
            (it.groups, it.channels // it.groups * prod(it.kernel), it.filters // it.groups), gradient.dtype
        )
        by_bias = np.zeros((it.groups, it.filters // it.groups), gradient.dtype)
        # Columns that were kept were made in one piece.
        whole = [(slice(None), Layout(it, it.samples))]
        taps = steps = None
        for piece, layout in _pieces(it, gradient.itemsize) if columns is None else whole:
            pixels = layout.pixels(gradient[piece])
            if by_input is not None:
                steps = _room(steps, (*matrix.shape[:2], pixels.shape[2]), gradient)
                by_input[piece] = layout.from_columns(np.matmul(matrix, pixels, steps))
            if wanted[1]:
                taps = layout.columns(array[piece], taps) if columns is None else columns
                # This way round BLAS is faster than with the pixels first: 0.6 against 0.9 ms for 144 taps, 32 filters.
                by_weight += np.matmul(taps, pixels.swapaxes(1, 2))
            if wanted[2]:
                by_bias += sums.of_rows(pixels.reshape(it.filters, -1)).reshape(by_bias.shape)
        return by_weight, by_bias

    def gradients(
        gradient: Array, array: Any, columns: Any, weight: Any, out: Array | None = None
    ) -> tuple[Array, ...]:
        found: list[Array] = []
        rest = None
        matrix = _matrices(weight, it).swapaxes(1, 2) if wanted[0] else None
        if wanted[0]:
            found.append(_room(out, (it.samples, it.channels, *it.size), gradient))
            if it.pointwise():
                by_pixel(gradient, matrix, found[0])
            elif convolve is not None:
                convolve(gradient, _turned_weight(weight, it), found[0])
            else:
                rest = found[0]
            if rest is None and not (wanted[1] or wanted[2]):
                return tuple(found)
        by_weight, by_bias = by_parameters(gradient, array, columns, matrix, rest)
        if wanted[1]:
            turned = np.ascontiguousarray(by_weight.swapaxes(1, 2))
            found.append(turned.reshape(it.filters, it.channels // it.groups, *it.kernel))
        if wanted[2]:
            found.append(by_bias.reshape(it.filters))
        return tuple(found)

    return gradients


# Builders.  The details of each problem are a `Geometry`.


@builds("conv1d", "conv2d", "conv3d")
def _convolution(problem: Problem) -> Kernel:
    it: Geometry = problem.details
    half = dtypes.is_half(problem.inputs[0].dtype)
    return Kernel(in_single(_forward(it), half), placed=None if half else _forward_placed(it))


@builds("conv1d_with_columns", "conv2d_with_columns", "conv3d_with_columns")
def _convolution_with_columns(problem: Problem) -> Function:
    return _forward_with_columns(problem.details)


@builds("conv_keeps_columns")
def _keeps_columns(problem: Problem) -> Function:
    """A function that tells whether columns are kept for the gradient by the weight, which would make them again.

    For a large batch, making them again is cheaper than their memory; and in C there are none.
    """
    it: Geometry = problem.details
    dtype = problem.inputs[0].dtype
    size = prod(it.columns_shape()) * dtype.itemsize
    if not 0 < size <= COLUMN_BYTES or it.pointwise() or dtypes.is_half(dtype):
        return lambda: False
    native = _in_c(it) if dtype is dtypes.float32 else None
    return lambda: native is None or not native.ready()


@builds("conv1d_gradient", "conv2d_gradient", "conv3d_gradient")
def _several_gradients(problem: Problem) -> Kernel:
    it: Geometry = problem.details
    _, wanted, source, has_columns = problem.attributes
    gradients = _gradients(it, wanted)
    half, to = dtypes.is_half(source.dtype), source.dtype.numpy

    def kernel(gradient: Array, array: Array, weight: Array, out: Any) -> tuple[Array, ...]:
        if half:
            gradient, array, weight = [it.astype("float32") for it in (gradient, array, weight)]
        # In half precision `_room` finds that it does not fit.
        place = out[0] if out is not None and wanted[0] else None
        found = gradients(gradient, *((None, array) if has_columns else (array, None)), weight, place)
        return tuple([it.astype(to, copy=False) for it in found])

    return Kernel(kernel, placed=None if half or has_columns else _gradients_placed(it, wanted))


@builds("conv1d_input_gradient", "conv2d_input_gradient", "conv3d_input_gradient")
def _input_gradient(problem: Problem) -> Function:
    gradients = _gradients(problem.details, (True, False, False))

    def kernel(array: Array, weight: Array, out: Array | None) -> Array:
        return gradients(array, None, None, weight, out)[0]

    return in_single(kernel, dtypes.is_half(problem.inputs[0].dtype))


@builds("conv1d_weight_gradient", "conv2d_weight_gradient", "conv3d_weight_gradient")
def _weight_gradient(problem: Problem) -> Function:
    gradients = _gradients(problem.details, (False, True, False))

    def kernel(array: Array, gradient: Array, out: Array | None) -> Array:
        return gradients(gradient, array, None, None)[0]

    return in_single(kernel, dtypes.is_half(problem.inputs[0].dtype))
