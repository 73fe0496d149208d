"""Pooling, one dimension after the other.

Windows are products of intervals, so the last dimension is reduced first and the others of what is left after.  A step
takes one tap of all windows along a dimension, but for the windows in which it lies in the padding; hence nothing is
ever padded.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

from vmflow.kernels.choosing import Problem
from vmflow.kernels.numpy.half import computes_in
from vmflow.kernels.problems.pooling import Window

from . import adaptive_pooling as adaptive_pooling
from .arrays import by_arrays
from .extrema import Extrema
from .scattering import add_at


class _Tap(NamedTuple):
    """One tap of a kernel: which windows have it within the input, and where it is there."""

    windows: slice
    places: slice


def _taps(window: Window) -> list[_Tap]:
    found = []
    for number in range(window.kernel):
        shift = number * window.dilation - window.padding
        low = max(0, -(shift // window.stride))
        high = min(window.output, (window.size - 1 - shift) // window.stride + 1)
        if high > low:
            first = low * window.stride + shift
            stop = first + (high - low - 1) * window.stride + 1
            found.append(_Tap(slice(low, high), slice(first, stop, window.stride)))
    return found


def _at(axis: int, part: Any) -> tuple[Any, ...]:
    """An index that cuts one dimension."""
    return (slice(None),) * axis + (part,)


def _along(windows: Sequence[Window]) -> list[tuple[int, Window]]:
    """The dimensions of images (samples, channels, ...) with the windows there, the last dimension first."""
    return list(enumerate(windows, 2))[::-1]


# Maximum


def _first_places(xp: Any, window: Window) -> Any:
    """For each window, where its first element within the input is."""
    starts = xp.arange(window.output) * window.stride - window.padding
    skipped = xp.maximum(-(starts // window.dilation), 0)
    return starts + skipped * window.dilation


def _largest(xp: Any, extrema: Extrema, window: Window, axis: int) -> Extrema:
    best = extrema.taken(xp, _first_places(xp, window), axis)
    for tap in _taps(window):
        best.part(_at(axis, tap.windows)).improve(xp, extrema.part(_at(axis, tap.places)), last_nan=True)
    return best


@by_arrays("max_pool1d", "max_pool2d", "max_pool3d")
def _max(xp: Any, problem: Problem, array: Any, out: Any) -> None:
    extrema = Extrema(array, None)
    for axis, window in _along(problem.details):
        extrema = _largest(xp, extrema, window, axis)
    xp.copyto(out, extrema.values)


@by_arrays("max_pool1d_with_indices", "max_pool2d_with_indices", "max_pool3d_with_indices")
def _max_with_indices(xp: Any, problem: Problem, array: Any, out: Any, indices: Any) -> None:
    extrema = Extrema.of_planes(xp, array)
    for axis, window in _along(problem.details):
        extrema = _largest(xp, extrema, window, axis)
    xp.copyto(out, extrema.values)
    xp.copyto(indices, extrema.places)


@by_arrays("plane_scatter")
def _plane_scatter(xp: Any, problem: Problem, values: Any, places: Any, out: Any) -> None:
    wide = computes_in(problem.outputs[0].dtype)
    whole = xp.zeros(out.size, wide)
    if out.size:
        # Windows may overlap and share their largest element: each gradient counts.
        add_at(xp, whole, _flat(xp, places, out.shape), values.reshape(-1).astype(wide, copy=False))
    xp.copyto(out, whole.reshape(out.shape), casting="unsafe")


@by_arrays("plane_gather")
def _plane_gather(xp: Any, problem: Problem, array: Any, places: Any, out: Any) -> None:
    if out.size:
        xp.copyto(out, array.reshape(-1)[_flat(xp, places, array.shape)].reshape(out.shape))


def _flat(xp: Any, places: Any, shape: tuple[int, ...]) -> Any:
    """Indices into the planes of an array of this shape, as indices into all planes in a row."""
    planes, plane = shape[0] * shape[1], prod(shape[2:])
    within = places.reshape(planes, prod(places.shape[2:]))
    return (within + (xp.arange(planes) * plane)[:, None]).reshape(-1)


# Mean


def _total(xp: Any, array: Any, window: Window, axis: int) -> Any:
    """Windows along `axis` summed up."""
    result = xp.zeros((*array.shape[:axis], window.output, *array.shape[axis + 1 :]), array.dtype)
    for tap in _taps(window):
        target = result[_at(axis, tap.windows)]
        xp.add(target, array[_at(axis, tap.places)], out=target)
    return result


def _spread(xp: Any, array: Any, window: Window, axis: int) -> Any:
    """Each window's value added to every element of it: the transpose of `_total`."""
    result = xp.zeros((*array.shape[:axis], window.size, *array.shape[axis + 1 :]), array.dtype)
    for tap in _taps(window):
        target = result[_at(axis, tap.places)]
        xp.add(target, array[_at(axis, tap.windows)], out=target)
    return result


def _counts(xp: Any, window: Window, with_padding: bool) -> Any:
    """For each window, how many elements it has, those of the padding included or not."""
    starts = xp.arange(window.output) * window.stride - window.padding
    ends = xp.minimum(starts + window.kernel, window.size + window.padding)
    if with_padding:
        return ends - starts
    return xp.minimum(ends, window.size) - xp.maximum(starts, 0)


def _averaged(xp: Any, problem: Problem, sums: Any) -> Any:
    """Sums of windows, or the gradients by them, divided by how many elements each has."""
    options = problem.attributes
    if options.override is not None:
        return sums / sums.dtype.type(options.override)
    divisors = xp.ones((), sums.dtype)
    for window in problem.details:
        divisors = divisors[..., None] * _counts(xp, window, options.with_padding)
    return sums / divisors.astype(sums.dtype)


@by_arrays("avg_pool1d", "avg_pool2d", "avg_pool3d")
def _mean(xp: Any, problem: Problem, array: Any, out: Any) -> None:
    partial = array.astype(computes_in(problem.inputs[0].dtype), copy=False)
    for axis, window in _along(problem.details):
        partial = _total(xp, partial, window, axis)
    xp.copyto(out, _averaged(xp, problem, partial), casting="unsafe")


@by_arrays("avg_pool1d_gradient", "avg_pool2d_gradient", "avg_pool3d_gradient")
def _mean_gradient(xp: Any, problem: Problem, gradient: Any, out: Any) -> None:
    partial = _averaged(xp, problem, gradient.astype(computes_in(problem.inputs[0].dtype), copy=False))
    for axis, window in _along(problem.details)[::-1]:
        partial = _spread(xp, partial, window, axis)
    xp.copyto(out, partial, casting="unsafe")
