"""Positions of elements by their order: sorting, the k largest or smallest, an element of a rank, the most frequent."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TypeVar

import numpy as np

from vmflow.instructions.blob import Array
from vmflow.kernels.choosing import Problem, kernel_of

# find(problem, array of at least one dimension, in a dtype that numpy can sort) -> indices
Find = TypeVar("Find", bound=Callable[..., Array])


def comparable(array: Array) -> Array:
    """Return the array in a dtype that numpy sorts, nan last: float32 for bfloat16, others as they are."""
    # Of vmflow's dtypes only bfloat16 is of kind "V"; naming its dtype here would import ml_dtypes.
    return array.astype(np.float32) if array.dtype.kind == "V" else array


def _order(array: Array, dim: int, descending: bool) -> Array:
    """Return the indices that sort `array` along `dim`; equal elements keep their order."""
    if not descending:
        return np.argsort(array, axis=dim, kind="stable")
    backwards = np.argsort(np.flip(array, dim), axis=dim, kind="stable")
    return array.shape[dim] - 1 - np.flip(backwards, dim)


def _finds(op: str) -> Callable[[Find], Find]:
    """Declare that the decorated ``find(problem, array)`` computes the indices that `op` returns."""

    def declare(find: Find) -> Find:
        @kernel_of(op)
        @wraps(find)
        def kernel(problem: Problem, array: Array, out: Array | None) -> Array:
            if array.ndim == 0:
                return np.zeros((), np.int64)
            return np.ascontiguousarray(find(problem, comparable(array)))

        return find

    return declare


@_finds("argsort")
def _argsort(problem: Problem, array: Array) -> Array:
    return _order(array, *problem.attributes)


@_finds("topk")
def _topk(problem: Problem, array: Array) -> Array:
    k, dim, largest = problem.attributes
    size = array.shape[dim]
    array = np.moveaxis(array, dim, -1)
    if 0 < k < size // 4:
        # Sorting a few of many is cheaper after a partition.
        parted = np.argpartition(array, size - k if largest else k - 1, axis=-1)
        chosen = np.sort(parted[..., size - k :] if largest else parted[..., :k], axis=-1)
        order = _order(np.take_along_axis(array, chosen, -1), -1, largest)
        indices = np.take_along_axis(chosen, order, -1)
    else:
        indices = _order(array, -1, largest)[..., :k]
    return np.moveaxis(indices, -1, dim)


@_finds("element_of_rank")
def _rank(problem: Problem, array: Array) -> Array:
    _, place, dim, nan_wins = problem.attributes
    chosen = np.take(_order(array, dim, False), [place], axis=dim)
    if nan_wins and array.dtype.kind == "f":
        nans = np.isnan(array)
        first = np.argmax(nans, axis=dim, keepdims=True)
        chosen = np.where(nans.any(axis=dim, keepdims=True), first, chosen)
    return chosen


@_finds("mode")
def _mode(problem: Problem, array: Array) -> Array:
    (dim,) = problem.attributes
    rows, size = np.moveaxis(array, dim, -1), array.shape[dim]
    order = np.argsort(rows, axis=-1, kind="stable")
    ordered = np.take_along_axis(rows, order, -1)
    starts = np.zeros(rows.shape, np.int64)
    starts[..., 1:] = np.where(ordered[..., 1:] != ordered[..., :-1], np.arange(1, size), 0)
    run = np.arange(size) - np.maximum.accumulate(starts, axis=-1)
    # `run` counts the equal elements before each: its first maximum is at the last copy of the smallest mode.
    chosen = np.take_along_axis(order, run.argmax(-1, keepdims=True), -1)
    return np.moveaxis(chosen, -1, dim)
