"""OneFlow's functions for parts of tensors, and sums of many: gradients, views, and errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import vmflow as flow
from tests.support import check_gradients

from .oracle import KernelContract, check, sample

PART = [(0, 3, 2), (None, None, None), (-2, None, 1)]


def test_a_slice_is_a_view(contract: KernelContract) -> None:
    x = flow.zeros(3, 2, 4)
    flow.slice(x, PART).add_(1)
    expected = np.zeros((3, 2, 4), "float32")
    expected[0:3:2, :, -2:] += 1
    check(x, expected, "float32")
    assert flow.slice(x, []) is not x


def test_gradients(contract: KernelContract) -> None:
    x, update = sample((3, 2, 4), "float64"), sample((2, 1, 2), "float64", 1)
    check_gradients(lambda y: flow.slice(y, PART).square(), x, second=True)
    check_gradients(lambda y, u: flow.slice_update(y, u, PART).square(), x, update, second=True)
    index = flow.tensor([[0, 1, 1], [1, 0, 0], [1, 1, 1]])
    check_gradients(lambda y: flow.batch_gather(y, index).square(), x, second=True)
    check_gradients(lambda y, u: flow.add_n([y, u, y]).square(), x[:2, :, :2], update, second=True)


def test_an_update_leaves_its_input_as_it_was(contract: KernelContract) -> None:
    x = flow.zeros(4)
    check(flow.slice_update(x, flow.ones(2), [(1, 3, 1)]), [0.0, 1.0, 1.0, 0.0], "float32")
    check(flow.slice_update(x, flow.ones(0), [(3, 1, 1)]), np.zeros(4), "float32")
    check(flow.slice_update(flow.zeros(()), flow.ones(()), []), 1.0, "float32")
    check(x, np.zeros(4), "float32")


def test_targets_that_are_no_class_and_predictions_that_are_no_number(contract: KernelContract) -> None:
    predictions = flow.tensor([[1.0, 2.0], [1.0, 2.0], [np.inf, 1.0], [np.inf, 1.0], [np.nan, 1.0]])
    found = flow.in_top_k(flow.tensor([-1, 2, 0, 1, 1]), predictions, 2)
    check(found, [False, False, False, True, False], "bool")
    assert not flow.in_top_k(flow.tensor([0]), flow.ones(1, 3), 0).item()
    check(flow.in_top_k(flow.tensor([0, 0]), flow.ones(2, 0), 1), [False, False], "bool")


def test_sums_take_no_gradient_into_a_given_tensor(contract: KernelContract) -> None:
    out = flow.zeros(2)
    assert flow.add_n([flow.ones(2), flow.ones(2)], out=out) is out
    check(out, [2.0, 2.0], "float32")
    one = flow.ones(2)
    assert flow.add_n([one]) is not one


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x: flow.slice(x, [(0, 1, 1)] * 3), ValueError, "3 slices for a tensor of 2"),
        (lambda x: flow.slice(x, [(0, 1)]), ValueError, r"expected \(start, stop, step\)"),
        (lambda x: flow.slice(x, [(0, 1.5, 1)]), TypeError, "integers or None"),  # type: ignore[list-item]
        (lambda x: flow.slice(x, [(3, 0, -1)]), ValueError, "a step must be positive"),
        (lambda x: flow.slice_update(x, flow.ones(3), [(0, 2, 1), (0, 2, 1)]), ValueError, "do not broadcast"),
        (lambda x: flow.slice_update(x, flow.ones(2, 2, 2), [(0, 2, 1), (0, 2, 1)]), ValueError, "does not fit a part"),
        (lambda x: flow.batch_gather(x, flow.zeros(3, 2).long()), ValueError, r"expected an input \(\*batch"),
        (lambda x: flow.batch_gather(x, flow.zeros(2, 2)), TypeError, "must be an integer tensor"),
        (lambda x: flow.in_top_k(flow.ones(2), x, 1), TypeError, "expected targets of"),
        (lambda x: flow.in_top_k(flow.ones(2).long(), x.long(), 1), TypeError, "floating-point predictions"),
        (lambda x: flow.in_top_k(flow.ones(3).long(), x, 1), ValueError, "expected targets"),
        (lambda x: flow.add_n([]), ValueError, "at least one"),
        (lambda x: flow.add_n(x), TypeError, "a list of tensors"),
        (lambda x: flow.add_n([x, 1]), TypeError, "add_n"),  # type: ignore[list-item]
    ],
)
def test_bad_arguments(call: Callable[[flow.Tensor], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call(flow.ones(2, 3))


def test_an_index_out_of_range(contract: KernelContract) -> None:
    found = flow.batch_gather(flow.ones(2, 3), flow.tensor([[0], [3]]))
    with pytest.raises(IndexError):
        found.numpy()
