"""Host streams beside those of devices: for the hand-over of tensors to graphs and ranks."""

from __future__ import annotations

from .stream import StreamPolicy


class IndependentStreamPolicy(StreamPolicy):
    """Two kinds use it: "critical_section" (a graph's inputs and outputs) and "lazy_job" (launching graphs).

    Args:
        kind: the name of the kind.
        sequential: as for every policy.
        blocking: whether work here may block, and so runs on the stream's own thread; otherwise it runs on the thread
            that schedules.
    """

    def __init__(self, kind: str, sequential: bool = False, blocking: bool = True) -> None:
        self.kind = kind
        self.sequential = sequential
        self.blocking = blocking

    def on_scheduler_thread(self, cost: int, loop_attached: bool) -> bool:
        return not self.blocking
