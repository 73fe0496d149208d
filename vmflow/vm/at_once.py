"""What a script issues while nothing is before it runs as it is issued: for a small op, a turn would take longer."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from vmflow.instructions.blob import Storage
from vmflow.instructions.instruction import ERASED, Instruction
from vmflow.instructions.policy import InstructionPolicy
from vmflow.streams import Stream

from . import running
from .failing import poison
from .wakers import running_loop

if TYPE_CHECKING:
    from .virtual_machine import VirtualMachine

# What `call` returns if it has not called anything.
NOT_NOW: Final = object()

_get_ident: Final = threading.get_ident


def possible(machine: VirtualMachine, stream: Stream, cost: int) -> bool:
    """Whether nothing is before what is issued now, and a turn would run it right here.

    Not on the thread of an event loop, which is not kept from its other work without being asked.

    Args:
        stream: where it is to run.
        cost: nanoseconds that it is expected to take.
    """
    engine = machine.engine
    return (
        machine._hurries
        and not engine.pending
        and not engine.lively
        and stream.posted == 0
        and not machine._released
        and not stream.policy.asynchronous
        and (machine._inline_only or stream.policy.on_scheduler_thread(cost, bool(machine._loops)))
        and running_loop() is None
    )


def reconsider(machine: VirtualMachine) -> None:
    """One of the things has changed that keep everything from running at once."""
    machine._hurries = (
        not machine._gathers and machine._tracer is None and machine.races is None and machine._home is None
    )


def call(machine: VirtualMachine, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    """What a function returns that is called in place of a turn; `NOT_NOW` if somebody else drives after all."""
    turn = machine._turn_lock
    engine = machine.engine
    me = _get_ident()
    # This is `TurnLock.take`, written out: out of a call, Ctrl-C may come.
    if turn.owner is not None:
        return NOT_NOW
    turn.owner = turn.owner or me
    if turn.owner != me:
        return NOT_NOW
    try:
        if engine.pending or engine.lively or machine._refusing:
            return NOT_NOW
        machine._driver = me
        return machine._context.run(function, *arguments)
    finally:
        machine._driver = None
        # No call before this, for the same reason.
        turn.owner = None
        turn.wake()
        if machine._enlisted:
            machine._pass_on()


def call_shielded(machine: VirtualMachine, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    """The same, for what must not be left half done: Ctrl-C waits for its end."""
    return call(machine, _shielded, (machine, function, arguments))


def _shielded(machine: VirtualMachine, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    shielded = machine._shield.raise_it()
    try:
        return function(*arguments)
    finally:
        if shielded:
            machine._shield.lower()


def run(machine: VirtualMachine, instruction: Instruction, written: Storage | None) -> bool:
    """Whether the instruction has had its turn in this call."""
    policy = instruction.policy
    if policy is None or policy.barrier or policy.deferred:
        return False
    mode = instruction.mode
    scoped = mode is not None and mode.scope is not None
    if written is not None and written.array is None and not policy.prepares and not scoped:
        # Ctrl-C may come out of this: nobody will ever see what it would have written.
        done = call(machine, _compute, (machine, instruction, policy))
    else:
        done = call_shielded(machine, _run, (machine, instruction, policy))
    if done is NOT_NOW:
        return False
    instruction.state = ERASED
    instruction.policy = None
    if machine.engine.pending:
        machine._drive()  # what it has issued itself, or others meanwhile
    escaping, machine._escaping = machine._escaping, None
    if escaping is not None:
        raise escaping
    return True


def _compute(machine: VirtualMachine, instruction: Instruction, policy: InstructionPolicy) -> None:
    try:
        policy.compute()
    except Exception as error:
        poison(machine, instruction, error)


def _run(machine: VirtualMachine, instruction: Instruction, policy: InstructionPolicy) -> None:
    failure = running.prepare(machine, instruction, policy) if policy.prepares else None
    running.run(machine, instruction, failure)
