"""`Transformer`, its encoder and decoder, and their layers, with PyTorch's parameters."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import ClassVar

from vmflow import dtypes
from vmflow.devices import device as Device
from vmflow.dtypes import dtype as DType
from vmflow.operands import check_tensors
from vmflow.ops.creation import creation
from vmflow.tensors import Tensor

from . import functional as F, init
from .attention import MultiheadAttention
from .containers import ModuleList
from .dropout_layers import Dropout
from .layers import Linear
from .module import Module
from .normalization_layers import LayerNorm

Activation = str | Callable[[Tensor], Tensor]

_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": F.relu, "gelu": F.gelu}


def _activation(name: str, activation: Activation) -> Callable[[Tensor], Tensor]:
    if not isinstance(activation, str):
        return activation
    if activation not in _ACTIVATIONS:
        raise ValueError(f"{name}: the activation must be 'relu', 'gelu' or a function, not {activation!r}")
    return _ACTIVATIONS[activation]


class _Layer(Module):
    """The base of encoder and decoder layers, with their modules: attentions, two linear layers, norms and dropouts."""

    # Whether the layer has a second attention, to the encoder's result: True for decoder layers.
    _crosswise: ClassVar[bool]

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Activation = F.relu,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: Device | str | None = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        for name in ("self_attn", "multihead_attn")[: 1 + self._crosswise]:
            attention = MultiheadAttention(
                d_model, nhead, dropout, bias, batch_first=batch_first, device=device, dtype=dtype
            )
            self.add_module(name, attention)
        self.linear1 = Linear(d_model, dim_feedforward, bias, device, dtype)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias, device, dtype)
        self.norm_first = norm_first
        for number in range(2 + self._crosswise):
            norm = LayerNorm(d_model, layer_norm_eps, bias=bias, device=device, dtype=dtype)
            self.add_module(f"norm{number + 1}", norm)
        for number in range(2 + self._crosswise):
            self.add_module(f"dropout{number + 1}", Dropout(dropout))
        self.activation = _activation(type(self).__name__, activation)

    def _residual(self, x: Tensor, norm: Module, block: Callable[[Tensor], Tensor]) -> Tensor:
        if self.norm_first:
            return x + block(norm(x))
        result: Tensor = norm(x + block(x))
        return result

    def _attend_to_itself(
        self, x: Tensor, mask: Tensor | None, key_padding_mask: Tensor | None, is_causal: bool
    ) -> Tensor:
        attended, _ = self.self_attn(x, x, x, key_padding_mask, False, mask, is_causal=is_causal)
        result: Tensor = self.dropout1(attended)
        return result

    def _feed_forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.linear2(self.dropout(self.activation(self.linear1(x))))
        return result


class TransformerEncoderLayer(_Layer):
    """An encoder layer: self-attention and a feed-forward network, each with a residual connection and a layer norm.

    A. Vaswani et al., 2017.

    Shape: input (L, N, d_model), or (N, L, d_model) with `batch_first`, also without N; output the same shape.

    Args:
        d_model: the number of features of input and output.
        nhead: the number of attention heads, which divides `d_model`.
        dim_feedforward: the number of features between the two linear layers of the feed-forward network.
        dropout: the probability with which an element is dropped in training.
        activation: the activation of the feed-forward network: "relu", "gelu" or a function.
        layer_norm_eps: the `eps` of the layer norms, added to the variance.
        batch_first: whether inputs and output are (N, L, features) and not (L, N, features).
        norm_first: whether to normalise the inputs of attention and feed-forward network, and not the residual sums.
        bias: whether attention, linear layers and norms add a bias.
        device, dtype: the device and dtype of the parameters.

    Raises:
        ValueError: for sizes, a probability or an activation's name that does not fit; when called with another shape.
        TypeError: for sizes that are no integers; when called with another dtype than the weights'.

    Example:
        >>> flow.nn.TransformerEncoderLayer(8, nhead=2, dim_feedforward=16)(flow.ones(5, 1, 8)).shape
        vmflow.Size([5, 1, 8])
    """

    _crosswise = False

    def forward(
        self,
        src: Tensor,
        src_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Tensor:
        """Return the encoded `src`, in the same shape; masks and `is_causal` are as for `MultiheadAttention`."""
        x = self._residual(
            src, self.norm1, lambda value: self._attend_to_itself(value, src_mask, src_key_padding_mask, is_causal)
        )
        return self._residual(x, self.norm2, lambda value: self.dropout2(self._feed_forward(value)))


class TransformerDecoderLayer(_Layer):
    """A decoder layer: self-attention, attention to the encoder's result `memory`, and a feed-forward network.

    A. Vaswani et al., 2017.

    Shape: target (L, N, d_model), memory (S, N, d_model), or (N, L, ...) with `batch_first`, or both without N; output
    the target's shape.

    Args:
        d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first, bias, device,
        dtype:
            as for `TransformerEncoderLayer`.

    Raises:
        ValueError, TypeError: as `TransformerEncoderLayer`.

    Example:
        >>> layer = flow.nn.TransformerDecoderLayer(8, nhead=2, dim_feedforward=16)
        >>> layer(flow.ones(4, 1, 8), flow.ones(5, 1, 8)).shape
        vmflow.Size([4, 1, 8])
    """

    _crosswise = True

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """Return the decoded `tgt`, in the same shape; `memory` is the encoder's result.

        Masks and `..._is_causal` are as `attn_mask`, `key_padding_mask` and `is_causal` of `MultiheadAttention`.
        """

        def attend_to_memory(x: Tensor) -> Tensor:
            attended, _ = self.multihead_attn(
                x, memory, memory, memory_key_padding_mask, False, memory_mask, is_causal=memory_is_causal
            )
            result: Tensor = self.dropout2(attended)
            return result

        x = self._residual(
            tgt, self.norm1, lambda value: self._attend_to_itself(value, tgt_mask, tgt_key_padding_mask, tgt_is_causal)
        )
        x = self._residual(x, self.norm2, attend_to_memory)
        return self._residual(x, self.norm3, lambda value: self.dropout3(self._feed_forward(value)))


def _is_causal(mask: Tensor | None, is_causal: bool | None) -> bool:
    """Whether `is_causal` is True and there is a mask.  Checking the mask's values would wait for them."""
    return bool(is_causal) and mask is not None


