"""`TurnLock`: the right to drive a machine, or to start what graphs have launched, which one thread has at a time."""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import Final

from .wakers import ThreadWaker

_get_ident: Final = threading.get_ident


class TurnLock:
    """A lock whose taking cannot be torn from the note of who has it.

    Ctrl-C is raised after a call returns, hence also between the call that takes a `threading.Lock` and the `try` whose
    `finally` gives it back; to hold the signal back meanwhile costs more than a small op.  Here taking is one
    assignment: the interpreter neither looks for signals nor lets another thread run between its bytecodes, and what
    follows it may be a `try`.  This needs the global interpreter lock, as the lists of the engine do.

    Attributes:
        owner: the thread that has it, None if nobody does.
    """

    __slots__ = ("_sleepers", "owner")

    def __init__(self) -> None:
        self.owner: int | None = None
        self._sleepers: deque[ThreadWaker] = deque()

    def take(self, me: int) -> bool:
        """Take it if it is free; not if this thread, `me`, has it already."""
        if self.owner is not None:
            return False
        # One line, for a debugger is called between lines and may let another thread run.
        self.owner = self.owner or me
        return self.owner == me

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """As `threading.Lock.acquire`; who has it already waits for itself."""
        me = _get_ident()
        if self.take(me):
            return True
        if not blocking:
            return False
        deadline = time.monotonic() + timeout if timeout >= 0 else None
        bell = ThreadWaker()
        self._sleepers.append(bell)
        try:
            while not self.take(me):
                remaining = None if deadline is None else deadline - time.monotonic()
                if remaining is not None and remaining <= 0:
                    return False
                bell.sleep(remaining)
            return True
        finally:
            self._sleepers.remove(bell)

    def release(self) -> None:
        """Give it back.

        Raises:
            RuntimeError: if nobody has it.
        """
        if self.owner is None:
            raise RuntimeError("release of a turn lock that nobody has")
        self.owner = None
        self.wake()

    def wake(self) -> None:
        """Let those who wait for it try again."""
        if self._sleepers:
            for bell in list(self._sleepers):
                bell.wake()

    def renew(self) -> None:
        """In a forked child: who has it may be a thread that is not here, and would never give it back."""
        self._sleepers.clear()
        if self.owner != _get_ident():
            self.owner = None

    def locked(self) -> bool:
        """Whether anybody has it."""
        return self.owner is not None

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *error: object) -> None:
        self.release()
