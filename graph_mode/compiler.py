"""Compiles a job to a plan: tasks, registers between them, and the layout of memory.

Temporary buffers and copied arguments that only one chain of ops uses (see `tasks`) lie in the chain's arena, except
results computed in the caller's memory; buffers that other tasks read lie in a register.  A register may have several
slots, so that its producer computes one launch while consumers still read the previous launch's slot.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Final

import attrs

from vmflow.devices import device as Device

from .actors import RegisterDescriptor, TaskDescriptor, TaskId, ThreadId, check
from .actors.descriptors import ACC, CALLBACK_NOTIFY, COMPUTE, IN_CONTROL, UNPACK, WAIT_AND_SEND_IDS
from .chain_memory import cost_of, lifetimes_of
from .job import Job
from .lifetimes import ALIGNMENT, aligned
from .memory_planning import lower_bound, plan
from .plan import Arena, ChainDescriptor, Plan, RegisterContents
from .tasks import GATHERING, Task, form_tasks, goes_along

# The most launches of a graph that run at the same time, and the slots of the register that the source task writes.
MOST_LAUNCHES: Final = 100

# An arena of at most its lower bound times this factor is good enough.  The search for a smaller one takes up to a
# second, and blocks the event loop of a coroutine that calls the graph.
_GOOD_ENOUGH: Final = 1.02

# An argument that is read in place is locked: others cannot write it.  It may be locked for this many nanoseconds per
# byte, by the estimated costs of ops; a chain that reads an argument for longer copies it.
_KEPT: Final = 10

# Arguments and results of at least this many bytes are used in the caller's memory if possible.  Smaller ones are
# copied, since their ops' kernel calls are then prepared once and not for each launch; see `Program`.
_LARGE: Final = 1 << 20

# The source task (begins launches) and the sink task (ends launches) of a plan are on no stream of tasks with ops.
_SOURCE_THREAD: Final = ThreadId(stream_index=1 << 14)
_SINK_THREAD: Final = ThreadId(stream_index=(1 << 14) + 1)
_SOURCE: Final = TaskId(_SOURCE_THREAD).encode()
_SINK: Final = TaskId(_SINK_THREAD).encode()

# The pacer task lets tasks of micro-batches that read no register act once per micro-batch; the counter task waits for
# all micro-batches of tasks without readers, and of tasks that have to end before the step.
_PACER: Final = TaskId(_SOURCE_THREAD, 1).encode()
_COUNTER: Final = TaskId(_SINK_THREAD, 1).encode()


def compile_job(job: Job, slots: int = 1) -> Plan:
    """Compile a job to a plan, without changing its ops.

    Args:
        job: the job, after all passes.
        slots: the least number of slots of each register, except for the source's.

    Raises:
        ValueError: if `slots` is less than 1, `Job.check` refuses the job, it lacks values or kernels, or the plan
            could not run, for instance since tasks wait for each other in a circle.
        NotImplementedError: if buffers are on several devices, a CUDA device among them; numbers, and constants that
            are only copied to CUDA devices, do not count.
    """
    if slots < 1:
        raise ValueError(f"the number of slots must be at least 1, not {slots}")
    _check_devices(job)
    job.check()
    _check_complete(job)
    tasks, makers = form_tasks(job)
    return _Linking(job, tasks, makers, slots).plan()


def _check_devices(job: Job) -> None:
    copied = {operand.buffer for op in job.ops if goes_along(job, op) for operand in op.inputs}
    others = {operand.buffer for op in job.ops if not goes_along(job, op) for operand in (*op.inputs, *op.outputs)}
    there = copied - others | set(job.numbers)
    devices = {buffer.meta.device for buffer in job.buffers.values() if buffer.id not in there}
    on_cuda = [device for device in devices if device.type == "cuda"]
    if on_cuda and len(devices) > 1:
        names = " and ".join(sorted(map(str, devices)))
        raise NotImplementedError(
            f"graph {job.name!r} has tensors on {names}, but a graph on a CUDA device cannot copy to or from others: "
            "move its module and its inputs to one device, and copy results after the call"
        )


def _check_complete(job: Job) -> None:
    """Raise ValueError if a job read from JSON lacks updates' kernels or constants' values, which JSON leaves out."""
    for position, op in enumerate(job.ops):
        if op.kind == "update" and op.update is None:
            raise ValueError(
                f"op {position} ({op.name}) of job {job.name!r} cannot run: its kernel is a Python function, which "
                "jobs written as text lack; build the graph again"
            )
    for buffer in job.buffers.values():
        if buffer.role == "constant" and buffer.id not in job.constants:
            raise ValueError(
                f"constant {buffer.id} ({buffer.name}) of job {job.name!r} has no value; give the values to from_json"
            )


# Registers


def _names_of_registers() -> defaultdict[int, dict[str, tuple[int, ...]]]:
    return defaultdict(dict)


@attrs.define(eq=False)
class _Linking:
    """Connects the tasks of a job by registers, and makes the plan.

    Attributes:
        job: the job.
        tasks: the tasks.
        makers: by buffer, the task that makes it.
        slots: the least number of slots of each register, except for the source's.
        registers: the registers made so far.
        contents: by id of a register that holds data, the register's buffers.
        produced: by task id, the registers that the task writes, by name.
        consumed: by task id, the registers that the task reads, by name.
    """

    job: Job
    tasks: list[Task]
    makers: dict[int, Task]
    slots: int
    registers: list[RegisterDescriptor] = attrs.field(factory=list, init=False)
    contents: dict[int, RegisterContents] = attrs.field(factory=dict, init=False)
    produced: defaultdict[int, dict[str, tuple[int, ...]]] = attrs.field(factory=_names_of_registers, init=False)
    consumed: defaultdict[int, dict[str, tuple[int, ...]]] = attrs.field(factory=_names_of_registers, init=False)

    def plan(self) -> Plan:
        """Make the plan of all tasks and registers, and check that it can run."""
        self._hand_over()
        for task in self.tasks:
            if task.before:
                self._order(task.id, tuple([earlier.id for earlier in task.before]), self.slots)
        self._begin_and_end()
        tasks = self._descriptors()
        check(tasks, self.registers)
        return Plan(
            self.job.name,
            tuple(tasks),
            tuple(self.registers),
            {task.id: self._chain(task) for task in self.tasks if task.op is None},
            {task.id: task.op for task in self.tasks if task.op is not None},
            self.contents,
            self.tasks[0].device if self.tasks else Device("cpu"),
            self._launches_at_once(),
        )

    def _hand_over(self) -> None:
        """Make the data registers, through which tasks read buffers that other tasks fill."""
        for maker, readers, buffers in self._shared():
            number = len(self.registers)
            self.registers.append(
                RegisterDescriptor(
                    number, maker.id, tuple([reader.id for reader in readers]), self._slots(maker, readers)
                )
            )
            self.contents[number] = self._contents(buffers)
            self.produced[maker.id][f"out{number}"] = (number,)
            for reader in readers:
                self.consumed[reader.id][f"in{number}"] = (number,)

    def _order(self, first: int, others: tuple[int, ...], slots: int) -> None:
        """Let the tasks `others` act only after the task `first`, by a control register of this many slots."""
        number = len(self.registers)
        self.registers.append(RegisterDescriptor(number, first, others, slots, control=True))
        self.produced[first]["out_control"] = (*self.produced[first].get("out_control", ()), number)
        for other in others:
            self.consumed[other][IN_CONTROL] = (*self.consumed[other].get(IN_CONTROL, ()), number)

    def _begin_and_end(self) -> None:
        """Order all tasks after the source and before the sink, where needed by way of a pacer or a counter."""
        idle = [task for task in self.tasks if not self.consumed[task.id]]
        paced = tuple([task.id for task in idle if self._is_micro(task)])
        counted = [
            task for task in self.tasks if (self._is_micro(task) or self._unpacks(task)) and not self.produced[task.id]
        ]
        early = self._to_end_before_the_step()
        counted += [task for task in early if task not in counted]
        if paced:
            self._order(_PACER, paced, self.slots)
        for task in counted:
            self._order(task.id, (_COUNTER,), self.slots)
        if counted:
            late = tuple(dict.fromkeys([task.id for tasks in early.values() for task in tasks]))
            self._order(_COUNTER, late or (_SINK,), self.slots)
        first = tuple([task.id for task in idle if task.id not in paced and not self.consumed[task.id]])
        first += (_PACER,) if paced else ()
        self._order(_SOURCE, first or (_SINK,), MOST_LAUNCHES)
        for task in self.tasks:
            # Tasks without readers have to end before the launch does, too.
            if not self.produced[task.id]:
                self._order(task.id, (_SINK,), self.slots)

    def _descriptors(self) -> list[TaskDescriptor]:
        """Make the descriptors of all tasks, including source, sink and any pacer and counter, which run no ops."""
        produced, consumed, count = self.produced, self.consumed, self.job.micro_batches
        tasks = [TaskDescriptor(_SOURCE, WAIT_AND_SEND_IDS, produced[_SOURCE], buffer="launches", name="source")]
        tasks += [self._descriptor(task, produced[task.id], consumed[task.id]) for task in self.tasks]
        if _PACER in produced:
            tasks.append(TaskDescriptor(_PACER, UNPACK, produced[_PACER], consumed[_PACER], count, name="pacer"))
        if _COUNTER in produced:
            tasks.append(TaskDescriptor(_COUNTER, ACC, produced[_COUNTER], consumed[_COUNTER], count, name="counter"))
        tasks.append(TaskDescriptor(_SINK, CALLBACK_NOTIFY, {}, consumed[_SINK], buffer="callbacks", name="sink"))
        return tasks

    def _slots(self, maker: Task, readers: list[Task]) -> int:
        """Return the number of slots of a register: the acts that the task `maker` may be ahead of `readers`.

        In a pipeline, each stage works on another launch (or micro-batch).  A result for a later stage waits for as
        many acts as the stages are apart; a result for a backward pass waits until the launch has been through all
        later stages and back.
        """
        last = max([task.stage for task in self.tasks])
        slots = self.slots
        for reader in readers:
            if maker.backward or not last:
                continue
            if reader.backward and maker.stage < last:
                slots = max(slots, 2 * (last + 1 - maker.stage))
            elif reader.stage > maker.stage:
                slots = max(slots, reader.stage - maker.stage + 1)
        return slots

    def _is_micro(self, task: Task) -> bool:
        return task.phase == "micro" and task.op is None and self.job.micro_batches > 1

    def _unpacks(self, task: Task) -> bool:
        return task.op is not None and self.job.ops[task.op].kind == "unpack"

    def _to_end_before_the_step(self) -> dict[Task, list[Task]]:
        """Return the tasks of micro-batches that use variables which the step changes, each with the tasks that change
        them.

        A pair is left out if the changing task reads an accumulated or packed result of the other: that orders both.
        """
        changes: defaultdict[int, list[Task]] = defaultdict(list)
        for task in self.tasks:
            for position in task.ops if task.phase == "step" else ():
                for buffer in self.job.ops[position].writes():
                    if self.job.buffers[buffer].role == "variable":
                        changes[buffer].append(task)
        early: dict[Task, list[Task]] = {}
        for task in self.tasks:
            ops = [self.job.ops[position] for position in task.ops] if self._is_micro(task) else []
            used = {buffer for op in ops for buffer in (*op.reads(), *op.writes())}
            late = [change for buffer in sorted(used & changes.keys()) for change in changes[buffer]]
            late = [step for step in dict.fromkeys(late) if not self._reaches(task, step)]
            if late:
                early[task] = late
        return early

    def _reaches(self, task: Task, step: Task) -> bool:
        """Whether `step`, a task of the phase "step", reads an accumulated or packed result of `task`."""
        between = [self.makers[buffer] for buffer in step.reads if self.makers[buffer].op is not None]
        return any([self.makers[buffer] is task for gather in between for buffer in gather.reads])

    def _launches_at_once(self) -> int:
        """Return how many launches may overlap: 1 if a task uses a variable that another task changes, else the
        maximum.

        With overlap, the using task could see the value that the next launch writes.
        """
        users: defaultdict[int, set[int]] = defaultdict(set)
        for task in self.tasks:
            for position in task.ops:
                op = self.job.ops[position]
                for buffer in (*op.reads(), *op.writes()):
                    users[buffer].add(task.id)
            for number in task.outputs:
                users[self.job.outputs[number].buffer].add(task.id)
        changed = self.job.written()
        apart = any([len(users[variable.id]) > 1 for variable in self.job.variables() if variable.id in changed])
        return 1 if apart else MOST_LAUNCHES

    def _shared(self) -> list[tuple[Task, list[Task], list[int]]]:
        """Return (maker, readers, buffers) for each data register: all buffers from one task to the same readers."""
        readers: defaultdict[int, list[Task]] = defaultdict(list)
        for task in self.tasks:
            for buffer in task.reads:
                readers[buffer].append(task)
        groups: dict[tuple[int, ...], tuple[Task, list[Task], list[int]]] = {}
        for buffer, tasks in readers.items():
            maker = self.makers[buffer]
            key = (maker.id, *[task.id for task in tasks])
            groups.setdefault(key, (maker, tasks, []))[2].append(buffer)
        return list(groups.values())

    def _contents(self, buffers: list[int]) -> RegisterContents:
        metas = [self.job.buffers[buffer].meta for buffer in buffers]
        return RegisterContents(
            tuple(buffers), metas[0].device, sum([aligned(meta.nbytes, ALIGNMENT) for meta in metas])
        )

    def _descriptor(
        self, task: Task, produced: dict[str, tuple[int, ...]], consumed: dict[str, tuple[int, ...]]
    ) -> TaskDescriptor:
        kind, count = COMPUTE, 1
        if task.op is not None:
            op = self.job.ops[task.op]
            kind, count = GATHERING[op.kind], self.job.micro_batches
            name = op.name
        else:
            names = [self.job.ops[position].name for position in task.ops]
            name = names[0] if len(names) == 1 else f"{len(names)} ops on {task.device} {task.stream}"
        return TaskDescriptor(task.id, kind, produced, consumed, count, name=name)

    # A chain's own memory

    def _chain(self, task: Task) -> ChainDescriptor:
        cost = 0
        for position in task.ops:
            cost += cost_of(self.job.ops[position])
        kept, direct = self._kept(task), self._direct(task)
        return ChainDescriptor(
            task.device,
            task.stream,
            tuple(task.ops),
            tuple(task.inputs),
            tuple(task.numbers),
            tuple(task.outputs),
            kept,
            direct,
            self._arena(task, {*kept, *[self.job.outputs[output].buffer for output in direct]}),
            cost,
            task.phase == "micro",
        )

    def _is_alone(self, task: Task) -> bool:
        """Whether a task may use the caller's memory: it is the only one, on the host, and runs once per launch."""
        return len(self.tasks) == 1 and task.device.type == "cpu" and not self._is_micro(task)

    def _kept(self, task: Task) -> tuple[int, ...]:
        """Return the one task's large arguments to read in the caller's memory: allowed by `_KEPT`, not written."""
        ops = [self.job.ops[position] for position in task.ops]
        fetched = {self.job.outputs[output].buffer for output in task.outputs}
        ends: dict[int, int] = {}
        cost = 0
        for op in ops:
            cost += cost_of(op)
            ends.update(dict.fromkeys(op.reads(), cost))
        ends.update(dict.fromkeys(fetched, cost))
        changed = {buffer for op in ops for buffer in op.writes()}
        metas = {
            operand: self.job.buffers[operand].meta
            for operand in task.inputs
            if self._is_alone(task) and operand not in changed
        }
        return tuple(
            [
                operand
                for operand, meta in metas.items()
                if meta.nbytes >= _LARGE and ends.get(operand, 0) <= _KEPT * meta.nbytes
            ]
        )

    def _direct(self, task: Task) -> tuple[int, ...]:
        """Return the positions of the one task's large outputs, whole temporaries, to make in the caller's memory."""
        direct: dict[int, int] = {}
        for number in task.outputs if self._is_alone(task) else ():
            operand = self.job.outputs[number]
            buffer = self.job.buffers[operand.buffer]
            whole = operand.strides is None or operand.strides == operand.meta.strides
            same = (operand.meta.numel, operand.meta.dtype) == (buffer.meta.numel, buffer.meta.dtype)
            if buffer.role == "temporary" and whole and same and buffer.meta.nbytes >= _LARGE:
                direct.setdefault(operand.buffer, number)
        return tuple(direct.values())

    def _arena(self, task: Task, elsewhere: set[int]) -> Arena:
        live = lifetimes_of(self.job, task, elsewhere.union(*[other.reads for other in self.tasks]))
        bound = lower_bound(live)
        layout = plan(live, search_steps=0)
        if layout.nbytes > _GOOD_ENOUGH * bound:
            layout = plan(live)
        total = sum([aligned(buffer.nbytes, ALIGNMENT) for buffer in live])
        return Arena(layout.nbytes, layout.offsets, bound, total, layout.strategy)
