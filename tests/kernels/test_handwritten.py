"""The kernels written by hand, through the ops and optimizers that use them, against numpy's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import vmflow as flow
from vmflow.kernels.native import arrays as by_hand, rows
from vmflow.kernels.native.functions import SINGLE
from vmflow.kernels.native.loading import LOADER

from .support import Array, check_alike, hard_numbers, in_both_ways, same_bits, steps_apart

functional = flow.nn.functional

pytestmark = [pytest.mark.usefixtures("compiled"), pytest.mark.host]

SHAPES = ((1, 1), (5, 7), (37, 129), (3, 8), (64, 1000), (2, 20000), (600, 33))


def _random(shape: tuple[int, ...], seed: int = 0, dtype: str = "float32") -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("name", ["exp", "log"])
def test_exponentials_and_logarithms(name: str) -> None:
    """Checks every 4099th number there is, and those around the limits."""
    borders = np.array([88.722839, 88.722832, 89, 90, -87.336548, -103.972084, -103.97209, -105, 0, 1, np.inf], "f4")
    near = (borders.view(np.int32)[:, None] + np.arange(-40, 41, dtype=np.int32)).ravel().view(np.float32)
    values = np.concatenate([np.arange(0, 1 << 32, 4099, dtype=np.uint64).astype(np.uint32).view(np.float32), near])
    found = getattr(flow, name)(flow.tensor(values)).numpy()
    with np.errstate(all="ignore"):
        exact = getattr(np, name)(values.astype(np.float64)).astype(np.float32)
    assert steps_apart(exact, found) <= 1


@pytest.mark.parametrize("name", sorted(SINGLE))
def test_how_an_array_lies_does_not_matter(name: str) -> None:
    single = by_hand.Single.of(name, np.dtype(np.float32), 3000)
    assert single is not None
    given = [hard_numbers((60, 50), seed=seed) for seed in range(SINGLE[name])]
    whole = single.call(given, None)
    apart = single.call([np.asfortranarray(value) for value in given], None)
    assert whole is not None
    assert apart is not None
    assert same_bits(whole, apart)
    room = np.zeros((60, 100), np.float32)[:, ::2]
    elsewhere = single.call(given, room)
    assert elsewhere is not None
    assert elsewhere is not room
    assert same_bits(whole, elsewhere)
    assert single.call([value.astype(np.float64) for value in given], None) is None


@pytest.mark.parametrize("name", sorted(SINGLE))
@pytest.mark.parametrize("shape", [(), (0,), (1,), (9, 33), (70001,)])
def test_ops_of_one_element(name: str, shape: tuple[int, ...]) -> None:
    operands = [flow.tensor(hard_numbers(shape, seed=seed)) for seed in range(SINGLE[name])]
    ops: dict[str, Any] = {"gelu": functional.gelu, "silu": functional.silu}
    if SINGLE[name] == 2:
        before = functional.gelu if name == "gelu_gradient" else functional.relu
        expected, found = in_both_ways(lambda: _gradient(before, *operands))
    else:
        op = ops.get(name) or getattr(flow, name)
        expected, found = in_both_ways(lambda: op(*operands).numpy())
    check_alike(name, expected, found)


def _gradient(op: Callable[[flow.Tensor], flow.Tensor], operand: flow.Tensor, gradient: flow.Tensor) -> Array:
    leaf = operand.detach().clone().requires_grad_()
    op(leaf).backward(gradient)
    assert leaf.grad is not None
    return _numpy(leaf.grad)


def _numpy(tensor: flow.Tensor) -> Array:
    array: Array = tensor.detach().numpy()
    return array


LENGTHS = (1, 7, 8, 31, 32, 33, 63, 64, 1023, 1024, 1025, 1056, 3000, 16384, 16385, 50000, 140001)


OF_ROWS: dict[str, Callable[[Array], Array]] = {
    "sums": lambda matrix: matrix.sum(1),
    "squares": lambda matrix: np.square(matrix).sum(1),
    "products": lambda matrix: matrix.prod(1),
    "largest": lambda matrix: matrix.max(1),
    "smallest": lambda matrix: matrix.min(1),
}


def _reduction(name: str, matrix: Array) -> rows.RowReduction:
    found = rows.RowReduction.of(name, np.dtype(np.float32), matrix.size)
    assert found is not None
    return found


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("count", [1, 2, 3, 40])
@pytest.mark.parametrize("name", OF_ROWS)
def test_reductions_of_rows(name: str, length: int, count: int, threads: None) -> None:
    # Products of numbers near 1 are in range.
    matrix = np.abs(_random((count, length))) * (1e-4 if name == "products" else 1) + (name == "products")
    matrix = matrix.astype(np.float32)
    found: list[Array] = []
    for number in (1, 2, 3):
        flow.set_num_threads(number)
        in_c = _reduction(name, matrix)
        for _ in range(2):  # the second time as it was remembered
            result = in_c.call(matrix)
            assert result is not None
            found.append(result)
    assert all([same_bits(value, found[0]) for value in found])
    expected = OF_ROWS[name](matrix.astype(np.float64))
    np.testing.assert_allclose(found[0], expected, rtol=max(1e-6, 6e-8 * length) if name == "products" else 1e-6)
    assert _reduction(name, matrix).call(matrix.astype(np.float64)) is None
    assert rows.RowReduction.of(name, np.dtype(np.float64), matrix.size) is None


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("name", ["largest", "smallest"])
def test_extrema_of_rows_with_infinities_and_nan(name: str, length: int) -> None:
    plain = hard_numbers((40, length))
    plain[np.isnan(plain)] = 1
    odd = plain.copy()
    odd[np.arange(40), np.random.default_rng(0).integers(0, length, 40)] = np.nan
    for matrix in (plain, -plain, odd, np.full((2, length), -np.inf, "f4"), np.full((2, length), np.inf, "f4")):
        found = _reduction(name, matrix).call(matrix)
        assert found is not None
        assert same_bits(OF_ROWS[name](matrix), found)


def test_a_row_is_reduced_up_to_its_end_and_not_further() -> None:
    memory = np.full(3 * 16384 + 100, np.nan, np.float32)
    memory[50:-50] = 1
    for name, expected in (("sums", 0), ("squares", 0), ("products", 1), ("largest", 1), ("smallest", 1)):
        in_c = _reduction(name, memory)
        for length in (40, 1000, 16384, 16385, 3 * 16384):
            for start in (50, 51):
                inside = memory[start : start + length - 1].reshape(1, -1)
                assert in_c.call(inside) == [expected or length - 1]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("op", [functional.softmax, functional.log_softmax])
def test_softmax(op: Any, shape: tuple[int, int]) -> None:
    given = [_random(shape) * 20, hard_numbers(shape)]
    results = in_both_ways(lambda: [op(flow.tensor(value), -1).numpy() for value in given])
    for values, expected, found in zip(given, *results, strict=True):
        exact = op(flow.tensor(values.astype(np.float64)), -1).numpy()
        # For numbers up to 3e38 a row's largest, or a class that is 1e38 behind it, says nothing of digits.
        plain = np.isfinite(exact) & (np.abs(exact) < 1e30)
        np.testing.assert_array_equal(np.isnan(expected), np.isnan(found))
        np.testing.assert_allclose(found[plain], exact[plain], rtol=2e-6, atol=1e-6)


def test_softmax_in_place_and_of_other_layouts() -> None:
    x = _random((50, 300))
    softmax = rows.Softmax.of("softmax", x.dtype, x.size, False)
    logarithm = rows.Softmax.of("log_softmax", x.dtype, x.size, True)
    assert softmax is not None
    assert logarithm is not None
    out = np.zeros_like(x)
    room = np.concatenate([x.ravel(), [0]], dtype=np.float32)
    for _ in range(2):  # the second time as it was remembered
        assert softmax.call(x, out) is out
        same = x.copy()
        assert softmax.call(same, same) is same
        np.testing.assert_array_equal(same, out)
        elsewhere = softmax.call(room[:-1].reshape(x.shape), room[1:].reshape(x.shape))
        assert elsewhere is not None
        np.testing.assert_array_equal(elsewhere, out)
        logs = logarithm.call(x, x)
        assert logs is not None
        assert logs is not x
        np.testing.assert_allclose(np.exp(logs), out, rtol=1e-5)
    assert softmax.call(x.T, out.T) is None
    assert softmax.call(x.astype(np.float64), out) is None
    assert softmax.call(x[:, :0], None) is None


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("shape", SHAPES)
def test_cross_entropy(shape: tuple[int, int], reduction: str) -> None:
    target = flow.tensor(np.random.default_rng(1).integers(0, shape[1], shape[0]))

    def compute(dtype: str = "float32") -> tuple[Array, Array]:
        scores = flow.tensor(_random(shape, dtype=dtype) * 5).requires_grad_()
        loss = functional.cross_entropy(scores, target, reduction=reduction)
        loss.backward(flow.full(loss.shape, 1.5, dtype=loss.dtype))
        assert scores.grad is not None
        return loss.detach().numpy(), scores.grad.numpy()

    for exact, expected, found in zip(compute("float64"), *in_both_ways(compute), strict=True):
        assert found.dtype == expected.dtype
        np.testing.assert_allclose(found, exact, rtol=5e-6, atol=1e-6)


@pytest.mark.parametrize("wrong", [-1, 10, 1 << 40])
def test_a_class_that_does_not_exist(wrong: int) -> None:
    target = np.zeros(500, np.int64)
    target[499] = wrong
    with pytest.raises(IndexError, match=f"class index {wrong} is out of range for 10 classes"):
        functional.cross_entropy(flow.tensor(_random((500, 10))), flow.tensor(target)).item()


def test_an_ignored_class_is_ignored() -> None:
    scores, target = _random((500, 10)), np.random.default_rng(1).integers(0, 10, 500)
    target[::3] = -100
    expected, found = in_both_ways(lambda: functional.cross_entropy(flow.tensor(scores), flow.tensor(target)).numpy())
    assert same_bits(expected, found)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("parameters", ["both", "weight", "neither"])
def test_layer_norm(shape: tuple[int, int], parameters: str) -> None:
    features = shape[1]

    def compute(dtype: str = "float32") -> list[Array]:
        x = flow.tensor(_random(shape, dtype=dtype) + 1).requires_grad_()
        weight = flow.tensor(_random((features,), 1, dtype)).requires_grad_() if parameters != "neither" else None
        bias = flow.tensor(_random((features,), 2, dtype)).requires_grad_() if parameters == "both" else None
        y = functional.layer_norm(x, (features,), weight, bias, 1e-3)
        y.backward(flow.tensor(_random(shape, 3, dtype)))
        leaves = [value for value in (x, weight, bias) if value is not None]
        return [y.detach().numpy(), *[leaf.grad.numpy() for leaf in leaves if leaf.grad is not None]]

    expected, found = in_both_ways(compute)
    for exact, numpys, ours in zip(compute("float64"), expected, found, strict=True):
        scale = max(1.0, float(np.abs(exact).max()))
        # No further from the exact result than numpy's, or by a little.
        limit = 2 * np.abs(numpys - exact).max() + 2e-6 * scale
        assert np.abs(ours - exact).max() <= limit


def test_layer_norm_of_nan() -> None:
    x = _random((4, 40))
    x[1, 3], x[2, 0] = np.nan, np.inf
    expected, found = in_both_ways(lambda: functional.layer_norm(flow.tensor(x), (40,)).numpy())
    np.testing.assert_array_equal(np.isnan(expected), np.isnan(found))
    np.testing.assert_allclose(expected[[0, 3]], found[[0, 3]], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("shape", [shape for shape in SHAPES if shape[1] < 2000])
def test_bias_of_a_dense_layer(shape: tuple[int, int]) -> None:
    outputs = shape[1]

    def compute() -> tuple[Array, Array]:
        bias = flow.tensor(_random((outputs,), 1)).requires_grad_()
        y = functional.linear(flow.tensor(_random((shape[0], 4))), flow.ones(outputs, 4), bias)
        y.backward(flow.tensor(_random(shape, 2)))
        assert bias.grad is not None
        return y.detach().numpy(), bias.grad.numpy()

    expected, found = in_both_ways(compute)
    assert same_bits(expected[0], found[0])
    np.testing.assert_allclose(found[1], expected[1], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("shape", [(8, 1024), (9, 1500), (300, 100), (700, 513), (5000, 3)])
@pytest.mark.parametrize("threads", [1, 3])
def test_sums_of_columns(shape: tuple[int, int], threads: int) -> None:
    before = flow.get_num_threads()
    matrix = _random(shape)
    flow.set_num_threads(threads)
    try:
        found = flow.tensor(matrix).sum(0).numpy()
        assert rows.ColumnSums.of("column_sums", matrix.dtype, matrix.size) is not None
    finally:
        flow.set_num_threads(before)
    scale = np.abs(matrix).sum(0, dtype=np.float64)
    assert (np.abs(found - matrix.sum(0, dtype=np.float64)) <= 2e-7 * scale).all()
    flow.set_num_threads(1)
    assert same_bits(flow.tensor(matrix).sum(0).numpy(), found)
    flow.set_num_threads(before)


# Optimizers

STEPS = 3

OPTIMIZERS: dict[str, tuple[Any, dict[str, Any]]] = {
    "sgd": (flow.optim.SGD, {"lr": 0.1}),
    "sgd, decay, up": (flow.optim.SGD, {"lr": 0.1, "weight_decay": 0.01, "maximize": True}),
    "momentum": (flow.optim.SGD, {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01}),
    "nesterov": (flow.optim.SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True, "maximize": True}),
    "dampening": (flow.optim.SGD, {"lr": 0.1, "momentum": 0.9, "dampening": 0.3}),
    "adam": (flow.optim.Adam, {}),
    "adam, decay": (flow.optim.Adam, {"weight_decay": 0.1, "eps": 1e-4}),
    "adam, up": (flow.optim.Adam, {"maximize": True}),
    "adamw": (flow.optim.AdamW, {"lr": 0.01}),
    "amsgrad": (flow.optim.Adam, {"amsgrad": True}),
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_steps_are_the_same_to_the_bit(name: str, dtype: str) -> None:
    kind, settings = OPTIMIZERS[name]

    def compute() -> list[Array]:
        parameters = [flow.tensor(_random((size,), size, dtype)).requires_grad_() for size in (40001, 1, 12)]
        optimizer = kind(parameters, **settings)
        for step in range(STEPS):
            for parameter in parameters:
                parameter.grad = flow.tensor(hard_numbers(tuple(parameter.shape), dtype, step))
            optimizer.step()
        state = [value.numpy() for one in optimizer.state.values() for value in one.values()]
        return [*[entry.detach().numpy() for entry in parameters], *state]

    for expected, found in zip(*in_both_ways(compute), strict=True):
        assert same_bits(expected, found)


@pytest.mark.parametrize("name", ["sgd", "momentum", "adam", "adamw"])
def test_small_parameters_take_their_steps_together(name: str) -> None:
    """Among large ones, ones with gaps, and ones of another dtype, whose steps are taken one by one."""
    kind, settings = OPTIMIZERS[name]

    def compute() -> list[Array]:
        base = flow.tensor(_random((20, 30), 1))
        parameters = [flow.tensor(_random((size,), size)).requires_grad_() for size in (3, 70_001, 500, 1)]
        parameters[2:2] = [base[:, ::2].requires_grad_(), flow.tensor(_random((7,), 2, "float64")).requires_grad_()]
        optimizer = kind(parameters, **settings)
        for step in range(STEPS):
            for number, parameter in enumerate(parameters):
                # One of them begins later, and counts its own steps.
                if number or step:
                    parameter.grad = flow.tensor(_random(tuple(parameter.shape), step, parameter.dtype.name))
            optimizer.step()
        return [value.detach().numpy() for value in parameters]

    for expected, found in zip(*in_both_ways(compute), strict=True):
        assert same_bits(expected, found)


@pytest.mark.parametrize("name", ["sgd", "momentum", "adam"])
def test_c_may_be_switched_off_between_two_steps_of_a_graph(name: str, compiled: None) -> None:
    kind, settings = OPTIMIZERS[name]

    class Training(flow.nn.Graph):
        def __init__(self, layer: flow.nn.Module) -> None:
            super().__init__()
            self.layer = layer
            self.add_optimizer(kind(layer.parameters(), **settings))

        def build(self, x: flow.Tensor) -> flow.Tensor:
            loss: flow.Tensor = self.layer(x).sum()
            loss.backward()
            return loss

    def trained(modes: list[str]) -> list[Array]:
        layer = flow.nn.Linear(6, 5)
        with flow.no_grad():
            for parameter in layer.parameters():
                parameter.copy_(flow.tensor(_random(tuple(parameter.shape), 1)))
        graph = Training(layer)
        for mode in modes:
            LOADER.mode = mode
            _numpy(graph(flow.tensor(_random((4, 6)))))
        return [value.detach().numpy() for value in layer.parameters()]

    expected = trained(["off"] * 6)
    for one, other in zip(trained(["wait", "wait", "off", "off", "wait", "wait"]), expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)


def test_a_parameter_with_gaps_is_left_to_numpy() -> None:
    def compute() -> Array:
        base = flow.tensor(_random((200, 100)))
        view = base[:, ::2].requires_grad_()
        view.grad = flow.ones(200, 50)
        flow.optim.SGD([view], lr=0.5).step()
        return _numpy(base)

    assert same_bits(*in_both_ways(compute))


def test_half_precision_is_left_to_numpy() -> None:
    def compute() -> Array:
        parameter = flow.tensor(_random((9000,)).astype(np.float16)).requires_grad_()
        parameter.grad = flow.ones(9000, dtype=flow.float16)
        flow.optim.Adam([parameter]).step()
        return _numpy(parameter)

    assert same_bits(*in_both_ways(compute))
