"""Scopes: their instructions, the ones dropped at the end, the waiters woken, and that nothing is left half done."""

from __future__ import annotations

import asyncio
import gc
import inspect
import itertools
import logging
import random
import threading
import time
import weakref
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest

import vmflow as flow
from tests.support import weak_storage
from tests.vm.gates import PATIENCE, call, eager, entered, gate, held, in_thread, line_of, listening, turns
from vmflow import nn, optim
from vmflow.context import MODE
from vmflow.instructions import Instruction, InstructionPolicy
from vmflow.instructions.builder import physical_run
from vmflow.instructions.scope import Scope
from vmflow.vm.virtual_machine import VirtualMachine, current_machine

pytestmark = pytest.mark.host

WHERE = ["never", "always"]

# Elements of a tensor that gets its memory from the allocator.
LARGE = 20_000


def name_around() -> str | None:
    scope = flow.current_scope()
    return None if scope is None else scope.name


def allocated(machine: VirtualMachine) -> int:
    """Bytes in tensors."""
    gc.collect()
    return machine.memory.allocator(flow.device("cpu")).statistics()["allocated_bytes.all.current"]


# The instructions of a scope


def test_outside_there_is_none() -> None:
    assert flow.current_scope() is None


def test_scopes_nest_and_inherit() -> None:
    with flow.scope(priority=3, timeout=100, name="outer") as outer:
        with flow.scope() as plain:
            assert plain.outer is outer
            assert (plain.priority, plain.deadline, plain.name) == (3, outer.deadline, None)
        with flow.scope(priority=-1, timeout=1000, name="inner") as inner:
            assert (inner.priority, inner.deadline, inner.name) == (-1, outer.deadline, "inner")
            assert flow.current_scope() is inner
        with flow.scope(timeout=1) as sooner:
            assert sooner.deadline is not None
            assert outer.deadline is not None
            assert sooner.deadline < outer.deadline
        assert flow.current_scope() is outer
    assert flow.current_scope() is None


def test_the_earlier_of_deadline_and_timeout_holds() -> None:
    now = time.monotonic()
    with flow.scope(deadline=now + 5, timeout=1000) as first:
        assert first.deadline == now + 5
    with flow.scope(deadline=now + 1000, timeout=5) as second:
        assert second.deadline is not None
        assert second.deadline < now + 900
        remaining = second.remaining()
        assert remaining is not None
        assert 0 < remaining <= 5
    with flow.scope() as endless:
        assert endless.remaining() is None


def test_a_timeout_counts_from_entering() -> None:
    made = flow.scope(timeout=50)
    before = time.monotonic()
    with made as entered_scope:
        assert entered_scope.deadline is not None
        assert entered_scope.deadline >= before + 50


async def test_with_and_async_with_do_the_same() -> None:
    async with flow.scope(name="a", priority=2) as outer:
        assert flow.current_scope() is outer
        with flow.scope(name="b") as inner:
            assert inner.outer is outer
            await asyncio.sleep(0)
            assert flow.current_scope() is inner
    assert flow.current_scope() is None


def test_an_ordinary_exception_leaves_the_scope_and_does_not_cancel_it() -> None:
    results: list[flow.Tensor] = []

    def work() -> None:
        results.append(flow.ones(2) + 1)
        raise ValueError("on purpose")

    with pytest.raises(ValueError, match="on purpose"), flow.scope() as scope:
        work()
    assert flow.current_scope() is None
    assert not scope.cancelled()
    assert results[0].tolist() == [2.0, 2.0]


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, asyncio.CancelledError])
def test_an_exception_that_is_no_exception_cancels_it(error: type[BaseException]) -> None:
    with pytest.raises(error), flow.scope() as scope:
        raise error
    assert scope.cancelled()
    assert flow.current_scope() is None


def test_each_entry_is_a_scope_of_its_own() -> None:
    shared = flow.scope(name="shared")
    with shared as first:
        with shared as second:
            assert second is not first
            assert second.outer is first
        assert flow.current_scope() is first
    with shared as third:
        third.cancel()
    assert not first.cancelled()
    with shared as fourth:
        assert not fourth.cancelled()
    assert flow.current_scope() is None


async def test_one_object_may_be_entered_by_many_tasks_concurrently() -> None:
    """As ``scope = flow.scope(timeout=1)`` at the top of a server's module would be."""
    shared = flow.scope(name="shared")
    both, go = asyncio.Barrier(2), asyncio.Event()
    scopes: dict[str, Scope] = {}

    async def hold(name: str) -> None:
        async with shared as scope:
            scopes[name] = scope
            await both.wait()
            await go.wait()
        assert flow.current_scope() is None

    first, second = asyncio.create_task(hold("first")), asyncio.create_task(hold("second"))
    await turns()
    assert len(scopes) == 2
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    assert scopes["first"].cancelled()
    assert not scopes["second"].cancelled()
    go.set()
    await second
    assert not scopes["second"].cancelled()


async def test_tasks_do_not_see_each_others_scopes() -> None:
    ready, over = asyncio.Event(), asyncio.Event()

    async def one() -> None:
        async with flow.scope(name="one"):
            ready.set()
            await over.wait()
            assert name_around() == "one"

    async def other() -> None:
        await ready.wait()
        assert name_around() is None
        async with flow.scope(name="other"):
            over.set()
            await asyncio.sleep(0)
            assert name_around() == "other"

    await asyncio.gather(one(), other())
    assert name_around() is None


