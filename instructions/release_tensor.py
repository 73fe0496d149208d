"""`ReleaseTensor`: give a storage's memory back once everything issued before has used it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .blob import Storage
from .policy import InstructionPolicy

if TYPE_CHECKING:
    from vmflow.vm.machine_fields import MachineFields
    from vmflow.vm.virtual_machine import VirtualMachine

    from .instruction import Instruction


class ReleaseTensor(InstructionPolicy):
    """Drop the memory of a storage whose last tensor is gone.

    Issued by the tensor's side (see `Lease`) and ordered as a write, hence behind every use.

    When this is launched, every use has been launched before it, on this stream or on one that this stream waits for.
    So the memory may already be given to instructions launched later *on this stream*; its allocator serves no other.
    Memory that came from another machine's allocator goes back when this is run, when all uses have ended.
    """

    __slots__ = ("storage",)

    name = "release_tensor"
    prepares = True
    touches_memory = False

    def __init__(self, storage: Storage) -> None:
        self.storage = storage

    def prepare(self, instruction: Instruction) -> None:
        allocation = self.storage.allocation
        if allocation is None:
            # Nor must memory of another library go back to it.
            instruction.stream.policy.hold(self.storage.array)
            return
        if allocation.block is None:
            # Lost in a reference cycle, whose destructors came before this: the memory may be somebody else's by now.
            self.storage.let_go()
        elif allocation.allocator is instruction.stream.allocator:
            allocation.free()
        else:
            # `compute` may only launch, and this memory must not come back before it has ended.
            instruction.stream.policy.hold(allocation)

    def compute(self) -> None:
        # The array is still needed until now: instructions launched before may not have begun.
        storage = self.storage
        allocation = storage.allocation
        if allocation is not None and allocation.allocator.memory.garbage is not None and storage.array is not None:
            # An instruction launched later that was given this memory has not begun either.
            storage.array.reshape(-1).view(np.uint8).fill(allocation.allocator.memory.garbage)
        storage.let_go()
        if storage.failure is not None:
            storage.mend()

    def give_back_early(self, instruction: Instruction) -> None:
        self.prepare(instruction)
        # As nobody is going to look at the array either: it would keep its block from going back to the device.
        self.compute()


class Lease:
    """Held by a tensor and its views, by no instruction: when the last of them goes, the storage is to be released.

    The interpreter may run a destructor anywhere, also in the middle of a scheduling turn.  So this one only leaves a
    note with the machine, which issues the instruction.
    """

    __slots__ = ("storage",)

    def __init__(self, storage: Storage) -> None:
        self.storage = storage

    def __del__(self) -> None:
        try:
            storage = self.storage
        except AttributeError:
            return  # Ctrl-C came before it had one
        machine: VirtualMachine | None = storage.machine
        if machine is None:
            return
        fields: MachineFields = machine
        if not fields.engine.idle():  # else it has nothing to do, and need not be called
            machine.release(storage)
