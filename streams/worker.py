"""A worker is one thread that runs what it is handed, in order."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Final

# A thread that waits for the interpreter lock gets it after the interpreter's switch interval, 5 milliseconds, each
# time that it has let go of it.  An event loop does so all the time.  So a worker lets go by itself, this often
# (seconds), which costs it a few microseconds.
_POLITE_EVERY: Final = 1e-3


class Worker:
    """One thread with an inbox.

    The thread is a daemon, because a non-daemon one would keep the interpreter from ever reaching its exit handlers;
    whoever owns the worker stops it there.

    Args:
        name: of the thread.
        run: called with each item on the thread.  It must not raise: an escaping exception ends the thread, loudly.
        polite: whether others, a running event loop above all, should get the interpreter between two items.
    """

    def __init__(self, name: str, run: Callable[[Any], None], polite: Callable[[], bool] = lambda: False) -> None:
        self._run = run
        self._polite = polite
        self._inbox: SimpleQueue[Any] = SimpleQueue()
        self._stopping = False
        self.thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self.thread.start()

    def post(self, item: object) -> None:
        """Hand over `item` (anything but None); returns at once."""
        self._inbox.put(item)

    def wait_until_idle(self, timeout: float | None = None) -> bool:
        """Block until everything handed over so far has run, for `timeout` seconds at most; whether it has."""
        reached = _Mark()
        self._inbox.put(reached)
        return reached.event.wait(timeout)

    def stop(self, timeout: float | None = None) -> list[Any]:
        """Let the thread end after the item it is running, waiting up to `timeout` seconds for it (None: for ever).

        Returns the items that were handed over and will not be run.
        """
        self._stopping = True
        self._inbox.put(None)
        if self.thread is not threading.current_thread():
            self.thread.join(timeout)
        left: list[Any] = []
        while not self._inbox.empty():
            item = self._inbox.get()
            if isinstance(item, _Mark):
                item.event.set()
            elif item is not None:
                left.append(item)
        # If the thread still runs its last item, it must find something to wake up for, and to end at.
        self._inbox.put(None)
        return left

    def _serve(self) -> None:
        last_polite = time.perf_counter()
        while True:
            item = self._inbox.get()
            if item is None:
                return
            if isinstance(item, _Mark):
                item.event.set()
                continue
            if self._stopping:
                # Taken out in the moment of stopping: put it back, for `stop` to find.
                self._inbox.put(item)
                return
            self._run(item)
            # Held in a local, the last item would keep its arrays alive until the next one comes.
            item = None
            if self._polite():
                now = time.perf_counter()
                if now - last_polite > _POLITE_EVERY:
                    time.sleep(0)
                    last_polite = now

    def __repr__(self) -> str:
        return f"<Worker {self.thread.name} {'running' if self.thread.is_alive() else 'stopped'}>"


class _Mark:
    """An item that is not run: reaching it is all."""

    __slots__ = ("event",)

    def __init__(self) -> None:
        self.event = threading.Event()
