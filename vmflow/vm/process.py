"""Machines and the process: what happens to all of them when it exits, and when it forks."""

from __future__ import annotations

import atexit
import os
import threading
import time

from vmflow.instructions.instruction import LAUNCHED

from . import closing, interrupts, stream_table, virtual_machine
from .settings import GRACE_SECONDS
from .virtual_machine import VirtualMachine, live_machines


def _at_exit() -> None:
    VirtualMachine._exiting = True
    for machine in live_machines():
        machine.close()


# Forking copies the memory of one thread only.  Everything is finished before, so that the child finds every tensor
# readable; in the child there are no workers and no loops, and the machine begins anew without them.

_held_for_fork = threading.local()


def _before_fork() -> None:
    held: list[VirtualMachine] = []
    _held_for_fork.machines = held
    deadline = time.monotonic() + GRACE_SECONDS
    for machine in live_machines():
        while machine._driver != threading.get_ident():
            machine.drain()
            if not machine._turn_lock.acquire(timeout=GRACE_SECONDS):
                break
            # Other threads may have issued, and driven, between the two.
            if machine.engine.idle() or machine.closed or time.monotonic() > deadline:
                held.append(machine)
                break
            _give_back(machine)


def _after_fork_in_parent() -> None:
    for machine in _held_for_fork.machines:
        _give_back(machine)


def _give_back(machine: VirtualMachine) -> None:
    machine._turn_lock.release()
    # Whoever came meanwhile has found it taken, and sleeps.
    machine._pass_on()


def _after_fork_in_child() -> None:
    virtual_machine.after_fork_in_child()
    stream_table.after_fork_in_child()
    interrupts.after_fork_in_child()
    for machine in live_machines():
        driving = machine._driver == threading.get_ident()
        launched = [it for it in machine.engine.lively if it.state == LAUNCHED]
        machine._forget_threads()
        if driving:
            # One of its instructions forked, and goes on in here.
            machine._turn_lock.acquire()
            machine._driver = threading.get_ident()
        else:
            # There are any only if the grace was not enough.  Nobody here would ever finish them.
            closing.drop(machine, launched)
        machine._inline_only = True
        for stream in machine.streams():
            stream.worker = None
            stream.posted = 0
            stream.flights.clear()


atexit.register(_at_exit)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
