"""Checks whether accesses to the same memory are ordered at all: a happens-before detector by vector clocks.

Its input is what happens (launches, events, waits, memory handed out and freed), not why; so it checks a scheduler
without sharing the scheduler's mistakes.  It looks at the order of two accesses, not at their times: a missing
wait is found even if the device happened to be quick.

Each stream is a timeline, and so is the host, with all its threads.  The time of a launch is its position among all
launches, so that times never come back, even after `quiet`.  A clock says for each stream up to which time its launches
are known to have ended; it is only replaced, never changed, because tickets and events share it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable
from typing import Final, final

from vmflow.errors import RaceDetected

Clock = dict[Hashable, int]

READ_AFTER_WRITE: Final = "read after write"
WRITE_AFTER_READ: Final = "write after read"
WRITE_AFTER_WRITE: Final = "write after write"
REUSE: Final = "reuse of memory"
USE_AFTER_RELEASE: Final = "use after release"


@final
class Ticket:
    """One launch, as the detector remembers it.  Opaque to the caller of `RaceDetector.launched`."""

    __slots__ = ("known", "stream", "time", "work")

    def __init__(self, stream: Hashable, time: int, known: Clock, work: object) -> None:
        self.stream = stream
        self.time = time
        self.known = known
        self.work = work

    def precedes(self, other: Ticket) -> bool:
        """Whether this launch has certainly ended when `other`, launched later, begins."""
        return self.stream == other.stream or other.known.get(self.stream, 0) >= self.time

    def __str__(self) -> str:
        return f"{self.work}, on {getattr(self.stream, 'name', self.stream)}"


class Host:
    """The key of the stream that stands for the host's own accesses."""

    name = "the host"


HOST: Final = Host()


@final
class Timeline:
    """The detector's record of one stream.

    Attributes:
        time: of its last launch.
        known: the launches on other streams that end before the next launch on this stream begins.
        host: the host's clock when it was last joined into `known`.
    """

    __slots__ = ("host", "known", "time")

    def __init__(self) -> None:
        self.time = 0
        self.known: Clock = {}
        self.host: Clock = {}


@final
class Range:
    """A piece of memory, and the launches from before it was freed that may still use it.

    Attributes:
        start, stop: its first byte in its block, and the one behind its last.
        accesses: these launches, and whether they were writes.
    """

    __slots__ = ("accesses", "start", "stop")

    def __init__(self, start: int, stop: int, accesses: dict[Ticket, bool]) -> None:
        self.start = start
        self.stop = stop
        self.accesses = accesses

    def cut(self, start: int, stop: int) -> tuple[list[Range], list[Range]]:
        """Split this range of memory: return its part between `start` and `stop`, and the parts before and behind."""
        inside = self._pieces((max(start, self.start), min(stop, self.stop)))
        if not inside:
            return inside, [self]
        return inside, self._pieces((self.start, start), (stop, self.stop))

    def _pieces(self, *bounds: tuple[int, int]) -> list[Range]:
        return [Range(start, stop, self.accesses) for start, stop in bounds if start < stop]


@final
class Accesses:
    """The accesses to one storage that something launched later may have to wait for.

    Attributes:
        writer: the last write.
        reads: the reads since, the last of each stream.
        former: the accesses to parts of its memory that belonged to other storages; only until the first write, which
            is behind them all.
    """

    __slots__ = ("former", "reads", "writer")

    def __init__(self) -> None:
        self.writer: Ticket | None = None
        self.reads: dict[Hashable, Ticket] = {}
        self.former: list[Range] = []

    def written(self, ticket: Ticket) -> None:
        """Make `ticket` the last write, and drop the earlier accesses: what is behind it is behind them, too."""
        self.writer = ticket
        if self.reads:
            self.reads = {}
        if self.former:
            self.former = []

    def own(self) -> dict[Ticket, bool]:
        """The accesses to the storage under its own key, and whether they were writes."""
        own = dict.fromkeys(self.reads.values(), False)
        if self.writer is not None:
            own[self.writer] = True
        return own

    def race_of_read(self, later: Ticket) -> RaceDetected | None:
        """The race of a read by `later` with a write that the read is not ordered behind; None if there is none."""
        if self.writer is not None and not self.writer.precedes(later):
            return _race(READ_AFTER_WRITE, self.writer, "writes", later, "reads")
        for part in self.former:
            for earlier, wrote in part.accesses.items():
                if wrote and not earlier.precedes(later):
                    return _race(REUSE, earlier, "writes its memory under an earlier key", later, "reads")
        return None

    def race_of_write(self, later: Ticket) -> RaceDetected | None:
        """The race of a write by `later` with an access that the write is not ordered behind; None if there is none."""
        for reader in self.reads.values():
            if not reader.precedes(later):
                return _race(WRITE_AFTER_READ, reader, "reads", later, "writes")
        if self.writer is not None and not self.writer.precedes(later):
            return _race(WRITE_AFTER_WRITE, self.writer, "writes", later, "writes")
        for part in self.former:
            for earlier, wrote in part.accesses.items():
                if not earlier.precedes(later):
                    verb = "writes" if wrote else "reads"
                    return _race(REUSE, earlier, f"{verb} its memory under an earlier key", later, "writes")
        return None


