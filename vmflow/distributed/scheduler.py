"""`Scheduler`: runs the ranks of a simulation in turns, in an order that a seed decides, by a clock of its own.

Each rank has a thread, and one rank runs at a time, until it waits or its event loop looks for events.  Then the seed
decides which rank runs next, or which message arrives.  If no rank can run and no message is left, the clock jumps to
the next timer or deadline.  So delays take no real time, and the seed determines the run, unless other threads take
part.
"""

from __future__ import annotations

import heapq
import itertools
import random
import threading
import time
from collections.abc import Callable
from typing import Final, Literal, TypeAlias, final

from vmflow.errors import SimulationDeadlock

Callback: TypeAlias = Callable[[], None]

# Real seconds to wait for threads that are neither ranks nor counted as busy, before a deadlock is reported.
PATIENCE: Final = 5.0


class RankEnded(BaseException):
    """Ends the thread of a frozen rank; no error of the program."""


@final
class Turn:
    """The state of one rank in the scheduler.

    Attributes:
        rank: the rank.
        state: "ready" to run, "blocked" until `ready` is true or the deadline has come, "frozen" or "ended".
        freezes: whether the rank freezes at its next `block` or `pause`.
        ready: called to ask whether a blocked rank can go on.
        deadline: until when a blocked rank waits; None for no limit.
        waits_for: a text about the awaited event, for messages.
        late: whether the rank goes on because its deadline has come.
        error: raised when the rank goes on; None for none.
    """

    __slots__ = ("deadline", "error", "freezes", "late", "may_run", "rank", "ready", "state", "waits_for")

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.state: Literal["ready", "blocked", "frozen", "ended"] = "ready"
        self.ready: Callable[[], bool] = bool
        self.deadline: float | None = None
        self.waits_for = ""
        self.freezes = False
        self.late = False
        self.error: BaseException | None = None
        self.may_run = threading.Event()


@final
class _Outside:
    """A thread that is no rank, and waits until `ready` is true."""

    __slots__ = ("may_run", "ready")

    def __init__(self, ready: Callable[[], bool]) -> None:
        self.ready = ready
        self.may_run = threading.Event()


