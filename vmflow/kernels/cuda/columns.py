"""The windows of images as the columns of a matrix, and back.

The matrix has one row per channel and tap of the kernel, and one column per sample and pixel of the output.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from math import prod
from typing import Any, Final

from vmflow.kernels.problems.convolution import Geometry, Sizes

# Columns beyond this many bytes are made and multiplied piece by piece: they are larger than the images by as much as
# the kernel has taps.
COLUMN_BYTES: Final = 256 << 20


def pieces(it: Geometry, itemsize: int) -> Iterator[slice]:
    """The batch cut so that the columns of each piece are not too large."""
    each = it.channels * prod(it.kernel) * prod(it.output) * itemsize
    size = max(1, COLUMN_BYTES // max(each, 1))
    for start in range(0, it.samples, size):
        yield slice(start, start + size)


def columns(xp: Any, array: Any, it: Geometry) -> Any:
    """The windows of (samples, channels, ...) as (groups, taps of a group, output pixels of all samples)."""
    source = _padded(xp, array, it)
    channel, sample, *rest = source.strides
    windows = xp.lib.stride_tricks.as_strided(
        source,
        (it.channels, *it.kernel, len(array), *it.output),
        (
            channel,
            *[length * step for length, step in zip(rest, it.dilation, strict=True)],
            sample,
            *[length * step for length, step in zip(rest, it.stride, strict=True)],
        ),
    )
    groups, taps, _ = it.columns_shape()
    return windows.reshape(groups, taps, len(array) * prod(it.output))


def from_columns(xp: Any, matrix: Any, it: Geometry, samples: int) -> Any:
    """Columns added up where they came from, as (samples, channels, ...)."""
    taps = matrix.reshape(it.channels, *it.kernel, samples, *it.output)
    result = xp.zeros((it.channels, samples, *_padded_size(it)), matrix.dtype)
    every = slice(None)
    for tap in product(*map(range, it.kernel)):
        target = result[(every, every, *map(_reached, tap, it.dilation, it.output, it.stride))]
        xp.add(target, taps[(every, *tap)], out=target)
    return result[(every, every, *_interior(it))].swapaxes(0, 1)


def pixels(array: Any, it: Geometry) -> Any:
    """An output, or its gradient, as (groups, filters of a group, output pixels of all samples)."""
    shape = it.groups, it.filters // it.groups, len(array) * prod(it.output)
    return array.swapaxes(0, 1).reshape(shape)


def from_pixels(matrix: Any, it: Geometry, samples: int) -> Any:
    """The other way round, as a view of shape (samples, filters, ...)."""
    return matrix.reshape(it.filters, samples, *it.output).swapaxes(0, 1)


def _padded(xp: Any, array: Any, it: Geometry) -> Any:
    """The images, padded, with the channels first."""
    moved = array.swapaxes(0, 1)
    if not any(it.before + it.behind):
        return moved
    result = xp.zeros((it.channels, len(array), *_padded_size(it)), array.dtype)
    result[(slice(None), slice(None), *_interior(it))] = moved
    return result


def _padded_size(it: Geometry) -> Sizes:
    return tuple([sum(each) for each in zip(it.before, it.size, it.behind, strict=True)])


def _interior(it: Geometry) -> tuple[slice, ...]:
    """Where, in padded images, the input is."""
    return tuple([slice(before, before + size) for before, size in zip(it.before, it.size, strict=True)])


def _reached(tap: int, dilation: int, output: int, stride: int) -> slice:
    """Where a tap of the kernel comes to lie along a padded dimension."""
    first = tap * dilation
    return slice(first, first + (output - 1) * stride + 1, stride)
