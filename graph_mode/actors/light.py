"""`LightActor` is a faster actor for the common case: every register has one slot, handed out once per act.

The messages that an act sends are made once and reused.  The state is one bit for each input, set from the arrival
of the input's slot to the act, and the number of returns of output slots that are outstanding; the actor acts when all
bits are set and that number is 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from vmflow.errors import InternalError

from .bus import Act, Action, ActorThread, RegisterSlot
from .messages import FREE, FULL, Message, Receiver, Wait


@final
class LightActor(Receiver):
    """An actor whose consumed and produced registers have one slot each, handed out once per act to each consumer.

    Args:
        task: the id of the actor's task.
        thread: the `ActorThread` that serves the actor.
        run: the function that the actor's acts run; None if they run nothing.
        consumed: the ids of the registers that the actor reads, control registers included.
        produced: the ids of the registers that the actor writes, control registers included.
        inputs: the slots of the data registers that the actor reads.
        outputs: the slots of the data registers that the actor writes.
    """

    __slots__ = (
        "acks",
        "action",
        "all_here",
        "away",
        "away_in_place",
        "consumed",
        "ended",
        "ends",
        "far",
        "here",
        "in_place_input",
        "in_place_ordered",
        "in_place_output",
        "in_place_sends",
        "near",
        "produced",
        "sends",
        "thread",
    )

    def __init__(
        self,
        task: int,
        thread: ActorThread,
        run: Act | None,
        consumed: tuple[int, ...],
        produced: tuple[int, ...],
        inputs: tuple[RegisterSlot, ...],
        outputs: tuple[RegisterSlot, ...],
    ) -> None:
        super().__init__(task)
        self.thread = thread
        self.consumed = consumed
        self.produced = produced
        # The messages that an act sends: `near` to actors of the same thread, `far` to other threads.
        self.near: list[Message] = []
        self.far: list[Message] = []
        self.action = Action(self, run, inputs, outputs, 0, None, self.far)
        self.acks: list[Message] = []
        self.ends: list[Message] = []
        self.all_here = (1 << len(consumed)) - 1
        self.here = 0
        # A bit mask with a bit for each input whose producer has ended.
        self.ended = 0
        self.sends = 0
        self.away = 0
        # For an output that shares an input's memory: the indices of the output and the input, the number of messages
        # that hand the output out, whether one goes to the same thread, and how many returns are outstanding.
        self.in_place_output = -1
        self.in_place_input = -1
        self.in_place_sends = 0
        self.in_place_ordered = False
        self.away_in_place = 0

    def connect(self, fulls: Sequence[Message], acks: list[Message], ends: list[Message]) -> None:
        """Set the messages that the actor sends.

        Args:
            fulls: the messages that hand out the outputs' slots.
            acks: for each input, the message that gives its slot back.
            ends: the messages that announce that no more slots will come.
        """
        self.sends = len(fulls)
        self.acks = acks
        self.ends = ends
        for message in (*fulls, *[ack for number, ack in enumerate(acks) if number != self.in_place_input]):
            (self.near if message.near else self.far).append(message)

    def lie_in_place(self, output: int, source: int, sends: int, ordered: bool) -> None:
        """Let one output share an input's memory: the input's slot, once read, goes back only after the output's slot.

        Call before `connect`.

        Args:
            output: the index of the output.
            source: the index of the input.
            sends: the number of messages that hand the output out.
            ordered: whether one of these messages goes to an actor of the same thread.
        """
        self.in_place_output = output
        self.in_place_input = source
        self.in_place_sends = sends
        self.in_place_ordered = ordered

    def construct(self) -> None:
        """Do nothing: the output slots count as free while they are not handed out, without a list of free slots."""

    def receive(self, message: Message) -> None:
        kind = message.kind
        if kind == FULL:
            if self.zombie:
                self._return(message)
                return
            if self.here & message.bit:
                raise InternalError(f"{message!r} came before the previous one was given back")
            self.here |= message.bit
        elif kind == FREE:
            self.away -= 1
            if self.away < 0:
                raise InternalError(f"register {message.register} was given back more often than handed out")
            if message.port == self.in_place_output:
                self.away_in_place -= 1
                if self.away_in_place == 0:
                    self.thread.send(self.acks[self.in_place_input], self.in_place_ordered)
        else:
            self.ended |= message.bit
        if self.here == self.all_here and self.away == 0 and not self.zombie:
            # The actor acts once.  The act reads the slot of every input, so that no input is full afterwards.
            self.here = 0
            self.away = self.sends
            self.away_in_place = self.in_place_sends
            thread = self.thread
            thread.launches.append(self.action)
            thread.local.extend(self.near)
            self.acted += 1
        if self.ended:
            self._end()

    def waits(self) -> list[Wait]:
        if self.zombie:
            waits = [Wait("eord", read) for port, read in enumerate(self.consumed) if not self.ended >> port & 1]
            return waits + [Wait("returns", write) for write in self.produced if self.away]
        waits = [Wait("full", read) for port, read in enumerate(self.consumed) if not self.here >> port & 1]
        return waits + [Wait("free", write) for write in self.produced if self.away]

    def holds(self, register: int) -> bool:
        for port, consumed in enumerate(self.consumed):
            if consumed == register:
                return bool(self.here >> port & 1) or (port == self.in_place_input and self.away_in_place > 0)
        return False

    def _return(self, message: Message) -> None:
        """Give the slot that reached a zombie back, unread, to its producer."""
        if self.destroyed:
            raise InternalError(f"{message!r} arrived at an actor that has been destroyed")
        self.thread.send(self.acks[message.port], True)

    def _end(self) -> None:
        """Become a zombie if an ended input is drained; end a zombie if output slots are back and all inputs ended."""
        if self.ended & ~self.here and not self.zombie:
            self.zombie = True
            for port, ack in enumerate(self.acks):
                if self.here >> port & 1:
                    self.thread.send(ack, True)
            self.here = 0
            for message in self.ends:
                self.thread.send(message, True)
        if self.zombie and self.away == 0 and self.ended == self.all_here and not self.destroyed:
            self.destroyed = True
            self.thread.lose()
