"""Unsigned integers of 16, 32 and 64 bits too large for signed ones; small ones are tested with every op's rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vmflow as flow

WIDE = ("uint16", "uint32", "uint64")
MOST = {"uint16": 2**16 - 1, "uint32": 2**32 - 1, "uint64": 2**64 - 1}


def _numbers(name: str) -> list[int]:
    return [5, MOST[name], MOST[name] // 2 + 1]


def _tensor(name: str) -> flow.Tensor:
    return flow.tensor(_numbers(name), dtype=getattr(flow, name))


@pytest.mark.parametrize("name", WIDE)
def test_all_values_are_held(name: str) -> None:
    tensor, most = _tensor(name), MOST[name]
    assert tensor.tolist() == _numbers(name)
    assert tensor[1].item() == most
    assert flow.full((2,), most, dtype=tensor.dtype).tolist() == [most, most]
    assert "".join(repr(tensor.cpu()).split()) == f"tensor({_numbers(name)},dtype=vmflow.{name})".replace(" ", "")
    assert flow.iinfo(tensor.dtype).max == most
    assert flow.iinfo(tensor.dtype).min == 0
    assert tensor.to(flow.float64).tolist() == [float(number) for number in _numbers(name)]
    assert tensor.to(flow.int64).to(tensor.dtype).tolist() == _numbers(name)


@pytest.mark.parametrize("name", WIDE)
def test_arithmetic_wraps_around(name: str) -> None:
    tensor, size = _tensor(name), MOST[name] + 1
    numbers = _numbers(name)
    assert (tensor + tensor).tolist() == [2 * number % size for number in numbers]
    assert (tensor * tensor).tolist() == [number * number % size for number in numbers]
    assert (-tensor).tolist() == [-number % size for number in numbers]
    assert (~tensor).tolist() == [size - 1 - number for number in numbers]
    assert (tensor - 6).tolist() == [(number - 6) % size for number in numbers]
    assert (tensor // 3).tolist() == [number // 3 for number in numbers]
    assert (tensor % 7).tolist() == [number % 7 for number in numbers]
    assert (tensor >> 1).tolist() == [number >> 1 for number in numbers]
    assert (tensor << 1).tolist() == [2 * number % size for number in numbers]
    assert (tensor**2).tolist() == [number * number % size for number in numbers]
    assert abs(tensor).tolist() == numbers


@pytest.mark.parametrize("name", WIDE)
def test_order_is_that_of_the_numbers(name: str) -> None:
    tensor, numbers, most = _tensor(name), _numbers(name), MOST[name]
    assert (tensor > most // 2).tolist() == [False, True, True]
    assert (tensor == most).tolist() == [False, True, False]
    assert (tensor > -1).all().item()
    assert tensor.max().item() == most
    assert tensor.min().item() == 5
    assert tensor.argmax().item() == 1
    assert tensor.sort().values.tolist() == sorted(numbers)
    assert tensor.argsort().tolist() == [0, 2, 1]
    assert tensor.topk(2).values.tolist() == sorted(numbers)[:0:-1]
    assert flow.maximum(tensor, tensor[2]).tolist() == [numbers[2], most, numbers[2]]
    assert tensor.clamp(min=numbers[2]).tolist() == [numbers[2], most, numbers[2]]
    assert flow.searchsorted(tensor.sort().values, tensor).tolist() == [0, 2, 1]
    assert flow.unique(tensor).tolist() == sorted(numbers)


@pytest.mark.parametrize("name", WIDE)
def test_large_arrays_are_computed_as_small_ones(name: str) -> None:
    """In C, from a size on."""
    kind = np.dtype(name)
    generator = np.random.default_rng(4)
    x, y = (generator.integers(0, MOST[name], 300_001, kind, endpoint=True) for _ in range(2))
    one, other = flow.tensor(x), flow.tensor(y)
    for ours, theirs in ((one * other, x * y), (one - other, x - y), (flow.maximum(one, other), np.maximum(x, y))):
        np.testing.assert_array_equal(ours.numpy(), theirs)
    np.testing.assert_array_equal((one < other).numpy(), x < y)
    np.testing.assert_array_equal(one[other % 300].numpy(), x[y % 300])


@pytest.mark.parametrize("name", WIDE)
def test_sums_are_int64_as_pytorchs(name: str) -> None:
    tensor = flow.tensor([3, 4], dtype=getattr(flow, name))
    for found, expected in ((tensor.sum(), 7), (tensor.prod(), 12), (tensor.cumsum(0)[1], 7)):
        assert found.dtype is flow.int64
        assert found.item() == expected
    assert _tensor(name).sum(dtype=flow.uint64).item() == sum(_numbers(name)) % 2**64


def test_numbers_out_of_range() -> None:
    with pytest.raises(ValueError, match="18446744073709551615 does not fit into uint32"):
        flow.full((2,), 2**64 - 1, dtype=flow.uint32)
    with pytest.raises(ValueError, match="-1 does not fit into uint64"):
        flow.full((2,), -1, dtype=flow.uint64)
    with pytest.raises(OverflowError, match="fits neither into int64 nor into uint64"):
        flow.full((2,), 2**64, dtype=flow.uint64)


@pytest.mark.parametrize("name", WIDE)
@pytest.mark.parametrize("ending", ["safetensors", "npz"])
def test_saving_and_exchange(name: str, ending: str, tmp_path: Path) -> None:
    tensor, path = _tensor(name), tmp_path / f"saved.{ending}"
    flow.save({"x": tensor}, path)
    loaded: Any = flow.load(path)["x"]
    assert loaded.dtype is tensor.dtype
    assert loaded.tolist() == _numbers(name)
    array = tensor.numpy()
    assert array.dtype == name
    for back in (flow.from_numpy(array), flow.from_dlpack(array), flow.tensor(array)):
        assert back.dtype is tensor.dtype
        assert back.tolist() == _numbers(name)
    assert np.from_dlpack(tensor.cpu()).dtype == name


@pytest.mark.parametrize("name", WIDE)
def test_as_indices_and_masks(name: str) -> None:
    places = flow.tensor([2, 0], dtype=getattr(flow, name))
    x = flow.tensor([10, 20, 30])
    assert x[places].tolist() == [30, 10]
    assert flow.gather(x, 0, places).tolist() == [30, 10]
    assert flow.index_select(x, 0, places).tolist() == [30, 10]
    chosen = _tensor(name)
    chosen[1:] = 7
    assert chosen[chosen > 5].tolist() == [7, 7]


def test_with_a_model_of_floats() -> None:
    """Features of unsigned integers become floating-point in arithmetic with weights."""
    weight = flow.ones(3, requires_grad=True)
    (weight * _tensor("uint16")).sum().backward()
    assert weight.grad is not None
    assert weight.grad.tolist() == [5.0, 65535.0, 32768.0]
