"""Triangular factors by elimination, what is solved with them, and solutions that say where there is none.

All of them take batches of real matrices; half precision is computed in float32.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, cast

from vmflow import dtypes, interpreter as _interpreter
from vmflow.errors import LinAlgError
from vmflow.instructions.blob import meta
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
    """Both factors in one matrix, and with which row each was exchanged, counted from 1."""

    LU: Tensor
    pivots: Tensor


class LUFactorsInfo(NamedTuple):
    """As `LUFactors`, and where the first 0 is on the diagonal, counted from 1, or 0."""

    LU: Tensor
    pivots: Tensor
    info: Tensor


class PLU(NamedTuple):
    """A permutation, a lower triangle with ones on the diagonal, and an upper triangle."""

    P: Tensor
    L: Tensor
    U: Tensor


class CholeskyInfo(NamedTuple):
    """A factor, and the size of the first leading part that is not positive definite, or 0."""

    L: Tensor
    info: Tensor


class InverseInfo(NamedTuple):
    """An inverse, and where elimination found the first 0, counted from 1, or 0."""

    inverse: Tensor
    info: Tensor


class SolutionInfo(NamedTuple):
    """A solution, and where elimination found the first 0, counted from 1, or 0."""

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


# Attributes: (whether rows are exchanged)
_LU_FACTOR = OpExpr("lu_factor", _infer_lu_factor, Form(1, tuple[bool]), "decompositions")


@_LU_FACTOR.gradient(outputs=(0, 1, 2))
def _lu_factor_gradient(node: OpNode, gradient: Gradients, of_pivots: None, of_info: None) -> tuple[Gradients]:
    """S. F. Walter and L. Lehmann, Algorithmic differentiation of linear algebra functions (2010), for any shape.

    Where there is a 0 on the diagonal it is nan, or 0 if nothing is asked of the factors.
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
    """The lower triangle, with ones on the diagonal."""
    rows, columns = factors.shape[-2:]
    return tril(factors, -1) + beside(eye(rows, columns, dtype=factors.dtype, device=factors.device), factors)


