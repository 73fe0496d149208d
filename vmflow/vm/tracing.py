"""`Tracer`: the interface of a recording of a machine's instructions."""

from __future__ import annotations

from typing import Protocol

from vmflow.instructions.failure import Failure
from vmflow.instructions.instruction import Instruction

from .outcome import Outcome


class Tracer(Protocol):
    """Is called at every step of every instruction, on the thread that takes the step."""

    def issued(self, instruction: Instruction) -> None:
        """The instruction is about to be accepted."""
        ...

    def began(self, instruction: Instruction) -> None:
        """Its turn has come: it is about to run, or to be dropped."""
        ...

    def ended(self, instruction: Instruction, outcome: Outcome) -> None:
        """It has run; a deferred one may end `LATER`, a dropped one has its scope's failure."""
        ...

    def finished(self, instruction: Instruction, failure: Failure | None) -> None:
        """A deferred instruction has ended; perhaps on another thread, and before `ended` was called."""
        ...

    def computed(self, instruction: Instruction, begin: int, end: int) -> None:
        """A device has computed it, between these times on the clock of ``time.perf_counter_ns``."""
        ...

    def abandoned(self, instruction: Instruction) -> None:
        """It will never begin, because the machine was closed."""
        ...

    def awaited(self, instruction: Instruction) -> object:
        """A thread or coroutine begins to wait for it; returns the argument for `resumed`."""
        ...

    def resumed(self, wait: object) -> None:
        """The waiting is over, whether or not the instruction has ended."""
        ...
