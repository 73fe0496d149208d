"""Normalisation: values shifted and scaled to mean 0 and variance 1, over a batch or over the features of a sample.

The forward pass is one op, and so is a backward pass that is not recorded itself.  One that is (``create_graph=True``)
is written in differentiable ops instead.  Half precision computes in float32.

At five hundred lines it is long because each of two normalisations is there twice in each direction.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any, Final, cast

from vmflow import dtypes
from vmflow import interpreter as _interpreter
from vmflow.autograd.grad_mode import is_grad_enabled
from vmflow.instructions.blob import Array, TensorMeta, meta
from vmflow.kernels.native.arrays import Call
from vmflow.kernels.native.images import BatchNorm
from vmflow.kernels.native.rows import LayerNorm, LayerNormGradient
from vmflow.kernels.numpy import sums
from vmflow.kernels.numpy.rows import handed, normalize, normalize_backward, room
from vmflow.multi_tensor import Update, issue_update

from .elementwise import CHEAP
from .layer_operands import check_floating, check_shape, computes_in, is_half
from .table import Attributes, Form, Inferred, Kinds, Metas, OpExpr, Placed, array_module, common_device, computed_by
from .transcendental import rsqrt

if TYPE_CHECKING:
    from vmflow.autograd.node import OpNode
    from vmflow.tensors import Tensor

# Up to this many values per sample and channel, a vector over channels is repeated for each value and loops run over
# whole samples; above, they run over the values, long enough by themselves.
_SHORT: Final = 256

# Attributes: (eps, whether there is a weight, whether there is a bias)
_Options = tuple[float, bool, bool]


def _check(name: str, metas: Metas, what: Sequence[str], shapes: Sequence[tuple[int, ...]]) -> None:
    """Raise unless the operands behind the first are floating-point tensors of these shapes.

    Raises:
        TypeError, ValueError: accordingly.
    """
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
    """Raise unless these are the operands of a gradient: that of the result, the input, and what was kept of it."""
    check_floating(name, source)
    check_shape(name, "a gradient", gradient, source.shape)
    if gradient.dtype.category != source.dtype.category:
        raise TypeError(f"{name}: a gradient {gradient} does not fit an input {source}")
    for kept in statistics:
        check_shape(name, "statistics", kept, shape)
        if kept.dtype is not computes_in(source):
            raise TypeError(f"{name}: expected statistics of {computes_in(source).name}, got {kept}")


def _split(options: _Options, operands: Sequence[Any]) -> tuple[Any, Any]:
    """Weight and bias, None where there is none."""
    given = list(operands)
    weight = given.pop(0) if options[1] else None
    return weight, given.pop(0) if options[2] else None


def _present(options: _Options) -> list[str]:
    return [word for word, present in (("weight", options[1]), ("bias", options[2])) if present]


# Over the batch, for each channel


class _Channels:
    """(samples, channels, ...) seen so that loops are long.

    Attributes:
        view: the shape for elementwise work.
        count: values per channel.
    """

    def __init__(self, xp: Any, shape: tuple[int, ...]) -> None:
        self.xp = xp
        samples, channels, values = shape[0], shape[1], prod(shape[2:])
        self.split = samples, channels, values
        self.short = values <= _SHORT
        self.view = (samples, channels * values) if self.short else self.split
        self.count = samples * values

    def wide(self, vector: Array) -> Array:
        """A vector over channels, to broadcast over the view."""
        if not self.short:
            return vector[:, None]
        return vector if self.split[2] == 1 else self.xp.repeat(vector, self.split[2])

    def sum(self, array: Array) -> Array:
        """The sum of each channel.  einsum is two to three times as fast here as sum over two dimensions."""
        return self.xp.einsum("scv->c", array.reshape(self.split))

    def sum_of_products(self, first: Array, second: Array) -> Array:
        """The sum of each channel of the product."""
        if not self.short:
            return sums.of_columns(self.xp.vecdot(first.reshape(self.split), second.reshape(self.split)))
        return self.xp.einsum("scv,scv->c", first.reshape(self.split), second.reshape(self.split))


def _infer_batch_norm(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    options = cast("_Options", attributes)
    source = metas[0]
    device = common_device("batch_norm", metas)
    channels = source.shape[1:2]
    _check("batch_norm", metas, _present(options), [channels] * (len(metas) - 1))
    xp = array_module(device)
    over = _Channels(xp, tuple(source.shape))
    if over.count < 2:
        raise ValueError(
            f"batch_norm: training needs at least 2 values per channel, an input of shape {list(source.shape)} has "
            f"{over.count}"
        )
    compute = computes_in(source).numpy
    eps = compute.type(options[0])

    def kernel(array: Array, *rest: Any) -> tuple[Array, Array, Array]:
        *parameters, out = rest
        weight, bias = _split(options, parameters)
        to = None if out is None else out[0]
        array = xp.ascontiguousarray(array, compute).reshape(over.view)
        if in_c is not None:
            factor, more = [None if it is None else it.astype(compute, copy=False) for it in (weight, bias)]
            found = in_c.forward(array, factor, more, to)
            if found is not None:
                return handed(found[0], to, source.shape, source.dtype.numpy), *found[1:]
        mean = over.sum(array) / compute.type(over.count)
        target = None if to is None or to.dtype != compute else to.reshape(over.view)
        result = xp.subtract(array, over.wide(mean), target)
        variance = over.sum_of_products(result, result) / compute.type(over.count)
        scale = 1 / xp.sqrt(variance + eps)
        xp.multiply(result, over.wide(scale if weight is None else scale * weight.astype(compute, copy=False)), result)
        if bias is not None:
            xp.add(result, over.wide(bias.astype(compute, copy=False)), result)
        return handed(result, to, source.shape, source.dtype.numpy), mean, variance

    def placed(inputs: Sequence[Array], outs: Sequence[Array]) -> list[Call] | None:
        array, *parameters = inputs
        return None if in_c is None else in_c.calls("batch_norm", (array, *_split(options, parameters), *outs))

    in_c = _in_c(source, over, options[0])
    statistics = meta(channels, computes_in(source), device)
    outputs = source, statistics, statistics
    return computed_by(outputs, kernel, source.numel * CHEAP * 8 + 10000, placed=_unless_half(placed, source))


def _in_c(source: TensorMeta, over: _Channels, eps: float) -> BatchNorm | None:
    if computes_in(source) is not dtypes.float32:
        return None
    return BatchNorm(over.split, tuple(source.shape), eps)


def _unless_half(placed: Placed, source: TensorMeta) -> Placed | None:
    return None if is_half(source) else placed


def _infer_batch_norm_gradient(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    options = cast("_Options", attributes)
    gradient, source, statistics = metas[:3]
    device = common_device("batch_norm", metas)
    _check_gradient("batch_norm", gradient, source, metas[2:4], source.shape[1:2])
    _check("batch_norm", (source, *metas[4:]), ["weight"][: len(metas) - 4], [source.shape[1:2]][: len(metas) - 4])
    xp = array_module(device)
    over = _Channels(xp, tuple(source.shape))
    compute = computes_in(source).numpy
    eps, count = compute.type(options[0]), compute.type(over.count)

    def kernel(gradient: Array, array: Array, mean: Array, variance: Array, *rest: Any) -> tuple[Array, Array, Array]:
        *parameters, out = rest
        to = None if out is None else out[0]
        gradient = xp.ascontiguousarray(gradient, compute).reshape(over.view)
        array = xp.ascontiguousarray(array, compute).reshape(over.view)
        if in_c is not None:
            weight = parameters[0].astype(compute, copy=False) if parameters else None
            found = in_c.gradient(gradient, array, mean, variance, weight, to)
            if found is not None:
                return handed(found[0], to, source.shape, source.dtype.numpy), *found[1:]
        target = None if to is None or to.dtype != compute else to.reshape(over.view)
        result = xp.subtract(array, over.wide(mean), target)
        scale = 1 / xp.sqrt(variance + eps)
        by_bias = over.sum(gradient)
        by_weight = over.sum_of_products(gradient, result) * scale
        factor = scale * parameters[0].astype(compute, copy=False) if parameters else scale
        # factor * (gradient - mean(gradient) - normalized * mean(gradient * normalized))
        xp.multiply(result, over.wide(-factor * scale * by_weight / count), result)
        xp.add(result, gradient * over.wide(factor), result)
        xp.subtract(result, over.wide(factor * by_bias / count), result)
        return handed(result, to, source.shape, source.dtype.numpy), by_weight, by_bias

    def placed(inputs: Sequence[Array], outs: Sequence[Array]) -> list[Call] | None:
        arrays = (*inputs, *[None] * (5 - len(inputs)), *outs)
        return None if in_c is None else in_c.calls("batch_norm_gradient", arrays)

    in_c = _in_c(source, over, options[0])
    outputs = source, statistics, statistics
    return computed_by(outputs, kernel, source.numel * CHEAP * 12 + 10000, placed=_unless_half(placed, source))


def _infer_batch_norm_inference(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    options = cast("_Options", attributes)
    source = metas[0]
    device = common_device("batch_norm", metas)
    words = ["running_mean", "running_var", *_present(options)]
    _check("batch_norm", metas, words, [tuple(source.shape[1:2])] * (len(metas) - 1))
    xp = array_module(device)
    over = _Channels(xp, tuple(source.shape))
    compute = computes_in(source).numpy
    eps = compute.type(options[0])

    def kernel(array: Array, mean: Array, variance: Array, *rest: Any) -> Array:
        *parameters, out = rest
        weight, bias = _split(options, [it.astype(compute, copy=False) for it in parameters])
        scale = 1 / xp.sqrt(variance.astype(compute, copy=False) + eps)
        scale = scale if weight is None else scale * weight
        shift = -mean.astype(compute, copy=False) * scale
        shift = shift if bias is None else shift + bias
        array = xp.ascontiguousarray(array, compute).reshape(over.view)
        target = None if out is None or out.dtype != compute else out.reshape(over.view)
        result = xp.multiply(array, over.wide(scale), target)
        xp.add(result, over.wide(shift), result)
        # The very object handed in tells the caller that there is nothing left to copy.
        return out if target is not None else result.reshape(source.shape).astype(source.dtype.numpy, copy=False)

    return computed_by(source, kernel, source.numel * CHEAP * 4 + 5000)


_BATCH_NORM = OpExpr("batch_norm", _infer_batch_norm, Form((1, 3), _Options))
_BATCH_NORM_GRADIENT = OpExpr("batch_norm_gradient", _infer_batch_norm_gradient, Form((4, 5), _Options))
_BATCH_NORM_INFERENCE = OpExpr("batch_norm_inference", _infer_batch_norm_inference, Form((3, 5), _Options))


def _in_order(options: _Options, by_input: Any, by_weight: Any, by_bias: Any) -> tuple[Any, ...]:
    return (by_input, *_given(options, by_weight, by_bias))


def _given(options: _Options, weight: Any, bias: Any) -> tuple[Any, ...]:
    return ((weight,) if options[1] else ()) + ((bias,) if options[2] else ())


def _recorded_gradient(
    gradient: Tensor, source: Tensor, weight: Tensor | None, eps: float, dims: Sequence[int]
) -> tuple[Tensor, Tensor]:
    """The gradient by the input of a normalisation over `dims`, and that by a weight of the input's shape.

    `weight` broadcasts to the input.
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
    """Normalise each channel over the batch (S. Ioffe and C. Szegedy, Batch Normalization, 2015).

    The running statistics move by one instruction; dropped by a scope, they stay where they were.

    Args:
        input: (samples, channels, ...), floating-point.
        running_mean, running_var: (channels,); in training they are updated in place if given, else used instead of
            the batch's mean and variance.
        weight, bias: (channels,), applied after.
        training: whether to use the batch's own mean and variance.
        momentum: the share of the batch in the updated running statistics (the variance unbiased).
        eps: added to the variance.

    Raises:
        TypeError: for other than floating-point tensors.
        ValueError: for shapes that do not fit, fewer than two values per channel in training, or missing running
            statistics outside of it.
    """
    return batch_norm_counted(input, running_mean, running_var, None, weight, bias, training, float(momentum), eps)


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
    """As `batch_norm`, counting batches in a scalar tensor; without a momentum the average over them is kept."""
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
    """Normalise each channel over the batch; also its mean and its biased variance."""
    options = (float(eps), weight is not None, bias is not None)
    operands = (input, *_given(options, weight, bias))
    result, mean, variance = _interpreter.dispatch_several(_BATCH_NORM, operands, options)
    return result, mean, variance


