"""A reader of exported traces that believes nothing: slices must nest, and arrows must begin and end in slices."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import attrs

from vmflow import profiler

Chrome = dict[str, Any]


@attrs.define(eq=False)
class Slice:
    """As drawn; times in nanoseconds.

    Attributes:
        inside: the slice around it.
        arrows: that lead through it.
    """

    name: str
    kind: str
    process: str
    track: str
    begin: int
    end: int
    args: Chrome
    inside: Slice | None
    arrows: list[list[Slice]] = attrs.field(factory=list)


class Drawing:
    """The contents of a trace, as a viewer shows them.

    Attributes:
        slices: in order of their beginnings.
        arrows: for each, the innermost slices that it leads through.
        counters: by process and name, the moments and values.
        about: the trace as a whole.
    """

    def __init__(self, trace: Chrome) -> None:
        self._events: list[Chrome] = trace["traceEvents"]
        self.about: Chrome = trace["otherData"]
        self._processes = self._names("process_name", lambda x: x["pid"])
        self._tracks = self._names("thread_name", lambda x: (x["pid"], x["tid"]))
        self.slices: list[Slice] = []
        self._by_track: dict[tuple[int, int], list[Slice]] = defaultdict(list)
        for event in sorted([value for value in self._events if value["ph"] == "X"], key=_moment):
            self._add(event)
        self.arrows = self._follow()
        self.counters: dict[tuple[str, str], list[tuple[int, int]]] = defaultdict(list)
        for event in self._events:
            if event["ph"] == "C":
                series = self.counters[self._processes[event["pid"]], event["name"]]
                assert not series or series[-1][0] <= _moment(event)
                series.append((_moment(event), event["args"]["value"]))

    def _names(self, kind: str, key: Any) -> dict[Any, str]:
        events = [event for event in self._events if event["ph"] == "M" and event["name"] == kind]
        found = {key(event): event["args"]["name"] for event in events}
        assert len(found) == len(events) == len({(event["pid"], event["args"]["name"]) for event in events})
        return found

    def _add(self, event: Chrome) -> None:
        key = (event["pid"], event["tid"])
        begin, end = _moment(event), _moment(event) + round(event["dur"] * 1000)
        assert 0 <= begin <= end
        around = self._by_track[key][-1] if self._by_track[key] else None
        while around is not None and around.end <= begin:
            around = around.inside
        assert around is None or end <= around.end, (event, around)
        process, track = self._processes[event["pid"]], self._tracks[key]
        made = Slice(event["name"], event["cat"], process, track, begin, end, event["args"], around)
        self.slices.append(made)
        self._by_track[key].append(made)

    def _follow(self) -> list[list[Slice]]:
        chains: dict[int, list[Chrome]] = defaultdict(list)
        for event in self._events:
            if event["ph"] in "stf":
                chains[event["id"]].append(event)
        found: list[list[Slice]] = []
        for chain in chains.values():
            assert [value["ph"] for value in chain] == ["s", *["t"] * (len(chain) - 2), "f"]
            assert len({value["name"] for value in chain}) == 1
            moments = [_moment(value) for value in chain]
            assert moments == sorted(moments)
            through = [self._at((value["pid"], value["tid"]), _moment(value)) for value in chain]
            found.append(through)
            for place in through:
                place.arrows.append(through)
        return found

    def _at(self, track: tuple[int, int], moment: int) -> Slice:
        around = [value for value in self._by_track[track] if value.begin <= moment < max(value.end, value.begin + 1)]
        assert around, f"no slice of {self._tracks[track]} is around {moment}"
        return around[-1]

    def of(self, kind: str, process: str | None = None) -> list[Slice]:
        """All of a kind, in one process or in all."""
        return [slice_ for slice_ in self.slices if slice_.kind == kind and process in (None, slice_.process)]

    def request(self, number: int, process: str = "session session") -> Slice:
        """The slice of a request."""
        (found,) = [value for value in self.of("request", process) if value.name == f"request {number}"]
        return found

    def parts(self, outer: Slice) -> list[str]:
        """The slices inside a slice."""
        return [slice_.name for slice_ in self.slices if slice_.inside is outer]

    def way(self, request: Slice) -> list[Slice]:
        """The slices that a request's arrow leads through; none, if it has no arrow."""
        ends = [arrow for arrow in self.arrows if arrow[-1] is request or arrow[-1].inside is request]
        assert len(ends) <= 1
        return ends[0] if ends else []


def drawn(prof: profiler.profile, folder: Path) -> Drawing:
    """The last trace, exported and read back."""
    path = folder / "trace.json"
    prof.export_chrome_trace(path)
    return Drawing(json.loads(path.read_text()))


def check_requests(drawing: Drawing) -> None:
    """Check the rules of every complete trace."""
    batches = {(value.process, value.name): value for value in drawing.of("batch")}
    for request in drawing.of("request"):
        parts = [slice_ for slice_ in drawing.slices if slice_.inside is request]
        assert [part.name for part in parts] in (["waiting"], ["waiting", "computing"], ["computing"])
        assert parts[0].begin == request.begin
        assert parts[-1].end == request.end
        assert [part.end for part in parts[:-1]] == [part.begin for part in parts[1:]]
        way = drawing.way(request)
        assert bool(way) == ("batch" in request.args)
        if request.args["state"] == "done":
            check_way(request, way, batches)
    for process in {value.process for value in drawing.of("request")}:
        check_counters(drawing, process)


def check_way(request: Slice, way: list[Slice], batches: dict[tuple[str, str], Slice]) -> None:
    """From the waiting of a request to its batch, to the batch's instructions, to the request's end."""
    assert way[-1].inside is request
    assert way[-1].name == "computing"
    middle = way[:-1]
    if "arrived" not in request.args:
        assert middle[0].name == "waiting"
        assert middle[0].inside is request
    (batch,) = [value for value in middle if value.kind == "batch"]
    number = request.args["batch"]
    assert batch in (batches.get((request.process, f"{kind} {number}")) for kind in ("batch", "stream"))
    if "begun" not in batch.args:
        (run,) = [value for value in middle if value.kind == "run"]
        assert run.args["scope"] == batch.name.split()[0]
        assert batch.begin <= run.begin <= batch.end


def check_counters(drawing: Drawing, process: str) -> None:
    """The counters agree with the slices."""
    for name, part in (("waiting requests", "waiting"), ("computed requests", "computing")):
        slices = drawing.of(part, process)
        for moment, value in drawing.counters[process, name]:
            assert value == len([slice_ for slice_ in slices if slice_.begin <= moment < slice_.end]), (name, moment)


def _moment(event: Chrome) -> int:
    microseconds: float = event["ts"]
    return round(microseconds * 1000)
