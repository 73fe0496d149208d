"""The end of a machine: the work that it finishes or drops, and its waiters; and the exceptions of ops."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

import vmflow as flow
from tests.vm.gates import (
    HEAVY,
    PATIENCE,
    Gate,
    call,
    eager,
    entered,
    gate,
    held,
    in_thread,
    issue_call,
    line_of,
    listening,
    turns,
)
from vmflow import nn
from vmflow.context import MODE
from vmflow.instructions.barrier import Barrier
from vmflow.instructions.builder import physical_run
from vmflow.instructions.instruction import Instruction
from vmflow.vm.virtual_machine import VirtualMachine, current_machine
from vmflow.vm.waiting import Synchronization

pytestmark = pytest.mark.host

WHERE = ["never", "always"]


async def value(tensor: flow.Tensor) -> float:
    found: float = (await tensor).item()
    return found


def issue_to(machine: VirtualMachine, function: Callable[[], object]) -> flow.Tensor:
    before = MODE.get()
    MODE.set(before.replace(machine=machine))
    try:
        return call(function)
    finally:
        MODE.set(before)


# Finishing


@pytest.mark.parametrize("worker", WHERE)
async def test_leaving_the_block_finishes_everything(worker: str) -> None:
    async with VirtualMachine(cpu_worker=worker) as machine:
        assert machine.state == "running"
        x = flow.zeros(3)
        for _ in range(300):
            x = x + 1
    assert machine.state == "closed"
    assert machine.closed
    assert x.is_ready()
    assert x.tolist() == [300.0] * 3


async def test_the_states_one_after_the_other() -> None:
    machine = VirtualMachine("m", cpu_worker="always")
    async with machine:
        with gate() as closed:
            y = closed.tensor + 1
            await closed.reached()
            shutting = asyncio.create_task(machine.shutdown())
            await turns()
            assert machine.state == "draining"
            assert not machine.closed
            assert repr(machine) == "<VirtualMachine 'm' draining>"
            assert not shutting.done()
            closed.open()
            await shutting
        assert machine.state == "closed"
        assert repr(machine) == "<VirtualMachine 'm' closed>"
    assert y.tolist() == [2.0]
    assert machine.state == "closed"


async def test_while_it_drains_nothing_new_is_taken_and_nothing_old_is_lost() -> None:
    machine = VirtualMachine("m", cpu_worker="always")
    ran: list[str] = []
    async with machine:
        x = flow.ones(2)
        with gate() as closed:
            accepted = [call(lambda value: ran.append("accepted"), closed.tensor) for _ in range(5)]
            await closed.reached()
            shutting = asyncio.create_task(machine.shutdown())
            await turns()
            for _ in range(3):
                with pytest.raises(
                    flow.VirtualMachineClosed, match="issued to the virtual machine 'm', which is drain"
                ):
                    call(lambda: ran.append("late"))
            with pytest.raises(flow.VirtualMachineClosed):
                x.add_(1)
            with pytest.raises(flow.VirtualMachineClosed):
                in_thread(lambda: issue_to(machine, lambda: ran.append("late")))
            closed.open()
            await shutting
    assert ran == ["accepted"] * 5
    assert [entry.is_ready() for entry in accepted] == [True] * 5


async def test_an_in_place_op_that_was_refused_changes_nothing() -> None:
    machine = VirtualMachine("m", cpu_worker="always")
    async with machine:
        x = flow.ones(2)
        with gate() as closed:
            await closed.reached()
            shutting = asyncio.create_task(machine.shutdown())
            await turns()
            with pytest.raises(flow.VirtualMachineClosed):
                x.add_(1)
            closed.open()
            await shutting
    assert x.tolist() == [1.0, 1.0]


async def test_a_refused_in_place_op_does_not_hide_the_writer_of_its_target() -> None:
    machine = VirtualMachine("m", cpu_worker="always")
    async with machine:
        with gate() as closed:
            x = closed.tensor
            await closed.reached()
            shutting = asyncio.create_task(machine.shutdown())
            await turns()
            with pytest.raises(flow.VirtualMachineClosed):
                x.add_(1)
            assert not x.is_ready()
            waiting = asyncio.create_task(value(x))
            await turns()
            assert not waiting.done()
            closed.open()
            await shutting
            assert await waiting == 1.0


def test_readers_do_not_wait_for_an_instruction_refused_between_others(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = VirtualMachine()
    first, second = issue_to(machine, lambda: 1.0), issue_to(machine, lambda: 1.0)
    issue = machine.issue
    issued: list[Instruction] = []

    def closes_in_between(instruction: Instruction, written: Any = None) -> None:
        if issued:
            machine.close()
        issued.append(instruction)
        issue(instruction, written)

    monkeypatch.setattr(machine, "issue", closes_in_between)
    blobs = first._blob, second._blob
    with pytest.raises(flow.VirtualMachineClosed, match="was issued"):
        physical_run(
            machine,
            lambda builder: [builder.access_blob_by_callback(blob, lambda array: None, "mut") for blob in blobs],
        )
    assert [tensor.is_ready() for tensor in (first, second)] == [True, True]
    with pytest.raises(flow.VirtualMachineClosed):
        second.tolist()


async def test_a_coroutine_that_waits_while_it_drains_gets_its_value() -> None:
    machine = VirtualMachine(cpu_worker="always")
    async with machine:
        with gate() as closed:
            y = closed.tensor + 1
            waiting = asyncio.create_task(value(y))
            await closed.reached()
            shutting = asyncio.create_task(machine.shutdown(grace=PATIENCE))
            late_waiting = asyncio.create_task(value(y))
            await turns()
            closed.open()
            await shutting
            assert [await waiting, await late_waiting] == [2.0, 2.0]


async def test_shutting_down_twice() -> None:
    machine = VirtualMachine()
    async with machine:
        y = flow.ones(1) + 1
        await machine.shutdown()
        await machine.shutdown()
        machine.close()
        machine.abort()
    assert machine.state == "closed"
    assert y.item() == 2.0


async def test_shutting_down_an_unused_machine() -> None:
    machine = VirtualMachine()
    await machine.shutdown(grace=0)
    assert machine.state == "closed"


# Not finishing


async def test_when_the_grace_is_over_unstarted_work_is_dropped() -> None:
    machine = VirtualMachine("m", cpu_worker="always")
    ran: list[str] = []
    async with machine:
        with gate() as closed:
            y = call(lambda: ran.append("late"))
            z = y + 1
            waiting = [asyncio.create_task(value(entry)) for entry in (y, z)]
            await closed.reached()
            await machine.shutdown(grace=0.01)
            assert machine.state == "aborted"
            assert not closed.opened.is_set()
            for entry in waiting:
                with pytest.raises(
                    flow.VirtualMachineClosed, match="dropped, because the virtual machine 'm' was closed"
                ) as caught:
                    await entry
            assert caught.value.__notes__[0] == "instead of running add_scalar"
            assert f"issued at {__file__}:" in caught.value.__notes__[1]
    assert ran == []


def open_when_closing(machine: VirtualMachine, closed: Gate) -> None:
    worker = machine.stream(flow.device("cpu")).worker
    assert worker is not None
    while not worker._stopping:
        closed.opened.wait(0.001)
    closed.open()


async def test_the_end_of_the_grace_does_not_block_the_loop() -> None:
    """The op that is running may take longer than the machine waits for it; others on the loop must go on."""
    machine = VirtualMachine("m", cpu_worker="always")
    async with machine:
        with gate() as closed:
            await closed.reached()
            shutting = asyncio.create_task(machine.shutdown(grace=0.01))
            loop = asyncio.get_running_loop()
            lag = 0.0

            async def tick() -> None:
                nonlocal lag
                while not shutting.done():
                    before = loop.time()
                    await asyncio.sleep(0)
                    lag = max(lag, loop.time() - before)

            await asyncio.gather(tick(), shutting)
            assert machine.state == "aborted"
            assert lag < 1.0


async def test_leaving_the_block_takes_no_longer_than_the_drain_timeout() -> None:
    machine = VirtualMachine("m", cpu_worker="always", drain_timeout=0.01)
    async with machine:
        closed = Gate()
        y = closed.tensor + 1
        await closed.reached()
    assert machine.state == "aborted"
    assert not closed.opened.is_set()
    closed.open()
    with pytest.raises(flow.VirtualMachineClosed):
        await y


async def test_a_cancelled_shutdown_drops_the_rest() -> None:
    machine = VirtualMachine("m", cpu_worker="always")
    async with machine:
        with gate() as closed:
            y = closed.tensor + 1
            await closed.reached()
            shutting = asyncio.create_task(machine.shutdown())
            await turns()
            opener = threading.Thread(target=open_when_closing, args=(machine, closed))
            opener.start()
            shutting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await shutting
            opener.join(PATIENCE)
        assert machine.state == "closed"
        with pytest.raises(flow.VirtualMachineClosed):
            await y


async def test_aborting_waits_for_nothing() -> None:
    machine = VirtualMachine("m", cpu_worker="always")
    async with machine:
        with gate() as closed:
            y = closed.tensor + 1
            waiting = [asyncio.create_task(value(entry)) for entry in (closed.tensor, y)]
            await closed.reached()
            await turns()
            machine.abort()
            assert machine.state == "aborted"
            assert not closed.opened.is_set()
            with pytest.raises(flow.VirtualMachineClosed, match="'m' was closed"):
                await waiting[1]
            machine.abort()
            machine.close()
            await machine.shutdown()
            assert machine.state == "aborted"
            with pytest.raises(flow.VirtualMachineClosed, match="which is aborted"):
                call(lambda: 1.0)
            closed.open()
            await asyncio.gather(*waiting, return_exceptions=True)


async def test_a_coroutine_that_waits_for_a_running_instruction_raises_at_an_abort() -> None:
    machine = VirtualMachine("m", cpu_worker="always")
    async with machine:
        with gate() as closed:
            waiting = asyncio.create_task(value(closed.tensor))
            await closed.reached()
            await turns()
            machine.abort()
            await turns(20)
            assert waiting.done()
            assert not closed.opened.is_set()
            with pytest.raises(flow.VirtualMachineClosed):
                await waiting


def test_a_thread_that_waits_raises_at_an_abort() -> None:
    machine = eager(name="m", stall_after=0.01)
    with listening("nothing has ended") as stalled, held(machine) as closed:
        y = closed.tensor + 1

        def abort() -> None:
            assert stalled.heard.wait(PATIENCE)
            machine.abort()

        aborter = threading.Thread(target=abort)
        aborter.start()
        with pytest.raises(flow.VirtualMachineClosed):
            y.item()
        aborter.join(PATIENCE)
        assert not closed.opened.is_set()


@pytest.mark.parametrize("end", ["close", "abort"])
def test_closing_again_changes_nothing(end: str) -> None:
    machine = VirtualMachine()
    with entered(machine):
        y = flow.ones(2) + 1
        y.tolist()
        getattr(machine, end)()
        state = machine.state
        for again in ("abort", "close", end):
            getattr(machine, again)()
            assert machine.state == state == "closed"
    assert y.tolist() == [2.0, 2.0]


def test_closing_from_several_threads() -> None:
    machine = eager()
    with held(machine) as closed:
        results = [call(lambda: 1.0) for _ in range(20)]
        threads = [threading.Thread(target=machine.close) for _ in range(4)]
        for thread in threads:
            thread.start()
        open_when_closing(machine, closed)
        for thread in threads:
            thread.join(PATIENCE)
        assert not any(value.is_alive() for value in threads)
        assert machine.state == "closed"
        for result in results:
            with pytest.raises(flow.VirtualMachineClosed):
                result.item()


async def test_entering_a_machine_that_has_ended() -> None:
    machine = VirtualMachine("m")
    machine.close()
    with pytest.raises(flow.VirtualMachineClosed, match="'m' is closed; make a new one"):
        async with machine:
            pass
    assert current_machine() is not machine


async def test_work_dropped_at_the_end_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "vmflow"):
        machine = VirtualMachine(cpu_worker="always")
        async with machine:
            with gate() as closed:
                results = [call(lambda: 1.0) for _ in range(5)]
                await closed.reached()
                machine.abort()
        del results
        gc.collect()
    assert caplog.records == []


async def test_a_machine_may_end_within_a_scope() -> None:
    """An instruction dropped by both was dropped by the first."""
    machine = VirtualMachine(cpu_worker="always")
    async with machine:
        with gate() as closed, flow.scope() as scope:
            first, second = call(lambda: 1.0), call(lambda: 2.0)
            await closed.reached()
            machine.abort()
            scope.cancel()
            for value in (first, second):
                with pytest.raises(flow.VirtualMachineClosed):
                    await value


# The contents of exceptions


class Deep(nn.Module):
    """Fails in its second layer."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(3, 3)
        self.blocks = nn.Sequential(nn.ReLU(), Failing())

    def forward(self, x: flow.Tensor) -> flow.Tensor:
        result: flow.Tensor = self.blocks(self.first(x))
        return result


