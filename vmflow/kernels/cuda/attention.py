"""Attention, by the scores of all queries and keys at once.

Half precision is computed in float32.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from vmflow.kernels.choosing import Problem
from vmflow.kernels.numpy.half import computes_in
from vmflow.kernels.problems.attention import Extent

from .arrays import by_arrays
from .philox import kept_elements


class _Scores(NamedTuple):
    """How scores are computed.

    Attributes:
        extent: see there.
        factor: they are multiplied by it; of the dtype to compute in.
        causal: whether query l attends to keys up to l only.
        masked: whether a mask may leave a query no key.
    """

    extent: Extent
    factor: Any
    causal: bool
    masked: bool

    @property
    def shape(self) -> tuple[int, ...]:
        """One score for each query and key."""
        return (*self.extent.leading, self.extent.length, self.extent.others)

    def of(self, xp: Any, query: Any, key: Any, masks: Any) -> Any:
        """The scores, -inf where nothing may be attended to, of the dtype of the query."""
        found = xp.matmul(query * self.factor, xp.swapaxes(key, -1, -2))
        if self.causal:
            length, others = self.shape[-2:]
            behind = xp.arange(others) > xp.arange(length)[:, None]
            found = xp.where(behind, -found.dtype.type("inf"), found)
        for mask in masks:
            if mask.dtype == bool:
                found = xp.where(mask, found, -found.dtype.type("inf"))
            else:
                found = found + mask.astype(found.dtype, copy=False)
        return xp.broadcast_to(found, self.shape)

    def weights(self, xp: Any, scores: Any) -> tuple[Any, Any]:
        """The softmaxes of rows, zeros for a row of -inf alone; the logarithms of what each was divided by, or 0."""
        if not scores.shape[-1]:
            return scores, xp.zeros(scores.shape[:-1], scores.dtype)
        highest = xp.amax(scores, axis=-1, keepdims=True)
        if self.masked:
            highest = xp.where(xp.isneginf(highest), xp.zeros_like(highest), highest)
        powers = xp.exp(scores - highest)
        total = xp.sum(powers, axis=-1, keepdims=True)
        if self.masked:
            total = xp.where(total == 0, xp.ones_like(total), total)
        return powers / total, (highest + xp.log(total))[..., 0]


def _dropped(xp: Any, scores: _Scores, p: float, drawn: Any) -> Any:
    """The factors of the weights, 0 where they are dropped."""
    wide = scores.factor.dtype
    if p == 1:
        return xp.zeros(scores.shape, wide)
    return kept_elements(xp, scores.shape, p, *drawn) * wide.type(1 / (1 - p))


@by_arrays("scaled_dot_product_attention")
def _attention(xp: Any, problem: Problem, *arguments: Any) -> None:
    """Operands: query, key, value, and perhaps a mask; seed and offset where weights are dropped."""
    factor, causal, p, keeps = problem.attributes
    *operands, out, kept = arguments
    wide = computes_in(problem.inputs[0].dtype)
    query, key, value = [each.astype(wide, copy=False) for each in operands[:3]]
    masks = operands[3 : len(problem.inputs)]
    scores = _Scores(problem.details, wide.type(factor), causal, bool(masks))
    weights, logarithms = scores.weights(xp, scores.of(xp, query, key, masks))
    xp.copyto(kept, weights if keeps else logarithms, casting="unsafe")
    if p:
        weights = weights * _dropped(xp, scores, p, operands[len(problem.inputs) :])
    xp.copyto(out, xp.matmul(weights, value), casting="unsafe")


@by_arrays("scaled_dot_product_attention_gradient")
def _attention_gradient(xp: Any, problem: Problem, *arguments: Any) -> None:
    """Attributes: those of the forward op; which of its results have a gradient; whether each operand wants one.

    Operands: the gradients there are, what was kept, query, key, value; a mask if probabilities were not kept.
    """
    (factor, causal, p, keeps), present, wanted = problem.attributes
    gradients, inputs = sum(present), len(problem.inputs)
    outs = arguments[len(arguments) - len(problem.outputs) :]
    drawn = arguments[inputs : len(arguments) - len(outs)]
    wide = computes_in(problem.inputs[gradients + 1].dtype)
    given = [each.astype(wide, copy=False) for each in arguments[: gradients + 4]]
    coming = iter(given[:gradients])
    by_result, by_weights = [next(coming) if there else None for there in present]
    kept, query, key, value = given[gradients:]
    masks = arguments[gradients + 4 : inputs]
    scores = _Scores(problem.details, wide.type(factor), causal, bool(masks))
    # The logarithms alone do not tell the mask.
    weights = kept if keeps else xp.exp(scores.of(xp, query, key, masks) - kept[..., None])
    factors = _dropped(xp, scores, p, drawn) if p else None
    slopes = _slopes(xp, weights, factors, value, by_result, by_weights)
    makers: list[Callable[[], Any]] = [
        lambda: xp.matmul(slopes, key) * scores.factor,
        lambda: xp.matmul(xp.swapaxes(slopes, -1, -2), query) * scores.factor,
        lambda: _by_value(xp, weights, factors, value, by_result),
        lambda: slopes,
    ]
    wanting = [make for make, want in zip(makers, wanted, strict=False) if want]
    for out, make in zip(outs, wanting, strict=True):
        xp.copyto(out, make(), casting="unsafe")


def _slopes(xp: Any, weights: Any, factors: Any, value: Any, by_result: Any, by_weights: Any) -> Any:
    """The gradient by the scores."""
    slopes = by_weights
    if by_result is not None:
        slopes = xp.matmul(by_result, xp.swapaxes(value, -1, -2))
        if factors is not None:
            slopes = slopes * factors
        if by_weights is not None:
            slopes = slopes + by_weights
    return (slopes - xp.sum(slopes * weights, axis=-1, keepdims=True)) * weights


def _by_value(xp: Any, weights: Any, factors: Any, value: Any, by_result: Any) -> Any:
    """The gradient by the values, which what has no gradient gives none."""
    if by_result is None:
        return xp.zeros(value.shape, value.dtype)
    used = weights if factors is None else weights * factors
    return xp.matmul(xp.swapaxes(used, -1, -2), by_result)
