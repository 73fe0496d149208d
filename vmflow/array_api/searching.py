"""Indexing, searching, sorting and sets by the array API standard, version 2024.12."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import vmflow as flow
from vmflow.operands import check_tensors
from vmflow.ops.table import none_listed
from vmflow.tensors import Tensor

Axes = int | tuple[int, ...] | None


def along(reduce: Callable[..., Tensor], x: Tensor, axis: Axes, keepdims: bool) -> Tensor:
    """Reduce the dimensions `axis` of `x`; with `axis` () reduce each element alone (`vmflow` would reduce all)."""
    return reduce(x.unsqueeze(-1), -1) if none_listed(axis) else reduce(x, axis, keepdim=keepdims)


def only_axis(name: str, x: Tensor, axis: int | None) -> int:
    """The dimension `axis`; 0 if `axis` is None and `x` is a vector.  Errors name the function `name`.

    Raises:
        ValueError: if `axis` is None and `x` is no vector.
    """
    if axis is not None:
        return axis
    if x.ndim != 1:
        raise ValueError(f"{name}: expected an axis for a tensor of shape {list(x.shape)}")
    return 0


def take(x: Tensor, indices: Tensor, /, *, axis: int | None = None) -> Tensor:
    """The slices of `x` at `indices` of the dimension `axis`.

    Args:
        x: of any shape.
        indices: an integer vector.
        axis: the dimension; optional for a vector.

    Raises:
        TypeError: if the indices are no integers.
        ValueError: if `axis` is missing and `x` is no vector, or `indices` has several dimensions.
        IndexError: if there is no dimension `axis`; when the result is read, if an index is negative or too large.

    Example:
        >>> flow.array_api.take(flow.tensor([5, 6, 7]), flow.tensor([2, 0]))
        tensor([7, 5])
    """
    check_tensors("take", x)
    return flow.index_select(x, only_axis("take", x, axis), indices)


def take_along_axis(x: Tensor, indices: Tensor, /, *, axis: int = -1) -> Tensor:
    """The elements of `x` at `indices` along `axis`, as `vmflow.take_along_dim`: ``x[i, indices[i, j]]`` for matrices.

    Raises:
        TypeError: if the indices are no integers.
        ValueError: if the numbers of dimensions differ, or the other sizes do not broadcast.
        IndexError: if there is no dimension `axis`; when the result is read, if an index is negative or too large.

    Example:
        >>> flow.array_api.take_along_axis(flow.tensor([[5, 6], [7, 8]]), flow.tensor([[1], [0]]))
        tensor([[6],
                [7]])
    """
    check_tensors("take_along_axis", x, indices)
    return flow.take_along_dim(x, indices, axis)


def argmax(x: Tensor, /, *, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """The index of the largest element along `axis`; in the flattened tensor if `axis` is None.

    Raises:
        TypeError: if `x` is complex.
        IndexError: if there is no dimension `axis`, or no element along it.

    Example:
        >>> flow.array_api.argmax(flow.tensor([3, 9, 5]))
        tensor(1)
    """
    return flow.argmax(x, axis, keepdims)


def argmin(x: Tensor, /, *, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """The index of the smallest element along `axis`; in the flattened tensor if `axis` is None.

    Raises:
        TypeError: if `x` is complex.
        IndexError: if there is no dimension `axis`, or no element along it.

    Example:
        >>> flow.array_api.argmin(flow.tensor([3, 9, 1]))
        tensor(2)
    """
    return flow.argmin(x, axis, keepdims)


def count_nonzero(x: Tensor, /, *, axis: int | tuple[int, ...] | None = None, keepdims: bool = False) -> Tensor:
    """The number of non-zero elements along the dimensions `axis`; of all elements if `axis` is None.

    Raises:
        ValueError: if a dimension is named twice.
        IndexError: if a dimension does not exist.

    Example:
        >>> flow.array_api.count_nonzero(flow.tensor([0, 3, 4]))
        tensor(2)
    """
    check_tensors("count_nonzero", x)
    return along(flow.sum, x != 0, axis, keepdims)


def nonzero(x: Tensor, /) -> tuple[Tensor, ...]:
    """The indices of non-zero elements, a vector for each dimension.  Waits until `x` is computed.

    Raises:
        ValueError: if `x` is 0-d.

    Example:
        >>> flow.array_api.nonzero(flow.tensor([0, 3, 4]))
        (tensor([1, 2]),)
    """
    check_tensors("nonzero", x)
    if x.ndim == 0:
        raise ValueError("nonzero: a 0-d tensor has no positions")
    indices: tuple[Tensor, ...] = flow.nonzero(x, as_tuple=True)
    return indices


def searchsorted(x1: Tensor, x2: Tensor, /, *, side: str = "left", sorter: Tensor | None = None) -> Tensor:
    """The index in the sorted vector `x1` at which each element of `x2` could be inserted in order.

    Args:
        x1: a vector in ascending order.
        x2: the elements to insert, of any shape.
        side: "left" for the first such index, "right" for the last.
        sorter: indices that sort `x1`, if it is not sorted.

    Raises:
        TypeError: for complex tensors, or a `sorter` that is no integer tensor.
        ValueError: for another `side`, if `x1` is no vector, or if `sorter` has another shape.
        IndexError: when the result is read, if `sorter` has an index that `x1` lacks.

    Example:
        >>> flow.array_api.searchsorted(flow.tensor([1, 3, 5]), flow.tensor([2, 5]))
        tensor([1, 2])
    """
    check_tensors("searchsorted", x1, optional=(sorter,))
    if x1.ndim != 1:
        raise ValueError(f"searchsorted: x1 must have one dimension, got {list(x1.shape)}")
    return flow.searchsorted(x1, x2, side=side, sorter=sorter)


def argsort(x: Tensor, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """The indices that sort the dimension `axis`; equal elements keep their order, also if `stable` is False.

    Raises:
        TypeError: if `x` is complex.
        IndexError: if there is no dimension `axis`.

    Example:
        >>> flow.array_api.argsort(flow.tensor([3, 1, 2]))
        tensor([1, 2, 0])
    """
    check_tensors("argsort", x)
    return flow.argsort(x, axis, descending, stable=stable)


def sort(x: Tensor, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """The elements sorted along the dimension `axis`.

    Raises:
        TypeError: if `x` is complex.
        IndexError: if there is no dimension `axis`.

    Example:
        >>> flow.array_api.sort(flow.tensor([3, 1, 2]))
        tensor([1, 2, 3])
    """
    check_tensors("sort", x)
    return flow.sort(x, axis, descending, stable=stable).values


# Sets.  The shapes of the results depend on the data, so these functions compute on the host and wait for their input.
# Values are in ascending order; every nan is a value of its own.


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
    """The distinct elements of `x`, with their first indices in the flattened `x` and their counts.

    `inverse_indices` holds, for each element of `x`, its index among the distinct elements.

    Raises:
        TypeError: if `x` is no tensor.

    Example:
        >>> flow.array_api.unique_all(flow.tensor([5, 3, 5])).inverse_indices
        tensor([1, 0, 1])
    """
    check_tensors("unique_all", x)
    array: Any = x.detach().numpy()
    if x.dtype is flow.bfloat16:
        array = array.astype(np.float32)
    unique = np.unique_all(array)
    values = x.new_tensor(unique.values)
    integers = (unique.indices, unique.inverse_indices, unique.counts)
    return UniqueAll(values, *[x.new_tensor(result, dtype=flow.int64) for result in integers])


def unique_counts(x: Tensor, /) -> UniqueCounts:
    """The distinct elements of `x`, and the number of times that each occurs.

    Raises:
        TypeError: if `x` is no tensor.

    Example:
        >>> flow.array_api.unique_counts(flow.tensor([5, 3, 5])).counts
        tensor([1, 2])
    """
    unique = unique_all(x)
    return UniqueCounts(unique.values, unique.counts)


def unique_inverse(x: Tensor, /) -> UniqueInverse:
    """The distinct elements of `x`, and the index of each element of `x` among them.

    Raises:
        TypeError: if `x` is no tensor.

    Example:
        >>> flow.array_api.unique_inverse(flow.tensor([5, 3, 5])).inverse_indices
        tensor([1, 0, 1])
    """
    unique = unique_all(x)
    return UniqueInverse(unique.values, unique.inverse_indices)


def unique_values(x: Tensor, /) -> Tensor:
    """The distinct elements of `x`, a vector.

    Raises:
        TypeError: if `x` is no tensor.

    Example:
        >>> flow.array_api.unique_values(flow.tensor([5, 3, 5]))
        tensor([3, 5])
    """
    return unique_all(x).values
