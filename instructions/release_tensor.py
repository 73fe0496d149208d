"""`ReleaseTensor`: an instruction that frees a storage's memory, ordered after all uses of the storage."""

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
    """Free the memory of a storage whose last tensor is gone.

    Issued after the storage's `Lease` has died, and ordered as a write of the storage, hence after every use.

    When this instruction is launched, every use has ended, or was launched before on this stream or on one that this
    stream waits for.  So the memory may already be given to instructions launched later *on this stream*, in whose
    order its allocator hands out memory.  Memory from another machine's allocator is freed when all uses have ended.
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
            # The memory may be another library's, and must not go back to it before this stream's work has ended.
            instruction.stream.policy.hold(self.storage.array)
            return
        if allocation.block is None:
            # The garbage collector has freed the allocation, in a reference cycle: its memory may have a new owner.
            self.storage.let_go()
        elif allocation.allocator is instruction.stream.allocator:
            allocation.free()
        else:
            # The stream keeps the memory until its launched work has ended: `compute` may return before that.
            instruction.stream.policy.hold(allocation)

    def compute(self) -> None:
        # The array is dropped here: at `prepare`, instructions launched before this one may not have run yet.
        storage = self.storage
        allocation = storage.allocation
        if allocation is not None and allocation.allocator.memory.garbage is not None and storage.array is not None:
            # A simulated device's freed memory is overwritten: an instruction that reuses the memory has not begun yet.
            storage.array.reshape(-1).view(np.uint8).fill(allocation.allocator.memory.garbage)
        storage.let_go()
        if storage.failure is not None:
            storage.mend()

    def give_back_early(self, instruction: Instruction) -> None:
        self.prepare(instruction)
        # Dropping the array now lets the allocator return the memory block to the device.
        self.compute()


class Lease:
    """An object shared by a tensor, mostly a large one, and its views; its destructor has their memory freed.

    The interpreter may run a destructor anywhere, also in the middle of scheduling.  So this destructor only leaves a
    note with the machine, which issues a `ReleaseTensor` later; if the machine is idle, the memory is freed with the
    storage.  Instructions hold no lease.
    """

    __slots__ = ("storage",)

    def __init__(self, storage: Storage) -> None:
        self.storage = storage

    def __del__(self) -> None:
        try:
            storage = self.storage
        except AttributeError:
            return  # Ctrl-C interrupted __init__ before the attribute was set
        machine: VirtualMachine | None = storage.machine
        if machine is None:
            return
        fields: MachineFields = machine
        if not fields.engine.idle():  # an idle machine's `release` does nothing
            machine.release(storage)
