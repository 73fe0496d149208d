"""`SessionRecorder`: records the requests and batches of one session of `vmflow.serving`.

It keeps only numbers and names of requests and batches that have ended, and no arrays.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from .records import UNFINISHED, BatchRecord, Load, RequestRecord

if TYPE_CHECKING:
    from vmflow.serving.batcher import Batch
    from vmflow.serving.requests import Request

    from .recorder import Recording

# A request's time of arrival, the names of its scopes, and its trace; see `RequestRecord`.
# A plain tuple, as it is made for every request.
Arrival: TypeAlias = tuple[int, tuple[str, ...], str | None]

_UNKNOWN: Final[Arrival] = (0, (), None)


class SessionRecorder:
    """Knows the requests and batches under way, and appends those that end to the recording.

    A request or batch that had begun before the recording counts from the recording's beginning.  The caller passes all
    times, the same to all recordings.

    Args:
        recording: the recording.
        index: of the session in it.
        load: the numbers of waiting and of computed requests at the moment `time`.
    """

    def __init__(self, recording: Recording, index: int, load: tuple[int, int], time: int) -> None:
        self._recording = recording
        self._index = index
        # Requests and batches that have not ended, by number.
        self._requests: dict[int, Request] = {}
        self._batches: dict[int, tuple[Batch, int]] = {}
        recording.add((Load, index, time, *load))

    def arrived(self, request: Request) -> None:
        """A request waits for its turn."""
        self._requests[request.number] = request

    def begun(self, requests: Iterable[Request]) -> None:
        """The turn of some requests has come."""
        # Added again, since they may have arrived before the recording.
        self._requests.update([(request.number, request) for request in requests])

    def ended(self, request: Request, error: str | None, time: int) -> None:
        """A request has ended, in its present state."""
        self._requests.pop(request.number, None)
        recording = self._recording
        # `add` is written out, as in the recorder of a machine.
        if len(recording.events) < recording.max_events:
            recording.events.append(self._request(request, time, request.state, error))
        else:
            recording.lose()

    def batch_began(self, batch: Batch, time: int) -> None:
        """A batch is about to be computed."""
        self._batches[batch.number] = (batch, time)

    def batch_ended(self, batch: Batch, state: str, error: str | None, time: int) -> None:
        """A batch has been computed, or has failed."""
        _, begin = self._batches.pop(batch.number, (batch, 0))
        self._recording.add(self._batch(batch, begin, time, state, error))

    def unfinished(self, end: int) -> list[tuple[Any, ...]]:
        """Records of the requests and batches under way as the recording ends.  Forgets all of them."""
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
            begun, number = batch.begun, batch.number or None
            if begun < first:
                begun = first
        client = request.client
        if client is not None and type(client) is not str:
            client = client if isinstance(client, int) else repr(client)
        early = time < first
        arrived = first if early else time
        # A single tuple, since two would take twice as long.
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
