"""What a session tells Prometheus.

All of it is read in one go, on the session's loop, so that the counters of one answer add up: accepted is done and
failed and cancelled and expired, and what is queued and running.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from .intake import ByteBudget
from .optional import required
from .session import InferenceSession
from .statistics import BOUNDS, Histogram, LoopLag

PREFIX: Final = "vmflow_"


class Metrics:
    """A collector for a registry of prometheus-client; `text` needs none.

    Args:
        session: whose.
        lag: of its loop.
        budget: of the bodies of its requests.

    Raises:
        ImportError: if prometheus-client is not installed.
    """

    def __init__(self, session: InferenceSession, lag: LoopLag, budget: ByteBudget) -> None:
        self._families: Any = required("prometheus_client.core", "metrics", "GET /metrics")
        self._exposition: Any = required("prometheus_client.exposition", "metrics", "GET /metrics")
        self._session = session
        self._lag = lag
        self._budget = budget

    @property
    def media_type(self) -> str:
        """Of `text`."""
        return str(self._exposition.CONTENT_TYPE_LATEST)

    def text(self) -> bytes:
        """All of it, in the format that Prometheus reads."""
        return bytes(self._exposition.generate_latest(self))

    def collect(self) -> Iterator[Any]:
        """The families of metrics."""
        session = self._session
        now = session.stats()
        found = session.statistics
        work = {"batch": found.batches, "stream": found.streams}
        yield self._counter("requests_arrived", "Requests that have begun over HTTP.", {(): found.arrived})
        yield self._counter("requests_accepted", "Requests that were let in.", {(): found.accepted})
        yield self._counter("requests_ended", "Requests by how they ended.", _by(found.ends), "outcome")
        yield self._counter("requests_rejected", "Requests not let in, by reason.", _by(found.rejected), "reason")
        yield self._counter(
            "requests_never_ran", "Ended requests that nothing was computed for.", {(): found.never_ran}
        )
        yield self._gauge("requests_arriving", "Requests whose bodies are on their way.", {(): now["arriving"]})
        yield self._gauge("arriving_bytes", "Bytes of these bodies that are there.", {(): self._budget.held})
        yield self._gauge("requests_queued", "Requests that wait.", {(): now["queued"]})
        yield self._gauge("requests_running", "Requests that are computed.", {(): now["running"]})
        yield self._counter(
            "computed",
            "Batches and streams computed.",
            {(kind,): value.batches for kind, value in work.items()},
            "kind",
        )
        yield self._counter("samples", "Samples in computed batches.", {(): found.batches.samples})
        yield self._counter("places", "Places in begun batches, with padding.", {(): found.places})
        yield self._counter("begun", "Batches begun, by reason.", _by(found.batches.begun), "reason")
        yield self._counter("compiled", "Graphs compiled.", _by(found.compiled), "when")
        yield self._gauge("version", "Version of the weights.", {(): session.version})
        yield self._gauge("ready", "Whether requests are taken.", {(): int(session.state == "ready")})
        yield self._histogram("waiting_seconds", "How long requests waited.", {(): found.waiting})
        yield self._histogram("serving_seconds", "How long requests took in all.", {(): found.serving})
        computing: dict[tuple[str, ...], Histogram] = {(kind,): value.computing for kind, value in work.items()}
        yield self._histogram("computing_seconds", "How long batches and streams took.", computing, "kind")
        yield self._histogram("loop_lag_seconds", "How late the event loop was.", {(): self._lag.late})

    def _counter(self, name: str, about: str, values: dict[tuple[str, ...], int], *labels: str) -> Any:
        return self._family("CounterMetricFamily", name, about, values, labels)

    def _gauge(self, name: str, about: str, values: dict[tuple[str, ...], int], *labels: str) -> Any:
        return self._family("GaugeMetricFamily", name, about, values, labels)

    def _family(
        self, kind: str, name: str, about: str, values: dict[tuple[str, ...], int], labels: tuple[str, ...]
    ) -> Any:
        made = getattr(self._families, kind)(PREFIX + name, about, labels=("session", *labels))
        for key, value in values.items():
            made.add_metric((self._session.name, *key), value)
        return made

    def _histogram(self, name: str, about: str, values: dict[tuple[str, ...], Histogram], *labels: str) -> Any:
        made = self._families.HistogramMetricFamily(PREFIX + name, about, labels=("session", *labels))
        for key, value in values.items():
            made.add_metric((self._session.name, *key), buckets=_buckets(value), sum_value=value.total)
        return made


def _by(counts: dict[str, int]) -> dict[tuple[str, ...], int]:
    return {(name,): count for name, count in counts.items()}


def _buckets(histogram: Histogram) -> list[tuple[str, int]]:
    """Prometheus counts in each bucket what is in those before, too."""
    found = []
    count = 0
    for bound, own in zip([*[str(value) for value in BOUNDS], "+Inf"], histogram.counts, strict=True):
        count += own
        found.append((bound, count))
    return found
