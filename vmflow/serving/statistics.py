"""`Statistics`: what has become of the requests of a session, counted so that the figures add up; and `LoopLag`."""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from typing import Any, Final

import attrs

from .errors import ServingError
from .requests import CANCELLED, DONE, EXPIRED, FAILED

# Upper bounds in seconds.
BOUNDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

# Why a request was turned away.  The last three: its body did not come in time; its client left before all of it had
# come; the program made a mistake.
REASONS: Final = ("invalid", "expired", "overloaded", "draining", "not_ready", "slow", "gone", "failed")

# Why a batch was begun: it was as large as may be; there was a free place to compute; it had waited long enough.
RELEASES: Final = ("full", "free", "waited")


@attrs.define(eq=False)
class Histogram:
    """How often something took how long.

    Attributes:
        counts: for each of `BOUNDS`, how many took that long at most and longer than the one before; then the rest.
        total: seconds, of all.
    """

    counts: list[int] = attrs.field(factory=lambda: [0] * (len(BOUNDS) + 1))
    total: float = 0.0

    def add(self, seconds: float) -> None:
        """Count one."""
        self.counts[bisect_left(BOUNDS, seconds)] += 1
        self.total += seconds

    def count(self) -> int:
        """How many there were."""
        return sum(self.counts)

    def mean(self) -> float:
        """Seconds; 0 if there were none."""
        count = self.count()
        return self.total / count if count else 0.0


@attrs.define(eq=False)
class Work:
    """What was computed of one kind.

    Attributes:
        begun: by the reason, how often something was begun.
        batches: how many were computed to their end, and `samples` in them.
        computing: how long they took.
    """

    begun: dict[str, int] = attrs.field(factory=lambda: dict.fromkeys(RELEASES, 0))
    batches: int = 0
    samples: int = 0
    computing: Histogram = attrs.field(factory=Histogram)


@attrs.define(eq=False)
class Statistics:
    """Counts since the session was made.

    At every moment: ``accepted == done + failed + cancelled + expired + queued + running``.  While requests come over
    HTTP alone, also: ``arrived == accepted + the sum of rejected + arriving``.

    Attributes:
        arrived: requests that have begun over HTTP, whether or not their bodies have come.
        accepted: requests that were let in.
        ends: of these, how many came to which end: done, failed, cancelled, expired.
        never_ran: of those that ended, how many nothing was computed for.
        rejected: requests that were not let in, by the reason.
        batches, streams: what was computed.
        places: in batches, with those that were only padding.
        compiled: graphs made while warming up, and since the session is ready.
        waiting, serving: how long requests waited, and took in all.
    """

    arrived: int = 0
    accepted: int = 0
    ends: dict[str, int] = attrs.field(factory=lambda: dict.fromkeys((DONE, FAILED, CANCELLED, EXPIRED), 0))
    never_ran: int = 0
    rejected: dict[str, int] = attrs.field(factory=lambda: dict.fromkeys(REASONS, 0))
    batches: Work = attrs.field(factory=Work)
    streams: Work = attrs.field(factory=Work)
    places: int = 0
    compiled: dict[str, int] = attrs.field(factory=lambda: {"warming": 0, "ready": 0})
    waiting: Histogram = attrs.field(factory=Histogram)
    serving: Histogram = attrs.field(factory=Histogram)

    def reject(self, error: BaseException) -> None:
        """Count a request that was not let in.

        Args:
            error: that it was turned away by.
        """
        if isinstance(error, ServingError):
            self.rejected[error.reason] += 1
        else:  # what waits for a client is cancelled when that has gone
            self.rejected["gone" if isinstance(error, asyncio.CancelledError) else "failed"] += 1

    def as_dict(self) -> dict[str, Any]:
        """All counts; times as their means in seconds."""
        return {
            "arrived": self.arrived,
            "accepted": self.accepted,
            **self.ends,
            "never_ran": self.never_ran,
            "rejected": dict(self.rejected),
            "batches": self.batches.batches,
            "samples": self.batches.samples,
            "places": self.places,
            "begun": dict(self.batches.begun),
            "streams": self.streams.batches,
            "compiled": dict(self.compiled),
            "mean_waiting": self.waiting.mean(),
            "mean_computing": self.batches.computing.mean(),
            "mean_serving": self.serving.mean(),
        }


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
