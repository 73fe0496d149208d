"""Norms of matrices, made of singular values and of norms of vectors."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from vmflow.dtypes import FLOATING, dtype as DType
from vmflow.ops.destination import out_by_copy
from vmflow.ops.linalg.decompositions import svdvals
from vmflow.ops.shape.view import movedim
from vmflow.ops.table import normalize_dim

from .composed_reduction import norm
from .reduction import Dims

if TYPE_CHECKING:
    from vmflow.tensors import Tensor


@out_by_copy()
def matrix_norm(
    A: Tensor,
    ord: float | str = "fro",
    dim: tuple[int, int] | list[int] = (-2, -1),
    keepdim: bool = False,
    *,
    dtype: DType | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """A norm of matrices.

    Args:
        A: of at least two dimensions.
        ord: "fro" (the root of the sum of squares), "nuc" (the sum of singular values), 2 or -2 (the largest or
            smallest singular value), inf or -inf (the largest or smallest sum of a row's absolute values), 1 or -1 (of
            a column's).
        dim: which two dimensions are the rows and columns.
        keepdim: whether they stay, with size 1.
        dtype: to which `A` is converted first.

    Raises:
        TypeError, ValueError, IndexError: for integers, another `ord`, and dimensions that do not exist or are equal.
    """
    if len(dim) != 2:
        raise ValueError(f"matrix_norm: dim must be two dimensions, not {tuple(dim)}")
    if A.ndim < 2:
        raise ValueError(f"matrix_norm: expected matrices, got shape {list(A.shape)}")
    rows, columns = [normalize_dim("matrix_norm", it, A.ndim) for it in dim]
    if rows == columns:
        raise ValueError(f"matrix_norm: dim {tuple(dim)} names one dimension twice")
    if dtype is not None:
        A = A.to(dtype)
    if A.dtype.category < FLOATING:
        raise TypeError(f"matrix_norm is not defined for {A.dtype.name} tensors; convert with .float() first")
    if ord == "fro":
        return norm(A, 2, (rows, columns), keepdim)
    if ord in ("nuc", 2, -2):
        values = svdvals(movedim(A, (rows, columns), (-2, -1)))
        result = values.sum(-1) if ord == "nuc" else values.amax(-1) if ord == 2 else values.amin(-1)
    elif ord in (1, -1, math.inf, -math.inf):
        summed, left = (rows, columns) if ord in (1, -1) else (columns, rows)
        sums = norm(A, 1, summed, True)
        result = (sums.amax(left, True) if float(ord) > 0 else sums.amin(left, True)).squeeze((rows, columns))
    else:
        raise ValueError(f"matrix_norm: ord must be 'fro', 'nuc', inf, -inf, 1, -1, 2 or -2, not {ord!r}")
    if not keepdim:
        return result
    for axis in sorted((rows, columns)):
        result = result.unsqueeze(axis)
    return result


@out_by_copy("norm")
def linalg_norm(
    A: Tensor,
    ord: float | str | None = None,
    dim: Dims = None,
    keepdim: bool = False,
    *,
    dtype: DType | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """A norm of vectors or matrices.

    Args:
        A: floating-point or complex.
        ord: see `vector_norm` and `matrix_norm`; without one, the root of the sum of squares.
        dim: one dimension for vectors, two for matrices; without it, those of a 1-d or 2-d tensor, and without `ord`
            either all of them.
        keepdim: whether the reduced dimensions stay, with size 1.
        dtype: to which `A` is converted first.

    Raises:
        ValueError: for an `ord` without `dim` of a tensor that is neither 1-d nor 2-d.
    """
    if ord is None:
        return norm(A, 2, dim, keepdim, dtype)
    if dim is None:
        if A.ndim not in (1, 2):
            raise ValueError(f"linalg.norm: with ord={ord!r} and without dim, expected 1-d or 2-d, got {A.ndim}-d")
        dim = tuple(range(A.ndim))
    dims = (dim,) if isinstance(dim, int) else tuple(dim)
    if len(dims) == 2:
        return matrix_norm(A, ord, dims, keepdim, dtype=dtype)
    if isinstance(ord, str):
        raise ValueError(f"linalg.norm: ord={ord!r} is for matrices, but dim is {dim}")
    return norm(A, ord, dims, keepdim, dtype)