def _infer_order(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    (size,) = cast("tuple[int]", attributes)
    (pivots,) = metas
    if pivots.dtype not in (dtypes.int32, dtypes.int64):
        raise TypeError(f"pivots_to_permutation: expected pivots of int32, got {pivots.dtype.name}")
    if not pivots.shape or pivots.shape[-1] > size:
        raise ValueError(
            f"pivots_to_permutation: expected pivots (..., n) of up to {size} rows, got shape {list(pivots.shape)}"
        )
    output = meta((*pivots.shape[:-1], size), dtypes.int64, pivots.device)
    return Inferred(output, pivots.shape[-1] * 3000.0 + output.numel)


# Attributes: (how many rows)
_ORDER = OpExpr("pivots_to_permutation", _infer_order, Form(1, tuple[Size]), "decompositions")


def _order(pivots: Tensor, rows: int) -> Tensor:
    """Which row of the matrix each row of ``L @ U`` is."""
    return _interpreter.dispatch(_ORDER, (pivots,), (rows,))


@outs_by_copy()
def lu_factor_ex(
    A: Tensor, *, pivot: bool = True, check_errors: bool = False, out: tuple[Tensor, ...] | None = None
) -> LUFactorsInfo:
    """The triangular factors of ``P.T @ A = L @ U``, also of singular matrices.

    Args:
        A: (..., m, n).
        pivot: whether rows are exchanged, so that the largest element of a column divides those below it; otherwise P
            is the identity.
        check_errors: whether to wait for `info`, and raise if it is not 0.

    Returns:
        LU: (..., m, n), L below the diagonal, where L has ones, and U from there on.
        pivots: (..., min(m, n)), int32: with which row each was exchanged, counted from 1.
        info: (...), int32: where the first 0 is on the diagonal of U, counted from 1, or 0.

    Raises:
        TypeError, ValueError: for integer and complex matrices, and fewer than two dimensions.
    """
    found = LUFactorsInfo(*_interpreter.dispatch_several(_LU_FACTOR, (A,), (bool(pivot),)))
    _check_info("lu_factor_ex", found.info, check_errors, "the matrix is singular")
    return found


def _check_info(name: str, info: Tensor, check_errors: bool, meaning: str) -> None:
    if check_errors and info.any().item():
        raise LinAlgError(f"linalg.{name}: {meaning}: info is {info.tolist()}")


@outs_by_copy()
def lu_factor(A: Tensor, *, pivot: bool = True, out: tuple[Tensor, ...] | None = None) -> LUFactors:
    """As `lu_factor_ex`, without `info`; `lu_solve` takes the result.

    A singular matrix is no error here, since nothing waits for it; solving with its factors is one.
    """
    factors, pivots, _ = lu_factor_ex(A, pivot=pivot)
    return LUFactors(factors, pivots)


@outs_by_copy()
def lu(A: Tensor, *, pivot: bool = True, out: tuple[Tensor, ...] | None = None) -> PLU:
    """A permutation P, a lower triangle L with ones on the diagonal and an upper triangle U with ``P @ L @ U = A``.

    Args:
        A: (..., m, n).
        pivot: as of `lu_factor_ex`; without, P is empty.

    Returns:
        P: (..., m, m), or of no elements.
        L: (..., m, k) for the smaller k of m and n.
        U: (..., k, n).

    Raises:
        TypeError, ValueError: for integer and complex matrices, and fewer than two dimensions.
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
    """The matrices P, L and U of factors that `vmflow.linalg.lu_factor` has made.

    Args:
        LU_data, LU_pivots: the factors.
        unpack_data, unpack_pivots: whether L and U, and P, are wanted; otherwise they have no elements.

    Raises:
        TypeError, ValueError: for integer and complex matrices, and pivots that do not fit.
        IndexError: for pivots that are no rows, when the result is looked at; CUDA devices count them round.
    """
    real_matrices("lu_unpack", LU_data._blob.meta)
    rows, columns = LU_data.shape[-2:]
    steps = min(rows, columns)
    nothing = LU_data.new_zeros(0)
    permutation, lower, upper = nothing, nothing, nothing
    if unpack_pivots:
        _check_pivots("lu_unpack", LU_data, LU_pivots)
        order = _order(LU_pivots, rows)
        identity = beside(eye(rows, dtype=LU_data.dtype, device=LU_data.device), order)
        # Row i of P.T is row order[i] of the identity.
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
    """The X with ``A @ X = B``, or with ``X @ A = B`` if not `left`, given the factors of A that `lu_factor` makes.

    Args:
        LU, pivots: (..., n, n) and (..., n).
        B: (..., n, k); (..., k, n) if not `left`.
        left: on which side A stands.
        adjoint: whether A.mT is meant.

    Raises:
        TypeError, ValueError: for integer and complex matrices, two dtypes, and shapes that do not fit.
        LinAlgError: for factors of a singular matrix, when the result is looked at.
    """
    if not left:
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
    """The rows in another order, of each matrix in its own; their batches broadcast."""
    rank = max(matrix.ndim, order.ndim + 1)
    matrix = matrix.reshape(*[1] * (rank - matrix.ndim), *matrix.shape)
    order = order.reshape(*[1] * (rank - 1 - order.ndim), *order.shape)
    return take_along_dim(matrix, order.unsqueeze(-1), -2)


# The names at the top, and of methods, which PyTorch had before


@public("lu_solve", own=False)
@out_by_copy("lu_solve")
def solve_by_lu(b: Tensor, LU_data: Tensor, LU_pivots: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The X with ``A @ X = b``, given the factors of A; see `vmflow.linalg.lu_solve`.

    Args:
        b: (..., n, k).
        LU_data, LU_pivots: as `vmflow.linalg.lu_factor` makes them.
    """
    return lu_solve(LU_data, LU_pivots, b)


@public("lu", own=False)
def lu_packed(A: Tensor, pivot: bool = True, get_infos: bool = False) -> Any:
    """The factors and the pivots of matrices, and with `get_infos` their `info`; see `vmflow.linalg.lu_factor_ex`."""
    found = lu_factor_ex(A, pivot=pivot)
    return found if get_infos else (found.LU, found.pivots)


# Solutions that say where there is none


@outs_by_copy()
def solve_ex(
    A: Tensor,
    B: Tensor,
    *,
    left: bool = True,
    check_errors: bool = False,
    out: tuple[Tensor, ...] | None = None,
) -> SolutionInfo:
    """As `solve`, but of singular matrices the result is nan, and `info` says so.

    Args:
        A, B, left: as of `solve`; real.
        check_errors: whether to wait for `info`, and raise if it is not 0.

    Returns:
        result: the solutions.
        info: for each matrix, int32: where elimination found the first 0, counted from 1, or 0.

    Raises:
        TypeError, ValueError: for integer and complex matrices, two dtypes, and shapes that do not fit.
    """
    square_matrices("solve_ex", A._blob.meta)
    vectors = are_vectors(A, B)
    if vectors and not left:
        raise ValueError(f"solve_ex: left=False is for matrices, but the right side {list(B.shape)} is of vectors")
    result, info = _solved(A, B.unsqueeze(-1) if vectors else B, left)
    _check_info("solve_ex", info, check_errors, "the matrix is singular")
    return SolutionInfo(result.squeeze(-1) if vectors else result, info)


def _solved(A: Tensor, B: Tensor, left: bool) -> tuple[Tensor, Tensor]:
    factors, pivots, info = lu_factor_ex(A)
    singular = (info != 0).unsqueeze(-1).unsqueeze(-1)
    identity = beside(eye(A.shape[-1], dtype=A.dtype, device=A.device), A)
    found = lu_solve(where(singular, identity, factors), pivots, B, left=left)
    return where(singular, float("nan"), found), info


@outs_by_copy()
def inv_ex(A: Tensor, *, check_errors: bool = False, out: tuple[Tensor, ...] | None = None) -> InverseInfo:
    """As `inv`, but of singular matrices the result is nan, and `info` says so; see `solve_ex`."""
    square_matrices("inv_ex", A._blob.meta)
    identity = beside(eye(A.shape[-1], dtype=A.dtype, device=A.device), A)
    inverse, info = _solved(A, identity, True)
    _check_info("inv_ex", info, check_errors, "the matrix is singular")
    return InverseInfo(inverse, info)


@outs_by_copy()
def cholesky_ex(
    A: Tensor, *, upper: bool = False, check_errors: bool = False, out: tuple[Tensor, ...] | None = None
) -> CholeskyInfo:
    """As `cholesky`, but of matrices that are not positive definite the factor is nan, and `info` says so.

    By elimination without exchanges, whose divisors are the squares of the factor's diagonal.

    Args:
        A, upper: as of `cholesky`.
        check_errors: whether to wait for `info`, and raise if it is not 0.

    Returns:
        L: the factor.
        info: for each matrix, int32: the size of the first leading part that is not positive definite, or 0.

    Raises:
        TypeError, ValueError: for integer and complex matrices, and those that are not square.
    """
    real_matrices("cholesky_ex", A._blob.meta)
    square_matrices("cholesky_ex", A._blob.meta)
    half = A.mT if upper else A
    symmetric = (tril(half) + tril(half, -1).mT).detach()
    # The gradient is that of symmetric matrices, as `cholesky` has it; of the other triangle no value is looked at.
    mean = (A + A.mT) * 0.5
    nothing = where(mean.detach().isfinite(), mean - mean.detach(), 0.0)
    factors = lu_factor_ex(symmetric + nothing, pivot=False).LU
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
