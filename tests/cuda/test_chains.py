"""Eager elementwise ops in a row on a CUDA device are one launch, and fail as they would one by one."""

from __future__ import annotations

import numpy as np
import pytest

import vmflow as flow
from vmflow.errors import DeviceLost
from vmflow.kernels.native.loading import LOADER

from .emulated import emulated

pytestmark = [pytest.mark.emulated, pytest.mark.host]


@pytest.fixture(autouse=True)
def _kernels_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LOADER, "mode", "wait")


def chained(x: flow.Tensor) -> flow.Tensor:
    return ((x * 2 + 1).relu() * x).sigmoid()


def test_ops_in_a_row_are_one_launch() -> None:
    numbers = np.linspace(-3, 3, 50, dtype=np.float32)
    with emulated("random", 1) as devices:
        x = flow.tensor(numbers, device="cuda")
        flow.synchronize()
        before = devices.driver.launches
        found = chained(x).tolist()
        assert devices.driver.launches == before + 1
        one_by_one = x * 2
        flow.synchronize()
        one_by_one = one_by_one + 1
        flow.synchronize()
        one_by_one = one_by_one.relu() * x
        flow.synchronize()
        one_by_one = one_by_one.sigmoid()
        flow.synchronize()
        assert devices.driver.launches == before + 5
        assert one_by_one.tolist() == found


async def test_ops_of_a_coroutine_are_one_launch() -> None:
    with emulated("random", 2) as devices:
        x = flow.arange(5.0, device="cuda")
        await flow.synchronize()
        before = devices.driver.launches
        result = await chained(x)
        assert devices.driver.launches == before + 1
        assert result.tolist()[0] == 0.5


def test_results_that_somebody_keeps_are_made() -> None:
    with emulated("random", 3) as devices:
        x = flow.arange(5.0, device="cuda")
        flow.synchronize()
        before = devices.driver.launches
        doubled = x * 2
        added = doubled + 1
        root = added.sqrt()
        assert root.tolist() == np.sqrt(np.arange(5, dtype=np.float32) * 2 + 1).tolist()
        assert devices.driver.launches == before + 1
        assert doubled.tolist() == [0, 2, 4, 6, 8]
        assert added.tolist() == [1, 3, 5, 7, 9]


@pytest.mark.parametrize("mode", ["lazy", "random"])
def test_a_value_that_the_device_finds_wrong_fails_all_that_is_made_of_it(mode: str) -> None:
    with emulated(mode, 4):
        x = flow.arange(5.0, device="cuda")
        bad = flow.gather(x, 0, flow.tensor([0, 99, 0, 0, 0], device="cuda"))
        first = bad * 2
        second = first + x
        for result in (first, second):
            with pytest.raises(IndexError, match="index 99"):
                result.tolist()
        assert (x + 1).tolist() == [1, 2, 3, 4, 5]


def test_a_lost_device_fails_all_of_a_chain() -> None:
    with emulated("lazy") as devices:
        x = flow.arange(5.0, device="cuda")
        flow.synchronize()
        first = x * 2
        second = first + 1
        devices.driver.lose(RuntimeError("pulled out"))
        for result in (second, first):
            with pytest.raises(DeviceLost):
                result.tolist()


def test_no_memory_for_a_chain_is_that_of_its_ops() -> None:
    """One by one each needs no more than its operand and its result."""
    with emulated("random", 5, nbytes=64 << 20):
        x = flow.ones(3 << 20, device="cuda")  # 12 MiB
        for _ in range(4):
            x = chained(x)
        assert x.shape == (3 << 20,)
        kept = [x * number for number in range(8)]
        with pytest.raises(flow.OutOfMemory):
            [result.sum().item() for result in kept]


def test_training_in_chains_has_the_gradients_of_the_cpu() -> None:
    numbers = np.linspace(-2, 2, 24, dtype=np.float32).reshape(4, 6)
    found = []
    with emulated("random", 6):
        for device in ("cpu", "cuda"):
            x = flow.tensor(numbers, device=device, requires_grad=True)
            (chained(x) * flow.exp(-x * x)).sum().backward()
            assert x.grad is not None
            found.append(x.grad.to("cpu").numpy())
    np.testing.assert_allclose(found[0], found[1], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("count", [5, 30_000])
def test_results_that_are_passed_on_have_memory_where_the_ops_run_one_by_one(count: int) -> None:
    numbers = np.linspace(-3, 3, count)
    with emulated("random", 4, race_check=True) as devices:
        x = flow.tensor(numbers, device="cuda")
        flow.synchronize()
        before = devices.driver.launches
        np.testing.assert_allclose((x * 2 + x.exp()).to("cpu").numpy(), numbers * 2 + np.exp(numbers), rtol=1e-12)
        assert devices.driver.launches == before + 3
