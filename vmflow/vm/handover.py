"""Move a storage from one virtual machine to another.

A storage is ordered by one machine at a time.  When another wants it, the old machine is given a `Departure`, behind
every access issued so far, and the new machine an `Arrival`, before every access to come, which ends when the departure
has run.  Both are issued in the same moment: so whatever waits for an arrival waits for things issued earlier, on
whichever machine, and machines that exchange storages cannot come to wait for each other.
"""

from __future__ import annotations

from vmflow.instructions.deferred import Deferred
from vmflow.instructions.failure import Failure
from vmflow.instructions.policy import InstructionPolicy


class Arrival(Deferred):
    """On the new machine: begins when launched, ends when the departure has run."""

    __slots__ = ()

    name = "arrival"


class Departure(InstructionPolicy):
    """On the old machine: everything issued there has finished with the storage."""

    __slots__ = ("arrival",)

    name = "departure"
    preschedulable = False

    def __init__(self, arrival: Arrival) -> None:
        self.arrival = arrival

    def compute(self) -> None:
        self.arrival.end()

    def fail(self, failure: Failure) -> None:
        # The old machine was closed: what was issued before this has ended too, and the new machine must hear of it.
        self.arrival.end()
