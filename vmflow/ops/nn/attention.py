"""Scaled dot-product attention: one op forward and one backward.

The forward op keeps the attention weights for the backward pass; or, if they need much memory, none are dropped and the
caller does not need them, only the logarithm of each softmax's divisor, from which the backward pass recomputes the
weights.

A backward pass that is recorded itself (``create_graph=True``) consists of differentiable ops.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any, Final, cast

from vmflow import autograd, dtypes, interpreter as _interpreter, random
from vmflow.arguments import flag
from vmflow.autograd.grad_mode import is_grad_enabled
from vmflow.dtypes import BOOL, FLOATING
from vmflow.instructions.blob import TensorMeta, meta
from vmflow.kernels.problems.attention import Extent
from vmflow.operands import check_tensors
from vmflow.ops.autocasting import autocast_as_op
from vmflow.ops.elementwise.activation import softmax
from vmflow.ops.elementwise.inference import CHEAP, EXPENSIVE
from vmflow.ops.elementwise.selection import where
from vmflow.ops.shape.joining import repeat_interleave
from vmflow.ops.table import Attributes, Form, Inferred, Kinds, Metas, OpExpr, broadcast_shapes, common_device

from .dropout import dropped_by
from .layer_operands import check_shape, computes_in

if TYPE_CHECKING:
    from vmflow.autograd.node import OpNode
    from vmflow.tensors import Tensor

_NAME: Final = "scaled_dot_product_attention"

# Nanoseconds per multiply-add, for estimates of cost.
_PER_PRODUCT: Final = 0.1

# Attention weights of more bytes are not kept for the backward pass, unless some are dropped or the caller needs them.
# The backward pass recomputes them, which takes longer, but memory grows with the sequence length, not its square.
KEPT_BYTES: Final = 16 << 20

# The attributes of the op: (factor of the scores, whether position l attends only to positions up to l, probability of
# dropping a weight, whether the weights are kept for the backward pass, or else the logarithms of their divisors)
_Options = tuple[float, bool, float, bool]


def _leading(metas: Metas) -> tuple[int, ...]:
    return broadcast_shapes(_NAME, *[tuple(meta.shape[:-2]) for meta in metas[:3]])


def _check(metas: Metas) -> None:
    query, key, value, *masks = metas
    if any([operand.dtype is not query.dtype for operand in (key, value)]) or query.dtype.category != FLOATING:
        names = ", ".join([meta.dtype.name for meta in metas[:3]])
        raise TypeError(f"{_NAME}: expected floating-point tensors of one dtype, got {names}; cast with .to()")
    if (
        min([len(meta.shape) for meta in metas[:3]]) < 2
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


def _extent(metas: Metas) -> Extent:
    return Extent(_leading(metas), metas[0].shape[-2], metas[1].shape[-2])


def _infer_attention(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    options = cast("_Options", attributes)
    _, _, p, keeps = options
    _check(metas)
    device = common_device(_NAME, metas)
    query, value = metas[0], metas[2]
    extent = _extent(metas)
    output = meta((*extent.leading, extent.length, value.shape[-1]), query.dtype, device)
    probabilities = meta((*extent.leading, extent.length, extent.others), query.dtype, device)
    kept = probabilities if keeps else meta((*extent.leading, extent.length), computes_in(query), device)
    products = prod(probabilities.shape) * (query.shape[-1] + value.shape[-1])
    cost = products * _PER_PRODUCT + probabilities.numel * (EXPENSIVE + 5 * CHEAP + (6 if p else 0)) + 10000
    return Inferred((output, kept), cost, extent)


# The attributes of the backward op: (those of the forward op, which of its two results have a gradient, which of its
# operands need a gradient)
_Backward = tuple[_Options, tuple[bool, bool], tuple[bool, ...]]


def _check_kept(
    extent: Extent, options: _Options, present: tuple[bool, bool], metas: Metas, query: TensorMeta, value: TensorMeta
) -> None:
    """Raise an error unless `metas` fit: the gradients of results marked in `present`, then the kept tensor."""
    *gradients, kept = metas
    weights = (*extent.leading, extent.length, extent.others)
    shapes = [
        shape
        for shape, exists in zip(((*extent.leading, extent.length, value.shape[-1]), weights), present, strict=True)
        if exists
    ]
    for gradient, shape in zip(gradients, shapes, strict=True):
        check_shape(_NAME, "a gradient", gradient, shape)
    check_shape(_NAME, "the kept tensor", kept, weights if options[3] else weights[:-1])
    if any([meta.dtype.category != FLOATING for meta in metas]):
        raise TypeError(f"{_NAME}: expected floating-point gradients of {query}, got {list(metas)}")


def _infer_backward(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    """Infer the backward op.

    Operands: the existing gradients of the results, the kept tensor, query, key and value; and the mask, if there is
    one and the weights were not kept."""
    options, present, wanted = cast("_Backward", attributes)
    gradients = sum(present)
    query, key, value, *_ = operands = metas[gradients + 1 :]
    _check(operands)
    extent = _extent(operands)
    _check_kept(extent, options, present, metas[: gradients + 1], query, value)
    probabilities = meta((*extent.leading, extent.length, extent.others), query.dtype, query.device)
    results = [
        meta((*extent.leading, *operand.shape[-2:]), operand.dtype, operand.device) for operand in (query, key, value)
    ]
    results = [result for result, needed in zip((*results, probabilities), wanted, strict=False) if needed]
    products = probabilities.numel * (query.shape[-1] + value.shape[-1])
    return Inferred(tuple(results), products * 2 * _PER_PRODUCT + probabilities.numel * CHEAP * 6 + 10000, extent)


_ATTENTION = OpExpr(_NAME, _infer_attention, Form((3, 4), _Options, (0, 2), draws=True), "attention")
_BACKWARD = OpExpr(
    "scaled_dot_product_attention_gradient", _infer_backward, Form((4, 7), _Backward, (0, 2), draws=True), "attention"
)


@_ATTENTION.gradient(inputs=(0, 1, 2, 3), outputs=(1,))
def _gradient(node: OpNode, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
    options = cast("_Options", node.attributes)
    operands = tuple([node.input(place) for place in range(len(node.metas))])
    present = tuple([gradient is not None for gradient in gradients])
    if not is_grad_enabled():
        existing = [gradient for gradient in gradients if gradient is not None]
        arguments = (*existing, node.output(1), *(operands[:3] if options[3] else operands))
        attributes = (options, present, node.needs)
        computed = iter(_interpreter.dispatch_several(_BACKWARD, arguments, attributes, node.scalars))
    else:
        results = _composed(options, operands, node.scalars)
        pairs = [
            (result, gradient) for result, gradient in zip(results, gradients, strict=True) if gradient is not None
        ]
        wanted = [operand for operand, need in zip(operands, node.needs, strict=True) if need]
        made = autograd.grad(
            [result for result, _ in pairs], wanted, [gradient for _, gradient in pairs], create_graph=True
        )
        computed = iter(cast("tuple[Tensor, ...]", made))
    return tuple([next(computed) if need else None for need in node.needs])


def _composed(options: _Options, operands: tuple[Tensor, ...], stretch: tuple[Any, ...]) -> tuple[Tensor, Tensor]:
    """Compute attention in differentiable ops; return its result, and the attention weights before dropout."""
    factor, causal, p, _ = options
    query, key, value, *masks = operands
    scores = (query * factor) @ key.mT
    lowest = dtypes.finfo(scores.dtype).min
    allowed = [query.new_ones(*scores.shape[-2:], dtype=dtypes.bool_).tril()] if causal else []
    for mask in masks:
        if mask.dtype is not dtypes.bool_:
            scores = scores + mask.to(scores.dtype)
            mask = mask != float("-inf")
        allowed.append(mask)
    for mask in allowed:
        # Scores that a mask excludes become the lowest finite number: a row of -inf would have a softmax of nan.
        scores = where(mask, scores, lowest)
    weights = softmax(scores, -1)
    for mask in allowed:
        weights = weights * mask
    return dropped_by(weights, p, stretch) @ value, weights


def _attend(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, options: tuple[float, bool, float], weights: bool
) -> tuple[Tensor, Tensor, tuple[int, ...]]:
    """Run the attention op: return its result, the tensor kept for the backward pass, and dropout's seed and offset.

    Without dropout an empty tuple is in place of the last two.

    Args:
        query, key, value, mask: see `scaled_dot_product_attention`.
        options: the factor of the scores, whether attention is causal, and the probability of dropping a weight.
        weights: whether the kept tensor must be the attention weights.
    """
    operands = (query, key, value) if mask is None else (query, key, value, mask)
    metas = tuple([operand._blob.meta for operand in operands])
    _check(metas)
    stretch: tuple[int, ...] = ()
    count = prod(_leading(metas)) * query.shape[-2] * key.shape[-2]
    if options[2]:
        stretch = random.take(count)
        if query.is_global:
            # Use ops on the global tensors: dropout depends on a weight's position in the global tensor, which a kernel
            # that runs on one rank's part does not know.
            return *_composed((*options, True), operands, stretch), stretch
    keeps = weights or bool(options[2]) or count * query.dtype.itemsize <= KEPT_BYTES
    result, kept = _interpreter.dispatch_several(_ATTENTION, operands, (*options, keeps), stretch)
    return result, kept, stretch


@autocast_as_op
def attention_with_weights(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout_p: float
) -> tuple[Tensor, Tensor]:
    """Compute `scaled_dot_product_attention`; return its result, and the weights (..., L, S) after dropout.

    Both results are differentiable."""
    p = _probability(dropout_p)
    result, weights, stretch = _attend(query, key, value, mask, (query.shape[-1] ** -0.5, False, p), True)
    return result, dropped_by(weights, p, stretch)


def _probability(p: float) -> float:
    if not 0 <= p <= 1:
        raise ValueError(f"{_NAME}: the dropout probability must be within [0, 1], got {p}")
    return float(p)


@autocast_as_op
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
        attn_mask: broadcast to (..., L, S); bools are True where attending is allowed, numbers are added.  Where
            no position may be attended to, the result is 0.
        dropout_p: probability with which a weight is dropped.
        is_causal: whether position l attends only to positions up to l; excludes a mask.
        scale: ``1 / sqrt(E)`` by default.
        enable_gqa: whether `query` may have several times as many heads, dimension -3, as `key` and `value`, each of
            which then serves several neighbouring ones.

    Returns:
        (..., L, V).

    Raises:
        TypeError: for operands that are no tensors, dtypes that differ or are not floating-point, or masks of integers
            or complex numbers.
        ValueError: for shapes that do not fit, a mask besides `is_causal`, or a probability out of range.

    Example:
        >>> query, key, value = flow.zeros(1, 2), flow.zeros(2, 2), flow.tensor([[1.0], [3.0]])
        >>> flow.nn.functional.scaled_dot_product_attention(query, key, value)
        tensor([[2.]])
    """
    check_tensors("scaled_dot_product_attention", query, key, value, optional=(attn_mask,))
    is_causal = flag(_NAME, "is_causal", is_causal)
    if is_causal and attn_mask is not None:
        raise ValueError(f"{_NAME}: give is_causal or attn_mask, not both")
    p = _probability(dropout_p)
    if enable_gqa:
        key, value = _repeated_heads(query, key), _repeated_heads(query, value)
    factor = float(max(query.shape[-1], 1) ** -0.5 if scale is None else scale) if query.ndim else 1.0
    return _attend(query, key, value, attn_mask, (factor, is_causal, p), False)[0]


def _repeated_heads(query: Tensor, shared: Tensor) -> Tensor:
    heads = query.shape[-3] if query.ndim > 2 else 0
    given = shared.shape[-3] if shared.ndim > 2 else 0
    if not given or heads % given:
        raise ValueError(
            f"{_NAME}: a query of shape {list(query.shape)} cannot share heads of shape {list(shared.shape)}; its "
            "number of heads, dimension -3, must be a multiple of theirs"
        )
    return shared if heads == given else repeat_interleave(shared, heads // given, -3)
