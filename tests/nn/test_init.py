"""`nn.init`: the distributions of values, and arguments that are refused."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import numpy as np
import pytest

import vmflow as flow
from vmflow import nn
from vmflow.kernels.numpy.normal_quantile import normal_quantile
from vmflow.nn import init


def filled(function: Any, *shape: int, dtype: Any = None, **arguments: Any) -> Any:
    tensor = nn.Parameter(flow.full(shape, math.nan, dtype=dtype))
    assert function(tensor, **arguments) is tensor
    assert tensor.is_leaf
    assert tensor.grad_fn is None
    return tensor.detach().double().numpy()


def test_constants() -> None:
    assert (filled(init.zeros_, 2, 3) == 0).all()
    assert (filled(init.ones_, 2, 3) == 1).all()
    assert (filled(init.constant_, 2, 3, val=2.5) == 2.5).all()
    np.testing.assert_array_equal(filled(init.eye_, 2, 3), np.eye(2, 3))
    with pytest.raises(ValueError, match="2 dimensions"):
        init.eye_(flow.zeros(3))


def test_uniform() -> None:
    values = filled(init.uniform_, 200, 200, a=-1.0, b=3.0)
    assert values.min() >= -1
    assert values.max() < 3
    np.testing.assert_allclose(values.mean(), 1.0, atol=0.03)
    np.testing.assert_allclose(values.var(), 16 / 12, rtol=0.02)


def test_normal() -> None:
    values = filled(init.normal_, 200, 200, mean=2.0, std=0.5)
    np.testing.assert_allclose([values.mean(), values.std()], [2.0, 0.5], rtol=0.02)


@pytest.mark.parametrize(
    ("function", "arguments", "variance"),
    [
        (init.xavier_uniform_, {}, 2 / (150 + 300)),
        (init.xavier_normal_, {"gain": 2.0}, 4 * 2 / (150 + 300)),
        (init.kaiming_uniform_, {}, 2 / 150),
        (init.kaiming_uniform_, {"a": math.sqrt(5)}, 1 / 3 / 150),
        (init.kaiming_normal_, {"mode": "fan_out", "nonlinearity": "relu"}, 2 / 300),
        (init.kaiming_normal_, {"nonlinearity": "linear"}, 1 / 150),
    ],
)
def test_variances(function: Any, arguments: dict[str, Any], variance: float) -> None:
    # 100 outputs and 50 inputs under a kernel of 3
    values = filled(function, 100, 50, 3, dtype=flow.float64, **arguments)
    np.testing.assert_allclose(values.var(), variance, rtol=0.05)
    assert abs(values.mean()) < 4 * math.sqrt(variance / values.size)
    if "uniform" in function.__name__:
        assert np.abs(values).max() <= math.sqrt(3 * variance)


def test_trunc_normal() -> None:
    values = filled(init.trunc_normal_, 300, 200, mean=1.0, std=2.0, a=0.0, b=3.0, dtype=flow.float64)
    assert values.min() >= 0
    assert values.max() <= 3
    # Mean and variance of the normal distribution cut at one half standard deviation below and one above.
    low, high = -0.5, 1.0
    density = [math.exp(-value * value / 2) / math.sqrt(2 * math.pi) for value in (low, high)]
    mass = 0.5 * (math.erf(high / math.sqrt(2)) - math.erf(low / math.sqrt(2)))
    shift = (density[0] - density[1]) / mass
    spread = 1 + (low * density[0] - high * density[1]) / mass - shift**2
    np.testing.assert_allclose(values.mean(), 1 + 2 * shift, atol=0.02)
    np.testing.assert_allclose(values.var(), 4 * spread, rtol=0.03)


@pytest.mark.parametrize(("a", "b"), [(9.0, 10.0), (-10.0, -9.0)])
def test_trunc_normal_far_out_in_the_tail(a: float, b: float) -> None:
    values = filled(init.trunc_normal_, 1000, a=a, b=b, dtype=flow.float64)
    assert ((values >= a) & (values <= b)).all()
    assert len(np.unique(values)) > 990
    # Nearly all of it lies next to the end that is nearer to the mean.
    np.testing.assert_allclose(np.abs(values).mean(), 9.108, atol=0.02)


def test_normal_quantile_against_the_standard_library() -> None:
    from statistics import NormalDist

    probabilities = np.concatenate(
        [np.linspace(0.001, 0.999, 500), 10.0 ** -np.arange(3, 300, 11), 1 - 10.0 ** -np.arange(3, 15)]
    )
    expected = [NormalDist().inv_cdf(probability) for probability in probabilities]
    np.testing.assert_allclose(normal_quantile(probabilities), expected, rtol=1e-13)
    np.testing.assert_array_equal(normal_quantile(np.array([0.0, 1.0])), [-np.inf, np.inf])


@pytest.mark.parametrize("shape", [(4, 7), (7, 4), (3, 2, 5), (12, 2, 3)])
def test_orthogonal(shape: tuple[int, ...]) -> None:
    values = filled(init.orthogonal_, *shape, gain=3.0, dtype=flow.float64).reshape(shape[0], -1)
    product = values @ values.T if values.shape[0] <= values.shape[1] else values.T @ values
    np.testing.assert_allclose(product, 9 * np.eye(len(product)), atol=1e-12)


def test_a_generator_gives_the_same_numbers_again() -> None:
    for function in (
        init.uniform_,
        init.normal_,
        init.xavier_uniform_,
        init.xavier_normal_,
        init.kaiming_uniform_,
        init.kaiming_normal_,
        init.trunc_normal_,
        init.orthogonal_,
    ):
        first, second = (filled(function, 5, 4, generator=flow.Generator().manual_seed(3)) for _ in range(2))
        np.testing.assert_array_equal(first, second)
        assert len(np.unique(first)) > 10
        assert not np.array_equal(first, filled(function, 5, 4, generator=flow.Generator().manual_seed(4)))


def test_views_can_be_filled() -> None:
    whole = flow.zeros(4, 6)
    init.orthogonal_(whole.t()[1:3])
    init.trunc_normal_(whole[:, 4])
    array = whole.numpy()
    np.testing.assert_allclose(array[:, 1:3].T @ array[:, 1:3], np.eye(2), atol=1e-6)
    assert (array[:, 4] != 0).all()
    assert (array[:, [0, 3, 5]] == 0).all()


def test_gains() -> None:
    assert init.calculate_gain("linear") == 1
    assert init.calculate_gain("conv_transpose2d") == 1
    assert init.calculate_gain("tanh") == 5 / 3
    assert init.calculate_gain("relu") == math.sqrt(2)
    assert init.calculate_gain("leaky_relu", 0.2) == math.sqrt(2 / 1.04)
    assert init.calculate_gain("leaky_relu") == math.sqrt(2 / 1.0001)
    assert init.calculate_gain("selu") == 0.75
    with pytest.raises(ValueError, match="unknown nonlinearity 'swish'"):
        init.calculate_gain("swish")
    with pytest.raises(ValueError, match="slope"):
        init.calculate_gain("leaky_relu", True)


def test_arguments_that_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 2 dimensions"):
        init.xavier_uniform_(flow.zeros(3))
    with pytest.raises(ValueError, match="at least 2 dimensions"):
        init.orthogonal_(flow.zeros(3))
    with pytest.raises(ValueError, match="mode"):
        init.kaiming_normal_(flow.zeros(3, 3), mode="fan")
    with pytest.raises(ValueError, match="positive"):
        init.trunc_normal_(flow.zeros(3), std=0)
    with pytest.raises(ValueError, match="not below"):
        init.trunc_normal_(flow.zeros(3), a=1, b=1)
    with pytest.raises(TypeError, match="floating-point"):
        init.trunc_normal_(flow.zeros(3, dtype=flow.int64))
    with pytest.raises(ValueError, match="above"):
        init.uniform_(flow.zeros(3), 1, 0)


def test_tensors_without_elements_are_left_alone() -> None:
    for function in (init.kaiming_uniform_, init.orthogonal_, init.trunc_normal_):
        assert function(flow.zeros(3, 0)).numel() == 0


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("shape", [(4, 2, 3), (4, 3, 3, 2), (2, 4, 1, 2, 3)])
def test_dirac_passes_channels_on(shape: tuple[int, ...], groups: int) -> None:
    torch = pytest.importorskip("torch")
    found = nn.init.dirac_(flow.empty(shape, dtype=flow.float64), groups)
    assert found.tolist() == torch.nn.init.dirac_(torch.empty(shape), groups).tolist()


def test_dirac_refuses() -> None:
    with pytest.raises(ValueError, match="expected 3, 4 or 5 dimensions"):
        nn.init.dirac_(flow.empty(2, 2))
    with pytest.raises(ValueError, match="3 outputs cannot be split into 2 groups"):
        nn.init.dirac_(flow.empty(3, 2, 2), 2)


def test_sparse_has_zeros_in_every_column() -> None:
    values = nn.init.sparse_(flow.empty(101, 40), 0.3, std=2.0).numpy()
    assert ((values == 0).sum(0) == 31).all()
    assert len({tuple(column) for column in (values == 0).T}) == 40
    assert values[values != 0].std() == pytest.approx(2, rel=0.1)
    with pytest.raises(ValueError, match="expected 2 dimensions"):
        nn.init.sparse_(flow.empty(3), 0.5)
    with pytest.raises(ValueError, match="must be within"):
        nn.init.sparse_(flow.empty(3, 2), 1.5)


async def test_a_task_that_begins_while_values_are_skipped_fills_tensors_after_the_end() -> None:
    ended = asyncio.Event()

    async def fill() -> tuple[list[float], list[float]]:
        values = nn.init.ones_(flow.zeros(2)).clone()
        await ended.wait()
        return (await values).tolist(), (await nn.init.ones_(flow.zeros(2))).tolist()

    with nn.init.skipped():
        task = asyncio.create_task(fill())
        await asyncio.sleep(0)
    ended.set()
    assert await task == ([0, 0], [1, 1])


async def test_a_task_of_an_inner_block_that_skips_values_skips_them_until_the_end_of_the_outer_block() -> None:
    ended = asyncio.Event()

    async def fill() -> flow.Tensor:
        await ended.wait()
        return nn.init.ones_(flow.zeros(2))

    with nn.init.skipped():
        with nn.init.skipped():
            task = asyncio.create_task(fill())
            await asyncio.sleep(0)
        ended.set()
        assert (await (await task)).tolist() == [0, 0]


@pytest.mark.parametrize(
    "function", [init.xavier_uniform_, init.xavier_normal_, init.kaiming_uniform_, init.kaiming_normal_]
)
def test_a_weight_without_elements(function: Any) -> None:
    assert filled(function, 0, 0).shape == (0, 0)


def test_a_layer_can_be_made_without_initial_values() -> None:
    state = flow.get_rng_state().tolist()
    layer = nn.utils.skip_init(nn.Linear, 3, 2, dtype=flow.float64)
    assert flow.get_rng_state().tolist() == state
    assert type(layer) is nn.Linear
    assert layer.weight.dtype is flow.float64
    assert layer.weight.requires_grad
    kept = flow.ones(2)
    with nn.init.skipped():
        assert nn.init.normal_(kept) is kept
        assert nn.init.zeros_(tensor=kept) is kept
    assert kept.tolist() == [1.0, 1.0]
    layer.reset_parameters()
    assert flow.get_rng_state().tolist() != state
    with pytest.raises(TypeError, match="expected a subclass"):
        nn.utils.skip_init(3)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        nn.utils.skip_init(nn.Linear, 3, 2, wrong=1)
    layer.reset_parameters()  # the failure has left nothing behind
    assert abs(layer.weight.detach().numpy()).max() > 0


def test_fans_by_the_name_that_programs_use() -> None:
    assert init._calculate_fan_in_and_fan_out(flow.ones(4, 3, 2, 2)) == (12, 16)


def test_old_names_warn_at_the_line_that_calls_them() -> None:
    for name in ("uniform", "normal", "xavier_uniform", "xavier_normal", "kaiming_uniform", "kaiming_normal", "eye"):
        weight = flow.zeros(3, 3)
        with pytest.warns(FutureWarning, match=f"use the new one|{name}_") as told:
            assert getattr(init, name)(weight) is weight
        assert [value.filename for value in told] == [__file__]
        assert weight.abs().sum().item() > 0
    assert init.xavier_uniform.__name__ == "xavier_uniform"
