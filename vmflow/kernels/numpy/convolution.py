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
from typing import Any, Final, NamedTuple

from vmflow.instructions.blob import Array
from vmflow.instructions.op_call import Kernel
from vmflow.kernels.native.arrays import Call
from vmflow.kernels.native.images import Convolution
from vmflow.ops.layer_operands import Sizes
from vmflow.ops.table import Placed

from . import sums

# Columns beyond this many bytes are made and multiplied piece by piece.  A larger buffer does not stay in the cache,
# and is given fresh pages each time: 32 x 64 x 32 x 32 with 64 3 x 3 filters took 62 ms with one buffer of 75 MB and 47
# with four of 18 MB.
COLUMN_BYTES: Final = 8 << 20

# From which images on the rows are long enough to be copied one by one, and below which batch there is nothing to gain.
_LONG_ROW: Final = 32
_SMALL_BATCH: Final = 8

# Which of the gradients by input, weight and bias are wanted.
Wanted = tuple[bool, bool, bool]

# For deciding inline or worker only: nanoseconds per multiplication and addition, and per element copied.
_PER_PRODUCT: Final = 0.02
_PER_COPY: Final = 0.5


class Geometry(NamedTuple):
    """Sizes of one convolution.

    Attributes:
        samples, channels, size: of the input; what is a size has one number for each spatial dimension.
        filters, kernel: how many filters, and the size of each.
        output: the size of the output.
        stride, dilation: of the kernel.
        before, behind: padding above and left, below and right.
        groups: into how many parts the channels are divided.
    """

    samples: int
    channels: int
    size: Sizes
    filters: int
    kernel: Sizes
    output: Sizes
    stride: Sizes
    dilation: Sizes
    before: Sizes
    behind: Sizes
    groups: int

    @property
    def rank(self) -> int:
        """How many spatial dimensions there are."""
        return len(self.size)

    def pointwise(self) -> bool:
        """Whether each output pixel sees one input pixel, in order."""
        return set(self.kernel) == {1} and set(self.stride) == {1} and not any(self.before) and self.output == self.size

    def columns_shape(self) -> tuple[int, int, int]:
        """That of the windows as columns: groups, taps of a group, output pixels."""
        taps = self.channels // self.groups * prod(self.kernel)
        return self.groups, taps, self.samples * prod(self.output)

    def cost(self) -> float:
        """An estimate in nanoseconds."""
        taps = self.channels // max(self.groups, 1) * prod(self.kernel)
        pixels = self.samples * prod(self.output)
        return pixels * taps * (self.filters * _PER_PRODUCT + self.groups * _PER_COPY) + 5000


