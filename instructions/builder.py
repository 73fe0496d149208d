"""Compose instructions and issue them together: `InstructionsBuilder` and `physical_run`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from vmflow.context import MODE
from vmflow.errors import VirtualMachineClosed

from . import origin
from .access_blob import AccessBlobByCallback
from .allocate_tensor import AllocateTensor
from .barrier import Barrier
from .blob import Array, Blob, Storage, access, expect_writers
from .collective import Collective
from .failure import Failure
from .instruction import NEW, Dependence, Instruction
from .multi_tensor_update import MultiTensorUpdate, UpdateKernel
from .op_call import Kernel, op_call
from .policy import InstructionPolicy
from .stream_events import SharedEvent, StreamRecordEvent, StreamWait, StreamWaitEvent
from .touch_tensors import TouchTensors

if TYPE_CHECKING:
    from vmflow.devices import device as Device
    from vmflow.streams.stream import Stream

Result = TypeVar("Result")


class Machine(Protocol):
    """The methods of a virtual machine that this module calls."""

    def stream(self, device: Device, kind: str = "compute") -> Stream: ...

    def control_stream(self) -> Stream: ...

    def access(self, storage: Storage, stream: Stream) -> Dependence: ...

    def issue(self, instruction: Instruction, written: Storage | None = None) -> None: ...

    def require_open(self, name: str) -> None: ...


class InstructionsBuilder:
    """Collects instructions; `physical_run` issues them together once all have been built.

    Every method returns an instruction that it has added.
    """

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.instructions: list[Instruction] = []
        self.writes: list[tuple[Storage, Instruction]] = []
        self.code, self.last = origin.capture()
        self.mode = MODE.get()

    def op_call(
        self,
        name: str,
        kernel: Kernel,
        inputs: tuple[Blob, ...],
        outputs: tuple[Blob, ...],
        *,
        scalars: tuple[Any, ...] = (),
        several: bool = False,
        cost: int = 0,
        stream: Stream | None = None,
        allocates: bool | None = None,
    ) -> Instruction:
        """Add an `OpCall` that runs `kernel` on the inputs; see `CallPlan` for `allocates`.

        Without a `stream`, the call runs on the compute stream of the first output's device.
        """
        if stream is None:
            stream = self.machine.stream(outputs[0].meta.device)
        return self._add(
            stream,
            op_call(name, kernel, inputs, outputs, scalars, several, allocates),
            reads=[blob.storage for blob in inputs],
            writes=[blob.storage for blob in outputs],
            cost=cost,
        )

    def multi_tensor_update(
        self,
        name: str,
        kernel: UpdateKernel,
        inputs: tuple[Blob, ...],
        outputs: tuple[Blob, ...],
        *,
        cost: int = 0,
        overwrites: bool = False,
    ) -> Instruction:
        """Add a `MultiTensorUpdate`: one call of `kernel` changes all `outputs` in place."""
        return self._add(
            self.machine.stream(outputs[0].meta.device),
            MultiTensorUpdate(name, kernel, inputs, outputs, overwrites),
            reads=[blob.storage for blob in inputs],
            writes=[blob.storage for blob in outputs],
            cost=cost,
        )

    def access_blob_by_callback(
        self, blob: Blob, callback: Callable[[Array], None], modifier: str = "const"
    ) -> Instruction:
        """Add an `AccessBlobByCallback`: `callback` is called with the blob's array, in program order."""
        policy = AccessBlobByCallback(blob, callback, modifier)
        storages = [blob.storage]
        stream = self.machine.stream(blob.meta.device)
        if modifier == "const":
            return self._add(stream, policy, reads=storages)
        return self._add(stream, policy, writes=storages)

    def allocate_tensor(self, blob: Blob) -> Instruction:
        """Add an `AllocateTensor`: the blob's memory is allocated, uninitialised."""
        return self._add(self.machine.stream(blob.meta.device), AllocateTensor(blob), writes=[blob.storage])

    def await_uses(self, blobs: tuple[Blob, ...]) -> Instruction:
        """Add an instruction that ends after all earlier instructions that read or write the storages of the blobs."""
        dependences = tuple([blob.storage.dependence for blob in blobs])
        return self._add_dependences(self.machine.control_stream(), TouchTensors(blobs), dependences)

    def stream_wait(self, source: Stream, target: Stream, blobs: tuple[Blob, ...]) -> Instruction:
        """Add a `StreamWait`: stream `target` waits for the uses of the blobs on stream `source`.

        Raises:
            ValueError: unless both are asynchronous streams of one device.
        """
        _check_same_device(source, target)
        dependences = tuple([self.machine.access(blob.storage, source) for blob in blobs])
        return self._add_dependences(target, StreamWait(source), dependences)

    def record_event(self, shared: SharedEvent, behind: tuple[Dependence, ...], event: Dependence) -> Instruction:
        """Add a `StreamRecordEvent`: an event is recorded on its stream, `shared.source`.

        Args:
            shared: the event.
            behind: dependences of the stream's earlier instructions; none if the stream keeps program order.
            event: the dependence that orders the instructions that record this event or wait for it.
        """
        policy = StreamRecordEvent(shared)
        instruction = Instruction(shared.source, policy, behind, (event,), 0, self.code, self.last)
        self.instructions.append(instruction)
        return instruction

    def wait_event(self, stream: Stream, shared: SharedEvent, event: Dependence) -> Instruction:
        """Add a `StreamWaitEvent`: `stream` waits for `shared`; `event` is as in `record_event`.

        Raises:
            ValueError: unless `stream` and the event's stream are asynchronous.
        """
        if not (shared.source.policy.asynchronous and stream.policy.asynchronous):
            raise ValueError(f"{stream.name} cannot wait for an event of {shared.source.name}: both must be of devices")
        instruction = Instruction(stream, StreamWaitEvent(shared), (event,), (), 0, self.code, self.last)
        self.instructions.append(instruction)
        return instruction

    def collective(self, stream: Stream, policy: Collective) -> Instruction:
        """Add a `Collective`, this rank's half of an exchange between ranks; no scope can drop it."""
        reads = [] if policy.given is None else [policy.given.storage]
        writer = None if policy.given is None else policy.given.storage.writer
        if policy.given is not None and writer is not None and writer.stream is stream:
            # The host reads the sent tensor when the exchange begins.  So an instruction on `stream` that writes
            # the tensor must have ended by then, not merely been launched.
            self.touch(self.machine.stream(policy.given.meta.device), (policy.given,))
        read = tuple([access(self.machine, storage, stream) for storage in reads])
        written = (access(self.machine, policy.gotten.storage, stream),)
        instruction = Instruction(stream, policy, read, written, 0, self.code, self.last)
        self.instructions.append(instruction)
        self.writes.append((policy.gotten.storage, instruction))
        return instruction

    def touch(self, stream: Stream, blobs: tuple[Blob, ...]) -> Instruction:
        """Add a `TouchTensors`: an instruction on `stream` that is ordered as a write of the blobs and does nothing."""
        dependences = tuple([self.machine.access(blob.storage, stream) for blob in blobs])
        return self._add_dependences(stream, TouchTensors(blobs), dependences)

    def barrier(self, callback: Callable[[], None] | None = None) -> Instruction:
        """Add a `Barrier`, which calls `callback` when all instructions issued before it have ended."""
        return self._add(self.machine.control_stream(), Barrier(callback))

    def _add(
        self,
        stream: Stream,
        policy: InstructionPolicy,
        reads: Iterable[Storage] = (),
        writes: Iterable[Storage] = (),
        cost: int = 0,
    ) -> Instruction:
        writes = list(writes)
        written = tuple([access(self.machine, storage, stream) for storage in writes])
        read = tuple([access(self.machine, storage, stream) for storage in reads])
        instruction = Instruction(stream, policy, read, written, cost, self.code, self.last, self.mode)
        self.instructions.append(instruction)
        self.writes += [(storage, instruction) for storage in writes]
        return instruction

    def _add_dependences(
        self, stream: Stream, policy: InstructionPolicy, dependences: tuple[Dependence, ...]
    ) -> Instruction:
        """Add an instruction that only orders other instructions: it does not become the `writer` of a storage."""
        instruction = Instruction(stream, policy, (), dependences, 0, self.code, self.last)
        self.instructions.append(instruction)
        return instruction


