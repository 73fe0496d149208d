"""A stream is one in-order queue of one device; its policy decides how the queue executes.

Order is the only promise: what was handed to a stream first, finishes first.  The scheduler relies on it twice, to
hand over a whole chain without waiting for each link, and to forget an access as soon as a later one is behind it.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from .worker import Worker


class StreamPolicy:
    """How one kind of stream executes.

    Attributes:
        kind: the name of the kind, as shown in reprs and the story ("compute", "control", ...).
        sequential: whether everything on the stream keeps program order, also where no data asks for it.  Transports
            need it (all ranks must see one order); compute streams do not.
    """

    kind: str = "stream"
    sequential: bool = False

    def on_scheduler_thread(self, cost: int, loop_attached: bool) -> bool:
        """Whether work of `cost` nanoseconds (an estimate) should run on the thread that schedules.

        `loop_attached` tells that the scheduling thread must stay responsive, because an event loop lives on it or
        waits for it.
        """
        raise NotImplementedError

    def synchronize(self) -> None:
        """Return when everything handed to the device has finished there.  Host streams finish as they return."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class Stream:
    """An in-order queue of a device.

    Attributes:
        name: for reprs, for instance ``"cpu:compute"``.
        device: the device it belongs to (any hashable value; streams do not look inside).
        policy: how it executes.
        running: the instructions handed over and not yet erased, oldest first.  Owned by the engine.
        posted: how many of them are still in the worker's hands.  While it is not zero, nothing may run inline, or
            the order would break.
        order: the dependence that keeps program order on a `sequential` stream, else None.  Owned by the engine.
        worker: the thread that runs what must not run on the scheduling thread, started on first need.
    """

    __slots__ = ("device", "name", "order", "policy", "posted", "running", "worker")

    def __init__(self, name: str, device: object, policy: StreamPolicy) -> None:
        self.name = name
        self.device = device
        self.policy = policy
        # Loosely typed on purpose: the queue is the stream's, what stands in it belongs to the layers above.
        self.running: deque[Any] = deque()
        self.posted = 0
        self.order: Any = None
        self.worker: Worker | None = None

    def __repr__(self) -> str:
        return f"<Stream {self.name} {self.policy!r} running={len(self.running)} posted={self.posted}>"
