"""How convolutions are computed: columns, products, and back.

A kernel copies the windows of the input into a matrix of columns, one row per tap and channel, and multiplies once
("im2col", K. Chellapilla et al., High Performance Convolutional Neural Networks for Document Processing, 2006).  The
copy costs as much as the product when its innermost runs are short.  Hence two layouts: small images with many samples
are copied with the batch innermost, large images with their rows innermost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import prod
from typing import Any, Final, NamedTuple

from vmflow.instructions.blob import Array
from vmflow.instructions.op_call import Kernel

from .layer_operands import Pair

# Columns beyond this many bytes are made and multiplied piece by piece.  A larger buffer does not stay in the cache,
# and is given fresh pages each time: 32 x 64 x 32 x 32 with 64 3 x 3 filters took 62 ms with one buffer of 75 MB and 47
# with four of 18 MB.
COLUMN_BYTES: Final = 8 << 20

# From which images on the rows are long enough to be copied one by one, and below which batch there is nothing to gain.
_LONG_ROW: Final = 32
_SMALL_BATCH: Final = 8

# For deciding inline or worker only: nanoseconds per multiplication and addition, and per element copied.
_PER_PRODUCT: Final = 0.02
_PER_COPY: Final = 0.5


class Geometry(NamedTuple):
    """Sizes of one convolution.

    Attributes:
        samples, channels, height, width: of the input.
        filters, kernel: how many filters, and the size of each.
        rows, columns: the size of the output.
        stride, dilation: down and across.
        before, behind: padding above and left, below and right.
        groups: into how many parts the channels are divided.
    """

    samples: int
    channels: int
    height: int
    width: int
    filters: int
    kernel: Pair
    rows: int
    columns: int
    stride: Pair
    dilation: Pair
    before: Pair
    behind: Pair
    groups: int

    def pointwise(self) -> bool:
        """Whether each output pixel sees one input pixel, in order."""
        return (
            self.kernel == (1, 1)
            and self.stride == (1, 1)
            and self.before == (0, 0)
            and (self.rows, self.columns) == (self.height, self.width)
        )

    def columns_shape(self) -> tuple[int, int, int]:
        """That of the windows as columns: groups, taps of a group, output pixels."""
        taps = self.channels // self.groups * prod(self.kernel)
        return self.groups, taps, self.samples * self.rows * self.columns

    def cost(self) -> float:
        """An estimate in nanoseconds."""
        taps = self.channels // max(self.groups, 1) * prod(self.kernel)
        pixels = self.samples * self.rows * self.columns
        return pixels * taps * (self.filters * _PER_PRODUCT + self.groups * _PER_COPY) + 5000


# Columns and back


class Layout:
    """Where the batch stands while columns are made, and how to get there and back.

    Arrays "inside" have the channels first; then come the samples and the image, or the image and the samples.
    """

    def __init__(self, xp: Any, geometry: Geometry, samples: int) -> None:
        self.xp = xp
        self.geometry = geometry
        self.samples = samples
        self.batch_last = geometry.columns < _LONG_ROW and samples >= _SMALL_BATCH
        self.to_inside = (1, 2, 3, 0) if self.batch_last else (1, 0, 2, 3)
        self.to_outside = (3, 0, 1, 2) if self.batch_last else (1, 0, 2, 3)

    def inside(self, channels: int, height: int, width: int) -> tuple[int, ...]:
        """The shape of images inside."""
        if self.batch_last:
            return channels, height, width, self.samples
        return channels, self.samples, height, width

    def image(self, down: slice, across: slice) -> tuple[slice, ...]:
        """An index of an array inside that cuts the image."""
        every = slice(None)
        return (every, down, across) if self.batch_last else (every, every, down, across)

    def interior(self) -> tuple[slice, ...]:
        """Where, in the padded images inside, the input is."""
        it = self.geometry
        return self.image(slice(it.before[0], it.before[0] + it.height), slice(it.before[1], it.before[1] + it.width))

    def padded_shape(self) -> tuple[int, ...]:
        """The shape of padded images inside."""
        it = self.geometry
        return self.inside(it.channels, it.before[0] + it.height + it.behind[0], it.before[1] + it.width + it.behind[1])

    def padded(self, array: Array) -> Array:
        """The input inside, with its padding."""
        moved = array.transpose(self.to_inside)
        if not any(self.geometry.before + self.geometry.behind):
            return self.xp.ascontiguousarray(moved) if self.batch_last else moved
        result = self.xp.zeros(self.padded_shape(), array.dtype)
        result[self.interior()] = moved
        return result

    def columns(self, array: Array) -> Array:
        """The input's windows: (groups, taps of a group, output pixels)."""
        it = self.geometry
        source = self.padded(array)
        channel, *rest = source.strides
        if self.batch_last:
            down, across, sample = rest
            image = (down * it.stride[0], across * it.stride[1], sample)
        else:
            sample, down, across = rest
            image = (sample, down * it.stride[0], across * it.stride[1])
        windows = self.xp.lib.stride_tricks.as_strided(
            source,
            (it.channels, *it.kernel, *self.inside(it.channels, it.rows, it.columns)[1:]),
            (channel, down * it.dilation[0], across * it.dilation[1], *image),
        )
        return self.xp.ascontiguousarray(windows).reshape(
            it.groups, it.channels // it.groups * prod(it.kernel), self.samples * it.rows * it.columns
        )

    def pixels(self, array: Array) -> Array:
        """An output, or its gradient, as (groups, filters of a group, output pixels)."""
        it = self.geometry
        return self.xp.ascontiguousarray(array.transpose(self.to_inside)).reshape(
            it.groups, it.filters // it.groups, self.samples * it.rows * it.columns
        )

    def from_pixels(self, pixels: Array) -> Array:
        """The other way round, as a view of shape (samples, filters, rows, columns)."""
        it = self.geometry
        return pixels.reshape(self.inside(it.filters, it.rows, it.columns)).transpose(self.to_outside)

    def from_columns(self, columns: Array) -> Array:
        """Columns added up where they came from, as a view of shape (samples, channels, height, width)."""
        it = self.geometry
        taps = columns.reshape(it.channels, *it.kernel, *self.inside(it.channels, it.rows, it.columns)[1:])
        result = self.xp.zeros(self.padded_shape(), columns.dtype)
        for down in range(it.kernel[0]):
            for across in range(it.kernel[1]):
                top, left = down * it.dilation[0], across * it.dilation[1]
                place = self.image(
                    slice(top, top + (it.rows - 1) * it.stride[0] + 1, it.stride[0]),
                    slice(left, left + (it.columns - 1) * it.stride[1] + 1, it.stride[1]),
                )
                result[place] += taps[:, down, across]
        return result[self.interior()].transpose(self.to_outside)


