"""`MultiheadAttention`, with PyTorch's parameters and masks."""

from __future__ import annotations

from vmflow import dtypes
from vmflow.devices import device as Device
from vmflow.dtypes import dtype as DType
from vmflow.ops.nn.attention import attention_with_weights, scaled_dot_product_attention
from vmflow.ops.shape.joining import cat
from vmflow.ops.shape.padding import pad
from vmflow.tensors import Tensor

from . import functional as F, init
from .layers import Linear
from .module import Module
from .parameter import new_parameter


class MultiheadAttention(Module):
    """Several attentions side by side, each over its own part of the projected features (A. Vaswani et al., 2017).

    Args:
        embed_dim: features of the query and of the result, divisible by `num_heads`.
        num_heads: how many attentions.
        dropout: probability with which a weight is dropped in training.
        bias: whether the projections add one.
        add_bias_kv: whether a learned row is added to keys and values.
        add_zero_attn: whether a row of zeros is.
        kdim, vdim: features of key and value, by default `embed_dim`.
        batch_first: whether tensors are (batch, length, features) and not (length, batch, features).
        device, dtype: of the parameters.

    Attributes:
        in_proj_weight: (3 * embed_dim, embed_dim), if key and value have as many features as the query; else there are
            q_proj_weight, k_proj_weight and v_proj_weight.
        in_proj_bias: (3 * embed_dim,), or None.
        out_proj: the last projection.
        bias_k, bias_v: (1, 1, embed_dim), or None.

    Raises:
        ValueError: for sizes or a probability out of range.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device: Device | str | None = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        if embed_dim <= 0 or num_heads <= 0 or embed_dim % num_heads:
            raise ValueError(
                f"MultiheadAttention: embed_dim must be a positive multiple of num_heads, got {embed_dim} and "
                f"{num_heads}"
            )
        if not 0 <= dropout <= 1:
            raise ValueError(f"MultiheadAttention: the dropout probability must be within [0, 1], got {dropout}")
        self.embed_dim = embed_dim
        self.num_heads = num_heads
        self.head_dim = embed_dim // num_heads
        self.dropout = float(dropout)
        self.batch_first = batch_first
        self.add_zero_attn = add_zero_attn
        self.kdim = embed_dim if kdim is None else kdim
        self.vdim = embed_dim if vdim is None else vdim
        together = self.kdim == self.vdim == embed_dim
        shapes: dict[str, tuple[int, ...] | None] = {
            "q_proj_weight": None if together else (embed_dim, embed_dim),
            "k_proj_weight": None if together else (embed_dim, self.kdim),
            "v_proj_weight": None if together else (embed_dim, self.vdim),
            "in_proj_weight": (3 * embed_dim, embed_dim) if together else None,
            "in_proj_bias": (3 * embed_dim,) if bias else None,
        }
        last: dict[str, tuple[int, ...] | None] = {
            "bias_k": (1, 1, embed_dim) if add_bias_kv else None,
            "bias_v": (1, 1, embed_dim) if add_bias_kv else None,
        }
        self._add(shapes, device, dtype)
        self.out_proj = Linear(embed_dim, embed_dim, bias=bias, device=device, dtype=dtype)
        self._add(last, device, dtype)
        self.reset_parameters()

    def _add(self, shapes: dict[str, tuple[int, ...] | None], device: Device | str | None, dtype: DType | None) -> None:
        for name, shape in shapes.items():
            self.register_parameter(name, None if shape is None else new_parameter(shape, device, dtype))

    def reset_parameters(self) -> None:
        """Draw new initial values."""
        weights = [self.in_proj_weight, self.q_proj_weight, self.k_proj_weight, self.v_proj_weight]
        biases = [self.in_proj_bias, self.out_proj.bias]
        rows = [self.bias_k, self.bias_v]
        for fill, tensors in ((init.xavier_uniform_, weights), (init.zeros_, biases), (init.xavier_normal_, rows)):
            for tensor in tensors:
                if tensor is not None:
                    fill(tensor)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Attend.

        Args:
            query: (L, batch, embed_dim), with batch_first (batch, L, embed_dim), or without a batch (L, embed_dim).
            key, value: (S, batch, kdim) and (S, batch, vdim), likewise.
            key_padding_mask: (batch, S), or (S) without a batch: True where a key is to be ignored; numbers are added
                to the scores.
            need_weights: whether to return the weights; without them there is less to keep.
            attn_mask: (L, S) or (batch * num_heads, L, S): True where attending is not allowed; numbers are added.
            average_attn_weights: whether the weights returned are the mean over the heads.
            is_causal: says that `attn_mask`, which must be given, is the causal one, so that it need not be read.

        Returns:
            The result, shaped like the query; and the weights (batch, L, S), or (batch, num_heads, L, S) of each head,
            or None.  Where nothing may be attended to, the weights are 0.

        Raises:
            ValueError: for shapes that do not fit, or is_causal without a mask.
            TypeError: for a mask of integers.
        """
        self._check(query, key, value)
        if is_causal and attn_mask is None:
            raise ValueError("MultiheadAttention: is_causal says what attn_mask is, which must be given too")
        single = query.ndim == 2
        if single:
            query, key, value = query.unsqueeze(0), key.unsqueeze(0), value.unsqueeze(0)
            key_padding_mask = None if key_padding_mask is None else key_padding_mask.unsqueeze(0)
        elif not self.batch_first:
            together = key is value
            same = query is key
            query = query.transpose(0, 1)
            key = query if same else key.transpose(0, 1)
            value = key if together else value.transpose(0, 1)
        heads = self._projected(query, key, value)
        plain = not need_weights and key_padding_mask is None and self.bias_k is None and not self.add_zero_attn
        causal = is_causal and plain and attn_mask is not None and attn_mask.ndim == 2
        mask = None if causal else self._mask(attn_mask, key_padding_mask, query, key)
        p = self.dropout if self.training else 0.0
        weights: Tensor | None = None
        if need_weights:
            result, weights = attention_with_weights(*heads, mask, p)
            weights = weights.mean(1) if average_attn_weights else weights
        else:
            result = scaled_dot_product_attention(*heads, mask, p, causal)
        batch, length = query.shape[:2]
        result = self.out_proj(result.transpose(1, 2).reshape(batch, length, self.embed_dim))
        if single:
            return result.squeeze(0), None if weights is None else weights.squeeze(0)
        return result if self.batch_first else result.transpose(0, 1), weights

    def _check(self, query: Tensor, key: Tensor, value: Tensor) -> None:
        sizes = (self.embed_dim, self.kdim, self.vdim)
        tensors = (query, key, value)
        if query.ndim not in (2, 3) or any([it.ndim != query.ndim for it in tensors]):
            fits = False
        else:
            batch = 0 if self.batch_first else 1
            length = 1 - batch if query.ndim == 3 else 0
            fits = all([it.shape[-1] == size for it, size in zip(tensors, sizes, strict=True)])
            fits = fits and key.shape[length] == value.shape[length]
            fits = fits and (query.ndim == 2 or query.shape[batch] == key.shape[batch] == value.shape[batch])
        if not fits:
            form = "(batch, length, features)" if self.batch_first else "(length, batch, features)"
            raise ValueError(
                f"MultiheadAttention: expected a query, a key and a value {form} of {sizes[0]}, {sizes[1]} and "
                f"{sizes[2]} features, got {list(query.shape)}, {list(key.shape)} and {list(value.shape)}"
            )

    def _projected(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Each (batch, heads, length, features of a head)."""
        if self.in_proj_weight is not None and query is key and key is value:
            parts = F.linear(query, self.in_proj_weight, self.in_proj_bias).chunk(3, -1)
        else:
            weights = (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
            if self.in_proj_weight is not None:
                weights = self.in_proj_weight.chunk(3)
            biases = (None, None, None) if self.in_proj_bias is None else self.in_proj_bias.chunk(3)
            parts = tuple([F.linear(*each) for each in zip((query, key, value), weights, biases, strict=True)])
        of_query, of_key, of_value = parts
        if self.bias_k is not None:
            batch = of_key.shape[0]
            of_key = cat([of_key, self.bias_k.expand(batch, 1, self.embed_dim)], 1)
            of_value = cat([of_value, self.bias_v.expand(batch, 1, self.embed_dim)], 1)
        if self.add_zero_attn:
            of_key, of_value = pad(of_key, [0, 0, 0, 1]), pad(of_value, [0, 0, 0, 1])
        return self._heads(of_query), self._heads(of_key), self._heads(of_value)

    def _heads(self, rows: Tensor) -> Tensor:
        batch, length = rows.shape[:2]
        return rows.reshape(batch, length, self.num_heads, self.head_dim).transpose(1, 2)

    def _mask(
        self, attn_mask: Tensor | None, key_padding_mask: Tensor | None, query: Tensor, key: Tensor
    ) -> Tensor | None:
        """One mask as `scaled_dot_product_attention` takes it, of both; None of neither."""
        batch, length, others = query.shape[0], query.shape[1], key.shape[1]
        masks: list[Tensor] = []
        if attn_mask is not None:
            shapes = [(length, others), (batch * self.num_heads, length, others)]
            _check_mask("attn_mask", attn_mask, shapes)
            masks.append(attn_mask if attn_mask.ndim == 2 else attn_mask.reshape(batch, self.num_heads, length, others))
        if key_padding_mask is not None:
            _check_mask("key_padding_mask", key_padding_mask, [(batch, others)])
            masks.append(key_padding_mask.reshape(batch, 1, 1, others))
        if not masks:
            return None
        added = (self.bias_k is not None) + self.add_zero_attn
        if all(it.dtype is dtypes.bool_ for it in masks):
            ignored = masks[0] if len(masks) == 1 else masks[0] | masks[1]
            allowed = ignored.logical_not()
            return pad(allowed, [0, added], value=True) if added else allowed
        numbers = [_as_numbers(it, query.dtype) for it in masks]
        total = numbers[0] if len(numbers) == 1 else numbers[0] + numbers[1]
        return pad(total, [0, added]) if added else total


def _check_mask(name: str, mask: Tensor, shapes: list[tuple[int, ...]]) -> None:
    if tuple(mask.shape) not in shapes:
        fitting = " or ".join([str(list(it)) for it in shapes])
        raise ValueError(f"MultiheadAttention: {name} must have shape {fitting}, got {list(mask.shape)}")
    if mask.dtype is not dtypes.bool_ and not mask.is_floating_point():
        raise TypeError(f"MultiheadAttention: {name} must be of bools or numbers, not {mask.dtype.name}")


def _as_numbers(mask: Tensor, dtype: DType) -> Tensor:
    if mask.dtype is not dtypes.bool_:
        return mask.to(dtype)
    return mask.new_zeros(tuple(mask.shape), dtype=dtype).masked_fill(mask, float("-inf"))
