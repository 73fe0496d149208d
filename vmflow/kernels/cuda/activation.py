"""Activation functions."""

from __future__ import annotations

from math import pi, sqrt
from typing import Any, Final

from vmflow.kernels.numpy.activation import TAIL

from .functions import computes
from .special import erfc

# In float32: the -8th root of twice the normal distribution's tail; see the CPU's kernel.
_TAIL: Final = tuple([float(coefficient) for coefficient in TAIL])
_FARTHEST: Final = 1e5


def _tail(xp: Any, size: Any) -> Any:
    """``2 P(X > size)``, in the dtype of `size`, which is not negative."""
    if size.dtype.itemsize == 8:
        return erfc(xp, size * sqrt(0.5))
    total = size * _TAIL[-1]
    for coefficient in _TAIL[-2:0:-1]:
        total = (total + coefficient) * size
    total = total + _TAIL[0]
    return xp.reciprocal(xp.square(xp.square(xp.square(total))))


@computes("gelu")
def _gelu(xp: Any, array: Any) -> Any:
    """``max(x, 0) - |x| P(X > |x|)``, which loses nothing where x is negative."""
    size = xp.minimum(xp.absolute(array), _FARTHEST)
    return xp.maximum(array, array.dtype.type(0)) - _tail(xp, size) * size * 0.5


@computes("gelu_gradient")
def _gelu_gradient(xp: Any, gradient: Any, array: Any) -> Any:
    size = xp.minimum(xp.absolute(array), _FARTHEST)
    density = xp.exp(size * size * -0.5) * (1 / sqrt(2 * pi))
    # P(X < x), from the side where it has its digits.
    half = _tail(xp, size) * 0.5
    below = xp.where(array < 0, half, 1 - half)
    return (below + xp.copysign(size * density, array)) * gradient
