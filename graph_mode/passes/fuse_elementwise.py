"""Fuse connected elementwise ops into single `fused` ops.

The ops of a group move down to the place of the group's last op.  So a group ends where an op outside uses the group's
results or changes its operands, and where waiting for the last op would keep more memory than fusing saves.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import attrs

from vmflow.graph_mode.job import Job, JobOp, Operand
from vmflow.ops.fused import Step, can_fuse
from vmflow.ops.table import encoded

# The most ops and arrays of a group; the tiles of all its arrays shall fit into the cache together.
_STEPS: Final = 64
_ARRAYS: Final = 24


@attrs.define(eq=False)
class _Group:
    """Elementwise ops that will become one fused op.

    Attributes:
        members: the positions of the ops, ascending.
        makes: the buffers that the ops make.
        reads: the buffers that the ops read and none of them makes.
    """

    members: list[int]
    makes: dict[int, None]
    reads: dict[int, None]


def fuse_elementwise(job: Job) -> Job:
    """Return the job with groups of connected elementwise ops fused."""
    groups = _Grouping(job).groups()
    if not groups:
        return job
    needed = _needed_outside(job, groups)
    last = {group.members[-1]: group for group in groups}
    members = {position for group in groups for position in group.members}
    ops: list[JobOp] = []
    for position, op in enumerate(job.ops):
        if position in last:
            # If no op outside needs a result of the group, none of its ops is kept.
            if not last[position].makes.keys().isdisjoint(needed):
                ops.append(_fused(job, last[position], needed))
        elif position not in members:
            ops.append(op)
    return job.with_ops(ops)


# Choosing the groups


@attrs.define(eq=False)
class _Grouping:
    """One walk through a job."""

    job: Job
    last_use: dict[int, int] = attrs.field(factory=dict)
    open: list[_Group] = attrs.field(factory=list)
    closed: list[_Group] = attrs.field(factory=list)

    def groups(self) -> list[_Group]:
        """The groups of at least two ops."""
        for position, op in enumerate(self.job.ops):
            for buffer in (*op.reads(), *op.writes()):
                self.last_use[buffer] = position
        for position, op in enumerate(self.job.ops):
            self._visit(position, op)
        return [group for group in (*self.closed, *self.open) if len(group.members) > 1]

    def _visit(self, position: int, op: JobOp) -> None:
        fits = is_elementwise(op)
        joined: list[_Group] = []
        for group in list(self.open):
            if fits and self._may_join(group, joined, position, op):
                joined.append(group)
                self.open.remove(group)
            elif self._disturbs(op, group):
                self.closed.append(group)
                self.open.remove(group)
        if fits:
            self.open.append(self._together(joined, position, op))

    def _disturbs(self, op: JobOp, group: _Group) -> bool:
        """Whether `op` needs or changes results of the group, or changes operands of the group."""
        needs = any([buffer in group.makes for buffer in op.reads()])
        return needs or any([buffer in group.makes or buffer in group.reads for buffer in op.writes()])

    def _may_join(self, group: _Group, joined: list[_Group], position: int, op: JobOp) -> bool:
        """Whether the group may wait for the op, and be fused with it."""
        made = [operand for operand in op.inputs if operand.buffer in group.makes]
        first = self.job.ops[group.members[0]]
        if not made or not _may_share_a_kernel(first, op) or not all([self._whole(operand, op) for operand in made]):
            return False
        if op.outputs[0].buffer in group.reads:
            return False  # the fused op would overwrite elements that other ops of the group still have to read
        groups = [*joined, group]
        members = sum([len(group.members) for group in groups])
        arrays = {buffer for group in groups for buffer in (*group.makes, *group.reads)}
        if members >= _STEPS or len(arrays) + len(op.inputs) + 1 > _ARRAYS:
            return False
        return self._waits_for_free(group, position)

    def _whole(self, operand: Operand, op: JobOp) -> bool:
        """Whether an operand is read in the layout in which it was made, and has the shape of the op's result."""
        meta = operand.meta
        same = operand.strides is None or (operand.strides == meta.strides and operand.offset == 0)
        return same and meta.shape == op.outputs[0].meta.shape and meta is self.job.buffers[operand.buffer].meta

    def _waits_for_free(self, group: _Group, position: int) -> bool:
        """Whether the group can wait until this position without keeping more memory than fusing saves."""
        buffers = self.job.buffers
        end = group.members[-1]
        if end == position - 1:
            return True
        kept = [
            read
            for read in group.reads
            if self.last_use[read] < position and buffers[read].role in ("temporary", "input")
        ]
        later = [make for make in group.makes if self.last_use[make] > end]
        return sum([buffers[buffer].meta.nbytes for buffer in kept]) <= sum(
            [buffers[buffer].meta.nbytes for buffer in later]
        )

    def _together(self, joined: list[_Group], position: int, op: JobOp) -> _Group:
        members = sorted([member for group in joined for member in group.members])
        makes = {make: None for group in joined for make in group.makes}
        reads = {read: None for group in joined for read in group.reads}
        reads.update({operand.buffer: None for operand in op.inputs})
        makes[op.outputs[0].buffer] = None
        return _Group([*members, position], makes, {read: None for read in reads if read not in makes})


