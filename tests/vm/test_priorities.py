"""Priorities: which instructions overtake others, that nothing waits for ever, and that dependences still hold."""

from __future__ import annotations

import asyncio
import random
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

import vmflow as flow
from tests.vm.gates import HEAVY, call, entered, gate, held
from vmflow.streams.cpu import DEPTH_NANOSECONDS
from vmflow.vm.engine import AGEING, LAUNCH_COST
from vmflow.vm.virtual_machine import VirtualMachine

pytestmark = pytest.mark.host

WHERE = ["never", "always"]


class Record:
    """Notes which ops were run, in their order."""

    def __init__(self) -> None:
        self.ran: list[str] = []

    def op(self, name: str, *inputs: flow.Tensor, cost: int = HEAVY, device: str = "cpu") -> flow.Tensor:
        """The sum of the inputs, plus one."""

        def work(*arrays: Any) -> Any:
            self.ran.append(name)
            return sum(arrays, np.ones(1, np.float32))

        return call(work, *inputs, cost=cost, device=device)

    def chain(self, name: str, length: int, cost: int = HEAVY, device: str = "cpu") -> flow.Tensor:
        """Ops that need each other, named by number."""
        x = self.op(f"{name}0", cost=cost, device=device)
        for number in range(1, length):
            x = self.op(f"{name}{number}", x, cost=cost, device=device)
        return x


async def test_a_small_urgent_forward_overtakes_all_that_was_not_handed_over() -> None:
    record = Record()
    async with VirtualMachine(cpu_worker="always"):
        with gate() as closed:
            slow = record.chain("slow", 50)
            await closed.reached()
            with flow.scope(priority=1):
                urgent = record.chain("urgent", 5)
            closed.open()
            assert (await urgent).tolist() == [5.0]
        assert (await slow).tolist() == [50.0]
    # The gate alone fills the stream.
    assert record.ran == [f"urgent{index}" for index in range(5)] + [f"slow{index}" for index in range(50)]


