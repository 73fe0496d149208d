"""The linear algebra of the array API standard: that of the main namespace, and what its extension adds."""

from __future__ import annotations

from collections.abc import Sequence

import vmflow as _vmflow
from vmflow.dtypes import dtype as DType
from vmflow.ops.linalg.decompositions import QR, SVD, Eigen, SignLogabsdet
from vmflow.tensors import Tensor

from .data_types import together
from .statistics import summed

_linalg = _vmflow.linalg


def cholesky(x: Tensor, /, *, upper: bool = False) -> Tensor:
    """The triangular factors of positive definite matrices, lower ones unless `upper`."""
    return _linalg.cholesky(x, upper=upper)


def det(x: Tensor, /) -> Tensor:
    """The determinants."""
    return _linalg.det(x)


def eigh(x: Tensor, /) -> Eigen:
    """The eigenvalues and eigenvectors of symmetric or Hermitian matrices."""
    return _linalg.eigh(x)


def eigvalsh(x: Tensor, /) -> Tensor:
    """The eigenvalues of symmetric or Hermitian matrices."""
    return _linalg.eigvalsh(x)


def inv(x: Tensor, /) -> Tensor:
    """The inverses."""
    return _linalg.inv(x)


def matrix_power(x: Tensor, n: int, /) -> Tensor:
    """The matrices to an integer power; of the inverses if that is negative."""
    return _linalg.matrix_power(x, n)


def matrix_rank(x: Tensor, /, *, rtol: float | Tensor | None = None) -> Tensor:
    """How many singular values are larger than `rtol` times the largest.

    Args:
        x: the matrices.
        rtol: a number, or one for each matrix; by default the larger of both sizes times the dtype's precision.
    """
    if not isinstance(rtol, Tensor):
        return _linalg.matrix_rank(x, rtol=rtol)
    values = svdvals(x)
    return _vmflow.sum(values > _least(values, rtol), -1)


def _least(values: Tensor, rtol: Tensor) -> Tensor:
    """Up to which size singular values count as 0."""
    largest = _vmflow.amax(values, -1, True) if values.shape[-1] else _vmflow.sum(values, -1, True)
    return largest * rtol.to(values.dtype).unsqueeze(-1)


def pinv(x: Tensor, /, *, rtol: float | Tensor | None = None) -> Tensor:
    """The pseudo-inverses; for `rtol`, see `matrix_rank`."""
    if not isinstance(rtol, Tensor):
        return _linalg.pinv(x, rtol=rtol)
    left, values, right = _linalg.svd(x, full_matrices=False)
    counts = values > _least(values, rtol)
    inverted = _vmflow.where(counts, 1 / _vmflow.where(counts, values, 1), 0)
    return _vmflow.matmul(_vmflow.conj(right).mT * inverted.unsqueeze(-2), _vmflow.conj(left).mT)


def qr(x: Tensor, /, *, mode: str = "reduced") -> QR:
    """Orthogonal matrices `Q` and upper triangular ones `R`, whose products are the matrices."""
    return _linalg.qr(x, mode)


def slogdet(x: Tensor, /) -> SignLogabsdet:
    """The signs of determinants, and the logarithms of their absolute values."""
    return _linalg.slogdet(x)


def solve(x1: Tensor, x2: Tensor, /) -> Tensor:
    """The X with ``x1 @ X = x2``; `x2` is a vector if it has one dimension, and matrices otherwise."""
    left, right = together("solve", x1, x2)
    if right.ndim > 1:  # with as many dimensions as the left side's, nothing is taken for a stack of vectors
        right = right.reshape((1,) * (left.ndim - right.ndim) + tuple(right.shape))
    return _linalg.solve(left, right)


def svd(x: Tensor, /, *, full_matrices: bool = True) -> SVD:
    """Singular vectors `U` and `Vh`, and between them the singular values `S` from the largest to the smallest."""
    return _linalg.svd(x, full_matrices)


def svdvals(x: Tensor, /) -> Tensor:
    """The singular values, from the largest to the smallest."""
    return _linalg.svdvals(x)


