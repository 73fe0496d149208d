"""Running extrema and sums of exponentials: against numpy, their gradients, and errors."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import vmflow as flow
from tests.support import check_gradients

from .oracle import ORDERED, REAL, Array, KernelContract, Row, Shapes, check, forward_test, gradient_test, sample

VECTORS: tuple[Shapes, ...] = (((5,),), ((3, 4),), ((2, 3, 4),), ((3, 0),), ((),))


def _last_places(x: Array, better: Callable[[Any, Any], bool]) -> Array:
    def of_row(row: Array) -> list[int]:
        best = 0
        places: list[int] = []
        for place, value in enumerate(row):
            best = place if better(value, row[best]) else best
            places.append(best)
        return places

    return np.apply_along_axis(of_row, -1, x) if x.size and x.ndim else np.zeros(x.shape, int)


def _logcumsumexp(x: Array) -> Array:
    return np.asarray(np.log(np.cumsum(np.exp(x), -1))).reshape(x.shape)


ROWS: list[Row] = [
    Row(
        "cummax",
        lambda x: x.cummax(-1).indices,
        lambda x: _last_places(x, lambda new, old: new >= old),
        ORDERED,
        "int64",
        VECTORS,
    ),
    Row(
        "cummin",
        lambda x: x.cummin(-1).indices,
        lambda x: _last_places(x, lambda new, old: new <= old),
        ORDERED,
        "int64",
        VECTORS,
    ),
    Row("logcumsumexp", lambda x: x.logcumsumexp(-1), _logcumsumexp, REAL, shapes=VECTORS, order=2),
]


test_forward = forward_test(ROWS)
test_gradient = gradient_test(ROWS)


@pytest.mark.parametrize("dim", [0, 1, -2])
def test_running_extrema_along_any_dimension(dim: int, contract: KernelContract) -> None:
    array = sample((3, 4), "float64")
    check(flow.cummax(flow.tensor(array), dim).values, np.maximum.accumulate(array, dim), "float64")
    check(flow.cummin(flow.tensor(array), dim).values, np.minimum.accumulate(array, dim), "float64")
    check_gradients(lambda x: x.cummax(dim).values * x.cummin(dim).values, array, second=True)
    check_gradients(lambda x: x.logcumsumexp(dim), array, second=True)


def test_nan_is_extreme_from_its_place_on(contract: KernelContract) -> None:
    values, indices = flow.cummax(flow.tensor([1.0, math.nan, 3.0, math.nan]), 0)
    check(values, [1.0, math.nan, math.nan, math.nan], "float32")
    check(indices, [0, 1, 1, 3], "int64")
    values, indices = flow.tensor(2.0).cummin(0)
    check(values, 2.0, "float32")
    check(indices, 0, "int64")


def test_sums_of_exponentials_of_infinities(contract: KernelContract) -> None:
    x = flow.tensor([-math.inf, -math.inf, 1000.0, 1000.0], dtype=flow.float64, requires_grad=True)
    result = flow.logcumsumexp(x, 0)
    check(result, [-math.inf, -math.inf, 1000.0, 1000.0 + math.log(2)], "float64")
    result[2:].sum().backward()
    check(x.grad, [0.0, 0.0, 1.5, 0.5], "float64")
    single = flow.tensor(2.0, requires_grad=True)
    single.logcumsumexp(0).backward()
    check(single.grad, 1.0, "float32")


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x: x.cummax(2), IndexError, "dim 2 is out of range"),
        (lambda x: x.to(flow.complex64).cummin(0), TypeError, "not defined for complex64"),
        (lambda x: x.long().logcumsumexp(0), TypeError, "convert with .float"),
        (lambda x: x.logcumsumexp(3), IndexError, "dim 3 is out of range"),
    ],
)
def test_bad_arguments(call: Callable[[flow.Tensor], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call(flow.ones(2, 3))
