"""The runs of a graph as instructions: acts of actors, and those of a plan of a single task."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from vmflow.instructions.failure import Failure
from vmflow.instructions.policy import InstructionPolicy

from .actors.bus import Action
from .launch import Launch
from .single_task import SingleTask

if TYPE_CHECKING:
    from .runtime import GraphRuntime


@final
class ActorAct(InstructionPolicy):
    """What an actor has decided to do."""

    __slots__ = ("action", "done", "name", "runtime")

    droppable = False  # actors wait for each other

    def __init__(self, runtime: GraphRuntime, action: Action, name: str) -> None:
        self.runtime = runtime
        self.action = action
        self.name = name
        self.done = False

    def compute(self) -> None:
        self.done = True
        self.runtime.act(self.action)

    def fail(self, failure: Failure) -> None:
        # What raises out of `compute` (SystemExit, say) has been seen to there.
        if not self.done:
            self.done = True
            self.runtime.fail_act(self.action, failure)


@final
class GraphAct(InstructionPolicy):
    """The run of a plan of a single task for a launch.

    Args:
        runtime: of the plan.
        task: its task.
        launch: to run for.
        within_call: whether this runs within the call of the graph.
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
        # `act` has seen to what raises out of `compute`, such as SystemExit.
        if not self._done:
            self._done = True
            self._launch.fail(failure)
            self._launch.finish()
