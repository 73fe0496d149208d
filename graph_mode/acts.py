"""What a graph's run does, as instructions: the acts of actors, and those of a plan with one task alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from vmflow.instructions.failure import Failure
from vmflow.instructions.policy import InstructionPolicy

from .actors.bus import Action
from .launch import Launch
from .lone_task import LoneTask

if TYPE_CHECKING:
    from .runtime import GraphRuntime


@final
class ActorAct(InstructionPolicy):
    """What an actor has decided to do."""

    __slots__ = ("action", "done", "name", "runtime")

    droppable = False  # actors wait for each other
    touches_memory = True

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
class LoneAct(InstructionPolicy):
    """What the only task of a plan does for a launch."""

    __slots__ = ("done", "launch", "name", "runtime", "task")

    droppable = False

    def __init__(self, runtime: GraphRuntime, task: LoneTask, launch: Launch) -> None:
        self.runtime = runtime
        self.task = task
        self.launch = launch
        self.name = runtime.name
        self.done = False

    def compute(self) -> None:
        self.done = True
        self.task.act(self.runtime, self.launch)

    def fail(self, failure: Failure) -> None:
        # What raises out of `compute` (SystemExit, say) has been seen to there.
        if not self.done:
            self.done = True
            self.launch.fail(failure)
            self.launch.finish()
