"""Pseudo-inverses, ranks and least squares, computed from singular values (of Hermitian matrices, eigenvalues)."""

from __future__ import annotations

from numbers import Complex, Real
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from vmflow import dtypes, interpreter as _interpreter, tensors as _tensors
from vmflow.instructions.blob import meta
from vmflow.operands import check_tensors
from vmflow.ops.autocasting import autocast_as_op
from vmflow.ops.declaration import public
from vmflow.ops.destination import out_by_copy
from vmflow.ops.elementwise.selection import where
from vmflow.ops.nn.layer_operands import check_floating, computes_in
from vmflow.ops.reduction.extrema import maximum
from vmflow.ops.reduction.reduction import amax, sum as sum_of
from vmflow.ops.table import Attributes, Form, Inferred, Kinds, Metas, OpExpr, broadcast_shapes, common_device

from .decompositions import adjoint, eigvalsh, fractional_matrices, real_matrices, svdvals
from .linear_algebra import are_vectors, matmul

if TYPE_CHECKING:
    from vmflow.autograd.node import OpNode
    from vmflow.dtypes import dtype as DType
    from vmflow.tensors import Tensor


class LeastSquares(NamedTuple):
    """The result of `lstsq`."""

    solution: Tensor
    residuals: Tensor
    rank: Tensor
    singular_values: Tensor


Tolerance: TypeAlias = "float | Tensor | None"


def _infer_pinv(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    source, atol, rtol = metas
    device = common_device("pinv", metas)
    fractional_matrices("pinv", source)
    check_floating("pinv", atol)
    check_floating("pinv", rtol)
    if attributes[0] and source.shape[-1] != source.shape[-2]:
        raise ValueError(f"pinv: expected symmetric matrices for hermitian=True, got shape {list(source.shape)}")
    batch = broadcast_shapes("pinv", source.shape[:-2], atol.shape, rtol.shape)
    output = meta((*batch, source.shape[-1], source.shape[-2]), source.dtype, device)
    return Inferred(output, 3.0 * output.numel * min(source.shape[-2:]) + 20_000)


# Operands: (matrices, absolute tolerance, relative tolerance).  Singular values count as 0 up to the absolute
# tolerance, or up to the relative one times the largest singular value.  Attributes: (whether matrices are Hermitian,)
_PINV = OpExpr("pinv", _infer_pinv, Form(3, tuple[bool]), "decompositions")


@_PINV.gradient(inputs=(0,), outputs=(0,))
def _pinv_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor, None, None]:
    """Compute the gradient of `pinv` by its matrices, whose rank is taken as constant.

    G. H. Golub and V. Pereyra, The differentiation of pseudo-inverses (1973).
    """
    a, p = node.input(0), node.output(0)
    transposed = adjoint(gradient)
    outer = matmul(transposed, matmul(p, adjoint(p)))
    inner = matmul(matmul(adjoint(p), p), transposed)
    return (
        outer
        - matmul(a, matmul(p, outer))
        + inner
        - matmul(matmul(inner, p), a)
        - matmul(matmul(adjoint(p), gradient), adjoint(p)),
        None,
        None,
    )


