"""Leaving out ops that compute what nobody sees."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vmflow.graph_mode.job import Job, JobOp

if TYPE_CHECKING:
    from . import Settings


def drop_dead_ops(job: Job, settings: Settings) -> Job:
    """Leave out ops none of whose results gets to an output or a variable.

    What a launch draws of random generators stays, also for random ops that go: others take their numbers behind it.
    """
    wanted = {operand.buffer for operand in job.outputs}
    wanted.update([it.id for it in job.variables()])
    while True:
        kept, before = _walk_back(job, wanted)
        # What a micro-batch leaves may be found by the next.
        if job.micro_batches == 1 or before <= wanted:
            break
        wanted |= before
    return job if len(kept) == len(job.ops) else job.with_ops(kept)


def _walk_back(job: Job, wanted: set[int]) -> tuple[list[JobOp], set[int]]:
    """The ops to keep, if these buffers are wanted behind the last; and which are wanted before the first."""
    live = set(wanted)
    kept: list[JobOp] = []
    for op in reversed(job.ops):
        written = set(op.writes())
        if not any([it in live or job.buffers[it].role == "variable" for it in written]):
            continue
        kept.append(op)
        live -= written
        live.update(op.reads())
    return kept[::-1], live
