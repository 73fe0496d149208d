"""Rounding."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vmflow import interpreter as _interpreter
from vmflow.dtypes import FLOATING

from .arithmetic import zero_gradients
from .declaration import public
from .destination import delivered, written
from .elementwise import elementwise

if TYPE_CHECKING:
    from vmflow.tensors import Tensor

_FLOOR = elementwise("floor", least=1, most=FLOATING)
_CEIL = elementwise("ceil", least=1, most=FLOATING)
_TRUNC = elementwise("trunc", least=1, most=FLOATING)
_ROUND = elementwise("round", least=1, most=FLOATING)

for _flat in (_FLOOR, _CEIL, _TRUNC, _ROUND):
    _flat.gradient()(zero_gradients)


@public()
def floor(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The largest integer not above, in the input's dtype."""
    if out is not None:
        return written(_FLOOR, out, (input,))
    return _interpreter.dispatch(_FLOOR, (input,))


@public()
def ceil(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The smallest integer not below, in the input's dtype."""
    if out is not None:
        return written(_CEIL, out, (input,))
    return _interpreter.dispatch(_CEIL, (input,))


@public()
def trunc(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The integer part, in the input's dtype."""
    if out is not None:
        return written(_TRUNC, out, (input,))
    return _interpreter.dispatch(_TRUNC, (input,))


@public()
def round(input: Tensor, *, decimals: int = 0, out: Tensor | None = None) -> Tensor:
    """The nearest value with `decimals` decimals, or with -`decimals` zeros before the point; ties go to even.

    Raises:
        TypeError: for an integer tensor and `decimals`.
    """
    if out is not None:
        return delivered("round", out, (input,), lambda: round(input, decimals=decimals))
    if not decimals:
        return _interpreter.dispatch(_ROUND, (input,))
    if input.dtype.category < FLOATING:
        raise TypeError(f"round: decimals need a floating-point tensor, not {input.dtype.name}")
    if decimals > 0:
        scale = 10.0**decimals
        return _interpreter.dispatch(_ROUND, (input * scale,)) / scale
    scale = 10.0**-decimals  # a power of ten is exact, its reciprocal is not
    return _interpreter.dispatch(_ROUND, (input / scale,)) * scale


@public()
def frac(input: Tensor) -> Tensor:
    """The part behind the point: ``input - trunc(input)``."""
    if input.dtype.category < FLOATING:
        raise TypeError(f"frac is not defined for {input.dtype.name} tensors")
    return input - trunc(input)
