"""`Lively`: a linked list of the instructions that an engine has seen and not yet erased."""

from __future__ import annotations

from collections.abc import Iterator
from typing import final

from vmflow.instructions.instruction import Instruction


@final
class Lively:
    """Instructions in the order of their arrival; each can be removed at any time, without a search.

    Attributes:
        first, last: the oldest and the youngest; None if there are none.
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
        """Remove an instruction, which must be in the list."""
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
