"""Powers and the exponential of square matrices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vmflow import interpreter as _interpreter
from vmflow.instructions.blob import Array

from .creation import eye
from .decompositions import factored
from .destination import delivered
from .joining import cat
from .linear_algebra import inv, matmul

if TYPE_CHECKING:
    from vmflow.autograd.node import OpNode
    from vmflow.tensors import Tensor

    from .table import Attributes


def matrix_power(A: Tensor, n: int, *, out: Tensor | None = None) -> Tensor:
    """The product of `n` times A, by repeated squaring; of its inverse for a negative `n`.

    Raises:
        TypeError, ValueError: for matrices that are not square, an `n` that is no integer, and integer or complex
            matrices to a negative power.
        LinAlgError: for a singular matrix and a negative `n`, when the result is looked at.
    """
    if out is not None:
        return delivered("matrix_power", out, (A,), lambda: matrix_power(A, n))
    if not isinstance(n, int):
        raise TypeError(f"matrix_power: n is an integer, not {n!r}")
    if A.ndim < 2 or A.shape[-1] != A.shape[-2]:
        raise ValueError(f"matrix_power: expected square matrices, got shape {list(A.shape)}")
    if n == 0:
        return eye(A.shape[-1], dtype=A.dtype, device=A.device).expand(A.shape).clone()
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


# The diagonal Padé approximant of order 13, from the highest power, and up to which norm it has all digits.
_PADE = (
    1.0,
    182.0,
    16380.0,
    960960.0,
    40840800.0,
    1323241920.0,
    33522128640.0,
    670442572800.0,
    10559470521600.0,
    129060195264000.0,
    1187353796428800.0,
    7771770303897600.0,
    32382376266240000.0,
    64764752532480000.0,
)
_PADE_NORM = 5.371920351148152


def _matrix_exp(xp: Any, array: Array, attributes: Attributes) -> tuple[Array, ...]:
    """N. J. Higham, The scaling and squaring method for the matrix exponential revisited (2005)."""
    if not array.size:
        return (array.copy(),)
    norm = xp.abs(array).sum(-2).max(-1)
    halvings = xp.where(xp.isfinite(norm), xp.ceil(xp.log2(xp.maximum(norm / _PADE_NORM, 1.0))), 0.0)
    scaled = array / xp.exp2(halvings)[..., None, None].astype(array.dtype)
    power = xp.broadcast_to(xp.eye(array.shape[-1], dtype=array.dtype), array.shape)
    even, odd = xp.zeros_like(array), xp.zeros_like(array)
    for place, coefficient in enumerate(reversed(_PADE)):
        if place % 2:
            odd = odd + power * coefficient
        else:
            even = even + power * coefficient
        power = xp.matmul(power, scaled)
    result = xp.linalg.solve(even - odd, even + odd)
    for turn in range(int(halvings.max())):
        result = xp.where((halvings > turn)[..., None, None], xp.matmul(result, result), result)
    return (result,)


_MATRIX_EXP = factored("matrix_exp", lambda shape, attributes: (shape,), _matrix_exp, square=True)


@_MATRIX_EXP.gradient(inputs=(0,))
def _matrix_exp_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    """The upper right corner of the exponential of a matrix of twice the size."""
    turned = node.input(0).mT
    size = turned.shape[-1]
    above = cat([turned, gradient], -1)
    below = cat([turned.new_zeros(turned.shape), turned], -1)
    return (matrix_exp(cat([above, below], -2)).narrow(-2, 0, size).narrow(-1, size, size),)


def matrix_exp(A: Tensor) -> Tensor:
    """The exponential of each square matrix.

    Raises:
        TypeError, ValueError: for integer and complex matrices, and those that are not square.
    """
    return _interpreter.dispatch(_MATRIX_EXP, (A,))
