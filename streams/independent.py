"""Host streams with a thread of their own, for what may block or must not hold anybody up."""

from __future__ import annotations

from .stream import StreamPolicy


class IndependentStreamPolicy(StreamPolicy):
    """Everything runs on the stream's own thread, never on the one that schedules.

    Three kinds use it: "critical_section" (a graph's inputs and outputs), "lazy_job" (launching graphs) and "comm"
    (transports between ranks).

    Args:
        kind: the name of the kind.
        sequential: as for every policy.
    """

    def __init__(self, kind: str, sequential: bool = False) -> None:
        self.kind = kind
        self.sequential = sequential

    def on_scheduler_thread(self, cost: int, loop_attached: bool) -> bool:
        return False
