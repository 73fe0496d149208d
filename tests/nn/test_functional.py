"""`nn.functional`: names, signatures, and functions made of several ops."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import vmflow as flow
import vmflow.nn.functional as F
from tests.support import arrays_for, check_gradients

Array = NDArray[Any]

# Name to parameters with defaults, as PyTorch has them.
SIGNATURES = {
    "adaptive_avg_pool1d": "input, output_size",
    "adaptive_avg_pool2d": "input, output_size",
    "adaptive_avg_pool3d": "input, output_size",
    "adaptive_max_pool1d": "input, output_size, return_indices=False",
    "adaptive_max_pool2d": "input, output_size, return_indices=False",
    "adaptive_max_pool3d": "input, output_size, return_indices=False",
    "affine_grid": "theta, size, align_corners=None",
    "avg_pool1d": "input, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True",
    "avg_pool2d": "input, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True, "
    "divisor_override=None",
    "avg_pool3d": "input, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True, "
    "divisor_override=None",
    "batch_norm": "input, running_mean, running_var, weight=None, bias=None, training=False, momentum=0.1, eps=1e-05",
    "binary_cross_entropy": "input, target, weight=None, reduction='mean'",
    "binary_cross_entropy_with_logits": "input, target, weight=None, reduction='mean', pos_weight=None",
    "channel_shuffle": "input, groups",
    "conv1d": "input, weight, bias=None, stride=1, padding=0, dilation=1, groups=1",
    "conv2d": "input, weight, bias=None, stride=1, padding=0, dilation=1, groups=1",
    "conv3d": "input, weight, bias=None, stride=1, padding=0, dilation=1, groups=1",
    "conv_transpose1d": "input, weight, bias=None, stride=1, padding=0, output_padding=0, groups=1, dilation=1",
    "conv_transpose2d": "input, weight, bias=None, stride=1, padding=0, output_padding=0, groups=1, dilation=1",
    "conv_transpose3d": "input, weight, bias=None, stride=1, padding=0, output_padding=0, groups=1, dilation=1",
    "cross_entropy": "input, target, weight=None, ignore_index=-100, reduction='mean', label_smoothing=0.0",
    "dropout": "input, p=0.5, training=True, inplace=False",
    "elu": "input, alpha=1.0, inplace=False",
    "embedding": "input, weight, padding_idx=None, max_norm=None, norm_type=2.0, scale_grad_by_freq=False, "
    "sparse=False",
    "fold": "input, output_size, kernel_size, dilation=1, padding=0, stride=1",
    "gelu": "input, approximate='none'",
    "grid_sample": "input, grid, mode='bilinear', padding_mode='zeros', align_corners=None",
    "group_norm": "input, num_groups, weight=None, bias=None, eps=1e-05",
    "hardtanh": "input, min_val=-1.0, max_val=1.0, inplace=False",
    "huber_loss": "input, target, reduction='mean', delta=1.0, weight=None",
    "instance_norm": "input, running_mean=None, running_var=None, weight=None, bias=None, use_input_stats=True, "
    "momentum=0.1, eps=1e-05",
    "interpolate": "input, size=None, scale_factor=None, mode='nearest', align_corners=None, "
    "recompute_scale_factor=None, antialias=False",
    "kl_div": "input, target, reduction='mean', log_target=False",
    "l1_loss": "input, target, reduction='mean', weight=None",
    "layer_norm": "input, normalized_shape, weight=None, bias=None, eps=1e-05",
    "leaky_relu": "input, negative_slope=0.01, inplace=False",
    "linear": "input, weight, bias=None",
    "local_response_norm": "input, size, alpha=0.0001, beta=0.75, k=1.0",
    "log_softmax": "input, dim=None, _stacklevel=3, dtype=None",
    "lp_pool1d": "input, norm_type, kernel_size, stride=None, ceil_mode=False",
    "lp_pool2d": "input, norm_type, kernel_size, stride=None, ceil_mode=False",
    "lp_pool3d": "input, norm_type, kernel_size, stride=None, ceil_mode=False",
    "max_pool1d": "input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False",
    "max_pool2d": "input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False",
    "max_pool3d": "input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False",
    "max_unpool1d": "input, indices, kernel_size, stride=None, padding=0, output_size=None",
    "max_unpool2d": "input, indices, kernel_size, stride=None, padding=0, output_size=None",
    "max_unpool3d": "input, indices, kernel_size, stride=None, padding=0, output_size=None",
    "mse_loss": "input, target, reduction='mean', weight=None",
    "nll_loss": "input, target, weight=None, ignore_index=-100, reduction='mean'",
    "normalize": "input, p=2.0, dim=1, eps=1e-12, out=None",
    "one_hot": "tensor, num_classes=-1",
    "pad": "input, pad, mode='constant', value=None",
    "pixel_shuffle": "input, upscale_factor",
    "pixel_unshuffle": "input, downscale_factor",
    "relu": "input, inplace=False",
    "rms_norm": "input, normalized_shape, weight=None, eps=None",
    "scaled_dot_product_attention": "query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, "
    "enable_gqa=False",
    "sigmoid": "input, out=None",  # torch.sigmoid's, which this is
    "silu": "input, inplace=False",
    "smooth_l1_loss": "input, target, reduction='mean', beta=1.0",
    "softmax": "input, dim=None, _stacklevel=3, dtype=None",
    "softplus": "input, beta=1, threshold=20",
    "tanh": "input, out=None",
    "unfold": "input, kernel_size, dilation=1, padding=0, stride=1",
}


@pytest.mark.parametrize("name", SIGNATURES)
def test_signatures_are_pytorchs(name: str) -> None:
    parameters = inspect.signature(getattr(F, name)).parameters.values()
    shown = [
        parameter.name if parameter.default is parameter.empty else f"{parameter.name}={parameter.default!r}"
        for parameter in parameters
        if parameter.name not in ("data_format", "addend", "generator", "size_average", "reduce")
    ]  # which are OneFlow's, or deprecated, and by keyword only
    assert ", ".join(shown) == SIGNATURES[name]


def test_a_small_network_learns() -> None:
    """All layers of a convolutional classifier together, forwards and backwards."""
    generator = np.random.default_rng(0)
    images = flow.tensor(generator.standard_normal((24, 1, 8, 8)).astype(np.float32))
    labels = flow.tensor(np.arange(24) % 3)
    shapes = [(6, 1, 3, 3), (6,), (6,), (6,), (3, 6 * 4 * 4), (3,)]
    weights = [
        flow.tensor(generator.standard_normal(shape).astype(np.float32) * 0.3, requires_grad=True) for shape in shapes
    ]
    running = flow.zeros(6), flow.ones(6)

    def loss(training: bool) -> flow.Tensor:
        hidden = F.conv2d(images, weights[0], weights[1], padding=1)
        hidden = F.relu(F.batch_norm(hidden, *running, weights[2], weights[3], training))
        hidden = F.dropout(F.max_pool2d(hidden, 2).flatten(1), 0.1, training)
        return F.cross_entropy(F.linear(hidden, weights[4], weights[5]), labels)

    first = loss(False).item()
    for _ in range(120):
        for gradient, weight in zip(flow.autograd.grad(loss(True), weights), weights, strict=True):
            assert gradient is not None
            with flow.no_grad():
                weight.sub_(gradient * 0.2)
    assert loss(False).item() < 0.1 * first


# Activations in place

IN_PLACE: list[Any] = [F.relu, F.silu, F.leaky_relu, F.elu, F.hardtanh]


@pytest.mark.parametrize("function", IN_PLACE)
def test_in_place(function: Any) -> None:
    (array,) = arrays_for(1, (3, 4))
    x = flow.tensor(array)
    expected = function(x)
    assert x.tolist() == array.tolist()
    assert function(x, inplace=True) is x
    np.testing.assert_array_equal(x.numpy(), expected.numpy())


@pytest.mark.parametrize("function", IN_PLACE)
@pytest.mark.parametrize("inplace", [False, True])
def test_only_tensors_are_taken(function: Any, inplace: bool) -> None:
    with pytest.raises(TypeError, match="expected tensors, got list"):
        function([1.0], inplace=inplace)


@pytest.mark.parametrize("function", IN_PLACE)
def test_in_place_is_recorded(function: Any) -> None:
    (array,) = arrays_for(2, (3, 4))
    leaves = [flow.tensor(array, requires_grad=True) for _ in range(2)]
    for leaf, inplace in zip(leaves, (True, False), strict=True):
        function(leaf * 2, inplace=inplace).sum().backward()
    first, second = (leaf.grad for leaf in leaves)
    assert first is not None
    assert second is not None
    np.testing.assert_array_equal(first.numpy(), second.numpy())


@pytest.mark.parametrize("rank", [0, 1, 2, 3, 4])
def test_the_old_choice_of_a_softmax_dimension(rank: int) -> None:
    (array,) = arrays_for(3, (2, 3, 4, 2)[:rank])
    x = flow.tensor(array)
    dim = 0 if rank in (0, 1, 3) else 1
    np.testing.assert_array_equal(F.softmax(x).numpy(), F.softmax(x, dim).numpy())
    np.testing.assert_array_equal(F.log_softmax(x).numpy(), F.log_softmax(x, dim).numpy())
    assert F.softmax(x, dim, dtype=flow.float32).dtype is flow.float32


# normalize


@pytest.mark.parametrize("p", [1.0, 2.0, 3.0, float("inf")])
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_normalize(p: float, dim: int) -> None:
    (x,) = arrays_for(4, (2, 3, 4))
    norm = np.linalg.norm(x, p, dim, keepdims=True)
    np.testing.assert_allclose(F.normalize(flow.tensor(x), p, dim).numpy(), x / norm, rtol=1e-12)
    check_gradients(lambda x: F.normalize(x, p, dim), x)


def test_nothing_to_normalize() -> None:
    x = flow.zeros(2, 3, requires_grad=True)
    result = F.normalize(x)
    assert result.tolist() == [[0.0] * 3] * 2
    result.sum().backward()
    assert x.grad is not None
    assert np.isfinite(x.grad.numpy()).all()


# Attention


def attention(q: Array, k: Array, v: Array, mask: Array | None, scale: float) -> Array:
    """One query at a time, for operands without broadcasting."""
    result = np.zeros((*q.shape[:-1], v.shape[-1]))
    for place in np.ndindex(q.shape[:-1]):
        scores = np.array([q[place] @ row for row in k[place[:-1]]]) * scale
        if mask is not None:
            scores = scores + mask[place[-1]]
        if np.isneginf(scores).all():
            continue
        weights = np.exp(scores - scores.max())
        result[place] = (weights / weights.sum()) @ v[place[:-1]]
    return result


MASKS: dict[str, Array | None] = {
    "none": None,
    "bool": np.array([[True, False, True, True], [False, False, False, False], [True, True, True, True]]),
    "added": np.array([[0.5, -np.inf, 1.0, 0.0], [-np.inf] * 4, [0.0, 0.0, 0.0, -2.0]]),
}


@pytest.mark.parametrize("kind", MASKS)
@pytest.mark.parametrize("scale", [None, 0.3])
def test_attention(kind: str, scale: float | None) -> None:
    q, k, v = arrays_for(5, (2, 3, 5), (2, 4, 5), (2, 4, 2))
    mask = MASKS[kind]
    added = np.where(mask, 0.0, -np.inf) if mask is not None and mask.dtype == bool else mask
    given = None if mask is None else flow.tensor(mask)

    def function(q: flow.Tensor, k: flow.Tensor, v: flow.Tensor) -> flow.Tensor:
        return F.scaled_dot_product_attention(q, k, v, given, scale=scale)

    expected = attention(q, k, v, added, 5**-0.5 if scale is None else scale)
    np.testing.assert_allclose(function(*[flow.tensor(value) for value in (q, k, v)]).numpy(), expected, rtol=1e-10)
    check_gradients(function, q, k, v)


def test_an_added_mask_gets_its_gradient() -> None:
    q, k, v, mask = arrays_for(6, (3, 5), (4, 5), (4, 2), (3, 4))
    check_gradients(F.scaled_dot_product_attention, q, k, v, mask, second=True)


@pytest.mark.parametrize("length", [2, 4, 6])
def test_causal_attention(length: int) -> None:
    q, k, v = arrays_for(7, (2, length, 5), (2, 4, 5), (2, 4, 2))
    mask = np.where(np.tril(np.ones((length, 4), bool)), 0.0, -np.inf)
    result = F.scaled_dot_product_attention(flow.tensor(q), flow.tensor(k), flow.tensor(v), is_causal=True)
    np.testing.assert_allclose(result.numpy(), attention(q, k, v, mask, 5**-0.5), rtol=1e-10)


def test_shared_heads() -> None:
    q, k, v = arrays_for(8, (2, 6, 3, 5), (2, 2, 4, 5), (2, 2, 4, 3))
    result = F.scaled_dot_product_attention(flow.tensor(q), flow.tensor(k), flow.tensor(v), enable_gqa=True)
    expected = attention(q, np.repeat(k, 3, 1), np.repeat(v, 3, 1), None, 5**-0.5)
    np.testing.assert_allclose(result.numpy(), expected, rtol=1e-10)


def test_attention_drops_weights() -> None:
    q, k = flow.zeros(1, 4), flow.zeros(1000, 4)
    result = F.scaled_dot_product_attention(q, k, flow.ones(1000, 1), dropout_p=0.5).item()
    assert 0.8 < result < 1.2
    assert result != 1.0


def test_attention_in_half_precision() -> None:
    q, k, v = (flow.tensor(value, dtype=flow.float16) for value in arrays_for(9, (3, 8), (4, 8), (4, 2)))
    mask = flow.tensor(MASKS["bool"])
    result = F.scaled_dot_product_attention(q, k, v, mask)
    assert result.dtype is flow.float16
    expected = F.scaled_dot_product_attention(q.float(), k.float(), v.float(), mask)
    np.testing.assert_allclose(result.float().numpy(), expected.numpy(), atol=5e-3)


@pytest.mark.parametrize(
    ("message", "call"),
    [
        ("not both", lambda q, m: F.scaled_dot_product_attention(q, q, q, m, is_causal=True)),
        (r"\[3, 4\], \[3, 2\] and \[3, 4\]", lambda q, m: F.scaled_dot_product_attention(q, q[:, :2], q)),
        (r"a value \(\.\.\., S, V\)", lambda q, m: F.scaled_dot_product_attention(q, q, q[:2])),
        ("expected a query", lambda q, m: F.scaled_dot_product_attention(q[0], q, q)),
        ("must be a multiple", lambda q, m: F.scaled_dot_product_attention(q, q, q, enable_gqa=True)),
        (
            "must be a multiple",
            lambda q, m: F.scaled_dot_product_attention(q[:, None], q[:2, None], q[:2, None], enable_gqa=True),
        ),
    ],
)
def test_bad_arguments_of_attention(message: str, call: Any) -> None:
    with pytest.raises(ValueError, match=f"scaled_dot_product_attention: .*{message}"):
        call(flow.zeros(3, 4), flow.zeros(3, 3))
