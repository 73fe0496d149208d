"""`Tracer`: what a machine tells while somebody listens."""

from __future__ import annotations

from typing import Protocol

from vmflow.instructions.failure import Failure
from vmflow.instructions.instruction import Instruction

from .outcome import Outcome


class Tracer(Protocol):
    """What is told of every step of every instruction, while somebody listens; each time on the thread that does it."""

    def issued(self, instruction: Instruction) -> None:
        """It is about to be accepted."""
        ...

    def began(self, instruction: Instruction) -> None:
        """Its turn has come: it is about to run, or to be told that it will not."""
        ...

    def ended(self, instruction: Instruction, outcome: Outcome) -> None:
        """What began is over, but for a deferred one that is to end `LATER`.  A dropped one has its scope's failure."""
        ...

    def finished(self, instruction: Instruction, failure: Failure | None) -> None:
        """A deferred one has ended; perhaps on another thread, and before `ended` was called."""
        ...

    def abandoned(self, instruction: Instruction) -> None:
        """It will never begin, because the machine was closed."""
        ...

    def awaited(self, instruction: Instruction) -> object:
        """Somebody begins to wait for it; returns what `resumed` is to be given."""
        ...

    def resumed(self, wait: object) -> None:
        """The waiting is over, whether or not what was waited for has happened."""
        ...
