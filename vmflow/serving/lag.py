"""`LoopLag`: how late an event loop comes to do what is due."""

from __future__ import annotations

import asyncio

import attrs

from .statistics import Histogram


@attrs.define(eq=False)
class LoopLag:
    """Lets a loop call it a few times a second, and keeps account of how much later than agreed it does.

    Args:
        interval: seconds between two calls.

    Attributes:
        late: by how much.
        last: seconds, at the last call.
    """

    _interval: float = 0.1
    late: Histogram = attrs.field(factory=Histogram)
    last: float = 0.0
    _handle: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin on the running loop."""
        loop = asyncio.get_running_loop()
        self._handle = loop.call_later(self._interval, self._tick, loop, loop.time() + self._interval)

    def stop(self) -> None:
        """End; may be called again."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _tick(self, loop: asyncio.AbstractEventLoop, due: float) -> None:
        now = loop.time()
        self.last = max(0.0, now - due)
        self.late.add(self.last)
        self._handle = loop.call_later(self._interval, self._tick, loop, now + self._interval)
