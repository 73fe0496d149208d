"""Sums by BLAS: as accurate as numpy's own, for all shapes, and only for the arrays that they suit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import vmflow as flow
from vmflow.kernels.numpy import sums

pytestmark = pytest.mark.host

Array = np.ndarray[Any, Any]

LENGTHS = (1, 7, 512, 1024, 1025, 3000, 4096)


def _positive(*shape: int) -> Array:
    # All of one sign, so that nothing cancels and a relative error says all.
    return np.random.default_rng(0).random(shape, np.float32)


@pytest.mark.parametrize("length", LENGTHS)
def test_rows(length: int) -> None:
    matrix = _positive(16, length)
    np.testing.assert_allclose(sums.of_rows(matrix), matrix.sum(1, dtype=np.float64), rtol=1e-6)
    np.testing.assert_allclose(sums.of_rows(matrix[:1]), matrix[:1].sum(1, dtype=np.float64), rtol=1e-6)


@pytest.mark.parametrize("length", LENGTHS)
def test_columns(length: int) -> None:
    matrix = _positive(length, 33)
    out = np.empty(33, np.float32)
    assert sums.of_columns(matrix, out) is out
    np.testing.assert_allclose(out, matrix.sum(0, dtype=np.float64), rtol=3e-6)


def test_columns_of_float32_are_the_same_however_they_lie() -> None:
    matrix = _positive(300, 64)
    expected = sums.of_columns(matrix)
    for other in (np.asfortranarray(matrix), np.repeat(matrix, 2, 1)[:, ::2]):
        np.testing.assert_array_equal(sums.of_columns(other), expected)


@pytest.mark.parametrize("dims", [(0,), (1,), (2,), (0, 1), (1, 2), (0, 2), (0, 1, 2)])
def test_dimensions(dims: tuple[int, ...]) -> None:
    array = _positive(20, 30, 40)
    found = sums.over(array, dims)
    if dims == (1,):
        assert found is None
    else:
        assert found is not None
        np.testing.assert_allclose(found, array.sum(dims, dtype=np.float64), rtol=1e-6)


def test_no_sum_drifts_where_all_rounding_goes_one_way() -> None:
    """A strand of BLAS of this length alone would be off by 1e-4."""
    array = np.full((64, 1 << 16), 0.1, np.float32)
    exact = float(array[0, 0]) * array.shape[1]
    np.testing.assert_allclose(flow.tensor(array).sum(1).numpy(), exact, rtol=4e-6)
    np.testing.assert_allclose(flow.tensor(array).sum().item(), exact * 64, rtol=4e-6)
    np.testing.assert_allclose(flow.tensor(array).mean().item(), float(array[0, 0]), rtol=4e-6)


def test_infinities_and_nan_stay_where_they_are() -> None:
    array = np.ones((128, 128), np.float32)
    array[1, 2], array[3, 4], array[5, 6:8] = np.inf, np.nan, (np.inf, -np.inf)
    for dim in (0, 1):
        with np.errstate(invalid="ignore"):
            np.testing.assert_array_equal(flow.tensor(array).sum(dim).numpy(), array.sum(dim))


@pytest.mark.parametrize("dtype", [np.float16, np.int32, np.complex64])
def test_suits_only_the_dtypes_of_blas_for_real_numbers(dtype: Any) -> None:
    assert not sums.suits(np.ones((128, 128), dtype))
    assert sums.suits(np.ones((128, 128), np.float64))
    assert not sums.suits(np.ones((128, 128), np.float64).T[1:])


def test_ones_are_shared_and_cannot_be_changed() -> None:
    dtype = np.dtype(np.float32)
    assert sums.ones(5, dtype) is sums.ones(5, dtype)
    with pytest.raises(ValueError, match="read-only"):
        sums.ones(5, dtype)[0] = 2


@pytest.mark.parametrize("length", [32, 64, 1000, 1024])
def test_running_sums(length: int) -> None:
    array = np.random.default_rng(0).standard_normal((300, length)).astype(np.float32)
    found = flow.tensor(array).cumsum(1).numpy()
    exact = np.cumsum(array, 1, np.float64)
    np.testing.assert_array_equal(found, exact.astype(np.float32))
    shaped = flow.tensor(array.reshape(3, 100, length)).cumsum(-1)
    np.testing.assert_array_equal(shaped.numpy().reshape(found.shape), found)
    np.testing.assert_array_equal(flow.tensor(array).t().contiguous().cumsum(0).numpy().T, found)


@pytest.mark.parametrize("odd", [np.inf, -np.inf, np.nan])
def test_running_sums_are_finite_up_to_the_first_infinity_or_nan(odd: float) -> None:
    array = np.ones((200, 64), np.float32)
    array[7, 40] = odd
    np.testing.assert_array_equal(flow.tensor(array).cumsum(1).numpy(), np.cumsum(array, 1))


def test_running_sums_in_place() -> None:
    x = flow.ones(200, 64)
    x.cumsum_(1)
    np.testing.assert_array_equal(x.numpy(), np.tile(np.arange(1, 65, dtype=np.float32), (200, 1)))
