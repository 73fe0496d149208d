"""`GraphCaller` turns the call of a graph into a launch: it makes the result tensors, and runs or issues the launch.

A launch runs without being issued only if the plan has a single task on the host, its operands are ready and no
earlier work is queued.  Other launches are issued: a single task on a CUDA device, without actors, as a
`LaunchOnStream` instruction, any other plan as a `LaunchLazyJob`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, final

from vmflow.autograd.grad_mode import no_grad
from vmflow.context import Mode
from vmflow.errors import VirtualMachineClosed
from vmflow.instructions import origin
from vmflow.instructions.allocate_tensor import AllocateTensor
from vmflow.instructions.blob import Blob, Storage, TensorMeta, count_writes, places_memory
from vmflow.instructions.builder import issue
from vmflow.instructions.critical_section import CriticalSection
from vmflow.instructions.deferred import Ended
from vmflow.instructions.failure import Failure
from vmflow.instructions.instruction import Dependence, Instruction
from vmflow.instructions.launch_lazy_job import LaunchLazyJob
from vmflow.instructions.release_tensor import Lease
from vmflow.ops.copying import clone
from vmflow.tensor_fields import blob_of, new_tensor, still_have
from vmflow.vm import inline
from vmflow.vm.machine_fields import MachineFields
from vmflow.vm.virtual_machine import default_machine

from .acts import GraphAct, LaunchOnStream
from .launch import Launch
from .single_task import SingleTask
from .variables import Variables

if TYPE_CHECKING:
    from vmflow.tensors import Tensor
    from vmflow.vm.virtual_machine import VirtualMachine

    from .runtime import GraphRuntime

_NOTHING: Final[frozenset[Storage]] = frozenset()


@final
class GraphCaller:
    """The calls of one compiled graph on one virtual machine.

    Args:
        machine: the machine that runs the launches.
        outputs: the metas (shape, dtype, device) of the results.
        uses: how often a launch copies or reads its arguments; see `Launch`.
        task: see `GraphRuntime.single`.
        launches_ahead: whether any task of the plan hands its work to a device that computes it after the task's
            function has returned.
    """

    def __init__(
        self,
        machine: VirtualMachine,
        outputs: Sequence[TensorMeta],
        uses: int,
        task: SingleTask | None,
        launches_ahead: bool,
    ) -> None:
        self._launches_ahead = launches_ahead
        self._machine = machine
        # The metas of the results, each with whether the device's allocator, and not the launch, allocates its memory.
        self._outputs = [(output, places_memory(output)) for output in outputs]
        self._uses = uses
        self._task = task
        self._closed = False
        self._memory_is_there = False
        self._placed_bytes = sum([output.nbytes for output, is_placed in self._outputs if is_placed])

    def close(self) -> None:
        """Refuse further calls: `call` returns None from now on."""
        self._closed = True

    def call(
        self,
        runtime: GraphRuntime,
        sources: tuple[Blob, ...],
        numbers: Sequence[float],
        draws: Sequence[Sequence[tuple[int, int]]],
        variables: Variables,
        mode: Mode,
    ) -> list[Tensor] | None:
        """Launch the graph once, and return its result tensors, whose values may still be being computed.

        Returns None without a launch if the runtime is closed, if the mode's machine is not this caller's, or if the
        data of a variable's tensor has been replaced: another runtime, or new `variables`, are needed then.

        Args:
            runtime: the runtime of this caller.
            sources: the blobs of the arguments.
            numbers: the values of the job's numbers, such as learning rates.
            draws: for each micro-batch, by draw, the (seed, position) taken from a random generator.
            variables: the memory of the job's variables.
            mode: the context (machine, cancel scope) in which the graph was called.

        Raises:
            VirtualMachineClosed: if the virtual machine is closed.
        """
        machine = self._machine
        if self._closed or (mode.machine or default_machine()) is not machine or not still_have(variables.held):
            return None
        fields: MachineFields = machine
        if fields.driver.refusing:
            machine.require_open("launch_lazy_job")
        if self._launches_ahead and self._task is None and variables.written:
            sources = _apart(sources, variables)
        results: list[Tensor] = []
        blobs: list[Blob] = []
        for output, is_placed in self._outputs:
            storage = Storage(machine, None, fields.devices.compute_stream(output.device))
            blob = Blob(storage, output)
            blobs.append(blob)
            results.append(new_tensor(blob, Lease(storage) if is_placed else None))
        launch = Launch(sources, tuple(blobs), numbers, draws, self._uses, variables.storages)
        is_open = True
        try:
            if not self._ran_inline(runtime, launch, variables, mode):
                is_open = runtime.expect(launch)
                if is_open:
                    self._issue(runtime, launch, variables, mode)
        finally:
            if is_open:
                # Writes are counted even if Ctrl-C was raised: issued instructions still run and write the variables.
                count_writes(variables.written)
        return results if is_open else None

    def _ran_inline(self, runtime: GraphRuntime, launch: Launch, variables: Variables, mode: Mode) -> bool:
        """Run the launch on the caller's thread if it is a single host task that can run now, with only small results.

        Returns whether the launch ran.
        """
        task = self._task
        if task is None or self._placed_bytes or self._launches_ahead:
            return False
        if not self._memory_is_there:
            if runtime.memory.unsettled():
                return False
            self._memory_is_there = True
        machine = self._machine
        scope = mode.scope
        if scope is not None and scope.dropped() is not None:
            return False
        for blob in launch.sources:
            owner = blob.storage.machine
            if owner is None:
                machine.take_over(blob.storage)  # nothing has used this storage, made from a caller's array
            elif owner is not machine:
                return False
            if variables.written and blob.storage in variables.changed:
                launch.share(variables.changed)
        for storage in variables.written:
            if storage.machine is not machine or storage.failure is not None:
                return False
        for storage in variables.read:
            if storage.machine is not machine or storage.failure is not None:
                return False
        cost = 0 if scope is not None and scope.here else task.cost
        act = GraphAct(runtime, task, launch, True)
        if variables.written:
            reads = [blob.storage.dependence for blob in launch.sources]
            writes = tuple([storage.dependence for storage in variables.written])
            inline.run(machine, Instruction(task.stream, act, tuple(reads), writes, cost, None, 0, mode), None)
        else:
            # Ctrl-C may be raised in this call.  Nothing is lost: no variable is written, and nobody sees the results.
            fields: MachineFields = machine
            fields.driver.run(act, task.stream, cost, mode)
        return launch.over

    def _issue(self, runtime: GraphRuntime, launch: Launch, variables: Variables, mode: Mode) -> None:
        handed_over = False
        try:
            instructions, writes = self._instructions(runtime, launch, variables, mode)
            # `issue` issues all instructions, which end the launch, unless it raises VirtualMachineClosed.
            handed_over = True
            issue(self._machine, instructions, writes)
        except BaseException as error:
            if not handed_over or isinstance(error, VirtualMachineClosed):
                closed = self._machine.lifecycle.closed_failure() if handed_over else None
                launch.fail(closed or Failure(error, dropped=True))
                launch.finish()
            raise

    def _instructions(
        self, runtime: GraphRuntime, launch: Launch, variables: Variables, mode: Mode
    ) -> tuple[list[Instruction], list[tuple[Storage, Instruction]]]:
        """Make the instructions of a launch.

        Returns the instructions, and pairs of a storage and an instruction that writes it, in order.
        """
        if self._launches_ahead and self._task is not None:
            return self._on_stream(runtime, self._task, launch, variables, mode)
        machine = self._machine
        code, last = origin.capture()
        instructions: list[Instruction] = []
        writes: list[tuple[Storage, Instruction]] = []
        for blob, (_, is_placed) in zip(launch.results, self._outputs, strict=True):
            if is_placed:
                stream, written = machine.stream(blob.meta.device), (blob.storage.dependence,)
                allocation = Instruction(stream, AllocateTensor(blob), (), written, 0, code, last, mode)
                instructions.append(allocation)
                writes.append((blob.storage, allocation))
        needed, reads = variables.read_blobs, variables.read + runtime.memory.unsettled()
        sources = launch.sources
        job = _Job(runtime, launch)
        if runtime.short or not sources:
            # The instruction of a short run reads the arguments until its end, in place of a critical section.
            launch.share(_NOTHING)
            launch.open(None)
            needed += sources
            reads += [blob.storage for blob in sources]
        else:
            # A critical section keeps others from writing arguments while the run reads them.  Arguments in memory of
            # variables that the run writes need none: the run has that memory for itself until its end.
            shared = tuple([blob for blob in sources if blob.storage not in variables.changed])
            section, section_stream = CriticalSection(shared, job.open), runtime.section_stream()
            launch.share(variables.changed if len(shared) < len(sources) else _NOTHING, section, section_stream)
            read = tuple([_ordered(machine, blob.storage) for blob in shared])
            instructions.append(Instruction(section_stream, section, read, (), 0, code, last, mode))
        changed = variables.written + [blob.storage for blob in launch.results]
        instruction = Instruction(
            runtime.launches,
            LaunchLazyJob(job, variables.written_blobs, needed),
            tuple([_ordered(machine, storage) for storage in reads]),
            tuple([_ordered(machine, storage) for storage in changed]),
            runtime.cost,
            code,
            last,
            mode,
            self._placed_bytes,
        )
        instructions.append(instruction)
        writes += [(storage, instruction) for storage in changed]
        return instructions, writes

    def _on_stream(
        self, runtime: GraphRuntime, task: SingleTask, launch: Launch, variables: Variables, mode: Mode
    ) -> tuple[list[Instruction], list[tuple[Storage, Instruction]]]:
        """Make the one instruction of a launch on a stream that launches ahead, without a critical section."""
        machine = self._machine
        code, last = origin.capture()
        shared = tuple([blob for blob in launch.sources if blob.storage not in variables.changed])
        memory = runtime.memory.unsettled()
        read = [*variables.read, *memory, *[blob.storage for blob in shared]]
        changed = [*variables.written, *[blob.storage for blob in launch.results]]
        instruction = Instruction(
            task.stream,
            LaunchOnStream(runtime, task, launch, (*variables.read_blobs, *shared), variables.written_blobs),
            tuple([machine.access(storage, task.stream) for storage in read]),
            tuple([machine.access(storage, task.stream) for storage in changed]),
            task.cost,
            code,
            last,
            mode,
            self._placed_bytes,
        )
        return [instruction], [(storage, instruction) for storage in changed]


def _apart(sources: tuple[Blob, ...], variables: Variables) -> tuple[Blob, ...]:
    """Return the arguments, with copies on the device in place of arguments in memory that the run writes."""
    with no_grad():
        return tuple(
            [blob_of(clone(new_tensor(blob, None))) if blob.storage in variables.changed else blob for blob in sources]
        )


def _ordered(machine: VirtualMachine, storage: Storage) -> Dependence:
    """Return the storage's `Dependence`, after `machine` has taken over the storage if need be."""
    dependence = storage.dependence
    return dependence if dependence.machine is machine else machine.take_over(storage)


@final
class _Job:
    """The callbacks of instructions: a `LaunchLazyJob` starts or fails a launch, a `CriticalSection` calls `open`."""

    def __init__(self, runtime: GraphRuntime, launch: Launch) -> None:
        self._runtime = runtime
        self._launch = launch

    @property
    def name(self) -> str:
        return self._runtime.launching

    def launch(self, ended: Ended) -> None:
        self._launch.begin(ended)
        self._runtime.launch(self._launch)

    def fail(self, failure: Failure) -> None:
        self._launch.fail(failure)
        self._launch.finish()

    def open(self, failure: Failure | None) -> None:
        """Note that the launch's arguments have been computed, or (with a failure) that it will not read them."""
        self._launch.open(failure)
        self._runtime.opened()
