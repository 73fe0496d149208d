"""`ActorSystem` is a running plan: the actors of one rank or of all, their `ActorThread` objects, and the launches.

Its events are `deliver`, `completed`, `launch` and `close`.  Its decisions are the return values of `turn`: the actions
to run now, in order.  The driver has one real thread, or one stream, for each id in `threads`.  For each id it calls
`turn` while `has_work`, runs the actions in the order in which the turns returned them, and reports them by
`completed`.  A failed act has completed like any other; the driver decides about its outputs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, final

from vmflow.errors import InternalError

from .bus import Act, Action, Post
from .checks import check
from .construction import Construction
from .descriptors import RegisterDescriptor, TaskDescriptor
from .messages import CONSTRUCT, NOBODY, START, STOP, Message
from .stalls import describe

# About the most actions that one `turn` returns by default.  Actors of one thread do not wait for each other's
# completion, so that without a limit all launched work could be in the stream's queue together.
TURN: Final = 256


@final
class ActorSystem:
    """A running plan, driven by events: launches and messages go in, the actions to run come out of `turn`.

    Args:
        tasks: the tasks of the whole plan, even if this system runs those of one rank only.
        registers: the registers of the whole plan.
        acts: by the id of the task, the function that its acts run; other tasks have nothing to run.
        post: called as ``post(thread, message)`` for messages from one thread to another.  It has to pass the message
            to `deliver` of the system of that thread, now or later, and keep the order of messages between two threads.
            None to deliver immediately, for a driver that runs all threads in turn.
        rank: the rank whose tasks this system runs; None for all ranks.
        checked: whether the plan is known to pass `checks.check`, which is then not repeated.

    Raises:
        ValueError: if `checks.check` refuses the plan, or `acts` names a task that does not exist.
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
        unknown = sorted(set(acts) - {task.id for task in tasks})
        if unknown:
            raise ValueError(f"acts are given for tasks that do not exist: {unknown}")
        self._construction = Construction(tasks, registers, acts, post, rank)
        self._threads = self._construction.bus.threads
        self._closed = False
        self.launched = 0

    @property
    def threads(self) -> list[int]:
        """The ids of the actor threads that the driver has to serve by `turn`."""
        return list(self._threads)

    # Commands

    def construct(self) -> None:
        """Tell all threads to construct their actors; to be called once, before `start`."""
        self._construction.bus.command(CONSTRUCT)

    def constructed(self) -> bool:
        """Whether all threads have constructed their actors.  With several ranks, start when this is true on each."""
        return all([thread.constructed for thread in self._threads.values()])

    def start(self) -> None:
        """Tell all threads to let actors with buffers begin, so that launches run.

        Raises:
            RuntimeError: if some actors have not been constructed.
        """
        if not self.constructed():
            waiting = [thread.id for thread in self._threads.values() if not thread.constructed]
            raise RuntimeError(f"call construct() and turn() first: threads {waiting} have no actors yet")
        self._construction.bus.command(START)

    def stop(self) -> None:
        """Tell all threads to stop, after all actors have ended.

        Raises:
            RuntimeError: if an actor has not ended or an action is running; call `close` first, and serve all turns.
        """
        if not self.ended():
            raise RuntimeError(f"call close() and serve all turns first; these actors are left:\n{self.describe()}")
        self._construction.bus.command(STOP)

    # Events

    def launch(self, piece: object = None) -> None:
        """Put one item into each buffer, so that the plan runs once more.  Slots limit how many launches overlap.

        Args:
            piece: the object that becomes the `Action.item` of every act of a source, wait tick or callback for this
                launch.

        Raises:
            RuntimeError: after `close`.
        """
        if self._closed:
            raise RuntimeError("the system has been closed and launches nothing more")
        self.launched += 1
        for buffer in self._construction.buffers.values():
            buffer.put(piece)
        self._poke()

    def close(self, discard: bool = False) -> list[object]:
        """Refuse further launches: earlier launches run, then the actors end.

        Args:
            discard: whether to drop launches that have not begun.  No `turn` may run during this call.

        Returns:
            The `piece` arguments of the dropped launches, in the order of launching.
        """
        self._closed = True
        buffers = self._construction.buffers.values()
        for buffer in buffers:
            buffer.close()
        dropped: list[object] = []
        if discard and buffers:
            count = min([len(buffer.items) for buffer in buffers])
            for buffer in buffers:
                dropped = buffer.discard(count)
        self._poke()
        return dropped

    def deliver(self, thread: int, message: Message) -> None:
        """Put a posted message into the inbox of its thread, for the next `turn`.  May be called from any thread.

        Raises:
            InternalError: if this system has no such thread, or does not run the receiving task of the plan.
        """
        if message.receiver is NOBODY and message.target >= 0:
            # The message comes from another system, which does not know this system's actor objects: look the actor up.
            message = self._construction.message(message.kind, message.target, message.register, message.slot)
            if message.receiver is NOBODY:
                raise InternalError(f"{message!r} was delivered to a system that has no such actor")
        self._construction.bus.put(thread, message)

    def completed(self, thread: int, count: int = 1) -> None:
        """Report that the oldest `count` running actions of this thread have completed.

        Raises:
            InternalError: if fewer than `count` actions are running.
        """
        self._threads[thread].completed(count)

    # Decisions

    def turn(self, thread: int, limit: int = TURN) -> list[Action]:
        """Handle an actor thread's messages and new launches.  Returns the actions to run on its stream now, in order.

        Args:
            thread: the thread's id.
            limit: about the most actions to return; `has_work` stays true if messages are left.

        Raises:
            RuntimeError: if an earlier turn has handled a `stop`.
        """
        return self._threads[thread].turn(limit)

    def has_work(self, thread: int) -> bool:
        """Return whether `turn` has something to do for this thread: messages or, after `start`, launches or a `close`.

        May be called from any thread.
        """
        return self._threads[thread].has_work()

    def idle(self) -> bool:
        """Return whether `has_work` is false for all threads, and no action is running.

        Messages given to `post` and not yet delivered do not count: the driver has to know about them.
        """
        return not any([thread.has_work() or thread.running for thread in self._threads.values()])

    def ended(self) -> bool:
        """Return whether all actors have been destroyed and no action is running."""
        return not any([thread.alive or thread.running for thread in self._threads.values()])

    def describe(self) -> str:
        """Return a text about a system that is idle and should not be: the actors, and the causes of their waiting."""
        return describe(self._construction)

    def _poke(self) -> None:
        for thread in self._threads.values():
            thread.poke()