def move_statistics(moved: list[tuple[Tensor, Tensor, float]], batches: Tensor | None, momentum: float | None) -> None:
    """Move running statistics towards those of a batch and count it, by one instruction: all of it or nothing.

    Args:
        moved: what moves, where to, and a factor for the latter.
    """
    factors = [factor for _, _, factor in moved]

    def kernel(inputs: list[Array], outputs: list[Array]) -> None:
        if batches is not None:
            outputs[-1] += 1
        share = 1.0 / float(outputs[-1]) if momentum is None else momentum
        for old, new, factor in zip(outputs, inputs, factors, strict=False):
            old[...] = old.astype(new.dtype, copy=False) * (1 - share) + new * (share * factor)

    inputs = [batch.detach() for _, batch, _ in moved]
    outputs = [running for running, _, _ in moved] + ([] if batches is None else [batches])
    issue_update(Update("batch_norm.running", kernel, inputs, outputs, 3000))


# Over the last dimensions, for each sample


def _checked_rows(source: TensorMeta, normalized: tuple[int, ...]) -> tuple[int, int]:
    """How many rows there are, and how long they are.

    Raises:
        ValueError: if the input does not end in the normalized shape.
    """
    before = len(source.shape) - len(normalized)
    if before < 0 or source.shape[before:] != normalized:
        raise ValueError(f"layer_norm: an input of shape {list(source.shape)} does not end in {list(normalized)}")
    return prod(source.shape[:before]), prod(normalized)


