"""The control stream: barriers and host callbacks that belong to no device."""

from __future__ import annotations

from .stream import StreamPolicy


class ControlStreamPolicy(StreamPolicy):
    """Runs on the thread that schedules: what it carries orders other work and does none itself."""

    kind = "control"

    def on_scheduler_thread(self, cost: int, loop_attached: bool) -> bool:
        return True
