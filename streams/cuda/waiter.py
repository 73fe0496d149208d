"""`EventWaiter`: a thread that blocks until events are reached, on behalf of event loops, which must not block."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias, final

from vmflow.streams.stream import Event
from vmflow.streams.worker import Worker

Waiting: TypeAlias = tuple[Event, Callable[[], None]]


@final
class EventWaiter:
    """Waits for events of one stream, one after the other in the order in which they were added.

    One waiter serves one stream: a long kernel must not keep a loop from hearing of a short one of another stream.
    """

    def __init__(self, name: str) -> None:
        self._worker = Worker(name, self._wait)
        # A set, since a loop adds the same event again at each of its turns.
        self._pending: set[Waiting] = set()

    def add(self, event: Event, wake: Callable[[], None]) -> None:
        """Call `wake` on the waiter's thread when the event has been reached; an equal pair that waits is not added."""
        waiting = (event, wake)
        if waiting not in self._pending:
            self._pending.add(waiting)
            self._worker.post(waiting)

    def wait_until_idle(self) -> bool:
        """Block until all added events have been reached and their `wake` functions called; returns True.

        After `stop`, the call does not wait: False if events were not waited for, or if the thread still waits.
        """
        return self._worker.wait_until_idle()

    def stop(self) -> None:
        """Let the thread end after the event for which it waits now, and drop the later events; returns immediately."""
        self._worker.stop(0.0)

    def _wait(self, waiting: Waiting) -> None:
        event, wake = waiting
        event.synchronize()
        self._pending.discard(waiting)
        wake()
