"""The control stream: barriers and host callbacks that belong to no device."""

from __future__ import annotations

from .stream import StreamPolicy


class ControlStreamPolicy(StreamPolicy):
    """Runs instructions on the thread that schedules: they only order other work, or call a function of the host.

    Args:
        sequential: see `StreamPolicy`.
    """

    kind = "control"

    def __init__(self, sequential: bool = False) -> None:
        self.sequential = sequential

    def on_scheduler_thread(self, cost: int, loop_attached: bool) -> bool:
        return True
