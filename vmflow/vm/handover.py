"""Move a storage from one virtual machine to another.

A storage is ordered by one machine at a time.  When another wants it, the old machine runs a `Departure` behind every
access issued so far; only then the new machine's `Arrival`, which stands before every access to come, is finished.
"""

from __future__ import annotations

from collections.abc import Callable

from vmflow.instructions.failure import Failure
from vmflow.instructions.policy import InstructionPolicy


class Departure(InstructionPolicy):
    """On the old machine: everything issued there has finished with the storage."""

    __slots__ = ("arrived",)

    name = "departure"
    preschedulable = False

    def __init__(self, arrived: Callable[[], None]) -> None:
        self.arrived = arrived

    def compute(self) -> None:
        self.arrived()

    def fail(self, failure: Failure) -> None:
        # The old machine was closed: what was issued before this has ended too, and the new machine must hear of it.
        self.arrived()


class Arrival(InstructionPolicy):
    """On the new machine: begins when launched, ends when the departure has run."""

    __slots__ = ("depart",)

    name = "arrival"

    def __init__(self, depart: Callable[[], None]) -> None:
        self.depart = depart

    def compute(self) -> None:
        self.depart()
