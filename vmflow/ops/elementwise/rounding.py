"""Rounding to integers and decimals."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vmflow import interpreter as _interpreter
from vmflow.arguments import whole_number
from vmflow.dtypes import FLOATING
from vmflow.operands import check_tensors
from vmflow.ops.declaration import public
from vmflow.ops.destination import delivered, out_by_copy
from vmflow.ops.in_place import copied_in_place

from .arithmetic import zero_gradients
from .inference import elementwise
from .pointwise import unary

if TYPE_CHECKING:
    from vmflow.tensors import Tensor

floor = unary(
    "floor",
    least=1,
    most=FLOATING,
    doc="The largest integer that is not above the element.",
    example=("flow.floor(flow.tensor([1.5, -1.5]))", "tensor([ 1., -2.])"),
)
ceil = unary(
    "ceil",
    least=1,
    most=FLOATING,
    doc="The smallest integer that is not below the element.",
    example=("flow.ceil(flow.tensor([1.5, -1.5]))", "tensor([ 2., -1.])"),
)
trunc = unary(
    "trunc",
    least=1,
    most=FLOATING,
    also=("fix",),
    doc="The element without its fraction: rounded towards zero.",
    example=("flow.trunc(flow.tensor([1.5, -1.5]))", "tensor([ 1., -1.])"),
)
_ROUND = elementwise("round", least=1, most=FLOATING)

for _flat in (floor.op, ceil.op, trunc.op, _ROUND):
    _flat.gradient()(zero_gradients)


@public()
@copied_in_place()
def round(input: Tensor, *, decimals: int = 0, out: Tensor | None = None) -> Tensor:
    """``round(input * 10 ** decimals) / 10 ** decimals`` of each element, where ties go to the even integer.

    Raises:
        TypeError: if `input` is no tensor, or bool or complex, if `decimals` is no integer, or not 0 for an integer
            tensor.
        OverflowError: if `decimals` is above 308 or below -308.

    Example:
        >>> flow.round(flow.tensor([0.5, 1.5, 2.6]))
        tensor([0., 2., 3.])
        >>> flow.round(flow.tensor([0.125, 1.375]), decimals=1)
        tensor([0.1000, 1.4000])
    """
    if out is not None:
        return delivered("round", out, (input,), lambda: round(input, decimals=decimals))
    if not whole_number("round", "decimals", decimals):
        return _interpreter.dispatch(_ROUND, (input,))
    check_tensors("round", input)
    if input.dtype.category < FLOATING:
        raise TypeError(f"round: decimals need a floating-point tensor, not {input.dtype.name}")
    if decimals > 0:
        scale = 10.0**decimals
        return _interpreter.dispatch(_ROUND, (input * scale,)) / scale
    scale = 10.0**-decimals  # divide by a power of ten, since its reciprocal is not exact in binary
    return _interpreter.dispatch(_ROUND, (input / scale,)) * scale


@public()
@copied_in_place()
@out_by_copy()
def frac(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The fraction of each element: ``input - trunc(input)``.

    Raises:
        TypeError: if `input` is no floating-point tensor.

    Example:
        >>> flow.frac(flow.tensor([1.5, -2.25]))
        tensor([ 0.5000, -0.2500])
    """
    check_tensors("frac", input)
    if input.dtype.category < FLOATING:
        raise TypeError(f"frac is not defined for {input.dtype.name} tensors")
    return input - trunc(input)