@final
class RaceDetector:
    """Finds accesses that nothing orders.

    A storage is named by any hashable `key`, a stream likewise.  Launched work is described by any object, whose `str`
    is taken only for a report.  If one of two accesses to a key is a write, the later has to be launched on the same
    stream, or behind a wait for an event recorded behind the earlier, or after the host has learnt of the earlier's
    end; or any of these in several steps.

    Every method but `freed` must be called by one thread at a time, in the order in which the events happened.

    Args:
        strict: whether a race raises where it is found, before the launch is recorded; otherwise it is only kept, and
            the launch is recorded as an ordered one would be.

    Attributes:
        races: all races that were found, even if they were raised.
    """

    def __init__(self, strict: bool = True) -> None:
        self.strict = strict
        self.races: list[RaceDetected] = []
        self._time = 0
        self._host: Clock = {}
        self._timelines: dict[Hashable, Timeline] = {}
        self._accesses: dict[Hashable, Accesses] = {}
        self._ranges: dict[Hashable, list[Range]] = {}
        # The last access to each freed storage before its memory was taken from it; None without one.
        self._released: dict[Hashable, Ticket | None] = {}
        # The freed pieces of memory: any thread appends, and `_take_freed` removes them.
        self._freed: deque[tuple[Hashable, int, int, Hashable]] = deque()

    # Launches

    def launched(self, stream: Hashable, reads: Iterable[Hashable], writes: Iterable[Hashable], work: object) -> Ticket:
        """Record that `work` was handed to `stream`, behind everything there, and accesses these storages.

        Returns:
            A ticket for `finished`.

        Raises:
            RaceDetected: an access that `work` has to be behind may still be running, or a storage was freed; only if
                strict.
        """
        self._take_freed()
        reads, writes = tuple(reads), tuple(writes)
        timeline = self._timeline(stream)
        ticket = Ticket(stream, self._time + 1, timeline.known, work)
        self._check(ticket, reads, writes)
        self._time = timeline.time = ticket.time
        for key in reads:
            self._accesses_to(key).reads[stream] = ticket
        for key in writes:
            self._accesses_to(key).written(ticket)
        return ticket

    def recorded(self, stream: Hashable) -> Clock:
        """Record an event on `stream`: returns the launches that have ended when it is reached, for `waits`."""
        timeline = self._timeline(stream)
        return joined(timeline.known, {stream: timeline.time})

    def waits(self, stream: Hashable, clock: Clock) -> None:
        """Record that launches on `stream` from now on run behind the event that `clock` came from."""
        timeline = self._timeline(stream)
        timeline.known = joined(timeline.known, clock)

    # The host

    def finished(self, ticket: Ticket) -> None:
        """Record that the host has learnt that this launch has ended, and so every launch that it was behind."""
        # A clock that knows of a launch knows all that the launch knew: clocks are only ever joined as wholes.
        if self._host.get(ticket.stream, 0) < ticket.time:
            self._host = joined(self._host, {**ticket.known, ticket.stream: ticket.time})

    def host_access(self, key: Hashable, write: bool, work: object) -> None:
        """Record that the host itself reads, or writes, this storage now.

        Later launches are behind this access, for it is the host that launches.

        Raises:
            RaceDetected: the host does not know that an earlier write, or for a write any earlier access, has ended, or
                the storage was freed; only if strict.
        """
        self._take_freed()
        ticket = Ticket(HOST, self._time, self._host, work)
        self._check(ticket, () if write else (key,), (key,) if write else ())
        if write:
            self._accesses.pop(key, None)

    # Memory

    def freed(self, block: Hashable, start: int, stop: int, key: Hashable) -> None:
        """Record that bytes `start` to before `stop` of `block` are no longer `key`'s.  Any thread may call this.

        From here on an access to `key` is a use after release, until `key` is handed memory again or forgotten, or all
        is `quiet`.

        Raises:
            ValueError: `stop` is less than `start`.
        """
        _check_range(start, stop)
        self._freed.append((block, start, stop, key))

    def handed_out(self, block: Hashable, start: int, stop: int, key: Hashable) -> None:
        """Record that bytes `start` to before `stop` of `block`, and no others, are `key`'s now.

        Call this before the first launch that uses them.  Uses under earlier keys must be ordered before writes to
        `key`, and writes under earlier keys also before reads of `key`.

        Raises:
            ValueError: `stop` is less than `start`.
        """
        _check_range(start, stop)
        self._take_freed()
        self._released.pop(key, None)
        left: list[Range] = []
        for free in self._still_used(self._ranges.pop(block, [])):
            inside, outside = free.cut(start, stop)
            left += outside
            if inside:
                self._accesses_to(key).former += inside
        if left:
            self._ranges[block] = left

    def forget(self, key: Hashable) -> None:
        """Forget a storage on which nothing will be launched again; call this after `freed`, if at all."""
        self._take_freed()
        self._accesses.pop(key, None)
        self._released.pop(key, None)

    def quiet(self) -> None:
        """Record that everything launched has ended, and the host knows it: no later access races with an earlier one.

        All storages are forgotten, freed ones too; `races` stay.
        """
        self._freed.clear()
        self._accesses.clear()
        self._ranges.clear()
        self._released.clear()
        self._timelines.clear()
        self._host = {}

    # Inside

    def _timeline(self, stream: Hashable) -> Timeline:
        """Return a stream's timeline, and let it know all launches that the host knows to have ended."""
        timeline = self._timelines.get(stream)
        if timeline is None:
            timeline = self._timelines[stream] = Timeline()
        if timeline.host is not self._host:
            timeline.known = joined(timeline.known, self._host)
            timeline.host = self._host
        return timeline

    def _accesses_to(self, key: Hashable) -> Accesses:
        accesses = self._accesses.get(key)
        if accesses is None:
            accesses = self._accesses[key] = Accesses()
        return accesses

    def _check(self, ticket: Ticket, reads: tuple[Hashable, ...], writes: tuple[Hashable, ...]) -> None:
        """Report each storage that the launch accesses too early, or after its memory was freed, once."""
        reported: set[Hashable] = set()
        for key in reads:
            accesses = self._accesses.get(key)
            if accesses is not None and (race := accesses.race_of_read(ticket)) is not None:
                self._report(race, key, reported)
        for key in writes:
            accesses = self._accesses.get(key)
            if accesses is not None and (race := accesses.race_of_write(ticket)) is not None:
                self._report(race, key, reported)
        if self._released:
            for key in (*reads, *writes):
                if key in self._released:
                    self._report(self._use_after_release(key, ticket), key, reported)

    def _use_after_release(self, key: Hashable, ticket: Ticket) -> RaceDetected:
        last = self._released[key]
        earlier = "the release of its memory" + (f", last used by {last}" if last is not None else "")
        return RaceDetected(USE_AFTER_RELEASE, earlier, f"{ticket} (uses it)")

    def _report(self, race: RaceDetected, key: Hashable, reported: set[Hashable]) -> None:
        if key in reported:
            return
        reported.add(key)
        self.races.append(race)
        if self.strict:
            raise race

    def _take_freed(self) -> None:
        """Turn accesses to storages that were freed since the last call into accesses to ranges of their memory."""
        while self._freed:
            block, start, stop, key = self._freed.popleft()
            accesses = self._accesses.pop(key, None)
            if accesses is None:
                self._released[key] = None
                continue
            own = accesses.own()
            self._released[key] = max(own, key=_time_of, default=None)
            # Accesses under keys before this one may still use their own parts of this memory, and no more.
            parts = self._still_used([Range(start, stop, own), *accesses.former])
            if parts:
                self._ranges.setdefault(block, []).extend(parts)

    def _still_used(self, ranges: list[Range]) -> list[Range]:
        """Drop the accesses that the host knows to have ended; return the ranges that have others."""
        known = self._host
        for free in ranges:
            free.accesses = {
                ticket: wrote for ticket, wrote in free.accesses.items() if known.get(ticket.stream, 0) < ticket.time
            }
        return [free for free in ranges if free.accesses]


def joined(clock: Clock, other: Clock) -> Clock:
    """Join two clocks: the result knows all launches that either knows; `clock` itself if `other` adds nothing."""
    news = {stream: time for stream, time in other.items() if clock.get(stream, 0) < time}
    return {**clock, **news} if news else clock


def _race(kind: str, earlier: Ticket, did: str, later: Ticket, does: str) -> RaceDetected:
    return RaceDetected(kind, f"{earlier} ({did})", f"{later} ({does})")


def _time_of(ticket: Ticket) -> int:
    return ticket.time


def _check_range(start: int, stop: int) -> None:
    if stop < start:
        raise ValueError(f"a range of memory must not end before it starts, as {start} to {stop} does")
