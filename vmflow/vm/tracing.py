"""`Tracer`: the interface of a recording of a machine's instructions."""

from __future__ import annotations

from typing import Protocol

from vmflow.instructions.failure import Failure
from vmflow.instructions.instruction import Instruction

from .outcome import Outcome


class Tracer(Protocol):
    """Is called at every step of every instruction, on the thread that takes the step."""

    def issued(self, instruction: Instruction) -> None:
        """Called when an instruction is about to be accepted by its machine."""
        ...

    def began(self, instruction: Instruction) -> None:
        """Called when an instruction is about to run, or to be dropped by its scope."""
        ...

    def ended(self, instruction: Instruction, outcome: Outcome) -> None:
        """Called when an instruction has run (deferred ones: `LATER`) or was dropped (its scope's failure)."""
        ...

    def finished(self, instruction: Instruction, failure: Failure | None) -> None:
        """Called when a deferred instruction has ended; perhaps on another thread, and before `ended` was called."""
        ...

    def computed(self, instruction: Instruction, begin: int, end: int) -> None:
        """Called when a device has computed an instruction, with begin and end as ``time.perf_counter_ns`` counts."""
        ...

    def abandoned(self, instruction: Instruction) -> None:
        """Called for an instruction that will never begin, because its machine was closed."""
        ...

    def awaited(self, instruction: Instruction) -> object:
        """Called when a thread or coroutine begins to wait for an instruction; returns the argument for `resumed`."""
        ...

    def resumed(self, wait: object) -> None:
        """Called when that waiting is over, whether or not the instruction has ended."""
        ...
