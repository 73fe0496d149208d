"""`ActorThread` is what one stream's actors share: the messages waiting for them, and what they want run, in order.
`Bus` finds the thread of a message.

A message to an actor of the same thread goes at once, into the thread's own queue: whatever its receiver runs, the
stream runs behind what the sender runs.  A message to another thread goes when the stream has completed what came
before it, and then by the `post` of whoever drives the threads.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeAlias, final

from vmflow.errors import InternalError

from .messages import CONSTRUCT, START, Message, Receiver


@final
class RegisterSlot:
    """One slot of a register, as an act gets it.

    Attributes:
        register: the id of the register.
        slot: which of its slots.
        memory: whatever the driver puts there before the start, for the acts to find; the core never looks.
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
    """What is to be run on a thread's stream, after all actions before it, and then reported completed.

    Attributes:
        actor: whose act it is.
        run: the act, to be called with this action; None where there is nothing to run but the order to be kept.
        inputs: the slots to be read, in the order of the task's consumed data registers.
        outputs: the slots to be written, likewise.  Of Acc and Pack the same for all acts of a group.
        index: which act of a group: Acc starts afresh at 0, Pack and Unpack take the slice of this number.
        item: what was taken from the task's buffer, None without one.
        far: messages to other threads, to be sent when this has completed.
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
        who = "order only" if self.actor is None else f"task {self.actor.id}"
        return f"<Action {who}: {list(self.inputs)} -> {list(self.outputs)}, index {self.index}>"


Act: TypeAlias = Callable[[Action], object]

# Hands a message over to the thread with this id, by calling `ActorSystem.deliver` there, sooner or later; messages
# from one thread to another must arrive in the order of posting.
Post: TypeAlias = Callable[[int, Message], None]


class Source(Receiver):
    """An actor that may act without a message: it has a buffer."""

    __slots__ = ()

    def poke(self) -> None:
        """Look at the buffer again, and act as far as that allows."""
        raise NotImplementedError


@final
class ActorThread:
    """The actors of one stream.  `turn` and `completed` are called by one thread at a time.

    Attributes:
        id: the upper bits of its tasks' ids.
        inbox: messages from other threads, and commands.
        local: messages among its own actors.
        launches: what this turn has decided to run.
        in_flight: what earlier turns have, and has not been reported completed.
        poked: whether something happened to a buffer.
        alive: how many of its actors have not been destroyed.
    """

    __slots__ = (
        "_post",
        "actors",
        "alive",
        "constructed",
        "id",
        "in_flight",
        "inbox",
        "launches",
        "local",
        "poked",
        "sources",
        "started",
        "stopped",
    )

    def __init__(self, number: int, post: Post) -> None:
        self.id = number
        self.inbox: deque[Message] = deque()
        self.local: deque[Message] = deque()
        self.launches: list[Action] = []
        self.in_flight: deque[Action] = deque()
        self.actors: list[Receiver] = []
        self.sources: list[Source] = []
        self.alive = 0
        self.poked = False
        self.constructed = False
        self.started = False
        self.stopped = False
        self._post = post

    def add(self, actor: Receiver) -> None:
        """Take an actor that has been made."""
        self.actors.append(actor)
        self.alive += 1

    def lose(self) -> None:
        """One of the actors has been destroyed."""
        self.alive -= 1

    def poke(self) -> None:
        """Something has happened to a buffer.  From any thread."""
        if self.sources:
            self.poked = True

    def turn(self, limit: int) -> list[Action]:
        """Handle what has arrived, until nothing is left or `limit` actions have been decided on."""
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
        self.in_flight.extend(launches)
        return launches

    def completed(self, count: int) -> None:
        """The oldest `count` actions in flight have completed: send what waited for that."""
        in_flight = self.in_flight
        if not 0 <= count <= len(in_flight):
            raise InternalError(
                f"{count} actions of thread {self.id} were reported completed, but {len(in_flight)} are in flight"
            )
        for _ in range(count):
            far = in_flight.popleft().far
            if far:
                for message in far:
                    self._post(message.thread, message)

    def has_work(self) -> bool:
        """Whether a turn would change anything, with no further event."""
        return bool(self.local or self.inbox) or (self.poked and self.started)

    def send(self, message: Message, ordered: bool) -> None:
        """Send what belongs to no act.

        Args:
            message: to anyone.
            ordered: whether it may leave the thread only when what is in flight has completed.
        """
        if message.near:
            self.local.append(message)
        elif ordered and (self.launches or self.in_flight):
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
        post: hands messages over between threads; None to put them straight into the inbox, for one that drives all.
    """

    __slots__ = ("post", "threads")

    def __init__(self, post: Post | None) -> None:
        self.threads: dict[int, ActorThread] = {}
        self.post: Post = self.put if post is None else post

    def thread(self, number: int) -> ActorThread:
        """The thread with this id, made if there is none yet."""
        found = self.threads.get(number)
        if found is None:
            found = self.threads[number] = ActorThread(number, self.post)
        return found

    def put(self, number: int, message: Message) -> None:
        """Put a message into a thread's inbox.

        Raises:
            InternalError: if this system has no such thread.
        """
        found = self.threads.get(number)
        if found is None:
            raise InternalError(f"{message!r} was delivered to a system that has no thread {number}")
        found.inbox.append(message)

    def command(self, kind: int) -> None:
        """Give a command to all threads."""
        for number in self.threads:
            self.post(number, Message(kind, number))