@lru_cache(1024)
def in_c(it: Geometry) -> Convolution | None:
    """The convolution in C; None if it is not written there, or a product does it as well."""
    if it.rank > 2 or it.pointwise() or not it.samples or not it.filters or not all(it.columns_shape()):
        return None
    # A line is an image of one row.
    ones = (it.size, it.kernel, it.output, it.stride, it.dilation)
    counts = (it.samples, it.groups, it.channels // it.groups, it.filters // it.groups)
    pairs = [(1, *pair)[-2:] for pair in ones] + [(0, *pair)[-2:] for pair in (it.before, it.behind)]
    return Convolution((*counts, *[size for pair in pairs for size in pair]), it.rank)


def forward_placed(it: Geometry) -> Placed:
    """See `Inferred.placed`."""
    native = in_c(it)

    def placed(inputs: Sequence[Array], outs: Sequence[Array]) -> list[Call] | None:
        given = (*inputs, None)[:3]
        return None if native is None else native.calls(("convolution", (*given, *outs)))

    return placed


def gradients_placed(it: Geometry, wanted: Wanted) -> Placed:
    """The same of the gradients."""
    native = in_c(it)

    def placed(inputs: Sequence[Array], outs: Sequence[Array]) -> list[Call] | None:
        gradient, source, weight = inputs
        # As `gradients_function`.
        if native is None or wanted[1:] == (False, True):
            return None
        calls: list[tuple[str, tuple[Array | None, ...]]] = []
        if wanted[0]:
            calls.append(("convolution_input_gradient", (gradient, weight, outs[0])))
        if wanted[1]:
            calls.append(("convolution_weight_gradient", (source, gradient, *outs[wanted[0] :], None)[:4]))
        return native.calls(*calls)

    return placed


# Columns and back


class Layout:
    """Where the batch stands while columns are made, and how to get there and back.

    Arrays "inside" have the channels first; then come the samples and the image, or the image and the samples.
    """

    def __init__(self, xp: Any, geometry: Geometry, samples: int) -> None:
        self.xp = xp
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
            return self.xp.ascontiguousarray(moved) if self.batch_last else moved
        result = self.xp.zeros(self.padded_shape(), array.dtype)
        result[self.interior()] = moved
        return result

    def columns(self, array: Array, room: Array | None = None) -> Array:
        """The input's windows: (groups, taps of a group, output pixels), in `room` if it is of that shape."""
        it = self.geometry
        source = self.padded(array)
        channel, *rest = source.strides
        sample = rest.pop(-1 if self.batch_last else 0)
        steps = [length * step for length, step in zip(rest, it.stride, strict=True)]
        windows = self.xp.lib.stride_tricks.as_strided(
            source,
            (it.channels, *it.kernel, *self.inside(it.channels, it.output)[1:]),
            (
                channel,
                *[length * step for length, step in zip(rest, it.dilation, strict=True)],
                *((*steps, sample) if self.batch_last else (sample, *steps)),
            ),
        )
        result = _room(self.xp, room, (*it.columns_shape()[:2], self.samples * prod(it.output)), array)
        self.xp.copyto(result.reshape(windows.shape), windows)
        return result

    def pixels(self, array: Array) -> Array:
        """An output, or its gradient, as (groups, filters of a group, output pixels)."""
        it = self.geometry
        return self.xp.ascontiguousarray(array.transpose(self.to_inside)).reshape(
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
        result = self.xp.zeros(self.padded_shape(), columns.dtype)
        for tap in product(*map(range, it.kernel)):
            result[self.image(map(_reached, tap, it.dilation, it.output, it.stride))] += taps[(slice(None), *tap)]
        return result[self.interior()].transpose(self.to_outside)


def _room(xp: Any, room: Array | None, shape: tuple[int, ...], like: Array) -> Array:
    """`room` if it is contiguous memory of that shape and of the dtype of `like`, else new memory.

    What is used again is in the cache, and its pages are there.
    """
    if room is not None and room.shape == shape and room.dtype == like.dtype and room.flags.c_contiguous:
        return room
    return xp.empty(shape, like.dtype)


def _reached(tap: int, dilation: int, output: int, stride: int) -> slice:
    """Where a tap of the kernel comes to lie along a padded dimension."""
    first = tap * dilation
    return slice(first, first + (output - 1) * stride + 1, stride)


def pieces(xp: Any, geometry: Geometry, itemsize: int) -> Iterator[tuple[slice, Layout]]:
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
            layout = Layout(xp, geometry, count)
        yield slice(start, start + count), layout


# Kernels


def _matrices(weight: Array, it: Geometry) -> Array:
    """The weight as one matrix for each group: filters, of which there may be none, by taps."""
    return weight.reshape(it.groups, it.filters // it.groups, it.channels // it.groups * prod(it.kernel))


def forward_kernel(xp: Any, it: Geometry) -> Kernel:
    native = in_c(it)

    def forward(array: Array, weight: Array, *rest: Any) -> Array:
        out = rest[-1]
        bias = rest[0] if len(rest) > 1 else None
        if native is not None and native.ready() and array.dtype == "float32":
            return native.forward(array, weight, bias, out)
        if out is None:
            out = xp.empty((it.samples, it.filters, *it.output), array.dtype)
        matrix = _matrices(weight, it)
        if it.pointwise():
            return _forward_pointwise(array, matrix, bias, out)
        columns = pixels = None
        for piece, layout in pieces(xp, it, array.itemsize):
            columns = layout.columns(array[piece], columns)
            pixels = xp.matmul(matrix, columns, _room(xp, pixels, (*matrix.shape[:2], columns.shape[2]), array))
            out[piece] = layout.from_pixels(_with_bias(xp, pixels, bias))
        return out

    def _forward_pointwise(array: Array, matrix: Array, bias: Array | None, out: Array) -> Array:
        pixels = prod(it.output)
        source = array.reshape(it.samples, it.groups, it.channels // it.groups, pixels)
        xp.matmul(matrix, source, out.reshape(it.samples, it.groups, it.filters // it.groups, pixels))
        if bias is not None:
            xp.add(out, _on_filters(bias, it), out)
        return out

    return forward


def _on_filters(vector: Array, it: Geometry) -> Array:
    """A vector over filters, shaped to broadcast over outputs."""
    return vector.reshape(-1, *[1] * it.rank)


def _with_bias(xp: Any, pixels: Array, bias: Array | None) -> Array:
    """The bias added to (groups, filters of a group, output pixels) in place.

    Here it runs along whole images; while they are copied to where they go, along other strides, it would cost more.
    """
    return pixels if bias is None else xp.add(pixels, bias.reshape(*pixels.shape[:2], 1), pixels)


def forward_with_columns_kernel(xp: Any, it: Geometry) -> Kernel:
    layout = Layout(xp, it, it.samples)

    def forward(array: Array, weight: Array, *rest: Any) -> tuple[Array, Array]:
        *bias, out = rest
        result = xp.empty((it.samples, it.filters, *it.output), array.dtype) if out is None else out[0]
        columns = layout.columns(array, None if out is None else out[1])
        pixels = _with_bias(xp, xp.matmul(_matrices(weight, it), columns), bias[0] if bias else None)
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


def gradients_function(xp: Any, it: Geometry, wanted: Wanted) -> Callable[..., tuple[Array, ...]]:
    """From (gradient, input or None, columns or None, weight or None, out) to the gradients wanted.

    That by the input goes into `out`, an array or None, if it fits.
    """
    by_columns, native = _gradients_by_columns(xp, it, wanted), in_c(it)
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


def _gradients_by_columns(xp: Any, it: Geometry, wanted: Wanted) -> Callable[..., tuple[Array, ...]]:
    """The same by numpy.

    They are computed together because each begins by turning the same array inside out.
    """
    turned = _turned(it) if wanted[0] and not it.pointwise() else None
    convolve = None if turned is None else forward_kernel(xp, turned)

    def by_pixel(gradient: Array, matrix: Array, out: Array) -> None:
        pixels = prod(it.output)
        source = gradient.reshape(it.samples, it.groups, it.filters // it.groups, pixels)
        xp.matmul(matrix, source, out.reshape(it.samples, it.groups, it.channels // it.groups, pixels))

    def by_parameters(gradient: Array, array: Any, columns: Any, matrix: Any, by_input: Any) -> tuple[Array, Array]:
        """The gradients by weight and bias; also that by the input, piece by piece, if there is an array for it."""
        by_weight = xp.zeros(
            (it.groups, it.channels // it.groups * prod(it.kernel), it.filters // it.groups), gradient.dtype
        )
        by_bias = xp.zeros((it.groups, it.filters // it.groups), gradient.dtype)
        # Columns that were kept were made in one piece.
        whole = [(slice(None), Layout(xp, it, it.samples))]
        taps = steps = None
        for piece, layout in pieces(xp, it, gradient.itemsize) if columns is None else whole:
            pixels = layout.pixels(gradient[piece])
            if by_input is not None:
                steps = _room(xp, steps, (*matrix.shape[:2], pixels.shape[2]), gradient)
                by_input[piece] = layout.from_columns(xp.matmul(matrix, pixels, steps))
            if wanted[1]:
                taps = layout.columns(array[piece], taps) if columns is None else columns
                # This way round BLAS is faster than with the pixels first: 0.6 against 0.9 ms for 144 taps, 32 filters.
                by_weight += xp.matmul(taps, pixels.swapaxes(1, 2))
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
            found.append(_room(xp, out, (it.samples, it.channels, *it.size), gradient))
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
            turned = xp.ascontiguousarray(by_weight.swapaxes(1, 2))
            found.append(turned.reshape(it.filters, it.channels // it.groups, *it.kernel))
        if wanted[2]:
            found.append(by_bias.reshape(it.filters))
        return tuple(found)

    return gradients
