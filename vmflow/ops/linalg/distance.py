"""Distances and similarities of vectors, taken along one dimension."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vmflow.dtypes import FLOATING, promote_types
from vmflow.ops.autocasting import autocast_as_op
from vmflow.ops.creation.ranges import triu_indices
from vmflow.ops.elementwise.pointwise import check_tensors
from vmflow.ops.table import normalize_dim

if TYPE_CHECKING:
    from vmflow.tensors import Tensor


@autocast_as_op
def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """The cosine of the angle between vectors along `dim`; the tensors broadcast.

    Args:
        x1, x2: dtypes promote, to a floating-point one.
        dim: the dimension of the vectors, of what the tensors broadcast to.
        eps: lengths below it count as this.

    Raises:
        IndexError: if there is no such dimension.
    """
    check_tensors("cosine_similarity", x1, x2)
    for value in (x1, x2):
        if value.dtype.category != FLOATING:
            raise TypeError(f"cosine_similarity is not defined for {value.dtype.name} tensors; use .float() first")
    if not eps >= 0:
        raise ValueError(f"cosine_similarity: eps cannot be negative, got {eps}")
    # From the back: the tensors may differ in their number of dimensions.
    common = promote_types(x1.dtype, x2.dtype)
    x1, x2 = [value if value.dtype is common else value.to(common) for value in (x1, x2)]
    rank = max(x1.ndim, x2.ndim)
    axis = normalize_dim("cosine_similarity", dim, rank)
    if rank:
        x1, x2 = _with_rank(x1, rank), _with_rank(x2, rank)
    if x1.shape[axis : axis + 1] != x2.shape[axis : axis + 1]:
        wide = max(x1.shape[axis], x2.shape[axis])
        x1, x2 = _widened(x1, axis, wide), _widened(x2, axis, wide)
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
    """The p-norm of ``x1 - x2 + eps`` along the last dimension; the tensors broadcast.

    Args:
        x1, x2: (N, D) or (D,).
        p: the exponent of the norm.
        eps: added to every difference, so that equal vectors have a gradient.
        keepdim: whether to keep the last dimension, with size 1.
    """
    check_tensors("pairwise_distance", x1, x2)
    if not isinstance(p, (int, float)):
        raise TypeError(f"pairwise_distance: p must be a number, not {p!r}")
    return (x1 - x2 + eps).norm(p, -1, keepdim=keepdim)


@autocast_as_op
def pdist(input: Tensor, p: float = 2.0) -> Tensor:
    """The distances of each row from each row behind it: (n, k) gives (n * (n - 1) / 2,).

    They are those above the diagonal of ``cdist(input, input, p)``, row by row.

    Args:
        input: floating-point.
        p: of the norm; may be 0 and inf.

    Raises:
        TypeError: for another dtype.
        ValueError: for another number of dimensions, or a negative `p`.

    Example:
        >>> flow.pdist(flow.tensor([[0.0, 0.0], [3.0, 4.0], [0.0, 1.0]]))
        tensor([5.0000, 1.0000, 4.2426])
    """
    if input.ndim != 2:
        raise ValueError(f"pdist: expected a matrix of rows, got shape {list(input.shape)}")
    if input.dtype.category != FLOATING:
        raise TypeError(f"pdist: expected a floating-point dtype, got {input.dtype.name}; convert with .float() first")
    if not p >= 0:
        raise ValueError(f"pdist: p must be 0 or more, not {p}")
    rows = input.shape[0]
    if rows < 2 or not input.shape[1]:
        return input.sum() * 0 + input.new_zeros(rows * (rows - 1) // 2)
    first, second = triu_indices(rows, rows, 1, device=input.device)
    return (input.index_select(0, first) - input.index_select(0, second)).norm(p, -1)
