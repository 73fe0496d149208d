"""Dropout: the kept elements, their share, and the same elements in the backward pass."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import vmflow as flow
import vmflow.nn.functional as F
from tests.support import arrays_for
from vmflow.instructions.blob import meta
from vmflow.kernels.numpy.random import kept_elements
from vmflow.ops.nn.dropout import dropout

pytestmark = pytest.mark.usefixtures("contract")


@pytest.mark.parametrize("dtype", [flow.float32, flow.float64, flow.float16, flow.bfloat16, flow.complex64])
@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_kept_elements_are_scaled_up(dtype: flow.dtype, p: float) -> None:
    x = flow.ones(50, 40, dtype=dtype)
    result = dropout(x, p)
    assert result.dtype is dtype
    values = result.to(flow.complex64).numpy()
    scale = flow.ones(1, dtype=dtype).numpy()[0].dtype.type(1 / (1 - p))
    np.testing.assert_array_equal(np.unique(values), np.array([0, scale], np.complex64))
    # 2000 draws: four standard deviations are 0.045.
    assert abs((values == 0).mean() - p) < 0.045


def test_the_probability_is_exact() -> None:
    """One that lies between two numbers of sixteen bits is neither rounded up nor down."""
    count = 1 << 22
    mask = meta((count,), flow.bool, flow.device("cpu"))
    dropped = count - kept_elements(mask, 0.5 / 65536)(5, 0).sum()
    assert 10 <= dropped <= 54  # 32 expected, with a standard deviation of 5.7
    dropped = count - kept_elements(mask, 0.3)(5, 0).sum()
    assert abs(dropped / count - 0.3) < 1e-3


def test_a_seed_decides() -> None:
    x = flow.ones(100)
    flow.manual_seed(3)
    first, second = dropout(x), dropout(x)
    flow.manual_seed(3)
    again = dropout(x)
    assert first.tolist() == again.tolist()
    assert first.tolist() != second.tolist()


def test_neighbours_are_independent() -> None:
    values = dropout(flow.ones(1 << 16)).numpy() > 0
    for distance in (1, 2, 3, 4, 8):
        agree = (values[distance:] == values[:-distance]).mean()
        assert abs(agree - 0.5) < 0.01


@pytest.mark.parametrize("shape", [(), (1,), (3, 5), (0, 4), (70, 300)])
def test_gradient_uses_the_same_mask(shape: tuple[int, ...]) -> None:
    x = flow.tensor(arrays_for(1, shape, low=1.0)[0], requires_grad=True)
    result = dropout(x, 0.3)
    weights = flow.tensor(arrays_for(2, shape)[0])
    (result * weights).sum().backward()
    assert x.grad is not None
    factor = result.detach().numpy() / x.detach().numpy()
    np.testing.assert_allclose(x.grad.numpy(), factor * weights.numpy(), rtol=1e-12)


def test_second_derivative() -> None:
    x = flow.tensor(arrays_for(3, (20,))[0], requires_grad=True)
    result = dropout(x * x, 0.5)
    (gradient,) = flow.autograd.grad(result.sum(), x, create_graph=True)
    assert gradient is not None
    (second,) = flow.autograd.grad(gradient.sum(), x)
    assert second is not None
    np.testing.assert_allclose(second.numpy(), 2 * result.detach().numpy() / x.detach().numpy() ** 2, rtol=1e-12)


def test_strided_input() -> None:
    x = flow.tensor(arrays_for(4, (60, 50))[0], requires_grad=True)
    flow.manual_seed(1)
    moved = dropout(x.T, 0.5)
    flow.manual_seed(1)
    copied = dropout(x.T.contiguous(), 0.5)
    np.testing.assert_array_equal(moved.detach().numpy(), copied.detach().numpy())
    moved.sum().backward()
    assert x.grad is not None
    np.testing.assert_allclose(x.grad.numpy() * x.detach().numpy(), moved.detach().numpy().T, rtol=1e-12)


def test_nothing_happens_outside_of_training() -> None:
    x = flow.ones(3)
    assert dropout(x, 0.5, training=False) is x
    assert dropout(x, 0.0) is x


def test_everything_is_dropped() -> None:
    x = flow.ones(3, requires_grad=True)
    result = dropout(x, 1.0)
    assert result.tolist() == [0.0] * 3
    result.sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [0.0] * 3


@pytest.mark.parametrize("dtype", [flow.int64, flow.uint8, flow.bool, flow.bfloat16, flow.complex64])
@pytest.mark.parametrize("function", [F.dropout, F.dropout1d, flow.dropout], ids=["dropout", "dropout1d", "of vmflow"])
def test_the_dtype_stays_where_nothing_is_scaled(function: Any, dtype: flow.dtype) -> None:
    x = flow.ones(2, 3, dtype=dtype)
    dropped = function(x, 1.0)
    assert dropped.dtype is dtype
    assert dropped.tolist() == flow.zeros(2, 3, dtype=dtype).tolist()
    assert function(x, 0.0) is x
    assert function(x, 0.5, False) is x
    if not (dtype.is_floating_point or dtype.is_complex):
        with pytest.raises(TypeError, match=f"dropout is not defined for {dtype.name} tensors"):
            function(x, 0.5)


def test_all_integers_dropped_in_place() -> None:
    x = flow.tensor([1, 2])
    assert dropout(x, 1.0, inplace=True) is x
    assert x.tolist() == [0, 0]
    assert dropout(x, 1.0, addend=flow.tensor([3, 4])).tolist() == [3, 4]
    assert dropout(x, 1.0, addend=flow.tensor([3, 4])).dtype is flow.int64


def test_in_place() -> None:
    x = flow.ones(100)
    flow.manual_seed(2)
    expected = dropout(x)
    flow.manual_seed(2)
    assert dropout(x, inplace=True) is x
    assert x.tolist() == expected.tolist()


def test_in_place_is_recorded() -> None:
    leaf = flow.ones(100, requires_grad=True)
    x = leaf * 3
    dropout(x, 0.5, inplace=True)
    x.sum().backward()
    assert leaf.grad is not None
    np.testing.assert_allclose(leaf.grad.numpy(), x.detach().numpy())


@pytest.mark.parametrize("p", [-0.1, 1.1, float("nan")])
def test_probabilities_are_checked(p: float) -> None:
    with pytest.raises(ValueError, match=r"dropout: the probability must be within \[0, 1\]"):
        dropout(flow.ones(3), p)


@pytest.mark.parametrize("dtype", [flow.int64, flow.bool])
def test_dtypes_without_fractions(dtype: Any) -> None:
    with pytest.raises(TypeError, match=f"dropout is not defined for {dtype.name}"):
        dropout(flow.ones(3, dtype=dtype))


def test_an_addend_is_added_whether_training_or_not() -> None:
    x, addend = flow.ones(40, requires_grad=True), flow.full((40,), 3.0, requires_grad=True)
    result = F.dropout(x, 0.5, addend=addend)
    assert set(result.tolist()) == {3.0, 5.0}
    result.sum().backward()
    assert x.grad is not None
    assert addend.grad is not None
    assert x.grad.tolist() == (result - 3).tolist()
    assert addend.grad.tolist() == [1.0] * 40
    assert F.dropout(x, 0.5, False, addend=addend).tolist() == [4.0] * 40
    assert F.dropout(x, 1.0, addend=addend).tolist() == [3.0] * 40
    y = flow.ones(40)
    assert F.dropout(y, 0.5, False, True, addend=addend.detach()) is y
    assert y.tolist() == [4.0] * 40
    with pytest.raises(ValueError, match=r"expected an addend of the input's shape \[40\], got \[1\]"):
        F.dropout(x, 0.5, addend=flow.ones(1))


def test_an_explicit_generator_does_not_advance_the_default_one() -> None:
    x = flow.ones(100)
    before = flow.get_rng_state().tolist()
    found = [F.dropout(x, 0.5, generator=flow.Generator().manual_seed(4)).tolist() for _ in range(2)]
    assert found[0] == found[1]
    assert flow.get_rng_state().tolist() == before
    layer = flow.nn.Dropout(0.5, generator=flow.Generator().manual_seed(4))
    assert layer(x).tolist() == found[0]
    assert layer(x).tolist() != found[0]
    assert repr(layer) == "Dropout(p=0.5, inplace=False)"
