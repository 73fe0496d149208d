"""`Waiters`: lets threads wait for instructions, running the machine's turns meanwhile, and suspends coroutines."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable
from typing import TYPE_CHECKING, Any

from vmflow.instructions.instruction import DONE, ERASED, Instruction
from vmflow.instructions.scope import Scope, scope_of
from vmflow.streams import Stream

from .failing import dropped_failure_of
from .stall_watch import StallWatch
from .wakers import FutureWaker, ThreadWaker, running_loop

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

    from .virtual_machine import VirtualMachine


class Waiters:
    """The threads and coroutines that wait for instructions of one machine.

    Attributes:
        watch: logs a warning when no instruction ends for a long time.
    """

    def __init__(self, machine: VirtualMachine) -> None:
        self._machine = machine
        self._by_instruction: dict[Instruction, list[ThreadWaker | FutureWaker]] = {}
        self.watch = StallWatch(machine)

    def forget(self) -> None:
        """Forget all waiters in a forked child, where their threads and coroutines do not run."""
        self._by_instruction.clear()

    def count(self) -> int:
        """Return the number of instructions that a thread or coroutine waits for."""
        return len([waiters for waiters in list(self._by_instruction.values()) if waiters])

    def settle(self, erased: Iterable[Instruction]) -> None:
        """Wake the threads and coroutines that wait for one of these instructions, which have ended."""
        waiters = self._by_instruction
        if not waiters:
            return
        for instruction in erased:
            # The list is copied, since a waiter may remove itself meanwhile, and this loop would skip the next one.
            for waiter in list(waiters.pop(instruction, ())):
                waiter.wake()

    def wait(self, instruction: Instruction) -> None:
        """See `VirtualMachine.wait`."""
        tracer = self._machine.tracer
        if tracer is None:
            self._wait(instruction)
            return
        waited = tracer.awaited(instruction)
        try:
            self._wait(instruction)
        finally:
            tracer.resumed(waited)

    def _wait(self, instruction: Instruction) -> None:
        machine = self._machine
        if instruction.state == ERASED or (machine.driver.drive(instruction) and instruction.state == ERASED):
            return
        if machine.driver.inside():
            raise _cannot_wait(instruction)
        scope = _scope_that_drops(instruction)
        waker = ThreadWaker()
        self._by_instruction.setdefault(instruction, []).append(waker)
        if scope is not None:
            scope.add_waker(waker)
        try:
            while instruction.state != ERASED:
                self._raise_if_given_up(instruction, scope)
                patience = scope.remaining() if scope is not None and instruction.state < DONE else None
                if machine.handover.sources() and any([linked.driver.inside() for linked in _linked(machine)]):
                    raise _cannot_wait(instruction)
                self.advance(instruction, waker, instruction.stream, lambda: instruction.state == ERASED, patience)
        finally:
            if scope is not None:
                scope.remove_waker(waker)
            self._forget_waiter(instruction, waker)
            machine.driver.pass_on()

    def wait_until(self, instruction: Instruction, deadline: float) -> None:
        """Block until `instruction` has ended, or about until `deadline`, a time of `time.perf_counter`.

        This thread may run turns of the machine, or wait for a device, meanwhile; either may last beyond the deadline.
        """
        waker = ThreadWaker()
        self._by_instruction.setdefault(instruction, []).append(waker)
        try:
            while instruction.state != ERASED:
                patience = deadline - time.perf_counter()
                if patience <= 0:
                    return
                self.advance(
                    instruction,
                    waker,
                    instruction.stream,
                    lambda: instruction.state == ERASED,
                    patience,
                    deadline,
                )
        finally:
            self._forget_waiter(instruction, waker)
            self._machine.driver.pass_on()

    def _raise_if_given_up(self, instruction: Instruction, scope: Scope | None) -> None:
        """Raise an error if `scope` ended before the instruction has run, or the machine was aborted before its end."""
        machine = self._machine
        if scope is not None and instruction.state < DONE:
            dropped = scope.dropped()
            if dropped is not None:
                dropped_failure_of(instruction, dropped).throw()
        if machine.state == "aborted" and instruction.state != ERASED:
            machine.lifecycle.closed_failure().throw()

    def advance(
        self,
        until: Instruction | None,
        waker: ThreadWaker,
        stream: Stream,
        done: Callable[[], bool],
        patience: float | None = None,
        deadline: float = 0.0,
    ) -> None:
        """Run turns, then wait for a device or sleep if there is nothing to do; callers repeat it until `done()`.

        Args:
            until: an instruction after whose end no further turns need be run; or None.
            waker: wakes this thread.
            stream: the stream whose work on a device is waited for first.
            done: whether the wait is over; called before sleeping.
            patience: the longest sleep in seconds, besides waits for devices; None for no limit.
            deadline: the time of `time.perf_counter` up to which to run turns, 0 for as long as it takes.
        """
        machine = self._machine
        if machine.handover.sources():
            self._advance_together(waker, done, patience)
            return
        if not machine.driver.drive(until, deadline):
            machine.driver.add_waker(waker)
            # The thread that runs turns now, or its successor, will wake this thread, unless it has just released the
            # lock.
            if machine.driver.turn_lock.locked() and not done():
                self.watch.sleep(waker, patience)
            return
        if done():
            return
        work = machine.completion.first(stream)
        if work is not None and work.event is not None:
            work.event.synchronize()
            return
        machine.driver.add_waker(waker)
        if not machine.driver.can_go_on() and not done():
            self.watch.sleep(waker, patience)

    def _advance_together(self, waker: ThreadWaker, done: Callable[[], bool], patience: float | None) -> None:
        """Do as `advance` for this machine and all that it waits for, as perhaps no other thread runs their turns."""
        machines = _linked(self._machine)
        for machine in machines:
            machine.driver.drive()
        if done():
            return
        for machine in machines:
            work = machine.completion.first(machine.control_stream())
            if work is not None and work.event is not None:
                work.event.synchronize()
                return
        for machine in machines:
            machine.driver.add_waker(waker)
        # If another thread has a turn lock, it wakes the wakers when it releases the lock and something is left to do.
        if not done() and not any(
            [machine.driver.can_go_on() and not machine.driver.turn_lock.locked() for machine in machines]
        ):
            self.watch.sleep(waker, patience)

    def _forget_waiter(self, instruction: Instruction, waker: ThreadWaker | FutureWaker) -> None:
        """Forget one waker of an instruction, whether or not it was woken."""
        waiting = self._by_instruction.get(instruction)
        if waiting is not None and waker in waiting:
            waiting.remove(waker)
            # Before the end of the instruction an empty list stays, since another thread may be about to add its waker
            # to it, and would then sleep for ever.  After the end, such a thread looks at the state and does not sleep.
            if instruction.state == ERASED and not waiting:
                self._by_instruction.pop(instruction, None)

    def wait_async(self, instruction: Instruction) -> Generator[Any, None, None]:
        """See `VirtualMachine.wait_async`."""
        machine = self._machine
        loop = running_loop()
        if loop is None:
            raise RuntimeError("awaiting needs a running asyncio event loop; in plain code use .numpy() or .item()")
        tracer = machine.tracer
        waited = tracer.awaited(instruction) if tracer is not None else None
        scope = _scope_that_drops(instruction)
        try:
            while instruction.state != ERASED:
                self._raise_if_given_up(instruction, scope)
                # Once the instruction has run, a cancelled scope cannot drop it, so that the wait goes on.
                yield from self._suspend(loop, instruction, scope if instruction.state < DONE else None)
            if machine.back_pressure.above(1.0):
                yield from machine.checkpoint().__await__()
        finally:
            if tracer is not None:
                tracer.resumed(waited)

    def _suspend(
        self, loop: AbstractEventLoop, instruction: Instruction, scope: Scope | None
    ) -> Generator[Any, None, None]:
        """Suspend the coroutine until `instruction` has ended, or `scope`, if any, was cancelled or has expired."""
        waker = FutureWaker(loop, loop.create_future())
        self._by_instruction.setdefault(instruction, []).append(waker)
        if instruction.state == ERASED:
            # The instruction ended while the waker was being added, so that perhaps nobody would wake it.
            self._forget_waiter(instruction, waker)
            return
        timer = None
        if scope is not None:
            scope.add_waker(waker)
            remaining = scope.remaining()
            if remaining is not None:
                timer = loop.call_later(remaining, waker.wake)
            if scope.cancelled():
                waker.wake()  # the scope may have been cancelled before the waker was added
        self._machine.loops.arm(loop)
        try:
            yield from waker.future
        finally:
            if scope is not None:
                scope.remove_waker(waker)
            if timer is not None:
                timer.cancel()
            self._forget_waiter(instruction, waker)


def _scope_that_drops(instruction: Instruction) -> Scope | None:
    """Return the scope whose end ends waits for the instruction; None without one, or if the policy `keeps_outputs`."""
    policy = instruction.policy
    return None if policy is not None and policy.keeps_outputs else scope_of(instruction)


def _cannot_wait(instruction: Instruction) -> RuntimeError:
    return RuntimeError(
        f"{instruction!r} cannot be waited for by code that runs in the middle of it or of an earlier instruction, "
        "such as a callback, signal handler or destructor: return first.  Such code may only read, and compute with, "
        "results that were computed before"
    )


def _linked(machine: VirtualMachine) -> list[VirtualMachine]:
    """Return this machine, and all machines from which it is taking over storages, directly or indirectly."""
    linked: list[VirtualMachine] = []
    left = [machine]
    while left:
        other = left.pop()
        if other in linked:
            continue
        linked.append(other)
        left += other.handover.sources()
    return linked


class Checkpoint:
    """An awaitable that lets the event loop run once; at a high-water mark it waits until half of each mark is free."""

    __slots__ = ("_machine",)

    def __init__(self, machine: VirtualMachine) -> None:
        self._machine = machine

    def __await__(self) -> Generator[Any, None, None]:
        yield  # as in asyncio.sleep(0): the task is put behind all tasks that are ready to run
        yield from self._machine.back_pressure.await_low_water()


class Synchronization:
    """An awaitable that waits for one instruction, such as the barrier that `synchronize` has issued."""

    __slots__ = ("_instruction", "_machine")

    def __init__(self, machine: VirtualMachine, instruction: Instruction) -> None:
        self._machine = machine
        self._instruction = instruction

    def __await__(self) -> Generator[Any, None, None]:
        return self._machine.waiters.wait_async(self._instruction)
