"""Multi-head attention with projections, for `vmflow.nn.MultiheadAttention` and `multi_head_attention_forward`."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from vmflow import dtypes
from vmflow.dtypes import dtype as DType
from vmflow.operands import check_tensors
from vmflow.ops.shape.joining import cat
from vmflow.ops.shape.padding import pad

from .attention import attention_with_weights, scaled_dot_product_attention
from .linear import linear

if TYPE_CHECKING:
    from vmflow.tensors import Tensor


class Projections(NamedTuple):
    """The parameters that project queries, keys and values, and the number of heads.

    Attributes:
        heads: the number of parallel attentions.
        together: (3 * features, features), the weights of all three in one matrix; None if they are separate.
        apart: the weights of the query, of the key and of the value; None if they are in one matrix.
        bias: (3 * features,), or None.
        bias_k, bias_v, add_zero_attn, static_k, static_v: as of `multi_head_attention_forward`.
    """

    heads: int
    together: Tensor | None
    apart: tuple[Tensor, Tensor, Tensor] | None
    bias: Tensor | None
    bias_k: Tensor | None
    bias_v: Tensor | None
    add_zero_attn: bool
    static_k: Tensor | None = None
    static_v: Tensor | None = None


class Masks(NamedTuple):
    """The masks of multi-head attention, as arguments of `multi_head_attention_forward`."""

    attn_mask: Tensor | None
    key_padding_mask: Tensor | None
    is_causal: bool


def attended(
    name: str,
    operands: tuple[Tensor, Tensor, Tensor],
    projections: Projections,
    masks: Masks,
    p: float,
    need_weights: bool,
    average: bool,
) -> tuple[Tensor, Tensor | None]:
    """Compute multi-head attention without the output projection that follows it in the layer.

    Args:
        operands: query, key and value, (batch, length, features) each.
        p: the probability with which an attention weight is dropped.
        need_weights: whether to return the attention weights, after dropout.
        average: whether the returned weights are the mean over the heads.

    Returns:
        (batch, length, features); and the weights, (batch, L, S), or (batch, heads, L, S) unless `average`, or None
        unless `need_weights`.  L is the query's length, S the number of keys with the added rows.
    """
    query, key, _ = operands
    heads = _projected(name, operands, projections)
    added = projections.bias_k is not None or projections.add_zero_attn
    plain = not need_weights and masks.key_padding_mask is None and not added
    causal = masks.is_causal and plain and masks.attn_mask is not None and masks.attn_mask.ndim == 2
    mask = None if causal else _mask(name, masks, projections, query, key)
    weights: Tensor | None = None
    if need_weights:
        result, weights = attention_with_weights(*heads, mask, p)
        weights = weights.mean(1) if average else weights
    else:
        result = scaled_dot_product_attention(*heads, mask, p, causal)
    return result.transpose(1, 2).flatten(2), weights


def _projected(
    name: str, operands: tuple[Tensor, Tensor, Tensor], projections: Projections
) -> tuple[Tensor, Tensor, Tensor]:
    """Project query, key and value, and split them into heads: (batch, heads, length, features of a head) each.

    Keys and values include the added rows.  Static keys and values, where given, replace the projected ones."""
    query, key, value = operands
    together, bias = projections.together, projections.bias
    if together is not None and query is key and key is value:
        parts = linear(query, together, bias).chunk(3, -1)
    else:
        weights = projections.apart if together is None else together.chunk(3)
        assert weights is not None
        biases = (None, None, None) if bias is None else bias.chunk(3)
        parts = tuple([linear(*operand) for operand in zip(operands, weights, biases, strict=True)])
    of_query, of_key, of_value = parts
    count = projections.heads
    batch = of_key.shape[0]
    if projections.bias_k is not None and projections.bias_v is not None:
        of_key = cat([of_key, projections.bias_k.expand(batch, 1, of_key.shape[-1])], 1)
        of_value = cat([of_value, projections.bias_v.expand(batch, 1, of_value.shape[-1])], 1)
    heads = []
    for what, rows, static in (
        ("static_k", of_key, projections.static_k),
        ("static_v", of_value, projections.static_v),
    ):
        split = _heads(rows, count)
        if static is not None:
            if static.ndim != 3 or static.shape[0] != batch * count or static.shape[2] != split.shape[3]:
                raise ValueError(
                    f"{name}: {what} must have shape [{batch * count}, length, {split.shape[3]}], got "
                    f"{list(static.shape)}"
                )
            split = static.reshape(batch, count, static.shape[1], static.shape[2])
        heads.append(pad(split, [0, 0, 0, 1]) if projections.add_zero_attn else split)
    return _heads(of_query, count), heads[0], heads[1]


def _heads(rows: Tensor, count: int) -> Tensor:
    batch, length, features = rows.shape
    return rows.reshape(batch, length, count, features // count).transpose(1, 2)


def _mask(name: str, masks: Masks, projections: Projections, query: Tensor, key: Tensor) -> Tensor | None:
    """Combine `attn_mask` and `key_padding_mask` to a mask for `scaled_dot_product_attention`; None without masks."""
    count = projections.heads
    batch, length, others = query.shape[0], query.shape[1], key.shape[1]
    if projections.static_k is not None:
        others = projections.static_k.shape[1]
    parts: list[Tensor] = []
    attn_mask = masks.attn_mask
    if attn_mask is not None:
        _check_mask(name, "attn_mask", attn_mask, [(length, others), (batch * count, length, others)])
        parts.append(attn_mask if attn_mask.ndim == 2 else attn_mask.reshape(batch, count, length, others))
    if masks.key_padding_mask is not None:
        _check_mask(name, "key_padding_mask", masks.key_padding_mask, [(batch, others)])
        parts.append(masks.key_padding_mask.reshape(batch, 1, 1, others))
    if not parts:
        return None
    added = (projections.bias_k is not None) + projections.add_zero_attn
    if all(mask.dtype is dtypes.bool_ for mask in parts):
        ignored = parts[0] if len(parts) == 1 else parts[0] | parts[1]
        allowed = ignored.logical_not()
        return pad(allowed, [0, added], value=True) if added else allowed
    numbers = [_as_numbers(mask, query.dtype) for mask in parts]
    total = numbers[0] if len(numbers) == 1 else numbers[0] + numbers[1]
    return pad(total, [0, added]) if added else total


def _check_mask(name: str, what: str, mask: Tensor, shapes: list[tuple[int, ...]]) -> None:
    if tuple(mask.shape) not in shapes:
        fitting = " or ".join([str(list(shape)) for shape in shapes])
        raise ValueError(f"{name}: {what} must have shape {fitting}, got {list(mask.shape)}")
    if mask.dtype is not dtypes.bool_ and not mask.is_floating_point():
        raise TypeError(f"{name}: {what} must be of bools or numbers, not {mask.dtype.name}")


def _as_numbers(mask: Tensor, dtype: DType) -> Tensor:
    if mask.dtype is not dtypes.bool_:
        return mask.to(dtype)
    return mask.new_zeros(tuple(mask.shape), dtype=dtype).masked_fill(mask, float("-inf"))


def check_operands(
    name: str, operands: tuple[Tensor, Tensor, Tensor], features: tuple[int, int, int], batch_first: bool
) -> None:
    """Raise TypeError for an operand that is no tensor, ValueError for features, batches or lengths that do not fit."""
    check_tensors(name, *operands)
    query, key, value = operands
    if query.ndim not in (2, 3) or any([operand.ndim != query.ndim for operand in operands]):
        fits = False
    else:
        batch = 0 if batch_first else 1
        length = 1 - batch if query.ndim == 3 else 0
        fits = all([operand.shape[-1] == size for operand, size in zip(operands, features, strict=True)])
        fits = fits and key.shape[length] == value.shape[length]
        fits = fits and (query.ndim == 2 or query.shape[batch] == key.shape[batch] == value.shape[batch])
    if not fits:
        form = "(batch, length, features)" if batch_first else "(length, batch, features)"
        raise ValueError(
            f"{name}: expected a query, a key and a value {form} of {features[0]}, {features[1]} and "
            f"{features[2]} features, got {list(query.shape)}, {list(key.shape)} and {list(value.shape)}"
        )


def batches_first(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Transpose the first two dimensions; if `key` is `query`, or `value` is `key`, so it is among the results."""
    together, same = key is value, query is key
    query = query.transpose(0, 1)
    key = query if same else key.transpose(0, 1)
    return query, key, key if together else value.transpose(0, 1)


