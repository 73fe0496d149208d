"""`PinnedMemory`: page-locked memory of the host, reused."""

from __future__ import annotations

import weakref
from collections import deque
from contextlib import suppress
from typing import Any, Final, final

import numpy as np

from vmflow.forking import lock_held_while_forking

from .driver import Driver

# Bytes of the smallest block.  Sizes are powers of two, so that a block fits many requests.
SMALLEST: Final = 512

# Bytes.  Before more than this is page-locked, unused blocks are released: the host cannot page them out.
KEPT: Final = 1 << 30


@final
class PinnedMemory:
    """Page-locked memory of the host, in blocks that are reused.

    Page-locking is slow, so blocks are kept.  An array's block may be reused as soon as nothing refers to the array or
    its views; a caller that hands an array to a device must keep the array until the copy has ended.

    Args:
        driver: of the device for which pages are locked.

    Attributes:
        reserved: bytes in blocks, whether or not they are in use.
    """

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        # The unused blocks of each size.  Destructors append to these lists, which takes no lock.
        self._free: dict[int, deque[np.ndarray[Any, Any]]] = {}
        self.reserved = 0
        self._lock = lock_held_while_forking()

    def array(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
        """A new C-contiguous array, with any content.

        Raises:
            MemoryError: if the host has no more page-locked memory.
        """
        nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        size = max(SMALLEST, 1 << (nbytes - 1).bit_length()) if nbytes else SMALLEST
        free = self._free.setdefault(size, deque())
        try:
            block = free.pop()
        except IndexError:
            block = self._lock_pages(size)
        lent = np.asarray(Lender(block, free))
        return np.ndarray(shape, dtype, lent[:nbytes])

    def _lock_pages(self, nbytes: int) -> np.ndarray[Any, Any]:
        if self.reserved + nbytes > KEPT:
            self.empty_cache()
        try:
            block = self._driver.pinned(nbytes)
        except MemoryError:
            self.empty_cache()
            block = self._driver.pinned(nbytes)
        self._count(nbytes)
        return block

    def empty_cache(self) -> None:
        """Release the unused blocks."""
        # Other threads may add sizes meanwhile.
        for size, free in list(self._free.items()):
            with suppress(IndexError):  # the list is empty, or another thread was faster
                while True:
                    free.pop()
                    self._count(-size)

    def _count(self, nbytes: int) -> None:
        with self._lock:
            self.reserved += nbytes


def lies_pinned(array: np.ndarray[Any, Any]) -> bool:
    """Whether an array lies in page-locked memory from this module."""
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    return isinstance(base, Lender)


class Lender:
    """Presents a block to numpy as foreign memory: arrays in the block keep this object alive.

    Args:
        block: of bytes.
        free: the unused blocks of this size; the block is appended when this object is destroyed.
    """

    def __init__(self, block: np.ndarray[Any, Any], free: deque[np.ndarray[Any, Any]]) -> None:
        self.__array_interface__ = block.__array_interface__
        weakref.finalize(self, free.append, block).atexit = False
