"""Dropout of channels, dropout for self-normalising networks, and the other activations that draw numbers."""

from __future__ import annotations

import math

import numpy as np
import pytest

import vmflow as flow
import vmflow.nn.functional as F

pytestmark = pytest.mark.usefixtures("contract")

OTHER_DIMENSIONS = pytest.mark.filterwarnings(r"ignore:dropout.d. expected \d or \d dimensions")


@pytest.mark.parametrize(
    ("name", "shape", "leading"),
    [
        ("dropout1d", (20, 30, 3), 2),
        ("dropout1d", (600, 3), 1),
        ("dropout2d", (20, 30, 2, 3), 2),
        ("dropout2d", (20, 30, 3), 2),
        pytest.param("dropout2d", (20, 30), 2, marks=OTHER_DIMENSIONS),
        pytest.param("dropout2d", (20, 30, 1, 2, 1), 2, marks=OTHER_DIMENSIONS),
        pytest.param("dropout3d", (600,), 1, marks=OTHER_DIMENSIONS),
        pytest.param("dropout3d", (600, 2, 3), 1, marks=OTHER_DIMENSIONS),
        ("dropout3d", (20, 30, 2, 1, 3), 2),
        ("dropout3d", (600, 2, 1, 3), 1),
    ],
)
def test_whole_channels_are_dropped(name: str, shape: tuple[int, ...], leading: int) -> None:
    x = flow.ones(shape, requires_grad=True)
    result = getattr(F, name)(x, 0.25)
    channels = result.detach().numpy().reshape(math.prod(shape[:leading]), -1)
    assert (channels == channels[:, :1]).all()
    np.testing.assert_allclose(np.unique(channels), [0, 4 / 3], rtol=1e-6)
    # 600 draws: four standard deviations are 0.071.
    assert abs((channels[:, 0] == 0).mean() - 0.25) < 0.071
    result.sum().backward()
    assert x.grad is not None
    np.testing.assert_array_equal(x.grad.numpy(), result.detach().numpy())


@pytest.mark.parametrize("name", ["dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout"])
def test_dropouts_with_probability_0_or_1_and_outside_training(name: str) -> None:
    function = getattr(F, name)
    x = flow.ones(2, 3, 4, 2) if name != "dropout1d" else flow.ones(2, 3, 4)
    assert function(x, 0.5, training=False) is x
    assert function(x, 0.0, training=True) is x
    assert function(x, 1.0, training=True).tolist() == (x * 0).tolist()
    flow.manual_seed(5)
    expected = function(x, 0.5, True)
    flow.manual_seed(5)
    assert function(x, 0.5, True, True) is x
    assert x.tolist() == expected.tolist()
    for p in (-0.1, 1.1):
        with pytest.raises(ValueError, match=f"{name}: the probability must be within \\[0, 1\\]"):
            function(x, p)
    half = function(x.half(), 0.5, True)
    assert half.dtype is flow.float16


def test_other_numbers_of_dimensions_warn_where_they_are_given() -> None:
    with pytest.warns(UserWarning, match=r"dropout2d: expected 3 or 4 dimensions, got shape \[2, 3\]") as caught:
        F.dropout2d(flow.ones(2, 3))
    assert caught[0].filename == __file__
    with pytest.warns(UserWarning, match="dropout3d: expected 4 or 5 dimensions"):
        F.dropout3d(flow.ones(2, 3))


@pytest.mark.parametrize(("name", "rank"), [("dropout1d", 1), ("dropout1d", 4), ("dropout2d", 1), ("dropout3d", 0)])
@OTHER_DIMENSIONS
def test_numbers_of_dimensions(name: str, rank: int) -> None:
    with pytest.raises(ValueError, match=f"{name}: expected"):
        getattr(F, name)(flow.ones((1,) * rank))
    with pytest.raises(ValueError, match=r"expected \(N, C, \.\.\.\)"):
        F.feature_alpha_dropout(flow.ones(3), training=True)
    with pytest.raises(TypeError, match="alpha_dropout is not defined for int64"):
        F.alpha_dropout(flow.ones(3).long(), training=True)


