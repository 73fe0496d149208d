"""`MeetingPlace`: collects the ranks' parts in the operations and messages of a simulation's communication scope."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, final

from vmflow.errors import CollectiveCancelled, CollectiveError, CollectiveMismatch, CollectiveTimeout, PeerLost
from vmflow.streams.channel import Operation

from .exchanges import Array, exchange, put

if TYPE_CHECKING:
    from .local_engine import LocalChannel, LocalEngine


@final
class LocalWork:
    """One rank's part in an operation.

    Attributes:
        rank, operation, place: the rank, the operation, and the line that issued it.
        given, gotten: see `Channel.start`.
        done: whether the part has ended.
        error: the error if the part has failed; None otherwise.
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
    """One operation that some ranks have started.

    Attributes:
        group: its ranks.
        came: by rank, the parts that have started.
    """

    __slots__ = ("came", "group")

    def __init__(self, group: tuple[int, ...]) -> None:
        self.group = group
        self.came: dict[int, LocalWork] = {}

    def missing(self) -> list[int]:
        """The ranks of the group that have not started the operation."""
        return [rank for rank in self.group if rank not in self.came]

    def waits(self) -> str:
        """A text about the parts that have started, for messages of errors."""
        return "; ".join(map(str, self.came.values()))


class Letter(NamedTuple):
    """A message that has been sent.

    Attributes:
        operation: the sender's operation.
        values: flat; None if they could not be computed.
        sender: the sender and its line, for messages of errors.
        error: the sender's error, with which the receiver fails; None without one.
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
        receivers: the operations of the receiving rank that wait for a message.
    """

    __slots__ = ("letters", "receivers")

    def __init__(self) -> None:
        self.letters: deque[Letter] = deque()
        self.receivers: deque[LocalWork] = deque()


