"""Pooling: unless C computes it, one dimension after the other.

Elements of a window are called taps.  The last dimension is reduced first and then the others of the result: kernel
height + kernel width steps in an image, each over a whole array, instead of their product.  A step leaves out the
windows whose tap lies in the padding.  Adaptive pooling takes a step for each window along a dimension.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from vmflow import dtypes
from vmflow.instructions.blob import Array
from vmflow.kernels.choosing import Function, Kernel, Problem, builds, kernel_of
from vmflow.kernels.native.images import MaxPool, PlaneScatter
from vmflow.kernels.problems.pooling import Window

from .half import in_single


def _tap(window: Window, number: int) -> tuple[slice, slice]:
    """Return two slices: the windows whose tap `number` lies within the input, and the positions of these taps."""
    shift = number * window.dilation - window.padding
    low = max(0, -(shift // window.stride))
    high = min(window.output, (window.size - 1 - shift) // window.stride + 1)
    if high <= low:
        return slice(0, 0), slice(0, 0)
    first = low * window.stride + shift
    return slice(low, high), slice(first, first + (high - low - 1) * window.stride + 1, window.stride)


def _starts(window: Window) -> Array:
    """Return for each window the position of its first tap; below 0 in the padding."""
    return np.arange(window.output) * window.stride - window.padding


def _first_taps(window: Window) -> Array:
    """Return for each window the number of its first tap within the input."""
    return np.maximum(0, -(_starts(window) // window.dilation))


def _counts(window: Window, with_padding: bool) -> Array:
    """Return for each window the number of its elements within the input, or, `with_padding`, also in the padding."""
    starts = _starts(window)
    ends = np.minimum(starts + window.kernel, window.size + window.padding)
    if with_padding:
        return ends - starts
    return np.minimum(ends, window.size) - np.maximum(starts, 0)


class _Planes:
    """The layout of planes (one per sample and channel, of any number of dimensions) while they are reduced.

    numpy's loops run along the last dimension, which is short in tiny images.  For many of these, the planes'
    dimensions are moved to the front first, and back in the result.

    Attributes:
        windows: the windows along each dimension.
        first: the first dimension of a plane in arrays of this layout; see `inside`.
    """

    def __init__(self, shape: tuple[int, ...], windows: Sequence[Window]) -> None:
        self.count = shape[0] * shape[1]
        self.samples, self.channels = shape[:2]
        self.windows = tuple(windows)
        self.last = self.count >= 64 and prod([window.size for window in windows]) <= 128
        self.first = 0 if self.last else 1

    def output(self) -> tuple[int, ...]:
        """Return the shape of the result, with a value for each window."""
        return self.samples, self.channels, *[window.output for window in self.windows]

    def along(self) -> list[tuple[int, Window]]:
        """Return the planes' dimensions in this layout, each with its windows, the last dimension first."""
        return list(enumerate(self.windows, self.first))[::-1]

    def inside(self, array: Array) -> Array:
        """Return an array (samples, channels, ...) as (planes, ...); or, if that pays, as (..., planes)."""
        size = array.shape[2:]
        if self.last:
            return np.ascontiguousarray(array.reshape(self.count, -1).T).reshape(*size, self.count)
        return array.reshape(self.count, *size)

    def outside(self, array: Array) -> Array:
        """The inverse of `inside`."""
        size = array.shape[:-1] if self.last else array.shape[1:]
        if self.last:
            array = np.ascontiguousarray(array.reshape(-1, self.count).T)
        return array.reshape(self.samples, self.channels, *size)

    def broadcast(self, vector: Array, axis: int) -> Array:
        """Return a vector in a shape that broadcasts along dimension `axis` of arrays in this layout."""
        return vector.reshape(vector.shape + (1,) * (len(self.windows) - axis))


def _at(axis: int, part: Any) -> tuple[Any, ...]:
    """Return an index that takes `part` of dimension `axis`."""
    return (slice(None),) * axis + (part,)


# Maximum


def _initial(array: Array, window: Window, axis: int) -> Array:
    """Return each window's first element within the input."""
    outside, inside = _tap(window, 0)
    if outside == slice(0, window.output):
        return array[_at(axis, inside)].copy(order="C")
    return np.take(array, _starts(window) + _first_taps(window) * window.dilation, axis)


