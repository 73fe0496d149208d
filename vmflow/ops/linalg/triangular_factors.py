"""LU factors, solutions of systems with them, and functions that report singular matrices instead of raising an error.

All functions take batches of real matrices; half precision is computed in float32.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, cast

from vmflow import dtypes, interpreter as _interpreter
from vmflow.errors import LinAlgError
from vmflow.instructions.blob import meta
from vmflow.operands import check_tensors
from vmflow.ops.creation.creation import eye
from vmflow.ops.declaration import function, public
from vmflow.ops.destination import out_by_copy, outs_by_copy
from vmflow.ops.elementwise.selection import where
from vmflow.ops.indexing.gathering import take_along_dim
from vmflow.ops.shape.joining import cat, tril, triu
from vmflow.ops.table import Attributes, Form, Inferred, Kinds, Metas, OpExpr, Size
from vmflow.transfers import beside

from .decompositions import decomposition_cost, real_matrices, solve_triangular
from .linear_algebra import are_vectors, matmul, square_matrices

if TYPE_CHECKING:
    from vmflow.autograd.node import OpNode
    from vmflow.tensors import Tensor

    Gradients = Tensor | None


class LUFactors(NamedTuple):
    """The result of `lu_factor`: L and U in one matrix, and for each row of U the row it was exchanged with, from 1."""

    LU: Tensor
    pivots: Tensor


class LUFactorsInfo(NamedTuple):
    """The result of `lu_factor_ex`: that of `lu_factor`; and the position, from 1, of U's first diagonal 0, or 0."""

    LU: Tensor
    pivots: Tensor
    info: Tensor


class PLU(NamedTuple):
    """The result of `lu`: a permutation matrix P, a lower triangular L with unit diagonal, an upper triangular U."""

    P: Tensor
    L: Tensor
    U: Tensor


class CholeskyInfo(NamedTuple):
    """The result of `cholesky_ex`: L; and the size of the smallest leading submatrix not positive definite, or 0."""

    L: Tensor
    info: Tensor


class InverseInfo(NamedTuple):
    """The result of `inv_ex`: the inverse; and the position, from 1, of the first pivot that is 0, or 0 for none."""

    inverse: Tensor
    info: Tensor


class SolutionInfo(NamedTuple):
    """The result of `solve_ex`: the solution; and the position, from 1, of the first pivot that is 0, or 0 for none."""

    result: Tensor
    info: Tensor


