"""Gradient rules of `add`, `sub`, `mul` and `div`, in a module of their own that can be compiled to a C extension.

Programs with small tensors spend much of their backward pass in these functions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vmflow import interpreter as _interpreter
from vmflow.context import MODE
from vmflow.kernels.problems.elementwise import REVERSED
from vmflow.tensor_fields import TensorFields
from vmflow.tensor_operators import DIV, MUL

if TYPE_CHECKING:
    from vmflow.autograd.node import OpNode
    from vmflow.tensors import Tensor


def conj_if_complex(tensor: Tensor) -> Tensor:
    """Return the conjugate of a complex tensor, a factor in gradients of products; a real tensor itself."""
    fields: TensorFields = tensor
    return tensor.conj() if fields._blob.meta.is_complex else tensor


def of_add(node: OpNode, gradient: Tensor) -> tuple[Tensor, Tensor]:
    return gradient, gradient


def of_add_scalar(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    return (gradient,)


def of_sub(node: OpNode, gradient: Tensor) -> tuple[Tensor, Tensor | None]:
    return gradient, None if node.edges[1] is None else -gradient


def of_sub_scalar(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    return (-gradient if node.attributes == REVERSED else gradient,)


def of_mul(node: OpNode, gradient: Tensor) -> tuple[Tensor | None, Tensor | None]:
    first, second = node.edges[0], node.edges[1]
    return (
        None if first is None else _times_input(node, gradient, 1),
        None if second is None else _times_input(node, gradient, 0),
    )


def _times_input(node: OpNode, gradient: Tensor, index: int) -> Tensor:
    mode = MODE.get()
    if not (node.metas[index].is_complex or mode.grad or mode.autocast is not None or mode.interpreter is not None):
        fields: TensorFields = gradient  # multiply by the saved blob itself, since making a tensor of it takes time
        return _interpreter.computed(MUL.tensors, (fields._blob, node.input_blob(index)), (), (), mode)
    return _interpreter.dispatch(MUL.tensors, (gradient, conj_if_complex(node.input(index))))


def of_mul_scalar(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    return (gradient * node.scalars[0].conjugate(),)


def of_div(node: OpNode, gradient: Tensor) -> tuple[Tensor | None, Tensor | None]:
    first, second = node.edges[0], node.edges[1]
    divisor = conj_if_complex(node.input(1))
    quotient = _interpreter.dispatch(DIV.tensors, (gradient, divisor))
    if second is None:
        return quotient, None
    other = -quotient * conj_if_complex(node.input(0)) / divisor
    return None if first is None else quotient, other


def of_div_scalar(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    value = node.scalars[0].conjugate()
    if node.attributes == REVERSED:
        divisor = conj_if_complex(node.input(0))
        return (gradient * -value / (divisor * divisor),)
    return (gradient / value,)
