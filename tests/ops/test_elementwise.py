"""Elementwise ops against numpy over dtypes, shapes and layouts; their gradients and corner cases."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import vmflow as flow
from tests.support import arrays_for, check_gradients
from vmflow.ops.elementwise import inference as elementwise

from .oracle import (
    ALL,
    INTEGERS,
    NUMBERS,
    ORDERED,
    REAL,
    TWO,
    Array,
    KernelContract,
    Row,
    check,
    forward_test,
    gradient_test,
    values,
)

INF, NAN = math.inf, math.nan
POSITIVE = ((0.2, 4.0),)
UNIT = ((-0.9, 0.9),)
APART = ((-3.0, -0.5), (0.5, 3.0))  # two operands that are never equal


def _sign(x: Array) -> Array:
    return x if x.dtype.kind == "b" else np.sign(np.nan_to_num(x, nan=0.0, posinf=INF, neginf=-INF))


def _trunc_divide(x: Array, y: Array) -> Array:
    if x.dtype.kind != "i":
        return np.asarray(np.trunc(x / y))
    return np.asarray(np.sign(x) * np.sign(y) * (np.abs(x) // np.abs(y)))


def _unary(name: str, oracle: Callable[..., Any], **options: Any) -> Row:
    return Row(name, getattr(flow, name), oracle, **options)


def _pair(
    name: str, oracle: Callable[..., Any], number: float = 2, without: tuple[str, ...] = (), **options: Any
) -> list[Row]:
    """Rows for two tensors, a tensor and a number, a number and a tensor, and bools and a number."""
    function = getattr(flow, name)
    options.setdefault("dtypes", ALL)
    domain = options.setdefault("domain", ((-3.0, 3.0),))
    numbers = {**options, "dtypes": tuple([option for option in options["dtypes"] if option != "bool"])}
    single = {**numbers, "domain": domain[:1]}
    reversed_ = {**numbers, "domain": domain[-1:]}
    # A bool and an integer give the dtype of two integers.
    bools = {**single, "dtypes": ("bool",), "order": 0, "result": options.get("result", "wide")}
    scalar = f"{name}_scalar"
    rows = [
        Row(name, function, oracle, shapes=TWO, **options),
        Row(scalar, lambda x: function(x, number), lambda x: oracle(x, x.dtype.type(number)), **single),
        Row(
            scalar,
            lambda x: function(number, x),
            lambda x: oracle(x.dtype.type(number), x),
            label="-reversed",
            **reversed_,
        ),
        Row(scalar, lambda x: function(x, number), lambda x: oracle(x * np.int64(1), number), label="-bool", **bools),
    ]
    return [row for row in rows if row.label not in without]


def _condition(x: Array) -> Array:
    return np.asarray((np.arange(x.size) % 3 == 0).reshape(x.shape))


def _chosen(x: flow.Tensor, y: flow.Tensor) -> flow.Tensor:
    condition = flow.tensor(_condition(np.empty(np.broadcast_shapes(x.shape, y.shape))))
    return flow.where(condition, x, y)


NONZERO = ((-3.0, 3.0), (1.0, 3.0))
COMPARED: dict[str, Any] = {"result": "bool", "dtypes": ALL}

ROWS: list[Row] = [
    *_pair("add", np.add, order=2),
    *_pair("sub", np.subtract, dtypes=NUMBERS, order=2, without=("-bool",)),
    *_pair("mul", np.multiply, order=2),
    *_pair("div", np.true_divide, result="float", order=2, domain=((-3.0, 3.0), (0.5, 3.0))),
    *_pair("pow", np.power, number=3, dtypes=NUMBERS, order=2, domain=POSITIVE),
    *_pair("floor_divide", np.floor_divide, dtypes=(*REAL, *INTEGERS), order=1, domain=NONZERO),
    *_pair("remainder", np.remainder, dtypes=(*REAL, *INTEGERS), order=2, domain=NONZERO),
    *_pair("fmod", np.fmod, dtypes=(*REAL, *INTEGERS), order=2, domain=NONZERO),
    *_pair("maximum", np.maximum, dtypes=ORDERED, order=2),
    *_pair("minimum", np.minimum, dtypes=ORDERED, order=2),
    *_pair("atan2", np.arctan2, result="float", dtypes=ORDERED, order=2, domain=((0.5, 3.0), (0.5, 3.0))),
    *_pair("eq", np.equal, **COMPARED),
    *_pair("ne", np.not_equal, **COMPARED),
    *_pair("lt", np.less, result="bool", dtypes=ORDERED),
    *_pair("le", np.less_equal, result="bool", dtypes=ORDERED),
    *_pair("gt", np.greater, result="bool", dtypes=ORDERED),
    *_pair("ge", np.greater_equal, result="bool", dtypes=ORDERED),
    *_pair("logical_and", np.logical_and, **COMPARED),
    *_pair("logical_or", np.logical_or, **COMPARED),
    *_pair("logical_xor", np.logical_xor, **COMPARED),
    *_pair("bitwise_and", np.bitwise_and, dtypes=(*INTEGERS, "bool")),
    *_pair("bitwise_or", np.bitwise_or, dtypes=(*INTEGERS, "bool")),
    *_pair("bitwise_xor", np.bitwise_xor, dtypes=(*INTEGERS, "bool")),
    *_pair("clamp_min", np.maximum, order=2, dtypes=(*REAL, *INTEGERS), number=1, without=("-reversed",)),
    Row("clamp", lambda x: x.clamp(-1, 2), lambda x: np.clip(x, -1, 2), (*REAL, *INTEGERS), order=2),
    Row("clamp", lambda x: x.clamp(0, 2), lambda x: x * np.int64(1), ("bool",), result="wide", label="-bool"),
    Row("square", lambda x: x**2, np.square, NUMBERS, order=2, label="-power"),
    *_pair("clamp_max", np.minimum, order=2, dtypes=(*REAL, *INTEGERS), number=1, without=("-reversed",)),
    Row(
        "trunc_divide",
        lambda x, y: flow.div(x, y, rounding_mode="trunc"),
        _trunc_divide,
        (*REAL, *INTEGERS),
        shapes=TWO,
        domain=NONZERO,
        order=1,
    ),
    Row(
        "trunc_divide_scalar",
        lambda x: flow.div(x, 2, rounding_mode="trunc"),
        lambda x: _trunc_divide(x, x.dtype.type(2)),
        (*REAL, *INTEGERS),
        order=1,
    ),
    Row(
        "trunc_divide_scalar",
        lambda x: flow.div(x, 2, rounding_mode="trunc"),
        lambda x: _trunc_divide(x * np.int64(1), np.full((), 2)),
        ("bool",),
        result="wide",
        label="-bool",
    ),
    Row("hypot", flow.hypot, np.hypot, ORDERED, "float", shapes=TWO, order=2),
    Row("logaddexp", flow.logaddexp, np.logaddexp, ORDERED, "float", shapes=TWO, order=2),
    Row("where", _chosen, lambda x, y: np.where(_condition(x + y), x, y), shapes=TWO, order=2),
    _unary("neg", np.negative, dtypes=NUMBERS, order=2),
    _unary("abs", np.abs, dtypes=NUMBERS, result="real", order=2),
    _unary("sign", _sign, dtypes=ORDERED, order=2),
    _unary("square", np.square, dtypes=NUMBERS, order=2),
    _unary("floor", np.floor, dtypes=(*REAL, *INTEGERS), order=1),
    _unary("ceil", np.ceil, dtypes=(*REAL, *INTEGERS), order=1),
    _unary("trunc", np.trunc, dtypes=(*REAL, *INTEGERS), order=1),
    _unary("round", np.round, dtypes=(*REAL, *INTEGERS), order=1),
    _unary("conj", np.conj, dtypes=("complex64", "complex128")),
    _unary("exp", np.exp, result="float", order=2),
    _unary("expm1", np.expm1, result="float", order=2),
    _unary("log", np.log, result="float", order=2, domain=POSITIVE),
    _unary("log2", np.log2, result="float", order=2, domain=POSITIVE),
    _unary("log10", np.log10, result="float", order=2, domain=POSITIVE),
    _unary("log1p", np.log1p, result="float", order=2, domain=POSITIVE),
    _unary("sqrt", np.sqrt, result="float", order=2, domain=POSITIVE),
    _unary("rsqrt", lambda x: 1 / np.sqrt(x), result="float", order=2, domain=POSITIVE),
    _unary("reciprocal", lambda x: 1 / x, result="float", order=2, domain=POSITIVE),
    _unary("sin", np.sin, result="float", order=2),
    _unary("cos", np.cos, result="float", order=2),
    _unary("tan", np.tan, result="float", order=2, domain=((-1.0, 1.0),)),
    _unary("sinh", np.sinh, result="float", order=2),
    _unary("cosh", np.cosh, result="float", order=2),
    _unary("asin", np.arcsin, result="float", order=2, domain=UNIT),
    _unary("acos", np.arccos, result="float", order=2, domain=UNIT),
    _unary("atan", np.arctan, result="float", order=2, domain=UNIT),
    _unary("asinh", np.arcsinh, result="float", order=2),
    _unary("acosh", np.arccosh, result="float", order=2, domain=((1.2, 4.0),)),
    _unary("atanh", np.arctanh, result="float", order=2, domain=UNIT),
    _unary("exp2", np.exp2, result="float", order=2, dtypes=ORDERED),
    _unary("logical_not", np.logical_not, **COMPARED),
    _unary("bitwise_not", np.bitwise_not, dtypes=(*INTEGERS, "bool")),
    _unary("isnan", np.isnan, **COMPARED),
    _unary("isinf", np.isinf, **COMPARED),
    _unary("isfinite", np.isfinite, **COMPARED),
    Row("cast", flow.clone, np.array, ALL, order=2),
    Row(
        "cast",
        lambda x: x.to(flow.float64),
        lambda x: x,
        ORDERED,
        result="float64",
        label="-dtype",
    ),
    Row("copy_", lambda x: flow.zeros(2, *x.shape, dtype=x.dtype).copy_(x), lambda x: np.stack([x, x]), ALL, order=2),
    Row("fill", lambda x: x.clone().fill_(2), lambda x: np.full_like(x, 2)),
]


test_forward = forward_test(ROWS)
test_gradient = gradient_test(ROWS)


# Corner cases


def _tensor(data: Any, dtype: str = "float32") -> flow.Tensor:
    return flow.tensor(data, dtype=getattr(flow, dtype))


def test_large_arrays_with_destinations_and_the_worker(contract: KernelContract) -> None:
    array = np.linspace(-3, 3, 30_000).reshape(100, 300)
    tensor = flow.tensor(array)
    check((tensor.T * 2 + tensor.T.exp()).T, array * 2 + np.exp(array), "float64")
    check(tensor.t().clone(), array.T, "float64")


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int32", "int64"])
def test_integer_arithmetic_wraps_around(dtype: str, contract: KernelContract) -> None:
    limits = np.iinfo(dtype)
    tensor = _tensor([limits.min, limits.max], dtype)
    with np.errstate(over="ignore"):
        check(tensor + 1, tensor.numpy() + np.ones((), dtype), dtype)
        check(tensor * 3, tensor.numpy() * np.array(3, dtype), dtype)


def test_numbers_beyond_the_dtype_wrap_in_arithmetic_but_not_in_comparisons(contract: KernelContract) -> None:
    tensor = _tensor([1, 200], "uint8")
    check(tensor + 300, [45, 244], "uint8")
    check(tensor < 300, [True, True], "bool")
    check(tensor > -1, [True, True], "bool")
    check(tensor == 456, [False, False], "bool")
    check(tensor != -56, [True, True], "bool")
    check(tensor.__lt__(300), [True, True], "bool")
    check(flow.logical_and(tensor, 256), [True, True], "bool")
    check(flow.maximum(tensor, 300), [255, 255], "uint8")
    check(tensor.clamp(min=-5, max=1000), [1, 200], "uint8")
    check(tensor.clamp(max=-1), [0, 0], "uint8")


@pytest.mark.parametrize("value", [1 << 64, -(1 << 63) - 1, 1 << 100])
def test_integers_that_no_dtype_holds_are_refused(value: int) -> None:
    with pytest.raises(OverflowError, match="fits neither into int64 nor into uint64"):
        flow.ones(2) * value


@pytest.mark.parametrize("value", [INF, -INF, NAN, 1e300, -0.0])
def test_special_numbers_as_operands(value: float, contract: KernelContract) -> None:
    array = np.array([0.0, -1.0, 2.0])
    with np.errstate(all="ignore"):
        check(flow.tensor(array) + value, array + value, "float64")
        check(flow.tensor(array) * value, array * value, "float64")
        check(_tensor(array) * value, array.astype(np.float32) * np.array(value).astype(np.float32), "float32")


def test_negative_zero_is_not_confused_with_zero(contract: KernelContract) -> None:
    one = flow.ones(1)
    for value, expected in ((0.0, INF), (-0.0, -INF), (0, INF)):
        assert (one / value).item() == expected
    product = flow.ones(1, dtype=flow.complex128) * complex(-0.0, 1.0)
    assert math.copysign(1, product.numpy().imag[0]) == 1
    assert (one / complex(0.0, -0.0)).dtype is flow.complex64


def test_bool_arithmetic(contract: KernelContract) -> None:
    left, right = _tensor([True, True, False], "bool"), _tensor([True, False, False], "bool")
    check(left + right, [True, True, False], "bool")
    check(left * right, [True, False, False], "bool")
    check(left / (right | True), [1.0, 1.0, 0.0], "float32")
    check(left + 1, [2, 2, 1], "int64")
    check(left & right, [True, False, False], "bool")
    check(~left, [False, False, True], "bool")
    check(flow.square(left), [1, 1, 0], "int64")
    check(left**2, [1, 1, 0], "int64")
    check(flow.sign(left), [True, True, False], "bool")
    check(flow.sum(left), 2, "int64")


@pytest.mark.parametrize(
    "call",
    [
        lambda x, b: -b,
        lambda x, b: b - b,
        lambda x, b: x - b,
        lambda x, b: b - x,
        lambda x, b: x - True,
        lambda x, b: x.clone().sub_(b),
        lambda x, b: b.abs(),
        lambda x, b: b // b,
        lambda x, b: b % b,
        lambda x, b: b**b,
        lambda x, b: b.floor(),
        lambda x, b: b.clamp(min=True),
        lambda x, b: flow.relu(b),
        lambda x, b: x & x,
        lambda x, b: ~x,
        lambda x, b: x.to(flow.complex64) < 1,
        lambda x, b: flow.maximum(x.to(flow.complex64), x),
        lambda x, b: flow.floor(x.to(flow.complex64)),
        lambda x, b: flow.sign(x.to(flow.complex64)),
        lambda x, b: flow.where(x, x, x),
        lambda x, b: flow.where(b, x),  # type: ignore[call-overload]
        lambda x, b: x.masked_fill(x, 0.0),
        lambda x, b: x + "a",
        lambda x, b: x * None,
        lambda x, b: flow.add(1, 2),
        lambda x, b: x + [1.0],
        lambda x, b: flow.add(b, b, alpha=0.5),
        lambda x, b: flow.lerp(x, x.double(), 0.5),
        lambda x, b: flow.addcdiv(x, b, b),
        lambda x, b: x.long().round(decimals=1),
        lambda x, b: flow.round(1.5, decimals=1),  # type: ignore[arg-type]
        lambda x, b: x.fill_(1j),
        lambda x, b: flow.isclose(x, x.double()),
        lambda x, b: flow.frac(b),
        lambda x, b: flow.outer(x, 1.0),  # type: ignore[arg-type]
        lambda x, b: flow.kron(x, 1.0),  # type: ignore[arg-type]
        lambda x, b: flow.mv(x, 1.0),  # type: ignore[arg-type]
        lambda x, b: flow.mm(x, 1.0),  # type: ignore[arg-type]
        lambda x, b: flow.dot(x, 1.0),  # type: ignore[arg-type]
        lambda x, b: flow.vdot(x, 1.0),  # type: ignore[arg-type]
        lambda x, b: flow.inner(x, 1.0),  # type: ignore[arg-type]
        lambda x, b: flow.cross(x, 1.0),  # type: ignore[arg-type]
        lambda x, b: flow.cdist(x, 1.0),  # type: ignore[arg-type]
        lambda x, b: flow.equal(x, 1.0),  # type: ignore[arg-type]
        lambda x, b: flow.isclose(x, 1.0),  # type: ignore[arg-type]
        lambda x, b: flow.allclose(x, 1.0),  # type: ignore[arg-type]
        lambda x, b: flow.heaviside(x, 1.0),  # type: ignore[arg-type]
        lambda x, b: flow.tensordot(x, 1.0),  # type: ignore[arg-type]
        lambda x, b: flow.cat([x, 1.0]),  # type: ignore[list-item]
        lambda x, b: flow.stack([x, 1.0]),  # type: ignore[list-item]
        lambda x, b: flow.exp(3.0),  # type: ignore[arg-type]
        lambda x, b: flow.matmul(x, np.ones((3, 3))),  # type: ignore[arg-type]
        lambda x, b: flow.where([True], x, x),  # type: ignore[call-overload]
        lambda x, b: x.gather(0, [0]),
    ],
)
def test_unsupported_dtypes_raise_type_errors(call: Callable[..., Any]) -> None:
    with pytest.raises(TypeError):
        call(flow.ones(3), flow.ones(3, dtype=flow.bool))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: x + flow.ones(4), r"add: shapes \[2, 3\] and \[4\] do not broadcast"),
        (lambda x: flow.where(flow.ones(2, dtype=flow.bool), x, x), "do not broadcast"),
        (lambda x: x.clamp(), "give min, max or both"),
        (lambda x: x.clamp_(), "give min, max or both"),
        (lambda x: flow.div(x, x, rounding_mode="up"), "rounding_mode must be"),
        (lambda x: x.div_(x, rounding_mode="up"), "rounding_mode must be"),
        (lambda x: x.long() ** -1, "negative integer power"),
        (lambda x: x.long().pow_(-1), "negative integer power"),
        (lambda x: x.to(flow.uint8) ** 300, "does not fit into uint8"),
        (lambda x: x.masked_fill(x > 0, flow.ones(2)), "a number or a 0-d tensor"),
        (lambda x: x.long().masked_fill(x > 0, NAN), "does not fit into int64"),
        (lambda x: x.fill_(flow.ones(2)), "a number or a 0-d tensor"),
        (lambda x: x.long().fill_(INF), "does not fit into int64"),
        (lambda x: x.to(flow.uint8).fill_(300), "does not fit into uint8"),
        (lambda x: x.fill_(1e300), "does not fit into float32"),
        (lambda x: x.copy_(flow.ones(4)), "do not broadcast"),
        (lambda x: x.copy_(flow.ones(2, 2, 3)), "does not broadcast to the target"),
        (lambda x: flow.isclose(x, x, atol=-1), "tolerances cannot be negative"),
    ],
)
def test_wrong_values_and_shapes_raise_errors(call: Callable[[flow.Tensor], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call(flow.ones(2, 3))


@pytest.mark.parametrize(
    "call",
    [
        lambda x: x.add_(flow.ones(3, 2, 3)),
        lambda x: x[0].add_(flow.ones(2, 3)),
        lambda x: x.long().add_(1.5),
        lambda x: x.long().div_(2),
        lambda x: (x > 0).add_(1),
        lambda x: x.add_(1j),
        lambda x: x.long().exp_(),
        lambda x: x.masked_fill_(flow.ones(2, 2, 3, dtype=flow.bool), 1.0),
        lambda x: x.long().lerp_(x.long(), 0.5),
        lambda x: x.t_().addmm_(x.t(), x),
    ],
)
def test_in_place_results_of_another_shape_or_dtype_raise_errors(call: Callable[[flow.Tensor], Any]) -> None:
    with pytest.raises((RuntimeError, ValueError)):
        call(flow.ones(2, 3))


@pytest.mark.parametrize("function", [flow.floor_divide, flow.remainder, flow.fmod])
def test_integer_division_by_zero(function: Callable[..., flow.Tensor], contract: KernelContract) -> None:
    integers = flow.tensor([4, -4])
    with pytest.raises(ZeroDivisionError, match="integer division by zero"):
        function(integers, 0)
    result = function(integers, flow.tensor([2, 0]))
    with pytest.raises(ZeroDivisionError):
        result.numpy()
    with pytest.raises(ZeroDivisionError):
        function(7, flow.tensor([1, 0])).numpy()
    with np.errstate(all="ignore"):
        check(function(integers, 0.0), getattr(np, function.__name__)(np.array([4.0, -4.0]), 0.0), "float32")


def test_rounded_division_of_large_integers_is_exact(contract: KernelContract) -> None:
    numbers = [(1 << 62) + 1, -(1 << 62) - 1, (1 << 53) + 1, -7, 7, 0]
    for divisor in (3, -3, 1, -1, 7):
        truncated = [
            int(math.copysign(1, number) * math.copysign(1, divisor)) * (abs(number) // abs(divisor))
            for number in numbers
        ]
        check(flow.div(flow.tensor(numbers), divisor, rounding_mode="trunc"), truncated, "int64")
        floored = [number // divisor for number in numbers]
        check(flow.div(flow.tensor(numbers), divisor, rounding_mode="floor"), floored, "int64")
        check(flow.tensor(numbers).div_(divisor, rounding_mode="trunc"), truncated, "int64")
        check(flow.tensor(numbers) % divisor, [number % divisor for number in numbers], "int64")
        rest = [number - divisor * quotient for number, quotient in zip(numbers, truncated, strict=True)]
        check(flow.fmod(flow.tensor(numbers), divisor), rest, "int64")


def test_pow_of_integers(contract: KernelContract) -> None:
    base = flow.tensor([2, -3, 0, 1, -1])
    check(base**3, [8, -27, 0, 1, -1], "int64")
    check(base**0, [1, 1, 1, 1, 1], "int64")
    check(base ** flow.tensor(2), [4, 9, 0, 1, 1], "int64")
    check(base ** flow.tensor([-1, -2, -1, -3, -3]), [0, 0, 0, 1, -1], "int64")
    check(base ** flow.tensor([-2, 2, 2, -2, -2]), [0, 9, 0, 1, 1], "int64")
    check(2 ** flow.tensor([0, 5, -1]), [1, 32, 0], "int64")
    check(base**-1.0, [0.5, -1 / 3, INF, 1, -1], "float32")
    check(base**0.5, np.sqrt(np.array([2, NAN, 0, 1, NAN])), "float32")
    check(2.0 ** flow.tensor([1, -1]), [2.0, 0.5], "float32")
    check(_tensor([2, 3], "uint8") ** 5, [32, 243], "uint8")


def test_pow_of_special_numbers(contract: KernelContract) -> None:
    base = _tensor([-INF, -0.0, 0.0, 4.0], "float64")
    check(base ** flow.tensor([0.5]).double(), [INF, 0.0, 0.0, 2.0], "float64")
    check(base ** flow.tensor(0.5), [INF, 0.0, 0.0, 2.0], "float64")
    check(base**2, [INF, 0.0, 0.0, 16.0], "float64")
    check(base**-1, [-0.0, -INF, INF, 0.25], "float64")
    for dtype in ("float16", "bfloat16", "float32", "float64"):
        check(_tensor([-INF, -0.0, 0.0, 4.0], dtype) ** 0.5, [NAN, -0.0, 0.0, 2.0], dtype)
    check(flow.tensor(9.0) ** 0.5, 3.0, "float32")
    check(flow.tensor(3.0) ** 2, 9.0, "float32")
    check(0.0**base, [INF, 1.0, 1.0, 0.0], "float64")


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("exponent", [-2, -1, -0.5, 0.5, 2, 3, 3.0, 4])
def test_common_powers(exponent: float, dtype: str) -> None:
    """Exponents that are not computed by a power."""
    with np.errstate(all="ignore"):
        numbers = np.array([0.0, INF, NAN, 1e-3, 1, 2.5, 240.0, 1e-38, 1e-45, 3e38, 6e-5, 5e4], "f4").astype(dtype)
        if exponent == int(exponent):
            numbers = np.concatenate([numbers, -numbers])
        expected = (numbers.astype("f8") ** exponent).astype(dtype)
    # For denormal numbers, a unit is more than this.
    bound: dict[str, Any] = {
        "rtol": 4 * float(np.finfo(dtype).eps),
        "atol": 4 * float(np.finfo(dtype).smallest_subnormal),
    }
    for base in (flow.tensor(numbers), flow.tensor(np.stack([numbers] * 2, 1))[:, 0]):
        np.testing.assert_allclose((base**exponent).numpy(), expected, **bound)
        np.testing.assert_allclose(flow.pow(base, exponent, out=flow.empty_like(base)).numpy(), expected, **bound)
        np.testing.assert_allclose(base.clone().pow_(exponent).numpy(), expected, **bound)
    assert (flow.tensor(4.0) ** exponent).item() == 4.0**exponent


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("exponent", [-2, -1, -0.5, 0.5, 2, 3, 4, 1.5])
def test_powers_of_half_precision_are_rounded_once(exponent: float, dtype: str, contract: KernelContract) -> None:
    numbers = flow.tensor(np.linspace(0.1, 6, 400), dtype=getattr(flow, dtype))
    check(numbers**exponent, values((numbers.float() ** exponent).to(numbers.dtype)), dtype, tolerance=0.0)


_EVERYWHERE = [real + imaginary for real in (-1.4, -0.3, 0.6, 1.7) for imaginary in (-1.2j, -0.4j, 0.3j, 1.1j)]


_COMPLEX = (
    *("acos", "acosh", "asin", "asinh", "atan", "atanh", "cos", "cosh", "exp", "expm1", "log", "log10", "log1p"),
    *("log2", "reciprocal", "rsqrt", "sin", "sinh", "sqrt", "square", "tan", "tanh"),
)


@pytest.mark.parametrize("name", _COMPLEX)
def test_gradients_by_complex_numbers(name: str) -> None:
    _check_complex_gradient(getattr(flow, name))


@pytest.mark.parametrize("base", [-1.5, 1.5, 2.0 - 1.0j])
def test_gradients_of_powers_by_complex_exponents(base: complex) -> None:
    _check_complex_gradient(lambda x: base**x)
    _check_complex_gradient(lambda x: flow.tensor(base) ** x)


def _check_complex_gradient(function: Callable[[flow.Tensor], flow.Tensor]) -> None:
    """The gradient of the sum of real parts is the conjugate of the derivative."""
    x = flow.tensor(_EVERYWHERE, dtype=flow.complex128).requires_grad_()
    (gradient,) = flow.autograd.grad(function(x).real.sum(), x)
    slope = (function(x.detach() + 1e-6) - function(x.detach() - 1e-6)) / 2e-6
    assert gradient is not None
    np.testing.assert_allclose(gradient.numpy(), slope.conj().numpy(), rtol=1e-6)


def test_gradient_of_pow_where_it_is_flat_or_infinite() -> None:
    base = _tensor([0.0, 0.0, 0.0, 2.0], "float64").requires_grad_()
    exponent = _tensor([0.0, 1.0, 2.0, 0.0], "float64").requires_grad_()
    (base**exponent).sum().backward()
    check(base.grad, [0.0, 1.0, 0.0, 0.0], "float64")
    check(exponent.grad, [0.0, 0.0, 0.0, math.log(2)], "float64")
    for number, expected in ((0, [0.0, 0.0]), (1, [1.0, 1.0]), (2, [0.0, 4.0]), (0.5, [INF, 0.5 / math.sqrt(2)])):
        base = _tensor([0.0, 2.0], "float64").requires_grad_()
        (base**number).sum().backward()
        check(base.grad, expected, "float64")
    exponent = _tensor([1.0, 2.0], "float64").requires_grad_()
    (0**exponent).sum().backward()
    check(exponent.grad, [0.0, 0.0], "float64")
    exponent = _tensor([-1.0, 0.0], "float64").requires_grad_()
    (0**exponent).sum().backward()
    check(exponent.grad, [-INF, 0.0], "float64")
    integer = _tensor([0, 2], "int64")
    exponent = _tensor([3.0, 2.0], "float64").requires_grad_()
    (integer**exponent).sum().backward()
    check(exponent.grad, [0.0, 4 * math.log(2)], "float64")


@pytest.mark.parametrize("name", ["remainder", "fmod"])
def test_gradient_of_remainders(name: str) -> None:
    function = getattr(flow, name)
    dividend, divisor = np.array([5.3, -5.3, 7.1]), np.array([2.1, 2.2, -1.7])
    check_gradients(function, dividend, divisor)
    check_gradients(lambda x: function(x, 1.7), dividend)
    check_gradients(lambda x: function(7.3, x), divisor)


@pytest.mark.parametrize("mode", ["trunc", "floor"])
def test_rounded_division_has_zero_gradients(mode: str) -> None:
    check_gradients(lambda x, y: flow.div(x, y, rounding_mode=mode), *arrays_for(0, (3,), (3,), low=0.3))
    check_gradients(lambda x: x // 0.7, *arrays_for(0, (3,), low=0.3))


def test_gradient_of_extrema_for_equal_elements_and_nan() -> None:
    for function, expected in ((flow.maximum, [1.0, 0.5, 0.0, 1.0]), (flow.minimum, [0.0, 0.5, 1.0, 1.0])):
        first = _tensor([3.0, 2.0, 1.0, NAN], "float64").requires_grad_()
        second = _tensor([2.0, 2.0, 2.0, 1.0], "float64").requires_grad_()
        function(first, second).sum().backward()
        check(first.grad, expected, "float64")
        check(second.grad, [*[1 - value for value in expected[:3]], 1.0], "float64")
        first = _tensor([3.0, 2.0, 1.0], "float64").requires_grad_()
        function(first, 2.0).sum().backward()
        check(first.grad, expected[:3], "float64")


def test_gradient_of_an_angle_at_the_origin() -> None:
    y, x = flow.zeros(2, requires_grad=True), flow.tensor([0.0, 2.0], requires_grad=True)
    flow.atan2(y, x).sum().backward()
    check(y.grad, [0.0, 0.5], "float32")
    check(x.grad, [0.0, 0.0], "float32")


def test_clamp(contract: KernelContract) -> None:
    array = np.array([-2.0, 0.5, 3.0, NAN])
    tensor = flow.tensor(array)
    check(tensor.clamp(-1, 1), np.clip(array, -1, 1), "float64")
    check(tensor.clamp(min=flow.tensor([0.0, 1.0, 0.0, 0.0]).double()), [0.0, 1.0, 3.0, NAN], "float64")
    check(tensor.clamp(flow.tensor(0.0), flow.tensor(1.0)), [0.0, 0.5, 1.0, NAN], "float64")
    check(tensor.clamp(3, 2), [2.0, 2.0, 2.0, NAN], "float64")
    check(tensor.clamp(min=NAN), [NAN] * 4, "float64")
    check(flow.tensor([1, 5]).clamp(2.5), [2.5, 5.0], "float32")
    check(flow.tensor([1, 5]).clamp(max=3), [1, 3], "int64")
    check(flow.tensor([1, 5]).clamp(flow.tensor([2.5, 2.5])), [2.5, 5.0], "float32")
    check(flow.tensor([[1.0], [5.0]]).clamp(flow.tensor([2.0, 3.0])), [[2.0, 3.0], [5.0, 5.0]], "float32")
    check(tensor.clone().clamp_(0, 1), [0.0, 0.5, 1.0, NAN], "float64")
    check(flow.clamp_max(tensor, 0.0), [-2.0, 0.0, 0.0, NAN], "float64")


def test_gradient_of_clamp() -> None:
    tensor = _tensor([-2.0, -1.0, 0.5, 1.0, 3.0], "float64").requires_grad_()
    tensor.clamp(-1, 1).sum().backward()
    check(tensor.grad, [0.0, 1.0, 1.0, 1.0, 0.0], "float64")
    check_gradients(
        lambda x, low, high: x.clamp(low, high), np.array([-2.0, 0.3, 2.0]), np.full(3, -1.0), np.full(3, 1.0)
    )
    check_gradients(lambda x, low: flow.clamp_min(x, low), np.array([-2.0, 0.3, 2.0]), np.array([0.0]))


def test_where(contract: KernelContract) -> None:
    condition = _tensor([True, False], "bool")
    check(flow.where(condition, 1, 2.0), [1.0, 2.0], "float32")
    check(flow.where(condition, 1, 2), [1, 2], "int64")
    check(flow.where(condition, True, False), [True, False], "bool")
    check(flow.where(condition, flow.ones(2, dtype=flow.int64), 2.5), [1.0, 2.5], "float32")
    check(flow.where(condition, 2.5, flow.ones(2, dtype=flow.float16)), [2.5, 1.0], "float16")
    check(flow.where(condition, flow.ones(2), flow.ones(2, dtype=flow.float64)), [1.0, 1.0], "float64")
    check(flow.where(condition, flow.ones(3, 1), flow.zeros(())), [[1.0, 0.0]] * 3, "float32")
    check(flow.where(condition, flow.ones(2, dtype=flow.bool), flow.tensor(3, dtype=flow.uint8)), [1, 3], "uint8")
    (found,) = flow.where(condition)
    check(found, [0], "int64")
    check_gradients(lambda x: flow.where(flow.tensor([True, False, True]), x, 2.0), *arrays_for(0, (3,)), second=True)
    check_gradients(lambda x: flow.where(flow.tensor([True, False, True]), 2.0, x), *arrays_for(0, (2, 3)), second=True)


def test_where_keeps_nan_of_the_other_branch_out_of_the_gradient() -> None:
    tensor = _tensor([0.0, 4.0], "float64").requires_grad_()
    flow.where(tensor > 0, flow.where(tensor > 0, tensor, 1.0).log(), 0.0).sum().backward()
    check(tensor.grad, [0.0, 0.25], "float64")


def test_masked_fill(contract: KernelContract) -> None:
    tensor = flow.tensor([1, 2, 3])
    check(tensor.masked_fill(tensor > 1, 2.9), [1, 2, 2], "int64")
    check(tensor.masked_fill(tensor > 1, flow.tensor(7.5)), [1, 7, 7], "int64")
    check(flow.zeros(3).masked_fill(flow.ones(2, 3, dtype=flow.bool), 1), np.ones((2, 3)), "float32")
    check(flow.zeros(2, 3).masked_fill(flow.tensor([True, False, True]), -INF), [[-INF, 0, -INF]] * 2, "float32")
    check(tensor.masked_fill_(tensor > 2, 0), [1, 2, 0], "int64")
    check(flow.zeros(2, dtype=flow.bool).masked_fill(flow.tensor([True, False]), 5), [True, False], "bool")
    mask = flow.tensor([True, False, True])
    check_gradients(lambda x, value: x.masked_fill(mask, value), *arrays_for(0, (2, 3), ()), second=True)
    check_gradients(lambda x: (x * 1).masked_fill_(mask, 2.0), *arrays_for(0, (2, 3)))
    check_gradients(lambda x: flow.fill(x, 2.0) + x, *arrays_for(0, (2, 3)))


def test_rounding(contract: KernelContract) -> None:
    check(flow.tensor([1.5, 2.5, -0.5, -1.5]).round(), [2.0, 2.0, -0.0, -2.0], "float32")
    check(_tensor([1.25, 1.35, -1.25], "float64").round(decimals=1), [1.2, 1.4, -1.2], "float64")
    check(_tensor([125.0, 135.0], "float64").round(decimals=-1), [120.0, 140.0], "float64")
    check(flow.tensor([1, 2]).round(), [1, 2], "int64")
    check(flow.tensor([-1.5, 1.5]).trunc(), [-1.0, 1.0], "float32")
    check(flow.frac(flow.tensor([-1.5, 1.25])), [-0.5, 0.25], "float32")


def test_sign_and_abs_of_special_numbers(contract: KernelContract) -> None:
    for dtype in REAL:
        check(flow.sign(_tensor([NAN, -0.0, -INF, INF], dtype)), [0.0, 0.0, -1.0, 1.0], dtype)
    check(_tensor([-128], "int8").abs(), [-128], "int8")
    tensor = _tensor([3 + 4j, 0j], "complex128").requires_grad_()
    tensor.abs().sum().backward()
    check(tensor.grad, [0.6 + 0.8j, 0j], "complex128")


@pytest.mark.parametrize("source", ALL)
def test_casts_between_all_dtypes(source: str, contract: KernelContract) -> None:
    for target in (*ALL, "complex128"):
        array = np.array([0, 1, 2, 100]).astype(getattr(flow, source).numpy)
        expected = array.real if array.dtype.kind == "c" and not target.startswith("complex") else array
        for tensor in (flow.tensor(array), flow.tensor(np.repeat(array, 2))[::2]):
            check(tensor.to(getattr(flow, target)), expected.astype(getattr(flow, target).numpy), target)
            check(
                flow.zeros(4, dtype=getattr(flow, target)).copy_(tensor),
                expected.astype(getattr(flow, target).numpy),
                target,
            )


def test_lossy_casts(contract: KernelContract) -> None:
    check(flow.tensor([-1.7, 1.7]).long(), [-1, 1], "int64")
    check(flow.tensor([300]).to(flow.uint8), [44], "uint8")
    check(flow.tensor([0.0, 0.5, NAN]).bool(), [False, True, True], "bool")
    check(flow.tensor([2j, 0j]).bool(), [True, False], "bool")
    check(flow.tensor([1 + 2j]).float(), [1.0], "float32")
    check(flow.tensor([70000.0]).half(), [INF], "float16")
    tensor = flow.tensor([1.0, 2.0])
    assert tensor.to(flow.float32) is tensor
    assert tensor.to(flow.float32, copy=True) is not tensor
    gradient = flow.tensor([1.0], requires_grad=True)
    gradient.half().double().sum().backward()
    check(gradient.grad, [1.0], "float32")


def test_copy_from_itself_and_from_numbers(contract: KernelContract) -> None:
    square = flow.arange(9.0).reshape(3, 3).contiguous()
    expected = square.numpy().T.copy()
    check(square.copy_(square.T), expected, "float32")
    check(flow.zeros(2).copy_(3), [3.0, 3.0], "float32")
    check(flow.zeros(2, 2)[0].copy_(flow.tensor([1, 2])), [1.0, 2.0], "float32")
    check_gradients(lambda x, y: (x * 1).copy_(y) * x, *arrays_for(0, (2, 3), (3,)))
    check_gradients(lambda x: (x * 1).fill_(2.0) * x, *arrays_for(0, (3,)))


def test_alpha_has_the_dtype_of_the_result(contract: KernelContract) -> None:
    yes, no = flow.tensor([True, False]), flow.tensor([False, False])
    check(flow.add(no, yes, alpha=2), [True, False], "bool")
    check(flow.add(yes, yes, alpha=0), [True, False], "bool")
    check(flow.add(no, True, alpha=-1), [True, True], "bool")
    check(no.clone().add_(yes, alpha=2), [True, False], "bool")
    check(flow.addr(flow.zeros(2, 2).bool(), yes, yes, alpha=2, beta=3), [[True, False], [False, False]], "bool")
    small = flow.tensor([200, 1], dtype=flow.uint8)
    check(flow.add(flow.tensor([1, 1]), small, alpha=2), [401, 3], "int64")
    check(flow.sub(flow.tensor([1, 1]), small, alpha=-1), [201, 2], "int64")
    check(flow.rsub(small, flow.tensor([1, 1]), alpha=2), [-399, -1], "int64")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda i, f: flow.add(i, i, alpha=2.5), "add: alpha must be an integer for integer tensors, not 2.5"),
        (lambda i, f: i.sub_(i, alpha=0.5), "sub_: alpha must be an integer for integer tensors, not 0.5"),
        (lambda i, f: flow.add(f, f, alpha=1j), "add: alpha must be real for real tensors, not 1j"),
        (lambda i, f: flow.add(f, f, alpha="a"), "add: alpha must be a number, not 'a'"),  # type: ignore[arg-type]
        (
            lambda i, f: flow.sub(f, f, alpha=flow.tensor(2)),  # type: ignore[arg-type]
            "sub: alpha must be a number, not a tensor",
        ),
        (lambda i, f: flow.sub(i, i > 0, alpha=2), "sub is not defined for bools"),
        (lambda i, f: flow.addcmul(i, i, i, value=2.5), "addcmul: value must be an integer"),
        (lambda i, f: flow.addcdiv(f, f, f, value=1j), "addcdiv: value must be real"),
        (lambda i, f: flow.addr(i, i, i, beta=2.5), "addr: beta must be an integer"),
        (lambda i, f: flow.addmv(i, i.reshape(2, 1), i[:1], alpha=2.5), "addmv: alpha must be an integer"),
        (lambda i, f: flow.index_add(i, 0, i - 1, i, alpha=2.5), "index_add: alpha must be an integer"),
    ],
)
def test_factors_of_a_higher_kind_than_the_result(call: Callable[..., Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        call(flow.tensor([1, 2]), flow.tensor([1.0, 2.0]))


def test_float_power_of_anything_but_numbers_names_the_function() -> None:
    with pytest.raises(TypeError, match="float_power: expected a tensor or a number, got str"):
        flow.float_power(flow.ones(1), "a")  # type: ignore[arg-type]


def test_alpha_and_combined_forms(contract: KernelContract) -> None:
    x, y, z = [flow.tensor(value) for value in arrays_for(0, (3,), (3,), (3,))]
    check(flow.add(x, y, alpha=2), values(x) + 2 * values(y), "float64")
    check(flow.sub(x, y, alpha=0.5), values(x) - 0.5 * values(y), "float64")
    check(x.clone().add_(y, alpha=3), values(x) + 3 * values(y), "float64")
    check(flow.add(flow.tensor([1, 2]), flow.tensor([1, 2]), alpha=3), [4, 8], "int64")
    check(flow.lerp(x, y, 0.25), values(x) * 0.75 + values(y) * 0.25, "float64")
    check(flow.addcmul(x, y, z, value=2), values(x) + 2 * values(y) * values(z), "float64")
    check(flow.addcdiv(x, y, z, value=2), values(x) + 2 * values(y) / values(z), "float64")
    check_gradients(
        lambda a, b, c: flow.addcmul(a, b, c, value=2) + flow.lerp(a, b, c), *arrays_for(0, (3,), (3,), (3,))
    )


def test_numpy_scalars_are_numbers(contract: KernelContract) -> None:
    check(flow.ones(2) * np.float64(2), [2.0, 2.0], "float32")
    check(flow.tensor([4, 6]) // np.int64(2), [2, 3], "int64")
    check(flow.ones(2) + np.bool_(True), [2.0, 2.0], "float32")
    check(flow.ones(2) * np.float32(0.5), [0.5, 0.5], "float32")
    check(flow.ones(2) * ml_dtypes.bfloat16(0.5), [0.5, 0.5], "float32")
    with pytest.raises(ZeroDivisionError):
        flow.tensor([1]) // np.int64(0)


def test_isnan_isinf_isfinite(contract: KernelContract) -> None:
    for dtype in REAL:
        tensor = _tensor([NAN, INF, -INF, 0.0], dtype)
        check(tensor.isnan(), [True, False, False, False], "bool")
        check(tensor.isinf(), [False, True, True, False], "bool")
        check(tensor.isfinite(), [False, False, False, True], "bool")
        check(flow.nan_to_num(tensor, 7.0, 8.0, 9.0), [7.0, 8.0, 9.0, 0.0], dtype)
    limits = flow.finfo(flow.float32)
    check(flow.nan_to_num(_tensor([NAN, INF, -INF])), [0.0, limits.max, limits.min], "float32")
    check(flow.nan_to_num(flow.tensor([1])), [1], "int64")
    complex_numbers = flow.tensor([complex(NAN, 1.0), complex(INF, NAN), 2j])
    check(flow.nan_to_num(complex_numbers, 7.0, 8.0), [7.0 + 1j, 8.0 + 7j, 2j], "complex64")


def test_closeness(contract: KernelContract) -> None:
    x = _tensor([1.0, NAN, INF, -INF, 0.0], "float64")
    y = _tensor([1.0 + 1e-7, NAN, INF, INF, 1e-9], "float64")
    check(flow.isclose(x, y), [True, False, True, False, True], "bool")
    check(flow.isclose(x, y, equal_nan=True), [True, True, True, False, True], "bool")
    check(flow.isclose(x, y, rtol=0, atol=0), [False, False, True, False, False], "bool")
    check(flow.isclose(flow.tensor([1, 2]), flow.tensor([1, 3])), [True, False], "bool")
    assert not flow.allclose(x, y)
    assert flow.allclose(x[:1], y[:1])
    assert flow.allclose(flow.ones(2), flow.ones(2, 2))
    assert flow.equal(flow.ones(2), flow.ones(2, dtype=flow.float64))
    assert not flow.equal(flow.ones(2), flow.ones(2, 2))
    assert not flow.equal(x, x)
    assert flow.equal(flow.zeros(0), flow.zeros(0))


def test_logit_and_logarithms_of_sums(contract: KernelContract) -> None:
    check(flow.logit(_tensor([0.2, 0.5], "float64")), np.log(np.array([0.25, 1.0])), "float64", tolerance=1e-12)
    check(flow.logit(_tensor([0.0, 1.0], "float64"), eps=0.1), np.log([1 / 9, 9]), "float64", tolerance=1e-12)
    both = _tensor([-INF, 1000.0], "float64").requires_grad_()
    flow.logaddexp(both, both).sum().backward()
    check(both.grad, [0.0, 1.0], "float64")


@pytest.mark.parametrize("function", [flow.logaddexp, flow.logaddexp2])
def test_gradients_of_logarithms_of_sums_at_infinity(function: Callable[..., flow.Tensor]) -> None:
    x = _tensor([INF, 0.0, -INF, 0.0, -INF, 1000.0], "float32").requires_grad_()
    y = _tensor([0.0, INF, 0.0, -INF, -INF, 1000.0], "float32").requires_grad_()
    function(x, y).sum().backward()
    check(x.grad, [1.0, 0.0, 0.0, 1.0, 0.0, 0.5], "float32")
    check(y.grad, [0.0, 1.0, 1.0, 0.0, 0.0, 0.5], "float32")


# In place


IN_PLACE: list[tuple[str, tuple[Any, ...]]] = [
    *[
        (name, ())
        for name in ("abs", "neg", "exp", "expm1", "log", "log2", "log10", "log1p", "sqrt", "rsqrt", "square")
    ],
    *[
        (name, ())
        for name in ("reciprocal", "sin", "cos", "tan", "sinh", "cosh", "asin", "acos", "atan", "asinh", "atanh")
    ],
    *[
        (name, ())
        for name in ("exp2", "sign", "floor", "ceil", "trunc", "round", "sigmoid", "tanh", "erf", "relu", "frac")
    ],
    *[
        (name, (0.7,))
        for name in ("add", "sub", "mul", "div", "pow", "remainder", "fmod", "clamp_min", "clamp_max", "clamp")
    ],
    ("floor_divide", (0.3,)),
    ("lerp", (2.0, 0.3)),
    ("addcmul", (2.0, 3.0)),
    ("addcdiv", (2.0, 3.0)),
    ("cumsum", (0,)),
    ("cumprod", (0,)),
    ("tril", ()),
    ("triu", (1,)),
    ("logit", (0.1,)),
    ("nan_to_num", ()),
]


@pytest.mark.parametrize(("name", "arguments"), IN_PLACE, ids=[name for name, _ in IN_PLACE])
def test_in_place_methods_change_the_tensor_and_have_gradients(
    name: str, arguments: tuple[Any, ...], contract: KernelContract
) -> None:
    (array,) = arrays_for(0, (3, 3), low=0.2, high=0.8)

    def given(tensor: flow.Tensor) -> list[Any]:
        made = name in ("lerp", "addcmul", "addcdiv")
        return [
            tensor * argument if made and place < 2 and not (name == "lerp" and place) else argument
            for place, argument in enumerate(arguments)
        ]

    expected = values(getattr(flow.tensor(array), name)(*given(flow.tensor(array))))
    tensor = flow.tensor(array)
    alias = tensor.view(9)
    assert getattr(tensor, f"{name}_")(*given(flow.tensor(array))) is tensor
    check(alias, expected.reshape(9), "float64", tolerance=1e-12)
    strided = flow.tensor(np.repeat(array, 2, 1))
    getattr(strided[:, ::2], f"{name}_")(*given(flow.tensor(array)))
    check(strided[:, ::2], expected, "float64", tolerance=1e-12)
    check(strided[:, 1::2], array, "float64")
    check_gradients(lambda x: getattr(x * 1, f"{name}_")(*given(x)), array)


@pytest.mark.parametrize("name", ["eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_xor"])
def test_comparisons_in_place_keep_the_dtype(name: str, contract: KernelContract) -> None:
    x, y = flow.tensor([1.0, 2.0, 0.0]), flow.tensor([1.0, 1.0, 0.0])
    expected = values(getattr(flow, name)(x, y)).astype(np.float64)
    check(getattr(x.clone(), f"{name}_")(y), expected, "float32")
    check(getattr(x.long(), f"{name}_")(y.long()), expected, "int64")
    tracked = x.clone().requires_grad_()
    result = getattr(tracked * 1, f"{name}_")(y)
    check(result, expected, "float32")
    (result * tracked).sum().backward()
    check(tracked.grad, expected, "float32")


def test_bitwise_operators_in_place(contract: KernelContract) -> None:
    check(flow.tensor([6, 3]).bitwise_and_(flow.tensor([3, 3])), [2, 3], "int64")
    check(flow.tensor([6, 3]).bitwise_or_(1), [7, 3], "int64")
    check(flow.tensor([6, 3]).bitwise_xor_(1), [7, 2], "int64")
    check(flow.tensor([6, 3]).bitwise_not_(), [-7, -4], "int64")
    check(flow.tensor([True, False]).logical_not_(), [False, True], "bool")
    check(flow.tensor([2.0, 0.0]).logical_not_(), [0.0, 1.0], "float32")
    with pytest.raises(ZeroDivisionError):
        flow.tensor([6, 3]).remainder_(0)


def test_in_place_changes_keep_the_old_values_for_gradients() -> None:
    check_gradients(lambda x, y: (x * 1).mul_(y), *arrays_for(0, (3,), (3,)))
    check_gradients(lambda x, y: (x * 1).div_(y), *arrays_for(0, (3,), (3,), low=0.5))
    check_gradients(lambda x: (x * 1).pow_(3), *arrays_for(0, (3,)))
    check_gradients(lambda x: (x * 1).log_().mul_(x), *arrays_for(0, (3,), low=0.5))


def test_names_and_documentation_of_in_place_forms() -> None:
    assert flow.Tensor.exp_.__name__ == "exp_"
    assert flow.Tensor.lerp_.__doc__ == "In-place `lerp`."
    assert elementwise.number("op", np.float32(1)) == 1.0


def test_gradient_of_a_conjugate(contract: KernelContract) -> None:
    def call(x: flow.Tensor, y: flow.Tensor) -> flow.Tensor:
        return (flow.conj(x + 1j * y) * (1 + 2j) + 3).abs()

    check_gradients(call, *arrays_for(0, (3,), (3,)), second=True)


def test_filling_cuts_the_gradient_of_earlier_values(contract: KernelContract) -> None:
    check_gradients(lambda x: (x * x).fill_(2) * x, *arrays_for(0, (3,)), second=True)


@pytest.mark.parametrize("dtype", ["bool", "int16", "int64", "float16", "bfloat16", "float32", "float64", "complex64"])
def test_where_preserves_bits(dtype: str) -> None:
    generator = np.random.default_rng(7)
    kind = getattr(flow, dtype)
    size = kind.itemsize
    nothing = False if dtype == "bool" else 0  # the integer 0 would make the result an integer tensor
    raw = [generator.integers(0, 2 if dtype == "bool" else 256, (4, 33 * size), np.uint8) for _ in range(2)]
    first, second = [array.view(kind.numpy) for array in raw]
    mask = generator.random(first.shape) < 0.5

    def bits(tensor: flow.Tensor) -> Any:
        return tensor.numpy().view(np.uint8)

    for condition in (mask, mask[:1], mask[:, :1], np.array(True)):
        found = flow.where(flow.tensor(condition), flow.tensor(first), flow.tensor(second))
        np.testing.assert_array_equal(bits(found), np.where(condition, first, second).view(np.uint8))
    zeros = np.where(mask, first, first.dtype.type(0)).view(np.uint8)
    np.testing.assert_array_equal(bits(flow.where(flow.tensor(mask), flow.tensor(first), nothing)), zeros)
    np.testing.assert_array_equal(bits(flow.where(flow.tensor(~mask), nothing, flow.tensor(first))), zeros)
    target = flow.tensor(first)
    np.testing.assert_array_equal(bits(target.masked_fill_(flow.tensor(~mask), nothing)), zeros)
    np.testing.assert_array_equal(
        bits(flow.where(flow.tensor(mask.T), flow.tensor(first).T, flow.tensor(second).T).T.contiguous()),
        np.where(mask, first, second).view(np.uint8),
    )


@pytest.mark.parametrize("dtype", [flow.float32, flow.float64, flow.float16, flow.bfloat16, flow.int32])
@pytest.mark.parametrize("count", [5, 20_000])
def test_a_limit_is_the_same_for_few_and_many_elements(dtype: flow.dtype, count: int) -> None:
    """Many elements take another path through the kernels than few."""
    given = np.resize(np.array([-3, -0.5, 0, 0.5, 3], np.float64), count)
    x = flow.tensor(given, dtype=dtype)
    wide = x.double().numpy()
    for found, expected in (
        (flow.maximum(x, 1), np.maximum(wide, 1)),
        (flow.minimum(x, 1), np.minimum(wide, 1)),
        (x.clamp(min=-1), np.maximum(wide, -1)),
        (x.clamp(max=-1), np.minimum(wide, -1)),
        (x.relu(), np.maximum(wide, 0)),
    ):
        np.testing.assert_array_equal(found.double().numpy(), expected)


@pytest.mark.parametrize("count", [5, 20_000])
def test_limits_keep_nan_and_a_nan_limit_gives_nan(count: int) -> None:
    x = flow.tensor(np.resize(np.array([np.nan, -np.inf, np.inf, 0, 1], np.float32), count))
    for limited in (x.relu(), x.clamp(min=0), x.clamp(max=0), flow.maximum(x, 0.0), flow.minimum(x, 0.0)):
        np.testing.assert_array_equal(np.isnan(limited.numpy()), np.isnan(x.numpy()))
    assert np.isnan(flow.maximum(x, math.nan).numpy()).all()
    assert np.isnan(x.clamp(max=math.nan).numpy()).all()


@pytest.mark.parametrize("shape", [(256, 300), (300, 256), (3, 130, 129)], ids=str)
@pytest.mark.parametrize("dtype", [flow.float32, flow.float64, flow.int8])
def test_large_transposed_copies(shape: tuple[int, ...], dtype: flow.dtype) -> None:
    """The kernel copies strips whose width depends on the stride of the rows."""
    array = np.random.default_rng(0).integers(0, 100, shape)
    x = flow.tensor(array, dtype=dtype)
    np.testing.assert_array_equal(x.mT.contiguous().numpy(), array.swapaxes(-1, -2))
    np.testing.assert_array_equal(x.mT.to(flow.float64).numpy(), array.swapaxes(-1, -2))
