"""`EmulatedMemory`: the memory of emulated devices and page-locked memory, by address."""

from __future__ import annotations

import threading
import weakref
from bisect import bisect_right
from typing import Any, Final, final

import numpy as np

from vmflow.streams.cuda.arrays import DeviceArray
from vmflow.streams.cuda.hazards import Shadow

# The content of new memory: nan in every floating dtype, -1 in every signed integer dtype.
GARBAGE: Final = 0xFF

# The address where devices' memory begins, and the least gap between two blocks there: to access the gap is an error.
_FIRST_ADDRESS: Final = 0x7000_0000_0000
_GAP: Final = 4096


class IllegalAddress(RuntimeError):
    """Work on an emulated device uses addresses without device or page-locked memory, or memory that was freed."""


@final
class Region:
    """A block of memory.

    Attributes:
        start, stop: its first address, and the address behind its last.
        buffer: the content, as bytes.
        device: the index of its device; None for page-locked memory of the host.
        shadow: the record of accesses that later ones must be ordered behind.
        freed: whether the block was freed.
    """

    __slots__ = ("buffer", "device", "freed", "shadow", "start", "stop")

    def __init__(self, start: int, buffer: np.ndarray[Any, Any], device: int | None) -> None:
        self.start = start
        self.stop = start + buffer.nbytes
        self.buffer = buffer
        self.device = device
        self.shadow = Shadow(buffer.nbytes)
        self.freed = False

    def __repr__(self) -> str:
        place = "page-locked memory" if self.device is None else f"memory of cuda:{self.device}"
        return f"<{self.stop - self.start} bytes of {place} at {self.start:#x}>"


@final
class Owner:
    """Holds a region; when the owner is destroyed, the region is freed."""

    __slots__ = ("_memory", "_region")

    def __init__(self, memory: EmulatedMemory, region: Region) -> None:
        self._memory = memory
        self._region = region

    def __del__(self) -> None:
        self._memory.free(self._region)


class _Lender:
    """Presents memory to numpy as foreign, so that an array made from it is the base of its own views."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self._array = array
        self.__array_interface__ = array.__array_interface__


@final
class EmulatedMemory:
    """The memory of all devices of one `EmulatedMachine`, and page-locked memory."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._regions: list[Region] = []
        self._next = _FIRST_ADDRESS
        self._used: dict[int, int] = {}
        # Reentrant, because a destructor may free a region in the middle of any change.
        self._lock = threading.RLock()

    def allocate(self, device: int, nbytes: int) -> Region:
        """A new block of a device's memory, full of garbage."""
        with self._lock:
            region = Region(self._next, np.full(nbytes, GARBAGE, np.uint8), device)
            self._next += -(-nbytes // _GAP) * _GAP + _GAP
            self._used[device] = self._used.get(device, 0) + nbytes
            self._insert(region)
        return region

    def pinned(self, nbytes: int) -> np.ndarray[Any, Any]:
        """New page-locked memory: a block at its address on the host, for as long as an array refers to it."""
        buffer = np.full(max(nbytes, 1), GARBAGE, np.uint8)
        region = Region(int(buffer.ctypes.data), buffer, None)
        with self._lock:
            self._insert(region)
        array = np.asarray(_Lender(buffer[:nbytes]))
        # `array` is the root of all views and dies with the last; none has the region's own array, `buffer`, as base.
        weakref.finalize(array, self.free, region).atexit = False
        return array

    def used(self, device: int) -> int:
        """The number of bytes of all blocks of a device's memory."""
        return self._used.get(device, 0)

    def free(self, region: Region) -> None:
        """Free the block; work that uses it and has not begun fails."""
        with self._lock:
            region.freed = True
            at = bisect_right(self._starts, region.start) - 1
            del self._starts[at], self._regions[at]
            if region.device is not None:
                self._used[region.device] -= region.stop - region.start

    def region_at(self, start: int, stop: int, user: str) -> Region:
        """The block that has the addresses from `start` to before `stop`; `user` names the work that uses them.

        Raises:
            IllegalAddress: if no block has them.
        """
        with self._lock:
            at = bisect_right(self._starts, start) - 1
            region = self._regions[at] if at >= 0 else None
        if region is None or stop > region.stop:
            near = f"; the block before is {region!r}" if region is not None else ""
            raise IllegalAddress(f"{user} uses addresses {start:#x} to {stop:#x}, where no memory is{near}")
        return region

    def device_at(self, address: int) -> int | None:
        """The index of the device whose memory has this address; None if no device has memory there."""
        try:
            return self.region_at(address, address + 1, "a question").device
        except IllegalAddress:
            return None

    def region_of(self, array: DeviceArray, user: str) -> Region | None:
        """The block of an array, see `region_at`; None for an array without elements."""
        start, stop = array.extent()
        return None if start == stop else self.region_at(start, stop, user)

    def _insert(self, region: Region) -> None:
        at = bisect_right(self._starts, region.start)
        self._starts.insert(at, region.start)
        self._regions.insert(at, region)


def view(array: DeviceArray, region: Region | None, user: str) -> np.ndarray[Any, Any]:
    """The array's memory as a numpy array, for the work that `user` names; a new one, without elements, for an array
    without a block.

    Raises:
        IllegalAddress: if the block was freed.
    """
    if region is None:
        return np.empty(array.shape, array.dtype)
    if region.freed:
        raise IllegalAddress(f"{user} uses {array!r}, whose memory was freed before it had ended")
    return np.ndarray(array.shape, array.dtype, region.buffer, array.pointer - region.start, array.strides)
