"""`ActorSystem` is a plan that runs: every actor of one rank, the threads that serve them, and the launches.

It is pure: no thread, no loop, no clock, no array.  The events are `deliver`, `completed`, `launch` and `close`; the
decisions are what `turn` returns, the actions to run now, in order.  Whoever drives it has one real thread, or one
stream, for each of `threads`; for each it calls `turn` while `has_work`, runs the actions in the order in which all
turns returned them, and reports them by `completed`.  An act that fails has completed like any other: what is to be
made of its outputs is for those to say who run it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, final

from vmflow.errors import InternalError

from .bus import Act, Action, Post, RegisterSlot
from .checks import check
from .construction import Construction
from .descriptors import RegisterDescriptor, TaskDescriptor
from .messages import CONSTRUCT, NOBODY, START, STOP, Message
from .stalls import describe

# How many actions a turn decides on at most.  Actors of one thread do not wait for each other's completion, so that
# otherwise everything launched could be in the stream's queue at once.
TURN: Final = 256


@final
class ActorSystem:
    """The actors of a plan.

    Args:
        tasks, registers: the whole plan, also where only one rank's part is to run here.
        acts: by the id of the task, what its acts are to run; tasks without have nothing to run.
        post: called as ``post(thread, message)`` for what goes from one thread to another.  It has to hand the message
            to `deliver`, of the system whose thread it is, sooner or later, and in order for each sender and thread.
            None to deliver at once, for a driver that runs all threads in turn.
        rank: the rank whose tasks are run here; None for all.
        checked: whether the plan is known to pass `checks.check`.

    Raises:
        ValueError: if the plan cannot run; see `checks`.
    """

    def __init__(
        self,
        tasks: Sequence[TaskDescriptor],
        registers: Sequence[RegisterDescriptor],
        acts: Mapping[int, Act],
        post: Post | None = None,
        rank: int | None = None,
        checked: bool = False,
    ) -> None:
        if not checked:
            check(tasks, registers)
        strangers = sorted(set(acts) - {task.id for task in tasks})
        if strangers:
            raise ValueError(f"acts are given for tasks that do not exist: {strangers}")
        self._made = Construction(tasks, registers, acts, post, rank)
        self._threads = self._made.bus.threads
        self._closed = False
        # How many pieces have been launched.
        self.launched = 0

    @property
    def threads(self) -> list[int]:
        """The ids of the threads that have to be served."""
        return list(self._threads)

    def slots(self, register: int) -> tuple[RegisterSlot, ...]:
        """The slots of a register, as acts get them: for the driver to say where their memory is."""
        return self._made.slots[register]

    # Commands

    def construct(self) -> None:
        """Tell all threads to let their actors be; to be called once, before `start`."""
        self._made.bus.command(CONSTRUCT)

    def constructed(self) -> bool:
        """Whether all threads have obeyed that.  With several ranks, start when it is so on each."""
        return all([thread.constructed for thread in self._threads.values()])

    def start(self) -> None:
        """Tell the sources to begin.

        Raises:
            RuntimeError: if some actors have not been constructed.
        """
        if not self.constructed():
            waiting = [thread.id for thread in self._threads.values() if not thread.constructed]
            raise RuntimeError(f"call construct() and turn() first: threads {waiting} have no actors yet")
        self._made.bus.command(START)

    def stop(self) -> None:
        """Tell all threads that nothing more will come.

        Raises:
            RuntimeError: if there are actors left.
        """
        if not self.ended():
            raise RuntimeError(f"close() first, and let the actors end; there are still\n{self.describe()}")
        self._made.bus.command(STOP)

    # Events

    def launch(self, piece: object = None) -> None:
        """Have the plan run once more.  Launches run in order, as many at a time as registers have slots.

        Args:
            piece: becomes the `Action.item` of every act of a source, wait tick or callback for this launch.

        Raises:
            RuntimeError: after `close`.
        """
        if self._closed:
            raise RuntimeError("the system has been closed and launches nothing any more")
        self.launched += 1
        for buffer in self._made.buffers.values():
            buffer.put(piece)
        self._poke()

    def close(self, discard: bool = False) -> list[object]:
        """Launch nothing any more: what has been launched runs, then the actors end.

        Args:
            discard: whether to drop launches that have not begun.  No turn may be running meanwhile.

        Returns:
            The pieces dropped, in the order of launching.
        """
        self._closed = True
        buffers = self._made.buffers.values()
        for buffer in buffers:
            buffer.close()
        dropped: list[object] = []
        if discard and buffers:
            count = min([len(it.items) for it in buffers])
            for buffer in buffers:
                dropped = buffer.discard(count)
        self._poke()
        return dropped

    def deliver(self, thread: int, message: Message) -> None:
        """Put a message that was posted into the inbox of its thread; `turn` will find it there.  From any thread.

        Raises:
            InternalError: if no such thread or actor is here.
        """
        if message.receiver is NOBODY and message.target >= 0:
            # From another system, which could not know the actor.
            message = self._made.message(message.kind, message.target, message.register, message.slot)
            if message.receiver is NOBODY:
                raise InternalError(f"{message!r} was delivered to a system that has no such actor")
        self._made.bus.put(thread, message)

    def completed(self, thread: int, count: int = 1) -> None:
        """The oldest `count` of the actions of this thread that had not been reported have completed.

        Raises:
            InternalError: if there are not so many.
        """
        self._threads[thread].completed(count)

    # Decisions

    def turn(self, thread: int, limit: int = TURN) -> list[Action]:
        """Handle what has come for one thread: what is to be run on its stream now, in order.

        Args:
            thread: its id.
            limit: stop at about so many actions; what is left makes `has_work` true.
        """
        return self._threads[thread].turn(limit)

    def has_work(self, thread: int) -> bool:
        """Whether a turn of this thread would change anything.  From any thread."""
        return self._threads[thread].has_work()

    def idle(self) -> bool:
        """Whether nothing will happen without another event.

        What was given to `post` and has not been delivered is for the driver to know.
        """
        return not any([thread.has_work() or thread.in_flight for thread in self._threads.values()])

    def ended(self) -> bool:
        """Whether all actors have been destroyed and nothing is in flight."""
        return not any([thread.alive or thread.in_flight for thread in self._threads.values()])

    def describe(self) -> str:
        """For people, of a system that is idle and should not be: which actor waits for what."""
        return describe(self._made)

    def _poke(self) -> None:
        for thread in self._threads.values():
            thread.poke()
