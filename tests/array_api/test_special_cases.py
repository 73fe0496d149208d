"""The standard's tables of special cases of elementwise functions, for both floating-point dtypes."""

from __future__ import annotations

import itertools
import math
from typing import Any, Final

import numpy as np
import pytest

import vmflow as flow
from vmflow import array_api as xp

NAN, INF, PI = math.nan, math.inf, math.pi
DTYPES = (flow.float32, flow.float64)

# By function, operand and result.
OF_ONE: Final[dict[str, list[tuple[float, float]]]] = {
    "abs": [(NAN, NAN), (-0.0, 0.0), (-INF, INF), (INF, INF)],
    "acos": [(NAN, NAN), (1.5, NAN), (-1.5, NAN), (1.0, 0.0)],
    "acosh": [(NAN, NAN), (0.5, NAN), (-INF, NAN), (1.0, 0.0), (INF, INF)],
    "asin": [(NAN, NAN), (1.5, NAN), (-1.5, NAN), (0.0, 0.0), (-0.0, -0.0)],
    "asinh": [(NAN, NAN), (0.0, 0.0), (-0.0, -0.0), (INF, INF), (-INF, -INF)],
    "atan": [(NAN, NAN), (0.0, 0.0), (-0.0, -0.0), (INF, PI / 2), (-INF, -PI / 2)],
    "atanh": [(NAN, NAN), (-1.5, NAN), (1.5, NAN), (-1.0, -INF), (1.0, INF), (0.0, 0.0), (-0.0, -0.0)],
    "ceil": [(3.0, 3.0), (INF, INF), (-INF, -INF), (0.0, 0.0), (-0.0, -0.0), (NAN, NAN), (-0.5, -0.0)],
    "cos": [(NAN, NAN), (0.0, 1.0), (-0.0, 1.0), (INF, NAN), (-INF, NAN)],
    "cosh": [(NAN, NAN), (0.0, 1.0), (-0.0, 1.0), (INF, INF), (-INF, INF)],
    "exp": [(NAN, NAN), (0.0, 1.0), (-0.0, 1.0), (INF, INF), (-INF, 0.0)],
    "expm1": [(NAN, NAN), (0.0, 0.0), (-0.0, -0.0), (INF, INF), (-INF, -1.0)],
    "floor": [(3.0, 3.0), (INF, INF), (-INF, -INF), (0.0, 0.0), (-0.0, -0.0), (NAN, NAN), (0.5, 0.0)],
    "log": [(NAN, NAN), (-1.0, NAN), (0.0, -INF), (-0.0, -INF), (1.0, 0.0), (INF, INF)],
    "log1p": [(NAN, NAN), (-2.0, NAN), (-1.0, -INF), (-0.0, -0.0), (0.0, 0.0), (INF, INF)],
    "log2": [(NAN, NAN), (-1.0, NAN), (0.0, -INF), (-0.0, -INF), (1.0, 0.0), (INF, INF)],
    "log10": [(NAN, NAN), (-1.0, NAN), (0.0, -INF), (-0.0, -INF), (1.0, 0.0), (INF, INF)],
    "negative": [(0.0, -0.0), (-0.0, 0.0), (INF, -INF), (NAN, NAN)],
    "positive": [(0.0, 0.0), (-0.0, -0.0), (NAN, NAN)],
    "reciprocal": [(0.0, INF), (-0.0, -INF), (INF, 0.0), (-INF, -0.0), (NAN, NAN)],
    "round": [(INF, INF), (-INF, -INF), (0.0, 0.0), (-0.0, -0.0), (NAN, NAN), (0.5, 0.0), (-0.5, -0.0), (2.5, 2.0)],
    "sign": [(-2.0, -1.0), (0.0, 0.0), (-0.0, 0.0), (3.0, 1.0), (NAN, NAN), (INF, 1.0), (-INF, -1.0)],
    "sin": [(NAN, NAN), (0.0, 0.0), (-0.0, -0.0), (INF, NAN), (-INF, NAN)],
    "sinh": [(NAN, NAN), (0.0, 0.0), (-0.0, -0.0), (INF, INF), (-INF, -INF)],
    "sqrt": [(NAN, NAN), (-1.0, NAN), (0.0, 0.0), (-0.0, -0.0), (INF, INF)],
    "square": [(NAN, NAN), (-0.0, 0.0), (-INF, INF)],
    "tan": [(NAN, NAN), (0.0, 0.0), (-0.0, -0.0), (INF, NAN), (-INF, NAN)],
    "tanh": [(NAN, NAN), (0.0, 0.0), (-0.0, -0.0), (INF, 1.0), (-INF, -1.0)],
    "trunc": [(3.0, 3.0), (INF, INF), (-INF, -INF), (0.0, 0.0), (-0.0, -0.0), (NAN, NAN), (-0.5, -0.0)],
}
# Functions for which the standard leaves the sign of zeros open.
ANY_ZERO: Final = {"sign"}

