"""Recurrent layers against loops over single sequences, and their fused gradients against numerical ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import vmflow as flow
from tests.support import arrays_for, check_gradients
from vmflow.ops.nn.recurrent import GATES, Layer, composed_layer, recurrent_layer

pytestmark = pytest.mark.usefixtures("contract")

Array = NDArray[Any]

FEATURES, HIDDEN = 3, 2
SIZES = (3, 2, 2, 1)

LAYERS = [
    Layer("rnn_tanh", False, True, False),
    Layer("rnn_relu", True, False, False),
    Layer("rnn_tanh", False, True, False, SIZES),
    Layer("lstm", False, True, False),
    Layer("lstm", True, False, False),
    Layer("lstm", False, True, True, SIZES),
    Layer("lstm", True, True, True, SIZES),
    Layer("gru", False, True, False),
    Layer("gru", True, False, False),
    Layer("gru", False, False, False, SIZES),
    Layer("gru", True, True, False, SIZES),
]


def _operands(layer: Layer, seed: int = 0) -> list[Array]:
    gates, shown = GATES[layer.kind] * HIDDEN, 1 if layer.projected else HIDDEN
    shapes: list[tuple[int, ...]] = [(sum(SIZES), FEATURES) if layer.sizes else (4, 3, FEATURES), (3, shown)]
    shapes += [(3, HIDDEN)] if layer.kind == "lstm" else []
    shapes += [(gates, FEATURES), (gates, shown)]
    shapes += [(gates,), (gates,)] if layer.biased else []
    shapes += [(shown, HIDDEN)] if layer.projected else []
    return arrays_for(seed, *shapes, low=-1.0, high=1.0)


def _sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


def _step(layer: Layer, row: Array, state: list[Array], weights: list[Array]) -> list[Array]:
    """One step of one sequence, from the formulas."""
    by_input, by_state, *rest = weights
    offsets = rest[:2] if layer.biased else [np.zeros(len(by_input)), np.zeros(len(by_input))]
    first, second = by_input @ row + offsets[0], by_state @ state[0] + offsets[1]
    if layer.kind == "rnn_tanh":
        return [np.tanh(first + second)]
    if layer.kind == "rnn_relu":
        return [np.maximum(first + second, 0)]
    if layer.kind == "lstm":
        i, f, g, o = np.split(first + second, 4)
        cell = _sigmoid(f) * state[1] + _sigmoid(i) * np.tanh(g)
        shown = _sigmoid(o) * np.tanh(cell)
        return [rest[-1] @ shown if layer.projected else shown, cell]
    (r1, z1, n1), (r2, z2, n2) = np.split(first, 3), np.split(second, 3)
    update = _sigmoid(z1 + z2)
    return [(1 - update) * np.tanh(n1 + _sigmoid(r1 + r2) * n2) + update * state[0]]


def _oracle(layer: Layer, operands: list[Array]) -> list[Array]:
    """Sequence by sequence."""
    source, *rest = operands
    initial, weights = rest[: layer.states], rest[layer.states :]
    sizes = layer.sizes or (source.shape[1],) * source.shape[0]
    starts = np.concatenate([[0], np.cumsum(sizes)])
    flat = source.reshape(-1, source.shape[-1])
    results = np.zeros((len(flat), initial[0].shape[1]))
    last = [entry.copy() for entry in initial]
    for sequence in range(sizes[0]):
        places = [start + sequence for start, size in zip(starts[:-1], sizes, strict=True) if sequence < size]
        state = [entry[sequence] for entry in initial]
        for place in reversed(places) if layer.reverse else places:
            state = _step(layer, flat[place], state, weights)
            results[place] = state[0]
        for kept, value in zip(last, state, strict=True):
            kept[sequence] = value
    return [results.reshape(*source.shape[:-1], -1), *last]


@pytest.mark.parametrize("layer", LAYERS, ids=str)
def test_against_single_sequences(layer: Layer) -> None:
    arrays = _operands(layer)
    tensors = [flow.tensor(array) for array in arrays]
    for results in (recurrent_layer(layer, *tensors), composed_layer(layer, *tensors)):
        for found, expected in zip(results, _oracle(layer, arrays), strict=True):
            np.testing.assert_allclose(found.numpy(), expected, rtol=1e-12, atol=1e-12)


def _together(layer: Layer) -> Callable[..., flow.Tensor]:
    """All results as one vector."""
    return lambda *operands: flow.cat([tensor.reshape(-1) for tensor in recurrent_layer(layer, *operands)])


@pytest.mark.parametrize("layer", LAYERS, ids=str)
def test_gradients(layer: Layer) -> None:
    check_gradients(_together(layer), *_operands(layer))


@pytest.mark.slow
@pytest.mark.parametrize("layer", [LAYERS[2], LAYERS[6], LAYERS[10]], ids=str)
def test_gradients_of_gradients(layer: Layer) -> None:
    check_gradients(_together(layer), *_operands(layer), second=True)


@pytest.mark.parametrize("layer", [LAYERS[0], LAYERS[5], LAYERS[7]], ids=str)
def test_only_some_results_and_operands(layer: Layer) -> None:
    """The gradient by each operand alone, of each result alone, is that of the composed layer."""
    arrays = _operands(layer)
    for place in range(len(arrays)):
        for result in range(1 + layer.states):
            gradients: list[Any] = []
            for run in (recurrent_layer, composed_layer):
                tensors = [flow.tensor(array, requires_grad=at == place) for at, array in enumerate(arrays)]
                (run(layer, *tensors)[result] ** 2).sum().backward()
                assert [tensor.grad is not None for tensor in tensors] == [at == place for at in range(len(arrays))]
                gradients.append(tensors[place].grad)
            np.testing.assert_allclose(gradients[0].numpy(), gradients[1].numpy(), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("kind", ["rnn_tanh", "lstm", "gru"])
def test_strided_operands_and_an_empty_batch(kind: str) -> None:
    layer = Layer(kind, False, True, False)
    arrays = _operands(layer)
    plain = recurrent_layer(layer, *[flow.tensor(array) for array in arrays])
    strided = [flow.tensor(np.ascontiguousarray(array.T)).permute(*range(array.ndim - 1, -1, -1)) for array in arrays]
    for found, expected in zip(recurrent_layer(layer, *strided), plain, strict=True):
        np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-12)
    operands = [flow.tensor(array, requires_grad=True) for array in arrays]
    nobody = [
        operands[0][:, :0],
        *[operand[:0] for operand in operands[1 : 1 + layer.states]],
        *operands[1 + layer.states :],
    ]
    results = recurrent_layer(layer, *nobody)
    assert [tuple(result.shape) for result in results] == [(4, 0, HIDDEN), *[(0, HIDDEN)] * layer.states]
    results[0].sum().backward()
    weight = operands[-1].grad
    assert weight is not None
    assert not weight.numpy().any()


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("kind", ["rnn_tanh", "lstm", "gru"])
def test_a_recorded_backward_pass_of_an_empty_batch(kind: str, reverse: bool) -> None:
    layer = Layer(kind, reverse, True, False)
    operands = [flow.tensor(value, requires_grad=True) for value in _operands(layer)]
    nobody = [
        operands[0][:, :0],
        *[value[:0] for value in operands[1 : 1 + layer.states]],
        *operands[1 + layer.states :],
    ]
    total = flow.cat([tensor.reshape(-1) for tensor in recurrent_layer(layer, *nobody)]).pow(2).sum()
    found = flow.autograd.grad(total, operands, create_graph=True)
    for gradient, operand in zip(found, operands, strict=True):
        assert gradient is not None
        assert gradient.shape == operand.shape
        assert not gradient.detach().numpy().any()


@pytest.mark.parametrize("dtype", [flow.float16, flow.bfloat16])
@pytest.mark.parametrize("kind", ["rnn_relu", "lstm", "gru"])
def test_half_precision_is_rounded_once(kind: str, dtype: flow.dtype) -> None:
    layer = Layer(kind, False, True, False)
    half = [flow.tensor(operand).to(dtype).requires_grad_() for operand in _operands(layer)]
    single = [tensor.detach().float().requires_grad_() for tensor in half]
    results, expected = recurrent_layer(layer, *half), recurrent_layer(layer, *single)
    for found, wide in zip(results, expected, strict=True):
        assert found.dtype is dtype
        np.testing.assert_array_equal(found.detach().float().numpy(), wide.detach().to(dtype).float().numpy())
    results[1].sum().backward()
    expected[1].sum().backward()
    for found, wide in zip(half, single, strict=True):
        assert found.grad is not None
        assert wide.grad is not None
        assert found.grad.dtype is dtype
        np.testing.assert_allclose(found.grad.float().numpy(), wide.grad.numpy(), rtol=2e-2, atol=2e-2)


def test_extreme_sums_saturate() -> None:
    layer = Layer("lstm", False, False, False)
    arrays = [operand * 1e4 for operand in _operands(layer)]
    operands = [flow.tensor(array, dtype=flow.float32, requires_grad=True) for array in arrays]
    results = recurrent_layer(layer, *operands)
    results[0].sum().backward()
    assert all(np.isfinite(result.detach().numpy()).all() for result in results)
    assert all(operand.grad is not None and np.isfinite(operand.grad.numpy()).all() for operand in operands)


@pytest.mark.parametrize(
    ("layer", "place", "shape", "message"),
    [
        (LAYERS[3], 0, (4, 3), r"lstm: expected a 3-d input, got one of shape \[4, 3\]"),
        (LAYERS[3], 1, (2, 2), r"lstm: the initial state has shape \[2, 2\], where \[3, 2\]"),
        (LAYERS[3], 2, (3, 5), r"lstm: the initial state has shape \[3, 2\]|weight_ih has shape"),
        (LAYERS[7], 2, (5, 3), r"gru: weight_ih has shape \[5, 3\], where \[6, 3\]"),
        (LAYERS[0], 3, (2, 3), r"rnn_tanh: weight_hh has shape \[2, 3\], where \[2, 2\]"),
        (LAYERS[0], 5, (3,), r"rnn_tanh: bias_hh has shape \[3\], where \[2\]"),
        (LAYERS[5], 7, (2, 2), r"lstm: weight_hr has shape \[2, 2\], where \[1, 2\]"),
        (LAYERS[5], 0, (7, 3), r"lstm: 7 rows are not the 8 that the batch sizes promise"),
        (LAYERS[0], 0, (0, 3, 3), r"rnn_tanh: a sequence needs at least one step"),
    ],
)
def test_shapes_that_do_not_fit(layer: Layer, place: int, shape: tuple[int, ...], message: str) -> None:
    operands = [flow.tensor(operand) for operand in _operands(layer)]
    operands[place] = flow.zeros(shape, dtype=flow.float64)
    with pytest.raises(ValueError, match=message):
        recurrent_layer(layer, *operands)


def test_dtypes_must_agree_and_be_floating() -> None:
    operands = [flow.tensor(operand) for operand in _operands(LAYERS[0])]
    with pytest.raises(TypeError, match="rnn_tanh: expected floating-point tensors of one dtype, got float32, float64"):
        recurrent_layer(LAYERS[0], operands[0].float(), *operands[1:])
    with pytest.raises(TypeError, match=r"rnn_tanh: .*int64"):
        recurrent_layer(LAYERS[0], *[operand.long() for operand in operands])
