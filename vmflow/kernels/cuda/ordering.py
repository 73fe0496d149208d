"""Where elements are by their order: sorting, the largest few, the one of a rank, the most frequent one."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import numpy as np

from vmflow.kernels.choosing import Problem

from .arrays import by_arrays
from .bits import comparable

# find(xp, problem, array of at least one dimension and element, which the array module sorts) -> indices
Find = TypeVar("Find", bound=Callable[..., Any])


def _order(xp: Any, array: Any, dim: int, descending: bool) -> Any:
    """The indices that sort `array`; equal elements keep their order, as all sorting of CuPy lets them."""
    if not descending:
        return xp.argsort(array, axis=dim, kind="stable")
    backwards = xp.argsort(xp.flip(array, dim), axis=dim, kind="stable")
    return array.shape[dim] - 1 - xp.flip(backwards, dim)


def _finds(op: str) -> Callable[[Find], Find]:
    """Declare that ``function(xp, problem, array)`` finds the indices that this op wants."""

    def declare(find: Find) -> Find:
        @by_arrays(op)
        @wraps(find)
        def kernel(xp: Any, problem: Problem, array: Any, out: Any) -> None:
            if not array.ndim:
                out.fill(0)
            elif array.size:
                xp.copyto(out, find(xp, problem, comparable(array)))

        return find

    return declare


@_finds("argsort")
def _argsort(xp: Any, problem: Problem, array: Any) -> Any:
    return _order(xp, array, *problem.attributes)


@_finds("topk")
def _topk(xp: Any, problem: Problem, array: Any) -> Any:
    k, dim, largest = problem.attributes
    order = _order(xp, xp.moveaxis(array, dim, -1), -1, largest)
    return xp.moveaxis(order[..., :k], -1, dim)


@_finds("element_of_rank")
def _rank(xp: Any, problem: Problem, array: Any) -> Any:
    _, place, dim, nan_wins = problem.attributes
    chosen = xp.moveaxis(xp.moveaxis(_order(xp, array, dim, False), dim, -1)[..., place : place + 1], -1, dim)
    if nan_wins and array.dtype.kind == "f":
        nans = xp.isnan(array)
        first = xp.argmax(nans, axis=dim, keepdims=True)
        chosen = xp.where(xp.any(nans, axis=dim, keepdims=True), first, chosen)
    return chosen


@_finds("mode")
def _mode(xp: Any, problem: Problem, array: Any) -> Any:
    (dim,) = problem.attributes
    rows, size = xp.moveaxis(array, dim, -1), array.shape[dim]
    order = xp.argsort(rows, axis=-1, kind="stable")
    ordered = xp.take_along_axis(rows, order, -1)
    starts = xp.zeros(rows.shape, np.int64)
    starts[..., 1:] = xp.where(ordered[..., 1:] != ordered[..., :-1], xp.arange(1, size), 0)
    run = xp.arange(size) - _highest_so_far(xp, starts)
    # The first longest run is that of the smallest of the most frequent; it is longest at its last element.
    last = xp.argmax(run, axis=-1, keepdims=True)
    return xp.moveaxis(xp.take_along_axis(order, last, -1), -1, dim)


def _highest_so_far(xp: Any, array: Any) -> Any:
    """The highest element of each row up to each, of neighbours in distances of 1, 2, 4 and so on."""
    distance = 1
    while distance < array.shape[-1]:
        later = xp.maximum(array[..., distance:], array[..., :-distance])
        array = xp.concatenate([array[..., :distance], later], -1)
        distance *= 2
    return array
