"""`Job`: what a graph does, as plain data: ops, in an order in which they can run, over numbered buffers.

A buffer is memory.  Most are written once, by the op that makes them; a variable, or the target of an in-place op, is
written again, so that the order of the ops is part of what a job means: an op reads what the latest op before it has
written.  Operands see buffers through strides, so that views cost nothing here either.

Jobs are never changed.  A pass makes another; see `graph_mode.passes`.
"""

from __future__ import annotations

import struct
from collections.abc import Hashable, Iterator, Mapping
from typing import Any, Final, Literal, TypeAlias

import attrs

from vmflow.context import MODE
from vmflow.dtypes import dtype as DType
from vmflow.instructions.blob import Array, TensorMeta
from vmflow.instructions.multi_tensor_update import UpdateKernel
from vmflow.ops.table import OPS, OpPlan

# Where the value of a buffer comes from: the caller, at each launch; a tensor outside that shares its memory; an array
# that the job brings along; a number from outside at each launch; or an op of the job.
Role: TypeAlias = Literal["input", "variable", "constant", "number", "temporary"]

# How an op is run:
#   call        into buffers of its own; what is declared in the op table
#   into        the same, into memory that exists: an in-place op
#   update      many buffers changed together; see `vmflow.multi_tensor.Update`
#   transfer    a copy between devices
#   unpack      the next of several equal parts, along the first dimension, of each of its inputs
#   accumulate  the sum of what the micro-batches make
#   pack        what the micro-batches make, one after the other along the first dimension
Kind: TypeAlias = Literal["call", "into", "update", "transfer", "unpack", "accumulate", "pack"]

# Those that lead from the one phase to the other.  They run once for each micro-batch.
Gathering: TypeAlias = Literal["unpack", "accumulate", "pack"]
GATHERING: Final[tuple[Gathering, ...]] = ("unpack", "accumulate", "pack")


@attrs.frozen
class Buffer:
    """Memory for one C-contiguous array.

    Attributes:
        id: unique in the job.
        meta: shape, dtype and device.
        role: see `Role`.
        name: of a variable, an input or a constant; "" for what ops make.
    """

    id: int
    meta: TensorMeta
    role: Role = "temporary"
    name: str = ""


@attrs.frozen
class Operand:
    """An array seen in a buffer.

    Attributes:
        buffer: its id.
        meta: of what is seen.
        strides, offset: as of a `Blob`: in elements, strides None for the whole buffer.
    """

    buffer: int
    meta: TensorMeta
    strides: tuple[int, ...] | None = None
    offset: int = 0


@attrs.frozen
class Drawn:
    """In place of a scalar: half of a random op's place in its generator's sequence, which every launch draws anew.

    Attributes:
        draw: which of the job's draws.
        part: 0 for the seed, 1 for the position.
    """

    draw: int
    part: int


@attrs.frozen
class Draw:
    """What a launch takes of a random generator.

    Attributes:
        elements: how many numbers; see `Generator.take`.
        generator: the number of the generator; 0 is the caller's default one.
        phase: as of a `JobOp`.
    """

    elements: int
    generator: int = 0
    phase: Literal["micro", "step"] = "step"


def exact(value: Any) -> Hashable:
    """What equals for the same bits only: 0.0 is not -0.0, 1 neither 1.0 nor True, and nan is nan."""
    if isinstance(value, tuple):
        return tuple([exact(it) for it in value])
    if isinstance(value, float):
        return type(value), struct.pack("d", value)
    if isinstance(value, complex):
        return type(value), struct.pack("dd", value.real, value.imag)
    found: Hashable = (type(value), value)
    return found


