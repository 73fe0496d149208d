"""Activation functions: against exact formulas over dtypes, their gradients, and their values at the extremes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import vmflow as flow
from tests.support import check_gradients
from vmflow.ops.elementwise import activation

from .oracle import (
    FRACTIONAL,
    INTEGERS,
    ORDERED,
    REAL,
    Array,
    KernelContract,
    Row,
    Shapes,
    check,
    forward_test,
    gradient_test,
    sample,
    values,
)

INF, NAN = math.inf, math.nan
CUTS: tuple[Shapes, ...] = (((3, 4),), ((5,),), ((2, 3, 4),), ((2, 0, 3),), ((),))

_erf = np.vectorize(math.erf, otypes=[np.float64])


def _sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


def _softmax(x: Array, dim: int) -> Array:
    if not x.ndim:
        return np.ones(())
    powers = np.exp(x)
    return np.asarray(powers / powers.sum(dim, keepdims=True))


def _gelu_tanh(x: Array) -> Array:
    return np.asarray(x * (np.tanh((x + 0.044715 * x**3) * math.sqrt(2 / math.pi)) + 1) / 2)


ROWS: list[Row] = [
    Row("relu", flow.relu, lambda x: np.maximum(x, 0), (*REAL, *INTEGERS), order=2),
    Row("sigmoid", flow.sigmoid, _sigmoid, ORDERED, result="float", order=2),
    Row("tanh", flow.tanh, np.tanh, (*FRACTIONAL, *INTEGERS, "bool"), result="float", order=2),
    Row("erf", flow.erf, _erf, ORDERED, result="float", order=2),
    Row("gelu", activation.gelu, lambda x: x * (_erf(x / math.sqrt(2)) + 1) / 2, REAL, order=2),
    Row("silu", activation.silu, lambda x: x * _sigmoid(x), REAL, order=2),
    Row("softmax", lambda x: flow.softmax(x, 0), lambda x: _softmax(x, 0), REAL, shapes=CUTS, order=2),
    Row("softmax", lambda x: x.softmax(-1), lambda x: _softmax(x, -1), REAL, shapes=CUTS, order=2, label="-last"),
    Row("log_softmax", lambda x: flow.log_softmax(x, 0), lambda x: np.log(_softmax(x, 0)), REAL, shapes=CUTS, order=2),
    Row(
        "log_softmax",
        lambda x: x.log_softmax(-1),
        lambda x: np.log(_softmax(x, -1)),
        REAL,
        shapes=CUTS,
        order=2,
        label="-last",
    ),
]

# Composed of several ops.
COMPOSED: list[Row] = [
    Row("gelu", lambda x: activation.gelu(x, "tanh"), _gelu_tanh, REAL, order=2, label="-tanh"),
    Row("leaky_relu", lambda x: activation.leaky_relu(x, 0.3), lambda x: np.where(x > 0, x, 0.3 * x), REAL, order=2),
    Row("elu", lambda x: activation.elu(x, 1.5), lambda x: np.where(x > 0, x, 1.5 * np.expm1(x)), REAL, order=2),
    Row("softplus", activation.softplus, lambda x: np.log1p(np.exp(x)), REAL, order=2),
    Row(
        "softplus",
        lambda x: activation.softplus(x, 2, 100),
        lambda x: np.log1p(np.exp(2 * x)) / 2,
        REAL,
        order=2,
        label="-2",
    ),
    Row("hardtanh", lambda x: activation.hardtanh(x, -0.5, 1.0), lambda x: np.clip(x, -0.5, 1), REAL, order=2),
]


test_forward = forward_test(ROWS, COMPOSED)
test_gradient = gradient_test([*ROWS, *COMPOSED])


def test_erf_is_accurate_to_the_last_places(contract: KernelContract) -> None:
    numbers = np.concatenate([np.linspace(-7, 7, 20_001), np.logspace(-300, 0, 301), [0.0, -0.0, 0.46875, 4.0, 1e300]])
    exact = _erf(numbers)
    found = values(flow.erf(flow.tensor(numbers)))
    assert np.max(np.abs(found - exact) / np.maximum(np.abs(exact), 5e-324)) < 2e-15
    check(flow.erf(flow.tensor([INF, -INF, NAN])), [1.0, -1.0, NAN], "float32")
    assert math.copysign(1, flow.erf(flow.tensor(-0.0)).item()) == -1


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_sigmoid_keeps_its_small_values(dtype: str, contract: KernelContract) -> None:
    numbers = np.array([-80.0, -40.0, -20.0, -5.0, 0.0, 5.0, 40.0])
    found = values(flow.sigmoid(flow.tensor(numbers, dtype=getattr(flow, dtype))))
    np.testing.assert_allclose(found, _sigmoid(numbers), rtol=1e-5 if dtype == "float32" else 1e-14)
    check(flow.sigmoid(flow.tensor([-INF, INF, NAN, -1e4, 1e4])), [0.0, 1.0, NAN, 0.0, 1.0], "float32")
    for half in (flow.float16, flow.bfloat16):
        found = values(flow.sigmoid(flow.tensor([-8.0, -1e4, 1e4], dtype=half)))
        np.testing.assert_allclose(found, _sigmoid(np.array([-8.0, -700.0, 700.0])), rtol=1e-2, atol=1e-7)


@pytest.mark.parametrize("dtype", REAL)
def test_softmax_at_the_extremes(dtype: str, contract: KernelContract) -> None:
    def given(*rows: float) -> flow.Tensor:
        return flow.tensor(rows, dtype=getattr(flow, dtype))

    check(given(1e4, 0, -1e4).softmax(0), [1.0, 0.0, 0.0], dtype)
    check(given(1e4, 1e4).log_softmax(0), [-math.log(2)] * 2, dtype)
    check(given(-1e4, -1e4).softmax(0), [0.5, 0.5], dtype)
    check(given(-INF, 0).softmax(0), [0.0, 1.0], dtype)
    check(given(-INF, 0).log_softmax(0), [-INF, 0.0], dtype)
    check(given(-INF, -INF).softmax(0), [NAN, NAN], dtype)
    check(given(INF, 0).softmax(0), [NAN, NAN], dtype)
    check(given(NAN, 0).log_softmax(0), [NAN, NAN], dtype)
    # The softmax itself cannot show such a difference.
    check(given(100, 0).log_softmax(0), [0.0, -100.0], dtype)


def test_gradient_through_masked_softmax() -> None:
    scores = flow.tensor([[1.0, 2.0, -INF], [0.5, -INF, -INF]], dtype=flow.float64, requires_grad=True)
    weights = flow.tensor([[1.0, 3.0, 5.0], [2.0, 2.0, 2.0]], dtype=flow.float64)
    (scores.softmax(1) * weights).sum().backward()
    assert scores.grad is not None
    assert np.isfinite(values(scores.grad)).all()
    assert (values(scores.grad)[:, 2] == 0).all()
    (gradient,) = flow.autograd.grad(scores.log_softmax(1)[:, 0].sum(), scores)
    assert gradient is not None
    assert np.isfinite(values(gradient)).all()


def test_softmax_of_a_number_and_in_a_dtype(contract: KernelContract) -> None:
    check(flow.tensor(3.0).softmax(0), 1.0, "float32")
    check(flow.tensor(3.0).log_softmax(-1), 0.0, "float32")
    check(flow.tensor(NAN).softmax(0), NAN, "float32")
    check(flow.tensor([1, 1]).softmax(0, dtype=flow.float64), [0.5, 0.5], "float64")
    check(flow.log_softmax(flow.tensor([1, 1]), 0, dtype=flow.float16), [-math.log(2)] * 2, "float16")
    half = flow.zeros(4096, dtype=flow.float16).softmax(0)
    check(half, np.full(4096, 1 / 4096), "float16")
    check_gradients(lambda x: x.T.softmax(0) * x.T, sample((2, 3), "float64"), second=True)


def test_derivatives_at_the_kinks() -> None:
    for function, expected in (
        (flow.relu, [0.0, 0.0, 1.0]),
        (activation.leaky_relu, [0.01, 0.01, 1.0]),
        (activation.elu, [math.exp(-1), 1.0, 1.0]),
        (activation.hardtanh, [0.0, 1.0, 0.0]),
        (lambda x: activation.hardtanh(x, 0, 6), [0.0, 0.0, 1.0]),
    ):
        tensor = flow.tensor([-1.0, 0.0, 1.0], dtype=flow.float64, requires_grad=True)
        function(tensor).sum().backward()
        check(tensor.grad, expected, "float64", tolerance=1e-12)


def test_infinite_gradients_do_not_pass_where_relu_is_flat() -> None:
    tensor = flow.tensor([-1.0, 2.0], requires_grad=True)
    tensor.relu().backward(flow.tensor([INF, 1.0]))
    check(tensor.grad, [0.0, 1.0], "float32")
    with_nan = flow.tensor([NAN], requires_grad=True)
    with_nan.relu().backward(flow.ones(1))
    check(with_nan.grad, [1.0], "float32")


def test_extremes_of_composed_functions(contract: KernelContract) -> None:
    ends = flow.tensor([-INF, -1e4, 0.0, 1e4, INF], requires_grad=True)
    check(activation.softplus(ends), [0.0, 0.0, math.log(2), 1e4, INF], "float32")
    check(activation.elu(ends), [-1.0, -1.0, 0.0, 1e4, INF], "float32")
    check(activation.gelu(ends)[1:], [0.0, 0.0, 1e4, INF], "float32")
    check(activation.silu(ends)[1:], [0.0, 0.0, 1e4, INF], "float32")
    for function in (activation.softplus, activation.elu):
        ends.grad = None
        function(ends).sum().backward()
        assert np.isfinite(values(ends.grad)).all()  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_gelu_of_infinities(dtype: str, contract: KernelContract) -> None:
    ends = flow.tensor([-INF, INF], dtype=getattr(flow, dtype), requires_grad=True)
    result = activation.gelu(ends)
    check(result, [0.0, INF], dtype)
    result.sum().backward()
    check(ends.grad, [0.0, 1.0], dtype)


@pytest.mark.parametrize("name", ["gelu", "silu", "elu", "softplus"])
def test_half_precision_rounds_once(name: str, contract: KernelContract) -> None:
    function = getattr(activation, name)
    numbers = np.linspace(-6, 6, 101)
    for half in (flow.float16, flow.bfloat16):
        given = flow.tensor(numbers, dtype=half)
        exact = values(function(flow.tensor(values(given))))
        check(function(given), exact, str(half).split(".")[1], tolerance=float(flow.finfo(half).eps))
        assert function(given.requires_grad_()).requires_grad


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x: x.long().softmax(0), TypeError, "softmax is not defined for int64"),
        (lambda x: x.to(flow.complex64).log_softmax(0), TypeError, "log_softmax is not defined for complex64"),
        (lambda x: x.softmax(2), IndexError, "dim 2 is out of range"),
        (lambda x: x.softmax(0.5), TypeError, "a dimension is an integer"),
        (lambda x: flow.relu(x > 0), TypeError, "relu is not defined for bool"),
        (lambda x: flow.relu(x.to(flow.complex64)), TypeError, "relu is not defined for complex64"),
        (lambda x: flow.sigmoid(x.to(flow.complex64)), TypeError, "sigmoid is not defined for complex64"),
        (lambda x: activation.gelu(x, "sin"), ValueError, "approximate must be"),
        (lambda x: activation.gelu(x.long()), TypeError, "gelu is not defined for int64"),
        (lambda x: activation.silu(x.long()), TypeError, "silu is not defined for int64"),
        (lambda x: activation.elu(x > 0), TypeError, "elu is not defined for bool"),
        (lambda x: activation.leaky_relu(x.long()), TypeError, "leaky_relu is not defined for int64"),
        (lambda x: activation.hardtanh(x, 1, 0), ValueError, "must not be above"),
        (lambda x: activation.hardtanh(x > 0), TypeError, "hardtanh is not defined for bool"),
    ],
)
def test_bad_arguments(call: Callable[[flow.Tensor], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call(flow.ones(2, 3))


def test_in_place_relu(contract: KernelContract) -> None:
    tensor = flow.tensor([-1.0, 2.0])
    assert tensor.relu_() is tensor
    check(tensor, [0.0, 2.0], "float32")
    check_gradients(lambda x: (x * 1).relu_() * x, sample((3,), "float64"))
    check(activation.hardtanh(flow.tensor([-3, 0, 3])), [-1, 0, 1], "int64")


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_relus_gradient_of_positive_elements_is_unchanged(dtype: str, contract: KernelContract) -> None:
    kind = getattr(flow, dtype)
    given = flow.tensor([-INF, -1.0, -0.0, 0.0, 1.0, INF, math.nan] * 3, dtype=kind, requires_grad=True)
    arriving = flow.tensor([1.5] * 7 + [INF] * 7 + [math.nan] * 7, dtype=kind)
    flow.relu(given).backward(arriving)
    assert given.grad is not None
    found, wanted = values(given.grad), values(arriving).copy()
    wanted[[place for place in range(21) if place % 7 < 4]] = 0.0
    np.testing.assert_array_equal(found, wanted)
    assert not np.signbit(found[found == 0]).any()
