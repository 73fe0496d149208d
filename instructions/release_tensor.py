"""`ReleaseTensor`: give a storage's memory back once everything issued before has used it."""

from __future__ import annotations

from .blob import Storage
from .policy import InstructionPolicy


class ReleaseTensor(InstructionPolicy):
    """Drop the memory of a storage whose last tensor is gone.

    Issued by the tensor's side (see `Lease`) and ordered as a write, hence behind every use.
    """

    __slots__ = ("storage",)

    name = "release_tensor"

    def __init__(self, storage: Storage) -> None:
        self.storage = storage

    def compute(self) -> None:
        self.storage.array = None
        self.storage.failure = None


class Lease:
    """Held by a tensor and its views, by no instruction: when the last of them goes, the storage is to be released.

    The interpreter may run a destructor anywhere, also in the middle of a scheduling turn.  So this one only leaves a
    note with the machine, which issues the instruction.
    """

    __slots__ = ("storage",)

    def __init__(self, storage: Storage) -> None:
        self.storage = storage

    def __del__(self) -> None:
        storage = self.storage
        machine = storage.dependence.machine
        if machine is not None:
            machine.release(storage)
