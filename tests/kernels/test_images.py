"""Convolutions and pooling in C, through the ops that use them, against numpy's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import vmflow as flow
from vmflow import nn
from vmflow.kernels.native.loading import LOADER

from .support import Array, hard_numbers, in_both_ways, same_bits

functional = flow.nn.functional

pytestmark = [pytest.mark.usefixtures("compiled"), pytest.mark.host]

drawn = settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])


class Shape(NamedTuple):
    """The sizes of a convolution, with one number for each of one or two dimensions."""

    samples: int
    groups: int
    channels: int
    filters: int
    size: tuple[int, ...]
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]


def _sizes(rank: int, least: int, most: int) -> st.SearchStrategy[tuple[int, ...]]:
    return st.tuples(*[st.integers(least, most)] * rank)


@st.composite
def shapes(draw: st.DrawFn) -> Shape:
    """Small ones of all kinds, which leave the ends of vectors, of lines, of blocks and of parts of filters over."""
    rank = draw(st.integers(1, 2))
    kernel, dilation = draw(_sizes(rank, 1, 4)), draw(_sizes(rank, 1, 3))
    padding = draw(_sizes(rank, 0, 3))
    reach = [spread * (taps - 1) + 1 for spread, taps in zip(dilation, kernel, strict=True)]
    least = [max(1, far - 2 * more) for far, more in zip(reach, padding, strict=True)]
    size = tuple([short + draw(st.integers(0, 21)) for short in least])
    samples, groups, channels, filters = [draw(st.integers(1, most)) for most in (9, 3, 4, 19)]
    return Shape(samples, groups, channels, filters, size, kernel, draw(_sizes(rank, 1, 3)), padding, dilation)


def _whole(shape: tuple[int, ...], seed: int) -> flow.Tensor:
    """Small whole numbers: of these sums are exact in any order."""
    return flow.tensor(np.random.default_rng(seed).integers(-4, 5, shape).astype(np.float32))


def _results(shape: Shape, numbers: Callable[[tuple[int, ...], int], flow.Tensor], with_bias: bool) -> list[Array]:
    """A convolution and its gradients."""
    leaves = [
        numbers((shape.samples, shape.groups * shape.channels, *shape.size), 0),
        numbers((shape.groups * shape.filters, shape.channels, *shape.kernel), 1),
        *([numbers((shape.groups * shape.filters,), 2)] if with_bias else []),
    ]
    leaves = [leaf.requires_grad_() for leaf in leaves]
    convolve: Any = functional.conv1d if len(shape.size) == 1 else functional.conv2d
    bias = leaves[2] if with_bias else None
    result = convolve(
        leaves[0], leaves[1], bias, shape.stride, shape.padding, shape.dilation, shape.groups
    )  # fmt: skip
    result.backward(numbers(tuple(result.shape), 3))
    return [result.detach().numpy(), *[leaf.grad.numpy() for leaf in leaves if leaf.grad is not None]]


@given(shapes(), st.booleans())
@drawn
def test_convolutions_of_whole_numbers_are_exact(shape: Shape, with_bias: bool) -> None:
    expected, found = in_both_ways(lambda: _results(shape, _whole, with_bias))
    assert len(found) == 3 + with_bias
    for one, other in zip(expected, found, strict=True):
        assert same_bits(one, other)


@pytest.mark.parametrize(
    "shape",
    [
        Shape(3, 1, 1, 6, (28, 28), (5, 5), (1, 1), (2, 2), (1, 1)),
        Shape(5, 1, 16, 32, (4, 4), (3, 3), (1, 1), (1, 1), (1, 1)),
        Shape(2, 1, 64, 40, (33, 31), (3, 3), (2, 2), (1, 1), (1, 1)),
        Shape(2, 7, 1, 1, (50, 50), (3, 3), (1, 1), (1, 1), (1, 1)),
        Shape(1, 1, 3, 5, (130, 140), (7, 7), (2, 2), (3, 3), (1, 1)),
    ],
)
def test_convolutions_of_usual_sizes(shape: Shape) -> None:
    """No further from the exact result than numpy's, or by a little."""

    def compute(dtype: str) -> list[Array]:
        def numbers(shape: tuple[int, ...], seed: int) -> flow.Tensor:
            return flow.tensor(np.random.default_rng(seed).standard_normal(shape).astype(np.float32).astype(dtype))

        return _results(shape, numbers, True)

    expected, found = in_both_ways(lambda: compute("float32"))
    for exact, numpys, ours in zip(compute("float64"), expected, found, strict=True):
        assert ours.dtype == np.float32
        assert np.abs(ours - exact).max() <= 2 * np.abs(numpys - exact).max() + 1e-6 * np.abs(exact).max()


