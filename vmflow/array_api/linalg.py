"""Linear algebra of the array API standard, version 2024.12: of the main namespace, and of the extension."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as _np

import vmflow as _vmflow
from vmflow.dtypes import dtype as DType
from vmflow.operands import check_tensors
from vmflow.ops.linalg.decompositions import QR, SVD, Eigen, SignLogabsdet
from vmflow.tensors import Tensor

from .data_types import isdtype, together
from .searching import along
from .statistics import summed

_linalg = _vmflow.linalg


def cholesky(x: Tensor, /, *, upper: bool = False) -> Tensor:
    """The Cholesky factors of positive definite matrices: lower triangular ones, or upper ones if `upper`.

    Raises:
        TypeError, ValueError, LinAlgError: as `vmflow.linalg.cholesky`.

    Example:
        >>> flow.array_api.linalg.cholesky(flow.tensor([[4.0, 2.0], [2.0, 5.0]]))
        tensor([[2., 0.],
                [1., 2.]])
    """
    return _linalg.cholesky(x, upper=upper)


def det(x: Tensor, /) -> Tensor:
    """The determinants of square matrices.

    Raises:
        TypeError, ValueError: as `vmflow.linalg.det`.

    Example:
        >>> flow.array_api.linalg.det(flow.tensor([[2.0, 0.0], [0.0, 4.0]]))
        tensor(8.)
    """
    return _linalg.det(x)


def eigh(x: Tensor, /) -> Eigen:
    """The eigenvalues and eigenvectors of symmetric or Hermitian matrices.

    Raises:
        TypeError, ValueError, LinAlgError: as `vmflow.linalg.eigh`.

    Example:
        >>> flow.array_api.linalg.eigh(flow.tensor([[2.0, 0.0], [0.0, 1.0]])).eigenvalues
        tensor([1., 2.])
    """
    return _linalg.eigh(x)


def eigvalsh(x: Tensor, /) -> Tensor:
    """The eigenvalues of symmetric or Hermitian matrices.

    Raises:
        TypeError, ValueError, LinAlgError: as `vmflow.linalg.eigvalsh`.

    Example:
        >>> flow.array_api.linalg.eigvalsh(flow.tensor([[2.0, 0.0], [0.0, 1.0]]))
        tensor([1., 2.])
    """
    return _linalg.eigvalsh(x)


def inv(x: Tensor, /) -> Tensor:
    """The inverses of square matrices.

    Raises:
        TypeError, ValueError, LinAlgError: as `vmflow.linalg.inv`.

    Example:
        >>> flow.array_api.linalg.inv(flow.tensor([[2.0, 0.0], [0.0, 4.0]]))
        tensor([[0.5000, 0.0000],
                [0.0000, 0.2500]])
    """
    return _linalg.inv(x)


def matrix_power(x: Tensor, n: int, /) -> Tensor:
    """The `n`-th powers of square matrices; for a negative `n`, powers of their inverses.

    Raises:
        TypeError, ValueError, LinAlgError: as `vmflow.linalg.matrix_power`.

    Example:
        >>> flow.array_api.linalg.matrix_power(flow.tensor([[1, 1], [0, 1]]), 5)
        tensor([[1, 5],
                [0, 1]])
    """
    return _linalg.matrix_power(x, n)


def matrix_rank(x: Tensor, /, *, rtol: float | Tensor | None = None) -> Tensor:
    """The number of singular values that are larger than `rtol` times the largest one.

    Args:
        x: the matrices, (..., m, n).
        rtol: a number, or a tensor with a number for each matrix; by default max(m, n) times the dtype's eps.

    Raises:
        TypeError, ValueError, LinAlgError: as `vmflow.linalg.matrix_rank`.

    Example:
        >>> flow.array_api.linalg.matrix_rank(flow.tensor([[1.0, 0.0], [0.0, 0.0]]))
        tensor(1)
    """
    if not isinstance(rtol, Tensor):
        return _linalg.matrix_rank(x, rtol=rtol)
    values = svdvals(x)
    return _vmflow.sum(values > _least(values, rtol), -1)


def _least(values: Tensor, rtol: Tensor) -> Tensor:
    """The threshold up to which a matrix's singular values count as 0: `rtol` times the matrix's largest one."""
    largest = _vmflow.amax(values, -1, True) if values.shape[-1] else _vmflow.sum(values, -1, True)
    return largest * rtol.to(values.dtype).unsqueeze(-1)


def pinv(x: Tensor, /, *, rtol: float | Tensor | None = None) -> Tensor:
    """The pseudo-inverses of matrices; for `rtol`, see `matrix_rank`.

    Raises:
        TypeError, ValueError, LinAlgError: as `vmflow.linalg.pinv`.

    Example:
        >>> flow.array_api.linalg.pinv(flow.tensor([[2.0, 0.0], [0.0, 0.0]]))
        tensor([[0.5000, 0.0000],
                [0.0000, 0.0000]])
    """
    if not isinstance(rtol, Tensor):
        return _linalg.pinv(x, rtol=rtol)
    left, values, right = _linalg.svd(x, full_matrices=False)
    counts = values > _least(values, rtol)
    inverted = _vmflow.where(counts, 1 / _vmflow.where(counts, values, 1), 0)
    return _vmflow.matmul(_vmflow.conj(right).mT * inverted.unsqueeze(-2), _vmflow.conj(left).mT)


def qr(x: Tensor, /, *, mode: str = "reduced") -> QR:
    """The QR decomposition of matrices: `Q` with orthonormal columns and upper triangular `R` with ``Q @ R = x``.

    With the mode "r", `Q` is empty.

    Raises:
        TypeError, ValueError: as `vmflow.linalg.qr`.

    Example:
        >>> flow.array_api.linalg.qr(flow.tensor([[3.0, 1.0], [4.0, 2.0]])).R.shape
        vmflow.Size([2, 2])
    """
    return _linalg.qr(x, mode)


def slogdet(x: Tensor, /) -> SignLogabsdet:
    """The signs of the determinants of square matrices, and the logarithms of their absolute values.

    Raises:
        TypeError, ValueError: as `vmflow.linalg.slogdet`.

    Example:
        >>> flow.array_api.linalg.slogdet(flow.tensor([[0.0, 1.0], [1.0, 0.0]]))
        SignLogabsdet(sign=tensor(-1.), logabsdet=tensor(0.))
    """
    return _linalg.slogdet(x)


def solve(x1: Tensor, x2: Tensor, /) -> Tensor:
    """Solve ``x1 @ X = x2`` for X.

    `x2` is a vector if it has one dimension, otherwise matrices; `vmflow.linalg.solve` takes batches of vectors as
    well.

    Raises:
        TypeError, ValueError, LinAlgError: as `vmflow.linalg.solve`.

    Example:
        >>> flow.array_api.linalg.solve(flow.tensor([[2.0, 0.0], [0.0, 4.0]]), flow.tensor([2.0, 2.0]))
        tensor([1.0000, 0.5000])
    """
    left, right = together("solve", x1, x2)
    if right.ndim > 1:  # with as many dimensions as `left`, `right` is not taken for a batch of vectors
        right = right.reshape((1,) * (left.ndim - right.ndim) + tuple(right.shape))
    return _linalg.solve(left, right)


def svd(x: Tensor, /, *, full_matrices: bool = True) -> SVD:
    """The singular value decomposition ``x = U @ diag(S) @ Vh`` of matrices, `S` in descending order.

    With `full_matrices`, `U` and `Vh` are square, and ``diag(S)`` has the shape of `x`.

    Raises:
        TypeError, ValueError, LinAlgError: as `vmflow.linalg.svd`.

    Example:
        >>> flow.array_api.linalg.svd(flow.tensor([[2.0, 0.0], [0.0, 4.0]])).S
        tensor([4., 2.])
    """
    return _linalg.svd(x, full_matrices)


def svdvals(x: Tensor, /) -> Tensor:
    """The singular values of matrices, in descending order.

    Raises:
        TypeError, ValueError, LinAlgError: as `vmflow.linalg.svdvals`.

    Example:
        >>> flow.array_api.linalg.svdvals(flow.tensor([[2.0, 0.0], [0.0, 4.0]]))
        tensor([4., 2.])
    """
    return _linalg.svdvals(x)


def matmul(x1: Tensor, x2: Tensor, /) -> Tensor:
    """The product of matrices, or of vectors.

    Two dtypes promote, unlike in `vmflow.matmul`.

    Raises:
        TypeError: if no operand is a tensor, the dtypes have no common one, or that is bool.
        ValueError: if the shapes do not fit, or an operand is 0-d or a number.

    Example:
        >>> flow.array_api.matmul(flow.tensor([[1, 2], [3, 4]]), flow.tensor([1, 10]))
        tensor([21, 43])
    """
    return _vmflow.matmul(*together("matmul", x1, x2))


def matrix_transpose(x: Tensor, /) -> Tensor:
    """The transposes of matrices: the last two dimensions exchanged.

    Raises:
        ValueError: if there are fewer than two dimensions.

    Example:
        >>> flow.array_api.matrix_transpose(flow.tensor([[1, 2], [3, 4]]))
        tensor([[1, 3],
                [2, 4]])
    """
    check_tensors("matrix_transpose", x)
    if x.ndim < 2:
        raise ValueError(f"matrix_transpose: expected at least two dimensions, got {list(x.shape)}")
    return _vmflow.transpose(x, -1, -2)


def tensordot(x1: Tensor, x2: Tensor, /, *, axes: int | tuple[Sequence[int], Sequence[int]] = 2) -> Tensor:
    """Products of elements of `x1` and `x2`, summed over the paired dimensions `axes`; see `vmflow.tensordot`.

    Two dtypes promote, unlike in `vmflow.tensordot`.

    Raises:
        TypeError: if no operand is a tensor, the dtypes have no common one, or that is bool.
        ValueError: if the dimensions do not pair.
        IndexError: if a listed dimension does not exist.

    Example:
        >>> flow.array_api.tensordot(flow.tensor([[1, 2], [3, 4]]), flow.tensor([1, 10]), axes=1)
        tensor([21, 43])
    """
    dims = (list(axes[0]), list(axes[1])) if isinstance(axes, (tuple, list)) else axes
    first, second = together("tensordot", x1, x2)
    return _vmflow.tensordot(first, second, dims)


def vecdot(x1: Tensor, x2: Tensor, /, *, axis: int = -1) -> Tensor:
    """The inner products of vectors along a dimension, `x1` conjugated.

    Unlike in `vmflow.linalg.vecdot`, `axis` must be negative, and two dtypes promote to their common one.

    Raises:
        TypeError: if an operand is no tensor, or the dtypes have no common one.
        ValueError: if the sizes differ in that dimension, the other sizes do not broadcast, or `axis` is not a negative
            number that both tensors allow.

    Example:
        >>> flow.array_api.vecdot(flow.tensor([1, 2]), flow.tensor([3, 4]))
        tensor(11)
    """
    check_tensors("vecdot", x1, x2)
    if not -min(x1.ndim, x2.ndim) <= axis < 0:
        raise ValueError(f"vecdot: expected a negative axis that is a dimension of both tensors, got {axis}")
    if x1.size(axis) != x2.size(axis):
        raise ValueError(f"vecdot: sizes {x1.size(axis)} and {x2.size(axis)} of dimension {axis} differ")
    first, second = together("vecdot", x1, x2)
    return _vmflow.sum(_vmflow.conj(first) * second, axis, dtype=first.dtype)


def cross(x1: Tensor, x2: Tensor, /, *, axis: int = -1) -> Tensor:
    """The cross product along a dimension of size 3.

    Raises:
        TypeError: if an operand is no tensor, the dtypes have no common one, or that is bool.
        ValueError: if the dimension has another size, the other sizes do not broadcast, or `axis` is not negative and
            the numbers of dimensions differ.
        IndexError: if a tensor lacks the dimension.

    Example:
        >>> flow.array_api.linalg.cross(flow.tensor([1, 0, 0]), flow.tensor([0, 1, 0]))
        tensor([0, 0, 1])
    """
    check_tensors("cross", x1, x2)
    if axis >= 0 and x1.ndim != x2.ndim:
        raise ValueError(f"cross: expected a negative axis for {x1.ndim} and {x2.ndim} dimensions, got {axis}")
    if x1.size(axis) != 3 or x2.size(axis) != 3:
        raise ValueError(f"cross: expected size 3 in dimension {axis}, got {x1.size(axis)} and {x2.size(axis)}")
    first, second = _vmflow.broadcast_tensors(*together("cross", x1, x2))
    return _linalg.cross(first, second, dim=axis)


def diagonal(x: Tensor, /, *, offset: int = 0) -> Tensor:
    """The `offset`-th diagonals of matrices.

    Raises:
        IndexError: if there are fewer than two dimensions.

    Example:
        >>> flow.array_api.linalg.diagonal(flow.tensor([[1, 2], [3, 4]]))
        tensor([1, 4])
    """
    return _vmflow.diagonal(x, offset, -2, -1)


def matrix_norm(x: Tensor, /, *, keepdims: bool = False, ord: int | float | str | None = "fro") -> Tensor:
    """The norms of matrices.

    Args:
        x: the matrices.
        keepdims: whether to keep the two matrix dimensions, with size 1.
        ord: "fro", "nuc", 1, -1, 2, -2, inf or -inf; None is "fro".

    Raises:
        TypeError: for bools, and for integers unless `ord` is 1, -1 or infinite.
        ValueError: for another `ord`, or fewer than two dimensions.
        IndexError: for some `ord`, if the matrices are empty.

    Example:
        >>> flow.array_api.linalg.matrix_norm(flow.tensor([[3.0, 0.0], [0.0, 4.0]]))
        tensor(5.)
    """
    check_tensors("matrix_norm", x)
    if not isdtype(x.dtype, "integral") or ord not in (1, -1, _np.inf, -_np.inf):
        return _linalg.matrix_norm(x, "fro" if ord is None else ord, (-2, -1), keepdims)
    if x.ndim < 2:
        raise ValueError(f"matrix_norm: expected matrices, got shape {list(x.shape)}")
    wide = summed(x, None) or _vmflow.int64
    sums = _vmflow.sum(_vmflow.abs(x.to(wide)), -2 if ord in (1, -1) else -1, True, dtype=wide)
    return (_vmflow.amax if float(ord) > 0 else _vmflow.amin)(sums, (-2, -1), keepdims)


def outer(x1: Tensor, x2: Tensor, /) -> Tensor:
    """The outer product of two vectors: element [i, j] is ``x1[i] * x2[j]``.

    Raises:
        TypeError: if no operand is a tensor, or the dtypes have no common one.
        ValueError: if an operand is no vector.

    Example:
        >>> flow.array_api.linalg.outer(flow.tensor([1, 2]), flow.tensor([3, 4]))
        tensor([[3, 4],
                [6, 8]])
    """
    return _vmflow.outer(*together("outer", x1, x2))


def trace(x: Tensor, /, *, offset: int = 0, dtype: DType | None = None) -> Tensor:
    """The sums of the `offset`-th diagonals of matrices; for `dtype`, see `sum`.

    Raises:
        IndexError: if there are fewer than two dimensions.

    Example:
        >>> flow.array_api.linalg.trace(flow.tensor([[1, 2], [3, 4]]))
        tensor(5)
    """
    return _vmflow.sum(diagonal(x, offset=offset), -1, dtype=summed(x, dtype))


def vector_norm(
    x: Tensor, /, *, axis: int | tuple[int, ...] | None = None, keepdims: bool = False, ord: int | float = 2
) -> Tensor:
    """The norm of the elements along the dimensions `axis`; see `vmflow.linalg.vector_norm`.

    With `axis` () each element is reduced alone; `vmflow.linalg.vector_norm` reduces all dimensions.

    Raises:
        TypeError: for integers and bools, or if `ord` is no number.
        ValueError: if a dimension is named twice.
        IndexError: if a dimension does not exist, or the dimensions have no element and `ord` is negative or inf.

    Example:
        >>> flow.array_api.linalg.vector_norm(flow.tensor([3.0, 4.0]))
        tensor(5.)
    """
    check_tensors("vector_norm", x)
    return along(lambda x, dim, keepdim=False: _linalg.vector_norm(x, ord, dim, keepdim), x, axis, keepdims)
