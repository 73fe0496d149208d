"""`ActorThread` holds the state that one stream's actors share: their messages, and the actions to run, in order.
`Bus` hands a message to the thread that serves its receiver.

A message to an actor of the same thread goes immediately, into the thread's own queue: the receiver's actions run on
the same stream, after the sender's.  A message to another thread goes through the driver's `post` function, when the
action that sent it has completed; for messages that belong to no action, see `ActorThread.send`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeAlias, final

from vmflow.errors import InternalError

from .messages import CONSTRUCT, START, Message, Receiver


@final
class RegisterSlot:
    """One slot of a register, as acts read and write it.

    Attributes:
        register: the id of the register.
        slot: the slot's number among the register's slots.
    """

    __slots__ = ("register", "slot")

    def __init__(self, register: int, slot: int) -> None:
        self.register = register
        self.slot = slot

    def __repr__(self) -> str:
        return f"<RegisterSlot {self.register}[{self.slot}]>"


@final
class Action:
    """An act, which the driver runs on the thread's stream, in order, and reports when it has completed.

    All acts of a `LightActor` are one object.

    Attributes:
        actor: the actor that acts; None for an action that only orders a message after earlier actions.
        run: the function to call with this action; None if there is nothing to run.
        inputs: the slots to read, in the order of the task's consumed data registers.
        outputs: the slots to write, in the order of the task's produced data registers.  All acts of one group of Acc
            or Pack write the same slots.
        index: the act's number in its group: Acc starts a new sum at 0; Pack writes, and Unpack reads, slice `index`.
        item: the item that the act took from the task's buffer; None for a task without a buffer.
        far: messages to other threads, to be sent when this action has completed.
    """

    __slots__ = ("actor", "far", "index", "inputs", "item", "outputs", "run")

    def __init__(
        self,
        actor: Receiver | None,
        run: Act | None,
        inputs: tuple[RegisterSlot, ...],
        outputs: tuple[RegisterSlot, ...],
        index: int,
        item: object,
        far: Sequence[Message],
    ) -> None:
        self.actor = actor
        self.run = run
        self.inputs = inputs
        self.outputs = outputs
        self.index = index
        self.item = item
        self.far = far

    def __repr__(self) -> str:
        name = "order only" if self.actor is None else f"task {self.actor.id}"
        return f"<Action {name}: {list(self.inputs)} -> {list(self.outputs)}, index {self.index}>"


Act: TypeAlias = Callable[[Action], object]

# Called as ``post(thread, message)``: hands a message to the thread with this id, by a call of `ActorSystem.deliver`
# there, now or later.  Messages from one thread to another must arrive in the order in which they were posted.
Post: TypeAlias = Callable[[int, Message], None]


class Source(Receiver):
    """The base of actors that may take items from a buffer, and then act without a message."""

    __slots__ = ()

    def poke(self) -> None:
        """Act as often as slots and the buffer allow; end if the buffer or an input has ended and is drained."""
        raise NotImplementedError


@final
class ActorThread:
    """The actors of one stream, their messages and actions.  One real thread at a time may call `turn` or `completed`.

    Attributes:
        id: the upper 43 bits of the ids of its tasks.
        inbox: messages from other actor threads, and commands from the system.
        local: messages among this thread's own actors.
        launches: the actions that the current turn has decided to run.
        running: the actions of earlier turns that have not been reported completed.
        poked: whether the next turn has to look at the actors' buffers; before START, none does.
        alive: the number of the stream's actors that have not been destroyed.
    """

    __slots__ = (
        "_post",
        "actors",
        "alive",
        "constructed",
        "id",
        "inbox",
        "launches",
        "local",
        "poked",
        "running",
        "sources",
        "started",
        "stopped",
    )

    def __init__(self, number: int, post: Post) -> None:
        self.id = number
        self.inbox: deque[Message] = deque()
        self.local: deque[Message] = deque()
        self.launches: list[Action] = []
        self.running: deque[Action] = deque()
        self.actors: list[Receiver] = []
        self.sources: list[Source] = []
        self.alive = 0
        self.poked = False
        self.constructed = False
        self.started = False
        self.stopped = False
        self._post = post

    def add(self, actor: Receiver) -> None:
        """Add an actor."""
        self.actors.append(actor)
        self.alive += 1

    def lose(self) -> None:
        """Count one actor as destroyed."""
        self.alive -= 1

    def poke(self) -> None:
        """Let the next turn, not before START, look at the buffers, since one has changed.

        May be called from any thread.
        """
        if self.sources:
            self.poked = True

    def turn(self, limit: int) -> list[Action]:
        """Handle messages and buffers until nothing is left or about `limit` actions are decided; return the actions.

        Raises:
            RuntimeError: if an earlier turn has handled STOP.
        """
        if self.stopped:
            raise RuntimeError(f"thread {self.id} has been stopped")
        inbox = self.inbox
        local = self.local
        while len(self.launches) < limit:
            if local:
                message = local.popleft()
                message.receiver.receive(message)
            elif inbox:
                message = inbox.popleft()
                if message.kind < CONSTRUCT:
                    message.receiver.receive(message)
                else:
                    self._obey(message.kind)
            elif self.poked and self.started:
                self.poked = False
                for source in self.sources:
                    source.poke()
            else:
                break
        launches = self.launches
        self.launches = []
        self.running.extend(launches)
        return launches

    def completed(self, count: int) -> None:
        """Note that the oldest `count` running actions have completed, and post their messages to other threads.

        Raises:
            InternalError: if fewer than `count` actions are running.
        """
        running = self.running
        if not 0 <= count <= len(running):
            raise InternalError(
                f"{count} actions of thread {self.id} were reported completed, but only {len(running)} are running"
            )
        for _ in range(count):
            far = running.popleft().far
            if far:
                for message in far:
                    self._post(message.thread, message)

    def has_work(self) -> bool:
        """Return whether `turn` has something to do now: messages to handle or, after START, buffers to look at."""
        return bool(self.local or self.inbox) or (self.poked and self.started)

    def send(self, message: Message, ordered: bool) -> None:
        """Send a message that belongs to no act, such as the return of an unread slot or the end of a register.

        Args:
            message: a message to an actor of any thread.
            ordered: whether a message to another thread has to wait until all earlier actions have completed.
        """
        if message.near:
            self.local.append(message)
        elif ordered and (self.launches or self.running):
            self.launches.append(Action(None, None, (), (), 0, None, (message,)))
        else:
            self._post(message.thread, message)

    def _obey(self, command: int) -> None:
        if command == CONSTRUCT:
            for actor in self.actors:
                actor.construct()
            self.constructed = True
        elif command == START:
            self.started = True
            self.poked = True
        else:
            self.stopped = True


@final
class Bus:
    """The `ActorThread` objects of one actor system, by id.

    Args:
        post: hands messages from one thread to another; None to put them into the receiving thread's inbox
            immediately, for a driver that runs all threads in turn.
    """

    __slots__ = ("post", "threads")

    def __init__(self, post: Post | None) -> None:
        self.threads: dict[int, ActorThread] = {}
        self.post: Post = self.put if post is None else post

    def thread(self, number: int) -> ActorThread:
        """Return the `ActorThread` with the id `number`, made at the first call."""
        thread = self.threads.get(number)
        if thread is None:
            thread = self.threads[number] = ActorThread(number, self.post)
        return thread

    def put(self, number: int, message: Message) -> None:
        """Put a message into the inbox of the thread with the id `number`.

        Raises:
            InternalError: if this system has no such thread.
        """
        thread = self.threads.get(number)
        if thread is None:
            raise InternalError(f"{message!r} was delivered to a system that has no thread {number}")
        thread.inbox.append(message)

    def command(self, kind: int) -> None:
        """Post a command (CONSTRUCT, START or STOP) to all threads."""
        for number in self.threads:
            self.post(number, Message(kind, number))
