"""`LocalEngine`: the network between the ranks of a simulation, which are threads of one process.

An operation is done when the last rank of its group has come, some time after that as the seed has it.  Everything that
can go wrong between ranks can be asked for by a `Fault`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, Literal, NamedTuple, TypeAlias, final

import numpy as np

from vmflow.errors import CollectiveError, CollectiveMismatch, CollectiveTimeout, PeerLost
from vmflow.streams.channel import REDUCTIONS, Operation

from .scheduler import Scheduler

Array: TypeAlias = np.ndarray[Any, Any]

# Seconds of the simulation's clock that an operation may take.
TIMEOUT: Final = 300.0


class Fault(NamedTuple):
    """A fault of one rank.

    Attributes:
        rank: which.
        at: in its how manyth operation, from 0 on.
        kind: "lose" (the rank ends), "freeze" (it stands still for ever), "swap" (it starts this operation behind the
            next one), or "delay" (the operation starts so many `seconds` later).
        seconds: of the simulation's clock.
    """

    rank: int
    at: int
    kind: Literal["lose", "freeze", "swap", "delay"]
    seconds: float = 0.0


@final
class LocalWork:
    """One rank's part in an operation.

    Attributes:
        rank, operation, place: whose, which, and the line that wants it.
        given, gotten: see `Channel.start`.
        done: whether it has ended.
        error: why it has failed.
    """

    __slots__ = ("done", "error", "given", "gotten", "operation", "place", "rank")

    def __init__(self, rank: int, operation: Operation, given: Array | None, gotten: Array | None, place: str) -> None:
        self.rank = rank
        self.operation = operation
        self.given = given
        self.gotten = gotten
        self.place = place
        self.done = False
        self.error: Exception | None = None

    def __str__(self) -> str:
        return f"rank {self.rank}: {self.operation} at {self.place}"


@final
class Meeting:
    """One operation, while ranks come to it.

    Attributes:
        group: of ranks.
        came: by rank, its part.
    """

    __slots__ = ("came", "group")

    def __init__(self, group: tuple[int, ...]) -> None:
        self.group = group
        self.came: dict[int, LocalWork] = {}

    def missing(self) -> list[int]:
        """The ranks that have not come."""
        return [rank for rank in self.group if rank not in self.came]


class Letter(NamedTuple):
    """A message on its way.

    Attributes:
        operation: as the sender describes it.
        values: flat; None if it could not compute them.
        sender: who sends it, and where, for messages.
        error: why there are none.
    """

    operation: Operation
    values: Array | None
    sender: str
    error: Exception | None


@final
class Box:
    """The messages from one rank to another.

    Attributes:
        letters: sent, and not received.
        receivers: that wait for one.
    """

    __slots__ = ("letters", "receivers")

    def __init__(self) -> None:
        self.letters: deque[Letter] = deque()
        self.receivers: deque[LocalWork] = deque()


@final
class LocalEngine:
    """See the module.

    Args:
        scheduler: decides when what happens.
        faults: what goes wrong.
        delay: the most seconds that an operation takes, by the simulation's clock.
        timeout: after so many, an operation to which not all ranks have come fails.

    Attributes:
        scheduler, timeout: as given.
        channels: by rank.
        nbytes: how many bytes ranks have got from others, as the usual algorithms would have it.
    """

    def __init__(
        self, scheduler: Scheduler, faults: Sequence[Fault] = (), delay: float = 0.0, timeout: float = TIMEOUT
    ) -> None:
        self.scheduler = scheduler
        self.timeout = timeout
        self.nbytes = 0.0
        self._delay = delay
        self._meetings: dict[tuple[int, ...], deque[Meeting]] = {}
        # By sender and receiver.
        self._boxes: dict[tuple[int, ...], Box] = {}
        self._ended: dict[int, str] = {}
        self.channels = [
            LocalChannel(self, turn.rank, {fault.at: fault for fault in faults if fault.rank == turn.rank})
            for turn in scheduler.turns
        ]

    def join(self, work: LocalWork) -> None:
        """A rank comes to the next operation of its group that it has not come to yet."""
        if work.operation.kind == "send":
            self._send(work)
            return
        if work.operation.kind == "receive":
            self._receive(work)
            return
        group = work.operation.ranks
        meetings = self._meetings.setdefault(group, deque())
        meeting = next((meeting for meeting in meetings if work.rank not in meeting.came), None)
        if meeting is None:
            meeting = Meeting(group)
            meetings.append(meeting)
            self.scheduler.at(self.scheduler.now + self.timeout, lambda: self._expire(meeting))
        meeting.came[work.rank] = work
        error = work.error or _mismatch(meeting, work) or self._lost(meeting)
        if error is not None:
            self._fail(meeting, error)
        elif not meeting.missing():
            meetings.remove(meeting)
            self._later(lambda: self._exchange(meeting))

    def _send(self, work: LocalWork) -> None:
        """A message is on its way.  Its sender does not wait for it, or two that send to each other would for ever."""
        receiver = work.operation.ranks[1]
        if receiver in self._ended:
            work.error = work.error or PeerLost(f"rank {receiver} {self._ended[receiver]}: {work}")
        values = None if work.given is None else work.given.copy()
        box = self._boxes.setdefault(work.operation.ranks, Box())
        box.letters.append(Letter(work.operation, values, str(work), work.error))
        self._settle([work])
        self._match(box)

    def _receive(self, work: LocalWork) -> None:
        box = self._boxes.setdefault(work.operation.ranks, Box())
        box.receivers.append(work)
        self._match(box)
        if work in box.receivers:
            self.scheduler.at(self.scheduler.now + self.timeout, lambda: self._expire_receiver(box, work))
            self._fail_receivers(work.operation.ranks[0])

    def _match(self, box: Box) -> None:
        while box.letters and box.receivers:
            letter, receiver = box.letters.popleft(), box.receivers.popleft()
            error = letter.error
            if letter.operation._replace(kind="receive") != receiver.operation:
                error = error or CollectiveMismatch(f"the two ends of a message differ: {letter.sender}; {receiver}")
            if error is None:
                self._later(partial(self._deliver, letter, receiver))
            else:
                receiver.error = copy_of(error)
                self._settle([receiver])

    def _deliver(self, letter: Letter, receiver: LocalWork) -> None:
        assert letter.values is not None
        _put(receiver, letter.values)
        self.nbytes += letter.values.nbytes
        self._settle([receiver])

    def _expire_receiver(self, box: Box, work: LocalWork) -> None:
        if work in box.receivers:
            box.receivers.remove(work)
            sender = self.channels[work.operation.ranks[0]]
            work.error = CollectiveTimeout(f"no message within {self.timeout:g} s: {work}; {sender.describe()}")
            self._settle([work])

    def _fail_receivers(self, sender: int) -> None:
        """A rank that has ended sends nothing more."""
        if sender not in self._ended:
            return
        for ranks, box in self._boxes.items():
            while ranks[0] == sender and box.receivers:
                work = box.receivers.popleft()
                work.error = PeerLost(f"rank {sender} {self._ended[sender]}: {work}")
                self._settle([work])

    def end(self, rank: int, reason: str) -> None:
        """A rank has ended, and will come to no operation any more."""
        self._ended[rank] = reason
        self._fail_receivers(rank)
        for meetings in list(self._meetings.values()):
            for meeting in list(meetings):
                error = self._lost(meeting)
                if error is not None:
                    self._fail(meeting, error)

    def _later(self, callback: Callable[[], None]) -> None:
        if self._delay:
            self.scheduler.at(self.scheduler.now + self.scheduler.random.uniform(0.0, self._delay), callback)
        else:
            self.scheduler.soon(callback)

    def _exchange(self, meeting: Meeting) -> None:
        works = [meeting.came[rank] for rank in meeting.group]
        exchange(works)
        for place, work in enumerate(works):
            if work.gotten is not None:
                self.nbytes += work.operation.traffic(place) * work.gotten.itemsize
        self._settle(works)

    def _lost(self, meeting: Meeting) -> Exception | None:
        for rank in meeting.missing():
            if rank in self._ended:
                waits = "; ".join(map(str, meeting.came.values()))
                return PeerLost(f"rank {rank} {self._ended[rank]} and will not come to what others wait for: {waits}")
        return None

    def _expire(self, meeting: Meeting) -> None:
        missing = meeting.missing()
        if not missing or all([work.done for work in meeting.came.values()]):
            return
        doing = "; ".join([self.channels[rank].describe() for rank in missing])
        waits = "; ".join(map(str, meeting.came.values()))
        self._fail(
            meeting, CollectiveTimeout(f"ranks {missing} did not come within {self.timeout:g} s: {waits}; {doing}")
        )

    def _fail(self, meeting: Meeting, error: Exception) -> None:
        """It fails on all ranks; those that come later hear of it then."""
        for rank in meeting.missing():
            self.channels[rank].warn(meeting.group, error)
        self._meetings[meeting.group].remove(meeting)
        for work in meeting.came.values():
            work.error = copy_of(error)
        self._settle(list(meeting.came.values()))

    def _settle(self, works: list[LocalWork]) -> None:
        for work in works:
            work.done = True
            work.given = work.gotten = None
        for work in works:
            self.channels[work.rank].notice()


@final
class LocalChannel:
    """One rank's way to the others; see `Channel`."""

    def __init__(self, engine: LocalEngine, rank: int, faults: dict[int, Fault]) -> None:
        self.rank = rank
        self.engine = engine
        self._faults = faults
        self._started = 0
        self._reached = 0
        self._unfinished: deque[LocalWork] = deque()
        self._waiting: list[tuple[int, Callable[[], None]]] = []
        # By group, why the operations fail that this rank has not come to while the others did.
        self._warnings: dict[tuple[int, ...], deque[Exception]] = {}
        self._held_back: LocalWork | None = None
        # Whether others hear nothing more of this rank.
        self._silent = False

    def start(
        self,
        operation: Operation,
        given: Array | None,
        gotten: Array | None,
        failure: BaseException | None,
        place: str,
    ) -> LocalWork:
        work = LocalWork(self.rank, operation, given, gotten, place)
        if failure is not None:
            work.error = PeerLost(f"rank {self.rank} could not compute what it was to give: {failure!r}; {work}")
            work.error.__cause__ = failure
        fault = self._faults.get(self._started)
        self._started += 1
        self._unfinished.append(work)
        held, self._held_back = self._held_back, None
        if fault is None:
            self._join(work)
        elif fault.kind in ("lose", "freeze"):
            self._silent = True
            self.engine.scheduler.freeze(self.rank)
            if fault.kind == "lose":
                self.engine.end(self.rank, "was lost")
        elif fault.kind == "swap":
            self._held_back = work
        else:
            scheduler = self.engine.scheduler
            scheduler.at(scheduler.now + fault.seconds, lambda: self._join(work))
        if held is not None:
            self._join(held)
        return work

    def _join(self, work: LocalWork) -> None:
        if self._silent:
            return
        warnings = self._warnings.get(work.operation.ranks)
        if warnings:
            work.error = copy_of(warnings.popleft())
            work.done = True
            self.notice()
        else:
            self.engine.join(work)

    def warn(self, group: tuple[int, ...], error: Exception) -> None:
        """The next operation of this group, which others have come to, has failed."""
        self._warnings.setdefault(group, deque()).append(error)

    def started(self) -> int:
        return self._started

    def reached(self, count: int) -> bool:
        while self._unfinished and self._unfinished[0].done:
            self._unfinished.popleft()
            self._reached += 1
        return self._reached >= count

    def wait(self, count: int) -> None:
        if not self.reached(count):
            self.engine.scheduler.block(self.rank, lambda: self.reached(count), self.describe())

    def call_when_reached(self, count: int, wake: Callable[[], None]) -> None:
        self._waiting.append((count, wake))
        self.notice()

    def notice(self) -> None:
        """Something has ended."""
        due = [wake for count, wake in self._waiting if self.reached(count)]
        self._waiting = [(count, wake) for count, wake in self._waiting if not self.reached(count)]
        for wake in due:
            wake()

    def describe(self) -> str:
        """The operation that the rank waits for."""
        work = next((work for work in self._unfinished if not work.done), None)
        return f"rank {self.rank} has started {self._started} operations" if work is None else str(work)


