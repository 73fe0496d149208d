"""The functional forms of layers, activations and losses, under the names of PyTorch or OneFlow."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from vmflow.autograd.grad_mode import is_grad_enabled, no_grad as _no_grad
from vmflow.context import MODE as _MODE
from vmflow.operands import check_tensors as _check_tensors, listed_tensors as _listed_tensors
from vmflow.ops.autocasting import autocast_as_op as _autocast_as_op
from vmflow.ops.destination import delivered as _delivered
from vmflow.ops.elementwise import activation as _activation
from vmflow.ops.elementwise.activation import (
    gelu as gelu,
    relu_ as relu_,
    sigmoid as sigmoid,
    softplus as softplus,
    tanh as tanh,
)
from vmflow.ops.elementwise.gating import (
    glu as glu,
    gumbel_softmax as gumbel_softmax,
    logsigmoid as logsigmoid,
    mish as mish,
    quick_gelu as quick_gelu,
    softmin as softmin,
    softsign as softsign,
    tanhshrink as tanhshrink,
)
from vmflow.ops.elementwise.piecewise import (
    celu as celu,
    celu_ as celu_,
    hardshrink as hardshrink,
    hardsigmoid as hardsigmoid,
    hardswish as hardswish,
    prelu as prelu,
    relu6 as relu6,
    rrelu as rrelu,
    rrelu_ as rrelu_,
    selu as selu,
    selu_ as selu_,
    softshrink as softshrink,
    square_relu as square_relu,
    threshold as threshold,
    threshold_ as threshold_,
)
from vmflow.ops.indexing.gathering import one_hot as one_hot
from vmflow.ops.linalg.distance import (
    cosine_similarity as cosine_similarity,
    pairwise_distance as pairwise_distance,
    pdist as pdist,
)
from vmflow.ops.loss.class_loss import cross_entropy as cross_entropy, nll_loss as nll_loss
from vmflow.ops.loss.ctc_loss import ctc_loss as ctc_loss
from vmflow.ops.loss.likelihood_loss import gaussian_nll_loss as gaussian_nll_loss, poisson_nll_loss as poisson_nll_loss
from vmflow.ops.loss.loss import (
    binary_cross_entropy as binary_cross_entropy,
    binary_cross_entropy_with_logits as binary_cross_entropy_with_logits,
    huber_loss as huber_loss,
    kl_div as kl_div,
    l1_loss as l1_loss,
    mse_loss as mse_loss,
    smooth_l1_loss as smooth_l1_loss,
)
from vmflow.ops.loss.margin_loss import (
    combined_margin as combined_margin,
    cosine_embedding_loss as cosine_embedding_loss,
    hinge_embedding_loss as hinge_embedding_loss,
    margin_ranking_loss as margin_ranking_loss,
    multi_margin_loss as multi_margin_loss,
    multilabel_margin_loss as multilabel_margin_loss,
    multilabel_soft_margin_loss as multilabel_soft_margin_loss,
    soft_margin_loss as soft_margin_loss,
    triplet_margin_loss as triplet_margin_loss,
    triplet_margin_with_distance_loss as triplet_margin_with_distance_loss,
)
from vmflow.ops.nn.adaptive_pooling import (
    adaptive_avg_pool1d as adaptive_avg_pool1d,
    adaptive_avg_pool2d as adaptive_avg_pool2d,
    adaptive_avg_pool3d as adaptive_avg_pool3d,
    adaptive_max_pool1d as adaptive_max_pool1d,
    adaptive_max_pool2d as adaptive_max_pool2d,
    adaptive_max_pool3d as adaptive_max_pool3d,
)
from vmflow.ops.nn.attention import scaled_dot_product_attention as scaled_dot_product_attention
from vmflow.ops.nn.bilinear import bilinear as bilinear
from vmflow.ops.nn.convolution import (
    conv1d as conv1d,
    conv2d as conv2d,
    conv3d as conv3d,
    conv_tbc as conv_tbc,
    conv_transpose1d as conv_transpose1d,
    conv_transpose2d as conv_transpose2d,
    conv_transpose3d as conv_transpose3d,
)
from vmflow.ops.nn.dropout import dropout as dropout
from vmflow.ops.nn.embedding import embedding as embedding
from vmflow.ops.nn.embedding_bag import embedding_bag as embedding_bag
from vmflow.ops.nn.feature_dropout import (
    alpha_dropout as alpha_dropout,
    dropout1d as dropout1d,
    dropout2d as dropout2d,
    dropout3d as dropout3d,
    feature_alpha_dropout as feature_alpha_dropout,
)
from vmflow.ops.nn.fractional_pooling import (
    fractional_max_pool2d as fractional_max_pool2d,
    fractional_max_pool3d as fractional_max_pool3d,
)
from vmflow.ops.nn.grid_sampling import affine_grid as affine_grid, grid_sample as grid_sample
from vmflow.ops.nn.image_normalization import instance_norm as instance_norm, local_response_norm as local_response_norm
from vmflow.ops.nn.linear import linear as linear
from vmflow.ops.nn.multi_head_attention import multi_head_attention_forward as multi_head_attention_forward
from vmflow.ops.nn.normalization import (
    batch_norm as batch_norm,
    group_norm as group_norm,
    layer_norm as layer_norm,
    rms_norm as rms_norm,
)
from vmflow.ops.nn.pooling import (
    avg_pool1d as avg_pool1d,
    avg_pool2d as avg_pool2d,
    avg_pool3d as avg_pool3d,
    max_pool1d as max_pool1d,
    max_pool2d as max_pool2d,
    max_pool3d as max_pool3d,
)
from vmflow.ops.nn.regions import deform_conv2d as deform_conv2d
from vmflow.ops.nn.resampling import (
    interpolate as interpolate,
    upsample as upsample,
    upsample_bilinear as upsample_bilinear,
    upsample_nearest as upsample_nearest,
)
from vmflow.ops.nn.unfolding import fold as fold, unfold as unfold
from vmflow.ops.nn.unpooling import (
    lp_pool1d as lp_pool1d,
    lp_pool2d as lp_pool2d,
    lp_pool3d as lp_pool3d,
    max_unpool1d as max_unpool1d,
    max_unpool2d as max_unpool2d,
    max_unpool3d as max_unpool3d,
)
from vmflow.ops.shape.padding import pad as pad
from vmflow.ops.shape.shuffling import (
    channel_shuffle as channel_shuffle,
    pixel_shuffle as pixel_shuffle,
    pixel_unshuffle as pixel_unshuffle,
)
from vmflow.tensors import Tensor as _Tensor

if TYPE_CHECKING:
    from vmflow.dtypes import dtype as DType
    from vmflow.tensors import Tensor


def relu(input: Tensor, inplace: bool = False) -> Tensor:
    """``max(input, 0)`` of each element, in the input's shape; `inplace` writes into the input.

    Raises:
        TypeError: for anything else than a tensor of real numbers.

    Example:
        >>> flow.nn.functional.relu(flow.tensor([-1.0, 2.0]))
        tensor([0., 2.])
    """
    return _activation.relu_(input) if inplace else _activation.relu(input)


def silu(input: Tensor, inplace: bool = False) -> Tensor:
    """``input * sigmoid(input)`` of each element, in the input's shape; `inplace` writes into the input.

    Raises:
        TypeError: for anything else than a floating-point tensor.

    Example:
        >>> flow.nn.functional.silu(flow.tensor([-1.0, 0.0, 1.0]))
        tensor([-0.2689,  0.0000,  0.7311])
    """
    return _applied(_activation.silu, input, inplace)


def leaky_relu(input: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> Tensor:
    """Each element ``x`` where positive, else ``negative_slope * x``; `inplace` writes into the input.

    Raises:
        TypeError: for anything else than a floating-point tensor.

    Example:
        >>> flow.nn.functional.leaky_relu(flow.tensor([-1.0, 2.0]), 0.5)
        tensor([-0.5000,  2.0000])
    """
    return _applied(_activation.leaky_relu, input, inplace, negative_slope)


def elu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """Each element ``x`` where positive, else ``alpha * (exp(x) - 1)``; `inplace` writes into the input.

    Raises:
        TypeError: for anything else than a floating-point tensor.

    Example:
        >>> flow.nn.functional.elu(flow.tensor([-1.0, 2.0]))
        tensor([-0.6321,  2.0000])
    """
    return _applied(_activation.elu, input, inplace, alpha)


def hardtanh(input: Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> Tensor:
    """Each element limited to [min_val, max_val], in the input's dtype; `inplace` writes into the input.

    Raises:
        TypeError: for anything else than a tensor of real numbers.
        ValueError: if `min_val` is above `max_val`.

    Example:
        >>> flow.nn.functional.hardtanh(flow.tensor([-2.0, 0.5, 3.0]))
        tensor([-1.0000,  0.5000,  1.0000])
    """
    return _applied(_activation.hardtanh, input, inplace, min_val, max_val)


def depend(input: Tensor, depend: Tensor | Sequence[Tensor]) -> Tensor:
    """Return `input`; within a graph, ops on the result run after `depend` is computed, even if no op uses `depend`.

    Outside of graphs, or if `depend` is empty, the result is `input` itself; else it is a copy
    of `input`, and no gradient flows into `depend`.

    Args:
        input: a tensor of any shape.
        depend: a tensor or a sequence of tensors.

    Raises:
        TypeError: for anything else than tensors.

    Example:
        >>> flow.nn.functional.depend(flow.tensor([1.0, 2.0]), flow.zeros(3))
        tensor([1., 2.])
    """
    others = (depend,) if isinstance(depend, _Tensor) else _listed_tensors("depend", depend)
    _check_tensors("depend", input)
    if _MODE.get().interpreter is None or not others:
        return input
    result = input.clone()
    with _no_grad():
        # Copying no elements of a `depend` tensor into the result makes the result depend on that tensor in the graph.
        start = result.reshape(-1)[:0]
        for other in others:
            start.copy_(other.reshape(-1)[:0])
    return result


def leaky_relu_(input: Tensor, negative_slope: float = 0.01) -> Tensor:
    """In-place `leaky_relu`."""
    _check_tensors("leaky_relu_", input)
    return leaky_relu(input, negative_slope, True)


def elu_(input: Tensor, alpha: float = 1.0) -> Tensor:
    """In-place `elu`."""
    _check_tensors("elu_", input)
    return elu(input, alpha, True)


def hardtanh_(input: Tensor, min_val: float = -1.0, max_val: float = 1.0) -> Tensor:
    """In-place `hardtanh`."""
    _check_tensors("hardtanh_", input)
    return hardtanh(input, min_val, max_val, True)


def _applied(function: Callable[..., Tensor], input: Tensor, inplace: bool, *parameters: float) -> Tensor:
    """Return ``function(input, *parameters)``; if `inplace`, write the result into `input`, and return `input`."""
    _check_tensors(function.__name__, input)
    if not inplace:
        return function(input, *parameters)
    # If a gradient is needed, `function` may keep its operand, so it gets a copy: `input` is overwritten below.
    before = input.clone() if input.requires_grad and is_grad_enabled() else input
    return input.copy_(function(before, *parameters))


def normalize(input: Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12, out: Tensor | None = None) -> Tensor:
    """`input` divided by its p-norm along `dim`, or by `eps` where `eps` is larger, in the input's shape.

    Args:
        input: a tensor of any shape.
        p: the order of the norm.
        dim: the dimension along which the norm is computed.
        eps: the least divisor.
        out: a tensor to write the result into.

    Raises:
        TypeError: if `input` is no floating-point or complex tensor, or `out` no tensor on the same device.
        IndexError: if there is no dimension `dim`.
        RuntimeError: if the result does not fit `out`, or autograd would record a call with `out`.

    Example:
        >>> flow.nn.functional.normalize(flow.tensor([[3.0, 4.0], [0.0, 2.0]]))
        tensor([[0.6000, 0.8000],
                [0.0000, 1.0000]])
    """
    if out is not None:
        return _delivered("normalize", out, (input,), lambda: normalized(input, p, dim, eps))
    return normalized(input, p, dim, eps)


@_autocast_as_op
def normalized(input: Tensor, p: float, dim: int, eps: float) -> Tensor:
    """`normalize` without `out`; autocast treats this function as one op.

    Raises:
        TypeError: if `input` is no floating-point or complex tensor.
        IndexError: if there is no dimension `dim`.

    Example:
        >>> flow.nn.functional.normalized(flow.tensor([[3.0, 4.0]]), 2.0, 1, 1e-12)
        tensor([[0.6000, 0.8000]])
    """
    _check_tensors("normalize", input)
    return input / input.norm(p, dim, keepdim=True).clamp(min=eps)


def softmax(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: DType | None = None) -> Tensor:
    """``exp(input) / sum(exp(input))`` along `dim`, computed without overflow.

    Args:
        input: a tensor of any shape.
        dim: the dimension to sum over; None is PyTorch's old choice: 0 for an input of 0, 1 or 3 dimensions, else 1.
        dtype: the dtype to cast `input` to first.

    Raises:
        TypeError: if `input` is no tensor, `dim` no integer, or `dtype` (by default the input's) not floating-point.
        IndexError: if there is no dimension `dim`.

    Example:
        >>> flow.nn.functional.softmax(flow.tensor([1.0, 1.0]), dim=0)
        tensor([0.5000, 0.5000])
    """
    _check_tensors("softmax", input)
    return _activation.softmax(input, _old_choice(input) if dim is None else dim, dtype=dtype)


def log_softmax(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: DType | None = None) -> Tensor:
    """``log(softmax(input, dim))``, accurate also where the softmax is tiny; arguments as for `softmax`.

    Raises:
        TypeError: if `input` is no tensor, `dim` no integer, or `dtype` (by default the input's) not floating-point.
        IndexError: if there is no dimension `dim`.

    Example:
        >>> flow.nn.functional.log_softmax(flow.tensor([0.0, 1000.0]), dim=0)
        tensor([-1000.,     0.])
    """
    _check_tensors("log_softmax", input)
    return _activation.log_softmax(input, _old_choice(input) if dim is None else dim, dtype=dtype)


def _old_choice(input: Tensor) -> int:
    return 0 if input.ndim in (0, 1, 3) else 1


def _with_indices(pool: Callable[..., Any], arguments: str, result: str) -> Callable[..., tuple[Tensor, Tensor]]:
    """Wrap a pooling: call it with ``return_indices=True``; the new docstring shows a call with `arguments`."""
    place = list(inspect.signature(pool).parameters).index("return_indices")

    @functools.wraps(pool)
    def pooled(*operands: Any, **settings: Any) -> tuple[Tensor, Tensor]:
        if len(operands) > place:
            operands = (*operands[:place], True, *operands[place + 1 :])
        else:
            settings["return_indices"] = True
        elements_and_indices: tuple[Tensor, Tensor] = pool(*operands, **settings)
        return elements_and_indices

    pooled.__name__ = pooled.__qualname__ = f"{pool.__name__}_with_indices"
    pooled.__module__ = __name__
    pooled.__doc__ = f"""`{pool.__name__}`, which returns the elements and their indices, in two tensors of one shape.

    Raises:
        TypeError, ValueError: as `{pool.__name__}`.

    Example:
        >>> flow.nn.functional.{pool.__name__}_with_indices({arguments})
        {result}
    """
    return pooled


max_pool1d_with_indices = _with_indices(
    max_pool1d, "flow.tensor([[1.0, 4.0, 3.0, 2.0]]), 2", "(tensor([[4., 3.]]), tensor([[1, 2]]))"
)
max_pool2d_with_indices = _with_indices(
    max_pool2d, "flow.tensor([[[1.0, 4.0], [3.0, 2.0]]]), 2", "(tensor([[[4.]]]), tensor([[[1]]]))"
)
max_pool3d_with_indices = _with_indices(
    max_pool3d, "flow.arange(8.0).reshape(1, 2, 2, 2), 2", "(tensor([[[[7.]]]]), tensor([[[[7]]]]))"
)
adaptive_max_pool1d_with_indices = _with_indices(
    adaptive_max_pool1d, "flow.tensor([[1.0, 4.0, 3.0, 2.0]]), 2", "(tensor([[4., 3.]]), tensor([[1, 2]]))"
)
adaptive_max_pool2d_with_indices = _with_indices(
    adaptive_max_pool2d, "flow.tensor([[[1.0, 4.0], [3.0, 2.0]]]), 1", "(tensor([[[4.]]]), tensor([[[1]]]))"
)
adaptive_max_pool3d_with_indices = _with_indices(
    adaptive_max_pool3d, "flow.arange(8.0).reshape(1, 2, 2, 2), 1", "(tensor([[[[7.]]]]), tensor([[[[7]]]]))"
)
fractional_max_pool2d_with_indices = _with_indices(
    fractional_max_pool2d, "flow.tensor([[[1.0, 4.0], [3.0, 2.0]]]), 2, 1", "(tensor([[[4.]]]), tensor([[[1]]]))"
)
fractional_max_pool3d_with_indices = _with_indices(
    fractional_max_pool3d, "flow.arange(27.0).reshape(1, 3, 3, 3), 2, 1", "(tensor([[[[26.]]]]), tensor([[[[26]]]]))"
)

native_channel_shuffle = channel_shuffle
