"""Training for quantisation: the scales that observers find, numbers rounded by them, and layers made of both."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import vmflow as flow
from vmflow import nn

Array = NDArray[Any]


def numbers(*shape: int) -> Array:
    return np.random.default_rng(5).standard_normal(shape) + 0.3


def scale_of(x: Array, bit: int, scheme: str, formula: str) -> tuple[Array, Array]:
    """OneFlow's formulas, of each row."""
    if formula == "cambricon":
        return np.floor(np.log2(np.abs(x).max(1))) - (bit - 2), np.zeros(len(x))
    if scheme == "symmetric":
        return np.abs(x).max(1) / (2 ** (bit - 1) - 1), np.zeros(len(x))
    scale = (x.max(1) - x.min(1)) / (2**bit - 1)
    return scale, -np.rint(x.min(1) / scale)


def rounded(x: Array, scale: Array, zero: Array, bit: int, scheme: str, formula: str) -> tuple[Array, Array]:
    """The integers of each row, and the numbers that they represent."""
    scale, zero = scale[:, None], zero[:, None]
    if formula == "cambricon":
        scale = 2.0**scale
    low, high = (0, 2**bit - 1) if scheme == "affine" else (-(2 ** (bit - 1)), 2 ** (bit - 1) - 1)
    integers = np.clip(np.rint(x / scale + zero), low, high)
    return integers, (integers - zero) * scale


HOW = [("symmetric", "google"), ("affine", "google"), ("symmetric", "cambricon")]


@pytest.mark.parametrize("per_layer", [True, False])
@pytest.mark.parametrize("bit", [2, 5, 8])
@pytest.mark.parametrize(("scheme", "formula"), HOW)
def test_formulas(scheme: str, formula: str, bit: int, per_layer: bool) -> None:
    if formula == "cambricon" and not per_layer:
        with pytest.raises(ValueError, match="the formula cambricon has one scale"):
            nn.MinMaxObserver(formula, bit, scheme, per_layer)
        return
    x = numbers(3, 4, 5)
    rows = x.reshape(1 if per_layer else 3, -1)
    scale, zero = scale_of(rows, bit, scheme, formula)
    source = flow.tensor(x, requires_grad=True)
    found = nn.MinMaxObserver(formula, bit, scheme, per_layer)(source)
    np.testing.assert_allclose(found[0].numpy(), scale, 1e-12)
    np.testing.assert_array_equal(found[1].numpy(), zero)
    assert not found[0].requires_grad
    integers, values = rounded(rows, scale, zero, bit, scheme, formula)
    np.testing.assert_array_equal(
        nn.Quantization(formula, bit, scheme)(source, *found).detach().numpy(), integers.reshape(x.shape)
    )
    result = nn.FakeQuantization(formula, bit, scheme)(source, *found)
    np.testing.assert_allclose(result.detach().numpy(), values.reshape(x.shape), 1e-12, 1e-12)
    weights = numbers(3, 4, 5)
    (result * flow.tensor(weights)).sum().backward()
    assert source.grad is not None
    np.testing.assert_array_equal(source.grad.numpy(), weights)


@pytest.mark.parametrize(("scheme", "formula"), HOW)
def test_zeros_stay_zeros(scheme: str, formula: str) -> None:
    x = flow.zeros(2, 3)
    found = nn.MinMaxObserver(formula, 8, scheme)(x)
    assert nn.FakeQuantization(formula, 8, scheme)(x, *found).tolist() == x.tolist()
    assert nn.FakeQuantization("google", 8, "symmetric")(flow.zeros(0, 3), flow.ones(1), flow.zeros(1)).shape == (0, 3)


@pytest.mark.parametrize("bit", [2, 8])
@pytest.mark.parametrize("number", [5.0, 0.01, -3.5])
@pytest.mark.parametrize("scheme", ["symmetric", "affine"])
def test_equal_numbers_keep_their_value(scheme: str, number: float, bit: int) -> None:
    x = flow.full((2, 3), number, dtype=flow.float64)
    found = nn.MinMaxObserver("google", bit, scheme, False)(x)
    np.testing.assert_allclose(nn.FakeQuantization("google", bit, scheme)(x, *found).numpy(), x.numpy(), 1e-12)


