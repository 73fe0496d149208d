"""Pooling by windows that divide a dimension as evenly as it goes.

Neighbouring windows share an element where their number does not divide the size, so their lengths differ by one.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from vmflow.kernels.choosing import Problem
from vmflow.kernels.numpy.half import computes_in

from .arrays import by_arrays
from .extrema import Extrema


class _Even(NamedTuple):
    """Windows along one dimension.

    Attributes:
        starts: where each begins.
        lengths: how many elements each has.
        longest: the largest length, or a little more.
    """

    starts: Any
    lengths: Any
    longest: int

    @classmethod
    def of(cls, xp: Any, size: int, output: int) -> _Even:
        """So many windows of so many elements."""
        numbers = xp.arange(output)
        starts = numbers * size // output
        lengths = -(-(numbers + 1) * size // output) - starts
        return cls(starts, lengths, -(-size // output) + 1 if size % output else size // output)

    def places(self, xp: Any, tap: int) -> Any:
        """Where a tap of each window is; the last element stands in for the taps that a window lacks."""
        return self.starts + xp.minimum(self.lengths - 1, tap)

    def total(self, xp: Any, array: Any, axis: int) -> Any:
        """Windows along `axis` summed up."""
        shape = (-1,) + (1,) * (array.ndim - axis - 1)
        result = xp.take(array, self.starts, axis=axis)
        for tap in range(1, self.longest):
            more = xp.take(array, self.places(xp, tap), axis=axis)
            there = (self.lengths > tap).reshape(shape)
            xp.add(result, xp.where(there, more, xp.zeros_like(more)), out=result)
        return result

    def divided(self, array: Any, axis: int) -> Any:
        """The values of windows along `axis`, divided by the lengths of the windows."""
        return array / self.lengths.astype(array.dtype).reshape((-1,) + (1,) * (array.ndim - axis - 1))


@by_arrays("adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d")
def _means(xp: Any, problem: Problem, array: Any, out: Any) -> None:
    if not out.size:
        return
    array = array.astype(computes_in(problem.inputs[0].dtype), copy=False)
    for axis in reversed(range(2, array.ndim)):
        windows = _Even.of(xp, array.shape[axis], out.shape[axis])
        array = windows.divided(windows.total(xp, array, axis), axis)
    xp.copyto(out, array, casting="unsafe")


@by_arrays("adaptive_avg_pool1d_gradient", "adaptive_avg_pool2d_gradient", "adaptive_avg_pool3d_gradient")
def _means_gradient(xp: Any, problem: Problem, gradient: Any, out: Any) -> None:
    if not gradient.size:
        out.fill(0)
        return
    gradient = gradient.astype(computes_in(problem.inputs[0].dtype), copy=False)
    for axis in range(2, gradient.ndim):
        size, number = out.shape[axis], gradient.shape[axis]
        shares = _Even.of(xp, size, number).divided(gradient, axis)
        # The windows that an element is in are those that so many elements divide the windows into.
        gradient = _Even.of(xp, number, size).total(xp, shares, axis)
    xp.copyto(out, gradient, casting="unsafe")


@by_arrays("adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d")
def _maxima(xp: Any, problem: Problem, array: Any, out: Any, indices: Any) -> None:
    if not out.size:
        return
    extrema = Extrema.of_planes(xp, array)
    for axis in reversed(range(2, array.ndim)):
        windows = _Even.of(xp, array.shape[axis], out.shape[axis])
        best = extrema.taken(xp, windows.starts, axis)
        for tap in range(1, windows.longest):
            best.improve(xp, extrema.taken(xp, windows.places(xp, tap), axis), last_nan=False)
        extrema = best
    xp.copyto(out, extrema.values)
    xp.copyto(indices, extrema.places)
