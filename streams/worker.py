"""A worker is one thread that runs the items it is handed, in order."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextvars import Context
from queue import SimpleQueue
from typing import Any, Final

# A thread may wait 5 milliseconds, the switch interval, for the interpreter's lock, which an event loop's thread needs
# often.  So a polite worker releases the lock between items, at most once in this many seconds.
_POLITE_EVERY: Final = 1e-3


class Worker:
    """One thread with an inbox.

    The thread is a daemon: a non-daemon one would keep the interpreter from ever reaching its exit handlers, in one of
    which the owner stops the worker.

    Args:
        name: of the thread.
        run: called with each item on the thread.  It must not raise: an escaping exception ends the thread, loudly.
        polite: returns whether other threads, above all event loops, should get the interpreter between two items.
        context: in which the thread runs; None for an empty one.
    """

    def __init__(
        self,
        name: str,
        run: Callable[[Any], None],
        polite: Callable[[], bool] = lambda: False,
        context: Context | None = None,
    ) -> None:
        self._run = run
        self._polite = polite
        self._inbox: SimpleQueue[Any] = SimpleQueue()
        self._stopping = False
        # Whether `stop` has begun to empty the inbox, into which no more marks are put then.
        self._stopped = False
        self._unrun = False  # whether items were not run
        context = Context() if context is None else context
        self.thread = threading.Thread(target=context.run, args=(self._serve,), name=name, daemon=True)
        self.thread.start()

    def post(self, item: object) -> None:
        """Queue `item` (anything but None) and return; an item posted after `stop` is never run."""
        self._inbox.put(item)
        if self._stopped:
            self._unrun = True

    def wait_until_idle(self, timeout: float | None = None) -> bool:
        """Block until everything posted so far has run, for `timeout` seconds at most; returns whether it has.

        On the worker's own thread, this call runs the items itself, however long they take.  After `stop`, on another
        thread, the call does not wait: False if items were not run, or if the worker still runs its last item.
        """
        if self.thread is threading.current_thread():
            while not self._stopped and not self._inbox.empty():
                if not self._run_one(self._inbox.get()):
                    return False
            return not self._unrun
        mark = _Mark()
        if not self._stopped:
            self._inbox.put(mark)
        # If `_stopped` is not set yet, `stop` will find the mark when it empties the inbox.
        if self._stopped:
            return self._all_have_run()
        return mark.event.wait(timeout) and mark.all_have_run

    def stop(self, timeout: float | None = None) -> list[Any]:
        """Let the thread end after its present item; return the posted items that will not be run.

        On another thread, wait up to `timeout` seconds for the end (None: forever).
        """
        self._stopping = True
        self._inbox.put(None)
        if self.thread is not threading.current_thread():
            self.thread.join(timeout)
        unrun, self._unrun = self._unrun, True  # until it is known
        self._stopped = True
        left: list[Any] = []
        marks: list[_Mark] = []
        while not self._inbox.empty():
            item = self._inbox.get()
            if isinstance(item, _Mark):
                marks.append(item)
            elif item is not None:
                left.append(item)
        self._unrun = unrun or bool(left)
        for mark in marks:
            mark.all_have_run = self._all_have_run()
            mark.event.set()
        # If the thread still runs its last item, it must find a None behind that item, at which it ends.
        self._inbox.put(None)
        return left

    def _all_have_run(self) -> bool:
        """Whether a stopped worker has run all items that were posted."""
        return not self._unrun and not self.thread.is_alive()

    def _serve(self) -> None:
        last_polite = time.perf_counter()
        while self._run_one(self._inbox.get()):
            if self._polite():
                now = time.perf_counter()
                if now - last_polite > _POLITE_EVERY:
                    time.sleep(0)
                    last_polite = now

    def _run_one(self, item: Any) -> bool:
        """Run an item or report a mark, and keep no reference to it; return False if the worker stops instead."""
        if isinstance(item, _Mark):
            item.all_have_run = True
            item.event.set()
        elif item is None or self._stopping:
            # Put back an item that was taken out at the moment of stopping: `stop` looks for it.
            self._inbox.put(item)
            return False
        else:
            self._run(item)
        return True

    def __repr__(self) -> str:
        return f"<Worker {self.thread.name} {'running' if self.thread.is_alive() else 'stopped'}>"


class _Mark:
    """An item that is not run: a waiter only needs to know that the mark was reached, or that the worker has stopped.

    Attributes:
        event: set in both cases.
        all_have_run: whether the items before the mark are known to have run.
    """

    __slots__ = ("all_have_run", "event")

    def __init__(self) -> None:
        self.event = threading.Event()
        self.all_have_run = False
