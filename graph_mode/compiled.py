"""`CompiledGraph`: what building a graph once has come to, and calling it."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Generator, Iterable, Sequence
from typing import Any, Final, final

import attrs

from vmflow.autograd.grad_mode import no_grad
from vmflow.autograd.node import AutogradMeta
from vmflow.context import MODE, Mode
from vmflow.errors import VirtualMachineClosed
from vmflow.instructions import origin
from vmflow.instructions.allocate_tensor import AllocateTensor
from vmflow.instructions.blob import Array, Blob, Storage, TensorMeta, count_writes, places_memory
from vmflow.instructions.builder import issue
from vmflow.instructions.critical_section import CriticalSection
from vmflow.instructions.deferred import Ended
from vmflow.instructions.failure import Failure
from vmflow.instructions.instruction import Dependence, Instruction
from vmflow.instructions.launch_lazy_job import LaunchLazyJob
from vmflow.instructions.release_tensor import Lease
from vmflow.interpreter import new_tensor
from vmflow.random import Generator as RandomGenerator
from vmflow.random import chosen_generator
from vmflow.tensor_fields import blobs_of, still_have
from vmflow.tensors import Tensor
from vmflow.vm.driver import NOT_NOW
from vmflow.vm.virtual_machine import VirtualMachine, current_machine, default_machine

from . import args_tree, vm_run
from .args_tree import Branch, Leaf, Tree
from .compiler import compile_job
from .describing import SILENT, BuildReport
from .feeds import Outlet
from .guards import Guard
from .job import Draw, Job
from .launch import Launch
from .lone_task import PureCall
from .passes import Settings, run_passes
from .plan import Plan
from .runtime import GraphRuntime, Handle
from .session import default_session
from .variables import Variables

_NOTHING: Final[frozenset[Storage]] = frozenset()


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
        # Every machine has its runtime: there, since that holds the machine in turn.
        self._handles: list[Handle] = []
        self._make_locks()
        self._closed = False
        self._session = default_session()
        self._uses = sum([len(chain.inputs) for chain in self.plan.chains.values()])
        # The variables of jobs whose passes have dropped what uses them are of no interest.
        self._bindings = {it.id: outside.bindings[it.id] for it in self.full_job.variables()}
        self._changed = frozenset(self.full_job.written())
        self._variables = Variables(self._bindings, self.full_job, self._changed)
        self._no_draws: list[list[tuple[int, int]]] = [[] for _ in range(self.full_job.micro_batches)]
        self._placed = [places_memory(operand.meta) for operand in self.full_job.outputs]
        self._nbytes = sum(
            [operand.meta.nbytes for operand, it in zip(self.full_job.outputs, self._placed, strict=True) if it]
        )
        # Takes tensors by place, returns one tensor in no container, and asks for nothing else.
        self._is_pure = (
            isinstance(out_tree, Leaf)
            and tree == args_tree.of_tensors(len(metas))
            and not (self.full_job.draws or self.full_job.numbers or outside.leaves or outside.outlets)
        )
        # Of the runtime that has run a call at once last.
        self._last: Handle | None = None
        self._session.own(self, job.name)

    def require_open(self) -> None:
        """Raise `SessionClosed` if the session that it belongs to has been closed, else do nothing."""
        self._session.require_open(self.job.name)

    def holds(self) -> bool:
        """Whether what it was built from is still the same; see `Guard`."""
        return self._guard is None or self._guard.holds()

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

    def pure_call(self, arguments: tuple[Any, ...]) -> Any:
        """`call` with arguments by place, if there is a shorter way; else `NOT_NOW`, and nothing has happened."""
        last = self._last
        pure = None if last is None else last.pure()
        return NOT_NOW if pure is None or not self.holds() else pure.call(arguments)

    def takes(self, arrays: Sequence[Array]) -> bool:
        """Whether its arguments are such arrays."""
        return len(arrays) == len(self.metas) and all(
            [
                array.shape == it.shape and array.dtype is it.dtype.numpy
                for array, it in zip(arrays, self.metas, strict=True)
            ]
        )

    def call_on_arrays(self, arrays: Sequence[Array]) -> Any:
        """See `PureCall.call_on_arrays`; `NOT_NOW`, and nothing has happened, if there is no such way."""
        last = self._last
        pure = None if last is None else last.pure()
        return NOT_NOW if pure is None or not self.holds() else pure.call_on_arrays(arrays)

    def call(self, given: Sequence[Tensor], numbers: Sequence[float]) -> Any:
        """Run it once; returns at once.

        Args:
            given: the tensors among the arguments, and behind them those of batches.
            numbers: what the job's numbers are this time.

        Raises:
            ValueError: if a variable's tensor has been given data that the graph was not built for.
            VirtualMachineClosed: if the machine takes nothing any more.
        """
        mode = MODE.get()
        machine: VirtualMachine = mode.machine or default_machine()
        machine.require_open("launch_lazy_job")
        if not still_have(self._variables.held):
            self._variables = Variables(self._bindings, self.full_job, self._changed)
            for handle in list(self._handles):
                handle.forget_pure()
        variables = self._variables
        blobs = tuple([self._result_blob(machine, operand.meta) for operand in self.full_job.outputs])
        results = [
            new_tensor(blob, Lease(blob.storage) if placed else None)
            for blob, placed in zip(blobs, self._placed, strict=True)
        ]
        runtime = self._runtime(machine)
        launch = Launch(
            blobs_of(given),
            blobs,
            numbers,
            self._draws(),
            self._uses,
            variables.storages,
        )
        try:
            if not self._ran_at_once(runtime, launch, variables, mode):
                while not runtime.expect(launch):
                    runtime = self._runtime(machine)
                self._issue(machine, runtime, launch, variables, mode)
        finally:
            # Even if Ctrl-C comes in between, what was issued runs.
            count_writes(variables.written)
            if self._closed:
                runtime.close()
        return self._structured(results)

    def _ran_at_once(self, runtime: GraphRuntime, launch: Launch, variables: Variables, mode: Mode) -> bool:
        """Run it here, if all that it needs is there and nothing is before it; whether that was so."""
        lone = runtime.lone
        if lone is None or self._nbytes or runtime.memory.unsettled():
            return False
        if mode.scope is not None and mode.scope.dropped() is not None:
            return False
        if not lone.act_at_once(launch, variables, mode.scope):
            return False
        if self._is_pure and not variables.written and runtime.pure is None:
            output = self.full_job.outputs[0].meta
            runtime.shorten(PureCall(lone, self.metas, output, variables, self._no_draws, self._uses))
        self._last = runtime.handle
        return True

    def _issue(
        self, machine: VirtualMachine, runtime: GraphRuntime, launch: Launch, variables: Variables, mode: Mode
    ) -> None:
        handed_over = False
        try:
            instructions, writes = self._instructions(machine, runtime, launch, variables, mode)
            # From here on all of them are issued, whatever comes in between.
            handed_over = True
            issue(machine, instructions, writes)
        except BaseException as error:
            if not handed_over or isinstance(error, VirtualMachineClosed):
                launch.fail(machine.lifecycle.closed_failure() if handed_over else Failure(error, dropped=True))
                launch.finish()
            raise

    def run_by_vm(self, given: Sequence[Tensor], numbers: Sequence[float]) -> Any:
        """The same, op by op."""
        machine = current_machine()
        results = vm_run.run(machine, self.full_job, self._bindings, given, numbers, self._draws())
        return self._structured(results)

    def close(self) -> None:
        """Launch nothing any more; what was launched still runs.  From anywhere, also from a destructor."""
        self._closed = True
        self._last = None
        for handle in list(self._handles):
            handle.close()

    def _runtime(self, machine: VirtualMachine) -> GraphRuntime:
        runtimes: weakref.WeakKeyDictionary[CompiledGraph, GraphRuntime] = machine.graphs
        found = runtimes.get(self)
        if found is not None and found.usable():
            return found
        with self._lock:
            found = runtimes.get(self)
            if found is None or not found.usable():
                if found is not None:
                    found.close()
                found = GraphRuntime(machine, self.full_job, self.plan)
                self._handles = [*[it for it in self._handles if not it.gone()], found.handle]
                runtimes[self] = found
            return found

    def _result_blob(self, machine: VirtualMachine, of: TensorMeta) -> Blob:
        return Blob(Storage(machine, None, machine.stream(of.device)), of)

    def _instructions(
        self, machine: VirtualMachine, runtime: GraphRuntime, launch: Launch, variables: Variables, mode: Mode
    ) -> tuple[list[Instruction], list[tuple[Storage, Instruction]]]:
        """What a launch consists of, and which of it writes what."""
        code, last = origin.capture()
        instructions: list[Instruction] = []
        writes: list[tuple[Storage, Instruction]] = []
        if self._nbytes:
            for blob, placed in zip(launch.results, self._placed, strict=True):
                if placed:
                    stream, written = machine.stream(blob.meta.device), (blob.storage.dependence,)
                    instruction = Instruction(stream, AllocateTensor(blob), (), written, 0, code, last, mode)
                    instructions.append(instruction)
                    writes.append((blob.storage, instruction))
        needed, reads = variables.read_blobs, variables.read + runtime.memory.unsettled()
        sources = launch.sources
        job = _Job(runtime, launch)
        if runtime.brief or not sources:
            # The run is over before anybody could make use of having the arguments back.
            launch.share(_NOTHING)
            launch.open(None)
            needed += sources
            reads += [blob.storage for blob in sources]
        else:
            # What the run changes is its own from the beginning to the end, and need not be asked for again.
            shared = tuple([blob for blob in sources if blob.storage not in variables.changed])
            section, stream = CriticalSection(shared, job.open), runtime.section_stream()
            launch.share(variables.changed if len(shared) < len(sources) else _NOTHING, section, stream)
            read = tuple([_ordered(machine, blob.storage) for blob in shared])
            instructions.append(Instruction(stream, section, read, (), 0, code, last, mode))
        policy = LaunchLazyJob(job, variables.written_blobs, needed)
        changed = variables.written + [blob.storage for blob in launch.results]
        instruction = Instruction(
            runtime.launches,
            policy,
            tuple([_ordered(machine, storage) for storage in reads]),
            tuple([_ordered(machine, storage) for storage in changed]),
            runtime.cost,
            code,
            last,
            mode,
            self._nbytes,
        )
        instructions.append(instruction)
        writes += [(storage, instruction) for storage in changed]
        return instructions, writes

    def _draws(self) -> list[list[tuple[int, int]]]:
        """What this run takes of random generators: in the order in which eager ops would."""
        draws = self.full_job.draws
        if not draws:
            return self._no_draws
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


def _ordered(machine: VirtualMachine, storage: Storage) -> Dependence:
    """What orders the accesses to a storage.  Which of a device's streams used it last does not matter to a graph."""
    dependence = storage.dependence
    return dependence if dependence.machine is machine else machine.take_over(storage)


