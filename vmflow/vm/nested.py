"""Runs instructions issued by a signal handler, destructor or callback while its thread has the machine's turn lock.

Such code can neither run turns nor wait until another thread does, since it has interrupted the driving thread.  So an
instruction that it issues runs in the same call, outside of the engine, if no unfinished instruction writes its inputs
or uses its outputs.  Otherwise the instruction is issued as always and runs later; such code that waits for it gets an
error that says so.  Barriers, deferred instructions, those of asynchronous streams, some that need resources first and,
with a race check, all instructions are always issued.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, cast

from vmflow.instructions.blob import places_memory
from vmflow.instructions.instruction import ERASED, Dependence, Instruction
from vmflow.instructions.multi_tensor_update import MultiTensorUpdate
from vmflow.instructions.op_call import OpCall
from vmflow.instructions.policy import InstructionPolicy

from . import running

if TYPE_CHECKING:
    from .virtual_machine import VirtualMachine


def run(machine: VirtualMachine, instruction: Instruction) -> bool:
    """Run an instruction issued by the thread that has the turn lock, if possible now; returns whether it ran."""
    policy = instruction.policy
    if policy is None or policy.barrier or policy.deferred or instruction.stream.policy.asynchronous:
        return False
    if machine.races is not None or not is_free(machine, instruction.reads, instruction.writes):
        return False
    if policy.prepares:
        if not isinstance(policy, (OpCall, MultiTensorUpdate)):
            return False
        _give_memory(policy)
    before = machine.driver.take_escaping()
    try:
        running.quiet_context().run(running.run, machine, instruction)
    finally:
        escaping = machine.driver.take_escaping()
        machine.driver.let_escape(before)
    instruction.erase()
    if escaping is not None:
        raise escaping
    return True


def is_free(machine: VirtualMachine, reads: Collection[Dependence], writes: Collection[Dependence]) -> bool:
    """Whether no unfinished instruction writes `reads` or accesses `writes`; this thread must have the turn lock."""
    for dependence in (*reads, *writes):
        if _is_outstanding(dependence.writer):
            return False
    for dependence in writes:
        if any([_is_outstanding(reader) for reader in list(dependence.readers or ())]):
            return False
    read, written = set(reads), set(writes)
    # Instructions that no turn has seen, or whose edges a turn is adding now, may not be in the dependences yet.
    for other_reads, other_writes in _unconnected(machine):
        if not (read.isdisjoint(other_writes) and written.isdisjoint(other_writes) and written.isdisjoint(other_reads)):
            return False
    return True


def _is_outstanding(instruction: Instruction | None) -> bool:
    return instruction is not None and instruction.state != ERASED


def _unconnected(machine: VirtualMachine) -> Iterable[tuple[Collection[Dependence], Collection[Dependence]]]:
    """Yield the (reads, writes) of each unfinished instruction that its dependences perhaps do not know yet."""
    engine = machine.engine
    for other in [*engine.local_pending, *engine.pending]:
        yield other.reads, other.writes
    at_hand = machine.driver.at_hand
    if at_hand is not None:
        yield at_hand.reads, at_hand.writes


def _give_memory(policy: InstructionPolicy) -> None:
    """Give results new numpy arrays in place of an allocator's memory: this code may have interrupted the allocator."""
    for blob in cast("OpCall | MultiTensorUpdate", policy).outputs:
        if blob.strides is None and places_memory(blob.meta):
            blob.destination()
