"""`ActorThread` holds the state that one stream's actors share: their messages, and the actions to run, in order.
`Bus` finds the thread of a message.

A message to an actor of the same thread goes immediately, into the thread's own queue: the receiver's actions run on
the same stream, after the sender's.  A message to another thread goes by the driver's `post`, when the stream has
completed all earlier actions.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeAlias, final

from vmflow.errors import InternalError

from .messages import CONSTRUCT, START, Message, Receiver


@final
class RegisterSlot:
    """One slot of a register, for the acts.

    Attributes:
        register: the id of the register.
        slot: its number among the register's slots.
        memory: set by the driver before the start, for the acts; the actors never look.
    """

    __slots__ = ("memory", "register", "slot")

    def __init__(self, register: int, slot: int) -> None:
        self.register = register
        self.slot = slot
        self.memory: object = None

    def __repr__(self) -> str:
        return f"<RegisterSlot {self.register}[{self.slot}]>"


@final
class Action:
    """Work to run on a thread's stream, after all earlier actions, and then to report as completed.

    Attributes:
        actor: the actor whose act it is.
        run: the function to call with this action; None where the action only keeps the order.
        inputs: the slots to read, in the order of the task's consumed data registers.
        outputs: the slots to write, in the order of its produced data registers.  All acts of a group of Acc and Pack
            have the same.
        index: the act's number in its group: Acc starts afresh at 0, Pack and Unpack take the slice of this number.
        item: the item taken from the task's buffer; None without one.
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

# Hands a message over to the thread with this id, by calling `ActorSystem.deliver` there, sooner or later; messages
# from one thread to another must arrive in the order in which they were posted.
Post: TypeAlias = Callable[[int, Message], None]


class Source(Receiver):
    """An actor that may act without a message, since it takes items from a buffer."""

    __slots__ = ()

    def poke(self) -> None:
        """Act as often as the items in the actor's buffer allow."""
        raise NotImplementedError


@final
class ActorThread:
    """The actors of one stream.  `turn` and `completed` are called by one thread at a time.

    Attributes:
        id: the upper bits of its tasks' ids.
        inbox: messages from other threads, and commands.
        local: messages among its own actors.
        launches: the actions that the current turn has decided to run.
        running: the actions of earlier turns that have not been reported completed.
        poked: whether a buffer of its actors got items or was closed.
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
        """Look at the buffers in the next turn, since one has changed.  May be called from any thread."""
        if self.sources:
            self.poked = True

    def turn(self, limit: int) -> list[Action]:
        """Handle all messages, until none is left or `limit` actions have been decided on."""
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
        """Note that the oldest `count` running actions have completed, and send the messages that waited for them."""
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
        """Whether a turn would change anything, without a further event."""
        return bool(self.local or self.inbox) or (self.poked and self.started)

    def send(self, message: Message, ordered: bool) -> None:
        """Send a message that belongs to no act.

        Args:
            message: to any actor.
            ordered: whether it may leave the thread only when all running actions have completed.
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
    """The threads of one system, by id.

    Args:
        post: hands messages over between threads; None to put them into the inbox directly, for a single driver.
    """

    __slots__ = ("post", "threads")

    def __init__(self, post: Post | None) -> None:
        self.threads: dict[int, ActorThread] = {}
        self.post: Post = self.put if post is None else post

    def thread(self, number: int) -> ActorThread:
        """The thread with this id, made at the first call."""
        thread = self.threads.get(number)
        if thread is None:
            thread = self.threads[number] = ActorThread(number, self.post)
        return thread

    def put(self, number: int, message: Message) -> None:
        """Put a message into a thread's inbox.

        Raises:
            InternalError: if this system has no such thread.
        """
        thread = self.threads.get(number)
        if thread is None:
            raise InternalError(f"{message!r} was delivered to a system that has no thread {number}")
        thread.inbox.append(message)

    def command(self, kind: int) -> None:
        """Give a command to all threads."""
        for number in self.threads:
            self.post(number, Message(kind, number))
