"""Batch and layer normalization, and their gradients.

Half precision is computed in float32.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, Final, TypeAlias

import numpy as np

from vmflow import dtypes
from vmflow.instructions.blob import Array, TensorMeta
from vmflow.kernels.choosing import Call, Function, Kernel, Placed, Problem, builds
from vmflow.kernels.native.images import BatchNorm
from vmflow.kernels.native.rows import ColumnSums, LayerNorm, LayerNormGradient

from . import sums
from .rows import destination, handed, normalize, normalize_backward

# Up to this many values per sample and channel, a vector over channels is repeated for each value, and loops run over
# whole samples; above, loops run over the values of one channel.
_SHORT: Final = 256

# An op's options: (eps, whether there is a weight, whether there is a bias)
_Options: TypeAlias = tuple[float, bool, bool]


def _split(options: _Options, operands: Sequence[Any]) -> tuple[Any, Any]:
    """Return the weight and the bias among the operands, each None if the layer has none."""
    given = list(operands)
    weight = given.pop(0) if options[1] else None
    return weight, given.pop(0) if options[2] else None


# Batch normalization: over all dimensions but that of the channels


class _Channels:
    """The shape in which arrays (samples, channels, ...) are computed, so that numpy's loops are long.

    Attributes:
        view: this shape.
        count: the number of values of a channel, over all samples.
    """

    def __init__(self, shape: tuple[int, ...]) -> None:
        samples, channels, values = shape[0], shape[1], prod(shape[2:])
        self.split = samples, channels, values
        self.short = values <= _SHORT
        self.view = (samples, channels * values) if self.short else self.split
        self.count = samples * values

    def wide(self, vector: Array) -> Array:
        """Return a vector over channels in a shape that broadcasts to `view`."""
        if not self.short:
            return vector[:, None]
        return vector if self.split[2] == 1 else np.repeat(vector, self.split[2])

    def sum(self, array: Array) -> Array:
        """Return the sum of each channel.  einsum is faster here than a sum over two dimensions."""
        return np.einsum("scv->c", array.reshape(self.split))

    def in_c(self, dtype: np.dtype[Any]) -> ColumnSums | None:
        """Return the C function that `sum_of_products` may use, or None."""
        return None if self.short else sums.columns_in_c(dtype, self.split[0] * self.split[1])

    def sum_of_products(self, first: Array, second: Array, in_c: ColumnSums | None) -> Array:
        """Return the sum over each channel of ``first * second``."""
        if not self.short:
            products = np.vecdot(first.reshape(self.split), second.reshape(self.split))
            return sums.of_columns(products, in_c=in_c)
        return np.einsum("scv,scv->c", first.reshape(self.split), second.reshape(self.split))


def _unless_half(placed: Placed, in_c: BatchNorm | None, source: TensorMeta) -> Placed | None:
    return None if in_c is None or dtypes.is_half(source.dtype) else placed


@builds("batch_norm")
def _batch_norm(problem: Problem) -> Kernel:
    options: _Options = problem.attributes
    source = problem.inputs[0]
    over = _Channels(tuple(source.shape))
    compute = problem.outputs[1].dtype.numpy
    eps = compute.type(options[0])
    in_c = BatchNorm.of(problem.op, compute, over.split, options[0])
    columns = over.in_c(compute)

    def kernel(array: Array, *rest: Any) -> tuple[Array, Array, Array]:
        *parameters, out = rest
        weight, bias = _split(options, parameters)
        to = None if out is None else out[0]
        array = np.ascontiguousarray(array, compute).reshape(over.view)
        if in_c is not None:
            factor, more = [None if array is None else array.astype(compute, copy=False) for array in (weight, bias)]
            found = in_c.call(to, array, factor, more)
            if found is not None:
                return handed(found[0], to, source.shape, source.dtype.numpy), *found[1:]
        mean = over.sum(array) / compute.type(over.count)
        target = None if to is None or to.dtype != compute else to.reshape(over.view)
        result = np.subtract(array, over.wide(mean), target)
        variance = over.sum_of_products(result, result, columns) / compute.type(over.count)
        scale = 1 / np.sqrt(variance + eps)
        np.multiply(result, over.wide(scale if weight is None else scale * weight.astype(compute, copy=False)), result)
        if bias is not None:
            np.add(result, over.wide(bias.astype(compute, copy=False)), result)
        return handed(result, to, source.shape, source.dtype.numpy), mean, variance

    def placed(inputs: Sequence[Array], outputs: Sequence[Array], scratch: Array | None) -> list[Call] | None:
        array, *parameters = inputs
        return None if in_c is None else in_c.placed((array, *_split(options, parameters), *outputs))

    return Kernel(kernel, placed=_unless_half(placed, in_c, source))


@builds("batch_norm_gradient")
def _batch_norm_gradient(problem: Problem) -> Kernel:
    options: _Options = problem.attributes
    source = problem.inputs[1]
    over = _Channels(tuple(source.shape))
    compute = problem.outputs[1].dtype.numpy
    eps, count = compute.type(options[0]), compute.type(over.count)
    in_c = BatchNorm.of(problem.op, compute, over.split, options[0])
    columns = over.in_c(compute)

    def kernel(gradient: Array, array: Array, mean: Array, variance: Array, *rest: Any) -> tuple[Array, Array, Array]:
        *parameters, out = rest
        to = None if out is None else out[0]
        gradient = np.ascontiguousarray(gradient, compute).reshape(over.view)
        array = np.ascontiguousarray(array, compute).reshape(over.view)
        if in_c is not None:
            weight = parameters[0].astype(compute, copy=False) if parameters else None
            found = in_c.call(to, gradient, array, mean, variance, weight)
            if found is not None:
                return handed(found[0], to, source.shape, source.dtype.numpy), *found[1:]
        target = None if to is None or to.dtype != compute else to.reshape(over.view)
        result = np.subtract(array, over.wide(mean), target)
        scale = 1 / np.sqrt(variance + eps)
        by_bias = over.sum(gradient)
        by_weight = over.sum_of_products(gradient, result, columns) * scale
        factor = scale * parameters[0].astype(compute, copy=False) if parameters else scale
        # By input: factor * (gradient - mean(gradient) - normalized * mean(gradient * normalized))
        np.multiply(result, over.wide(-factor * scale * by_weight / count), result)
        np.add(result, gradient * over.wide(factor), result)
        np.subtract(result, over.wide(factor * by_bias / count), result)
        return handed(result, to, source.shape, source.dtype.numpy), by_weight, by_bias

    def placed(inputs: Sequence[Array], outputs: Sequence[Array], scratch: Array | None) -> list[Call] | None:
        return None if in_c is None else in_c.placed((*inputs, *[None] * (5 - len(inputs)), *outputs))

    return Kernel(kernel, placed=_unless_half(placed, in_c, source))


@builds("batch_norm_inference")
def _batch_norm_inference(problem: Problem) -> Function:
    options: _Options = problem.attributes
    source = problem.inputs[0]
    over = _Channels(tuple(source.shape))
    compute = (dtypes.float32 if dtypes.is_half(source.dtype) else source.dtype).numpy
    eps = compute.type(options[0])

    def kernel(array: Array, mean: Array, variance: Array, *rest: Any) -> Array:
        *parameters, out = rest
        weight, bias = _split(options, [array.astype(compute, copy=False) for array in parameters])
        scale = 1 / np.sqrt(variance.astype(compute, copy=False) + eps)
        scale = scale if weight is None else scale * weight
        shift = -mean.astype(compute, copy=False) * scale
        shift = shift if bias is None else shift + bias
        array = np.ascontiguousarray(array, compute).reshape(over.view)
        target = None if out is None or out.dtype != compute else out.reshape(over.view)
        result = np.multiply(array, over.wide(scale), target)
        np.add(result, over.wide(shift), result)
        # Returning `out` itself tells the caller that there is nothing left to copy.
        return out if target is not None else result.reshape(source.shape).astype(source.dtype.numpy, copy=False)

    return kernel


# Layer normalization: over the last dimensions


@builds("layer_norm")
def _layer_norm(problem: Problem) -> Function:
    normalized, options = problem.attributes
    source, statistics = problem.outputs[:2]
    rows, features = statistics.numel, prod(normalized)
    compute = statistics.dtype.numpy
    eps = compute.type(options[0])
    in_c = LayerNorm.of(problem.op, compute, rows * features, options[0])

    def kernel(array: Array, *rest: Any) -> tuple[Array, Array, Array]:
        *parameters, out = rest
        weight, bias = _split(options, [array.astype(compute, copy=False).reshape(-1) for array in parameters])
        array = np.ascontiguousarray(array, compute).reshape(rows, features)
        to = None if out is None else out[0]
        result = destination(to, array)
        found = None if in_c is None else in_c.call(array, weight, bias, result)
        if found is None:
            found = result, *normalize(array, weight, bias, eps, result)
        result, mean, scale = found
        result = handed(result, to, source.shape, source.dtype.numpy)
        return result, mean.reshape(statistics.shape), scale.reshape(statistics.shape)

    return kernel


@builds("layer_norm_gradient")
def _layer_norm_gradient(problem: Problem) -> Function:
    normalized, _ = problem.attributes
    source, statistics = problem.inputs[1:3]
    rows, features = statistics.numel, prod(normalized)
    compute = statistics.dtype.numpy
    in_c = LayerNormGradient.of(problem.op, compute, rows * features)
    columns = sums.columns_in_c(compute, rows * features)

    def kernel(gradient: Array, array: Array, mean: Array, scale: Array, *rest: Any) -> tuple[Array, Array, Array]:
        *parameters, out = rest
        gradient = np.ascontiguousarray(gradient, compute).reshape(rows, features)
        array = np.ascontiguousarray(array, compute).reshape(rows, features)
        weight = parameters[0].astype(compute, copy=False).reshape(-1) if parameters else None
        mean, scale = mean.reshape(-1), scale.reshape(-1)
        to = None if out is None else out[0]
        result = destination(to, array)
        found = None if in_c is None else in_c.call(gradient, array, mean, scale, weight, result)
        if found is None:
            found = result, *normalize_backward(gradient, array, mean, scale, weight, result, columns)
        result, by_weight, by_bias = found
        result = handed(result, to, source.shape, source.dtype.numpy)
        return result, by_weight.reshape(normalized), by_bias.reshape(normalized)

    return kernel
