"""Dropout: zero a random part of the elements and scale up the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from vmflow import dtypes, random
from vmflow import interpreter as _interpreter
from vmflow.dtypes import FLOATING
from vmflow.instructions.blob import Array, meta

from .table import Attributes, Inferred, Kinds, Metas, OpExpr, array_module

if TYPE_CHECKING:
    from vmflow.autograd.node import OpNode
    from vmflow.tensors import Tensor


def _infer_dropout(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    (p,) = cast("tuple[float]", attributes)
    (source,) = metas
    if source.dtype.category < FLOATING:
        raise TypeError(f"dropout is not defined for {source.dtype.name} tensors; convert with .float() first")
    xp = array_module(source.device)
    to = source.dtype.numpy
    scale = to.type(1 / (1 - p))
    mask_meta = meta(tuple(source.shape), dtypes.bool_, source.device)

    def kernel(array: Array, seed: int, position: int, out: Any) -> tuple[Array, Array]:
        kept = random.generator_at(seed, position).random(source.shape, xp.float32) >= p
        kept = xp.asarray(kept)
        return xp.multiply(array, xp.multiply(kept, scale, dtype=to), order="C"), kept

    return Inferred((source, mask_meta), kernel, source.numel * 5 + 5000)


_DROPOUT = OpExpr("dropout", _infer_dropout)


@_DROPOUT.gradient(outputs=(1,))
def _dropout_gradient(node: OpNode, gradient: Tensor, _: Tensor) -> tuple[Tensor]:
    (p,) = cast("tuple[float]", node.attributes)
    return (gradient * node.output(1) * (1 / (1 - p)),)


def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Each element zero with probability `p`, else divided by ``1 - p``; unchanged unless `training`.

    Args:
        input: floating-point or complex, of any shape.
        p: probability, within [0, 1].
        training: whether to do anything.
        inplace: write the result into `input` and return that.

    Raises:
        ValueError: if `p` is no probability.
    """
    if not 0 <= p <= 1:
        raise ValueError(f"dropout: the probability must be within [0, 1], got {p}")
    if not training or p == 0:
        return input
    if p == 1:
        result = input * 0.0
    else:
        stretch = random.take(input.numel())
        result = _interpreter.dispatch_several(_DROPOUT, (input,), (float(p),), stretch)[0]
    return input.copy_(result) if inplace else result
