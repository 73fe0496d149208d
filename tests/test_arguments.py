"""Integers and flags as arguments."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import vmflow as flow
from vmflow.arguments import flag, is_integer, real_number, whole_number


@pytest.mark.parametrize("value", [3, np.int8(3), np.uint64(3), np.array(3), flow.tensor(3)])
def test_integers(value: Any) -> None:
    assert is_integer(value)
    number = whole_number("f", "n", value, 3)
    assert number == 3
    assert type(number) is int
    with pytest.raises(ValueError, match="f: n must be at least 4, not 3"):
        whole_number("f", "n", value, 4)


@pytest.mark.parametrize(
    "value",
    [True, np.True_, 3.0, np.float64(3), "3", None, [3], np.array([1, 2]), flow.tensor([1, 2]), flow.tensor(1.0)],
)
def test_others_are_no_integers(value: Any) -> None:
    assert not is_integer(value)
    with pytest.raises(TypeError, match="f: n must be an integer, not"):
        whole_number("f", "n", value)


def test_flags() -> None:
    assert flag("f", "b", np.True_) is True
    assert flag("f", "b", False) is False
    with pytest.raises(TypeError, match="f: b must be True or False, not 1"):
        flag("f", "b", 1)


def test_data_loaders_take_numpys_integers() -> None:
    data = flow.utils.data.TensorDataset(flow.arange(5))
    loader = flow.utils.data.DataLoader(data, batch_size=np.int64(2))  # type: ignore[arg-type]
    assert [batch.tolist() for (batch,) in loader] == [[0, 1], [2, 3], [4]]


@pytest.mark.parametrize("value", [2, 2.0, np.float32(2), np.array(2), flow.tensor([2.0]), Fraction(2)])
def test_real_numbers(value: Any) -> None:
    number = real_number("f", "x", value)
    assert number == 2.0
    assert type(number) is float


@pytest.mark.parametrize(
    "value", ["2", None, [2], 2j, np.complex64(2), flow.tensor([1.0, 2.0]), np.ones(2), flow.tensor(2j)]
)
def test_others_are_no_real_numbers(value: Any) -> None:
    with pytest.raises(TypeError, match="f: x must be a real number, not"):
        real_number("f", "x", value)
