"""Writes a timeline in the Chrome trace event format, which chrome://tracing and ui.perfetto.dev show."""

from __future__ import annotations

import gzip
import itertools
import json
import time
from collections.abc import Callable, Iterable, Iterator
from os import PathLike, fspath
from typing import IO, Any

from .events import HOST, Event, Timeline
from .records import Trace

# The kinds of events written as complete events ("X"), which on one track may be nested but must not overlap; events of
# other kinds may overlap, and are written as pairs of async begin and end events, but "dropped" as an instant.
_SLICES = ("issue", "run", "compute", "await", "request", "waiting", "computing", "batch")


def write(path: str | PathLike[str], trace: Trace, timeline: Timeline, version: str) -> None:
    """Write a timeline to a JSON file in the Chrome trace event format, compressed if its name ends with ".gz"."""
    about = {
        "vmflow": version,
        "began": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(trace.wall_clock)),
        "recorded events": trace.recorded,
        "dropped events": trace.lost,
    }
    name = fspath(path)
    open_file: Callable[..., IO[str]] = gzip.open if name.endswith(".gz") else open
    with open_file(name, "wt", encoding="utf-8") as file:
        file.write(f'{{"displayTimeUnit": "ns", "otherData": {json.dumps(about)}, "traceEvents": [\n')
        for position, event in enumerate(trace_events(trace, timeline)):
            file.write(",\n" if position else "")
            file.write(json.dumps(event))
        file.write("\n]}\n")


def trace_events(trace: Trace, timeline: Timeline) -> Iterator[dict[str, Any]]:
    """Generate the elements of the list "traceEvents" in a Chrome trace: events, arrows and counters of `timeline`.

    `trace` gives the names of machines and sessions, and the number of lost events.
    """
    places = _Places([*trace.machines, *trace.sessions])
    # Batches get the first track numbers, so that they are shown above the tracks of requests.
    for batch in [event for event in timeline.events if event.kind == "batch"]:
        places.of(batch)
    for event in timeline.events:
        yield from _shown(event, places)
    numbers = itertools.count(1)
    yield from _arrows(timeline.events, numbers, places)
    for path in timeline.paths:
        yield from _chain("request", path, next(numbers), places)
    for counter in timeline.counters:
        yield {
            "ph": "C",
            "name": counter.name,
            "pid": places.process(counter.process),
            "tid": 0,
            "ts": _time(counter.time),
            "args": {"value": counter.value},
        }
    if trace.lost:
        yield {
            "ph": "i",
            "s": "g",
            "name": f"{trace.lost} events were dropped: raise max_events",
            "pid": places.process(HOST),
            "tid": 0,
            "ts": _time((trace.end - trace.begin) / 1000),
        }
    yield from places.names()


class _Places:
    """Numbers the processes ("pid") of a Chrome trace, `HOST` first, and tracks ("tid") in the order of first use."""

    def __init__(self, processes: list[str]) -> None:
        self._processes = {name: number for number, name in enumerate([HOST, *processes], 1)}
        self._tracks: dict[tuple[str, str], int] = {}
        self._spans = itertools.count(1)

    def process(self, name: str) -> int:
        return self._processes[name]

    def of(self, event: Event) -> dict[str, int]:
        """The numbers of an event's process and track, as "pid" and "tid"."""
        key = (event.process, event.track)
        return {"pid": self.process(event.process), "tid": self._tracks.setdefault(key, len(self._tracks) + 1)}

    def span(self) -> str:
        """A new identifier for a pair of begin and end events."""
        return f"{next(self._spans):#x}"

    def names(self) -> Iterator[dict[str, Any]]:
        for name, number in self._processes.items():
            yield {"ph": "M", "name": "process_name", "pid": number, "tid": 0, "args": {"name": name}}
            yield {"ph": "M", "name": "process_sort_index", "pid": number, "tid": 0, "args": {"sort_index": number}}
        for (process, track), number in self._tracks.items():
            place = {"pid": self._processes[process], "tid": number}
            yield {"ph": "M", "name": "thread_name", **place, "args": {"name": track}}
            yield {"ph": "M", "name": "thread_sort_index", **place, "args": {"sort_index": number}}


def _shown(event: Event, places: _Places) -> Iterator[dict[str, Any]]:
    begin, end = _time(event.begin), _time(event.end)
    common: dict[str, Any] = {"name": event.name, "cat": event.kind, **places.of(event), "ts": begin}
    if event.kind in _SLICES:
        yield {"ph": "X", **common, "dur": _time(end - begin), "args": event.args}
    elif event.kind == "dropped":
        yield {"ph": "i", "s": "t", **common, "args": event.args}
    else:
        common["id"] = places.span()
        yield {"ph": "b", **common, "args": event.args}
        yield {"ph": "e", **common, "ts": end}


def _arrows(events: Iterable[Event], numbers: Iterator[int], places: _Places) -> Iterator[dict[str, Any]]:
    """Generate arrows from each instruction's issue to its run to each await, as far as these were recorded."""
    issues: dict[int, Event] = {}
    runs: dict[int, Event] = {}
    waits: dict[int, list[Event]] = {}
    for event in events:
        if event.kind == "issue":
            issues[event.number] = event
        elif event.kind == "run":
            runs[event.number] = event
        elif event.kind == "await" and event.number >= 0:
            waits.setdefault(event.number, []).append(event)
    for number in {**issues, **runs}:
        for wait in waits.get(number, [None]):
            chain = [event for event in (issues.get(number), runs.get(number), wait) if event is not None]
            yield from _chain("flow", chain, next(numbers), places)


def _chain(name: str, events: list[Event], number: int, places: _Places) -> Iterator[dict[str, Any]]:
    # A cancelled await or request may have ended before the instruction ran: the arrow leaves out later slices.
    end = _point(events[-1])
    points = [(event, _point(event)) for event in events if _point(event) <= end]
    if len(points) < 2:
        return
    for position, (event, point) in enumerate(points):
        phase = "s" if position == 0 else "f" if position == len(points) - 1 else "t"
        arrow = {"ph": phase, "id": number, "cat": "flow", "name": name, **places.of(event), "ts": point}
        yield {**arrow, "bp": "e"} if phase == "f" else arrow


def _point(event: Event) -> float:
    """The time where an arrow meets a slice: just before the end of waits and requests, an issue's middle, else the
    beginning.
    """
    begin, end = _time(event.begin), _time(event.end)
    if event.kind in ("await", "waiting", "request"):
        return _time(max(begin, end - 0.001))
    return _time(begin + (end - begin) / 2) if event.kind == "issue" else begin


def _time(microseconds: float) -> float:
    return round(microseconds, 3)
