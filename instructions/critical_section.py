"""`CriticalSection`: an instruction that lets a running graph read tensors and ends when the graph has read them."""

from __future__ import annotations

from collections.abc import Callable

from .blob import Blob
from .deferred import Deferred
from .failure import Failure


class CriticalSection(Deferred):
    """Let a running graph read blobs, from the start of this instruction until the graph calls `end`.

    Instructions that write the blobs wait for that call, and not for the end of the graph.

    Args:
        blobs: the blobs that the graph reads.
        open: called when the graph may begin to read, with the failure of a blob or of this instruction, or None.
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
        # `open` is called even if the instruction fails or is dropped, so that the graph does not wait for ever.
        self.open(failure)
