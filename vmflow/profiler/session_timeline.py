"""The timeline of serving sessions: requests and batches on tracks, their counts over time, and each request's path."""

from __future__ import annotations

from typing import Any

from vmflow.instructions.scope import Scope

from .events import Counters, Event, Lanes
from .records import UNFINISHED, BatchRecord, RequestRecord, Trace


def session_events(trace: Trace) -> list[Event]:
    """Make a slice for each request, with its waiting and computing inside, and a slice for each batch.

    Requests or batches of one session that overlap in time get different tracks.
    """
    lanes = Lanes()
    events: list[Event] = []
    for request in sorted(trace.requests, key=lambda request: (request.arrived, request.number)):
        events += _request(trace, request, lanes)
    for batch in sorted(trace.batches, key=lambda batch: (batch.begin, batch.number)):
        events.append(_batch(trace, batch, lanes))
    return events


def _request(trace: Trace, request: RequestRecord, lanes: Lanes) -> list[Event]:
    arrived, ended, number = trace.at(request.arrived), trace.at(request.ended), request.number
    args: dict[str, Any] = {"state": request.state, "priority": request.priority}
    known = {
        "client": request.client,
        "scope": " / ".join(request.scopes) or None,
        "trace id": request.trace,
        "batch": request.batch,
        "error": request.error,
        "arrived": "before the recording" if request.early else None,
    }
    args.update({name: value for name, value in known.items() if value is not None})
    process = trace.sessions[request.session]
    track = lanes.track(process, "requests", arrived, ended)
    spans = [("request", f"request {number}", arrived, ended, args)]
    until = ended if request.begun is None else trace.at(request.begun)
    # If computing had begun before the recording, the recording has no waiting of the request.
    if until > arrived:
        spans.append(("waiting", "waiting", arrived, until, {}))
    if request.begun is not None:
        spans.append(("computing", "computing", trace.at(request.begun), ended, {}))
    return [Event(kind, name, process, track, begin, end, number, more) for kind, name, begin, end, more in spans]


def _batch(trace: Trace, batch: BatchRecord, lanes: Lanes) -> Event:
    begin, end = trace.at(batch.begin), trace.at(batch.end)
    args: dict[str, Any] = {"state": batch.state, "requests": batch.requests}
    if batch.size:
        args["size"] = batch.size
    if batch.error is not None:
        args["error"] = batch.error
    if batch.early:
        args["begun"] = "before the recording"
    process = trace.sessions[batch.session]
    track = lanes.track(process, "streams" if batch.kind == "stream" else "batches", begin, end)
    return Event("batch", f"{batch.kind} {batch.number}", process, track, begin, end, batch.number, args)


def count_requests(trace: Trace, counters: Counters) -> None:
    """Add counters, over time, of each session's requests that wait, and of those that are being computed."""
    for load in trace.loads:
        process = trace.sessions[load.session]
        # The changes of both numbers by time; the first come from the load, which has all that happened before.
        changes: dict[int, tuple[int, int]] = {load.time: (load.waiting, load.computing)}
        for request in trace.requests:
            for time, waiting, computing in _changes(request) if request.session == load.session else ():
                if time > load.time:
                    before = changes.get(time, (0, 0))
                    changes[time] = (before[0] + waiting, before[1] + computing)
        waits = computed = 0
        for time in sorted(changes):
            waits += changes[time][0]
            computed += changes[time][1]
            counters.count(process, "waiting requests", trace.at(time), waits)
            counters.count(process, "computed requests", trace.at(time), computed)


def _changes(request: RequestRecord) -> list[tuple[int, int, int]]:
    """The times at which a request arrives, begins to be computed, or ends, and its changes of both counters."""
    changes = [(request.arrived, 1, 0)]
    if request.begun is not None:
        changes.append((request.begun, -1, 1))
    # A request that has not ended when the recording does keeps counting.
    if request.state != UNFINISHED:
        changes.append((request.ended, -1, 0) if request.begun is None else (request.ended, 0, -1))
    return changes


def request_paths(trace: Trace, events: list[Event]) -> list[list[Event]]:
    """For each request in a batch, an arrow's slices: its waiting, its batch, the batch's first run, and itself.

    Slices that were not recorded are left out.
    """
    slices = {
        (event.process, event.kind, event.number): event
        for event in events
        if event.kind in ("request", "waiting", "batch")
    }
    runs = {event.number: event for event in events if event.kind == "run"}
    first = _first_runs(trace)
    paths: list[list[Event]] = []
    for request in trace.requests:
        if request.batch is None:
            continue
        process = trace.sessions[request.session]
        path = [
            slices.get((process, "waiting", request.number)),
            slices.get((process, "batch", request.batch)),
            runs.get(first.get((request.session, request.batch), -1)),
            slices[process, "request", request.number],
        ]
        paths.append([event for event in path if event is not None])
    return paths


def _first_runs(trace: Trace) -> dict[tuple[int, int], int]:
    """By session and batch number, the number of the first instruction that ran in the batch's scope."""
    batches = {batch.scope: (batch.session, batch.number) for batch in trace.batches if batch.scope is not None}
    first: dict[tuple[int, int], tuple[int, int]] = {}
    for run in trace.runs:
        scope: Scope | None = run.scope
        while scope is not None and scope not in batches:
            scope = scope.outer
        if scope is not None:
            batch = batches[scope]
            first[batch] = min(first.get(batch, (run.begin, run.number)), (run.begin, run.number))
    return {batch: number for batch, (_, number) in first.items()}
