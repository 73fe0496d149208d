"""`GraphRuntime` runs a plan on a virtual machine: the actors decide, and what they do are instructions.

Each act of an actor is an instruction on the stream of its thread.  It has no operands: that it may run is known from
the messages.  When it has run, its messages go out and further acts are issued.  The core that decides is pure (see
`graph_mode.actors`); it is driven under a lock by whoever brings the news.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np

from vmflow.instructions.blob import Array
from vmflow.instructions.failure import Failure
from vmflow.instructions.instruction import Instruction
from vmflow.instructions.policy import InstructionPolicy
from vmflow.interpreter import eagerly
from vmflow.scopes import scope
from vmflow.streams import Stream
from vmflow.tensors import Tensor

from .actors import Action, ActorSystem
from .job import Job
from .launch import Launch
from .plan import Plan
from .program import Environment, Program, ProgramError, array_at, place_one_after_other

if TYPE_CHECKING:
    from vmflow.vm.virtual_machine import VirtualMachine

_OWN_THREADS: Final = frozenset({"source", "sink"})


@final
class ActorAct(InstructionPolicy):
    """What an actor has decided to do."""

    __slots__ = ("action", "name", "runtime", "thread")

    droppable = False  # actors wait for each other
    touches_memory = True

    def __init__(self, runtime: GraphRuntime, thread: int, action: Action, name: str) -> None:
        self.runtime = runtime
        self.thread = thread
        self.action = action
        self.name = name

    def compute(self) -> None:
        self.runtime.act(self.thread, self.action)

    def fail(self, failure: Failure) -> None:
        self.runtime.fail_act(self.thread, failure)


@final
class JobQueue:
    """Which graph runs on a machine.  Launches of one graph overlap; those of another wait until it has ended."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: deque[tuple[GraphRuntime, Launch]] = deque()
        self._running: GraphRuntime | None = None
        self._in_flight = 0

    def enter(self, runtime: GraphRuntime, launch: Launch) -> None:
        """Start this launch as soon as those before it allow."""
        with self._lock:
            self._waiting.append((runtime, launch))
        self.advance()

    def leave(self) -> None:
        """A launch has ended."""
        with self._lock:
            self._in_flight -= 1
            if self._in_flight == 0:
                self._running = None
        self.advance()

    def advance(self) -> None:
        """Start what can start."""
        while True:
            with self._lock:
                if not self._waiting:
                    return
                runtime, launch = self._waiting[0]
                dead = launch.failure is not None
                if not (dead or launch.opened):
                    return
                if not dead:
                    if self._in_flight and (self._running is not runtime or self._in_flight >= runtime.at_once):
                        return
                    self._running = runtime
                    self._in_flight += 1
                self._waiting.popleft()
            if dead:
                launch.finish()
            else:
                runtime.start(launch)


_queues: weakref.WeakKeyDictionary[Any, JobQueue] = weakref.WeakKeyDictionary()
_queues_lock = threading.Lock()


def queue_of(machine: VirtualMachine) -> JobQueue:
    """The machine's."""
    with _queues_lock:
        found = _queues.get(machine)
        if found is None:
            found = _queues[machine] = JobQueue()
        return found


