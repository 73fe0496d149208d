"""Ops that are computed part by part in several steps, most with exchanges in between.

Most reduce a dimension, and no signature covers them if that dimension is split.  Autograd records the op itself, not
its steps.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, Final, NamedTuple, TypeAlias, cast

from vmflow import interpreter as _interpreter
from vmflow.dtypes import float32, is_half
from vmflow.instructions.blob import TensorMeta
from vmflow.ops.copying import full_of, zeros_of
from vmflow.ops.elementwise.transcendental import rsqrt
from vmflow.ops.nn.layer_operands import computes_in
from vmflow.ops.table import OPS, Attributes, Metas, OpExpr
from vmflow.streams.channel import Reduction
from vmflow.tensor_fields import meta_of
from vmflow.tensors import Tensor

from .collectives import reduced
from .global_tensors import made, part_of, to_global
from .process import current_process
from .sbp import broadcast, split
from .spread import global_meta, local_meta, spread as spread_of

# (op, operands, attributes, scalars) -> results
Compute: TypeAlias = "Callable[[OpExpr, tuple[Tensor, ...], Attributes, tuple[Any, ...]], tuple[Tensor, ...]]"


class Decomposition(NamedTuple):
    """A way to compute an op of global tensors by several steps.

    Attributes:
        is_needed: whether a call of these attributes and metas of operands needs the steps.
        compute: computes the results from global operands.
    """

    is_needed: Callable[[Attributes, Metas], bool]
    compute: Compute


def decomposition_of(op: OpExpr, attributes: Attributes, metas: Metas) -> Compute | None:
    """Return the function that computes a call in several steps; None if one of the op's signatures is used."""
    found = _DECOMPOSITIONS.get(op.name)
    return found.compute if found is not None and found.is_needed(attributes, metas) else None


def _split_dims(meta: TensorMeta) -> set[int]:
    return {sbp.dim for sbp in meta.spread.sbp if sbp.is_split}


def _added(tensor: Tensor) -> Tensor:
    """The tensor without partial sums."""
    spread = meta_of(tensor).spread
    return to_global(tensor, spread.placement, spread.summed().sbp)


# Reductions


def _splits_reduced(attributes: Attributes, metas: Metas) -> bool:
    return not _split_dims(metas[0]).isdisjoint(cast("tuple[int, ...]", attributes[0]))


def _sum(source: Tensor, dims: tuple[int, ...], keepdim: bool) -> Tensor:
    return _interpreter.dispatch(OPS["sum"], (source,), (dims, keepdim))


def _mean(op: OpExpr, operands: tuple[Tensor, ...], attributes: Attributes, scalars: tuple[Any, ...]) -> Any:
    (source,) = operands
    dims, keepdim = cast("tuple[tuple[int, ...], bool]", attributes)
    wide = source.to(float32) if is_half(source.dtype) else source
    mean = _sum(wide, dims, keepdim) / prod([source.shape[dim] for dim in dims])
    return (mean.to(source.dtype),)


def _norm(op: OpExpr, operands: tuple[Tensor, ...], attributes: Attributes, scalars: tuple[Any, ...]) -> Any:
    (source,) = operands
    dims, keepdim = cast("tuple[tuple[int, ...], bool]", attributes)
    lengths = source.abs()
    wide = lengths.to(float32) if is_half(source.dtype) else lengths
    return (_sum(wide * wide, dims, keepdim).sqrt().to(lengths.dtype),)


def _splits_choices(attributes: Attributes, metas: Metas) -> bool:
    (source,) = metas
    shape = tuple(source.shape)
    spread = source.spread
    # A part without elements has no largest or smallest one: then the op is called by its signatures.
    return _splits_reduced(attributes, metas) and all(
        [0 not in spread.sizes(shape, rank) for rank in spread.placement.group]
    )


_CHOICES: Final[dict[str, Reduction]] = {"amax": "max", "amin": "min", "any": "max", "all": "min"}


def _choice(op: OpExpr, operands: tuple[Tensor, ...], attributes: Attributes, scalars: tuple[Any, ...]) -> Any:
    """`amax`, `amin`, `any` and `all`: reduce each part, then the ranks' results by their maximum or minimum."""
    source = _added(operands[0])
    dims, keepdim = cast("tuple[tuple[int, ...], bool]", attributes)
    of = meta_of(source)
    placement = of.spread.placement
    output = op.infer(attributes, (of,), ()).outputs[0]
    sbps = []
    for sbp in of.spread.sbp:
        if sbp.is_split and sbp.dim not in dims:
            sbps.append(sbp if keepdim else split(sbp.dim - sum([dim < sbp.dim for dim in dims])))
        else:
            sbps.append(broadcast)
    result = global_meta(tuple(output.shape), output.dtype, spread_of(placement, tuple(sbps)))
    rank = current_process().rank
    if rank not in placement.group:
        return (made(zeros_of(local_meta(result, rank)), result),)
    part = _interpreter.dispatch(op, (part_of(source),), attributes)
    for axis, sbp in enumerate(of.spread.sbp):
        if sbp.is_split and sbp.dim in dims:
            part = reduced(part, placement.row(rank, axis), _CHOICES[op.name])
    return (made(part, result),)