@final
class _Job:
    """What `LaunchLazyJob` launches."""

    __slots__ = ("launch_", "runtime")

    def __init__(self, runtime: GraphRuntime, launch: Launch) -> None:
        self.runtime = runtime
        self.launch_ = launch

    @property
    def name(self) -> str:
        return self.runtime.launching

    def launch(self, ended: Ended) -> None:
        self.launch_.begin(ended)
        self.runtime.launch(self.launch_)

    def fail(self, failure: Failure) -> None:
        self.launch_.fail(failure)
        self.launch_.finish()

    def open(self, failure: Failure | None) -> None:
        """The arguments are there, or never will be."""
        self.launch_.open(failure)
        self.runtime.opened()


def call_one_on_arrays(
    last: CompiledGraph, forms: Iterable[CompiledGraph], arrays: Sequence[Array]
) -> tuple[CompiledGraph, Any]:
    """Which of a graph's forms takes the arrays, and what `CompiledGraph.call_on_arrays` of it gives.

    Args:
        last: the form that was called last, which most often is the one.
        forms: all of them.
        arrays: see `PureCall.call_on_arrays`.
    """
    result = last.call_on_arrays(arrays)
    if result is NOT_NOW and not last.takes(arrays):
        for form in forms:
            if form.takes(arrays):
                result = form.call_on_arrays(arrays)
                if result is not NOT_NOW:
                    return form, result
    return last, result


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
