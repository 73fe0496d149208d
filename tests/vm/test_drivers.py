"""The machine under event loops and threads: order, waiting, waking, cancelling, back-pressure."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from contextvars import copy_context
from typing import Any, TypeAlias

import numpy as np
import pytest

import vmflow as flow
from tests.support import weak_storage
from vmflow.instructions import Instruction
from vmflow.instructions.builder import physical_run
from vmflow.instructions.instruction import ERASED
from vmflow.streams.worker import Worker
from vmflow.vm import process
from vmflow.vm.handover import HandoverIn
from vmflow.vm.machine_fields import DEFAULT
from vmflow.vm.stream_table import device_memory
from vmflow.vm.virtual_machine import VirtualMachine, current_machine, default_machine

from .gates import HEAVY, PATIENCE, Call, call, entered, gate, issue_call

WORKERS = ["never", "always", "auto"]

MakeDefault: TypeAlias = Callable[[VirtualMachine], None]


@pytest.fixture
def make_default() -> Iterator[MakeDefault]:
    """Within the test, another machine is everybody's."""
    before = DEFAULT[:]

    def make(machine: VirtualMachine) -> None:
        DEFAULT[:] = [machine]

    yield make
    DEFAULT[:] = before


@pytest.mark.parametrize("worker", WORKERS)
async def test_await_gives_the_value(worker: str) -> None:
    async with VirtualMachine(cpu_worker=worker):
        x = flow.ones(300, 300)
        for _ in range(5):
            x = x @ x * (1 / 300) + 0
        assert (await x) is x
        np.testing.assert_allclose(x.numpy(), 1.0, rtol=1e-5)


@pytest.mark.parametrize("worker", WORKERS)
async def test_many_wait_for_one_and_one_for_many(worker: str) -> None:
    async with VirtualMachine(cpu_worker=worker):
        x = flow.ones(50, 50)
        parts = [x * step for step in range(100)]

        async def read(position: int) -> float:
            await parts[position]
            return float(parts[position][0, 0].item())

        values = await asyncio.gather(*[read(position) for position in [*range(100), *range(100)]])
        assert values == [*map(float, range(100)), *map(float, range(100))]


async def test_a_ready_tensor_does_not_suspend() -> None:
    x = await (flow.ones(3) + 1)
    turns = 0

    def count() -> None:
        nonlocal turns
        turns += 1

    asyncio.get_running_loop().call_soon(count)
    await x
    assert turns == 0


@pytest.mark.host
async def test_the_loop_goes_on_while_the_worker_computes() -> None:
    """A callback is called many times between issuing a long chain and its end."""
    async with VirtualMachine():
        ticks = 0
        done = False

        async def tick() -> None:
            nonlocal ticks
            while not done:
                ticks += 1
                await asyncio.sleep(0)

        x = flow.ones(400, 400)
        for _ in range(30):
            x = x @ x * (1 / 400)
        ticking = asyncio.create_task(tick())
        await x
        done = True
        await ticking
        assert ticks > 30


async def test_one_callback_per_loop_turn() -> None:
    """Issuing many instructions arms the loop once, not once each."""
    async with VirtualMachine() as machine:
        loop = asyncio.get_running_loop()
        calls = 0
        real = loop.call_soon

        def counting(callback: Any, *args: Any, **kwargs: Any) -> Any:
            nonlocal calls
            calls += callback == machine.loops.turn
            return real(callback, *args, **kwargs)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(loop, "call_soon", counting)
            x, issued = flow.zeros(4), 0
            while not calls:  # calls that fit into the loop's present turn run inline
                x, issued = x + 1, issued + 1
            for _ in range(500):
                x = x + 1
            assert calls == 1
            await x
        assert calls <= 2 + 500 // machine.engine.window
        assert x.tolist() == [issued + 500.0] * 4


async def test_a_turn_keeps_to_its_budget() -> None:
    """Many instructions that take a while are spread over loop turns, so that others get their chance in between."""
    async with VirtualMachine(cpu_worker="never", turn_budget=1e-6) as machine:
        order: list[str] = []
        instructions = [issue_call(machine, lambda: order.append("op"), cost=200_000) for _ in range(50)]

        async def other() -> None:
            while len(order) < 60 and instructions[-1].state < ERASED:
                order.append("other")
                await asyncio.sleep(0)

        await asyncio.gather(other(), flow.synchronize())
        # Each op claims to have used up the budget; the clock decides whether it has.
        assert order.count("op") == 50
        assert "other" in order[: order.index("op") + 50]