@pytest.mark.parametrize(("scheme", "formula"), HOW)
def test_moving_averages(scheme: str, formula: str) -> None:
    observer = nn.MovingAverageMinMaxObserver(True, formula, 1, 8, scheme, 0.9)
    batches = [numbers(2, 3) * factor for factor in (1.0, 3.0, 100.0)]
    most = least = 0.0
    for step, batch in enumerate(batches):
        scale, zero = observer(flow.tensor(batch), flow.tensor([step]))
        high = np.abs(batch).max() if scheme == "symmetric" else batch.max()
        low = high if scheme == "symmetric" else batch.min()
        if step < 2:  # in which averages are updated
            most = high if step == 0 else most * 0.9 + high * 0.1
            least = low if step == 0 else least * 0.9 + low * 0.1
        extremes = np.array([[most, least]])
        wanted = scale_of(extremes, 8, scheme, formula)
        np.testing.assert_allclose(scale.numpy(), wanted[0], 1e-6)
        np.testing.assert_array_equal(zero.numpy(), wanted[1])
    observer.eval()
    before = observer.moving_max.tolist()
    observer(flow.tensor(batches[2]), flow.tensor([0]))
    assert observer.moving_max.tolist() == before
    observer.reset_running_stats()
    assert observer.moving_max.tolist() == observer.moving_min.tolist() == [0]


def test_results_do_not_change_with_later_updates() -> None:
    observer = nn.MovingAverageMinMaxObserver(True, stop_update_after_iters=9, momentum=0.0)
    scale, _ = observer(flow.ones(3), 0)
    observer(flow.ones(3) * 127, 1)
    np.testing.assert_allclose(scale.numpy(), [1 / 127], 1e-6)


@pytest.mark.parametrize("number", [int, np.int64, flow.tensor])
def test_averages_are_not_updated_after_the_last_step(number: Any) -> None:
    observer = nn.MovingAverageMinMaxObserver(True, stop_update_after_iters=1, momentum=0.5)
    for step, value in enumerate((4.0, 8.0, 16.0)):
        observer(flow.tensor([value]), number(step))
    assert observer.moving_max.item() == 6


def test_settings_that_are_out_of_range() -> None:
    with pytest.raises(ValueError, match="MinMaxObserver: quantization_bit must be an integer from 2 to 8, got 9"):
        nn.MinMaxObserver(quantization_bit=9)
    with pytest.raises(ValueError, match="quantization_scheme must be one of symmetric, affine, not 'none'"):
        nn.FakeQuantization(quantization_scheme="none")
    with pytest.raises(ValueError, match="quantization_formula must be one of google, cambricon, not 'other'"):
        nn.Quantization("other")
    with pytest.raises(ValueError, match="the formula cambricon is for the scheme symmetric, not 'affine'"):
        nn.QatLinear(2, 3, quantization_formula="cambricon", quantization_scheme="affine")
    with pytest.raises(ValueError, match="momentum must be within"):
        nn.MovingAverageMinMaxObserver(momentum=2)
    with pytest.raises(ValueError, match=r"fake_quantization: scale must have one element, .* got shape \[2\]"):
        nn.FakeQuantization()(flow.ones(3, 2), flow.ones(2), flow.zeros(1))
    with pytest.raises(TypeError, match="quantization is not defined for int64"):
        nn.Quantization()(flow.ones(3).long(), flow.ones(1), flow.zeros(1))


