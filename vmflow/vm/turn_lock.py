"""`TurnLock`: a lock, mostly of the thread that runs a machine's turns, safe against Ctrl-C."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Final, final

from .wakers import ThreadWaker

_get_ident: Final = threading.get_ident


@final
class _Sleeper:
    """A thread that waits for a `TurnLock`.

    Attributes:
        thread: the thread's identifier.
        bell: wakes the thread.
        waits: whether the lock may still be given to the thread.
        given: whether the thread was given the lock.
    """

    __slots__ = ("bell", "given", "thread", "waits")

    def __init__(self, thread: int) -> None:
        self.thread = thread
        self.bell = ThreadWaker()
        self.waits = True
        self.given = False


class TurnLock:
    """A lock that can be taken by one assignment, so that Ctrl-C need not leave it taken for ever.

    Ctrl-C is raised after a call returns, hence also between the call that takes a `threading.Lock` and the `try` whose
    `finally` releases it.  Here the lock is taken by an assignment to `owner`: the interpreter neither checks for
    signals nor lets another thread run between the assignment's bytecodes, and where the assignment is not inside a
    call, as in `Driver.run`, a `try` may follow directly.  This needs the global interpreter lock, as the lists of the
    engine do.

    A thread that releases the lock gives it to a thread that sleeps in `acquire`: otherwise a thread that takes the
    lock for each op would mostly be quicker.

    Attributes:
        owner: the identifier of the thread that has the lock, None if no thread has it.
    """

    __slots__ = ("_functions", "_sleepers", "owner")

    def __init__(self) -> None:
        self.owner: int | None = None
        self._sleepers: deque[_Sleeper] = deque()
        self._functions: deque[Callable[[], object]] = deque()

    def take(self, me: int) -> bool:
        """Take the lock if it is free; returns False if any thread has it, even this one, whose identifier is `me`."""
        if self.owner is not None:
            return False
        # The check and the assignment are one line, since a debugger is called between lines and may let another
        # thread run.
        self.owner = self.owner or me
        return self.owner == me

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Take the lock as `threading.Lock.acquire` does; False if a thread, even this one, has it till the timeout."""
        me = _get_ident()
        if self.take(me):
            return True
        if not blocking:
            return False
        deadline = time.monotonic() + timeout if timeout >= 0 else None
        deadlocked = self.owner == me
        sleeper = _Sleeper(me)
        self._sleepers.append(sleeper)
        try:
            while not (sleeper.given or self.take(me)):
                remaining = None if deadline is None else deadline - time.monotonic()
                if remaining is not None and remaining <= 0:
                    break
                sleeper.bell.sleep(remaining)
        except BaseException:
            self._remove(sleeper)
            if self.owner == me and not deadlocked:
                self.release()
            raise
        self._remove(sleeper)
        # The owner is asked, since the lock may have been given to this thread at the very end of the timeout.
        return self.owner == me and not deadlocked

    def _remove(self, sleeper: _Sleeper) -> None:
        """Remove a sleeper, so that the lock is not given to it any more; wake the next one if the lock is free."""
        sleeper.waits = False
        self._sleepers.remove(sleeper)
        if self.owner is None:
            self.wake()

    def release(self) -> None:
        """Release the lock.

        Raises:
            RuntimeError: if no thread has it.
        """
        if self.owner is None:
            raise RuntimeError("release of a turn lock that nobody has")
        self.owner = None
        self.wake()

    def when_free(self, function: Callable[[], object]) -> None:
        """Call `function` once, without the lock: now if the lock is free, else on the thread that releases it.

        The function may find that another thread has taken the lock again.
        """
        self._functions.append(function)
        if self.owner is None:
            self.wake()

    def wanted(self) -> bool:
        """Whether a thread sleeps in `acquire`, waiting for the lock, or a function waits for it."""
        return bool(self._sleepers or self._functions)

    def wake(self) -> None:
        """Call the functions that wait for the lock, if it is free; then wake the thread that has waited longest.

        The thread is given the lock, unless another thread has taken it.
        """
        while self._functions and self.owner is None:
            try:
                function = self._functions.popleft()
            except IndexError:  # another thread calls the last one
                break
            function()
        if self._sleepers:
            try:
                sleeper = self._sleepers[0]
            except IndexError:  # the last sleeper has just given up
                return
            if self.owner is None:
                # The check and the assignment are one line, as in `take`.
                self.owner = self.owner or (sleeper.thread if sleeper.waits else None)
                sleeper.given = self.owner == sleeper.thread
            sleeper.bell.wake()

    def renew(self) -> None:
        """Forget sleepers in a forked child, and free the lock unless the child's thread has it."""
        self._sleepers.clear()
        if self.owner != _get_ident():
            self.owner = None

    def locked(self) -> bool:
        """Whether a thread has the lock."""
        return self.owner is not None

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *error: object) -> None:
        self.release()