@pytest.mark.host
async def test_cancelling_a_waiter_does_not_cancel_the_work() -> None:
    async with VirtualMachine(cpu_worker="always") as machine:
        release = threading.Event()
        gate = issue_call(machine, lambda: assert_true(release.wait(30)))
        x = flow.ones(3) + 1

        async def wait() -> None:
            await x

        waiter = asyncio.create_task(wait())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        waiter.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiter
        assert gate.state < ERASED
        release.set()
        assert (await x).tolist() == [2.0] * 3


async def test_a_waiter_that_comes_as_the_work_ends_leaves_the_others_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    async with VirtualMachine(cpu_worker="always") as machine:
        settle = machine.waiters.settle
        release = threading.Event()
        instruction = issue_call(machine, lambda: assert_true(release.wait(PATIENCE)))
        first = asyncio.create_task(waited(machine, instruction))
        await asyncio.sleep(0)
        assert machine.waiters.count() == 1
        monkeypatch.setattr(
            machine.waiters, "settle", lambda erased: settle([one for one in erased if one is not instruction])
        )
        release.set()
        machine.drain()
        assert instruction.state == ERASED
        loop = asyncio.get_running_loop()
        assert list(machine.waiters._suspend(loop, instruction, None)) == []
        settle([instruction])
        await asyncio.wait_for(first, PATIENCE)


async def waited(machine: VirtualMachine, instruction: Instruction) -> None:
    class Wait:
        def __await__(self) -> Any:
            return machine.waiters.wait_async(instruction)

    await Wait()


def assert_true(value: bool) -> None:
    assert value


@pytest.mark.parametrize("worker", WORKERS)
def test_threads_share_the_default_machine(worker: str, make_default: MakeDefault) -> None:
    """Threads issue and wait at the same time; each reads its own values, whichever thread drives."""
    machine = VirtualMachine("shared", cpu_worker=worker)
    make_default(machine)
    errors: list[BaseException] = []

    def work(number: int) -> None:
        try:
            x = flow.full((8,), number, dtype=flow.float32)
            for step in range(200):
                x = x + 1
                if step % 7 == 0:
                    assert x.tolist() == [number + step + 1.0] * 8
            big = flow.full((64, 64), 1 / 64)
            for _ in range(20):
                big = big @ big
            assert np.allclose(big.numpy(), 1 / 64)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads), "a thread was left waiting"
    assert errors == []
    machine.drain()
    machine.engine.check_invariants()
    machine.close()


def test_a_loop_and_threads_share_a_machine() -> None:
    """asyncio.to_thread carries the machine over; thread and loop both wait, and neither is left asleep."""

    async def main() -> None:
        async with VirtualMachine() as machine:

            def in_thread(number: int) -> float:
                assert current_machine() is machine
                x = flow.full((4,), number, dtype=flow.float32)
                for _ in range(50):
                    x = x + 1
                    x.tolist()
                return float(x[0].item())

            async def on_loop(number: int) -> float:
                x = flow.full((4,), number, dtype=flow.float32)
                for _ in range(50):
                    x = await (x + 1)
                return float(x[0].item())

            threads = [asyncio.to_thread(in_thread, number) for number in range(3)]
            values = await asyncio.gather(*threads, *[on_loop(number) for number in range(3)])
            assert values == [50.0, 51.0, 52.0] * 2

    asyncio.run(main())


def test_a_tensor_moves_between_machines() -> None:
    """Pending on the default machine, used on another, then back; each step sees the one before."""
    x = flow.ones(100, 100)
    for _ in range(5):
        x = x @ x * 0.01

    async def main() -> flow.Tensor:
        nonlocal x
        async with VirtualMachine("first"):
            y = x + 1
            async with VirtualMachine("second"):
                z = y * 2
                x.mul_(0)
                np.testing.assert_allclose((await z).numpy(), 4.0, rtol=1e-5)
            w = x + z
            return await w

    result = asyncio.run(main())
    np.testing.assert_allclose((result + x).numpy(), 4.0, rtol=1e-5)