# Attributes: (normalized shape, options)
_Layer = tuple[tuple[int, ...], _Options]


def _infer_layer_norm(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    normalized, options = cast("_Layer", attributes)
    source = metas[0]
    device = common_device("layer_norm", metas)
    _check("layer_norm", metas, _present(options), [normalized] * (len(metas) - 1))
    xp = array_module(device)
    rows, features = _checked_rows(source, normalized)
    compute = computes_in(source).numpy
    eps = compute.type(options[0])
    in_c = LayerNorm(options[0])

    def kernel(array: Array, *rest: Any) -> tuple[Array, Array, Array]:
        *parameters, out = rest
        weight, bias = _split(options, [it.astype(compute, copy=False).reshape(-1) for it in parameters])
        array = xp.ascontiguousarray(array, compute).reshape(rows, features)
        to = None if out is None else out[0]
        result = room(to, array)
        found = in_c.call(array, weight, bias, result)
        if found is not None:
            return handed(found[0], to, source.shape, source.dtype.numpy), *found[1:]
        mean, scale = normalize(array, weight, bias, eps, result)
        return handed(result, to, source.shape, source.dtype.numpy), mean, scale

    statistics = meta((rows,), computes_in(source), device)
    return computed_by((source, statistics, statistics), kernel, source.numel * CHEAP * 8 + 10000)


def _infer_layer_norm_gradient(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    normalized, _ = cast("_Layer", attributes)
    gradient, source, statistics = metas[:3]
    device = common_device("layer_norm", metas)
    xp = array_module(device)
    rows, features = _checked_rows(source, normalized)
    _check_gradient("layer_norm", gradient, source, metas[2:4], (rows,))
    _check("layer_norm", (source, *metas[4:]), ["weight"][: len(metas) - 4], [normalized][: len(metas) - 4])
    compute = computes_in(source).numpy
    in_c = LayerNormGradient()

    def kernel(gradient: Array, array: Array, mean: Array, scale: Array, *rest: Any) -> tuple[Array, Array, Array]:
        *parameters, out = rest
        gradient = xp.ascontiguousarray(gradient, compute).reshape(rows, features)
        array = xp.ascontiguousarray(array, compute).reshape(rows, features)
        weight = parameters[0].astype(compute, copy=False).reshape(-1) if parameters else None
        to = None if out is None else out[0]
        result = room(to, array)
        found = in_c.call(gradient, array, mean, scale, weight, result)
        if found is None:
            found = result, *normalize_backward(gradient, array, mean, scale, weight, result)
        result, by_weight, by_bias = found
        result = handed(result, to, source.shape, source.dtype.numpy)
        return result, by_weight.reshape(normalized), by_bias.reshape(normalized)

    parameter = meta(normalized, statistics.dtype, device)
    return computed_by((source, parameter, parameter), kernel, source.numel * CHEAP * 14 + 10000)


_LAYER_NORM = OpExpr("layer_norm", _infer_layer_norm, Form((1, 3), _Layer))
_LAYER_NORM_GRADIENT = OpExpr("layer_norm_gradient", _infer_layer_norm_gradient, Form((4, 5), _Layer))


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
    return _in_order(options, by_input, product, gradient)  # summed over the samples by the caller


def _normalized_shape(name: str, input: Tensor, given: int | Sequence[int]) -> tuple[int, ...]:
    shape = (given,) if isinstance(given, int) else tuple([int(it) for it in given])
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
    """Normalise each sample over its last dimensions (J. L. Ba et al., Layer Normalization, 2016).

    Args:
        input: (..., *normalized_shape), floating-point.
        normalized_shape: the last dimensions.
        weight, bias: of that shape, applied after.
        eps: added to the variance.

    Raises:
        TypeError: for other than floating-point tensors.
        ValueError: for shapes that do not fit.
    """
    shape = _normalized_shape("layer_norm", input, normalized_shape)
    options = (float(eps), weight is not None, bias is not None)
    operands = (input, *_given(options, weight, bias))
    return _interpreter.dispatch_several(_LAYER_NORM, operands, (shape, options))[0]


def group_norm(
    input: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    """Normalise each of `num_groups` parts of each sample's channels (Y. Wu and K. He, Group Normalization, 2018).

    Args:
        input: (samples, channels, ...), floating-point.
        num_groups: divides the channels.
        weight, bias: (channels,), applied after.
        eps: added to the variance.

    Raises:
        TypeError: for other than floating-point tensors.
        ValueError: for shapes that do not fit.
    """
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
        normalized_shape: the last dimensions.
        weight: of that shape, applied after.
        eps: added to the mean square; by default the smallest difference from 1 in the dtype that this computes in,
            which is float32 for 16-bit inputs.

    Raises:
        TypeError: for other than floating-point tensors.
        ValueError: for shapes that do not fit.
    """
    shape = _normalized_shape("rms_norm", input, normalized_shape)
    parameters = () if weight is None else (weight,)
    _check(
        "rms_norm",
        tuple([it._blob.meta for it in (input, *parameters)]),
        ["weight"][: len(parameters)],
        [shape] * len(parameters),
    )
    compute = computes_in(input._blob.meta)
    wide = input.to(compute)
    over = tuple(range(input.ndim - len(shape), input.ndim))
    eps = dtypes.finfo(compute).eps if eps is None else eps
    result = wide * rsqrt((wide * wide).mean(over, keepdim=True) + eps)
    return (result if weight is None else result * weight).to(input.dtype)
