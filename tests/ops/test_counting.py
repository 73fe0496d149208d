"""Distinct elements, bins and histograms: against numpy."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import vmflow as flow

from .oracle import ORDERED, KernelContract, check, layouts, sample

NAN = math.nan


@pytest.mark.parametrize("dtype", ORDERED)
@pytest.mark.parametrize("shape", [(), (0,), (3, 4), (2, 0, 3)])
def test_unique(dtype: str, shape: tuple[int, ...], contract: KernelContract) -> None:
    array = np.trunc(sample(shape, dtype).astype(np.float64)).astype(sample((), dtype).dtype)
    expected = np.unique(array.astype(np.float64), return_inverse=True, return_counts=True)
    for _, tensor in layouts(array):
        values, inverse, counts = flow.unique(tensor, return_inverse=True, return_counts=True)
        check(values, expected[0], dtype)
        check(inverse, expected[1].reshape(shape), "int64")
        check(counts, expected[2], "int64")
        check(tensor.unique(), expected[0], dtype)
        _, counts = tensor.unique(return_counts=True)
        check(counts, expected[2], "int64")


def test_unique_slices(contract: KernelContract) -> None:
    array = np.array([[1, 2], [1, 2], [0, 5], [1, 2]])
    for _, tensor in layouts(array):
        values, inverse, counts = tensor.unique(True, True, True, 0)
        check(values, [[0, 5], [1, 2]], "int64")
        check(inverse, [1, 1, 0, 1], "int64")
        check(counts, [1, 3], "int64")
        check(tensor.unique(dim=-1), array, "int64")
        values, inverse, counts = tensor.unique_consecutive(True, True, 0)
        check(values, [[1, 2], [0, 5], [1, 2]], "int64")
        check(inverse, [0, 0, 1, 2], "int64")
        check(counts, [2, 1, 1], "int64")
    check(flow.zeros(0, 3).unique(dim=0), np.zeros((0, 3)), "float32")
    check(flow.tensor(3).unique(dim=0), [3], "int64")


def test_unique_consecutive(contract: KernelContract) -> None:
    values, inverse, counts = flow.unique_consecutive(flow.tensor([[1, 1, 2], [2, 3, 1]]), True, True)
    check(values, [1, 2, 3, 1], "int64")
    check(inverse, [[0, 0, 1], [1, 2, 3]], "int64")
    check(counts, [2, 2, 1, 1], "int64")
    check(flow.tensor([]).unique_consecutive(), [], "float32")
    check(flow.tensor(2.5, dtype=flow.bfloat16).unique_consecutive(), [2.5], "bfloat16")


def test_nans_are_distinct_as_in_pytorch(contract: KernelContract) -> None:
    tensor = flow.tensor([NAN, 1.0, NAN, 1.0])
    check(tensor.unique(), [1, NAN, NAN], "float32")
    check(flow.tensor([NAN, NAN, 1.0, 1.0]).unique_consecutive(), [NAN, NAN, 1], "float32")


def test_argwhere(contract: KernelContract) -> None:
    array = sample((3, 4), "int64", low=-1, high=1)
    check(flow.argwhere(flow.tensor(array)), np.argwhere(array), "int64")
    check(flow.tensor(5).argwhere(), np.zeros((1, 0)), "int64")


def test_bincount(contract: KernelContract) -> None:
    tensor = flow.tensor([1, 1, 4])
    check(tensor.bincount(), [0, 2, 0, 0, 1], "int64")
    check(flow.bincount(tensor, minlength=7), [0, 2, 0, 0, 1, 0, 0], "int64")
    check(tensor.bincount(flow.tensor([0.5, 1, 2])), [0, 1.5, 0, 0, 2], "float32")
    check(tensor.bincount(flow.tensor([1, 1, 2])), [0, 2, 0, 0, 2], "float64")
    check(tensor[:0].bincount(minlength=2), [0, 0], "int64")
    check(flow.tensor([3, 3], dtype=flow.uint8).bincount(), [0, 0, 0, 2], "int64")


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_histograms(dtype: str, contract: KernelContract) -> None:
    array = np.array([[0.0, 0.5, 1.0, 1.0], [2.0, 3.0, 4.0, -1.0]]).astype(sample((), dtype).dtype)
    wide = array.astype(np.float64)
    for _, tensor in layouts(array):
        check(tensor.histc(4, 0, 4), [2, 2, 1, 2], dtype)
        check(tensor.histc(5), [1, 2, 2, 1, 2], dtype)
        for density in (False, True):
            expected = np.histogram(wide, 5, density=density)
            found = flow.histogram(tensor, 5, density=density)
            check(found.hist, expected[0], dtype)
            check(found.bin_edges, expected[1], dtype)
            edges = np.array([0, 1, 2.5, 5]).astype(array.dtype)
            expected = np.histogram(wide, edges.astype(np.float64), density=density, weights=wide)
            found = tensor.histogram(flow.tensor(edges), weight=tensor, density=density)
            check(found.hist, expected[0], dtype)
            check(found.bin_edges, expected[1], dtype)
        check(tensor.histogram(4, range=(0.0, 2.0)).hist, [1, 1, 2, 1], dtype)


def test_histograms_of_extraordinary_elements(contract: KernelContract) -> None:
    tensor = flow.tensor([1.0, NAN, math.inf, 2.0])
    check(tensor.histc(2, 0, 4), [1, 1], "float32")
    check(flow.ones(3).histc(2), [0, 3], "float32")
    check(flow.zeros(0).histc(2), [0, 0], "float32")
    with pytest.raises(ValueError, match=r"the elements' range.* is not finite"):
        tensor.histc(2).numpy()
    with pytest.raises(ValueError, match=r"\bbins\b"):
        tensor.histogram(flow.tensor([0.0, 2.0, 1.0])).hist.numpy()


CASES: list[tuple[Callable[[Any], object], type[Exception], str]] = [
    (lambda x: (x * 1j).unique(), TypeError, "unique is not defined for complex64"),
    (lambda x: (x * 1j).unique_consecutive(), TypeError, "not defined for complex64"),
    (lambda x: x[:, :0].unique(dim=0), ValueError, "have no elements"),
    (lambda x: x.unique(dim=2), IndexError, "dim 2 is out of range"),
    (lambda x: x.bincount(), TypeError, "expected an integer tensor"),
    (lambda x: x.long().bincount(), ValueError, "expected a vector"),
    (lambda x: (x[0].long() - 5).bincount(), ValueError, "cannot be negative, got -4"),
    (lambda x: x[0].long().bincount(minlength=-1), ValueError, "minlength cannot be negative"),
    (lambda x: x[0].long().bincount(x), ValueError, "do not fit numbers of shape"),
    (lambda x: x.long().histc(), TypeError, "expected floating-point tensors"),
    (lambda x: x.histc(0), ValueError, "number of bins must be positive"),
    (lambda x: x.histc(2, 2, 1), ValueError, "its end not below its start"),
    (lambda x: x.histogram(x), ValueError, "a vector of at least two"),
    (lambda x: x.histogram(x[0], range=(0.0, 1.0)), ValueError, "without a range"),
    (lambda x: x.histogram(x[0].double()), TypeError, "of one dtype"),
    (lambda x: x.histogram(2, weight=x[0]), ValueError, "weights of shape"),
]


@pytest.mark.parametrize(("call", "error", "message"), CASES)
def test_bad_arguments(call: Callable[[Any], object], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call(flow.ones(2, 3))


def test_unique_waits_for_a_pending_result() -> None:
    tensor = flow.ones(300, 300) @ flow.ones(300, 300)
    values, counts = tensor.unique(return_counts=True)
    check(values, [300.0], "float32")
    check(counts, [90000], "int64")
