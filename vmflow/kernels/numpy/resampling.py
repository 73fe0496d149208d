"""Resampling (interpolation) by tables: each element of the result is a weighted sum of elements of the input."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from vmflow import dtypes
from vmflow.instructions.blob import Array
from vmflow.kernels.choosing import Function, Problem, builds
from vmflow.kernels.problems.resampling import Along

from .half import in_single


class Table(NamedTuple):
    """For each element of the result along one dimension, the positions and the weights of input elements.

    Both arrays have the shape (result, taps).  An input element of weight 0 has no effect, even if it is infinite.
    """

    places: Array
    weights: Array


def _cubic(distance: Array, sharpness: float) -> Array:
    """Keys' cubic convolution kernel."""
    x, a = abs(distance), sharpness
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return np.where(x < 1, near, np.where(x < 2, far, 0.0))


def _nearest(along: Along) -> Table:
    # In single precision, as in PyTorch, so that elements are rarely chosen otherwise.
    step = np.float32(along.scale) if along.scale else np.float32(along.source) / np.float32(along.target)
    targets = np.arange(along.target, dtype=np.float32)
    if along.filter == "nearest-exact":
        targets = targets + np.float32(0.5)
    places = np.minimum(np.floor(targets * step).astype(np.int64), along.source - 1)
    return Table(places[:, None], np.ones((along.target, 1)))


def _interpolated(along: Along) -> Table:
    targets = np.arange(along.target, dtype=np.float64)
    centres = targets * along.step() if along.align_corners else (targets + 0.5) * along.step() - 0.5
    last = along.source - 1
    if along.filter == "linear":
        centres = np.clip(centres, 0, last)
        below = np.floor(centres).astype(np.int64)
        part = centres - below
        return Table(np.stack([below, np.minimum(below + 1, last)], 1), np.stack([1 - part, part], 1))
    taps = np.floor(centres)[:, None] + np.arange(-1, 3)
    return Table(np.clip(taps, 0, last).astype(np.int64), _cubic(taps - centres[:, None], -0.75))


def _antialiased(along: Along) -> Table:
    """Make the table like Pillow: the filter is widened by a step above 1, cut off at the edges, and sums up to 1."""
    step = along.step()
    widening = max(step, 1.0)
    support = (1.0 if along.filter == "linear" else 2.0) * widening
    centres = step * (np.arange(along.target) + 0.5)
    first = np.maximum((centres - support + 0.5).astype(np.int64), 0)
    behind = np.minimum((centres + support + 0.5).astype(np.int64), along.source)
    taps = first[:, None] + np.arange(max(int((behind - first).max()), 1))
    distance = (taps - centres[:, None] + 0.5) / widening
    weights = np.maximum(1 - abs(distance), 0.0) if along.filter == "linear" else _cubic(distance, -0.5)
    weights = np.where(taps < behind[:, None], weights, 0.0)
    total = weights.sum(1, keepdims=True)
    return Table(np.minimum(taps, along.source - 1), weights / np.where(total == 0, 1.0, total))


def _transposed(table: Table, size: int) -> Table:
    """Return the table of the transposed linear map, for gradients: its result has `size` elements."""
    count = table.places.shape[1]
    places, weights = table.places.reshape(-1), table.weights.reshape(-1)
    used = weights != 0
    places, weights = places[used], weights[used]
    origins = np.repeat(np.arange(table.places.shape[0]), count)[used]
    order = np.argsort(places, kind="stable")
    places, weights, origins = places[order], weights[order], origins[order]
    counts = np.bincount(places, minlength=size)
    starts = np.cumsum(counts) - counts
    slots = np.arange(len(places)) - starts[places]
    wide = max(int(counts.max()), 1)
    result = Table(np.zeros((size, wide), np.int64), np.zeros((size, wide)))
    result.places[places, slots] = origins
    result.weights[places, slots] = weights
    return result


@functools.lru_cache(256)
def table(along: Along, transposed: bool) -> Table:
    if transposed:
        return _transposed(table(along, False), along.source)
    if along.filter.startswith("nearest"):
        return _nearest(along)
    return _antialiased(along) if along.antialias else _interpolated(along)


@builds("resample")
def _resample(problem: Problem) -> Function:
    (source,) = problem.inputs
    every: Sequence[Along]
    every, transposed = problem.attributes
    chooses = not transposed and every[0].filter.startswith("nearest")
    tables = list(enumerate([table(value, transposed) for value in every], 2))[::-1]
    unread = [[np.flatnonzero(weights == 0) for weights in each.weights.T] for _, each in tables]
    half = dtypes.is_half(source.dtype)
    compute = np.dtype(np.float32) if half else source.dtype.numpy

    def kernel(array: Array, out: Array | None) -> Array:
        for (axis, (places, weights)), zeros in zip(tables, unread, strict=True):
            if chooses:
                array = np.take(array, places[:, 0], axis)
                continue
            spread = (1,) * (array.ndim - axis - 1)
            factors = weights.astype(compute)
            result = None
            for tap in range(places.shape[1]):
                part = np.take(array, places[:, tap], axis)
                part *= factors[:, tap].reshape(-1, *spread)
                if len(zeros[tap]):
                    part[(..., zeros[tap], *[slice(None)] * len(spread))] = 0
                result = part if result is None else np.add(result, part, result)
            array = result
        return array

    return kernel if chooses else in_single(kernel, half)
