"""Elementwise functions of the standard against numpy: dtypes, shapes that broadcast, numbers, and special values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

import vmflow as flow
from vmflow import array_api as xp

from .support import (
    ALL,
    COMPLEX,
    FLOATING,
    FLOATS,
    INTEGERS,
    NUMERIC,
    REAL,
    broadcasting,
    few,
    kinds,
    made,
    quiet,
    same,
    seeds,
    shapes,
    some,
    tensor,
)

# By name, the dtypes that the standard requires.
UNARY: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("abs", "negative", "positive", "square", "sign", "round"), NUMERIC),
    **dict.fromkeys(("ceil", "floor", "trunc"), REAL),
    **dict.fromkeys(("acos", "acosh", "asin", "asinh", "atan", "atanh", "cos", "cosh", "exp", "expm1"), FLOATING),
    **dict.fromkeys(("log", "log1p", "log2", "log10", "reciprocal", "sin", "sinh", "sqrt", "tan", "tanh"), FLOATING),
    **dict.fromkeys(("isfinite", "isinf", "isnan"), NUMERIC),
    **dict.fromkeys(("imag",), COMPLEX),
    **dict.fromkeys(("real", "conj"), NUMERIC),
    "signbit": FLOATS,
    "logical_not": ALL,
    "bitwise_invert": ("bool", *INTEGERS),
}
BINARY: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("add", "multiply", "subtract"), NUMERIC),
    **dict.fromkeys(("equal", "not_equal"), ALL),
    **dict.fromkeys(("less", "less_equal", "greater", "greater_equal", "maximum", "minimum"), REAL),
    **dict.fromkeys(("atan2", "copysign", "hypot", "logaddexp", "nextafter"), FLOATS),
    **dict.fromkeys(("logical_and", "logical_or", "logical_xor"), ("bool",)),
    **dict.fromkeys(("bitwise_and", "bitwise_or", "bitwise_xor"), ("bool", *INTEGERS)),
    **dict.fromkeys(("bitwise_left_shift", "bitwise_right_shift"), INTEGERS),
    **dict.fromkeys(("floor_divide", "remainder"), REAL),
    "divide": FLOATING,
    "pow": NUMERIC,
}
# For 0.0 and -0.0 either result is right.
EITHER_ZERO = {"maximum", "minimum"}
# Factors for the tolerance where numpy loses digits of complex numbers.
COARSE = {"pow": 30.0, "tan": 10.0, "tanh": 10.0, "expm1": 10.0, "log1p": 10.0, "logaddexp": 10.0}


def _operands(name: str, shape: tuple[int, ...], dtype: str, seed: int, special: bool) -> Any:
    """Operands for which the standard defines the result: inside the domain, and without errors of numpy."""
    small = not special or np.dtype(dtype).kind == "c"
    if "shift" in name:
        return made(shape, dtype, seed, low=0, high=7)
    if name == "pow" and np.dtype(dtype).kind in "iu":
        return made(shape, dtype, seed, low=0, high=5)
    if name in ("floor_divide", "remainder") and np.dtype(dtype).kind in "iu":
        array = made(shape, dtype, seed, special)
        return np.where(array == 0, np.ones_like(array), array)
    return made(shape, dtype, seed, not small)


@pytest.mark.parametrize("name", UNARY)
def test_functions_of_one_array(name: str) -> None:
    @some
    @given(shapes, st.sampled_from(UNARY[name]), seeds, st.booleans())
    def test(shape: tuple[int, ...], dtype: str, seed: int, special: bool) -> None:
        array = _operands(name, shape, dtype, seed, special)
        ours = getattr(xp, name)(tensor(array))
        same(ours, quiet(getattr(np, name), array), signs=True, tolerance=COARSE.get(name, 1.0))

    test()


@pytest.mark.parametrize("name", BINARY)
def test_functions_of_two_arrays(name: str) -> None:
    @some
    @given(broadcasting(), kinds(BINARY[name]), seeds, st.booleans())
    def test(both: list[tuple[int, ...]], dtypes: tuple[str, ...], seed: int, special: bool) -> None:
        one, other = (
            _operands(name, shape, dtype, seed + place, special)
            for place, (shape, dtype) in enumerate(zip(both, dtypes, strict=True))
        )
        expected = quiet(getattr(np, name), one, other)
        signs = name not in EITHER_ZERO
        same(getattr(xp, name)(tensor(one), tensor(other)), expected, signs=signs, tolerance=COARSE.get(name, 1.0))

    test()


@pytest.mark.parametrize("name", BINARY)
def test_functions_of_an_array_and_a_number(name: str) -> None:
    """The number may be either operand; it never widens the dtype."""

    @few
    @given(shapes, st.sampled_from(BINARY[name]), seeds, st.integers(1, 3), st.booleans())
    def test(shape: tuple[int, ...], dtype: str, seed: int, whole: int, first: bool) -> None:
        array = _operands(name, shape, dtype, seed, False)
        number: Any = {"b": bool(whole % 2), "i": whole, "u": whole, "f": whole + 0.5, "c": whole + 0.5j}[
            array.dtype.kind
        ]
        for given_ in (number, whole if array.dtype.kind != "b" else number):
            operands = (given_, array) if first else (array, given_)
            ours = [tensor(operand) if operand is array else operand for operand in operands]
            expected = quiet(getattr(np, name), *operands)
            same(getattr(xp, name)(*ours), expected, tolerance=COARSE.get(name, 1.0))

    test()


NUMBERS = (0.0, -0.0, 1.0, -1.0, 0.5, -2.0, np.inf, -np.inf, np.nan)
GRID = np.array([complex(x, y) for x in NUMBERS for y in NUMBERS])


@pytest.mark.parametrize("dtype", COMPLEX)
@pytest.mark.parametrize("name", sorted(name for name, dtypes in UNARY.items() if "complex64" in dtypes))
def test_special_complex_numbers(name: str, dtype: str) -> None:
    """Zeros of both signs, infinities and nan in either part give numpy's results."""
    grid = GRID.astype(dtype)
    grid.real, grid.imag = GRID.real, GRID.imag
    same(getattr(xp, name)(tensor(grid)), quiet(getattr(np, name), grid), signs=True, tolerance=COARSE.get(name, 1.0))


