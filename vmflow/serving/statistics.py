"""`Statistics`: counts of a session's requests and their ends, which add up; `LoopLag`: how late the loop is."""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from typing import Any, Final

import attrs

from .errors import ServingError
from .requests import CANCELLED, DONE, EXPIRED, FAILED

# Upper bounds of the classes of a `Histogram`, in seconds.
BOUNDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

# Why a request was refused.  The last three: its body did not arrive in time; its client left before it was complete;
# the program failed.
REASONS: Final = ("invalid", "expired", "overloaded", "draining", "not_ready", "slow", "gone", "failed")

# Why a batch began: it had the largest size; a place to compute was free; its first request had waited long enough.
RELEASES: Final = ("full", "free", "waited")


@attrs.define(eq=False)
class Histogram:
    """A histogram of durations.

    Attributes:
        counts: for each of `BOUNDS`, how many durations are up to it and above the bound before; then how many longer.
        total: the sum of the durations, in seconds.
    """

    counts: list[int] = attrs.field(factory=lambda: [0] * (len(BOUNDS) + 1))
    total: float = 0.0

    def add(self, seconds: float) -> None:
        """Count a duration."""
        self.counts[bisect_left(BOUNDS, seconds)] += 1
        self.total += seconds

    def count(self) -> int:
        """The number of durations."""
        return sum(self.counts)

    def mean(self) -> float:
        """The mean duration in seconds; 0 if none was counted."""
        count = self.count()
        return self.total / count if count else 0.0


@attrs.define(eq=False)
class Work:
    """Counts of batches, or of streams.

    Attributes:
        begun: how many batches began, by reason.
        batches: how many batches were computed to their end.
        samples: the samples in these batches.
        computing: how long these batches took.
    """

    begun: dict[str, int] = attrs.field(factory=lambda: dict.fromkeys(RELEASES, 0))
    batches: int = 0
    samples: int = 0
    computing: Histogram = attrs.field(factory=Histogram)


@attrs.define(eq=False)
class Statistics:
    """Counts since the session was made.

    At every moment: ``accepted == done + failed + cancelled + expired + queued + running``.  If all requests come
    through `app`, also: ``arrived == accepted + the sum of rejected + arriving``.

    Attributes:
        arrived: requests that have begun to arrive at `app`, with or without their bodies.
        accepted: requests that were accepted.
        ends: how many of these are done, failed, cancelled or expired.
        never_ran: how many of the ended requests never left the queue.
        rejected: requests that were refused, by reason.
        batches, streams: the `Work` of each.
        places: the places in computed batches, including padding and failed batches.
        compiled: forms compiled of a module or function while warming up, and since then, when there should be none.
        waiting, serving: how long requests that had their turn waited, and how long ended ones took in all.

    Raises no errors.

    Example:
        >>> statistics = flow.serving.Statistics()
        >>> statistics.reject(flow.serving.InvalidInput("no image"))
        >>> statistics.rejected["invalid"], statistics.accepted
        (1, 0)
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
        """Count a refused request.

        Args:
            error: the reason.
        """
        if isinstance(error, ServingError):
            # A user's subclass may have a reason of its own.
            self.rejected[error.reason] = self.rejected.get(error.reason, 0) + 1
        else:  # `DisconnectScope` cancels a task whose client has gone
            self.rejected["gone" if isinstance(error, asyncio.CancelledError) else "failed"] += 1

    def as_dict(self) -> dict[str, Any]:
        """The counts, of streams only how many were computed; times as their means in seconds."""
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
    """Measures by a timer how late the event loop runs its callbacks.

    Args:
        interval: seconds between two measurements.

    Attributes:
        late: all delays, as a histogram.
        last: the last delay, in seconds.
    """

    _interval: float = 0.1
    late: Histogram = attrs.field(factory=Histogram)
    last: float = 0.0
    _handle: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Start measuring the running loop."""
        loop = asyncio.get_running_loop()
        self._handle = loop.call_later(self._interval, self._tick, loop, loop.time() + self._interval)

    def stop(self) -> None:
        """Stop; may be called again."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _tick(self, loop: asyncio.AbstractEventLoop, due: float) -> None:
        now = loop.time()
        self.last = max(0.0, now - due)
        self.late.add(self.last)
        self._handle = loop.call_later(self._interval, self._tick, loop, now + self._interval)
