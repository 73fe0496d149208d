"""`Deferred`: instructions that end when `end` is called, not when they return."""

from __future__ import annotations

import threading
from collections.abc import Callable

from .policy import InstructionPolicy

# Called at the end, with the exception or None.
Ended = Callable[[Exception | None], None]


class Deferred(InstructionPolicy):
    """Begins when it is run, ends when `end` is called, be it before, during or after that, by any thread."""

    __slots__ = ("_ended", "_error", "_lock", "_report")

    deferred = True

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ended = False
        self._error: Exception | None = None
        self._report: Ended | None = None

    def begin(self) -> None:
        """Called when its turn comes."""

    def compute(self) -> None:
        self.begin()

    def end(self, error: Exception | None = None) -> None:
        """End the instruction; later calls have no effect."""
        with self._lock:
            if self._ended:
                return
            self._ended = True
            self._error = error
            report = self._report
        if report is not None:
            report(error)

    def renew(self) -> None:
        """In a forked child: the lock may be held by a thread that does not exist here."""
        self._lock = threading.Lock()

    def ends_later(self, report: Ended) -> bool:
        """Called after it was run: returns whether it has not ended yet; then `report` will be called.

        Otherwise, raises the error that it ended with, if there is one.
        """
        with self._lock:
            if not self._ended:
                self._report = report
                return True
        if self._error is not None:
            raise self._error
        return False