@pytest.mark.host
def test_a_tensor_of_a_machine_that_drains_is_used_once_its_work_has_ended() -> None:
    results: list[list[float]] = []

    async def main() -> None:
        async with VirtualMachine(cpu_worker="always") as machine:
            x = await flow.zeros(3)
            with gate() as held:
                x.add_(held.tensor)

                def use() -> None:
                    y = x * 10
                    held.open()
                    results.append(y.tolist())

                thread = threading.Thread(target=use)

                def begin() -> None:
                    assert machine.state == "draining"
                    thread.start()

                asyncio.get_running_loop().call_soon(begin)  # which the loop does while the machine drains
                await machine.shutdown()
        await asyncio.to_thread(thread.join, PATIENCE)

    asyncio.run(main())
    assert results == [[10.0] * 3]


@pytest.mark.host
async def test_an_op_reads_a_tensor_that_another_machine_takes_over_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between looking up the tensor's dependence and issuing the op, as another thread may do."""
    other = VirtualMachine("other", cpu_worker="never", gather=1000)
    async with VirtualMachine(cpu_worker="always"):
        x = await flow.ones(300_000)
        with gate() as held:
            issue, storages = VirtualMachine.issue, [x._blob.storage]

            def interrupted(machine: VirtualMachine, instruction: Instruction, *written: Any) -> None:
                if instruction.name == "add_scalar":
                    other.take_over(storages.pop())
                issue(machine, instruction, *written)

            monkeypatch.setattr(VirtualMachine, "issue", interrupted)
            y = x + 1
            monkeypatch.undo()
            assert not storages
            # The release of the memory is ordered behind this instruction, and so is issued, too.
            other.engine.pending.append(Instruction(other.stream(flow.device("cpu")), Call(lambda: None)))
            del x
            other.driver.drive()
            held.open()
            assert (await (await y).sum()).item() == 600_000
    other.close()