class Failing(nn.Module):
    """Looks up a missing key."""

    def forward(self, x: flow.Tensor) -> flow.Tensor:
        return flow.gather(x, 1, flow.full((2, 1), 99, dtype=flow.int64))  # the line


@pytest.mark.parametrize("worker", WHERE)
async def test_an_exception_names_op_shapes_line_and_module(worker: str) -> None:
    async with VirtualMachine(cpu_worker=worker):
        model = Deep()
        result = model(flow.ones(2, 3))
        later = result * 2
        for tensor in (later, result):
            with pytest.raises(IndexError) as caught:
                await tensor
    notes = caught.value.__notes__
    assert notes == [
        "while running gather(float32[2, 3], int64[2, 1]) -> float32[2, 1] on cpu",
        f"issued at {__file__}:{line_of('the line', __file__)}, in forward",
        "in module blocks.1 (Failing) of Deep",
    ]


def test_the_name_of_a_module_is_that_of_its_place() -> None:
    model = Failing()
    with pytest.raises(IndexError) as outermost:
        model(flow.ones(2, 3)).numpy()
    assert outermost.value.__notes__[-1] == "in module Failing"
    container = nn.ModuleList([nn.ReLU(), model])
    with pytest.raises(IndexError) as alone:
        container[1](flow.ones(2, 3)).numpy()
    assert alone.value.__notes__[-1] == "in module Failing"
    with pytest.raises(IndexError) as outside:
        flow.gather(flow.ones(3), 0, flow.tensor([7])).numpy()
    assert not any(value.startswith("in module") for value in outside.value.__notes__)


