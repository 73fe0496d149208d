"""Unsigned integers of 16, 32 and 64 bits on CUDA devices, beyond the range of signed ones."""

from __future__ import annotations

import pytest

import vmflow as flow

pytestmark = pytest.mark.emulated

MOST = {"uint16": 2**16 - 1, "uint32": 2**32 - 1, "uint64": 2**64 - 1}


@pytest.mark.parametrize("name", MOST)
def test_large_numbers(name: str) -> None:
    most = MOST[name]
    numbers, half = [5, most, most // 2 + 1], most // 2 + 1
    x = flow.tensor(numbers, dtype=getattr(flow, name), device="cuda")
    assert x.tolist() == numbers
    assert flow.full((2,), most, dtype=x.dtype, device="cuda").tolist() == [most, most]
    assert (x * x).tolist() == [number * number % (most + 1) for number in numbers]
    assert (x - half).tolist() == [(number - half) % (most + 1) for number in numbers]
    assert (x // 3).tolist() == [number // 3 for number in numbers]
    assert (x % 7).tolist() == [number % 7 for number in numbers]
    assert (x >> 1).tolist() == [number >> 1 for number in numbers]
    assert (x >= half).tolist() == [False, True, True]
    assert x.clamp(min=half).tolist() == [half, most, half]
    assert x.to(flow.float64).tolist() == [float(number) for number in numbers]
    assert (x.amax().item(), x.amin().item(), x.argmax().item(), x.argmin().item()) == (most, 5, 1, 0)
    assert x.sort().values.tolist() == sorted(numbers)
    assert x.sum(dtype=flow.uint64).item() == sum(numbers) % 2**64


@pytest.mark.parametrize("name", MOST)
def test_extrema_of_many(name: str) -> None:
    """In parts, whose results are extrema again."""
    x = flow.ones(70_000, dtype=getattr(flow, name), device="cuda")
    x[40_000] = MOST[name]
    x[50_000] = 0
    assert (x.amax().item(), x.amin().item(), x.argmax().item(), x.argmin().item()) == (MOST[name], 0, 40_000, 50_000)
