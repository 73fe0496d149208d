"""`SessionTracing`: passes a session's requests and batches on to recordings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Final

import attrs

from vmflow.context import MODE
from vmflow.instructions.scope import Scope
from vmflow.profiler.recorder import LISTENING, Recording, message_of
from vmflow.profiler.session_recorder import SessionRecorder

from .asgi import trace_id
from .requests import CANCELLED, DONE, FAILED, Request

if TYPE_CHECKING:
    from .batcher import Batch

_keys: Final = count()


@attrs.define(eq=False)
class SessionTracing:
    """Passes the events of a session on to all recordings; called only during recordings, on the session's loop.

    Times are of `time.perf_counter_ns`, as in all of a recording, since loops differ in their clocks.

    Args:
        name: of the session.

    Attributes:
        batches: the counter that numbers the batches.
        loads: functions that return the numbers of waiting and of running requests; the session's are their sums.
    """

    name: str
    batches: count[int] = attrs.field(factory=lambda: count(1))
    loads: list[Callable[[], tuple[int, int]]] = attrs.field(factory=list)
    _key: int = attrs.field(factory=_keys.__next__)

    def arrived(self, request: Request) -> None:
        """Record that a request has been accepted; called by the task that waits for it."""
        scope = MODE.get().scope
        request.arrival = (perf_counter_ns(), () if scope is None else _names(scope), trace_id())
        # `_recorders` is written out in `arrived` and `ended`, for speed: both run for every request.
        for recording in tuple(LISTENING):
            (recording.sessions.get(self._key) or self._recorder(recording)).arrived(request)

    def begun(self, requests: Sequence[Request]) -> None:
        """Record that these requests have left the queue to be computed."""
        now = perf_counter_ns()
        for request in requests:
            request.begun = now
        for recorder in self._recorders():
            recorder.begun(requests)

    def ended(self, request: Request, outcome: Any) -> None:
        """Record that a request has ended as its state says.

        Args:
            request: the request.
            outcome: its result or exception.
        """
        now = perf_counter_ns()
        error = None if request.state in (DONE, CANCELLED) else message_of(outcome)
        for recording in tuple(LISTENING):
            (recording.sessions.get(self._key) or self._recorder(recording)).ended(request, error, now)

    def batch_began(self, batch: Batch) -> None:
        """Record that a batch is about to be computed."""
        now = perf_counter_ns()
        for recorder in self._recorders():
            recorder.batch_began(batch, now)

    def batch_ended(self, batch: Batch, error: BaseException | None) -> None:
        """Record that a batch has been computed, or has raised an error."""
        now = perf_counter_ns()
        state = DONE if error is None else FAILED if batch.wanted else CANCELLED
        message = None if error is None or state == CANCELLED else message_of(error)
        for recorder in self._recorders():
            recorder.batch_ended(batch, state, message, now)

    def _recorders(self) -> list[SessionRecorder]:
        return [recording.sessions.get(self._key) or self._recorder(recording) for recording in tuple(LISTENING)]

    def _recorder(self, recording: Recording) -> SessionRecorder:
        return recording.session(self._key, self.name, self._load)

    def _load(self) -> tuple[int, int]:
        loads = [load() for load in self.loads]
        return sum([waiting for waiting, _ in loads]), sum([computing for _, computing in loads])


def _names(scope: Scope | None) -> tuple[str, ...]:
    """The names of a scope and of those around it, the outermost first."""
    names: list[str] = []
    while scope is not None:
        if scope.name is not None:
            names.append(scope.name)
        scope = scope.outer
    return tuple(reversed(names))
