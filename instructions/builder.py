"""Compose instructions and issue them together: `InstructionsBuilder` and `physical_run`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from . import origin
from .access_blob import AccessBlobByCallback
from .barrier import Barrier, GlobalSync
from .blob import Array, Blob, Storage
from .instruction import Dependence, Instruction
from .multi_tensor_update import MultiTensorUpdate, UpdateKernel
from .op_call import Kernel, OpCall
from .release_tensor import ReleaseTensor

if TYPE_CHECKING:
    from vmflow.devices import device as Device
    from vmflow.streams import Stream

Result = TypeVar("Result")


class Machine(Protocol):
    """What the builder needs of a virtual machine."""

    def stream(self, device: Device, kind: str = "compute") -> Stream: ...

    def control_stream(self) -> Stream: ...

    def streams(self) -> Iterable[Stream]: ...

    def take_over(self, storage: Storage) -> Dependence: ...

    def issue(self, instruction: Instruction, written: Storage | None = None) -> None: ...


class InstructionsBuilder:
    """Collects instructions; `physical_run` issues them when all could be built.

    Every method returns the instruction, so that a caller can wait for it.
    """

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.instructions: list[Instruction] = []
        self.writes: list[tuple[Storage, Instruction]] = []
        self.code, self.last = origin.capture()

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
    ) -> Instruction:
        """Run `kernel`; see `OpCall`."""
        if stream is None:
            stream = self.machine.stream(outputs[0].meta.device)
        return self._add(
            stream,
            OpCall(name, kernel, inputs, outputs, scalars, several),
            reads=[blob.storage for blob in inputs],
            writes=[blob.storage for blob in outputs],
            cost=cost,
        )

    def multi_tensor_update(
        self, name: str, kernel: UpdateKernel, inputs: tuple[Blob, ...], outputs: tuple[Blob, ...], *, cost: int = 0
    ) -> Instruction:
        """Change all `outputs` in place by one instruction; see `MultiTensorUpdate`."""
        return self._add(
            self.machine.stream(outputs[0].meta.device),
            MultiTensorUpdate(name, kernel, inputs, outputs),
            reads=[blob.storage for blob in inputs],
            writes=[blob.storage for blob in outputs],
            cost=cost,
        )

    def release_tensor(self, storage: Storage, device: Device) -> Instruction:
        """Give the storage's memory back behind everything issued so far."""
        return self._add(self.machine.stream(device), ReleaseTensor(storage), writes=[storage])

    def access_blob_by_callback(
        self, blob: Blob, callback: Callable[[Array], None], modifier: str = "const"
    ) -> Instruction:
        """Call `callback` with the blob's array in its turn; see `AccessBlobByCallback`."""
        policy = AccessBlobByCallback(blob, callback, modifier)
        storages = [blob.storage]
        stream = self.machine.stream(blob.meta.device)
        if modifier == "const":
            return self._add(stream, policy, reads=storages)
        return self._add(stream, policy, writes=storages)

    def barrier(self, callback: Callable[[], None] | None = None) -> Instruction:
        """Call `callback` when everything issued so far is erased."""
        return self._add(self.machine.control_stream(), Barrier(callback))

    def global_sync(self, callback: Callable[[], None] | None = None) -> Instruction:
        """A barrier behind which every stream is drained."""
        return self._add(self.machine.control_stream(), GlobalSync(self.machine.streams, callback))

    def _add(
        self,
        stream: Stream,
        policy: Any,
        reads: Iterable[Storage] = (),
        writes: Iterable[Storage] = (),
        cost: int = 0,
    ) -> Instruction:
        writes = list(writes)
        written = tuple([access(storage, self.machine) for storage in writes])
        read = tuple([access(storage, self.machine) for storage in reads])
        instruction = Instruction(stream, policy, read, written, cost, self.code, self.last)
        self.instructions.append(instruction)
        self.writes += [(storage, instruction) for storage in writes]
        return instruction


def access(storage: Storage, machine: Machine) -> Dependence:
    """The storage's dependence, in the hands of `machine`."""
    dependence = storage.dependence
    if dependence.machine is not machine:
        return machine.take_over(storage)
    return dependence


def physical_run(machine: Machine, build: Callable[[InstructionsBuilder], Result]) -> Result:
    """Let `build` compose instructions, then issue them in order.  If it raises, none is issued."""
    builder = InstructionsBuilder(machine)
    result = build(builder)
    issue(machine, builder.instructions, builder.writes)
    return result


def issue(machine: Machine, instructions: list[Instruction], writes: list[tuple[Storage, Instruction]]) -> None:
    """Issue instructions, having told the storages who writes them.

    If Ctrl-C comes in between, the instructions are issued all the same: a storage must not wait for one that nobody
    was given.
    """
    if len(writes) == len(instructions) == 1:
        machine.issue(instructions[0], writes[0][0])
        return
    try:
        for storage, instruction in writes:
            storage.writer = instruction
    finally:
        _issue_all(machine, instructions)


def _issue_all(machine: Machine, instructions: list[Instruction]) -> None:
    """Issue every one of them, then raise what the first failing call raised.

    A closed machine refuses an instruction and poisons what it would have written; Ctrl-C and the like come out of a
    call that has accepted its instruction.  In either case, those behind it must not be left out.
    """
    escaping: BaseException | None = None
    for instruction in instructions:
        try:
            machine.issue(instruction)
        except BaseException as error:
            escaping = escaping or error
    if escaping is not None:
        raise escaping
