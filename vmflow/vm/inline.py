"""`submit`: runs an op's call inline if that is possible now, else issues it as an instruction.

A call runs inline only if no instruction is pending or lively, no worker is needed, the call's scope is not being
dropped, and the call need not wait to be fused with later ops.  Under an event loop, inline calls may begin only within
`turn_budget` seconds of the first one in each turn of the loop.  Further calls are issued and wait for the loop's next
turn, and so do the coroutines that await their results.  Otherwise coroutines that await only small ops would never let
the loop run.
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

# Whether ops that allocate may run inline without a `Shield` against Ctrl-C, which would slow small ops down: only if
# the allocator is compiled, so that Ctrl-C cannot interrupt it in the middle of a change.
_ALLOCATES_WHOLE: Final = not isinstance(BinAllocator.allocate, FunctionType)


def run(machine: VirtualMachine, instruction: Instruction, written: Storage | None) -> bool:
    """Run an instruction inline instead of issuing it, if possible now; returns whether it ran.

    `written` is that of `VirtualMachine.issue`.
    """
    policy = instruction.policy
    if policy is None or policy.barrier or policy.deferred or policy.waits_for_others():
        return False
    fields: MachineFields = machine
    driver = fields.driver
    mode = instruction.mode
    scoped = mode is not None and mode.scope is not None
    # Ctrl-C need not wait while the policy writes a new array, since no storage gets the array if Ctrl-C comes.
    may_tear = written is not None and written.array is None and not policy.prepares and not scoped
    if not driver.run(policy, instruction.stream, instruction.cost, mode, None if may_tear else instruction):
        return False
    instruction.erase()
    if fields.engine.pending:
        driver.go_on()  # run the instructions that this one, or other threads, have issued meanwhile
    escaping = driver.take_escaping()
    if escaping is not None:
        raise escaping
    return True


# Calls of ops


def submit(machine: VirtualMachine, stream: Stream, call: OpCall, mode: Mode, nbytes: int) -> None:
    """Run an op's call inline if that is possible now, as the module says, else issue it as an instruction.

    Args:
        stream, call: the op's call, and the stream that it runs on.
        mode: the mode in which it is issued.
        nbytes: the bytes of its large results, else 0; for back-pressure.
    """
    fields: MachineFields = machine
    if (
        (_ALLOCATES_WHOLE or not call.prepares)
        and call.step is None  # else the call may wait for later ops to be fused with it, see `Driver.begin_chain`
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
    """Issue an instruction that runs `policy`, reads the inputs if any, and writes the one or more outputs."""
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
    """Whether a call's inputs have values, and no other stream or machine has used its operands last.

    False, too, if the call changes an existing array and Ctrl-C could interrupt it half-way.
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
    """Assign a storage that no machine has used yet to this machine and stream; returns False for other storages."""
    if storage.machine is not None:
        return False
    machine.access(storage, stream)  # without waiting: the storage was made around an array that has its values
    return True