def test_a_module_that_is_gone_or_was_moved_is_named_by_its_kind() -> None:
    def issue() -> flow.Tensor:
        model = Deep()
        result: flow.Tensor = model(flow.ones(2, 3))
        model.blocks = nn.Sequential()
        return result

    with entered(VirtualMachine(cpu_worker="never", gather=10_000)):
        result = issue()
        gc.collect()
        with pytest.raises(IndexError) as caught:
            result.detach().numpy()
    assert caught.value.__notes__[-1] in (
        "in module <Sequential>.<Failing> (Failing) of Deep",
        "in module blocks.<Failing> (Failing) of Deep",
    )


def test_it_is_the_exception_that_the_kernel_raised() -> None:
    error = ConnectionError("the very same")

    def fail() -> None:
        raise error

    y = call(fail) + 1
    for _ in range(2):
        with pytest.raises(ConnectionError) as caught:
            y.item()
        assert caught.value is error
    assert len(error.__notes__) == 2


def test_the_exceptions_that_it_was_raised_from_are_kept() -> None:
    def fail() -> None:
        try:
            int("missing")
        except ValueError as error:
            raise LookupError("on purpose") from error

    with pytest.raises(LookupError, match="on purpose") as caught:
        call(fail).item()
    assert isinstance(caught.value.__cause__, ValueError)


