"""The parts of jobs, as plain data: ops, the operands that they read and write, and the buffers of operands."""

from __future__ import annotations

import struct
from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import Any, Final, Literal, TypeAlias

import attrs

from vmflow.context import MODE
from vmflow.dtypes import dtype as DType
from vmflow.instructions.blob import TensorMeta
from vmflow.instructions.multi_tensor_update import UpdateKernel
from vmflow.ops.table import OPS, OpPlan

# The source of a buffer's value.  "input": an argument of each launch, or a part of a loader's batch; "variable": a
# tensor outside of the job, whose memory the buffer shares; "constant": an array in the job; "number": a number given
# at each launch; "temporary": an op.
Role: TypeAlias = Literal["input", "variable", "constant", "number", "temporary"]

# How an op runs:
#   feed_input     takes the next argument, or the next tensor of a loader's batch
#   feed_variable  takes the memory of a tensor outside
#   call           computes an op of the op table, into buffers of its own
#   into           the same, into memory that exists: an in-place op
#   update         changes many buffers together; see `vmflow.multi_tensor.Update`
#   transfer       copies between devices
#   unpack         takes the next of several equal parts, along the first dimension, of each input
#   accumulate     sums the results of the micro-batches
#   pack           joins the results of the micro-batches along the first dimension
#   fetch_output   gives the next result or gradient to the caller
Kind: TypeAlias = Literal[
    "feed_input",
    "feed_variable",
    "call",
    "into",
    "update",
    "transfer",
    "unpack",
    "accumulate",
    "pack",
    "fetch_output",
]

# The kinds of ops that connect the phases "micro" and "step".  They run once for each micro-batch.
Gathering: TypeAlias = Literal["unpack", "accumulate", "pack"]
GATHERING: Final[tuple[Gathering, ...]] = ("unpack", "accumulate", "pack")

# By kind, the names of the ops between a job and its caller.  They compute nothing and belong to no task: feeds come
# before all other ops, and fetches after them.
BOUNDARY: Final[Mapping[Kind, str]] = {
    "feed_input": "FeedInput",
    "feed_variable": "FeedVariable",
    "fetch_output": "FetchOutput",
}
FEEDS: Final[tuple[Kind, ...]] = ("feed_input", "feed_variable")


@attrs.frozen
class Buffer:
    """Memory for one C-contiguous array.

    Attributes:
        id: unique in the job.
        meta: shape, dtype and device.
        role: see `Role`.
        name: the name of a variable, an input, a constant or a number; "" for results of ops.
    """

    id: int
    meta: TensorMeta
    role: Role = "temporary"
    name: str = ""


@attrs.frozen
class Operand:
    """An array in a buffer.

    Attributes:
        buffer: the buffer's id.
        meta: shape, dtype and device of the array.
        strides: in elements, as in a `Blob`; None for the whole buffer.
        offset: in elements, as in a `Blob`.
    """

    buffer: int
    meta: TensorMeta
    strides: tuple[int, ...] | None = None
    offset: int = 0


@attrs.frozen
class Drawn:
    """A placeholder among an op's scalars for the seed or the position of random numbers, given for each run of the op.

    Attributes:
        draw: the index in `Job.draws`.
        part: 0 for the seed, 1 for the position.
    """

    draw: int
    part: int


@attrs.frozen
class Draw:
    """A range of a random generator's sequence; each launch, or each micro-batch, takes the next range.

    Attributes:
        elements: the length of the range, in blocks; see `Generator.take`.
        generator: 0 for the caller's default generator; n for the n-th of the other generators that `build` uses.
        phase: as in a `JobOp`.
    """

    elements: int
    generator: int = 0
    phase: Literal["micro", "step"] = "step"


def exact(value: Any) -> Hashable:
    """A key that tells 0.0 from -0.0, and 1 from 1.0 and True; keys of nans with the same bits are equal."""
    if isinstance(value, tuple):
        return tuple([exact(item) for item in value])
    if isinstance(value, float):
        return type(value), struct.pack("d", value)
    if isinstance(value, complex):
        return type(value), struct.pack("dd", value.real, value.imag)
    key: Hashable = (type(value), value)
    return key


