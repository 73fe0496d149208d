"""Linear algebra composed of other functions: `cond`, `diagonal`, `tensorinv`, `tensorsolve`, `vander`, `vecdot`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from vmflow import dtypes
from vmflow.arguments import whole_number
from vmflow.dtypes import FLOATING
from vmflow.operands import check_tensors
from vmflow.ops.autocasting import autocast_as_op
from vmflow.ops.creation.creation import arange
from vmflow.ops.declaration import function
from vmflow.ops.destination import out_by_copy
from vmflow.ops.elementwise.arithmetic import conj_if_complex, pow
from vmflow.ops.elementwise.selection import where
from vmflow.ops.reduction.norms import matrix_norm
from vmflow.ops.shape.joining import cat, flip
from vmflow.ops.shape.view import diagonal as view_diagonal
from vmflow.ops.table import normalize_dim
from vmflow.transfers import beside

from .decompositions import svdvals
from .linear_algebra import inv, solve, square_matrices
from .triangular_factors import inv_ex

if TYPE_CHECKING:
    from vmflow.tensors import Tensor


@autocast_as_op
@out_by_copy()
def cond(A: Tensor, p: float | str | None = None, *, out: Tensor | None = None) -> Tensor:
    """The condition number of each matrix: the factor by which a relative error of ``B`` may grow in ``solve(A, B)``.

    Args:
        A: (..., m, n); square unless `p` is None, 2 or -2.
        p: the norm, see `matrix_norm`.  For None and 2 the result is the quotient of the largest and the smallest
            singular value, for -2 its reciprocal.  Otherwise it is the product of the norms of the matrix and its
            inverse, and inf for singular matrices.

    Raises:
        TypeError: if `A` is no tensor, or integer or bool, or complex while `p` is none of None, 2 and -2.
        ValueError: for another `p`, fewer than two dimensions, or matrices that are not square where they must be.
        LinAlgError: if `svdvals` fails, when the result is read.

    Example:
        >>> flow.linalg.cond(flow.tensor([[2.0, 0.0], [0.0, 4.0]]))
        tensor(2.)
    """
    check_tensors("cond", A)
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
    singular = info != 0
    # Singular values of the nan that `inv_ex` gives would be an error.
    inverse = where(singular.unsqueeze(-1).unsqueeze(-1), 0.0, inverse)
    return where(singular, math.inf, matrix_norm(A, p) * matrix_norm(inverse, p))


def diagonal(A: Tensor, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """`vmflow.diagonal`, by default of the last two dimensions: the diagonal of each matrix, a view.

    Raises:
        TypeError: if `A` is no tensor.
        IndexError: if a dimension does not exist.
        ValueError: if `dim1` and `dim2` are the same dimension.

    Example:
        >>> flow.linalg.diagonal(flow.tensor([[1, 2], [3, 4]]))
        tensor([1, 4])
    """
    check_tensors("diagonal", A)
    return view_diagonal(A, offset, dim1, dim2)


@out_by_copy()
def tensorinv(A: Tensor, ind: int = 2, *, out: Tensor | None = None) -> Tensor:
    """The tensor X for which ``tensordot(X, A, ind)`` is the identity.

    Args:
        A: a tensor whose first `ind` sizes have the same product as its other sizes.
        ind: the number of A's first dimensions, over which ``tensordot(X, A, ind)`` sums; positive.

    Returns:
        A tensor of shape (*A.shape[ind:], *A.shape[:ind]).

    Raises:
        TypeError: if `A` is no tensor, or integer or bool, or `ind` no integer.
        ValueError: if `ind` is not positive, or the products of the sizes differ.
        LinAlgError: for a singular tensor, when the result is read.

    Example:
        >>> flow.linalg.tensorinv(flow.tensor([[2.0, 0.0], [0.0, 4.0]]), ind=1)
        tensor([[0.5000, 0.0000],
                [0.0000, 0.2500]])
    """
    check_tensors("tensorinv", A)
    ind = whole_number("tensorinv", "ind", ind)
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
    """The tensor X with ``tensordot(A, X, X.ndim) = B``, where A has its dimensions `dims` last.

    Args:
        A: of shape (*B.shape, *X.shape), once `dims` are moved; the sizes of B and X have the same product.
        B: the right side.
        dims: dimensions of A that are moved to the end before the system is solved; none by default.

    Returns:
        X, whose shape is that of this A without the first ``B.ndim`` dimensions.

    Raises:
        TypeError: if an operand is no tensor, or is integer or bool, or the dtypes differ.
        ValueError: if the shapes do not fit, or `dims` has a dimension twice.
        IndexError: if a dimension in `dims` does not exist.
        LinAlgError: for a singular system, when the result is read.

    Example:
        >>> flow.linalg.tensorsolve(flow.tensor([[2.0, 0.0], [0.0, 4.0]]), flow.tensor([2.0, 2.0]))
        tensor([1.0000, 0.5000])
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
    """The Vandermonde matrices of vectors: the powers 0 to ``N - 1`` of each element; (..., n) gives (..., n, N).

    Args:
        N: the number of powers; n by default.

    Raises:
        TypeError: if `x` is no tensor, or bool, or `N` no integer.
        ValueError: if `x` is 0-d, or there are fewer than two powers.

    Example:
        >>> flow.linalg.vander(flow.tensor([2, 3]), N=3)
        tensor([[1, 2, 4],
                [1, 3, 9]])
    """
    check_tensors("linalg.vander", x)
    if not x.ndim:
        raise ValueError("linalg.vander: expected a tensor of at least one dimension")
    count = x.shape[-1] if N is None else whole_number("linalg.vander", "N", N)
    if count <= 1:
        raise ValueError(f"linalg.vander: expected more than one power, got N={count}")
    return _powers(x, count)


