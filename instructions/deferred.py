"""`Deferred`: instructions that end when `end` is called, not when they return."""

from __future__ import annotations

import threading
from collections.abc import Callable

from .policy import InstructionPolicy

# Called when an instruction ends, with its exception or None.
Ended = Callable[[Exception | None], None]


class Deferred(InstructionPolicy):
    """An instruction that ends when any thread calls `end`: before, while or after it is run."""

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
        """Make a new lock in a forked child: the old one may be held by a thread that does not exist there."""
        self._lock = threading.Lock()

    def ends_later(self, report: Ended) -> bool:
        """Return whether the instruction, which was just run, has not ended yet; then `report` is called at its end.

        Otherwise, raises the error that it ended with, if there is one.
        """
        with self._lock:
            if not self._ended:
                self._report = report
                return True
        if self._error is not None:
            raise self._error
        return False
