"""Embedding against loops over every index."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import vmflow as flow
from tests.support import arrays_for, check_gradients
from vmflow.ops.indexing.gathering import one_hot
from vmflow.ops.nn.embedding import embedding

pytestmark = pytest.mark.usefixtures("contract")

Array = NDArray[Any]


def looked_up(index: Array, table: Array) -> Array:
    result = np.empty((*index.shape, table.shape[1]))
    for place in np.ndindex(index.shape):
        result[place] = table[index[place]]
    return result


def scattered(index: Array, gradient: Array, rows: int, padding: int | None, by_frequency: bool) -> Array:
    result = np.zeros((rows, gradient.shape[-1]))
    for place in np.ndindex(index.shape):
        if index[place] != padding:
            result[index[place]] += gradient[place] / ((index == index[place]).sum() if by_frequency else 1)
    return result


@pytest.mark.parametrize("shape", [(), (4,), (3, 5), (2, 0)])
@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.uint8])
@pytest.mark.parametrize("padding", [None, 2, -2])
@pytest.mark.parametrize("by_frequency", [False, True])
def test_embedding(shape: tuple[int, ...], dtype: Any, padding: int | None, by_frequency: bool) -> None:
    index = np.random.default_rng(1).integers(0, 4, shape).astype(dtype)
    table, weights = arrays_for(1, (4, 3), (*shape, 3))
    weight = flow.tensor(table, requires_grad=True)
    result = embedding(flow.tensor(index), weight, padding, scale_grad_by_freq=by_frequency)
    np.testing.assert_array_equal(result.detach().numpy(), looked_up(index, table))
    (result * flow.tensor(weights)).sum().backward()
    assert weight.grad is not None
    row = None if padding is None else padding % 4
    np.testing.assert_allclose(weight.grad.numpy(), scattered(index, weights, 4, row, by_frequency), rtol=1e-12)


def test_gradients() -> None:
    (table,) = arrays_for(2, (4, 3))
    index = flow.tensor([[0, 2, 2], [3, 0, 2]])
    check_gradients(lambda w: embedding(index, w), table)
    check_gradients(lambda w: embedding(index, w * w), table, second=True)


@pytest.mark.parametrize("options", [{}, {"padding_idx": 2}, {"scale_grad_by_freq": True}], ids=str)
def test_the_gradient_can_be_differentiated(options: dict[str, Any]) -> None:
    """Its derivative by the gradient handed in; it is linear, so the derivative is the transpose."""
    table, start, direction = arrays_for(3, (4, 3), (5, 3), (4, 3))
    index = np.array([0, 2, 2, 3, 2])
    weight = flow.tensor(table, requires_grad=True)
    given = flow.tensor(start, requires_grad=True)
    (gradient,) = flow.autograd.grad(embedding(flow.tensor(index), weight, **options), weight, given, create_graph=True)
    assert gradient is not None
    (found,) = flow.autograd.grad((gradient * flow.tensor(direction)).sum(), given)
    assert found is not None
    expected = np.zeros_like(start)
    for place in np.ndindex(start.shape):
        one = np.zeros_like(start)
        one[place] = 1.0
        padding, by_frequency = options.get("padding_idx"), bool(options.get("scale_grad_by_freq"))
        expected[place] = (scattered(index, one, 4, padding, by_frequency) * direction).sum()
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-12)


def test_strided_operands() -> None:
    (table,) = arrays_for(4, (3, 4))
    index = np.random.default_rng(4).integers(0, 4, (5, 2))
    weight = flow.tensor(table, requires_grad=True)
    result = embedding(flow.tensor(index).T, weight.T)
    np.testing.assert_array_equal(result.detach().numpy(), looked_up(index.T, table.T))
    result.sum().backward()
    assert weight.grad is not None
    expected = scattered(index, np.ones((5, 2, 3)), 4, None, False).T
    np.testing.assert_allclose(weight.grad.numpy(), expected)


@pytest.mark.parametrize("dtype", [flow.float16, flow.bfloat16])
def test_half_precision_adds_up_in_single(dtype: flow.dtype) -> None:
    """Four thousand ones: sums in half precision would stop at 2048, and at 256."""
    weight = flow.zeros(2, 1, dtype=dtype, requires_grad=True)
    embedding(flow.zeros(4096, dtype=flow.int64), weight).sum().backward()
    assert weight.grad is not None
    assert weight.grad.dtype is dtype
    assert weight.grad.tolist() == [[4096.0], [0.0]]


@pytest.mark.parametrize("index", [4, -1])
def test_an_index_out_of_range_is_an_error_when_looked_at(index: int) -> None:
    result = embedding(flow.tensor([0, index]), flow.zeros(4, 2))
    with pytest.raises(IndexError, match=f"embedding: index {index} is out of range for a table of 4 rows"):
        result.numpy()


@pytest.mark.parametrize("order", [1.0, 2.0, 3.0, float("inf")])
def test_max_norm(order: float) -> None:
    (table,) = arrays_for(5, (5, 3))
    table[4] *= 0.01
    weight = flow.tensor(table, requires_grad=True)
    result = embedding(flow.tensor([[0, 2], [4, 2]]), weight, max_norm=0.5, norm_type=order)
    expected = table.copy()
    for row in (0, 2, 4):
        norm = abs(table[row]).max() if order == float("inf") else (abs(table[row]) ** order).sum() ** (1 / order)
        if norm > 0.5:
            expected[row] *= 0.5 / (norm + 1e-7)
    np.testing.assert_allclose(weight.detach().numpy(), expected, rtol=1e-12)
    np.testing.assert_allclose(result.detach().numpy(), expected[[[0, 2], [4, 2]]], rtol=1e-12)
    result.sum().backward()
    assert weight.grad is not None


def test_a_bad_index_does_not_cost_the_table_its_values() -> None:
    weight = flow.ones(3, 2)
    with pytest.raises(IndexError, match="out of range"):
        embedding(flow.tensor([1, 7]), weight, max_norm=1.0).numpy()
    np.testing.assert_allclose(weight.numpy()[[0, 2]], 1.0)
    np.testing.assert_allclose(weight.numpy()[1], 2**-0.5, rtol=1e-5)


@pytest.mark.parametrize(
    ("error", "message", "call"),
    [
        (TypeError, "indices must be integers, not float32", lambda: embedding(flow.ones(2), flow.ones(2, 2))),
        (TypeError, "indices must be integers, not bool", lambda: embedding(flow.tensor([True]), flow.ones(2, 2))),
        (ValueError, r"must be a matrix .*\[2\]", lambda: embedding(flow.tensor([1]), flow.ones(2))),
        (ValueError, "padding_idx 2 names no row", lambda: embedding(flow.tensor([1]), flow.ones(2, 2), 2)),
        (ValueError, "padding_idx -3 names no row", lambda: embedding(flow.tensor([1]), flow.ones(2, 2), -3)),
        (ValueError, "sparse", lambda: embedding(flow.tensor([1]), flow.ones(2, 2), sparse=True)),
    ],
)
def test_bad_arguments(error: type[Exception], message: str, call: Any) -> None:
    with pytest.raises(error, match=message):
        call()


def test_one_hot_is_the_transpose_of_a_look_up() -> None:
    index = flow.tensor([[0, 2], [1, 2]])
    encoded = one_hot(index, 4)
    assert encoded.dtype is flow.int64
    np.testing.assert_array_equal(encoded.numpy(), np.eye(4, dtype=np.int64)[index.numpy()])
    assert one_hot(index).shape == (2, 2, 3)


def test_rows_without_width_have_a_gradient_without_width() -> None:
    table = flow.ones(3, 0, requires_grad=True)
    embedding(flow.tensor([2, 0]), table).sum().backward()
    assert table.grad is not None
    assert table.grad.shape == (3, 0)


@pytest.mark.parametrize("dtype", [flow.int64, flow.complex64, flow.bool])
def test_only_rows_of_floats_have_norms_to_limit(dtype: flow.dtype) -> None:
    with pytest.raises(TypeError, match="embedding: max_norm needs a floating-point table"):
        embedding(flow.tensor([0]), flow.ones(3, 2, dtype=dtype), max_norm=1.0)