class TransformerEncoder(Module):
    """An encoder: copies of an encoder layer, one after the other.

    Shape: input (L, N, d_model), or (N, L, d_model) with `batch_first` of the layer, also without N; output the same
    shape.

    Args:
        encoder_layer: the layer to copy `num_layers` times.
        num_layers: the number of layers.
        norm: a module, usually a layer norm, to apply to the last layer's result, or None.
        enable_nested_tensor, mask_check: PyTorch's arguments, without effect.

    Raises:
        TypeError: if `encoder_layer` is no module, or `num_layers` no integer; when called with another dtype.
        ValueError: when called with another shape.

    Example:
        >>> layer = flow.nn.TransformerEncoderLayer(8, nhead=2, dim_feedforward=16)
        >>> flow.nn.TransformerEncoder(layer, num_layers=2)(flow.ones(5, 1, 8)).shape
        vmflow.Size([5, 1, 8])
    """

    def __init__(
        self,
        encoder_layer: Module,
        num_layers: int,
        norm: Module | None = None,
        enable_nested_tensor: bool = True,
        mask_check: bool = True,
    ) -> None:
        super().__init__()
        self.layers = ModuleList([copy.deepcopy(encoder_layer) for _ in range(num_layers)])
        self.num_layers = num_layers
        self.norm = norm

    def forward(
        self,
        src: Tensor,
        mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool | None = None,
    ) -> Tensor:
        """Return `src` encoded by all layers, in the same shape; the masks are as for `MultiheadAttention`.

        `is_causal` counts as False if it is None, or without `mask`.
        """
        causal = _is_causal(mask, is_causal)
        for layer in self.layers:
            src = layer(src, mask, src_key_padding_mask, causal)
        return src if self.norm is None else self.norm(src)


