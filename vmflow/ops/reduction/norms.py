"""Norms of vectors, and norms of matrices, computed from singular values or norms of vectors."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from vmflow.arguments import flag, real_number
from vmflow.dtypes import FLOATING, dtype as DType, promote_types
from vmflow.operands import check_tensors
from vmflow.ops.destination import out_by_copy
from vmflow.ops.linalg.decompositions import svdvals
from vmflow.ops.shape.view import movedim
from vmflow.ops.table import as_tuple, normalize_dim

from .composed_reduction import norm
from .reduction import Dims, reduced_dims

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
        dim: the dimensions of the rows and the columns.
        keepdim: whether both dimensions stay, with size 1.
        dtype: the dtype to which `A` is converted first.

    Raises:
        TypeError: for integers and bools, or a `dtype` of another kind or too narrow for `A`.
        ValueError: for another `ord`, a `dim` that is not two different dimensions, or an `A` of less than two.
        IndexError: if a dimension does not exist, or a smallest value is asked for and there is none.

    Example:
        >>> flow.linalg.matrix_norm(flow.tensor([[1.0, -2.0], [3.0, 4.0]]), ord=1)
        tensor(6.)
    """
    check_tensors("matrix_norm", A)
    keepdim = flag("matrix_norm", "keepdim", keepdim)
    if len(dim) != 2:
        raise ValueError(f"matrix_norm: dim must be two dimensions, not {tuple(dim)}")
    if A.ndim < 2:
        raise ValueError(f"matrix_norm: expected matrices, got shape {list(A.shape)}")
    rows, columns = [normalize_dim("matrix_norm", axis, A.ndim) for axis in dim]
    if rows == columns:
        raise ValueError(f"matrix_norm: dim {tuple(dim)} names one dimension twice")
    A = converted("matrix_norm", A, dtype)
    if ord == "fro":
        return norm(A, 2, (rows, columns), keepdim)
    if ord in ("nuc", 2, -2):
        values = svdvals(movedim(A, (rows, columns), (-2, -1)))
        if ord == "nuc":
            result = values.sum(-1)
        else:
            result = _largest(values, -1) if ord == 2 else values.amin(-1)
    elif ord in (1, -1, math.inf, -math.inf):
        summed, left = (rows, columns) if ord in (1, -1) else (columns, rows)
        sums = norm(A, 1, summed, True)
        result = (_largest(sums, left, True) if float(ord) > 0 else sums.amin(left, True)).squeeze((rows, columns))
    else:
        raise ValueError(f"matrix_norm: ord must be 'fro', 'nuc', inf, -inf, 1, -1, 2 or -2, not {ord!r}")
    if not keepdim:
        return result
    for axis in sorted((rows, columns)):
        result = result.unsqueeze(axis)
    return result


def converted(name: str, A: Tensor, dtype: DType | None) -> Tensor:
    """Convert the operand of a norm to the argument `dtype`, unless that is None.

    Raises:
        TypeError: for integers, bools, and a `dtype` that is not of the kind of `A`, floating-point or complex, or does
            not hold its numbers.
    """
    check_tensors(name, A)
    if A.dtype.category < FLOATING:
        raise TypeError(f"{name} is not defined for {A.dtype.name} tensors; convert with .float() first")
    if dtype is None:
        return A
    if dtype.category != A.dtype.category or promote_types(A.dtype, dtype) is not dtype:
        raise TypeError(f"{name}: dtype {dtype.name} does not hold the numbers of {A.dtype.name}; convert with .to()")
    return A.to(dtype)


def _largest(sizes: Tensor, dim: int, keepdim: bool = False) -> Tensor:
    """Return the largest of absolute values along `dim`: `amax`, but 0 for a dimension without elements."""
    return sizes.amax(dim, keepdim) if sizes.shape[dim] else sizes.sum(dim, keepdim)


@out_by_copy()
def vector_norm(
    x: Tensor,
    ord: float = 2,
    dim: Dims = None,
    keepdim: bool = False,
    *,
    dtype: DType | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """The norm of the elements along `dim`, taken as a vector; see `vmflow.norm`.

    Args:
        x: floating-point or complex.
        ord: the exponent; inf and -inf give the largest and the smallest absolute value, 0 the number of non-zero
            elements.
        dim: one or several dimensions, by default all.
        keepdim: whether the reduced dimensions stay, with size 1.
        dtype: the dtype to which `x` is converted first.

    Raises:
        TypeError: for integers, bools, a string as `ord`, or a `dtype` of another kind or too narrow for `x`.
        ValueError: if a dimension is named twice.
        IndexError: if a dimension does not exist, or there are no elements and `ord` is negative or inf.

    Example:
        >>> flow.linalg.vector_norm(flow.tensor([3.0, -4.0]))
        tensor(5.)
    """
    ord = real_number("vector_norm", "ord", ord)
    x = converted("vector_norm", x, dtype)
    dims = reduced_dims("vector_norm", dim, x.ndim)
    if ord < 0 and 0 in [x.shape[axis] for axis in dims]:
        raise IndexError(f"vector_norm: ord={ord} of no elements, along {list(dims)} of shape {list(x.shape)}")
    return norm(x, ord, dims, keepdim)


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
        ord: see `vector_norm` and `matrix_norm`; by default the root of the sum of squares.
        dim: one dimension for vectors, two for matrices; by default those of a 1-d or 2-d tensor, and without `ord`
            all.
        keepdim: whether the reduced dimensions stay, with size 1.
        dtype: the dtype to which `A` is converted first.

    Raises:
        ValueError: for an `ord` without `dim` of a tensor that is neither 1-d nor 2-d, an `ord` that does not suit
            `dim`, or a `dim` of other than one or two different dimensions.
        TypeError: for integers and bools, or a `dtype` of another kind or too narrow for `A`.
        IndexError: as `vector_norm` and `matrix_norm`.

    Example:
        >>> flow.linalg.norm(flow.tensor([[3.0, 0.0], [0.0, 4.0]]))
        tensor(5.)
    """
    if isinstance(dim, (tuple, list)) and len(dim) not in (1, 2):
        raise ValueError(f"linalg.norm: dim must be one or two dimensions, not {tuple(dim)}")
    if ord is None:
        return vector_norm(A, 2, dim, keepdim, dtype=dtype)
    if dim is None:
        if A.ndim not in (1, 2):
            raise ValueError(f"linalg.norm: with ord={ord!r} and without dim, expected 1-d or 2-d, got {A.ndim}-d")
        dim = tuple(range(A.ndim))
    dims = as_tuple(dim)
    if len(dims) == 2:
        return matrix_norm(A, ord, dims, keepdim, dtype=dtype)
    if isinstance(ord, str):
        raise ValueError(f"linalg.norm: ord={ord!r} is for matrices, but dim is {dim}")
    return vector_norm(A, ord, dims, keepdim, dtype=dtype)
