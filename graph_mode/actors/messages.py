"""`Message` is the only link between actors, and carries the commands of the actor system to its threads.

Messages between actors are made together with the actors, and most are sent again and again: for each slot of a
register and each consumer, one message hands the slot out ("full") and one gives it back ("free").  A message holds its
receiver and the numbers of port and slot, so that its arrival needs no look-up within one `ActorSystem`.
"""

from __future__ import annotations

from typing import Final, NamedTuple, final

from vmflow.errors import InternalError

# The message that hands out a register's slot for the receiver's acts to read.
FULL: Final = 0
# The message by which a consumer gives a register's slot back to its producer.
FREE: Final = 1
# The message that tells a consumer that no more slots of a register will come ("end of register data").
EORD: Final = 2
# Commands to an actor thread: construct the actors; let actors that take items from a buffer begin; stop.
CONSTRUCT: Final = 3
START: Final = 4
STOP: Final = 5

KIND_NAMES: Final = ("full", "free", "eord", "construct", "start", "stop")


class Wait(NamedTuple):
    """A condition that an actor waits for.

    Attributes:
        event: "full" (an input slot), "free" (an output slot), "item" (of the actor's buffer); for a zombie, "eord"
            (the end of an input) or "returns" (of an output's slots).
        register: the id of the input or output register; -1 for "item".
    """

    event: str
    register: int


class Receiver:
    """The receiver of messages: an `Actor` or a `LightActor`.

    Attributes:
        id: the id of the task.
        acted: how often the actor has acted.
        zombie: whether it will not act again, and only waits for its outputs' slots and for its inputs to end.
        destroyed: whether it has ended; it must not get any more messages.
    """

    __slots__ = ("acted", "destroyed", "id", "zombie")

    def __init__(self, task: int) -> None:
        self.id = task
        self.acted = 0
        self.zombie = False
        self.destroyed = False

    def receive(self, message: Message) -> None:
        """Handle one message, and act as often as is then possible."""
        raise InternalError(f"{message!r} has no receiver; deliver it by `ActorSystem.deliver`")

    def construct(self) -> None:
        """Mark all slots of the registers that this actor produces as free."""
        raise NotImplementedError

    def waits(self) -> list[Wait]:
        """The conditions that keep the actor from acting, or, as a zombie, from being destroyed.

        A `LightActor` names all its outputs while any slot is out.
        """
        raise NotImplementedError

    def holds(self, register: int) -> bool:
        """Whether the actor has a slot of this register, which it consumes, that is unread or kept for an output."""
        raise NotImplementedError


# The placeholder receiver of commands, and of messages to an actor of another `ActorSystem`; its `receive` raises.
NOBODY: Final = Receiver(-1)


@final
class Message:
    """A message to an actor or a thread.

    Attributes:
        kind: FULL, FREE or EORD, or a command.
        thread: the id of the receiving thread.
        target: the id of the receiving task; -1 for a command.
        register: the id of the register; -1 for a command.
        slot: the number of the register's slot.
        receiver: the actor of the task `target`; `NOBODY` for a command, and for an actor of another system.
        port: the number of the receiver's input (FULL, EORD) or output (FREE).
        bit: two to the power of `port`.
        near: whether sender and receiver are actors of one thread.
    """

    __slots__ = ("bit", "kind", "near", "port", "receiver", "register", "slot", "target", "thread")

    def __init__(
        self,
        kind: int,
        thread: int,
        target: int = -1,
        register: int = -1,
        slot: int = 0,
        receiver: Receiver = NOBODY,
        port: int = 0,
        near: bool = False,
    ) -> None:
        self.kind = kind
        self.thread = thread
        self.target = target
        self.register = register
        self.slot = slot
        self.receiver = receiver
        self.port = port
        self.bit = 1 << port
        self.near = near

    def __repr__(self) -> str:
        if self.kind >= CONSTRUCT:
            return f"<Message {KIND_NAMES[self.kind]} to thread {self.thread}>"
        slot = "" if self.kind == EORD else f" slot {self.slot}"
        return f"<Message {KIND_NAMES[self.kind]}: register {self.register}{slot} to task {self.target}>"