def _largest(array: Array, window: Window, axis: int) -> Array:
    """Reduce each window along `axis` to its largest element, or to nan if it has one."""
    best = _initial(array, window, axis)
    for number in range(1, window.kernel):
        outside, inside = _tap(window, number)
        target = best[_at(axis, outside)]
        np.maximum(target, array[_at(axis, inside)], out=target)
    return best


def _largest_and_where(
    planes: _Planes, array: Array, window: Window, axis: int, carried: Sequence[Array], nan: bool
) -> tuple[Array, Array, list[Array]]:
    """Like `_largest`; return also the number of each maximum's tap, and the elements of `carried` at the maxima.

    Args:
        nan: whether `array` has a nan.
    """
    small = np.dtype(np.uint8) if window.kernel <= 256 else np.dtype(np.int32)
    best = _initial(array, window, axis)
    chosen = np.empty(best.shape, small)
    chosen[...] = planes.broadcast(_first_taps(window).astype(small), axis)
    moved = [_initial(value, window, axis) for value in carried]
    for number in range(1, window.kernel):
        outside, inside = _tap(window, number)
        target, candidate = best[_at(axis, outside)], array[_at(axis, inside)]
        better = candidate > target
        if nan:
            # Comparisons with nan are false: the last nan wins, as in PyTorch.
            better |= np.isnan(candidate)
        np.maximum(target, candidate, out=target)
        # Arithmetic, since masked copies are slow if the mask is irregular.
        place = chosen[_at(axis, outside)]
        np.maximum(place, better * small.type(number), out=place)
        for along, source in zip(moved, carried, strict=True):
            place = along[_at(axis, outside)]
            difference = np.bitwise_xor(place, source[_at(axis, inside)])
            difference *= better
            place ^= difference
    return best, chosen, moved


def _in_c(planes: _Planes, dtype: np.dtype[Any]) -> MaxPool | None:
    """Return the C function of max pooling; None if C has none for this dtype and these windows, or may not run now."""
    windows = planes.windows
    if len(windows) > 2:
        return None
    # One-dimensional pooling is pooling of an image of one row.
    down, across = windows if len(windows) == 2 else (Window(1, 1, 1, 1, 0, 1), *windows)
    sizes = [size for pair in zip(down, across, strict=True) for size in pair]
    return MaxPool.of(dtype, (planes.count, *sizes), planes.output())


@builds("max_pool1d", "max_pool2d", "max_pool3d")
def _max_values(problem: Problem) -> Function:
    planes = _Planes(problem.inputs[0].shape, problem.details)
    native = _in_c(planes, problem.inputs[0].dtype.numpy)

    def values(array: Array, out: Array | None) -> Array:
        found = None if native is None else native.largest(array, out)
        if found is not None:
            return found[0]
        source = planes.inside(array)
        for axis, window in planes.along():
            source = _largest(source, window, axis)
        return planes.outside(source)

    return values


@builds("max_pool1d_with_indices", "max_pool2d_with_indices", "max_pool3d_with_indices")
def _max_with_indices(problem: Problem) -> Kernel:
    planes = _Planes(problem.inputs[0].shape, problem.details)
    # The distance in a flat plane between neighbours along each dimension.
    steps = [prod([window.size for window in planes.windows[number + 1 :]]) for number in range(len(planes.windows))]
    corners: Array = np.zeros((), np.int64)
    for (axis, window), step in zip(planes.along()[::-1], steps, strict=True):
        corners = corners + planes.broadcast(_starts(window) * step, axis)
    native = _in_c(planes, problem.inputs[0].dtype.numpy)

    def with_indices(array: Array, out: Any) -> tuple[Array, ...]:
        to, to_indices = (None, None) if out is None else out
        found = None if native is None else native.largest(array, to, to_indices, True)
        if found is not None:
            return found
        nan = array.dtype.kind not in "iu" and bool(np.isnan(array).any())
        best = planes.inside(array)
        taps: list[Array] = []  # the maxima's taps along the dimensions reduced so far
        for axis, window in planes.along():
            best, chosen, moved = _largest_and_where(planes, best, window, axis, taps, nan)
            taps = [chosen, *moved]
        spacings = [window.dilation * step for window, step in zip(planes.windows, steps, strict=True)]
        indices = np.multiply(taps[0], spacings[0], dtype=np.int64)
        indices += corners
        for tap, spacing in zip(taps[1:], spacings[1:], strict=True):
            indices += tap if spacing == 1 else np.multiply(tap, spacing, dtype=np.int64)
        return planes.outside(best), planes.outside(indices)

    if native is None:
        return Kernel(with_indices)
    return Kernel(with_indices, placed=lambda inputs, outputs, scratch: native.placed(*inputs, *outputs))