def _infer_lu_factor(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    (source,) = metas
    real_matrices("lu_factor", source)
    batch, steps = source.shape[:-2], min(source.shape[-2:])
    outputs = (
        source,
        meta((*batch, steps), dtypes.int32, source.device),
        meta(batch, dtypes.int32, source.device),
    )
    return Inferred(outputs, decomposition_cost(source))


# Attributes: (whether rows are exchanged,)
_LU_FACTOR = OpExpr("lu_factor", _infer_lu_factor, Form(1, tuple[bool]), "decompositions")


@_LU_FACTOR.gradient(outputs=(0, 1, 2))
def _lu_factor_gradient(node: OpNode, gradient: Gradients, of_pivots: None, of_info: None) -> tuple[Gradients]:
    """Compute the gradient of `lu_factor` by its matrix, of any shape, from `gradient`, that of the packed L and U.

    S. F. Walter and L. Lehmann, Algorithmic differentiation of linear algebra functions (2010).  For a matrix with a 0
    on the diagonal of U, elements are nan, or 0 where `gradient`, with its rows exchanged back, is 0.  The result is
    None if `gradient` is.
    """
    if gradient is None:
        return (None,)
    factors, pivots = node.output(0), node.output(1)
    rows, columns = factors.shape[-2:]
    steps = min(rows, columns)
    head = factors.narrow(-2, 0, steps).narrow(-1, 0, steps)
    of_head = gradient.narrow(-2, 0, steps).narrow(-1, 0, steps)
    lower = _unit_lower(head)
    singular = (node.output(2) != 0).unsqueeze(-1).unsqueeze(-1)
    upper = where(singular, beside(eye(steps, dtype=head.dtype, device=head.device), head), triu(head))
    inner = tril(matmul(lower.mT, tril(of_head, -1)), -1) + triu(matmul(triu(of_head), upper.mT))
    of_below = of_right = None
    if rows > steps:
        below = factors.narrow(-2, steps, rows - steps)
        of_below = gradient.narrow(-2, steps, rows - steps)
        inner = inner - triu(matmul(below.mT, of_below))
        of_below = solve_triangular(upper.mT, of_below, upper=False, left=False)
    if columns > steps:
        right = factors.narrow(-1, steps, columns - steps)
        of_right = gradient.narrow(-1, steps, columns - steps)
        inner = inner - tril(matmul(of_right, right.mT), -1)
        of_right = solve_triangular(lower.mT, of_right, upper=True, unitriangular=True)
    result = solve_triangular(lower.mT, inner, upper=True, unitriangular=True)
    result = solve_triangular(upper.mT, result, upper=False, left=False)
    if of_below is not None:
        result = cat([result, of_below], -2)
    if of_right is not None:
        result = cat([result, of_right], -1)
    result = where(singular, where(gradient == 0, 0.0, float("nan")), result)
    return (take_along_dim(result, _order(pivots, rows).argsort(-1).unsqueeze(-1), -2),)


def _unit_lower(factors: Tensor) -> Tensor:
    """Extract L from packed LU factors: their lower triangle, with ones on the diagonal."""
    rows, columns = factors.shape[-2:]
    return tril(factors, -1) + beside(eye(rows, columns, dtype=factors.dtype, device=factors.device), factors)


def _infer_order(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    (size,) = cast("tuple[int]", attributes)
    (pivots,) = metas
    if pivots.dtype not in (dtypes.int32, dtypes.int64):
        raise TypeError(f"pivots_to_permutation: expected pivots of int32, got {pivots.dtype.name}")
    if not pivots.shape or pivots.shape[-1] > size:
        raise ValueError(
            f"pivots_to_permutation: expected pivots (..., n) with n at most {size}, got shape {list(pivots.shape)}"
        )
    output = meta((*pivots.shape[:-1], size), dtypes.int64, pivots.device)
    return Inferred(output, pivots.shape[-1] * 3000.0 + output.numel)


# Attributes: (the number of rows,)
_ORDER = OpExpr("pivots_to_permutation", _infer_order, Form(1, tuple[Size]), "decompositions")


def _order(pivots: Tensor, rows: int) -> Tensor:
    """Convert pivots to a permutation `order`, (..., rows): row i of ``L @ U`` is row ``order[i]`` of the matrix."""
    return _interpreter.dispatch(_ORDER, (pivots,), (rows,))


@outs_by_copy()
def lu_factor_ex(
    A: Tensor, *, pivot: bool = True, check_errors: bool = False, out: tuple[Tensor, ...] | None = None
) -> LUFactorsInfo:
    """The triangular factors L and U of each matrix, with ``P.T @ A = L @ U``, also of singular matrices.

    Args:
        A: (..., m, n).
        pivot: whether rows are exchanged, so that the largest element of a column divides the elements below it;
            otherwise P is the identity.
        check_errors: whether to wait for `info`, and raise LinAlgError if it is not 0.

    Returns:
        LU: (..., m, n): L below the diagonal, where L has ones, and U from the diagonal on.
        pivots: (..., min(m, n)), int32: the row that each row was exchanged with, counted from 1.
        info: (...), int32: the position of the first 0 on the diagonal of U, counted from 1; 0 if there is none.

    Raises:
        TypeError: if `A` is no tensor, or integer, bool or complex.
        ValueError: if `A` has fewer than two dimensions.
        LinAlgError: if `check_errors`, and `info` is not 0 for a matrix.

    Example:
        >>> flow.linalg.lu_factor_ex(flow.tensor([[2.0, 0.0], [1.0, 4.0]])).LU
        tensor([[2.0000, 0.0000],
                [0.5000, 4.0000]])
    """
    check_tensors("lu_factor_ex", A)
    factors = LUFactorsInfo(*_interpreter.dispatch_several(_LU_FACTOR, (A,), (bool(pivot),)))
    _check_info("lu_factor_ex", factors.info, check_errors, "the matrix is singular")
    return factors


def _check_info(name: str, info: Tensor, check_errors: bool, meaning: str) -> None:
    if check_errors and info.any().item():
        raise LinAlgError(f"linalg.{name}: {meaning}: info is {info.tolist()}")


@outs_by_copy()
def lu_factor(A: Tensor, *, pivot: bool = True, out: tuple[Tensor, ...] | None = None) -> LUFactors:
    """`lu_factor_ex` without `info`: the triangular factors of (..., m, n) in one tensor, and the pivots.

    `lu_solve` takes the result.  For a singular matrix `lu_factor` raises no error, since it does not wait for values;
    `lu_solve` with the factors raises one.

    Raises:
        TypeError, ValueError: as `lu_factor_ex`.

    Example:
        >>> flow.linalg.lu_factor(flow.tensor([[2.0, 0.0], [1.0, 4.0]])).pivots
        tensor([1, 2], dtype=vmflow.int32)
    """
    factors, pivots, _ = lu_factor_ex(A, pivot=pivot)
    return LUFactors(factors, pivots)


@outs_by_copy()
def lu(A: Tensor, *, pivot: bool = True, out: tuple[Tensor, ...] | None = None) -> PLU:
    """A permutation matrix P, a lower triangular L with unit diagonal, an upper triangular U: ``P @ L @ U = A``.

    Args:
        A: (..., m, n).
        pivot: see `lu_factor_ex`; if False, P is empty.

    Returns:
        P: (..., m, m), or empty.
        L: (..., m, k), where k is the smaller of m and n.
        U: (..., k, n).

    Raises:
        TypeError, ValueError: as `lu_factor_ex`.

    Example:
        >>> flow.linalg.lu(flow.tensor([[1.0, 4.0], [2.0, 0.0]])).U
        tensor([[2., 0.],
                [0., 4.]])
    """
    return lu_unpack(*lu_factor(A, pivot=pivot), unpack_pivots=bool(pivot))


@function()
@outs_by_copy()
def lu_unpack(
    LU_data: Tensor,
    LU_pivots: Tensor,
    unpack_data: bool = True,
    unpack_pivots: bool = True,
    *,
    out: tuple[Tensor, ...] | None = None,
) -> PLU:
    """The matrices P, L and U from the result of `vmflow.linalg.lu_factor`.

    Args:
        LU_data, LU_pivots: the factors, (..., m, n), and the pivots.
        unpack_data: whether to return L and U; otherwise they are empty.
        unpack_pivots: whether to return P; otherwise it is empty.

    Raises:
        TypeError: if an operand is no tensor, the factors are integer, bool or complex, or the pivots are neither int32
            nor int64.
        ValueError: if the shapes do not fit.
        IndexError: for pivots that are no row numbers, when the result is read.

    Example:
        >>> flow.lu_unpack(flow.tensor([[2.0, 0.0], [0.5, 4.0]]), flow.tensor([1, 2], dtype=flow.int32)).L
        tensor([[1.0000, 0.0000],
                [0.5000, 1.0000]])
    """
    check_tensors("lu_unpack", LU_data, LU_pivots)
    real_matrices("lu_unpack", LU_data._blob.meta)
    rows, columns = LU_data.shape[-2:]
    steps = min(rows, columns)
    empty = LU_data.new_zeros(0)
    permutation, lower, upper = empty, empty, empty
    if unpack_pivots:
        _check_pivots("lu_unpack", LU_data, LU_pivots)
        order = _order(LU_pivots, rows)
        identity = beside(eye(rows, dtype=LU_data.dtype, device=LU_data.device), order)
        # P.T @ A = L @ U: row i of P.T is row order[i] of the identity.
        permutation = identity[order].mT
    if unpack_data:
        lower = _unit_lower(LU_data.narrow(-1, 0, steps))
        upper = triu(LU_data.narrow(-2, 0, steps))
    return PLU(permutation, lower, upper)


def _check_pivots(name: str, LU: Tensor, pivots: Tensor) -> None:
    if tuple(pivots.shape) != (*LU.shape[:-2], min(LU.shape[-2:])):
        raise ValueError(f"{name}: pivots of shape {list(pivots.shape)} do not fit factors {list(LU.shape)}")


@out_by_copy()
def lu_solve(
    LU: Tensor,
    pivots: Tensor,
    B: Tensor,
    *,
    left: bool = True,
    adjoint: bool = False,
    out: Tensor | None = None,
) -> Tensor:
    """The X with ``A @ X = B``, or with ``X @ A = B`` if not `left`, from the factors of A by `lu_factor`.

    Args:
        LU, pivots: (..., n, n) and (..., n).
        B: (..., n, k), or (..., k, n) if not `left`.
        left: whether A stands left of X.
        adjoint: whether to solve with A.mT instead of A.

    Raises:
        TypeError: if an operand is no tensor, the matrices are integer, bool or complex, their dtypes differ, or the
            pivots are neither int32 nor int64.
        ValueError: if the shapes do not fit.
        IndexError: for pivots that are no row numbers, when the result is read.
        LinAlgError: for the factors of a singular matrix, when the result is read.

    Example:
        >>> lu, pivots = flow.linalg.lu_factor(flow.tensor([[2.0, 0.0], [1.0, 4.0]]))
        >>> flow.linalg.lu_solve(lu, pivots, flow.tensor([[2.0], [5.0]]))
        tensor([[1.],
                [1.]])
    """
    check_tensors("lu_solve", LU, pivots, B)
    if not left and B.ndim >= 2:
        return lu_solve(LU, pivots, B.mT, adjoint=not adjoint).mT
    real_matrices("lu_solve", LU._blob.meta)
    square_matrices("lu_solve", LU._blob.meta)
    _check_pivots("lu_solve", LU, pivots)
    rows = LU.shape[-1]
    if B.ndim < 2 or B.shape[-2] != rows:
        raise ValueError(f"lu_solve: a right side of shape {list(B.shape)} does not fit {list(LU.shape)}")
    order = _order(pivots, rows)
    if not adjoint:
        right = _rows_at(B, order)
        return solve_triangular(LU, solve_triangular(LU, right, upper=False, unitriangular=True), upper=True)
    inner = solve_triangular(LU.mT, B, upper=False)
    inner = solve_triangular(LU.mT, inner, upper=True, unitriangular=True)
    return _rows_at(inner, order.argsort(-1))


def _rows_at(matrix: Tensor, order: Tensor) -> Tensor:
    """Reorder the rows of each matrix: row ``order[i]`` becomes row i.  The batch dimensions of both broadcast."""
    rank = max(matrix.ndim, order.ndim + 1)
    matrix = matrix.reshape(*[1] * (rank - matrix.ndim), *matrix.shape)
    order = order.reshape(*[1] * (rank - 1 - order.ndim), *order.shape)
    return take_along_dim(matrix, order.unsqueeze(-1), -2)


# `vmflow.lu_solve` and `vmflow.lu`, the older forms, which PyTorch keeps beside those of `torch.linalg`


@public("lu_solve", own=False)
@out_by_copy("lu_solve")
def solve_by_lu(b: Tensor, LU_data: Tensor, LU_pivots: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The matrix X with ``A @ X = b``, from the factors of A; see `vmflow.linalg.lu_solve`.

    Args:
        b: (..., n, k).
        LU_data, LU_pivots: the result of `vmflow.linalg.lu_factor`.

    Raises:
        TypeError, ValueError, IndexError, LinAlgError: as `vmflow.linalg.lu_solve`.

    Example:
        >>> lu, pivots = flow.linalg.lu_factor(flow.tensor([[2.0, 0.0], [1.0, 4.0]]))
        >>> flow.lu_solve(flow.tensor([[2.0], [5.0]]), lu, pivots)
        tensor([[1.],
                [1.]])
    """
    return lu_solve(LU_data, LU_pivots, b)


@public("lu", own=False)
def lu_packed(A: Tensor, pivot: bool = True, get_infos: bool = False) -> Any:
    """The packed factors of matrices (..., m, n), the pivots, and, if `get_infos`, `info`; see `linalg.lu_factor_ex`.

    Raises:
        TypeError, ValueError: as `vmflow.linalg.lu_factor_ex`.

    Example:
        >>> flow.lu(flow.tensor([[2.0, 0.0], [1.0, 4.0]]))
        (tensor([[2.0000, 0.0000],
                [0.5000, 4.0000]]), tensor([1, 2], dtype=vmflow.int32))
    """
    factors = lu_factor_ex(A, pivot=pivot)
    return factors if get_infos else (factors.LU, factors.pivots)


# Functions that report singular matrices in the result `info`, instead of raising an error


@outs_by_copy()
def solve_ex(
    A: Tensor,
    B: Tensor,
    *,
    left: bool = True,
    check_errors: bool = False,
    out: tuple[Tensor, ...] | None = None,
) -> SolutionInfo:
    """`solve`, except that a singular matrix gives nan, and a non-zero `info`, instead of an error.

    Args:
        A, B, left: see `solve`; real.
        check_errors: whether to wait for `info`, and raise LinAlgError if it is not 0.

    Returns:
        result: the solutions.
        info: int32, for each matrix: the position of the first pivot that is 0, counted from 1; 0 if there is none.

    Raises:
        TypeError: if an operand is no tensor, or integer, bool or complex, or the dtypes differ.
        ValueError: if the shapes do not fit.
        LinAlgError: for a singular matrix, if `check_errors`.

    Example:
        >>> flow.linalg.solve_ex(flow.tensor([[2.0, 0.0], [0.0, 0.0]]), flow.tensor([2.0, 2.0])).info
        tensor(2, dtype=vmflow.int32)
    """
    check_tensors("solve_ex", A, B)
    square_matrices("solve_ex", A._blob.meta)
    vectors = are_vectors(A, B)
    if vectors and not left:
        raise ValueError(f"solve_ex: left=False needs a matrix as the right side, got vectors of shape {list(B.shape)}")
    result, info = _solved(A, B.unsqueeze(-1) if vectors else B, left)
    _check_info("solve_ex", info, check_errors, "the matrix is singular")
    return SolutionInfo(result.squeeze(-1) if vectors else result, info)


def _solved(A: Tensor, B: Tensor, left: bool) -> tuple[Tensor, Tensor]:
    factors, pivots, info = lu_factor_ex(A)
    singular = (info != 0).unsqueeze(-1).unsqueeze(-1)
    identity = beside(eye(A.shape[-1], dtype=A.dtype, device=A.device), A)
    solution = lu_solve(where(singular, identity, factors), pivots, B, left=left)
    return where(singular, float("nan"), solution), info


@outs_by_copy()
def inv_ex(A: Tensor, *, check_errors: bool = False, out: tuple[Tensor, ...] | None = None) -> InverseInfo:
    """`inv`, except that a singular matrix gives nan, and a non-zero `info`, instead of an error; see `solve_ex`.

    Raises:
        TypeError, ValueError, LinAlgError: as `solve_ex`.

    Example:
        >>> flow.linalg.inv_ex(flow.tensor([[2.0, 0.0], [0.0, 0.0]])).info
        tensor(2, dtype=vmflow.int32)
    """
    check_tensors("inv_ex", A)
    square_matrices("inv_ex", A._blob.meta)
    identity = beside(eye(A.shape[-1], dtype=A.dtype, device=A.device), A)
    inverse, info = _solved(A, identity, True)
    _check_info("inv_ex", info, check_errors, "the matrix is singular")
    return InverseInfo(inverse, info)


@outs_by_copy()
def cholesky_ex(
    A: Tensor, *, upper: bool = False, check_errors: bool = False, out: tuple[Tensor, ...] | None = None
) -> CholeskyInfo:
    """`cholesky`, except that a matrix that is not positive definite gives nan, and a non-zero `info`.

    The factor is computed by elimination without row exchanges, whose pivots are the squares of the factor's diagonal.

    Args:
        A, upper: see `cholesky`; real.
        check_errors: whether to wait for `info`, and raise LinAlgError if it is not 0.

    Returns:
        L: the factor.
        info: int32, for each matrix: the size of the smallest leading submatrix that is not positive definite; 0 if
            there is none.

    Raises:
        TypeError: if `A` is no tensor, or integer, bool or complex.
        ValueError: if the matrices are not square.
        LinAlgError: for a matrix that is not positive definite, if `check_errors`.

    Example:
        >>> flow.linalg.cholesky_ex(flow.tensor([[4.0, 0.0], [0.0, -1.0]])).info
        tensor(2, dtype=vmflow.int32)
    """
    check_tensors("cholesky_ex", A)
    real_matrices("cholesky_ex", A._blob.meta)
    square_matrices("cholesky_ex", A._blob.meta)
    half = A.mT if upper else A
    symmetric = (tril(half) + tril(half, -1).mT).detach()
    # Add a zero whose gradient goes to both triangles of A evenly, so that the gradient of A is symmetric, as
    # `cholesky`'s is.  Only the triangle that is factored affects the values.
    mean = (A + A.mT) * 0.5
    zero = where(mean.detach().isfinite(), mean - mean.detach(), 0.0)
    factors = lu_factor_ex(symmetric + zero, pivot=False).LU
    divisors = factors.diagonal(0, -2, -1)
    wrong = ~(divisors.detach() > 0)
    failed = wrong.any(-1)
    info = where(failed, wrong.long().argmax(-1) + 1, 0) if A.shape[-1] else failed
    roots = where(failed.unsqueeze(-1), 1.0, divisors).sqrt()
    lower = _unit_lower(where(failed.unsqueeze(-1).unsqueeze(-1), 0.0, factors)) * roots.unsqueeze(-2)
    lower = where(failed.unsqueeze(-1).unsqueeze(-1), float("nan"), lower)
    info = info.to(dtypes.int32)
    _check_info("cholesky_ex", info, check_errors, "the matrix is not positive definite")
    return CholeskyInfo(lower.mT if upper else lower, info)
