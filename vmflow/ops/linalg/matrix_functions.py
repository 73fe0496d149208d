"""Powers and the exponential of square matrices, and matrices of powers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vmflow import interpreter as _interpreter
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
    """The product of `n` times A, by repeated squaring; of its inverse for a negative `n`.

    Raises:
        TypeError, ValueError: for matrices that are not square, an `n` that is no integer, and integer or complex
            matrices to a negative power.
        LinAlgError: for a singular matrix and a negative `n`, when the result is looked at.
    """
    if not isinstance(n, int) or isinstance(n, bool):
        raise TypeError(f"matrix_power: n is an integer, not {n!r}")
    if A.ndim < 2 or A.shape[-1] != A.shape[-2]:
        raise ValueError(f"matrix_power: expected square matrices, got shape {list(A.shape)}")
    if n == 0:
        identity = beside(eye(A.shape[-1], dtype=A.dtype, device=A.device), A)
        # Nowhere A, so that gradients are zeros, as those of other powers are numbers.
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
    """The upper right corner of the exponential of a matrix of twice the size."""
    turned = node.input(0).mT
    size = turned.shape[-1]
    above = cat([turned, gradient], -1)
    below = cat([turned.new_zeros(turned.shape), turned], -1)
    return (matrix_exp(cat([above, below], -2)).narrow(-2, 0, size).narrow(-1, size, size),)


@public()
def matrix_exp(A: Tensor) -> Tensor:
    """The exponential of each square matrix.

    Raises:
        TypeError, ValueError: for integer and complex matrices, and those that are not square.
    """
    return _interpreter.dispatch(_MATRIX_EXP, (A,))