@pytest.mark.parametrize("p", [0.1, 0.5])
def test_alpha_dropout_keeps_mean_and_variance(p: float) -> None:
    x = np.random.default_rng(0).standard_normal(200_000)
    result = F.alpha_dropout(flow.tensor(x), p, training=True).numpy()
    assert abs(result.mean()) < 0.02
    assert abs(result.var() - 1) < 0.03
    value, count = max(zip(*np.unique(result, return_counts=True), strict=True), key=lambda operand: operand[1])
    assert value == result.min() or value < 0
    assert abs(count / x.size - p) < 0.01


def test_alpha_dropout_has_a_gradient_where_it_keeps() -> None:
    x = flow.randn(1000, requires_grad=True)
    F.alpha_dropout(x, 0.3, training=True).sum().backward()
    assert x.grad is not None
    scale = (0.7 * (1 + 0.3 * 1.7580993408473766**2)) ** -0.5
    np.testing.assert_allclose(np.unique(x.grad.numpy()), [0, scale], rtol=1e-6)
    y = flow.randn(20, 30, 4)
    dropped = F.feature_alpha_dropout(y, 0.3, training=True).numpy()
    same = (dropped == dropped[..., :1]).all(-1)
    assert 0.2 < same.mean() < 0.4


def test_random_slopes() -> None:
    x = flow.full((20_000,), -2.0, requires_grad=True)
    result = F.rrelu(x, 0.25, 0.75, training=True)
    slopes = result.detach().numpy() / -2
    assert 0.25 <= slopes.min() < 0.26
    assert 0.74 < slopes.max() < 0.75
    assert abs(slopes.mean() - 0.5) < 0.005
    result.sum().backward()
    assert x.grad is not None
    np.testing.assert_allclose(x.grad.numpy(), slopes, rtol=1e-6)
    positive = flow.tensor([0.5, 3.0])
    assert F.rrelu(positive, training=True).tolist() == [0.5, 3.0]


def test_gumbel_softmax_samples_the_categories() -> None:
    probabilities = np.array([0.2, 0.5, 0.3])
    logits = flow.tensor(np.log(probabilities)).expand(20_000, 3)
    hard = F.gumbel_softmax(logits, hard=True).numpy()
    np.testing.assert_allclose(hard.sum(1), 1)
    np.testing.assert_allclose(hard.max(1), 1)
    np.testing.assert_allclose(hard.mean(0), probabilities, atol=0.02)
    soft = F.gumbel_softmax(logits, tau=0.5).numpy()
    np.testing.assert_allclose(soft.sum(1), 1)
    columns = F.gumbel_softmax(logits[:5], hard=True, dim=0).numpy()
    np.testing.assert_allclose(columns.sum(0), 1)


def test_the_gradient_of_a_hard_sample_is_that_of_the_soft_one() -> None:
    gradients = []
    for hard in (False, True):
        flow.manual_seed(1)
        x = flow.tensor([[0.5, -1.0, 2.0]], dtype=flow.float64, requires_grad=True)
        (F.gumbel_softmax(x, 2.0, hard) * flow.tensor([1.0, 2.0, 3.0]).double()).sum().backward()
        assert x.grad is not None
        gradients.append(x.grad.numpy())
    np.testing.assert_allclose(*gradients)
    assert gradients[0].any()


def test_names_of_oneflow() -> None:
    x = np.linspace(-3, 3, 13)
    np.testing.assert_allclose(F.quick_gelu(flow.tensor(x)).numpy(), x / (1 + np.exp(-1.702 * x)), rtol=1e-12)
    y = flow.tensor(x, requires_grad=True)
    result = F.square_relu(y)
    np.testing.assert_array_equal(result.detach().numpy(), np.maximum(x, 0) ** 2)
    result.sum().backward()
    assert y.grad is not None
    np.testing.assert_allclose(y.grad.numpy(), 2 * np.maximum(x, 0))