_FINITE: Final = (-2.5, -1.0, 1.0, 2.5)


def _with_nan(name: str) -> list[tuple[float, float, float]]:
    others = (NAN, INF, -INF, 0.0, -0.0, 1.0, -1.0)
    return [(NAN, other, NAN) for other in others] + [(other, NAN, NAN) for other in others]


def _signed(cases: list[tuple[float, float, float]]) -> list[tuple[float, float, float]]:
    """The cases, and those with negated operands: a product's or quotient's sign follows from both."""
    found = []
    for (one, other, result), first, second in itertools.product(cases, (1.0, -1.0), (1.0, -1.0)):
        found.append((one * first, other * second, result * first * second))
    return found


# By function, both operands and the result.
OF_TWO: Final[dict[str, list[tuple[float, float, float]]]] = {
    "add": [
        *_with_nan("add"),
        *[(INF, -INF, NAN), (-INF, INF, NAN), (INF, INF, INF), (-INF, -INF, -INF)],
        *[(sign * INF, x, sign * INF) for sign in (1, -1) for x in (*_FINITE, 0.0, -0.0)],
        *[(x, sign * INF, sign * INF) for sign in (1, -1) for x in (*_FINITE, 0.0, -0.0)],
        *[(-0.0, -0.0, -0.0), (-0.0, 0.0, 0.0), (0.0, -0.0, 0.0), (0.0, 0.0, 0.0)],
        *[(zero, x, x) for zero in (0.0, -0.0) for x in _FINITE],
        *[(x, -x, 0.0) for x in _FINITE],
    ],
    "atan2": [
        *_with_nan("atan2"),
        *[(y, 0.0, PI / 2) for y in (1.0, 2.5)],
        *[(y, -0.0, PI / 2) for y in (1.0, 2.5)],
        *[(0.0, x, 0.0) for x in (0.0, 1.0, INF)],
        *[(0.0, x, PI) for x in (-0.0, -1.0, -INF)],
        *[(-0.0, x, -0.0) for x in (0.0, 1.0, INF)],
        *[(-0.0, x, -PI) for x in (-0.0, -1.0, -INF)],
        *[(y, zero, -PI / 2) for y in (-1.0, -2.5) for zero in (0.0, -0.0)],
        *[(1.5, INF, 0.0), (1.5, -INF, PI), (-1.5, INF, -0.0), (-1.5, -INF, -PI)],
        *[(INF, x, PI / 2) for x in (*_FINITE, 0.0, -0.0)],
        *[(-INF, x, -PI / 2) for x in (*_FINITE, 0.0, -0.0)],
        *[(INF, INF, PI / 4), (INF, -INF, 3 * PI / 4), (-INF, INF, -PI / 4), (-INF, -INF, -3 * PI / 4)],
    ],
    "copysign": [
        *[(x, y, math.copysign(x, y)) for x in (0.0, 1.5, INF, NAN) for y in (0.0, -0.0, 2.0, -2.0, -INF)],
        *[(2.0, math.copysign(NAN, -1.0), -2.0), (-2.0, NAN, 2.0)],
    ],
    "divide": [
        *_with_nan("divide"),
        *[(one * INF, other * INF, NAN) for one in (1, -1) for other in (1, -1)],
        *[(one, other, NAN) for one in (0.0, -0.0) for other in (0.0, -0.0)],
        *_signed([(0.0, 1.5, 0.0), (1.5, 0.0, INF), (INF, 1.5, INF), (1.5, INF, 0.0), (INF, 0.0, INF)]),
    ],
    "floor_divide": [
        *_with_nan("floor_divide"),
        *[(one * INF, other * INF, NAN) for one in (1, -1) for other in (1, -1)],
        *[(one, other, NAN) for one in (0.0, -0.0) for other in (0.0, -0.0)],
        *[(0.0, 1.5, 0.0), (-0.0, 1.5, -0.0), (0.0, -1.5, -0.0), (-0.0, -1.5, 0.0)],
        *[(1.5, 0.0, INF), (1.5, -0.0, -INF), (-1.5, 0.0, -INF), (-1.5, -0.0, INF)],
        *[(1.5, INF, 0.0), (-1.5, -INF, 0.0), (7.5, 2.0, 3.0), (-7.5, 2.0, -4.0)],
    ],
    "hypot": [
        *[(sign * INF, x, INF) for sign in (1, -1) for x in (NAN, 0.0, 1.5, INF)],
        *[(x, sign * INF, INF) for sign in (1, -1) for x in (NAN, 0.0, 1.5, INF)],
        *[(NAN, x, NAN) for x in (NAN, 0.0, 1.5)],
        *[(x, NAN, NAN) for x in (0.0, 1.5)],
        *[(0.0, -0.0, 0.0), (-2.0, 0.0, 2.0), (0.0, -2.0, 2.0)],
    ],
    "logaddexp": [*_with_nan("logaddexp")[:1], (NAN, 1.0, NAN), (1.0, NAN, NAN), (INF, 1.0, INF), (1.0, INF, INF)],
    "maximum": [*_with_nan("maximum"), (INF, 1.0, INF), (-INF, 1.0, 1.0)],
    "minimum": [*_with_nan("minimum"), (INF, 1.0, 1.0), (-INF, 1.0, -INF)],
    "multiply": [
        *_with_nan("multiply"),
        *[(one * INF, other, NAN) for one in (1, -1) for other in (0.0, -0.0)],
        *_signed([(INF, INF, INF), (INF, 1.5, INF), (1.5, INF, INF), (0.0, 1.5, 0.0)]),
    ],
    "nextafter": [*_with_nan("nextafter"), (0.0, -0.0, -0.0), (-0.0, 0.0, 0.0), (1.5, 1.5, 1.5), (INF, INF, INF)],
    "pow": [
        *[(1.0, x, 1.0) for x in (NAN, INF, -INF, 0.0)],
        *[(x, zero, 1.0) for x in (NAN, INF, -INF, 0.0, -0.0, 2.5) for zero in (0.0, -0.0)],
        *[(NAN, 2.0, NAN), (2.0, NAN, NAN)],
        *[(x, INF, INF) for x in (2.5, -2.5)] + [(x, -INF, 0.0) for x in (2.5, -2.5)],
        *[(x, sign * INF, 1.0) for x in (1.0, -1.0) for sign in (1, -1)],
        *[(x, INF, 0.0) for x in (0.5, -0.5)] + [(x, -INF, INF) for x in (0.5, -0.5)],
        *[(INF, 2.0, INF), (INF, -2.0, 0.0)],
        *[(-INF, 3.0, -INF), (-INF, 2.0, INF), (-INF, 2.5, INF)],
        *[(-INF, -3.0, -0.0), (-INF, -2.0, 0.0), (-INF, -2.5, 0.0)],
        *[(0.0, 2.0, 0.0), (0.0, -2.0, INF)],
        *[(-0.0, 3.0, -0.0), (-0.0, 2.0, 0.0), (-0.0, -3.0, -INF), (-0.0, -2.0, INF)],
        *[(-2.0, 0.5, NAN), (-2.0, 3.0, -8.0)],
    ],
    "remainder": [
        *_with_nan("remainder"),
        *[(one * INF, other, NAN) for one in (1, -1) for other in (INF, -INF, 1.5, 0.0)],
        *[(one, other, NAN) for one in (0.0, -0.0, 1.5, -1.5) for other in (0.0, -0.0)],
        *[(0.0, 1.5, 0.0), (-0.0, 1.5, 0.0), (0.0, -1.5, -0.0), (-0.0, -1.5, -0.0)],
        *[(1.5, INF, 1.5), (1.5, -INF, -INF), (-1.5, INF, INF), (-1.5, -INF, -1.5)],
        *[(4.0, 2.0, 0.0), (4.0, -2.0, -0.0), (-4.0, 2.0, 0.0), (-4.0, -2.0, -0.0)],
    ],
    "subtract": [*_with_nan("subtract"), (INF, INF, NAN), (-INF, -INF, NAN), (0.0, 0.0, 0.0), (-0.0, 0.0, -0.0)],
}
COMPARED: Final = ("equal", "less", "less_equal", "greater", "greater_equal")


