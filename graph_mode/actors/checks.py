"""`check` refuses plans of actors that cannot run, before they start.

Faults of one task or register show in their descriptors.  To find whether the registers have enough slots, `check`
runs the plan's own actors with empty acts for one full period.  Actors are determinate: if one order of events
completes a period, every order completes every period; if one order gets stuck, all do.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import lcm

from vmflow.errors import InternalError

from .construction import Construction
from .descriptors import IDENTITY, IN_CONTROL, KINDS, RegisterDescriptor, TaskDescriptor
from .identifiers import decode_task
from .messages import CONSTRUCT, START
from .stalls import describe, find_cycle


def check(tasks: Sequence[TaskDescriptor], registers: Sequence[RegisterDescriptor]) -> None:
    """Check that a plan of tasks and registers can run: ids, connections, kinds, shared memory, and no deadlock.

    Raises:
        ValueError: if the plan cannot run; the message says why.
    """
    plan = Plan(tasks, registers)
    plan.check_numbers()
    plan.check_connections()
    for task in tasks:
        plan.check_kind(task)
    for register in registers:
        if register.in_place is not None:
            plan.check_in_place(register, register.in_place)
    plan.check_liveness()


class Plan:
    """The tasks and registers of a plan by id, and the checks that `check` makes of them."""

    def __init__(self, tasks: Sequence[TaskDescriptor], registers: Sequence[RegisterDescriptor]) -> None:
        self.sequence = (tasks, registers)
        self.tasks = {task.id: task for task in tasks}
        self.registers = {register.id: register for register in registers}

    def check_numbers(self) -> None:
        """Check that ids are unique and well formed, counts are at least 1, and kinds exist."""
        tasks, registers = self.sequence
        for task in tasks:
            decode_task(task.id)
            if task.kind not in KINDS:
                raise ValueError(f"task {task.id} is of the kind {task.kind!r}, but there are only {sorted(KINDS)}")
            if task.count < 1:
                raise ValueError(f"{task} has the count {task.count}; it must be at least 1")
        for register in registers:
            if register.id < 0:
                raise ValueError(f"a register has the id {register.id}; it must be at least 0")
            if register.count < 1:
                raise ValueError(f"register {register.id} has {register.count} slots; it must have at least 1")
        if len(self.tasks) != len(tasks):
            raise ValueError(f"tasks share the id {_twice([task.id for task in tasks])}; give each its own")
        if len(self.registers) != len(registers):
            raise ValueError(
                f"registers share the id {_twice([register.id for register in registers])}; give each its own"
            )

    def check_connections(self) -> None:
        """Check that tasks and registers agree about producers and consumers."""
        produced = {(task.id, register) for task in self.tasks.values() for register in task.all_produced()}
        consumed = {(task.id, register) for task in self.tasks.values() for register in task.all_consumed()}
        for task in self.tasks.values():
            ids = task.all_produced() + task.all_consumed()
            if len(set(ids)) != len(ids):
                raise ValueError(f"{task} names register {_twice(ids)} twice; it may produce or consume it once")
            for register in ids:
                if register not in self.registers:
                    raise ValueError(f"{task} names register {register}, which does not exist")
            for name, ids_of_name in task.consumed.items():
                for register in ids_of_name:
                    self._check_name(task, name, self.registers[register])
        for descriptor in self.registers.values():
            for task_id in (descriptor.producer, *descriptor.consumers):
                if task_id not in self.tasks:
                    raise ValueError(f"register {descriptor.id} names task {task_id}, which does not exist")
            if len(set(descriptor.consumers)) != len(descriptor.consumers):
                twice = self.tasks[_twice(list(descriptor.consumers))]
                raise ValueError(f"register {descriptor.id} names the consumer {twice} twice")
            if (descriptor.producer, descriptor.id) not in produced:
                producer = self.tasks[descriptor.producer]
                raise ValueError(f"register {descriptor.id} is to be produced by {producer}, which does not list it")
            for task_id in descriptor.consumers:
                if (task_id, descriptor.id) not in consumed:
                    raise ValueError(
                        f"register {descriptor.id} is to be consumed by {self.tasks[task_id]}, which does not list it"
                    )
        for task_id, register in sorted(produced):
            if self.registers[register].producer != task_id:
                other = self.tasks[self.registers[register].producer]
                raise ValueError(f"{self.tasks[task_id]} lists register {register}, which is produced by {other}")
        for task_id, register in sorted(consumed):
            if task_id not in self.registers[register].consumers:
                raise ValueError(f"{self.tasks[task_id]} consumes register {register}, which does not list it")

    def _check_name(self, task: TaskDescriptor, name: str, register: RegisterDescriptor) -> None:
        if (name == IN_CONTROL) != register.control:
            sort = "control" if register.control else "data"
            raise ValueError(
                f"{task} consumes register {register.id}, which is {sort}, under {name!r}; control registers, and no "
                f"others, belong under {IN_CONTROL!r}"
            )

    def check_kind(self, task: TaskDescriptor) -> None:
        """Check that a task has the inputs, outputs, count and buffer that its kind requires."""
        kind = KINDS[task.kind]
        if kind.source and task.all_consumed():
            raise ValueError(f"{task} is a source and cannot consume anything, but consumes {task.all_consumed()}")
        if not kind.source and not task.all_consumed():
            raise ValueError(f"{task} consumes nothing, so that it would never stop; only a source may do so")
        if kind.sink and task.all_produced():
            raise ValueError(f"{task} is a sink and cannot produce anything, but produces {task.all_produced()}")
        if kind.buffered != bool(task.buffer):
            needed = "needs the name of a buffer" if kind.buffered else f"cannot use the buffer {task.buffer!r}"
            raise ValueError(f"{task} {needed}")
        if kind.buffered:
            for other in self.tasks.values():
                if other is not task and other.buffer == task.buffer:
                    raise ValueError(f"{task} and {other} take from the same buffer {task.buffer!r}; give each its own")
        if kind.repeats or task.kind == IDENTITY:
            inputs, outputs = self._data(task.all_consumed()), self._data(task.all_produced())
            if len(inputs) != 1 or len(outputs) != 1:
                raise ValueError(
                    f"{task} must have one data input and one data output, but has {len(inputs)} and {len(outputs)}"
                )
            if task.kind == IDENTITY and outputs[0].count != task.count:
                raise ValueError(
                    f"{task} is to hold {task.count}, but its register {outputs[0].id} has {outputs[0].count} slots"
                )
        elif task.count != 1 and not kind.counts:
            raise ValueError(f"{task} has the count {task.count}, but its kind takes none")

    def _data(self, registers: list[int]) -> list[RegisterDescriptor]:
        return [self.registers[register] for register in registers if not self.registers[register].control]

    def check_in_place(self, register: RegisterDescriptor, peer: int) -> None:
        """Check that `register` may lie in the memory of register `peer`: kinds, slots and other readers."""
        task = self.tasks[register.producer]
        problem = f"register {register.id} of {task} cannot lie in register {peer}"
        if peer not in task.all_consumed():
            raise ValueError(f"{problem}, which the task does not consume")
        other = self.registers[peer]
        kind = KINDS[task.kind]
        if register.control or other.control:
            raise ValueError(f"{problem}: control registers have no memory")
        if not kind.in_place:
            raise ValueError(f"{problem}: tasks of this kind need memory of their own")
        if other.count != register.count:
            raise ValueError(
                f"{problem}: they have {register.count} and {other.count} slots, and must have equally many"
            )
        if KINDS[self.tasks[other.producer].kind].repeats:
            raise ValueError(f"{problem}, which is handed out several times over and must stay as it is")
        if [self.registers[output].in_place for output in task.all_produced()].count(peer) > 1:
            raise ValueError(f"{problem}: another output of the task lies there")
        # A repeat task only hands the register on, and does not write into it.
        if len(other.consumers) > 1 and not kind.repeats:
            readers = ", ".join([str(self.tasks[consumer]) for consumer in other.consumers if consumer != task.id])
            raise ValueError(f"{problem}, which has other readers: {readers}")

    def check_liveness(self) -> None:
        """Run one period of the plan with empty acts, to see whether its counts of slots suffice.

        Raises:
            ValueError: if tasks wait for each other in a circle (describes all waiting tasks), or rates do not match.
            InternalError: if the plan stops without a circle.
        """
        acts = self._acts_of_a_period()
        if not acts:
            return
        tasks, registers = self.sequence
        construction = Construction(tasks, registers, {})
        launches = max([acts[task.id] for task in tasks if KINDS[task.kind].buffered], default=0)
        for command in (CONSTRUCT, START):
            construction.bus.command(command)
        for buffer in construction.buffers.values():
            for _ in range(launches):
                buffer.put(None)
        busy = True
        while busy:
            busy = False
            for thread in construction.bus.threads.values():
                while thread.has_work():
                    thread.completed(len(thread.turn(1024)))
                    busy = True
        stuck = [task for task, actor in construction.actors.items() if actor.acted < acts[task]]
        if stuck:
            cycle = find_cycle(construction, stuck)
            if not cycle:
                raise InternalError(f"these actors have stopped without a circle:\n{describe(construction)}")
            circle = " -> ".join([str(self.tasks[task]) for task in [*cycle, *cycle[:1]]])
            raise ValueError(
                f"these tasks wait for each other in a circle, for want of slots or of a beginning: {circle}\n"
                f"after {launches} launches:\n{describe(construction)}"
            )

    def _acts_of_a_period(self) -> dict[int, int]:
        """Return by task the number of acts of one period: the fewest launches that return all actors to their first
        state.

        Raises:
            ValueError: if tasks act at rates that do not match, so that some would fall behind others for ever.
        """
        rates: dict[int, Fraction] = {}
        buffered = [task.id for task in self.tasks.values() if KINDS[task.kind].buffered]
        for begin in buffered + list(self.tasks):
            if begin not in rates:
                self._spread_rates(begin, rates)
        for task_id in buffered:
            if rates[task_id] != 1:
                raise ValueError(
                    f"{self.tasks[task_id]} acts {rates[task_id]} times for each item of {self.tasks[buffered[0]]}, "
                    "but a launch puts one item into each buffer"
                )
        groups = [rates[task.id] / _acts_of_a_group(task) for task in self.tasks.values()]
        launches = lcm(*[group.denominator for group in groups])
        return {task: int(rate * launches) for task, rate in rates.items()}

    def _spread_rates(self, begin: int, rates: dict[int, Fraction]) -> None:
        """Compute the rates (acts per act of task `begin`) of all tasks that registers connect with `begin`."""
        rates[begin] = Fraction(1)
        reached = [begin]
        while reached:
            task = self.tasks[reached.pop()]
            for register in map(self.registers.__getitem__, task.all_produced() + task.all_consumed()):
                producer = self.tasks[register.producer]
                for consumer in map(self.tasks.__getitem__, register.consumers):
                    self._balance(register, producer, consumer, rates, reached)

    def _balance(
        self,
        register: RegisterDescriptor,
        producer: TaskDescriptor,
        consumer: TaskDescriptor,
        rates: dict[int, Fraction],
        reached: list[int],
    ) -> None:
        per_act = _produced_per_act(producer) / _consumed_per_act(consumer)
        if producer.id in rates:
            expected = rates[producer.id] * per_act
            if consumer.id not in rates:
                rates[consumer.id] = expected
                reached.append(consumer.id)
            elif rates[consumer.id] != expected:
                raise ValueError(
                    f"{producer} and {consumer}, which reads its register {register.id}, have rates that do not match: "
                    f"the reader is ready for {rates[consumer.id]} acts when it has to act {expected} times; look at "
                    f"the counts of the tasks that accumulate, repeat, pack or unpack between them"
                )
        elif consumer.id in rates:
            rates[producer.id] = rates[consumer.id] / per_act
            reached.append(producer.id)


def _acts_of_a_group(task: TaskDescriptor) -> int:
    """The number of acts of a task that together read or write one slot; 1 for most kinds."""
    kind = KINDS[task.kind]
    return task.count if kind.gathers or kind.spreads else 1


def _produced_per_act(task: TaskDescriptor) -> Fraction:
    kind = KINDS[task.kind]
    if kind.repeats:
        return Fraction(task.count)
    return Fraction(1, task.count) if kind.gathers else Fraction(1)


def _consumed_per_act(task: TaskDescriptor) -> Fraction:
    return Fraction(1, task.count) if KINDS[task.kind].spreads else Fraction(1)


def _twice(ids: list[int]) -> int:
    """Return an id that occurs more than once in the list."""
    return next(id_ for number, id_ in enumerate(ids) if id_ in ids[:number])
