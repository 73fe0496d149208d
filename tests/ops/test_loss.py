"""Losses against loops over every case."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from numpy.typing import NDArray

import vmflow as flow
import vmflow.nn.functional as F
from tests.support import arrays_for, check_gradients
from vmflow.ops.loss import class_loss, loss

pytestmark = pytest.mark.usefixtures("contract")

Array = NDArray[Any]
REDUCTIONS = ["mean", "sum", "none"]


def log_probabilities(x: Array, axis: int) -> Array:
    shifted = x - x.max(axis, keepdims=True)
    result: Array = shifted - np.log(np.exp(shifted).sum(axis, keepdims=True))
    return result


def of_classes(
    logs: Array, target: Array, weight: Array | None, ignored: int, reduction: str, smoothing: float = 0.0
) -> Any:
    """The loss of log-probabilities, one case at a time."""
    axis = min(logs.ndim - 1, 1)
    classes = logs.shape[axis]
    losses = np.zeros(target.shape)
    total = 0.0
    for place in np.ndindex(target.shape):
        if target[place] == ignored:
            continue
        row = logs[(*place[:axis], slice(None), *place[axis:])]
        of_class = 1.0 if weight is None else float(weight[target[place]])
        spread = sum(row[c] * (1.0 if weight is None else weight[c]) for c in range(classes))
        losses[place] = -(1 - smoothing) * of_class * row[target[place]] - smoothing / classes * spread
        total += of_class
    if reduction == "none":
        return losses
    return losses.sum() / total if reduction == "mean" else losses.sum()


@settings(max_examples=80)
@given(
    rest=st.sampled_from([(), (3,), (2, 2)]),
    batch=st.integers(1, 4),
    reduction=st.sampled_from(REDUCTIONS),
    smoothing=st.sampled_from([0.0, 0.3, 1.0]),
    weighted=st.booleans(),
    ignored=st.sampled_from([-100, 1]),
    single=st.booleans(),
    seed=st.integers(0, 99),
)
def test_losses_of_class_indices(
    rest: tuple[int, ...],
    batch: int,
    reduction: str,
    smoothing: float,
    weighted: bool,
    ignored: int,
    single: bool,
    seed: int,
) -> None:
    shape = (4,) if single else (batch, 4, *rest)
    generator = np.random.default_rng(seed)
    (x,) = arrays_for(seed, shape)
    target = generator.integers(0, 4, () if single else (batch, *rest))
    target = np.where(target == 1, ignored, target)
    target.reshape(-1)[0] = 2  # at least one counts
    weight = generator.uniform(0.5, 2.0, 4) if weighted else None
    given_weight = None if weight is None else flow.tensor(weight)
    logs = log_probabilities(x, min(x.ndim - 1, 1))
    result = class_loss.cross_entropy(flow.tensor(x), flow.tensor(target), given_weight, ignored, reduction, smoothing)
    expected = of_classes(logs, target, weight, ignored, reduction, smoothing)
    np.testing.assert_allclose(result.numpy(), expected, rtol=1e-10, atol=1e-12)
    result = class_loss.nll_loss(flow.tensor(x), flow.tensor(target), given_weight, ignored, reduction)
    np.testing.assert_allclose(result.numpy(), of_classes(x, target, weight, ignored, reduction), rtol=1e-10)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("shape", [(3, 4), (4,), (2, 3, 2)], ids=str)
def test_gradients_of_class_indices(shape: tuple[int, ...], reduction: str, smoothing: float, weighted: bool) -> None:
    (x,) = arrays_for(1, shape)
    target = flow.tensor(np.array([2, 0, -100, 1])[: max(1, x.size // x.shape[min(x.ndim - 1, 1)])])
    target = target.reshape(shape[:1] + shape[2:]) if len(shape) > 1 else target[0]
    weight = flow.tensor(np.linspace(0.5, 1.5, x.shape[min(x.ndim - 1, 1)])) if weighted else None
    check_gradients(
        lambda x: class_loss.cross_entropy(x, target, weight, reduction=reduction, label_smoothing=smoothing),
        x,
        second=len(shape) == 2,
    )
    check_gradients(
        lambda x: class_loss.nll_loss(x * x, target, weight, reduction=reduction), x, second=len(shape) == 2
    )


def test_the_fused_gradient_is_the_recorded_one() -> None:
    (x,) = arrays_for(2, (5, 4, 3))
    target = flow.tensor(np.random.default_rng(2).integers(-1, 4, (5, 3)))
    weight = flow.tensor([0.5, 1.0, 2.0, 3.0], dtype=flow.float64)
    functions: list[Callable[..., flow.Tensor]] = [
        lambda x: class_loss.cross_entropy(x, target, weight, -1, label_smoothing=0.1),
        lambda x: class_loss.nll_loss(x, target, weight, -1),
    ]
    for function in functions:
        source = flow.tensor(x, requires_grad=True)
        value = function(source)
        (fused,) = flow.autograd.grad(value, source, retain_graph=True)
        (recorded,) = flow.autograd.grad(value, source, create_graph=True)
        assert fused is not None
        assert recorded is not None
        np.testing.assert_allclose(fused.numpy(), recorded.detach().numpy(), rtol=1e-12, atol=1e-15)


def test_where_nothing_counts() -> None:
    x = flow.ones(2, 3, requires_grad=True)
    target = flow.tensor([-100, -100])
    for function in (class_loss.cross_entropy, class_loss.nll_loss):
        value = function(x, target)
        assert math.isnan(value.item())
        for create_graph in (True, False):
            (gradient,) = flow.autograd.grad(value, x, retain_graph=True, create_graph=create_graph)
            assert gradient is not None
            assert gradient.tolist() == [[0.0] * 3] * 2
        assert function(x, target, reduction="sum").item() == 0.0


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("weighted", [False, True])
def test_zeros_of_ignored_targets_have_no_sign(weighted: bool, smoothing: float) -> None:
    x = flow.tensor([[1.0, -2.0, 3.0], [1.0, 2.0, 3.0]], requires_grad=True)
    target = flow.tensor([-100, 1])
    weight = flow.tensor([0.5, 2.0, 3.0]) if weighted else None
    functions: list[Callable[..., flow.Tensor]] = [
        lambda x: class_loss.cross_entropy(x, target, weight, reduction="none", label_smoothing=smoothing),
        lambda x: class_loss.nll_loss(x, target, weight, reduction="none"),
    ]
    for function in functions:
        losses = function(x)
        assert losses.detach().signbit().tolist()[0] is False
        for create_graph in (True, False):
            (gradient,) = flow.autograd.grad(losses.sum(), x, retain_graph=True, create_graph=create_graph)
            assert gradient is not None
            assert gradient.detach().signbit().tolist()[0] == [False] * 3


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("beyond", [math.inf, -math.inf, math.nan])
def test_ignored_targets_may_have_scores_that_are_not_finite(beyond: float, weighted: bool) -> None:
    x = flow.tensor([[beyond, 1.0, 2.0], [1.0, 2.0, 3.0]])
    weight = flow.tensor([0.5, 2.0, 3.0]) if weighted else None
    target = flow.tensor([-100, 1])
    for function in (class_loss.cross_entropy, class_loss.nll_loss):
        counted = function(x[1:], target[1:], weight).item()
        assert function(x, target, weight).item() == pytest.approx(counted)
        assert function(x, target, weight, reduction="sum").item() == pytest.approx(counted * (2 if weighted else 1))
        assert function(x, target, weight, reduction="none").tolist()[0] == 0.0


def test_empty_batches() -> None:
    nothing = flow.zeros(0, 3, requires_grad=True)
    target = flow.zeros(0, dtype=flow.int64)
    for function in (class_loss.cross_entropy, class_loss.nll_loss):
        assert math.isnan(function(nothing, target).item())
        assert function(nothing, target, reduction="none").shape == (0,)
        total = function(nothing, target, reduction="sum")
        assert total.item() == 0.0
        total.backward()
        assert nothing.grad is not None
        assert nothing.grad.shape == (0, 3)
    assert math.isnan(loss.mse_loss(flow.zeros(0), flow.zeros(0)).item())


@pytest.mark.parametrize("function", [class_loss.cross_entropy, class_loss.nll_loss])
@pytest.mark.parametrize("index", [3, -1, 1000])
def test_an_index_out_of_range_is_an_error_when_looked_at(function: Any, index: int) -> None:
    x = flow.zeros(2, 3, requires_grad=True)
    value = function(x, flow.tensor([0, index]))
    with pytest.raises(IndexError, match=rf"class index {index} is out of range for 3 classes") as caught:
        value.item()
    assert function.__name__ in str(caught.value)
    value.backward()
    assert x.grad is not None
    with pytest.raises(IndexError, match="out of range"):
        x.grad.numpy()


def test_large_scores_do_not_overflow() -> None:
    x = flow.tensor([[1e4, -1e4, 0.0], [-3e38, 3e38, 0.0]], requires_grad=True)
    value = class_loss.cross_entropy(x, flow.tensor([0, 1]))
    assert value.item() == 0.0
    value.backward()
    assert x.grad is not None
    assert np.isfinite(x.grad.numpy()).all()


@pytest.mark.parametrize("dtype", [flow.float16, flow.bfloat16])
def test_half_precision_computes_in_single(dtype: flow.dtype) -> None:
    (array,) = arrays_for(3, (64, 5))
    x = flow.tensor(array, dtype=dtype, requires_grad=True)
    single = x.detach().float().requires_grad_()
    target = flow.tensor(np.random.default_rng(3).integers(0, 5, 64))
    weight = flow.tensor(np.linspace(0.5, 1.5, 5), dtype=dtype)
    value = class_loss.cross_entropy(x, target, weight)
    expected = class_loss.cross_entropy(single, target, weight.float())
    assert value.dtype is dtype
    assert value.item() == expected.detach().to(dtype).item()
    value.backward()
    expected.backward()
    assert x.grad is not None
    assert single.grad is not None
    np.testing.assert_allclose(x.grad.float().numpy(), single.grad.numpy(), rtol=1e-2, atol=1e-4)


def test_strided_scores_and_targets() -> None:
    x = arrays_for(4, (4, 3, 2))[0]
    target = np.random.default_rng(4).integers(0, 3, (4, 2))
    moved = flow.tensor(np.ascontiguousarray(x.transpose(2, 1, 0))).permute(2, 1, 0)
    value = class_loss.cross_entropy(moved, flow.tensor(np.ascontiguousarray(target.T)).T, reduction="none")
    np.testing.assert_allclose(value.numpy(), of_classes(log_probabilities(x, 1), target, None, -100, "none"))
    matrix = flow.tensor(x[:, :, 0].T.copy()).T
    value = class_loss.nll_loss(matrix, flow.tensor(target)[:, 0])
    np.testing.assert_allclose(value.item(), of_classes(x[:, :, 0], target[:, 0], None, -100, "mean"))


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("smoothing", [0.0, 0.3])
@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("shape", [(3, 4), (4,), (2, 4, 3)], ids=str)
def test_cross_entropy_of_probabilities(
    shape: tuple[int, ...], reduction: str, smoothing: float, weighted: bool
) -> None:
    x, target = arrays_for(5, shape, shape, low=0.0)
    weight = np.linspace(0.5, 1.5, 4) if weighted else None
    axis = min(x.ndim - 1, 1)
    smoothed = target * (1 - smoothing) + smoothing / 4
    terms = -log_probabilities(x, axis) * smoothed
    if weight is not None:
        terms = np.moveaxis(np.moveaxis(terms, axis, -1) * weight, -1, axis)
    losses = terms.sum(axis)
    expected = {"none": losses, "sum": losses.sum(), "mean": losses.sum() / losses.size}[reduction]
    given_weight = None if weight is None else flow.tensor(weight)
    result = class_loss.cross_entropy(
        flow.tensor(x), flow.tensor(target), given_weight, reduction=reduction, label_smoothing=smoothing
    )
    np.testing.assert_allclose(result.numpy(), expected, rtol=1e-10)


def test_gradients_of_probabilities() -> None:
    x, target = arrays_for(6, (2, 3), (2, 3), low=0.1)
    check_gradients(lambda x, t: class_loss.cross_entropy(x, t, label_smoothing=0.1), x, target, second=True)


def reduced(losses: Array, reduction: str) -> Any:
    return {"none": losses, "sum": losses.sum(), "mean": losses.sum() / losses.size}[reduction]


def quadratic(size: float, limit: float) -> float:
    return size * size / (2 * limit) if size < limit else size - limit / 2


ELEMENTWISE: dict[str, tuple[Callable[..., flow.Tensor], Callable[[float, float], float]]] = {
    "mse_loss": (loss.mse_loss, lambda x, y: (x - y) ** 2),
    "l1_loss": (loss.l1_loss, lambda x, y: abs(x - y)),
    "smooth_l1_loss": (loss.smooth_l1_loss, lambda x, y: quadratic(abs(x - y), 1.0)),
    "smooth_l1_loss beta": (
        lambda x, y, reduction="mean": loss.smooth_l1_loss(x, y, reduction, 0.3),
        lambda x, y: quadratic(abs(x - y), 0.3),
    ),
    "smooth_l1_loss beta 0": (
        lambda x, y, reduction="mean": loss.smooth_l1_loss(x, y, reduction, 0),
        lambda x, y: abs(x - y),
    ),
    "huber_loss": (loss.huber_loss, lambda x, y: quadratic(abs(x - y), 1.0)),
    "huber_loss delta": (
        lambda x, y, reduction="mean": loss.huber_loss(x, y, reduction, 0.3),
        lambda x, y: 0.3 * quadratic(abs(x - y), 0.3),
    ),
}


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_losses_of_real_values(name: str) -> None:
    function, single = ELEMENTWISE[name]
    x, y = arrays_for(7, (3, 4), (3, 4))
    losses = np.vectorize(single)(x, y)
    for reduction in REDUCTIONS:
        result = function(flow.tensor(x), flow.tensor(y), reduction=reduction)
        np.testing.assert_allclose(result.numpy(), reduced(losses, reduction), rtol=1e-12)
    check_gradients(function, x, y, second=name == "mse_loss")


def cross_entropy_of(p: float, t: float) -> float:
    def log(value: float) -> float:
        return max(math.log(value), -100.0) if value > 0 else -100.0

    return -(t * log(p) + (1 - t) * log(1 - p))


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_binary_cross_entropy(reduction: str) -> None:
    p, t, w = arrays_for(8, (3, 4), (3, 4), (4,), low=0.01, high=0.99)
    p[0], t[0] = [0.0, 1.0, 0.0, 1.0], [0.0, 1.0, 1.0, 0.0]
    losses = np.vectorize(cross_entropy_of)(p, t)
    result = loss.binary_cross_entropy(flow.tensor(p), flow.tensor(t), reduction=reduction)
    np.testing.assert_allclose(result.numpy(), reduced(losses, reduction), rtol=1e-10)
    result = loss.binary_cross_entropy(flow.tensor(p), flow.tensor(t), flow.tensor(w), reduction)
    np.testing.assert_allclose(result.numpy(), reduced(losses * w, reduction), rtol=1e-10)


def test_gradients_of_binary_cross_entropy() -> None:
    p, t = arrays_for(9, (2, 3), (2, 3), low=0.1, high=0.9)
    check_gradients(loss.binary_cross_entropy, p, t, second=True)


def test_certainty_has_a_finite_gradient() -> None:
    p = flow.tensor([0.0, 1.0, 0.0], requires_grad=True)
    loss.binary_cross_entropy(p, flow.tensor([0.0, 1.0, 1.0]), reduction="sum").backward()
    assert p.grad is not None
    np.testing.assert_allclose(p.grad.numpy(), [0.0, 0.0, -1e12], rtol=1e-6)


@pytest.mark.parametrize("outside", [-0.1, 1.1, math.nan])
def test_probabilities_are_checked(outside: float) -> None:
    value = loss.binary_cross_entropy(flow.tensor([0.5, outside]), flow.tensor([0.0, 1.0]))
    with pytest.raises(RuntimeError, match=r"within \[0, 1\]"):
        value.item()


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_binary_cross_entropy_with_logits(reduction: str) -> None:
    x, t, w, positive = arrays_for(10, (3, 4), (3, 4), (3, 1), (4,), low=0.01, high=0.99)
    x = (x - 0.5) * 40
    p = 1 / (1 + np.exp(-x))
    first, second = -np.log(p) * t, -np.log1p(-p) * (1 - t)
    result = loss.binary_cross_entropy_with_logits(flow.tensor(x), flow.tensor(t), reduction=reduction)
    np.testing.assert_allclose(result.numpy(), reduced(first + second, reduction), rtol=1e-6)
    result = loss.binary_cross_entropy_with_logits(
        flow.tensor(x), flow.tensor(t), flow.tensor(w), reduction, flow.tensor(positive)
    )
    np.testing.assert_allclose(result.numpy(), reduced((first * positive + second) * w, reduction), rtol=1e-6)


def test_gradients_of_binary_cross_entropy_with_logits() -> None:
    x, t, w, positive = arrays_for(11, (2, 3), (2, 3), (3,), (3,), low=0.1)
    check_gradients(loss.binary_cross_entropy_with_logits, x, t, second=True)
    check_gradients(
        lambda x, t, w, positive: loss.binary_cross_entropy_with_logits(x, t, w, "mean", positive),
        *(x, t, w, positive),
        second=True,
    )


def test_infinite_scores_and_values() -> None:
    infinite = flow.tensor([[1.0, math.inf]])
    assert F.multilabel_margin_loss(infinite, flow.tensor([[0, -1]])).item() == math.inf
    assert F.gaussian_nll_loss(infinite, flow.ones(1, 2), 1.0).item() == math.inf


def test_logits_of_any_size() -> None:
    x = flow.tensor([1e4, -1e4, 0.0], requires_grad=True)
    value = loss.binary_cross_entropy_with_logits(x, flow.tensor([0.0, 1.0, 0.5]), reduction="none")
    np.testing.assert_allclose(value.detach().numpy(), [1e4, 1e4, math.log(2)])
    value.sum().backward()
    assert x.grad is not None
    np.testing.assert_allclose(x.grad.numpy(), [1.0, -1.0, 0.0])


@pytest.mark.parametrize("reduction", [*REDUCTIONS, "batchmean"])
def test_kl_div(reduction: str) -> None:
    x, y = arrays_for(12, (3, 4), (3, 4), low=0.1)
    y[0, 0] = 0.0
    losses = np.vectorize(lambda x, y: y * (math.log(y) - x) if y > 0 else 0.0)(x, y)
    expected = losses.sum() / 3 if reduction == "batchmean" else reduced(losses, reduction)
    result = loss.kl_div(flow.tensor(x), flow.tensor(y), reduction)
    np.testing.assert_allclose(result.numpy(), expected, rtol=1e-12)
    logarithm = np.log(np.maximum(y, 1e-300))
    result = loss.kl_div(flow.tensor(x), flow.tensor(logarithm), reduction, log_target=True)
    np.testing.assert_allclose(result.numpy(), expected, rtol=1e-12, atol=1e-200)


def test_kl_div_of_numbers_and_of_no_probabilities() -> None:
    assert loss.kl_div(flow.tensor(-1.0), flow.tensor(1.0), "batchmean").item() == 1.0
    found = loss.kl_div(flow.full((3,), -1.0), flow.tensor([0.0, -1.0, math.nan]), "none")
    np.testing.assert_array_equal(found.numpy(), [0.0, math.nan, math.nan])


def test_gradients_of_kl_div() -> None:
    x, y = arrays_for(13, (2, 3), (2, 3), low=0.1)
    check_gradients(loss.kl_div, x, y, second=True)
    check_gradients(lambda x, y: loss.kl_div(x, y, "sum", True), x, y, second=True)
    target = flow.tensor([0.0, 1.0], requires_grad=True)
    loss.kl_div(flow.tensor([-1.0, -2.0]), target, "sum").backward()
    assert target.grad is not None
    assert np.isfinite(target.grad.numpy()).all()


PAIRS: list[Any] = [
    loss.mse_loss,
    loss.l1_loss,
    loss.smooth_l1_loss,
    loss.huber_loss,
    loss.binary_cross_entropy,
    loss.binary_cross_entropy_with_logits,
    loss.kl_div,
]


@pytest.mark.parametrize("function", PAIRS)
def test_shapes_must_agree(function: Any) -> None:
    with pytest.raises(ValueError, match=rf"{function.__name__}: .*\[3, 1\] and targets of shape \[3\]"):
        function(flow.zeros(3, 1), flow.zeros(3))


@pytest.mark.parametrize("function", [*PAIRS, class_loss.cross_entropy, class_loss.nll_loss])
def test_reductions_are_named(function: Any) -> None:
    target = flow.tensor([1]) if function in (class_loss.cross_entropy, class_loss.nll_loss) else flow.zeros(1, 2)
    with pytest.raises(ValueError, match=rf"{function.__name__}: reduction must be one of mean, sum, none"):
        function(flow.zeros(1, 2), target, reduction="average")


@pytest.mark.parametrize(
    ("error", "message", "call"),
    [
        (
            ValueError,
            r"\[2, 3\], with the classes in dimension 1, does not fit class indices of shape \[3\]",
            lambda: class_loss.cross_entropy(flow.zeros(2, 3), flow.tensor([0, 1, 2])),
        ),
        (ValueError, r"does not fit", lambda: class_loss.nll_loss(flow.zeros(()), flow.tensor(0))),
        (
            ValueError,
            r"3 classes need a weight of shape \[3\], got \[2\]",
            lambda: class_loss.cross_entropy(flow.zeros(1, 3), flow.tensor([0]), flow.ones(2)),
        ),
        (
            ValueError,
            r"need a weight of shape \[3\]",
            lambda: class_loss.cross_entropy(flow.zeros(1, 3), flow.zeros(1, 3), flow.ones(2)),
        ),
        (
            ValueError,
            r"label_smoothing must be within",
            lambda: class_loss.cross_entropy(flow.zeros(1, 3), flow.tensor([0]), label_smoothing=1.5),
        ),
        (
            ValueError,
            r"float32 targets are the probabilities",
            lambda: class_loss.cross_entropy(flow.zeros(1, 3), flow.zeros(3, 1)),
        ),
        (ValueError, r"got a 0-d tensor", lambda: class_loss.cross_entropy(flow.zeros(()), flow.zeros(()))),
        (
            TypeError,
            r"must be integers, not bool",
            lambda: class_loss.cross_entropy(flow.zeros(1, 3), flow.tensor([True])),
        ),
        (
            TypeError,
            r"nll_loss: class indices must be integers, not float32",
            lambda: class_loss.nll_loss(flow.zeros(1, 3), flow.zeros(1)),
        ),
        (
            TypeError,
            r"cross_entropy is not defined for int64",
            lambda: class_loss.cross_entropy(flow.ones(1, 3).long(), flow.tensor([0])),
        ),
        (ValueError, r"beta cannot be negative", lambda: loss.smooth_l1_loss(flow.ones(1), flow.ones(1), beta=-1.0)),
        (ValueError, r"delta must be positive", lambda: loss.huber_loss(flow.ones(1), flow.ones(1), delta=0.0)),
        (
            TypeError,
            r"expected two floating-point tensors, got float32 and int64",
            lambda: loss.binary_cross_entropy_with_logits(flow.ones(1), flow.ones(1).long()),
        ),
        (
            TypeError,
            r"expected two floating-point tensors, got float32 and int64",
            lambda: loss.binary_cross_entropy_with_logits(flow.ones(1), flow.ones(1).long(), pos_weight=flow.ones(1)),
        ),
        (
            TypeError,
            r"of one dtype, got float32 and float64",
            lambda: loss.binary_cross_entropy(flow.ones(1), flow.ones(1).double()),
        ),
        (
            TypeError,
            r"binary_cross_entropy: weights must be real, not complex64",
            lambda: loss.binary_cross_entropy(flow.ones(1), flow.ones(1), weight=flow.ones(1) * 1j),
        ),
        (
            TypeError,
            r"binary_cross_entropy_with_logits: weights must be real, not complex64",
            lambda: loss.binary_cross_entropy_with_logits(flow.ones(1), flow.ones(1), weight=flow.ones(1) * 1j),
        ),
        (
            TypeError,
            r"binary_cross_entropy_with_logits: weights must be real, not complex64",
            lambda: loss.binary_cross_entropy_with_logits(flow.ones(1), flow.ones(1), pos_weight=flow.ones(1) * 1j),
        ),
        (
            ValueError,
            r"a weight of shape \[2, 1\] does not broadcast",
            lambda: loss.binary_cross_entropy(flow.ones(1), flow.ones(1), flow.ones(2, 1)),
        ),
    ],
)
def test_bad_arguments(error: type[Exception], message: str, call: Any) -> None:
    with pytest.raises(error, match=message):
        call()


def test_a_single_score_has_a_loss() -> None:
    score = flow.tensor(0.5, requires_grad=True)
    found = loss.binary_cross_entropy_with_logits(score, flow.tensor(1.0), reduction="none")
    assert abs(found.item() - np.log1p(np.exp(-0.5))) < 1e-6
    found.backward()
    assert score.grad is not None
    assert abs(score.grad.item() - (1 / (1 + np.exp(-0.5)) - 1)) < 1e-6


def test_old_names_of_the_reduction_warn_where_they_are_given() -> None:
    x, y = flow.tensor([1.0, 2.0]), flow.zeros(2)
    with pytest.warns(UserWarning, match="give reduction='sum' instead") as caught:
        assert F.mse_loss(x, y, size_average=False).item() == 5
    assert caught[0].filename == __file__
    with pytest.warns(UserWarning, match="give reduction='none' instead"):
        assert flow.nn.L1Loss(reduce=False)(x, y).tolist() == [1, 2]
    with pytest.raises(TypeError, match="give reduction= by its name"):
        flow.nn.MSELoss("sum")  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["mse_loss", "l1_loss", "huber_loss"])
def test_weights_of_losses_have_gradients_and_do_not_broadcast(name: str) -> None:
    x, y = flow.tensor([1.0, -2.0], requires_grad=True), flow.zeros(2)
    weight = flow.tensor([1.0, 3.0], requires_grad=True)
    with pytest.raises(ValueError, match=f"{name}: the weights must have the shape of the predictions"):
        getattr(F, name)(x, y, weight=flow.ones(1))
    getattr(F, name)(x, y, reduction="sum", weight=weight).backward()
    assert weight.grad is not None
    assert weight.grad.tolist() == getattr(F, name)(x, y, reduction="none").tolist()


@pytest.mark.parametrize("dtypes", [(flow.float16, flow.float32), (flow.float32, flow.float16)])
def test_a_formula_of_two_dtypes_promotes(dtypes: tuple[flow.dtype, flow.dtype]) -> None:
    x, y = flow.tensor([1.0, 2.0], dtype=dtypes[0]), flow.tensor([0.0, 0.1], dtype=dtypes[1])
    found = F.mse_loss(x, y, reduction="none")
    assert found.dtype is flow.float32
    assert found.tolist() == ((x - y) * (x - y)).tolist()


def test_weighted_scores_far_from_their_target_have_losses_exact_to_the_last_digits() -> None:
    scores = np.arange(-45.0, -25.0)
    losses = loss.binary_cross_entropy_with_logits(
        flow.tensor(scores),
        flow.ones(20, dtype=flow.float64),
        pos_weight=flow.tensor(1.0, dtype=flow.float64),
        reduction="none",
    )
    np.testing.assert_allclose(losses.numpy(), np.logaddexp(0, -scores), rtol=4e-16)
