"""The cross-entropy of probabilities, or of scores of which they are the sigmoid."""

from __future__ import annotations

from typing import Any

from vmflow.kernels.choosing import Problem

from .arrays import by_arrays
from .half import widened


@by_arrays("binary_cross_entropy")
def _binary_cross_entropy(xp: Any, problem: Problem, array: Any, target: Any, out: Any) -> None:
    array, target = (
        widened(operand, meta.dtype) for operand, meta in zip((array, target), problem.inputs, strict=True)
    )
    positive = xp.maximum(xp.log(array), -100)
    negative = xp.maximum(xp.log1p(-array), -100)
    xp.copyto(out, (target - 1) * negative - target * positive, casting="unsafe")


@by_arrays("binary_cross_entropy_with_logits")
def _binary_cross_entropy_with_logits(xp: Any, problem: Problem, array: Any, target: Any, out: Any) -> None:
    array, target = (
        widened(operand, meta.dtype) for operand, meta in zip((array, target), problem.inputs, strict=True)
    )
    # max(x, 0) - x * target + log(1 + exp(-|x|)): no exponential overflows.
    result = xp.log1p(xp.exp(-xp.absolute(array))) + xp.maximum(array, 0) - array * target
    xp.copyto(out, result, casting="unsafe")
