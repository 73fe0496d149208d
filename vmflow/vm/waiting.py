"""Waiting for an instruction: a thread that waits drives, a coroutine is suspended."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable
from typing import TYPE_CHECKING, Any

from vmflow.instructions.instruction import DONE, ERASED, Instruction
from vmflow.instructions.scope import Scope, scope_of
from vmflow.streams import Stream

from .stall_watch import StallWatch
from .wakers import FutureWaker, ThreadWaker, running_loop

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

    from .virtual_machine import VirtualMachine


class Waiters:
    """The threads and coroutines that wait for instructions of one machine.

    Args:
        machine: whose.

    Attributes:
        watch: says so when nothing ends for a long time.
    """

    def __init__(self, machine: VirtualMachine) -> None:
        self._machine = machine
        self._by_instruction: dict[Instruction, list[ThreadWaker | FutureWaker]] = {}
        self.watch = StallWatch(machine)

    def forget(self) -> None:
        """In a forked child: none of them is here."""
        self._by_instruction.clear()

    def count(self) -> int:
        """How many instructions somebody waits for."""
        return len(self._by_instruction)

    def settle(self, erased: Iterable[Instruction]) -> None:
        """Wake all that wait for these, which have ended."""
        waiters = self._by_instruction
        if not waiters:
            return
        for instruction in erased:
            # A copy, for one of them may give up meanwhile, and must not hide the next.
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
        scope = scope_of(instruction)
        waker = ThreadWaker()
        self._by_instruction.setdefault(instruction, []).append(waker)
        if scope is not None:
            scope.enlist(waker)
        try:
            while instruction.state != ERASED:
                self._raise_if_given_up(instruction, scope)
                patience = scope.remaining() if scope is not None and instruction.state < DONE else None
                if machine.handover.sources() and any([linked.driver.inside() for linked in _linked(machine)]):
                    raise _cannot_wait(instruction)
                self.advance(instruction, waker, instruction.stream, lambda: instruction.state == ERASED, patience)
        finally:
            if scope is not None:
                scope.dismiss(waker)
            self._forget_waiter(instruction, waker)
            machine.driver.pass_on()

    def wait_until(self, instruction: Instruction, deadline: float) -> None:
        """Block until `instruction` is erased, driving meanwhile, or until a moment of `time.perf_counter`."""
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
        """Raise if it will not be waited for any longer: its scope has ended, or the machine has, without it."""
        machine = self._machine
        if scope is not None and instruction.state < DONE:
            dropped = scope.dropped()
            if dropped is not None:
                dropped.throw()
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
        """Drive if there is something to do, else sleep until there is; then return to be called again.

        Args:
            until: no need to drive further than this.
            stream: where the awaited work runs, if anywhere.
            done: whether it is over; looked at before sleeping.
            patience: seconds to sleep at most.
            deadline: the moment of `time.perf_counter` up to which to drive, 0 for as long as it takes.
        """
        machine = self._machine
        if machine.handover.sources():
            self._advance_together(waker, done, patience)
            return
        if not machine.driver.drive(until, deadline):
            machine.driver.enlist(waker)
            # Unless the driver has just stopped, it or its successor will wake this thread.
            if machine.driver.turn_lock.locked() and not done():
                self.watch.sleep(waker, patience)
            return
        if done():
            return
        flight = machine.completion.first(stream)
        if flight is not None and flight.event is not None:
            flight.event.synchronize()
            return
        machine.driver.enlist(waker)
        if not machine.driver.can_go_on() and not done():
            self.watch.sleep(waker, patience)

    def _advance_together(self, waker: ThreadWaker, done: Callable[[], bool], patience: float | None) -> None:
        """The same for this machine and all those that it waits for: nobody else may be driving them."""
        machines = _linked(self._machine)
        for each in machines:
            each.driver.drive()
        if done():
            return
        for each in machines:
            flight = each.completion.first(each.control_stream())
            if flight is not None and flight.event is not None:
                flight.event.synchronize()
                return
        for each in machines:
            each.driver.enlist(waker)
        # The holder of a lock wakes the enlisted when it lets go and something is left to do.
        if not done() and not any(
            [machine.driver.can_go_on() and not machine.driver.turn_lock.locked() for machine in machines]
        ):
            self.watch.sleep(waker, patience)

    def _forget_waiter(self, instruction: Instruction, waker: ThreadWaker | FutureWaker) -> None:
        """It does not wait any more, whether or not it was woken."""
        waiting = self._by_instruction.get(instruction)
        if waiting is not None and waker in waiting:
            waiting.remove(waker)
            if not waiting:
                self._by_instruction.pop(instruction, None)

    def wait_async(self, instruction: Instruction) -> Generator[Any, None, None]:
        """See `VirtualMachine.wait_async`."""
        machine = self._machine
        loop = running_loop()
        if loop is None:
            raise RuntimeError("awaiting needs a running asyncio event loop; in plain code use .numpy() or .item()")
        tracer = machine.tracer
        waited = tracer.awaited(instruction) if tracer is not None else None
        scope = scope_of(instruction)
        try:
            while instruction.state != ERASED:
                self._raise_if_given_up(instruction, scope)
                # Once it has run, nothing but its end is of interest.
                yield from self._suspend(loop, instruction, scope if instruction.state < DONE else None)
            if machine.back_pressure.above(1.0):
                yield from machine.checkpoint().__await__()
        finally:
            if tracer is not None:
                tracer.resumed(waited)

    def _suspend(
        self, loop: AbstractEventLoop, instruction: Instruction, scope: Scope | None
    ) -> Generator[Any, None, None]:
        """Suspend until `instruction` is erased, or its scope is."""
        waker = FutureWaker(loop, loop.create_future())
        self._by_instruction.setdefault(instruction, []).append(waker)
        if instruction.state == ERASED:
            # It ended while the waiter was being entered; nobody will look at this list again.
            self._by_instruction.pop(instruction, None)
            return
        timer = None
        if scope is not None:
            scope.enlist(waker)
            remaining = scope.remaining()
            if remaining is not None:
                timer = loop.call_later(remaining, waker.wake)
            if scope.cancelled():
                waker.wake()  # perhaps it was cancelled before the waker was enlisted
        self._machine.loops.arm(loop)
        try:
            yield from waker.future
        finally:
            if scope is not None:
                scope.dismiss(waker)
            if timer is not None:
                timer.cancel()
            if instruction.state != ERASED:
                self._forget_waiter(instruction, waker)


def _cannot_wait(instruction: Instruction) -> RuntimeError:
    return RuntimeError(
        f"{instruction!r} cannot be waited for in the middle of what computes it, by a callback, or by a signal "
        "handler or destructor that has interrupted it: return first.  There, read only what was computed before, or "
        "compute with that"
    )


def _linked(machine: VirtualMachine) -> list[VirtualMachine]:
    """This machine, and those with a departure that has not run, for this one or for another of them."""
    found: list[VirtualMachine] = []
    left = [machine]
    while left:
        each = left.pop()
        if each in found:
            continue
        found.append(each)
        left += each.handover.sources()
    return found


class Checkpoint:
    """Awaitable that lets the loop go on, and lasts while its machine has too much to do."""

    __slots__ = ("_machine",)

    def __init__(self, machine: VirtualMachine) -> None:
        self._machine = machine

    def __await__(self) -> Generator[Any, None, None]:
        yield  # as asyncio.sleep(0) does: the task is put behind all that are ready to run
        yield from self._machine.back_pressure.await_low_water()


class Synchronization:
    """Awaitable end of a `synchronize`."""

    __slots__ = ("_instruction", "_machine")

    def __init__(self, machine: VirtualMachine, instruction: Instruction) -> None:
        self._machine = machine
        self._instruction = instruction

    def __await__(self) -> Generator[Any, None, None]:
        return self._machine.waiters.wait_async(self._instruction)
