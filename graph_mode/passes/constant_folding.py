"""Compute results that are equal at every launch once, when the graph is built."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs
import numpy as np

from vmflow.graph_mode.job import Buffer, Job, JobOp
from vmflow.instructions.blob import Array, Blob, Storage
from vmflow.instructions.op_call import store

from .flow import GATHERING, Flow, flow_of, is_random

if TYPE_CHECKING:
    from . import Settings

# Up to this many bytes, keeping a constant between launches is taken to cost less than computing it at each launch.
SMALL: Final = 1 << 16


def fold_constants(job: Job, settings: Settings) -> Job:
    """Run ops without operands other than constants, and turn their results into constants.

    Random ops and ops that fail stay, and so do ops whose results are written again or read by ops of `GATHERING`, or
    that would make large constants of small ones.  Only ops on the host run; a constant that the job copies to a device
    becomes a constant there.
    """
    flow = flow_of(job)
    gathered = {operand.buffer for op in job.ops if op.kind in GATHERING for operand in op.inputs}
    constants = {number: array for number, array in job.constants.items() if number not in flow.writers}
    folded: dict[int, Buffer] = {}
    kept: list[JobOp] = []
    for op in job.ops:
        foldable = _foldable(op, constants, flow) and gathered.isdisjoint(op.writes())
        results = _computed(op, constants) if foldable else None
        if results is None:
            kept.append(op)
            continue
        for operand, array in zip(op.outputs, results, strict=True):
            constants[operand.buffer] = array
            folded[operand.buffer] = attrs.evolve(
                job.buffers[operand.buffer], role="constant", name=f"{op.op}_{operand.buffer}"
            )
    if not folded:
        return job
    return attrs.evolve(job, constants={**job.constants, **constants}).with_ops(kept, {**job.buffers, **folded})


def _foldable(op: JobOp, constants: dict[int, Array], flow: Flow) -> bool:
    if op.kind not in ("call", "transfer") or is_random(op) or not flow.written_once(op):
        return False
    if any([operand.buffer not in constants for operand in op.inputs]):
        return False
    if any([operand.meta.device.type != "cpu" for operand in (op.inputs if op.kind == "transfer" else op.outputs)]):
        return False
    read: int = sum([constants[buffer].nbytes for buffer in {operand.buffer for operand in op.inputs}])
    made: int = sum([output.meta.nbytes for output in op.outputs])
    return made <= max(read, SMALL)


def _computed(op: JobOp, constants: dict[int, Array]) -> list[Array] | None:
    """Run an op on constants and return its results; None if the op fails."""
    inputs = [
        Blob(Storage(None, constants[operand.buffer]), operand.meta, operand.strides, operand.offset).array()
        for operand in op.inputs
    ]
    if op.kind == "transfer":
        return [np.array(inputs[0], order="C")]
    outputs = [np.empty(output.meta.shape, output.meta.dtype.numpy) for output in op.outputs]
    try:
        inferred = op.infer()
        with np.errstate(all="ignore"):
            results = inferred.kernel.function(*inputs, *op.scalars, tuple(outputs) if inferred.several else outputs[0])
    except Exception:
        return None  # the op stays in the job: each launch then raises the error, as eager code does
    for out, result in zip(outputs, results if inferred.several else (results,), strict=True):
        store(result, out)
    return outputs
