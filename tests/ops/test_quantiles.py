"""Quantiles, the median without nan, and the most frequent element: against numpy."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import vmflow as flow
from tests.support import arrays_for, check_gradients

from .oracle import ORDERED, REAL, Array, KernelContract, check, layouts, sample

NAN = math.nan
# numpy knows the ways by literal types.
_QUANTILE: Any = np.quantile
WAYS = ("linear", "lower", "higher", "midpoint", "nearest")


def _with_nans() -> Array:
    array = sample((3, 4), "float64")
    array[0, 1] = array[2] = NAN
    return array


@pytest.mark.parametrize("interpolation", WAYS)
def test_quantiles(interpolation: str, contract: KernelContract) -> None:
    for array in (sample((3, 4), "float64"), _with_nans()):
        for _, tensor in layouts(array):
            for q in (0.0, 0.3, 0.5, 1.0):
                for dim in (None, 0, -1):
                    keeps = dim is None
                    with np.errstate(invalid="ignore"):
                        expected = _QUANTILE(array, q, dim, keepdims=keeps, method=interpolation)
                    found = flow.quantile(tensor, q, dim, keeps, interpolation=interpolation)
                    check(found, expected, "float64", tolerance=1e-12)


@pytest.mark.filterwarnings("ignore:All-NaN")
def test_quantiles_without_nan(contract: KernelContract) -> None:
    array = _with_nans()
    for _, tensor in layouts(array):
        for dim in (None, 0, 1):
            expected = np.nanquantile(array, 0.3, dim)
            check(tensor.nanquantile(0.3, dim), expected, "float64", tolerance=1e-12)
            check(tensor.nanquantile(1.0, dim), np.nanmax(array, dim), "float64")


def test_several_quantiles_in_one_call(contract: KernelContract) -> None:
    array = sample((3, 4), "float64")
    parts = np.array([0.1, 0.8])
    tensor = flow.tensor(array)
    for dim in (None, 0, 1):
        for keepdim in (False, True):
            expected = np.quantile(array, parts, dim, keepdims=keepdim)
            check(tensor.quantile(flow.tensor(parts), dim, keepdim), expected, "float64", tolerance=1e-12)
    check(tensor.quantile(flow.tensor(0.5, dtype=flow.float64)), np.median(array), "float64", tolerance=1e-12)
    check(flow.tensor(3.0).quantile(0.2, 0, True), 3.0, "float32")


@pytest.mark.parametrize("dtype", REAL)
def test_quantiles_of_many_in_every_precision(dtype: str, contract: KernelContract) -> None:
    """The rank is computed in double precision for all dtypes."""
    tensor = flow.arange(5001.0) % 128
    check(tensor.to(getattr(flow, dtype)).quantile(0.5), 63, dtype)


def test_gradients_of_quantiles(contract: KernelContract) -> None:
    (x,) = arrays_for(0, (3, 4))
    check_gradients(lambda a: a.quantile(0.3, 1), x, second=True)
    check_gradients(lambda a: a.quantile(flow.tensor([0.1, 0.7], dtype=flow.float64)), x)
    check_gradients(lambda a: a.nanquantile(0.4, 0, interpolation="midpoint"), x)
    check_gradients(lambda a: a.nanmedian(0).values, x)
    check_gradients(lambda a: a.mode(1).values, x)


@pytest.mark.parametrize("dtype", ORDERED)
def test_median_without_nan(dtype: str, contract: KernelContract) -> None:
    array = sample((3, 4), dtype, low=-100, high=100)
    for _, tensor in layouts(array):
        check(tensor.nanmedian(), tensor.median().numpy(), dtype)
        for dim in (0, -1):
            for keepdim in (False, True):
                found, expected = tensor.nanmedian(dim, keepdim), tensor.median(dim, keepdim)
                check(found.values, expected.values.numpy(), dtype)
                check(found.indices, expected.indices.numpy(), "int64")


def test_median_of_nans(contract: KernelContract) -> None:
    values, indices = flow.tensor(_with_nans()).nanmedian(1)
    first, second = np.sort(_with_nans()[0, [0, 2, 3]]), np.sort(_with_nans()[1])
    check(values, [first[1], second[1], NAN], "float64")
    check(flow.tensor(_with_nans()).gather(1, indices[:, None])[:2, 0], [first[1], second[1]], "float64")
    check(flow.tensor([NAN, NAN]).nanmedian(), NAN, "float32")
    check(flow.tensor(2.0).nanmedian(0).indices, 0, "int64")


def _most_frequent(row: Array) -> tuple[Any, int]:
    values, counts = np.unique(row, return_counts=True)
    value = values[counts.argmax()]
    return value, int(np.flatnonzero(row == value)[-1])


@pytest.mark.parametrize("dtype", ORDERED)
def test_mode(dtype: str, contract: KernelContract) -> None:
    array = np.trunc(sample((6, 7), dtype).astype(np.float64)).astype(sample((), dtype).dtype)
    wide = array.astype(np.float64)
    for _, tensor in layouts(array):
        for dim in (0, 1):
            expected = [_most_frequent(row) for row in (wide if dim else wide.T)]
            values, indices = tensor.mode(dim)
            check(values, [value[0] for value in expected], dtype)
            check(indices, [value[1] for value in expected], "int64")
            check(flow.mode(tensor, dim, True).values, np.expand_dims([value[0] for value in expected], dim), dtype)
    check(flow.tensor(3).mode().values, 3, "int64")
    check(flow.zeros(0, 2).mode().values, np.zeros(0), "float32")


CASES: list[tuple[Callable[[Any], object], type[Exception], str]] = [
    (lambda x: x.quantile(1.5), ValueError, "q must be from 0 to 1, not 1.5"),
    (lambda x: x.quantile(flow.tensor([1.5])).numpy(), IndexError, "out of range"),
    (lambda x: x.quantile(x), ValueError, "a number or a vector"),
    (lambda x: x.quantile(x[0].double()), TypeError, "expected q of the dtype float32, got float64"),
    (lambda x: x.long().quantile(0.5), TypeError, "expected a floating-point tensor, got int64"),
    (lambda x: x.quantile(0.5, interpolation="cubic"), ValueError, "interpolation must be one of"),
    (lambda x: x[:0].nanquantile(0.5, 0), ValueError, "no elements to choose from"),
    (lambda x: x.quantile(0.5, 2), IndexError, "dim 2 is out of range"),
    (lambda x: x[:0].nanmedian(0), IndexError, "no elements to choose from"),
    (lambda x: x[:0].mode(0), IndexError, "no elements to choose from"),
    (lambda x: (x * 1j).mode(0), TypeError, "not defined for complex64"),
    (lambda x: (x * 1j).nanmedian(0), TypeError, "not defined for complex64"),
]


@pytest.mark.parametrize(("call", "error", "message"), CASES)
def test_bad_arguments(call: Callable[[Any], object], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call(flow.ones(2, 3))


@pytest.mark.parametrize("q", [-0.01, 1.01, float("nan")])
@pytest.mark.parametrize("size", [1, 5])
@pytest.mark.parametrize("function", [flow.quantile, flow.nanquantile])
def test_a_tensor_of_fractions_out_of_range_raises(function: Callable[..., flow.Tensor], size: int, q: float) -> None:
    with pytest.raises(IndexError, match="index -1 is out of range"):
        function(flow.arange(float(size)), flow.tensor([0.5, q])).numpy()
