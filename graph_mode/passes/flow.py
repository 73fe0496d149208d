"""`Flow`: the positions of the ops that write and read each buffer of a job, for the passes.

An op *writes* a buffer if one of its results lies in the buffer.  An op *reads* a buffer if it needs the buffer's
previous content: an operand lies there, or a result that has strides or is updated; see `JobOp.reads`.

The content of a buffer between two writes is a *version*: version 0 is the content before the first op, and the n-th op
that writes the buffer makes version n.  So version 1 of an argument or a variable is the value that is fed.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from typing import Final, TypeAlias

import attrs

from vmflow.graph_mode.job import Drawn, Job, JobOp, Operand

# The kinds of ops that connect work done once per launch with work done for each micro-batch.  Their operands cannot be
# views, constants or variables.
GATHERING: Final = frozenset({"unpack", "accumulate", "pack"})

# The id of a buffer, and the number of the version.
Version: TypeAlias = tuple[int, int]


@attrs.frozen
class Flow:
    """The writers and readers of a job's buffers.

    Attributes:
        job: the job.
        writers: by buffer, the positions of the ops that write it, ascending.
        readers: by buffer, the positions of the ops that read it, ascending.
    """

    job: Job
    writers: dict[int, list[int]]
    readers: dict[int, list[int]]

    def version(self, buffer: int, position: int) -> Version:
        """The version of a buffer that the op at this position finds; at the number of ops, the final version."""
        return buffer, bisect_left(self.writers.get(buffer, ()), position)

    def producer(self, version: Version) -> JobOp | None:
        """The op that makes a version; None for version 0."""
        buffer, number = version
        return self.job.ops[self.writers[buffer][number - 1]] if number else None

    def last_use(self, buffer: int) -> int:
        """The position of the last op that reads or writes a buffer; -1 if there is none."""
        return max(self.readers.get(buffer, [-1])[-1], self.writers.get(buffer, [-1])[-1])

    def written_once(self, op: JobOp) -> bool:
        """Whether each result of `op` is a whole temporary buffer of its own, which no other op writes."""
        temporary = all(
            [self.job.buffers[output.buffer].role == "temporary" and output.strides is None for output in op.outputs]
        )
        apart = len({output.buffer for output in op.outputs}) == len(op.outputs)
        return temporary and apart and all([len(self.writers[output.buffer]) == 1 for output in op.outputs])


def flow_of(job: Job) -> Flow:
    """The `Flow` of a job."""
    writers: defaultdict[int, list[int]] = defaultdict(list)
    readers: defaultdict[int, list[int]] = defaultdict(list)
    for position, op in enumerate(job.ops):
        for buffer in set(op.reads()):
            readers[buffer].append(position)
        for buffer in set(op.writes()):
            writers[buffer].append(position)
    return Flow(job, dict(writers), dict(readers))


def dependences(ops: list[JobOp] | tuple[JobOp, ...]) -> list[tuple[int, int]]:
    """Pairs of positions of ops: the first has to stay before the second, so that each finds the same versions as now.

    A reader stays between the write whose value it reads and the next write of the same buffer; writers of a buffer
    stay in order.  So the update of a variable waits for all readers of the old value.
    """
    edges: set[tuple[int, int]] = set()
    writer: dict[int, int] = {}
    readers: defaultdict[int, list[int]] = defaultdict(list)
    for position, op in enumerate(ops):
        for buffer in set(op.reads()):
            if buffer in writer:
                edges.add((writer[buffer], position))
            readers[buffer].append(position)
        for buffer in set(op.writes()):
            before = [*readers.pop(buffer, ()), *([writer[buffer]] if buffer in writer else ())]
            edges.update([(earlier, position) for earlier in before if earlier != position])
            writer[buffer] = position
    return sorted(edges)


def check_same_flow(before: Job, after: Job) -> None:
    """Check that `after` has the same op objects as `before`, in any order, and each finds the same versions in both.

    Raises:
        ValueError: if an op is missing or new, or finds another version.
    """
    places = {id(op): position for position, op in enumerate(before.ops)}
    if sorted(places.values()) != sorted([places.get(id(op), -1) for op in after.ops]):
        raise ValueError(f"{after.name}: the jobs do not have the same ops")
    old, new = flow_of(before), flow_of(after)
    for position, op in enumerate(after.ops):
        for buffer in dict.fromkeys([*op.reads(), *op.writes()]):
            _, expected = old.version(buffer, places[id(op)])
            _, found = new.version(buffer, position)
            if expected != found:
                raise ValueError(
                    f"op {position} ({op.name}) has to find version {expected} of buffer {buffer}, but finds {found}"
                )


def is_random(op: JobOp) -> bool:
    """Whether the op draws random numbers."""
    return any([isinstance(scalar, Drawn) for scalar in op.scalars])


def is_contiguous(operand: Operand) -> bool:
    """Whether the operand's elements lie one after the other, in C order."""
    if operand.strides is None or operand.meta.numel == 0:
        return True
    sizes = operand.meta.shape
    return all(
        [
            stride == wanted or size == 1
            for stride, wanted, size in zip(operand.strides, operand.meta.strides, sizes, strict=True)
        ]
    )


def is_whole(operand: Operand, job: Job) -> bool:
    """Whether the operand is all of its buffer, in the buffer's shape and dtype."""
    meta = job.buffers[operand.buffer].meta
    same = operand.meta.shape == meta.shape and operand.meta.dtype is meta.dtype
    return same and operand.offset == 0 and is_contiguous(operand)
