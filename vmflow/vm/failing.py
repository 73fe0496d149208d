"""Records failures of instructions: adds notes to their exceptions, and lets their outputs hold the failures."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from vmflow.instructions import origin
from vmflow.instructions.failure import Failure
from vmflow.instructions.fuse import FuseInstructionPolicy
from vmflow.instructions.instruction import Instruction
from vmflow.instructions.policy import InstructionPolicy

if TYPE_CHECKING:
    from .virtual_machine import VirtualMachine


def failure_of(machine: VirtualMachine, instruction: Instruction, error: BaseException) -> Failure:
    """Make the `Failure` of an instruction, with notes on the exception; the machine logs it if nobody reads it."""
    policy = instruction.policy
    assert policy is not None
    error.add_note(f"while running {policy.describe()}")
    if not instruction.thread:
        # An instruction that runs inline has not noted the user's line that issued it, which is still on the stack.
        instruction.note_line()
    error.add_note(f"issued at {origin.describe(instruction.code, instruction.last)}")
    mode = instruction.mode
    if mode is not None and mode.module is not None:
        error.add_note(f"in module {mode.module}")
    failure = Failure(error)
    machine.remember(failure)
    return failure


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
