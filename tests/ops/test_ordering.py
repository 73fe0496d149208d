"""Sorting, the largest few and the middle one: against numpy, with nan, ties, and their gradients."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import vmflow as flow
from tests.support import arrays_for, check_gradients

from .oracle import ORDERED, Array, KernelContract, check, layouts, sample

NAN, INF = math.nan, math.inf


def _descending(array: Array, dim: int) -> Array:
    """Stable: equal elements keep their order."""
    backwards = np.argsort(np.flip(array, dim), dim, kind="stable")
    return np.asarray(array.shape[dim] - 1 - np.flip(backwards, dim))


@pytest.mark.parametrize("dtype", ORDERED)
@pytest.mark.parametrize("shape", [(5,), (3, 4), (2, 3, 4), (2, 0, 3), (0,)])
def test_sort(dtype: str, shape: tuple[int, ...], contract: KernelContract) -> None:
    array = sample(shape, dtype, low=-2, high=2)
    wide = array.astype(np.float64)
    for _, tensor in layouts(array):
        for dim in range(-1, len(shape) - 1):
            order = np.argsort(wide, dim, kind="stable")
            check(tensor.argsort(dim), order, "int64")
            check(tensor.sort(dim).values, np.take_along_axis(wide, order, dim), dtype)
            check(tensor.sort(dim).indices, order, "int64")
            order = _descending(wide, dim)
            check(tensor.argsort(dim, descending=True), order, "int64")
            check(flow.sort(tensor, dim, True, stable=True)[0], np.take_along_axis(wide, order, dim), dtype)
        check(flow.msort(tensor), np.sort(wide, 0), dtype)


@pytest.mark.parametrize("dtype", ORDERED)
@pytest.mark.parametrize("size", [1, 4, 9, 50])
def test_topk(dtype: str, size: int, contract: KernelContract) -> None:
    """Few elements are all sorted; of many, the rest is partitioned off first."""
    array = sample((2, size), dtype, low=-100, high=100)
    wide = array.astype(np.float64)
    for _, tensor in layouts(array):
        for k in {0, 1, min(3, size), size}:
            largest, smallest = tensor.topk(k), flow.topk(tensor, k, dim=1, largest=False)
            check(largest.values, -np.sort(-wide, 1)[:, :k], dtype)
            check(smallest.values, np.sort(wide, 1)[:, :k], dtype)
            for found in (largest, smallest):
                assert found.indices.dtype is flow.int64
                check(tensor.gather(1, found.indices), found.values.numpy(), dtype)
        check(tensor.topk(1, 0).values, np.max(wide, 0, keepdims=True), dtype)


@pytest.mark.parametrize("dtype", ORDERED)
def test_median_and_kthvalue(dtype: str, contract: KernelContract) -> None:
    array = sample((3, 4), dtype, low=-100, high=100)
    ordered = {dim: np.sort(array.astype(np.float64), dim) for dim in (0, 1)}
    for _, tensor in layouts(array):
        check(tensor.median(), np.sort(array.astype(np.float64), None)[5], dtype)
        check(tensor.median(0).values, ordered[0][1], dtype)
        check(tensor.median(1, True).values, ordered[1][:, 1:2], dtype)
        check(tensor.kthvalue(3).values, ordered[1][:, 2], dtype)
        check(tensor.kthvalue(1, 0, True).values, ordered[0][:1], dtype)
        for found in (tensor.median(1, True), tensor.kthvalue(2, 1, True)):
            check(tensor.gather(1, found.indices), found.values.numpy(), dtype)


def test_nan_is_the_largest(contract: KernelContract) -> None:
    tensor = flow.tensor([1.0, NAN, 3.0, -INF, INF])
    check(tensor.sort().values, [-INF, 1.0, 3.0, INF, NAN], "float32")
    check(tensor.sort(descending=True).values, [NAN, INF, 3.0, 1.0, -INF], "float32")
    check(tensor.topk(2).values, [NAN, INF], "float32")
    check(tensor.topk(2, largest=False).values, [-INF, 1.0], "float32")
    check(tensor.median(), NAN, "float32")
    check(tensor.median(0).indices, 1, "int64")
    check(tensor.kthvalue(5).values, NAN, "float32")
    check(flow.tensor([*range(40), NAN]).topk(2).values, [NAN, 39.0], "float32")


def test_ordering_of_a_0d_tensor(contract: KernelContract) -> None:
    number = flow.tensor(3.0)
    for found in (number.sort(), number.topk(1), number.kthvalue(1), number.median(0)):
        check(found.values, 3.0, "float32")
        check(found.indices, 0, "int64")
    check(number.median(), 3.0, "float32")


def test_gradients(contract: KernelContract) -> None:
    (array,) = arrays_for(0, (3, 4))
    check_gradients(lambda x: x.sort(0).values, array)
    check_gradients(lambda x: x.sort(1, True).values.square(), array, second=True)
    check_gradients(lambda x: x.topk(2).values, array)
    check_gradients(lambda x: x.topk(2, 0, False).values, array)
    check_gradients(lambda x: x.median(1).values, array)
    check_gradients(lambda x: x.median(), array)
    check_gradients(lambda x: x.kthvalue(2, 0).values, array)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x: x.sort(2), IndexError, "dim 2 is out of range"),
        (lambda x: x.to(flow.complex64).sort(), TypeError, "sort is not defined for complex64"),
        (lambda x: x.to(flow.complex64).topk(1), TypeError, "topk is not defined for complex64"),
        (lambda x: x.to(flow.complex64).median(0), TypeError, "median is not defined for complex64"),
        (lambda x: x.topk(4), ValueError, "from 0 to the size 3"),
        (lambda x: x.topk(-1), ValueError, "from 0 to the size 3"),
        (lambda x: x.kthvalue(0), ValueError, "from 1 to the size 3"),
        (lambda x: x.kthvalue(4), ValueError, "from 1 to the size 3"),
        (lambda x: x[:, :0].median(1), IndexError, "no elements to choose from"),
        (lambda x: x[:0].median(), IndexError, "no elements to choose from"),
        (lambda x: x[0, 0].topk(2), ValueError, "from 0 to the size 1"),
    ],
)
def test_bad_arguments(call: Callable[[flow.Tensor], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call(flow.ones(2, 3))
