"""The softmax along a dimension, and its logarithm."""

from __future__ import annotations

from typing import Any

from vmflow.kernels.choosing import Problem

from .arrays import by_arrays
from .half import widened


@by_arrays("softmax", "log_softmax")
def _softmax(xp: Any, problem: Problem, array: Any, out: Any) -> None:
    (dim,) = problem.attributes
    if not array.size:
        return
    wide = widened(array, problem.inputs[0].dtype).reshape(array.shape or 1)
    compute = log_softmax if problem.op == "log_softmax" else softmax
    xp.copyto(out, compute(xp, wide, dim).reshape(out.shape), casting="unsafe")


def softmax(xp: Any, array: Any, dim: int) -> Any:
    """The softmax along a dimension of an array that is not empty."""
    powers = xp.exp(array - xp.amax(array, axis=dim, keepdims=True))
    return xp.true_divide(powers, xp.sum(powers, axis=dim, keepdims=True))


def log_softmax(xp: Any, array: Any, dim: int) -> Any:
    """The logarithm of the softmax along a dimension of an array that is not empty."""
    shifted = array - xp.amax(array, axis=dim, keepdims=True)
    return shifted - xp.log(xp.sum(xp.exp(shifted), axis=dim, keepdims=True))
