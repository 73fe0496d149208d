"""`submit` runs a call inline if nothing is before it, since a turn takes longer than a small op; else it issues it.

Under an event loop, inline calls may take no more of each turn of the loop than the machine may.  Calls beyond that are
issued and wait for the next turn, and so do the coroutines that await them.  Otherwise coroutines that await only small
ops would never let the loop run.
"""

from __future__ import annotations

from types import FunctionType
from typing import TYPE_CHECKING, Final

from vmflow.instructions.blob import Blob, Storage, access
from vmflow.instructions.builder import issue
from vmflow.instructions.instruction import Dependence, Instruction
from vmflow.instructions.op_call import OpCall
from vmflow.instructions.policy import InstructionPolicy
from vmflow.streams.allocator import BinAllocator
from vmflow.streams.stream import Stream

from .machine_fields import MachineFields

if TYPE_CHECKING:
    from vmflow.context import Mode

    from .virtual_machine import VirtualMachine

# Ctrl-C must not leave the allocator half-way through a change.  The compiled one is never interrupted between its own
# steps, only in the functions that it calls for a new block.  Putting the shield up takes as long as a small op.
_ALLOCATES_WHOLE: Final = not isinstance(BinAllocator.allocate, FunctionType)


def run(machine: VirtualMachine, instruction: Instruction, written: Storage | None) -> bool:
    """Run the instruction that is about to be issued, if nothing is before it; returns whether it ran."""
    policy = instruction.policy
    if policy is None or policy.barrier or policy.deferred or policy.waits_for_others():
        return False
    fields: MachineFields = machine
    driver = fields.driver
    mode = instruction.mode
    scoped = mode is not None and mode.scope is not None
    # Ctrl-C may leave new memory of the policy half-written, since nobody will ever see it.
    may_tear = written is not None and written.array is None and not policy.prepares and not scoped
    if not driver.run(policy, instruction.stream, instruction.cost, mode, None if may_tear else instruction):
        return False
    instruction.erase()
    if fields.engine.pending:
        driver.go_on()  # drive for the instructions that the call, or other threads, have issued meanwhile
    escaping = driver.take_escaping()
    if escaping is not None:
        raise escaping
    return True


# Calls of ops


def submit(machine: VirtualMachine, stream: Stream, call: OpCall, mode: Mode, nbytes: int) -> None:
    """Run a call here and now if nothing is before it, else issue it as an instruction.

    Args:
        stream: where it runs.
        call: the call.
        mode: the mode in which it was issued.
        nbytes: of its results, if they are large; for back-pressure.
    """
    fields: MachineFields = machine
    if (
        (_ALLOCATES_WHOLE or not call.prepares)
        and call.step is None  # else the call may wait for later ones to be chained with, which `issue` handles
        and (mode.scope is None or mode.scope.dropped() is None)
        and _is_ready(machine, stream, call)
        and fields.driver.run(call, stream, call.plan.cost, mode)
    ):
        return
    issue_call(machine, stream, call, call.inputs, call.outputs, call.plan.cost, mode, nbytes)


def issue_call(
    machine: VirtualMachine,
    stream: Stream,
    policy: InstructionPolicy,
    inputs: tuple[Blob, ...],
    outputs: tuple[Blob, ...],
    cost: int,
    mode: Mode,
    nbytes: int,
) -> None:
    """Issue an instruction that reads the inputs and writes the outputs, of which there is at least one."""
    writes: list[Dependence] = []
    for blob in outputs:
        writes.append(access(machine, blob.storage, stream))
    reads: list[Dependence] = []
    for blob in inputs:
        reads.append(access(machine, blob.storage, stream))
    instruction = Instruction(stream, policy, tuple(reads), tuple(writes), cost, None, 0, mode, nbytes)
    if len(outputs) == 1:
        machine.issue(instruction, outputs[0].storage)
    else:
        issue(machine, [instruction], [(blob.storage, instruction) for blob in outputs])


def _is_ready(machine: VirtualMachine, stream: Stream, call: OpCall) -> bool:
    """Whether the operands have values that may be used on this stream without waiting.

    Ctrl-C must not leave an existing result half changed: only an atomic call may write it inline.
    """
    for blob in call.inputs:
        storage = blob.storage
        if storage.array is None or storage.failure is not None:
            return False
        if (storage.stream is not stream or storage.machine is not machine) and not _claim(machine, stream, storage):
            return False
    storage = call.output.storage
    if storage.array is not None and not call.plan.atomic:
        return False
    return (storage.stream is stream and storage.machine is machine) or _claim(machine, stream, storage)


def _claim(machine: VirtualMachine, stream: Stream, storage: Storage) -> bool:
    """Move a storage that no machine has used to this machine and stream; returns False for any other storage."""
    if storage.machine is not None:
        return False
    machine.access(storage, stream)  # made of a caller's array: nothing has used it yet
    return True
