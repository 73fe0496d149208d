"""`ActorSystem` is a running plan: every actor of one rank, the threads that serve them, and the launches.

It has no thread, loop, clock or array.  Its events are `deliver`, `completed`, `launch` and `close`.  Its decisions are
the return values of `turn`: the actions to run now, in order.  The driver has one real thread, or one stream, for each
of `threads`.  For each it calls `turn` while `has_work`, runs the actions in the order in which all turns returned
them, and reports them by `completed`.  A failed act has completed like any other; the driver decides about its outputs.
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

# The most actions of one turn.  Actors of one thread do not wait for each other's completion, so that without a limit
# all launched work could be in the stream's queue together.
TURN: Final = 256


@final
class ActorSystem:
    """The actors of a plan.

    Args:
        tasks: the tasks of the whole plan, also where only one rank's part runs here.
        registers: the registers of the whole plan.
        acts: by the id of the task, the function that its acts run; other tasks have nothing to run.
        post: called as ``post(thread, message)`` for messages from one thread to another.  It has to hand the message
            to `deliver` of the system of that thread, sooner or later, and in order for each sender and thread.
            None to deliver immediately, for a driver that runs all threads in turn.
        rank: the rank whose tasks run here; None for all.
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
        unknown = sorted(set(acts) - {task.id for task in tasks})
        if unknown:
            raise ValueError(f"acts are given for tasks that do not exist: {unknown}")
        self._construction = Construction(tasks, registers, acts, post, rank)
        self._threads = self._construction.bus.threads
        self._closed = False
        # The number of launches so far.
        self.launched = 0

    @property
    def threads(self) -> list[int]:
        """The ids of the threads to serve."""
        return list(self._threads)

    def slots(self, register: int) -> tuple[RegisterSlot, ...]:
        """The slots of a register, to which the driver adds their memory."""
        return self._construction.slots[register]

    # Commands

    def construct(self) -> None:
        """Tell all threads to construct their actors; to be called once, before `start`."""
        self._construction.bus.command(CONSTRUCT)

    def constructed(self) -> bool:
        """Whether all threads have constructed their actors.  With several ranks, start when this is true on each."""
        return all([thread.constructed for thread in self._threads.values()])

    def start(self) -> None:
        """Let the sources begin.

        Raises:
            RuntimeError: if some actors have not been constructed.
        """
        if not self.constructed():
            waiting = [thread.id for thread in self._threads.values() if not thread.constructed]
            raise RuntimeError(f"call construct() and turn() first: threads {waiting} have no actors yet")
        self._construction.bus.command(START)

    def stop(self) -> None:
        """Tell all threads that there is no more work.

        Raises:
            RuntimeError: if there are actors left; call `close` first.
        """
        if not self.ended():
            raise RuntimeError(f"call close() and serve all turns first; these actors are left:\n{self.describe()}")
        self._construction.bus.command(STOP)

    # Events

    def launch(self, piece: object = None) -> None:
        """Run the plan once more.  Launches run in order, as many at a time as registers have slots.

        Args:
            piece: becomes the `Action.item` of every act of a source, wait tick or callback for this launch.

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
        """Launch nothing more: earlier launches run, then the actors end.

        Args:
            discard: whether to drop launches that have not begun.  No turn may run meanwhile.

        Returns:
            The dropped pieces, in the order of launching.
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
            InternalError: if no such thread or actor is here.
        """
        if message.receiver is NOBODY and message.target >= 0:
            # The sender is another system, which could not know the actor.
            message = self._construction.message(message.kind, message.target, message.register, message.slot)
            if message.receiver is NOBODY:
                raise InternalError(f"{message!r} was delivered to a system that has no such actor")
        self._construction.bus.put(thread, message)

    def completed(self, thread: int, count: int = 1) -> None:
        """Report that the oldest `count` running actions of this thread have completed.

        Raises:
            InternalError: if fewer are running.
        """
        self._threads[thread].completed(count)

    # Decisions

    def turn(self, thread: int, limit: int = TURN) -> list[Action]:
        """Handle the messages of one thread.  Returns the actions to run on its stream now, in order.

        Args:
            thread: its id.
            limit: stop after about so many actions; the rest makes `has_work` true.
        """
        return self._threads[thread].turn(limit)

    def has_work(self, thread: int) -> bool:
        """Whether a turn of this thread would change anything.  May be called from any thread."""
        return self._threads[thread].has_work()

    def idle(self) -> bool:
        """Whether nothing will happen without another event.

        The driver has to look after messages that were given to `post` and have not been delivered.
        """
        return not any([thread.has_work() or thread.running for thread in self._threads.values()])

    def ended(self) -> bool:
        """Whether all actors have been destroyed and no action is running."""
        return not any([thread.alive or thread.running for thread in self._threads.values()])

    def describe(self) -> str:
        """Return a text about a system that is idle and should not be: the actors, and the causes of their waiting."""
        return describe(self._construction)

    def _poke(self) -> None:
        for thread in self._threads.values():
            thread.poke()
