"""Hand tensors to a graph that runs on its own, and get them back: `CriticalSectionBegin` and `CriticalSectionEnd`.

Between the two the tensors are the graph's.  `Begin` is ordered behind everything issued before that uses them, `End`
before everything issued after, and `End` ends when the graph has finished with its tensor, which may be long before the
graph ends.  Where nothing is issued between the two, a `CriticalSection` is both.
"""

from __future__ import annotations

from collections.abc import Callable

from .blob import Blob
from .deferred import Deferred
from .failure import Failure
from .policy import InstructionPolicy


class CriticalSectionBegin(InstructionPolicy):
    """Call `open` once the blobs are there: the graph may touch them from now on.

    Args:
        blobs: what is handed over.
        open: given the failure that one of the blobs holds, or None.
        writes: whether the graph will write them, rather than read.
    """

    __slots__ = ("blobs", "open", "writes")

    name = "critical_section_begin"

    def __init__(self, blobs: tuple[Blob, ...], open: Callable[[Failure | None], None], writes: bool = False) -> None:
        self.blobs = blobs
        self.open = open
        self.writes = writes

    def compute(self) -> None:
        failure: Failure | None = None
        for blob in () if self.writes else self.blobs:
            failure = failure or blob.storage.failure
        self.open(failure)

    def fail(self, failure: Failure) -> None:
        # Dropped or broken, the graph must not wait for it in vain.
        self.open(failure)


class CriticalSectionEnd(Deferred):
    """Ends when the graph calls `end`: it has finished with the blobs.

    Args:
        blobs: as for the beginning.
        writes: whether the graph was to write them; if it ends with an error, they hold that instead of data.
    """

    __slots__ = ("blobs", "writes")

    name = "critical_section_end"
    droppable = False  # the graph still has the blobs

    def __init__(self, blobs: tuple[Blob, ...], writes: bool = False) -> None:
        super().__init__()
        self.blobs = blobs
        self.writes = writes

    def fail(self, failure: Failure) -> None:
        for blob in self.blobs if self.writes else ():
            blob.storage.poison(failure)


class CriticalSection(Deferred):
    """A beginning and an end in one, of blobs that the graph reads: it lasts until the graph calls `end`.

    Args:
        blobs: what is handed over.
        open: given the failure that one of the blobs holds, or None, when its turn has come.
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
        # Dropped or broken, the graph must not wait for it in vain.
        self.open(failure)
