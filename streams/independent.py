"""Streams that each device has for work of the host: handing tensors to graphs, and launching graphs."""

from __future__ import annotations

from .stream import StreamPolicy


class IndependentStreamPolicy(StreamPolicy):
    """Streams of two kinds: "critical_section" (for the inputs of graphs) and "lazy_job" (for their launches).

    Args:
        sequential: see `StreamPolicy`.
        blocking: whether work of the stream may block, and so runs on the stream's own thread; otherwise it runs on the
            thread that schedules.
    """

    def __init__(self, kind: str, sequential: bool = False, blocking: bool = True) -> None:
        self.kind = kind
        self.sequential = sequential
        self.blocking = blocking

    def on_scheduler_thread(self, cost: int, loop_attached: bool) -> bool:
        return not self.blocking