def test_an_unseen_failure_of_a_cancelled_scope_is_still_an_error(caplog: pytest.LogCaptureFixture) -> None:
    """It failed before the scope was cancelled: nobody has looked at it, and it is logged, once."""

    def fail() -> None:
        raise ZeroDivisionError("on purpose")

    with caplog.at_level(logging.ERROR, "vmflow"):
        with flow.scope() as scope:
            bad = call(fail)
            later = [bad + 1, bad * 2]
            flow.synchronize()
            scope.cancel()
        del bad, later
        flow.synchronize()
        gc.collect()
    assert [type(record.exc_info[1]) for record in caplog.records if record.exc_info] == [ZeroDivisionError]


@pytest.mark.parametrize("end", ["close", "leave"])
async def test_unseen_failures_are_logged_when_the_machine_ends(end: str, caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> None:
        raise ZeroDivisionError("on purpose")

    with caplog.at_level(logging.ERROR, "vmflow"):
        async with VirtualMachine(cpu_worker="always") as machine:
            bad = call(fail)
            await flow.synchronize()
            if end == "close":
                machine.close()
        assert [type(record.exc_info[1]) for record in caplog.records if record.exc_info] == [ZeroDivisionError]
        with pytest.raises(ZeroDivisionError):
            await bad
        del bad
        gc.collect()
    assert len(caplog.records) == 1


class Stop(BaseException):
    """As SystemExit, which pytest would take for its own."""


def test_a_base_exception_reaches_the_driving_thread() -> None:
    def stop() -> None:
        raise Stop("on purpose")

    with entered(VirtualMachine(cpu_worker="never", gather=10_000)) as machine:
        y = call(stop)
        other = flow.ones(2) + 1
        with pytest.raises(Stop):
            other.tolist()
        # It has ended the waiting, not the machine.
        assert other.tolist() == [2.0, 2.0]
        with pytest.raises(Stop) as caught:
            (y + 1).item()
        assert "while running planted" in caught.value.__notes__[0]
        machine.engine.check_invariants()


def test_a_base_exception_on_a_worker_reaches_the_waiting_thread() -> None:
    def stop() -> None:
        raise Stop("on purpose")

    with entered(eager()) as machine:
        y = call(stop)
        with pytest.raises(Stop):
            y.item()
        assert (flow.ones(2) + 1).tolist() == [2.0, 2.0]
        machine.engine.check_invariants()
        assert machine.engine.idle()


def test_a_base_exception_ends_the_loop_that_drives() -> None:
    def stop() -> None:
        raise Stop("on purpose")

    machine = VirtualMachine(cpu_worker="always")

    async def main() -> None:
        async with machine:
            await call(stop)

    with pytest.raises(Stop):
        asyncio.run(main())
    assert machine.closed


async def test_an_exception_of_a_callback_comes_out_where_it_is_waited_for() -> None:
    async with VirtualMachine(cpu_worker="always") as machine:
        x = flow.ones(2)

        def fail(array: np.ndarray[Any, Any]) -> None:
            raise LookupError("on purpose")

        physical_run(machine, lambda builder: builder.access_blob_by_callback(x._blob, fail, "mut"))
        with pytest.raises(LookupError) as caught:
            await (x + 1)
        assert caught.value.__notes__[0] == "while running access_blob_by_callback(float32[2], mut)"


async def test_a_loop_that_finds_the_turn_lock_taken_by_a_refusal_is_woken(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = VirtualMachine("m")
    machine.driver.refuse()
    loop = asyncio.get_running_loop()
    looked = threading.Event()
    waiting: list[asyncio.Task[None]] = []

    async def wait() -> None:
        await Synchronization(machine, machine.lifecycle.issue_sync())

    async def come_meanwhile() -> None:
        waiting.append(asyncio.ensure_future(wait()))
        for _ in range(5):  # its turn comes behind the first step of the task
            await asyncio.sleep(0)
        assert machine.driver.waker_count()
        looked.set()

    def withdraw(instruction: Instruction) -> None:
        asyncio.run_coroutine_threadsafe(come_meanwhile(), loop)
        assert looked.wait(PATIENCE)

    def issue() -> None:
        with pytest.raises(flow.VirtualMachineClosed):
            machine.lifecycle.refuse(Instruction(machine.control_stream(), Barrier(None)))

    monkeypatch.setattr(machine.lifecycle, "_withdraw", withdraw)
    await asyncio.to_thread(issue)
    await asyncio.wait_for(waiting[0], PATIENCE)
    machine.close()


def test_aborting_while_another_thread_runs_the_turns_drops_the_rest() -> None:
    machine = VirtualMachine("m", cpu_worker="never", gather=1000)
    begun, opened, ran = threading.Event(), threading.Event(), list[str]()

    def hold() -> None:
        begun.set()
        assert opened.wait(PATIENCE)

    issue_call(machine, hold)
    last = issue_call(machine, lambda: ran.append("late"))
    driving = threading.Thread(target=wait_for, args=(machine, last))
    driving.start()
    assert begun.wait(PATIENCE)
    machine.abort()
    assert machine.state == "aborted"
    opened.set()
    driving.join(PATIENCE)
    assert not driving.is_alive()
    assert ran == []
    assert machine.engine.idle()


@pytest.mark.parametrize("end", ["abort", "close"])
@pytest.mark.parametrize("handed_over", ["before", "after"])
def test_another_machine_waits_for_a_kernel_that_outlasts_an_abort(end: str, handed_over: str) -> None:
    begun, opened, read = threading.Event(), threading.Event(), list[float]()

    def hold(array: Any) -> Any:
        begun.set()
        assert opened.wait(PATIENCE)
        read.append(array.item())

    old, new = eager(name="old", drain_timeout=0.01), VirtualMachine("new", cpu_worker="never")
    with entered(old):
        x = flow.ones(1)
        call(hold, x, cost=HEAVY)
        assert begun.wait(PATIENCE)
        with entered(new):
            if handed_over == "before":
                x.fill_(5.0)
            old.abort() if end == "abort" else old.close(timeout=0.01)
            assert old.state == "aborted"
            if handed_over == "after":
                x.fill_(5.0)
            new.driver.drive()
            assert not new.engine.idle()
            opened.set()
            assert x.item() == 5.0
            assert read == [1.0]


def test_a_report_during_a_turn_of_a_closed_machine_is_collected_after_it() -> None:
    begun, opened = threading.Event(), threading.Event()

    def hold(array: Any) -> Any:
        begun.set()
        assert opened.wait(PATIENCE)

    old, new = eager(name="old"), VirtualMachine("new", cpu_worker="never")
    with entered(old):
        x = flow.ones(1)
        call(hold, x, cost=HEAVY)
        assert begun.wait(PATIENCE)
        worker = old.stream(flow.device("cpu")).worker
        assert worker is not None
        with entered(new):
            x.fill_(5.0)
            old.abort()
            with old.driver.turn_lock:
                opened.set()
                worker.thread.join(PATIENCE)
                assert not worker.thread.is_alive()
            assert x.item() == 5.0


def test_a_callback_in_the_middle_of_a_turn_may_abort_the_machine() -> None:
    """As a signal handler does that interrupts it."""
    machine = VirtualMachine("m", cpu_worker="never", gather=1000)
    ran: list[str] = []
    issue_call(machine, machine.abort)
    wait_for(machine, issue_call(machine, lambda: ran.append("late")))
    assert ran == []
    assert machine.engine.idle()


def wait_for(machine: VirtualMachine, instruction: Instruction) -> None:
    with suppress(flow.VirtualMachineClosed):
        machine.wait(instruction)