async def test_tasks_and_to_thread_inherit_threads_do_not() -> None:
    async with flow.scope(name="request") as scope:
        seen: list[str | None] = []

        async def child() -> None:
            assert flow.current_scope() is scope
            with flow.scope(name="of the child"):
                seen.append(name_around())

        await asyncio.create_task(child())
        assert name_around() == "request"
        assert await asyncio.to_thread(name_around) == "request"
        assert await asyncio.get_running_loop().run_in_executor(None, name_around) is None
        assert in_thread(name_around) is None
        assert seen == ["of the child"]


async def test_a_task_outlives_the_block_it_was_started_in_and_stays_in_the_scope() -> None:
    go = asyncio.Event()

    async def child() -> None:
        await go.wait()
        assert name_around() == "request"
        await (flow.ones(2) + 1)

    async with flow.scope(name="request") as scope:
        task = asyncio.create_task(child())
    assert name_around() is None
    scope.cancel()
    go.set()
    with pytest.raises(flow.Cancelled, match="scope 'request'"):
        await task


def test_a_decorated_function() -> None:
    @flow.scope(name="work", priority=4)
    def work(value: int, *, more: int = 0) -> tuple[Scope | None, int]:
        """Describes itself."""
        return flow.current_scope(), value + more

    (first, total), (second, _) = work(1, more=2), work(5)
    assert total == 3
    assert isinstance(first, Scope)
    assert (first.name, first.priority) == ("work", 4)
    assert second is not first
    assert name_around() is None
    assert (work.__name__, work.__doc__) == ("work", "Describes itself.")


async def test_a_decorated_coroutine() -> None:
    @flow.scope(name="work")
    async def work() -> str | None:
        await asyncio.sleep(0)
        assert name_around() == "work"
        return name_around()

    coroutine = work()
    assert name_around() is None
    async with flow.scope(name="around"):
        task = asyncio.create_task(work())
        await asyncio.sleep(0)
        assert name_around() == "around"
        assert await task == "work"
    assert await coroutine == "work"
    assert name_around() is None


def test_a_decorated_generator_does_not_leak_into_its_consumer() -> None:
    @flow.scope(name="inside")
    def work() -> Iterator[str | None]:
        try:
            yield name_around()
            yield name_around()
        finally:
            seen.append(name_around())

    seen: list[str | None] = []
    for name in work():
        assert name == "inside"
        assert name_around() is None
    left_early = work()
    assert next(left_early) == "inside"
    with flow.scope(name="consumer"):
        assert next(left_early) == "inside"
        assert name_around() == "consumer"
    left_early.close()  # type: ignore[attr-defined]
    assert seen == ["inside", "inside"]
    assert name_around() is None


def test_results_of_a_generator_outlive_it() -> None:
    @flow.scope()
    def decorated() -> Iterator[flow.Tensor]:
        yield flow.ones(2) + 1

    def with_a_block() -> Iterator[flow.Tensor]:
        with flow.scope():
            yield flow.ones(2) + 1

    for made in (decorated, with_a_block):
        with held(VirtualMachine(cpu_worker="always")) as gate:
            generator: Any = made()
            result = next(generator)
            generator.close()
            gate.open()
            assert result.tolist() == [2, 2]


async def test_a_decorated_async_generator_does_not_leak_into_its_consumer() -> None:
    @flow.scope(name="inside")
    async def work() -> AsyncIterator[str | None]:
        try:
            yield name_around()
            await asyncio.sleep(0)
            yield name_around()
        finally:
            seen.append(name_around())

    assert inspect.isasyncgenfunction(work)
    seen: list[str | None] = []
    async for name in work():
        assert name == "inside"
        assert name_around() is None
    left_early: Any = work()
    assert await anext(left_early) == "inside"
    await asyncio.create_task(left_early.aclose())
    assert seen == ["inside", "inside"]
    assert name_around() is None


async def test_leaving_in_another_task_changes_nothing_there() -> None:
    """As when an async generator that holds a scope across a ``yield`` is closed by somebody else."""

    async def holding() -> AsyncIterator[Scope]:
        async with flow.scope(name="held") as scope:
            yield scope

    generator: Any = holding()
    scope = await anext(generator)

    async def close() -> str | None:
        async with flow.scope(name="closer"):
            await generator.aclose()
            return name_around()

    assert await asyncio.create_task(close()) == "closer"
    assert not scope.cancelled()


def test_options_may_be_numpy_numbers() -> None:
    with flow.scope(timeout=np.float32(100), priority=np.int64(2)) as scope:  # type: ignore[arg-type]
        assert scope.deadline is not None
        assert type(scope.deadline) is float
        assert type(scope.priority) is int


def test_leaving_without_having_entered_is_an_error() -> None:
    scope = flow.scope()
    with pytest.raises(RuntimeError, match="without having been entered"):
        scope.__exit__(None, None, None)
    with scope:
        pass
    with pytest.raises(RuntimeError, match="without having been entered"):
        scope.__exit__(None, None, None)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"priority": 1.5}, TypeError, "priority must be an integer, not 1.5"),
        ({"priority": True}, TypeError, "priority must be an integer, not True"),
        ({"priority": "high"}, TypeError, "priority must be an integer, not 'high'"),
        ({"timeout": "1"}, TypeError, "timeout must be a number of seconds, not '1'"),
        ({"timeout": True}, TypeError, "timeout must be a number of seconds, not True"),
        ({"deadline": [1]}, TypeError, "deadline must be a number of seconds"),
        ({"deadline": float("nan")}, ValueError, "deadline must not be nan"),
        ({"timeout": float("nan")}, ValueError, "timeout must not be nan"),
    ],
)
def test_bad_arguments(options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message.replace("[", r"\[").replace("]", r"\]")):
        flow.scope(**options)
    assert flow.current_scope() is None


