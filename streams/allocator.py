"""Memory of a device in stream order: blocks taken from the device, pieces of them handed out, freed and reused.

Pieces are handed out and freed when an instruction is launched, not when it has run.  A piece freed may therefore be
handed out again while the device still works on its old content.  That is sound for one reason: the new owner's work
stands behind the old one's on the same in-order stream.  So each allocator belongs to one stream.  A caller that lets
another stream use a piece must order that use behind the work of the allocator's stream, and make the allocator's
stream wait for that use before the piece is freed.

Destructors are the second way to give pieces back.  The garbage collector may run them on any thread between any two
steps, also in the middle of a change of an allocator.  They take no lock and change nothing: they leave a note in a
deque, and a later `allocate`, `shrink`, `statistics`, `reset_peak` or `largest` takes the pieces back.
"""

from __future__ import annotations

import weakref
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable
from heapq import nsmallest
from math import prod
from typing import Any, Final

import numpy as np

from vmflow.errors import InternalError, OutOfMemory
from vmflow.forking import lock_held_while_forking
from vmflow.native import caused_by

from .allocator_checks import contradictions
from .device_memory import PAGE, Array, DeviceMemory, in_words
from .pieces import (
    BINS,
    LARGE_GRANULE,
    MIDDLING_BELOW,
    SPLIT_OFF,
    STAGGERED_FROM,
    Block,
    Piece,
    absorb,
    block_size,
    cut,
    is_idle,
    pieces_of,
)

# More bits than the size of any block has.
_BITS: Final = 64


class Allocation:
    """A piece of memory handed out.  If it is dropped and not freed, the allocator takes the piece back later.

    Made by `BinAllocator` only.

    Attributes:
        allocator: the allocator that it came from.
        block: the block that the piece is a part of, a flat uint8 array; None once freed, and in
            results of `largest`.
        offset: where in the block the piece begins, in bytes.
        nbytes: the size of the piece; at least as much as was requested.
        requested: the requested bytes.
        owner: the requester: any object whose str() describes it, or None; for reports.
    """

    __slots__ = ("__weakref__", "_piece", "allocator", "block", "nbytes", "offset", "owner", "requested")

    def __init__(
        self,
        allocator: BinAllocator,
        block: Array,
        offset: int,
        nbytes: int,
        requested: int,
        owner: Any,
        piece: Piece | None,
    ) -> None:
        self._piece = piece
        self.allocator = allocator
        self.block = block
        self.offset = offset
        self.nbytes = nbytes
        self.requested = requested
        self.owner = owner

    def array(self, shape: tuple[int, ...], numpy_dtype: np.dtype[Any]) -> Array:
        """The piece's beginning as a C-contiguous array of the type of `block`: a view, which does not prevent reuse.

        Raises:
            ValueError: if the array would be larger than the piece.
            InternalError: if `block` is None.
        """
        if self.block is None:
            raise InternalError(f"{self!r} has been freed, and may have another owner by now")
        needed = prod(shape) * numpy_dtype.itemsize
        if needed > self.nbytes:
            raise ValueError(f"{shape} of {numpy_dtype} needs {needed} bytes, and this piece has {self.nbytes}")
        if type(self.block) is np.ndarray:
            return np.ndarray(shape, numpy_dtype, self.block, self.offset)
        return self.block.strided(shape, numpy_dtype, self.offset)

    def free(self) -> None:
        """Give the piece back; the next `allocate` may hand it out again.  Freeing twice does nothing.

        To be called after the last use of the piece has been launched.
        """
        piece = self._piece
        if piece is None:
            self.block = None
            return
        allocator = self.allocator
        try:
            # `on_free` is called before the piece can be reused: it may write, but not over the next owner's content.
            if allocator.on_free is not None:
                allocator.on_free(self)
        finally:
            self._piece = None
            self.block = None
            allocator.take_back(piece)

    def __del__(self) -> None:
        piece = self._piece
        if piece is not None:
            # Another destructor may revive this object, when both go together in a reference cycle.  The piece
            # is gone all the same, and must not be given back twice.
            self._piece = None
            self.block = None
            self.allocator.leave_note((piece, False))

    def __repr__(self) -> str:
        state = "freed, " if self.block is None else ""
        return f"<Allocation {state}{self.requested} bytes in {self.nbytes} at {self.offset}, for {self.owner}>"


