"""The control stream: barriers and host callbacks that belong to no device."""

from __future__ import annotations

from .stream import StreamPolicy


class ControlStreamPolicy(StreamPolicy):
    """Runs instructions on the thread that schedules: those of this stream only order other work."""

    kind = "control"

    def on_scheduler_thread(self, cost: int, loop_attached: bool) -> bool:
        return True
