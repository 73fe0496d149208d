"""Powers and the exponential of square matrices."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vmflow import interpreter as _interpreter
from vmflow.arguments import whole_number
from vmflow.operands import check_tensors
from vmflow.ops.creation.creation import eye
from vmflow.ops.declaration import public
from vmflow.ops.destination import out_by_copy
from vmflow.ops.elementwise.selection import where
from vmflow.ops.shape.joining import cat
from vmflow.transfers import beside

from .decompositions import factored
from .linear_algebra import inv, matmul

if TYPE_CHECKING:
    from vmflow.autograd.node import OpNode
    from vmflow.tensors import Tensor


@public()
@out_by_copy()
def matrix_power(A: Tensor, n: int, *, out: Tensor | None = None) -> Tensor:
    """The `n`-th power of each matrix of A, (..., m, m), by repeated squaring; for negative `n` from the inverse.

    Raises:
        TypeError: if `A` is no tensor, or `n` is no integer, negative for integer or bool matrices, or above 1 for
            bool matrices.
        ValueError: if the matrices are not square.
        LinAlgError: for a singular matrix and a negative `n`, when the result is read.

    Example:
        >>> flow.matrix_power(flow.tensor([[1, 1], [0, 1]]), 5)
        tensor([[1, 5],
                [0, 1]])
    """
    check_tensors("matrix_power", A)
    n = whole_number("matrix_power", "n", n)
    if A.ndim < 2 or A.shape[-1] != A.shape[-2]:
        raise ValueError(f"matrix_power: expected square matrices, got shape {list(A.shape)}")
    if n == 0:
        identity = beside(eye(A.shape[-1], dtype=A.dtype, device=A.device), A)
        # Return the identity.  `where` never selects A, but connects the result to A in the autograd graph, so that A
        # has a gradient of zero instead of none.
        return where(identity != identity, A, identity)
    power = inv(A) if n < 0 else A
    n = abs(n)
    result: Tensor | None = None
    while True:
        if n & 1:
            result = power if result is None else matmul(result, power)
        n >>= 1
        if not n:
            assert result is not None
            return result.clone() if result is A else result
        power = matmul(power, power)


_MATRIX_EXP = factored("matrix_exp", lambda shape, attributes: (shape,), square=True, reals=None)


@_MATRIX_EXP.gradient(inputs=(0,))
def _matrix_exp_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    """Compute the gradient of exp(A) by A: the upper right block of exp([[A.T, gradient], [0, A.T]])."""
    transposed = node.input(0).mT
    size = transposed.shape[-1]
    above = cat([transposed, gradient], -1)
    below = cat([transposed.new_zeros(transposed.shape), transposed], -1)
    return (matrix_exp(cat([above, below], -2)).narrow(-2, 0, size).narrow(-1, size, size),)


@public()
def matrix_exp(A: Tensor) -> Tensor:
    """The exponential of each square matrix, (..., n, n).

    Raises:
        TypeError: if `A` is no tensor, or integer, bool or complex.
        ValueError: if the matrices are not square.

    Example:
        >>> flow.matrix_exp(flow.tensor([[0.0, 1.0], [0.0, 0.0]]))
        tensor([[1., 1.],
                [0., 1.]])
    """
    return _interpreter.dispatch(_MATRIX_EXP, (A,))
