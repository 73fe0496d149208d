"""Instructions that run graphs: an act of an actor, or the whole run of a plan that has a single task."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from vmflow.instructions.blob import Blob, fault_of
from vmflow.instructions.failure import Failure
from vmflow.instructions.policy import InstructionPolicy

from .actors.bus import Action
from .launch import Launch
from .single_task import SingleTask

if TYPE_CHECKING:
    from vmflow.instructions.instruction import Instruction

    from .runtime import GraphRuntime


@final
class ActorAct(InstructionPolicy):
    """The instruction that runs one act of an actor.

    Args:
        runtime: the actor's runtime.
        action: the action to run.
        name: the instruction's name, for error messages and traces.
        ends_later: whether the act ends when a device has computed the work that `compute` launches; else `compute`
            ends the act.
    """

    __slots__ = ("_ends_later", "_launch", "_state", "action", "name", "runtime")

    droppable = False  # no scope drops it: other actors wait for the act's messages

    def __init__(self, runtime: GraphRuntime, action: Action, name: str, ends_later: bool) -> None:
        self.runtime = runtime
        self.action = action
        self.name = name
        self._ends_later = ends_later
        self._launch: Launch | None = None
        self._state = _ISSUED

    def compute(self) -> None:
        self._state = _BEGUN
        try:
            self._launch = self.runtime.act(self.action)
        finally:
            if not self._ends_later:
                self._end()

    def settle(self, failure: Failure | None) -> Failure | None:
        if failure is not None and self._launch is not None:
            self.runtime.tear(self._launch, failure)
        self._end()
        return None  # this instruction has not failed: the launch reports the failure to the caller

    def fail(self, failure: Failure) -> None:
        if self._state == _ISSUED:
            self._state = _ENDED
            self.runtime.fail_act(self.action, failure)
        elif self._state == _BEGUN:
            # `compute` reports its errors to the launch itself: only the act has to end.
            self._end()

    def _end(self) -> None:
        self._state = _ENDED
        self.runtime.ended(self.action)


# States of an `ActorAct`.
_ISSUED, _BEGUN, _ENDED = range(3)


@final
class LaunchOnStream(InstructionPolicy):
    """The run of a plan of a single task on a stream with `launches_ahead`, as an instruction with operands.

    The stream runs launches in order, so that the host need not wait for one launch before it issues the next.

    Args:
        runtime: the plan's runtime.
        task: the plan's task.
        launch: the launch to run.
        reads: the arguments that are not in memory of `writes`, and the variables that the run only reads.
        writes: the variables that the run may change.
    """

    __slots__ = ("_begun", "_launch", "_reads", "_runtime", "_task", "_writes", "name")

    prepares = True

    def __init__(
        self,
        runtime: GraphRuntime,
        task: SingleTask,
        launch: Launch,
        reads: tuple[Blob, ...],
        writes: tuple[Blob, ...],
    ) -> None:
        self.name = runtime.launching
        self._runtime = runtime
        self._task = task
        self._launch = launch
        self._reads = reads
        self._writes = writes
        self._begun = False

    def prepare(self, instruction: Instruction) -> None:
        for blob in self._launch.results:
            blob.storage.allocate(blob.meta, instruction)

    def preparing_failed(self, failure: Failure) -> None:
        for blob in self._launch.results:
            if blob.storage.array is None:
                blob.storage.poison(failure)

    def compute(self) -> None:
        for blob in (*self._reads, *self._writes):
            if blob.storage.failure is not None:
                self.drop(blob.storage.failure)
                return
        self._begun = True
        self._task.run(self._runtime, self._launch)
        failure = self._launch.failure
        if failure is not None:
            # The results are poisoned now: later launches may be issued before the device has ended this one.
            for blob in self._launch.results:
                blob.storage.poison(failure)

    def settle(self, failure: Failure | None) -> Failure | None:
        if not self._begun:
            return None
        fault = fault_of((*self._reads, *self._writes), failure)
        for blob in self._launch.results:
            blob.storage.settle(fault, True)
        for blob in self._writes:
            blob.storage.settle(fault, False)
        self._end(fault)
        return fault

    def fail(self, failure: Failure) -> None:
        if self._begun:
            # Poison the variables, since the device may have changed some of them.
            for blob in self._writes:
                blob.storage.poison(failure)
        self._end(failure)

    def drop(self, failure: Failure) -> None:
        # The task has not run, so that no variable has been changed.
        self._end(failure)

    def _end(self, failure: Failure | None) -> None:
        if failure is not None:
            self._launch.fail(failure)
        self._launch.finish()


@final
class GraphAct(InstructionPolicy):
    """The instruction that runs a plan of a single task, not on a stream with `launches_ahead`, and ends the launch.

    Args:
        runtime: the plan's runtime.
        task: the plan's task.
        launch: the launch to run.
        within_call: whether the instruction runs on the caller's thread, within the call of the graph.
    """

    __slots__ = ("_done", "_launch", "_runtime", "_task", "_within_call", "name")

    droppable = False

    def __init__(self, runtime: GraphRuntime, task: SingleTask, launch: Launch, within_call: bool = False) -> None:
        self.name = task.graph
        self._runtime = runtime
        self._task = task
        self._launch = launch
        self._within_call = within_call
        self._done = False

    def compute(self) -> None:
        self._done = True
        if self._within_call:
            self._task.act_inline(self._runtime, self._launch)
        else:
            self._task.act(self._runtime, self._launch)

    def fail(self, failure: Failure) -> None:
        # If `compute` has raised, for example SystemExit, it has ended the launch already.
        if not self._done:
            self._done = True
            self._launch.fail(failure)
            self._launch.finish()
