"""The parts of a recording: a `Trace` of `Issue`, `Run`, `Wait` and other records.

All times are nanoseconds on the clock of `time.perf_counter_ns`.  The fields `code` and `last` identify the line that
issued the instruction, see `vmflow.instructions.origin`.  A `number` identifies an instruction within the recording;
unlike the serial it is known from the moment of issuing.
"""

from __future__ import annotations

from types import CodeType
from typing import Any, Final, NamedTuple, TypeVar

from vmflow.instructions.scope import Scope

# The states of instructions.
RAN: Final = "ran"
FAILED: Final = "failed"
DROPPED: Final = "dropped"
# It returned, and ends later.
DEFERRED: Final = "deferred"
# The recording ended first.
UNFINISHED: Final = "unfinished"

Record = TypeVar("Record", bound=tuple[Any, ...])


class Issue(NamedTuple):
    """An instruction was issued."""

    machine: int
    number: int
    begin: int
    end: int
    track: int
    thread: int
    name: str
    code: CodeType | None
    last: int


class Run(NamedTuple):
    """A stream ran an instruction.

    Attributes:
        allocated: bytes in tensors on the device at the end; -1 without an allocator.
        lively: instructions of the machine that had not ended.
    """

    machine: int
    number: int
    serial: int
    begin: int
    end: int
    thread: int
    stream: str
    device: Any
    name: str
    code: CodeType | None
    last: int
    scope: Scope | None
    module: Any
    nbytes: int
    state: str
    error: str | None
    allocated: int
    lively: int


class Finish(NamedTuple):
    """A deferred instruction ended."""

    machine: int
    serial: int
    time: int
    error: str | None


class Computed(NamedTuple):
    """A device computed the work of an instruction.

    Attributes:
        begin, end: by the device's own clock.
    """

    machine: int
    serial: int
    begin: int
    end: int
    stream: str
    name: str


class Abandoned(NamedTuple):
    """An instruction was dropped as its machine was closed."""

    machine: int
    number: int
    time: int
    stream: str
    name: str
    code: CodeType | None
    last: int
    scope: Scope | None


class Wait(NamedTuple):
    """A task or thread waited for an instruction.

    Attributes:
        number: None if the instruction had begun; then its serial identifies it.
        complete: False if the recording ended first.
    """

    machine: int
    number: int | None
    serial: int
    track: int
    thread: int
    name: str
    scope: Scope | None
    begin: int
    end: int
    complete: bool


class Note(NamedTuple):
    """A named part of the program.

    Attributes:
        kind: "record_function" or "step".
    """

    kind: str
    name: str
    begin: int
    end: int
    track: int


class RequestRecord(NamedTuple):
    """A request of a session of `vmflow.serving`.

    Attributes:
        number: among the requests of its session.
        client: the sender, as text or number; None if unknown.
        scopes: the names of the scopes that it was made in, the outermost first.
        trace: the `vmflow.serving.trace_id` there.
        begun: when its turn came; None if it never did.
        state: "done", "failed", "cancelled" or "expired"; "unfinished" if the recording ended first.
        batch: the number of the last batch that it was in; None if there was none.
        early: whether it had arrived before the recording; then `arrived` is the beginning of the recording, and
            `begun` is not before it.
    """

    session: int
    number: int
    client: str | int | None
    priority: int
    scopes: tuple[str, ...]
    trace: str | None
    arrived: int
    begun: int | None
    ended: int
    state: str
    error: str | None
    batch: int | None
    early: bool


class BatchRecord(NamedTuple):
    """A batch, or a stream, that a session computed.

    Attributes:
        number: among the batches and streams of its session; each half of a failed one has its own.
        kind: "batch" or "stream".
        requests: the number of requests.
        size: the number of places that it was padded to; 0 without padding, or before it.
        state: "done", "failed" or "cancelled"; "unfinished" if the recording ended first.
        scope: of the instructions issued for it.
        early: whether it had begun before the recording; then `begin` is the beginning of the recording.
    """

    session: int
    number: int
    kind: str
    begin: int
    end: int
    requests: int
    size: int
    state: str
    error: str | None
    scope: Scope | None
    early: bool


class Load(NamedTuple):
    """The numbers of waiting and of computed requests of a session when its recording begins."""

    session: int
    time: int
    waiting: int
    computing: int


class Trace:
    """All events of a recording.

    Args:
        events: tuples of one of the types above and its fields.

    Attributes:
        begin, end: of the recording.
        monotonic_offset: converts nanoseconds of `time.monotonic_ns`, by addition.
        wall_clock: when it began, in seconds since 1970.
        machines: the names of the machines, made distinct.
        tracks: the names of the tasks and threads, made distinct.
        sessions: the names of the sessions, made distinct.
        lost: the number of events that were not kept.
    """

    def __init__(
        self,
        begin: int,
        end: int,
        monotonic_offset: int,
        wall_clock: float,
        machines: list[str],
        tracks: list[str],
        sessions: list[str],
        events: list[tuple[Any, ...]],
        lost: int,
    ) -> None:
        self.begin = begin
        self.end = end
        self.monotonic_offset = monotonic_offset
        self.wall_clock = wall_clock
        self.machines = _distinct([f"machine {name}" for name in machines])
        self.tracks = _distinct(tracks)
        self.sessions = _distinct([f"session {name}" for name in sessions])
        self.lost = lost
        self.recorded = len(events)
        self.issues = _of(events, Issue)
        self.runs = _of(events, Run)
        self.finishes = _of(events, Finish)
        self.computed = _of(events, Computed)
        self.abandoned = _of(events, Abandoned)
        self.waits = _of(events, Wait)
        self.notes = _of(events, Note)
        self.requests = _of(events, RequestRecord)
        self.batches = _of(events, BatchRecord)
        self.loads = _of(events, Load)
        self._by_serial = {(run.machine, run.serial): run.number for run in self.runs}

    def at(self, time: int) -> float:
        """Microseconds since the recording began."""
        return (time - self.begin) / 1000

    def number_of(self, wait: Wait | Computed) -> int | None:
        """The number of the instruction of a record; None if that was not recorded."""
        if isinstance(wait, Computed):
            return self._by_serial.get((wait.machine, wait.serial))
        return wait.number if wait.number is not None else self._by_serial.get((wait.machine, wait.serial))


def _distinct(names: list[str]) -> list[str]:
    """The same names, with numbers appended to repeated ones."""
    counts: dict[str, int] = {}
    distinct: list[str] = []
    for name in names:
        counts[name] = counts.get(name, 0) + 1
        distinct.append(name if counts[name] == 1 else f"{name} ({counts[name]})")
    return distinct


def _of(events: list[tuple[Any, ...]], kind: type[Record]) -> list[Record]:
    make: Any = kind
    return [make(*event[1:]) for event in events if event[0] is kind]
