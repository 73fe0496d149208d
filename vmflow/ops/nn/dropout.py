"""Dropout: zero a random part of the elements and scale up the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np

from vmflow import dtypes, interpreter as _interpreter, random
from vmflow.arguments import flag
from vmflow.dtypes import FLOATING
from vmflow.instructions.blob import meta
from vmflow.operands import check_tensors
from vmflow.ops.elementwise.inference import CHEAP
from vmflow.ops.table import Attributes, Form, Inferred, Kinds, Metas, OpExpr

from .layer_operands import check_shape

if TYPE_CHECKING:
    from vmflow.autograd.node import OpNode
    from vmflow.tensors import Tensor


def _infer_dropout(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    (p,) = cast("tuple[float]", attributes)
    (source,) = metas
    if not 0 <= p < 1:
        raise ValueError(f"dropout: the probability must be within [0, 1), got {p}")
    if source.dtype.category < FLOATING:
        raise TypeError(f"dropout is not defined for {source.dtype.name} tensors; convert with .float() first")
    mask = meta(tuple(source.shape), dtypes.bool_, source.device)
    return Inferred((source, mask), source.numel * 6 + 5000)


def _infer_mask_and_scale(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    (p,) = cast("tuple[float]", attributes)
    source, mask = metas
    if mask.dtype is not dtypes.bool_ or source.dtype.category < FLOATING or not 0 <= p < 1:
        raise TypeError(f"dropout: a gradient {source} does not fit a mask {mask} and the probability {p}")
    check_shape("dropout", "a mask", mask, source.shape)
    return Inferred(source, source.numel * CHEAP * 2)


_DROPOUT = OpExpr("dropout", _infer_dropout, Form(1, tuple[float], 2, draws=True), "dropout")
_MASK_AND_SCALE = OpExpr("dropout_gradient", _infer_mask_and_scale, Form(2, tuple[float]), "dropout")


@_DROPOUT.gradient(outputs=(1,))
def _dropout_gradient(node: OpNode, gradient: Tensor, _: Tensor | None) -> tuple[Tensor]:
    return (_interpreter.dispatch(_MASK_AND_SCALE, (gradient, node.output(1).detach()), node.attributes),)


@_MASK_AND_SCALE.gradient(inputs=(1,))
def _mask_and_scale_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor, None]:
    return _interpreter.dispatch(_MASK_AND_SCALE, (gradient, node.input(1)), node.attributes), None


def dropped_by(input: Tensor, p: float, stretch: tuple[Any, ...]) -> Tensor:
    """Apply dropout with the random numbers that another op has drawn: `stretch` is their seed and offset."""
    if p == 1:
        return all_dropped(input)
    return _interpreter.dispatch_several(_DROPOUT, (input,), (p,), stretch)[0] if p else input


def all_dropped(input: Tensor) -> Tensor:
    """Return the result of dropout with probability 1: zeros of the input's dtype, but nan for infinities and nan."""
    # The bool leaves every dtype as it is; 0.0 would make floats of integers.
    return input * False


def check_probability(name: str, p: float) -> None:
    """Raise TypeError unless the probability `p` is an int, float or numpy number, ValueError unless within [0, 1]."""
    if not isinstance(p, (int, float, np.number)):
        raise TypeError(f"{name}: the probability must be a number, not {p!r}")
    if not 0 <= p <= 1:
        raise ValueError(f"{name}: the probability must be within [0, 1], got {p}")


def dropout(
    input: Tensor,
    p: float = 0.5,
    training: bool = True,
    inplace: bool = False,
    *,
    addend: Tensor | None = None,
    generator: random.Generator | None = None,
) -> Tensor:
    """Set each element to zero with probability `p`, else divide it by ``1 - p``; unchanged unless `training`.

    An infinity or nan that is dropped becomes nan.  Without an `addend`, an unchanged `input` is itself
    the result.

    Args:
        input: floating-point or complex, of any shape; outside of training, and for `p` of 0 and 1, also integers
            and bools.
        p: probability, within [0, 1].
        training: whether to drop elements.
        inplace: whether to write the result into `input`, in its dtype, and return `input`.
        addend: a tensor of the input's shape to add to the result, whether training or not.
        generator: the source of random numbers, by default the default generator.

    Raises:
        TypeError: if `p` is no number or `training` no bool; in training with `p` between 0 and 1, also for integers
            and bools.
        ValueError: if `p` is not within [0, 1], or for an addend of another shape.

    Example:
        >>> flow.nn.functional.dropout(flow.ones(3), 0.5, False, addend=flow.ones(3))
        tensor([2., 2., 2.])
    """
    check_tensors("dropout", input, optional=(addend,))
    check_probability("dropout", p)
    if addend is not None and addend.shape != input.shape:
        raise ValueError(
            f"dropout: expected an addend of the input's shape {list(input.shape)}, got {list(addend.shape)}"
        )
    if not flag("dropout", "training", training) or p == 0:
        if addend is None:
            return input
        result = input
    elif p == 1:
        result = all_dropped(input)
    else:
        stretch = random.take(input.numel(), generator)
        result = _interpreter.dispatch_several(_DROPOUT, (input,), (float(p),), stretch)[0]
    if addend is not None:
        result = result + addend
    return input.copy_(result) if inplace else result