def _check_same_device(source: Stream, target: Stream) -> None:
    if source.device is not target.device or not source.policy.asynchronous or not target.policy.asynchronous:
        raise ValueError(
            f"{target.name} cannot be made to wait for {source.name}: both must be streams of the same asynchronous "
            "device; between other streams the machine keeps order by itself"
        )


def physical_run(machine: Machine, build: Callable[[InstructionsBuilder], Result]) -> Result:
    """Call `build` with a new builder, then issue the instructions it added, in order.

    Returns the result of `build`; if `build` raises, none of these instructions is issued.
    """
    builder = InstructionsBuilder(machine)
    result = build(builder)
    issue(machine, builder.instructions, builder.writes)
    return result


def issue(machine: Machine, instructions: list[Instruction], writes: list[tuple[Storage, Instruction]]) -> None:
    """Set the writer of each storage in `writes`, and issue the instructions on the machine.

    If Ctrl-C comes in between, the instructions are issued nevertheless: a storage must not wait for an instruction
    that was never issued.  A closed machine raises `VirtualMachineClosed` first.
    """
    if instructions:
        machine.require_open(instructions[0].name)
    if len(writes) == len(instructions) == 1:
        machine.issue(instructions[0], writes[0][0])
        return
    try:
        expect_writers(writes)
    finally:
        _issue_all(machine, instructions)


def _issue_all(machine: Machine, instructions: list[Instruction]) -> None:
    """Issue all instructions, even if issuing one raises, then raise the first exception.

    The outputs of instructions that a machine refuses, since it closes meanwhile, are poisoned.
    """
    escaping: BaseException | None = None
    for instruction in instructions:
        try:
            machine.issue(instruction)
        except BaseException as error:
            escaping = escaping or error
            policy = instruction.policy
            if isinstance(error, VirtualMachineClosed) and instruction.state == NEW and policy is not None:
                # The machine has not accepted the instruction, for which readers of its outputs wait already.
                policy.fail(Failure(error, dropped=True))
                instruction.erase()
    if escaping is not None:
        raise escaping
