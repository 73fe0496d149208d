"""Dropout: zero a random part of the elements and scale up the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np

from vmflow import dtypes, random
from vmflow import interpreter as _interpreter
from vmflow.dtypes import FLOATING
from vmflow.instructions.blob import Array, TensorMeta, meta
from vmflow.kernels.numpy.spreading import spread

from .elementwise import CHEAP
from .layer_operands import check_shape
from .table import Attributes, Form, Inferred, Kinds, Metas, OpExpr, array_module, computed_by

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
    xp = array_module(source.device)
    to = source.dtype.numpy
    scale = to.type(1 / (1 - p))
    mask = meta(tuple(source.shape), dtypes.bool_, source.device)

    def kernel(array: Array, seed: int, position: int, out: Any) -> tuple[Array, Array]:
        kept = xp.asarray(kept_elements(random.generator_at(seed, position), mask, p))
        target = None if out is None else out[0]
        return xp.multiply(array, xp.multiply(kept, scale, dtype=to), target, order="C"), kept

    return computed_by((source, mask), kernel, source.numel * 6 + 5000)


def kept_elements(generator: np.random.Generator, mask: TensorMeta, p: float) -> np.ndarray[Any, Any]:
    """True with probability ``1 - p``.

    Sixteen random bits decide nearly always, half of what `random` spends on an element.  Where they equal those of p,
    one more number decides by the rest of p, so that the probability is exact.
    """
    words = generator.integers(0, _MOST, -(-mask.numel // 4), np.uint64, endpoint=True)
    bits = words.view(np.uint16)[: mask.numel]
    limit = int(p * 65536)
    kept = bits >= limit
    undecided = np.flatnonzero(bits == limit)
    kept[undecided] = generator.random(undecided.size) >= p * 65536 - limit
    return kept.reshape(mask.shape)


_MOST: Final = (1 << 64) - 1


def _infer_mask_and_scale(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    (p,) = cast("tuple[float]", attributes)
    source, mask = metas
    if mask.dtype is not dtypes.bool_ or source.dtype.category < FLOATING or not 0 <= p < 1:
        raise TypeError(f"dropout: a gradient {source} does not fit a mask {mask} and the probability {p}")
    check_shape("dropout", "a mask", mask, source.shape)
    xp = array_module(source.device)
    to = source.dtype.numpy
    scale = to.type(1 / (1 - p))

    def kernel(array: Array, kept: Array, out: Array | None) -> Array:
        return xp.multiply(array, xp.multiply(kept, scale, dtype=to), out, order="C")

    return computed_by(source, spread(kernel, source, CHEAP * 2), source.numel * CHEAP * 2)


_DROPOUT = OpExpr("dropout", _infer_dropout, Form(1, tuple[float], 2, draws=True))
_MASK_AND_SCALE = OpExpr("dropout_gradient", _infer_mask_and_scale, Form(2, tuple[float]))


@_DROPOUT.gradient(outputs=(1,))
def _dropout_gradient(node: OpNode, gradient: Tensor, _: Tensor | None) -> tuple[Tensor]:
    return (_interpreter.dispatch(_MASK_AND_SCALE, (gradient, node.output(1).detach()), node.attributes),)


@_MASK_AND_SCALE.gradient(inputs=(1,))
def _mask_and_scale_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor, None]:
    return _interpreter.dispatch(_MASK_AND_SCALE, (gradient, node.input(1)), node.attributes), None


def dropped_alike(input: Tensor, p: float, stretch: tuple[Any, ...]) -> Tensor:
    """Dropout by a stretch of random numbers that another op has used; unchanged for a probability of 0."""
    if p == 1:
        return input * 0.0
    return _interpreter.dispatch_several(_DROPOUT, (input,), (p,), stretch)[0] if p else input


def check_probability(name: str, p: float) -> None:
    """Raise ValueError, in the name of an op, unless `p` is within [0, 1]."""
    if not 0 <= p <= 1:
        raise ValueError(f"{name}: the probability must be within [0, 1], got {p}")


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
    check_probability("dropout", p)
    if not training or p == 0:
        return input
    if p == 1:
        result = input * 0.0
    else:
        stretch = random.take(input.numel())
        result = _interpreter.dispatch_several(_DROPOUT, (input,), (float(p),), stretch)[0]
    return input.copy_(result) if inplace else result
