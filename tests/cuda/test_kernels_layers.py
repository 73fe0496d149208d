"""Kernels of CUDA devices against those of the CPU: normalisation, losses, dropout, and random numbers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import vmflow as flow
from vmflow.instructions.blob import meta
from vmflow.nn import functional as F

from .comparing import FLOATS, compare, equal, on_cpu, results, values

pytestmark = pytest.mark.emulated

_ALL_PARAMETERS = [(weight, bias) for weight in (False, True) for bias in (False, True)]


def _parameters(shape: tuple[int, ...], dtype: str, weight: bool, bias: bool) -> tuple[flow.Tensor, ...]:
    return tuple([values(30 + place, shape, dtype) for place in range(weight + bias)])


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(("weight", "bias"), _ALL_PARAMETERS)
@pytest.mark.parametrize("shape", [(6, 3), (4, 3, 5), (2, 3, 4, 2)])
def test_batch_norm(shape: tuple[int, ...], weight: bool, bias: bool, dtype: str) -> None:
    options: Any = (1e-3, weight, bias)
    array, parameters = values(1, shape, dtype), _parameters((3,), dtype, weight, bias)
    compare("batch_norm", (array, *parameters), options)
    _, mean, variance = results("batch_norm", (array, *parameters), options, ())
    statistics = on_cpu(mean), on_cpu(variance)
    compare("batch_norm_gradient", (values(2, shape, dtype), array, *statistics, *parameters[:weight]), options)
    running = values(3, (3,), dtype), values(4, (3,), dtype, 0.5, 2.0)
    compare("batch_norm_inference", (array, *running, *parameters), options)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(("weight", "bias"), _ALL_PARAMETERS)
@pytest.mark.parametrize(("shape", "normalized"), [((4, 6), (6,)), ((2, 3, 4), (3, 4)), ((0, 4), (4,))])
def test_layer_norm(shape: tuple[int, ...], normalized: tuple[int, ...], weight: bool, bias: bool, dtype: str) -> None:
    attributes: Any = (normalized, (1e-3, weight, bias))
    array, parameters = values(1, shape, dtype), _parameters(normalized, dtype, weight, bias)
    compare("layer_norm", (array, *parameters), attributes)
    _, mean, scale = results("layer_norm", (array, *parameters), attributes, ())
    statistics = on_cpu(mean), on_cpu(scale)
    compare("layer_norm_gradient", (values(2, shape, dtype), array, *statistics, *parameters[:weight]), attributes)


def _gradients(loss: Callable[..., flow.Tensor], scores: flow.Tensor, *others: flow.Tensor) -> list[Any]:
    """A loss and its gradient by the scores."""
    leaf = scores.detach().requires_grad_()
    found = loss(leaf, *others)
    found.backward(flow.ones_like(found))
    assert leaf.grad is not None
    return [found.detach().to("cpu").numpy(), leaf.grad.to("cpu").numpy()]


def _compare_gradients(loss: Callable[..., flow.Tensor], scores: flow.Tensor, *others: flow.Tensor) -> None:
    expected = _gradients(loss, scores, *others)
    found = _gradients(loss, scores.to("cuda"), *[other.to("cuda") for other in others])
    for have, want in zip(found, expected, strict=True):
        equal(have, want)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("shape", [(5, 4), (2, 4, 3), (2, 4, 2, 3)])
def test_losses_of_class_indices(shape: tuple[int, ...], reduction: str, dtype: str) -> None:
    generator = np.random.default_rng(0)
    target = generator.integers(0, 4, (shape[0], *shape[2:]))
    target.reshape(-1)[::3] = 1
    scores, targets, weight = values(0, shape, dtype), on_cpu(target), values(1, (4,), dtype, 0.5, 2.0)
    for ignored, weights in product((-100, 1), ((), (weight,))):
        options: dict[str, Any] = {"ignore_index": ignored, "reduction": reduction}
        for smoothing in (0.0, 0.2):
            cross_entropy: Any = partial(F.cross_entropy, **options, label_smoothing=smoothing)
            _compare_gradients(cross_entropy, scores, targets, *weights)
        _compare_gradients(partial(F.nll_loss, **options), scores, targets, *weights)


def test_zeros_of_ignored_targets_have_no_sign() -> None:
    target = on_cpu([-100, 1]).to("cuda")
    for function in (F.cross_entropy, F.nll_loss):
        x = values(0, (2, 4), "float32").to("cuda").requires_grad_()
        losses = function(x, target, reduction="none")
        losses.sum().backward()
        assert x.grad is not None
        assert not losses.detach().to("cpu").signbit()[0].item()
        assert not x.grad.to("cpu").signbit()[0].any().item()


@pytest.mark.parametrize("dtype", FLOATS)
def test_losses_of_probabilities(dtype: str) -> None:
    probabilities, target = values(0, (3, 5), dtype, 0.01, 0.99), values(1, (3, 5), dtype, 0.0, 1.0)
    compare("binary_cross_entropy", (probabilities, target))
    compare("binary_cross_entropy_with_logits", (values(2, (3, 5), dtype, -30.0, 30.0), target))


@pytest.mark.parametrize("zero_infinity", [False, True])
@pytest.mark.parametrize("one_after_the_other", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_ctc_loss(dtype: str, one_after_the_other: bool, zero_infinity: bool) -> None:
    logs = F.log_softmax(values(0, (7, 4, 5), dtype), -1)
    times, lengths = on_cpu([7, 5, 2, 0]), on_cpu([3, 2, 3, 0])
    targets = on_cpu([[1, 1, 2], [3, 4, 0], [2, 2, 2], [0, 0, 0]])
    if one_after_the_other:
        targets = on_cpu([1, 1, 2, 3, 4, 2, 2, 2])
    operands = logs, targets, times, lengths
    compare("ctc_loss", operands, (0, zero_infinity))
    compare("ctc_loss_gradient", (*operands, values(1, (4,), dtype)), (0, zero_infinity))


# Random numbers

_SEED, _OFFSET = 0x123456789ABCDEF0, (1 << 64) - 3


def _drawn(
    op: str,
    shape: tuple[int, ...],
    dtype: flow.dtype,
    *more: Any,
    operands: tuple[flow.Tensor, ...] = (),
    exact: bool = True,
) -> None:
    """Compare the numbers that an op draws on both devices."""

    def numbers(device: str) -> NDArray[Any]:
        output = meta(shape, dtype, flow.device(device))
        given = tuple([operand.to(device) for operand in operands])
        return results(op, given, (output, *more), (_SEED, _OFFSET))[0]

    equal(numbers("cuda:0"), numbers("cpu"), exact=exact)


@pytest.mark.parametrize("dtype", [flow.float16, flow.bfloat16, flow.float32, flow.float64, flow.complex64])
def test_uniform_and_normal_numbers_are_those_of_the_cpu(dtype: flow.dtype) -> None:
    for shape in ((7, 5), (0,), ()):
        _drawn("rand", shape, dtype)
        _drawn("randn", shape, dtype)


@pytest.mark.parametrize("dtype", [flow.float16, flow.bfloat16, flow.float32, flow.float64])
def test_exponential_numbers_are_those_of_the_cpu(dtype: flow.dtype) -> None:
    for shape in ((7, 5), (0,), ()):
        _drawn("exponential", shape, dtype)


@pytest.mark.parametrize(("low", "high"), [(0, 2), (-7, 100), (-(1 << 63), (1 << 63) - 1), (0, 1 << 40)])
def test_integers_are_those_of_the_cpu(low: int, high: int) -> None:
    _drawn("randint", (7, 5), flow.int64, low, high)


@pytest.mark.parametrize("count", [0, 1, 2, 1000])
def test_permutations_are_those_of_the_cpu(count: int) -> None:
    _drawn("randperm", (count,), flow.int64)


def test_initial_values() -> None:
    for bounds in ((0.0, 1.0, -2.0, 2.0), (0.0, 1.0, 3.0, 5.0), (1.0, 0.5, -8.0, 0.0)):
        _drawn("trunc_normal_", (7, 5), flow.float64, *bounds, exact=False)
    for shape in ((3, 5), (6, 2, 2)):
        _drawn("orthogonal_", shape, flow.float32, 1.5, exact=False)


def test_choices_are_those_of_the_cpu() -> None:
    _drawn("bernoulli", (7, 5), flow.float32, operands=(values(0, (7, 5), "float32", 0.0, 1.0),))
    weights = (values(1, (3, 9), "float64", 0.0, 2.0),)
    _drawn("multinomial", (3, 40), flow.int64, True, operands=weights)
    _drawn("multinomial", (3, 9), flow.int64, False, operands=weights)


@pytest.mark.parametrize("name", ["poisson", "standard_gamma"])
@pytest.mark.parametrize("dtype", [flow.float32, flow.float64])
def test_numbers_that_are_tried(name: str, dtype: flow.dtype) -> None:
    operand = on_cpu(np.geomspace(0.05, 300.0, 60).reshape(6, 10)).to(dtype)
    _drawn(name, (6, 10), dtype, operands=(operand,), exact=False)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("p", [0.0, 0.1, 0.5, 0.9])
def test_dropout(p: float, dtype: str) -> None:
    array = values(0, (31, 33), dtype)
    compare("dropout", (array,), (p,), (_SEED, _OFFSET))
    (_, kept) = results("dropout", (array,), (p,), (_SEED, _OFFSET))
    compare("dropout_gradient", (array, on_cpu(kept)), (p,))