def is_elementwise(op: JobOp) -> bool:
    """Whether an op can be fused with others."""
    if op.kind != "call" or len(op.outputs) != 1 or not op.outputs[0].meta.numel:
        return False
    if not all([isinstance(scalar, (bool, int, float, complex)) for scalar in op.scalars]):
        return False  # a scalar that is no number, for instance one that each launch draws
    if not can_fuse(op.op, tuple([operand.meta for operand in op.inputs])):
        return False
    output = op.outputs[0]
    return output.strides is None and op.infer().outputs == (output.meta,)


def _may_share_a_kernel(one: JobOp, other: JobOp) -> bool:
    """Whether two ops have one device, phase, stage and direction (backward or not), and results of one shape."""
    mine, its = one.outputs[0].meta, other.outputs[0].meta
    places = (one.phase, one.stage, one.backward) == (other.phase, other.stage, other.backward)
    return places and mine.shape == its.shape and mine.device is its.device


# Building the fused ops


def _needed_outside(job: Job, groups: list[_Group]) -> set[int]:
    """The buffers that are used outside the group that makes them."""
    group_of = {position: group for group in groups for position in group.members}
    needed: set[int] = set()
    for position, op in enumerate(job.ops):
        group = group_of.get(position)
        needed.update([buffer for buffer in _used(op) if group is None or buffer not in group.makes])
    return needed


def _used(op: JobOp) -> Iterator[int]:
    yield from op.reads()
    if op.kind != "call":
        yield from op.writes()


def _fused(job: Job, group: _Group, needed: set[int]) -> JobOp:
    ops = [job.ops[position] for position in group.members]
    inputs: dict[Operand, int] = {}
    for op in ops:
        for operand in op.inputs:
            if operand.buffer not in group.makes:
                inputs.setdefault(operand, len(inputs))
    results: dict[int, int] = {}
    steps: list[Step] = []
    for number, op in enumerate(ops, len(inputs)):
        operands = tuple([results[read.buffer] if read.buffer in results else inputs[read] for read in op.inputs])
        steps.append((op.op, op.attributes, tuple([encoded(scalar) for scalar in op.scalars]), operands))
        # Set after `operands` is computed: an op reads what was in its result's buffer before.
        results[op.outputs[0].buffer] = number
    last_of = {op.outputs[0].buffer: number for number, op in enumerate(ops)}
    outputs = [
        number
        for number, op in enumerate(ops)
        if last_of[buffer := op.outputs[0].buffer] == number and buffer in needed
    ]
    last = ops[-1]
    return attrs.evolve(
        last,
        op="fused",
        inputs=tuple(inputs),
        outputs=tuple([ops[number].outputs[0] for number in outputs]),
        attributes=(tuple(steps), tuple(outputs)),
        scalars=(),
        module=_common([op.module for op in ops]),
    )


def _common(modules: list[str]) -> str:
    """The innermost module that contains all these modules."""
    shared = modules[0].split(".")
    for module in modules[1:]:
        names = module.split(".")
        same = [one == other for one, other in zip(shared, names, strict=False)]
        shared = shared[: (same + [False]).index(False)]
    return ".".join(shared)
