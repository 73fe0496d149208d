"""Normalisation: values shifted and scaled to mean 0 and variance 1, over a batch or over the features of a sample.

Half precision computes in float32.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, TypeAlias

from vmflow.kernels.choosing import Problem

from .arrays import by_arrays
from .half import computes_in

# (eps, whether there is a weight, whether there is a bias)
_Options: TypeAlias = tuple[float, bool, bool]


def _split(options: _Options, parameters: Sequence[Any], compute: Any) -> tuple[Any, Any]:
    """Weight and bias in the dtype to compute in, None where there is none."""
    given = [parameter.astype(compute, copy=False) for parameter in parameters]
    weight = given.pop(0) if options[1] else None
    return weight, given.pop(0) if options[2] else None


def _put(xp: Any, out: Any, result: Any) -> None:
    xp.copyto(out, result.reshape(out.shape), casting="unsafe")


# Over the batch, for each channel.  Arrays are seen as (samples, channels, values), and vectors as columns.


def _channels(array: Any, compute: Any) -> Any:
    samples, channels, *values = array.shape
    return array.astype(compute, copy=False).reshape(samples, channels, prod(values))


def _column(vector: Any) -> Any:
    return vector[:, None]


@by_arrays("batch_norm")
def _batch_norm(xp: Any, problem: Problem, array: Any, *arguments: Any) -> None:
    *parameters, out, mean, variance = arguments
    options: _Options = problem.attributes
    weight, bias = _split(options, parameters, mean.dtype)
    seen = _channels(array, mean.dtype)
    count = seen.shape[0] * seen.shape[2]
    average = xp.true_divide(xp.sum(seen, axis=(0, 2)), count)
    centred = seen - _column(average)
    spread = xp.true_divide(xp.sum(xp.square(centred), axis=(0, 2)), count)
    scale = 1 / xp.sqrt(spread + options[0])
    result = centred * _column(scale if weight is None else scale * weight)
    _put(xp, out, result if bias is None else result + _column(bias))
    xp.copyto(mean, average)
    xp.copyto(variance, spread)


@by_arrays("batch_norm_gradient")
def _batch_norm_gradient(
    xp: Any, problem: Problem, gradient: Any, array: Any, mean: Any, variance: Any, *arguments: Any
) -> None:
    *parameters, out, by_weight, by_bias = arguments
    options: _Options = problem.attributes
    compute = by_weight.dtype
    gradient, array = _channels(gradient, compute), _channels(array, compute)
    count = array.shape[0] * array.shape[2]
    scale = 1 / xp.sqrt(variance + options[0])
    factor = scale * parameters[0].astype(compute, copy=False) if parameters else scale
    normalized = (array - _column(mean)) * _column(scale)
    slope, offset = xp.sum(gradient * normalized, axis=(0, 2)), xp.sum(gradient, axis=(0, 2))
    rest = gradient - _column(xp.true_divide(offset, count)) - normalized * _column(xp.true_divide(slope, count))
    _put(xp, out, rest * _column(factor))
    xp.copyto(by_weight, slope)
    xp.copyto(by_bias, offset)


@by_arrays("batch_norm_inference")
def _batch_norm_inference(xp: Any, problem: Problem, array: Any, mean: Any, variance: Any, *arguments: Any) -> None:
    *parameters, out = arguments
    options: _Options = problem.attributes
    compute = computes_in(problem.inputs[0].dtype)
    weight, bias = _split(options, parameters, compute)
    scale = 1 / xp.sqrt(variance.astype(compute, copy=False) + options[0])
    scale = scale if weight is None else scale * weight
    shift = -mean.astype(compute, copy=False) * scale
    shift = shift if bias is None else shift + bias
    _put(xp, out, _channels(array, compute) * _column(scale) + _column(shift))


# Over the last dimensions, for each sample.  Arrays are seen as (samples, features).


@by_arrays("layer_norm")
def _layer_norm(xp: Any, problem: Problem, array: Any, *arguments: Any) -> None:
    *parameters, out, mean, scale = arguments
    normalized, options = problem.attributes
    rows, features = mean.size, prod(normalized)
    weight, bias = _split(options, [parameter.reshape(-1) for parameter in parameters], mean.dtype)
    seen = array.astype(mean.dtype, copy=False).reshape(rows, features)
    average = xp.true_divide(xp.sum(seen, axis=1), max(features, 1))
    centred = seen - _column(average)
    spread = xp.true_divide(xp.sum(xp.square(centred), axis=1), max(features, 1))
    factor = 1 / xp.sqrt(spread + options[0])
    result = centred * _column(factor)
    result = result if weight is None else result * weight
    _put(xp, out, result if bias is None else result + bias)
    xp.copyto(mean, average.reshape(mean.shape))
    xp.copyto(scale, factor.reshape(scale.shape))


@by_arrays("layer_norm_gradient")
def _layer_norm_gradient(
    xp: Any, problem: Problem, gradient: Any, array: Any, mean: Any, scale: Any, *arguments: Any
) -> None:
    *parameters, out, by_weight, by_bias = arguments
    normalized, _ = problem.attributes
    rows, features = mean.size, prod(normalized)
    gradient, array = (operand.astype(mean.dtype, copy=False).reshape(rows, features) for operand in (gradient, array))
    mean, scale = mean.reshape(-1), scale.reshape(-1)
    seen = (array - _column(mean)) * _column(scale)
    weighted = gradient * parameters[0].astype(mean.dtype, copy=False).reshape(-1) if parameters else gradient
    slope = xp.true_divide(xp.sum(weighted * seen, axis=1), max(features, 1))
    offset = xp.true_divide(xp.sum(weighted, axis=1), max(features, 1))
    _put(xp, out, (weighted - _column(offset) - seen * _column(slope)) * _column(scale))
    _put(xp, by_weight, xp.sum(gradient * seen, axis=0))
    _put(xp, by_bias, xp.sum(gradient, axis=0))