def with_batch(
    query: Tensor, key: Tensor, value: Tensor, key_padding_mask: Tensor | None, batch_first: bool
) -> tuple[tuple[Tensor, Tensor, Tensor], Tensor | None]:
    """Convert operands to (batch, length, features); a single sequence, and its padding mask, to a batch of one."""
    if query.ndim == 2:
        mask = None if key_padding_mask is None else key_padding_mask.unsqueeze(0)
        return (query.unsqueeze(0), key.unsqueeze(0), value.unsqueeze(0)), mask
    return (query, key, value) if batch_first else batches_first(query, key, value), key_padding_mask


def without_batch(
    result: Tensor, weights: Tensor | None, single: bool, batch_first: bool
) -> tuple[Tensor, Tensor | None]:
    """Undo `with_batch` for the result; drop the batch dimension of the weights if `single`."""
    if single:
        return result.squeeze(0), None if weights is None else weights.squeeze(0)
    return result if batch_first else result.transpose(0, 1), weights


def multi_head_attention_forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Tensor | None,
    in_proj_bias: Tensor | None,
    bias_k: Tensor | None,
    bias_v: Tensor | None,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Tensor,
    out_proj_bias: Tensor | None,
    training: bool = True,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: Tensor | None = None,
    k_proj_weight: Tensor | None = None,
    v_proj_weight: Tensor | None = None,
    static_k: Tensor | None = None,
    static_v: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Compute `vmflow.nn.MultiheadAttention` with the layer's parameters given as arguments.

    Args:
        query, key, value: (length, batch, features), or without a batch (length, features).
        embed_dim_to_check: the number of features of the query.
        num_heads: the number of parallel attentions.
        in_proj_weight: (3 * features, features), unless the weights are separate.
        in_proj_bias: (3 * features,), or None.
        bias_k, bias_v: (1, 1, features), rows added to keys and values; or None.
        add_zero_attn: whether a row of zeros is added to keys and values.
        dropout_p: the probability with which an attention weight is dropped in training.
        out_proj_weight, out_proj_bias: of the output projection.
        training: whether to drop attention weights.
        key_padding_mask: (batch, S), or (S) without a batch: True where a key is to be ignored; numbers are added to
            the scores.
        need_weights: whether to return the attention weights, after dropout.
        attn_mask: (L, S) or (batch * num_heads, L, S): True where attending is not allowed; numbers are added to the
            scores.
        use_separate_proj_weight: whether the three following weights are used in place of `in_proj_weight`.
        q_proj_weight, k_proj_weight, v_proj_weight: (features, features of the query, of the key or of the value).
        static_k, static_v: (batch * num_heads, S, features of a head), in place of projected keys and values.
        average_attn_weights: whether the returned weights are the mean over the heads.
        is_causal: whether `attn_mask` is the causal mask; if so, `attn_mask` must be given.

    Returns:
        The result, shaped like the query; and the attention weights, (batch, L, S), or (batch, num_heads, L, S) if not
        averaged, or None unless `need_weights`.  Here S includes the rows added to the keys.  Without a batch the
        weights have no batch dimension.

    Raises:
        TypeError: for dtypes that differ, or masks that are neither bool nor floating-point.
        ValueError: for shapes that do not fit, weights or a mask that are missing, or options that exclude each other.

    Example:
        >>> x, eye = flow.tensor([[2.0]]), flow.ones(1, 1)
        >>> parameters = flow.ones(3, 1), None, None, None, False, 0.0, eye, None
        >>> flow.nn.functional.multi_head_attention_forward(x, x, x, 1, 1, *parameters)
        (tensor([[2.]]), tensor([[1.]]))
    """
    name = "multi_head_attention_forward"
    others = (in_proj_bias, bias_k, bias_v, out_proj_bias, key_padding_mask, attn_mask, static_k, static_v)
    of_input = (in_proj_weight, q_proj_weight, k_proj_weight, v_proj_weight)
    check_tensors(name, query, key, value, out_proj_weight, optional=(*of_input, *others))
    apart = (q_proj_weight, k_proj_weight, v_proj_weight) if use_separate_proj_weight else None
    if apart is None:
        if in_proj_weight is None:
            raise ValueError(f"{name}: in_proj_weight is needed unless use_separate_proj_weight=True")
        features = (embed_dim_to_check,) * 3
    else:
        if q_proj_weight is None or k_proj_weight is None or v_proj_weight is None:
            raise ValueError(f"{name}: use_separate_proj_weight=True needs q_proj_weight, k_proj_weight, v_proj_weight")
        features = (embed_dim_to_check, k_proj_weight.shape[-1], v_proj_weight.shape[-1])
    check_operands(name, (query, key, value), features, batch_first=False)
    if num_heads <= 0 or embed_dim_to_check % num_heads:
        raise ValueError(f"{name}: {embed_dim_to_check} features cannot be split into {num_heads} heads")
    if (bias_k is None) != (bias_v is None):
        raise ValueError(f"{name}: give both bias_k and bias_v, or neither")
    if bias_k is not None and (static_k is not None or static_v is not None):
        raise ValueError(f"{name}: bias_k and bias_v cannot be added to static_k and static_v")
    if is_causal and attn_mask is None:
        raise ValueError(f"{name}: is_causal=True needs an attn_mask, the causal one")
    single = query.ndim == 2
    operands, key_padding_mask = with_batch(query, key, value, key_padding_mask, batch_first=False)
    weights_apart = None if apart is None else (q_proj_weight, k_proj_weight, v_proj_weight)
    projections = Projections(
        num_heads,
        None if use_separate_proj_weight else in_proj_weight,
        weights_apart,  # type: ignore[arg-type]  # checked: none is None
        in_proj_bias,
        bias_k,
        bias_v,
        add_zero_attn,
        static_k,
        static_v,
    )
    p = dropout_p if training else 0.0
    masks = Masks(attn_mask, key_padding_mask, is_causal)
    result, weights = attended(name, operands, projections, masks, p, need_weights, average_attn_weights)
    result = linear(result, out_proj_weight, out_proj_bias)
    return without_batch(result, weights, single, batch_first=False)
