"""The memories of a kernel, and the lookup of addresses in them.

Global memory is made of regions at addresses of the device.  Shared and local memory have addresses of their own from
zero on; among generic addresses they lie in windows, above all global memory.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from .faults import IllegalAccess, Place
from .races import Clock, Shadow
from .types import Array, DType

if TYPE_CHECKING:
    from .groups import Group

# The generic addresses at which constants, shared and local memory, and kernels' parameters begin, and the size of each
# such window.  Constants are a region of global memory.
CONSTANT_WINDOW: Final = 1 << 57
SHARED_WINDOW: Final = 1 << 60
LOCAL_WINDOW: Final = 1 << 61
PARAMETER_WINDOW: Final = 1 << 62
WINDOW: Final = 1 << 32


class Region(NamedTuple):
    """A piece of global memory.

    Attributes:
        start: its address.
        buffer: its bytes.
        writable: whether kernels may write to it.
        name: for messages and counters.
    """

    start: int
    buffer: Array
    writable: bool = True
    name: str = "memory"


class Traffic:
    """The numbers of bytes that threads have read from and written to a memory."""

    __slots__ = ("read", "written")

    def __init__(self) -> None:
        self.read = 0
        self.written = 0

    def count_read(self, size: int) -> None:
        """Count bytes that were read."""
        self.read += size

    def count_written(self, size: int) -> None:
        """Count bytes that were written."""
        self.written += size

    def __repr__(self) -> str:
        return f"Traffic(read={self.read}, written={self.written})"


class Area:
    """Bytes that are accessed as arrays of any type.

    Attributes:
        start: the address of the first byte in global memory; 0 for other memories.
        size: in bytes.
        name: for messages and counters.
        writable: whether kernels may write to it.
        shadow: the last accesses; None if races are not sought.
        granule: the number of bytes for which one piece of the shadow stands.
        traffic: the numbers of bytes accessed.
    """

    def __init__(
        self, buffer: Array, start: int = 0, name: str = "", writable: bool = True, traffic: Traffic | None = None
    ) -> None:
        self.start = start
        self.size = len(buffer)
        self.name = name
        self.writable = writable
        self.shadow: Shadow | None = None
        self.granule = 1
        self.traffic = traffic or Traffic()
        self._buffer = buffer
        self._views: dict[tuple[DType, int], tuple[Array, int, int]] = {}

    def watch(self, granule: int, clock: Clock) -> None:
        """Keep a new shadow, by which races are found, from now on."""
        self.granule = granule
        # Two more pieces, since the area may begin and end in the middle of a granule.
        self.shadow = Shadow(self.size // granule + 2, clock)

    def pieces(self, offsets: Array, size: int) -> Array:
        """The numbers of the shadow's pieces that accesses touch, those of each access one after the other."""
        first = (offsets + self.start % self.granule) // self.granule
        if size <= self.granule:
            return first
        return (first[:, None] + np.arange(size // self.granule)).reshape(-1)

    def _view(self, dtype: DType, count: int) -> tuple[Array, int, int]:
        """The memory as an array of elements or rows of `count`, the offset of the first, and log2 of a row's bytes."""
        found = self._views.get((dtype, count))
        if found is None:
            size = dtype.itemsize * count
            skipped = -self.start % size
            whole = max(self.size - skipped, 0) // size
            array = self._buffer[skipped : skipped + whole * size].view(dtype)
            found = (array if count == 1 else array.reshape(whole, count), skipped, size.bit_length() - 1)
            self._views[dtype, count] = found
        return found

    def load(self, offsets: Array, dtype: DType, count: int = 1) -> Array:
        """The values at offsets; a row for each offset if `count` is not 1."""
        array, skipped, shift = self._view(dtype, count)
        return array.take((offsets - skipped if skipped else offsets) >> shift, axis=0)

    def store(self, offsets: Array, values: Array, count: int = 1) -> None:
        """Put values at offsets; of several at the same offset the last stays."""
        array, skipped, shift = self._view(values.dtype, count)
        array[(offsets - skipped if skipped else offsets) >> shift] = values

    def elements(self, offsets: Array, dtype: DType) -> tuple[Array, Array]:
        """The memory as an array, and the indices of the elements at offsets."""
        array, skipped, shift = self._view(dtype, 1)
        return array, (offsets - skipped) >> shift


class Piece(NamedTuple):
    """Accesses of some threads to one area.

    Attributes:
        area: the area.
        offsets: of the first byte of each access, in the area; one for each thread or a single one for all.
        positions: of the threads in their group; None for all of them.
    """

    area: Area
    offsets: Array
    positions: Array | None = None


class Memory:
    """The global memory of a launch, in areas that do not overlap."""

    def __init__(self, areas: Sequence[Area]) -> None:
        self.areas = sorted(areas, key=lambda area: area.start)
        self._starts = [area.start for area in self.areas]
        self._recent = self.areas[0] if self.areas else None

    def locate(self, group: Group, addresses: Array, size: int, place: Place, store: bool) -> list[Piece]:
        """The areas and offsets of addresses in global memory.

        Args:
            addresses: one for each thread or a single one for all.
            size: the bytes accessed at each address.
            store: whether the bytes are written.

        Raises:
            IllegalAccess: if an access is not within one area, is misaligned, or writes to a read-only area.
        """
        if int(np.bitwise_or.reduce(addresses)) & (size - 1):
            _misaligned(group, addresses, size, place)
        area = self._recent
        offsets = None if area is None else self._within(area, addresses, size)
        if area is None or offsets is None:
            area = self._area_of(int(addresses[0]))
            offsets = None if area is None else self._within(area, addresses, size)
            if area is None or offsets is None:
                return self._split(group, addresses, size, place, store)
            self._recent = area
        if store and not area.writable:
            self._refuse(group, addresses, 0, size, place, store)
        return [Piece(area, offsets)]

    @staticmethod
    def _within(area: Area, addresses: Array, size: int) -> Array | None:
        """The offsets of addresses in an area; None unless all accesses lie wholly in the area."""
        offsets = addresses - np.uint64(area.start)
        # An address before the area gives a huge offset.
        if int(np.maximum.reduce(offsets)) > area.size - size:
            return None
        return offsets.view(np.int64)

    def _area_of(self, address: int) -> Area | None:
        number = bisect_right(self._starts, address) - 1
        return self.areas[number] if number >= 0 else None

    def _split(self, group: Group, addresses: Array, size: int, place: Place, store: bool) -> list[Piece]:
        """Split accesses into one piece for each area; raise IllegalAccess as `locate` does."""
        addresses = group.spread(addresses)
        numbers = np.searchsorted(np.array(self._starts, np.uint64), addresses, side="right") - 1
        pieces: list[Piece] = []
        for number in np.unique(numbers).tolist():
            positions = np.flatnonzero(numbers == number)
            offsets = None
            if number >= 0:
                chosen = addresses[positions]
                offsets = self._within(self.areas[number], chosen, size)
            if offsets is None or (store and not self.areas[number].writable):
                wrong = self._first_wrong(addresses, positions, number, size)
                self._refuse(group, addresses, wrong, size, place, store)
            assert offsets is not None
            pieces.append(Piece(self.areas[number], offsets, positions))
        return pieces

    def _first_wrong(self, addresses: Array, positions: Array, number: int, size: int) -> int:
        """The first of `positions` whose access is not within area `number`; the first of all if there is none."""
        for position in positions.tolist():
            if number < 0 or self._within(self.areas[number], addresses[position : position + 1], size) is None:
                return int(position)
        return int(positions[0])

    def _refuse(self, group: Group, addresses: Array, position: int, size: int, place: Place, store: bool) -> None:
        address = int(addresses[position])
        verb = "writes" if store else "reads"
        number = bisect_right(self._starts, address) - 1
        inside = number >= 0 and address + size <= self.areas[number].start + self.areas[number].size
        if inside:
            reason = f"{verb} {size} bytes at {address:#x}, in {_described(self.areas[number])}, which is read-only"
        else:
            reason = f"{verb} {size} bytes at {address:#x}, out of all memory; {self._nearest(address, size)}"
        raise group.fault(IllegalAccess, place, [position], reason, address=address)

    def _nearest(self, address: int, size: int) -> str:
        """The part of a message that names the area nearest to an access that no area contains."""
        if not self.areas:
            return "the launch has no memory"
        distances: list[tuple[int, str]] = []
        for area in self.areas:
            end = area.start + area.size
            if address + size > end:
                beyond = address + size - end
                distances.append((beyond, f"its end is {beyond} bytes beyond that of {_described(area)}"))
            if address < area.start:
                before = area.start - address
                distances.append((before, f"it begins {before} bytes before {_described(area)}"))
        return min(distances)[1]


def _described(area: Area) -> str:
    return f"{area.name} ({area.size} bytes at {area.start:#x})"


def _misaligned(group: Group, addresses: Array, size: int, place: Place) -> None:
    position = int(np.flatnonzero(addresses & addresses.dtype.type(size - 1))[0])
    address = int(addresses[position])
    reason = f"accesses {size} bytes at {address:#x}, which is not a multiple of {size}"
    raise group.fault(IllegalAccess, place, [position], reason, address=address)


def locate_private(
    group: Group, addresses: Array, size: int, place: Place, area: Area, extent: int, bases: Array, kind: str
) -> list[Piece]:
    """The offsets of addresses in shared or local memory or kernels' parameters.

    Args:
        addresses: in one such memory, from 0; one for each thread or a single one for all.
        size: the bytes accessed at each address.
        area: the memories of all blocks or threads of the batch, or the parameters.
        extent: the bytes of one memory.
        bases: for each thread, the offset in `area` of the memory that it accesses, or a single offset for all.
        kind: "shared", "local" or "parameter", for messages.

    Raises:
        IllegalAccess: if an access is misaligned or ends beyond `extent`.
    """
    if int(np.bitwise_or.reduce(addresses)) & (size - 1):
        _misaligned(group, addresses, size, place)
    if int(np.maximum.reduce(addresses)) > extent - size:
        position = int(np.argmax(addresses > max(extent - size, 0))) if extent >= size else 0
        address = int(addresses[position])
        # An address from 2**31 on is taken for a negative number, of 64 bits or, extended by zeros, of 32.
        end = address + size - extent if address < WINDOW // 2 else 0
        beyond = f"{end} bytes beyond its end" if end else "before its beginning"
        reason = f"accesses {size} bytes at {address:#x} of {kind} memory, which has {extent} bytes: {beyond}"
        raise group.fault(IllegalAccess, place, [position], reason, address=address)
    return [Piece(area, bases + addresses.view(np.int64))]
