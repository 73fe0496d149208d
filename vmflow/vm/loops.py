"""Driving a machine from event loops: by one callback per turn of the loop, under a time budget."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

from vmflow.instructions.instruction import ERASED

from .wakers import LoopWaker, call_soon

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

    from .virtual_machine import VirtualMachine


def arm(machine: VirtualMachine, loop: AbstractEventLoop) -> None:
    """Let `loop`, which runs on this thread, drive soon."""
    machine._armed = loop
    loop.call_soon(turn, machine, loop)


def arm_from_elsewhere(machine: VirtualMachine, loop: AbstractEventLoop) -> None:
    """The same from another thread, which drives itself if the loop is closed."""
    machine._armed = loop
    if not call_soon(loop, turn, machine, loop):
        machine._armed = machine._home = None
        machine._drive()


def turn(machine: VirtualMachine, loop: AbstractEventLoop) -> None:
    """The callback that drives from an event loop."""
    machine._armed = None
    waker = machine._loops.get(loop)
    if waker is None:
        forget_closed(machine)
        waker = machine._loops[loop] = LoopWaker(loop, partial(turn, machine))
    deadline = time.perf_counter() + machine.turn_budget
    if not machine._drive(None, deadline):
        machine._enlist(waker)
        if not machine._drive(None, deadline):
            return
    while machine._departures and machine._departures[0][1].state == ERASED:
        machine._departures.popleft()
    if machine._can_go_on():
        if machine._armed is None:
            arm(machine, loop)
        return
    if machine.engine.idle():
        return
    machine._enlist(waker)
    machine._pass_on()
    if machine.has_waiters():
        machine.waiters.watch.arm(loop)
    # Also if nobody waits here: another machine may.
    busy = machine._airport.busy()
    if busy is not None:
        busy.policy.await_progress(waker.wake)


def forget_closed(machine: VirtualMachine) -> None:
    """Ask nothing more of loops that have been closed."""
    for loop in [loop for loop in list(machine._loops) if loop.is_closed()]:
        machine._loops.pop(loop, None)
        if machine._armed is loop:
            machine._armed = None
