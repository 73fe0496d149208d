"""`Hazards`: finds unordered accesses to device and page-locked memory, by vector clocks and addresses.

`vmflow.streams.races` does the same for the storages of the virtual machine.  `Hazards` sees a driver's streams, events
and addresses, and so finds mistakes of the machine or an allocator, too, such as memory that is reused too early.

Each stream counts its work.  The clock of an event or a piece of work has, for each stream, the number of the last
piece of work that is ordered before it.  Memory is watched in granules; each remembers the last write, and the last
read of each stream.
"""

from __future__ import annotations

from typing import Any, Final, final

import numpy as np

from vmflow.errors import RaceDetected

# Bytes of a granule.  Pieces of an allocator's memory share none, since they begin at multiples of 512 bytes.
GRANULE: Final = 64

# The most pieces of work whose names are remembered, for messages; then all are forgotten.
REMEMBERED: Final = 1 << 14

# The host's own accesses count as the work of a stream of this number.
HOST: Final = 0


@final
class Shadow:
    """The record of accesses to one block of memory that later accesses must be ordered behind.

    Attributes:
        granules: the number of granules.
        writer, written: for each granule, the stream that wrote it last, and the number of its piece of work; None
            before the first write.
        reads: by stream, for each granule, the number of the last piece of work that read it; 0 for none.
    """

    __slots__ = ("granules", "reads", "writer", "written")

    def __init__(self, nbytes: int) -> None:
        self.granules = -(-nbytes // GRANULE)
        self.writer: np.ndarray[Any, Any] | None = None
        self.written: np.ndarray[Any, Any] | None = None
        self.reads: dict[int, np.ndarray[Any, Any]] = {}


@final
class Hazards:
    """Finds accesses that nothing orders.  Called by one thread at a time.

    Args:
        enabled: whether accesses are checked; clocks are kept in any case.
    """

    def __init__(self, enabled: bool = True) -> None:
        self.enabled = enabled
        # For the host and each stream, the vector clock that the next piece of work starts from.
        self._known: list[np.ndarray[Any, Any]] = [np.zeros(1, np.int64)]
        self._names: list[str] = ["the host"]
        # The names of pieces of work, by stream and number, for messages.
        self._work: dict[tuple[int, int], str] = {}

    def add_stream(self, name: str) -> int:
        """Add a stream to those that are watched; return its number."""
        self._known = [np.append(clock, 0) for clock in self._known]
        self._known.append(np.zeros(len(self._known) + 1, np.int64))
        self._names.append(name)
        return len(self._known) - 1

    def begin(self, stream: int, work: str) -> None:
        """Record that a piece of work was handed to a stream, behind all work that the host knows to have ended."""
        known = self._known[stream]
        if stream != HOST:
            np.maximum(known, self._known[HOST], out=known)
        known[stream] += 1
        if self.enabled:
            if len(self._work) >= REMEMBERED:
                self._work.clear()
            self._work[stream, int(known[stream])] = work

    def recorded(self, stream: int) -> np.ndarray[Any, Any]:
        """Return the vector clock of an event behind a stream's work so far, for `waits`."""
        return self._known[stream].copy()

    def waits(self, stream: int, clock: np.ndarray[Any, Any]) -> None:
        """Record that later work of a stream, or of the host, is ordered behind an event with this vector clock."""
        known = self._known[stream]
        np.maximum(known[: len(clock)], clock, out=known[: len(clock)])

    def access(self, stream: int, shadow: Shadow, start: int, stop: int, write: bool) -> None:
        """Record that the last work of a stream uses the bytes of a block from `start` to before `stop`.

        Raises:
            RaceDetected: unless disabled, if nothing orders this access behind an earlier conflicting one of a granule.
        """
        if not self.enabled or start == stop:
            return
        low, high = start // GRANULE, -(-stop // GRANULE)
        known = self._known[stream]
        if shadow.writer is not None and shadow.written is not None:
            late = shadow.written[low:high] > known[shadow.writer[low:high]]
            if late.any():
                at = low + int(late.argmax())
                earlier = int(shadow.writer[at]), int(shadow.written[at])
                self._raise("write after write" if write else "read after write", earlier, "writes", stream, write)
        if write:
            self._check_reads(stream, shadow, low, high)
            self._note_write(stream, shadow, low, high)
        else:
            reads = shadow.reads.get(stream)
            if reads is None:
                reads = shadow.reads[stream] = np.zeros(shadow.granules, np.int64)
            reads[low:high] = known[stream]

    def _check_reads(self, stream: int, shadow: Shadow, low: int, high: int) -> None:
        known = self._known[stream]
        for reader, times in shadow.reads.items():
            last = int(times[low:high].max())
            if last > known[reader]:
                self._raise("write after read", (reader, last), "reads", stream, True)

    def _note_write(self, stream: int, shadow: Shadow, low: int, high: int) -> None:
        if shadow.writer is None or shadow.written is None:
            shadow.writer = np.zeros(shadow.granules, np.int64)
            shadow.written = np.zeros(shadow.granules, np.int64)
        shadow.writer[low:high] = stream
        shadow.written[low:high] = self._known[stream][stream]

    def _raise(self, kind: str, earlier: tuple[int, int], verb: str, stream: int, write: bool) -> None:
        before = self._describe(*earlier)
        now = self._describe(stream, int(self._known[stream][stream]))
        raise RaceDetected(kind, f"{before} {verb}", f"{now} {'writes' if write else 'reads'}")

    def _describe(self, stream: int, number: int) -> str:
        return f"{self._work.get((stream, number), 'work')} (number {number} on {self._names[stream]})"
