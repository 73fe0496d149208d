"""`SingleTask`: the only task of a plan; it waits for no other task, and acts when it is launched."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, final

from vmflow.streams.stream import Stream

from .launch import Launch
from .program import Program

if TYPE_CHECKING:
    from .runtime import GraphRuntime


@final
class SingleTask:
    """The only task of a plan.

    Args:
        graph: the graph's name.
        name: the task's name.
        program: makes the program; called by the first run, and by the first one after `forget`.
        stream: the stream on which the task acts.
        cost: estimated nanoseconds of an act.
        running: the runtime's launches that were called and have not ended.

    Attributes:
        graph: as given.
        stream: as given.
        cost: as given.
        closed: whether no more launches may run within their calls.
    """

    def __init__(
        self, graph: str, name: str, program: Callable[[], Program], stream: Stream, cost: int, running: set[Launch]
    ) -> None:
        self.graph = graph
        self.stream = stream
        self.cost = cost
        self.closed = False
        self._running = running
        self._name = name
        self._make = program
        self._program: Program | None = None

    def act(self, runtime: GraphRuntime, launch: Launch) -> None:
        """Run the program for a launch, and end the launch."""
        try:
            self.run(runtime, launch)
        finally:
            launch.finish()

    def run(self, runtime: GraphRuntime, launch: Launch) -> None:
        """Run the program for a launch, which the caller ends; an `Exception` is only recorded in the launch."""
        # Arguments are fetched only now: the launch may have been issued before another launch had computed them.
        try:
            launch.fetch()
        except Exception as error:  # no memory for a copy
            runtime.fetching_failed(launch, error)
        if launch.failure is None:
            try:
                program = self._program
                if program is None:
                    program = self._program = self._make()
                program.run(launch)
            except BaseException as error:
                runtime.running_failed(launch, error, self._name)

    def act_inline(self, runtime: GraphRuntime, launch: Launch) -> None:
        """Run the launch within the call of the graph, unless the task is closed; a closed task closes the runtime."""
        try:
            self._running.add(launch)
            # The runtime sets `closed`, then looks for launches; here the launch is added, then `closed` is read.  So
            # either the runtime sees the launch, or `closed` is seen here.
            if not self.closed:
                self.act(runtime, launch)
        except BaseException:
            if launch.failure is not None:
                launch.failure.observe()  # the caller gets the exception
            raise
        finally:
            # No Python function is called before `discard`, since Ctrl-C may raise within a Python function.
            self._running.discard(launch)
            if self.closed:
                runtime.close()

    def close(self) -> None:
        """Let no more launches run within their calls; launches that were issued still run."""
        self.closed = True

    def forget(self) -> None:
        """Release the program, which refers to the plan's memory; no act may be running."""
        self._program = None