def test_an_endless_timeout_is_no_deadline_that_passes() -> None:
    with flow.scope(timeout=float("inf")):
        assert (flow.ones(2) + 1).tolist() == [2.0, 2.0]


async def test_an_endless_timeout_on_a_loop() -> None:
    async with VirtualMachine(cpu_worker="always"):
        with gate() as closed, flow.scope(timeout=float("inf")):
            waiting = asyncio.create_task(awaited(call(lambda: 2.0)))
            await closed.reached()
            closed.open()
            assert await waiting == [2.0]


def test_reprs() -> None:
    with flow.scope(name="request", priority=2) as scope:
        assert repr(scope) == "<scope 'request' priority=2>"
        scope.cancel()
        assert repr(scope) == "<scope 'request' priority=2 cancelled>"
    with flow.scope() as plain:
        assert repr(plain) == "<scope>"


# Cancelling


async def awaited(tensor: flow.Tensor) -> list[float]:
    values: list[float] = (await tensor).tolist()
    return values


async def test_running_work_finishes_and_the_rest_is_dropped() -> None:
    ran: list[str] = []
    async with VirtualMachine(cpu_worker="always"):
        x = flow.ones(1)
        with flow.scope(name="request") as scope, gate() as running:
            mine = call(lambda value: ran.append("mine"), x)
            later = mine + 1
            await running.reached()
            scope.cancel()
            with pytest.raises(flow.Cancelled, match="dropped, because scope 'request' was cancelled"):
                await later
            assert not running.opened.is_set()
        outside = later * 2
        running.open()
        for tensor in (mine, later, outside):
            with pytest.raises(flow.Cancelled, match="scope 'request'"):
                await tensor
        assert await awaited(running.tensor) == [1.0]
        assert await awaited(x + 1) == [2.0]
    assert ran == []


@pytest.mark.parametrize(
    "read", [lambda tensor: tensor.item(), lambda tensor: tensor.numpy(), lambda tensor: tensor.tolist(), bool]
)
def test_every_way_of_looking_raises(read: Callable[[flow.Tensor], object]) -> None:
    with held(eager()) as closed:
        with flow.scope() as scope:
            y = call(lambda: 2.0)
        z = y + 1
        scope.cancel()
        closed.open()
        for tensor in (y, z):
            for _ in range(2):
                with pytest.raises(flow.Cancelled, match="its scope was cancelled"):
                    read(tensor)


def test_nothing_is_begun_in_a_scope_that_was_cancelled_before() -> None:
    ran: list[int] = []
    with flow.scope() as outer:
        outer.cancel()
        y = call(lambda: ran.append(1))
        with flow.scope(timeout=100), pytest.raises(flow.Cancelled):
            call(lambda: ran.append(2)).item()
        with pytest.raises(flow.Cancelled):
            y.item()
    assert ran == []


def test_an_instruction_that_no_scope_drops_is_prepared_in_a_cancelled_one() -> None:
    called: list[str] = []

    class Kept(InstructionPolicy):
        prepares = True
        droppable = False

        def prepare(self, instruction: Instruction) -> None:
            called.append("prepare")

        def compute(self) -> None:
            called.append("compute")

    machine = current_machine()
    with flow.scope() as scope:
        scope.cancel()
        instruction = Instruction(machine.stream(flow.device("cpu")), Kept(), mode=MODE.get())
        machine.issue(instruction)
    machine.drain()
    assert called == ["prepare", "compute"]


