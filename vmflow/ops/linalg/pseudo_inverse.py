"""What is made of singular values: pseudo-inverses, ranks, least squares."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from vmflow import dtypes, interpreter as _interpreter
from vmflow.ops.autocasting import autocast_as_op
from vmflow.ops.declaration import public
from vmflow.ops.destination import out_by_copy
from vmflow.ops.reduction.reduction import amax, sum as sum_of

from .decompositions import eigvalsh, factored, real_matrices, svdvals
from .linear_algebra import matmul

if TYPE_CHECKING:
    from vmflow.autograd.node import OpNode
    from vmflow.tensors import Tensor


class LeastSquares(NamedTuple):
    """What `lstsq` gives."""

    solution: Tensor
    residuals: Tensor
    rank: Tensor
    singular_values: Tensor


def _tolerance(name: str, value: object) -> float | None:
    if value is not None and (not isinstance(value, (int, float)) or not value >= 0):
        raise ValueError(f"{name}: a tolerance is a number of 0 or more, or None, not {value!r}")
    return None if value is None else float(value)


_PINV = factored(
    "pinv", lambda shape, attributes: ((*shape[:-2], shape[-1], shape[-2]),), options=tuple[float, float, bool]
)


@_PINV.gradient(inputs=(0,), outputs=(0,))
def _pinv_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    """G. H. Golub and V. Pereyra, The differentiation of pseudo-inverses (1973), for a rank that does not change."""
    a, p = node.input(0), node.output(0)
    turned = gradient.mT
    outer = matmul(turned, matmul(p, p.mT))
    inner = matmul(matmul(p.mT, p), turned)
    return (
        outer
        - matmul(a, matmul(p, outer))
        + inner
        - matmul(matmul(inner, p), a)
        - matmul(matmul(p.mT, gradient), p.mT),
    )


@public("pinverse", own=False)
@autocast_as_op
@out_by_copy()
def pinv(
    A: Tensor,
    *,
    atol: float | None = None,
    rtol: float | None = None,
    hermitian: bool = False,
    out: Tensor | None = None,
) -> Tensor:
    """The pseudo-inverse: (..., m, n) gives (..., n, m).

    Args:
        A: the matrices.
        atol: singular values up to this count as 0; 0 by default.
        rtol: and those up to this times the largest; by default the larger of both sizes times the dtype's precision,
            or 0 if there is an `atol`.
        hermitian: whether A is symmetric; then only its lower triangle is looked at.

    Raises:
        TypeError, ValueError: for integer and complex matrices, and a tolerance below 0.
    """
    absolute, relative = _tolerances("pinv", A, atol, rtol)
    return _interpreter.dispatch(_PINV, (A,), (absolute, relative, bool(hermitian)))


def _tolerances(name: str, A: Tensor, atol: float | None, rtol: float | None) -> tuple[float, float]:
    real_matrices(name, A._blob.meta)
    absolute, relative = _tolerance(name, atol), _tolerance(name, rtol)
    if relative is None:
        relative = 0.0 if absolute else max(A.shape[-2:]) * dtypes.finfo(A.dtype).eps
    return absolute or 0.0, relative


@autocast_as_op
@out_by_copy()
def matrix_rank(
    A: Tensor,
    *,
    atol: float | None = None,
    rtol: float | None = None,
    hermitian: bool = False,
    out: Tensor | None = None,
) -> Tensor:
    """How many singular values are not 0, int64; see `pinv`, which has the same tolerances."""
    absolute, relative = _tolerances("matrix_rank", A, atol, rtol)
    values = eigvalsh(A).abs() if hermitian else svdvals(A)
    return _rank(values.detach(), absolute, relative)


def _rank(values: Tensor, atol: float, rtol: float) -> Tensor:
    if not values.shape[-1]:
        return sum_of(values != 0, -1)
    limit = (amax(values, -1, keepdim=True) * rtol).clamp(min=atol)
    return sum_of(values > limit, -1)


@autocast_as_op
def lstsq(A: Tensor, B: Tensor, rcond: float | None = None, *, driver: str | None = None) -> LeastSquares:
    """The X for which ``A @ X - B`` is smallest, and of these the smallest; by the pseudo-inverse of A.

    The result does not look at the rank, so unlike PyTorch's it has residuals of rank-deficient matrices as well.

    Args:
        A: (..., m, n).
        B: (..., m, k), or (m,) for a single vector.
        rcond: singular values up to this times the largest count as 0; by default as in `pinv`.
        driver: accepted for PyTorch's sake.

    Returns:
        solution: (..., n, k).
        residuals: (..., k), the sums of squares of what is left; of no elements unless m > n.
        rank: of A, int64.
        singular_values: of A.

    Raises:
        TypeError, ValueError: for integer and complex matrices, two dtypes, and shapes that do not fit.
    """
    vector = B.ndim == 1
    right = B.unsqueeze(-1) if vector else B
    if A.dtype is not B.dtype:
        raise TypeError(f"lstsq: expected one dtype, got {A.dtype.name} and {B.dtype.name}")
    if A.ndim < 2 or right.ndim < 2 or A.shape[-2] != right.shape[-2]:
        raise ValueError(f"lstsq: a right side of shape {list(B.shape)} does not fit {list(A.shape)}")
    absolute, relative = _tolerances("lstsq", A, None, rcond)
    solution = matmul(pinv(A, rtol=relative), right)
    values = svdvals(A.detach())
    if A.shape[-2] > A.shape[-1]:
        left_over = (matmul(A, solution) - right).square().sum(-2)
    else:
        left_over = A.new_zeros(0)
    return LeastSquares(
        solution.squeeze(-1) if vector else solution, left_over, _rank(values, absolute, relative), values
    )