class BinAllocator:
    """Hands out pieces of a device's memory, for one in-order stream; the docstring of the module explains how.

    Free pieces stand in bins by size, in each bin ordered by size and then by age of the block.  A request takes
    the piece that a destructor noted last, if that has the right size and there is no `on_free`; else the smallest
    large enough piece of its bin, else the smallest of the next bin that has any, else a new block.

    May be called from any thread.  In the middle of a change on the same thread, as from a destructor, pieces can be
    freed, but `allocate`, `shrink` and `largest` raise `InternalError`.

    Args:
        memory: the device's memory, from which blocks are taken.
        alignment: requests are rounded up to a multiple of this many bytes; a power of two from 16 to 2 MiB.  Pieces
            begin at multiples of it, counted from the start of their block.
        on_handout: called with each `Allocation` before it is handed out, without a lock.
        on_free: called with each freed `Allocation` before its piece can be handed out again, without a lock, and
            may still write the memory.  If a destructor gave the piece back, the argument is another object with the
            same fields, and the thread that takes the piece back makes the call.  Neither is called for 0 bytes.

    Attributes:
        retries: how often memory was short and a caller tried again, which it counts by `tried_again`.
        ooms: how often a request failed for lack of memory; callers count this by `ran_out`.

    Raises:
        ValueError: for an alignment that is no power of two from 16 to 2 MiB.
    """

    def __init__(
        self,
        memory: DeviceMemory,
        *,
        alignment: int = 512,
        on_handout: Callable[[Allocation], None] | None = None,
        on_free: Callable[[Allocation], None] | None = None,
    ) -> None:
        if not 16 <= alignment <= LARGE_GRANULE or alignment & (alignment - 1):
            raise ValueError(f"the alignment must be a power of two from 16 to {LARGE_GRANULE} bytes, not {alignment}")
        self.memory = memory
        self.alignment = alignment
        self._staggers = memory.staggers and alignment < PAGE
        self.on_handout = on_handout
        self.on_free = on_free
        self.retries = 0
        self.ooms = 0
        # (size, address, piece) of all free pieces.  No two have the same address, so pieces are never compared.
        self._bins: list[list[Any]] = [[] for _ in range(BINS)]
        # By the bit length of a size: the bin for pieces of that size.
        first = alignment.bit_length()
        self._bin_of = [self._bins[min(max(bits - first, 0), BINS - 1)] for bits in range(_BITS + 1)]
        self._blocks: dict[int, Block] = {}
        self._arrays: dict[int, Array] = {}
        self._next_address = 0
        # Pieces to be taken back, each with whether `on_free`, if any, has been called for it.
        self._notes: deque[tuple[Piece, bool]] = deque()
        # For destructors: a method in C, because Ctrl-C may interrupt a Python function before it has begun.
        self.leave_note: Final = self._notes.append
        self._lock = lock_held_while_forking()
        # True in the middle of a change; only code that interrupts the change on the same thread sees True: a
        # destructor, a signal handler, or `make` of `memory`.
        self._changing = False
        # Bytes and pieces handed out: now, at most, and since the beginning.
        self._allocated = 0
        self._allocated_peak = 0
        self._allocated_ever = 0
        self._live = 0
        self._live_peak = 0
        self._live_ever = 0
        self._requested = 0
        self._requested_peak = 0
        # Bytes in blocks.
        self._reserved = 0
        self._reserved_peak = 0
        self._reserved_ever = 0
        self._segments_peak = 0
        self._segments_ever = 0

    def allocate(self, nbytes: int, owner: Any = None) -> Allocation:
        """A piece of at least `nbytes` bytes, with any content.

        A request for 0 bytes gives a piece that takes no memory and counts as nothing.

        Args:
            owner: of the piece, for reports of live memory.

        Raises:
            OutOfMemory: if no free piece is large enough and the device gives no new block.  `shrink`, of this
                allocator and the device's others, may help.
            ValueError: for a negative size.
        """
        if nbytes <= 0:
            if nbytes < 0:
                raise ValueError(f"cannot allocate a negative number of bytes: {nbytes}")
            return Allocation(self, self.memory.nothing, 0, 0, 0, owner, None)
        alignment = self.alignment
        size = (nbytes + alignment - 1) & -alignment
        if self._staggers and size >= STAGGERED_FROM and not size % PAGE and size < MIDDLING_BELOW:
            size += alignment  # so that the next piece begins at another offset within its page
        last = self._last_dropped(size) if self._notes else None
        # The piece's last owner is held until the lock is released: this may be the last reference to it, and its
        # destructor may do anything.
        owner_before = None if last is None else last.owner
        # `allocate` and `take_back`, which ops call often, do not take the lock by `with`, which is slower.
        self._lock.acquire()
        if self._changing:
            if last is not None:
                self._notes.append((last, False))
            self._lock.release()
            raise _entered_twice()
        self._changing = True
        try:
            if last is not None:
                self._requested -= last.requested
                self._allocated -= last.nbytes
                self._live -= 1
            piece = last or self._find(size) or self._new_block(size, nbytes)
            got = piece.nbytes
            if got >= 2 * size or got - size >= SPLIT_OFF:
                self._split(piece, size)
                got = size
            piece.free = False
            piece.requested = nbytes
            piece.owner = owner
            block = self._arrays[piece.block.address]
            self._requested += nbytes
            if self._requested > self._requested_peak:
                self._requested_peak = self._requested
            self._allocated_ever += got
            self._allocated += got
            if self._allocated > self._allocated_peak:
                self._allocated_peak = self._allocated
            self._live_ever += 1
            self._live += 1
            if self._live > self._live_peak:
                self._live_peak = self._live
        finally:
            self._changing = False
            self._lock.release()
        _let_go(owner_before)
        allocation = Allocation(self, block, piece.offset, got, nbytes, owner, piece)
        if self.on_handout is not None:
            self.on_handout(allocation)
        return allocation

    def shrink(self) -> int:
        """Give blocks without pieces in use back to the device, and return the number of their bytes.

        Only legal while no work uses freed pieces: the caller must have waited for the stream.  Within the stream its
        order protects them, but the device may give a block to any user.  A block counts as given back
        immediately, even if an array of a freed piece, unused by now, still keeps its memory a little longer.
        """
        self._settle()
        with self._lock:
            self._begin()
            try:
                idle = [block for block in self._blocks.values() if is_idle(block)]
                for block in idle:
                    self._leave_bin(block.first)
                    self._reserved -= block.nbytes
                    # The finalizer is detached before the array goes, or the block would be given back twice.
                    block.finalizer.detach()
                    del self._blocks[block.address]
                    del self._arrays[block.address]
                    self.memory.give_back(block.nbytes)
            finally:
                self._changing = False
        return sum(block.nbytes for block in idle)

    def statistics(self) -> dict[str, int]:
        """Counters, under the names that ``torch.cuda.memory_stats`` gives them.

        ``allocated_bytes`` are handed out, counted by the size of the pieces; ``requested_bytes`` are counted by the
        requests; ``reserved_bytes`` are in blocks (``segment``); ``inactive_split_bytes`` are free and cannot be given
        back to the device, since other pieces of their block are handed out.
        """
        self._settle()
        with self._lock:
            idle = sum([block.nbytes for block in self._blocks.values() if is_idle(block)])
            found: dict[str, int] = {}
            for name, current, peak, ever in (
                ("allocated_bytes", self._allocated, self._allocated_peak, self._allocated_ever),
                ("allocation", self._live, self._live_peak, self._live_ever),
                ("reserved_bytes", self._reserved, self._reserved_peak, self._reserved_ever),
                ("segment", len(self._blocks), self._segments_peak, self._segments_ever),
            ):
                found[f"{name}.all.current"] = current
                found[f"{name}.all.peak"] = peak
                found[f"{name}.all.allocated"] = ever
                found[f"{name}.all.freed"] = ever - current
            found["requested_bytes.all.current"] = self._requested
            found["requested_bytes.all.peak"] = self._requested_peak
            found["inactive_split_bytes.all.current"] = self._reserved - self._allocated - idle
            found["num_alloc_retries"] = self.retries
            found["num_ooms"] = self.ooms
            return found

    def reset_peak(self) -> None:
        """Let every ".peak" begin anew at the current value."""
        self._settle()
        with self._lock:
            self._allocated_peak = self._allocated
            self._requested_peak = self._requested
            self._live_peak = self._live
            self._reserved_peak = self._reserved
            self._segments_peak = len(self._blocks)

    def tried_again(self) -> None:
        """Count that memory was short, and a request is tried again."""
        self.retries += 1

    def ran_out(self) -> None:
        """Count that a request failed for lack of memory."""
        self.ooms += 1

    def largest(self, count: int) -> list[Allocation]:
        """The `count` largest pieces handed out, largest first; of equal ones, the oldest block's first.

        For reports: the returned objects only describe the pieces.  Freeing them does nothing.
        """
        self._settle()
        with self._lock:
            self._begin()
            try:
                live = [piece for block in self._blocks.values() for piece in pieces_of(block) if not piece.free]
                chosen = nsmallest(count, live, key=_by_size)
                return [
                    Allocation(self, None, piece.offset, piece.nbytes, piece.requested, piece.owner, None)
                    for piece in chosen
                ]
            finally:
                self._changing = False

    def check_invariants(self) -> None:
        """Raise `InternalError` if blocks, bins and counters contradict each other.  Takes time for each piece."""
        with self._lock:
            self._begin()
            try:
                counted = {
                    "allocated bytes": self._allocated,
                    "allocations": self._live,
                    "requested bytes": self._requested,
                    "reserved bytes": self._reserved,
                }
                problems = contradictions(self.alignment, self._blocks, self._arrays, self._bins, counted)
            finally:
                self._changing = False
        if problems:
            raise InternalError("the allocator contradicts itself: " + "; ".join(problems))

    def _begin(self) -> None:
        """Enter a change, with the lock held, or raise InternalError within one; the caller resets `_changing`."""
        if self._changing:
            raise _entered_twice()
        self._changing = True

    # Pieces that come back

    def _settle(self) -> None:
        """Take back the noted pieces."""
        notes = self._notes
        # A loop over later notes might not end: `take_back` in the middle of a change notes the piece once more.
        for _ in range(len(notes)):
            try:
                piece, announced = notes.popleft()
            except IndexError:
                return  # another thread was faster
            if announced or self.on_free is None:
                self.take_back(piece)
            else:
                block = self._arrays[piece.block.address]
                Allocation(self, block, piece.offset, piece.nbytes, piece.requested, piece.owner, piece).free()

    def take_back(self, piece: Piece) -> None:
        """Let a piece be handed out again; in the middle of a change, note it for later."""
        self._lock.acquire()
        if self._changing:
            self._notes.append((piece, True))
            self._lock.release()
            return
        self._changing = True
        # The owner is held until the lock is released: its destructor, if this is the last reference, may do anything.
        owner = piece.owner
        try:
            piece.owner = None
            self._allocated -= piece.nbytes
            self._live -= 1
            self._requested -= piece.requested
            piece.free = True
            follower = piece.next
            if follower is not None and follower.free:
                self._leave_bin(follower)
                absorb(piece, follower)
            before = piece.previous
            if before is not None and before.free:
                self._leave_bin(before)
                absorb(before, piece)
                piece = before
            insort(self._bin_of[piece.nbytes.bit_length()], (piece.nbytes, piece.address, piece))
        finally:
            self._changing = False
            self._lock.release()
        _let_go(owner)

    def _last_dropped(self, size: int) -> Piece | None:
        """Take the piece that a destructor noted last, which so enters no bin; None if it has not `size` bytes.

        Takes back the other noted pieces.  With `on_free`, takes back all of them and returns None.
        """
        last: Piece | None = None
        if self.on_free is None:
            try:
                note = self._notes.pop()
            except IndexError:
                return None  # another thread was faster
            if note[0].nbytes == size:
                last = note[0]
            else:
                self._notes.append(note)
        try:
            self._settle()
        except BaseException:  # Ctrl-C
            if last is not None:
                self._notes.append((last, False))
            raise
        return last

    # The steps of a change, with the lock held

    def _find(self, size: int) -> Piece | None:
        """The best free piece, taken out of its bin; None if none is large enough."""
        bits = size.bit_length()
        if bits > _BITS:
            return None
        entries = self._bin_of[bits]
        if entries:
            index = bisect_left(entries, (size,))
            if index < len(entries):
                piece: Piece = entries.pop(index)[2]
                return piece
        # In later bins each piece is large enough, and the first is the best; in earlier ones none is.
        for entries in self._bins:
            if entries and entries[-1][0] >= size:
                piece = entries.pop(0)[2]
                return piece
        return None

    def _new_block(self, size: int, requested: int) -> Piece:
        """Take a new block of `size` bytes or more from the device; return its only piece, which is in no bin."""
        array = self._take_from_device(size, requested)
        nbytes: int = array.nbytes
        address = self._next_address
        self._next_address += nbytes
        # Until `shrink`, the bytes count as used while any array of the block lives, even longer than the allocator.
        try:
            finalizer = weakref.finalize(_root(array), self.memory.give_back, nbytes)
        except BaseException:  # Ctrl-C: `finalize` is Python code, which a signal may interrupt
            self.memory.give_back(nbytes)
            raise
        finalizer.atexit = False
        block = self._blocks[address] = Block(address, nbytes, finalizer)
        self._arrays[address] = array
        self._reserved += nbytes
        self._reserved_ever += nbytes
        self._reserved_peak = max(self._reserved_peak, self._reserved)
        self._segments_ever += 1
        self._segments_peak = max(self._segments_peak, len(self._blocks))
        return block.first

    def _take_from_device(self, size: int, requested: int) -> Array:
        whole = block_size(size, self._staggers)
        if whole != size:
            try:
                return self.memory.take(whole)
            except OutOfMemory:
                pass  # the last bytes below a limit may suffice for a block of the request's size
        try:
            return self.memory.take(size)
        except OutOfMemory as error:
            free = self._reserved - self._allocated
            largest = max([entries[-1][0] for entries in self._bins if entries], default=0)
            hint = ""
            if free:
                hint = f" ({in_words(free)} of them free, but in pieces of {in_words(largest)} at most)"
            by_device = error.limit is None or error.used + size <= error.limit
            raise caused_by(self.memory.refusal(requested, by_device, hint), error.__cause__)  # noqa: B904

    def _split(self, piece: Piece, size: int) -> None:
        """Cut `piece` down to its first `size` bytes; the rest becomes a free piece."""
        rest = cut(piece, size)
        insort(self._bin_of[rest.nbytes.bit_length()], (rest.nbytes, rest.address, rest))

    def _leave_bin(self, piece: Piece) -> None:
        entries = self._bin_of[piece.nbytes.bit_length()]
        del entries[bisect_left(entries, (piece.nbytes, piece.address))]

    def __repr__(self) -> str:
        return f"<BinAllocator of {self.memory.name}: {self._allocated} bytes handed out of {self._reserved}>"


def _let_go(owner: object) -> None:
    """Do nothing.  Compiled code releases a variable at its last use, even before a `del`: calling this is a use."""


def _entered_twice() -> InternalError:
    return InternalError(
        "a destructor, or the function that makes a device's blocks, called the allocator in the middle of a change; "
        "there it may free, but neither allocate nor shrink nor list"
    )


def _by_size(piece: Piece) -> tuple[int, int]:
    return -piece.nbytes, piece.address


def _root(array: Array) -> Array:
    """Return the array that all views of `array` keep alive: in numpy and CuPy, views of views refer to the first."""
    base = getattr(array, "base", None)
    while type(base) is type(array):
        array = base
        base = getattr(array, "base", None)
    return array
