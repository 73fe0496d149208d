"""The control stream: barriers and host callbacks that belong to no device."""

from __future__ import annotations

from .stream import StreamPolicy


class ControlStreamPolicy(StreamPolicy):
    """Runs on the thread that schedules: its instructions only order other work."""

    kind = "control"

    def on_scheduler_thread(self, cost: int, loop_attached: bool) -> bool:
        return True
