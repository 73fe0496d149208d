"""The types of a recording's events: a `Trace` has lists of `Issue`, `Run`, `Wait` and other records.

All times are nanoseconds on the clock of `time.perf_counter_ns`.  The fields `code` and `last` identify the line that
issued the instruction, see `vmflow.instructions.origin`.  A `number` identifies an instruction within the recording;
unlike the serial number it is known from the moment of issuing.
"""

from __future__ import annotations

from itertools import count
from types import CodeType
from typing import Any, Final, NamedTuple, TypeVar

from vmflow.instructions.scope import Scope

# The states of instructions.
RAN: Final = "ran"
FAILED: Final = "failed"
DROPPED: Final = "dropped"
# The instruction's policy has returned, and the instruction ends later.
DEFERRED: Final = "deferred"
# The recording ended before the instruction.
UNFINISHED: Final = "unfinished"

Record = TypeVar("Record", bound=tuple[Any, ...])


class Issue(NamedTuple):
    """The record of issuing an instruction; the recorder's own call lasted from `begin` to `end`."""

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
    """The record of a stream's run of an instruction.

    Attributes:
        allocated: the bytes of the stream's device that the machine's allocators, of all streams, had handed out when
            the run ended; -1 if the stream has no allocator.
        lively: the number of the machine's instructions that had been issued and not erased then.
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
    """The record of the end of a deferred instruction, which ended later than its run returned."""

    machine: int
    serial: int
    time: int
    error: str | None


class Computed(NamedTuple):
    """The record of a device's work for an instruction, such as a kernel on a GPU.

    Attributes:
        begin, end: measured by the device, and converted to the clock of all times here.
    """

    machine: int
    serial: int
    begin: int
    end: int
    stream: str
    name: str


class Abandoned(NamedTuple):
    """The record of an instruction that its virtual machine has given up; see `Tracer.abandoned`."""

    machine: int
    number: int
    time: int
    stream: str
    name: str
    code: CodeType | None
    last: int
    scope: Scope | None


class Wait(NamedTuple):
    """The record of a task's or thread's wait for an instruction.

    Attributes:
        number: the instruction's number; None if only `serial` identifies it, for instance if it had begun before the
            wait.
        complete: False if the recording ended before the wait.
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
    """The record of a named part of the program: a block of `record_function`, or a step of a profiled loop.

    Attributes:
        kind: "record_function" or "step".
    """

    kind: str
    name: str
    begin: int
    end: int
    track: int


class RequestRecord(NamedTuple):
    """The record of a request to a session of `vmflow.serving`.

    Attributes:
        number: of the request in its session.
        client: the sender, as text or number; None if unknown.
        scopes: the names of the scopes in which the request was made, the outermost first; empty if it came when
            nothing was recorded.
        trace: the result of `vmflow.serving.trace_id` where the request was made; None, too, if it came when nothing
            was recorded.
        begun: the time at which the session began to compute the request; None if it never did.
        state: "done", "failed", "cancelled" or "expired"; "unfinished" if the recording ended before the request.
        batch: the number of the last batch with the request; None if there was none, or before it has a number.
        early: whether the request had arrived before the recording; then `arrived` is the beginning of the recording,
            and `begun` is not before it.
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
    """The record of a batch of requests, or a streamed request, that a serving session computed.

    Attributes:
        number: of the batch or stream in its session; each half of a failed batch has a number of its own.
        kind: "batch" or "stream".
        requests: the number of requests.
        size: the number of places in the batch, padding included; 0 for a stream, or before that is known.
        state: "done", "failed" or "cancelled"; "unfinished" if the recording ended before the batch.
        scope: the scope of the instructions issued for the batch.
        early: whether the batch had begun before the recording; then `begin` is the beginning of the recording.
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
    """The numbers of requests that wait, and that are being computed, at a session's first event of a recording."""

    session: int
    time: int
    waiting: int
    computing: int


class Trace:
    """All events of a recording, sorted into lists by type.

    Args:
        events: tuples of a record type such as `Run` and the fields of the record.

    Attributes:
        begin, end: the times of the recording.
        monotonic_offset: the nanoseconds to add to a time of `time.monotonic_ns`, to get one of `perf_counter_ns`.
        wall_clock: when the recording began, in seconds since 1970.
        machines: "machine " and the name of each machine, made distinct.
        tracks: the names of the tasks and threads, made distinct.
        sessions: "session " and the name of each session, made distinct.
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
        """Convert a time in nanoseconds to microseconds since the recording began."""
        return (time - self.begin) / 1000

    def number_of(self, wait: Wait | Computed) -> int | None:
        """The number of the awaited or computed instruction; None if only a run that was not recorded has it."""
        if isinstance(wait, Computed):
            return self._by_serial.get((wait.machine, wait.serial))
        return wait.number if wait.number is not None else self._by_serial.get((wait.machine, wait.serial))


def _distinct(names: list[str]) -> list[str]:
    """Make names distinct: append " (2)", " (3)" and so on to repeated ones, skipping names that others have."""
    taken = set(names)
    numbers: dict[str, count[int]] = {}
    distinct: list[str] = []
    for name in names:
        own = name
        if name in numbers:
            own = next(own for number in numbers[name] if (own := f"{name} ({number})") not in taken)
        else:
            numbers[name] = count(2)
        distinct.append(own)
    return distinct


def _of(events: list[tuple[Any, ...]], kind: type[Record]) -> list[Record]:
    make: Any = kind
    return [make(*event[1:]) for event in events if event[0] is kind]
