"""Leave out ops whose results are never used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vmflow.graph_mode.job import FEEDS, Job, JobOp

if TYPE_CHECKING:
    from . import Settings


def drop_dead_ops(job: Job, settings: Settings) -> Job:
    """Leave out ops none of whose results reach a fetch or a variable, and feeds of unused variables.

    Feeds of unused arguments stay, since calls still pass the arguments.  A launch draws from random generators for
    dropped ops, too, so that the remaining ops get the same numbers.
    """
    wanted: set[int] = set()
    while True:
        kept, before = _walk_back(job, wanted)
        # The next micro-batch may read buffers that this one has written.
        if job.micro_batches == 1 or before <= wanted:
            break
        wanted |= before
    used = {buffer for op in kept for buffer in (*op.reads(), *op.writes())}
    feeds = [op for op in job.ops if op.kind in FEEDS and (op.kind == "feed_input" or used.intersection(op.writes()))]
    return job if len(feeds) + len(kept) == len(job.ops) else job.with_ops([*feeds, *kept])


def _walk_back(job: Job, wanted: set[int]) -> tuple[list[JobOp], set[int]]:
    """Find the ops to keep if `wanted` buffers are used after the last op, and the buffers needed before the first."""
    live = set(wanted)
    kept: list[JobOp] = []
    for op in reversed(job.ops):
        if op.kind in FEEDS:
            break
        written = set(op.writes())
        used = any([buffer in live or job.buffers[buffer].role == "variable" for buffer in written])
        if not used and op.kind != "fetch_output":
            continue
        kept.append(op)
        live -= written
        live.update(op.reads())
    return kept[::-1], live
