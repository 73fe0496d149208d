"""Threads that are at the same instruction, and their registers.

The threads of some thread blocks run together, as a `Batch`.  At first they are one `Group`.  If they take different
branches the group is split, and where they meet again groups are joined.  So operations need no masks of threads.

Threads have numbers within a batch, their *lanes*.  Thread blocks and warps begin at lanes that are multiples of 32.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from .faults import KernelFault, Place, ThreadName
from .types import Array

if TYPE_CHECKING:
    from .launch import Launch
    from .memory import Area

WARP: Final = 32

Registers = list[Any]  # One array for each register; None if it holds no value.


class Batch:
    """Some whole thread blocks of a launch, run together.

    Attributes:
        launch: the launch.
        first: the number of the first block.
        blocks: the number of blocks.
        stride: lanes from one block to the next.
        alive: for each lane whether it is a thread that has not ended.
        living: the number of threads that have not ended.
        shared: the shared memory of all blocks, one after the other.
        local: the local memory of all lanes.
    """

    def __init__(self, launch: Launch, first: int, blocks: int, shared: Area, local: Area) -> None:
        self.launch = launch
        self.first = first
        self.blocks = blocks
        self.stride = launch.stride
        inside = np.arange(self.stride) < launch.threads
        self.alive = np.tile(inside, blocks)
        self.living = blocks * launch.threads
        self.shared = shared
        self.local = local
        self._lanes = np.flatnonzero(self.alive)

    def start(self, registers: Registers) -> Group:
        """Make the group of all threads of the batch, at the beginning of the kernel."""
        return Group(self, registers, self._lanes, 0, ())

    def end(self, lanes: Array) -> None:
        """Record that threads have ended."""
        self.alive[lanes] = False
        self.living -= len(lanes)

    def living_in_blocks(self) -> Array:
        """The number of threads of each block that have not ended."""
        counts: Array = self.alive.reshape(self.blocks, self.stride).sum(axis=1)
        return counts

    def living_in_warps(self) -> Array:
        """For each warp the bits of its threads that have not ended."""
        bits = self.alive.reshape(-1, WARP).astype(np.uint32) << np.arange(WARP, dtype=np.uint32)
        found: Array = np.bitwise_or.reduce(bits, axis=1)
        return found

    def initial(self, name: str) -> Array:
        """The values of a special register, such as "tid.x": one for each thread, or a single one for all."""
        values = self._computed(name)
        return values if len(values) == 1 else values.take(self._lanes)

    def _computed(self, name: str) -> Array:
        launch = self.launch
        kind, _, axis = name.partition(".")
        position = "xyz".find(axis) if axis else 0
        if kind in ("ntid", "nctaid"):
            return np.array([(launch.block if kind == "ntid" else launch.grid)[position]], np.uint32)
        if kind == "tid":
            return self._coordinate(np.arange(self.stride), launch.block, position, self.blocks, np.tile)
        if kind == "ctaid":
            numbers = self.first + np.arange(self.blocks)
            return self._coordinate(numbers, launch.grid, position, self.stride, np.repeat)
        within = np.arange(self.blocks * self.stride) % self.stride
        values = within % WARP if kind == "laneid" else within // WARP
        return values.astype(np.uint32)

    def _coordinate(self, numbers: Array, extents: Sequence[int], axis: int, times: int, spread: Any) -> Array:
        before = int(np.prod(extents[:axis]))
        values = (numbers // before % extents[axis]).astype(np.uint32)
        if extents[axis] == 1 or len(values) == 1:
            return values[:1]
        spread_out: Array = spread(values, times)
        return spread_out

    def thread(self, lane: int) -> ThreadName:
        """The name of a thread."""
        block, within = divmod(lane, self.stride)
        return self.launch.thread(self.first + block, within)


class Group:
    """Threads at the same basic block.

    Attributes:
        batch: their batch.
        registers: one array for each register, or None.
        lanes: the lanes of the threads in the batch, ascending.
        count: the number of threads.
        pc: the number of this basic block.
        stack: the basic blocks to which the called functions return, the innermost last.
    """

    __slots__ = ("_blocks", "_floors", "_identities", "batch", "count", "lanes", "pc", "registers", "stack")

    def __init__(self, batch: Batch, registers: Registers, lanes: Array, pc: int, stack: tuple[int, ...]) -> None:
        self.batch = batch
        self.registers = registers
        self.lanes = lanes
        self.count = len(lanes)
        self.pc = pc
        self.stack = stack
        self._blocks: Array | None = None
        self._identities: Array | None = None
        self._floors: tuple[int, Array] | None = None

    @property
    def blocks(self) -> Array:
        """The number of each thread's block within the batch."""
        if self._blocks is None:
            self._blocks = self.lanes // self.batch.stride
        return self._blocks

    @property
    def identities(self) -> Array:
        """For each thread, its stamp in `races` without the time."""
        if self._identities is None:
            within = self.lanes - self.blocks * self.batch.stride
            self._identities = ((self.blocks + self.batch.first) << 11) | within
        return self._identities

    def floors(self) -> Array:
        """For each thread, the least stamp (see `races`) that an access after its block's last barrier can have."""
        clock = self.batch.launch.clock
        if self._floors is None or self._floors[0] != clock.now:
            self._floors = (clock.now, clock.barriers.take(self.blocks + self.batch.first) << 36)
        return self._floors[1]

    def spread(self, values: Array) -> Array:
        """One element for each thread."""
        return np.broadcast_to(values, (self.count, *values.shape[1:])) if len(values) != self.count else values

    def go(self, pc: int) -> None:
        """Go to another basic block."""
        self.pc = pc

    def call(self, entry: int, following: int) -> None:
        """Go to a function, which will return to the basic block `following`."""
        self.stack = (*self.stack, following)
        self.pc = entry

    def come_back(self) -> None:
        """Return to the basic block that follows the call."""
        self.pc, self.stack = self.stack[-1], self.stack[:-1]

    def part(self, positions: Array, live: Sequence[int], pc: int) -> Group:
        """Copy some of this group's threads to a group of their own.

        Args:
            positions: of these threads in this group.
            live: the registers that these threads still need.
            pc: the basic block to which they go.
        """
        old = self.registers
        registers: Registers = list(self.batch.launch.constants)
        for slot in live:
            values = old[slot]
            registers[slot] = values if len(values) == 1 else values.take(positions)
        return Group(self.batch, registers, self.lanes.take(positions), pc, self.stack)

    def fault(
        self, kind: type[KernelFault], place: Place, positions: Sequence[int], reason: str, **more: int
    ) -> KernelFault:
        """Make the error of the threads at `positions`."""
        names = tuple([self.batch.thread(int(self.lanes[position])) for position in positions])
        return kind(self.batch.launch.name, place, names, reason, **more)


def join(groups: Sequence[Group], live: Sequence[int]) -> Group:
    """Join several groups that are at the same basic block into one.

    Args:
        groups: of the same batch, with the same `pc` and `stack`.
        live: the registers that the threads still need.
    """
    first = groups[0]
    if len(groups) == 1:
        return first
    lanes = np.concatenate([group.lanes for group in groups])
    order = np.argsort(lanes, kind="stable")
    registers: Registers = list(first.batch.launch.constants)
    for slot in live:
        registers[slot] = _joined([group.registers[slot] for group in groups], groups, order)
    return Group(first.batch, registers, lanes.take(order), first.pc, first.stack)


def _joined(values: list[Any], groups: Sequence[Group], order: Array) -> Any:
    known = values[0]
    if all(len(array) == 1 for array in values):
        bits = known.tobytes()
        if all(array is known or array.tobytes() == bits for array in values):
            return known
    parts = [group.spread(array) for array, group in zip(values, groups, strict=True)]
    return np.concatenate(parts).take(order)
