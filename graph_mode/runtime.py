"""`GraphRuntime` runs a plan on a virtual machine: the actors decide, and what they do are instructions.

Each act of an actor is an instruction on the stream of its thread.  It has no operands: that it may run is known from
the messages.  When it has run, its messages go out and further acts are issued.  The core that decides is pure (see
`graph_mode.actors`); it is driven by whoever brings the news, one at a time.

Nobody waits here for a lock.  Who has news leaves it in a queue and sees to it if nobody else is at it; whoever is
looks again before he goes.  So news may come from anywhere: from a worker, a device's thread, a destructor.

A plan of a single task, as most are, has nothing to decide: it acts when it is launched, in the order of its stream.
It is launched, returns results and fails as any other, and with `GraphConfig.actors` it has actors, too.
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


# Runs of less, in nanoseconds, keep their arguments until they are over: an instruction more would take about as long.
_BRIEF: Final = 20_000


@final
class Handle:
    """By which a runtime is closed by those that must not keep it, and its machine, alive.

    The runtime holds it: a weak reference that is garbage itself would be dead when destructors come to it.
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
        """Whether there is no runtime any more."""
        return self._runtime() is None


@final
class GraphRuntime:
    """A plan, ready to be launched.

    Args:
        machine: on whose streams it runs.
        job, plan: to be run.
        uses: how often a launch reads arguments; see `Launch`.
        actors: whether also the single task of a plan gets an actor.
        tell: told, in a sentence, how a device runs the ops of a task; by default, nobody is.

    Attributes:
        name: of the graph.
        handle: see `Handle`.
        at_once: how many launches may be under way.
        memory: see `PlanMemory`.
        launching: what starting a run is called.
        launches: the stream on which runs are started.
        cost: nanoseconds that starting a run may take, since it may be the run.
        brief: whether a run takes so little time that its arguments need not be given back before its end.
        single: the task, if the plan has no other and needs no actor.
        system: the actors; None for a single task.
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
        # Launches that were called and are not over.
        self._open: set[Launch] = set()
        # What has happened: a launch was started, or an act of this thread has ended.
        self._news: deque[Launch | int] = deque()
        self._outstanding: dict[int, deque[Action]] = {}
        # By task, how often it has acted; and the launches that are not through, by their number.
        self._acted: dict[int, int] = {}
        self._under_way: dict[int, Launch] = {}
        self._started = 0
        self._finished = 0
        self._tasks = {task.id: task for task in plan.tasks}
        self._working = [*plan.chains, *plan.gathers]
        self._sinks = frozenset([task.id for task in plan.tasks if task.kind == CALLBACK_NOTIFY])
        self._streams = {task.id: self._stream_of(task.id) for task in plan.tasks if task.id in self._working}
        launches_ahead = any([stream.policy.launches_ahead for stream in self._streams.values()])
        self.memory = PlanMemory(job, plan, tell)
        self.single: SingleTask | None = None
        self.brief = False
        self.cost = 0
        self.launching = f"launch_lazy_job: {self.name}"
        alone = len(plan.chains) == len(self._working) == 1 and not any([it.micro for it in plan.chains.values()])
        if alone and not actors:
            task, chain = next(iter(plan.chains.items()))
            program = partial(self.memory.program, task, None)
            name, stream = self._tasks[task].name, self._streams[task]
            self.single = SingleTask(self.name, name, program, stream, chain.cost, self._open)
            self.brief = chain.cost < _BRIEF
            self.cost = chain.cost if self.brief else 0
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
        """Whether it can be launched: not if it was closed, or there was no memory for it."""
        return not self._closing and self.memory.usable()

    def section_stream(self) -> Stream:
        """A stream on which to hand over the arguments of one launch, for as long as that takes.

        What is on one stream ends in order; so a launch would keep the arguments of others, which it may have to wait
        for in turn.
        """
        try:
            return self._free_streams.pop()
        except IndexError:
            known = self.machine.stream(self.plan.device, "critical_section")
            return Stream(known.name, known.device, known.policy)

    def expect(self, launch: Launch) -> bool:
        """A launch is about to be issued; False if this has been closed, and it has to go elsewhere."""
        launch.report_to(self.over)
        self._open.add(launch)
        # Whoever closes says so first and looks for launches then: one of the two sees the other.
        if not self._closing:
            return True
        self.over(launch)
        return False

    def over(self, launch: Launch) -> None:
        """A launch has ended, or was never issued."""
        self._open.discard(launch)
        if launch.stream is not None:
            self._free_streams.append(launch.stream)
        if launch.started:
            self._queue.leave()
        if self._closing and not self._open:
            self._pump()

    def launch(self, launch: Launch) -> None:
        """Start it when those before it allow."""
        self._queue.enter(self, launch)

    def opened(self) -> None:
        """The arguments of a launch are there."""
        self._queue.advance()

    def start(self, launch: Launch) -> None:
        """Called by the queue."""
        single = self.single
        if single is None:
            try:
                launch.fetch()
            except Exception as error:  # no memory for a copy
                self.fetching_failed(launch, error)
            self._news.append(launch)
            self._pump()
        elif self.machine.closed:
            launch.fail(self.machine.lifecycle.closed_failure())
            launch.finish()
        else:
            # Not with others under way: what those are to compute may be its arguments, or what it changes.
            if self.brief and self._queue.has_one() and self.machine.would_run_here(single.stream, single.cost):
                single.act(self, launch)  # an instruction more would take longer than the run
                return
            act = GraphAct(self, single, launch)
            self.machine.issue_from_within(Instruction(single.stream, act, (), (), single.cost))

    def close(self) -> None:
        """Launch nothing any more; what was launched still runs.  From anywhere, also in the middle of anything."""
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
        """Let the actors decide, until there is nothing to decide."""
        self._again = True
        # Whose turn it is sees the flag, or has given it back before it was set.
        while self._again and self._turn.acquire(blocking=False):
            ended: list[Launch] = []
            try:
                self._again = False
                self._hear(ended)
            except Exception as error:
                # A contradiction among the actors: nobody may wait for them, nor ask them anything more.
                self._dead = Failure(error)
                self._refuse()
                self.system = None
                raise
            finally:
                self._turn.release()
                # First: these have ended well.
                for launch in ended:
                    launch.finish()
                if self._dead is not None:
                    self._bury(self._dead)

    def renew(self) -> None:
        """In a forked child: see `TurnLock.renew`."""
        self._turn.renew()
        if self._again:
            self._pump()

    def abandon(self, failure: Failure) -> None:
        """In a forked child: who was running a launch may not be here, and nobody can know how far it has come."""
        if not self._open:
            return
        self._dead = failure
        self._refuse()
        self.system = None
        for launch in self._open:
            launch.renew()
        self._bury(failure)
        self._open.clear()

    def _hear(self, ended: list[Launch]) -> None:
        system, news = self.system, self._news
        if system is None:
            # A single task has neither; of actors that contradict themselves, none are left.
            news.clear()
            self._under_way.clear()
            if self._closing and not self._open:
                self._forget()
            return
        while news:
            what = news.popleft()
            if self._dead is not None:
                continue
            if isinstance(what, Launch):
                self._under_way[self._started] = what
                self._started += 1
                system.launch(what)
            else:
                self._completed(system, what)
            self._turns(system, ended)
        if self._dead is not None:
            self._let_go(system, self._dead)
        if self._closing and not self._open and not self._closed:
            self._closed = True
            system.close()
            self._turns(system, ended)
        if self._closed and system.ended():
            self._forget()

    def _forget(self) -> None:
        """Give the memory back.  All this and the acts hold each other, and memory must not wait for the collector."""
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
            del self._under_way[self._finished]
            self._finished += 1
        if outstanding:
            outstanding.append(action)  # its turn comes when those before it have ended
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
        """The oldest act of a thread has ended, and with it what had nothing to run and came behind it."""
        outstanding = self._outstanding[thread]
        outstanding.popleft()
        count = 1
        while outstanding and outstanding[0].run is None:
            outstanding.popleft()
            count += 1
        system.completed(thread, count)

    # Acts that end

    def act(self, action: Action) -> Launch | None:
        """Do what was decided; called by the instruction, which says when it has `ended`.

        Returns:
            The launch for which it was done; None if all have been let go.
        """
        task = action.actor.id  # type: ignore[union-attr]
        launch, micro = self._launch_of(task)
        if launch is not None:
            self._do(task, action, launch, micro)
        return launch

    def ended(self, action: Action) -> None:
        """An act has ended."""
        self._ended(thread_of(action.actor.id))  # type: ignore[union-attr]

    def tear(self, launch: Launch, failure: Failure) -> None:
        """Something has gone wrong on a device: nobody can know what the variables hold that the launch writes."""
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
        """It will not be done: its device has failed, or the machine has been closed."""
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
        self._news.append(thread)
        self._pump()

    def _launch_of(self, task: int) -> tuple[Launch | None, int]:
        """The launch, and the micro-batch, that the next act of a task is of; no launch if all have been let go."""
        number = self._acted.get(task, 0)
        self._acted[task] = number + 1
        period = self._period(task)
        launch = self._under_way.get(number // period)
        if launch is None and self._dead is None:
            raise InternalError(f"{self._tasks[task].name} of graph {self.name!r} acts for no launch")
        return launch, number % period

    def _period(self, task: int) -> int:
        chain = self.plan.chains.get(task)
        return self.job.micro_batches if chain is None or chain.micro else 1

    # The end of the machine

    def _let_go(self, system: ActorSystem, failure: Failure) -> None:
        """Nothing will run any more: let the actors end as if everything had, and keep nobody's memory."""
        self._refuse()
        self._closed = True
        for launch in self._under_way.values():
            # What an act still does for it is in vain, and what that meets with is not for the caller.
            launch.fail(failure)
        self._under_way.clear()
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

    def _bury(self, failure: Failure) -> None:
        """Tell all whose launches will not be heard of."""
        for launch in list(self._open):
            # One that runs within its call is never started.
            if (launch.started or launch.over_to is None) and not launch.over:
                for number in self._written:
                    launch.variables[number].poison(failure)  # nobody can know what they hold
            launch.fail(failure)
            launch.finish()

    # What went wrong

    def fetching_failed(self, launch: Launch, error: Exception) -> None:
        """The arguments could not be had."""
        error.add_note(f"while fetching the arguments of graph {self.name!r}")
        launch.fail(self._remembered(Failure(error)))

    def running_failed(self, launch: Launch, error: BaseException, task: str) -> None:
        """What was done for a launch has raised; raises it again if that is nothing that a launch may fail with."""
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
                storage.poison(failure)  # nobody knows how far the op has come
        return failure

    def _remembered(self, failure: Failure) -> Failure:
        self.machine.remember(failure)
        return failure
