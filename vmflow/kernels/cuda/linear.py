"""Dense layers: a product with the bias added to its rows, and the three gradients of that."""

from __future__ import annotations

from math import prod
from typing import Any

from vmflow.kernels.choosing import Problem
from vmflow.kernels.numpy.half import computes_in

from .arrays import by_arrays
from .products import multiply_arrays


@by_arrays("linear")
def _linear(xp: Any, problem: Problem, array: Any, weight: Any, *rest: Any) -> None:
    *biases, out = rest
    wide = computes_in(problem.outputs[0].dtype)
    # All rows in one product: a batch of products would read the weight for each.
    rows = array.reshape(prod(array.shape[:-1]), weight.shape[1])
    result = xp.matmul(rows.astype(wide, copy=False), weight.T.astype(wide, copy=False)).reshape(out.shape)
    if biases:
        result = xp.add(result, biases[0].astype(wide, copy=False), out=result)
    xp.copyto(out, result, casting="unsafe")


@by_arrays("linear_gradient")
def _linear_gradient(xp: Any, problem: Problem, gradient: Any, array: Any, weight: Any, *outs: Any) -> None:
    """Attributes: which of the gradients by input, weight and bias are wanted."""
    by_input, by_weight, by_bias = problem.attributes
    outputs, features = weight.shape
    rows = prod(array.shape[:-1])
    gradient, array = gradient.reshape(rows, outputs), array.reshape(rows, features)
    wanted = iter(outs)
    if by_input:
        target = next(wanted)
        result = xp.empty((rows, features), target.dtype)
        multiply_arrays(xp, gradient, weight, result)
        xp.copyto(target, result.reshape(target.shape))
    if by_weight:
        multiply_arrays(xp, gradient.T, array, next(wanted))
    if by_bias:
        total = xp.sum(gradient, axis=0, dtype=computes_in(problem.outputs[-1].dtype))
        xp.copyto(next(wanted), total, casting="unsafe")
