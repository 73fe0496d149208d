"""High-water marks, checkpoints and reports of stalls: nothing runs away, or stands still unnoticed."""

from __future__ import annotations

import asyncio
import itertools
import math
import re
import threading
import warnings
from types import SimpleNamespace
from typing import Any

import pytest

import vmflow as flow
from tests.vm.gates import HEAVY, PATIENCE, call, eager, entered, gate, held, in_thread, line_of, listening, turns
from vmflow.context import MODE
from vmflow.vm import stall_watch
from vmflow.vm.stall_watch import STALL_SECONDS
from vmflow.vm.virtual_machine import VirtualMachine
from vmflow.vm.wakers import ThreadWaker

pytestmark = pytest.mark.host

WHERE = ["never", "always"]
STALL = "nothing has ended"

# Elements of a float32 tensor of 256 KiB.
BIG = 1 << 16
BYTES = 4 * BIG


def outstanding(machine: VirtualMachine) -> int:
    """How many instructions have not ended."""
    return len(machine.engine.lively) + len(machine.engine.pending)


def outstanding_bytes(machine: VirtualMachine) -> int:
    """How many bytes their results have."""
    return machine.back_pressure.outstanding_bytes()


# In plain code


def test_the_issuer_sleeps_above_the_mark_until_there_is_half_as_much() -> None:
    """The worker stands still until the issuer has slept for so long that it reports a stall."""
    machine = eager(high_water=10, stall_after=0.01)
    with listening(STALL) as stalled, held(machine) as closed:
        stalled.then = closed.open
        sizes: list[int] = []
        results = []
        for _ in range(30):
            results.append(call(lambda: 1.0))
            sizes.append(outstanding(machine))
            if len(sizes) == 9:
                assert not stalled.messages
                assert not closed.opened.is_set()
        assert sizes[:9] == list(range(2, 11))
        assert sizes[9] <= 5
        assert closed.opened.is_set()
        assert max(sizes) <= 10
        assert len(stalled.messages) == 1
        assert [result.item() for result in results] == [1.0] * 30


