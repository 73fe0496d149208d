"""How pooling is computed, one dimension after the other.

Windows are products of intervals, so the last dimension is reduced first and the others of what is left after: kernel
height + kernel width steps in an image, each over a whole array, instead of their product.  A step leaves out
the windows in which its tap lies in the padding; hence nothing is ever padded.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from vmflow.instructions.blob import Array
from vmflow.instructions.op_call import Kernel
from vmflow.kernels.native.images import MaxPool


class Window(NamedTuple):
    """How windows lie along one dimension.

    Attributes:
        size, output: of the input and the output.
        kernel, stride, padding, dilation: of the window.
    """

    size: int
    output: int
    kernel: int
    stride: int
    padding: int
    dilation: int

    def tap(self, number: int) -> tuple[slice, slice]:
        """Which windows have this tap within the input, and where it is there."""
        shift = number * self.dilation - self.padding
        low = max(0, -(shift // self.stride))
        high = min(self.output, (self.size - 1 - shift) // self.stride + 1)
        if high <= low:
            return slice(0, 0), slice(0, 0)
        first = low * self.stride + shift
        return slice(low, high), slice(first, first + (high - low - 1) * self.stride + 1, self.stride)

    def first_taps(self) -> np.ndarray[Any, Any]:
        """For each window, the first tap within the input."""
        starts = np.arange(self.output) * self.stride - self.padding
        return np.maximum(0, -(starts // self.dilation))

    def counts(self, with_padding: bool) -> np.ndarray[Any, Any]:
        """For each window, how many elements it has, those of the padding included or not."""
        starts = np.arange(self.output) * self.stride - self.padding
        ends = np.minimum(starts + self.kernel, self.size + self.padding)
        if with_padding:
            return ends - starts
        return np.minimum(ends, self.size) - np.maximum(starts, 0)

    def disjoint(self) -> bool:
        """Whether the windows cover the input without gaps or overlaps."""
        fits = self.size == self.output * self.kernel
        return fits and self.kernel == self.stride and self.dilation == 1 and self.padding == 0


class Planes:
    """Where the planes (one per sample and channel, of any number of dimensions) stand while they are reduced.

    numpy's loops run along the last dimension.  In tiny images that is a few columns, and the loops' overhead would
    outweigh the work; there it pays to turn the planes inside out first, and the result back.

    Attributes:
        windows: how they lie along each dimension.
        first: the first dimension of a plane in arrays inside.
    """

    def __init__(self, xp: Any, shape: tuple[int, ...], windows: Sequence[Window]) -> None:
        self.xp = xp
        self.count = shape[0] * shape[1]
        self.samples, self.channels = shape[:2]
        self.windows = tuple(windows)
        self.last = self.count >= 64 and prod([it.size for it in windows]) <= 128
        self.first = 0 if self.last else 1

    def output(self) -> tuple[int, ...]:
        """The shape of a value for each window."""
        return self.samples, self.channels, *[it.output for it in self.windows]

    def along(self) -> list[tuple[int, Window]]:
        """The dimensions of planes in arrays inside, and the windows there, the last dimension first."""
        return list(enumerate(self.windows, self.first))[::-1]

    def inside(self, array: Array) -> Array:
        """(samples, channels, ...) turned inside out or not."""
        size = array.shape[2:]
        if self.last:
            return self.xp.ascontiguousarray(array.reshape(self.count, -1).T).reshape(*size, self.count)
        return array.reshape(self.count, *size)

    def outside(self, array: Array) -> Array:
        """The other way round."""
        size = array.shape[:-1] if self.last else array.shape[1:]
        if self.last:
            array = self.xp.ascontiguousarray(array.reshape(-1, self.count).T)
        return array.reshape(self.samples, self.channels, *size)

    def broadcast(self, vector: Array, axis: int) -> Array:
        """A vector shaped to broadcast along one dimension inside."""
        return vector.reshape(vector.shape + (1,) * (len(self.windows) - axis))


def _at(axis: int, part: Any) -> tuple[Any, ...]:
    """An index that cuts one dimension."""
    return (slice(None),) * axis + (part,)


# Maximum


def _initial(xp: Any, array: Array, window: Window, axis: int) -> Array:
    """The first element of each window."""
    outside, inside = window.tap(0)
    if outside == slice(0, window.output):
        return array[_at(axis, inside)].copy(order="C")
    starts = np.arange(window.output) * window.stride - window.padding + window.first_taps() * window.dilation
    return xp.take(array, xp.asarray(starts), axis)


def _largest(xp: Any, array: Array, window: Window, axis: int) -> Array:
    """Windows along `axis` reduced to their largest element; nan if there is one."""
    best = _initial(xp, array, window, axis)
    for number in range(1, window.kernel):
        outside, inside = window.tap(number)
        target = best[_at(axis, outside)]
        xp.maximum(target, array[_at(axis, inside)], out=target)
    return best


def _largest_and_where(
    xp: Any, planes: Planes, array: Array, window: Window, axis: int, carried: Sequence[Array], nan: bool
) -> tuple[Array, Array, list[Array]]:
    """As `_largest`; also the number of the tap each was found at, and all of `carried` where it was found."""
    small = np.dtype(np.uint8) if window.kernel <= 256 else np.dtype(np.int32)
    best = _initial(xp, array, window, axis)
    chosen = xp.empty(best.shape, small)
    chosen[...] = planes.broadcast(xp.asarray(window.first_taps().astype(small)), axis)
    brought = [_initial(xp, it, window, axis) for it in carried]
    for number in range(1, window.kernel):
        outside, inside = window.tap(number)
        target, candidate = best[_at(axis, outside)], array[_at(axis, inside)]
        better = candidate > target
        if nan:
            # Comparisons with nan are false: the last nan wins, as in PyTorch.
            better |= xp.isnan(candidate)
        xp.maximum(target, candidate, out=target)
        # Arithmetic instead of masked copies, which cost ten times as much where the mask is irregular.
        place = chosen[_at(axis, outside)]
        xp.maximum(place, better * small.type(number), out=place)
        for along, source in zip(brought, carried, strict=True):
            place = along[_at(axis, outside)]
            difference = xp.bitwise_xor(place, source[_at(axis, inside)])
            difference *= better
            place ^= difference
    return best, chosen, brought


def in_c(planes: Planes) -> MaxPool | None:
    """The windows in C; None if they are not written there."""
    windows = planes.windows
    if len(windows) > 2:
        return None
    # A line is an image of one row.
    down, across = windows if len(windows) == 2 else (Window(1, 1, 1, 1, 0, 1), *windows)
    sizes = [
        (getattr(down, it), getattr(across, it)) for it in ("size", "output", "kernel", "stride", "padding", "dilation")
    ]
    return MaxPool((planes.count, *[it for pair in sizes for it in pair]), planes.output())


def max_values_kernel(xp: Any, planes: Planes) -> Kernel:
    native = in_c(planes)

    def values(array: Array, out: Array | None) -> Array:
        found = None if native is None else native.largest(array, out)
        if found is not None:
            return found[0]
        source = planes.inside(array)
        for axis, window in planes.along():
            source = _largest(xp, source, window, axis)
        return planes.outside(source)

    return values


def max_indices_kernel(xp: Any, planes: Planes) -> Kernel:
    # From one element to the next along each dimension, in a plane laid out flat.
    steps = [prod([it.size for it in planes.windows[number + 1 :]]) for number in range(len(planes.windows))]
    corners: Array = xp.zeros((), np.int64)
    for (axis, window), step in zip(planes.along()[::-1], steps, strict=True):
        starts = (np.arange(window.output) * window.stride - window.padding) * step
        corners = corners + planes.broadcast(xp.asarray(starts), axis)

    native = in_c(planes)

    def with_indices(array: Array, out: Any) -> tuple[Array, ...]:
        to, to_indices = (None, None) if out is None else out
        found = None if native is None else native.largest(array, to, to_indices, True)
        if found is not None:
            return found
        nan = array.dtype.kind not in "iu" and bool(xp.isnan(array).any())
        best = planes.inside(array)
        taps: list[Array] = []  # of the dimensions reduced so far, the first of them first
        for axis, window in planes.along():
            best, chosen, brought = _largest_and_where(xp, planes, best, window, axis, taps, nan)
            taps = [chosen, *brought]
        spacings = [window.dilation * step for window, step in zip(planes.windows, steps, strict=True)]
        indices = xp.multiply(taps[0], spacings[0], dtype=xp.int64)
        indices += corners
        for tap, spacing in zip(taps[1:], spacings[1:], strict=True):
            indices += tap if spacing == 1 else xp.multiply(tap, spacing, dtype=xp.int64)
        return planes.outside(best), planes.outside(indices)

    return with_indices


# Mean


def total(xp: Any, array: Array, window: Window, axis: int) -> Array:
    """Windows along `axis` summed up."""
    taps = [window.tap(number) for number in range(window.kernel)]
    whole = slice(0, window.output)
    if len(taps) > 1 and taps[0][0] == taps[1][0] == whole:
        result = xp.add(array[_at(axis, taps[0][1])], array[_at(axis, taps[1][1])])
        taps = taps[2:]
    else:
        result = xp.zeros((*array.shape[:axis], window.output, *array.shape[axis + 1 :]), array.dtype)
    for outside, inside in taps:
        target = result[_at(axis, outside)]
        xp.add(target, array[_at(axis, inside)], target)
    return result


def spread(xp: Any, array: Array, window: Window, axis: int) -> Array:
    """Each window's value added to every element of it: the transpose of `total`."""
    shape = (*array.shape[:axis], window.size, *array.shape[axis + 1 :])
    disjoint = window.disjoint()
    result = xp.empty(shape, array.dtype) if disjoint else xp.zeros(shape, array.dtype)
    for number in range(window.kernel):
        outside, inside = window.tap(number)
        if disjoint:
            result[_at(axis, inside)] = array
        else:
            target = result[_at(axis, inside)]
            xp.add(target, array[_at(axis, outside)], target)
    return result