@pytest.mark.parametrize("worker", WHERE)
async def test_launched_work_is_less_than_a_streams_depth(worker: str) -> None:
    """A few ops that are less heavy cannot be overtaken any more."""
    record = Record()
    cost = 100_000
    handed_over = -(-DEPTH_NANOSECONDS // (cost + LAUNCH_COST))
    loop = asyncio.get_running_loop()
    urgent = loop.create_future()

    def issue() -> None:
        with flow.scope(priority=1):
            urgent.set_result(record.op("urgent", cost=cost))

    # With this budget the loop goes on after every op.
    async with VirtualMachine(cpu_worker=worker, turn_budget=1e-9):
        # Without a worker, a gate would keep this very thread from opening it.
        with gate(cost=0) if worker == "always" else nullcontext() as closed:
            slow = record.chain("slow0", 1, cost)
            loop.call_soon(issue)
            for number in range(1, 50):
                slow = record.op(f"slow{number}", slow, cost=cost)
            if closed is None:
                await (await urgent)
            else:
                await closed.reached()
                await asyncio.sleep(0)
                closed.open()
            await slow
        await (await urgent)
    assert 0 < record.ran.index("urgent") <= handed_over + 1
    assert len(record.ran) == 51


def test_in_plain_code_too() -> None:
    record = Record()
    with held(VirtualMachine(cpu_worker="always", gather=1)) as closed:
        slow = record.chain("slow", 20)
        with flow.scope(priority=1):
            urgent = record.op("urgent")
        closed.open()
        assert (urgent + slow).item() == 21.0
    assert record.ran[0] == "urgent"


def test_below_the_ordinary() -> None:
    record = Record()
    with held(VirtualMachine(cpu_worker="always", gather=1)) as closed:
        with flow.scope(priority=-1):
            background = [record.op(f"background{index}") for index in range(3)]
        ordinary = [record.op(f"ordinary{index}") for index in range(3)]
        closed.open()
        assert sum([tensor.item() for tensor in background + ordinary]) == 6
    assert record.ran == [f"{name}{index}" for name in ("ordinary", "background") for index in range(3)]


def test_several_priorities_go_from_high_to_low() -> None:
    record = Record()
    generator = random.Random(5)
    priorities = [generator.randrange(-3, 4) for _ in range(12)]
    with held(VirtualMachine(cpu_worker="always", gather=1)) as closed:
        results: list[flow.Tensor] = []
        for number, priority in enumerate(priorities):
            with flow.scope(priority=priority):
                results.append(record.op(str(number)))
        closed.open()
        for result in results:
            result.item()
    assert record.ran == [str(index) for index in sorted(range(12), key=lambda index: (-priorities[index], index))]


@pytest.mark.parametrize("priority", [None, 0, 3, -3])
def test_equals_keep_program_order(priority: int | None) -> None:
    record = Record()
    with (
        held(VirtualMachine(cpu_worker="always", gather=1)) as closed,
        flow.scope(priority=priority),
    ):
        results = [record.op(str(index)) for index in range(200)]
        closed.open()
        for result in results:
            result.item()
    assert record.ran == [str(index) for index in range(200)]


def test_an_inner_scope_may_change_it() -> None:
    record = Record()
    machine = VirtualMachine(cpu_worker="always", gather=1)
    with held(machine) as closed:
        with flow.scope(priority=2):
            results = [record.op("high")]
            with flow.scope(priority=-2):
                results.append(record.op("low"))
                with flow.scope(name="inherits"):
                    results.append(record.op("low too"))
        results.append(record.op("ordinary"))
        snapshot = machine.snapshot()
        assert sum([stream.ready for stream in snapshot.streams]) == 4
        assert [instruction.state for instruction in snapshot.lively].count("READY") == 4
        closed.open()
        for result in results:
            result.item()
    assert record.ran == ["high", "ordinary", "low", "low too"]


@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize("worker", WHERE)
async def test_nothing_waits_for_ever(worker: str, steps: int) -> None:
    """While something more urgent is always ready, lower priorities get one turn in so many."""
    record = Record()
    async with VirtualMachine(cpu_worker=worker, gather=1):
        with gate() as closed:
            if worker == "never":
                closed.open()
            await closed.reached()
            low = [record.op("low") for _ in range(5)]
            with flow.scope(priority=steps):
                urgent = [record.op("urgent") for _ in range(300)]
            closed.open()
            await asyncio.gather(*low, *urgent)
    places = [place for place, name in enumerate(record.ran) if name == "low"]
    between = [later - earlier - 1 for earlier, later in zip([-1, *places], places, strict=False)]
    assert len(places) == 5
    assert all(abs(value - steps * AGEING) <= 2 for value in between)


def test_its_operands_come_first() -> None:
    """An urgent op waits for ordinary ones that it needs, and these are not hurried."""
    record = Record()
    with held(VirtualMachine(cpu_worker="always", gather=1)) as closed:
        x = record.chain("slow", 5)
        with flow.scope(priority=9):
            y = record.op("urgent", x)
            other = record.op("other")
        z = record.op("last", y)
        closed.open()
        assert [z.item(), other.item()] == [7.0, 1.0]
    assert record.ran == ["other", *[f"slow{index}" for index in range(5)], "urgent", "last"]


@pytest.mark.parametrize("worker", WHERE)
@pytest.mark.parametrize("seed", range(5))
async def test_results_do_not_depend_on_priorities(worker: str, seed: int) -> None:
    """Random programs that also write in place, with random priorities, against numpy in program order."""
    generator = random.Random(seed)
    async with VirtualMachine(cpu_worker=worker):
        tensors = [flow.full((3,), float(index)) for index in range(6)]
        arrays = [np.full(3, float(index)) for index in range(6)]
        for _ in range(300):
            target, source = generator.randrange(6), generator.randrange(6)
            with flow.scope(priority=generator.randrange(-2, 3)):
                if generator.random() < 0.5:
                    tensors[target].add_(tensors[source])
                    tensors[target].mul_(0.5)
                    arrays[target] = (arrays[target] + arrays[source]) * 0.5
                else:
                    tensors[target] = tensors[source] - 1 + 0.5 * tensors[target]
                    arrays[target] = arrays[source] - 1 + 0.5 * arrays[target]
            if generator.random() < 0.02:
                await tensors[target]
        for tensor, array in zip(tensors, arrays, strict=True):
            np.testing.assert_allclose((await tensor).numpy(), array, rtol=1e-4, atol=1e-5)


async def test_each_stream_has_its_own_order() -> None:
    """An urgent op goes first on its own stream and says nothing about others."""
    record, on_device = Record(), Record()
    async with VirtualMachine(cpu_worker="always"):
        with gate() as closed:
            await closed.reached()
            slow = [record.chain("slow", 10), on_device.chain("slow", 10, device="sim:10")]
            with flow.scope(priority=1):
                urgent = [record.op("urgent"), on_device.op("urgent", device="sim:10")]
            await urgent[1]
            # The device goes on although the host's worker stands still.
            assert on_device.ran[0] == "urgent"
            assert record.ran == []
            closed.open()
            await asyncio.gather(*slow, *urgent)
    assert record.ran == ["urgent", *[f"slow{index}" for index in range(10)]]
    assert on_device.ran == record.ran


def test_an_urgent_op_that_needs_another_stream() -> None:
    """Its operand on the other stream was issued without priority, and it runs nevertheless."""
    record = Record()
    with entered(VirtualMachine(cpu_worker="always", gather=1)):
        x = record.chain("slow", 20)
        with flow.scope(priority=5):
            y = (x.to("sim:10") + 1).to("cpu")
        z = record.chain("other", 20)
        assert [y.item(), z.item()] == [21.0, 20.0]


def test_priorities_are_dropped_with_their_scope() -> None:
    record = Record()
    with held(VirtualMachine(cpu_worker="always", gather=1)) as closed:
        slow = record.chain("slow", 10)
        with flow.scope(priority=3) as scope:
            urgent = [record.op("urgent") for _ in range(10)]
        scope.cancel()
        closed.open()
        assert slow.item() == 10.0
        for tensor in urgent:
            with pytest.raises(flow.Cancelled):
                tensor.item()
    assert "urgent" not in record.ran