def pieces(xp: Any, geometry: Geometry, itemsize: int) -> Iterator[tuple[slice, Layout]]:
    """The batch cut so that the columns of each piece fit the buffer."""
    each = geometry.channels * prod(geometry.kernel) * geometry.rows * geometry.columns * itemsize
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


def forward_kernel(xp: Any, it: Geometry) -> Kernel:
    def forward(array: Array, weight: Array, *rest: Any) -> Array:
        out = rest[-1]
        if out is None:
            out = xp.empty((it.samples, it.filters, it.rows, it.columns), array.dtype)
        matrix = weight.reshape(it.groups, it.filters // it.groups, -1)
        bias = rest[0] if len(rest) > 1 else None
        if it.pointwise():
            return _forward_pointwise(array, matrix, bias, out)
        for piece, layout in pieces(xp, it, array.itemsize):
            _put(xp, layout.from_pixels(xp.matmul(matrix, layout.columns(array[piece]))), bias, out[piece])
        return out

    def _forward_pointwise(array: Array, matrix: Array, bias: Array | None, out: Array) -> Array:
        pixels = it.rows * it.columns
        source = array.reshape(it.samples, it.groups, it.channels // it.groups, pixels)
        xp.matmul(matrix, source, out.reshape(it.samples, it.groups, it.filters // it.groups, pixels))
        if bias is not None:
            xp.add(out, bias[:, None, None], out)
        return out

    return forward


def _put(xp: Any, result: Array, bias: Array | None, out: Array) -> None:
    if bias is None:
        out[...] = result
    else:
        xp.add(result, bias[:, None, None], out)


def forward_with_columns_kernel(xp: Any, it: Geometry) -> Kernel:
    layout = Layout(xp, it, it.samples)

    def forward(array: Array, weight: Array, *rest: Any) -> tuple[Array, Array]:
        *bias, out = rest
        result = xp.empty((it.samples, it.filters, it.rows, it.columns), array.dtype) if out is None else out[0]
        columns = layout.columns(array)
        pixels = xp.matmul(weight.reshape(it.groups, it.filters // it.groups, -1), columns)
        _put(xp, layout.from_pixels(pixels), bias[0] if bias else None, result)
        return result, columns

    return forward


# Which of the gradients by input, weight and bias are wanted.
Wanted = tuple[bool, bool, bool]


def gradients_function(xp: Any, it: Geometry, wanted: Wanted) -> Callable[..., tuple[Array, ...]]:
    """From (gradient, input or None, columns or None, weight or None) to the gradients wanted.

    They are computed together because each begins by turning the same array inside out.
    """

    def by_pixel(gradient: Array, matrix: Array, out: Array) -> None:
        pixels = it.rows * it.columns
        source = gradient.reshape(it.samples, it.groups, it.filters // it.groups, pixels)
        xp.matmul(matrix, source, out.reshape(it.samples, it.groups, it.channels // it.groups, pixels))

    def gradients(gradient: Array, array: Any, columns: Any, weight: Any) -> tuple[Array, ...]:
        fan = it.channels // it.groups
        found: list[Array] = []
        at_once = it.pointwise()
        if wanted[0]:
            found.append(xp.empty((it.samples, it.channels, it.height, it.width), gradient.dtype))
            matrix = weight.reshape(it.groups, it.filters // it.groups, -1).swapaxes(1, 2)
            if at_once:
                by_pixel(gradient, matrix, found[0])
                if not (wanted[1] or wanted[2]):
                    return tuple(found)
        by_weight = xp.zeros((it.groups, fan * prod(it.kernel), it.filters // it.groups), gradient.dtype)
        by_bias = xp.zeros((it.groups, it.filters // it.groups), gradient.dtype)
        # Columns that were kept were made in one piece.
        whole = [(slice(None), Layout(xp, it, it.samples))]
        for piece, layout in pieces(xp, it, gradient.itemsize) if columns is None else whole:
            pixels = layout.pixels(gradient[piece])
            if wanted[0] and not at_once:
                found[0][piece] = layout.from_columns(xp.matmul(matrix, pixels))
            if wanted[1]:
                taps = layout.columns(array[piece]) if columns is None else columns
                # This way round BLAS is faster than with the pixels first: 0.6 against 0.9 ms for 144 taps, 32 filters.
                by_weight += xp.matmul(taps, pixels.swapaxes(1, 2))
            if wanted[2]:
                by_bias += xp.add.reduce(pixels, 2)
        if wanted[1]:
            turned = xp.ascontiguousarray(by_weight.swapaxes(1, 2))
            found.append(turned.reshape(it.filters, fan, *it.kernel))
        if wanted[2]:
            found.append(by_bias.reshape(it.filters))
        return tuple(found)

    return gradients
