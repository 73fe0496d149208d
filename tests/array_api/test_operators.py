"""Operators of tensors, also in place and with numbers on the left, as the standard has them."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

import vmflow as flow

from .support import ALL, FLOATING, INTEGERS, NUMERIC, REAL, few, kinds, made, quiet, same, seeds, some, tensor

_BITS = ("bool", *INTEGERS)
BINARY: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("add", "sub", "mul"), NUMERIC),
    **dict.fromkeys(("eq", "ne"), ALL),
    **dict.fromkeys(("lt", "le", "gt", "ge", "floordiv", "mod"), REAL),
    **dict.fromkeys(("and_", "or_", "xor"), _BITS),
    **dict.fromkeys(("lshift", "rshift"), INTEGERS),
    "truediv": FLOATING,
    "pow": NUMERIC,
}
SHAPES = [((2, 3), (3,)), ((1,), (4,)), ((2, 1, 2), (3, 1)), ((0,), (1,))]
UNARY = {"neg": NUMERIC, "pos": NUMERIC, "abs": NUMERIC, "invert": _BITS}


def _operand(name: str, shape: tuple[int, ...], dtype: str, seed: int) -> Any:
    array = made(shape, dtype, seed, low=0 if name in ("lshift", "rshift", "pow") else -6, high=6)
    if name in ("floordiv", "mod"):
        array = np.where(array == 0, np.ones_like(array), array)
    return array


@pytest.mark.parametrize("name", BINARY)
def test_operators_of_two_arrays(name: str) -> None:
    """Shapes have one or more dimensions, as 0-d tensors do not widen others with operators."""
    apply = getattr(operator, name)

    @some
    @given(
        kinds(BINARY[name]), seeds, st.sampled_from([((2, 3), (3,)), ((1,), (4,)), ((2, 1, 2), (3, 1)), ((0,), (1,))])
    )
    def test(dtypes: tuple[str, ...], seed: int, both: Any) -> None:
        one, other = (
            _operand(name, shape, dtype, seed + n) for n, (shape, dtype) in enumerate(zip(both, dtypes, strict=True))
        )
        same(apply(tensor(one), tensor(other)), quiet(apply, one, other), tolerance=30)

    test()


@pytest.mark.parametrize("name", BINARY)
def test_operators_with_numbers_and_in_place(name: str) -> None:
    apply = getattr(operator, name)

    @few
    @given(st.sampled_from(BINARY[name]), seeds)
    def test(dtype: str, seed: int) -> None:
        array = _operand(name, (2, 3), dtype, seed)
        number: Any = {"b": True, "i": 2, "u": 2, "f": 1.5, "c": 1 + 2j}[array.dtype.kind]
        same(apply(tensor(array), number), quiet(apply, array, number), tolerance=30)
        same(apply(number, tensor(array)), quiet(apply, number, array), tolerance=30)
        in_place = getattr(operator, f"i{name.rstrip('_')}", None)
        if in_place is not None:
            other = _operand(name, (3,), dtype, seed + 1)
            for given_ in (number, other):
                x, expected = tensor(array), array.copy()
                changed = in_place(x, tensor(given_) if given_ is other else given_)
                assert changed is x
                same(changed, quiet(in_place, expected, given_), tolerance=30)

    test()


@pytest.mark.parametrize("name", UNARY)
@pytest.mark.parametrize("dtype", ALL)
def test_operators_of_one_array(name: str, dtype: str) -> None:
    if dtype in UNARY[name]:
        array = made((2, 3), dtype, 5)
        same(getattr(operator, name)(tensor(array)), getattr(operator, name)(array))


@pytest.mark.parametrize("dtype", NUMERIC)
def test_matrix_products(dtype: str) -> None:
    one, other = made((2, 3), dtype, 1), made((3, 3), dtype, 2)
    same(tensor(one) @ tensor(other), one @ other)
    x = tensor(one)
    x @= tensor(other)
    same(x, one @ other)


def test_conversion_to_python() -> None:
    assert [bool(tensor(value)) for value in (True, 0, 0.5, 1j)] == [True, False, True, True]
    assert (int(tensor(np.uint64(2**64 - 1))), float(tensor(2.5)), complex(tensor(1 + 2j))) == (2**64 - 1, 2.5, 1 + 2j)
    assert [int(tensor(True)), float(tensor(True)), complex(tensor(2.0))] == [1, 1.0, 2 + 0j]
    assert [operator.index(tensor(np.array(3, integer))) for integer in INTEGERS] == [3] * len(INTEGERS)
    assert list(range(5))[tensor(np.uint16(2))] == 2
    with pytest.raises(TypeError, match="only integer tensors"):
        operator.index(tensor(1.0))


@some
@given(st.data())
def test_indexing(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=3)))
    array = made(shape, data.draw(st.sampled_from(ALL)), data.draw(seeds))
    key: list[Any] = []
    for size in shape:
        kind = data.draw(st.integers(0, 3))
        if kind == 0:
            key.append(data.draw(st.integers(-size, size - 1)))
        elif kind == 1:
            begin, end = data.draw(st.integers(0, size)), data.draw(st.integers(0, size))
            key.append(slice(min(begin, end), max(begin, end), data.draw(st.sampled_from([None, 1, 2]))))
        elif kind == 2:
            key.append(slice(None))
        else:
            key += [None, slice(None)]
    place = data.draw(st.integers(0, len(key)))
    if data.draw(st.booleans()):
        key = [*key[:place], ...]
    same(tensor(array)[tuple(key)], array[tuple(key)])
    x, expected = tensor(array), array.copy()
    x[tuple(key)] = 1
    expected[tuple(key)] = 1
    same(x, expected)


@pytest.mark.parametrize("dtype", ALL)
def test_masks_and_integer_arrays_as_indices(dtype: str) -> None:
    array, mask = made((3, 4), dtype, 1), made((3, 4), "bool", 2)
    same(tensor(array)[tensor(mask)], array[mask])
    same(tensor(array)[tensor(mask[:, 0])], array[mask[:, 0]])
    for kind in INTEGERS:
        rows, columns = np.array([2, 0], kind), np.array([1, 3], kind)
        same(tensor(array)[tensor(rows), tensor(columns)], array[rows, columns])
        same(tensor(array)[tensor(rows), 1], array[rows, 1])
    x = tensor(array)
    x[tensor(mask)] = 0
    expected = array.copy()
    expected[mask] = 0
    same(x, expected)


def test_dlpack_and_device() -> None:
    for dtype in ALL:
        array = made((2, 3), dtype, 3)
        same(flow.array_api.from_dlpack(array), array)
        x = tensor(array).to_device("cpu")
        np.testing.assert_array_equal(np.from_dlpack(x), array)
        assert x.__dlpack_device__() == (1, 0)
