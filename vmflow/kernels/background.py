"""`BACKGROUND`: threads that compile kernels of CUDA devices, if possible before the kernels are launched."""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable, Hashable
from typing import Final, final

from vmflow.forking import lock_held_while_forking

# The most threads that compile CUDA kernels.
_MOST_THREADS: Final = 4

# The most seconds that the end of the process waits for the compiling threads.
_GRACE: Final = 5.0


@final
class Background:
    """A pool of threads that run queued tasks; a thread ends when it finds no queued task.

    Args:
        most: the largest number of threads.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = lock_held_while_forking()
        self._done = threading.Condition(self._lock)
        # The tasks that no thread has begun, by purpose.
        self._waiting: dict[Hashable, Callable[[], None]] = {}
        self._running = 0
        self._threads = 0

    def add(self, task: Callable[[], None], purpose: Hashable) -> None:
        """Queue `task`, unless a task with the same key `purpose` waits in the queue.  A task must not raise.

        If the pool has no thread and cannot start one, all waiting tasks are dropped.
        """
        with self._lock:
            self._waiting.setdefault(purpose, task)
            if self._threads < min(self._most, self._running + len(self._waiting)):
                try:
                    threading.Thread(target=self._work, name="vmflow-rehearsal", daemon=True).start()
                except RuntimeError:  # no thread can be started
                    if not self._threads:
                        self._waiting.clear()  # a kernel whose task is dropped is compiled at its first launch
                else:
                    self._threads += 1

    def pending(self) -> int:
        """The number of tasks that are queued or running."""
        with self._lock:
            return len(self._waiting) + self._running

    def wait(self, timeout: float | None = None) -> bool:
        """Wait at most `timeout` seconds until the pool has no thread, and so no task; return whether it has none."""
        with self._lock:
            return self._done.wait_for(lambda: not self._threads, timeout)

    def end(self) -> None:
        """Drop the waiting tasks, and wait at most `_GRACE` seconds for the running ones."""
        with self._lock:
            self._waiting.clear()
        self.wait(_GRACE)

    def forget(self) -> None:
        """Forget all tasks in a forked child, which has no threads for them."""
        self._waiting.clear()
        self._running = self._threads = 0

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._threads -= 1
                    self._done.notify_all()
                    return
                task = self._waiting.pop(next(iter(self._waiting)))
                self._running += 1
            try:
                task()
            finally:
                with self._lock:
                    self._running -= 1


BACKGROUND: Final = Background(min(_MOST_THREADS, os.cpu_count() or 1))
atexit.register(BACKGROUND.end)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=BACKGROUND.forget)