def test_a_tensor_bounces_between_loops_in_threads() -> None:
    """Two loops, each with a machine, add to one tensor in turns."""
    x = flow.zeros(3)
    turn = threading.Semaphore(1), threading.Semaphore(0)
    errors: list[BaseException] = []

    def work(number: int) -> None:
        async def main() -> None:
            async with VirtualMachine(f"vm{number}"):
                for _ in range(50):
                    await asyncio.to_thread(turn[number].acquire)
                    x.add_(1)  # not awaited: the other machine must wait for it
                    turn[1 - number].release()

        try:
            asyncio.run(main())
        except BaseException as error:
            errors.append(error)
            turn[1 - number].release()

    threads = [threading.Thread(target=work, args=(number,)) for number in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    assert errors == []
    assert x.tolist() == [100.0] * 3


def test_an_arrival_ends_exactly_once() -> None:
    """At its launch if the `HandoverOut` has run by then, else by a report; never both."""
    reports: list[str] = []
    early, between, late = HandoverIn(), HandoverIn(), HandoverIn()

    def report(error: Exception | None) -> None:
        reports.append("report")

    early.end()
    early.compute()
    assert not early.ends_later(report)
    between.compute()
    between.end()  # on another thread, before the launching thread has looked
    assert not between.ends_later(report)
    late.compute()
    assert late.ends_later(report)
    assert reports == []
    late.end()
    late.end()
    assert reports == ["report"]


def test_waiting_inside_an_instruction_is_refused() -> None:
    """It would wait for itself."""
    x = flow.ones(2) + 1

    def look(array: Any) -> None:
        assert (flow.ones(2) + 5).tolist() == [6.0, 6.0]  # which has nothing to wait for
        (y + 5).tolist()

    y = flow.ones(2)
    instruction = physical_run(default_machine(), lambda builder: builder.access_blob_by_callback(y._blob, look, "mut"))
    default_machine().wait(instruction)
    with pytest.raises(RuntimeError, match="cannot be waited for"):
        y.tolist()
    assert x.tolist() == [2.0, 2.0]


@pytest.mark.parametrize("worker", WORKERS)
def test_back_pressure(worker: str) -> None:
    """However much is issued, only so much is lively."""
    machine = VirtualMachine(cpu_worker=worker, high_water=100)
    highest = 0
    total = 0

    def add() -> None:
        nonlocal total
        total += 1

    for _ in range(2000):
        issue_call(machine, add)
        highest = max(highest, len(machine.engine.lively) + len(machine.engine.pending))
    machine.drain()
    assert total == 2000
    assert highest <= 101
    machine.close()


@pytest.mark.host
async def test_back_pressure_on_a_loop() -> None:
    """A coroutine that never awaits drives the machine itself once enough has gathered."""
    async with VirtualMachine(cpu_worker="never", high_water=100) as machine:
        x = flow.zeros(2)
        highest = 0
        for _ in range(2000):
            x = x + 1
            highest = max(highest, len(machine.engine.lively) + len(machine.engine.pending))
        assert highest <= 101
        assert (await x).tolist() == [2000.0] * 2


async def test_synchronize_waits_for_everything() -> None:
    async with VirtualMachine(cpu_worker="always"):
        seen: list[int] = []
        machine = current_machine()
        for number in range(20):
            issue_call(machine, lambda number=number: seen.append(number))  # type: ignore[misc]
        await flow.synchronize()
        assert seen == list(range(20))


def test_synchronize_blocks_in_plain_code() -> None:
    seen: list[int] = []
    issue_call(default_machine(), lambda: seen.append(1))
    flow.synchronize()
    assert seen == [1]


@pytest.mark.host
async def test_leaving_by_an_exception_drops_unstarted_work() -> None:
    release = threading.Event()
    started = threading.Event()

    def gate() -> None:
        started.set()
        assert release.wait(30)

    async def leave() -> tuple[VirtualMachine, flow.Tensor]:
        with suppress(ValueError):
            async with VirtualMachine(cpu_worker="always") as machine:
                issue_call(machine, gate)
                x = flow.ones(3) + 1
                await asyncio.to_thread(started.wait)
                threading.Timer(0.05, release.set).start()
                raise ValueError("on purpose")
        return machine, x

    machine, x = await leave()
    with pytest.raises(flow.VirtualMachineClosed, match="dropped"):
        await x
    machine.engine.check_invariants()


async def test_a_closed_machine_refuses_work() -> None:
    async with VirtualMachine("short") as machine:
        x = flow.ones(3)
    with pytest.raises(flow.VirtualMachineClosed, match="'short'"):
        issue_call(machine, lambda: None)
    assert (await (x + 1)).tolist() == [2.0] * 3  # on the default machine


async def test_closing_within_the_block() -> None:
    async with VirtualMachine("early") as machine:
        await (flow.ones(3) + 1)
        machine.close()
    assert machine.closed


async def test_entering_twice_is_refused() -> None:
    async with VirtualMachine("once") as machine:
        with pytest.raises(RuntimeError, match="already entered"):
            await machine.__aenter__()


def test_await_outside_a_loop_is_an_error() -> None:
    async def use() -> None:
        await (flow.ones(3) + 1)

    with entered(VirtualMachine(gather=1000)), pytest.raises(RuntimeError, match="running asyncio event loop"):
        use().send(None)


async def test_blocking_reads_on_the_loop_warn_once_per_line() -> None:
    async with VirtualMachine(cpu_worker="always"):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for _ in range(3):
                value = (flow.ones(3) + 1).tolist()
            assert value == [2.0] * 3
            (await (flow.ones(3) + 1)).numpy()
            flow.ones(3).sum().item()
        assert [warning.category for warning in caught] == [flow.BlockingCallWarning] * 2
        assert all(warning.filename == __file__ for warning in caught)
        assert caught[0].lineno != caught[1].lineno


async def test_a_blocking_read_on_the_loop_whose_callback_would_be_woken() -> None:
    """The loop has added its waker when the worker reports; its thread then blocks, and must be woken itself."""
    async with VirtualMachine(cpu_worker="always"):
        for _ in range(20):
            x = flow.ones(200, 200)
            x = x @ x
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                assert (x @ x)[0, 0].item() == 200.0**3


async def test_a_blocking_read_of_a_result_of_another_machine_of_the_loop() -> None:
    """The loop's callback could drive the other machine, but cannot run while the loop is blocked."""
    x = flow.ones(3) + 1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        async with VirtualMachine():
            assert (x + 1).tolist() == [3.0] * 3


def test_instructions_appended_while_a_machine_closes_are_dropped_too() -> None:
    """Between dropping and the last turn another thread appends; its readers must hear of the end."""
    machine = VirtualMachine("closing")
    x = flow.ones(3)
    x.tolist()
    real = machine.completion.synchronize

    def append_late() -> None:
        machine.engine.receive(late)
        real()

    late = Instruction(machine.stream(flow.device("cpu")), Call(lambda: None))
    machine.completion.synchronize = append_late  # type: ignore[method-assign]
    machine.close()
    assert late.state == ERASED
    assert machine.engine.idle()


def test_a_stopped_loop_does_not_swallow_the_wake() -> None:
    """A loop added its waker and was then stopped, not closed; a plain wait must not depend on it."""
    machine = VirtualMachine(cpu_worker="always")
    loop = asyncio.new_event_loop()
    release = threading.Event()

    async def begin() -> Instruction:
        instruction = issue_call(machine, lambda: assert_true(release.wait(30)))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return instruction

    instruction = loop.run_until_complete(begin())
    threading.Timer(0.05, release.set).start()
    machine.wait(instruction)
    assert instruction.state == ERASED
    machine.close()
    loop.close()


@pytest.mark.parametrize("driven", [False, True])
def test_a_loop_that_is_closed_before_its_turn_does_not_keep_the_machine_from_its_own_loop(driven: bool) -> None:
    async def program() -> None:
        async with VirtualMachine(cpu_worker="never") as machine:
            other = asyncio.new_event_loop()
            machine.loops.arm(other)  # as an op that is issued on the loop does
            other.close()
            if driven:
                machine.driver.drive()
            ran, loop = asyncio.Event(), asyncio.get_running_loop()

            def note() -> None:
                loop.call_soon_threadsafe(ran.set)

            threading.Thread(target=issue_call, args=(machine, note), daemon=True).start()
            await asyncio.wait_for(ran.wait(), PATIENCE)

    asyncio.run(program())


def test_blocking_reads_in_plain_code_do_not_warn() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert (flow.ones(3) + 1).tolist() == [2.0] * 3


@pytest.mark.parametrize("worker", WORKERS)
def test_memory_of_dropped_tensors_goes_back(worker: str, make_default: MakeDefault) -> None:
    """A tensor large enough to be leased gives its memory back when the last view of it goes: immediately if nothing
    is issued, else after the instructions that still use it."""
    machine = VirtualMachine("releasing", cpu_worker=worker, gather=1000)
    make_default(machine)
    x = flow.ones(130, 130)
    storage = weak_storage(x)
    y = x[:10]
    flow.synchronize()
    del x
    assert storage() is not None
    del y
    gc.collect()
    assert storage() is None

    x = flow.ones(130, 130)
    storage = weak_storage(x)
    total = (x + 1).sum()
    del x
    assert storage() is not None  # pending instructions will need it
    assert total.item() == 2 * 130 * 130
    flow.synchronize()
    gc.collect()
    assert storage() is None
    machine.close()


def test_a_thread_that_came_during_a_fork_is_woken() -> None:
    """The fork had the turn, and gave it back without a word."""
    results: list[Any] = []
    with entered(VirtualMachine("forks", cpu_worker="never")) as machine:

        def read() -> None:
            results.append((flow.ones(2) + 1).tolist())

        thread = threading.Thread(target=copy_context().run, args=(read,), daemon=True)
        process._before_fork()
        try:
            thread.start()
            while not machine.driver.waker_count() and thread.is_alive():
                thread.join(0.001)
        finally:
            process._after_fork_in_parent()
        thread.join(PATIENCE)
    assert results == [[2.0, 2.0]]


async def test_a_worker_goes_on_with_heavy_work_while_its_loop_is_busy() -> None:
    """Nobody but the worker can hand over the second and third: the loop's thread stands still until they have run."""
    third_began = threading.Event()

    def begin_third(array: Any) -> Any:
        third_began.set()
        return array + 1

    async with VirtualMachine(cpu_worker="always"):
        with gate() as closed:
            x = call(lambda array: array + 1, closed.tensor, cost=HEAVY)
            x = call(begin_third, x, cost=HEAVY)
            await closed.reached()
            closed.open()
            assert third_began.wait(PATIENCE)
            assert (await x).tolist() == [3.0]


async def test_a_worker_that_drives_also_runs_small_instructions() -> None:
    threads: set[int] = set()
    done = threading.Event()

    def note(array: Any) -> Any:
        threads.add(threading.get_ident())
        return array + 1

    def end(array: Any) -> Any:
        done.set()
        return array

    async with VirtualMachine(cpu_worker="auto"):
        with gate() as closed:
            x = call(note, call(note, closed.tensor))
            x = call(end, x, cost=HEAVY)
            await closed.reached()
            closed.open()
            assert done.wait(PATIENCE)
            assert (await x).tolist() == [3.0]
    assert threading.get_ident() not in threads


def test_a_worker_that_waits_for_itself_runs_its_queue() -> None:
    """As it does when it drives and there is no memory left."""
    ran: list[str] = []
    over = threading.Event()

    def run(item: str) -> None:
        ran.append(item)
        if item == "first":
            worker.post("second")
            worker.post("third")
            assert worker.wait_until_idle()
            assert ran == ["first", "second", "third"]
            over.set()

    worker = Worker("waits for itself", run)
    worker.post("first")
    assert over.wait(PATIENCE)
    assert worker.stop() == []


def test_a_stopped_worker_is_not_waited_for_and_says_whether_all_items_have_run() -> None:
    ran: list[str] = []
    worker = Worker("all has run", ran.append)
    worker.post("first")
    assert worker.wait_until_idle(PATIENCE)
    assert worker.stop() == []
    assert worker.wait_until_idle()
    worker.post("too late")
    assert not worker.wait_until_idle()
    assert worker.stop() == ["too late"]
    assert not worker.wait_until_idle()
    assert ran == ["first"]


def test_waiting_for_a_worker_that_stops_ends_and_says_that_items_are_left() -> None:
    begun, end = threading.Event(), threading.Event()
    answers: list[bool] = []

    def run(item: str) -> None:
        begun.set()
        assert end.wait(PATIENCE)

    worker = Worker("has items left", run)
    worker.post("first")
    assert begun.wait(PATIENCE)
    worker.post("second")
    waiting = threading.Thread(target=lambda: answers.append(worker.wait_until_idle()))
    waiting.start()
    waiting.join(0.1)
    assert not answers
    assert worker.stop(0.0) == ["second"]
    waiting.join(PATIENCE)
    assert answers == [False]
    assert not worker.wait_until_idle()
    end.set()
    worker.thread.join(PATIENCE)
    assert not worker.wait_until_idle()


def test_an_item_may_stop_its_own_worker_and_ask_for_the_others() -> None:
    answers: list[bool] = []

    def run(item: str) -> None:
        if item == "stops":
            assert worker.stop() == []
            answers.append(worker.wait_until_idle())

    worker = Worker("stops itself", run)
    worker.post("first")
    worker.post("stops")
    worker.thread.join(PATIENCE)
    assert not worker.thread.is_alive()
    assert answers == [True]
    assert worker.wait_until_idle()


async def test_an_abort_while_a_worker_drives_drops_unstarted_work() -> None:
    """The worker has the turn lock for a moment, in which an abort must not give up."""
    driving = threading.Event()
    ran: list[str] = []

    def hold(array: Any) -> Any:
        driving.set()
        until = time.monotonic() + PATIENCE
        while not machine.driver.turn_lock.wanted() and time.monotonic() < until:
            pass
        return array

    machine = VirtualMachine(cpu_worker="auto")
    async with machine:
        with gate() as closed:
            x = call(hold, closed.tensor)  # small, hence run by the driving thread
            y = call(lambda array: ran.append("heavy"), x, cost=HEAVY)
            await closed.reached()
            closed.open()
            assert driving.wait(PATIENCE)
            machine.abort()
        with pytest.raises(flow.VirtualMachineClosed):
            await y
    assert machine.closed
    assert ran == []


async def test_a_worker_that_drives_and_finds_no_memory_runs_its_own_queue() -> None:
    """Only then it is known that nothing more will be given back."""
    gc.collect()
    flow.empty_cache("cpu")
    ran: list[int] = []
    async with VirtualMachine(cpu_worker="always"):
        flow.set_memory_limit(device_memory(flow.device("cpu")).used + (8 << 20), "cpu")
        try:
            with gate() as closed:
                small = call(lambda array: ran.append(threading.get_ident()), closed.tensor)
                large = call(lambda array: None, closed.tensor, shape=(8 << 20,))
                await closed.reached()
                closed.open()
                with pytest.raises(flow.OutOfMemory):
                    await large
            await small
        finally:
            flow.set_memory_limit(None, "cpu")
    assert len(ran) == 1
    assert ran != [threading.get_ident()]


def test_a_fork_keeps_no_machine_alive() -> None:
    machine = VirtualMachine("forked and forgotten")
    alive = weakref.ref(machine)
    process._before_fork()
    process._after_fork_in_parent()
    machine.close()
    del machine
    gc.collect()
    assert alive() is None