@pytest.mark.parametrize("per_layer", [True, False])
@pytest.mark.parametrize("kind", ["QatLinear", "QatConv1d", "QatConv2d", "QatConv3d"])
def test_layers_compute_with_rounded_operands(kind: str, per_layer: bool) -> None:
    rank = 0 if kind == "QatLinear" else int(kind[-2])
    arguments = (3, 4) if not rank else (3, 4, 2)
    layer = getattr(nn.qat, kind)(*arguments, quantization_bit=4, per_layer_quantization=per_layer)
    assert getattr(nn, kind) is getattr(nn.qat, kind)
    plain = getattr(nn, kind[3:])(*arguments)
    x = flow.tensor(numbers(2, 3, *(4,) * rank).astype(np.float32), requires_grad=True)
    result = layer(x)
    weight = layer.weight.detach().numpy()
    rows = weight.reshape(1 if per_layer else 4, -1)
    _, values = rounded(rows, *scale_of(rows, 4, "symmetric", "google"), 4, "symmetric", "google")
    flat = x.detach().numpy().reshape(1, -1)
    _, source = rounded(flat, *scale_of(flat, 4, "symmetric", "google"), 4, "symmetric", "google")
    with flow.no_grad():
        plain.weight.copy_(flow.tensor(values.reshape(weight.shape).astype(np.float32)))
        plain.bias.copy_(layer.bias)
        y = flow.tensor(source.reshape(x.shape).astype(np.float32)).requires_grad_()
    expected = plain(y)
    np.testing.assert_allclose(result.detach().numpy(), expected.detach().numpy(), 1e-4, 1e-5)
    result.square().sum().backward()
    expected.square().sum().backward()
    for mine, other in ((layer.weight, plain.weight), (layer.bias, plain.bias), (x, y)):
        assert mine.grad is not None
        assert other.grad is not None
        np.testing.assert_allclose(mine.grad.numpy(), other.grad.numpy(), 1e-4, 1e-4)
    # The state is that of the plain layer, and the averages.
    assert set(plain.state_dict()) < set(layer.state_dict())
    layer.eval()
    before = layer.quantizer.moving_average_observer.moving_max.tolist()
    layer(x * 10)
    assert layer.quantizer.moving_average_observer.moving_max.tolist() == before


@pytest.mark.parametrize("kind", [nn.qat.QatLinear, nn.QatConv1d])
def test_all_tensors_of_a_layer_are_on_its_device(kind: Any) -> None:
    settings = {"kernel_size": 1} if kind is nn.QatConv1d else {}
    layer = kind(2, 2, device="meta", **settings)
    assert layer(flow.ones(2, 2, device="meta")).device == flow.device("meta")


def test_layers_in_graphs() -> None:
    flow.manual_seed(2)
    layer = nn.QatLinear(3, 2)

    class Layer(nn.Graph):
        def __init__(self) -> None:
            super().__init__()
            self.layer = layer

        def build(self, x: flow.Tensor) -> flow.Tensor:
            found: flow.Tensor = self.layer(x)
            return found

    graph = Layer()
    for factor in (1.0, 2.0):
        x = flow.tensor(numbers(4, 3).astype(np.float32)) * factor
        expected = nn.qat.QatLinear(3, 2)
        expected.load_state_dict(layer.state_dict())
        wanted = expected(x).tolist()
        np.testing.assert_allclose(graph(x).tolist(), wanted, 1e-5)


def test_pytorchs_functions_name_the_wrong_argument() -> None:
    x = flow.ones(3, 2)
    with pytest.raises(ValueError, match="zero_point must be between -8 and 7, got 9"):
        flow.fake_quantize_per_tensor_affine(x, 0.1, 9, -8, 7)
    with pytest.raises(ValueError, match="quant_min 8 is above quant_max 7"):
        flow.fake_quantize_per_tensor_affine(x, 0.1, 0, 8, 7)
    with pytest.raises(TypeError, match="not defined for int64"):
        flow.fake_quantize_per_tensor_affine(x.long(), 0.1, 0, -8, 7)
    with pytest.raises(ValueError, match="scale must be a vector of 2 elements"):
        flow.fake_quantize_per_channel_affine(x, flow.ones(3), flow.zeros(2), 1, -8, 7)
    with pytest.raises(TypeError, match="zero_point must be int32 or floating-point, not int64"):
        flow.fake_quantize_per_channel_affine(x, flow.ones(3), flow.zeros(3).long(), 0, -8, 7)
    with pytest.raises(IndexError):
        flow.fake_quantize_per_channel_affine(x, flow.ones(3), flow.zeros(3), 2, -8, 7)
