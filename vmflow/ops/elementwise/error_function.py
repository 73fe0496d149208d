"""The error function, its complement and its inverse.

numpy lacks these functions.  On the CPU vmflow computes them in float64 and rounds once, except the error function of
float32, which is used most and computed in float32.
"""

from __future__ import annotations

from math import pi, sqrt
from typing import TYPE_CHECKING

from vmflow.dtypes import FLOATING

from .inference import EXPENSIVE, TO_FLOAT
from .pointwise import unary
from .transcendental import exp

if TYPE_CHECKING:
    from vmflow.autograd.node import OpNode
    from vmflow.tensors import Tensor


erf = unary(
    "erf",
    TO_FLOAT,
    cost=EXPENSIVE,
    most=FLOATING,
    doc="The error function.",
    example=("flow.erf(flow.tensor([0.0, 1.0]))", "tensor([0.0000, 0.8427])"),
)


@erf.op.gradient(inputs=(0,))
def _erf_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    operand = node.input(0)
    return (gradient * (exp(-(operand * operand)) * (2 / sqrt(pi))),)


erfc = unary(
    "erfc",
    TO_FLOAT,
    cost=EXPENSIVE * 4,
    most=FLOATING,
    doc="``1 - erf(input)``, accurate where the result is small.",
    example=("flow.erfc(flow.tensor([0.0, 1.0]))", "tensor([1.0000, 0.1573])"),
)
erfinv = unary(
    "erfinv",
    TO_FLOAT,
    cost=EXPENSIVE * 4,
    most=FLOATING,
    doc="The inverse of `erf`; infinite at -1 and 1, nan outside.",
    example=("flow.erfinv(flow.tensor([0.0, 0.5, 1.0]))", "tensor([0.0000, 0.4769,    inf])"),
)


@erfc.op.gradient(inputs=(0,))
def _erfc_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    operand = node.input(0)
    return (gradient * (exp(-(operand * operand)) * (-2 / sqrt(pi))),)


@erfinv.op.gradient(outputs=(0,))
def _erfinv_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    value = node.output(0)
    return (gradient * (exp(value * value) * (sqrt(pi) / 2)),)
