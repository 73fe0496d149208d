"""Normalisation over a batch, a layer or groups of channels."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any, cast

from vmflow import dtypes
from vmflow import interpreter as _interpreter
from vmflow.autograd.grad_mode import is_grad_enabled, no_grad
from vmflow.dtypes import FLOATING
from vmflow.instructions.blob import Array, TensorMeta, meta

from .elementwise import CHEAP, rsqrt
from .table import Attributes, Inferred, Kinds, Metas, OpExpr, array_module, common_device

if TYPE_CHECKING:
    from vmflow.autograd.node import OpNode
    from vmflow.tensor import Tensor


def _wide(source: TensorMeta) -> Any:
    """The dtype to compute in: half precision would lose the variance."""
    return dtypes.float32 if source.dtype in (dtypes.float16, dtypes.bfloat16) else source.dtype


def _other_dims(rank: int) -> tuple[int, ...]:
    """All dimensions but the channels."""
    return (0, *range(2, rank))


def _by_channel(rank: int) -> tuple[int, ...]:
    return (1, -1) + (1,) * (rank - 2)


def _channels(name: str, source: TensorMeta, *others: TensorMeta) -> int:
    if len(source.shape) < 2:
        raise ValueError(f"{name}: expected at least 2 dimensions (N, C, ...), got {list(source.shape)}")
    if source.dtype.category != FLOATING:
        raise TypeError(f"{name} is not defined for {source.dtype.name} tensors; convert with .float() first")
    channels: int = source.shape[1]
    for other in others:
        if tuple(other.shape) != (channels,):
            raise ValueError(
                f"{name}: {channels} channels need parameters of shape [{channels}], got {list(other.shape)}"
            )
    return channels


def _infer_batch_norm(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    (eps,) = cast("tuple[float]", attributes)
    source, *affine = metas
    device = common_device("batch_norm", metas)
    channels = _channels("batch_norm", source, *affine)
    rank = len(source.shape)
    wide = _wide(source)
    statistic = meta((channels,), wide, device)
    xp = array_module(device)
    dims, column = _other_dims(rank), _by_channel(rank)
    count = prod(source.shape) // max(channels, 1)

    def kernel(array: Array, *rest: Any) -> tuple[Array, Array, Array]:
        *parameters, _ = rest
        values = array.astype(wide.numpy, copy=False)
        mean = xp.add.reduce(values, dims) / wide.numpy.type(count)
        result = xp.subtract(values, mean.reshape(column), order="C")
        flat = result.reshape(len(result), channels, -1)
        variance = xp.einsum("nci,nci->c", flat, flat) / wide.numpy.type(count)
        scale = 1 / xp.sqrt(variance + wide.numpy.type(eps))
        if parameters:
            scale = scale * parameters[0]
        result *= scale.reshape(column)
        if parameters:
            result += parameters[1].reshape(column)
        return result.astype(source.dtype.numpy, copy=False), mean, variance

    return Inferred((source, statistic, statistic), kernel, source.numel * CHEAP * 5)


_BATCH_NORM = OpExpr("batch_norm", _infer_batch_norm)


@_BATCH_NORM.gradient(inputs=(0, 1), outputs=(1, 2))
def _batch_norm_gradient(
    node: OpNode, gradient: Tensor | None, of_mean: Tensor | None, of_variance: Tensor | None
) -> tuple[Tensor | None, ...]:
    (eps,) = cast("tuple[float]", node.attributes)
    assert gradient is not None  # the statistics are handed to nobody
    source = node.input(0)
    affine = len(node.metas) > 1
    if is_grad_enabled():
        found = _differentiable_gradient(gradient, source, node.input(1) if affine else None, eps)
    else:
        operands = (gradient, source, node.output(1), node.output(2))
        if affine:
            operands = (*operands, node.input(1))
        found = _interpreter.dispatch_several(_BATCH_NORM_GRADIENT, operands, (eps,))
    return found if affine else found[:1]


def _differentiable_gradient(
    gradient: Tensor, source: Tensor, weight: Tensor | None, eps: float
) -> tuple[Tensor, ...]:
    """The same as the fused kernel below, in ops that can be differentiated again."""
    dims, column = _other_dims(source.ndim), _by_channel(source.ndim)
    centred = source - source.mean(dims, keepdim=True)
    inverse = rsqrt((centred * centred).mean(dims, keepdim=True) + eps)
    normal = centred * inverse
    scaled = gradient if weight is None else gradient * weight.reshape(column)
    of_source = inverse * (
        scaled - scaled.mean(dims, keepdim=True) - normal * (scaled * normal).mean(dims, keepdim=True)
    )
    return of_source, (gradient * normal).sum(dims), gradient.sum(dims)


def _infer_batch_norm_gradient(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    (eps,) = cast("tuple[float]", attributes)
    _, source, *_ = metas
    wide = _wide(source)
    channels = source.shape[1]
    rank = len(source.shape)
    dims, column = _other_dims(rank), _by_channel(rank)
    count = prod(source.shape) // max(channels, 1)
    xp = array_module(source.device)

    def kernel(gradient: Array, array: Array, mean: Array, variance: Array, *rest: Any) -> tuple[Array, Array, Array]:
        *weight, _ = rest
        gradient = gradient.astype(wide.numpy, copy=False)
        inverse = 1 / xp.sqrt(variance + wide.numpy.type(eps))
        normal = xp.subtract(array.astype(wide.numpy, copy=False), mean.reshape(column), order="C")
        normal *= inverse.reshape(column)
        shape = (len(normal), channels, -1)
        of_weight = xp.einsum("nci,nci->c", xp.ascontiguousarray(gradient).reshape(shape), normal.reshape(shape))
        of_bias = xp.add.reduce(gradient, dims)
        scale = inverse * weight[0] if weight else inverse
        # scale * (g - mean(g) - normal * mean(g * normal))
        normal *= (of_weight / -wide.numpy.type(count)).reshape(column)
        normal += gradient
        normal -= (of_bias / wide.numpy.type(count)).reshape(column)
        normal *= scale.reshape(column)
        return normal.astype(source.dtype.numpy, copy=False), of_weight, of_bias

    statistic = meta((channels,), wide, source.device)
    return Inferred((source, statistic, statistic), kernel, source.numel * CHEAP * 8)


_BATCH_NORM_GRADIENT = OpExpr("batch_norm_gradient", _infer_batch_norm_gradient)


def _infer_running(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    (factor,) = cast("tuple[float]", attributes)
    old, new = metas
    common_device("batch_norm", metas)
    to = old.dtype.numpy

    def kernel(array: Array, now: Array, momentum: float, out: Array | None) -> Array:
        return (array * (1 - momentum) + now.astype(to) * (momentum * factor)).astype(to, copy=False)

    return Inferred(old, kernel, old.numel * CHEAP * 3)


# old * (1 - momentum) + new * factor * momentum
_RUNNING = OpExpr("running_average", _infer_running)


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
    """Each channel less its mean, divided by its standard deviation (Ioffe and Szegedy, 2015).

    Args:
        input: (N, C, ...).
        running_mean, running_var: (C,); used unless `training`, then moved towards the batch's mean and unbiased variance.
        weight, bias: (C,); multiplied with and added to the result.
        training: whether to use the batch's own statistics.
        momentum: how far the running ones move, from 0 to 1.
        eps: added to the variance.

    Raises:
        ValueError: for shapes that do not fit, for a single value per channel in training, for missing running
            statistics otherwise.
    """
    channels = _channels("batch_norm", input._blob.meta)
    given = [it for it in (running_mean, running_var, weight, bias) if it is not None]
    _channels("batch_norm", input._blob.meta, *[it._blob.meta for it in given])
    column = _by_channel(input.ndim)
    if not training:
        if running_mean is None or running_var is None:
            raise ValueError("batch_norm: outside training, running_mean and running_var are needed")
        scale = rsqrt(running_var + eps)
        scale = scale if weight is None else scale * weight
        shift = -running_mean * scale
        shift = shift if bias is None else shift + bias
        return (input * scale.reshape(column) + shift.reshape(column)).to(input.dtype)
    count = input.numel() // max(channels, 1)
    if count < 2:
        raise ValueError(
            f"batch_norm: training needs more than one value per channel, got an input of shape {list(input.shape)}"
        )
    if weight is not None and bias is not None:
        result, mean, variance = _interpreter.dispatch_several(_BATCH_NORM, (input, weight, bias), (float(eps),))
    else:
        result, mean, variance = _interpreter.dispatch_several(_BATCH_NORM, (input,), (float(eps),))
    with no_grad():
        if running_mean is not None:
            _interpreter.dispatch_into(_RUNNING, running_mean, (running_mean, mean.detach()), (1.0,), (momentum,))
        if running_var is not None:
            unbiased = (count / (count - 1),)
            _interpreter.dispatch_into(_RUNNING, running_var, (running_var, variance.detach()), unbiased, (momentum,))
    if weight is not None and bias is None:
        return result * weight.reshape(column)
    if bias is not None and weight is None:
        return result + bias.reshape(column)
    return result


def layer_norm(
    input: Tensor,
    normalized_shape: int | tuple[int, ...] | list[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Each sample less its mean, divided by its standard deviation, over the last dimensions (Ba et al., 2016).

    Args:
        input: (..., *normalized_shape).
        normalized_shape: the sizes of the dimensions to normalise over.
        weight, bias: of that shape.
        eps: added to the variance.
    """
    shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
    if not shape or tuple(input.shape[-len(shape) :]) != shape:
        raise ValueError(f"layer_norm: an input of shape {list(input.shape)} does not end in {list(shape)}")
    for given in (weight, bias):
        if given is not None and tuple(given.shape) != shape:
            raise ValueError(f"layer_norm: expected parameters of shape {list(shape)}, got {list(given.shape)}")
    normal = _normalized(input, tuple(range(-len(shape), 0)), eps)
    normal = normal if weight is None else normal * weight
    return normal if bias is None else normal + bias


def group_norm(
    input: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    """As `layer_norm`, over groups of channels (Wu and He, 2018).

    Args:
        input: (N, C, ...).
        num_groups: divides C.
        weight, bias: (C,).
        eps: added to the variance.
    """
    given = [it._blob.meta for it in (weight, bias) if it is not None]
    channels = _channels("group_norm", input._blob.meta, *given)
    if num_groups <= 0 or channels % num_groups:
        raise ValueError(f"group_norm: {channels} channels do not divide into {num_groups} groups")
    grouped = input.reshape(input.shape[0], num_groups, -1)
    normal = _normalized(grouped, (-1,), eps).reshape(input.shape)
    column = _by_channel(input.ndim)
    normal = normal if weight is None else normal * weight.reshape(column)
    return normal if bias is None else normal + bias.reshape(column)


def _normalized(input: Tensor, dims: tuple[int, ...], eps: float) -> Tensor:
    wide = input.float() if input.dtype in (dtypes.float16, dtypes.bfloat16) else input
    centred = wide - wide.mean(dims, keepdim=True)
    result: Tensor = centred * rsqrt((centred * centred).mean(dims, keepdim=True) + eps)
    return result.to(input.dtype)
