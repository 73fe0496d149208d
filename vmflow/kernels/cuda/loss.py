"""The cross-entropy of probabilities, or of scores of which they are the sigmoid."""

from __future__ import annotations

from typing import Any

from vmflow.kernels.choosing import Problem

from .arrays import by_arrays
from .checks import note
from .half import widened


def _no_probability(problem: Problem, number: int) -> Exception:
    return RuntimeError("binary_cross_entropy: probabilities must be within [0, 1]; scores need a sigmoid first")


@by_arrays("binary_cross_entropy", verify=_no_probability)
def _binary_cross_entropy(xp: Any, problem: Problem, array: Any, target: Any, out: Any, number: Any) -> None:
    note(xp, number, xp.logical_not(xp.logical_and(array >= 0, array <= 1)))
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
