"""`CompiledGraph`: what building a graph once has come to, and calling it."""

from __future__ import annotations

import weakref
from collections.abc import Generator, Sequence
from typing import Any, final

import attrs

from vmflow.instructions.blob import Blob, Storage, TensorMeta, places_memory
from vmflow.instructions.builder import InstructionsBuilder, physical_run
from vmflow.instructions.critical_section import CriticalSectionEnd
from vmflow.instructions.failure import Failure
from vmflow.instructions.instruction import Dependence
from vmflow.instructions.policy import InstructionPolicy
from vmflow.instructions.release_tensor import Lease
from vmflow.interpreter import new_tensor
from vmflow.random import Generator as RandomGenerator
from vmflow.random import chosen_generator
from vmflow.tensors import Tensor
from vmflow.vm.virtual_machine import VirtualMachine, current_machine

from . import args_tree, vm_run
from .args_tree import Branch, Tree
from .compiler import compile_job
from .job import Job
from .launch import Launch
from .passes import Settings, run_passes
from .plan import Plan
from .runtime import GraphRuntime


@attrs.frozen
class Outside:
    """What a job needs of the world.

    Attributes:
        bindings: by buffer, the tensors that share the memory of its variables.
        generators: those that were given explicitly.
    """

    bindings: dict[int, Tensor]
    generators: tuple[RandomGenerator, ...] = ()


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

    Attributes:
        job, tree, metas: as given.
        full_job: after all passes.
        plan: how that is run.
    """

    def __init__(
        self,
        job: Job,
        outside: Outside,
        settings: Settings,
        tree: Tree,
        metas: tuple[TensorMeta, ...],
        out_tree: Tree,
    ) -> None:
        self.job = job
        self.tree = tree
        self.metas = metas
        self.full_job = run_passes(job, settings)
        self.plan: Plan = compile_job(self.full_job, settings.config.outputs_buffer_size)
        self._outside = outside
        self._out_tree = out_tree
        self._runtimes: weakref.WeakKeyDictionary[VirtualMachine, GraphRuntime] = weakref.WeakKeyDictionary()
        self._closed = False
        self._uses = sum([len(chain.inputs) for chain in self.plan.chains.values()])
        # The variables of jobs whose passes have dropped what uses them are of no interest.
        self._bindings = {it.id: outside.bindings[it.id] for it in self.full_job.variables()}
        self._written = [self._bindings[it] for it in sorted(self.full_job.written()) if it in self._bindings]
        self._read = [tensor for tensor in self._bindings.values() if tensor not in set(self._written)]

    def call(self, given: Sequence[Tensor], numbers: Sequence[float]) -> Any:
        """Run it once; returns at once.

        Args:
            given: the tensors among the arguments.
            numbers: what the job's numbers are this time.
        """
        machine = current_machine()
        runtime = self._runtime(machine)
        results = [self._result(machine, operand.meta) for operand in self.full_job.outputs]
        launch = Launch(
            tuple([tensor._blob for tensor in given]),
            tuple([tensor._blob for tensor in results]),
            numbers,
            self._draws(),
            self._uses,
        )
        physical_run(machine, lambda builder: self._issue(builder, runtime, launch))
        for tensor in self._written:
            tensor._blob.storage.version += 1
        return self._structured(results)

    def run_by_vm(self, given: Sequence[Tensor], numbers: Sequence[float]) -> Any:
        """The same, op by op."""
        machine = current_machine()
        results = vm_run.run(machine, self.full_job, self._bindings, given, numbers, self._draws())
        return self._structured(results)

    def close(self) -> None:
        """Launch nothing any more; what was launched still runs."""
        for runtime in list(self._runtimes.values()):
            runtime.close()
        self._runtimes.clear()

    def _runtime(self, machine: VirtualMachine) -> GraphRuntime:
        found = self._runtimes.get(machine)
        if found is None:
            found = GraphRuntime(machine, self.full_job, self.plan, self._bindings)
            self._runtimes[machine] = found
        return found

    def _result(self, machine: VirtualMachine, of: TensorMeta) -> Tensor:
        storage = Storage(Dependence(machine), None, machine.stream(of.device))
        return new_tensor(Blob(storage, of), Lease(storage) if places_memory(of) else None)

    def _issue(self, builder: InstructionsBuilder, runtime: GraphRuntime, launch: Launch) -> None:
        device = self.plan.device
        for blob in launch.results:
            if places_memory(blob.meta):
                builder.allocate_tensor(blob)
        job = _Job(runtime, launch)
        inputs: InstructionPolicy | None = None
        outputs: InstructionPolicy | None = None
        if launch.sources:
            builder.critical_section_begin(launch.sources, job.open)
        else:
            launch.open(None)
        written = tuple([it._blob for it in self._written])
        memory = tuple([it._blob for it in runtime.memory.values()])
        read = (*[it._blob for it in self._read], *memory)
        builder.launch_lazy_job(job, device, written, read)
        if launch.sources:
            inputs = builder.critical_section_end(launch.sources).policy
        if launch.results:
            outputs = builder.critical_section_end(launch.results, writes=True).policy
        launch.sections(_ending(inputs), _ending(outputs))

    def _draws(self) -> list[list[tuple[int, int]]]:
        """What this run takes of random generators: in the order in which eager ops would."""
        drawn: list[list[tuple[int, int]]] = []
        for micro in range(self.full_job.micro_batches):
            drawn.append([])
            for draw in self.full_job.draws:
                if micro and draw.phase == "step":
                    drawn[micro].append(drawn[0][len(drawn[micro])])
                    continue
                generator = self._outside.generators[draw.generator - 1] if draw.generator else chosen_generator(None)
                drawn[micro].append(generator.take(draw.elements))
        return drawn

    def _structured(self, results: Sequence[Tensor]) -> Any:
        return args_tree.unflatten(self._out_tree, results, awaitable)


def _ending(policy: InstructionPolicy | None) -> CriticalSectionEnd | None:
    assert policy is None or isinstance(policy, CriticalSectionEnd)
    return policy


@final
class _Job:
    """What `LaunchLazyJob` launches."""

    __slots__ = ("launch_", "runtime")

    def __init__(self, runtime: GraphRuntime, launch: Launch) -> None:
        self.runtime = runtime
        self.launch_ = launch

    @property
    def name(self) -> str:
        return self.runtime.name

    def launch(self, ended: Any) -> None:
        self.launch_.begin(ended)
        self.runtime.launch(self.launch_)

    def fail(self, failure: Failure) -> None:
        self.launch_.fail(failure)
        self.launch_.finish()

    def open(self, failure: Failure | None) -> None:
        """The arguments are there, or never will be."""
        self.launch_.open(failure)
        self.runtime.opened()


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
