"""`Tracer`: the interface of an object that records the instructions of a virtual machine."""

from __future__ import annotations

from typing import Protocol

from vmflow.instructions.failure import Failure
from vmflow.instructions.instruction import Instruction

from .outcome import Outcome


class Tracer(Protocol):
    """Records instructions: a machine calls the method for each event below, on any thread."""

    def issued(self, instruction: Instruction) -> None:
        """Note that the machine is about to accept an instruction.

        Not called for some that the machine adds itself, nor for those that `nested.run` runs.
        """
        ...

    def began(self, instruction: Instruction) -> None:
        """Note that the machine begins to run this instruction, or to drop or fail it instead."""
        ...

    def ended(self, instruction: Instruction, outcome: Outcome) -> None:
        """Note that an instruction has run (on a GPU: has launched its work), with its outcome.

        The outcome is `LATER` for a deferred instruction that has not ended, and the scope's failure for an instruction
        that a scope has dropped.
        """
        ...

    def finished(self, instruction: Instruction, failure: Failure | None) -> None:
        """Note that an instruction whose outcome is `LATER` has ended, perhaps on another thread and before `ended`."""
        ...

    def computed(self, instruction: Instruction, begin: int, end: int) -> None:
        """Note that a device has computed an instruction, from `begin` to `end` of ``time.perf_counter_ns``."""
        ...

    def abandoned(self, instruction: Instruction) -> None:
        """Note that the machine has given an instruction up: the machine was closed, or this is a forked child."""
        ...

    def awaited(self, instruction: Instruction) -> object:
        """Note that a thread or coroutine begins to wait for an instruction; returns the argument for `resumed`."""
        ...

    def resumed(self, wait: object) -> None:
        """Note that a wait, which `awaited` has returned, is over, whether or not the instruction has ended."""
        ...
