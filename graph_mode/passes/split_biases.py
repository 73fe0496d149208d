"""Split the bias off a dense layer whose result feeds elementwise ops, so that the addition is fused with them.

BLAS then writes the product into memory, and one fused op adds the bias and applies the activation.  The arithmetic on
each element is the same, so that every bit stays as it was.
"""

from __future__ import annotations

import attrs

from vmflow.graph_mode.job import Buffer, Job, JobOp, Operand

from .flow import Flow, flow_of, is_whole
from .fuse_elementwise import is_elementwise


def split_biases(job: Job) -> Job:
    """Replace each dense layer that `_goes_on` accepts by a product and an op `add`."""
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
    """Whether to split an op: a dense layer with a bias whose result an elementwise op of the same shape reads first.

    In half precision none is split.
    """
    if op.op != "linear" or op.kind != "call" or len(op.inputs) < 3 or not flow.written_once(op):
        return False
    (result,) = op.outputs
    readers = flow.readers.get(result.buffer, [])
    # In half precision a layer rounds once, after the bias; split, it would round twice.
    if result.meta.dtype.numpy.itemsize < 4 or not result.meta.numel or not readers or readers[0] < position:
        return False
    reader = flow.job.ops[readers[0]]
    if not is_elementwise(reader):
        return False
    operands = [operand for operand in reader.inputs if operand.buffer == result.buffer]
    whole = all([is_whole(operand, flow.job) for operand in operands])
    same = whole and reader.outputs[0].meta.shape == result.meta.shape
    return same and reader.outputs[0].meta.device is result.meta.device
