"""The rules that only CUDA devices have: the bits of the CPU where nothing is rounded, and a few units elsewhere."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import vmflow as flow
from tests.kernels.support import hard_numbers, same_bits
from vmflow import interpreter
from vmflow.dtypes import by_name
from vmflow.kernels.expressions.rules import INTEGERS
from vmflow.nn import functional as F
from vmflow.ops.fused import FUSED
from vmflow.ops.table import OPS, encoded

from .comparing import compare, on_cpu, results, values
from .emulated import emulated

pytestmark = pytest.mark.emulated

_DIVISIONS = ("floor_divide", "trunc_divide", "remainder", "fmod")
_HALVES = ("float16", "bfloat16")


def _hard(dtype: str, count: int, seed: int = 0) -> Any:
    with np.errstate(over="ignore"):
        return hard_numbers((count,), "float32" if dtype in _HALVES else dtype, seed).astype(by_name(dtype).numpy)


def _both(op: str, arrays: tuple[Any, ...], scalars: tuple[Any, ...] = ()) -> list[Any]:
    """The results of the op for arrays of the host, there and on the device."""
    tensors = tuple([on_cpu(array) for array in arrays])
    with np.errstate(all="ignore"):
        expected = results(op, tensors, (), scalars)[0]
    found = results(op, tuple([tensor.to("cuda") for tensor in tensors]), (), scalars)[0]
    assert found.dtype == expected.dtype
    # numpy does not know that bfloat16 has nan.
    return [array.astype("float32") if array.dtype == flow.bfloat16.numpy else array for array in (expected, found)]


@pytest.mark.parametrize("dtype", [*sorted(INTEGERS), *_HALVES, "float32", "float64"])
@pytest.mark.parametrize("op", _DIVISIONS)
def test_divisions_have_the_bits_of_the_cpu(op: str, dtype: str) -> None:
    first, second = _hard(dtype, 1500), _hard(dtype, 1500, 1)
    if dtype in INTEGERS:
        second[second == 0] = 1
        # The quotient that the dtype does not hold.
        first[:3], second[:3] = np.iinfo(dtype).min, (-1 if by_name(dtype).is_signed else 1)
        second[3:600] %= 5
        second[second == 0] = 3
    expected, found = _both(op, (first, second))
    assert same_bits(expected, found)
    nonzero = expected != 0 if dtype in INTEGERS else (expected != 0) | (second != second)
    np.testing.assert_array_equal(
        np.signbit(expected[~nonzero].astype(float)), np.signbit(found[~nonzero].astype(float))
    )


@pytest.mark.parametrize("op", _DIVISIONS)
@pytest.mark.parametrize("dtype", ["uint8", "int32", "int64"])
def test_a_whole_divisor_of_0_is_an_error(op: str, dtype: str) -> None:
    numbers = flow.tensor([4, 0, 2], device="cuda", dtype=getattr(flow, dtype))
    calls: list[tuple[Any, ...]] = [
        (OPS[op], (numbers, numbers)),
        (OPS[f"{op}_scalar"], (numbers,), (), (0,)),
        (OPS[f"{op}_scalar"], (numbers,), ("reversed",), (7,)),
    ]
    for call in calls:
        with pytest.raises(ZeroDivisionError, match="integer division by zero"):
            interpreter.dispatch(*call).tolist()
    compare(op, (on_cpu(np.array([4, 0], dtype)), on_cpu(np.array([2, 1], dtype))))


@pytest.mark.parametrize("dtype", sorted(INTEGERS))
def test_whole_powers_and_shifts_have_the_bits_of_the_cpu(dtype: str) -> None:
    base = np.concatenate([_hard(dtype, 300), np.arange(-3 if dtype != "uint8" else 0, 4).astype(dtype)])
    low = -3 if dtype != "uint8" else 0
    exponents = np.random.default_rng(2).integers(low, 70, base.shape).astype(dtype)
    for op in ("pow", "bitwise_left_shift", "bitwise_right_shift"):
        places = exponents if op == "pow" else exponents % (8 * base.itemsize)
        assert same_bits(*_both(op, (base, places)))
    for exponent in (0, 1, 2, 3, 5, 63):
        assert same_bits(*_both("pow_scalar", (base,), (exponent,)))
    for number in (0, 1, 7, 64, 1000, -1):
        for op in ("bitwise_left_shift_scalar", "bitwise_right_shift_scalar"):
            assert same_bits(*_both(op, (base,), (number,)))


@pytest.mark.parametrize("dtype", ["bool", *sorted(INTEGERS), *_HALVES, "float32", "float64"])
@pytest.mark.parametrize("op", ["heaviside", "nextafter"])
def test_steps_have_the_bits_of_the_cpu(op: str, dtype: str) -> None:
    if op == "nextafter" and (dtype in INTEGERS or dtype == "bool"):
        return
    first, second = _hard(dtype, 1500), _hard(dtype, 1500, 1)
    second[:400] = first[:400]
    assert same_bits(*_both(op, (first, second)))


# Units in the last place beside the CPU's float64: the library's, and one for the CPU's own error.
_UNITS = {
    "pow": 5,
    "logaddexp": 4,
    "logaddexp2": 4,
    "xlogy": 4,
    "entr": 4,
    "sinc": 4,
    "erfinv": 6,
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("op", sorted(_UNITS))
def test_functions_are_nearly_right(op: str, dtype: str) -> None:
    count = 2 if op in {"pow", "logaddexp", "logaddexp2", "xlogy"} else 1
    operands = [_hard(dtype, 1500, seed) for seed in range(count)]
    if op == "erfinv":
        operands = [np.tanh(operands[0])]
    (expected, _), (_, found) = (
        _both(op, tuple([array.astype(float) for array in operands])),
        _both(op, tuple(operands)),
    )
    with np.errstate(over="ignore"):
        wanted = expected.astype(dtype)
    np.testing.assert_array_equal(np.isnan(found), np.isnan(wanted))
    # Next to the largest number a unit decides whether there is one.
    within = np.isfinite(wanted) & np.isfinite(found)
    assert (~within == np.isnan(wanted) | np.isinf(wanted)).all()
    sizes = np.maximum(np.abs(wanted), np.finfo(dtype).tiny)
    if op.startswith("logaddexp"):
        finite = np.where(np.isfinite(operands), operands, 0)
        sizes = np.maximum(sizes, np.abs(finite).max(0))  # which may cancel out
    units = np.where(within, np.spacing(sizes).astype(float), 1)
    apart = np.abs(found[within].astype(float) - expected[within]) / units[within]
    assert apart.max() <= _UNITS[op], [array[within][apart.argmax()] for array in operands]


@pytest.mark.parametrize("op", ["lgamma", "digamma"])
def test_the_gamma_function_and_its_kin_are_nearly_right(op: str) -> None:
    numbers = np.concatenate([_hard("float64", 500), np.arange(-4.0, 5.0), np.linspace(-5.03, 12.0, 400)])
    expected, found = _both(op, (numbers,))
    np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))
    # Next to zeros of the function, and to poles, both lose digits.
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)
    compare(op, (on_cpu(numbers.astype(np.float32)),), tolerance=1e-6)


@pytest.mark.parametrize("op", ["i0", "i0e", "i1", "i1e", "erfcx", "ndtri", "igamma", "igammac", "zeta"])
def test_special_functions_are_nearly_right(op: str) -> None:
    first = np.concatenate([np.linspace(-30.0, 30.0, 301), np.logspace(-9, 7, 99), [0.0, 1.0, np.inf, -np.inf, np.nan]])
    second = np.roll(first, 7) if op == "zeta" else first * np.resize([0.3, 0.9, 1.0, 1.1, 3.0], first.size)
    if op == "ndtri":
        first = np.concatenate([np.linspace(-0.1, 1.1, 121), np.logspace(-300, -1, 99), [np.nan]])
    if op == "zeta":
        first = np.abs(first)
    expected, found = _both(op, (first, second) if op in ("igamma", "igammac", "zeta") else (first,))
    np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-300)


@pytest.mark.parametrize("dtype", sorted(INTEGERS))
def test_divisors_and_multiples_have_the_bits_of_the_cpu(dtype: str) -> None:
    first, second = _hard(dtype, 300), np.concatenate([_hard(dtype, 297, 1), np.array([0, 1, 6], dtype)])
    for op in ("gcd", "lcm"):
        assert same_bits(*_both(op, (first, second)))


@pytest.mark.parametrize("n", [1, 2, 3, 6, 50, 300, 1000])
def test_polygamma(n: int) -> None:
    numbers = np.concatenate([np.linspace(-30.4, -0.2, 25), np.linspace(0.05, 30.0, 60), np.logspace(1.5, 300, 60)])
    numbers = np.concatenate([numbers, [np.inf, -np.inf, np.nan, 0.0, -2.0, -10.5]])
    compare("polygamma", (on_cpu(numbers),), (n,), tolerance=1e-10)


def test_common_exponents_are_computed_as_on_the_cpu() -> None:
    base = _hard("float32", 1500)
    for exponent in (-2, -1, -0.5, 0.5, 2, 3, 4):
        assert same_bits(*_both("pow_scalar", (base,), (exponent,)))


def test_a_power_within_a_chain_has_the_bits_of_the_op_alone() -> None:
    x = flow.rand(40, device="cuda") + 0.5
    for exponent in (-2, -0.5, 0.5, 2, 3, 4, 1.7):
        step = ("pow_scalar", (), (encoded(exponent),), (0,))
        chain = interpreter.dispatch(FUSED, (x,), ((step, ("neg", (), (), (1,))), (1,)))
        assert chain.tolist() == (-(x**exponent)).tolist()


# Complex numbers

_UNARY = (
    *("exp", "expm1", "log", "log1p", "log2", "log10", "sqrt", "rsqrt", "square", "reciprocal", "abs", "conj", "neg"),
    *("sin", "cos", "tan", "sinh", "cosh", "tanh", "asin", "acos", "atan", "asinh", "acosh", "atanh"),
    *("isnan", "isinf", "isfinite", "logical_not"),
)
_BINARY = ("add", "sub", "mul", "div", "pow", "eq", "ne", "logical_and", "logical_or", "logical_xor")


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize("op", _UNARY)
def test_functions_of_complex_numbers(op: str, dtype: str) -> None:
    for seed, size in enumerate((0.1, 1.0, 3.0, 20.0)):
        compare(op, (values(seed, (7, 9), dtype, -size, size),))
    axes = on_cpu(np.array([0, 1, -1, 1j, -1j, 2, -2, 3j, -0.5, 0.5j], dtype))
    if op not in ("atan", "atanh", "log", "log2", "log10", "log1p", "rsqrt", "reciprocal"):
        compare(op, (axes,))


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize("op", _BINARY)
def test_pairs_of_complex_numbers(op: str, dtype: str) -> None:
    first, second = values(0, (7, 9), dtype), values(1, (7, 9), dtype)
    compare(op, (first, second))
    compare(op, (first, flow.where(first.real > 0, first, 0)))
    compare(op, (first, on_cpu(np.arange(9.0, dtype=np.float32))))
    if op in ("div", "pow"):
        compare(op, (first, flow.zeros_like(first)))


def test_complex_numbers_in_a_chain_and_where() -> None:
    x, condition = values(0, (3, 5), "complex64"), on_cpu(np.arange(5) % 2 == 0)
    compare("where", (condition, x), (), (2.5,), exact=True)
    compare("where", (condition, x), ("reversed",), (1 + 2j,), exact=True)
    steps = (("mul", (), (), (0, 0)), ("add_scalar", (), (encoded(0.5),), (1,)), ("abs", (), (), (2,)))
    compare("fused", (x,), (steps, (2,)))
    with emulated("lazy") as devices:
        on_device = flow.tensor(x.numpy(), device="cuda")
        flow.synchronize()
        before = devices.driver.launches
        interpreter.dispatch(FUSED, (on_device,), (steps, (2,)))
        flow.synchronize()
        assert devices.driver.launches == before + 1


# Losses of probabilities


@pytest.mark.parametrize("wrong", [1.5, -0.1, float("nan")])
def test_invalid_probabilities_are_reported(wrong: float) -> None:
    target = flow.tensor([0.0, 1.0, 0.5], device="cuda")
    with pytest.raises(RuntimeError, match=r"probabilities must be within \[0, 1\]"):
        F.binary_cross_entropy(flow.tensor([0.5, wrong, 0.5], device="cuda"), target).item()
    ends = flow.tensor([0.0, 1.0, 0.5], device="cuda")
    assert F.binary_cross_entropy(ends, target, reduction="none").tolist() == [0.0, 0.0, pytest.approx(0.6931472)]
