"""`make_timeline`: turns a `Trace` into a `Timeline`, slices on tracks that can be shown."""

from __future__ import annotations

from functools import cache
from operator import attrgetter
from typing import Any

import attrs

from vmflow.instructions import origin
from vmflow.instructions.scope import Scope

from .events import HOST, Counter, Counters, Event, Lanes, Timeline
from .records import DEFERRED, DROPPED, Trace
from .session_timeline import count_requests, request_paths, session_events


def make_timeline(trace: Trace) -> Timeline:
    """Turn a trace into a timeline: its events with names, sorted by time and put on tracks, and its counters."""
    events = [*_Builder(trace).events(), *session_events(trace)]
    # The sort is stable, so that a slice inside another of the same length stays after it.
    events.sort(key=lambda event: (event.begin, -event.end))
    return Timeline(_on_lanes(events), _counters(trace), request_paths(trace, events))


class _Builder:
    """Makes the events of a timeline from the records of one trace, except those of serving sessions."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.machines = trace.machines
        # The functions are cached, since many events share their results.
        self._line = cache(origin.describe)
        self._module = cache(str)

    def events(self) -> list[Event]:
        events = [*self._issues(), *self._runs(), *self._computed(), *self._deferred(), *self._waits()]
        return [*events, *self._scopes(), *self._notes()]

    def _issues(self) -> list[Event]:
        tracks = self.trace.tracks
        return [
            Event(
                "issue",
                issue.name,
                HOST,
                tracks[issue.track],
                self.trace.at(issue.begin),
                self.trace.at(issue.end),
                issue.number,
                {"line": self._line(issue.code, issue.last)},
            )
            for issue in self.trace.issues
        ]

    def _runs(self) -> list[Event]:
        made: list[Event] = []
        for run in self.trace.runs:
            args: dict[str, Any] = {"serial": run.serial, "state": run.state, "bytes": run.nbytes}
            args["line"] = self._line(run.code, run.last)
            if run.error is not None:
                args["error"] = run.error
            if run.scope is not None:
                args["scope"] = run.scope.name or "scope"
            if run.module is not None:
                args["module"] = self._module(run.module)
            begin, end = self.trace.at(run.begin), self.trace.at(run.end)
            made.append(Event("run", run.name, self.machines[run.machine], run.stream, begin, end, run.number, args))
        for gone in self.trace.abandoned:
            time = self.trace.at(gone.time)
            args = {"state": DROPPED, "line": self._line(gone.code, gone.last)}
            process = self.machines[gone.machine]
            made.append(Event("dropped", gone.name, process, gone.stream, time, time, gone.number, args))
        return made

    def _computed(self) -> list[Event]:
        made: list[Event] = []
        for value in self.trace.computed:
            number = self.trace.number_of(value)
            place = self.machines[value.machine], f"{value.stream} on the device"
            times = self.trace.at(value.begin), self.trace.at(value.end)
            made.append(
                Event("compute", value.name, *place, *times, -1 if number is None else number, {"serial": value.serial})
            )
        return made

    def _deferred(self) -> list[Event]:
        finishes = {(finish.machine, finish.serial): finish for finish in self.trace.finishes}
        made: list[Event] = []
        for run in self.trace.runs:
            if run.state != DEFERRED:
                continue
            finish = finishes.get((run.machine, run.serial))
            args: dict[str, Any] = {"serial": run.serial, "state": "unfinished" if finish is None else "ran"}
            if finish is not None and finish.error is not None:
                args.update(state="failed", error=finish.error)
            begin, end = self.trace.at(run.begin), self.trace.at(self.trace.end if finish is None else finish.time)
            made.append(
                Event("deferred", run.name, self.machines[run.machine], run.stream, begin, end, run.number, args)
            )
        return made

    def _waits(self) -> list[Event]:
        made: list[Event] = []
        for wait in self.trace.waits:
            number = self.trace.number_of(wait)
            args: dict[str, Any] = {} if wait.complete else {"state": "unfinished"}
            begin, end = self.trace.at(wait.begin), self.trace.at(wait.end)
            track = self.trace.tracks[wait.track]
            made.append(Event("await", wait.name, HOST, track, begin, end, -1 if number is None else number, args))
        return made

    def _scopes(self) -> list[Event]:
        ends: dict[Scope, int] = {}

        def extend(scope: Scope | None, end: int) -> None:
            while scope is not None and ends.get(scope, -1) < end:
                ends[scope] = end
                scope = scope.outer

        finishes = {(finish.machine, finish.serial): finish.time for finish in self.trace.finishes}
        for run in self.trace.runs:
            extend(run.scope, max(run.end, finishes.get((run.machine, run.serial), 0)))
        for wait in self.trace.waits:
            extend(wait.scope, wait.end)
        for gone in self.trace.abandoned:
            extend(gone.scope, gone.time)
        return [self._scope(scope, end) for scope, end in ends.items()]

    def _scope(self, scope: Scope, end: int) -> Event:
        begun = round(scope.begun * 1e9) + self.trace.monotonic_offset
        args: dict[str, Any] = {"priority": scope.priority}
        if scope.timeout is not None:
            args["seconds to the deadline"] = round(scope.timeout, 6)
        begin = self.trace.at(max(begun, self.trace.begin))
        return Event("scope", scope.name or "scope", HOST, "scopes", begin, self.trace.at(end), -1, args)

    def _notes(self) -> list[Event]:
        return [
            Event(
                note.kind,
                note.name,
                HOST,
                f"{note.kind}s",
                self.trace.at(note.begin),
                self.trace.at(note.end),
                -1,
                {"by": self.trace.tracks[note.track]},
            )
            for note in self.trace.notes
        ]


def _on_lanes(events: list[Event]) -> list[Event]:
    """Move issues and waits that would overlap on the track of a task or thread to further tracks.

    They may overlap: a thread that waits runs instructions, which may issue others; a task may be in several awaits.
    """
    lanes = Lanes()
    placed: list[Event] = []
    for event in events:
        if event.kind in ("issue", "await"):
            event = attrs.evolve(event, track=lanes.track(event.process, event.track, event.begin, event.end))
        placed.append(event)
    return placed


def _counters(trace: Trace) -> list[Counter]:
    counters = Counters()
    for run in sorted(trace.runs, key=attrgetter("end")):
        process, time = trace.machines[run.machine], trace.at(run.end)
        if run.allocated >= 0:
            counters.count(process, f"bytes on {run.device}", time, run.allocated)
        counters.count(process, "lively instructions", time, run.lively)
    count_requests(trace, counters)
    return sorted(counters.changes, key=attrgetter("time"))