@pytest.mark.parametrize("worker", WHERE)
async def test_errors_of_dropped_work_name_the_op_and_the_line(worker: str) -> None:
    def notes_of(caught: pytest.ExceptionInfo[BaseException]) -> list[str]:
        return caught.value.__notes__

    class Scaled(flow.nn.Module):
        def forward(self, x: flow.Tensor) -> flow.Tensor:
            return x * 2  # in the module

    class Model(flow.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.part = Scaled()

        def forward(self, x: flow.Tensor) -> flow.Tensor:
            return self.part(x)  # type: ignore[no-any-return]

    async with VirtualMachine(cpu_worker=worker):
        x = flow.ones(2)
        with flow.scope(deadline=0):
            y = x + 1  # past the deadline
            z = Model()(x)
        outside = y - 1
        for result in (y, outside, y):
            with pytest.raises(flow.DeadlineExceeded) as caught:
                await result
            line = f"issued at {__file__}:{line_of('past the deadline', __file__)}, in "
            op, place = notes_of(caught)
            assert (op, place.startswith(line)) == ("instead of running add_scalar", True)
        with pytest.raises(flow.DeadlineExceeded) as caught:
            await z
        assert notes_of(caught)[0] == "instead of running mul_scalar"
        assert f":{line_of('in the module', __file__)}, in forward" in notes_of(caught)[1]
        assert notes_of(caught)[2].startswith("in module ")


async def test_errors_of_work_that_is_awaited_while_it_is_dropped_name_it() -> None:
    async with VirtualMachine(cpu_worker="always"):
        with flow.scope() as scope, gate() as running:
            later = running.tensor + 1  # behind the gate
            await running.reached()
            scope.cancel()
            with pytest.raises(flow.Cancelled) as caught:
                await later
            assert not running.opened.is_set()
    assert caught.value.__notes__[0] == "instead of running add_scalar"
    assert f":{line_of('behind the gate', __file__)}, in " in caught.value.__notes__[1]


def test_cancelling_again_changes_nothing() -> None:
    with flow.scope(name="twice") as scope:
        assert not scope.cancelled()
        scope.cancel()
        scope.cancel(ValueError("too late"))
        y = flow.ones(2) + 1
    assert scope.cancelled()
    with pytest.raises(flow.Cancelled, match="'twice'"):
        y.numpy()


def test_a_reason_of_ones_own() -> None:
    reason = ConnectionResetError("the client has gone")
    with flow.scope() as scope:
        scope.cancel(reason)
        y = flow.ones(2) + 1
    for _ in range(2):
        with pytest.raises(ConnectionResetError) as caught:
            (y + 1).numpy()
        assert caught.value is reason
        assert not hasattr(reason, "__notes__")


def test_an_inner_scope_ends_alone() -> None:
    with flow.scope() as outer:
        with flow.scope() as inner:
            inner.cancel()
            dropped = flow.ones(2) + 1
        kept = flow.ones(2) + 1
    assert inner.cancelled()
    assert not outer.cancelled()
    assert kept.tolist() == [2.0, 2.0]
    with pytest.raises(flow.Cancelled):
        dropped.numpy()


def test_an_outer_scope_ends_the_inner_ones() -> None:
    with flow.scope(name="outer") as outer, flow.scope(name="inner") as inner:
        y = call(lambda: 1.0)
        outer.cancel()
        assert inner.cancelled()
        with pytest.raises(flow.Cancelled, match="scope 'outer' was cancelled"):
            (y + 1).item()


def test_a_shield_is_not_ended_from_outside() -> None:
    with flow.scope(priority=2) as outer:
        with flow.scope(shield=True) as shielded, flow.scope() as within:
            y = flow.ones(2) + 1
            outer.cancel()
            assert not within.cancelled()
            assert within.priority == 2
            assert y.tolist() == [2.0, 2.0]
        with flow.scope(shield=True, timeout=-1), pytest.raises(flow.DeadlineExceeded):
            call(lambda: 1.0).item()
        shielded.cancel()
        assert within.cancelled()


async def test_waiting_coroutines_raise_immediately() -> None:
    """Although the device is busy, and from any thread that cancels."""
    async with VirtualMachine(cpu_worker="always"):
        with gate() as closed:
            with flow.scope() as outer, flow.scope():
                results = [call(lambda: 1.0) for _ in range(5)]
            waiting = [asyncio.create_task(awaited(result)) for result in [*results, results[0] + 0]]
            await closed.reached()
            await turns()
            assert not any(value.done() for value in waiting)
            outer.cancel()
            ended, rest = await asyncio.wait(waiting[:5], timeout=PATIENCE)
            assert len(ended) == 5
            assert not rest
            assert not closed.opened.is_set()
            assert all(isinstance(value.exception(), flow.Cancelled) for value in ended)
        # This one was issued outside of the scope, and hears of it in its turn.
        with pytest.raises(flow.Cancelled):
            await waiting[5]


async def test_cancelled_from_another_task_or_thread() -> None:
    async with VirtualMachine(cpu_worker="always"):
        for cancel_elsewhere in (
            lambda scope: asyncio.create_task(cancel_in_task(scope)),
            lambda scope: asyncio.to_thread(scope.cancel),
            lambda scope: asyncio.get_running_loop().run_in_executor(None, scope.cancel),
        ):
            with gate() as closed:
                async with flow.scope() as scope:
                    waiting = asyncio.create_task(awaited(call(lambda: 1.0)))
                    await closed.reached()
                    await cancel_elsewhere(scope)
                    with pytest.raises(flow.Cancelled):
                        await waiting
                assert not closed.opened.is_set()


async def cancel_in_task(scope: Scope) -> None:
    scope.cancel()


def test_a_waiting_thread_raises_immediately() -> None:
    """It has fallen asleep by the time: it has reported a stall."""
    with listening("nothing has ended") as stalled, held(eager(stall_after=0.01)) as closed:
        with flow.scope() as scope:
            y = call(lambda: 1.0)

        def cancel() -> None:
            assert stalled.heard.wait(PATIENCE)
            scope.cancel()

        canceller = threading.Thread(target=cancel)
        canceller.start()
        with pytest.raises(flow.Cancelled):
            y.item()
        assert not closed.opened.is_set()
        canceller.join(PATIENCE)


async def test_a_cancelled_task_cancels_its_scope() -> None:
    ran: list[int] = []
    async with VirtualMachine(cpu_worker="always"):
        with gate() as closed:
            scopes: list[Scope] = []

            async def handle() -> None:
                async with flow.scope(name="request") as scope:
                    scopes.append(scope)
                    await call(lambda: ran.append(1))

            task = asyncio.create_task(handle())
            await closed.reached()
            await turns()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert scopes[0].cancelled()
            assert name_around() is None
        await flow.synchronize()
    assert ran == []


async def test_a_timeout_around_the_scope_cancels_it() -> None:
    ran: list[int] = []
    async with VirtualMachine(cpu_worker="always"):
        with gate(), pytest.raises(TimeoutError) as caught:
            async with asyncio.timeout(0.01), flow.scope() as scope:
                await call(lambda: ran.append(1))
        assert not isinstance(caught.value, flow.DeadlineExceeded)
        assert scope.cancelled()
        await flow.synchronize()
    assert ran == []


async def test_an_error_in_a_task_group_cancels_the_scopes_of_the_others() -> None:
    ran: list[int] = []
    async with VirtualMachine(cpu_worker="always"):
        with gate() as closed:

            async def handle() -> None:
                async with flow.scope():
                    await call(lambda: ran.append(1))

            async def break_off() -> None:
                await closed.reached()
                raise ValueError("on purpose")

            async def both() -> None:
                async with asyncio.TaskGroup() as group:
                    group.create_task(handle())
                    group.create_task(break_off())

            with pytest.raises(ExceptionGroup) as caught:
                await both()
            assert caught.group_contains(ValueError, match="on purpose")
        await flow.synchronize()
    assert ran == []


async def test_a_cancelled_decorated_coroutine_cancels_its_scope() -> None:
    ran: list[int] = []
    scopes: list[Scope | None] = []
    async with VirtualMachine(cpu_worker="always"):
        with gate() as closed:

            @flow.scope(name="handler")
            async def handle() -> None:
                scopes.append(flow.current_scope())
                await call(lambda: ran.append(1))

            task = asyncio.create_task(handle())
            await closed.reached()
            await turns()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        await flow.synchronize()
        assert scopes[0] is not None
        assert scopes[0].cancelled()
    assert ran == []


@pytest.mark.parametrize("worker", WHERE)
async def test_dropped_work_is_not_logged_and_its_memory_is_free(worker: str, caplog: pytest.LogCaptureFixture) -> None:
    async def handle() -> list[weakref.ref[Any]]:
        with flow.scope() as scope:
            parts = list(itertools.accumulate(range(50), lambda so_far, _: so_far + x, initial=x))[1:]
            scope.cancel()
            with pytest.raises(flow.Cancelled):
                await parts[-1]
            return [weak_storage(part) for part in parts]

    async with VirtualMachine(cpu_worker=worker, gather=1) as machine:
        x = await flow.ones(LARGE)
        await flow.synchronize()
        before = allocated(machine)
        with caplog.at_level(logging.DEBUG, "vmflow"):
            storages = await handle()
            await flow.synchronize()
            # Memory goes back by instructions, which are issued in a turn: perhaps behind the barrier above.
            await flow.synchronize()
        assert allocated(machine) == before
        assert [storage() for storage in storages] == [None] * 50
    assert caplog.records == []


async def test_a_scope_that_is_kept_keeps_no_awaited_tensors() -> None:
    async def handle() -> weakref.ref[Any]:
        y = call(lambda: 1.0)
        with pytest.raises(flow.Cancelled):
            await y
        return weak_storage(y)

    with flow.scope() as scope:
        scope.cancel()
        storage = await handle()
        await flow.synchronize()
        gc.collect()
        assert storage() is None


async def test_dropped_results_hold_no_memory() -> None:
    """An instruction that was launched on the worker before the scope was cancelled keeps its memory while it lives."""
    async with VirtualMachine(cpu_worker="always") as machine:
        x = await flow.ones(LARGE)
        await flow.synchronize()
        before = allocated(machine)
        with gate(cost=0) as closed, flow.scope() as scope:
            parts = [x + 1 for _ in range(20)]
            await closed.reached()
            await turns()
            assert allocated(machine) > before
            scope.cancel()
        with pytest.raises(flow.Cancelled):
            await parts[0]
        with pytest.raises(flow.Cancelled):
            await parts[-1]
        handed_over = allocated(machine)
        with flow.scope() as late:
            late.cancel()
            more = [x + 1 for _ in range(20)]
        await flow.synchronize()
        assert allocated(machine) == handed_over, "instructions dropped before their launch get no memory"
        del parts, more
        await flow.synchronize()
        assert allocated(machine) == before


def test_memory_of_a_tensor_in_a_reference_cycle_comes_back_once() -> None:
    """The canceller gets an exception whose traceback refers to tensors, which refer to it; hence it matters here."""

    class Node:
        """Refers to itself and to a tensor."""

    machine = VirtualMachine(cpu_worker="never", gather=1000)
    allocator = machine.memory.allocator(flow.device("cpu"))
    with entered(machine):
        node: Any = Node()
        node.itself = node
        node.tensor = call(lambda: 1.0, shape=(LARGE,))
        flow.synchronize()
        pending = call(lambda: 1.0)  # with nothing going on, nothing is noted for later
        del node
        gc.collect()
        flow.synchronize()
        allocator.check_invariants()
        first, second = (call(lambda value=value: value, shape=(LARGE,)) for value in (1.0, 2.0))
        flow.synchronize()
        assert [first[0].item(), second[0].item(), pending.item()] == [1.0, 2.0, 1.0]
        allocator.check_invariants()


@pytest.mark.slow
@pytest.mark.parametrize("worker", WHERE)
async def test_two_hundred_forwards_cancelled_at_random_points(worker: str) -> None:
    """No more than the op that was running is run after the scope has ended, and all memory comes back."""
    generator = random.Random(0)
    forwards, length, shape = 200, 200, (LARGE,)
    ended_early = 0
    # With a budget in which no forward can be finished, the loop gets to the cancelling in the middle.
    async with VirtualMachine(cpu_worker=worker, turn_budget=1e-4) as machine:
        loop = asyncio.get_running_loop()
        x = await flow.ones(*shape)
        await flow.synchronize()
        before = allocated(machine)

        async def forward(stop_at: int, stays: bool) -> bool:
            """Whether it was cancelled before its end; `stays` lets the op at which that happens last longer."""
            begun = 0
            begun_by_then: list[int] = []
            cancelled = threading.Event()

            def cancel() -> None:
                scope.cancel()
                begun_by_then.append(begun)
                cancelled.set()

            def count(value: Any) -> None:
                nonlocal begun
                begun += 1
                if begun == stop_at:
                    loop.call_soon_threadsafe(cancel)
                    assert not stays or cancelled.wait(PATIENCE)

            with flow.scope() as scope:
                y = x
                for _ in range(length):
                    y = call(count, y, shape=shape)
            if stop_at == 0:
                cancel()
            dropped = False
            try:
                await y
            except flow.Cancelled:
                dropped = True
            await flow.synchronize()
            await asyncio.to_thread(cancelled.wait, PATIENCE)
            assert begun - begun_by_then[0] <= (worker == "always")
            return dropped

        for _ in range(forwards):
            stays = worker == "always" and generator.random() < 0.6
            ended_early += await forward(generator.randrange(length), stays)
        await flow.synchronize()
        assert allocated(machine) == before
        assert machine.engine.idle()
    assert ended_early > forwards // 2


@pytest.mark.parametrize("mode", ["lazy", "eager", "random:3"])
async def test_on_a_simulated_device(mode: str) -> None:
    """Work that the device has not begun is dropped, although it was launched long ago."""
    from vmflow.vm import stream_table

    ran: list[int] = []
    async with VirtualMachine():
        device = f"sim:{ {'lazy': 1, 'eager': 2, 'random:3': 3}[mode] }"
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("VMFLOW_SIM", mode)
            stream_table.simulated_device(flow.device(device))
        x = await flow.ones(4, device=device)
        with flow.scope() as scope:
            first = await call(ran.append, x, shape=(4,), device=device) if mode == "eager" else None
            parts = [call(lambda value: value + 1, x, shape=(4,), device=device) for _ in range(20)]
            scope.cancel()
            total = sum(parts, x)
        results = await asyncio.gather(*parts, total, return_exceptions=True)
        assert all(isinstance(result, flow.Cancelled) for result in results)
        assert (first is None) == (ran == [])
        assert (await (x + 1).to("cpu")).tolist() == [2.0] * 4


# Deadlines


@pytest.mark.parametrize("worker", WHERE)
async def test_a_deadline_that_has_passed_lets_nothing_begin(worker: str) -> None:
    ran: list[int] = []
    async with VirtualMachine(cpu_worker=worker):
        for options in ({"timeout": 0}, {"timeout": -5.0}, {"deadline": time.monotonic() - 1}):
            async with flow.scope(**options, name="late") as scope:
                assert scope.cancelled()
                assert scope.remaining() == 0
                y = call(lambda: ran.append(1))
                with pytest.raises(flow.DeadlineExceeded, match="the deadline of scope 'late' has passed"):
                    await y
            with pytest.raises(flow.DeadlineExceeded):
                await (y + 1)
        await flow.synchronize()
    assert ran == []


async def test_a_deadline_passes_while_the_device_is_busy() -> None:
    ran: list[int] = []
    async with VirtualMachine(cpu_worker="always"):
        with gate() as closed:
            async with flow.scope(timeout=0.02) as scope:
                y = call(lambda: ran.append(1)) + 1
                with pytest.raises(flow.DeadlineExceeded):
                    await y
                assert scope.deadline is not None
                assert time.monotonic() >= scope.deadline
                assert closed.begun.is_set()
                assert not closed.opened.is_set()
        with pytest.raises(flow.DeadlineExceeded):
            await (y + 1)
        await flow.synchronize()
    assert ran == []


async def test_many_deadlines_pass_in_their_order() -> None:
    async with VirtualMachine(cpu_worker="always"):
        order: list[int] = []
        with gate() as closed:

            async def handle(number: int) -> None:
                async with flow.scope(timeout=0.02 + 0.005 * number):
                    with pytest.raises(flow.DeadlineExceeded):
                        await call(lambda: 1.0)
                    order.append(number)

            await asyncio.gather(*[handle(number) for number in (3, 1, 0, 2)])
            assert not closed.opened.is_set()
        assert order == [0, 1, 2, 3]


async def test_an_inner_deadline_cannot_outlast_the_outer() -> None:
    async with VirtualMachine(cpu_worker="always"):
        with gate() as closed:
            async with flow.scope(timeout=0.02) as outer, flow.scope(timeout=1000):
                with pytest.raises(flow.DeadlineExceeded):
                    await call(lambda: 1.0)
                assert outer.cancelled()
            assert not closed.opened.is_set()


async def test_the_deadline_of_an_inner_scope_ends_it_alone() -> None:
    async with VirtualMachine(cpu_worker="always"):
        with gate() as closed, flow.scope(timeout=1000):
            y = call(lambda: 2.0)
            with flow.scope(timeout=0.01), pytest.raises(flow.DeadlineExceeded):
                await call(lambda: 1.0)
            closed.open()
            assert await awaited(y) == [2.0]


async def test_results_from_before_the_deadline_stay_good() -> None:
    async with VirtualMachine(cpu_worker="always"):
        async with flow.scope(timeout=0.1) as scope:
            y = await (flow.ones(3) + 1)
            with gate():
                late = y + 1
                with pytest.raises(flow.DeadlineExceeded):
                    await late
        assert scope.cancelled()
        assert (await y).tolist() == [2.0] * 3
        assert await awaited(y * 2) == [4.0] * 3


async def test_an_instruction_that_runs_when_the_deadline_passes_keeps_its_result() -> None:
    async with VirtualMachine(cpu_worker="always"):
        with flow.scope(timeout=0.05), gate() as closed:
            await closed.reached()
            with pytest.raises(flow.DeadlineExceeded):
                await (closed.tensor + 1)
        await flow.synchronize()
        assert await awaited(closed.tensor) == [1.0]


def test_a_thread_without_a_loop_raises_at_the_deadline() -> None:
    with held(eager()) as closed:
        with flow.scope(timeout=0.02):
            y = call(lambda: 1.0)
        with pytest.raises(flow.DeadlineExceeded):
            y.item()
        assert not closed.opened.is_set()


def test_a_thread_raises_at_the_deadline_although_another_one_computes_inline() -> None:
    """The other thread drives, and runs the kernel that this one is queued behind."""
    with entered(VirtualMachine(cpu_worker="never", gather=1)) as machine:
        busy, open_it = threading.Event(), threading.Event()

        def hold() -> None:
            busy.set()
            assert open_it.wait(PATIENCE)

        def drive() -> None:
            MODE.set(MODE.get().replace(machine=machine))
            call(hold).item()

        driver = threading.Thread(target=drive)
        driver.start()
        try:
            assert busy.wait(PATIENCE)
            with flow.scope(timeout=0.02):
                y = call(lambda: 1.0)
            with pytest.raises(flow.DeadlineExceeded):
                y.item()
        finally:
            open_it.set()
            driver.join(PATIENCE)
        with pytest.raises(flow.DeadlineExceeded):
            y.item()


# Never torn


class Countdown:
    """A tracer that cancels a scope when so many instructions have had their turn."""

    def __init__(self, scope: Scope, count: int) -> None:
        self.scope = scope
        self.left = count
        self.seen = 0

    def began(self, instruction: Any) -> None:
        """Count."""
        self.seen += 1
        if self.left == 0:
            self.scope.cancel()
        self.left -= 1

    def _ignore(self, *anything: Any) -> None:
        """Nothing else matters."""

    issued = ended = finished = computed = abandoned = awaited = resumed = _ignore


Make = Callable[[nn.Module], optim.Optimizer]
Arrays = list[np.ndarray[Any, Any]]


def two_groups(kind: Any, model: nn.Module, **options: Any) -> optim.Optimizer:
    parameters = list(model.parameters())
    groups = [{"params": parameters[:2]}, {"params": parameters[2:], "lr": 0.03}]
    made: optim.Optimizer = kind(groups, lr=0.1, **options)
    return made


OPTIMIZERS: dict[str, Make] = {
    "SGD": lambda model: optim.SGD(model.parameters(), lr=0.1, momentum=0.9),
    "SGD, two groups": partial(two_groups, optim.SGD, momentum=0.9, nesterov=True),
    "Adam": lambda model: optim.Adam(model.parameters(), lr=0.1),
    "AdamW, two groups": partial(two_groups, optim.AdamW, amsgrad=True),
}


class Training:
    """A small network with batch norm, its optimizer, and steps that are always the same."""

    def __init__(self, make: Make, steps_before: int, set_to_none: bool = True) -> None:
        flow.manual_seed(1)
        self.model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 2))
        self.optimizer = make(self.model)
        self.input, self.target = flow.randn(5, 4), flow.randn(5, 2)
        self.set_to_none = set_to_none
        for _ in range(steps_before):
            self.step()
        flow.synchronize()

    def step(self) -> None:
        self.optimizer.zero_grad(set_to_none=self.set_to_none)
        self.loss().backward()
        self.optimizer.step()

    def loss(self) -> flow.Tensor:
        return nn.functional.mse_loss(self.model(self.input), self.target)

    def cancelled_step(self, count: int) -> bool:
        """A step whose scope is cancelled after so many instructions; whether there were so many."""
        machine = current_machine()
        with flow.scope() as scope:
            machine.tracer = countdown = Countdown(scope, count)
            try:
                self.step()
                flow.synchronize()
            finally:
                machine.tracer = None
        return scope.cancelled() and countdown.seen > count

    def learned(self) -> Arrays:
        """Parameters and the optimizer's state; a state that does not exist yet is as good as zeros."""
        arrays = [value.detach().numpy().copy() for value in self.model.parameters()]
        for parameter in self.model.parameters():
            remembered = self.optimizer.state[parameter]
            for name in ("momentum_buffer", "step", "exp_avg", "exp_avg_sq", "max_exp_avg_sq"):
                found = remembered.get(name)
                arrays.append(np.zeros(1) if found is None else found.detach().numpy().copy())
        return arrays

    def statistics(self) -> Arrays:
        return [buffer.numpy().copy() for buffer in self.model.buffers()]


