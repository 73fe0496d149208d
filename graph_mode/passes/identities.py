"""Leaving out what changes nothing: copies, casts there and back, and arithmetic with 1 and 0.

Who reads the result of such an op reads what it was made of instead, as long as that holds the same version; an op that
then nobody reads is dropped by another pass.  Every bit stays what it was.  The casts and the arithmetic here would
quiet a signalling NaN, and some drop what else is written in a NaN; no computation makes such ones, so these ops are
left out only where their operand has been computed, and not just brought in or passed on.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import attrs

from vmflow import dtypes
from vmflow.dtypes import dtype as DType
from vmflow.graph_mode.job import Job, JobOp, Operand
from vmflow.ops.elementwise.inference import REVERSED

from .flow import GATHERING, Flow, Version, flow_of, is_contiguous, is_whole

if TYPE_CHECKING:
    from . import Settings

# Floating-point dtypes by those that hold all their numbers.
_HELD: Final[dict[DType, tuple[DType, ...]]] = {
    dtypes.float16: (dtypes.float32, dtypes.float64),
    dtypes.bfloat16: (dtypes.float32, dtypes.float64),
    dtypes.float32: (dtypes.float64,),
}

# What hands on the bits that it is given.
_PASSING_ON: Final = frozenset({"FeedInput", "FeedVariable", "copy_", "to_device", "unpack", "pack"})


def drop_identities(job: Job, settings: Settings) -> Job:
    """Let ops read what is behind copies and other ops that change nothing."""
    walk = _Walk(flow_of(job))
    ops = [walk.seen(position, op) for position, op in enumerate(job.ops)]
    return job if all([one is other for one, other in zip(ops, job.ops, strict=True)]) else job.with_ops(ops)


@attrs.frozen
class _Origin:
    """What a version was made of.

    Attributes:
        operand: whose elements, in C order, it was made of.
        version: that the operand's buffer held then.
        phase: of the op that made it.
    """

    operand: Operand
    version: Version
    phase: str


@attrs.define(eq=False)
class _Walk:
    """From the first op to the last.

    Attributes:
        flow: of the job as given.  No op changes its place, nor what it writes, so that versions keep their numbers.
        same: by version, what it is a copy of.
        negated, cast: by version, what it is the negative, or another dtype, of.
    """

    flow: Flow
    same: dict[Version, _Origin] = attrs.field(factory=dict)
    negated: dict[Version, _Origin] = attrs.field(factory=dict)
    cast: dict[Version, _Origin] = attrs.field(factory=dict)

    def seen(self, position: int, op: JobOp) -> JobOp:
        """The op, reading what is behind its operands."""
        if op.kind in GATHERING:
            return op  # what such ops read has to be made for them
        inputs = tuple([self._behind(operand, position, op) for operand in op.inputs])
        if inputs != op.inputs:
            op = _as_call(attrs.evolve(op, inputs=inputs), self.flow.job)
        if op.op == "cast" and op.kind == "call":
            op = self._shorter(position, op)
        if op.kind in ("call", "into") and len(op.inputs) == len(op.outputs) == 1:
            self._note(position, op)
        return op

    def _behind(self, operand: Operand, position: int, op: JobOp) -> Operand:
        origin = self.same.get(self.flow.version(operand.buffer, position))
        if origin is None or not self._there(origin, position, op):
            return operand
        return _through(operand, origin.operand) or operand

    def _there(self, origin: _Origin, position: int, op: JobOp) -> bool:
        """Whether an op can read an origin: it holds what it held, and is not overwritten by that very op."""
        buffer = origin.operand.buffer
        if self.flow.version(buffer, position) != origin.version:
            return False
        # What a variable holds may change by the next launch, before this one's result has been fetched.
        if op.kind == "fetch_output" and self.flow.job.buffers[buffer].role == "variable":
            return False
        return origin.phase == op.phase and buffer not in op.writes()

    def _shorter(self, position: int, op: JobOp) -> JobOp:
        """A cast of a cast that has lost nothing is a cast of the original."""
        (operand,) = op.inputs
        origin = self.cast.get(self.flow.version(operand.buffer, position))
        if origin is None or not is_whole(operand, self.flow.job) or not self._there(origin, position, op):
            return op
        first = origin.operand.meta.dtype
        if not self._computed_or_integer(origin):
            return op
        if not _loses_nothing(first, operand.meta.dtype, op.outputs[0].meta.dtype):
            return op
        return attrs.evolve(op, inputs=(origin.operand,))

    def _note(self, position: int, op: JobOp) -> None:
        """Remember what its result was made of."""
        (operand,), (result,) = op.inputs, op.outputs
        if not is_whole(result, self.flow.job) or operand.buffer == result.buffer:
            return
        if operand.meta.shape != result.meta.shape:
            return
        made = self.flow.version(result.buffer, position + 1)
        origin = _Origin(operand, self.flow.version(operand.buffer, position), op.phase)
        if operand.meta.dtype is not result.meta.dtype:
            if op.op == "cast":
                self.cast[made] = origin
            return
        if not is_contiguous(operand):
            return  # others would have to add up its elements in another order, for instance
        if op.op in ("cast", "copy_") or (_neutral(op) and self._computed_or_integer(origin)):
            self.same[made] = origin
        elif op.op == "neg":
            before = self.negated.get(origin.version)
            if before is not None and is_whole(operand, self.flow.job) and self._computed_or_integer(before):
                self.same[made] = before
            else:
                self.negated[made] = origin

    def _computed_or_integer(self, origin: _Origin) -> bool:
        """Whether its NaNs, if any, are such as computations make."""
        if not origin.operand.meta.dtype.is_floating_point:
            return True
        producer = self.flow.producer(origin.version)
        if producer is None or producer.op in _PASSING_ON:
            return False
        return producer.op != "cast" or producer.inputs[0].meta.dtype is not producer.outputs[0].meta.dtype


def _neutral(op: JobOp) -> bool:
    """Whether it gives its operand, which has the dtype of the result, bit for bit."""
    dtype: DType = op.inputs[0].meta.dtype
    if len(op.scalars) != 1 or type(op.scalars[0]) not in (int, float) or dtype.is_complex:
        # Of complex numbers, 0 * inf is not 0.
        return False
    value, reversed_ = op.scalars[0], op.attributes == REVERSED
    if op.op == "mul_scalar":
        return bool(value == 1)
    if op.op == "div_scalar":
        return bool(value == 1) and not reversed_
    if value != 0 or op.op not in ("add_scalar", "sub_scalar"):
        return False
    if not dtype.is_floating_point:
        return op.op == "add_scalar" or not reversed_
    # -0.0 + 0.0 is 0.0; what stays itself is x + -0.0 and x - 0.0.
    negative = math.copysign(1.0, value) < 0
    return negative if op.op == "add_scalar" else not negative and not reversed_


def _loses_nothing(first: DType, second: DType, third: DType) -> bool:
    """Whether a cast from the first dtype by way of the second to the third is one from the first to the third."""
    if first.is_floating_point:
        return second in _HELD.get(first, ()) and third.is_floating_point
    if max(first.category, second.category, third.category) >= dtypes.FLOATING:
        # From an integer to 16 bits of floating point, numpy goes its own way.
        return False
    if first is dtypes.bool_ or first is second:
        return True
    if second is dtypes.bool_ or second.itemsize < first.itemsize:
        return False
    # Integers of one size: the same bits, read otherwise, which shows only where they are widened.
    widens = second.itemsize > first.itemsize
    return third.itemsize <= first.itemsize or (widens and (second.is_signed or not first.is_signed))


def _through(seen: Operand, original: Operand) -> Operand | None:
    """What is seen of a copy, seen of the contiguous original; None if its elements do not begin where one can."""
    if seen.strides is None:
        return original
    begin = original.offset * original.meta.dtype.itemsize + seen.offset * seen.meta.dtype.itemsize
    if begin % seen.meta.dtype.itemsize:
        return None
    return attrs.evolve(seen, buffer=original.buffer, offset=begin // seen.meta.dtype.itemsize)


def _as_call(op: JobOp, job: Job) -> JobOp:
    """An op that writes into all of a temporary buffer, and reads nothing of that any more, makes it."""
    if op.kind != "into":
        return op
    (result,) = op.outputs
    if job.buffers[result.buffer].role != "temporary" or result.strides is not None or result.buffer in op.reads():
        return op
    made = op.infer().outputs[0]
    same = made.shape == result.meta.shape and made.dtype is result.meta.dtype
    return attrs.evolve(op, kind="call") if same else op
