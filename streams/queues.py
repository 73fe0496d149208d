"""Queues of a stream's instructions.

A `Fifo` has its links in the instructions.  So an instruction is in one `Fifo` at a time, and no memory is
taken to add it.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from vmflow.instructions.instruction import Instruction


@final
class Fifo:
    """A first-in first-out queue of instructions.

    Attributes:
        first, last: its first and last instruction; None in an empty queue.
    """

    __slots__ = ("first", "last")

    def __init__(self) -> None:
        self.first: Instruction | None = None
        self.last: Instruction | None = None

    def append(self, instruction: Instruction) -> None:
        """Put an instruction behind the last one."""
        last = self.last
        if last is None:
            self.first = instruction
        else:
            last.behind = instruction
        self.last = instruction

    def popleft(self) -> Instruction:
        """Take out the first instruction and return it.

        Raises:
            IndexError: if there is none.
        """
        instruction = self.first
        if instruction is None:
            raise IndexError("nothing is in the queue")
        self.first = instruction.behind
        if instruction.behind is None:
            self.last = None
        instruction.behind = None
        return instruction

    def remove(self, instruction: Instruction) -> None:
        """Take an instruction out of the queue, in linear time.

        Raises:
            ValueError: if it is not in the queue.
        """
        left = list(self)
        left.remove(instruction)
        self.clear()
        for other in left:
            self.append(other)

    def clear(self) -> None:
        """Remove all instructions."""
        for instruction in self:
            instruction.behind = None
        self.first = self.last = None

    def __iter__(self) -> Iterator[Instruction]:
        instruction = self.first
        while instruction is not None:
            behind = instruction.behind
            yield instruction
            instruction = behind

    def __len__(self) -> int:
        return len(list(iter(self)))  # takes time proportional to the length; only for inspection


@final
class BySerial:
    """A queue from which the instruction of the lowest serial comes first.

    Most instructions are pushed in the order of their serials.

    Attributes:
        row: the instructions pushed with a greater serial than the row's last.
        late: a heap of the other instructions, with their serials.
    """

    __slots__ = ("late", "row")

    def __init__(self) -> None:
        self.row = Fifo()
        self.late: list[tuple[int, Instruction]] = []

    def push(self, instruction: Instruction) -> None:
        """Add an instruction."""
        last = self.row.last
        if last is None or last.serial < instruction.serial:
            self.row.append(instruction)
        else:
            heappush(self.late, (instruction.serial, instruction))

    def pop(self) -> Instruction:
        """Take out the instruction with the lowest serial.

        Raises:
            IndexError: if there is none.
        """
        first = self.row.first
        if self.late and (first is None or self.late[0][0] < first.serial):
            return heappop(self.late)[1]
        return self.row.popleft()

    def clear(self) -> None:
        """Remove all instructions."""
        self.row.clear()
        self.late = []

    def is_empty(self) -> bool:
        """Whether the queue is empty."""
        return self.row.first is None and not self.late

    def __iter__(self) -> Iterator[Instruction]:
        yield from self.row
        yield from [instruction for _, instruction in self.late]

    def __len__(self) -> int:
        return len(self.row) + len(self.late)
