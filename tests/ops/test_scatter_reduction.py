"""`scatter_reduce`, `index_reduce`, and elements of the flattened tensor: against loops, with their gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import vmflow as flow
from tests.support import arrays_for, check_gradients

from .oracle import (
    REAL,
    SIGNED,
    UNSIGNED,
    Array,
    KernelContract,
    Row,
    check,
    forward_test,
    gradient_test,
    layouts,
    sample,
)

ALONG = np.array([[2, 0, 1, 2], [0, 0, 2, 1]])
HOW = ("sum", "prod", "mean", "amax", "amin")
_OF: dict[str, Callable[[Any], Any]] = {
    "sum": np.sum,
    "prod": np.prod,
    "mean": np.mean,
    "amax": np.max,
    "amin": np.min,
}


def _reduced(array: Array, dim: int, index: Array, source: Array, how: str, include_self: bool) -> Array:
    """Reduce place by place, from a list of the elements that are put there."""
    found: dict[tuple[int, ...], list[Any]] = {}
    for position in np.ndindex(index.shape):
        place = (*position[:dim], int(index[position]), *position[dim + 1 :])
        found.setdefault(place, [array[place]] if include_self else []).append(source[position])
    result = array.copy()
    for place, items in found.items():
        value = _OF[how](np.array(items))
        result[place] = np.floor(value) if array.dtype.kind in "iu" else value
    return result


def _row(how: str, include_self: bool, dtypes: tuple[str, ...], order: int = 0) -> Row:
    return Row(
        "scatter_reduce",
        lambda x, y: x.scatter_reduce(0, flow.tensor(ALONG), y, how, include_self=include_self),
        lambda x, y: _reduced(x, 0, ALONG, y, how, include_self),
        dtypes,
        shapes=(((3, 4), (2, 4)),),
        order=order,
        graded=((3, 4), (2, 4)),
        label=f"-{how}{'' if include_self else '-apart'}",
    )


# Gradients are checked in float64 for all dtypes of the row.
ROWS: list[Row] = [_row(how, own, (*REAL, *SIGNED), order=2) for how in HOW for own in (True, False)]
ROWS.append(
    Row(
        "scatter_reduce",
        lambda x, y: x.scatter_reduce(-1, flow.zeros_like(x, dtype=flow.int64), y, "amax"),
        lambda x, y: np.where(np.arange(x.shape[-1]) == 0, np.maximum(x, y.max(-1, keepdims=True)), x) if x.size else x,
        REAL,
        shapes=(((5,), (5,)), ((0,), (0,)), ((3, 0), (3, 0))),
        label="-small",
    )
)
ROWS.append(
    Row(
        "scatter_reduce",
        lambda x, y: x.scatter_reduce(0, flow.tensor(0), y, "sum"),
        np.add,
        REAL,
        shapes=(((), ()),),
        label="-0",
    )
)
ROWS += [_row(how, own, ("complex64", "complex128")) for how in HOW[:3] for own in (True, False)]
ROWS += [_row("amax", own, (*UNSIGNED, "bool")) for own in (True, False)]


test_forward = forward_test(ROWS)
test_gradient = gradient_test(ROWS)


@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.parametrize("how", HOW)
def test_other_dimensions_and_forms(how: str, include_self: bool, contract: KernelContract) -> None:
    array, source = sample((3, 4), "float64"), sample((3, 4), "float64", 1)
    places = np.array([[3, 0, 3], [1, 1, 1]])
    for _, tensor in layouts(array):
        for dim, index in ((1, places), (0, places % 3)):
            expected = _reduced(array, dim, index, source, how, include_self)
            arguments = dim, flow.tensor(index), flow.tensor(source), how
            check(flow.scatter_reduce(tensor, *arguments, include_self=include_self), expected, "float64")
            check(tensor.clone().scatter_reduce_(*arguments, include_self=include_self), expected, "float64")
        if how != "sum":
            index = np.array([0, 2, 2, 0])
            spread = np.broadcast_to(index, (3, 4))
            expected = _reduced(array, 1, spread, source, how, include_self)
            arguments = -1, flow.tensor(index), flow.tensor(source), how
            check(tensor.index_reduce(*arguments, include_self=include_self), expected, "float64")
            check(tensor.clone().index_reduce_(*arguments, include_self=include_self), expected, "float64")
    number = flow.tensor(3.0).scatter_reduce(0, flow.tensor(0), flow.tensor(4.0), how, include_self=include_self)
    check(number, _OF[how](np.array([3.0, 4.0] if include_self else [4.0])), "float32")
    nothing = flow.zeros(0, 2, dtype=flow.int64)
    check(flow.ones(3, 4).scatter_reduce(0, nothing, flow.ones(0, 2), how), np.ones((3, 4)), "float32")


@pytest.mark.parametrize("include_self", [True, False])
def test_gradient_of_products_with_zeros(include_self: bool, contract: KernelContract) -> None:
    x, y = arrays_for(0, (3, 4), (2, 4))
    x[0, 0] = x[1, 2] = y[0, 0] = y[0, 1] = y[1, 1] = 0.0
    check_gradients(
        lambda a, b: a.scatter_reduce(0, flow.tensor(ALONG), b, "prod", include_self=include_self), x, y, second=False
    )


def test_gradient_of_extrema_is_shared_by_those_that_are_equal(contract: KernelContract) -> None:
    own = flow.tensor([5.0, 2.0, 2.0], requires_grad=True)
    source = flow.tensor([2.0, 2.0, 1.0], requires_grad=True)
    own.scatter_reduce(0, flow.tensor([1, 1, 1]), source, "amax").sum().backward()
    check(own.grad, [1, 1 / 3, 1], "float32")
    check(source.grad, [1 / 3, 1 / 3, 0], "float32")
    own.grad = source.grad = None
    own.scatter_reduce(0, flow.tensor([1, 1, 1]), source, "amax", include_self=False).sum().backward()
    check(own.grad, [1, 0, 1], "float32")
    check(source.grad, [0.5, 0.5, 0], "float32")


def test_nan_and_half_precision(contract: KernelContract) -> None:
    nan = flow.tensor([1.0, float("nan")])
    check(flow.zeros(2).scatter_reduce(0, flow.tensor([0, 0]), nan, "amax"), [np.nan, 0], "float32")
    many = flow.ones(4096, dtype=flow.float16)
    index = flow.zeros(4096, dtype=flow.int64)
    check(flow.zeros(1, dtype=flow.float16).scatter_reduce(0, index, many, "mean", include_self=False), [1], "float16")
    check(flow.zeros(1, dtype=flow.float16).scatter_reduce(0, index, many, "sum"), [4096], "float16")
    flags = flow.tensor([True, False])
    check(flags.scatter_reduce(0, flow.tensor([1, 1]), flags, "amax"), [True, True], "bool")


def test_elements_of_the_flattened_tensor(contract: KernelContract) -> None:
    array, source = sample((3, 4), "float64"), sample((5,), "float64", 1)
    places = np.array([0, -1, 3, 4, 5])
    repeated = np.array([0, -1, 3, 3, 5])
    for _, tensor in layouts(array):
        check(tensor.take(flow.tensor([[0, -1], [5, 5]])), array.reshape(-1)[[[0, -1], [5, 5]]], "float64")
        check(flow.take(tensor, flow.tensor(3)), array.reshape(-1)[3], "float64")
        expected = array.copy()
        np.put(expected, places, source)
        check(tensor.put(flow.tensor(places), flow.tensor(source)), expected, "float64")
        check(tensor.clone().put_(flow.tensor(places), flow.tensor(source)), expected, "float64")
        expected = array.copy().reshape(-1)
        np.add.at(expected, repeated, source)
        check(flow.put(tensor, flow.tensor(repeated), flow.tensor(source), True), expected.reshape(3, 4), "float64")
    check_gradients(lambda a: a.take(flow.tensor([[0, -1], [5, 5]])), array, second=True)
    check_gradients(lambda a, b: a.put(flow.tensor(places), b), array, source, second=True)
    check_gradients(lambda a, b: (a * 1).put_(flow.tensor(repeated), b, accumulate=True) ** 2, array, source)


def test_masked_scatter(contract: KernelContract) -> None:
    array, source = sample((3, 4), "float64"), sample((2, 6), "float64", 1)
    for mask in (array > 0, array[0] > 0, array > 100, np.array(True)):
        whole = np.broadcast_to(mask, (3, 4))
        expected = array.copy()
        expected[whole] = source.reshape(-1)[: whole.sum()]
        for _, tensor in layouts(array):
            check(tensor.masked_scatter(flow.tensor(mask), flow.tensor(source)), expected, "float64")
            check(tensor.clone().masked_scatter_(flow.tensor(mask), flow.tensor(source)), expected, "float64")
    check(flow.ones(2).masked_scatter(flow.zeros(2, dtype=flow.bool), flow.zeros(0)), [1, 1], "float32")
    check(flow.ones(2, 0).masked_scatter(flow.ones(0, dtype=flow.bool), flow.zeros(0)), np.ones((2, 0)), "float32")
    check_gradients(lambda a, b: a.masked_scatter(flow.tensor(array > 0), b), array, source, second=True)
    short = flow.ones(3).masked_scatter(flow.ones(3, dtype=flow.bool), flow.zeros(2))
    with pytest.raises(IndexError, match="out of range"):
        short.numpy()


def _ints(*numbers: int) -> flow.Tensor:
    return flow.tensor(list(numbers))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x: x.scatter_reduce(0, _ints(0), x, "max"), ValueError, "reduce must be one of 'sum'"),
        (lambda x: x.scatter_reduce(0, _ints(0), x.double(), "sum"), TypeError, "expected one dtype"),
        (lambda x: x.scatter_reduce(0, x, x, "sum"), TypeError, "must be an integer tensor"),
        (lambda x: x.scatter_reduce(0, _ints(0, 0, 0, 0), x, "sum"), ValueError, "a source at least as large"),
        (lambda x: x.scatter_reduce(1, _ints(0), x, "sum"), IndexError, "dim 1 is out of range"),
        (lambda x: x.scatter_reduce(0, _ints(3), x, "sum").numpy(), IndexError, "index 3 is out of range"),
        (lambda x: x.bool().scatter_reduce(0, _ints(0), x.bool(), "mean"), TypeError, "not defined for bools"),
        (lambda x: (x * 1j).scatter_reduce(0, _ints(0), x * 1j, "amax"), TypeError, "amax is not defined"),
        (lambda x: x.index_reduce(0, _ints(0), x[:1], "sum"), ValueError, "reduce must be one of 'prod'"),
        (lambda x: x.index_reduce(0, _ints(0), x, "prod"), ValueError, "expected a source of shape"),
        (lambda x: x.index_reduce(0, [0], x[:1], "prod"), TypeError, "index_reduce: expected tensors"),
        (lambda x: x.take(x), TypeError, "must be an integer tensor, not float32"),
        (lambda x: x.take(_ints(3)).numpy(), IndexError, "out of bounds"),
        (lambda x: x.put(x, x), TypeError, "must be an integer tensor"),
        (lambda x: x.put(_ints(0), x), ValueError, "1 places need as many elements, got 3"),
        (lambda x: x.put(_ints(0), _ints(1)), TypeError, "expected one dtype"),
        (lambda x: x.masked_scatter(x, x), TypeError, "must be a bool tensor"),
        (lambda x: x.masked_scatter(x > 0, _ints(1)), TypeError, "expected one dtype"),
        (lambda x: x.masked_scatter_((x > 0)[None], x), RuntimeError, "does not fit the tensor of shape"),
    ],
)
def test_bad_arguments(call: Callable[[flow.Tensor], object], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call(flow.ones(3))
