"""An instruction with nothing before it runs as it is issued; everything else is as if it had had a turn."""

from __future__ import annotations

import asyncio
import itertools
import signal
import threading
import time
from collections.abc import Iterator
from types import FunctionType
from typing import Any

import numpy as np
import pytest

import vmflow as flow
from vmflow.context import MODE
from vmflow.errors import Cancelled, OutOfMemory
from vmflow.instructions.builder import physical_run
from vmflow.vm import VirtualMachine, loops
from vmflow.vm.loops import Loops

from .gates import call, entered

pytestmark = pytest.mark.host


@pytest.fixture
def machine() -> Iterator[VirtualMachine]:
    with entered(VirtualMachine("inline", cpu_worker="never", race_check=False)) as machine:
        yield machine
        assert machine.engine.idle()
        assert not machine.driver.turn_lock.locked()


def test_the_value_is_there_when_the_call_returns(machine: VirtualMachine) -> None:
    y = flow.arange(3) + 1
    assert y._blob.storage.array.tolist() == [1, 2, 3]
    y += 1
    assert y._blob.storage.array.tolist() == [2, 3, 4]
    assert machine.engine.total_inserted == 0


def test_an_op_that_is_nearly_like_the_one_before(machine: VirtualMachine) -> None:
    square = np.arange(9.0, dtype=np.float32).reshape(3, 3)
    x, halves, row = flow.tensor(square), flow.tensor(square).to(flow.float16), flow.ones(3)

    def like_before() -> None:
        np.testing.assert_array_equal((x + x).numpy(), 2 * square)
        np.testing.assert_array_equal((x + x).numpy(), 2 * square)

    like_before()
    np.testing.assert_array_equal((x + x.t()).numpy(), square + square.T)
    like_before()
    np.testing.assert_array_equal((x[1:] + x[:2]).numpy(), square[1:] + square[:2])
    like_before()
    assert (x + halves).dtype is flow.float32
    assert (halves + halves).dtype is flow.float16
    like_before()
    np.testing.assert_array_equal((x + row).numpy(), square + 1)
    assert (x.sum() + x.sum()).item() == 72.0
    assert (x.sum() + x.sum()).shape == ()
    with flow.autocast("cpu", dtype=flow.float16):
        assert (x @ x).dtype is flow.float16
        assert (x @ x).dtype is flow.float16
    assert (x @ x).dtype is flow.float32
    like_before()


def test_large_results_lie_in_memory_of_the_pool(machine: VirtualMachine) -> None:
    x = flow.ones(300, 300)
    y = x + 1
    allocation = y._blob.storage.allocation
    assert allocation is not None
    address = y._blob.storage.array.ctypes.data
    del y, allocation
    z = x + 2
    assert z._blob.storage.array.ctypes.data == address, "released memory is used again"
    assert z.sum().item() == 3 * 300 * 300


def test_a_failure_is_raised_where_it_is_read_and_names_its_line(machine: VirtualMachine) -> None:
    bad = flow.gather(flow.ones(3), 0, flow.tensor([7]))  # this line
    later = bad + 1
    with pytest.raises(IndexError) as caught:
        later.numpy()
    notes = "\n".join(caught.value.__notes__)
    assert "while running gather" in notes
    assert "test_inline.py" in notes
    assert "in test_a_failure_is_raised_where_it_is_read_and_names_its_line" in notes


def test_a_call_behind_another_waits_its_turn() -> None:
    release = threading.Event()
    with entered(VirtualMachine("behind", cpu_worker="always", gather=1)):
        first = call(release.wait)
        second = first + 1
        assert second._blob.storage.array is None
        release.set()
        assert second.item() == 2.0


def test_a_call_issued_by_a_callback_runs_in_it(machine: VirtualMachine) -> None:
    x = flow.ones(3)
    issued: list[flow.Tensor] = []
    found: list[object] = []

    def callback(array: Any) -> None:
        MODE.set(MODE.get().replace(machine=machine))  # instructions run in a context of their own
        issued.append(x * 5)
        found.append(issued[0].tolist())

    physical_run(machine, lambda builder: builder.access_blob_by_callback(x._blob, callback))
    assert found == [[5.0, 5.0, 5.0]]


def test_a_scope_that_has_ended_keeps_it_from_running(machine: VirtualMachine) -> None:
    x = flow.zeros(3)
    with flow.scope() as scope:
        scope.cancel()
        y = x * 2
    assert x.tolist() == [0.0, 0.0, 0.0]
    with pytest.raises(Cancelled):
        y.numpy()


def test_no_memory(machine: VirtualMachine) -> None:
    x = flow.ones(1, device="cpu").expand(1 << 20, 1 << 20)
    with pytest.raises(OutOfMemory):
        (x + 1).numpy()
    assert (flow.ones(2) + 1).tolist() == [2.0, 2.0]


