"""Kernels over rows: many groups give the same as one, and the results go into the given memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from vmflow.kernels.numpy import rows

pytestmark = pytest.mark.host

Array = np.ndarray[Any, Any]


@pytest.fixture(params=["one group", "many groups"])
def matrix(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Array:
    if request.param == "many groups":
        monkeypatch.setattr(rows, "GROUP", 3 * 50 * 8)  # of 20 rows, which leaves a smaller one at the end
    return np.random.default_rng(0).standard_normal((20, 50))


def test_softmax_and_its_logarithm(matrix: Array) -> None:
    exponentials: Array = np.exp(matrix)
    expected = exponentials / exponentials.sum(1, keepdims=True)
    out = np.empty_like(matrix)
    rows.softmax(matrix, out, logarithm=False)
    np.testing.assert_allclose(out, expected, rtol=1e-12)
    rows.softmax(matrix, matrix, logarithm=True)
    np.testing.assert_allclose(matrix, np.log(expected), rtol=1e-12)


def test_normalize_and_its_gradients(matrix: Array) -> None:
    random = np.random.default_rng(1)
    weight, bias = random.standard_normal((2, 50))
    gradient = np.asarray(random.standard_normal(matrix.shape))
    out = np.empty_like(matrix)
    eps = np.float64(1e-5)
    means, scales = rows.normalize(matrix, weight, bias, eps, out)
    normalized = (matrix - matrix.mean(1, keepdims=True)) / np.sqrt(matrix.var(1, keepdims=True) + eps)
    np.testing.assert_allclose(means, matrix.mean(1), rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(out, normalized * weight + bias, rtol=1e-10, atol=1e-12)
    by_weight, by_bias = rows.normalize_backward(gradient, matrix, means, scales, weight, out, None)
    weighted = gradient * weight
    slope = (weighted * normalized).mean(1, keepdims=True)
    expected = scales[:, None] * (weighted - weighted.mean(1, keepdims=True) - normalized * slope)
    np.testing.assert_allclose(out, expected, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(by_weight, np.einsum("rf,rf->f", gradient, normalized), rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(by_bias, np.add.reduce(gradient, 0), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("shape", [(0, 5), (3, 0)])
def test_of_nothing_there_is_nothing(shape: tuple[int, int]) -> None:
    empty = np.empty(shape, np.float32)
    means, scales = rows.normalize(empty, None, None, np.float32(1.0), empty.copy())
    np.testing.assert_array_equal(means, np.zeros(shape[0]))
    by_weight, by_bias = rows.normalize_backward(empty, empty, means, scales, None, empty.copy(), None)
    np.testing.assert_array_equal(by_weight, np.zeros(shape[1]))
    np.testing.assert_array_equal(by_bias, np.zeros(shape[1]))


def test_a_destination_is_used_if_it_fits() -> None:
    matrix = np.zeros((4, 6), np.float32)
    fitting = np.empty((2, 2, 6), np.float32)
    assert np.shares_memory(rows.destination(fitting, matrix), fitting)
    for other in (None, np.empty((4, 6)), np.empty((6, 4), np.float32).T):
        found = rows.destination(other, matrix)
        assert found.shape == matrix.shape
        assert other is None or not np.shares_memory(found, other)
