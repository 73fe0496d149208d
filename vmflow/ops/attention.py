"""Attention: one op forward and one backward, which keep the probabilities and nothing else of that size.

A backward pass that is recorded itself (``create_graph=True``) is written in differentiable ops.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any, Final, cast

from vmflow import autograd, dtypes, random
from vmflow import interpreter as _interpreter
from vmflow.autograd.grad_mode import is_grad_enabled
from vmflow.dtypes import BOOL, FLOATING
from vmflow.instructions.blob import Array, meta

from .activation import softmax
from .creation import ones
from .dropout import dropped_alike, kept_elements
from .elementwise import CHEAP, DEAR
from .joining import repeat_interleave
from .layer_operands import computes_in
from .selection import where
from .table import Attributes, Inferred, Kinds, Metas, OpExpr, array_module, broadcast_shapes, common_device

if TYPE_CHECKING:
    from vmflow.autograd.node import OpNode
    from vmflow.tensors import Tensor

_NAME: Final = "scaled_dot_product_attention"

# Nanoseconds per multiplication and addition: a guess, for inline or worker only.
_PER_PRODUCT: Final = 0.1

# (factor of the scores, whether position l attends to positions up to l only, probability of dropping a weight)
_Options = tuple[float, bool, float]


def _leading(metas: Metas) -> tuple[int, ...]:
    return broadcast_shapes(_NAME, *[tuple(it.shape[:-2]) for it in metas[:3]])


def _check(metas: Metas) -> None:
    query, key, value, *masks = metas
    if any([it.dtype is not query.dtype for it in (key, value)]) or query.dtype.category != FLOATING:
        given = ", ".join([it.dtype.name for it in metas[:3]])
        raise TypeError(f"{_NAME}: expected floating-point tensors of one dtype, got {given}; cast with .to()")
    if (
        min([len(it.shape) for it in metas[:3]]) < 2
        or query.shape[-1] != key.shape[-1]
        or key.shape[-2] != value.shape[-2]
    ):
        raise ValueError(
            f"{_NAME}: expected a query (..., L, E), a key (..., S, E) and a value (..., S, V), got "
            f"{list(query.shape)}, {list(key.shape)} and {list(value.shape)}"
        )
    scores = (*_leading(metas), query.shape[-2], key.shape[-2])
    for mask in masks:
        if mask.dtype.category not in (BOOL, FLOATING):
            raise TypeError(f"{_NAME}: a mask is of bools or floating-point numbers, not of {mask.dtype.name}")
        if broadcast_shapes(_NAME, scores, tuple(mask.shape)) != scores:
            raise ValueError(f"{_NAME}: a mask of shape {list(mask.shape)} does not broadcast to {list(scores)}")


def _infer_attention(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    factor, causal, p = cast("_Options", attributes)
    _check(metas)
    device = common_device(_NAME, metas)
    xp = array_module(device)
    query, key, value = metas[:3]
    length, others, features = query.shape[-2], key.shape[-2], query.shape[-1]
    leading = _leading(metas)
    compute = computes_in(query).numpy
    to = query.dtype.numpy
    output = meta((*leading, length, value.shape[-1]), query.dtype, device)
    probabilities = meta((*leading, length, others), query.dtype, device)

    def kernel(*arguments: Any) -> tuple[Array, Array]:
        out = arguments[-1]
        arrays = [it.astype(compute, copy=False) for it in arguments[:3]]
        scores = xp.empty(probabilities.shape, compute) if out is None or to != compute else out[1]
        xp.matmul(arrays[0] * compute.type(factor), arrays[1].swapaxes(-1, -2), scores)
        if causal:
            xp.copyto(scores, -xp.inf, where=~xp.tri(length, others, dtype=bool))
        if len(metas) > 3:
            mask = arguments[3]
            if mask.dtype == bool:
                xp.copyto(scores, -xp.inf, where=~mask)
            else:
                xp.add(scores, mask.astype(compute, copy=False), scores)
        _softmax(xp, scores)
        weights = scores
        if p:
            kept = xp.asarray(kept_elements(random.generator_at(*arguments[-3:-1]), probabilities, p))
            weights = scores * (kept * compute.type(_growth(p)))
        target = None if out is None or to != compute else out[0]
        result = xp.matmul(weights, arrays[2], target)
        return result.astype(to, copy=False), scores.astype(to, copy=False)

    products = prod(leading) * length * others * (features + value.shape[-1])
    cost = products * _PER_PRODUCT + probabilities.numel * (DEAR + 5 * CHEAP + (6 if p else 0)) + 10000
    return Inferred((output, probabilities), kernel, cost)


def _growth(p: float) -> float:
    """What is not dropped is multiplied by this."""
    return 1 / (1 - p) if p < 1 else 0.0


def _softmax(xp: Any, scores: Array) -> None:
    """In place along the last dimension; a row of -inf alone becomes zeros."""
    if not scores.size:
        return
    highest = xp.max(scores, -1, keepdims=True)
    xp.copyto(highest, 0, where=highest == -xp.inf)
    xp.subtract(scores, highest, scores)
    xp.exp(scores, scores)
    total = xp.sum(scores, -1, keepdims=True)
    xp.copyto(total, 1, where=total == 0)
    xp.divide(scores, total, scores)


# Attributes: those of the forward op; which of its results have a gradient; whether each operand wants one.
_Backward = tuple[_Options, tuple[bool, bool], tuple[bool, ...]]


def _infer_backward(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    """Operands: the gradients there are, the probabilities, query, key, value."""
    (factor, _, p), present, wanted = cast("_Backward", attributes)
    gradients = sum(present)
    probabilities, query, key, value = metas[gradients:]
    xp = array_module(query.device)
    compute = computes_in(query).numpy
    to = query.dtype.numpy
    leading = tuple(probabilities.shape[:-2])
    whole = [meta((*leading, *it.shape[-2:]), it.dtype, it.device) for it in (query, key, value)]
    if len(wanted) > 3:
        whole.append(probabilities)
    results = tuple([it for it, want in zip(whole, wanted, strict=True) if want])

    def kernel(*arguments: Any) -> tuple[Array, ...]:
        arrays = [it.astype(compute, copy=False) for it in arguments[: len(metas)]]
        given = iter(arrays[:gradients])
        by_result: Any = next(given) if present[0] else None
        by_weights: Any = next(given) if present[1] else None
        weights, of_query, of_key, of_value = arrays[gradients:]
        scale = None
        if p:
            kept = xp.asarray(kept_elements(random.generator_at(*arguments[-3:-1]), probabilities, p))
            scale = kept * compute.type(_growth(p))
        found: list[Array | None] = [None] * len(wanted)
        if by_result is None:
            sums = by_weights.copy()
            found[2] = xp.zeros(whole[2].shape, compute)
        else:
            if wanted[2]:
                used = weights if scale is None else weights * scale
                found[2] = xp.matmul(used.swapaxes(-1, -2), by_result)
            sums = xp.matmul(by_result, of_value.swapaxes(-1, -2))
            if scale is not None:
                xp.multiply(sums, scale, sums)
            if by_weights is not None:
                xp.add(sums, by_weights, sums)
        xp.subtract(sums, xp.einsum("...s,...s->...", sums, weights)[..., None], sums)
        xp.multiply(sums, weights, sums)
        if wanted[0]:
            found[0] = xp.matmul(sums, of_key)
            found[0] *= compute.type(factor)
        if wanted[1]:
            found[1] = xp.matmul(sums.swapaxes(-1, -2), of_query)
            found[1] *= compute.type(factor)
        if len(wanted) > 3:
            found[3] = sums
        return tuple([cast("Array", it).astype(to, copy=False) for it, want in zip(found, wanted, strict=True) if want])

    products = probabilities.numel * (query.shape[-1] + value.shape[-1])
    return Inferred(results, kernel, products * 2 * _PER_PRODUCT + probabilities.numel * CHEAP * 6 + 10000)


_ATTENTION = OpExpr(_NAME, _infer_attention)
_BACKWARD = OpExpr("scaled_dot_product_attention_gradient", _infer_backward)


@_ATTENTION.gradient(inputs=(0, 1, 2, 3), outputs=(1,))
def _gradient(node: OpNode, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
    options = cast("_Options", node.attributes)
    operands = tuple([node.input(place) for place in range(len(node.metas))])
    present = tuple([it is not None for it in gradients])
    if not is_grad_enabled():
        given = [it for it in gradients if it is not None]
        arguments = (*given, node.output(1), *operands[:3])
        attributes = (options, present, node.needs)
        found = iter(_interpreter.dispatch_several(_BACKWARD, arguments, attributes, node.scalars))
    else:
        results = _composed(options, operands, node.scalars)
        pairs = [(result, it) for result, it in zip(results, gradients, strict=True) if it is not None]
        wanted = [it for it, need in zip(operands, node.needs, strict=True) if need]
        made = autograd.grad([it for it, _ in pairs], wanted, [it for _, it in pairs], create_graph=True)
        found = iter(cast("tuple[Tensor, ...]", made))
    return tuple([next(found) if need else None for need in node.needs])


def _composed(options: _Options, operands: tuple[Tensor, ...], stretch: tuple[Any, ...]) -> tuple[Tensor, Tensor]:
    """The same in ops of which each is differentiable."""
    factor, causal, p = options
    query, key, value, *masks = operands
    scores = (query * factor) @ key.mT
    lowest = dtypes.finfo(scores.dtype).min
    allowed = [ones(*scores.shape[-2:], dtype=dtypes.bool_, device=query.device).tril()] if causal else []
    for mask in masks:
        if mask.dtype is not dtypes.bool_:
            scores = scores + mask.to(scores.dtype)
            mask = mask != float("-inf")
        allowed.append(mask)
    for mask in allowed:
        # Not -inf: a row of nothing else would come out of the softmax as nan, and so would its gradient.
        scores = where(mask, scores, lowest)
    weights = softmax(scores, -1)
    for mask in allowed:
        weights = weights * mask
    return dropped_alike(weights, p, stretch) @ value, weights


def _attend(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, options: _Options
) -> tuple[Tensor, Tensor, tuple[int, ...]]:
    """The result, the probabilities, and the stretch of random numbers that say which are dropped."""
    operands = (query, key, value) if mask is None else (query, key, value, mask)
    metas = tuple([it._blob.meta for it in operands])
    _check(metas)
    stretch: tuple[int, ...] = ()
    if options[2]:
        stretch = random.take(prod(_leading(metas)) * query.shape[-2] * key.shape[-2])
    result, weights = _interpreter.dispatch_several(_ATTENTION, operands, options, stretch)
    return result, weights, stretch


def attention_with_weights(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout_p: float
) -> tuple[Tensor, Tensor]:
    """As `scaled_dot_product_attention`, and the weights (..., L, S) after dropout, which are differentiable too."""
    p = _probability(dropout_p)
    result, weights, stretch = _attend(query, key, value, mask, (query.shape[-1] ** -0.5, False, p))
    return result, dropped_alike(weights, p, stretch)


def _probability(p: float) -> float:
    if not 0 <= p <= 1:
        raise ValueError(f"{_NAME}: the dropout probability must be within [0, 1], got {p}")
    return float(p)


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """``softmax(query @ key.mT * scale + mask) @ value`` (A. Vaswani et al., Attention Is All You Need, 2017).

    Args:
        query: (..., L, E).
        key: (..., S, E).
        value: (..., S, V).
        attn_mask: broadcast to (..., L, S); bools say what may be attended to, numbers are added.  Where nothing may be
            attended to, the result is 0.
        dropout_p: probability with which a weight is dropped.
        is_causal: position l attends to positions up to l only; excludes a mask.
        scale: ``1 / sqrt(E)`` by default.
        enable_gqa: whether `query` may have several times as many heads, dimension -3, as `key` and `value`, each of
            which then serves as many neighbouring ones.

    Returns:
        (..., L, V).

    Raises:
        TypeError: for dtypes that differ, or a mask of integers.
        ValueError: for shapes that do not fit, a mask besides `is_causal`, or a probability out of range.
    """
    if is_causal and attn_mask is not None:
        raise ValueError(f"{_NAME}: give is_causal or attn_mask, not both")
    p = _probability(dropout_p)
    if enable_gqa:
        key, value = _repeated_heads(query, key), _repeated_heads(query, value)
    factor = float(max(query.shape[-1], 1) ** -0.5 if scale is None else scale) if query.ndim else 1.0
    return _attend(query, key, value, attn_mask, (factor, bool(is_causal), p))[0]


def _repeated_heads(query: Tensor, shared: Tensor) -> Tensor:
    heads = query.shape[-3] if query.ndim > 2 else 0
    given = shared.shape[-3] if shared.ndim > 2 else 0
    if not given or heads % given:
        raise ValueError(
            f"{_NAME}: a query of shape {list(query.shape)} cannot share heads of shape {list(shared.shape)}; its "
            "number of heads, dimension -3, must be a multiple of theirs"
        )
    return shared if heads == given else repeat_interleave(shared, heads // given, -3)
