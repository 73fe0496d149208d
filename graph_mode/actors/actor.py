"""`Actor` acts when its inputs hold a slot each, its outputs have a free slot each, and any buffer holds an item.

All slots of an output begin as free.  An act takes one free slot of each output, sends it to every consumer, and counts
the consumers that hold it; when all have given it back, the slot is free again.  An input's slot goes back to its
producer after the act.  If an output shares the input's memory, the input's slot goes back after the output's slot.
When an input or the buffer has ended and is drained, the actor tells its consumers once that no more slots will come.
Then it stays as a zombie, which gives back all unread slots, until its outputs' slots are back and all its inputs have
ended.  For groups of acts and for repeats, see `Kind`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import final

from vmflow.errors import InternalError

from .buffers import CloseableBuffer
from .bus import Act, Action, ActorThread, RegisterSlot, Source
from .messages import FREE, FULL, Message, Wait


@final
class InputPort:
    """An actor's view of a register that it consumes.

    Attributes:
        register: the register's id.
        slots: the register's slots, which the actor's acts read.
        acks: by slot, the message that gives the slot back to the producer.
        fifo: the slots that have arrived and that an act is still to read, in order.
        ended: whether the producer has announced that no more slots will come.
        kept: whether a slot that an act has read goes back to the producer only when the slot of the output that
            shares its memory, or repeats it, is free again.
    """

    __slots__ = ("acks", "ended", "fifo", "kept", "register", "slots")

    def __init__(self, register: int, slots: tuple[RegisterSlot, ...], kept: bool) -> None:
        self.register = register
        self.slots = slots
        self.acks: list[Message] = []
        self.fifo: deque[int] = deque()
        self.ended = False
        self.kept = kept

    def connect(self, acks: list[Message]) -> None:
        """Set, by slot, the messages that give the register's slots back to its producer."""
        self.acks = acks


@final
class OutputPort:
    """An actor's view of a register that it produces.

    Attributes:
        register: the register's id.
        slots: the register's slots, which the actor's acts write.
        free: the slots that may be written.
        claimed: the slot that the current group of acts writes, or the slot written last; -1 before the first act.
        sends: the number of messages that hand out one slot: one per consumer, or several if the task repeats.
        readers: by slot, how many of these messages have not been answered by a return of the slot.
        near: by slot, the messages that hand the slot out to actors of the same thread.
        far: by slot, the messages that hand the slot out to other threads.
        ends: the messages that tell consumers that no more slots will come.
        keeps: the input whose slot goes back when this output's slot has come back; None if there is none.
        in_place: whether the output lies in the memory of the input `keeps`.
        lent: by slot, the slot of `keeps` that goes back with it.
        ordered: whether a consumer is on the same thread: its act may still be queued when it gives a slot back.
    """

    __slots__ = (
        "claimed",
        "ends",
        "far",
        "free",
        "in_place",
        "keeps",
        "lent",
        "near",
        "ordered",
        "readers",
        "register",
        "sends",
        "slots",
    )

    def __init__(self, register: int, slots: tuple[RegisterSlot, ...], keeps: InputPort | None, in_place: bool) -> None:
        self.register = register
        self.slots = slots
        self.free: deque[int] = deque()
        self.claimed = -1
        self.sends = 0
        self.readers = [0] * len(slots)
        self.near: list[list[Message]] = [[] for _ in slots]
        self.far: list[list[Message]] = [[] for _ in slots]
        self.ends: list[Message] = []
        self.keeps = keeps
        self.in_place = in_place
        self.lent = [-1] * len(slots)
        self.ordered = False

    def connect(self, fulls: Sequence[Sequence[Message]], times: int, ordered: bool, ends: list[Message]) -> None:
        """Set the messages that the actor sends to the consumers of this output.

        Args:
            fulls: by slot, the messages that hand the slot out: one for each consumer.
            times: how often one act hands a slot out to each consumer.
            ordered: whether a consumer is on the actor's own thread.
            ends: for each consumer, the message that no more slots will come.
        """
        for slot, messages in enumerate(fulls):
            for message in messages:
                (self.near if message.near else self.far)[slot].extend([message] * times)
        self.sends = times * len(ends)
        self.ordered = ordered
        self.ends = ends


