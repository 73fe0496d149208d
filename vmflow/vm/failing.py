"""Records failures of instructions: adds notes to their exceptions, and lets their outputs hold the failures."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from vmflow.instructions.failure import Failure, Place
from vmflow.instructions.fuse import FuseInstructionPolicy
from vmflow.instructions.instruction import Instruction
from vmflow.instructions.policy import InstructionPolicy

if TYPE_CHECKING:
    from .virtual_machine import VirtualMachine


def failure_of(machine: VirtualMachine, instruction: Instruction, error: BaseException) -> Failure:
    """Make the `Failure` of an instruction, with notes on the exception; the failure is logged if nobody reads it."""
    policy = instruction.policy
    assert policy is not None
    for note in _place_of(instruction).notes("while running", policy.describe()):
        error.add_note(note)
    failure = Failure(error)
    machine.remember(failure)
    return failure


def dropped_failure_of(instruction: Instruction, dropped: Failure) -> Failure:
    """Return the `Failure` of one instruction that a scope or closing machine drops; `dropped` is the failure of all.

    Notes are made when the failure is raised, see `Failure.at`: a scope may drop many instructions whose results
    nobody reads.
    """
    return dropped.at(_place_of(instruction))


def _place_of(instruction: Instruction) -> Place:
    if not instruction.thread:
        # An instruction that runs inline has not noted the user's line that issued it, which is still on the stack.
        instruction.note_line()
    mode = instruction.mode
    return Place(instruction.name, instruction.code, instruction.last, None if mode is None else mode.module)


def poison(machine: VirtualMachine, instruction: Instruction, error: BaseException) -> Failure:
    """Make the `Failure` of an instruction that has raised `error`, and let its outputs hold the failure."""
    failure = failure_of(machine, instruction, error)
    cast(InstructionPolicy, instruction.policy).fail(failure)
    return failure


def poison_by_device(machine: VirtualMachine, instruction: Instruction, error: BaseException) -> Failure:
    """Fail an instruction, or all members of a fused one, because its device cannot run it: see `poison`."""
    tracer = machine.observers.tracer
    failure: Failure | None = None
    for member in instruction.members or (instruction,):
        if tracer is not None:
            tracer.began(member)
        if failure is None:
            failure = poison(machine, member, error)
        else:
            cast(InstructionPolicy, member.policy).fail(failure)
        if tracer is not None:
            tracer.ended(member, failure)
    assert failure is not None
    if instruction.members is not None:
        cast(FuseInstructionPolicy, instruction.policy).failed_together(failure)
    return failure
