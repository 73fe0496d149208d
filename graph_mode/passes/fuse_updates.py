"""Fuse the updates of several optimizers, or other ops that change many tensors together, into one op.

Fused steps of two optimizers succeed or fail together.  Each update moves down to the place of its group's last update,
but not past an op that uses its results or writes its operands, and not where a gradient would be kept longer.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from vmflow.graph_mode.job import Job, JobOp
from vmflow.instructions.blob import Array
from vmflow.instructions.multi_tensor_update import UpdateKernel


def fuse_updates(job: Job) -> Job:
    """Fuse updates of one name, device, phase, stage and `overwrites`, unless ops between them or gradients' memory
    prevent it.
    """
    last_use: dict[int, int] = {}
    for position, op in enumerate(job.ops):
        for buffer in (*op.reads(), *op.writes()):
            last_use[buffer] = position
    groups: list[list[int]] = []
    open_: list[list[int]] = []
    for position, op in enumerate(job.ops):
        joined = False
        for group in list(open_):
            if not joined and _may_join(job, group, position, last_use):
                group.append(position)
                joined = True
            elif _disturbs(job, group, op):
                open_.remove(group)
        if op.kind == "update" and not joined:
            open_.append([position])
            groups.append(open_[-1])
    fused = {group[-1]: _joined([job.ops[position] for position in group]) for group in groups if len(group) > 1}
    if not fused:
        return job
    gone = {position for group in groups for position in group[:-1]}
    return job.with_ops([fused.get(position, op) for position, op in enumerate(job.ops) if position not in gone])


def _may_join(job: Job, group: list[int], position: int, last_use: dict[int, int]) -> bool:
    first, op = job.ops[group[0]], job.ops[position]
    if op.kind != "update" or op.op != first.op or op.update is None or first.update is None:
        return False
    if (op.phase, op.stage, op.overwrites) != (first.phase, first.stage, first.overwrites):
        return False
    if {output.meta.device for output in (*op.outputs, *first.outputs)} != {first.outputs[0].meta.device}:
        return False
    if position == group[-1] + 1:
        return True
    needed = {buffer for member in group for buffer in job.ops[member].reads()}
    return not any(
        [last_use[buffer] < position and job.buffers[buffer].role in ("temporary", "input") for buffer in needed]
    )


def _disturbs(job: Job, group: list[int], op: JobOp) -> bool:
    """Whether `op` uses results of the group's updates, or writes their results or operands."""
    members = [job.ops[position] for position in group]
    written = {buffer for member in members for buffer in member.writes()}
    read = {buffer for member in members for buffer in member.reads()}
    return bool(written.intersection(op.reads()) or (written | read).intersection(op.writes()))


def _joined(ops: Sequence[JobOp]) -> JobOp:
    return attrs.evolve(
        ops[-1],
        inputs=tuple([operand for op in ops for operand in op.inputs]),
        outputs=tuple([operand for op in ops for operand in op.outputs]),
        cost=sum([op.cost for op in ops]),
        update=_one_after_other(ops),
    )


def _one_after_other(ops: Sequence[JobOp]) -> UpdateKernel:
    parts = [(op.update, len(op.inputs), len(op.outputs)) for op in ops]

    def kernel(inputs: list[Array], outputs: list[Array]) -> None:
        read, written = 0, 0
        for update, reads, writes in parts:
            assert update is not None
            update(inputs[read : read + reads], outputs[written : written + writes])
            read += reads
            written += writes

    return kernel
