"""Closes all virtual machines when the process exits, and keeps them usable in a forked child.

A forked child has one thread, the forking one.  A fork waits for this thread's instructions, and for those of other
threads if they take no more than a moment; but not on a machine of which this thread runs an instruction or turn, or
which another thread drives for longer.  The child runs this thread's instructions that have not begun.  There, machines
go on without workers and the parent's loops, finished results can be read, and reading a result that is lost raises an
error that says so.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections.abc import Collection
from contextlib import suppress
from typing import Final

from vmflow.errors import Cancelled, DeadlineExceeded, VirtualMachineClosed
from vmflow.instructions.deferred import Deferred
from vmflow.instructions.failure import Failure
from vmflow.instructions.instruction import ERASED, LAUNCHED, Instruction, members_of
from vmflow.instructions.policy import InstructionPolicy

from . import interrupts
from .lifecycle import Lifecycle
from .virtual_machine import VirtualMachine, live_machines


def _at_exit() -> None:
    Lifecycle.exit()
    for machine in live_machines():
        machine.close()
    # atexit calls handlers in the reverse order of their registration, so this one, registered early, runs late.
    interrupts.remember_at_exit()


# Forking

# About the most seconds that a fork waits for the instructions of other threads, unless its thread's wait for them.
_PATIENCE: Final = 0.02


class _HeldForFork(threading.local):
    """Per thread, the machines whose turn locks it has taken to fork, so that no other thread drives them."""

    def __init__(self) -> None:
        self.machines: list[VirtualMachine] = []


_held_for_fork: Final = _HeldForFork()


def _before_fork() -> None:
    deadline = time.perf_counter() + _PATIENCE
    machines = live_machines()
    for machine in machines:
        if not (machine.closed or machine.driver.inside()):
            _finish(machine, deadline)
    held = _held_for_fork.machines
    held.clear()
    for machine in machines:
        if machine.driver.turn_lock.owner == threading.get_ident():
            continue  # an instruction of this machine calls fork, or code that has interrupted its turn
        if _take(machine, deadline):
            held.append(machine)
            machine.driver.collect_reports()


def _finish(machine: VirtualMachine, deadline: float) -> None:
    """Wait for this thread's unfinished instructions, and, if they seem to end in time, for those of other threads.

    Does nothing if another thread keeps the turn lock until `deadline`.
    """
    if machine.engine.idle() or not _take(machine, deadline):
        return
    outstanding = members_of([*machine.engine.lively, *machine.engine.pending])
    _give_back(machine)
    me = threading.get_ident()
    for instruction in outstanding:
        if instruction.thread == me:
            # An error of a scope, or of a closed machine, is raised where the program reads the result, not here.
            with suppress(Cancelled, DeadlineExceeded, VirtualMachineClosed):
                machine.wait(instruction)
    left = 1e-9 * sum([instruction.cost for instruction in outstanding if instruction.state != ERASED])
    if not machine.engine.idle() and time.perf_counter() + left < deadline:
        machine.waiters.wait_until(machine.lifecycle.issue_sync(), deadline)


def _take(machine: VirtualMachine, deadline: float) -> bool:
    return machine.driver.turn_lock.acquire(timeout=max(0.0, deadline - time.perf_counter()))


def _give_back(machine: VirtualMachine) -> None:
    machine.driver.turn_lock.release()
    # Threads that found the turn lock taken meanwhile sleep, and must be woken.
    machine.driver.pass_on()


def _after_fork_in_parent() -> None:
    for machine in _released_after_fork():
        _give_back(machine)


def _released_after_fork() -> list[VirtualMachine]:
    """Return the machines whose turn locks this thread has taken to fork, and forget them."""
    held = list(_held_for_fork.machines)
    _held_for_fork.machines.clear()
    return held


def _after_fork_in_child() -> None:
    interrupts.after_fork_in_child()
    failure = Failure(
        RuntimeError(
            "this tensor was still being computed in the parent when the process forked, and has no value in the "
            "child; wait for it before forking (`.numpy()`, `await`, `vmflow.synchronize()`), or compute it in the "
            "child"
        )
    )
    failure.observe()  # the failure is raised where such a tensor is read, and need not be logged
    held = _released_after_fork()
    for machine in live_machines():
        if machine.driver.turn_lock.owner == threading.get_ident() and machine not in held:
            _drop_other_threads(machine, failure)
        else:
            _restart(machine, failure)
        machine.devices.go_without_threads()


def _drop_other_threads(machine: VirtualMachine, failure: Failure) -> None:
    """Fail, in a forked child, unreported instructions of the workers of a machine whose turn this thread runs.

    All other instructions stay, and the turn continues.
    """
    machine.forget_others()
    known = {*machine.driver.reported(), *machine.driver.launched()}
    ended: list[tuple[Instruction, Failure]] = []
    for stream in machine.streams():
        for instruction in stream.running if stream.posted else ():
            if instruction.state == LAUNCHED and instruction not in known:
                assert instruction.policy is not None
                instruction.policy.fail(failure)
                ended.append((instruction, failure))
    machine.driver.add_reports(ended)


def _restart(machine: VirtualMachine, failure: Failure) -> None:
    """Restart a machine in a forked child: reissue the instructions that `_goes_on` accepts, fail or drop others."""
    at_hand = machine.driver.at_hand
    if at_hand is not None and at_hand.policy is not None:
        at_hand.policy.fail(failure)
    machine.driver.forget_at_hand()
    outstanding = members_of([*machine.engine.lively, *machine.engine.pending])
    for instruction in outstanding:
        if isinstance(instruction.policy, Deferred):
            instruction.policy.renew()
    for runtime in list(machine.graphs.values()):
        runtime.abandon(failure)
    machine.driver.turn_lock.renew()
    machine.forget_threads()
    kept = [(instruction, instruction.policy) for instruction in outstanding if _goes_on(instruction)]
    _abandon(machine, {policy for _, policy in kept}, failure)
    machine.releases.forget()
    for instruction, policy in kept:
        instruction.begin_again(policy)
        machine.back_pressure.count(instruction.nbytes)  # the engine has counted these bytes as erased
        machine.engine.receive(instruction)
    if machine.driver.turn_lock.owner is not None:
        machine.driver.turn_lock.release()


def _goes_on(instruction: Instruction) -> bool:
    """Whether a forked child reissues `instruction`: if this thread's, not launched, and no barrier or deferred."""
    policy = instruction.policy
    if policy is None or policy.barrier or policy.deferred:
        return False
    return instruction.thread == threading.get_ident() and instruction.state < LAUNCHED


def _abandon(machine: VirtualMachine, kept: Collection[InstructionPolicy | None], failure: Failure) -> None:
    """Erase a machine's unfinished instructions: fail launched ones, drop others whose policies are not in `kept`."""
    begun = [instruction for instruction in machine.engine.lively if instruction.state == LAUNCHED]
    running = {instruction.policy for instruction in begun}
    dropped = Failure(failure.error, dropped=True)

    def fail(instruction: Instruction) -> None:
        policy = instruction.policy
        assert policy is not None
        if policy in running:
            policy.fail(failure)
        elif instruction.members is not None:
            for member in instruction.members:
                fail(member)
        elif policy not in kept:
            policy.drop(dropped)

    machine.lifecycle.abandon(begun, fail)


atexit.register(_at_exit)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
