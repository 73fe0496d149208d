"""The linear algebra of the array API standard: that of the main namespace, and what its extension adds."""

from __future__ import annotations

from collections.abc import Sequence

import vmflow as _vmflow
from vmflow.dtypes import dtype as DType
from vmflow.linalg import (
    cholesky as cholesky,
    det as det,
    eigh as eigh,
    eigvalsh as eigvalsh,
    inv as inv,
    matrix_power as matrix_power,
    matrix_rank as matrix_rank,
    pinv as pinv,
    qr as qr,
    slogdet as slogdet,
    solve as solve,
    svd as svd,
    svdvals as svdvals,
)
from vmflow.tensors import Tensor

from .data_types import together


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
    return _vmflow.linalg.cross(*together("cross", x1, x2), dim=axis)


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
        return _vmflow.linalg.matrix_norm(x, ord, (-2, -1), keepdims)
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
    return _vmflow.sum(diagonal(x, offset=offset), -1, dtype=dtype)


def vector_norm(
    x: Tensor, /, *, axis: int | tuple[int, ...] | None = None, keepdims: bool = False, ord: int | float = 2
) -> Tensor:
    """The norm of the elements along these dimensions."""
    return _vmflow.linalg.vector_norm(x, ord, axis, keepdims)