@attrs.frozen
class JobOp:
    """One op.

    Attributes:
        op: its name in the op table, or that of the update.
        inputs, outputs: what it reads and writes.  An update reads its outputs too.
        attributes, scalars: as at the op's call; a scalar may be `Drawn`.
        kind: see `Kind`.
        module: the path of the block whose forward called it, such as "model.layers.0".
        line: the user's line that called it, or whose gradient it computes.
        backward: whether it belongs to a backward pass.
        phase: "step" runs once per launch; "micro" once for each micro-batch, if gradients are accumulated.
        stage: of a pipeline; stages have streams of their own.
        cost: nanoseconds, of an update; all others are estimated from what they are.
        overwrites: of an update, whether the old values do not matter.
        default_dtype: the dtype that the caller had set for new floating-point tensors; None for the usual one.
        update: the kernel of an update, which is the one thing here that is not data.
    """

    op: str
    inputs: tuple[Operand, ...]
    outputs: tuple[Operand, ...]
    attributes: tuple[Any, ...] = attrs.field(default=(), eq=exact)
    scalars: tuple[Any, ...] = attrs.field(default=(), eq=exact)
    kind: Kind = "call"
    module: str = ""
    line: str = ""
    backward: bool = False
    phase: Literal["micro", "step"] = "step"
    stage: int = 0
    cost: int = 0
    overwrites: bool = False
    default_dtype: DType | None = None
    update: UpdateKernel | None = attrs.field(default=None, eq=False, repr=False)

    @property
    def name(self) -> str:
        """The op, and where it comes from, for people."""
        return f"{self.module}.{self.op}" if self.module else self.op

    def reads(self) -> Iterator[int]:
        """The buffers whose values it needs; some more than once."""
        for operand in self.inputs:
            yield operand.buffer
        for operand in self.outputs:
            # Writing a part leaves the rest as it was.
            if operand.strides is not None or (self.kind == "update" and not self.overwrites):
                yield operand.buffer

    def writes(self) -> Iterator[int]:
        """The buffers it changes or makes."""
        for operand in self.outputs:
            yield operand.buffer

    def infer(self) -> OpPlan:
        """Its kernel, and what it makes.  Not of updates.

        Raises:
            KeyError: if there is no such op.
        """
        op = OPS[self.op]
        metas = tuple([operand.meta for operand in self.inputs])
        kinds = tuple([int if isinstance(scalar, Drawn) else type(scalar) for scalar in self.scalars])
        key = (metas, self.attributes, kinds, self.default_dtype)
        found = op.known.get(key)
        if found is not None:
            return found
        # Of whoever built the job, not of whoever happens to run it.
        token = MODE.set(MODE.get().replace(dtype=self.default_dtype))
        try:
            return op.plan(key, self.attributes, metas, kinds)
        finally:
            MODE.reset(token)