@final
class GraphRuntime:
    """A plan, ready to be launched.

    Args:
        machine: on whose streams it runs.
        job, plan: what.
        bindings: by buffer, the tensors that share the memory of variables.

    Attributes:
        name: of the graph.
        at_once: how many launches may be under way.
        memory: tensors of bytes: the arenas and the registers.
        written: the buffers of the variables that it changes, and `read` those it reads only.
    """

    def __init__(
        self,
        machine: VirtualMachine,
        job: Job,
        plan: Plan,
        bindings: Mapping[int, Tensor],
    ) -> None:
        self.name = job.name
        self.machine = machine
        self.job = job
        self.plan = plan
        self.bindings = bindings
        self.at_once = plan.launches_at_once
        changed = job.written()
        self.written = [it for it in bindings if it in changed]
        self.read = [it for it in bindings if it not in changed]
        self._queue = queue_of(machine)
        self._lock = threading.Lock()
        self._again = False
        self._streams: dict[int, Stream] = {}
        self._outstanding: dict[int, deque[Action]] = {}
        self._programs: dict[tuple[Any, ...], Program] = {}
        self._launches: deque[Launch] = deque()
        # By task, how often it has acted, and which launches are not through with it.
        self._acted: dict[int, int] = {}
        self._under_way: dict[int, Launch] = {}
        self._started = 0
        self._finished = 0
        self._tasks = {task.id: task for task in plan.tasks}
        self.memory: dict[tuple[str, int, int], Tensor] = {}
        self._allocate()
        self.system = ActorSystem(plan.tasks, plan.registers, self._acts(), checked=True)
        for thread in self.system.threads:
            self._outstanding[thread] = deque()
        self.system.construct()
        self._run_commands()
        self.system.start()

    def _allocate(self) -> None:
        from vmflow import dtypes
        from vmflow.ops.creation import empty

        # Both outlive the scope around.
        with scope(shield=True), eagerly():
            for task, chain in self.plan.chains.items():
                if chain.arena.nbytes:
                    self.memory["arena", task, 0] = empty(chain.arena.nbytes, dtype=dtypes.uint8, device=chain.device)
            for register in self.plan.registers:
                contents = self.plan.contents.get(register.id)
                for slot in range(register.count if contents is not None and contents.nbytes else 0):
                    assert contents is not None
                    made = empty(contents.nbytes, dtype=dtypes.uint8, device=contents.device)
                    self.memory["register", register.id, slot] = made

    def _acts(self) -> dict[int, Any]:
        acts: dict[int, Any] = {task: self._run_chain for task in self.plan.chains}
        acts.update({task: self._run_gathering for task in self.plan.gathers})
        return acts

    def _run_commands(self) -> None:
        for thread in self.system.threads:
            while self.system.has_work(thread):
                self.system.turn(thread)

    # Launching

    def launch(self, launch: Launch) -> None:
        """Start it when those before it allow."""
        self._queue.enter(self, launch)

    def opened(self) -> None:
        """The arguments of a launch are there."""
        self._queue.advance()

    def start(self, launch: Launch) -> None:
        """Called by the queue."""
        with self._lock:
            self._under_way[self._started] = launch
            self._started += 1
            self.system.launch(launch)
        self._pump()

    def close(self) -> None:
        """Launch nothing any more; what was launched still runs."""
        with self._lock:
            self.system.close()
        self._pump()

    # Driving

    def _pump(self) -> None:
        """Let the actors decide, until there is nothing to decide."""
        self._again = True
        # Whoever holds the lock sees the flag, or has let go of it before it was set.
        while self._again and self._lock.acquire(blocking=False):
            ended: list[Launch] = []
            try:
                self._again = False
                self._turns(ended)
            finally:
                self._lock.release()
            for launch in ended:
                launch.finish()
                self._queue.leave()

    def _turns(self, ended: list[Launch]) -> None:
        system = self.system
        busy = True
        while busy:
            busy = False
            for thread in system.threads:
                while system.has_work(thread):
                    busy = True
                    for action in system.turn(thread):
                        self._begin(thread, action, ended)

    def _begin(self, thread: int, action: Action, ended: list[Launch]) -> None:
        outstanding = self._outstanding[thread]
        if action.run is not None:
            assert action.actor is not None
            outstanding.append(action)
            self._issue(thread, action)
            return
        if isinstance(action.item, Launch) and self._tasks[action.actor.id if action.actor else -1].name == "sink":
            ended.append(action.item)
            del self._under_way[self._finished]
            self._finished += 1
        if outstanding:
            outstanding.append(action)  # its turn comes when those before it have ended
        else:
            self.system.completed(thread)

    def _issue(self, thread: int, action: Action) -> None:
        task = action.actor.id  # type: ignore[union-attr]
        chain = self.plan.chains.get(task)
        stream = self._streams.get(task)
        if stream is None:
            if chain is not None:
                stream = self.machine.stream(chain.device, chain.stream)
            else:
                contents = self.plan.contents[self._tasks[task].all_produced()[0]]
                stream = self.machine.stream(contents.device)
            self._streams[task] = stream
        policy = ActorAct(self, thread, action, f"{self.name}: {self._tasks[task].name}")
        self.machine.issue_from_within(Instruction(stream, policy, (), (), chain.cost if chain is not None else 0))

    def act(self, thread: int, action: Action) -> None:
        """Do what was decided; called by the instruction."""
        assert action.run is not None
        try:
            action.run(action)
        finally:
            self._ended(thread)

    def fail_act(self, thread: int, failure: Failure) -> None:
        """It will not be done: the machine has been closed.  Nothing more will run."""
        with self._lock:
            doomed = list(self._under_way.values())
            self._under_way.clear()
        for launch in doomed:
            launch.fail(failure)
            launch.finish()

    def _ended(self, thread: int) -> None:
        with self._lock:
            outstanding = self._outstanding[thread]
            outstanding.popleft()
            count = 1
            while outstanding and outstanding[0].run is None:
                outstanding.popleft()
                count += 1
            self.system.completed(thread, count)
        self._pump()

    # Acting

    def _launch_of(self, task: int, period: int) -> tuple[Launch, int]:
        """The launch, and the micro-batch, that the next act of a task is of."""
        number = self._acted.get(task, 0)
        self._acted[task] = number + 1
        return self._under_way[number // period], number % period

    def _run_chain(self, action: Action) -> None:
        task = action.actor.id  # type: ignore[union-attr]
        chain = self.plan.chains[task]
        period = self.job.micro_batches if chain.micro else 1
        launch, micro = self._launch_of(task, period)
        if launch.failure is not None:
            return
        program = self._program(task, action)
        try:
            program.run(launch, micro)
        except ProgramError as error:
            launch.fail(self._failure(error))

    def _failure(self, failed: ProgramError) -> Failure:
        op, error = failed.op, failed.error
        inputs = ", ".join([repr(operand.meta) for operand in op.inputs])
        error.add_note(f"while running {op.op}({inputs}) of graph {self.name!r}")
        error.add_note(f"which was built at {op.line}")
        if op.module:
            error.add_note(f"in module {op.module}")
        failure = Failure(error)
        self.machine.remember(failure)
        for operand in op.outputs:
            tensor = self.bindings.get(operand.buffer)
            if tensor is not None:
                tensor._blob.storage.failure = failure  # nobody knows how far the op has come
        return failure

    def _program(self, task: int, action: Action) -> Program:
        """The chain's program for these slots of its registers."""
        slots = (*action.inputs, *action.outputs)
        key = (task, *[slot.slot for slot in slots])
        found = self._programs.get(key)
        if found is None:
            chain = self.plan.chains[task]
            environment = Environment(self.job, self.bindings)
            if chain.arena.nbytes:
                environment.place(self.memory["arena", task, 0]._blob.storage.array, chain.arena.offsets)
            else:
                environment.place(np.empty(0, np.uint8), chain.arena.offsets)
            for slot in slots:
                for number, array in self._slot_arrays(slot.register, slot.slot).items():
                    environment.put(number, array)
            found = self._programs[key] = Program(chain, environment)
        return found

    def _slot_arrays(self, register: int, slot: int) -> dict[int, Array]:
        contents = self.plan.contents[register]
        metas = [self.job.buffers[it].meta for it in contents.buffers]
        made = self.memory.get(("register", register, slot))
        memory = made._blob.storage.array if made is not None else np.empty(0, np.uint8)
        offsets = place_one_after_other(metas)
        return {
            number: array_at(memory, offset, each)
            for number, offset, each in zip(contents.buffers, offsets, metas, strict=True)
        }

    def _run_gathering(self, action: Action) -> None:
        task = action.actor.id  # type: ignore[union-attr]
        op = self.job.ops[self.plan.gathers[task]]
        count = self.job.micro_batches
        launch, _ = self._launch_of(task, count)
        if launch.failure is not None:
            return
        source, target = action.inputs[0], action.outputs[0]
        read = self._slot_arrays(source.register, source.slot)
        written = self._slot_arrays(target.register, target.slot)
        for given, made in zip(op.inputs, op.outputs, strict=True):
            gather(op.kind, read[given.buffer], written[made.buffer], action.index, count)


def gather(kind: str, read: Array, written: Array, index: int, count: int) -> None:
    """One step of unpacking, accumulating or packing."""
    if kind == "unpack":
        size = len(read) // count
        np.copyto(written, read[index * size : (index + 1) * size])
    elif kind == "pack":
        parts = written.reshape(count, *read.shape)
        np.copyto(parts[index], read)
    elif index == 0:
        np.copyto(written, read)
    else:
        np.add(written, read, out=written)