def _check(found: Any, expected: float, dtype: flow.dtype, label: str, zeros: bool = True) -> None:
    value = found.item()
    if math.isnan(expected):
        assert math.isnan(value), f"{label} is {value}, not nan"
        return
    assert math.isclose(value, expected, rel_tol=1e-6, abs_tol=1e-30), f"{label} is {value}, not {expected}"
    if expected == 0 and zeros:
        assert math.copysign(1, value) == math.copysign(1, expected), f"{label} is {value}, not {expected}"


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", OF_ONE)
def test_special_values_of_one_operand(name: str, dtype: flow.dtype) -> None:
    x = flow.tensor([x for x, _ in OF_ONE[name]], dtype=dtype)
    found = getattr(xp, name)(x)
    for place, (given, expected) in enumerate(OF_ONE[name]):
        _check(found[place], expected, dtype, f"{name}({given})", name not in ANY_ZERO)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", OF_TWO)
def test_special_values_of_two_operands(name: str, dtype: flow.dtype) -> None:
    cases = OF_TWO[name]
    one, other = (flow.tensor([case[place] for case in cases], dtype=dtype) for place in range(2))
    for found in (getattr(xp, name)(one, other), getattr(xp, name)(one.clone()[::1], other)):
        for place, (x, y, expected) in enumerate(cases):
            _check(found[place], expected, dtype, f"{name}({x}, {y})")