def same(first: Arrays, second: Arrays) -> bool:
    return all([(have == want).all() for have, want in zip(first, second, strict=True)])


@pytest.mark.parametrize(
    "set_to_none",
    [
        True,
        False,
    ],
)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_training_step_is_never_torn(name: str, set_to_none: bool) -> None:
    check_never_torn(name, 2, set_to_none)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_very_first_step_is_never_torn(name: str) -> None:
    check_never_torn(name, 0, True)


async def test_parameters_can_be_read_at_any_time_after_a_dropped_step() -> None:
    async with VirtualMachine(cpu_worker="always"):
        parameter = flow.nn.Parameter(flow.ones(3))
        optimizer = flow.optim.SGD([parameter], 0.5)
        parameter.sum().backward()
        await parameter
        with gate() as held:
            with flow.scope(timeout=0):
                optimizer.step()
            reading = asyncio.ensure_future(values(parameter))
            await asyncio.sleep(0)
            assert not reading.done()
            held.open()
            assert await reading == [1.0] * 3


async def values(tensor: flow.Tensor) -> list[float]:
    found: list[float] = (await tensor).tolist()
    return found


def check_never_torn(name: str, steps_before: int, set_to_none: bool) -> None:
    """Whichever instruction it is cancelled before: parameters and state are as before it, or as after it."""
    make = partial(Training, OPTIMIZERS[name], steps_before, set_to_none)
    with entered(VirtualMachine(cpu_worker="never", gather=10_000)):
        training = make()
        before = training.learned()
        training.step()
        after = training.learned()
        training.step()
        assert not same(before, after)
        outcomes: list[str] = []
        for count in itertools.count():
            training = make()
            if not training.cancelled_step(count):
                break
            found = training.learned()
            outcomes.append("before" if same(found, before) else "after" if same(found, after) else "torn")
        assert "torn" not in outcomes
        assert outcomes == sorted(outcomes, reverse=True)
        assert outcomes[0] == "before"
        assert outcomes[-1] == "after"
        assert len(outcomes) > 15


