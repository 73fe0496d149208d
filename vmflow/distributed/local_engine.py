"""`LocalEngine`: the network between the ranks of a simulation, which are threads of one process.

An operation ends some time after the last rank of its group has started it, a send immediately; the seed decides when.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Final, Literal, NamedTuple, TypeAlias, final, get_args

from vmflow.errors import CollectiveError, PeerLost
from vmflow.streams.channel import Operation

from .exchanges import Array
from .meeting import LocalWork, MeetingPlace, copy_of, left_by, said_by
from .scheduler import Scheduler

# Seconds of the simulation's clock after which, by default, an operation fails if not all ranks have started it.
TIMEOUT: Final = 300.0

# How many of a rank's last operations are remembered, for messages of errors.
_HISTORY: Final = 16

# The path of the communication scope in which a program begins.
_OUTERMOST: Final = ""


FaultKind: TypeAlias = Literal["lose", "freeze", "swap", "delay"]
FAULTS: Final[tuple[FaultKind, ...]] = get_args(FaultKind)


class Fault(NamedTuple):
    """A fault of one rank, for `simulate`.

    Attributes:
        rank: the rank.
        at: the index of the rank's operation at which the fault occurs, from 0 on.
        kind: "lose" (the rank ends when it waits next; others notice then), "freeze" (it stands still when it waits
            next, which only timeouts show), "swap" (this operation starts after the rank's next one, or never, if the
            next one is not started before this one has ended), or "delay" (this operation starts `seconds` later,
            perhaps after the rank's next ones).
        seconds: the delay, by the simulation's clock.

    Raises no errors; `simulate` checks the rank and the kind.

    Example:
        >>> def program():
        ...     return flow.distributed.all_reduce(flow.ones(1)).item()
        >>> lost = flow.distributed.Fault(rank=1, at=0, kind="lose")
        >>> results = flow.distributed.simulate(program, faults=[lost], return_exceptions=True)
        >>> type(results[0]).__name__, results[1]
        ('PeerLost', None)
    """

    rank: int
    at: int
    kind: FaultKind
    seconds: float = 0.0


@final
class LocalEngine:
    """The network of a simulation.

    Args:
        scheduler: decides the order of events.
        faults: the faults of ranks.
        delay: the most seconds from the last rank's start of an operation other than a send to its end, by the
            simulation's clock.
        timeout: seconds after which an operation fails if not all ranks have started it.

    Attributes:
        scheduler, delay, timeout: as given.
        channels: the channel of each rank in the outermost communication scope.
        nbytes: the bytes that all ranks together would have received, see `Operation.traffic`.
    """

    def __init__(
        self, scheduler: Scheduler, faults: Sequence[Fault] = (), delay: float = 0.0, timeout: float = TIMEOUT
    ) -> None:
        self.scheduler = scheduler
        self.timeout = timeout
        self.delay = delay
        self.nbytes = 0.0
        self._lines = [
            Line(turn.rank, {fault.at: fault for fault in faults if fault.rank == turn.rank})
            for turn in scheduler.turns
        ]
        self._places: dict[str, MeetingPlace] = {}
        self._ended: dict[int, PeerLost] = {}
        self.channels = [self.channel(turn.rank, _OUTERMOST, timeout) for turn in scheduler.turns]

    def channel(self, rank: int, scope: str, timeout: float) -> LocalChannel:
        """A new channel for a rank in a communication scope that the rank enters."""
        place = self._places.get(scope)
        if place is None:
            place = self._places[scope] = MeetingPlace(self)
            for other, error in self._ended.items():
                place.leave(other, error)
        return LocalChannel(self, self._lines[rank], place, scope, timeout)

    def end(self, rank: int, reason: str) -> None:
        """Note that a rank takes part in no further operation; `reason`, such as "was lost", is for messages."""
        error = self._ended[rank] = PeerLost(f"rank {rank} {reason}")
        for place in list(self._places.values()):
            place.leave(rank, error)

    def leave(self, rank: int, scope: str, reason: str) -> None:
        """Note that a rank has left a communication scope; `reason` names the exception that left it, or is empty."""
        place = self._places[scope]
        place.leave(rank, left_by(rank, scope, reason))
        if place.everyone_has_left(len(self._lines)):
            del self._places[scope]

    def mismatch(self) -> Exception | None:
        """The error of a scope that not all ranks have left, and in which `MeetingPlace.broken` is set, or None."""
        broken = [place.broken for place in self._places.values() if place.broken is not None]
        return copy_of(broken[0]) if broken else None

    def warn(self, place: MeetingPlace, rank: int, group: tuple[int, ...], error: Exception) -> None:
        """Let a rank's next operation of this group at this place fail with `error`, as the others' parts have."""
        self._lines[rank].warnings.setdefault((place, group), deque()).append(error)

    def doing(self, rank: int) -> str:
        """The text of `Line.describe` for a rank."""
        return self._lines[rank].describe()

    def history(self, rank: int) -> Iterator[str]:
        """Lines of text about the exchanges and messages that a rank has started last."""
        return self._lines[rank].history()


@final
class Line:
    """The state of a rank that all its communication scopes share.

    Args:
        rank: the rank.
        faults: the rank's faults, by the index of the operation.

    Attributes:
        rank: as given.
        count: the number of operations begun, without those of kind "leave".
        warnings: by meeting place and group, the errors of operations that failed before this rank started them.
        silent: whether a fault has cut this rank off from the others.
        held_back: starts an operation that a fault has put behind the next one; None without one.
    """

    def __init__(self, rank: int, faults: dict[int, Fault]) -> None:
        self.rank = rank
        self.count = 0
        self.warnings: dict[tuple[MeetingPlace, tuple[int, ...]], deque[Exception]] = {}
        self.silent = False
        self.held_back: Callable[[], None] | None = None
        self._faults = faults
        self._recent: deque[LocalWork] = deque(maxlen=_HISTORY)
        self._unfinished: deque[LocalWork] = deque()

    def begin(self, work: LocalWork) -> Fault | None:
        """Note that the rank starts an operation; return the fault planned for that operation, None without one."""
        fault = self._faults.get(self.count)
        self.count += 1
        self._recent.append(work)
        self._unfinished.append(work)
        return fault

    def describe(self) -> str:
        """A text about the first operation that has not ended; else about the number of operations."""
        while self._unfinished and self._unfinished[0].done:
            self._unfinished.popleft()
        work = next((work for work in self._unfinished if not work.done), None)
        return f"rank {self.rank} has started {self.count} operations" if work is None else str(work)

    def history(self) -> Iterator[str]:
        """Lines of text about the last operations, the latest first."""
        for back, work in enumerate(reversed(self._recent)):
            state = "failed" if work.error is not None else "done" if work.done else "not done"
            yield f"rank {self.rank}, operation {self.count - 1 - back}, {state}: {work.operation} at {work.place}"


@final
class LocalChannel:
    """One rank's channel in a communication scope; see `Channel`.

    Args:
        engine: the network.
        line: the state of the rank.
        place: collects the operations of the scope.
        scope: the path of the scope.
        timeout: of the scope's operations.

    Attributes:
        rank: the rank.
        engine, timeout: as given.
    """

    def __init__(self, engine: LocalEngine, line: Line, place: MeetingPlace, scope: str, timeout: float) -> None:
        self.rank = line.rank
        self.engine = engine
        self.timeout = timeout
        self._line = line
        self._place = place
        self._scope = scope
        self._started = 0
        self._reached = 0
        self._unfinished: deque[LocalWork] = deque()
        # An ordered set, since a loop waits for the same operation again at each of its turns.
        self._waiting: dict[tuple[int, Callable[[], None]], None] = {}
        place.channels[line.rank] = self

    def scoped(self, scope: str, timeout: float | None) -> LocalChannel:
        return self.engine.channel(self.rank, scope, self.engine.timeout if timeout is None else timeout)

    def start(
        self,
        operation: Operation,
        given: Array | None,
        gotten: Array | None,
        failure: BaseException | None,
        place: str,
    ) -> LocalWork:
        with self.engine.scheduler.between_ranks:
            return self._start(LocalWork(self.rank, operation, given, gotten, place), failure)

    def _start(self, work: LocalWork, failure: BaseException | None) -> LocalWork:
        if failure is not None:
            if isinstance(failure, CollectiveError):
                # An earlier operation's error is passed on as it is: else its message would grow with each operation.
                work.error = copy_of(failure)
            else:
                reason = f"could not compute the tensor to send: {said_by(failure)}"
                work.error = PeerLost(f"rank {self.rank} {reason}; {work}")
                work.error.__cause__ = failure
        if work.operation.kind == "leave":
            work.done = True
            self._started += 1
            self._unfinished.append(work)
            self.engine.leave(self.rank, self._scope, work.operation.note)
            return work
        line, scheduler = self._line, self.engine.scheduler
        fault = line.begin(work)
        self._started += 1
        self._unfinished.append(work)
        held, line.held_back = line.held_back, None
        if fault is None:
            self._join(work)
        elif fault.kind in ("lose", "freeze"):
            line.silent = True
            scheduler.freeze(self.rank)
            if fault.kind == "lose":
                self.engine.end(self.rank, "was lost")
        elif fault.kind == "swap":
            line.held_back = lambda: self._join(work)
        else:
            scheduler.at(scheduler.now + fault.seconds, lambda: self._join(work))
        if held is not None:
            held()
        return work

    def _join(self, work: LocalWork) -> None:
        if self._line.silent:
            return
        warnings = self._line.warnings.get((self._place, work.operation.ranks))
        if warnings:
            work.error = copy_of(warnings.popleft())
            work.done = True
            self.notice()
        else:
            self._place.join(work)

    def started(self) -> int:
        return self._started

    def reached(self, count: int) -> bool:
        with self.engine.scheduler.between_ranks:
            while self._unfinished and self._unfinished[0].done:
                self._unfinished.popleft()
                self._reached += 1
            return self._reached >= count

    def wait(self, count: int) -> None:
        if not self.reached(count):
            self.engine.scheduler.block(lambda: self.reached(count), self._line.describe())

    def call_when_reached(self, count: int, wake: Callable[[], None]) -> None:
        with self.engine.scheduler.between_ranks:
            self._waiting[count, wake] = None
            self.notice()

    def notice(self) -> None:
        """Call the functions given to `call_when_reached` whose operations have ended."""
        due = [waiting for waiting in self._waiting if self.reached(waiting[0])]
        for waiting in due:
            del self._waiting[waiting]
        for _, wake in due:
            wake()