def test_nan_stays_within_its_windows() -> None:
    x = np.ones((2, 3, 9, 12), np.float32)
    x[0, 1, 4, 11] = np.nan
    x[1, 2, 0, 0] = np.inf
    weight = flow.tensor(np.random.default_rng(0).standard_normal((4, 3, 3, 3)).astype(np.float32))
    expected, found = in_both_ways(lambda: functional.conv2d(flow.tensor(x), weight, None, 1, 1).numpy())
    np.testing.assert_array_equal(np.isnan(expected), np.isnan(found))
    np.testing.assert_array_equal(np.isinf(expected), np.isinf(found))


def test_operands_with_gaps() -> None:
    x, weight = _whole((4, 6, 11, 20), 0), _whole((5, 3, 3, 3), 1)

    def compute() -> list[Array]:
        leaves = [x[:, ::2, :, 1::2].requires_grad_(), weight.detach().clone().requires_grad_()]
        result = functional.conv2d(leaves[0], leaves[1].flip(2))
        turned = _whole((4, 5, 16, 9), 2).permute(0, 1, 3, 2)
        result.backward(turned[..., ::2])
        return [result.detach().numpy(), *[leaf.grad.numpy() for leaf in leaves if leaf.grad is not None]]

    for one, other in zip(*in_both_ways(compute), strict=True):
        assert same_bits(one, other)


def test_columns_are_kept_only_where_numpy_needs_them() -> None:
    model = nn.Sequential(nn.Conv2d(2, 3, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))
    x = _whole((4, 2, 8, 8), 0)

    class Gradients(nn.Graph):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def build(self, x: flow.Tensor) -> Any:
            result = self.model(x)
            return [result, *flow.autograd.grad(result.sum(), list(self.model.parameters()))]

    def ops_and_results() -> tuple[list[str], list[Array]]:
        graph = Gradients()
        results = [tensor.detach().numpy() for tensor in graph(x)]
        return [op.op for op in graph.job.ops], results

    (before, _), (names, of_graph) = in_both_ways(ops_and_results)
    assert "conv2d_with_columns" in before
    assert "conv2d" in names
    assert "conv2d_with_columns" not in names
    result = model(x)
    eager = [result, *flow.autograd.grad(result.sum(), list(model.parameters()))]
    for one, other in zip(eager, of_graph, strict=True):
        assert same_bits(one.detach().numpy(), other)


def test_a_graph_of_a_process_without_c_runs_on_in_one_with_it() -> None:
    LOADER.mode = "off"
    x, weight = _whole((3, 2, 9, 9), 0), _whole((4, 2, 3, 3), 1).requires_grad_()
    result = functional.conv2d(x, weight)
    LOADER.mode = "wait"
    gradients = [flow.autograd.grad(tensor.sum(), [weight])[0] for tensor in (result, functional.conv2d(x, weight))]
    assert all([gradient is not None for gradient in gradients])
    assert same_bits(*[gradient.numpy() for gradient in gradients if gradient is not None])


@pytest.mark.parametrize("mode", ["off", "wait"])
def test_columns_of_the_shape_of_the_input(mode: str) -> None:
    LOADER.mode = mode
    weight = flow.ones(2, 1, 2, requires_grad=True)
    x = flow.tensor([[[1.0, 2.0], [3.0, 4.0]], [[5.0, 6.0], [7.0, 8.0]]])
    functional.conv1d(x, weight, groups=2).sum().backward()
    assert weight.grad is not None
    assert weight.grad.tolist() == [[[6.0, 8.0]], [[10.0, 12.0]]]


# Pooling


