"""`CompiledGraph`: a form of a graph, the result of building it once (job, plan and runtimes), and the form's calls."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Generator, Sequence
from typing import Any, final

import attrs

from vmflow.autograd.grad_mode import no_grad
from vmflow.autograd.node import AutogradMeta
from vmflow.context import MODE, Mode
from vmflow.instructions.blob import Blob, TensorMeta
from vmflow.random import Generator as RandomGenerator, chosen_generator
from vmflow.tensor_fields import blobs_if, still_have
from vmflow.tensors import Tensor
from vmflow.vm.virtual_machine import VirtualMachine, current_machine, default_machine

from . import args_tree, vm_run
from .args_tree import Branch, Leaf, Tree
from .compiler import compile_job
from .describing import SILENT, BuildReport
from .feeds import Outlet
from .guards import Guard
from .job import Draw, Job
from .passes import Settings, run_passes
from .plan import Plan
from .runtime import GraphRuntime, Handle
from .session import default_session
from .variables import Variables


@attrs.frozen
class Outside:
    """The tensors, generators and loaders outside of a job that the job uses.

    Attributes:
        bindings: by a variable's buffer, the tensor whose memory the buffer shares.
        generators: the random generators of the job's draws, except the caller's default one.
        leaves: the leaves whose gradients are the last outputs of the job; a call adds these to `grad`.
        outlets: the batches that `build` takes; their tensors follow those of the arguments.
        cleared: the leaves whose `grad` a call first sets to None (True) or to zero.
    """

    bindings: dict[int, Tensor]
    generators: tuple[RandomGenerator, ...] = ()
    leaves: tuple[AutogradMeta, ...] = ()
    outlets: tuple[Outlet, ...] = ()
    cleared: tuple[tuple[AutogradMeta, bool], ...] = ()


def _no_runtime() -> None:
    return None


@final
class CompiledGraph:
    """A form of a graph: its job, its plan, and a runtime for each virtual machine that runs it.

    Args:
        job: the job as `build` has recorded it.
        outside: the tensors, generators and loaders that the job uses; see `Outside`.
        settings: the settings of the passes and of running.
        tree: the structure of the arguments.
        metas: the metas (shape, dtype, device) of the tensors among the arguments.
        out_tree: the structure of the results.
        report: prints the progress; None prints nothing.
        guard: compares the state that the job was built from with the present one; None to compare nothing.

    Attributes:
        job: as given.
        outside: as given.
        settings: as given.
        tree: as given.
        metas: as given.
        out_tree: as given.
        full_job: the job after all passes.
        plan: the plan of `full_job`.
        calling: a lock that a call holds while it reads the learning rates and advances their schedulers.
    """

    def __init__(
        self,
        job: Job,
        outside: Outside,
        settings: Settings,
        tree: Tree,
        metas: tuple[TensorMeta, ...],
        out_tree: Tree,
        report: BuildReport | None = None,
        guard: Guard | None = None,
    ) -> None:
        self.job = job
        self._guard = guard
        self.tree = tree
        self.metas = metas
        self.settings = settings
        report = report or BuildReport(job.name, SILENT)
        self.full_job = run_passes(job, settings, report.passed)
        report.lap(f"passes to {len(self.full_job.ops)} ops")
        self.plan: Plan = compile_job(self.full_job, settings.config.outputs_buffer_size)
        report.compiled(self.plan)
        self.outside = outside
        self.out_tree = out_tree
        self._report = report
        # Weak handles of the runtimes: each machine owns its runtime, which refers to the machine.
        self._handles: list[Handle] = []
        self._make_locks()
        self._closed = False
        self._session = default_session()
        self._uses = sum([len(chain.inputs) for chain in self.plan.chains.values()])
        # Whether the arguments are all positional tensors, and `build` takes no batches of loaders.
        self._by_place = tree == args_tree.of_tensors(len(metas)) and not outside.outlets
        # Only the variables of the final job: passes may have dropped all uses of others.
        self._bindings = {variable.id: outside.bindings[variable.id] for variable in self.full_job.variables()}
        self._changed = frozenset(self.full_job.written())
        self._variables = Variables(self._bindings, self.full_job, self._changed)
        self._no_draws: list[list[tuple[int, int]]] = [[] for _ in range(self.full_job.micro_batches)]
        # Returns the runtime to try first in a call, which had all its memory when it was last found, or None.
        self._last: Callable[[], GraphRuntime | None] = _no_runtime
        self._is_random = bool(self.full_job.draws)
        self._single_result = isinstance(out_tree, Leaf) and not outside.leaves and not outside.cleared
        self._session.own(self, job.name)

    def require_open(self) -> None:
        """Raise `SessionClosed` if the graph's session has been closed."""
        self._session.require_open(self.job.name)

    def holds(self) -> bool:
        """Whether the state from which this form was built is still the same, as far as a `Guard` compares it."""
        return self._guard is None or self._guard.holds(MODE.get())

    def difference(self, around: bool = True) -> str | None:
        """Describe the first value that differs from the time of the build; None if none does, or without a guard.

        Args:
            around: whether to compare the context of the call, too: autocast, default dtype and device, and global
                hooks.
        """
        if self._guard is None:
            return None
        return self._guard.difference() if around else self._guard.difference_within()

    def forget_threads(self) -> None:
        """Replace the form's and its feeds' locks in a forked child, where a thread that held one does not exist."""
        self._make_locks()
        for outlet in self.outside.outlets:
            outlet.feed.forget_threads()

    def _make_locks(self) -> None:
        # The locks are reentrant, for a signal handler that calls the graph in the middle of a call.
        self.calling = threading.RLock()
        self._lock = threading.RLock()

    def sources_of(self, arguments: tuple[Any, ...], mode: Mode) -> tuple[Blob, ...] | None:
        """Return the blobs of a call's arguments if they are tensors of the expected metas and this form still holds.

        None if the slow path of a call has to check them, as always for forms with batches, or with arguments other
        than positional tensors.
        """
        if not self._by_place or self._closed or mode.interpreter is not None:
            return None
        guard = self._guard
        if guard is not None and not guard.holds(mode):
            return None
        return blobs_if(arguments, self.metas)

    def call(self, sources: tuple[Blob, ...], numbers: Sequence[float], mode: Mode) -> Any:
        """Run the graph once; returns the results, which may still be being computed.

        Args:
            sources: the blobs of the tensors among the arguments, followed by the blobs of loaders' batches.
            numbers: the values of the job's numbers (learning rates) for this run.
            mode: the context (machine, cancel scope) in which the graph was called.

        Raises:
            ValueError: if a variable's tensor now has another shape, dtype, device or layout than at the build.
            VirtualMachineClosed: if the virtual machine is closed.
        """
        draws = self._no_draws
        if self._is_random:
            (mode.machine or default_machine()).require_open("launch_lazy_job")  # before random generators advance
            draws = self._draws()
        runtime = self._last() or self._runtime(mode)
        while True:
            try:
                results = runtime.caller.call(runtime, sources, numbers, draws, self._variables, mode)
            finally:
                if self._closed:
                    runtime.close()
            if results is not None:
                return results[0] if self._single_result else self._structured(results)
            self._variables = self._present_variables()
            runtime = self._runtime(mode)

    def run_by_vm(self, arguments: Sequence[Tensor], numbers: Sequence[float]) -> Any:
        """Run the graph once, op by op as instructions of the virtual machine, instead of by its plan.

        Raises:
            ValueError: as in `call`.
        """
        self._variables = self._present_variables()
        machine = current_machine()
        draws = self._draws()
        results = vm_run.run(machine, self.full_job, self._bindings, arguments, numbers, draws)
        return self._structured(results)

    def close(self) -> None:
        """Release the memory of runs, now and after each later call; earlier launches still run.

        May be called from anywhere, also by a destructor.
        """
        self._closed = True
        self.release()

    def release(self) -> None:
        """Release the memory of runs, once earlier launches have ended; the next call allocates memory again."""
        self._last = _no_runtime
        for handle in list(self._handles):
            handle.close()

    def _present_variables(self) -> Variables:
        variables = self._variables
        if still_have(variables.held):
            return variables
        return Variables(self._bindings, self.full_job, self._changed)

    def _runtime(self, mode: Mode) -> GraphRuntime:
        machine: VirtualMachine = mode.machine or default_machine()
        runtimes: weakref.WeakKeyDictionary[CompiledGraph, GraphRuntime] = machine.graphs
        runtime = runtimes.get(self)
        if runtime is None or not runtime.usable():
            with self._lock:
                runtime = runtimes.get(self)
                if runtime is None or not runtime.usable():
                    if runtime is not None:
                        runtime.close()
                    actors = self.settings.config.actors
                    tell = self._report.running
                    runtime = GraphRuntime(machine, self.full_job, self.plan, self._uses, actors, tell)
                    self._handles = [*[handle for handle in self._handles if not handle.gone()], runtime.handle]
                    runtimes[self] = runtime
        if not runtime.memory.unsettled():
            self._last = weakref.ref(runtime)
        return runtime

    def _draws(self) -> list[list[tuple[int, int]]]:
        """Take this run's (seed, position) pairs, by micro-batch and draw, from the generators, in eager ops' order."""
        draws = self.full_job.draws
        unused = (0, 0)
        drawn = [[unused] * len(draws) for _ in range(self.full_job.micro_batches)]
        for numbers in drawn:
            for number, draw in enumerate(draws):
                if draw.phase == "micro":
                    numbers[number] = self._drawn(draw)
        for number, draw in enumerate(draws):
            if draw.phase == "step":
                # Ops of the phase "step" run once per launch, and read the entry of the first micro-batch.
                drawn[0][number] = self._drawn(draw)
        return drawn

    def _drawn(self, draw: Draw) -> tuple[int, int]:
        generator = self.outside.generators[draw.generator - 1] if draw.generator else chosen_generator(None)
        return generator.take(draw.elements)

    def _structured(self, results: list[Tensor]) -> Any:
        """Clear the `grad` of `cleared` leaves, add the gradients among the results to `grad`, and nest the others."""
        for leaf, to_none in self.outside.cleared:
            if to_none:
                leaf.replace(None)
            elif leaf.grad is not None:
                leaf.grad.detach().zero_()
        leaves = self.outside.leaves
        if leaves:
            results, gradients = results[: -len(leaves)], results[-len(leaves) :]
            with no_grad():
                for leaf, gradient in zip(leaves, gradients, strict=True):
                    leaf.add(gradient)
        return args_tree.unflatten(self.out_tree, results, awaitable)


class _Results:
    def __await__(self) -> Generator[Any, None, Any]:
        for tensor in args_tree.flatten(self)[1]:
            yield from tensor.__await__()
        return self


class ResultTuple(_Results, tuple[Any, ...]):
    """A tuple of a graph's results; ``await`` it to wait for all its tensors."""


class ResultList(_Results, list[Any]):
    """A list of a graph's results; ``await`` it to wait for all its tensors."""


class ResultDict(_Results, dict[Any, Any]):
    """A dict of a graph's results; ``await`` it to wait for all its tensors."""


def awaitable(branch: Branch, children: list[Any]) -> Any:
    """Make a container of results, of the branch's kind; all but a named tuple can be awaited."""
    if branch.kind == "dict":
        return ResultDict(zip(branch.keys, children, strict=True))
    if branch.kind == "list":
        return ResultList(children)
    return ResultTuple(children) if branch.kind == "tuple" else branch.kind(*children)