@function()
def vander(x: Tensor, N: int | None = None, increasing: bool = False) -> Tensor:
    """The Vandermonde matrix of a vector: row i has the powers of element i; (n,) gives (n, N).

    Args:
        N: the number of powers; n by default.
        increasing: whether the power 0 comes first instead of last.

    Raises:
        TypeError: if `x` is no tensor, or bool, or `N` no integer.
        ValueError: if `x` is no vector, or `N` is negative.

    Example:
        >>> flow.vander(flow.tensor([2, 3]), 3)
        tensor([[4, 2, 1],
                [9, 3, 1]])
    """
    check_tensors("vander", x)
    count = (x.shape[0] if x.ndim else 0) if N is None else whole_number("vander", "N", N)
    if x.ndim != 1 or count < 0:
        raise ValueError(f"vander: expected a vector and N of 0 or more, got shape {list(x.shape)} and N={N}")
    powers = _powers(x, count)
    return powers if increasing else flip(powers, -1)


def _powers(x: Tensor, count: int) -> Tensor:
    if x.dtype is dtypes.bool_:
        raise TypeError("vander is not defined for bool tensors; convert with .to()")
    if x.dtype.category < FLOATING:
        x = x.to(dtypes.int64)
        exponents = beside(arange(count, device=x.device), x)
        return pow(x.unsqueeze(-1), exponents)
    ones = x.new_ones((*x.shape, min(count, 1)))
    if count < 2:
        return ones
    return cat([ones, x.unsqueeze(-1).expand((*x.shape, count - 1)).cumprod(-1)], -1)


@autocast_as_op
@out_by_copy()
def vecdot(x: Tensor, y: Tensor, *, dim: int = -1, out: Tensor | None = None) -> Tensor:
    """The sum of ``conj(x) * y`` along `dim`, that is, inner products.

    The shapes broadcast; `dim` should be negative if the operands differ in their numbers of dimensions.

    Raises:
        TypeError: if an operand is no tensor, or the dtypes differ.
        ValueError: if the vectors differ in size, only one operand is 0-d, or the shapes do not broadcast.
        IndexError: if an operand has no dimension `dim`; for two 0-d ones, other than -1 and 0.

    Example:
        >>> flow.linalg.vecdot(flow.tensor([[1.0, 2.0], [3.0, 4.0]]), flow.tensor([1.0, 10.0]))
        tensor([21., 43.])
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
