"""`Lively`: the linked list of the instructions that an engine's turns have seen and not yet erased."""

from __future__ import annotations

from collections.abc import Iterator
from typing import final

from vmflow.instructions.instruction import Instruction


@final
class Lively:
    """A linked list of instructions in arrival order, from which each can be removed without a search.

    Attributes:
        first, last: the oldest and the youngest instruction; None if the list is empty.
        count: the number of instructions.
    """

    __slots__ = ("count", "first", "last")

    def __init__(self) -> None:
        self.first: Instruction | None = None
        self.last: Instruction | None = None
        self.count = 0

    def add(self, instruction: Instruction) -> None:
        """Append an instruction."""
        last = self.last
        if last is None:
            self.first = instruction
        else:
            last.after = instruction
            instruction.before = last
        self.last = instruction
        self.count += 1

    def remove(self, instruction: Instruction) -> None:
        """Remove an instruction, which must be in the list, in constant time."""
        before, after = instruction.before, instruction.after
        if before is None:
            self.first = after
        else:
            before.after = after
        if after is None:
            self.last = before
        else:
            after.before = before
        instruction.before = instruction.after = None
        self.count -= 1

    def __iter__(self) -> Iterator[Instruction]:
        instruction = self.first
        while instruction is not None:
            after = instruction.after
            yield instruction
            instruction = after

    def __len__(self) -> int:
        return self.count