@some
@given(broadcasting(3), st.sampled_from(REAL), seeds, st.booleans(), st.booleans(), st.booleans())
def test_clip(three: list[tuple[int, ...]], dtype: str, seed: int, low: bool, high: bool, numbers: bool) -> None:
    whole = np.broadcast_shapes(*three)
    array = made(whole, dtype, seed)
    limits: list[Any] = [made(shape, dtype, seed + place) for place, shape in enumerate(three[1:])]
    limits = [np.minimum(limits[0], limits[1]), np.maximum(limits[0], limits[1])]
    if numbers:
        limits = [1, 5]
    chosen = [limit if wanted else None for limit, wanted in zip(limits, (low, high), strict=True)]
    ours = [tensor(value) if isinstance(value, np.ndarray) else value for value in chosen]
    same(xp.clip(tensor(array), *ours), np.clip(array, *chosen) if low or high else array)


def test_clip_of_nan_and_infinity() -> None:
    x = tensor(np.array([np.nan, -np.inf, np.inf, -0.0]))
    same(xp.clip(x, -1, 1), np.array([np.nan, -1, 1, 0]))
    same(xp.clip(x, min=tensor(np.array(np.nan))), np.full(4, np.nan))
    same(xp.clip(x, max=np.inf), np.array([np.nan, -np.inf, np.inf, 0]))


@some
@given(broadcasting(3), kinds(ALL), seeds)
def test_where(three: list[tuple[int, ...]], dtypes: tuple[str, ...], seed: int) -> None:
    condition = made(three[0], "bool", seed)
    one, other = (made(shape, dtype, seed, True) for shape, dtype in zip(three[1:], dtypes, strict=True))
    same(xp.where(tensor(condition), tensor(one), tensor(other)), np.where(condition, one, other))
    for number in (True,) if dtypes[0] == "bool" else (1, 1.5) if np.dtype(dtypes[0]).kind in "fc" else (3,):
        same(xp.where(tensor(condition), tensor(one), number), np.where(condition, one, number))
        same(xp.where(tensor(condition), number, tensor(one)), np.where(condition, number, one))


def test_where_of_two_numbers() -> None:
    condition = tensor(np.array([True, False]))
    same(xp.where(condition, 1, 2), np.array([1, 2]))
    assert xp.where(condition, 1.5, 2).dtype is flow.float32
    assert xp.where(condition, True, False).tolist() == [True, False]
