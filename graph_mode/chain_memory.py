"""The memory and the time of a task's chain of ops: lifetimes of the chain's own buffers, and cost estimates of ops."""

from __future__ import annotations

from collections.abc import Collection

from .job import BOUNDARY, Job, JobOp, Operand
from .memory_planning import Buffer, Op, choose_in_place, lifetimes
from .tasks import GATHERING, Task


def steps_before(task: Task, elsewhere: Collection[int]) -> list[int]:
    """Return the buffers that arguments and numbers fill, each in a step before the chain's first op.

    Buffers in `elsewhere`, not in the chain's own memory, are left out.
    """
    return [operand for operand in (*task.inputs, *task.numbers) if operand not in elsewhere]


def lifetimes_of(job: Job, task: Task, elsewhere: Collection[int]) -> list[Buffer]:
    """Return the buffers in a chain's own memory, each with the first and last step that needs it.

    The steps are the fills of `steps_before`, the chain's ops, and the hand-out of results.  Scratch memory of ops is
    included, with ids below 0.

    Args:
        job: the job that contains the chain.
        task: the chain.
        elsewhere: the buffers that lie in registers or in the caller's memory, and so are left out.
    """
    buffers = job.buffers
    steps = [Op((), (buffer,)) for buffer in steps_before(task, elsewhere)]
    made = {buffer for step in steps for buffer in step.outputs}
    workspaces: dict[int, int] = {}
    for position in task.ops:
        op = job.ops[position]
        inside = [read for read in dict.fromkeys([*op.reads(), *op.writes()]) if _own(job, read, elsewhere)]
        outputs = tuple([write for write in dict.fromkeys(op.writes()) if write in inside and write not in made])
        made.update(outputs)
        inputs = tuple([buffer for buffer in inside if buffer not in outputs])
        shared_with = _sharable(op, inputs, outputs)
        needed = workspace_of(op)
        if needed:
            workspaces[-1 - position] = needed
            outputs = (*outputs, -1 - position)
        steps.append(Op(inputs, outputs, shared_with))
    handed_out = [job.outputs[output].buffer for output in task.outputs]
    last = tuple([buffer for buffer in dict.fromkeys(handed_out) if _own(job, buffer, elsewhere)])
    used = {operand: None for step in steps for operand in (*step.inputs, *step.outputs)} | dict.fromkeys(last)
    nbytes = {number: workspaces[number] if number < 0 else buffers[number].meta.nbytes for number in used}
    if last:
        steps.append(Op(last, ()))
    return lifetimes(steps, nbytes, shares=choose_in_place(steps, nbytes))


def _own(job: Job, buffer: int, elsewhere: Collection[int]) -> bool:
    """Whether a buffer lies in the arena of the chain that uses it: no variable or constant, and not in `elsewhere`."""
    return job.buffers[buffer].role not in ("variable", "constant") and buffer not in elsewhere


def cost_of(op: JobOp) -> int:
    """Estimate the time of an op, in nanoseconds."""
    if op.kind == "update":
        return op.cost
    if op.kind in BOUNDARY:
        return 0
    if op.kind in ("transfer", *GATHERING):
        return sum([operand.meta.nbytes for operand in op.outputs])
    return op.infer().cost


def workspace_of(op: JobOp) -> int:
    """Return the bytes of scratch memory that an op's kernel needs in the arena: 0 for kinds other than "call"."""
    return op.infer().kernel.scratch if op.kind == "call" else 0


def _sharable(op: JobOp, inputs: tuple[int, ...], outputs: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
    """Return the pairs (position in `inputs`, position in `outputs`) that `_may_take` allows; none unless a "call"."""
    if op.kind != "call" or not outputs:
        return ()
    allowed = set(op.infer().kernel.sharing)
    return tuple(
        [
            (position, place)
            for position, buffer in enumerate(inputs)
            for place, result in enumerate(outputs)
            if _may_take(op, buffer, result, allowed)
        ]
    )


def _may_take(op: JobOp, buffer: int, result: int, allowed: set[tuple[int, int]]) -> bool:
    """Return whether buffer `result` may share input `buffer`'s memory, by the kernel's `allowed` pairs and layouts."""
    place = next(at for at, operand in enumerate(op.outputs) if operand.buffer == result)
    return all(
        [
            (position, place) in allowed and _same_layout(operand, op.outputs[place])
            for position, operand in enumerate(op.inputs)
            if operand.buffer == buffer
        ]
    )


def _same_layout(one: Operand, other: Operand) -> bool:
    """Whether `one` is contiguous, begins its buffer, and has the shape and dtype of `other`."""
    if one.meta.numel != other.meta.numel or one.meta.dtype is not other.meta.dtype:
        return False
    whole = one.strides is None or one.strides == one.meta.strides
    return whole and one.offset == 0 and one.meta.shape == other.meta.shape
