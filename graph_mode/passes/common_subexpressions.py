"""Compute equal expressions of a job once."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING

import attrs

from vmflow.graph_mode.job import Job, JobOp, Operand, exact

from .constant_folding import SMALL
from .flow import Flow, Version, flow_of, is_random

if TYPE_CHECKING:
    from . import Settings


def share_common_subexpressions(job: Job, settings: Settings) -> Job:
    """Leave out each op that repeats an earlier op of its phase and stage on the same versions of the same buffers.

    Equal small constants become one.  Random ops stay, and so do ops that write into given memory or whose results are
    written again.  Ops without operands stay if their results are large.
    """
    flow = flow_of(job)
    same = _equal_constants(job, flow)
    known: dict[Hashable, JobOp] = {}
    kept: list[JobOp] = []
    for position, op in enumerate(job.ops):
        known_here = any([operand.buffer in same for operand in op.inputs])
        renamed = attrs.evolve(op, inputs=_renamed(op.inputs, same)) if known_here else op
        if _sharable(op, flow):
            versions = tuple([flow.version(operand.buffer, position) for operand in op.inputs])
            first = known.setdefault(_key(renamed, versions), renamed)
            if first is not renamed:
                for mine, other in zip(op.outputs, first.outputs, strict=True):
                    same[mine.buffer] = other.buffer
                continue
        kept.append(renamed)
    return job.with_ops(kept) if same else job


def _renamed(operands: tuple[Operand, ...], same: dict[int, int]) -> tuple[Operand, ...]:
    return tuple(
        [
            attrs.evolve(operand, buffer=same[operand.buffer]) if operand.buffer in same else operand
            for operand in operands
        ]
    )


def _sharable(op: JobOp, flow: Flow) -> bool:
    if op.kind not in ("call", "transfer") or is_random(op) or not flow.written_once(op):
        return False
    return bool(op.inputs) or sum([output.meta.nbytes for output in op.outputs]) <= SMALL


def _equal_constants(job: Job, flow: Flow) -> dict[int, int]:
    """Map the buffer of each small constant that equals an earlier one to the buffer of that earlier one."""
    same: dict[int, int] = {}
    known: dict[Hashable, int] = {}
    for number, array in sorted(job.constants.items()):
        meta = job.buffers[number].meta
        if meta.nbytes <= SMALL and number not in flow.writers:
            first = known.setdefault((meta.shape, meta.dtype, meta.device, array.tobytes()), number)
            if first != number:
                same[number] = first
    return same


def _key(op: JobOp, versions: tuple[Version, ...]) -> Hashable:
    """A key that is equal only for ops that compute the same bits on the same device, in the same phase and stage."""
    inputs = tuple(
        [
            (
                operand.buffer,
                number,
                operand.meta.shape,
                operand.meta.dtype,
                operand.meta.device,
                operand.strides,
                operand.offset,
            )
            for operand, (_, number) in zip(op.inputs, versions, strict=True)
        ]
    )
    made = tuple([(output.meta.shape, output.meta.dtype, output.meta.device) for output in op.outputs])
    called = (op.op, op.kind, exact(op.attributes), exact(op.scalars), op.default_dtype)
    return (*called, op.phase, op.stage, inputs, made)
