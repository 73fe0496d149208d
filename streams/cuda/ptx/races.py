"""Checks whether accesses to the same bytes are ordered.

Each piece of memory has a stamp of its last writer, of its last readers and of its last atomic accesses.  A stamp is an
integer: a time, and a thread or a set of threads.  Time passes at barriers, at instructions that synchronise a warp, at
fences and at atomic accesses to global memory; so stamps show whether one of these came in between.

    bits 63-36   the time
    bits 35-11   the number of the thread's block in the grid; all ones for threads of several blocks
    bits 10-0    the thread within its block; 1024 plus the warp for several threads of it; 1056 for several warps
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from .types import Array

TIME: Final = 36
_BLOCK: Final = 11
_IDENTITY: Final = (1 << TIME) - 1
_WITHIN: Final = (1 << _BLOCK) - 1
SEVERAL_BLOCKS: Final = (1 << (TIME - _BLOCK)) - 1
_WARP: Final = 1024
_SEVERAL_WARPS: Final = 1056
_ANYBODY: Final = (SEVERAL_BLOCKS << _BLOCK) | _SEVERAL_WARPS


class Conflict(NamedTuple):
    """Two accesses that nothing orders.

    Attributes:
        position: of the later access, among those given to a method of `Shadow`.
        earlier: the kind of the earlier access: "write", "read" or "atomic".
        stamp: of the earlier access.
    """

    position: int
    earlier: str
    stamp: int


class Clock:
    """The time of a launch, and of its threads' last synchronisations.

    Attributes:
        now: the time.
        barriers: of each block of the grid, the time of its last barrier.
        looks: of each block, the time of its last atomic access to global memory.
        synced: of each lane of the present batch, the time at which it last synchronised with others of its warp.
    """

    def __init__(self, blocks: int) -> None:
        self.now = 1
        self.barriers = np.ones(blocks, np.int64)
        self.looks = np.zeros(blocks, np.int64)
        self.synced = np.zeros(0, np.int64)
        self.first = 0
        self.stride = 1
        # The fences for other blocks, sorted: numbers with the block in the bits above the time.  `_new_fences` are not
        # among them yet.
        self._fences = np.zeros(0, np.int64)
        self._new_fences: list[Array] = []

    def begin(self, first: int, blocks: int, stride: int) -> None:
        """Begin another batch."""
        self.first, self.stride = first, stride
        self.synced = np.zeros(blocks * stride, np.int64)

    def tick(self) -> int:
        """Let time pass."""
        self.now += 1
        return self.now

    def fence(self, blocks: Array) -> None:
        """Note a fence of these blocks for other blocks."""
        self._new_fences.append((blocks.astype(np.int64) << TIME) | self.tick())

    def _next_fence(self, block: Array, time: Array) -> Array:
        """The time of the first fence of each block after a time; for a block without one, a time that never comes."""
        if self._new_fences:
            self._fences = np.sort(np.concatenate([self._fences, *self._new_fences]))
            self._new_fences.clear()
        place = np.searchsorted(self._fences, (block << TIME) | time, side="right")
        # The appended -1 belongs to no block.
        found = np.append(self._fences, -1).take(place)
        return np.where(found >> TIME == block, found & _IDENTITY, _IDENTITY)

    def unordered(self, old: Array, mine: Array) -> Array:
        """For accesses of different threads: whether nothing orders those of stamps `old` before those of `mine`."""
        time = old >> TIME
        block, other = (mine & _IDENTITY) >> _BLOCK, (old & _IDENTITY) >> _BLOCK
        known = other != SEVERAL_BLOCKS
        other = np.where(known, other, 0)
        same = known & (block == other)
        ordered = same & (time < self.barriers.take(block))
        ordered |= same & self._synced_in_warp(old & _WITHIN, mine & _WITHIN, block, time)
        foreign = known & ~same
        if foreign.any():
            ordered |= foreign & (self._next_fence(other, time) <= self.looks.take(block))
        return np.asarray(~ordered)

    def _synced_in_warp(self, old: Array, mine: Array, block: Array, time: Array) -> Array:
        single = old < _WARP
        same = np.where(single, old >> 5, old - _WARP) == mine >> 5
        base = (block - self.first) * self.stride
        later = time < self.synced.take(base + mine)
        found: Array = same & later & (~single | (time < self.synced.take(np.where(same & single, base + old, 0))))
        return found


def _merged(old: Array, mine: Array) -> Array:
    """Stamps for the threads of both `old` and `mine`, with the time of `mine`."""
    same_block = (old ^ mine) & (SEVERAL_BLOCKS << _BLOCK) == 0
    within = old & _WITHIN
    warp = np.where(within < _WARP, within >> 5, within - _WARP)
    mine_within = mine & _WITHIN
    mine_warp = np.where(mine_within < _WARP, mine_within >> 5, mine_within - _WARP)
    several = np.where(warp == mine_warp, _WARP + mine_warp, _SEVERAL_WARPS)
    in_block = (mine & ~_WITHIN) | several
    merged: Array = np.where(same_block, in_block, (mine & ~_IDENTITY) | _ANYBODY)
    return merged


class Shadow:
    """The last accesses to each piece, of a fixed number of bytes, of a memory."""

    def __init__(self, pieces: int, clock: Clock) -> None:
        self._clock = clock
        self._pieces = pieces
        self._writers: Array | None = None
        self._readers: Array | None = None
        self._atomics: Array | None = None

    def read(self, pieces: Array, stamps: Array, floors: Array | int) -> Conflict | None:
        """Note that threads read; return a conflict with an earlier write or atomic access, or None.

        Args:
            pieces: the number of one piece for each stamp.
            stamps: of the reads.
            floors: stamps below these are of accesses before a barrier, or of no access.
        """
        conflict = self._conflict("write", self._writers, pieces, stamps, floors)
        conflict = conflict or self._conflict("atomic", self._atomics, pieces, stamps, floors)
        if self._readers is None:
            self._readers = np.zeros(self._pieces, np.int64)
        self._note(self._readers, pieces, stamps, floors)
        return conflict

    def write(self, pieces: Array, stamps: Array, floors: Array | int) -> Conflict | None:
        """Note that threads write; return a conflict with an earlier access, or None.

        `collisions` tells whether several of these threads write to one piece.
        """
        conflict = self._conflict("write", self._writers, pieces, stamps, floors)
        conflict = conflict or self._conflict("read", self._readers, pieces, stamps, floors)
        conflict = conflict or self._conflict("atomic", self._atomics, pieces, stamps, floors)
        if self._writers is None:
            self._writers = np.zeros(self._pieces, np.int64)
        self._writers[pieces] = stamps
        return conflict

    def collisions(self, pieces: Array, stamps: Array) -> Array:
        """The positions of accesses of the last `write` whose piece another access of that `write` has overwritten."""
        assert self._writers is not None
        return np.flatnonzero(self._writers.take(pieces) != stamps)

    def last_writer(self, piece: int) -> int:
        """The stamp of the thread that has written a piece last."""
        assert self._writers is not None
        return int(self._writers[piece])

    def atomic(self, pieces: Array, stamps: Array, floors: Array | int) -> Conflict | None:
        """Note atomic accesses; return a conflict with an earlier read or write that was not atomic, or None."""
        conflict = self._conflict("write", self._writers, pieces, stamps, floors)
        conflict = conflict or self._conflict("read", self._readers, pieces, stamps, floors)
        if self._atomics is None:
            self._atomics = np.zeros(self._pieces, np.int64)
        self._note(self._atomics, pieces, stamps, floors)
        return conflict

    def _conflict(
        self, kind: str, known: Array | None, pieces: Array, stamps: Array, floors: Array | int
    ) -> Conflict | None:
        if known is None:
            return None
        old = known.take(pieces)
        foreign = (old >= floors) & (((old ^ stamps) & _IDENTITY) != 0)
        if not foreign.any():
            return None
        positions = np.flatnonzero(foreign)
        wrong = positions[self._clock.unordered(old[positions], stamps[positions])]
        if not len(wrong):
            return None
        return Conflict(int(wrong[0]), kind, int(old[wrong[0]]))

    def _note(self, known: Array, pieces: Array, stamps: Array, floors: Array | int) -> None:
        """Store stamps in `known`; a piece with unordered accesses gets a stamp that stands for all of them."""
        old = known.take(pieces)
        foreign = (old >= floors) & (((old ^ stamps) & _IDENTITY) != 0)
        if foreign.any():
            # A known access that is ordered before a new one needs no stamp: an access after the new one is after both.
            positions = np.flatnonzero(foreign)
            foreign[positions] = self._clock.unordered(old[positions], stamps[positions])
            stamps = np.where(foreign, _merged(old, stamps), stamps)
        known[pieces] = stamps
        lost = np.flatnonzero(known.take(pieces) != stamps)
        if len(lost):
            pieces = pieces[lost]
            stamps = _merged(known.take(pieces), stamps[lost])
            known[pieces] = stamps
            # All lost stamps of a piece were merged with one stamp, so the widest result stands for all: store it last.
            for several in ((stamps & _WITHIN) == _SEVERAL_WARPS, (stamps & _IDENTITY) == _ANYBODY):
                if several.any():
                    known[pieces[several]] = stamps[several]


def thread_of(stamp: int) -> tuple[int, int] | None:
    """Return the block of a stamp and the thread within it; None for a stamp that stands for several threads."""
    within = stamp & _WITHIN
    return ((stamp & _IDENTITY) >> _BLOCK, within) if within < _WARP else None