class TransformerDecoder(Module):
    """A decoder: copies of a decoder layer, one after the other.

    Shape: target (L, N, d_model), memory (S, N, d_model), or (N, L, ...) with `batch_first` of the layer, or both
    without N; output the target's shape.

    Args:
        decoder_layer: the layer to copy `num_layers` times.
        num_layers: the number of layers.
        norm: a module, usually a layer norm, to apply to the last layer's result, or None.

    Raises:
        TypeError: if `decoder_layer` is no module, or `num_layers` no integer; when called with another dtype.
        ValueError: when called with another shape.

    Example:
        >>> layer = flow.nn.TransformerDecoderLayer(8, nhead=2, dim_feedforward=16)
        >>> flow.nn.TransformerDecoder(layer, num_layers=2)(flow.ones(4, 1, 8), flow.ones(5, 1, 8)).shape
        vmflow.Size([4, 1, 8])
    """

    def __init__(self, decoder_layer: Module, num_layers: int, norm: Module | None = None) -> None:
        super().__init__()
        self.layers = ModuleList([copy.deepcopy(decoder_layer) for _ in range(num_layers)])
        self.num_layers = num_layers
        self.norm = norm

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """Return `tgt` decoded by all layers, in the same shape; the arguments are as for `TransformerDecoderLayer`.

        But `tgt_is_causal` counts as False if it is None, or without `tgt_mask`; and `memory_is_causal` without
        `memory_mask`.
        """
        masks = (tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask)
        causal = _is_causal(tgt_mask, tgt_is_causal), _is_causal(memory_mask, memory_is_causal)
        for layer in self.layers:
            tgt = layer(tgt, memory, *masks, *causal)
        return tgt if self.norm is None else self.norm(tgt)


class Transformer(Module):
    """A transformer of an encoder and a decoder (A. Vaswani et al., Attention Is All You Need, 2017).

    Shape: source (S, N, d_model), target (L, N, d_model), or (N, S, ...) with `batch_first`, or both without N; output
    the target's shape.

    Args:
        num_encoder_layers, num_decoder_layers: the numbers of layers of encoder and decoder.
        custom_encoder, custom_decoder: modules to use instead of `TransformerEncoder` and `TransformerDecoder`; their
            parameters of two or more dimensions are initialised anew.
        The other arguments are as for `TransformerEncoderLayer`.

    Raises:
        ValueError, TypeError: as `TransformerEncoderLayer`.

    Example:
        >>> model = flow.nn.Transformer(8, 2, num_encoder_layers=1, num_decoder_layers=1, dim_feedforward=16)
        >>> model(flow.ones(5, 1, 8), flow.ones(4, 1, 8)).shape
        vmflow.Size([4, 1, 8])
    """

    def __init__(
        self,
        d_model: int = 512,
        nhead: int = 8,
        num_encoder_layers: int = 6,
        num_decoder_layers: int = 6,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Activation = F.relu,
        custom_encoder: Module | None = None,
        custom_decoder: Module | None = None,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: Device | str | None = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        args = (d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first, bias)

        def norm() -> LayerNorm:
            return LayerNorm(d_model, layer_norm_eps, bias=bias, device=device, dtype=dtype)

        if custom_encoder is None:
            first = TransformerEncoderLayer(*args, device, dtype)
            custom_encoder = TransformerEncoder(first, num_encoder_layers, norm())
        if custom_decoder is None:
            second = TransformerDecoderLayer(*args, device, dtype)
            custom_decoder = TransformerDecoder(second, num_decoder_layers, norm())
        self.encoder = custom_encoder
        self.decoder = custom_decoder
        self.d_model = d_model
        self.nhead = nhead
        self.batch_first = batch_first
        for parameter in self.parameters():
            if parameter.ndim > 1:
                init.xavier_uniform_(parameter)

    def forward(
        self,
        src: Tensor,
        tgt: Tensor,
        src_mask: Tensor | None = None,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        src_is_causal: bool | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """Encode `src`, and return `tgt` decoded with the encoder's result; other arguments go to encoder and decoder.

        Raises:
            TypeError: if `src` or `tgt` is no tensor.
            ValueError: for shapes that do not fit.
        """
        check_tensors("Transformer", src, tgt)
        batch = 0 if self.batch_first else 1
        if src.ndim != tgt.ndim or (src.ndim == 3 and src.shape[batch] != tgt.shape[batch]):
            raise ValueError(
                f"Transformer: src and tgt must hold equally many sequences, got {list(src.shape)} and "
                f"{list(tgt.shape)}"
            )
        memory = self.encoder(src, src_mask, src_key_padding_mask, src_is_causal)
        masks = (tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask)
        result: Tensor = self.decoder(tgt, memory, *masks, tgt_is_causal, memory_is_causal)
        return result

    @staticmethod
    def generate_square_subsequent_mask(
        sz: int, device: Device | str | None = None, dtype: DType | None = None
    ) -> Tensor:
        """Return a causal mask (sz, sz), which is added to attention scores: -inf above the diagonal, 0 elsewhere."""
        ahead = creation.ones(sz, sz, dtype=dtypes.bool_, device=device).triu(1)
        return creation.zeros(sz, sz, dtype=dtype, device=device).masked_fill(ahead, float("-inf"))
