"""The end of a machine: finish or drop what was issued, and tell whoever waits for it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from vmflow.instructions.instruction import ERASED, Instruction
from vmflow.instructions.policy import InstructionPolicy

from .waiting import Synchronization
from .wakers import running_loop

if TYPE_CHECKING:
    from .virtual_machine import VirtualMachine

# Seconds that even an abort waits for whoever drives at this moment: a worker is through with its turn in less.
_A_TURN: Final = 0.02


async def shutdown(machine: VirtualMachine, grace: float | None) -> None:
    """See `VirtualMachine.shutdown`."""
    if machine.state != "running":
        machine.close()
        return
    finished = machine._issue_sync()
    machine.state = "draining"
    machine._refusing = True
    loop = running_loop()
    assert loop is not None
    # Nothing may block the loop, however long the instruction takes that is running.
    deadline = None if grace is None else loop.call_later(grace, machine.abort)
    try:
        await Synchronization(machine, finished)
    finally:
        if deadline is not None:
            deadline.cancel()
        machine.close()


def close(machine: VirtualMachine, timeout: float) -> None:
    """See `VirtualMachine.close`; only for one that is not closed."""
    if machine.handover.last_arrival is not None and not machine._exiting and timeout > 0:
        # Dropping an arrival would lose the order between another machine, which may still be writing the
        # storage, and whoever uses it next.
        machine.wait(machine.handover.last_arrival)
    machine._refusing = True
    deadline = time.monotonic() + timeout
    if not machine.driver.turn_lock.acquire(timeout=max(timeout, _A_TURN)):
        machine.state = "aborted"  # a kernel runs inline on another thread, and longer than we are ready to wait
        return
    try:
        if machine.closed:
            return
        machine.state = "closed"
        unrun = machine.driver.take_launched()
        for stream in machine.streams():
            if stream.worker is not None:
                left = [instruction for instruction, _ in stream.worker.stop(max(0.0, deadline - time.monotonic()))]
                stream.posted -= len(left)
                unrun += left
                stream.worker = None
        drop(machine, unrun)
        # A device cannot be told to forget what it was handed.
        machine.completion.synchronize()
        machine.driver.collect_reports()
        machine.driver.collect_arrivals()
        # Others may have appended in the meantime; what this turn would launch is dropped too.
        late = machine.engine.schedule()
        machine.waiters.settle(machine.engine.erased)
        drop(machine, late)
        for instruction in machine.engine.lively:
            # A kernel that outlasts the grace.  Nobody will hear of its end, so its readers are told now.
            machine.state = "aborted"
            if instruction.policy is not None:
                instruction.policy.fail(machine._closed_failure())
            machine.waiters.settle(instruction.members or (instruction,))
        machine.back_pressure.wake()
        if not machine.engine.lively:
            # Released while the rest was dropped: there is nothing left to be behind.
            machine.releases.forget()
    finally:
        machine.driver.turn_lock.release()
    drop_late(machine)
    for unseen in list(machine._failures):
        unseen.report()


def drop(machine: VirtualMachine, unrun: list[Instruction]) -> None:
    """Poison and erase everything that has not begun, `unrun` being what was launched of it."""
    failure = machine._closed_failure()

    def fail(policy: InstructionPolicy) -> None:
        policy.drop(failure)

    abandon(machine, unrun, fail)


def abandon(machine: VirtualMachine, unrun: list[Instruction], fail: Callable[[InstructionPolicy], None]) -> None:
    """Erase everything that has not begun, and `unrun`; `fail` tells what they would have written."""
    for instruction in machine.engine.abandon(unrun, fail):
        tracer = machine._tracer
        if tracer is not None:
            tracer.abandoned(instruction)
        machine.waiters.settle((instruction,))


def drop_late(machine: VirtualMachine) -> None:
    """Drop what has come behind the end, of something that still ran.

    Whoever holds the lock instead is about to look himself.
    """
    while machine.engine.pending and machine.driver.turn_lock.acquire(blocking=False):
        try:
            drop(machine, [])
        finally:
            machine.driver.turn_lock.release()


def refuse(machine: VirtualMachine, instruction: Instruction) -> None:
    """Raise, having dropped what came in the very moment of the end."""
    if machine.driver.turn_lock.owner == threading.get_ident():
        # The last instruction of a machine that could not wait for it issues another; its thread holds the lock.
        _turn_away(machine, instruction)
    else:
        with machine.driver.turn_lock:
            if machine.closed:
                drop(machine, [])
            else:
                _turn_away(machine, instruction)
    machine.require_open(instruction.name)


def _turn_away(machine: VirtualMachine, instruction: Instruction) -> None:
    try:
        machine.engine.pending.remove(instruction)
    except ValueError:
        return  # somebody drove in between, and it is accepted after all
    tracer = machine._tracer
    if tracer is not None:
        tracer.abandoned(instruction)
    if instruction.policy is not None:
        instruction.policy.fail(machine._closed_failure())
    instruction.state = ERASED
    machine.engine.erased_bytes += instruction.nbytes
