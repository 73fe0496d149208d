"""Plans of one task, as most are: `LoneTask` does what a launch consists of, `PureCall` calls that issue nothing."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, final

import numpy as np

from vmflow.context import MODE, Mode
from vmflow.instructions.blob import Array, Blob, Storage, TensorMeta
from vmflow.instructions.scope import Scope
from vmflow.interpreter import new_tensor
from vmflow.streams.stream import Stream
from vmflow.tensor_fields import blobs_if, still_have
from vmflow.vm import inline
from vmflow.vm.driver import NOT_NOW
from vmflow.vm.machine_fields import DEFAULT
from vmflow.vm.virtual_machine import default_machine

from .launch import Launch, Run, RunOnArrays
from .program import Program
from .variables import Variables

if TYPE_CHECKING:
    from vmflow.vm.virtual_machine import VirtualMachine

    from .runtime import GraphRuntime


@final
class LoneTask:
    """The only task of a plan: it has nobody to wait for, and acts when it is launched.

    Args:
        runtime: whose; it holds this.
        name: of the task.
        program: makes the program, once the memory for it is there.
        stream: on which it acts.
        cost: of that, in nanoseconds.
        under_way: what was called and is not over.

    Attributes:
        machine: on which it acts.
        stream, cost: as given.
        closed: whether nothing is to be begun any more.
    """

    def __init__(
        self,
        runtime: GraphRuntime,
        name: str,
        program: Callable[[], Program],
        stream: Stream,
        cost: int,
        under_way: set[Run],
    ) -> None:
        # Weakly, for it must not wait for the garbage collector.
        self._runtime: weakref.ref[GraphRuntime] = weakref.ref(runtime)
        self.machine: VirtualMachine = runtime.machine
        self.stream = stream
        self.cost = cost
        self.closed = False
        self._under_way = under_way
        self._name = name
        self._make = program
        self._program: Program | None = None

    def act(self, runtime: GraphRuntime, launch: Launch) -> None:
        """Do what there is to be done for a launch.

        Args:
            runtime: its own, whose memory this works on: whoever calls keeps it alive.
            launch: of that.
        """
        try:
            # Not before: a launch may have begun while the one that makes its argument had only begun, too.
            try:
                launch.fetch()
            except Exception as error:  # no memory for a copy
                runtime.fetching_failed(launch, error)
            if launch.failure is None:
                try:
                    self._run(launch)
                except BaseException as error:
                    runtime.running_failed(launch, error, self._name)
        finally:
            launch.finish()

    def _run(self, run: Run) -> None:
        program = self._program
        if program is None:
            program = self._program = self._make()
        program.run(run)

    def close(self) -> None:
        """Begin nothing any more."""
        self.closed = True

    def forget(self) -> None:
        """Let go of the memory; nothing is under way."""
        self._program = None

    def act_at_once(self, launch: Launch, variables: Variables, scope: Scope | None) -> bool:
        """Do it in this call, if all that it needs is there and nothing is before it; whether that was so.

        Args:
            launch: one that is wanted, whose results lie where kernels put them.
            variables: the job's.
            scope: in which the graph was called.
        """
        machine = self.machine
        runtime = self._runtime()
        if runtime is None or self.closed:
            return False
        for blob in launch.sources:
            owner = blob.storage.machine
            if owner is None:
                machine.take_over(blob.storage)  # made of a caller's array: nothing has used it yet
            elif owner is not machine:
                return False
            if variables.written and blob.storage in variables.changed:
                launch.share(variables.changed)
        cost = 0 if scope is not None and scope.here else self.cost
        if not self._possible(variables, cost):
            return False
        if variables.written:
            done = machine.driver.call_shielded(self._act_unless_closed, (runtime, launch))
        else:
            # Ctrl-C may come out of this: nobody will ever see what it would have written.
            done = machine.driver.call(self._act_unless_closed, (runtime, launch))
        return done is not NOT_NOW

    def run_at_once(self, run: Run, variables: Variables) -> bool:
        """Run the program in this call, whatever it takes, if nothing is before it; whether that was so and went well.

        Args:
            run: of a job that changes nothing, so that it may have been in vain.
            variables: the job's.
        """
        runtime = self._runtime()
        if runtime is None or self.closed or not self._possible(variables, 0):
            return False
        return self.machine.driver.call(self._run_unless_closed, (runtime, run)) is None

    def _possible(self, variables: Variables, cost: int) -> bool:
        machine = self.machine
        for storage in variables.written:
            if storage.machine is not machine or storage.failure is not None:
                return False
        for storage in variables.read:
            if storage.machine is not machine or storage.failure is not None:
                return False
        return inline.possible(machine, self.stream, cost)

    def _act_unless_closed(self, runtime: GraphRuntime, launch: Launch) -> object:
        try:
            self._under_way.add(launch)
            # Whoever closes says so first and looks for launches then: one of the two sees the other.
            if self.closed:
                return NOT_NOW
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
        return None

    def _run_unless_closed(self, runtime: GraphRuntime, run: Run) -> object:
        try:
            self._under_way.add(run)
            if self.closed:
                return NOT_NOW
            self._run(run)
        except Exception:
            return NOT_NOW  # who does it again as a launch hears of this
        finally:
            self._under_way.discard(run)  # at once, as above
            if self.closed:
                runtime.close()
        return None


@final
class PureCall:
    """Calls of a graph that takes tensors by place, returns one small tensor, and neither changes nor draws anything.

    They are as few steps as they can be.

    Args:
        task: what runs.
        metas: of the arguments.
        output: of the result.
        variables: of the job.
        draws, uses: see `Launch`.
    """

    def __init__(
        self,
        task: LoneTask,
        metas: tuple[TensorMeta, ...],
        output: TensorMeta,
        variables: Variables,
        draws: list[list[tuple[int, int]]],
        uses: int,
    ) -> None:
        self._task = task
        self._metas = metas
        self._output = output
        self._variables = variables
        self._draws = draws
        self._uses = uses
        self._on_host = all([it.device.type == "cpu" for it in (*metas, output)])
        self._stream = task.machine.devices.compute_stream(output.device)

    def call(self, arguments: tuple[Any, ...]) -> Any:
        """The result; `NOT_NOW`, and nothing has happened, if it has to be launched or refused.

        Args:
            arguments: by place, whatever they are.
        """
        task = self._task
        mode = MODE.get()
        sources = blobs_if(arguments, self._metas)
        if sources is None or not self._is_wanted(mode):
            return NOT_NOW
        storage = Storage(task.machine, None, self._stream)
        result = Blob(storage, self._output)
        variables = self._variables
        launch = Launch(sources, (result,), (), self._draws, self._uses, variables.storages)
        if not task.act_at_once(launch, variables, mode.scope):
            return NOT_NOW
        return new_tensor(result, None)

    def call_on_arrays(self, arrays: Sequence[Array]) -> Any:
        """The array of the result, which nobody else holds, computed in this call whatever it takes.

        Returns:
            `NOT_NOW`, and nothing has happened, if it has to be launched or refused, or would fail.

        Args:
            arrays: on the host, by place, which nobody writes meanwhile.
        """
        task, metas = self._task, self._metas
        if not self._on_host or len(arrays) != len(metas) or not self._is_wanted(MODE.get()):
            return NOT_NOW
        for place, array in enumerate(arrays):
            of = metas[place]
            if array.shape != of.shape or array.dtype is not of.dtype.numpy:
                return NOT_NOW
        result = np.empty(self._output.shape, self._output.dtype.numpy)
        variables = self._variables
        run = RunOnArrays(list(arrays), self._draws, variables.storages, result)
        return result if task.run_at_once(run, variables) else NOT_NOW

    def _is_wanted(self, mode: Mode) -> bool:
        """Whether the graph is called where its task runs, for whom it was made, and not in vain."""
        machine = mode.machine or (DEFAULT[0] if DEFAULT else default_machine())
        if mode.interpreter is not None or machine is not self._task.machine:
            return False
        if mode.scope is not None and mode.scope.dropped() is not None:
            return False
        return still_have(self._variables.held)
