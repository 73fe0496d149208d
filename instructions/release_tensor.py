"""`ReleaseTensor`: give a storage's memory back after all earlier uses."""

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

    Issued for the tensor's `Lease` and ordered as a write, hence after every use.

    When this is launched, every use has been launched before it, on this stream or on one that this stream waits for.
    So the memory may already be given to instructions launched later *on this stream*, the only stream of its
    allocator.  Memory from another machine's allocator goes back when this has run, when all uses have ended.
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
            # Memory that another library owns goes back to that library when this stream's work has ended, too.
            instruction.stream.policy.hold(self.storage.array)
            return
        if allocation.block is None:
            # The allocation died in a reference cycle before this: the memory may have another owner by now.
            self.storage.let_go()
        elif allocation.allocator is instruction.stream.allocator:
            allocation.free()
        else:
            # `compute` may only launch work, and this memory must not be reused before that has ended.
            instruction.stream.policy.hold(allocation)

    def compute(self) -> None:
        # Until now the array was needed, since instructions launched before may not have begun.
        storage = self.storage
        allocation = storage.allocation
        if allocation is not None and allocation.allocator.memory.garbage is not None and storage.array is not None:
            # Nor has a later instruction begun that was given the same memory.
            storage.array.reshape(-1).view(np.uint8).fill(allocation.allocator.memory.garbage)
        storage.let_go()
        if storage.failure is not None:
            storage.mend()

    def give_back_early(self, instruction: Instruction) -> None:
        self.prepare(instruction)
        # The array, which nobody will read, would keep its block from going back to the device.
        self.compute()


class Lease:
    """Held by a tensor and its views, not by instructions: when the last of them dies, the storage is released.

    The interpreter may run a destructor anywhere, also in the middle of a turn.  So this one only leaves a note with
    the machine, which issues a `ReleaseTensor` later.
    """

    __slots__ = ("storage",)

    def __init__(self, storage: Storage) -> None:
        self.storage = storage

    def __del__(self) -> None:
        try:
            storage = self.storage
        except AttributeError:
            return  # Ctrl-C came before the attribute was set
        machine: VirtualMachine | None = storage.machine
        if machine is None:
            return
        fields: MachineFields = machine
        if not fields.engine.idle():  # otherwise `release` does nothing
            machine.release(storage)
