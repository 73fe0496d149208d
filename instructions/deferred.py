"""`Deferred`: instructions that do not end before `end` is called, even if `compute` has returned."""

from __future__ import annotations

import threading
from collections.abc import Callable

from .policy import InstructionPolicy

# A function called once when a deferred instruction ends, with the instruction's exception, or None if it succeeded.
Ended = Callable[[Exception | None], None]


class Deferred(InstructionPolicy):
    """An instruction that ends when a machine has called `compute` and any thread has called `end`, in either order.

    If `compute` raises, the instruction ends with that error.
    """

    __slots__ = ("_ended", "_error", "_lock", "_report")

    deferred = True

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ended = False
        self._error: Exception | None = None
        self._report: Ended | None = None

    def begin(self) -> None:
        """Start the work; `compute` calls this."""

    def compute(self) -> None:
        self.begin()

    def end(self, error: Exception | None = None) -> None:
        """End the instruction, with `error` if it has failed; later calls have no effect."""
        with self._lock:
            if self._ended:
                return
            self._ended = True
            self._error = error
            report = self._report
        if report is not None:
            report(error)

    def renew(self) -> None:
        """Replace the lock in a forked child, where a thread that held the old lock does not exist."""
        self._lock = threading.Lock()

    def ends_later(self, report: Ended) -> bool:
        """Arrange that `report` is called when the instruction ends; return False if it has ended already.

        A machine calls this after `compute`.  Raises the error with which an ended instruction has failed.
        """
        with self._lock:
            if not self._ended:
                self._report = report
                return True
        if self._error is not None:
            raise self._error
        return False
