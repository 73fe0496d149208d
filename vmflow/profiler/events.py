"""`Timeline`: a recording as slices on tracks and as counters over time, to be shown."""

from __future__ import annotations

from typing import Any, Final

import attrs

HOST: Final = "host"


@attrs.frozen
class Event:
    """A slice on a track of a timeline: something that lasted from `begin` to `end`.

    Attributes:
        kind: "issue", "run", "compute" (the work of a device, by its clock), "await", "deferred" (from the beginning to
            the end of an instruction that ends later than it returns), "dropped" (when a machine gave the instruction
            up), "scope", "record_function" or "step"; for serving sessions "request", inside it "waiting" and
            "computing", and "batch".
        name: for people, such as that of the instruction, scope or function.
        process: the group of tracks: "machine " or "session " and its name, or "host".
        track: the stream (for "compute", with " on the device"), task or thread; "scopes", "record_functions" or
            "steps"; for sessions "requests", "batches" or "streams"; see also `Lanes`.
        begin, end: microseconds since the recording began.
        number: the instruction's number, the same in all its events, or the number of a request or batch in its
            session; -1 if there is none, or it is not known.
        args: further facts, by name.
    """

    kind: str
    name: str
    process: str
    track: str
    begin: float
    end: float
    number: int
    args: dict[str, Any]

    @property
    def duration(self) -> float:
        """The length in microseconds."""
        return self.end - self.begin


@attrs.frozen
class Counter:
    """A change of a counter, such as the bytes that an allocator has handed out: its new value, and when it changed.

    Attributes:
        time: microseconds since the recording began.
    """

    name: str
    process: str
    time: float
    value: int


@attrs.frozen
class Timeline:
    """A recording to be shown: all events in the order of their beginnings, and changes of counters in order of time.

    Attributes:
        paths: for each request of a serving session that was in a batch, the events that its arrow connects.
    """

    events: list[Event]
    counters: list[Counter]
    paths: list[list[Event]]


@attrs.define(eq=False)
class Lanes:
    """Assigns slices that would overlap on a track to further tracks: "name, 2", "name, 3" and so on."""

    # For each process and track, the time at which each of the track's lanes is free again.
    _free_from: dict[tuple[str, str], list[float]] = attrs.field(factory=dict)

    def track(self, process: str, track: str, begin: float, end: float) -> str:
        """The name of the track for a slice from `begin` to `end`, in microseconds; call this in order of `begin`."""
        lanes = self._free_from.setdefault((process, track), [])
        lane = next((lane for lane, free in enumerate(lanes) if free <= begin), len(lanes))
        lanes[lane:] = [end] + lanes[lane + 1 :]
        return f"{track}, {lane + 1}" if lane else track


@attrs.define(eq=False)
class Counters:
    """Collects the changes of counters, without repeated values."""

    changes: list[Counter] = attrs.field(factory=list)
    _last: dict[tuple[str, str], int] = attrs.field(factory=dict)

    def count(self, process: str, name: str, time: float, value: int) -> None:
        """Note the value of a counter at a moment in microseconds; call this in order of time."""
        if self._last.get((process, name)) != value:
            self._last[process, name] = value
            self.changes.append(Counter(name, process, time, value))
