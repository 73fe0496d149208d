"""Basic blocks of operations, their ends, and the registers of a program."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np

from .faults import Place
from .lowering import PREDICATE, Operation
from .types import Array, DType
from .warps import Gate

# The ends of blocks


class Jump(NamedTuple):
    """The end of a basic block after which all threads go on at block `target`."""

    target: int


class Branch(NamedTuple):
    """The end of a basic block after which a predicate sends each thread to one of two blocks."""

    predicate: int
    negated: bool
    target: int
    following: int


class Switch(NamedTuple):
    """The end of a basic block after which a register selects each thread's next block from a table."""

    selector: int
    targets: tuple[int, ...]
    place: Place


class Call(NamedTuple):
    """The end of a basic block that calls a function, after whose return threads go on at the following block."""

    entry: int
    following: int


class Return(NamedTuple):
    """The end of a basic block at which a function returns, with results in registers, or a kernel's threads end."""

    results: tuple[int, ...] = ()


class Exit(NamedTuple):
    """The end of a basic block at which its threads end."""


class Meet(NamedTuple):
    """The end of a basic block at a gate, where threads meet before they go on at the following block."""

    gate: Gate
    following: int


End = Jump | Branch | Switch | Call | Return | Exit | Meet


_NOWHERE: Final = Place("the end of a function", 0)


@dataclass(eq=False)
class Block:
    """A basic block: operations without a jump, and their end.

    Attributes:
        operations: in their order.
        end: how the threads go on behind them, or that they end.
        size: the number of PTX instructions in the block.
        live: the registers whose values are still needed at the block's beginning.
        dead: the registers, but for special ones, that the block reads or writes and nothing behind it needs.
        place: of the block's first instruction, or of the instruction whose guard it checks; else `_NOWHERE`.
    """

    operations: list[Operation] = field(default_factory=list)
    end: End = field(default_factory=Exit)
    size: int = 0
    live: frozenset[int] = frozenset()
    dead: tuple[int, ...] = ()
    place: Place = _NOWHERE
    # The registers that the block reads before it writes them, and those that it writes.
    reads: set[int] = field(default_factory=set)
    writes: set[int] = field(default_factory=set)

    def end_with(self, end: End) -> None:
        """Set the end of the block."""
        self.end = end

    def begin_at(self, place: Place) -> None:
        """Set the place, unless the block has instructions already."""
        if not self.size:
            self.place = place

    def count(self, place: Place) -> None:
        """Count one more instruction, which is at `place`."""
        self.begin_at(place)
        self.size += 1

    def touch(self, reads: Collection[int], writes: Collection[int]) -> None:
        """Note the registers that the next instruction reads, and those that it then writes."""
        self.reads |= set(reads) - self.writes
        self.writes |= set(writes)

    def append(self, operation: Operation, reads: Collection[int], writes: Collection[int]) -> None:
        """Add an operation at the end."""
        self.operations.append(operation)
        self.touch(reads, writes)

    def prepend(self, operation: Operation, source: int, target: int) -> None:
        """Add an operation at the beginning that reads one register and writes another."""
        self.operations.insert(0, operation)
        self.reads = (self.reads - {target}) | {source}
        self.writes.add(target)


class Registers:
    """The registers of a program."""

    def __init__(self) -> None:
        self.dtypes: list[DType] = []
        self.values: list[Array | None] = []
        self._constants: dict[tuple[str, bytes], int] = {}

    def new(self, dtype: DType, value: Array | None = None) -> int:
        self.dtypes.append(dtype)
        self.values.append(value)
        return len(self.dtypes) - 1

    def constant(self, values: Array) -> int:
        key = (values.dtype.name, values.tobytes())
        if key not in self._constants:
            values.flags.writeable = False
            self._constants[key] = self.new(values.dtype, values)
        return self._constants[key]


def undefined(dtype: DType) -> Array:
    """The content of a register that was never written: all bits are 1, which is NaN for floats."""
    return np.ones(1, bool) if dtype == PREDICATE.dtype else np.full(dtype.itemsize, 0xFF, np.uint8).view(dtype)


def _successors(end: End) -> tuple[int, ...]:
    if isinstance(end, Branch):
        return (end.target, end.following)
    if isinstance(end, Switch):
        return end.targets
    if isinstance(end, Jump):
        return (end.target,)
    if isinstance(end, Call):
        return (end.entry, end.following)
    return (end.following,) if isinstance(end, Meet) else ()


def find_live(blocks: Sequence[Block], kept: Collection[int]) -> None:
    """Set `live` of each basic block, from the last to the first until nothing changes; then set `dead`.

    Args:
        blocks: of a whole program.
        kept: registers that are never dead.
    """
    changed = True
    while changed:
        changed = False
        for block in reversed(blocks):
            live = frozenset((_live_after(block, blocks) - block.writes) | block.reads)
            if live != block.live:
                block.live = live
                changed = True
    for block in blocks:
        block.dead = tuple((block.live | block.writes) - _live_after(block, blocks) - frozenset(kept))


def _live_after(block: Block, blocks: Sequence[Block]) -> set[int]:
    """The registers that are needed at the end of a block, without those that only callers of its function need."""
    after = set(block.end.results) if isinstance(block.end, Return) else set()
    return after.union(*[blocks[successor].live for successor in _successors(block.end)])
