"""`AccessBlobByCallback`: let host code see an array when its turn comes."""

from __future__ import annotations

from collections.abc import Callable

from .blob import Array, Blob
from .failure import Failure
from .policy import InstructionPolicy


class AccessBlobByCallback(InstructionPolicy):
    """Call `callback` with the blob's array.

    Args:
        blob: what to access.
        callback: called on the blob's stream, in its turn; the array is valid only during the call.
        modifier: "const" to read; "mut" to write, the shape being known when issued.
    """

    __slots__ = ("blob", "callback", "modifier")

    name = "access_blob_by_callback"

    def __init__(self, blob: Blob, callback: Callable[[Array], None], modifier: str = "const") -> None:
        if modifier not in ("const", "mut"):
            raise ValueError(f"modifier must be 'const' or 'mut', not {modifier!r}")
        self.blob = blob
        self.callback = callback
        self.modifier = modifier

    def compute(self) -> None:
        if self.modifier == "mut":
            self.callback(self.blob.destination())
            if self.blob.strides is None:
                self.blob.storage.failure = None
        elif self.blob.storage.failure is None:
            # A poisoned blob has no array; whoever waits for this instruction looks at the failure himself.
            self.callback(self.blob.array())

    def fail(self, failure: Failure) -> None:
        if self.modifier == "mut":
            self.blob.storage.failure = failure

    def describe(self) -> str:
        return f"{self.name}({self.blob.meta!r}, {self.modifier})"
