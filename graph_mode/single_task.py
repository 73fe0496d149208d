"""`SingleTask`: the one task of a plan that has no other.  It waits for nobody, and acts when it is launched."""

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
    """See the module.

    Args:
        graph: its name.
        name: of the task.
        program: makes the program, once the memory for it is there.
        stream: on which it acts.
        cost: of that, in nanoseconds.
        under_way: the launches that were called and are not over.

    Attributes:
        graph, stream, cost: as given.
        closed: whether nothing is to be begun any more.
    """

    def __init__(
        self, graph: str, name: str, program: Callable[[], Program], stream: Stream, cost: int, under_way: set[Launch]
    ) -> None:
        self.graph = graph
        self.stream = stream
        self.cost = cost
        self.closed = False
        self._under_way = under_way
        self._name = name
        self._make = program
        self._program: Program | None = None

    def act(self, runtime: GraphRuntime, launch: Launch) -> None:
        """Run the program for a launch, and end the launch.

        Args:
            runtime: that the task belongs to.
            launch: to run for.
        """
        try:
            self.run(runtime, launch)
        finally:
            launch.finish()

    def run(self, runtime: GraphRuntime, launch: Launch) -> None:
        """Run the program for a launch, which somebody else ends; what goes wrong is left in the launch."""
        # Not before: a launch may have begun while the one that makes its argument had only begun, too.
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
        """The same within the call of the graph; if the task is closed, the launch is left as it was."""
        try:
            self._under_way.add(launch)
            # Whoever closes says so first and looks for launches then: one of the two sees the other.
            if not self.closed:
                self.act(runtime, launch)
        except BaseException:
            if launch.failure is not None:
                launch.failure.observe()  # by whoever gets the exception
            raise
        finally:
            # No call of a Python function before this: out of one, Ctrl-C may come.
            self._under_way.discard(launch)
            if self.closed:
                runtime.close()

    def close(self) -> None:
        """Begin nothing any more."""
        self.closed = True

    def forget(self) -> None:
        """Let go of the memory; nothing is under way."""
        self._program = None