def _mismatch(meeting: Meeting, work: LocalWork) -> CollectiveError | None:
    for other in meeting.came.values():
        if work.operation != other.operation:
            return CollectiveMismatch(f"ranks want different operations: {other}; {work}")
    return None


def copy_of(error: Exception) -> Exception:
    """Another error that says the same: each receiver may add notes to its own."""
    copy = type(error)(*error.args)
    copy.__cause__ = error.__cause__
    return copy


# What the operations do


def exchange(works: list[LocalWork]) -> None:
    """Do an operation; `works` are in the order of the group."""
    _EXCHANGES[works[0].operation.kind](works)


def _all_reduce(works: list[LocalWork]) -> None:
    total = _reduced(works)
    for work in works:
        _put(work, total)


def _reduced(works: list[LocalWork]) -> Array:
    reduce = REDUCTIONS[works[0].operation.reduction]
    total = np.array(works[0].given)
    for work in works[1:]:
        # In the order of the group, so that all ranks and all runs round alike.
        reduce(total, work.given, out=total, casting="unsafe")
    return total


def _all_gather(works: list[LocalWork]) -> None:
    whole = np.concatenate([_given(work) for work in works])
    for work in works:
        _put(work, whole)


def _reduce_scatter(works: list[LocalWork]) -> None:
    total = _reduced(works)
    ends = np.cumsum(works[0].operation.counts)
    for work, end, count in zip(works, ends, works[0].operation.counts, strict=True):
        _put(work, total[end - count : end])


def _all_to_all(works: list[LocalWork]) -> None:
    size = len(works)
    counts = np.array(works[0].operation.counts, np.int64).reshape(size, size)
    parts = [np.split(_given(work), np.cumsum(row)[:-1]) for work, row in zip(works, counts, strict=True)]
    for place, work in enumerate(works):
        _put(work, np.concatenate([part[place] for part in parts]))


def _broadcast(works: list[LocalWork]) -> None:
    root = works[works[0].operation.root]
    for work in works:
        _put(work, _given(root))


def _barrier(works: list[LocalWork]) -> None:
    """All have come."""


def _given(work: LocalWork) -> Array:
    assert work.given is not None
    return work.given


def _put(work: LocalWork, values: Array) -> None:
    if work.gotten is not None:
        work.gotten[...] = values


_EXCHANGES: Final[dict[str, Callable[[list[LocalWork]], None]]] = {
    "all_reduce": _all_reduce,
    "all_gather": _all_gather,
    "reduce_scatter": _reduce_scatter,
    "all_to_all": _all_to_all,
    "broadcast": _broadcast,
    "barrier": _barrier,
}
