"""Batch, layer, group and RMS normalization: over a batch, or over the features of a sample."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from vmflow import dtypes, interpreter as _interpreter
from vmflow.arguments import flag, whole_number
from vmflow.autograd.grad_mode import is_grad_enabled
from vmflow.instructions.blob import TensorMeta, meta
from vmflow.kernels.problems.updates import RunningStatistics
from vmflow.kernels.updates import choose_update
from vmflow.multi_tensor import Update, issue_update
from vmflow.operands import check_tensors
from vmflow.ops.elementwise.inference import CHEAP
from vmflow.ops.elementwise.transcendental import rsqrt
from vmflow.ops.table import Attributes, Form, Inferred, Kinds, Metas, OpExpr, as_tuple, common_device

from .layer_operands import check_floating, check_shape, computes_in

if TYPE_CHECKING:
    from vmflow.autograd.node import OpNode
    from vmflow.tensors import Tensor

# The attributes of `batch_norm` ops, and a part of `layer_norm`'s: (eps, is there a weight, is there a bias)
_Options = tuple[float, bool, bool]


def _check(name: str, metas: Metas, what: Sequence[str], shapes: Sequence[tuple[int, ...]]) -> None:
    """Raise TypeError unless all operands are floating-point, ValueError unless those behind the input have the shapes.

    The names of these operands, for errors, are `what`."""
    for operand in metas:
        check_floating(name, operand)
    for operand, word, shape in zip(metas[1:], what, shapes, strict=True):
        if operand.shape != shape:
            raise ValueError(
                f"{name}: for an input of shape {list(metas[0].shape)}, {word} must have shape {list(shape)}, not "
                f"{list(operand.shape)}"
            )


def _check_gradient(
    name: str, gradient: TensorMeta, source: TensorMeta, statistics: Metas, shape: tuple[int, ...]
) -> None:
    """Raise TypeError or ValueError unless a gradient op's operands fit: gradient, input, and the kept statistics."""
    check_floating(name, source)
    check_shape(name, "a gradient", gradient, source.shape)
    if gradient.dtype.category != source.dtype.category:
        raise TypeError(f"{name}: a gradient {gradient} does not fit an input {source}")
    for kept in statistics:
        check_shape(name, "statistics", kept, shape)
        if kept.dtype is not computes_in(source):
            raise TypeError(f"{name}: expected statistics of {computes_in(source).name}, got {kept}")


def _present(options: _Options) -> list[str]:
    return [word for word, present in (("weight", options[1]), ("bias", options[2])) if present]


# Normalization over the batch, for each channel: `batch_norm`