def matmul(x1: Tensor, x2: Tensor, /) -> Tensor:
    """The matrix product."""
    return _vmflow.matmul(*together("matmul", x1, x2))


def matrix_transpose(x: Tensor, /) -> Tensor:
    """The last two dimensions exchanged.

    Raises:
        ValueError: if there are fewer than two.
    """
    if x.ndim < 2:
        raise ValueError(f"matrix_transpose: expected at least two dimensions, got {list(x.shape)}")
    return _vmflow.transpose(x, -1, -2)


def tensordot(x1: Tensor, x2: Tensor, /, *, axes: int | tuple[Sequence[int], Sequence[int]] = 2) -> Tensor:
    """Products summed over dimensions of both."""
    chosen = axes if isinstance(axes, int) else (list(axes[0]), list(axes[1]))
    first, second = together("tensordot", x1, x2)
    return _vmflow.tensordot(first, second, chosen)


def vecdot(x1: Tensor, x2: Tensor, /, *, axis: int = -1) -> Tensor:
    """The products of the conjugate of `x1` with `x2`, summed over a dimension counted from the end.

    Raises:
        ValueError: if they differ in that dimension, or it is not counted from the end.
    """
    if not -min(x1.ndim, x2.ndim) <= axis < 0:
        raise ValueError(f"vecdot: axis {axis} must be negative, and a dimension of both")
    if x1.size(axis) != x2.size(axis):
        raise ValueError(f"vecdot: dimension {axis} is {x1.size(axis)} in one and {x2.size(axis)} in the other")
    first, second = together("vecdot", x1, x2)
    return _vmflow.sum(_vmflow.conj(first) * second, axis, dtype=first.dtype)


def cross(x1: Tensor, x2: Tensor, /, *, axis: int = -1) -> Tensor:
    """The cross product over a dimension of three elements.

    Raises:
        ValueError: if it has another length.
    """
    if x1.size(axis) != 3 or x2.size(axis) != 3:
        raise ValueError(f"cross: dimension {axis} must have 3 elements, got {x1.size(axis)} and {x2.size(axis)}")
    first, second = _vmflow.broadcast_tensors(*together("cross", x1, x2))
    return _linalg.cross(first, second, dim=axis)


def diagonal(x: Tensor, /, *, offset: int = 0) -> Tensor:
    """The `offset`-th diagonals of the matrices."""
    return _vmflow.diagonal(x, offset, -2, -1)


def matrix_norm(x: Tensor, /, *, keepdims: bool = False, ord: int | float | str | None = "fro") -> Tensor:
    """The norms of the matrices: "fro", 1, -1, inf, -inf, 2, -2 and "nuc".

    Raises:
        ValueError: for another `ord`.
    """
    if ord is None or ord == "fro":
        return vector_norm(x, axis=(-2, -1), keepdims=keepdims)
    if ord in (2, -2, "nuc"):
        return _linalg.matrix_norm(x, ord, (-2, -1), keepdims)
    across = {
        1: (-2, _vmflow.amax),
        -1: (-2, _vmflow.amin),
        float("inf"): (-1, _vmflow.amax),
        -float("inf"): (-1, _vmflow.amin),
    }
    if ord not in across:
        raise ValueError(f"matrix_norm: ord must be 'fro', 'nuc', 1, -1, 2, -2, inf or -inf, not {ord!r}")
    summed, chosen = across[ord]
    sums = _vmflow.sum(_vmflow.abs(x), summed, True)
    return chosen(sums, (-2, -1), keepdims)


def outer(x1: Tensor, x2: Tensor, /) -> Tensor:
    """All products of two vectors' elements."""
    return _vmflow.outer(*together("outer", x1, x2))


def trace(x: Tensor, /, *, offset: int = 0, dtype: DType | None = None) -> Tensor:
    """The sums of the diagonals."""
    return _vmflow.sum(diagonal(x, offset=offset), -1, dtype=summed(x, dtype))


def vector_norm(
    x: Tensor, /, *, axis: int | tuple[int, ...] | None = None, keepdims: bool = False, ord: int | float = 2
) -> Tensor:
    """The norm of the elements along these dimensions."""
    return _linalg.vector_norm(x, ord, axis, keepdims)
