"""Running sums and products in C, against numpy's."""

from __future__ import annotations

import numpy as np
import pytest

import vmflow as flow
from vmflow.kernels.native.running import Running

from .support import Array, hard_numbers, in_both_ways, same_bits

pytestmark = [pytest.mark.usefixtures("compiled"), pytest.mark.host]

SHAPES = [
    ((9000,), 0),
    ((1,), 0),
    ((3, 5), 1),
    ((3, 5), 0),
    ((300, 100), 1),
    ((300, 100), 0),
    ((40, 700), 0),
    ((7, 30, 50), 1),
    ((21, 30, 20), -1),
    ((0, 4), 1),
    ((4, 0), 1),
]


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int64", "int32", "bool", "complex64"])
@pytest.mark.parametrize("op", ["cumsum", "cumprod"])
@pytest.mark.parametrize(("shape", "dim"), SHAPES)
def test_running_sums_and_products(shape: tuple[int, ...], dim: int, op: str, dtype: str, threads: None) -> None:
    array = hard_numbers(shape, "float32" if dtype == "complex64" else dtype).astype(dtype)
    tame = np.random.default_rng(0).uniform(0.9, 1.1, shape).astype(dtype)
    for given in (array, tame):
        x = flow.tensor(given)

        def compute(x: flow.Tensor = x) -> Array:
            found: list[Array] = []
            for number in (1, 2, 3):
                flow.set_num_threads(number)
                found += [getattr(x, op)(dim).numpy() for _ in range(2)]  # the second time as it was remembered
                found.append(getattr(flow, op)(x, dim, out=flow.empty_like(getattr(x, op)(dim))).numpy())
            assert all([same_bits(value, found[0]) for value in found])
            return found[0]

        expected, found = in_both_ways(compute)
        assert same_bits(expected, found)


@pytest.mark.parametrize(("shape", "dim"), SHAPES)
def test_the_gradient_runs_from_the_other_end(shape: tuple[int, ...], dim: int) -> None:
    x = flow.tensor(hard_numbers(shape), requires_grad=True)
    weight = np.random.default_rng(1).standard_normal(shape).astype(np.float32)

    def gradient() -> Array:
        x.grad = None
        x.cumsum(dim).backward(flow.tensor(weight))
        assert x.grad is not None
        result: Array = x.grad.numpy().copy()
        return result

    expected, found = in_both_ways(gradient)
    assert same_bits(expected, found)
    exact = np.flip(np.cumsum(np.flip(weight, dim), dim, np.float64), dim)
    np.testing.assert_array_equal(found, exact.astype(np.float32))


@pytest.mark.parametrize("dim", [0, 1])
def test_sums_of_negative_zeros_are_negative(dim: int) -> None:
    x = flow.tensor(np.full((90, 80), -0.0, np.float32))
    for zeros in in_both_ways(lambda: x.cumsum(dim).numpy()):
        assert np.signbit(zeros).all()


def test_where_results_go() -> None:
    array = hard_numbers((60, 50))
    running = Running.of("cumsum", array.dtype, array.size, 1, False)
    assert running is not None
    expected = running.call(array, None)
    assert expected is not None
    for _ in range(2):
        same = array.copy()
        assert running.call(same, same) is same
        assert same_bits(same, expected)
        room = np.concatenate([array.ravel(), array.ravel()[:1]])
        elsewhere = running.call(room[:-1].reshape(60, 50), room[1:].reshape(60, 50))
        assert elsewhere is not None
        assert not np.may_share_memory(elsewhere, room)
        assert same_bits(elsewhere, expected)
    assert running.call(array.T, None) is None
    assert running.call(np.ones((60, 50), np.int16), None) is None