@attrs.frozen
class JobOp:
    """One op.

    Attributes:
        op: its name in the op table or in `BOUNDARY`, the update's name, or the kind for the kinds in `GATHERING`.
        inputs: the operands that it reads; a feed has none.  An update reads its outputs, too, unless it `overwrites`.
        outputs: the operands that it writes; a fetch has none.
        attributes: as at the op's call.
        scalars: as at the op's call; a scalar may be `Drawn`.
        kind: see `Kind`.
        module: the path of a module, such as "model.layers.0", whose forward called this op, or called the op whose
            gradient this op computes; "" for none.
        line: the user's line that called this op, or the op whose gradient this op computes; "" for none.
        backward: whether it was recorded for an autograd node in a backward pass; not for the pass's first gradient.
        phase: "step" runs once per launch; "micro" once for each micro-batch, if gradients are accumulated.
        stage: the pipeline stage; stages from 1 on have compute streams of their own.
        cost: the estimated nanoseconds of an update; 0 for other ops, see `cost_of`.
        overwrites: whether an update ignores the old values of its outputs.
        default_dtype: the dtype that the caller had set for new floating-point tensors; None for the usual one.
        update: the kernel of an update, the only part that is not data; None without one, as in a job from JSON.
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
        """The op's name and its module's path, for messages."""
        return f"{self.module}.{self.op}" if self.module else self.op

    def reads(self) -> Iterator[int]:
        """The ids of the buffers whose previous values the op needs; some may come more than once."""
        for operand in self.inputs:
            yield operand.buffer
        for operand in self.outputs:
            # An op that writes a part of a buffer keeps the rest, and so needs the old value.
            if operand.strides is not None or (self.kind == "update" and not self.overwrites):
                yield operand.buffer

    def writes(self) -> Iterator[int]:
        """The ids of the buffers that the op changes or makes."""
        for operand in self.outputs:
            yield operand.buffer

    def infer(self) -> OpPlan:
        """Infer the plan of an op of the kinds "call" and "into": its kernel and the metas of its results.

        Raises:
            KeyError: if there is no such op.
        """
        op = OPS[self.op]
        metas = tuple([operand.meta for operand in self.inputs])
        kinds = tuple([int if isinstance(scalar, Drawn) else type(scalar) for scalar in self.scalars])
        key = (metas, self.attributes, kinds, self.default_dtype)
        known = op.known.get(key)
        if known is not None:
            return known
        # The default dtype from the time of the build, not the present one.
        token = MODE.set(MODE.get().replace(dtype=self.default_dtype))
        try:
            return op.plan(key, self.attributes, metas, kinds)
        finally:
            MODE.reset(token)


def feed(buffer: Buffer) -> JobOp:
    """The op that feeds a buffer of the role "input" or "variable"."""
    kind: Kind = "feed_input" if buffer.role == "input" else "feed_variable"
    return JobOp(BOUNDARY[kind], (), (Operand(buffer.id, buffer.meta),), kind=kind)


def fetch(operand: Operand) -> JobOp:
    """The op that fetches a result."""
    return JobOp(BOUNDARY["fetch_output"], (operand,), (), kind="fetch_output")


def between_feeds_and_fetches(
    ops: Iterable[JobOp], buffers: Mapping[int, Buffer], inputs: Iterable[int] = (), outputs: Iterable[Operand] = ()
) -> tuple[JobOp, ...]:
    """All ops of a job: feeds of the inputs and of all variables, the computing ops, and fetches.

    Args:
        ops: the ops that compute.
        buffers: the buffers of the job, by id.
        inputs: the ids of the buffers of the role "input", in the order in which a launch gives them.
        outputs: the operands to fetch, in order.
    """
    variables = [buffer for _, buffer in sorted(buffers.items()) if buffer.role == "variable"]
    feeds = [feed(buffer) for buffer in (*[buffers[number] for number in inputs], *variables)]
    return (*feeds, *ops, *[fetch(operand) for operand in outputs])