# Losses


def _splits_cases(attributes: Attributes, metas: Metas) -> bool:
    scores = metas[0]
    classes = 1 if len(scores.shape) > 1 else 0
    return cast(Any, attributes).reduction == "mean" and bool(_split_dims(scores) - {classes} or _split_dims(metas[1]))


def _mean_loss(op: OpExpr, operands: tuple[Tensor, ...], attributes: Attributes, scalars: tuple[Any, ...]) -> Any:
    options = cast(Any, attributes)._replace(reduction="none")
    losses, total, *logs = _interpreter.dispatch_several(op, operands, options)
    loss = losses.to(total.dtype).sum() / total
    return loss.to(losses.dtype), total, *logs


# Batch norm of an input whose samples, or positions, are split


def _splits_batch(attributes: Attributes, metas: Metas) -> bool:
    return any([_split_dims(meta) - {1} for meta in metas if len(meta.shape) > 1])


class _Channels:
    """The dimensions over which batch norm normalises an input of shape (samples, channels, ...).

    Args:
        source: the input.

    Attributes:
        dims: all dimensions but that of the channels.
        count: how many elements a channel has.
    """

    def __init__(self, source: Tensor) -> None:
        self.dims = tuple([dim for dim in range(source.ndim) if dim != 1])
        self.count = prod([source.shape[dim] for dim in self.dims])
        self._view = (-1, *[1] * (source.ndim - 2))

    def mean(self, tensor: Tensor) -> Tensor:
        """The mean of each channel."""
        return self.sum(tensor) / self.count

    def sum(self, tensor: Tensor) -> Tensor:
        """The sum of each channel."""
        return _added(_sum(tensor, self.dims, False))

    def wide(self, vector: Tensor) -> Tensor:
        """Reshape a vector of one number for each channel so that it broadcasts over the input."""
        return vector.reshape(self._view)


def _batch_norm(op: OpExpr, operands: tuple[Tensor, ...], attributes: Attributes, scalars: tuple[Any, ...]) -> Any:
    eps, has_weight, has_bias = cast("tuple[float, bool, bool]", attributes)
    source, *parameters = operands
    over = _Channels(source)
    wide = source.to(computes_in(meta_of(source)))
    mean = over.mean(wide)
    centred = wide - over.wide(mean)
    variance = over.mean(centred * centred)
    scale = rsqrt(variance + eps)
    result = centred * over.wide(scale * parameters[0] if has_weight else scale)
    result = result + over.wide(parameters[-1]) if has_bias else result
    return result.to(source.dtype), mean, variance


def _batch_norm_gradient(
    op: OpExpr, operands: tuple[Tensor, ...], attributes: Attributes, scalars: tuple[Any, ...]
) -> Any:
    eps = cast("tuple[float, bool, bool]", attributes)[0]
    gradient, source, mean, variance, *weight = operands
    over = _Channels(source)
    gradient, wide = gradient.to(mean.dtype), source.to(mean.dtype)
    scale = rsqrt(variance + eps)
    normalized = (wide - over.wide(mean)) * over.wide(scale)
    by_weight, by_bias = over.sum(gradient * normalized), over.sum(gradient)
    slope = normalized * over.wide(by_weight / over.count)
    factor = scale * weight[0] if weight else scale
    by_input = (gradient - over.wide(by_bias / over.count) - slope) * over.wide(factor)
    return by_input.to(source.dtype), by_weight, by_bias


# Random numbers, which depend on the place of an element in the whole


def _is_spread(attributes: Attributes, metas: Metas) -> bool:
    return any([sbp != broadcast for sbp in metas[0].spread.sbp])


def _dropout(op: OpExpr, operands: tuple[Tensor, ...], attributes: Attributes, scalars: tuple[Any, ...]) -> Any:
    """Let each rank draw the mask of the whole tensor, and apply its own part of that mask.

    The masks are the same if the generators of the ranks are in the same state.
    """
    (source,) = operands
    spread = meta_of(source).spread
    ones = full_of(global_meta(tuple(source.shape), source.dtype, spread.everywhere()), 1)
    mask = _interpreter.dispatch_several(op, (ones,), attributes, scalars)[1]
    mask = to_global(mask, spread.placement, spread.summed().sbp)
    return _interpreter.dispatch(OPS["dropout_gradient"], (source, mask), attributes), mask


_DECOMPOSITIONS: Final[dict[str, Decomposition]] = {
    "mean": Decomposition(_splits_reduced, _mean),
    "norm": Decomposition(_splits_reduced, _norm),
    **dict.fromkeys(_CHOICES, Decomposition(_splits_choices, _choice)),
    "nll_loss": Decomposition(_splits_cases, _mean_loss),
    "cross_entropy": Decomposition(_splits_cases, _mean_loss),
    "batch_norm": Decomposition(_splits_batch, _batch_norm),
    "batch_norm_gradient": Decomposition(_splits_batch, _batch_norm_gradient),
    "dropout": Decomposition(_is_spread, _dropout),
}
