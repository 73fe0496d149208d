"""Fuse what treats each element alone: chains, and whatever else hangs together, become one op `fused`.

Ops are only ever moved down, to where the last one of their group is.  So a group ends where something outside needs
what it makes, or changes what it reads; and where waiting for its last member would keep more memory than it gives
back.  Nothing is computed twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import attrs

from vmflow.graph_mode.job import Job, JobOp, Operand
from vmflow.ops.fused import Step, can_fuse
from vmflow.ops.table import encoded

# Beyond these, the tiles of a group would no longer be in the cache together.
_STEPS: Final = 64
_ARRAYS: Final = 24


@attrs.define(eq=False)
class _Group:
    """Ops that are to become one.

    Attributes:
        members: their positions, in order.
        makes: the buffers that they make.
        reads: the buffers from outside that they read.
    """

    members: list[int]
    makes: dict[int, None]
    reads: dict[int, None]


def fuse_elementwise(job: Job) -> Job:
    """The job with groups of elementwise ops fused."""
    groups = _Grouping(job).groups()
    if not groups:
        return job
    needed = _needed_outside(job, groups)
    last = {group.members[-1]: group for group in groups}
    members = {position for group in groups for position in group.members}
    ops: list[JobOp] = []
    for position, op in enumerate(job.ops):
        if position in last:
            # One of which nobody needs anything is dead.
            if not last[position].makes.keys().isdisjoint(needed):
                ops.append(_fused(job, last[position], needed))
        elif position not in members:
            ops.append(op)
    return job.with_ops(ops)


# Which ops


@attrs.define(eq=False)
class _Grouping:
    """One walk through a job."""

    job: Job
    last_use: dict[int, int] = attrs.field(factory=dict)
    open: list[_Group] = attrs.field(factory=list)
    closed: list[_Group] = attrs.field(factory=list)

    def groups(self) -> list[_Group]:
        """Those of at least two ops."""
        for position, op in enumerate(self.job.ops):
            for buffer in (*op.reads(), *op.writes()):
                self.last_use[buffer] = position
        for position, op in enumerate(self.job.ops):
            self._meet(position, op)
        return [group for group in (*self.closed, *self.open) if len(group.members) > 1]

    def _meet(self, position: int, op: JobOp) -> None:
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
        """Whether the group must have run before the op does."""
        needs = any([buffer in group.makes for buffer in op.reads()])
        return needs or any([buffer in group.makes or buffer in group.reads for buffer in op.writes()])

    def _may_join(self, group: _Group, joined: list[_Group], position: int, op: JobOp) -> bool:
        """Whether the group may wait for the op, and the op may run as one of it."""
        made = [operand for operand in op.inputs if operand.buffer in group.makes]
        first = self.job.ops[group.members[0]]
        if not made or not _alike(first, op) or not all([self._whole(operand, op) for operand in made]):
            return False
        if op.outputs[0].buffer in group.reads:
            return False  # whose elements one op would overwrite before it has read all
        groups = [*joined, group]
        members = sum([len(it.members) for it in groups])
        arrays = {make for one in groups for make in (*one.makes, *one.reads)}
        if members >= _STEPS or len(arrays) + len(op.inputs) + 1 > _ARRAYS:
            return False
        return self._waits_for_free(group, position)

    def _whole(self, operand: Operand, op: JobOp) -> bool:
        """Whether an operand is seen as it was made, element by element with the op's result."""
        given = operand.meta
        same = operand.strides is None or (operand.strides == given.strides and operand.offset == 0)
        return same and given.shape == op.outputs[0].meta.shape and given is self.job.buffers[operand.buffer].meta

    def _waits_for_free(self, group: _Group, position: int) -> bool:
        """Whether no more memory is needed, between the group's last member and this position, if the group waits."""
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
        return sum([buffers[it].meta.nbytes for it in kept]) <= sum([buffers[it].meta.nbytes for it in later])

    def _together(self, joined: list[_Group], position: int, op: JobOp) -> _Group:
        members = sorted([member for group in joined for member in group.members])
        makes = {make: None for group in joined for make in group.makes}
        reads = {read: None for group in joined for read in group.reads}
        reads.update({operand.buffer: None for operand in op.inputs})
        makes[op.outputs[0].buffer] = None
        return _Group([*members, position], makes, {read: None for read in reads if read not in makes})


def is_elementwise(op: JobOp) -> bool:
    """Whether an op may be fused with others."""
    if op.kind != "call" or len(op.outputs) != 1 or not op.outputs[0].meta.numel:
        return False
    if not all([isinstance(scalar, (bool, int, float, complex)) for scalar in op.scalars]):
        return False  # drawn by each launch, for instance
    if not can_fuse(op.op, tuple([operand.meta for operand in op.inputs])):
        return False
    output = op.outputs[0]
    return output.strides is None and op.infer().outputs == (output.meta,)


def _alike(one: JobOp, other: JobOp) -> bool:
    """Whether they run at the same place, equally often, and make results of one shape."""
    mine, its = one.outputs[0].meta, other.outputs[0].meta
    places = (one.phase, one.stage, one.backward) == (other.phase, other.stage, other.backward)
    return places and mine.shape == its.shape and mine.device is its.device


# What they become


def _needed_outside(job: Job, groups: list[_Group]) -> set[int]:
    """The buffers that somebody else than the group needs that makes them."""
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
        operands = tuple([results[it.buffer] if it.buffer in results else inputs[it] for it in op.inputs])
        steps.append((op.op, op.attributes, tuple([encoded(scalar) for scalar in op.scalars]), operands))
        results[op.outputs[0].buffer] = number  # not before: a buffer may be made twice, and be read in between
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
    """The innermost module that contains all of them."""
    shared = modules[0].split(".")
    for module in modules[1:]:
        names = module.split(".")
        same = [one == other for one, other in zip(shared, names, strict=False)]
        shared = shared[: (same + [False]).index(False)]
    return ".".join(shared)