@final
class MeetingPlace:
    """The operations and messages of one communication scope.

    Args:
        engine: the network.

    Attributes:
        channels: by rank, the channels of the scope.
        broken: the error of all operations after ranks have issued different ones; None before.
    """

    def __init__(self, engine: LocalEngine) -> None:
        self.channels: dict[int, LocalChannel] = {}
        self._engine = engine
        self._meetings: dict[tuple[int, ...], deque[Meeting]] = {}
        # By sender and receiver.
        self._boxes: dict[tuple[int, ...], Box] = {}
        # For each rank that has left, the error of ranks that wait for it.
        self._gone: dict[int, Exception] = {}
        self.broken: Exception | None = None

    def join(self, work: LocalWork) -> None:
        """Start a rank's part: a message, or its part in the group's first operation that the rank has not joined.

        If ranks have issued different operations before, the part fails.
        """
        if self.broken is not None:
            work.error = copy_of(self.broken)
            self._settle([work])
        elif work.operation.kind == "send":
            self._send(work)
        elif work.operation.kind == "receive":
            self._receive(work)
        else:
            self._meet(work)

    def leave(self, rank: int, error: Exception) -> None:
        """Note that a rank takes part in no further operation; parts that wait for that rank fail with such an error.

        If a rank leaves again, when its program ends, its first error is kept.
        """
        self._gone.setdefault(rank, error)
        self._fail_receivers(rank)
        for meetings in list(self._meetings.values()):
            for meeting in list(meetings):
                lost = self._lost(meeting)
                if lost is not None:
                    self._fail(meeting, lost)

    def everyone_has_left(self, ranks: int) -> bool:
        """Whether as many as `ranks` ranks have left the scope."""
        return len(self._gone) == ranks

    # Operations of a group

    def _meet(self, work: LocalWork) -> None:
        meetings = self._meetings.setdefault(work.operation.ranks, deque())
        meeting = next((meeting for meeting in meetings if work.rank not in meeting.came), None)
        if meeting is None:
            meeting = Meeting(work.operation.ranks)
            meetings.append(meeting)
            self._after(self.channels[work.rank].timeout, lambda: self._expire(meeting))
        meeting.came[work.rank] = work
        mismatch = _mismatch(meeting, work)
        if mismatch is not None:
            self._break(mismatch, meeting)
        elif work.error is not None:
            self._fail(meeting, work.error)
        elif (lost := self._lost(meeting)) is not None:
            self._fail(meeting, lost)
        elif not meeting.missing():
            meetings.remove(meeting)
            self._later(lambda: self._exchange(meeting))

    def _exchange(self, meeting: Meeting) -> None:
        works = [meeting.came[rank] for rank in meeting.group]
        exchange(list(works))
        for place, work in enumerate(works):
            if work.gotten is not None:
                self._engine.nbytes += work.operation.traffic(place) * work.gotten.itemsize
        self._settle(works)

    def _lost(self, meeting: Meeting) -> Exception | None:
        for rank in meeting.missing():
            if rank in self._gone:
                return _about(self._gone[rank], meeting.waits())
        return None

    def _expire(self, meeting: Meeting) -> None:
        missing = meeting.missing()
        if not missing or all([work.done for work in meeting.came.values()]):
            return
        doing = "; ".join([self._engine.doing(rank) for rank in missing])
        timeout = self.channels[next(iter(meeting.came))].timeout
        error = CollectiveTimeout(f"ranks {missing} did not come within {timeout:g} s: {meeting.waits()}; {doing}")
        self._fail(meeting, self._with_history(error, meeting.group))

    def _break(self, error: CollectiveMismatch, meeting: Meeting) -> None:
        """Let the waiting and all further operations of the scope fail, since ranks have issued different ones."""
        self.broken = self._with_history(error, meeting.group)
        for meetings in list(self._meetings.values()):
            for other in list(meetings):
                self._fail(other, self.broken)
        for box in self._boxes.values():
            while box.receivers:
                self._refuse(box.receivers.popleft(), self.broken)

    def _with_history(self, error: CollectiveError, ranks: tuple[int, ...]) -> CollectiveError:
        """The same error, with notes added about the last operations of each of `ranks`."""
        for rank in ranks:
            for line in self._engine.history(rank):
                error.add_note(line)
        return error

    def _fail(self, meeting: Meeting, error: Exception) -> None:
        """Let an operation fail on all ranks of its group; ranks that have not started it fail when they do."""
        if self.broken is None:
            for rank in meeting.missing():
                self._engine.warn(self, rank, meeting.group, error)
        self._meetings[meeting.group].remove(meeting)
        for work in meeting.came.values():
            work.error = copy_of(error)
        self._settle(list(meeting.came.values()))

    # Messages

    def _send(self, work: LocalWork) -> None:
        """Send a message.  The sender does not wait: else two ranks that send to each other would deadlock."""
        receiver = work.operation.ranks[1]
        if receiver in self._gone:
            work.error = work.error or _about(self._gone[receiver], str(work))
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
            self._after(self.channels[work.rank].timeout, lambda: self._expire_receiver(box, work))
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
                self._refuse(receiver, error)

    def _deliver(self, letter: Letter, receiver: LocalWork) -> None:
        assert letter.values is not None
        put(receiver, letter.values)
        self._engine.nbytes += letter.values.nbytes
        self._settle([receiver])

    def _expire_receiver(self, box: Box, work: LocalWork) -> None:
        if work in box.receivers:
            box.receivers.remove(work)
            timeout = self.channels[work.rank].timeout
            doing = self._engine.doing(work.operation.ranks[0])
            error = CollectiveTimeout(f"no message within {timeout:g} s: {work}; {doing}")
            self._refuse(work, self._with_history(error, work.operation.ranks))

    def _fail_receivers(self, sender: int) -> None:
        """Let the operations that wait for messages from `sender` fail if that rank has left."""
        if sender not in self._gone:
            return
        for ranks, box in self._boxes.items():
            while ranks[0] == sender and box.receivers:
                work = box.receivers.popleft()
                self._refuse(work, _about(self._gone[sender], str(work)))

    def _refuse(self, work: LocalWork, error: Exception) -> None:
        work.error = copy_of(error)
        self._settle([work])

    # Timing

    def _later(self, callback: Callable[[], None]) -> None:
        scheduler, delay = self._engine.scheduler, self._engine.delay
        if delay:
            self._after(scheduler.random.uniform(0.0, delay), callback)
        else:
            scheduler.soon(callback)

    def _after(self, seconds: float, callback: Callable[[], None]) -> None:
        self._engine.scheduler.at(self._engine.scheduler.now + seconds, callback)

    def _settle(self, works: list[LocalWork]) -> None:
        for work in works:
            work.done = True
            work.given = work.gotten = None
        for work in works:
            self.channels[work.rank].notice()


def _mismatch(meeting: Meeting, work: LocalWork) -> CollectiveMismatch | None:
    for other in meeting.came.values():
        if work.operation != other.operation:
            return CollectiveMismatch(f"ranks issued different operations: {other}; {work}")
    return None


def _about(error: Exception, waits: str) -> Exception:
    """Return a copy of the error with `waits`, a text about the waiting parts, added to its message."""
    copy = type(error)(f"{error} and will not come to operations that others wait for: {waits}")
    copy.__cause__ = error.__cause__
    return copy


def copy_of(error: Exception) -> Exception:
    """A copy of an error, so that each rank may add its own notes."""
    copy = type(error)(*error.args)
    copy.__cause__ = error.__cause__
    for note in getattr(error, "__notes__", ()):
        copy.add_note(note)
    return copy


def said_by(error: BaseException) -> str:
    """A text about an exception: the name of its class, and its message if it has one."""
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def left_by(rank: int, scope: str, reason: str) -> CollectiveError:
    """The error of ranks that wait for `rank`, which has left a communication scope, by exception `reason` if any."""
    if not reason:
        return PeerLost(f"rank {rank} has left the communication scope {scope!r}")
    return CollectiveCancelled(f"rank {rank} has left the communication scope {scope!r} by {reason}")