@builds("plane_scatter")
def _plane_scatter(problem: Problem) -> Function:
    values, _ = problem.inputs
    (output,) = problem.outputs
    shape, numel, plane = tuple(output.shape), output.numel, prod(output.shape[2:])
    to = output.dtype.numpy
    wide = dtypes.float32.numpy if dtypes.is_half(values.dtype) else to
    in_c = PlaneScatter.of(values.dtype.numpy, shape)

    def kernel(array: Array, places: Array, out: Array | None) -> Array:
        found = None if in_c is None else in_c.call(array, places, out)
        if found is not None:
            return found
        whole = np.zeros(numel, wide)
        if numel:
            # Overlapping windows may share their largest element: all their gradients are added.
            np.add.at(whole, _flat(places, plane), array.reshape(-1).astype(wide, copy=False))
        return whole.reshape(shape).astype(to, copy=False)

    return kernel


@kernel_of("plane_gather")
def _plane_gather(problem: Problem, array: Array, places: Array, out: Array | None) -> Array:
    (output,) = problem.outputs
    if not output.numel:
        return np.empty(output.shape, output.dtype.numpy)
    return array.reshape(-1)[_flat(places, prod(array.shape[2:]))].reshape(output.shape)


def _flat(indices: Array, plane: int) -> Array:
    """Turn indices into planes of `plane` elements into a vector of indices into the flat array of all planes."""
    planes = indices.shape[0] * indices.shape[1]
    return (indices.reshape(planes, -1) + np.arange(0, planes * plane, plane)[:, None]).reshape(-1)


# Mean


def _total(array: Array, window: Window, axis: int) -> Array:
    """Sum up the elements of each window along `axis`."""
    taps = [_tap(window, number) for number in range(window.kernel)]
    whole = slice(0, window.output)
    if len(taps) > 1 and taps[0][0] == taps[1][0] == whole:
        result = np.add(array[_at(axis, taps[0][1])], array[_at(axis, taps[1][1])])
        taps = taps[2:]
    else:
        result = np.zeros((*array.shape[:axis], window.output, *array.shape[axis + 1 :]), array.dtype)
    for outside, inside in taps:
        target = result[_at(axis, outside)]
        np.add(target, array[_at(axis, inside)], target)
    return result


def _spread(array: Array, window: Window, axis: int) -> Array:
    """Add each window's value to all of its elements along `axis`: the transpose of `_total`."""
    shape = (*array.shape[:axis], window.size, *array.shape[axis + 1 :])
    disjoint = window.disjoint()
    result = np.empty(shape, array.dtype) if disjoint else np.zeros(shape, array.dtype)
    for number in range(window.kernel):
        outside, inside = _tap(window, number)
        if disjoint:
            result[_at(axis, inside)] = array
        else:
            target = result[_at(axis, inside)]
            np.add(target, array[_at(axis, outside)], target)
    return result


def _divisor(windows: Sequence[Window], with_padding: bool, override: int | None) -> Callable[[Any], Any]:
    """Return a function from a dtype to the divisors of windows' sums: a number, or an array over the output."""
    if override is not None:
        return lambda dtype: dtype.type(override)
    counts = functools.reduce(np.multiply.outer, [_counts(window, with_padding) for window in windows])
    if (counts == counts.flat[0]).all():
        return lambda dtype: dtype.type(counts.flat[0])
    return lambda dtype: counts.astype(dtype)


@builds("avg_pool1d", "avg_pool2d", "avg_pool3d")
def _mean(problem: Problem) -> Function:
    (source,) = problem.inputs
    planes = _Planes(source.shape, problem.details)
    divisor = _divisor(planes.windows, problem.attributes.with_padding, problem.attributes.override)

    def kernel(array: Array, out: Array | None) -> Array:
        partial = planes.inside(array)
        for axis, window in planes.along():
            partial = _total(partial, window, axis)
        result = planes.outside(partial)
        return np.divide(result, divisor(array.dtype), result)

    return in_single(kernel, dtypes.is_half(source.dtype))