def test_gradients_added_to_earlier_ones_make_no_half_step() -> None:
    """Two halves of a batch; the scope of the second, with the step, is cancelled before it has begun."""
    with entered(VirtualMachine(cpu_worker="never", gather=10_000)):
        training = Training(OPTIMIZERS["SGD"], 1)
        before = training.learned()
        training.optimizer.zero_grad()
        training.loss().backward()
        flow.synchronize()
        with flow.scope() as scope:
            training.loss().backward()
            training.optimizer.step()
            scope.cancel()
        flow.synchronize()
        assert same(training.learned(), before)


@pytest.mark.parametrize(
    "name",
    [
        *OPTIMIZERS,
        "SGD, dampened",
    ],
)
def test_the_step_after_a_cancelled_one_goes_as_if_that_had_not_been(name: str) -> None:
    make = OPTIMIZERS.get(name) or partial(two_groups, optim.SGD, momentum=0.9, dampening=0.5)
    with entered(VirtualMachine(cpu_worker="never", gather=10_000)):
        for steps_before in (0, 2):
            training = Training(make, steps_before)
            training.step()
            want = training.learned()
            for count in (0, 3, 10):
                training = Training(make, steps_before)
                untouched = training.learned()
                assert training.cancelled_step(count)
                assert same(training.learned(), untouched)
                training.step()
                assert same(training.learned(), want)


