"""Normalisation against plain numpy, one channel or sample at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import vmflow as flow
from tests.support import arrays_for, check_gradients
from vmflow.kernels.numpy import normalization
from vmflow.ops.nn.normalization import batch_norm, group_norm, layer_norm, rms_norm

pytestmark = pytest.mark.usefixtures("contract")

Array = NDArray[Any]

# samples by channels by few values, by none, by more values than are repeated per channel
SHAPES = [(4, 3), (3, 2, 5), (2, 3, 2, 3), (2, 2, 1, 300)]


def by_channel(x: Array, weight: Array | None, bias: Array | None, eps: float = 1e-5) -> Array:
    result = np.empty_like(x)
    for channel in range(x.shape[1]):
        values = x[:, channel]
        deviation = values - sum(values.flat) / values.size
        variance = sum((deviation * deviation).flat) / values.size
        result[:, channel] = deviation / np.sqrt(variance + eps)
        if weight is not None:
            result[:, channel] *= weight[channel]
        if bias is not None:
            result[:, channel] += bias[channel]
    return result


def by_sample(x: Array, dims: int, eps: float = 1e-5) -> Array:
    flat = x.reshape(-1, int(np.prod(x.shape[x.ndim - dims :])))
    rows = [
        (row - row.sum() / row.size) / np.sqrt(((row - row.sum() / row.size) ** 2).sum() / row.size + eps)
        for row in flat
    ]
    return np.array(rows).reshape(x.shape)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("affine", [(True, True), (True, False), (False, True), (False, False)])
def test_batch_norm(shape: tuple[int, ...], affine: tuple[bool, bool]) -> None:
    x, w, b = arrays_for(1, shape, shape[1:2], shape[1:2])
    weight, bias = (value if given else None for value, given in zip((w, b), affine, strict=True))
    scale, shift = (None if value is None else flow.tensor(value) for value in (weight, bias))
    result = batch_norm(flow.tensor(x + 3), None, None, scale, shift, training=True)
    np.testing.assert_allclose(result.numpy(), by_channel(x + 3, weight, bias), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_running_statistics(shape: tuple[int, ...]) -> None:
    x, mean, variance = arrays_for(2, shape, shape[1:2], shape[1:2])
    running_mean, running_var = flow.tensor(mean), flow.tensor(variance**2)
    source = flow.tensor(x, requires_grad=True)
    batch_norm(source, running_mean, running_var, training=True, momentum=0.3)
    channels = np.moveaxis(x, 1, 0).reshape(shape[1], -1)
    np.testing.assert_allclose(running_mean.numpy(), 0.7 * mean + 0.3 * channels.mean(1), rtol=1e-12)
    np.testing.assert_allclose(running_var.numpy(), 0.7 * variance**2 + 0.3 * channels.var(1, ddof=1), rtol=1e-12)
    assert not running_mean.requires_grad


def test_running_statistics_follow_program_order() -> None:
    (x,) = arrays_for(3, (4, 2))
    running = flow.zeros(2, dtype=flow.float64)
    before = running.clone()
    batch_norm(flow.tensor(x), running, None, training=True, momentum=1.0)
    between = running.clone()
    batch_norm(flow.tensor(x + 1), running, None, training=True, momentum=1.0)
    np.testing.assert_array_equal(before.numpy(), 0.0)
    np.testing.assert_allclose(between.numpy(), x.mean(0), rtol=1e-12)
    np.testing.assert_allclose(running.numpy(), x.mean(0) + 1, rtol=1e-12)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_batch_norm_outside_of_training(shape: tuple[int, ...]) -> None:
    x, w, b, mean, variance = arrays_for(4, shape, *[shape[1:2]] * 4)
    variance = variance**2
    column = (-1, *[1] * (len(shape) - 2))
    expected = (x - mean.reshape(column)) / np.sqrt(variance.reshape(column) + 1e-3) * w.reshape(column) + b.reshape(
        column
    )
    running = flow.tensor(mean), flow.tensor(variance)
    result = batch_norm(flow.tensor(x), *running, flow.tensor(w), flow.tensor(b), eps=1e-3)
    np.testing.assert_allclose(result.numpy(), expected, rtol=1e-10, atol=1e-12)
    np.testing.assert_array_equal(running[0].numpy(), mean)
    plain = batch_norm(flow.tensor(x), *running, eps=1e-3).numpy()
    np.testing.assert_allclose(plain * w.reshape(column) + b.reshape(column), expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("shape", [(4, 2), (3, 2, 2), (2, 2, 2, 2)], ids=str)
@pytest.mark.parametrize("training", [True, False])
def test_batch_norm_gradients(shape: tuple[int, ...], training: bool) -> None:
    x, w, b, mean, variance = arrays_for(5, shape, *[shape[1:2]] * 4)
    running = flow.tensor(mean), flow.tensor(variance**2 + 0.5)

    def function(x: flow.Tensor, w: flow.Tensor | None = None, b: flow.Tensor | None = None) -> flow.Tensor:
        if training:
            return batch_norm(x, None, None, w, b, training=True)
        return batch_norm(x, *running, w, b)

    check_gradients(function, x, w, b, second=True, rtol=1e-4)
    check_gradients(function, x)
    check_gradients(lambda x, b: function(x, None, b), x, b)


def test_the_fused_gradient_is_the_recorded_one() -> None:
    """Long channels, so that loops run over values; each gradient by its own way."""
    x, w = arrays_for(6, (2, 2, 300), (2,))
    functions: list[Any] = [
        lambda x, w: batch_norm(x, None, None, w, training=True),
        lambda x, w: layer_norm(x.transpose(1, 2), 2, w),
    ]
    for function in functions:
        tensors = [flow.tensor(value, requires_grad=True) for value in (x, w)]
        loss = (function(*tensors) ** 3).sum()
        fused = flow.autograd.grad(loss, tensors, retain_graph=True)
        recorded = flow.autograd.grad(loss, tensors, create_graph=True)
        for have, want in zip(fused, recorded, strict=True):
            assert have is not None
            assert want is not None
            assert want.requires_grad
            np.testing.assert_allclose(have.numpy(), want.detach().numpy(), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("shape", [(5,), (4, 5), (2, 3, 4)], ids=str)
def test_layer_norm(shape: tuple[int, ...]) -> None:
    (x,) = arrays_for(7, shape)
    for dims in range(1, len(shape) + 1):
        normalized = shape[-dims:]
        w, b = arrays_for(8, normalized, normalized)
        expected = by_sample(x, dims)
        result = layer_norm(flow.tensor(x), normalized, flow.tensor(w), flow.tensor(b))
        np.testing.assert_allclose(result.numpy(), expected * w + b, rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(layer_norm(flow.tensor(x), normalized).numpy(), expected, rtol=1e-10, atol=1e-12)
        result = layer_norm(flow.tensor(x), list(normalized), None, flow.tensor(b))
        np.testing.assert_allclose(result.numpy(), expected + b, rtol=1e-10, atol=1e-12)
    assert layer_norm(flow.tensor(x), shape[-1]).shape == shape


def test_layer_norm_gradients() -> None:
    x, w, b = arrays_for(9, (2, 2, 3), (2, 3), (2, 3))
    check_gradients(lambda x, w, b: layer_norm(x, (2, 3), w, b), x, w, b, second=True, rtol=1e-4)
    check_gradients(lambda x: layer_norm(x, 3), x)
    check_gradients(lambda x, b: layer_norm(x, (2, 3), None, b), x, b)


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_group_norm(groups: int) -> None:
    x, w, b = arrays_for(10, (2, 4, 3), (4,), (4,))
    expected = by_sample(x.reshape(2, groups, -1), 1).reshape(x.shape) * w[:, None] + b[:, None]
    result = group_norm(flow.tensor(x), groups, flow.tensor(w), flow.tensor(b))
    np.testing.assert_allclose(result.numpy(), expected, rtol=1e-10, atol=1e-12)
    check_gradients(lambda x, w, b: group_norm(x, groups, w, b), x[:, :, :2], w, b, second=groups == 2, rtol=1e-4)


def test_rms_norm() -> None:
    x, w = arrays_for(11, (2, 3, 4), (3, 4))
    expected = x / np.sqrt((x * x).mean((1, 2), keepdims=True) + 1e-3) * w
    result = rms_norm(flow.tensor(x), (3, 4), flow.tensor(w), 1e-3)
    np.testing.assert_allclose(result.numpy(), expected, rtol=1e-10)
    check_gradients(lambda x, w: rms_norm(x, (3, 4), w), x, w)
    single = flow.zeros(1, 4)
    assert rms_norm(single, 4).tolist() == [[0.0] * 4]


@pytest.mark.parametrize("dtype", [flow.bfloat16, flow.float16], ids=str)
def test_rms_norm_of_16_bits_adds_the_eps_of_float32(dtype: flow.dtype) -> None:
    small = flow.full((1, 4), 0.01).to(dtype)
    np.testing.assert_allclose(rms_norm(small, 4).float().numpy(), 1, atol=2e-3)


FUNCTIONS: list[Any] = [
    lambda x: batch_norm(x, None, None, training=True),
    lambda x: layer_norm(x, tuple(x.shape[2:])),
    lambda x: group_norm(x, 2),
    lambda x: rms_norm(x, x.shape[-1]),
]


@pytest.mark.parametrize("function", FUNCTIONS)
def test_strided_input_and_gradient(function: Any) -> None:
    (x,) = arrays_for(12, (5, 3, 4, 6))
    moved = flow.tensor(x).permute(3, 2, 1, 0).requires_grad_()
    whole = flow.tensor(np.ascontiguousarray(x.transpose(3, 2, 1, 0)), requires_grad=True)
    weights = flow.tensor(arrays_for(13, (5, 3, 4, 6))[0])
    for tensor in (moved, whole):
        result = function(tensor)
        (result.permute(3, 2, 1, 0) * weights).sum().backward()
    np.testing.assert_allclose(function(moved).detach().numpy(), function(whole).detach().numpy(), rtol=1e-12)
    assert moved.grad is not None
    assert whole.grad is not None
    np.testing.assert_allclose(moved.grad.numpy(), whole.grad.numpy(), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("dtype", [flow.float16, flow.bfloat16])
@pytest.mark.parametrize("function", [*FUNCTIONS, lambda x: batch_norm(x, flow.zeros(4), flow.ones(4))])
@pytest.mark.parametrize("size", [3, 200])
def test_half_precision_computes_in_single(function: Any, dtype: flow.dtype, size: int) -> None:
    (array,) = arrays_for(14, (4, 4, size), low=90, high=110)
    x = flow.tensor(array, dtype=dtype, requires_grad=True)
    single = x.detach().float().requires_grad_()
    result, expected = function(x), function(single)
    assert result.dtype is dtype
    np.testing.assert_allclose(result.detach().float().numpy(), expected.detach().numpy(), rtol=1e-2, atol=1e-2)
    weights = flow.tensor(arrays_for(15, (4, 4, size))[0], dtype=flow.float32)
    (result * weights).sum().backward()
    (expected * weights).sum().backward()
    assert x.grad is not None
    assert single.grad is not None
    assert x.grad.dtype is dtype
    np.testing.assert_allclose(x.grad.float().numpy(), single.grad.numpy(), rtol=2e-2, atol=2e-2)


def test_half_input_with_single_parameters() -> None:
    x, w, b = arrays_for(16, (8, 4), (4,), (4,))
    half = flow.tensor(x, dtype=flow.float16, requires_grad=True)
    weight, bias = (flow.tensor(value, dtype=flow.float32, requires_grad=True) for value in (w, b))
    batch_norm(half, flow.zeros(4), flow.ones(4), weight, bias, training=True).float().sum().backward()
    assert weight.grad is not None
    assert weight.grad.dtype is flow.float32
    assert half.grad is not None
    assert half.grad.dtype is flow.float16


def test_a_large_mean_does_not_spoil_the_variance() -> None:
    x = (np.random.default_rng(0).standard_normal((64, 2, 8)) + 1e3).astype(np.float32)
    expected = by_channel(x.astype(np.float64), None, None)
    result = batch_norm(flow.tensor(x), None, None, training=True).numpy()
    np.testing.assert_allclose(result, expected, atol=2e-3)
    result = layer_norm(flow.tensor(x.reshape(64, 16)), 16).numpy()
    np.testing.assert_allclose(result, by_sample(x.reshape(64, 16).astype(np.float64), 1), atol=2e-3)


def test_empty_batches() -> None:
    assert layer_norm(flow.zeros(0, 3), 3).shape == (0, 3)
    assert group_norm(flow.zeros(0, 4, 3), 2).shape == (0, 4, 3)
    assert batch_norm(flow.zeros(0, 3, 2), flow.zeros(3), flow.ones(3)).shape == (0, 3, 2)


def test_statistics_are_updated_on_a_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """The running statistics are storages like any other: their updates are instructions that await their turn."""
    import asyncio

    monkeypatch.setattr(normalization, "_SHORT", 0)

    async def main() -> float:
        running = flow.zeros(1)
        for step in range(5):
            batch_norm(flow.full((2, 1, 4), float(step)), running, None, training=True, momentum=0.5)
        return float((await running).item())

    expected = 0.0
    for step in range(5):
        expected = 0.5 * expected + 0.5 * step
    assert asyncio.run(main()) == expected


@pytest.mark.parametrize(
    ("message", "call"),
    [
        (r"batch_norm: expected an input \(samples, channels", lambda: batch_norm(flow.zeros(3), None, None)),
        (r"at least 2 values per channel.*\[1, 3\]", lambda: batch_norm(flow.zeros(1, 3), None, None, training=True)),
        (r"at least 2 values per channel", lambda: batch_norm(flow.zeros(0, 3), None, None, training=True)),
        (r"running_mean and running_var are needed", lambda: batch_norm(flow.zeros(2, 3), None, None)),
        (
            r"running_mean must have shape \[3\], not \[2\]",
            lambda: batch_norm(flow.zeros(2, 3), flow.zeros(2), flow.ones(3), training=True),
        ),
        (
            r"running_var must have shape \[3\], not \[2\]",
            lambda: batch_norm(flow.zeros(2, 3), flow.zeros(3), flow.ones(2)),
        ),
        (
            r"weight must have shape \[3\], not \[2\]",
            lambda: batch_norm(flow.zeros(2, 3), None, None, flow.ones(2), training=True),
        ),
        (r"normalized_shape \[4\].*\[2, 3\]", lambda: layer_norm(flow.zeros(2, 3), 4)),
        (r"normalized_shape \[\]", lambda: layer_norm(flow.zeros(2, 3), [])),
        (r"layer_norm: .*bias must have shape \[3\]", lambda: layer_norm(flow.zeros(2, 3), 3, None, flow.zeros(2))),
        (r"whose channels 2 groups divide, got \[2, 3\]", lambda: group_norm(flow.zeros(2, 3), 2)),
        (r"group_norm: .*weight must have shape \[4\]", lambda: group_norm(flow.zeros(2, 4), 2, flow.zeros(2))),
        (r"rms_norm: .*weight must have shape \[3\]", lambda: rms_norm(flow.zeros(2, 3), 3, flow.zeros(2))),
    ],
)
def test_bad_arguments(message: str, call: Any) -> None:
    with pytest.raises(ValueError, match=message):
        call()


def test_dtypes_that_do_not_fit() -> None:
    whole = flow.ones(4, 4, dtype=flow.int64)
    for function in FUNCTIONS:
        with pytest.raises(TypeError, match="not defined for int64"):
            function(whole.reshape(2, 2, 4))


def test_a_batch_without_channels_is_normalized_to_nothing() -> None:
    mean, variance = flow.zeros(0), flow.ones(0)
    x = flow.ones(2, 0, 3, requires_grad=True)
    result = batch_norm(x, mean, variance, training=True)
    result.sum().backward()
    assert result.shape == (2, 0, 3)
    assert x.grad is not None
    assert x.grad.shape == (2, 0, 3)