@public("pinverse", own=False)
@autocast_as_op
@out_by_copy()
def pinv(
    A: Tensor,
    rcond: float | Tensor | None = None,
    hermitian: bool = False,
    *,
    atol: float | Tensor | None = None,
    rtol: float | Tensor | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """The pseudo-inverse of each matrix: (..., m, n) gives (..., n, m).

    Args:
        A: the matrices.
        rcond: another name of `rtol`.
        atol: singular values up to this count as 0; 0 by default.  A number, or a tensor that broadcasts with the
            dimensions of A before the last two.
        rtol: singular values up to this times the largest one count as 0, too.  By default the larger of m and n times
            the dtype's precision, or 0 where `atol` is above 0.
        hermitian: whether A is symmetric or Hermitian; then only its lower triangle is read.

    Raises:
        TypeError: if `A` is no tensor, or integer or bool, if a tolerance is complex, or if both `rcond` and `rtol` are
            given.
        ValueError: if a tolerance is a negative number or does not broadcast, or `A` has fewer than two dimensions, or
            is not square with `hermitian`.
        LinAlgError: if the iteration does not converge, when the result is read.

    Example:
        >>> flow.pinverse(flow.tensor([[2.0, 0.0], [0.0, 0.0]]))
        tensor([[0.5000, 0.0000],
                [0.0000, 0.0000]])
    """
    if rcond is not None:
        if rtol is not None:
            raise TypeError("pinv: rcond is another name of rtol; give one of them")
        rtol = rcond
    return _interpreter.dispatch(_PINV, (A, *_tolerances("pinv", A, atol, rtol)), (bool(hermitian),))


def _tolerances(name: str, A: Tensor, atol: Tolerance, rtol: Tolerance) -> tuple[Tensor, Tensor]:
    """Convert the absolute and the relative tolerance of singular values to tensors; fill in the defaults for None."""
    check_tensors(name, A)
    fractional_matrices(name, A._blob.meta)
    dtype = computes_in(A._blob.meta).to_real()
    precision = max(A.shape[-2:]) * dtypes.finfo(A.dtype).eps
    absolute = _tolerance(name, A, 0.0 if atol is None else atol, dtype)
    if rtol is not None:
        relative = _tolerance(name, A, rtol, dtype)
    elif isinstance(atol, _tensors.Tensor):
        relative = where(absolute > 0, 0.0, precision)
    else:
        relative = _tolerance(name, A, 0.0 if atol else precision, dtype)
    return absolute, relative


def _tolerance(name: str, A: Tensor, value: float | Tensor, dtype: DType) -> Tensor:
    if isinstance(value, _tensors.Tensor):
        if value.dtype.is_complex:
            raise TypeError(f"{name}: a tolerance must be real, not {value.dtype.name}")
        return value.detach().to(dtype)
    if isinstance(value, Complex) and not isinstance(value, Real):
        raise TypeError(f"{name}: a tolerance must be real, not {value!r}")
    if not isinstance(value, Real) or not value >= 0:
        raise ValueError(f"{name}: a tolerance must be a number of 0 or more, a tensor or None, not {value!r}")
    return A.new_full((), value, dtype=dtype)


@autocast_as_op
@out_by_copy()
def matrix_rank(
    A: Tensor,
    tol: float | Tensor | None = None,
    hermitian: bool = False,
    *,
    atol: float | Tensor | None = None,
    rtol: float | Tensor | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """The rank of each matrix, int64: the number of its singular values above the tolerance.  (..., m, n) gives (...).

    Args:
        A: (..., m, n).
        tol: an `atol` with an `rtol` of 0.
        hermitian, atol, rtol: see `pinv`.

    Raises:
        TypeError, ValueError, LinAlgError: as `pinv`; TypeError if `tol` is given with `atol` or `rtol`.

    Example:
        >>> flow.linalg.matrix_rank(flow.tensor([[1.0, 0.0], [0.0, 0.0]]))
        tensor(1)
    """
    if tol is not None:
        if atol is not None or rtol is not None:
            raise TypeError("matrix_rank: tol is an atol with an rtol of 0; give tol, or one or both of the others")
        atol, rtol = tol, 0.0
    absolute, relative = _tolerances("matrix_rank", A, atol, rtol)
    values = eigvalsh(A).abs() if hermitian else svdvals(A)
    return _rank(values.detach(), absolute, relative)


def _rank(values: Tensor, atol: Tensor, rtol: Tensor) -> Tensor:
    if not values.shape[-1]:
        # The rank of empty matrices is 0.  Add empty sums of the tolerances, which may broadcast the batch dimensions.
        return sum_of(values != 0, -1) + (atol.unsqueeze(-1) + rtol.unsqueeze(-1)).narrow(-1, 0, 0).sum(-1).long()
    limit = maximum(amax(values, -1, keepdim=True) * rtol.unsqueeze(-1), atol.unsqueeze(-1))
    return sum_of(values > limit, -1)


_DRIVERS: Final = ("gels", "gelsy", "gelsd", "gelss")


@autocast_as_op
def lstsq(A: Tensor, B: Tensor, rcond: float | None = None, *, driver: str | None = None) -> LeastSquares:
    """The least-squares solution: the X with the smallest norm of ``A @ X - B``, and of several the smallest X.

    X is the pseudo-inverse of A times B.  All drivers compute the same solution, and differ in the other results.
    Unlike in PyTorch, rank-deficient matrices have residuals too, since the shape of the result may not depend on the
    rank, a value.

    Args:
        A: (..., m, n).
        B: matrices (..., m, k); or vectors: (m,), or the shape of A without its last dimension.
        rcond: singular values up to this times the largest count as 0; the default is that of `pinv`.
        driver: "gels", "gelsy", "gelsd" or "gelss"; by default "gelsy" on the CPU, and "gels" on other devices.

    Returns:
        solution: (..., n, k), or (..., n) for vectors.
        residuals: (..., k), k is 1 for vectors: the sums of the squares of ``A @ X - B``; empty unless m > n, and
            always with "gelsy".
        rank: of A, int64; empty with "gels".
        singular_values: of A; empty with "gels" and "gelsy".

    Raises:
        TypeError: if an operand is no tensor, or integer, bool or complex, the dtypes differ, or `rcond` is complex.
        ValueError: for another driver, a negative `rcond`, or if the shapes do not fit.
        LinAlgError: if the iteration does not converge, when the result is read.

    Example:
        >>> flow.linalg.lstsq(flow.tensor([[1.0], [0.0]]), flow.tensor([[2.0], [1.0]])).solution
        tensor([[2.]])
    """
    check_tensors("lstsq", A, B)
    driver = driver or ("gelsy" if A.device.type == "cpu" else "gels")
    if driver not in _DRIVERS:
        raise ValueError(f"lstsq: driver must be one of {', '.join(map(repr, _DRIVERS))}, not {driver!r}")
    if A.dtype is not B.dtype:
        raise TypeError(f"lstsq: expected one dtype, got {A.dtype.name} and {B.dtype.name}")
    vectors = are_vectors(A, B)
    right = B.unsqueeze(-1) if vectors else B
    if A.ndim < 2 or right.ndim < 2 or A.shape[-2] != right.shape[-2]:
        raise ValueError(f"lstsq: a right side of shape {list(B.shape)} does not fit {list(A.shape)}")
    real_matrices("lstsq", A._blob.meta)
    broadcast_shapes("lstsq", tuple(A.shape[:-2]), tuple(right.shape[:-2]))
    absolute, relative = _tolerances("lstsq", A, None, rcond)
    solution = matmul(pinv(A, rtol=relative), right)
    empty = A.new_zeros(0)
    residuals, rank, values = empty, empty.long(), empty
    if driver != "gelsy" and A.shape[-2] > A.shape[-1]:
        residuals = (matmul(A, solution) - right).square().sum(-2)
    if driver != "gels":
        singular = svdvals(A.detach())
        rank = _rank(singular, absolute, relative)
        values = values if driver == "gelsy" else singular
    return LeastSquares(solution.squeeze(-1) if vectors else solution, residuals, rank, values)
