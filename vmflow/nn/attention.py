"""`MultiheadAttention`, with PyTorch's parameters and masks."""

from __future__ import annotations

from vmflow.arguments import whole_number
from vmflow.devices import device as Device
from vmflow.dtypes import dtype as DType
from vmflow.ops.nn.multi_head_attention import Masks, Projections, attended, check_operands, with_batch, without_batch
from vmflow.tensors import Tensor

from . import init
from .layers import Linear
from .module import Module
from .parameter import new_parameter


class MultiheadAttention(Module):
    """Multi-head attention: several heads attend in parallel, each over its own slice of the projected features.

    A. Vaswani et al., 2017.

    Shape: query (L, N, embed_dim), key (S, N, kdim), value (S, N, vdim), with `batch_first` (N, L, ...), or all without
    N; outputs: the query's shape, and weights (N, L, S); each row appended to the keys adds one to S.

    Args:
        embed_dim: the number of features of the query and of the result, divisible by `num_heads`.
        num_heads: the number of heads.
        dropout: the probability with which an attention weight is dropped in training.
        bias: whether the projections add a bias.
        add_bias_kv: whether a learned row is appended to keys and values.
        add_zero_attn: whether a row of zeros is appended to keys and values.
        kdim, vdim: the numbers of features of key and value, by default `embed_dim`.
        batch_first: whether query, key, value and result are (N, L, features) and not (L, N, features).
        device, dtype: the device and dtype of the parameters.

    Attributes:
        in_proj_weight: (3 * embed_dim, embed_dim), if key and value have as many features as the query; else there are
            q_proj_weight, k_proj_weight and v_proj_weight.
        in_proj_bias: (3 * embed_dim,), or None.
        out_proj: the `Linear` layer that projects the joined results of the heads.
        bias_k, bias_v: (1, 1, embed_dim), the rows of `add_bias_kv`, or None.

    Raises:
        ValueError: for sizes or a probability out of range; when called with shapes that do not fit, or with
            `is_causal` and no `attn_mask`.
        TypeError: for sizes that are no integers; when called with another dtype than the weights', or a mask of
            integers.

    Example:
        >>> query, key = flow.ones(3, 1, 4), flow.ones(5, 1, 4)
        >>> result, weights = flow.nn.MultiheadAttention(4, 2)(query, key, key)
        >>> result.shape, weights.shape
        (vmflow.Size([3, 1, 4]), vmflow.Size([1, 3, 5]))
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
        embed_dim = whole_number("MultiheadAttention", "embed_dim", embed_dim)
        num_heads = whole_number("MultiheadAttention", "num_heads", num_heads)
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
        """Draw new initial values of `bias_k`, `bias_v` and all weights but `out_proj.weight`; set `in_proj_bias` and
        `out_proj.bias` to 0.
        """
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
        """Compute the attention of each head, and project the heads' concatenated results.

        Args:
            query: (L, batch, embed_dim), with batch_first (batch, L, embed_dim), or without a batch (L, embed_dim).
            key, value: (S, batch, kdim) and (S, batch, vdim), likewise.
            key_padding_mask: (batch, S), or (S) without a batch: True where a key is to be ignored; numbers are added
                to the scores.
            need_weights: whether to return the attention weights; without them the computation needs less memory.
            attn_mask: (L, S) or (batch * num_heads, L, S): True where attending is not allowed; numbers are added to
                the scores.
            average_attn_weights: whether to return the mean of the weights over the heads, not those of each head.
            is_causal: whether `attn_mask` is the causal mask; True needs this mask, but some cases ignore its values.

        Returns:
            The result, shaped like the query; and the weights (batch, L, S), or (batch, num_heads, L, S) of each head,
            without the batch if the query has none, or None without `need_weights`.  A query that may attend to no key
            has weights of 0.
        """
        name = "MultiheadAttention"
        check_operands(name, (query, key, value), (self.embed_dim, self.kdim, self.vdim), self.batch_first)
        if is_causal and attn_mask is None:
            raise ValueError("MultiheadAttention: is_causal=True needs an attn_mask, the causal one")
        single = query.ndim == 2
        operands, key_padding_mask = with_batch(query, key, value, key_padding_mask, self.batch_first)
        apart = (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
        together = self.in_proj_weight
        projections = Projections(
            self.num_heads,
            together,
            None if together is not None else apart,
            self.in_proj_bias,
            self.bias_k,
            self.bias_v,
            self.add_zero_attn,
        )
        masks = Masks(attn_mask, key_padding_mask, is_causal)
        p = self.dropout if self.training else 0.0
        result, weights = attended(name, operands, projections, masks, p, need_weights, average_attn_weights)
        return without_batch(self.out_proj(result), weights, single, self.batch_first)
