"""`BACKGROUND`: threads on which kernels of CUDA devices are compiled before somebody waits for them."""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable, Hashable
from contextlib import suppress
from typing import Final, final

from vmflow.forking import lock_held_while_forking

# A compiler takes one core for some tens of milliseconds; a program whose kernels are all new has hundreds of them.
_MOST_THREADS: Final = 4

# Seconds for the threads to end with the process; a kernel takes less to compile.
_GRACE: Final = 5.0


@final
class Background:
    """Threads that work as long as there is something to do.

    Args:
        most: how many there are at most.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = lock_held_while_forking()
        self._done = threading.Condition(self._lock)
        # Tasks by what they are for.
        self._waiting: dict[Hashable, Callable[[], None]] = {}
        self._threads: list[threading.Thread] = []

    def add(self, task: Callable[[], None], purpose: Hashable) -> None:
        """Have a task done behind those there are, unless one of the same purpose waits; it must not raise."""
        with self._lock:
            self._waiting.setdefault(purpose, task)
            if len(self._threads) < min(self._most, len(self._waiting)):
                thread = threading.Thread(target=self._work, name="vmflow-rehearsal", daemon=True)
                with suppress(RuntimeError):  # no memory for a thread: who launches the kernel compiles it
                    thread.start()
                    self._threads.append(thread)

    def pending(self) -> int:
        """How many tasks wait or are being done."""
        with self._lock:
            return len(self._waiting) + len(self._threads)

    def wait(self, timeout: float | None = None) -> bool:
        """Whether nothing is left to do, after waiting for that for at most so many seconds."""
        with self._lock:
            return self._done.wait_for(lambda: not self._threads, timeout)

    def end(self) -> None:
        """Do no further task; wait for those that are being done."""
        with self._lock:
            self._waiting.clear()
        self.wait(_GRACE)

    def forget(self) -> None:
        """In a forked child: the threads are not here."""
        self._waiting.clear()
        self._threads.clear()

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._threads.remove(threading.current_thread())
                    self._done.notify_all()
                    return
                task = self._waiting.pop(next(iter(self._waiting)))
            task()


BACKGROUND: Final = Background(min(_MOST_THREADS, os.cpu_count() or 1))
atexit.register(BACKGROUND.end)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=BACKGROUND.forget)