def test_the_same_for_bytes() -> None:
    machine = eager(high_water_bytes=10 * BYTES, stall_after=0.01)
    with listening(STALL) as stalled, held(machine) as closed:
        stalled.then = closed.open
        sizes: list[int] = []
        results = []
        for _ in range(30):
            results.append(call(lambda: 1.0, shape=(BIG,)))
            sizes.append(outstanding_bytes(machine) // BYTES)
        assert sizes[:10] == list(range(1, 11))
        assert sizes[10] <= 5
        assert max(sizes) <= 10
        assert [result[0].item() for result in results] == [1.0] * 30
    assert outstanding_bytes(machine) == 0


def test_small_results_count_for_nothing() -> None:
    machine = eager(high_water_bytes=1)
    with held(machine):
        for _ in range(100):
            call(lambda: 1.0, shape=(16,))
        assert outstanding_bytes(machine) == 0
        assert outstanding(machine) == 101


@pytest.mark.parametrize("worker", WHERE)
def test_one_result_larger_than_the_mark_is_no_reason_to_wait_for_ever(worker: str) -> None:
    with entered(VirtualMachine(cpu_worker=worker, high_water_bytes=BYTES // 2)) as machine:
        x = flow.ones(BIG)
        for _ in range(5):
            x = x + 1
            assert outstanding_bytes(machine) <= BYTES // 2
        assert x[0].item() == 6.0


def test_the_smallest_marks() -> None:
    with entered(VirtualMachine(cpu_worker="always", high_water=1, high_water_bytes=1)):
        x = flow.ones(BIG)
        for _ in range(20):
            x = x + 1
        assert x[0].item() == 21.0


def test_several_issuers_sleep_and_wake() -> None:
    machine = VirtualMachine(cpu_worker="always", high_water=20)
    errors: list[BaseException] = []
    highest = [0] * 4

    def work(number: int) -> None:
        MODE.set(MODE.get().replace(machine=machine))
        try:
            x = flow.zeros(2)
            for _ in range(200):
                x = x + 1
                highest[number] = max(highest[number], outstanding(machine))
            assert x.tolist() == [200.0] * 2
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert not any(value.is_alive() for value in threads)
    assert errors == []
    # Each may be about to find out that it is too much.
    assert max(highest) <= 20 + 4
    machine.close()


def test_an_instruction_issued_by_a_kernel_does_not_wait_for_itself() -> None:
    """A callback that issues above the mark would wait for its own end."""
    machine = VirtualMachine(cpu_worker="never", high_water=2)
    results: list[flow.Tensor] = []

    def issue() -> None:
        MODE.set(MODE.get().replace(machine=machine))
        results.extend([call(lambda: 1.0) for _ in range(10)])

    with entered(machine):
        call(issue).item()
        assert [result.item() for result in results] == [1.0] * 10


@pytest.mark.parametrize("end", ["close", "abort"])
def test_a_producer_that_sleeps_is_woken_when_the_machine_ends(end: str) -> None:
    machine = eager(high_water=10, stall_after=0.01)
    with listening(STALL) as stalled, held(machine) as closed:

        def issue() -> str:
            MODE.set(MODE.get().replace(machine=machine))
            try:
                for _ in range(100):
                    call(lambda: 1.0)
            except flow.VirtualMachineClosed:
                return "told"
            return "not told"

        def finish() -> None:
            assert stalled.heard.wait(PATIENCE)
            if end == "abort":
                machine.abort()
            else:
                closed.open()
                machine.close()

        finisher = threading.Thread(target=finish)
        finisher.start()
        assert in_thread(issue) == "told"
        finisher.join(PATIENCE)
        assert closed.opened.is_set() == (end == "close")


# On a loop


async def test_checkpoint_lets_the_loop_go_on() -> None:
    order: list[str] = []

    async def other() -> None:
        order.append("other")

    task = asyncio.create_task(other())
    await flow.checkpoint()
    order.append("back")
    await task
    assert order == ["other", "back"]


async def test_checkpoint_waits_above_the_mark_until_there_is_half_as_much() -> None:
    async with VirtualMachine(cpu_worker="always", high_water=10) as machine:
        with gate() as closed:
            await closed.reached()
            results = [call(lambda: 1.0) for _ in range(8)]
            await flow.checkpoint()
            with pytest.warns(flow.BackPressureWarning):
                results += [call(lambda: 1.0) for _ in range(12)]
            waiting = asyncio.create_task(checkpoint_then_count(machine))
            await turns(10)
            assert not waiting.done()
            assert machine.has_waiters() == 1
            closed.open()
            assert await waiting <= 5
            assert machine.has_waiters() == 0
        assert [(await result).item() for result in results] == [1.0] * 20


async def checkpoint_then_count(machine: VirtualMachine) -> int:
    await flow.checkpoint()
    return outstanding(machine)


async def test_checkpoint_for_bytes() -> None:
    async with VirtualMachine(cpu_worker="always", high_water_bytes=4 * BYTES) as machine:
        with gate() as closed:
            await closed.reached()
            with pytest.warns(flow.BackPressureWarning, match=f"high_water_bytes={4 * BYTES}"):
                results = [call(lambda: 1.0, shape=(BIG,)) for _ in range(6)]
            waiting = asyncio.create_task(checkpoint_then_count(machine))
            await turns(10)
            assert not waiting.done()
            closed.open()
            await waiting
            assert outstanding_bytes(machine) <= 2 * BYTES
        del results


async def test_a_cancelled_checkpoint_waits_no_more() -> None:
    async with VirtualMachine(cpu_worker="always", high_water=2) as machine:
        with gate() as closed, warnings.catch_warnings():
            warnings.simplefilter("ignore", flow.BackPressureWarning)
            await closed.reached()
            results = [call(lambda: 1.0) for _ in range(5)]
            waiting = asyncio.create_task(checkpoint_then_count(machine))
            await turns()
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            assert machine.has_waiters() == 0
            closed.open()
            await flow.checkpoint()
        assert [(await result).item() for result in results] == [1.0] * 5


async def test_awaiting_a_result_waits_for_the_low_mark_too() -> None:
    async with VirtualMachine(cpu_worker="always", high_water=10) as machine:
        with gate() as first:
            x = call(lambda: 2.0)
            with gate() as second:
                await first.reached()
                with pytest.warns(flow.BackPressureWarning):
                    results = [call(lambda: 1.0) for _ in range(12)]

                async def read() -> int:
                    await x
                    return outstanding(machine)

                waiting = asyncio.create_task(read())
                await turns()
                first.open()
                await second.reached()
                await turns(10)
                assert x.is_ready()
                assert not waiting.done()
                second.open()
                assert await waiting <= 5
        del results


async def test_a_coroutine_that_awaits_checkpoints_gets_no_warning() -> None:
    """Warnings are errors in these tests."""
    async with VirtualMachine(cpu_worker="always", high_water=10) as machine:
        with gate() as closed:
            await closed.reached()

            async def issue() -> list[float]:
                x = flow.zeros(2)
                for _ in range(100):
                    x = x + 1
                    await flow.checkpoint()
                return (await x).tolist()  # type: ignore[no-any-return]

            waiting = asyncio.create_task(issue())
            await turns(200)
            assert not waiting.done(), waiting.exception()
            assert machine.has_waiters() == 1
            closed.open()
            assert await waiting == [100.0] * 2


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 9])
async def test_results_of_any_size_cause_no_warning_if_each_is_followed_by_a_checkpoint(size: int) -> None:
    """Results of about the mark's bytes, too.  Warnings are errors in these tests."""
    async with VirtualMachine(cpu_worker="always", high_water_bytes=4 * BYTES) as machine:
        with gate() as closed:
            await closed.reached()
            results = []
            highest = 0

            async def issue() -> None:
                nonlocal highest
                for _ in range(10):
                    results.append(call(lambda: 1.0, shape=(size * BIG,)))
                    highest = max(highest, outstanding_bytes(machine))
                    await flow.checkpoint()

            issuing = asyncio.create_task(issue())
            await turns(40)
            assert not issuing.done(), issuing.exception()
            assert highest < (4 + size) * BYTES
            closed.open()
            await issuing
        assert [(await result)[0].item() for result in results] == [1.0] * 10


@pytest.mark.parametrize("size", [3, 5])
async def test_large_results_cause_a_warning_if_the_coroutine_awaits_nothing(size: int) -> None:
    async with VirtualMachine(cpu_worker="always", high_water_bytes=4 * BYTES):
        with gate() as closed:
            await closed.reached()
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                results = [call(lambda: 1.0, shape=(size * BIG,)) for _ in range(4)]
            # The first result above the mark is no reason; each later one is.
            assert len(caught) == 4 - len(range(0, 4 * BYTES + 1, size * BYTES))
        assert [(await result)[0].item() for result in results] == [1.0] * 4


async def test_a_checkpoint_compares_bytes_with_their_own_mark() -> None:
    async with VirtualMachine(cpu_worker="always", high_water=3, high_water_bytes=4 * BYTES):
        with gate() as closed:
            await closed.reached()
            result = call(lambda: 1.0, shape=(3 * BIG,))
            await asyncio.wait_for(asyncio.ensure_future(just_a_checkpoint()), PATIENCE)
            assert not result.is_ready()
        await result


async def just_a_checkpoint() -> None:
    await flow.checkpoint()


async def test_the_warning_names_the_users_line_and_gives_advice() -> None:
    async with VirtualMachine("busy", cpu_worker="always", high_water=3):
        with gate() as closed:
            await closed.reached()
            x = flow.ones(2)
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                for _ in range(5):
                    x = x + 1  # the line
            assert {value.lineno for value in caught} == {line_of("the line", __file__)}
            assert {value.filename for value in caught} == {__file__}
            message = str(caught[0].message)
            assert "'busy' has more work than it can take (high_water=3" in message
            assert "await vmflow.checkpoint()" in message


async def test_many_coroutines_that_issue_a_lot_stay_below_the_marks() -> None:
    async with VirtualMachine(high_water=50) as machine:
        highest = 0

        async def issue(number: int) -> list[float]:
            nonlocal highest
            x = flow.zeros(2)
            for _ in range(100):
                x = x + number
                highest = max(highest, outstanding(machine))
                await flow.checkpoint()
            return (await x).tolist()  # type: ignore[no-any-return]

        found = await asyncio.gather(*[issue(number) for number in range(20)])
        assert found == [[100.0 * number] * 2 for number in range(20)]
        assert highest <= 51


def test_checkpoint_without_a_loop_is_an_error() -> None:
    async def use() -> None:
        await flow.checkpoint()

    coroutine = use()
    coroutine.send(None)
    with pytest.raises(RuntimeError, match="running asyncio event loop; plain code waits by itself"):
        coroutine.send(None)


@pytest.mark.parametrize(
    "options",
    [
        {"high_water": 0},
        {"high_water": -1},
        {"high_water_bytes": 0},
        {"turn_budget": 0},
        {"turn_budget": -1e-3},
        {"turn_budget": math.nan},
        {"turn_budget": math.inf},
        {"window": 0},
        {"cpu_worker": "sometimes"},
        {"stall_after": 0.0},
        {"stall_after": -1.0},
        {"stall_after": math.nan},
        {"stall_after": 2.0 * threading.TIMEOUT_MAX},
        {"gather": 0},
        {"drain_timeout": -1.0},
        {"drain_timeout": math.nan},
        {"drain_timeout": math.inf},
    ],
)
def test_bad_arguments(options: dict[str, Any]) -> None:
    (name,) = options
    with pytest.raises(ValueError, match=name):
        VirtualMachine(**options)


@pytest.mark.parametrize("name", ["window", "gather", "high_water", "high_water_bytes"])
@pytest.mark.parametrize("value", [1.5, 2.0, math.nan, True, "3"])
def test_counts_must_be_integers(name: str, value: Any) -> None:
    with pytest.raises(TypeError, match=f"{name} must be an integer, not {value!r}"):
        VirtualMachine(**{name: value})


@pytest.mark.parametrize("name", ["turn_budget", "drain_timeout", "stall_after"])
@pytest.mark.parametrize("value", [True, "3"])
def test_times_must_be_numbers(name: str, value: Any) -> None:
    with pytest.raises(TypeError, match=f"{name} must be a number of seconds, not {value!r}"):
        VirtualMachine(**{name: value})


@pytest.mark.parametrize("seconds", [math.nan, -1.0, True])
async def test_bad_times_to_end_in_change_nothing(seconds: Any) -> None:
    async with VirtualMachine() as machine:
        with pytest.raises((TypeError, ValueError), match="grace must be"):
            await machine.shutdown(seconds)
        with pytest.raises((TypeError, ValueError), match="timeout must be"):
            machine.close(seconds)
        assert machine.state == "running"
        assert (await flow.ones(1)).item() == 1.0


# Stalls


def test_a_waiting_thread_reports_a_stall_once() -> None:
    machine = eager(name="stuck", stall_after=0.01)
    with listening(STALL) as stalled, held(machine) as closed:
        with flow.scope(name="request 7"):
            y = call(lambda: 2.0)
            z = y + 1
        threading.Thread(target=open_when_heard, args=(stalled, closed)).start()
        assert z.item() == 3.0
    assert len(stalled.messages) == 1
    message = stalled.messages[0]
    assert "nothing has ended for 0 seconds, although somebody waits" in message
    assert "<Snapshot of 'stuck', running: 3 lively, 0 pending" in message
    assert "1 waiting" in message
    assert re.search(r"^ *cpu:compute (WatchedStreamPolicy\()?CpuStreamPolicy\(\)", message, re.MULTILINE)
    assert "<Worker stuck:cpu:compute running>" in message
    assert "#0 planted LAUNCHED on cpu:compute, issued at" in message
    assert "#1 planted READY on cpu:compute in scope 'request 7', issued at" in message
    assert "waits for #1 on cpu:compute in scope 'request 7'" in message
    assert __file__ in message


def test_a_waiting_thread_reports_a_stall_after_its_first_sleep() -> None:
    machine = eager(stall_after=0.01)
    with listening(STALL) as stalled, held(machine):
        machine.waiters.watch.sleep(ThreadWaker(), None)
        assert len(stalled.messages) == 1


def open_when_heard(stalled: Any, closed: Any) -> None:
    assert stalled.heard.wait(PATIENCE)
    closed.open()


async def test_an_awaiting_coroutine_reports_a_stall_once() -> None:
    async with VirtualMachine("stuck", cpu_worker="always", stall_after=0.01):
        with listening(STALL) as stalled, gate() as closed:
            stalled.then = closed.open
            y = closed.tensor + 1
            waiting = [asyncio.create_task(value(y)) for _ in range(3)]
            assert await asyncio.gather(*waiting) == [2.0] * 3
    assert len(stalled.messages) == 1
    assert "<Snapshot of 'stuck', running: 2 lively, 0 pending" in stalled.messages[0]
    assert "#0 planted LAUNCHED" in stalled.messages[0]


async def value(tensor: flow.Tensor) -> float:
    found: float = (await tensor).item()
    return found


async def test_a_checkpoint_reports_a_stall() -> None:
    async with VirtualMachine(cpu_worker="always", high_water=2, stall_after=0.01) as machine:
        with listening(STALL) as stalled, gate() as closed:
            stalled.then = closed.open
            await closed.reached()
            with pytest.warns(flow.BackPressureWarning):
                results = [call(lambda: 1.0) for _ in range(4)]
            await checkpoint_then_count(machine)
    assert len(stalled.messages) == 1
    del results


def test_another_stall_is_another_report() -> None:
    machine = eager(stall_after=0.01)
    for count in (1, 2):
        with listening(STALL) as stalled, entered_again(machine), gate() as closed:
            stalled.then = closed.open
            assert (closed.tensor + count).item() == 1.0 + count
        assert len(stalled.messages) == 1
    machine.close()


class entered_again:
    """As `entered`, without closing the machine afterwards."""

    def __init__(self, machine: VirtualMachine) -> None:
        self._machine = machine

    def __enter__(self) -> None:
        self._before = MODE.get().machine
        MODE.set(MODE.get().replace(machine=self._machine))

    def __exit__(self, *anything: object) -> None:
        MODE.set(MODE.get().replace(machine=self._before))


async def test_no_report_while_things_end() -> None:
    """Together the ops take long, but something ends all the time."""
    wait = threading.Event()  # never set: each op takes as long as the timeout
    async with VirtualMachine(cpu_worker="always", stall_after=0.3):
        with listening(STALL) as stalled:
            results = [call(lambda: float(wait.wait(0.01)), cost=HEAVY) for _ in range(60)]
            await results[-1]
    assert stalled.messages == []


async def test_no_report_when_nobody_waits() -> None:
    async with VirtualMachine(cpu_worker="always", stall_after=0.005):
        with listening(STALL) as stalled, gate() as closed:
            await closed.reached()
            other = threading.Event()
            await asyncio.to_thread(other.wait, 0.05)
        assert stalled.messages == []


def test_an_idle_machine_does_not_stall(monkeypatch: pytest.MonkeyPatch) -> None:
    hours = itertools.count()
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(stall_watch, "time", SimpleNamespace(monotonic=lambda: clock.now))
    with listening(STALL) as stalled, entered(eager(stall_after=0.001)):
        for step in itertools.repeat(1, 20):
            clock.now = 3600.0 * next(hours)  # it was idle for that long, and takes no time now
            assert (flow.ones(1) + step).item() == 2.0
    assert stalled.messages == []


async def test_an_infinite_time_turns_the_watch_off() -> None:
    async with VirtualMachine(cpu_worker="always", stall_after=math.inf) as machine:
        with listening(STALL) as stalled, gate() as closed:
            await closed.reached()
            thread = asyncio.create_task(asyncio.to_thread(closed.tensor.item))
            task = asyncio.create_task(value(closed.tensor))
            while not machine.has_waiters():  # noqa: ASYNC110 - the thread begins to wait in real time
                await asyncio.sleep(0)
            closed.open()
            assert await thread == await task == 1.0
    assert stalled.messages == []


def test_the_environment_may_say_how_long(monkeypatch: pytest.MonkeyPatch) -> None:
    assert VirtualMachine().stall_after == STALL_SECONDS
    monkeypatch.setenv("VMFLOW_STALL_SECONDS", "7.5")
    assert VirtualMachine().stall_after == 7.5
    assert VirtualMachine(stall_after=3).stall_after == 3
    monkeypatch.setenv("VMFLOW_STALL_SECONDS", "inf")
    assert VirtualMachine().stall_after == math.inf
    for wrong in ("nan", "0", "soon"):
        monkeypatch.setenv("VMFLOW_STALL_SECONDS", wrong)
        with pytest.raises(ValueError, match=f"VMFLOW_STALL_SECONDS must be a .*number of seconds, .*not .*{wrong}"):
            VirtualMachine()