def test_gradients_that_were_dropped_can_be_set_to_zero() -> None:
    with entered(VirtualMachine(cpu_worker="never", gather=10_000)):
        training = Training(OPTIMIZERS["SGD"], 2, set_to_none=False)
        training.step()
        want = training.learned()
        training = Training(OPTIMIZERS["SGD"], 2, set_to_none=False)
        training.optimizer.zero_grad()  # there are none now
        assert training.cancelled_step(0)
        training.step()
        assert same(training.learned(), want)


@pytest.mark.parametrize("together", [False, True])
def test_running_statistics_are_never_without_a_value(together: bool) -> None:
    """Each is as before the step or as after it; `together`: all of them."""
    with entered(VirtualMachine(cpu_worker="never", gather=10_000)):
        make = partial(Training, OPTIMIZERS["SGD"], 1)
        training = make()
        before = training.statistics()
        training.step()
        after = training.statistics()
        for count in itertools.count():
            training = make()
            if not training.cancelled_step(count):
                break
            found = training.statistics()
            if together:
                assert same(found, before) or same(found, after)
            for have, old, new in zip(found, before, after, strict=True):
                assert (have == old).all() or (have == new).all()
            assert training.model.eval()(training.input).isfinite().all().item()


def test_running_statistics_survive_a_batch_that_was_dropped() -> None:
    """The batch was prepared in a scope, and the model is used outside of it."""
    with entered(VirtualMachine(gather=1000)):
        norm = nn.BatchNorm1d(3)
        norm(flow.randn(4, 3))
        before = norm.running_mean.numpy().copy(), norm.running_var.numpy().copy()
        with flow.scope() as scope:
            batch = flow.randn(4, 3) + 1
            scope.cancel()
        with pytest.raises(flow.Cancelled):
            norm(batch).detach().numpy()
        assert (norm.running_mean.numpy() == before[0]).all()
        assert (norm.running_var.numpy() == before[1]).all()
        norm.eval()
        assert norm(flow.randn(4, 3)).isfinite().all().item()


