"""im2col and its adjoint: windows of images become the columns of a matrix, and columns are added up to images.

The copy can cost as much as the product when its innermost runs are short.  Hence two layouts: images whose results
have short rows are copied with the batch innermost if there are many samples, others with their rows innermost.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import product
from math import prod
from typing import Final

import numpy as np

from vmflow.instructions.blob import Array
from vmflow.kernels.problems.convolution import Geometry, Sizes

# Columns of more bytes are made and multiplied piece by piece, one or more samples at a time, since a larger buffer
# does not stay in the cache.
COLUMN_BYTES: Final = 8 << 20

# Columns are made with the batch innermost if the output's rows are shorter than _LONG_ROW and there are at least
# _SMALL_BATCH samples.
_LONG_ROW: Final = 32
_SMALL_BATCH: Final = 8


class Layout:
    """The order of dimensions while columns are made, and the transpositions to this order and back.

    Arrays have the channels first, then the samples and the image; or, with `batch_last`, the image and the samples.
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
        """Return the shape of images in this layout."""
        return (channels, *size, self.samples) if self.batch_last else (channels, self.samples, *size)

    def image(self, parts: Iterable[slice]) -> tuple[slice, ...]:
        """Return an index of an array in this layout, which takes `parts` of the image's dimensions."""
        every = slice(None)
        return (every, *parts) if self.batch_last else (every, every, *parts)

    def interior(self) -> tuple[slice, ...]:
        """Return the index of the input in padded images in this layout."""
        sizes = self.geometry
        return self.image([slice(before, before + size) for before, size in zip(sizes.before, sizes.size, strict=True)])

    def padded_shape(self) -> tuple[int, ...]:
        """Return the shape of padded images in this layout."""
        sizes = self.geometry
        return self.inside(
            sizes.channels, tuple([sum(each) for each in zip(sizes.before, sizes.size, sizes.behind, strict=True)])
        )

    def padded(self, array: Array) -> Array:
        """Return the input with its padding, in this layout."""
        moved = array.transpose(self.to_inside)
        if not any(self.geometry.before + self.geometry.behind):
            return np.ascontiguousarray(moved) if self.batch_last else moved
        result = np.zeros(self.padded_shape(), array.dtype)
        result[self.interior()] = moved
        return result

    def columns(self, array: Array, memory: Array | None = None) -> Array:
        """Copy the input's windows to (groups, taps of a group, output pixels), in `memory` if that fits."""
        sizes = self.geometry
        source = self.padded(array)
        channel, *rest = source.strides
        sample = rest.pop(-1 if self.batch_last else 0)
        steps = [length * step for length, step in zip(rest, sizes.stride, strict=True)]
        windows = np.lib.stride_tricks.as_strided(
            source,
            (sizes.channels, *sizes.kernel, *self.inside(sizes.channels, sizes.output)[1:]),
            (
                channel,
                *[length * step for length, step in zip(rest, sizes.dilation, strict=True)],
                *((*steps, sample) if self.batch_last else (sample, *steps)),
            ),
        )
        result = memory_for(memory, (*sizes.columns_shape()[:2], self.samples * prod(sizes.output)), array)
        np.copyto(result.reshape(windows.shape), windows)
        return result

    def pixels(self, array: Array) -> Array:
        """Return an output, or its gradient, as (groups, filters of a group, output pixels)."""
        sizes = self.geometry
        return np.ascontiguousarray(array.transpose(self.to_inside)).reshape(
            sizes.groups, sizes.filters // sizes.groups, self.samples * prod(sizes.output)
        )

    def from_pixels(self, pixels: Array) -> Array:
        """Return products (groups, filters of a group, output pixels) as a view of shape (samples, filters, ...)."""
        sizes = self.geometry
        return pixels.reshape(self.inside(sizes.filters, sizes.output)).transpose(self.to_outside)

    def from_columns(self, columns: Array) -> Array:
        """Add up columns' elements at their input pixels; return a view of shape (samples, channels, ...)."""
        sizes = self.geometry
        taps = columns.reshape(sizes.channels, *sizes.kernel, *self.inside(sizes.channels, sizes.output)[1:])
        result = np.zeros(self.padded_shape(), columns.dtype)
        for tap in product(*map(range, sizes.kernel)):
            result[self.image(map(_reached, tap, sizes.dilation, sizes.output, sizes.stride))] += taps[
                (slice(None), *tap)
            ]
        return result[self.interior()].transpose(self.to_outside)


def memory_for(memory: Array | None, shape: tuple[int, ...], like: Array) -> Array:
    """Return `memory` if it is contiguous, of this shape and of the dtype of `like`, else new memory.

    Memory that is reused may still be in the cache, and its pages are mapped.
    """
    if memory is not None and memory.shape == shape and memory.dtype == like.dtype and memory.flags.c_contiguous:
        return memory
    return np.empty(shape, like.dtype)


def _reached(tap: int, dilation: int, output: int, stride: int) -> slice:
    """Return the slice of elements along a padded dimension that a tap of the kernel reads."""
    first = tap * dilation
    return slice(first, first + (output - 1) * stride + 1, stride)


def are_kept(sizes: Geometry, itemsize: int) -> bool:
    """Return whether a forward pass should keep its columns for the weight's gradient, which else makes them again.

    A pointwise convolution has no columns, and columns of more than `COLUMN_BYTES` are not kept.
    """
    return 0 < prod(sizes.columns_shape()) * itemsize <= COLUMN_BYTES and not sizes.pointwise()


def pieces(geometry: Geometry, itemsize: int) -> Iterator[tuple[slice, Layout]]:
    """Yield slices of the batch, of one sample or with columns of at most `COLUMN_BYTES`, each with its layout."""
    each = geometry.channels * prod(geometry.kernel) * prod(geometry.output) * itemsize
    size = max(1, min(geometry.samples, COLUMN_BYTES // max(each, 1)))
    if geometry.samples and geometry.samples % size:
        # As many pieces, but as small as possible: so the last one is less short.
        size = -(-geometry.samples // -(-geometry.samples // size))
    layout = None
    for start in range(0, geometry.samples, size):
        count = min(size, geometry.samples - start)
        if layout is None or layout.samples != count:
            layout = Layout(geometry, count)
        yield slice(start, start + count), layout
