"""Take the bias out of a dense layer whose result goes on into elementwise ops, so that these are fused with it.

What is left is a product, which BLAS writes where the rest then finds it: bias and activation are one walk through that
memory, in place.  To each element happens what happened before, so that every bit stays what it was.
"""

from __future__ import annotations

import attrs

from vmflow.graph_mode.job import Buffer, Job, JobOp, Operand

from .flow import Flow, flow_of, is_whole
from .fuse_elementwise import is_elementwise


def split_biases(job: Job) -> Job:
    """The job with an op `add` behind each such product."""
    flow = flow_of(job)
    buffers = dict(job.buffers)
    ops: list[JobOp] = []
    for position, op in enumerate(job.ops):
        if not _goes_on(flow, position, op):
            ops.append(op)
            continue
        number = max(buffers) + 1
        product = Operand(number, op.outputs[0].meta)
        buffers[number] = Buffer(number, product.meta)
        ops.append(attrs.evolve(op, inputs=op.inputs[:2], outputs=(product,)))
        ops.append(attrs.evolve(op, op="add", inputs=(product, op.inputs[2])))
    return job if len(ops) == len(job.ops) else job.with_ops(ops, buffers)


def _goes_on(flow: Flow, position: int, op: JobOp) -> bool:
    """Whether an op is a dense layer with a bias, and an elementwise op of its shape reads what it makes first."""
    if op.op != "linear" or op.kind != "call" or len(op.inputs) < 3 or not flow.written_once(op):
        return False
    (result,) = op.outputs
    readers = flow.readers.get(result.buffer, [])
    # Half precision is rounded once, behind the bias.
    if result.meta.dtype.numpy.itemsize < 4 or not result.meta.numel or not readers or readers[0] < position:
        return False
    reader = flow.job.ops[readers[0]]
    if not is_elementwise(reader):
        return False
    seen = [operand for operand in reader.inputs if operand.buffer == result.buffer]
    same = all([is_whole(it, flow.job) for it in seen]) and reader.outputs[0].meta.shape == result.meta.shape
    return same and reader.outputs[0].meta.device is result.meta.device
