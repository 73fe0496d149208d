"""Waiting for an instruction, or for room: a thread that waits drives, a coroutine is suspended."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Generator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from vmflow.errors import BackPressureWarning
from vmflow.instructions import origin
from vmflow.instructions.instruction import DONE, ERASED, Instruction
from vmflow.instructions.scope import Scope, scope_of
from vmflow.streams import Stream

from . import loops
from .wakers import FutureWaker, ThreadWaker, running_loop

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

    from .virtual_machine import VirtualMachine


def wait(machine: VirtualMachine, instruction: Instruction) -> None:
    """See `VirtualMachine.wait`."""
    tracer = machine._tracer
    if tracer is None:
        _wait(machine, instruction)
        return
    waited = tracer.awaited(instruction)
    try:
        _wait(machine, instruction)
    finally:
        tracer.resumed(waited)


def _wait(machine: VirtualMachine, instruction: Instruction) -> None:
    if instruction.state == ERASED or (machine._drive(instruction) and instruction.state == ERASED):
        return
    if machine._inside():
        raise _cannot_wait(instruction)
    scope = scope_of(instruction)
    waker = ThreadWaker()
    machine._waiters.setdefault(instruction, []).append(waker)
    if scope is not None:
        scope.enlist(waker)
    try:
        while instruction.state != ERASED:
            _raise_if_given_up(machine, instruction, scope)
            patience = scope.remaining() if scope is not None and instruction.state < DONE else None
            if machine._departures and any([it._inside() for it in _linked(machine)]):
                raise _cannot_wait(instruction)
            _advance(machine, instruction, waker, instruction.stream, lambda: instruction.state == ERASED, patience)
    finally:
        if scope is not None:
            scope.dismiss(waker)
        _forget_waiter(machine, instruction, waker)
        machine._pass_on()


def _cannot_wait(instruction: Instruction) -> RuntimeError:
    return RuntimeError(
        f"{instruction!r} cannot be waited for in the middle of what computes it, by a callback, or by a signal "
        "handler or destructor that has interrupted it: return first.  There, read only what was computed before, or "
        "compute with that"
    )


def wait_until(machine: VirtualMachine, instruction: Instruction, deadline: float) -> None:
    """Block until `instruction` is erased, driving meanwhile, or until a moment of `time.perf_counter`."""
    waker = ThreadWaker()
    machine._waiters.setdefault(instruction, []).append(waker)
    try:
        while instruction.state != ERASED:
            patience = deadline - time.perf_counter()
            if patience <= 0:
                return
            _advance(
                machine,
                instruction,
                waker,
                instruction.stream,
                lambda: instruction.state == ERASED,
                patience,
                deadline,
            )
    finally:
        _forget_waiter(machine, instruction, waker)
        machine._pass_on()


def _raise_if_given_up(machine: VirtualMachine, instruction: Instruction, scope: Scope | None) -> None:
    """Raise if it will not be waited for any longer: its scope has ended, or the machine has, without it."""
    if scope is not None and instruction.state < DONE:
        dropped = scope.dropped()
        if dropped is not None:
            dropped.throw()
    if machine.state == "aborted" and instruction.state != ERASED:
        machine._closed_failure().throw()


def _advance(
    machine: VirtualMachine,
    until: Instruction | None,
    waker: ThreadWaker,
    stream: Stream,
    done: Callable[[], bool],
    patience: float | None = None,
    deadline: float = 0.0,
) -> None:
    """Drive if there is something to do, else wait for whoever will have something; then return to be called again.

    Args:
        until: no need to drive further than this.
        stream: what is waited for happens here, if anywhere.
        done: whether it is over; looked at before sleeping.
        patience: seconds to sleep at most.
        deadline: the moment of `time.perf_counter` up to which to drive, 0 for as long as it takes.
    """
    if machine._departures:
        _advance_together(machine, waker, done, patience)
        return
    if not machine._drive(until, deadline):
        machine._enlist(waker)
        # Unless whoever drove has just stopped, he or a successor will wake this thread.
        if machine._turn_lock.locked() and not done():
            machine._stall_watch.sleep(waker, patience)
        return
    if done():
        return
    flight = machine._airport.first(stream)
    if flight is not None and flight.event is not None:
        flight.event.synchronize()
        return
    machine._enlist(waker)
    if not machine._can_go_on() and not done():
        machine._stall_watch.sleep(waker, patience)


def _advance_together(
    machine: VirtualMachine, waker: ThreadWaker, done: Callable[[], bool], patience: float | None
) -> None:
    """The same for this machine and all those that it waits for: nobody else may be driving them."""
    machines = _linked(machine)
    for each in machines:
        each._drive()
    if done():
        return
    for each in machines:
        flight = each._airport.first(each.control_stream())
        if flight is not None and flight.event is not None:
            flight.event.synchronize()
            return
    for each in machines:
        each._enlist(waker)
    # Whoever holds a lock wakes the enlisted when he lets go of it and something is left to do.
    if not done() and not any([it._can_go_on() and not it._turn_lock.locked() for it in machines]):
        machine._stall_watch.sleep(waker, patience)


def _linked(machine: VirtualMachine) -> list[VirtualMachine]:
    """This machine, and those with a departure that has not run, for this one or for another of them."""
    found: list[VirtualMachine] = []
    left = [machine]
    while left:
        each = left.pop()
        if each in found:
            continue
        found.append(each)
        while each._departures:
            try:
                if each._departures[0][1].state != ERASED:
                    break
                each._departures.popleft()
            except IndexError:  # another thread was faster
                break
        left += [previous for previous, _ in list(each._departures)]
    return found


def _forget_waiter(machine: VirtualMachine, instruction: Instruction, waker: ThreadWaker | FutureWaker) -> None:
    """It does not wait any more, whether or not it was woken."""
    waiting = machine._waiters.get(instruction)
    if waiting is not None and waker in waiting:
        waiting.remove(waker)
        if not waiting:
            machine._waiters.pop(instruction, None)


def wait_async(machine: VirtualMachine, instruction: Instruction) -> Generator[Any, None, None]:
    """See `VirtualMachine.wait_async`."""
    loop = running_loop()
    if loop is None:
        raise RuntimeError("awaiting needs a running asyncio event loop; in plain code use .numpy() or .item()")
    tracer = machine._tracer
    waited = tracer.awaited(instruction) if tracer is not None else None
    scope = scope_of(instruction)
    try:
        while instruction.state != ERASED:
            _raise_if_given_up(machine, instruction, scope)
            # Once it has run, nothing but its end is of interest.
            yield from _suspend(machine, loop, instruction, scope if instruction.state < DONE else None)
        if above(machine, 1.0):
            yield from machine.checkpoint().__await__()
    finally:
        if tracer is not None:
            tracer.resumed(waited)


def _suspend(
    machine: VirtualMachine, loop: AbstractEventLoop, instruction: Instruction, scope: Scope | None
) -> Generator[Any, None, None]:
    """Suspend until `instruction` is erased, or its scope is."""
    waker = FutureWaker(loop, loop.create_future())
    machine._waiters.setdefault(instruction, []).append(waker)
    if instruction.state == ERASED:
        # It ended while the waiter was being entered; nobody will look at this list again.
        machine._waiters.pop(instruction, None)
        return
    timer = None
    if scope is not None:
        scope.enlist(waker)
        remaining = scope.remaining()
        if remaining is not None:
            timer = loop.call_later(remaining, waker.wake)
        if scope.cancelled():
            waker.wake()  # perhaps it was cancelled before the waker was enlisted
    if machine._armed is not loop:
        loops.arm(machine, loop)
    try:
        yield from waker.future
    finally:
        if scope is not None:
            scope.dismiss(waker)
        if timer is not None:
            timer.cancel()
        if instruction.state != ERASED:
            _forget_waiter(machine, instruction, waker)


def above(machine: VirtualMachine, share: float) -> bool:
    """Whether more is lively than this share of the high-water marks."""
    engine = machine.engine
    return (
        engine.outstanding() > share * machine.high_water
        or machine._issued_bytes - engine.erased_bytes > share * machine.high_water_bytes
    )


def relieve(machine: VirtualMachine, loop: AbstractEventLoop | None) -> None:
    """Bring the number of lively instructions down.

    On a loop's thread nothing may block; but a coroutine that issues so much without awaiting keeps the loop from
    running anyway, so that driving right here costs the loop nothing.
    """
    if machine._inside():
        return
    if loop is None:
        sleep_until_low(machine)
        return
    machine._drive()
    if above(machine, 1.0):
        warnings.warn(
            f"the virtual machine {machine.name!r} has more work than it can take (high_water={machine.high_water}, "
            f"high_water_bytes={machine.high_water_bytes}); call `await vmflow.checkpoint()` in loops that issue a "
            "lot without awaiting any result",
            BackPressureWarning,
            stacklevel=origin.depth(),
        )


def await_low_water(machine: VirtualMachine) -> Generator[Any, None, None]:
    """Suspend the coroutine while there is too much, until there is half of that."""
    loop = running_loop()
    if loop is None:
        raise RuntimeError("a checkpoint needs a running asyncio event loop; plain code waits by itself")
    # At the mark already: whoever issues one more is above it.
    if not above(machine, 1.0 - 1.0 / machine.high_water):
        return
    while above(machine, 0.5) and not machine.closed:
        waker = FutureWaker(loop, loop.create_future())
        machine._thirsty.append(waker)
        try:
            # Looked at after appending: a worker may have made room in between.
            if above(machine, 0.5):
                if machine._armed is not loop:
                    loops.arm(machine, loop)
                yield from waker.future
        finally:
            with suppress(ValueError):
                machine._thirsty.remove(waker)


def sleep_until_low(machine: VirtualMachine) -> None:
    """Block while there is more than half of what the high-water marks allow."""
    waker = ThreadWaker()
    try:
        while above(machine, 0.5):
            # Anew each time, for others may have used the room for which this thread was woken.
            if waker not in machine._thirsty:
                machine._thirsty.append(waker)
            _advance(machine, None, waker, machine.control_stream(), lambda: not above(machine, 0.5))
    finally:
        with suppress(ValueError):
            machine._thirsty.remove(waker)
        machine._pass_on()


class Checkpoint:
    """Awaitable that lets the loop go on, and lasts while its machine has too much to do."""

    __slots__ = ("_machine",)

    def __init__(self, machine: VirtualMachine) -> None:
        self._machine = machine

    def __await__(self) -> Generator[Any, None, None]:
        yield  # as asyncio.sleep(0) does: the task is put behind all that are ready to run
        yield from await_low_water(self._machine)


class Synchronization:
    """Awaitable end of a `synchronize`."""

    __slots__ = ("_instruction", "_machine")

    def __init__(self, machine: VirtualMachine, instruction: Instruction) -> None:
        self._machine = machine
        self._instruction = instruction

    def __await__(self) -> Generator[Any, None, None]:
        return wait_async(self._machine, self._instruction)