@attrs.frozen
class Job:
    """A graph's work.

    Attributes:
        name: of the graph.
        buffers: all that the ops use, by id.
        ops: in an order in which they can run.
        inputs: the buffers that a caller fills, in the order of the flattened arguments.
        outputs: what the caller gets, in the order of the flattened results.
        numbers: the buffers that a launch fills with numbers from outside, such as learning rates.
        draws: what a launch takes of random generators, in order.
        constants: the values of the buffers of that role; nobody changes them.
        micro_batches: how many times the ops of the phase "micro" run per launch.
    """

    name: str
    buffers: dict[int, Buffer] = attrs.field(repr=lambda buffers: f"<{len(buffers)} buffers>")
    ops: tuple[JobOp, ...] = attrs.field(repr=lambda ops: f"<{len(ops)} ops>")
    inputs: tuple[int, ...] = ()
    outputs: tuple[Operand, ...] = ()
    numbers: tuple[int, ...] = ()
    draws: tuple[Draw, ...] = ()
    constants: dict[int, Array] = attrs.field(
        factory=dict, eq=False, repr=lambda constants: f"<{len(constants)} constants>"
    )
    micro_batches: int = 1

    def variables(self) -> list[Buffer]:
        """Those that share the memory of tensors outside, in the order of their ids."""
        return [buffer for _, buffer in sorted(self.buffers.items()) if buffer.role == "variable"]

    def written(self) -> set[int]:
        """The buffers that an op changes after they had a value."""
        made: set[int] = {buffer.id for buffer in self.buffers.values() if buffer.role != "temporary"}
        changed: set[int] = set()
        for op in self.ops:
            for buffer in op.writes():
                if buffer in made:
                    changed.add(buffer)
                made.add(buffer)
        return changed

    def with_ops(self, ops: list[JobOp], buffers: dict[int, Buffer] | None = None) -> Job:
        """The same with these ops; buffers that nothing uses any more are left out.

        Args:
            ops: in an order in which they can run.
            buffers: all there are, if some are new.
        """
        have = self.buffers if buffers is None else buffers
        used = {operand.buffer for op in ops for operand in (*op.inputs, *op.outputs)}
        used.update(self.inputs, self.numbers, [operand.buffer for operand in self.outputs])
        return attrs.evolve(
            self,
            ops=tuple(ops),
            buffers={number: have[number] for number in sorted(used)},
            constants={number: array for number, array in self.constants.items() if number in used},
        )

    def check(self) -> None:
        """Make sure that it can run.

        Raises:
            ValueError: for an operand of an unknown buffer, or one that is read before anything was written to it; if
                ops of one phase use what the other makes, but for those that lead from the one to the other; if the
                micro-batches would meet a variable that the step has changed already.
        """
        filled = {buffer.id for buffer in self.buffers.values() if buffer.role != "temporary"}
        for position, op in enumerate(self.ops):
            for buffer in (*op.reads(), *op.writes()):
                if buffer not in self.buffers:
                    raise ValueError(f"op {position} ({op.name}) uses buffer {buffer}, which the job does not have")
            for buffer in op.reads():
                if buffer not in filled:
                    raise ValueError(f"op {position} ({op.name}) reads buffer {buffer}, to which nothing was written")
            filled.update(op.writes())
        for operand in self.outputs:
            if operand.buffer not in filled:
                raise ValueError(f"an output of the job is buffer {operand.buffer}, to which nothing was written")
        if self.micro_batches > 1:
            self._check_phases()

    def _check_phases(self) -> None:
        phases: dict[int, str] = {}
        changed: set[int] = set()
        for position, op in enumerate(self.ops):
            expected = "step" if op.kind == "unpack" else op.phase
            made = "step" if op.kind in ("accumulate", "pack") else op.phase
            for buffer in op.reads():
                if phases.get(buffer, expected) != expected:
                    raise ValueError(
                        f"op {position} ({op.name}) of the phase {expected!r} reads buffer {buffer}, which is made in "
                        f"the phase {phases[buffer]!r}; it must be accumulated or packed between"
                    )
            for buffer in (*op.reads(), *op.writes()):
                if op.phase == "micro" and buffer in changed:
                    raise ValueError(
                        f"op {position} ({op.name}) runs for each micro-batch, and uses buffer {buffer}, which the "
                        "step has changed before"
                    )
            for buffer in op.writes():
                if self.buffers[buffer].role == "temporary":
                    phases.setdefault(buffer, made)
                elif op.phase == "step":
                    changed.add(buffer)

    def to_json(self, indent: int | None = None) -> str:
        """As text; see `graph_mode.serialization`, also for what stays out: constants' values and updates' kernels."""
        from .serialization import job_to_json

        return job_to_json(self, indent)

    @staticmethod
    def from_json(text: str, constants: Mapping[int, Array] | None = None) -> Job:
        """What `to_json` was called on.

        Args:
            text: the JSON.
            constants: by buffer, the values of all constants; None leaves them out, for a job that is not to run.

        Raises:
            ValueError: if the text is damaged or was made by a newer version; names the place.
        """
        from .serialization import job_from_json

        return job_from_json(text, constants)

    def to_dot(self) -> str:
        """As a picture's description for Graphviz: ops by module, and the buffers between them."""
        from .drawing import job_to_dot

        return job_to_dot(self)
