"""Groups the ops of a job into tasks.

An op of a kind in `GATHERING` is a task by itself.  Other ops of one phase and stage that follow each other on one
stream are one task, a *chain*, which runs them without decisions in between.  A chain ends where another task has to
wait for it: so no chains wait for each other in a circle.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Final

import attrs

from vmflow.devices import device as Device
from vmflow.vm.stream_table import STAGE_PREFIX

from .actors import TaskId, ThreadId
from .actors.descriptors import ACC, PACK, UNPACK
from .actors.identifiers import DEVICE_TYPES
from .job import FEEDS, Job, JobOp, Operand

# By kind of an op that is a task by itself, the kind of the task.
GATHERING: Final[Mapping[str, str]] = {"accumulate": ACC, "pack": PACK, "unpack": UNPACK}


@attrs.define(eq=False)
class Task:
    """A task while it is being formed.

    Attributes:
        device: the device on which it runs.
        stream: the kind of stream on which it runs.
        phase: "micro" or "step", as in a `JobOp`.
        stage: the pipeline stage.
        backward: whether an op of the task belongs to the backward pass.
        op: the position in the job of the task's only op; None for a chain.
        ops: the positions of a chain's ops.
        closed: whether it takes no further op, since another task has to wait for it.
        inputs: buffers that it fills with arguments.
        numbers: buffers that it fills with the launch's numbers.
        outputs: positions of the job's outputs that it gives to the launch.
        reads: buffers that it uses and other tasks make.
        before: the tasks that have to wait until it has acted, since they write memory that it uses or read memory that
            it writes, which no register hands to them.
        id: the encoded `TaskId`.
    """

    device: Device
    stream: str
    phase: str
    stage: int = 0
    backward: bool = False
    op: int | None = None
    ops: list[int] = attrs.field(factory=list)
    closed: bool = False
    inputs: dict[int, None] = attrs.field(factory=dict)
    numbers: dict[int, None] = attrs.field(factory=dict)
    outputs: list[int] = attrs.field(factory=list)
    reads: dict[int, None] = attrs.field(factory=dict)
    before: dict[Task, None] = attrs.field(factory=dict)
    id: int = 0


def stream_of(op: JobOp) -> tuple[Device, str]:
    """The device and the kind of the stream on which an op runs."""
    device = op.outputs[0].meta.device
    if op.kind != "transfer":
        return device, "compute"
    source = op.inputs[0].meta.device
    return (device, "host_to_device") if source.type == "cpu" else (source, "device_to_host")


def goes_along(job: Job, op: JobOp) -> bool:
    """Whether an op copies a constant to a CUDA device, where the runtime puts constants itself."""
    if op.kind != "transfer" or op.outputs[0].meta.device.type != "cuda":
        return False
    return job.buffers[op.inputs[0].buffer].role == "constant"


def _stream_of_stage(job: Job, op: JobOp) -> tuple[Device, str]:
    """As `stream_of`, but "compute" if `goes_along` is true; in stages from 1 on, the stage's own kind instead of
    "compute", except for ops of `GATHERING`.
    """
    device, stream = stream_of(op)
    if goes_along(job, op):
        stream = "compute"
    if stream == "compute" and op.stage and op.kind not in GATHERING:
        stream = f"{STAGE_PREFIX}{op.stage}"
    return device, stream


def form_tasks(job: Job) -> tuple[list[Task], dict[int, Task]]:
    """The tasks of a job, in the order in which they begin, and by buffer, the task that makes the buffer."""
    forming = _Forming(job)
    fetched = 0
    for position, op in enumerate(job.ops):
        if op.kind == "fetch_output":
            forming.hand_out(fetched, op.inputs[0])
            fetched += 1
        elif op.kind not in FEEDS:
            forming.add(position, op)
    _number(forming.tasks)
    return forming.tasks, forming.makers


@attrs.define(eq=False)
class _Forming:
    """The tasks of a job while its ops are added to them in order.

    Attributes:
        job: the job.
        tasks: the tasks formed so far.
        makers: by buffer, the task that makes it.
    """

    job: Job
    tasks: list[Task] = attrs.field(factory=list)
    makers: dict[int, Task] = attrs.field(factory=dict)
    _chains: dict[tuple[Device, str, str, int], Task] = attrs.field(factory=dict)
    # For each buffer, the task that has written it last, and the tasks that have read it since.
    _writers: dict[int, Task] = attrs.field(factory=dict)
    _readers: defaultdict[int, dict[Task, None]] = attrs.field(factory=lambda: defaultdict(dict))

    def add(self, position: int, op: JobOp) -> None:
        """Add the next op of the job, at this position in it, to the task that it belongs to."""
        task = self._task_of(position, op)
        task.backward = task.backward or op.backward
        for buffer in op.reads():
            self._read(task, buffer)
        for buffer in op.writes():
            if self.job.buffers[buffer].role == "temporary" and buffer not in self.makers:
                self.makers[buffer] = task
            elif self.job.buffers[buffer].role == "temporary":
                self._need(task, buffer)
            self._write(task, buffer)

    def hand_out(self, number: int, operand: Operand) -> None:
        """Let the chain that made a result and wrote it last give it to the launch, else the "step" compute chain."""
        maker = self.makers.get(operand.buffer)
        if maker is None or maker.op is not None or self._writers.get(operand.buffer, maker) is not maker:
            fetcher = self._chain(operand.meta.device, "compute", "step", 0)
            self._read(fetcher, operand.buffer)
            fetcher.outputs.append(number)
        else:
            maker.outputs.append(number)

    def _task_of(self, position: int, op: JobOp) -> Task:
        """Put an op into a new task if its kind is in `GATHERING`, else into the open or a new chain of its stream,
        phase and stage; return the task.
        """
        device, stream = _stream_of_stage(self.job, op)
        if op.kind not in GATHERING:
            task = self._chain(device, stream, op.phase, op.stage)
            task.ops.append(position)
            return task
        for buffer in op.reads():
            if self.job.buffers[buffer].role == "input" and buffer not in self.makers:
                # A chain fills the buffer, since the task of an op of `GATHERING` reads registers only.
                feeder = self._chain(device, stream, "step", op.stage)
                feeder.inputs[buffer] = None
                self.makers[buffer] = feeder
        task = Task(device, stream, op.phase, op.stage, op=position)
        self.tasks.append(task)
        return task

    def _chain(self, device: Device, stream: str, phase: str, stage: int) -> Task:
        key = (device, stream, phase, stage)
        chain = self._chains.get(key)
        if chain is None or chain.closed:
            chain = self._chains[key] = Task(device, stream, phase, stage)
            self.tasks.append(chain)
        return chain

    def _need(self, task: Task, buffer: int) -> None:
        role = self.job.buffers[buffer].role
        if role == "input" and buffer not in self.makers:
            task.inputs[buffer] = None
        elif role == "number" and buffer not in self.makers:
            task.numbers[buffer] = None
        maker = self.makers.get(buffer)
        if maker is not None and maker is not task:
            maker.closed = True
            task.reads[buffer] = None

    def _read(self, task: Task, buffer: int) -> None:
        self._need(task, buffer)
        if buffer in self._writers:
            _wait(task, self._writers[buffer], self.makers.get(buffer))
        self._readers[buffer][task] = None

    def _write(self, task: Task, buffer: int) -> None:
        others = list(self._readers.pop(buffer, ()))
        if buffer in self._writers:
            others.append(self._writers[buffer])
        for other in others:
            _wait(task, other, self.makers.get(buffer))
        self._writers[buffer] = task


def _wait(task: Task, other: Task, maker: Task | None) -> None:
    """Let `task` act only after `other` has acted in the same launch.

    Nothing is to be done if `other` is `maker`, the task that makes the buffer in question: a register hands the buffer
    to `task`.  The compiler orders tasks of different phases and of `GATHERING`.
    """
    if other is task or other is maker or other.phase != task.phase or task.op is not None or other.op is not None:
        return
    other.closed = True
    other.before[task] = None


def _number(tasks: list[Task]) -> None:
    """Set the ids of tasks; each stream of a device is a thread of actors."""
    streams: dict[tuple[Device, str], int] = {}
    counts: defaultdict[ThreadId, int] = defaultdict(int)
    for task in tasks:
        stream = streams.setdefault((task.device, task.stream), len(streams))
        thread = ThreadId(0, DEVICE_TYPES.index(task.device.type), task.device.index or 0, stream)
        task.id = TaskId(thread, counts[thread]).encode()
        counts[thread] += 1
