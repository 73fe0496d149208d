"""What is made of singular values: pseudo-inverses, ranks, least squares."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from vmflow import dtypes, interpreter as _interpreter, tensors as _tensors
from vmflow.instructions.blob import meta
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
    """What `lstsq` gives."""

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


# Operands: matrices, and up to where singular values count as 0, absolutely and as a part of the largest.
_PINV = OpExpr("pinv", _infer_pinv, Form(3, tuple[bool]), "decompositions")


@_PINV.gradient(inputs=(0,), outputs=(0,))
def _pinv_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor, None, None]:
    """G. H. Golub and V. Pereyra, The differentiation of pseudo-inverses (1973), for a rank that does not change."""
    a, p = node.input(0), node.output(0)
    turned = adjoint(gradient)
    outer = matmul(turned, matmul(p, adjoint(p)))
    inner = matmul(matmul(adjoint(p), p), turned)
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
    """The pseudo-inverse: (..., m, n) gives (..., n, m).

    Args:
        A: the matrices.
        rcond: another name of `rtol`.
        atol: singular values up to this count as 0; 0 by default.  A number, or a tensor that broadcasts with the
            dimensions of A before the last two.
        rtol: and those up to this times the largest; by default the larger of both sizes times the dtype's precision,
            or 0 if there is an `atol`.
        hermitian: whether A is symmetric or Hermitian; then only its lower triangle is looked at.

    Raises:
        TypeError, ValueError: for integer matrices, and a number below 0 as a tolerance.
    """
    if rcond is not None:
        if rtol is not None:
            raise TypeError("pinv: rcond is another name of rtol; give one of them")
        rtol = rcond
    return _interpreter.dispatch(_PINV, (A, *_tolerances("pinv", A, atol, rtol)), (bool(hermitian),))


def _tolerances(name: str, A: Tensor, atol: Tolerance, rtol: Tolerance) -> tuple[Tensor, Tensor]:
    """Both as tensors, with what they are by default."""
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
            raise TypeError(f"{name}: a tolerance is real, but that given is {value.dtype.name}")
        return value.detach().to(dtype)
    if not isinstance(value, (int, float)) or not value >= 0:
        raise ValueError(f"{name}: a tolerance is a number of 0 or more, a tensor or None, not {value!r}")
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
    """How many singular values are not 0, int64.

    Args:
        A: (..., m, n).
        tol: an `atol` with an `rtol` of 0.
        hermitian, atol, rtol: as of `pinv`.

    Raises:
        TypeError, ValueError: as `pinv`.
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
        # The tolerances may have more dimensions than there are batches of matrices.
        return sum_of(values != 0, -1) + (atol.unsqueeze(-1) + rtol.unsqueeze(-1)).narrow(-1, 0, 0).sum(-1).long()
    limit = maximum(amax(values, -1, keepdim=True) * rtol.unsqueeze(-1), atol.unsqueeze(-1))
    return sum_of(values > limit, -1)


_DRIVERS: Final = ("gels", "gelsy", "gelsd", "gelss")


@autocast_as_op
def lstsq(A: Tensor, B: Tensor, rcond: float | None = None, *, driver: str | None = None) -> LeastSquares:
    """The X for which ``A @ X - B`` is smallest, and of these the smallest; by the pseudo-inverse of A.

    The drivers are names of LAPACK, all of which are computed alike here; they say what is returned besides.  Nothing
    looks at the rank, so unlike PyTorch's the result has residuals of rank-deficient matrices as well.

    Args:
        A: (..., m, n).
        B: (..., m, k); or vectors, (m,), or of the shape that A has without its last dimension.
        rcond: singular values up to this times the largest count as 0; by default as in `pinv`.
        driver: "gels", "gelsy", "gelsd" or "gelss"; by default "gelsy" on the CPU, and "gels" on other devices.

    Returns:
        solution: (..., n, k), or (..., n) of vectors.
        residuals: (..., k), the sums of squares of what is left; of no elements unless m > n, and by "gelsy".
        rank: of A, int64; of no elements by "gels".
        singular_values: of A; of no elements by "gels" and "gelsy".

    Raises:
        TypeError, ValueError: for integer and complex matrices, two dtypes, another driver, and shapes that do not fit.
    """
    chosen = driver or ("gelsy" if A.device.type == "cpu" else "gels")
    if chosen not in _DRIVERS:
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
    nothing = A.new_zeros(0)
    left_over, rank, values = nothing, nothing.long(), nothing
    if chosen != "gelsy" and A.shape[-2] > A.shape[-1]:
        left_over = (matmul(A, solution) - right).square().sum(-2)
    if chosen != "gels":
        found = svdvals(A.detach())
        rank = _rank(found, absolute, relative)
        values = values if chosen == "gelsy" else found
    return LeastSquares(solution.squeeze(-1) if vectors else solution, left_over, rank, values)
