"""Leaving out ops that compute what nobody sees."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vmflow.graph_mode.job import FEEDS, Job, JobOp

if TYPE_CHECKING:
    from . import Settings


def drop_dead_ops(job: Job, settings: Settings) -> Job:
    """Leave out ops none of whose results gets to a fetch or a variable, and feeds of variables that nothing uses.

    The arguments are fed in any case: they are what the job is called with.  What a launch draws of random generators
    stays, also for random ops that go: others take their numbers behind it.
    """
    wanted: set[int] = set()
    while True:
        kept, before = _walk_back(job, wanted)
        # What a micro-batch leaves may be found by the next.
        if job.micro_batches == 1 or before <= wanted:
            break
        wanted |= before
    used = {buffer for op in kept for buffer in (*op.reads(), *op.writes())}
    feeds = [op for op in job.ops if op.kind in FEEDS and (op.kind == "feed_input" or used.intersection(op.writes()))]
    return job if len(feeds) + len(kept) == len(job.ops) else job.with_ops([*feeds, *kept])


def _walk_back(job: Job, wanted: set[int]) -> tuple[list[JobOp], set[int]]:
    """The ops behind the feeds to keep, if these buffers are wanted behind the last; and which are before the first."""
    live = set(wanted)
    kept: list[JobOp] = []
    for op in reversed(job.ops):
        if op.kind in FEEDS:
            break
        written = set(op.writes())
        seen = any([it in live or job.buffers[it].role == "variable" for it in written])
        if not seen and op.kind != "fetch_output":
            continue
        kept.append(op)
        live -= written
        live.update(op.reads())
    return kept[::-1], live
