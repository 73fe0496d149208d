"""Reorders ops for memory or for speed; each op still finds the values that it finds in the given order."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Literal

from vmflow.graph_mode.execution_order import execution_order
from vmflow.graph_mode.job import BOUNDARY, Job, JobOp
from vmflow.graph_mode.lifetimes import Op
from vmflow.graph_mode.tasks import stream_of

from .flow import GATHERING, Flow, dependences, flow_of

if TYPE_CHECKING:
    from . import Settings


def reorder(job: Job, settings: Settings) -> Job:
    """Let ops run in the order that `GraphConfig.order` asks for.

    Only ops that follow each other on one stream change places, so that the same chains are formed of them.
    """
    wanted = settings.config.order
    if wanted == "given":
        return job
    flow = flow_of(job)
    ops: list[JobOp] = []
    for place, run in groupby(range(len(job.ops)), lambda position: _place(job.ops[position])):
        positions = list(run)
        ops += _reordered(flow, positions, wanted) if place else [job.ops[position] for position in positions]
    return job if all([new is old for new, old in zip(ops, job.ops, strict=True)]) else job.with_ops(ops)


def _place(op: JobOp) -> tuple[object, ...]:
    """The key of an op; only ops in a row with equal keys change places.  Empty for feeds and fetches, which stay."""
    return () if op.kind in BOUNDARY else (*stream_of(op), op.phase, op.stage, op.kind in GATHERING)


def _reordered(flow: Flow, positions: list[int], prefer: Literal["memory", "speed"]) -> list[JobOp]:
    """Return the ops at these consecutive positions, if more than two, in the order that `prefer` asks for."""
    ops = [flow.job.ops[position] for position in positions]
    if len(ops) < 3:
        return ops
    steps: list[Op] = []
    made: dict[int, int] = {}
    for position, op in zip(positions, ops, strict=True):
        # Only the first write of a temporary buffer is an output; other writes need no new memory.
        outputs = tuple([write for write in dict.fromkeys(op.writes()) if _made_at(flow, write, position)])
        made.update({output: flow.job.buffers[output].meta.nbytes for output in outputs})
        steps.append(
            Op(tuple([read for read in dict.fromkeys([*op.reads(), *op.writes()]) if read not in outputs]), outputs)
        )
    kept = [buffer for buffer in made if flow.last_use(buffer) > positions[-1]]
    order = execution_order(steps, dependences(ops), made, prefer, kept=kept)
    return [ops[position] for position in order]


def _made_at(flow: Flow, buffer: int, position: int) -> bool:
    return flow.job.buffers[buffer].role == "temporary" and flow.writers[buffer][0] == position
