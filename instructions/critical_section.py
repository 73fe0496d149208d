"""`CriticalSection`: lend tensors to a graph that runs on its own."""

from __future__ import annotations

from collections.abc import Callable

from .blob import Blob
from .deferred import Deferred
from .failure import Failure


class CriticalSection(Deferred):
    """Let a graph read blobs, from its turn until the graph calls `end`, which may be long before the graph ends.

    Args:
        blobs: the blobs that the graph reads.
        open: called when its turn has come, with the failure that one of the blobs holds, or None.
    """

    __slots__ = ("blobs", "open")

    name = "critical_section"

    def __init__(self, blobs: tuple[Blob, ...], open: Callable[[Failure | None], None]) -> None:
        super().__init__()
        self.blobs = blobs
        self.open = open

    def begin(self) -> None:
        failure: Failure | None = None
        for blob in self.blobs:
            failure = failure or blob.storage.failure
        self.open(failure)

    def fail(self, failure: Failure) -> None:
        # Also if this instruction is dropped, so that the graph does not wait for ever.
        self.open(failure)