def _infer_batch_norm(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    options = cast("_Options", attributes)
    source = metas[0]
    device = common_device("batch_norm", metas)
    channels = source.shape[1:2]
    _check("batch_norm", metas, _present(options), [channels] * (len(metas) - 1))
    count = source.shape[0] * prod(source.shape[2:])
    if count < 2:
        raise ValueError(
            f"batch_norm: training needs at least 2 values per channel, an input of shape {list(source.shape)} has "
            f"{count}"
        )
    statistics = meta(channels, computes_in(source), device)
    return Inferred((source, statistics, statistics), source.numel * CHEAP * 8 + 10000)


def _infer_batch_norm_gradient(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    gradient, source, statistics = metas[:3]
    common_device("batch_norm", metas)
    _check_gradient("batch_norm", gradient, source, metas[2:4], source.shape[1:2])
    _check("batch_norm", (source, *metas[4:]), ["weight"][: len(metas) - 4], [source.shape[1:2]][: len(metas) - 4])
    return Inferred((source, statistics, statistics), source.numel * CHEAP * 12 + 10000)


def _infer_batch_norm_inference(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    options = cast("_Options", attributes)
    source = metas[0]
    common_device("batch_norm", metas)
    words = ["running_mean", "running_var", *_present(options)]
    _check("batch_norm", metas, words, [tuple(source.shape[1:2])] * (len(metas) - 1))
    return Inferred(source, source.numel * CHEAP * 4 + 5000)


_BATCH_NORM = OpExpr("batch_norm", _infer_batch_norm, Form((1, 3), _Options), "normalization")
_BATCH_NORM_GRADIENT = OpExpr(
    "batch_norm_gradient", _infer_batch_norm_gradient, Form((4, 5), _Options), "normalization"
)
_BATCH_NORM_INFERENCE = OpExpr(
    "batch_norm_inference", _infer_batch_norm_inference, Form((3, 5), _Options), "normalization"
)


def _in_order(options: _Options, by_input: Any, by_weight: Any, by_bias: Any) -> tuple[Any, ...]:
    return (by_input, *_given(options, by_weight, by_bias))


def _given(options: _Options, weight: Any, bias: Any) -> tuple[Any, ...]:
    return ((weight,) if options[1] else ()) + ((bias,) if options[2] else ())


def _recorded_gradient(
    gradient: Tensor, source: Tensor, weight: Tensor | None, eps: float, dims: Sequence[int]
) -> tuple[Tensor, Tensor]:
    """Compute, in differentiable ops, the gradients of a normalization over `dims`: by its input, and by its weight.

    `weight` broadcasts to the input.  The gradient by the weight has the input's shape: it is not summed yet.
    """
    compute = computes_in(source._blob.meta)
    source, gradient = source.to(compute), gradient.to(compute)
    over = list(dims)
    centred = source - source.mean(over, keepdim=True)
    scale = rsqrt((centred * centred).mean(over, keepdim=True) + eps)
    normalized = centred * scale
    weighted = gradient if weight is None else gradient * weight
    slope = (weighted * normalized).mean(over, keepdim=True)
    by_input = scale * (weighted - weighted.mean(over, keepdim=True) - normalized * slope)
    return by_input, gradient * normalized


@_BATCH_NORM.gradient(inputs=(0, 1), outputs=(1, 2))
def _batch_norm_gradient(node: OpNode, gradient: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
    options = cast("_Options", node.attributes)
    source = node.input(0)
    weight = node.input(1) if options[1] else None
    if not is_grad_enabled():
        parameters = () if weight is None else (weight,)
        operands = (gradient, source, node.output(1), node.output(2), *parameters)
        return _in_order(options, *_interpreter.dispatch_several(_BATCH_NORM_GRADIENT, operands, options))
    dims = [axis for axis in range(source.ndim) if axis != 1]
    spread = None if weight is None else weight.reshape(-1, *[1] * (source.ndim - 2))
    by_input, product = _recorded_gradient(gradient, source, spread, options[0], dims)
    return _in_order(options, by_input, product.sum(dims), gradient.sum(dims))


@_BATCH_NORM_INFERENCE.gradient(inputs=(0, 1, 2, 3))
def _batch_norm_inference_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor | None, ...]:
    options = cast("_Options", node.attributes)
    source, mean, variance = node.input(0), node.input(1), node.input(2)
    weight = node.input(3) if options[1] else None
    trailing = [1] * (source.ndim - 2)
    dims = [axis for axis in range(source.ndim) if axis != 1]
    compute = computes_in(node.meta(0))
    gradient = gradient.to(compute)
    scale = rsqrt(variance.to(compute) + options[0])
    factor = scale if weight is None else scale * weight
    normalized = (source.to(compute) - mean.reshape(-1, *trailing)) * scale.reshape(-1, *trailing)
    return (
        gradient * factor.reshape(-1, *trailing) if node.needs[0] else None,
        None,
        None,
        *_given(options, (gradient * normalized).sum(dims) if options[1] else None, gradient.sum(dims)),
    )


def batch_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Normalize each channel over the batch (S. Ioffe and C. Szegedy, Batch Normalization, 2015).

    In training, one instruction updates the running statistics; if a scope drops it, they stay unchanged.

    Args:
        input: (samples, channels, ...), floating-point.
        running_mean, running_var: (channels,); in training updated in place, or None; otherwise used instead of the
            batch's mean and variance.
        weight, bias: (channels,), factor and summand of the normalized values.
        training: whether to use the batch's own mean and variance.
        momentum: the weight of the batch's statistics, the variance unbiased, in the updated running statistics.
        eps: added to the variance.

    Raises:
        TypeError: if `input`, `weight`, `bias` or, outside of training, a running statistic is not floating-point, the
            momentum no number, or `training` no bool.
        ValueError: for shapes that do not fit; in training for fewer than two values per channel or an `eps` that is
            not positive, else for missing running statistics.

    Example:
        >>> mean, variance = flow.zeros(1), flow.full((1,), 4.0)
        >>> flow.nn.functional.batch_norm(flow.tensor([[2.0], [6.0]]), mean, variance, eps=1e-12)
        tensor([[1.],
                [3.]])
    """
    training = flag("batch_norm", "training", training)
    check_momentum("batch_norm", momentum)
    return batch_norm_counted(input, running_mean, running_var, None, weight, bias, training, float(momentum), eps)


def check_momentum(name: str, momentum: Any) -> None:
    """Raise TypeError unless the momentum of running statistics is an int, float or numpy number."""
    if not isinstance(momentum, (int, float, np.number)):
        raise TypeError(f"{name}: momentum must be a number, not {momentum!r}")


def batch_norm_counted(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    batches: Tensor | None,
    weight: Tensor | None,
    bias: Tensor | None,
    training: bool,
    momentum: float | None,
    eps: float,
) -> Tensor:
    """Compute `batch_norm`, and in training count batches in the 0-d tensor `batches`, unless that is None.

    If `momentum` is None, `batches` must be given, and the running statistics become averages over all batches."""
    if training and not eps > 0:
        raise ValueError(f"batch_norm: eps must be positive, got {eps}")
    if momentum is not None:
        check_momentum("batch_norm", momentum)
    check_tensors("batch_norm", input, optional=(running_mean, running_var, weight, bias))
    if input.ndim < 2:
        raise ValueError(f"batch_norm: expected an input (samples, channels, ...), got {list(input.shape)}")
    options = (float(eps), weight is not None, bias is not None)
    parameters = _given(options, weight, bias)
    if not training:
        if running_mean is None or running_var is None:
            raise ValueError("batch_norm: running_mean and running_var are needed where training is False")
        return _interpreter.dispatch(_BATCH_NORM_INFERENCE, (input, running_mean, running_var, *parameters), options)
    for word, running in (("running_mean", running_mean), ("running_var", running_var)):
        if running is not None and running.shape != input.shape[1:2]:
            raise ValueError(
                f"batch_norm: for an input of shape {list(input.shape)}, {word} must have shape "
                f"{list(input.shape[1:2])}, not {list(running.shape)}"
            )
    result, mean, variance = batch_statistics(input, weight, bias, eps)
    count = input.shape[0] * prod(input.shape[2:])
    unbiased = count / (count - 1)
    moved = [
        (running, batch, factor)
        for running, batch, factor in ((running_mean, mean, 1.0), (running_var, variance, unbiased))
        if running is not None
    ]
    if moved or batches is not None:
        move_statistics(moved, batches, momentum)
    return result


def batch_statistics(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute `batch_norm` of training; return the result, and the input's mean and biased variance in each channel."""
    options = (float(eps), weight is not None, bias is not None)
    operands = (input, *_given(options, weight, bias))
    result, mean, variance = _interpreter.dispatch_several(_BATCH_NORM, operands, options)
    return result, mean, variance


def move_statistics(moved: list[tuple[Tensor, Tensor, float]], batches: Tensor | None, momentum: float | None) -> None:
    """Update running statistics and the count of batches by one instruction, so that all or none of them change.

    Args:
        moved: triples: running statistics, the batch's statistics, and a factor for the latter.
        batches: the 0-d count of batches, or None.
        momentum: the weight of the batch's statistics; or None for averages over all batches, which needs `batches`.
    """
    inputs = [_spread_like(batch.detach(), running) for running, batch, _ in moved]
    outputs = [running for running, _, _ in moved] + ([] if batches is None else [batches])
    settings = RunningStatistics(tuple([factor for _, _, factor in moved]), batches is not None, momentum)
    kernel = choose_update("running_statistics", outputs[0].device).kernel(settings)
    issue_update(Update("batch_norm.running", kernel, inputs, outputs, 3000))


def _spread_like(batch: Tensor, running: Tensor) -> Tensor:
    """Convert a batch's statistics to the placement and sbp of the running statistics, if both are global tensors."""
    if batch.is_global and running.is_global:
        return batch.to_global(running.placement, running.sbp)
    return batch


# Normalization over the last dimensions, for each sample: `layer_norm` and others


def _leading(source: TensorMeta, normalized: tuple[int, ...]) -> tuple[int, ...]:
    """Return the input's shape without its last dimensions `normalized`: the shape of layer_norm's statistics.

    Raises:
        ValueError: if the input does not end in the normalized shape.
    """
    before = len(source.shape) - len(normalized)
    if before < 0 or source.shape[before:] != normalized:
        raise ValueError(f"layer_norm: an input of shape {list(source.shape)} does not end in {list(normalized)}")
    return tuple(source.shape[:before])


# Attributes: (normalized shape, options)
_Layer = tuple[tuple[int, ...], _Options]


def _infer_layer_norm(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    normalized, options = cast("_Layer", attributes)
    source = metas[0]
    device = common_device("layer_norm", metas)
    _check("layer_norm", metas, _present(options), [normalized] * (len(metas) - 1))
    statistics = meta(_leading(source, normalized), computes_in(source), device)
    return Inferred((source, statistics, statistics), source.numel * CHEAP * 8 + 10000)


def _infer_layer_norm_gradient(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    normalized, _ = cast("_Layer", attributes)
    gradient, source, statistics = metas[:3]
    device = common_device("layer_norm", metas)
    _check_gradient("layer_norm", gradient, source, metas[2:4], _leading(source, normalized))
    _check("layer_norm", (source, *metas[4:]), ["weight"][: len(metas) - 4], [normalized][: len(metas) - 4])
    parameter = meta(normalized, statistics.dtype, device)
    return Inferred((source, parameter, parameter), source.numel * CHEAP * 14 + 10000)


_LAYER_NORM = OpExpr("layer_norm", _infer_layer_norm, Form((1, 3), _Layer), "normalization")
_LAYER_NORM_GRADIENT = OpExpr("layer_norm_gradient", _infer_layer_norm_gradient, Form((4, 5), _Layer), "normalization")


@_LAYER_NORM.gradient(inputs=(0, 1), outputs=(1, 2))
def _layer_norm_gradient(node: OpNode, gradient: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
    normalized, options = cast("_Layer", node.attributes)
    source = node.input(0)
    weight = node.input(1) if options[1] else None
    if not is_grad_enabled():
        parameters = () if weight is None else (weight,)
        operands = (gradient, source, node.output(1), node.output(2), *parameters)
        found = _interpreter.dispatch_several(_LAYER_NORM_GRADIENT, operands, (normalized, options))
        return _in_order(options, *found)
    dims = range(source.ndim - len(normalized), source.ndim)
    by_input, product = _recorded_gradient(gradient, source, weight, options[0], dims)
    return _in_order(options, by_input, product, gradient)  # autograd sums gradients over the samples


def _normalized_shape(name: str, input: Tensor, normalized_shape: int | Sequence[int]) -> tuple[int, ...]:
    check_tensors(name, input)
    shape = tuple([whole_number(name, "a size of normalized_shape", size) for size in as_tuple(normalized_shape)])
    if not shape or tuple(input.shape[-len(shape) :]) != shape:
        raise ValueError(
            f"{name}: normalized_shape {list(shape)} must be the last dimensions of the input's shape "
            f"{list(input.shape)}"
        )
    return shape


def layer_norm(
    input: Tensor,
    normalized_shape: int | Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Normalize each sample over its last dimensions (J. L. Ba et al., Layer Normalization, 2016).

    Args:
        input: (..., *normalized_shape), floating-point.
        normalized_shape: the last dimensions, at least one.
        weight, bias: of that shape, factor and summand of the normalized values.
        eps: added to the variance.

    Raises:
        TypeError: if a tensor is not floating-point, or a size is no integer.
        ValueError: for shapes that do not fit.

    Example:
        >>> flow.layer_norm(flow.tensor([[-1.0, 1.0], [3.0, 5.0]]), (2,), eps=0.0)
        tensor([[-1.,  1.],
                [-1.,  1.]])
    """
    shape = _normalized_shape("layer_norm", input, normalized_shape)
    options = (float(eps), weight is not None, bias is not None)
    operands = (input, *_given(options, weight, bias))
    return _interpreter.dispatch_several(_LAYER_NORM, operands, (shape, options))[0]


def group_norm(
    input: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    """Normalize each of `num_groups` groups of each sample's channels (Y. Wu and K. He, Group Normalization, 2018).

    Args:
        input: (samples, channels, ...), floating-point.
        num_groups: a divisor of the number of channels.
        weight, bias: (channels,), factor and summand of the normalized values.
        eps: added to the variance.

    Raises:
        TypeError: if `input` is not floating-point, or `num_groups` is no integer.
        ValueError: for shapes that do not fit.

    Example:
        >>> flow.group_norm(flow.tensor([[-1.0, 1.0, 3.0, 5.0]]), 2, eps=0.0)
        tensor([[-1.,  1., -1.,  1.]])
    """
    check_tensors("group_norm", input, optional=(weight, bias))
    num_groups = whole_number("group_norm", "num_groups", num_groups)
    if input.ndim < 2 or num_groups < 1 or input.shape[1] % num_groups:
        raise ValueError(
            f"group_norm: expected an input (samples, channels, ...) whose channels {num_groups} groups divide, got "
            f"{list(input.shape)}"
        )
    channels = input.shape[1]
    for word, parameter in (("weight", weight), ("bias", bias)):
        if parameter is not None and parameter.shape != (channels,):
            raise ValueError(
                f"group_norm: for an input of shape {list(input.shape)}, {word} must have shape [{channels}], not "
                f"{list(parameter.shape)}"
            )
    features = channels // num_groups * prod(input.shape[2:])
    grouped = input.reshape(input.shape[0], num_groups, features)
    result = layer_norm(grouped, features, None, None, eps).reshape(input.shape)
    trailing = [1] * (input.ndim - 2)
    if weight is not None:
        result = result * weight.reshape(-1, *trailing)
    return result if bias is None else result + bias.reshape(-1, *trailing)


def rms_norm(
    input: Tensor, normalized_shape: int | Sequence[int], weight: Tensor | None = None, eps: float | None = None
) -> Tensor:
    """Divide each sample by the root of its mean square over the last dimensions (B. Zhang and R. Sennrich, 2019).

    Args:
        input: (..., *normalized_shape), floating-point.
        normalized_shape: the last dimensions, at least one.
        weight: of that shape, the factor of the normalized values.
        eps: added to the mean square; by default the machine epsilon of the dtype in which the function computes,
            float32 for 16-bit inputs.

    Raises:
        TypeError: if a tensor is not floating-point, or a size is no integer.
        ValueError: for shapes that do not fit.

    Example:
        >>> flow.rms_norm(flow.tensor([2.0, -2.0]), (2,), eps=0.0)
        tensor([ 1., -1.])
    """
    shape = _normalized_shape("rms_norm", input, normalized_shape)
    check_tensors("rms_norm", optional=(weight,))
    parameters = () if weight is None else (weight,)
    _check(
        "rms_norm",
        tuple([parameter._blob.meta for parameter in (input, *parameters)]),
        ["weight"][: len(parameters)],
        [shape] * len(parameters),
    )
    compute = computes_in(input._blob.meta)
    wide = input.to(compute)
    over = tuple(range(input.ndim - len(shape), input.ndim))
    eps = dtypes.finfo(compute).eps if eps is None else eps
    result = wide * rsqrt((wide * wide).mean(over, keepdim=True) + eps)
    return (result if weight is None else result * weight).to(input.dtype)
