"""Binary cross-entropy of probabilities, or of scores (logits) whose sigmoids are probabilities."""

from __future__ import annotations

import numpy as np

from vmflow import dtypes
from vmflow.instructions.blob import Array
from vmflow.kernels.choosing import Function, Problem, builds

from .half import in_single


@builds("binary_cross_entropy")
def _binary_cross_entropy(problem: Problem) -> Function:
    (source,) = problem.outputs

    def kernel(array: Array, target: Array, out: Array | None) -> Array:
        if not ((array >= 0) & (array <= 1)).all():
            raise RuntimeError("binary_cross_entropy: probabilities must be within [0, 1]; scores need a sigmoid first")
        positive = np.maximum(np.log(array), -100)
        negative = np.maximum(np.log1p(-array), -100)
        return np.ascontiguousarray((target - 1) * negative - target * positive).reshape(source.shape)

    return in_single(kernel, dtypes.is_half(source.dtype))


@builds("binary_cross_entropy_with_logits")
def _binary_cross_entropy_with_logits(problem: Problem) -> Function:
    (source,) = problem.outputs

    def kernel(array: Array, target: Array, out: Array | None) -> Array:
        # In max(x, 0) - x * target + log(1 + exp(-|x|)), no exponential overflows.
        result = np.log1p(np.exp(-np.abs(array)))
        result += np.maximum(array, 0)
        result -= array * target
        return np.ascontiguousarray(result).reshape(source.shape)

    return in_single(kernel, dtypes.is_half(source.dtype))
