"""`AllocateTensor`: an instruction that allocates a blob's memory on the stream that has the device's allocator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .blob import Blob
from .failure import Failure
from .policy import InstructionPolicy

if TYPE_CHECKING:
    from .instruction import Instruction


class AllocateTensor(InstructionPolicy):
    """Allocate uninitialised memory for `blob`, unless kernels allocate results of that size themselves.

    A stream that copies to the device writes into memory that the compute stream may have used a moment ago.  So the
    compute stream runs this allocation, and the copy's stream waits for it.
    """

    __slots__ = ("blob",)

    name = "allocate_tensor"
    prepares = True

    def __init__(self, blob: Blob) -> None:
        self.blob = blob

    def prepare(self, instruction: Instruction) -> None:
        self.blob.storage.allocate(self.blob.meta, instruction)

    def preparing_failed(self, failure: Failure) -> None:
        if self.blob.storage.array is None:
            self.blob.storage.poison(failure)

    def compute(self) -> None:
        """Do nothing: the work is done by `prepare`."""

    def fail(self, failure: Failure) -> None:
        self.blob.storage.poison(failure)

    def describe(self) -> str:
        return f"{self.name}({self.blob.meta!r}) on {self.blob.meta.device}"
