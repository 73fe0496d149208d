"""`GraphRuntime` runs a plan on a virtual machine: actors decide, and their acts are instructions.

Each act that computes is an instruction on the stream of its actor's task.  The instruction has no operands, since the
actors' messages decide when it may run.  When it has run, further acts may be issued.  The actors (see
`graph_mode.actors`) have no thread of their own: threads that report events run the actors' decisions, one thread at a
time.

No thread waits for a runtime's lock.  A thread leaves its event in a queue and handles all events, unless another
thread is doing so; that thread looks at the queue again before it stops.

A plan of a single task without micro-batches, the common case, has no actors, unless `GraphConfig.actors` asks for one:
its launches run in order.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, final

from vmflow.errors import InternalError
from vmflow.instructions.failure import Failure
from vmflow.instructions.instruction import Instruction
from vmflow.streams import Stream
from vmflow.vm.turn_lock import TurnLock

from .actors import Action, ActorSystem
from .actors.bus import Act
from .actors.descriptors import CALLBACK_NOTIFY
from .actors.identifiers import thread_of
from .acts import ActorAct, GraphAct
from .calling import GraphCaller
from .job import Job
from .job_queue import queue_of
from .launch import Launch
from .plan import Plan
from .plan_memory import PlanMemory
from .program import ProgramError, ReplayFailed, Torn, note_op
from .single_task import SingleTask
from .tasks import stream_of

if TYPE_CHECKING:
    from vmflow.vm.virtual_machine import VirtualMachine


# A single task with a lower cost than this, in nanoseconds, locks its arguments until the run ends: an instruction that
# unlocks the arguments earlier would cost time, too.
_SHORT: Final = 20_000


@final
class Handle:
    """A weak reference to a runtime, to close the runtime without keeping it, and its machine, alive.

    The runtime keeps its handle alive: Python clears weak references that are garbage before it calls destructors.
    """

    __slots__ = ("_runtime",)

    def __init__(self, runtime: GraphRuntime) -> None:
        self._runtime = weakref.ref(runtime)

    def close(self) -> None:
        """See `GraphRuntime.close`."""
        runtime = self._runtime()
        if runtime is not None:
            runtime.close()

    def gone(self) -> bool:
        """Whether the runtime does not exist any more."""
        return self._runtime() is None


@final
class GraphRuntime:
    """A plan, ready to be launched.

    Args:
        machine: the machine on whose streams the tasks run.
        job: the job of the plan.
        plan: the plan.
        uses: how often a launch copies its arguments, or reads them in place; see `Launch`.
        actors: whether the single task of a plan gets an actor, too.
        tell: called with a sentence that says how a device runs the ops of a task; None to call nothing.

    Attributes:
        name: the name of the graph.
        handle: see `Handle`.
        at_once: the most launches that may run at the same time.
        memory: see `PlanMemory`.
        launching: the name of the instruction that starts a launch.
        launches: the stream of the instructions `LaunchLazyJob`.
        cost: the estimated nanoseconds of a `LaunchLazyJob`: the run's if it is short, else 0.
        short: whether a run of `single` is so short that its arguments need not be given back before its end.
        single: the only task of the plan; None if there are several or none, or the task has an actor or micro-batches.
        system: the actors; None without actors, and after an error of theirs or a fork has ended them.
        caller: see `GraphCaller`.
    """

    def __init__(
        self,
        machine: VirtualMachine,
        job: Job,
        plan: Plan,
        uses: int,
        actors: bool = False,
        tell: Callable[[str], None] | None = None,
    ) -> None:
        self.name = job.name
        self.handle = Handle(self)
        self.machine = machine
        self.job = job
        self.plan = plan
        self.at_once = plan.launches_at_once
        self.launches = machine.stream(plan.device, "lazy_job")
        self._free_streams: list[Stream] = []
        variables = {variable.id for variable in job.variables()}
        self._written = variables & job.written()
        self._queue = queue_of(machine)
        self._turn = TurnLock()
        self._again = False
        self._closing = False
        self._closed = False
        self._dead: Failure | None = None
        # Launches that were called and have not ended.
        self._open: set[Launch] = set()
        # Events to handle: a launch that was started, or the id of an actor thread whose oldest act has ended.
        self._events: deque[Launch | int] = deque()
        self._outstanding: dict[int, deque[Action]] = {}
        # The number of acts of each task so far; and the running launches, numbered as they were started.
        self._acted: dict[int, int] = {}
        self._running: dict[int, Launch] = {}
        self._started = 0
        self._finished = 0
        self._tasks = {task.id: task for task in plan.tasks}
        self._working = [*plan.chains, *plan.gathers]
        self._sinks = frozenset([task.id for task in plan.tasks if task.kind == CALLBACK_NOTIFY])
        self._streams = {task.id: self._stream_of(task.id) for task in plan.tasks if task.id in self._working}
        launches_ahead = any([stream.policy.launches_ahead for stream in self._streams.values()])
        self.memory = PlanMemory(job, plan, tell)
        self.single: SingleTask | None = None
        self.short = False
        self.cost = 0
        self.launching = f"launch_lazy_job: {self.name}"
        alone = len(plan.chains) == len(self._working) == 1 and not any([chain.micro for chain in plan.chains.values()])
        if alone and not actors:
            task, chain = next(iter(plan.chains.items()))
            program = partial(self.memory.program, task, None)
            name, stream = self._tasks[task].name, self._streams[task]
            self.single = SingleTask(self.name, name, program, stream, chain.cost, self._open)
            self.short = chain.cost < _SHORT
            self.cost = chain.cost if self.short else 0
        self.system: ActorSystem | None = None
        if self.single is None:
            self.system = self._actors(dict.fromkeys(self._working, self.act))
        self.caller = GraphCaller(machine, [operand.meta for operand in job.outputs], uses, self.single, launches_ahead)

    def _stream_of(self, task: int) -> Stream:
        chain = self.plan.chains.get(task)
        if chain is not None:
            return self.machine.stream(chain.device, chain.stream)
        return self.machine.stream(*stream_of(self.job.ops[self.plan.gathers[task]]))

    def _actors(self, acts: dict[int, Act]) -> ActorSystem:
        system = ActorSystem(self.plan.tasks, self.plan.registers, acts, checked=True)
        system.construct()
        for thread in system.threads:
            self._outstanding[thread] = deque()
            while system.has_work(thread):
                system.turn(thread)
        system.start()
        return system

    # Launching

    def usable(self) -> bool:
        """Whether the plan can be launched: not if the runtime was closed, or lacked memory."""
        return not self._closing and self.memory.usable()

    def section_stream(self) -> Stream:
        """A stream for the critical section that keeps others from writing a launch's arguments during its reads.

        Instructions of one stream end in order: on a shared stream, a launch's section could not end before those of
        earlier launches, which may have to wait for this launch in turn.
        """
        try:
            return self._free_streams.pop()
        except IndexError:
            known = self.machine.stream(self.plan.device, "critical_section")
            return Stream(known.name, known.device, known.policy)

    def expect(self, launch: Launch) -> bool:
        """Register a launch before it is issued; False if the runtime is closed, and another has to run the launch."""
        launch.report_to(self.over)
        self._open.add(launch)
        # `close` sets `_closing`, then looks for launches; here the launch is added, then `_closing` is read.  So one
        # of them sees the other.
        if not self._closing:
            return True
        self.over(launch)
        return False

    def over(self, launch: Launch) -> None:
        """Forget a launch that has ended, or was never issued, and let launches that wait for it start."""
        self._open.discard(launch)
        if launch.stream is not None:
            self._free_streams.append(launch.stream)
        if launch.started:
            self._queue.leave()
        if self._closing and not self._open:
            self._pump()

    def launch(self, launch: Launch) -> None:
        """Start a launch as soon as its arguments are available and the launches before it allow."""
        self._queue.enter(self, launch)

    def opened(self) -> None:
        """Start the launches that can start, since arguments have become available or have failed."""
        self._queue.advance()

    def start(self, launch: Launch) -> None:
        """Start a launch; the `JobQueue` calls this."""
        single = self.single
        if single is None:
            try:
                launch.fetch()
            except Exception as error:  # no memory for a copy
                self.fetching_failed(launch, error)
            self._events.append(launch)
            self._pump()
        elif self.machine.closed:
            launch.fail(self.machine.lifecycle.closed_failure())
            launch.finish()
        else:
            # Run here only if no other launch is running, which might compute this launch's arguments, or change them.
            if self.short and self._queue.has_one() and self.machine.would_run_here(single.stream, single.cost):
                single.act(self, launch)  # saves the time to issue an instruction
                return
            act = GraphAct(self, single, launch)
            self.machine.issue_from_within(Instruction(single.stream, act, (), (), single.cost))

    def close(self) -> None:
        """Launch nothing more, and release the memory when earlier launches have ended.

        May be called from anywhere, also by destructors.
        """
        self._refuse()
        if not self._open:
            self._pump()

    def _refuse(self) -> None:
        self._closing = True
        self.caller.close()
        if self.single is not None:
            self.single.close()

    # Driving

    def _pump(self) -> None:
        """Handle events and let the actors decide until nothing is left, unless another thread does so already."""
        self._again = True
        # If another thread holds the turn now, it reads `_again` after it has released the turn.
        while self._again and self._turn.acquire(blocking=False):
            ended: list[Launch] = []
            try:
                self._again = False
                self._handle_events(ended)
            except Exception as error:
                # The actors' state is unknown: fail all launches, and ask the actors nothing more.
                self._dead = Failure(error)
                self._refuse()
                self.system = None
                raise
            finally:
                self._turn.release()
                # Before `_fail_all`, which must not fail these launches: they have ended.
                for launch in ended:
                    launch.finish()
                if self._dead is not None:
                    self._fail_all(self._dead)

    def renew(self) -> None:
        """Free the runtime's lock in a forked child, and handle events that are left; see `TurnLock.renew`."""
        self._turn.renew()
        if self._again:
            self._pump()

    def abandon(self, failure: Failure) -> None:
        """If launches are open in a forked child, where threads may be missing, fail them and refuse further ones."""
        if not self._open:
            return
        self._dead = failure
        self._refuse()
        self.system = None
        for launch in self._open:
            launch.renew()
        self._fail_all(failure)
        self._open.clear()

    def _handle_events(self, ended: list[Launch]) -> None:
        system, events = self.system, self._events
        if system is None:
            # Only actors handle events.  A single task has no actor, or an error or a fork has dropped the actors.
            events.clear()
            self._running.clear()
            if self._closing and not self._open:
                self._forget()
            return
        while events:
            event = events.popleft()
            if self._dead is not None:
                continue
            if isinstance(event, Launch):
                self._running[self._started] = event
                self._started += 1
                system.launch(event)
            else:
                self._completed(system, event)
            self._turns(system, ended)
        if self._dead is not None:
            self._end_actors(system, self._dead)
        if self._closing and not self._open and not self._closed:
            self._closed = True
            system.close()
            self._turns(system, ended)
        if self._closed and system.ended():
            self._forget()

    def _forget(self) -> None:
        """Release the memory, which must not wait until the garbage collector breaks the cycle of runtime and acts."""
        if self.single is not None:
            self.single.forget()
        self.memory.forget()

    def _turns(self, system: ActorSystem, ended: list[Launch]) -> None:
        busy = True
        while busy:
            busy = False
            for thread in self._outstanding:
                while system.has_work(thread):
                    busy = True
                    for action in system.turn(thread):
                        self._begin(system, thread, action, ended)

    def _begin(self, system: ActorSystem, thread: int, action: Action, ended: list[Launch]) -> None:
        outstanding = self._outstanding[thread]
        if action.run is not None:
            outstanding.append(action)
            self._issue(action)
            return
        if isinstance(action.item, Launch) and action.actor is not None and action.actor.id in self._sinks:
            ended.append(action.item)
            del self._running[self._finished]
            self._finished += 1
        if outstanding:
            outstanding.append(action)  # the action is reported when the thread's earlier actions have ended
        else:
            system.completed(thread)

    def _issue(self, action: Action) -> None:
        if self.machine.closed and self._dead is None:
            self._dead = self.machine.lifecycle.closed_failure()
        if self._dead is not None:
            return
        task = action.actor.id  # type: ignore[union-attr]
        chain = self.plan.chains.get(task)
        stream = self._streams[task]
        policy = ActorAct(self, action, f"{self.name}: {self._tasks[task].name}", stream.policy.launches_ahead)
        self.machine.issue_from_within(Instruction(stream, policy, (), (), chain.cost if chain is not None else 0))

    def _completed(self, system: ActorSystem, thread: int) -> None:
        """Tell the actors that a thread's oldest act has ended, with the actions right behind it that run nothing."""
        outstanding = self._outstanding[thread]
        outstanding.popleft()
        count = 1
        while outstanding and outstanding[0].run is None:
            outstanding.popleft()
            count += 1
        system.completed(thread, count)

    # The ends of acts

    def act(self, action: Action) -> Launch | None:
        """Run an action, unless its launch has failed; called by the instruction, which calls `ended` afterwards.

        Returns:
            The launch to which the action belongs; None if the machine's end or an error of the actors has dropped all
            launches.
        """
        task = action.actor.id  # type: ignore[union-attr]
        launch, micro = self._launch_of(task)
        if launch is not None:
            self._do(task, action, launch, micro)
        return launch

    def ended(self, action: Action) -> None:
        """Note that an act has ended."""
        self._ended(thread_of(action.actor.id))  # type: ignore[union-attr]

    def tear(self, launch: Launch, failure: Failure) -> None:
        """Fail a launch after a device's failure, and poison the variables that it writes, whose state is unknown."""
        for number in self._written:
            launch.variables[number].poison(failure)
        launch.fail(self._remembered(failure))

    def _do(self, task: int, action: Action, launch: Launch, micro: int) -> None:
        if launch.failure is not None:
            return
        try:
            if task in self.plan.chains:
                self.memory.program(task, action).run(launch, micro)
            else:
                self.memory.gather(task, action)
        except BaseException as error:
            self.running_failed(launch, error, self._tasks[task].name)

    def fail_act(self, action: Action, failure: Failure) -> None:
        """Fail the launch of an action whose device has failed, or all launches if the machine is closed."""
        if self.machine.closed:
            self._dead = failure
            self._pump()
            return
        task = action.actor.id  # type: ignore[union-attr]
        launch, _ = self._launch_of(task)
        if launch is not None:
            launch.fail(failure)
        self._ended(thread_of(task))

    def _ended(self, thread: int) -> None:
        self._events.append(thread)
        self._pump()

    def _launch_of(self, task: int) -> tuple[Launch | None, int]:
        """Count the next act of a task, and return its launch and micro-batch; None if all launches were dropped."""
        number = self._acted.get(task, 0)
        self._acted[task] = number + 1
        period = self._period(task)
        launch = self._running.get(number // period)
        if launch is None and self._dead is None:
            raise InternalError(f"{self._tasks[task].name} of graph {self.name!r} acts for no launch")
        return launch, number % period

    def _period(self, task: int) -> int:
        chain = self.plan.chains.get(task)
        return self.job.micro_batches if chain is None or chain.micro else 1

    # The end of the machine

    def _end_actors(self, system: ActorSystem, failure: Failure) -> None:
        """Fail the running launches after the machine's end, and end the actors as if all acts had run."""
        self._refuse()
        self._closed = True
        for launch in self._running.values():
            # The launches fail first: acts that still run may fail, too, and the caller shall not see their errors.
            launch.fail(failure)
        self._running.clear()
        system.close()
        busy = True
        while busy:
            busy = False
            for thread, outstanding in self._outstanding.items():
                if outstanding:
                    busy = True
                    system.completed(thread, len(outstanding))
                    outstanding.clear()
                while system.has_work(thread):
                    busy = True
                    outstanding.extend(system.turn(thread))

    def _fail_all(self, failure: Failure) -> None:
        """Fail and finish all launches that have not ended, and poison the variables that begun ones write."""
        for launch in list(self._open):
            # A launch without `over_to` runs within its call, and is never started by the queue.
            if (launch.started or launch.over_to is None) and not launch.over:
                for number in self._written:
                    launch.variables[number].poison(failure)  # their content is unknown
            launch.fail(failure)
            launch.finish()

    # Failures

    def fetching_failed(self, launch: Launch, error: Exception) -> None:
        """Fail a launch whose arguments could not be fetched."""
        error.add_note(f"while fetching the arguments of graph {self.name!r}")
        launch.fail(self._remembered(Failure(error)))

    def running_failed(self, launch: Launch, error: BaseException, task: str) -> None:
        """Fail a launch whose work has raised; raises the error again if it is no `Exception`."""
        if isinstance(error, ProgramError):
            launch.fail(self._failure(error, launch))
        elif isinstance(error, Torn):
            launch.fail(error.failure)
        elif isinstance(error, ReplayFailed):
            error.error.add_note(f"while running {task} of graph {self.name!r}")
            self.tear(launch, Failure(error.error))
        else:
            error.add_note(f"while running {task} of graph {self.name!r}")
            launch.fail(self._remembered(Failure(error)))
            if not isinstance(error, Exception):
                raise error

    def _failure(self, failed: ProgramError, launch: Launch) -> Failure:
        op, error = failed.op, failed.error
        note_op(op, self.name, error)
        failure = self._remembered(Failure(error))
        for operand in op.outputs:
            storage = launch.variables.get(operand.buffer)
            if storage is not None:
                storage.poison(failure)  # the op may have written a part of its results
        return failure

    def _remembered(self, failure: Failure) -> Failure:
        self.machine.remember(failure)
        return failure