@pytest.mark.parametrize("name", COMPARED)
def test_comparisons_with_nan_are_false(name: str) -> None:
    one = flow.tensor([NAN, NAN, 1.0, 0.0])
    other = flow.tensor([NAN, 1.0, NAN, -0.0])
    equal = name in ("equal", "less_equal", "greater_equal")
    assert getattr(xp, name)(one, other).tolist() == [False, False, False, equal]


def test_signs_of_special_numbers() -> None:
    x = flow.tensor([0.0, -0.0, INF, -INF, math.copysign(NAN, 1), math.copysign(NAN, -1)])
    assert xp.signbit(x).tolist() == [False, True, False, True, False, True]
    assert xp.isnan(x).tolist() == [False] * 4 + [True] * 2
    assert xp.isinf(x).tolist() == [False, False, True, True, False, False]
    assert xp.isfinite(x).tolist() == [True, True, False, False, False, False]


def test_nan_counts_as_true() -> None:
    x = flow.tensor([NAN, 0.0, -0.0])
    assert xp.all(x[:1]).item()
    assert xp.any(x).item()
    assert not xp.any(x[1:]).item()
    assert xp.count_nonzero(x).item() == 1


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_statistics_of_empty_tensors_and_of_nan(dtype: flow.dtype) -> None:
    empty, nan = flow.zeros(0, dtype=dtype), flow.tensor([1.0, NAN, INF], dtype=dtype)
    assert xp.sum(empty).item() == 0
    assert xp.prod(empty).item() == 1
    assert math.isnan(xp.mean(empty).item())
    for name in ("sum", "prod", "mean", "max", "min", "std", "var"):
        assert math.isnan(getattr(xp, name)(nan).item()), name
    assert math.isnan(xp.var(flow.ones(1, dtype=dtype), correction=1).item())
    np.testing.assert_array_equal(xp.cumulative_sum(nan).numpy(), [1, NAN, NAN])
