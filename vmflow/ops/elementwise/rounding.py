"""Rounding."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vmflow import interpreter as _interpreter
from vmflow.dtypes import FLOATING
from vmflow.ops.declaration import public
from vmflow.ops.destination import delivered, out_by_copy
from vmflow.ops.in_place import copied_in_place
from vmflow.ops.table import whole_number

from .arithmetic import zero_gradients
from .inference import elementwise
from .pointwise import unary

if TYPE_CHECKING:
    from vmflow.tensors import Tensor

floor = unary("floor", least=1, most=FLOATING, doc="The largest integer not above, in the input's dtype.")
ceil = unary("ceil", least=1, most=FLOATING, doc="The smallest integer not below, in the input's dtype.")
trunc = unary("trunc", least=1, most=FLOATING, also=("fix",), doc="The integer part, in the input's dtype.")
_ROUND = elementwise("round", least=1, most=FLOATING)

for _flat in (floor.op, ceil.op, trunc.op, _ROUND):
    _flat.gradient()(zero_gradients)


@public()
@copied_in_place()
def round(input: Tensor, *, decimals: int = 0, out: Tensor | None = None) -> Tensor:
    """The nearest value with `decimals` decimals, or with -`decimals` zeros before the point; ties go to even.

    Raises:
        TypeError: for an integer tensor and `decimals`.
    """
    if out is not None:
        return delivered("round", out, (input,), lambda: round(input, decimals=decimals))
    if not whole_number("round", "decimals", decimals):
        return _interpreter.dispatch(_ROUND, (input,))
    if input.dtype.category < FLOATING:
        raise TypeError(f"round: decimals need a floating-point tensor, not {input.dtype.name}")
    if decimals > 0:
        scale = 10.0**decimals
        return _interpreter.dispatch(_ROUND, (input * scale,)) / scale
    scale = 10.0**-decimals  # a power of ten is exact, its reciprocal is not
    return _interpreter.dispatch(_ROUND, (input / scale,)) * scale


@public()
@copied_in_place()
@out_by_copy()
def frac(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The part behind the point: ``input - trunc(input)``."""
    if input.dtype.category < FLOATING:
        raise TypeError(f"frac is not defined for {input.dtype.name} tensors")
    return input - trunc(input)