def test_a_tensor_changed_in_place_by_a_dropped_op_has_no_value() -> None:
    """Half of the changes would be worse, for nobody could see it; an op that has begun is not undone."""
    x, y, z = flow.ones(3), flow.ones(3), flow.ones(3)
    with flow.scope() as scope:
        x.add_(1)
        flow.synchronize()
        scope.cancel()
        y.mul_(100)
        z[1:] = 5
    assert x.tolist() == [2.0] * 3
    for spoiled in (y, z, x + y):
        with pytest.raises(flow.Cancelled):
            spoiled.tolist()
    y.fill_(7)
    assert y.tolist() == [7.0] * 3


def test_a_reason_of_ones_own_tears_nothing() -> None:
    training = Training(OPTIMIZERS["SGD"], 1)
    before = training.learned()
    training.optimizer.zero_grad()
    with flow.scope() as scope:
        scope.cancel(ConnectionResetError("the client has gone"))
        training.loss().backward()
    training.optimizer.step()
    assert same(training.learned(), before)
    training.step()
    assert not same(training.learned(), before)


# Instructions that others wait for


def test_the_callback_of_a_barrier_is_called_all_the_same() -> None:
    called: list[int] = []
    with entered(VirtualMachine(cpu_worker="never")) as machine:
        with flow.scope() as scope:
            scope.cancel()
            physical_run(machine, lambda builder: builder.barrier(lambda: called.append(1)))
        machine.drain()
    assert called == [1]
