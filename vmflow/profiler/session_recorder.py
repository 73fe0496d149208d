"""`SessionRecorder`: records the requests and batches of one session of `vmflow.serving`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from .records import UNFINISHED, BatchRecord, Load, RequestRecord

if TYPE_CHECKING:
    from vmflow.serving.batcher import Batch
    from vmflow.serving.requests import Request

    from .recorder import Recording

# A request's time of arrival, the names of its scopes, and its trace id; see `RequestRecord`.  It is a plain tuple,
# since one is made for every request.
Arrival: TypeAlias = tuple[int, tuple[str, ...], str | None]

_UNKNOWN: Final[Arrival] = (0, (), None)


class SessionRecorder:
    """Records the requests and batches of one serving session: appends each to the recording when it ends.

    A request or batch that had begun before the recording counts from the recording's beginning.  The session passes
    the times, so that all active recordings get the same ones.

    Args:
        recording: the recording.
        index: the index of the session in the recording.
        load: the numbers of requests that wait, and that are being computed, at `time`.
        time: now, at the session's first event of the recording.
    """

    def __init__(self, recording: Recording, index: int, load: tuple[int, int], time: int) -> None:
        self._recording = recording
        self._index = index
        # Requests and batches that have not ended, by number.
        self._requests: dict[int, Request] = {}
        self._batches: dict[int, tuple[Batch, int]] = {}
        recording.add((Load, index, time, *load))

    def arrived(self, request: Request) -> None:
        """Note that a request has arrived and waits to be computed."""
        self._requests[request.number] = request

    def begun(self, requests: Iterable[Request]) -> None:
        """Note that the session begins to compute some requests."""
        # Requests that arrived before the recording have not been added by `arrived`.
        self._requests.update([(request.number, request) for request in requests])

    def ended(self, request: Request, error: str | None, time: int) -> None:
        """Record a request that has ended, with its present state."""
        self._requests.pop(request.number, None)
        recording = self._recording
        # The body of `Recording.add` is repeated here, since this runs for every request.
        if len(recording.events) < recording.max_events:
            recording.events.append(self._request(request, time, request.state, error))
        else:
            recording.lose()

    def batch_began(self, batch: Batch, time: int) -> None:
        """Note that the session begins to compute a batch."""
        self._batches[batch.number] = (batch, time)

    def batch_ended(self, batch: Batch, state: str, error: str | None, time: int) -> None:
        """Record a batch that has been computed, has failed or was cancelled."""
        _, begin = self._batches.pop(batch.number, (batch, 0))
        self._recording.add(self._batch(batch, begin, time, state, error))

    def unfinished(self, end: int) -> list[tuple[Any, ...]]:
        """Make records of the requests and batches that have not ended when the recording does, and forget them."""
        records = [self._request(request, end, UNFINISHED, None) for request in list(self._requests.values())]
        records += [self._batch(batch, begin, end, UNFINISHED, None) for batch, begin in list(self._batches.values())]
        self._requests.clear()
        self._batches.clear()
        return records

    def _request(self, request: Request, end: int, state: str, error: str | None) -> tuple[Any, ...]:
        first = self._recording.begin
        time, scopes, trace = request.arrival or _UNKNOWN
        begun = number = None
        batch = request.batch
        if batch is not None:
            begun, number = request.begun, batch.number or None
            if begun < first:
                begun = first
        client = request.client
        if client is not None and type(client) is not str:
            client = client if isinstance(client, int) else repr(client)
        early = time < first
        arrived = first if early else time
        # One tuple display, since joining two tuples takes longer.
        index, own, priority = self._index, request.number, request.priority
        return (
            RequestRecord,
            index,
            own,
            client,
            priority,
            scopes,
            trace,
            arrived,
            begun,
            end,
            state,
            error,
            number,
            early,
        )

    def _batch(self, batch: Batch, begin: int, end: int, state: str, error: str | None) -> tuple[Any, ...]:
        first = self._recording.begin
        span = (max(begin, first), end)
        about = (batch.requests, batch.size, state, error, batch.scope, begin < first)
        return (BatchRecord, self._index, batch.number, batch.kind, *span, *about)
