"""`CompiledGraph`: what building a graph once has come to, and calling it."""

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
    """What a job needs of the world.

    Attributes:
        bindings: by buffer, the tensors that share the memory of its variables.
        generators: those that were given explicitly.
        leaves: whose gradients the last outputs of the job are; a call adds them to `grad`.
        outlets: where batches of loaders come in; their tensors are behind those of the arguments.
    """

    bindings: dict[int, Tensor]
    generators: tuple[RandomGenerator, ...] = ()
    leaves: tuple[AutogradMeta, ...] = ()
    outlets: tuple[Outlet, ...] = ()


def _no_runtime() -> None:
    return None


@final
class CompiledGraph:
    """A job, its plan, and the runtimes that run it.

    Args:
        job: as recorded.
        outside: see `Outside`.
        settings: how to improve and run it.
        tree: of the arguments.
        metas: of the tensors among them.
        out_tree: of the results.
        report: told of how it goes; by default, nobody is.
        guard: says what it was built from; None if that cannot change.

    Attributes:
        job, outside, settings, tree, metas, out_tree: as given.
        full_job: after all passes.
        plan: how that is run.
        calling: held while a call takes what calls have to take in order.
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
        # Every machine has its runtime: there, since that holds the machine in turn.
        self._handles: list[Handle] = []
        self._make_locks()
        self._closed = False
        self._session = default_session()
        self._uses = sum([len(chain.inputs) for chain in self.plan.chains.values()])
        # Whether the arguments are tensors by place, and a batch of nothing is behind them.
        self._by_place = tree == args_tree.of_tensors(len(metas)) and not outside.outlets
        # The variables of jobs whose passes have dropped what uses them are of no interest.
        self._bindings = {variable.id: outside.bindings[variable.id] for variable in self.full_job.variables()}
        self._changed = frozenset(self.full_job.written())
        self._variables = Variables(self._bindings, self.full_job, self._changed)
        self._no_draws: list[list[tuple[int, int]]] = [[] for _ in range(self.full_job.micro_batches)]
        # To the runtime that was called last, if all its memory is there.
        self._last: Callable[[], GraphRuntime | None] = _no_runtime
        self._is_random = bool(self.full_job.draws)
        self._single_result = isinstance(out_tree, Leaf) and not outside.leaves
        self._session.own(self, job.name)

    def require_open(self) -> None:
        """Raise `SessionClosed` if the session that it belongs to has been closed, else do nothing."""
        self._session.require_open(self.job.name)

    def holds(self) -> bool:
        """Whether what it was built from is still the same; see `Guard`."""
        return self._guard is None or self._guard.holds(MODE.get())

    def difference(self, around: bool = True) -> str | None:
        """Describe the first change since this was built; None if nothing has changed.

        Args:
            around: whether what surrounds the call counts: autocast, and the defaults of new tensors.
        """
        if self._guard is None:
            return None
        return self._guard.difference() if around else self._guard.difference_within()

    def forget_threads(self) -> None:
        """In a forked child: locks may have been held by threads that are not here."""
        self._make_locks()
        for outlet in self.outside.outlets:
            outlet.feed.forget_threads()

    def _make_locks(self) -> None:
        # Reentrant, for a signal handler that calls the graph in the middle of a call.
        self.calling = threading.RLock()
        self._lock = threading.RLock()

    def sources_of(self, arguments: tuple[Any, ...], mode: Mode) -> tuple[Blob, ...] | None:
        """The memory of arguments by place, if they are tensors as this was built for, and it still is what is to run.

        None if they have to be looked at more closely.
        """
        if not self._by_place or self._closed or mode.interpreter is not None:
            return None
        guard = self._guard
        if guard is not None and not guard.holds(mode):
            return None
        return blobs_if(arguments, self.metas)

    def call(self, sources: tuple[Blob, ...], numbers: Sequence[float], mode: Mode) -> Any:
        """Run it once; returns at once.

        Args:
            sources: the memory of the tensors among the arguments, and behind them of those of batches.
            numbers: the values of the job's numbers this time.
            mode: of the call.

        Raises:
            ValueError: if a variable's tensor has been given data that the graph was not built for.
            VirtualMachineClosed: if the machine takes nothing any more.
        """
        draws = self._no_draws
        if self._is_random:
            (mode.machine or default_machine()).require_open("launch_lazy_job")  # before generators have advanced
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

    def run_by_vm(self, given: Sequence[Tensor], numbers: Sequence[float]) -> Any:
        """The same, op by op."""
        machine = current_machine()
        draws = self._draws()
        results = vm_run.run(machine, self.full_job, self._bindings, given, numbers, draws)
        return self._structured(results)

    def close(self) -> None:
        """Launch nothing any more; what was launched still runs.  From anywhere, also from a destructor."""
        self._closed = True
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
        found = runtimes.get(self)
        if found is None or not found.usable():
            with self._lock:
                found = runtimes.get(self)
                if found is None or not found.usable():
                    if found is not None:
                        found.close()
                    actors = self.settings.config.actors
                    tell = self._report.running
                    found = GraphRuntime(machine, self.full_job, self.plan, self._uses, actors, tell)
                    self._handles = [*[handle for handle in self._handles if not handle.gone()], found.handle]
                    runtimes[self] = found
        if not found.memory.unsettled():
            self._last = weakref.ref(found)
        return found

    def _draws(self) -> list[list[tuple[int, int]]]:
        """What this run takes of random generators: in the order in which eager ops would."""
        draws = self.full_job.draws
        nothing = (0, 0)
        drawn = [[nothing] * len(draws) for _ in range(self.full_job.micro_batches)]
        for each in drawn:
            for number, draw in enumerate(draws):
                if draw.phase == "micro":
                    each[number] = self._drawn(draw)
        for number, draw in enumerate(draws):
            if draw.phase == "step":
                # The step runs once, and looks at the first.
                drawn[0][number] = self._drawn(draw)
        return drawn

    def _drawn(self, draw: Draw) -> tuple[int, int]:
        generator = self.outside.generators[draw.generator - 1] if draw.generator else chosen_generator(None)
        return generator.take(draw.elements)

    def _structured(self, results: list[Tensor]) -> Any:
        """Add the gradients among the results to their leaves, and give the rest the structure of the result."""
        leaves = self.outside.leaves
        if leaves:
            results, gradients = results[: -len(leaves)], results[-len(leaves) :]
            with no_grad():
                for leaf, gradient in zip(leaves, gradients, strict=True):
                    leaf.add(gradient)
        return args_tree.unflatten(self.out_tree, results, awaitable)


# Results that are containers can be awaited as a whole.


class _Results:
    def __await__(self) -> Generator[Any, None, Any]:
        for tensor in args_tree.flatten(self)[1]:
            yield from tensor.__await__()
        return self


class ResultTuple(_Results, tuple[Any, ...]):
    """A tuple of results; ``await`` it to wait for all."""


class ResultList(_Results, list[Any]):
    """A list of results; ``await`` it to wait for all."""


class ResultDict(_Results, dict[Any, Any]):
    """A dict of results; ``await`` it to wait for all."""


def awaitable(branch: Branch, children: list[Any]) -> Any:
    """A container of results."""
    if branch.kind == "dict":
        return ResultDict(zip(branch.keys, children, strict=True))
    if branch.kind == "list":
        return ResultList(children)
    return ResultTuple(children) if branch.kind == "tuple" else branch.kind(*children)
