"""`Construction` makes the actors of a plan, and every message that the actors will ever send."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .actor import Actor, InputPort, OutputPort
from .buffers import CloseableBuffer
from .bus import Act, ActorThread, Bus, Post, RegisterSlot
from .descriptors import KINDS, Kind, RegisterDescriptor, TaskDescriptor
from .identifiers import rank_of, thread_of
from .light import LightActor
from .messages import EORD, FREE, FULL, NOBODY, Message, Receiver


class Construction:
    """The actors of one rank or of all, connected by their messages, and the buffers from which the actors take items.

    Args:
        tasks: the tasks of a plan that `checks.check` accepts.
        registers: the registers of the plan.
        acts: by the id of the task, the function that its acts run.
        post: hands messages from one thread to another; None to put them into the receiving thread's inbox directly.
        rank: the rank whose actors to make; None for all ranks.
        light: whether to make a `LightActor` for each task that allows it.

    Attributes:
        actors: the actors, by the id of the task.
        buffers: the buffers by name, in the order in which a launch fills them: wait ticks, callbacks, sources.
        slots: the slots of each register, by the register's id.
    """

    def __init__(
        self,
        tasks: Sequence[TaskDescriptor],
        registers: Sequence[RegisterDescriptor],
        acts: Mapping[int, Act],
        post: Post | None = None,
        rank: int | None = None,
        light: bool = True,
    ) -> None:
        self.tasks = {task.id: task for task in tasks}
        self.registers = {register.id: register for register in registers}
        self.bus = Bus(post)
        self.actors: dict[int, Receiver] = {}
        self.buffers: dict[str, CloseableBuffer] = {}
        self.slots = {
            register.id: tuple([RegisterSlot(register.id, slot) for slot in range(register.count)])
            for register in registers
        }
        self._inputs = {
            task.id: {register: port for port, register in enumerate(task.all_consumed())} for task in tasks
        }
        self._outputs = {
            task.id: {register: port for port, register in enumerate(task.all_produced())} for task in tasks
        }
        # A launch fills the buffers in this order: wait ticks first and sources last, so that no source begins a launch
        # before the other buffers have their item.
        kinds = [KINDS[task.kind] for task in tasks]
        for rule in (_is_wait_tick, _is_callback, _is_source):
            for task, kind in zip(tasks, kinds, strict=True):
                if rule(kind) and (rank is None or rank_of(task.id) == rank):
                    self.buffers[task.buffer] = CloseableBuffer(task.buffer)
        for task in tasks:
            if rank is None or rank_of(task.id) == rank:
                self._make(task, acts.get(task.id), light)
        for task in tasks:
            actor = self.actors.get(task.id)
            if isinstance(actor, LightActor):
                self._connect_light(actor, task)
            elif isinstance(actor, Actor):
                self._connect(actor, task)

    def message(self, kind: int, target: int, register: int, slot: int, near: bool = False) -> Message:
        """Make a message to an actor, of this construction or of another rank's.

        Raises:
            KeyError: if the plan has no such task, or the task has no such register.
        """
        port = (self._outputs if kind == FREE else self._inputs)[target][register]
        return Message(kind, thread_of(target), target, register, slot, self.actors.get(target, NOBODY), port, near)

    def _make(self, task: TaskDescriptor, run: Act | None, light: bool) -> None:
        thread = self.bus.thread(thread_of(task.id))
        kind = KINDS[task.kind]
        actor: Receiver
        if light and self._is_light(task, kind):
            actor = LightActor(
                task.id,
                thread,
                run,
                tuple(task.all_consumed()),
                tuple(task.all_produced()),
                tuple([self.slots[read][0] for read in task.all_consumed() if not self.registers[read].control]),
                tuple([self.slots[write][0] for write in task.all_produced() if not self.registers[write].control]),
            )
        else:
            actor = self._make_general(task, kind, thread, run)
        self.actors[task.id] = actor
        thread.add(actor)

    def _is_light(self, task: TaskDescriptor, kind: Kind) -> bool:
        """Whether a `LightActor` can run the task: among others, each of its registers has to have one slot."""
        if kind.buffered or kind.counts or not task.all_consumed():
            return False
        for register in task.all_consumed():
            descriptor = self.registers[register]
            if descriptor.count != 1 or KINDS[self.tasks[descriptor.producer].kind].repeats:
                return False
        produced = [self.registers[register] for register in task.all_produced()]
        in_place = sum([register.in_place is not None for register in produced])
        return all([register.count == 1 for register in produced]) and in_place <= 1

    def _make_general(self, task: TaskDescriptor, kind: Kind, thread: ActorThread, run: Act | None) -> Actor:
        buffer = self.buffers[task.buffer] if kind.buffered else None
        period = task.count if kind.gathers or kind.spreads else 1
        actor = Actor(task.id, thread, run, buffer, period, kind.gathers, kind.spreads)
        if buffer is not None:
            thread.sources.append(actor)
        kept = [self._kept_for(output, task, kind) for output in task.all_produced()]
        ports: dict[int, InputPort] = {}
        for register in task.all_consumed():
            source = InputPort(register, self.slots[register], register in kept)
            actor.inputs.append(source)
            ports[register] = source
            if not self.registers[register].control:
                actor.data_inputs.append(source)
        for register in task.all_produced():
            descriptor = self.registers[register]
            keeps = self._kept_for(register, task, kind)
            port = OutputPort(
                register,
                self.slots[register],
                None if keeps is None else ports[keeps],
                descriptor.in_place is not None,
            )
            actor.outputs.append(port)
            if not descriptor.control:
                actor.data_outputs.append(port)
        return actor

    def _kept_for(self, register: int, task: TaskDescriptor, kind: Kind) -> int | None:
        """The input register whose slots go back after those of this output, which shares or repeats them, or None."""
        descriptor = self.registers[register]
        if kind.repeats and not descriptor.control:
            return next(read for read in task.all_consumed() if not self.registers[read].control)
        return descriptor.in_place

    def _connect(self, actor: Actor, task: TaskDescriptor) -> None:
        times = task.count if KINDS[task.kind].repeats else 1
        for source in actor.inputs:
            source.connect(self._acks(task, source.register))
        for port in actor.outputs:
            fulls = [self._fulls(task, port.register, slot) for slot in range(len(port.slots))]
            port.connect(fulls, times, self._is_ordered(task, port.register), self._ends(task, port.register))

    def _connect_light(self, actor: LightActor, task: TaskDescriptor) -> None:
        fulls: list[Message] = []
        ends: list[Message] = []
        for number, register in enumerate(task.all_produced()):
            consumers = self.registers[register].consumers
            in_place = self.registers[register].in_place
            if in_place is not None and consumers:
                source = self._inputs[task.id][in_place]
                actor.lie_in_place(number, source, len(consumers), self._is_ordered(task, register))
            fulls += self._fulls(task, register, 0)
            ends += self._ends(task, register)
        actor.connect(fulls, [self._acks(task, read)[0] for read in task.all_consumed()], ends)

    def _is_ordered(self, task: TaskDescriptor, register: int) -> bool:
        return any([_near(task.id, consumer) for consumer in self.registers[register].consumers])

    def _fulls(self, task: TaskDescriptor, register: int, slot: int) -> list[Message]:
        consumers = self.registers[register].consumers
        return [self.message(FULL, consumer, register, slot, _near(task.id, consumer)) for consumer in consumers]

    def _ends(self, task: TaskDescriptor, register: int) -> list[Message]:
        consumers = self.registers[register].consumers
        return [self.message(EORD, consumer, register, 0, _near(task.id, consumer)) for consumer in consumers]

    def _acks(self, task: TaskDescriptor, register: int) -> list[Message]:
        """For each slot of a register that the task reads, the message that gives the slot back to its producer."""
        descriptor = self.registers[register]
        near = _near(task.id, descriptor.producer)
        return [self.message(FREE, descriptor.producer, register, index, near) for index in range(descriptor.count)]


def _near(one: int, other: int) -> bool:
    return thread_of(one) == thread_of(other)


def _is_wait_tick(kind: Kind) -> bool:
    return kind.buffered and not kind.source and not kind.sink


def _is_callback(kind: Kind) -> bool:
    return kind.buffered and kind.sink


def _is_source(kind: Kind) -> bool:
    return kind.buffered and kind.source