async def test_on_a_loop_for_as_much_as_the_machine_may_take_of_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    if not isinstance(Loops.in_time, FunctionType):
        pytest.skip("compiled code looks at a clock of its own")
    clock = itertools.count(0, 10_000)
    monkeypatch.setattr(loops, "_now", lambda: next(clock))
    async with VirtualMachine("loop", cpu_worker="never", race_check=False) as machine:
        x = await flow.ones(3)
        await asyncio.sleep(0)
        results = [x + index for index in range(2000)]
        there = [result._blob.storage.array is not None for result in results]
        # The clock goes on by ten microseconds each time, and the budget is a millisecond.
        assert sum(there) == 100
        assert there == sorted(there, reverse=True)
        assert (await results[-1]).tolist() == [2000.0] * 3
        assert (x + 1)._blob.storage.array is not None, "in the next turn there is time again"
        assert machine.engine.total_inserted == there.count(False)


async def test_a_coroutine_of_small_ops_lets_the_loop_run() -> None:
    loop, turns = asyncio.get_running_loop(), 0

    def count() -> None:
        nonlocal turns
        turns += 1
        loop.call_soon(count)

    async with VirtualMachine("loop", cpu_worker="never", race_check=False):
        x = await flow.ones(3, 3)
        loop.call_soon(count)
        begin = time.perf_counter()
        for _ in range(3000):
            x = await (x * 1).t().contiguous()
        # Each turn takes the budget, one op, and the turn's own time.
        assert turns >= (time.perf_counter() - begin) / 0.01


async def test_long_calls_are_not_run_on_a_loop() -> None:
    async with VirtualMachine("loop", race_check=False) as machine:
        x = await flow.ones(700, 700)
        await asyncio.sleep(0)
        before = machine.engine.total_inserted
        y = await (x @ x)
        assert machine.engine.total_inserted == before + 1
        assert y[0, 0].item() == 700


async def test_dropped_long_calls_are_not_run_on_a_loop_either() -> None:
    async with VirtualMachine("loop", cpu_worker="never", race_check=False, turn_budget=60):
        x = await flow.ones(3)
        with flow.scope() as scope:
            y = x + 1
            assert y._blob.storage.array is not None
            scope.cancel()
            z = x + 2
        assert (await y).tolist() == [2.0, 2.0, 2.0]
        with pytest.raises(Cancelled):
            await z


async def test_a_machine_that_has_a_loop_is_driven_by_that_alone() -> None:
    async with VirtualMachine("loop", cpu_worker="never", race_check=False) as machine:
        x = await flow.ones(3)

        def elsewhere() -> flow.Tensor:
            MODE.set(MODE.get().replace(machine=machine))
            return x + 1

        thread = await asyncio.to_thread(elsewhere)
        assert (await thread).tolist() == [2.0, 2.0, 2.0]
        assert machine.engine.total_inserted == 1


def test_loops_that_have_ended_are_forgotten() -> None:
    machine = VirtualMachine("several loops", cpu_worker="never", race_check=False, turn_budget=60)

    async def main() -> None:
        MODE.set(MODE.get().replace(machine=machine))
        assert (flow.ones(3) + 1)._blob.storage.array is not None

    for _ in range(3):
        asyncio.run(main())
    assert not machine.loops._until
    machine.close()


def test_an_array_of_the_caller_is_usable_immediately(machine: VirtualMachine) -> None:
    x = flow.from_numpy(np.ones(3, np.float32))
    assert (x + 1)._blob.storage.array is not None
    assert (flow.tensor([1.0, 2.0]) * x[0])._blob.storage.array is not None
    assert machine.engine.total_inserted == 0


def test_threads_that_issue_at_the_same_time(machine: VirtualMachine) -> None:
    found: list[float] = []
    total = flow.zeros(())

    def work(number: int) -> None:
        MODE.set(MODE.get().replace(machine=machine))  # a thread begins with the default one
        x = flow.full((4,), float(number))
        for _ in range(200):
            x = x + 1
            total.add_(1)
        found.append(x.sum().item() - 4 * number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [800.0] * 5
    assert total.item() == 1000.0


@pytest.fixture
def heeded() -> Iterator[None]:
    """Restore Ctrl-C, which shells let programs in the background ignore."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("heeded")
def test_ctrl_c_in_a_kernel_loses_the_result_and_nothing_else(machine: VirtualMachine) -> None:
    x = flow.ones(3)

    def interrupted() -> None:
        signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        call(interrupted)
    assert not machine.driver.turn_lock.locked()
    assert (x + 1).tolist() == [2.0, 2.0, 2.0]


@pytest.mark.usefixtures("heeded")
def test_ctrl_c_in_a_change_in_place_comes_behind_it(machine: VirtualMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    x = flow.ones(3)
    before = np.copyto

    def interrupted(*arguments: Any, **options: Any) -> None:
        signal.raise_signal(signal.SIGINT)
        before(*arguments, **options)

    monkeypatch.setattr(np, "copyto", interrupted)
    with pytest.raises(KeyboardInterrupt):
        x.copy_(flow.arange(3).to(flow.float32))
    monkeypatch.undo()
    assert x.tolist() == [0.0, 1.0, 2.0]
