"""`DeviceMemory`: the memory of one device, in blocks, with a limit."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable
from itertools import cycle
from typing import Any, Final

import numpy as np

from vmflow.errors import InternalError, OutOfMemory
from vmflow.forking import lock_held_while_forking

# A flat array of bytes, of the array module that the device uses.
Array = Any

KIB: Final = 1 << 10
MIB: Final = 1 << 20
GIB: Final = 1 << 30

# Processors first mistake accesses at the same offset of two pages for accesses to the same memory: two arrays are read
# and written faster together if they begin at different offsets.
PAGE: Final = 4096
# Half the distance between the offsets, within their pages, at which successive blocks on the host begin.
_STAGGER: Final = 512


class DeviceMemory:
    """Blocks of one device's memory, with a limit.

    All allocators of the device share it.  May be called from any thread.

    Args:
        name: of the device, for errors.
        make: called with a number of bytes, returns a flat uint8 array of that length with any content; raises
            MemoryError if the device has no more.  By default a numpy array on the host that begins at a multiple of
            1,024 bytes, each at another offset within its page than the one before.
        limit: the most bytes that may be in blocks at a time; None for as many as the device has.
        garbage: a byte with which `ReleaseTensor` fills released memory, so that its use shows; None for no filling.
        staggers: whether pieces should begin at different offsets within their pages; faster on the host.
        nothing: an array of no bytes, as `make` would return it; numpy's by default.

    Attributes:
        peak: the most bytes that were in blocks at a time.

    Raises:
        ValueError: for a negative limit.
    """

    def __init__(
        self,
        name: str,
        make: Callable[[int], Array] | None = None,
        limit: int | None = None,
        garbage: int | None = None,
        staggers: bool = False,
        nothing: Array | None = None,
    ) -> None:
        self.name = name
        self.garbage = garbage
        self.peak = 0
        self.staggers = staggers
        self.nothing: Array = np.empty(0, np.uint8) if nothing is None else nothing
        self._make: Callable[[int], Array] = _host_bytes if make is None else make
        self._used = 0
        self._limit = _checked_limit(limit)
        # Numbers of bytes given back and not yet subtracted from `used`.
        self._notes: deque[int] = deque()
        # The lock is reentrant, for a destructor that asks for `used` in the middle of `take` on the same thread.
        self._lock = lock_held_while_forking()

    @property
    def limit(self) -> int | None:
        """The most bytes that may be in blocks at a time; None for as many as the device has."""
        return self._limit

    @property
    def used(self) -> int:
        """The bytes in blocks, whether or not they are handed out."""
        with self._lock:
            self._settle()
            return self._used

    def set_limit(self, limit: int | None) -> None:
        """Change the limit.  If it is below `used`, no block can be taken until enough blocks have been given back.

        Raises:
            ValueError: for a negative limit.
        """
        self._limit = _checked_limit(limit)

    def take(self, nbytes: int) -> Array:
        """A new block: a flat uint8 array of `nbytes` bytes, counted as used until `give_back`.

        Raises:
            OutOfMemory: if the block would exceed the limit, or if the device has no more.
            ValueError: if `nbytes` is not positive.
            InternalError: if `make` returned an array of another length.
        """
        if nbytes <= 0:
            raise ValueError(f"a block has at least one byte, not {nbytes}")
        with self._lock:
            self._settle()
            limit = self._limit
            if limit is not None and self._used + nbytes > limit:
                raise self.refusal(nbytes)
            # The block is counted before it is made: of two threads at the limit, one must see the other's block.
            self._used += nbytes
        try:
            # Made without the lock, since a device may take long.
            block = self._make(nbytes)
            if block.nbytes != nbytes:
                raise InternalError(f"{self.name} made a block of {block.nbytes} bytes where {nbytes} were asked for")
        except MemoryError as error:
            self.give_back(nbytes)
            raise self.refusal(nbytes, by_device=True) from error
        except BaseException:
            self.give_back(nbytes)
            raise
        with self._lock:
            self.peak = max(self.peak, self._used)
        return block

    def give_back(self, nbytes: int) -> None:
        """Count a block of `nbytes` as given back.  Takes no lock: destructors may call this at any moment."""
        self._notes.append(nbytes)

    def refusal(self, requested: int, by_device: bool = False, hint: str = "") -> OutOfMemory:
        """Return the error for a request of `requested` bytes.

        Args:
            by_device: whether the device itself has no more; else the limit, if any, is the cause.
            hint: put behind the message.
        """
        used = self.used
        limit = self._limit
        in_use = f"{in_words(used)} are in use"
        if by_device:
            in_use += ", and the device has no more"
        elif limit is not None:
            in_use = f"{in_words(used)} of a limit of {in_words(limit)} are in use"
        message = f"{self.name} is out of memory: {in_words(requested)} were requested; {in_use}{hint}"
        return OutOfMemory(message, requested, limit, used)

    def _settle(self) -> None:
        notes = self._notes
        while notes:
            nbytes = notes.popleft()
            self._used -= nbytes

    def __repr__(self) -> str:
        limit = "no limit" if self._limit is None else f"limit={self._limit}"
        return f"<DeviceMemory {self.name} used={self.used} {limit}>"


_places = cycle(range(0, PAGE, 2 * _STAGGER))  # a block's second piece may begin half way between


def _host_bytes(nbytes: int) -> Array:
    padded = nbytes + PAGE
    if padded > sys.maxsize:
        raise MemoryError(f"{nbytes} bytes are more than can be addressed")  # numpy says ValueError
    block = np.empty(padded, np.uint8)
    start = (next(_places) - block.ctypes.data) % PAGE
    return block[start : start + nbytes]


def _checked_limit(limit: int | None) -> int | None:
    if limit is not None and limit < 0:
        raise ValueError(f"a limit is a number of bytes, or None for none; it cannot be negative: {limit}")
    return limit


def in_words(nbytes: int) -> str:
    for unit, name in ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if nbytes >= unit:
            return f"{nbytes / unit:.2f} {name}"
    return f"{nbytes} bytes"
