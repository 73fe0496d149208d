"""Move a storage from one virtual machine to another.

A storage is ordered by one machine at a time.  When another wants it, the old machine is given a `Departure`, behind
every access issued so far, and the new machine an `Arrival`, before every access to come, which ends when the departure
has run.  Both are issued in the same moment: so whatever waits for an arrival waits for things issued earlier, on
whichever machine, and machines that exchange storages cannot come to wait for each other.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from vmflow.instructions.failure import Failure
from vmflow.instructions.policy import InstructionPolicy


class Arrival(InstructionPolicy):
    """On the new machine: begins when launched, ends when the departure has run.

    Attributes:
        ends_later: whether the departure had not run when this was launched.  Once set it stays: whoever launched this
            looks at it afterwards, when the departure may have run, and reported, on another thread.
    """

    __slots__ = ("_departed", "_lock", "_report", "ends_later")

    name = "arrival"

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._departed = False
        self._report: Callable[[], None] | None = None
        self.ends_later = False

    def reported_by(self, report: Callable[[], None]) -> None:
        """Call `report` when it ends later than it was launched."""
        self._report = report

    def compute(self) -> None:
        with self._lock:
            self.ends_later = not self._departed

    def departed(self) -> None:
        """The old machine has finished with the storage."""
        with self._lock:
            self._departed = True
        if self.ends_later and self._report is not None:
            self._report()


class Departure(InstructionPolicy):
    """On the old machine: everything issued there has finished with the storage."""

    __slots__ = ("arrival",)

    name = "departure"
    preschedulable = False

    def __init__(self, arrival: Arrival) -> None:
        self.arrival = arrival

    def compute(self) -> None:
        self.arrival.departed()

    def fail(self, failure: Failure) -> None:
        # The old machine was closed: what was issued before this has ended too, and the new machine must hear of it.
        self.arrival.departed()
