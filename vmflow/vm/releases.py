"""`Releases`: frees a storage's memory when its last tensor is gone, behind the instructions that use it."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, cast, final

from vmflow.instructions.blob import Storage
from vmflow.instructions.instruction import Instruction
from vmflow.instructions.release_tensor import ReleaseTensor
from vmflow.instructions.stream_events import StreamWait
from vmflow.streams.stream import Stream

if TYPE_CHECKING:
    from vmflow.devices import device as Device

    from .virtual_machine import VirtualMachine


@final
class Releases:
    """Issues the instructions that free the memory of storages whose last tensor is gone.

    Attributes:
        noted: the storages passed to `note` that `issue` has not handled yet.
    """

    def __init__(self, machine: VirtualMachine) -> None:
        self._machine = machine
        self.noted: deque[Storage] = deque()

    def note(self, storage: Storage) -> None:
        """Let the next turn issue the release of a storage's memory; called by destructors, hence from anywhere."""
        self.noted.append(storage)

    def forget(self) -> None:
        """Drop the noted storages: without unfinished instructions, their memory is freed with the Python objects."""
        self.noted.clear()

    def issue(self) -> None:
        """Issue a `ReleaseTensor` for each noted storage that a stream has used and that may have memory.

        Storages of other machines are passed on to these.
        """
        machine = self._machine
        while self.noted:
            storage = self.noted.popleft()
            if storage.array is None and storage.settled():
                continue
            dependence = storage.dependence
            if dependence.machine is not machine:
                dependence.machine.release(storage)
                continue
            # A storage without a stream was never used, and its memory is freed with the Python object.
            last = storage.stream
            if last is not None:
                home = self.home_of(storage, last)
                if last is not home and home.policy.asynchronous:
                    machine.engine.receive(Instruction(home, StreamWait(last), (), (dependence,)))
                machine.engine.receive(Instruction(home, ReleaseTensor(storage), (), (dependence,)))

    def home_of(self, storage: Storage, last: Stream) -> Stream:
        """Return the stream of the storage's allocator, or the compute stream if this machine has no such allocator.

        Both are on the device of `last`, the stream that used the storage last.
        """
        allocation = storage.allocation
        kind = None if allocation is None else self._machine.memory.kind_of(allocation.allocator)
        return self._machine.stream(cast("Device", last.device), kind or "compute")
