"""Distances and similarities of vectors, which lie along one dimension."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from vmflow.dtypes import FLOATING, promote_types
from vmflow.operands import check_tensors
from vmflow.ops.autocasting import autocast_as_op
from vmflow.ops.creation.ranges import triu_indices
from vmflow.ops.table import normalize_dim
from vmflow.transfers import beside

if TYPE_CHECKING:
    from vmflow.tensors import Tensor


@autocast_as_op
def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """The cosine of the angle between vectors along `dim`.  The shapes broadcast.

    Args:
        x1, x2: floating-point; the dtypes promote.
        dim: the dimension of the vectors in the broadcast shape.
        eps: the divisor in place of a vector's length, if the length is smaller.

    Raises:
        TypeError: if an operand is no tensor, or not floating-point.
        ValueError: if `eps` is negative, or the shapes do not broadcast.
        IndexError: if there is no dimension `dim`.

    Example:
        >>> flow.cosine_similarity(flow.tensor([[1.0, 0.0]]), flow.tensor([[3.0, 4.0]]))
        tensor([0.6000])
    """
    check_tensors("cosine_similarity", x1, x2)
    for tensor in (x1, x2):
        if tensor.dtype.category != FLOATING:
            raise TypeError(f"cosine_similarity is not defined for {tensor.dtype.name} tensors; use .float() first")
    if not eps >= 0:
        raise ValueError(f"cosine_similarity: eps cannot be negative, got {eps}")
    common = promote_types(x1.dtype, x2.dtype)
    x1, x2 = [tensor if tensor.dtype is common else tensor.to(common) for tensor in (x1, x2)]
    # `dim` counts in the broadcast shape: give both tensors the same number of dimensions, with sizes of 1 in front.
    rank = max(x1.ndim, x2.ndim)
    axis = normalize_dim("cosine_similarity", dim, rank)
    if rank:
        x1, x2 = _with_rank(x1, rank), _with_rank(x2, rank)
    if x1.shape[axis : axis + 1] != x2.shape[axis : axis + 1]:
        size = max(x1.shape[axis], x2.shape[axis])
        x1, x2 = _widened(x1, axis, size), _widened(x2, axis, size)
    return (_unit(x1, axis, eps) * _unit(x2, axis, eps)).sum(axis)


def _with_rank(tensor: Tensor, rank: int) -> Tensor:
    return tensor.reshape((1,) * (rank - tensor.ndim) + tuple(tensor.shape))


def _widened(tensor: Tensor, axis: int, size: int) -> Tensor:
    shape = list(tensor.shape)
    shape[axis] = size
    return tensor.expand(tuple(shape))


def _unit(tensor: Tensor, axis: int, eps: float) -> Tensor:
    return tensor / tensor.norm(2, axis, keepdim=True).clamp(min=eps)


def pairwise_distance(x1: Tensor, x2: Tensor, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> Tensor:
    """The p-norm of ``x1 - x2 + eps`` along the last dimension.  The shapes broadcast.

    Args:
        x1, x2: (N, D) or (D,).
        p: the exponent of the norm.
        eps: added to every difference.
        keepdim: whether to keep the last dimension, with size 1.

    Raises:
        TypeError: if an operand is no tensor, both are bool, or `p` is no number.
        ValueError: if the shapes do not broadcast.

    Example:
        >>> flow.pairwise_distance(flow.tensor([[3.0, 4.0]]), flow.tensor([[0.0, 0.0]]), eps=0.0)
        tensor([5.])
    """
    check_tensors("pairwise_distance", x1, x2)
    if not isinstance(p, (int, float, np.number)):
        raise TypeError(f"pairwise_distance: p must be a number, not {p!r}")
    return (x1 - x2 + eps).norm(p, -1, keepdim=keepdim)


@autocast_as_op
def pdist(input: Tensor, p: float = 2.0) -> Tensor:
    """The distances of each row from each later row: (n, k) gives (n * (n - 1) / 2,).

    They are the elements above the diagonal of ``cdist(input, input, p)``, row by row.

    Args:
        input: floating-point, (n, k).
        p: the exponent of the norm; 0 and inf are allowed.

    Raises:
        TypeError: if `input` is no floating-point tensor.
        ValueError: if `input` is no matrix, or `p` is negative.

    Example:
        >>> flow.pdist(flow.tensor([[0.0, 0.0], [3.0, 4.0], [0.0, 1.0]]))
        tensor([5.0000, 1.0000, 4.2426])
    """
    check_tensors("pdist", input)
    if input.ndim != 2:
        raise ValueError(f"pdist: expected a matrix of rows, got shape {list(input.shape)}")
    if input.dtype.category != FLOATING:
        raise TypeError(f"pdist: expected a floating-point dtype, got {input.dtype.name}; convert with .float() first")
    if not p >= 0:
        raise ValueError(f"pdist: p must be 0 or more, not {p}")
    rows = input.shape[0]
    if rows < 2 or not input.shape[1]:
        return input.sum() * 0 + input.new_zeros(rows * (rows - 1) // 2)
    first, second = beside(triu_indices(rows, rows, 1, device=input.device), input)
    return (input.index_select(0, first) - input.index_select(0, second)).norm(p, -1)
