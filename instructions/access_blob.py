"""`AccessBlobByCallback`: an instruction that calls a host function with a tensor's array, in program order."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from .blob import Array, Blob, fault_of
from .failure import Failure
from .policy import InstructionPolicy

if TYPE_CHECKING:
    from .instruction import Instruction


class AccessBlobByCallback(InstructionPolicy):
    """An instruction that calls `callback` with the blob's array.

    Args:
        blob: the blob whose array is passed.
        callback: called on the instruction's stream, in order with other accesses; the array is valid only during the
            call.  Not called if the storage holds a failure, unless the callback is to write the whole storage; nor if
            this instruction is dropped.
        modifier: "const" if the callback reads the array, "mut" if it writes; another value raises ValueError.
    """

    __slots__ = ("blob", "callback", "modifier", "prepares")

    name = "access_blob_by_callback"

    def __init__(self, blob: Blob, callback: Callable[[Array], None], modifier: str = "const") -> None:
        if modifier not in ("const", "mut"):
            raise ValueError(f"modifier must be 'const' or 'mut', not {modifier!r}")
        self.blob = blob
        self.callback = callback
        self.modifier = modifier
        self.prepares = modifier == "mut"

    def prepare(self, instruction: Instruction) -> None:
        if self.blob.strides is None:
            self.blob.storage.allocate(self.blob.meta, instruction)

    def compute(self) -> None:
        blob = self.blob
        storage = blob.storage
        # A storage that holds a failure has no values to read, and writing a view leaves the rest without values.
        if storage.failure is not None and (self.modifier == "const" or blob.strides is not None):
            return
        if self.modifier == "mut":
            self.callback(blob.destination())
            storage.mend()
        else:
            self.callback(blob.array())

    def settle(self, failure: Failure | None) -> Failure | None:
        fault = fault_of((self.blob,), failure)
        if self.modifier == "mut":
            self.blob.storage.settle(fault, self.blob.strides is None)
        return fault

    def fail(self, failure: Failure) -> None:
        if self.modifier == "mut":
            self.blob.storage.poison(failure)

    def describe(self) -> str:
        return f"{self.name}({self.blob.meta!r}, {self.modifier})"
