"""Linear algebra made of other functions: condition numbers, systems of tensors, powers and products of vectors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from vmflow import dtypes
from vmflow.dtypes import FLOATING
from vmflow.ops.autocasting import autocast_as_op
from vmflow.ops.creation.creation import arange
from vmflow.ops.declaration import function
from vmflow.ops.destination import out_by_copy
from vmflow.ops.elementwise.arithmetic import conj_if_complex, pow
from vmflow.ops.elementwise.pointwise import check_tensors
from vmflow.ops.elementwise.selection import where
from vmflow.ops.reduction.norms import matrix_norm
from vmflow.ops.shape.joining import cat, flip
from vmflow.ops.shape.view import diagonal as view_diagonal
from vmflow.ops.table import normalize_dim

from .decompositions import svdvals
from .linear_algebra import inv, solve, square_matrices
from .triangular_factors import inv_ex

if TYPE_CHECKING:
    from vmflow.tensors import Tensor


@autocast_as_op
@out_by_copy()
def cond(A: Tensor, p: float | str | None = None, *, out: Tensor | None = None) -> Tensor:
    """The condition numbers of matrices: how much larger an error of a solution may be than one of the right side.

    Args:
        A: (..., m, n); square unless `p` is None, 2 or -2.
        p: of which norm, see `matrix_norm`.  By None and 2 it is the quotient of the largest and the smallest singular
            value, by -2 of the smallest and the largest; otherwise the product of the norms of the matrix and its
            inverse, which is inf for singular matrices.

    Raises:
        TypeError, ValueError: for integer and complex matrices, those that are not square, and another `p`.
    """
    if p in (None, 2, -2):
        values = svdvals(A)
        if not values.shape[-1]:
            return values.sum(-1)
        first, last = (0, -1) if p != -2 else (-1, 0)
        return values.select(-1, first) / values.select(-1, last)
    if p not in ("fro", "nuc", 1, -1, math.inf, -math.inf):
        raise ValueError(f"cond: p must be None, 'fro', 'nuc', inf, -inf, 1, -1, 2 or -2, not {p!r}")
    square_matrices("cond", A._blob.meta)
    if not A.shape[-1]:
        return A.sum((-2, -1))
    inverse, info = inv_ex(A)
    return where(info != 0, math.inf, matrix_norm(A, p) * matrix_norm(inverse, p))


def diagonal(A: Tensor, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """As `vmflow.diagonal`, by default of the last two dimensions."""
    return view_diagonal(A, offset, dim1, dim2)


@out_by_copy()
def tensorinv(A: Tensor, ind: int = 2, *, out: Tensor | None = None) -> Tensor:
    """The tensor X for which ``tensordot(X, A, ind)`` is the identity.

    Args:
        A: whose first `ind` sizes have the same product as the others.
        ind: how many dimensions of A are those of the right side of a system of equations; positive.

    Returns:
        (*A.shape[ind:], *A.shape[:ind]).

    Raises:
        TypeError, ValueError: for integers, another `ind`, and shapes whose products differ.
        LinAlgError: for a singular one, when the result is looked at.
    """
    if ind < 1:
        raise ValueError(f"tensorinv: expected a positive ind, got {ind}")
    before, behind = tuple(A.shape[:ind]), tuple(A.shape[ind:])
    if math.prod(before) != math.prod(behind):
        raise ValueError(
            f"tensorinv: the products of the first {ind} sizes {list(before)} and of the others {list(behind)} differ"
        )
    return inv(A.reshape(math.prod(before), math.prod(behind))).reshape(*behind, *before)


@out_by_copy()
def tensorsolve(A: Tensor, B: Tensor, dims: Sequence[int] | None = None, *, out: Tensor | None = None) -> Tensor:
    """The tensor X with ``tensordot(A, X, X.ndim) = B``.

    Args:
        A: its first dimensions are those of B, the others those of X; the products of the sizes of both are the same.
        B: the right side.
        dims: dimensions of A that are moved behind the others first.

    Returns:
        X, of A's sizes behind the first ``B.ndim``.

    Raises:
        TypeError, ValueError: for integers, two dtypes, and shapes that do not fit.
        LinAlgError: for a singular system, when the result is looked at.
    """
    check_tensors("tensorsolve", A, B)
    if dims is not None:
        moved = [normalize_dim("tensorsolve", dim, A.ndim) for dim in dims]
        A = A.permute([axis for axis in range(A.ndim) if axis not in moved] + moved)
    shape = tuple(A.shape[B.ndim :])
    if tuple(A.shape[: B.ndim]) != tuple(B.shape) or math.prod(shape) != B.numel():
        raise ValueError(f"tensorsolve: a right side of shape {list(B.shape)} does not fit {list(A.shape)}")
    return solve(A.reshape(B.numel(), B.numel()), B.reshape(-1)).reshape(shape)


def linalg_vander(x: Tensor, *, N: int | None = None) -> Tensor:
    """The powers 0, 1 and so on of each element, in a new last dimension.

    Args:
        x: (..., n).
        N: how many; n by default.

    Raises:
        TypeError: for bools.
        ValueError: for a 0-d tensor, and fewer than two powers.
    """
    check_tensors("linalg.vander", x)
    if not x.ndim:
        raise ValueError("linalg.vander: expected a tensor of at least one dimension")
    count = x.shape[-1] if N is None else N
    if count <= 1:
        raise ValueError(f"linalg.vander: expected more than one power, got N={count}")
    return _powers(x, count)


@function()
def vander(x: Tensor, N: int | None = None, increasing: bool = False) -> Tensor:
    """The powers of each element of a vector, as rows.

    Args:
        x: (n,).
        N: how many powers; n by default.
        increasing: whether they begin with the power 0, or end with it.

    Raises:
        TypeError: for bools.
        ValueError: unless it is a vector, and for a negative `N`.

    >>> flow.vander(flow.tensor([2, 3]), 3)
    tensor([[4, 2, 1],
            [9, 3, 1]])
    """
    check_tensors("vander", x)
    count = (x.shape[0] if x.ndim else 0) if N is None else N
    if x.ndim != 1 or count < 0:
        raise ValueError(f"vander: expected a vector and N of 0 or more, got shape {list(x.shape)} and N={N}")
    powers = _powers(x, count)
    return powers if increasing else flip(powers, -1)


def _powers(x: Tensor, count: int) -> Tensor:
    if x.dtype is dtypes.bool_:
        raise TypeError("vander is not defined for bool tensors; convert with .to()")
    if x.dtype.category < FLOATING:
        x = x.to(dtypes.int64)
        exponents = arange(count, device=x.device)
        return pow(x.unsqueeze(-1), exponents)
    ones = x.new_ones((*x.shape, min(count, 1)))
    if count < 2:
        return ones
    return cat([ones, x.unsqueeze(-1).expand((*x.shape, count - 1)).cumprod(-1)], -1)


@autocast_as_op
@out_by_copy()
def vecdot(x: Tensor, y: Tensor, *, dim: int = -1, out: Tensor | None = None) -> Tensor:
    """The sums of products along a dimension, those of `x` conjugated; the other dimensions broadcast.

    Raises:
        TypeError: for two dtypes.
        ValueError: if the vectors differ in length.
        IndexError: if there is no such dimension.
    """
    check_tensors("vecdot", x, y)
    if x.dtype is not y.dtype:
        raise TypeError(f"vecdot: expected one dtype, got {x.dtype.name} and {y.dtype.name}; cast one with .to()")
    axis = normalize_dim("vecdot", dim, max(x.ndim, y.ndim))
    if not x.ndim and not y.ndim:
        return conj_if_complex(x) * y
    if not x.ndim or not y.ndim:
        raise ValueError(f"vecdot: expected two vectors, got shapes {list(x.shape)} and {list(y.shape)}")
    if x.shape[normalize_dim("vecdot", dim, x.ndim)] != y.shape[normalize_dim("vecdot", dim, y.ndim)]:
        raise ValueError(f"vecdot: vectors along {dim} of {list(x.shape)} and {list(y.shape)} differ in length")
    return (conj_if_complex(x) * y).sum(axis)
