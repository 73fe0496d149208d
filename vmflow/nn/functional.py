"""The functional forms of layers, activations and losses, under PyTorch's names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vmflow import dtypes
from vmflow.ops import activation as _activation
from vmflow.ops.activation import gelu as gelu
from vmflow.ops.activation import log_softmax as log_softmax
from vmflow.ops.activation import sigmoid as sigmoid
from vmflow.ops.activation import softmax as softmax
from vmflow.ops.activation import softplus as softplus
from vmflow.ops.activation import tanh as tanh
from vmflow.ops.convolution import conv2d as conv2d
from vmflow.ops.creation import full, ones
from vmflow.ops.dropout import dropout as dropout
from vmflow.ops.elementwise import where
from vmflow.ops.embedding import embedding as embedding
from vmflow.ops.indexing import one_hot as one_hot
from vmflow.ops.joining import cat
from vmflow.ops.loss import binary_cross_entropy as binary_cross_entropy
from vmflow.ops.loss import binary_cross_entropy_with_logits as binary_cross_entropy_with_logits
from vmflow.ops.loss import cross_entropy as cross_entropy
from vmflow.ops.loss import huber_loss as huber_loss
from vmflow.ops.loss import kl_div as kl_div
from vmflow.ops.loss import l1_loss as l1_loss
from vmflow.ops.loss import mse_loss as mse_loss
from vmflow.ops.loss import nll_loss as nll_loss
from vmflow.ops.loss import smooth_l1_loss as smooth_l1_loss
from vmflow.ops.normalization import batch_norm as batch_norm
from vmflow.ops.normalization import group_norm as group_norm
from vmflow.ops.normalization import layer_norm as layer_norm
from vmflow.ops.pooling import adaptive_avg_pool2d as adaptive_avg_pool2d
from vmflow.ops.pooling import avg_pool2d as avg_pool2d
from vmflow.ops.pooling import max_pool2d as max_pool2d

if TYPE_CHECKING:
    from vmflow.tensors import Tensor


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``input @ weight.T + bias``: (..., in) with (out, in) and (out,) gives (..., out)."""
    if input.shape[-1:] != weight.shape[-1:]:
        raise ValueError(
            f"linear: an input of shape {list(input.shape)} does not fit a weight of shape {list(weight.shape)}; "
            "their last dimensions must agree"
        )
    result = input @ weight.T
    return result if bias is None else result + bias


def relu(input: Tensor, inplace: bool = False) -> Tensor:
    """``max(input, 0)``."""
    return _activation.relu_(input) if inplace else _activation.relu(input)


def silu(input: Tensor, inplace: bool = False) -> Tensor:
    """``input * sigmoid(input)``."""
    return _written(input, _activation.silu(input), inplace)


def leaky_relu(input: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> Tensor:
    """`input` where positive, else ``negative_slope * input``."""
    return _written(input, _activation.leaky_relu(input, negative_slope), inplace)


def elu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """`input` where positive, else ``alpha * (exp(input) - 1)``."""
    return _written(input, _activation.elu(input, alpha), inplace)


def hardtanh(input: Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> Tensor:
    """`input` limited to [min_val, max_val]."""
    return _written(input, _activation.hardtanh(input, min_val, max_val), inplace)


def _written(input: Tensor, result: Tensor, inplace: bool) -> Tensor:
    return input.copy_(result) if inplace else result


def pad(input: Tensor, pad: tuple[int, ...] | list[int], mode: str = "constant", value: float | None = None) -> Tensor:
    """The tensor with elements added at its borders, or with negative numbers taken away.

    Args:
        input: to pad.
        pad: (before, after) of the last dimension, then of the one before it, and so on.
        mode: "constant".
        value: of the new elements, 0 by default.

    Raises:
        ValueError: for an odd number of numbers, more pairs than dimensions, or more taken away than there is.
    """
    if mode != "constant":
        raise ValueError(f"pad: mode must be 'constant', not {mode!r}")
    if len(pad) % 2 or len(pad) // 2 > input.ndim:
        raise ValueError(f"pad: expected at most {input.ndim} pairs of numbers, got {list(pad)}")
    for position in range(len(pad) // 2):
        axis = input.ndim - 1 - position
        before, after = pad[2 * position], pad[2 * position + 1]
        length = input.shape[axis]
        if min(before, 0) + min(after, 0) + length < 0:
            raise ValueError(f"pad: cannot take {before} and {after} away from dimension {axis} of size {length}")
        if before < 0 or after < 0:
            input = input.narrow(axis, max(-before, 0), length + min(before, 0) + min(after, 0))
        pieces = [input]
        if before > 0:
            pieces.insert(0, _border(input, axis, before, value or 0))
        if after > 0:
            pieces.append(_border(input, axis, after, value or 0))
        input = cat(pieces, axis) if len(pieces) > 1 else input
    return input


def _border(input: Tensor, axis: int, size: int, value: float) -> Tensor:
    shape = tuple(input.shape)
    return full(shape[:axis] + (size,) + shape[axis + 1 :], value, dtype=input.dtype, device=input.device)


def normalize(input: Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12) -> Tensor:
    """`input` divided by its p-norm along `dim`, or by `eps` where that is larger."""
    return input / input.norm(p, dim, keepdim=True).clamp(min=eps)


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
) -> Tensor:
    """``softmax(query @ key.mT * scale + mask) @ value`` (Vaswani et al., 2017).

    Args:
        query: (..., L, E).
        key: (..., S, E).
        value: (..., S, V).
        attn_mask: broadcast to (..., L, S); bools say what may be attended to, other dtypes are added.
        dropout_p: probability with which a weight is dropped.
        is_causal: position l attends to positions up to l only; excludes a mask.
        scale: ``1 / sqrt(E)`` by default.

    Returns:
        (..., L, V).
    """
    if is_causal and attn_mask is not None:
        raise ValueError("scaled_dot_product_attention: give is_causal or attn_mask, not both")
    factor = query.shape[-1] ** -0.5 if scale is None else scale
    scores = (query * factor) @ key.mT
    if is_causal:
        attn_mask = ones(query.shape[-2], key.shape[-2], dtype=dtypes.bool_).tril()
    if attn_mask is not None:
        if attn_mask.dtype is dtypes.bool_:
            scores = where(attn_mask, scores, float("-inf"))
        else:
            scores = scores + attn_mask
    return dropout(softmax(scores, -1), dropout_p) @ value
