"""Running a job by the virtual machine, op by op: slow and simple, as a reference for `GraphRuntime`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from vmflow.instructions.blob import Blob, Storage, TensorMeta
from vmflow.instructions.builder import physical_run
from vmflow.instructions.op_call import Kernel
from vmflow.kernels.copies import copier
from vmflow.ops.creation import creation
from vmflow.tensor_fields import blob_of, lease_of, new_tensor
from vmflow.tensors import Tensor
from vmflow.vm.virtual_machine import VirtualMachine

from .job import BOUNDARY, GATHERING, Drawn, Job, JobOp, Operand
from .plan_memory import gather
from .tasks import stream_of


def run(
    machine: VirtualMachine,
    job: Job,
    bindings: Mapping[int, Tensor],
    arguments: Sequence[Tensor],
    numbers: Sequence[float],
    draws: Sequence[Sequence[tuple[int, int]]],
) -> list[Tensor]:
    """Issue the ops between feeds and fetches: those of `GATHERING` or the phase "micro" once for each micro-batch.

    Args:
        machine: the machine that runs them.
        job: the job.
        bindings: by buffer, the tensors that share the memory of variables.
        arguments: the tensors for the inputs of the job.
        numbers: the values of the job's numbers.
        draws: for each micro-batch, by draw, the (seed, position) taken from a generator.

    Returns:
        Copies of the job's outputs.
    """
    walk = _Walk(machine, job, draws)
    walk.tensors.update(bindings)
    for number, array in job.constants.items():
        walk.tensors[number] = creation.from_array(array, job.buffers[number].meta.device)
    walk.tensors.update(zip(job.inputs, [_whole(tensor) for tensor in arguments], strict=True))
    for number, value in zip(job.numbers, numbers, strict=True):
        walk.tensors[number] = creation.from_array(np.array(value, np.float64), job.buffers[number].meta.device)
    for index in range(job.micro_batches):
        for op in job.ops:
            if op.kind in GATHERING:
                walk.gather(op, index)
            elif op.phase == "micro":
                walk.issue(op, index)
    for op in job.ops:
        if op.phase == "step" and op.kind not in BOUNDARY:
            walk.issue(op, 0)
    # Results are clones: later writes of variables or arguments must not change them.
    return [new_tensor(walk.blob(operand), lease_of(walk.tensors[operand.buffer])).clone() for operand in job.outputs]


def _whole(argument: Tensor) -> Tensor:
    """The argument if it fills its memory, with its elements in order, as the ops of a job expect; else a copy."""
    return argument if blob_of(argument).strides is None else argument.detach().clone()


class _Walk:
    def __init__(self, machine: VirtualMachine, job: Job, draws: Sequence[Sequence[tuple[int, int]]]) -> None:
        self.machine = machine
        self.job = job
        self.draws = draws
        self.tensors: dict[int, Tensor] = {}

    def blob(self, operand: Operand) -> Blob:
        """The blob of an operand."""
        tensor = self.tensors.get(operand.buffer)
        if tensor is None:
            tensor = self.tensors[operand.buffer] = self._new(self.job.buffers[operand.buffer].meta)
        return Blob(blob_of(tensor).storage, operand.meta, operand.strides, operand.offset)

    def issue(self, op: JobOp, micro: int) -> None:
        """Issue an op as one instruction, for the micro-batch with the number `micro`."""
        inputs = tuple([self.blob(operand) for operand in op.inputs])
        if op.kind == "call":
            for operand in op.outputs:
                self.tensors[operand.buffer] = self._new(self.job.buffers[operand.buffer].meta)
        outputs = tuple([self.blob(operand) for operand in op.outputs])
        if op.kind == "update":
            kernel = op.update
            assert kernel is not None
            physical_run(
                self.machine,
                lambda builder: builder.multi_tensor_update(
                    op.op, kernel, inputs, outputs, cost=op.cost, overwrites=op.overwrites
                ),
            )
            return
        stream = self.machine.stream(*stream_of(op))
        several = op.kind in ("call", "into") and op.infer().several
        physical_run(
            self.machine,
            lambda builder: builder.op_call(
                op.op,
                self._kernel(op),
                inputs,
                outputs,
                scalars=tuple([self._scalar(scalar, micro) for scalar in op.scalars]),
                several=several,
                stream=stream,
            ),
        )

    def gather(self, op: JobOp, micro: int) -> None:
        """Issue a micro-batch's step of unpacking, accumulating or packing: an instruction for each input."""
        for source, result in zip(op.inputs, op.outputs, strict=True):
            if micro == 0 or op.kind == "unpack":
                self.tensors[result.buffer] = self._new(result.meta)
            target = self.blob(result)
            # A target that holds earlier results is read, too: the failure of one micro-batch fails the whole result.
            read = (self.blob(source),) if micro == 0 or op.kind == "unpack" else (self.blob(source), target)
            self._issue_gathering(op, micro, read, target)

    def _issue_gathering(self, op: JobOp, micro: int, read: tuple[Blob, ...], target: Blob) -> None:
        kernel = _gathering(op.kind, micro, self.job.micro_batches, target.meta)
        physical_run(
            self.machine,
            lambda builder: builder.op_call(op.op, kernel, read, (target,), stream=self.machine.stream(*stream_of(op))),
        )

    def _scalar(self, scalar: Any, micro: int) -> Any:
        return self.draws[micro][scalar.draw][scalar.part] if isinstance(scalar, Drawn) else scalar

    def _kernel(self, op: JobOp) -> Kernel:
        if op.kind == "transfer":
            source, target = op.inputs[0].meta.device, op.outputs[0].meta.device
            return copier(source if target.type == "cpu" else target)
        inferred = op.infer()
        if inferred.kernel.casts or inferred.outputs[0].dtype is op.outputs[0].meta.dtype:
            return inferred.kernel.function
        return lambda *arguments: inferred.kernel.function(*arguments[:-1], None)

    def _new(self, layout: TensorMeta) -> Tensor:
        return new_tensor(Blob(Storage(self.machine, None, self.machine.stream(layout.device)), layout), None)


def _gathering(kind: str, index: int, count: int, made: TensorMeta) -> Kernel:
    def kernel(*arrays: Any) -> Any:
        read, out = arrays[0], arrays[-1]
        written = np.empty(tuple(made.shape), made.dtype.numpy) if out is None else out
        gather(kind, read, written, index, count)
        return written

    return kernel
