"""Sessions as people look at them: requests and batches on tracks, their numbers over time, and the path of each."""

from __future__ import annotations

from typing import Any

from vmflow.instructions.scope import Scope

from .events import Counters, Event, Lanes
from .records import UNFINISHED, BatchRecord, RequestRecord, Trace


def session_events(trace: Trace) -> list[Event]:
    """A slice for each request, with its waiting and computing inside, and one for each batch; none overlap."""
    lanes = Lanes()
    made: list[Event] = []
    for request in sorted(trace.requests, key=lambda value: (value.arrived, value.number)):
        made += _request(trace, request, lanes)
    for batch in sorted(trace.batches, key=lambda value: (value.begin, value.number)):
        made.append(_batch(trace, batch, lanes))
    return made


def _request(trace: Trace, it: RequestRecord, lanes: Lanes) -> list[Event]:
    arrived, ended = trace.at(it.arrived), trace.at(it.ended)
    args: dict[str, Any] = {"state": it.state, "priority": it.priority}
    known = {
        "client": it.client,
        "scope": " / ".join(it.scopes) or None,
        "trace id": it.trace,
        "batch": it.batch,
        "error": it.error,
        "arrived": "before the recording" if it.early else None,
    }
    args.update({name: value for name, value in known.items() if value is not None})
    process = trace.sessions[it.session]
    track = lanes.track(process, "requests", arrived, ended)
    spans = [("request", f"request {it.number}", arrived, ended, args)]
    until = ended if it.begun is None else trace.at(it.begun)
    # If computing had begun before the recording, there is no waiting in it.
    if until > arrived:
        spans.append(("waiting", "waiting", arrived, until, {}))
    if it.begun is not None:
        spans.append(("computing", "computing", trace.at(it.begun), ended, {}))
    return [Event(kind, name, process, track, begin, end, it.number, more) for kind, name, begin, end, more in spans]


def _batch(trace: Trace, it: BatchRecord, lanes: Lanes) -> Event:
    begin, end = trace.at(it.begin), trace.at(it.end)
    args: dict[str, Any] = {"state": it.state, "requests": it.requests}
    if it.size:
        args["size"] = it.size
    if it.error is not None:
        args["error"] = it.error
    if it.early:
        args["begun"] = "before the recording"
    process = trace.sessions[it.session]
    track = lanes.track(process, "streams" if it.kind == "stream" else "batches", begin, end)
    return Event("batch", f"{it.kind} {it.number}", process, track, begin, end, it.number, args)


def count_requests(trace: Trace, counters: Counters) -> None:
    """How many waited and were computed, session by session."""
    for load in trace.loads:
        process = trace.sessions[load.session]
        # The changes of both numbers, by time; the load has the numbers before.
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


def _changes(it: RequestRecord) -> list[tuple[int, int, int]]:
    """Times at which the numbers of waiting and of computed requests change, and by how much."""
    made = [(it.arrived, 1, 0)]
    if it.begun is not None:
        made.append((it.begun, -1, 1))
    # A request that the recording's end cuts off goes on.
    if it.state != UNFINISHED:
        made.append((it.ended, -1, 0) if it.begun is None else (it.ended, 0, -1))
    return made


def request_paths(trace: Trace, events: list[Event]) -> list[list[Event]]:
    """For each request that came to be computed: its waiting, its batch, the first instruction of that, and itself."""
    found = {
        (value.process, value.kind, value.number): value
        for value in events
        if value.kind in ("request", "waiting", "batch")
    }
    runs = {value.number: value for value in events if value.kind == "run"}
    first = _first_runs(trace)
    paths: list[list[Event]] = []
    for request in trace.requests:
        if request.batch is None:
            continue
        process = trace.sessions[request.session]
        path = [
            found.get((process, "waiting", request.number)),
            found.get((process, "batch", request.batch)),
            runs.get(first.get((request.session, request.batch), -1)),
            found[process, "request", request.number],
        ]
        paths.append([event for event in path if event is not None])
    return paths


def _first_runs(trace: Trace) -> dict[tuple[int, int], int]:
    """By session and number of each batch, the number of the first instruction that ran in its scope."""
    batches = {value.scope: (value.session, value.number) for value in trace.batches if value.scope is not None}
    first: dict[tuple[int, int], tuple[int, int]] = {}
    for run in trace.runs:
        scope: Scope | None = run.scope
        while scope is not None and scope not in batches:
            scope = scope.outer
        if scope is not None:
            batch = batches[scope]
            first[batch] = min(first.get(batch, (run.begin, run.number)), (run.begin, run.number))
    return {batch: number for batch, (_, number) in first.items()}
