"""Reductions: against numpy over dtypes, dims and layouts, their gradients, and the empty and half-precision cases."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import vmflow as flow
from tests.support import arrays_for, check_gradients

from .oracle import (
    ALL,
    FRACTIONAL,
    ORDERED,
    REAL,
    Array,
    KernelContract,
    Row,
    check,
    forward_test,
    gradient_test,
    layouts,
    sample,
    values,
)

INF, NAN = math.inf, math.nan
FULL = (((5,),), ((3, 4),), ((2, 3, 4),))  # shapes without empty dimensions
LOOSE = 1e-2  # sums of half precision, whose oracle adds without rounding


def _rows(name: str, oracle: Callable[..., Any], **options: Any) -> list[Row]:
    """Over everything, over one dimension, and keeping it."""
    function = getattr(flow, name)
    last = dict(options)
    last["shapes"] = options.get("shapes", (((5,),), ((2, 0, 3),), ((3, 4),), ((2, 3, 4),)))
    return [
        Row(name, function, lambda x: oracle(x, None, False), **options),
        Row(name, lambda x: function(x, -1), lambda x: oracle(x, -1, False), label="-last", **last),
        Row(name, lambda x: function(x, 0, keepdim=True), lambda x: oracle(x, 0, True), label="-first-kept", **last),
    ]


def _extreme(name: str, oracle: Callable[..., Any], result: str) -> Row:
    """An extremum of no elements does not exist, but there may be no slices to reduce."""
    function = getattr(flow, name)
    shapes = (((3, 4),), ((),), ((0, 4),), ((2, 0, 4),))
    return Row(
        name,
        lambda x: function(x, -1),
        lambda x: oracle(x, axis=-1) if x.ndim else oracle(x),
        ORDERED,
        result,
        shapes,
        label="-none",
    )


def _numpy(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, dim, keep: function(x, axis=dim, keepdims=keep)


def _mean(x: Array, dim: int | None, keep: bool) -> Array:
    count = x.size if dim is None else x.shape[dim]
    return np.asarray(np.sum(x, axis=dim, keepdims=keep) / np.float64(count))


def _norm(x: Array, dim: int | None, keep: bool) -> Array:
    return np.asarray(np.sqrt(np.sum(np.abs(x) ** 2, axis=dim, keepdims=keep)))


def _logsumexp(x: Array, dim: int | None, keep: bool) -> Array:
    return np.asarray(np.log(np.sum(np.exp(x), axis=dim, keepdims=keep)))


def _accumulated(name: str, oracle: Callable[..., Any], **options: Any) -> list[Row]:
    function = getattr(flow, name)
    shapes = (((5,),), ((),), ((3, 4),), ((2, 0, 3),), ((2, 3, 4),))
    return [
        Row(
            name,
            lambda x: function(x, 0),
            lambda x: oracle(x, 0).reshape(x.shape),
            shapes=shapes,
            result="wide",
            **options,
        ),
        Row(
            name,
            lambda x: function(x, -1),
            lambda x: oracle(x, -1).reshape(x.shape),
            shapes=shapes,
            result="wide",
            label="-last",
            **options,
        ),
    ]


ROWS: list[Row] = [
    *_rows("sum", _numpy(np.sum), result="wide", order=2),
    *_rows(
        "prod",
        _numpy(np.prod),
        result="wide",
        order=2,
        dtypes=("float64", *ALL),
        tolerance=LOOSE,
        domain=((-1.5, 1.5),),
    ),
    *_rows("mean", _mean, dtypes=FRACTIONAL, order=2),
    *_rows("amax", _numpy(np.max), dtypes=ORDERED, order=2, shapes=FULL),
    *_rows("amin", _numpy(np.min), dtypes=ORDERED, order=2, shapes=FULL),
    *_rows("all", _numpy(np.all), result="bool"),
    *_rows("any", _numpy(np.any), result="bool"),
    *_rows("argmax", _numpy(np.argmax), dtypes=ORDERED, result="int64", shapes=FULL),
    *_rows("argmin", _numpy(np.argmin), dtypes=ORDERED, result="int64", shapes=FULL),
    *[
        Row(
            "norm",
            partial(flow.norm, dim=dim, keepdim=keep),
            partial(_norm, dim=dim, keep=keep),
            ("float32", "float64"),
            order=2,
            label=label,
        )
        for dim, keep, label in ((None, False, ""), (-1, True, "-last"), (0, False, "-first"))
    ],
    _extreme("amax", np.max, "same"),
    _extreme("amin", np.min, "same"),
    _extreme("argmax", np.argmax, "int64"),
    _extreme("argmin", np.argmin, "int64"),
    *_accumulated("cumsum", np.cumsum, order=2),
    *_accumulated("cumprod", np.cumprod, order=2, dtypes=("float64", *ALL), tolerance=LOOSE, domain=((-1.5, 1.5),)),
]

# Made of several ops.
COMPOSED: list[Row] = [
    *_rows(
        "var",
        lambda x, dim, keep: np.var(x, axis=dim, keepdims=keep, ddof=1),
        dtypes=FRACTIONAL,
        result="real",
        order=2,
        shapes=FULL,
    ),
    *_rows(
        "std",
        lambda x, dim, keep: np.std(x, axis=dim, keepdims=keep, ddof=1),
        dtypes=FRACTIONAL,
        result="real",
        order=2,
        shapes=FULL,
    ),
    *_rows("logsumexp", _logsumexp, dtypes=("float64", *ORDERED), result="float", order=2, shapes=FULL)[1:],
    Row("norm", flow.norm, lambda x: _norm(x, None, False), ("float16", "bfloat16"), order=2, label="-half"),
    Row(
        "norm",
        flow.norm,
        lambda x: _norm(x, None, False),
        ("complex64", "complex128"),
        result="real",
        order=2,
        label="-complex",
    ),
    Row(
        "norm",
        lambda x: flow.norm(x, 3, -1),
        lambda x: np.sum(np.abs(x) ** 3, -1) ** (1 / 3),
        REAL,
        shapes=FULL,
        order=2,
        label="-3",
    ),
    Row(
        "norm",
        lambda x: flow.norm(x, 1, 0, True),
        lambda x: np.sum(np.abs(x), 0, keepdims=True),
        REAL,
        shapes=FULL,
        order=2,
        label="-1",
    ),
    Row(
        "norm", lambda x: flow.norm(x, INF, 0), lambda x: np.max(np.abs(x), 0), REAL, shapes=FULL, order=2, label="-inf"
    ),
    Row(
        "norm",
        lambda x: flow.norm(x, -INF, 0),
        lambda x: np.min(np.abs(x), 0),
        REAL,
        shapes=FULL,
        order=2,
        label="-minus-inf",
    ),
    Row("norm", lambda x: flow.norm(x, 0, 0), lambda x: np.sum(x != 0, 0), REAL, shapes=FULL, label="-0"),
]


test_forward = forward_test(ROWS, COMPOSED)
test_gradient = gradient_test([*ROWS, *COMPOSED])


@pytest.mark.parametrize("name", ["sum", "prod", "mean", "amax", "amin", "all", "any", "var", "logsumexp"])
def test_every_choice_of_dimensions(name: str, contract: KernelContract) -> None:
    array = sample((2, 3, 4), "float64")
    oracle: dict[str, Callable[..., Any]] = {
        "sum": np.sum,
        "prod": np.prod,
        "mean": np.mean,
        "amax": np.max,
        "amin": np.min,
        "all": np.all,
        "any": np.any,
        "var": lambda x, **rest: np.var(x, ddof=1, **rest),
        "logsumexp": lambda x, **rest: np.log(np.sum(np.exp(x), **rest)),
    }
    dtype = "bool" if name in ("all", "any") else "float64"
    choices = [(0,), (1,), (2,), (0, 1), (0, 2), (1, 2), (0, 1, 2)]
    for (_, tensor), keep in itertools.product(layouts(array), (False, True)):
        for dims in choices:
            expected = oracle[name](array, axis=dims, keepdims=keep)
            check(getattr(flow, name)(tensor, dims, keepdim=keep), expected, dtype, tolerance=1e-12)
            check(getattr(tensor, name)([dim - 3 for dim in dims], keepdim=keep), expected, dtype, tolerance=1e-12)


def test_dtype_argument(contract: KernelContract) -> None:
    integers = flow.tensor([100, 100, 100], dtype=flow.uint8)
    check(integers.sum(), 300, "int64")
    check(integers.sum(dtype=flow.float32), 300.0, "float32")
    check(integers.sum(dtype=flow.uint8), 44, "uint8")
    check(integers.sum(0, dtype=flow.int32), 300, "int32")
    check(integers.mean(dtype=flow.float64), 100.0, "float64")
    check(integers.prod(dtype=flow.float64), 1e6, "float64")
    check(integers.prod(dtype=flow.int32), 1_000_000, "int32")
    check(integers.cumsum(0, dtype=flow.int32), [100, 200, 300], "int32")
    check(integers.cumprod(0, dtype=flow.float32), [1e2, 1e4, 1e6], "float32")
    check(flow.ones(3).sum(dtype=flow.float64), 3.0, "float64")
    check(flow.norm(flow.ones(4), dtype=flow.float64), 2.0, "float64")
    check(flow.sum(flow.ones(3, dtype=flow.bool), dtype=flow.bool), True, "bool")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_accumulates_in_single(dtype: str, contract: KernelContract) -> None:
    kind = getattr(flow, dtype)
    ones = flow.ones(4096, dtype=kind)
    assert ones.sum().item() == 4096
    assert ones.mean().item() == 1
    assert ones.cumsum(0)[-1].item() == 4096
    assert flow.full((8,), 1 + flow.finfo(kind).eps, dtype=kind).prod().item() > 1 + 4 * flow.finfo(kind).eps
    large = flow.full((64,), 300.0, dtype=kind)
    assert large.norm().item() == pytest.approx(2400.0)
    assert large.var().item() == 0
    assert large.logsumexp(0).item() == pytest.approx(304.0, rel=1e-2)
    check(
        flow.tensor([1000.0, 1001.0, 1002.0], dtype=kind).std(),
        np.std(values(flow.tensor([1000.0, 1001.0, 1002.0], dtype=kind)), ddof=1),
        dtype,
    )


def test_reductions_without_elements(contract: KernelContract) -> None:
    for empty in (flow.zeros(0), flow.zeros(2, 0)):
        check(empty.sum(), 0.0, "float32")
        check(empty.prod(), 1.0, "float32")
        check(empty.mean(), NAN, "float32")
        check(empty.all(), True, "bool")
        check(empty.any(), False, "bool")
        check(empty.var(), NAN, "float32")
        check(empty.norm(), 0.0, "float32")
        check(empty.logsumexp(tuple(range(empty.ndim))), -INF, "float32")
        for name in ("amax", "amin", "max", "min", "argmax", "argmin"):
            with pytest.raises(IndexError, match="no elements to choose from") as caught:
                getattr(empty, name)()
            assert "None" not in str(caught.value)
    partly = flow.zeros(2, 0, 3)
    check(partly.sum(1), np.zeros((2, 3)), "float32")
    check(partly.amax(0), np.zeros((0, 3)), "float32")
    check(partly.max(0).values, np.zeros((0, 3)), "float32")
    check(partly.argmax(2), np.zeros((2, 0)), "int64")
    with pytest.raises(IndexError):
        partly.amax(1)
    with pytest.raises(IndexError):
        partly.argmax(1)
    tracked = flow.zeros(2, 0, requires_grad=True)
    (tracked.sum() + tracked.prod() + tracked.cumsum(1).sum() + tracked.cumprod(1).sum()).backward()
    check(tracked.grad, np.zeros((2, 0)), "float32")


def test_reductions_of_a_0d_tensor(contract: KernelContract) -> None:
    number = flow.tensor(3.0, requires_grad=True)
    for name in ("sum", "prod", "mean", "amax", "amin", "norm"):
        check(getattr(number, name)(), 3.0, "float32")
    for dim in (0, -1):
        check(number.sum(dim), 3.0, "float32")
        check(number.cumsum(dim), 3.0, "float32")
        check(number.cumprod(dim), 3.0, "float32")
        check(number.argmax(dim), 0, "int64")
        check(number.max(dim).values, 3.0, "float32")
        check(number.max(dim).indices, 0, "int64")
    check(number.var(), NAN, "float32")
    for name in ("sum", "cumsum", "argmax"):
        with pytest.raises(IndexError, match="dim 1 is out of range"):
            getattr(number, name)(1)
    (number.sum() + number.cumprod(0) + number.prod() + number.cumsum(0) + number.amax()).backward()
    check(number.grad, 5.0, "float32")


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x: x.sum(2), IndexError, "dim 2 is out of range"),
        (lambda x: x.sum((0, 0)), ValueError, "names one dimension twice"),
        (lambda x: x.sum((0, -2)), ValueError, "names one dimension twice"),
        (lambda x: flow.tensor(1.0).sum((0, -1)), ValueError, "names one dimension twice"),
        (lambda x: x.sum(0.5), TypeError, "a dimension is an integer"),
        (lambda x: x.sum("a"), TypeError, "a dimension is an integer"),
        (lambda x: x.long().mean(), TypeError, "mean is not defined for int64"),
        (lambda x: (x > 0).mean(), TypeError, "mean is not defined for bool"),
        (lambda x: x.long().var(), TypeError, "var is not defined for int64"),
        (lambda x: x.long().std(), TypeError, "var is not defined for int64"),
        (lambda x: x.long().norm(), TypeError, "norm is not defined for int64"),
        (lambda x: x.norm("nuc"), ValueError, "p must be a number or 'fro'"),
        (lambda x: x.var(unbiased=True, correction=0), ValueError, "not both"),
        (lambda x: x.to(flow.complex64).amax(), TypeError, "amax is not defined for complex64"),
        (lambda x: x.to(flow.complex64).argmax(), TypeError, "argmax is not defined for complex64"),
        (lambda x: x.to(flow.complex64).logsumexp(0), TypeError, "logsumexp is not defined for complex64"),
        (lambda x: x.cumsum(2), IndexError, "dim 2 is out of range"),
        (lambda x: x.max(2), IndexError, "dim 2 is out of range"),
        (lambda x: x.max(flow.ones(4)), ValueError, "do not broadcast"),
    ],
)
def test_bad_arguments(call: Callable[[flow.Tensor], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call(flow.ones(2, 3))


def test_max_and_min(contract: KernelContract) -> None:
    array = sample((3, 4), "float64")
    for (_, tensor), name in itertools.product(layouts(array), ("max", "min")):
        extremum, position = getattr(np, name), getattr(np, f"arg{name}")
        function = getattr(flow, name)
        check(function(tensor), extremum(array), "float64")
        for keep in (False, True):
            found = function(tensor, 1, keep)
            check(found.values, extremum(array, 1, keepdims=keep), "float64")
            check(found.indices, position(array, 1, keepdims=keep), "int64")
            found = function(tensor, dim=-2, keepdim=keep)
            check(found[0], extremum(array, 0, keepdims=keep), "float64")
        check(function(tensor, tensor * 2), getattr(np, f"{name}imum")(array, array * 2), "float64")
    with_nan = flow.tensor([1.0, NAN, 3.0])
    check(with_nan.max(), NAN, "float32")
    check(with_nan.max(0).indices, 1, "int64")
    check(with_nan.argmin(), 1, "int64")
    check(flow.tensor([2, 5, 5]).max(0).indices, 1, "int64")
    check(flow.tensor([False, True]).max(), True, "bool")
    check_gradients(lambda x: x.max(1).values, array[:2, :3])
    check_gradients(lambda x: x.min(0, True).values, array[:2, :3])
    check_gradients(lambda x: x.max(), array[:2, :3])


def test_argmax_keeps_dimensions(contract: KernelContract) -> None:
    array = sample((2, 3, 4), "float64")
    check(flow.tensor(array).argmax(keepdim=True), np.argmax(array, keepdims=True), "int64")
    check(flow.tensor(array).argmin(1, True), np.argmin(array, 1, keepdims=True), "int64")
    check(flow.tensor([3, 7, 7]).argmax(), 1, "int64")


def test_extrema_share_their_gradient_among_equals() -> None:
    tensor = flow.tensor([[1.0, 3.0, 3.0], [2.0, 2.0, 2.0]], requires_grad=True)
    tensor.amax(1).sum().backward()
    check(tensor.grad, [[0, 0.5, 0.5], [1 / 3] * 3], "float32")


def test_all_and_any_over_no_dimension_and_of_nan(contract: KernelContract) -> None:
    tensor = flow.tensor([[0.0, NAN], [2.0, 1.0]])
    check(tensor.all(()), [[False, True], [True, True]], "bool")
    check(tensor.any([]), [[False, True], [True, True]], "bool")
    check(tensor.any(0), [True, True], "bool")
    check(tensor.all(1), [False, True], "bool")
    check(tensor.sum(()), NAN, "float32")


def test_var_and_std(contract: KernelContract) -> None:
    array = sample((4, 5), "float64")
    tensor = flow.tensor(array)
    check(tensor.var(), np.var(array, ddof=1), "float64")
    check(tensor.var(False), np.var(array), "float64")
    check(tensor.var(unbiased=False), np.var(array), "float64")
    check(tensor.var(0, False), np.var(array, 0), "float64")
    check(tensor.var(0, True, True), np.var(array, 0, ddof=1, keepdims=True), "float64")
    check(tensor.var(1, correction=2, keepdim=True), np.var(array, 1, ddof=2, keepdims=True), "float64")
    check(tensor.var(()), np.var(array, ddof=1), "float64")
    check(tensor.std(1), np.std(array, 1, ddof=1), "float64")
    check(flow.ones(3).var(correction=3), NAN, "float32")
    check(flow.tensor([1.0, 2.0]).var(correction=5), INF, "float32")
    for function, oracle in ((flow.var_mean, np.var), (flow.std_mean, np.std)):
        spread, average = function(tensor, 1, keepdim=True)
        check(spread, oracle(array, 1, ddof=1, keepdims=True), "float64")
        check(average, np.mean(array, 1, keepdims=True), "float64")
        spread, average = function(tensor, False)
        check(spread, oracle(array), "float64")
        check(average, np.mean(array), "float64")


def test_logsumexp_neither_overflows_nor_loses_infinities(contract: KernelContract) -> None:
    check(flow.tensor([1000.0, 1000.0]).logsumexp(0), 1000 + math.log(2), "float32")
    check(flow.tensor([-1000.0, -1000.0]).logsumexp(0), -1000 + math.log(2), "float32")
    check(flow.tensor([[-INF, -INF], [INF, 0.0], [-INF, 1.0]]).logsumexp(1), [-INF, INF, 1.0], "float32")
    check(flow.tensor([0, 0]).logsumexp(0), math.log(2), "float32")
    tensor = flow.tensor([-INF, 1.0], requires_grad=True)
    tensor.logsumexp(0).backward()
    check(tensor.grad, [0.0, 1.0], "float32")


def test_norm_of_zero_has_a_zero_gradient() -> None:
    for p in (1, 2, 3, INF):
        tensor = flow.zeros(2, 3, requires_grad=True)
        (tensor.norm(p, 1) + tensor.std(1)).sum().backward()
        check(tensor.grad, np.zeros((2, 3)), "float32")


@pytest.mark.parametrize(
    ("p", "value", "gradient"),
    [(0.5, 9.0, [0.0, 3.0, -1.5]), (-1.0, 0.0, [0.0, 0.0, 0.0]), (-0.5, 0.0, [0.0, 0.0, 0.0])],
)
def test_norms_below_the_first_have_a_zero_gradient_by_zeros(p: float, value: float, gradient: list[float]) -> None:
    tensor = flow.tensor([0.0, 1.0, -4.0], requires_grad=True)
    result = tensor.norm(p)
    result.backward()
    check(result, value, "float32")
    check(tensor.grad, gradient, "float32")


def test_counts_of_non_zero_elements_and_reductions_without_nan(contract: KernelContract) -> None:
    array = np.array([[1.0, NAN, 0.0], [NAN, NAN, 4.0]])
    tensor = flow.tensor(array)
    check(tensor.nansum(), 5.0, "float64")
    check(tensor.nansum(0), [1.0, 0.0, 4.0], "float64")
    check(tensor.nanmean(0, True), [[1.0, NAN, 2.0]], "float64")
    check(tensor.count_nonzero(), 5, "int64")
    check(tensor.count_nonzero(1), [2, 3], "int64")
    check(flow.count_nonzero(tensor > 0, (0, 1)), 2, "int64")
    check(flow.tensor([1, 2]).nansum(), 3, "int64")
    smallest, largest = flow.aminmax(flow.tensor([[3, 1], [2, 5]]), dim=1, keepdim=True)
    check(smallest, [[1], [2]], "int64")
    check(largest, [[3], [5]], "int64")
    check(flow.tensor([3, 1]).aminmax().max, 3, "int64")
    check_gradients(lambda x: flow.nansum(x, 0) + flow.nanmean(x, 0), *arrays_for(0, (2, 3)))


# Products with zeros


ZEROS = [
    np.array([2.0, 3.0, -1.5]),
    np.array([2.0, 0.0, -1.5]),
    np.array([0.0, 2.0, 3.0]),
    np.array([2.0, 3.0, 0.0]),
    np.array([0.0, 2.0, 0.0, 3.0]),
    np.array([0.0, 0.0]),
    np.array([4.0]),
    np.array([[2.0, 0.0, 3.0], [0.0, 0.0, 1.0], [1.0, 2.0, 3.0]]),
]


@pytest.mark.parametrize("array", ZEROS, ids=str)
def test_products_of_zeros_have_exact_gradients_of_any_order(array: Array) -> None:
    check_gradients(lambda x: x.prod(), array, second=True)
    check_gradients(lambda x: x.prod(-1), array, second=True)
    check_gradients(lambda x: x.cumprod(-1), array, second=True)
    check_gradients(lambda x: x.cumprod(0), array, second=True)


def test_prod_over_several_dimensions() -> None:
    array = sample((2, 3, 2), "float64")
    array[0, 1, 0] = 0
    check_gradients(lambda x: x.prod((0, 2)), array, second=True)
    check_gradients(lambda x: x.prod((1,), True), array)


@pytest.mark.parametrize("length", [1, 2, 3, 4, 5, 7, 8, 9, 33])
def test_gradient_of_cumprod_at_every_length(length: int, contract: KernelContract) -> None:
    """The doubling behind it has its own edge cases at and around powers of two."""
    generator = np.random.default_rng(length)
    array, weights = generator.uniform(-1.5, 1.5, length), generator.uniform(-1, 1, length)
    array[generator.integers(length)] = 0
    tensor = flow.tensor(array, requires_grad=True)
    (tensor.cumprod(0) * flow.tensor(weights)).sum().backward()
    expected = np.zeros(length)
    for place in range(length):
        rest = array.copy()
        rest[place] = 1
        expected[place] = (np.cumprod(rest) * weights)[place:].sum()
    check(tensor.grad, expected, "float64", tolerance=1e-12)


def test_cumulative_gradients_of_half_precision_and_complex(contract: KernelContract) -> None:
    tensor = flow.tensor([2.0, 0.0, 3.0], dtype=flow.bfloat16, requires_grad=True)
    tensor.cumprod(0).sum().backward()
    check(tensor.grad, [1.0, 8.0, 0.0], "bfloat16")
    number = flow.tensor([1 + 1j, 2 - 1j], dtype=flow.complex128, requires_grad=True)
    flow.abs(number.prod()).backward()
    product = (1 + 1j) * (2 - 1j)
    unit = product / abs(product)
    check(number.grad, [unit * np.conj(2 - 1j), unit * np.conj(1 + 1j)], "complex128", tolerance=1e-12)


def test_gradients_of_sums_reach_strided_and_integer_neighbours() -> None:
    check_gradients(lambda x: x.T.sum(0), *arrays_for(0, (2, 3)))
    check_gradients(lambda x: x[:, ::2].mean(1, True), *arrays_for(0, (2, 3)))
    check_gradients(lambda x: x.sum((0, 2), True).expand(2, 3, 2) * x, *arrays_for(0, (2, 3, 2)), second=True)


@pytest.mark.parametrize("numbers", [[1e-6, 0.0], [2e4, 2e4], [6e4, 6e4]])
def test_the_gradient_of_a_norm_of_half_precision_is_the_unit_vector(numbers: list[float]) -> None:
    x = flow.tensor(numbers, dtype=flow.float16, requires_grad=True)
    x.norm().backward(flow.tensor(1e-3, dtype=flow.float16))
    exact = values(x) / np.linalg.norm(values(x)) * 1e-3
    check(x.grad, exact, "float16", tolerance=2e-3)


def test_the_gradient_of_an_extremum_that_is_nan_is_nan() -> None:
    for function in (flow.amax, flow.amin):
        x = flow.tensor([[1.0, math.nan, 3.0], [1.0, 2.0, 3.0]], requires_grad=True)
        function(x, 1).sum().backward()
        assert x.grad is not None
        assert np.isnan(x.grad.numpy()).tolist() == [[True] * 3, [False] * 3]
        number = flow.tensor(math.nan, requires_grad=True)
        function(number).backward()
        assert number.grad is not None
        assert math.isnan(number.grad.item())


def test_an_infinite_gradient_of_an_extremum_reaches_no_other_element() -> None:
    x = flow.tensor([1.0, 2.0], requires_grad=True)
    x.amax().backward(flow.tensor(math.inf))
    assert x.grad is not None
    assert x.grad.tolist() == [0, math.inf]


def test_more_equals_than_half_precision_can_count_share_a_gradient() -> None:
    x = flow.ones(70_000, dtype=flow.float16, requires_grad=True)
    x.amax().backward()
    assert x.grad is not None
    np.testing.assert_allclose(values(x.grad), 1 / 70_000, rtol=0.01)


@pytest.mark.parametrize("layout", ["rows", "columns"])
def test_products_of_large_and_small_factors(layout: str) -> None:
    numbers = np.array([[1e20] * 4 + [1e-20] * 4] * 3, np.float32)
    given = flow.tensor(numbers) if layout == "rows" else flow.tensor(np.ascontiguousarray(numbers.T)).T
    np.testing.assert_allclose(given.prod(1).numpy(), np.ones(3), rtol=1e-5)
