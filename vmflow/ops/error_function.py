"""The error function, its complement and its inverse.

numpy has none of them.  They are computed in float64, whatever the operand's dtype, and rounded once; but for the error
function of float32, which is much asked for and has a kernel of its own.
"""

from __future__ import annotations

from math import pi, sqrt
from typing import TYPE_CHECKING

from vmflow import interpreter as _interpreter
from vmflow.dtypes import FLOATING

from .declaration import public
from .destination import written
from .elementwise import DEAR, TO_FLOAT, elementwise
from .table import OpExpr
from .transcendental import exp

if TYPE_CHECKING:
    from vmflow.autograd.node import OpNode
    from vmflow.tensors import Tensor


_ERF: OpExpr = elementwise("erf", TO_FLOAT, cost=DEAR, most=FLOATING)


@_ERF.gradient(inputs=(0,))
def _erf_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    operand = node.input(0)
    return (gradient * (exp(-(operand * operand)) * (2 / sqrt(pi))),)


@public()
def erf(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The error function."""
    if out is not None:
        return written(_ERF, out, (input,))
    return _interpreter.dispatch(_ERF, (input,))


_ERFC: OpExpr = elementwise("erfc", TO_FLOAT, cost=DEAR * 4, most=FLOATING)
_ERFINV: OpExpr = elementwise("erfinv", TO_FLOAT, cost=DEAR * 4, most=FLOATING)


@_ERFC.gradient(inputs=(0,))
def _erfc_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    operand = node.input(0)
    return (gradient * (exp(-(operand * operand)) * (-2 / sqrt(pi))),)


@_ERFINV.gradient(outputs=(0,))
def _erfinv_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    value = node.output(0)
    return (gradient * (exp(value * value) * (sqrt(pi) / 2)),)


@public()
def erfc(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """``1 - erf(input)``, accurate where that is small."""
    if out is not None:
        return written(_ERFC, out, (input,))
    return _interpreter.dispatch(_ERFC, (input,))


@public()
def erfinv(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The number whose `erf` is `input`; infinite at -1 and 1, nan outside."""
    if out is not None:
        return written(_ERFINV, out, (input,))
    return _interpreter.dispatch(_ERFINV, (input,))
