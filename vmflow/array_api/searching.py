"""Indexing, searching, sorting and sets by the array API standard."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

import vmflow as flow
from vmflow.tensors import Tensor


def only_axis(name: str, x: Tensor, axis: int | None) -> int:
    """The axis, which may be left out for one dimension.

    Raises:
        ValueError: if it is needed.
    """
    if axis is not None:
        return axis
    if x.ndim != 1:
        raise ValueError(f"{name}: axis is needed for a tensor of shape {list(x.shape)}")
    return 0


def take(x: Tensor, indices: Tensor, /, *, axis: int | None = None) -> Tensor:
    """The elements at these positions of a dimension; `axis` may be left out for one dimension.

    Raises:
        ValueError: if `axis` is needed.
    """
    return flow.index_select(x, only_axis("take", x, axis), indices)


def take_along_axis(x: Tensor, indices: Tensor, /, *, axis: int = -1) -> Tensor:
    """For each place the element at the position given there."""
    return flow.take_along_dim(x, indices.to(flow.int64), axis)


def argmax(x: Tensor, /, *, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """Where the largest element is; counted through all elements if `axis` is None."""
    return flow.argmax(x, axis, keepdims)


def argmin(x: Tensor, /, *, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """Where the smallest element is; counted through all elements if `axis` is None."""
    return flow.argmin(x, axis, keepdims)


def count_nonzero(x: Tensor, /, *, axis: int | tuple[int, ...] | None = None, keepdims: bool = False) -> Tensor:
    """How many elements are not zero."""
    return flow.sum(x != 0, axis, keepdims)


def nonzero(x: Tensor, /) -> tuple[Tensor, ...]:
    """The positions of elements that are not zero, dimension by dimension; waits for `x`.

    Raises:
        ValueError: for a 0-d tensor.
    """
    if x.ndim == 0:
        raise ValueError("nonzero: a 0-d tensor has no positions")
    found: tuple[Tensor, ...] = flow.nonzero(x, as_tuple=True)
    return found


def searchsorted(x1: Tensor, x2: Tensor, /, *, side: str = "left", sorter: Tensor | None = None) -> Tensor:
    """Where each element of `x2` belongs in the sorted `x1`.

    Args:
        x1: one dimension, in ascending order.
        x2: what to find places for.
        side: "left" for the first fitting place, "right" for the last.
        sorter: positions that put `x1` into order, if it is not.

    Raises:
        ValueError: for another `side`, or if `x1` has not one dimension.
    """
    if x1.ndim != 1:
        raise ValueError(f"searchsorted: x1 must have one dimension, got {list(x1.shape)}")
    return flow.searchsorted(x1, x2, side=side, sorter=sorter)


def argsort(x: Tensor, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """The positions that put a dimension into order."""
    return flow.argsort(x, axis, descending, stable=stable)


def sort(x: Tensor, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """A dimension in order."""
    return flow.sort(x, axis, descending, stable=stable).values


# Different values: on the host, since how many there are depends on the data.  These functions wait for their input.
# Values come in ascending order; every nan is a value of its own.


class UniqueAll(NamedTuple):
    """The result of `unique_all`."""

    values: Tensor
    indices: Tensor
    inverse_indices: Tensor
    counts: Tensor


class UniqueCounts(NamedTuple):
    """The result of `unique_counts`."""

    values: Tensor
    counts: Tensor


class UniqueInverse(NamedTuple):
    """The result of `unique_inverse`."""

    values: Tensor
    inverse_indices: Tensor


def unique_all(x: Tensor, /) -> UniqueAll:
    """The different values, where each is first, which of them each element is, and how often each occurs."""
    array: Any = x.detach().numpy()
    if x.dtype is flow.bfloat16:
        array = array.astype(np.float32)
    found = np.unique_all(array)
    values = flow.tensor(found.values, dtype=x.dtype, device=x.device)
    others = (found.indices, found.inverse_indices, found.counts)
    return UniqueAll(values, *[flow.tensor(other, dtype=flow.int64, device=x.device) for other in others])


def unique_counts(x: Tensor, /) -> UniqueCounts:
    """The different values, and how often each occurs."""
    found = unique_all(x)
    return UniqueCounts(found.values, found.counts)


def unique_inverse(x: Tensor, /) -> UniqueInverse:
    """The different values, and which of them each element is."""
    found = unique_all(x)
    return UniqueInverse(found.values, found.inverse_indices)


def unique_values(x: Tensor, /) -> Tensor:
    """The different values."""
    return unique_all(x).values
