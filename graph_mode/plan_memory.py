"""`PlanMemory`: the memory of a plan on one machine, and the programs that work on it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, final

import numpy as np

from vmflow import dtypes
from vmflow.devices import device as Device
from vmflow.instructions.blob import Array, Storage
from vmflow.interpreter import eagerly
from vmflow.kernels.copies import add_to, assign, rows_of, view_at
from vmflow.ops.creation.creation import empty, from_array
from vmflow.scopes import scope
from vmflow.tensor_fields import blob_of
from vmflow.tensors import Tensor

from .actors import Action
from .job import Job
from .plan import Plan
from .program import Environment, Program, place_one_after_other


@final
class PlanMemory:
    """The arenas, registers and constants of a plan.

    Args:
        job: the job of the plan.
        plan: the plan.
        tell: see `GraphRuntime`.

    Attributes:
        tensors: the memory that is not empty, by ("arena", task, 0) and ("register", id, slot); on a CUDA device also
            the constants, by ("constant", buffer, 0).
    """

    def __init__(self, job: Job, plan: Plan, tell: Callable[[str], None] | None) -> None:
        self.job = job
        self._tell = tell
        self.plan = plan
        self.tensors: dict[tuple[str, int, int], Tensor] = {}
        self._programs: dict[tuple[Any, ...], Program] = {}
        self._settled = False
        self._allocate()

    def _allocate(self) -> None:
        # The caller's scopes and interpreters must not affect this memory.
        with scope(shield=True), eagerly():
            for task, chain in self.plan.chains.items():
                self._reserve("arena", task, 1, chain.arena.nbytes, chain.device)
            for register in self.plan.registers:
                contents = self.plan.contents.get(register.id)
                if contents is not None:
                    self._reserve("register", register.id, register.count, contents.nbytes, contents.device)
            for number, array in self.job.constants.items() if self.plan.device.type == "cuda" else ():
                self.tensors["constant", number, 0] = from_array(array, self.plan.device)

    def _reserve(self, kind: str, number: int, slots: int, nbytes: int, device: Device) -> None:
        if device.type == "cuda":
            nbytes = max(nbytes, 1)  # on CUDA devices, arrays without elements are views of some memory, too
        for slot in range(slots if nbytes else 0):
            self.tensors[kind, number, slot] = empty(nbytes, dtype=dtypes.uint8, device=device)

    def unsettled(self) -> list[Storage]:
        """The storages for which a launch has to wait: all, or none once an earlier call found all allocated."""
        if self._settled:
            return []
        storages = [blob_of(tensor).storage for tensor in self.tensors.values()]
        self._settled = all([storage.settled() and storage.failure is None for storage in storages])
        return storages

    def usable(self) -> bool:
        """Whether no allocation of the memory has failed so far."""
        if self._settled:
            return True
        storages = [blob_of(tensor).storage for tensor in self.tensors.values()]
        return not any([storage.settled() and storage.failure is not None for storage in storages])

    def forget(self) -> None:
        """Release the memory, and the programs that work on it."""
        self._programs.clear()
        self.tensors.clear()

    def program(self, task: int, action: Action | None) -> Program:
        """Return the program of a task for the slots of the action's registers; `action` is None for a `SingleTask`."""
        slots = (*action.inputs, *action.outputs) if action is not None else ()
        key = (task, *[slot.slot for slot in slots])
        program = self._programs.get(key)
        if program is None:
            chain = self.plan.chains[task]
            constants = self.job.constants
            if chain.device.type == "cuda":
                constants = {number: self._array("constant", number) for number in constants}
            environment = Environment(self.job, constants)
            environment.place(self._array("arena", task), chain.arena.offsets)
            for slot in slots:
                for number, array in self._slot_arrays(slot.register, slot.slot).items():
                    environment.put(number, array)
            program = self._programs[key] = Program(chain, environment, self._tell)
        return program

    def _slot_arrays(self, register: int, slot: int) -> dict[int, Array]:
        contents = self.plan.contents[register]
        metas = [self.job.buffers[buffer].meta for buffer in contents.buffers]
        memory = self._array("register", register, slot)
        offsets = place_one_after_other(metas)
        return {
            number: view_at(memory, offset, layout)
            for number, offset, layout in zip(contents.buffers, offsets, metas, strict=True)
        }

    def _array(self, kind: str, number: int, slot: int = 0) -> Array:
        tensor = self.tensors.get((kind, number, slot))
        return np.empty(0, np.uint8) if tensor is None else blob_of(tensor).storage.array

    def gather(self, task: int, action: Action) -> None:
        op = self.job.ops[self.plan.gathers[task]]
        if op.outputs[0].meta.device.type == "meta":
            return
        count = self.job.micro_batches
        read: dict[int, Array] = {}
        written: dict[int, Array] = {}
        for slot in action.inputs:
            read.update(self._slot_arrays(slot.register, slot.slot))
        for slot in action.outputs:
            written.update(self._slot_arrays(slot.register, slot.slot))
        for source, target in zip(op.inputs, op.outputs, strict=True):
            if target.buffer in written:  # results without readers are in no register
                gather(op.kind, read[source.buffer], written[target.buffer], action.index, count)


def gather(kind: str, read: Array, written: Array, index: int, count: int) -> None:
    """Do step `index` of `count`: "unpack" and "pack" copy a slice, "accumulate" copies (first) or adds an array."""
    if kind == "unpack":
        size = read.shape[0] // count
        assign(written, rows_of(read, index * size, (index + 1) * size))
    elif kind == "pack":
        part = rows_of(written.reshape(count, *read.shape), index, index + 1)
        assign(part.reshape(read.shape), read)
    elif index == 0:
        assign(written, read)
    else:
        add_to(written, read)