@final
class Scheduler:
    """Runs the ranks of a simulation in turns.

    Args:
        ranks: the number of ranks.
        seed: decides the order in which ranks run.

    Attributes:
        now: seconds since the beginning, by the simulation's clock.
        between_ranks: a lock that is held while operations between ranks start or end.
    """

    def __init__(self, ranks: int, seed: int = 0) -> None:
        self.now = 0.0
        self.random = random.Random(seed)
        self.turns = [Turn(rank) for rank in range(ranks)]
        # Callbacks that may be called at any moment, in the order in which they became possible.
        self._messages: list[Callback] = []
        self._timers: list[tuple[float, int, Callback]] = []
        self._numbers = itertools.count()
        self._finished = threading.Event()
        self._turns_by_thread: dict[int, Turn] = {}
        # How many threads that are no ranks are busy.
        self._outside = 0
        self._lock = threading.Lock()
        self._waiting_outside: list[_Outside] = []
        # A lock is needed since threads that are no ranks start operations, too.
        self.between_ranks = threading.RLock()

    # Called while ranks run

    def block(self, ready: Callable[[], bool], waits_for: str, deadline: float | None = None) -> bool:
        """Let other ranks run until `ready` is true, or the deadline has come; return whether `ready` came first.

        For a thread that is no rank, the deadline does not count.

        Raises:
            SimulationDeadlock: on one of the blocked ranks, if none can go on any more.
            RankEnded: on a frozen rank, when the simulation ends.
        """
        turn = self._turns_by_thread.get(threading.get_ident())
        if turn is None:
            self._wait_outside(ready)
            return True
        turn.state, turn.ready, turn.deadline, turn.waits_for = "blocked", ready, deadline, waits_for
        turn.late = False
        self._hand_on(turn)
        return not turn.late

    def pause(self, rank: int) -> None:
        """Let other ranks run before this one goes on, if the seed decides so."""
        self.turns[rank].state = "ready"
        self._hand_on(self.turns[rank])

    def freeze(self, rank: int) -> None:
        """Freeze the rank at its next `block` or `pause`; its thread ends with the simulation."""
        self.turns[rank].freezes = True

    def end(self, rank: int) -> None:
        """Note that the rank has ended, and let the next one run."""
        self.turns[rank].state = "ended"
        following = self._choose()
        if following is None:
            self._finished.set()
        else:
            following.may_run.set()

    def soon(self, callback: Callback) -> None:
        """Call `callback` at a later moment that the seed chooses, on the thread of any rank."""
        self._messages.append(callback)

    def at(self, moment: float, callback: Callback) -> None:
        """Call a function when the simulation's clock reaches this moment, unless all ranks end or freeze before."""
        heapq.heappush(self._timers, (moment, next(self._numbers), callback))

    def count_outside(self, change: int) -> None:
        """Add `change` to the number of busy threads that are no ranks, for which the clock has to wait."""
        with self._lock:
            self._outside += change

    # Called by `simulate`: `wait_for_turn` on each rank's thread, the others on the thread of its caller

    def begin(self) -> None:
        """Let a rank that the seed chooses run; each rank's thread begins by `wait_for_turn`."""
        first = self._choose()
        assert first is not None
        first.may_run.set()

    def wait_for_turn(self, rank: int) -> None:
        """Make this thread the rank's, and wait until the rank runs for the first time."""
        self._turns_by_thread[threading.get_ident()] = self.turns[rank]
        self._resume(self.turns[rank])

    def wait_until_finished(self) -> None:
        """Wait until all ranks have ended or are frozen."""
        self._finished.wait()

    def end_frozen(self, rank: int) -> None:
        """If the rank is frozen, let its thread end: from now on, `block` and `pause` raise `RankEnded` there."""
        turn = self.turns[rank]
        if turn.state == "frozen":
            turn.error = RankEnded()
            turn.may_run.set()

    # Inside

    def _wait_outside(self, ready: Callable[[], bool]) -> None:
        """`block` for a thread that is no rank, such as one of `asyncio.to_thread`; meanwhile the clock may go on."""
        waiting = _Outside(ready)
        with self.between_ranks:
            self._waiting_outside.append(waiting)
        self.count_outside(-1)
        waiting.may_run.wait()

    def _let_outside_go_on(self) -> None:
        """Wake the threads that are no ranks and whose condition is true."""
        for waiting in [waiting for waiting in self._waiting_outside if waiting.ready()]:
            self._waiting_outside.remove(waiting)
            self.count_outside(1)
            waiting.may_run.set()

    def _hand_on(self, turn: Turn) -> None:
        self._raise_error(turn)
        if turn.freezes:
            turn.state = "frozen"
        following = self._choose()
        if following is not turn:
            if following is None:
                self._finished.set()
            else:
                following.may_run.set()
            self._resume(turn)
        else:
            self._raise_error(turn)

    def _resume(self, turn: Turn) -> None:
        turn.may_run.wait()
        turn.may_run.clear()
        self._raise_error(turn)

    def _raise_error(self, turn: Turn) -> None:
        error = turn.error
        if not isinstance(error, RankEnded):
            turn.error = None
        if error is not None:
            raise error

    def _choose(self) -> Turn | None:
        """Call functions of `soon` and `at` in their turn; return the rank to run next, None if all ended or froze."""
        patient_until: float | None = None
        while True:
            with self.between_ranks:
                able = [turn for turn in self.turns if _can_go_on(turn)]
                count = len(able) + len(self._messages)
                if count:
                    chosen = self.random.randrange(count)
                    if chosen < len(able):
                        able[chosen].state = "ready"
                        return able[chosen]
                    self._messages.pop(chosen - len(able))()
                    continue
                self._let_outside_go_on()
            blocked = [turn for turn in self.turns if turn.state == "blocked"]
            if not blocked:
                return None
            if self._outside > 0:  # the number is negative while a function whose future was cancelled waits for ranks
                _let_other_threads_run()
                continue
            due = min([turn.deadline for turn in blocked if turn.deadline is not None], default=None)
            if self._timers and (due is None or self._timers[0][0] <= due):
                with self.between_ranks:
                    moment, _, callback = heapq.heappop(self._timers)
                    self.now = max(self.now, moment)
                    callback()
                continue
            if due is not None:
                self.now = max(self.now, due)
                late = next(turn for turn in blocked if turn.deadline == due)
                late.state, late.late = "ready", True
                return late
            if patient_until is None:
                patient_until = time.monotonic() + PATIENCE
            elif time.monotonic() > patient_until:
                stuck = blocked[0]
                stuck.error = SimulationDeadlock(f"no rank can go on: {self.describe()}")
                stuck.state = "ready"
                return stuck
            _let_other_threads_run()

    def describe(self) -> str:
        """One line of text about the states of all ranks."""
        return "; ".join(
            [
                f"rank {turn.rank} waits for {turn.waits_for}"
                if turn.state == "blocked"
                else f"rank {turn.rank} is {turn.state}"
                for turn in self.turns
            ]
        )


def _let_other_threads_run() -> None:
    threading.Event().wait(1e-3)


def _can_go_on(turn: Turn) -> bool:
    return turn.state == "ready" or (turn.state == "blocked" and turn.ready())
