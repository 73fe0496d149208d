"""`GENERATION`: holds a number that changes when cached kernels should be chosen again."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Final


class Generation:
    """Holds a number that changes when `choose` may return another kernel for a problem than before.

    The number changes, for example, when a compiled library has been loaded, when C kernels are switched on or off, and
    when the number of threads changes.  Kernels chosen before still compute the right results, but may be slower, or
    use C or threads that are no longer wanted.

    Attributes:
        number: the present generation; a cached kernel is out of date if it was chosen under another number.
        watchers: functions called after each change, on the thread that makes it.
    """

    def __init__(self) -> None:
        self.number = 0
        self.watchers: list[Callable[[], None]] = []
        self._numbers = itertools.count(1)

    def advance(self) -> None:
        """Change the number, so that cached kernels are chosen again, and call the watchers."""
        self.number = next(self._numbers)
        for watcher in self.watchers:
            watcher()


GENERATION: Final = Generation()