@st.composite
def windows(draw: st.DrawFn) -> dict[str, Any]:
    """Arguments of `max_pool1d` and `max_pool2d`, with the shape of their input."""
    rank = draw(st.integers(1, 2))
    kernel = draw(_sizes(rank, 1, 4))
    dilation = draw(_sizes(rank, 1, 3) if draw(st.booleans()) else st.just((1,) * rank))
    padding = tuple([draw(st.integers(0, value // 2)) for value in kernel])
    reach = [spread * (taps - 1) + 1 for spread, taps in zip(dilation, kernel, strict=True)]
    size = [far + draw(st.integers(0, 21)) for far in reach]
    return {
        "shape": (draw(st.integers(1, 4)), draw(st.integers(1, 5)), *size),
        "kernel_size": kernel,
        "stride": draw(st.sampled_from([kernel, *[(step,) * rank for step in (1, 2, 3)]])),
        "padding": padding,
        "dilation": dilation,
        "ceil_mode": draw(st.booleans()),
    }


@given(windows(), st.booleans())
@drawn
def test_largest_elements_and_their_gradient(given: dict[str, Any], ties: bool) -> None:
    numbers = hard_numbers(given.pop("shape"))
    source = flow.tensor(np.round(numbers) if ties else numbers)
    pool: Any = functional.max_pool1d if source.ndim == 3 else functional.max_pool2d

    def compute() -> list[Array]:
        leaf = source.detach().clone().requires_grad_()
        largest, indices = pool(leaf, **given, return_indices=True)
        largest.backward(flow.tensor(np.random.default_rng(1).standard_normal(largest.shape).astype(np.float32)))
        assert leaf.grad is not None
        return [largest.detach().numpy(), indices.numpy(), leaf.grad.numpy(), pool(source, **given).numpy()]

    for expected, found in zip(*in_both_ways(compute), strict=True):
        assert same_bits(expected, found)


def test_long_lines_are_pooled_in_pieces() -> None:
    source = flow.tensor(hard_numbers((2, 3, 6, 301)))
    for one, other in zip(*in_both_ways(lambda: functional.max_pool2d(source, 2, return_indices=True)), strict=True):
        assert same_bits(one.numpy(), other.numpy())


# Batch norm


@pytest.mark.parametrize(
    "shape", [(2, 1), (37, 5), (300, 3, 1), (9, 6, 7), (64, 16, 8, 8), (3, 5, 61, 53), (1, 4, 2, 3)]
)
@pytest.mark.parametrize("parameters", ["both", "neither"])
def test_batch_norm(shape: tuple[int, ...], parameters: str) -> None:
    channels = shape[1]

    def compute(dtype: str = "float32") -> list[Array]:
        def numbers(shape: tuple[int, ...], seed: int) -> flow.Tensor:
            values = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
            return flow.tensor((values + seed).astype(dtype)).requires_grad_()

        leaves = [numbers(shape, 0), *([numbers((channels,), seed) for seed in (1, 2)] if parameters == "both" else [])]
        weight, bias = leaves[1:] or (None, None)
        result = functional.batch_norm(leaves[0], None, None, weight, bias, training=True, eps=1e-3)
        result.backward(numbers(shape, 3).detach())
        return [result.detach().numpy(), *[leaf.grad.numpy() for leaf in leaves if leaf.grad is not None]]

    expected, found = in_both_ways(compute)
    for exact, numpys, ours in zip(compute("float64"), expected, found, strict=True):
        assert ours.dtype == np.float32
        assert np.abs(ours - exact).max() <= 2 * np.abs(numpys - exact).max() + 2e-6 * max(1.0, np.abs(exact).max())


def test_batch_norm_of_half_precision_and_of_many_samples() -> None:
    """Sums of many numbers of one sign lose few digits."""
    x = np.random.default_rng(0).random((40_000, 3)).astype(np.float32) + 10
    _, found = in_both_ways(lambda: functional.batch_norm(flow.tensor(x), None, None, training=True).numpy())
    exact = (x - x.mean(0, np.float64)) / np.sqrt(x.var(0, np.float64) + 1e-5)
    np.testing.assert_allclose(found, exact, atol=2e-5)
    half = flow.tensor(x[:500].astype(np.float16))
    one, other = in_both_ways(lambda: functional.batch_norm(half, None, None, training=True).numpy())
    assert other.dtype == np.float16
    np.testing.assert_allclose(one.astype(np.float32), other.astype(np.float32), atol=4e-3)
