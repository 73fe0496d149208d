"""The metrics of a session, for Prometheus.

``GET /metrics`` reads all of them together, on the session's loop, so that the counters of one answer add up as those
of `Statistics`.
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
    """The metrics as a collector of prometheus-client; `text` needs no registry.

    Args:
        session: the session.
        lag: measures how late the session's loop is.
        budget: counts the bytes of the bodies that are arriving.

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
        """The media type of `text`."""
        return str(self._exposition.CONTENT_TYPE_LATEST)

    def text(self) -> bytes:
        """All metrics, in the format that Prometheus reads."""
        return bytes(self._exposition.generate_latest(self))

    def collect(self) -> Iterator[Any]:
        """The families of metrics."""
        session = self._session
        now = session.stats()
        statistics = session.statistics
        work = {"batch": statistics.batches, "stream": statistics.streams}
        yield self._counter("requests_arrived", "Requests that have begun over HTTP.", {(): statistics.arrived})
        yield self._counter("requests_accepted", "Requests that were let in.", {(): statistics.accepted})
        yield self._counter("requests_ended", "Requests by how they ended.", _by(statistics.ends), "outcome")
        yield self._counter("requests_rejected", "Requests not let in, by reason.", _by(statistics.rejected), "reason")
        yield self._counter(
            "requests_never_ran", "Ended requests that nothing was computed for.", {(): statistics.never_ran}
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
        yield self._counter("samples", "Samples in computed batches.", {(): statistics.batches.samples})
        yield self._counter("places", "Places in computed batches, with padding.", {(): statistics.places})
        yield self._counter("begun", "Batches begun, by reason.", _by(statistics.batches.begun), "reason")
        yield self._counter("compiled", "Graphs compiled.", _by(statistics.compiled), "when")
        yield self._gauge("version", "Version of the weights.", {(): session.version})
        yield self._gauge("ready", "Whether requests are taken.", {(): int(session.state == "ready")})
        yield self._histogram("waiting_seconds", "How long requests waited.", {(): statistics.waiting})
        yield self._histogram("serving_seconds", "How long requests took in all.", {(): statistics.serving})
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
        family = getattr(self._families, kind)(PREFIX + name, about, labels=("session", *labels))
        for key, value in values.items():
            family.add_metric((self._session.name, *key), value)
        return family

    def _histogram(self, name: str, about: str, values: dict[tuple[str, ...], Histogram], *labels: str) -> Any:
        family = self._families.HistogramMetricFamily(PREFIX + name, about, labels=("session", *labels))
        for key, value in values.items():
            family.add_metric((self._session.name, *key), buckets=_buckets(value), sum_value=value.total)
        return family


def _by(counts: dict[str, int]) -> dict[tuple[str, ...], int]:
    return {(name,): count for name, count in counts.items()}


def _buckets(histogram: Histogram) -> list[tuple[str, int]]:
    """The buckets as Prometheus counts them, each including those before it."""
    buckets = []
    count = 0
    for bound, own in zip([*[str(value) for value in BOUNDS], "+Inf"], histogram.counts, strict=True):
        count += own
        buckets.append((bound, count))
    return buckets