def divisor_function(
    xp: Any, windows: Sequence[Window], with_padding: bool, override: int | None
) -> Callable[[Any], Any]:
    """From a dtype to what each window's sum is divided by: a number, or an array over the output."""
    if override is not None:
        return lambda dtype: dtype.type(override)
    counts = functools.reduce(np.multiply.outer, [it.counts(with_padding) for it in windows])
    if (counts == counts.flat[0]).all():
        return lambda dtype: dtype.type(counts.flat[0])
    return lambda dtype: xp.asarray(counts.astype(dtype))


# Windows that divide a dimension as evenly as it goes


def _intervals(size: int, output: int) -> list[tuple[int, int]]:
    """Begin and end of each window; neighbours share an element where `output` does not divide `size`."""
    return [(it * size // output, -(-(it + 1) * size // output)) for it in range(output)]


def adaptive_mean(xp: Any, array: Array, output: int, axis: int) -> Array:
    result = xp.empty((*array.shape[:axis], output, *array.shape[axis + 1 :]), array.dtype)
    for position, (begin, end) in enumerate(_intervals(array.shape[axis], output)):
        xp.mean(array[_at(axis, slice(begin, end))], axis, out=result[_at(axis, position)])
    return result


def adaptive_spread(xp: Any, array: Array, size: int, axis: int) -> Array:
    result = xp.zeros((*array.shape[:axis], size, *array.shape[axis + 1 :]), array.dtype)
    for position, (begin, end) in enumerate(_intervals(size, array.shape[axis])):
        target = result[_at(axis, slice(begin, end))]
        target += array[_at(axis, slice(position, position + 1))] / array.dtype.type(end - begin)
    return result


def adaptive_largest(xp: Any, array: Array, sizes: Sequence[int]) -> tuple[Array, Array]:
    """The largest elements of windows of planes, (samples, channels, ...), and their indices into flat planes."""
    plane = array.shape[2:]
    places = xp.broadcast_to(xp.arange(prod(plane)).reshape(plane), array.shape)
    for number in range(len(sizes))[::-1]:
        axis, output = number + 2, sizes[number]
        shape = (*array.shape[:axis], output, *array.shape[axis + 1 :])
        best, where = xp.empty(shape, array.dtype), xp.empty(shape, xp.int64)
        for position, (begin, end) in enumerate(_intervals(array.shape[axis], output)):
            part = array[_at(axis, slice(begin, end))]
            chosen = xp.expand_dims(xp.argmax(part, axis), axis)
            one = _at(axis, slice(position, position + 1))
            best[one] = xp.take_along_axis(part, chosen, axis)
            where[one] = xp.take_along_axis(places[_at(axis, slice(begin, end))], chosen, axis)
        array, places = best, where
    return array, places