@final
class Actor(Source):
    """An actor for a task of any kind, with any number of slots; `LightActor` is faster for the common case.

    Args:
        task: the id of the actor's task.
        thread: the `ActorThread` that serves the actor.
        run: the function that the actor's acts run; None if they run nothing.
        buffer: the buffer from which each act takes an item; None for no buffer.
        period: for Acc, Pack and Unpack, the number of acts that form a group; 1 otherwise.
        gathers: whether all acts of a group write the same output slots, which the last one hands out; else each act
            has its own.
        spreads: whether all acts of a group read the same input slots, which the last one gives back; else each act
            has its own.
    """

    __slots__ = (
        "buffer",
        "data_inputs",
        "data_outputs",
        "ending",
        "gathers",
        "index",
        "inputs",
        "open_inputs",
        "outputs",
        "period",
        "reading",
        "ready_inputs",
        "ready_outputs",
        "run",
        "spreads",
        "thread",
    )

    def __init__(
        self,
        task: int,
        thread: ActorThread,
        run: Act | None,
        buffer: CloseableBuffer | None,
        period: int,
        gathers: bool,
        spreads: bool,
    ) -> None:
        super().__init__(task)
        self.thread = thread
        self.run = run
        self.buffer = buffer
        self.period = period
        self.gathers = gathers
        self.spreads = spreads
        self.inputs: list[InputPort] = []
        self.outputs: list[OutputPort] = []
        # The ports of the data registers, whose slots the acts get; control registers have no data.
        self.data_inputs: list[InputPort] = []
        self.data_outputs: list[OutputPort] = []
        self.index = 0
        # The number of inputs that hold a slot, and the number of outputs that have a free slot.
        self.ready_inputs = 0
        self.ready_outputs = 0
        # The number of messages that handed a slot of an output out and have not been answered by a return of the slot.
        self.reading = 0
        self.open_inputs = 0
        self.ending = False

    def construct(self) -> None:
        for port in self.outputs:
            port.free.extend(range(len(port.slots)))
        self.ready_outputs = len(self.outputs)
        self.open_inputs = len(self.inputs)

    def receive(self, message: Message) -> None:
        if self.destroyed:
            raise InternalError(f"{message!r} arrived at an actor that has been destroyed")
        kind = message.kind
        if kind == FULL:
            source = self.inputs[message.port]
            if self.zombie:
                self.thread.send(source.acks[message.slot], True)
                return
            source.fifo.append(message.slot)
            if len(source.fifo) == 1:
                self.ready_inputs += 1
        elif kind == FREE:
            self._take_back(self.outputs[message.port], message.slot)
        else:
            self.inputs[message.port].ended = True
            self.open_inputs -= 1
            self.ending = True
        self.poke()

    def poke(self) -> None:
        if not self.zombie:
            while self._ready():
                self._act()
            if self._exhausted():
                self._end()
        if self.zombie and self.reading == 0 and self.open_inputs == 0 and not self.destroyed:
            self.destroyed = True
            self.thread.lose()

    def waits(self) -> list[Wait]:
        if self.zombie:
            waits = [Wait("eord", port.register) for port in self.inputs if not port.ended]
            return waits + [Wait("returns", port.register) for port in self.outputs if any(port.readers)]
        waits = [Wait("full", port.register) for port in self.inputs if not port.fifo]
        if not self._has_claimed():
            waits += [Wait("free", port.register) for port in self.outputs if not port.free]
        if self.buffer is not None and not self.buffer.items:
            waits.append(Wait("item", -1))
        return waits

    def holds(self, register: int) -> bool:
        if any([port.register == register and bool(port.fifo) for port in self.inputs]):
            return True
        return any(
            [port.keeps is not None and port.keeps.register == register and any(port.readers) for port in self.outputs]
        )

    def _ready(self) -> bool:
        if self.ready_inputs != len(self.inputs):
            return False
        if self.ready_outputs != len(self.outputs) and not self._has_claimed():
            return False
        return self.buffer is None or bool(self.buffer.items)

    def _has_claimed(self) -> bool:
        """Whether an earlier act of the group has taken the output slots; False for tasks that do not gather."""
        return self.gathers and self.index > 0

    def _act(self) -> None:
        item: object = None
        if self.buffer is not None:
            item = self.buffer.take()
        if not self._has_claimed():
            self._claim()
        index = self.index
        last = index == self.period - 1
        self.index = 0 if last else index + 1
        inputs = tuple([port.slots[port.fifo[0]] for port in self.data_inputs])
        outputs = tuple([port.slots[port.claimed] for port in self.data_outputs])
        far: list[Message] = []
        if last or not self.gathers:
            self._hand_out(far)
        if last or not self.spreads:
            self._give_back(far)
        self.thread.launches.append(Action(self, self.run, inputs, outputs, index, item, far))
        self.acted += 1

    def _claim(self) -> None:
        for port in self.outputs:
            if port.in_place:
                self._claim_in_place(port)
            else:
                port.claimed = port.free.popleft()
            if not port.free:
                self.ready_outputs -= 1

    def _claim_in_place(self, port: OutputPort) -> None:
        """Take the output slot that lies in the memory of the input's slot; the output slot has to be free."""
        keeps = port.keeps
        if keeps is None or keeps.fifo[0] not in port.free:
            raise InternalError(
                f"register {port.register} is to be written into memory that its own readers still hold"
            )
        port.claimed = keeps.fifo[0]
        port.free.remove(port.claimed)

    def _hand_out(self, far: list[Message]) -> None:
        for port in self.outputs:
            slot = port.claimed
            keeps = port.keeps
            if keeps is not None:
                port.lent[slot] = keeps.fifo[0]
            if port.sends:
                port.readers[slot] = port.sends
                self.reading += port.sends
                self.thread.local.extend(port.near[slot])
                far.extend(port.far[slot])
                continue
            # A slot without readers is free immediately, and the input slot that it shares or repeats goes back.
            self._make_free(port, slot)
            if keeps is not None:
                self._acknowledge(keeps.acks[port.lent[slot]], far)

    def _give_back(self, far: list[Message]) -> None:
        for source in self.inputs:
            slot = source.fifo.popleft()
            if not source.fifo:
                self.ready_inputs -= 1
            if not source.kept:
                self._acknowledge(source.acks[slot], far)

    def _acknowledge(self, ack: Message, far: list[Message]) -> None:
        if ack.near:
            self.thread.local.append(ack)
        else:
            far.append(ack)

    def _take_back(self, port: OutputPort, slot: int) -> None:
        left = port.readers[slot] - 1
        if left < 0:
            raise InternalError(f"slot {slot} of register {port.register} was given back more often than handed out")
        port.readers[slot] = left
        self.reading -= 1
        if left == 0:
            self._make_free(port, slot)
            keeps = port.keeps
            if keeps is not None:
                self.thread.send(keeps.acks[port.lent[slot]], port.ordered)

    def _make_free(self, port: OutputPort, slot: int) -> None:
        port.free.append(slot)
        if len(port.free) == 1:
            self.ready_outputs += 1

    def _exhausted(self) -> bool:
        """Return whether the actor can never act again: its buffer or an input has ended and is drained."""
        if self.buffer is not None and self.buffer.ended():
            return True
        return self.ending and any([port.ended and not port.fifo for port in self.inputs])

    def _end(self) -> None:
        self.zombie = True
        for source in self.inputs:
            while source.fifo:
                self.thread.send(source.acks[source.fifo.popleft()], True)
        for port in self.outputs:
            for message in port.ends:
                self.thread.send(message, True)