@builds("avg_pool1d_gradient", "avg_pool2d_gradient", "avg_pool3d_gradient")
def _mean_gradient(problem: Problem) -> Function:
    (output,) = problem.outputs
    planes = _Planes(output.shape, problem.details)
    divisor = _divisor(planes.windows, problem.attributes.with_padding, problem.attributes.override)

    def kernel(array: Array, out: Array | None) -> Array:
        partial = planes.inside(np.divide(array, divisor(array.dtype)))
        for axis, window in planes.along()[::-1]:
            partial = _spread(partial, window, axis)
        return planes.outside(partial)

    return in_single(kernel, dtypes.is_half(output.dtype))


# Adaptive pooling: windows spread evenly over a dimension


def _intervals(size: int, output: int) -> list[tuple[int, int]]:
    """Return begin and end of each window; neighbours may share an element where `output` does not divide `size`."""
    return [(index * size // output, -(-(index + 1) * size // output)) for index in range(output)]


def _adaptive_mean(array: Array, sizes: Sequence[int]) -> Array:
    for axis, output in list(enumerate(sizes, 2))[::-1]:
        result = np.empty((*array.shape[:axis], output, *array.shape[axis + 1 :]), array.dtype)
        for position, (begin, end) in enumerate(_intervals(array.shape[axis], output)):
            np.mean(array[_at(axis, slice(begin, end))], axis, out=result[_at(axis, position)])
        array = result
    return array


def _adaptive_spread(array: Array, sizes: Sequence[int]) -> Array:
    for axis, size in enumerate(sizes, 2):
        result = np.zeros((*array.shape[:axis], size, *array.shape[axis + 1 :]), array.dtype)
        for position, (begin, end) in enumerate(_intervals(size, array.shape[axis])):
            target = result[_at(axis, slice(begin, end))]
            target += array[_at(axis, slice(position, position + 1))] / array.dtype.type(end - begin)
        array = result
    return array


def _adaptive_largest(array: Array, sizes: Sequence[int]) -> tuple[Array, Array]:
    """Return the windows' largest elements, (samples, channels, ...), and their indices into their flat planes."""
    plane = array.shape[2:]
    places = np.broadcast_to(np.arange(prod(plane)).reshape(plane), array.shape)
    for axis, output in list(enumerate(sizes, 2))[::-1]:
        shape = (*array.shape[:axis], output, *array.shape[axis + 1 :])
        best, where = np.empty(shape, array.dtype), np.empty(shape, np.int64)
        for position, (begin, end) in enumerate(_intervals(array.shape[axis], output)):
            part = array[_at(axis, slice(begin, end))]
            chosen = np.expand_dims(_last_largest(part, axis), axis)
            one = _at(axis, slice(position, position + 1))
            best[one] = np.take_along_axis(part, chosen, axis)
            where[one] = np.take_along_axis(places[_at(axis, slice(begin, end))], chosen, axis)
        array, places = best, where
    return array, places


def _last_largest(array: Array, axis: int) -> Array:
    """Return the index of the largest element along an axis: of equal ones the first, of nans the last, as PyTorch."""
    chosen: Array = np.argmax(array, axis)
    nans = np.isnan(array) if array.dtype.kind not in "iu" else None
    if nans is None or not nans.any():
        return chosen
    return np.where(nans.any(axis), array.shape[axis] - 1 - np.argmax(np.flip(nans, axis), axis), chosen)


@builds("adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d")
def _adaptive_means(problem: Problem) -> Function:
    wanted, _ = problem.attributes
    return in_single(lambda array, out: _adaptive_mean(array, wanted), dtypes.is_half(problem.inputs[0].dtype))


@builds("adaptive_avg_pool1d_gradient", "adaptive_avg_pool2d_gradient", "adaptive_avg_pool3d_gradient")
def _adaptive_means_gradient(problem: Problem) -> Function:
    _, given = problem.attributes
    return in_single(lambda array, out: _adaptive_spread(array, given), dtypes.is_half(problem.inputs[0].dtype))


@kernel_of("adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d")
def _adaptive_maxima(problem: Problem, array: Array, out: Any) -> tuple[Array, Array]:
    return _adaptive_largest(array, problem.attributes)
