"""Bypass ops that change nothing: copies, double negation; of real numbers, casts there and back, and * 1 or - 0.

Readers of such an op's result read the op's source instead, as long as the source holds the same version; a later pass
drops an op without readers.  Every bit stays as it was, but for unusual NaNs: casts and arithmetic would quiet a
signalling NaN, and some clear a NaN's payload.  So casts and arithmetic of floating-point numbers stay where their
operand is a constant, fed or copied.  Other ops that move elements, such as `flip`, are taken for arithmetic.
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

# By floating-point dtype, the wider dtypes that can represent all its numbers.
_HELD: Final[dict[DType, tuple[DType, ...]]] = {
    dtypes.float16: (dtypes.float32, dtypes.float64),
    dtypes.bfloat16: (dtypes.float32, dtypes.float64),
    dtypes.float32: (dtypes.float64,),
}

# Ops that pass on the bits of an operand or argument.
_PASSING_ON: Final = frozenset({"FeedInput", "FeedVariable", "copy_", "to_device", "unpack", "pack"})


def drop_identities(job: Job, settings: Settings) -> Job:
    """Let ops read the sources of copies and of other ops that change nothing."""
    walk = _Walk(flow_of(job))
    ops = [walk.rewritten(position, op) for position, op in enumerate(job.ops)]
    return job if all([new is old for new, old in zip(ops, job.ops, strict=True)]) else job.with_ops(ops)


@attrs.frozen
class _Origin:
    """The operand that a version of a buffer is a copy, a cast or the negative of.

    Attributes:
        operand: the operand whose elements, in C order, the version was made of.
        version: the version of the operand's buffer at that time.
        phase: the phase of the op that has read the operand.
    """

    operand: Operand
    version: Version
    phase: str


@attrs.define(eq=False)
class _Walk:
    """One walk through a job's ops, which remembers the sources of versions.

    Attributes:
        flow: the given job's versions.  No op changes its place or its results, so that versions keep their numbers.
        same: by version that equals its source bit for bit, that source.
        negated: by version that is the negative of a source, that source.
        cast: by version that is a cast to another dtype, the cast's source.
    """

    flow: Flow
    same: dict[Version, _Origin] = attrs.field(factory=dict)
    negated: dict[Version, _Origin] = attrs.field(factory=dict)
    cast: dict[Version, _Origin] = attrs.field(factory=dict)

    def rewritten(self, position: int, op: JobOp) -> JobOp:
        """Return the op, changed to read sources in place of equal operands, and note the source of the op's result."""
        if op.kind in GATHERING:
            return op  # ops that connect phases need buffers of their own
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
        """Whether an op can read a source: the source is unchanged, was read in the op's phase, is not overwritten by
        the op, and is no variable if the op is a fetch.
        """
        buffer = origin.operand.buffer
        if self.flow.version(buffer, position) != origin.version:
            return False
        # The next launch may change a variable before this launch's result has been fetched.
        if op.kind == "fetch_output" and self.flow.job.buffers[buffer].role == "variable":
            return False
        return origin.phase == op.phase and buffer not in op.writes()

    def _shorter(self, position: int, op: JobOp) -> JobOp:
        """Return `op`, a cast; the cast of a cast's result reads the first operand where this changes no bit."""
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
        """Remember the source of the op's result, if it has one."""
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
            return  # readers of the strided source might, for instance, sum elements in another order
        if op.op in ("cast", "copy_") or (_neutral(op) and self._computed_or_integer(origin)):
            self.same[made] = origin
        elif op.op == "neg":
            before = self.negated.get(origin.version)
            if before is not None and is_whole(operand, self.flow.job) and self._computed_or_integer(before):
                self.same[made] = before
            else:
                self.negated[made] = origin

    def _computed_or_integer(self, origin: _Origin) -> bool:
        """Whether a source is not floating-point, or was computed, so that unusual NaNs are unlikely."""
        if not origin.operand.meta.dtype.is_floating_point:
            return True
        producer = self.flow.producer(origin.version)
        if producer is None or producer.op in _PASSING_ON:
            return False
        return producer.op != "cast" or producer.inputs[0].meta.dtype is not producer.outputs[0].meta.dtype


def _neutral(op: JobOp) -> bool:
    """Whether an op whose result has its operand's dtype is known to keep every bit, as arithmetic with a scalar."""
    dtype: DType = op.inputs[0].meta.dtype
    if len(op.scalars) != 1 or type(op.scalars[0]) not in (int, float) or dtype.is_complex:
        # Multiplying by 1 + 0j computes 0 * inf, which is not 0.
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
    # -0.0 + 0.0 is 0.0; x + -0.0 and x - 0.0 are x.
    negative = math.copysign(1.0, value) < 0
    return negative if op.op == "add_scalar" else not negative and not reversed_


def _loses_nothing(first: DType, second: DType, third: DType) -> bool:
    """Whether casts from the first dtype to the second and on to the third are known to equal a direct cast."""
    if first.is_floating_point:
        return second in _HELD.get(first, ()) and third.is_floating_point
    if max(first.category, second.category, third.category) >= dtypes.FLOATING:
        # Two casts may round an integer otherwise than one.
        return False
    if first is dtypes.bool_ or first is second:
        return True
    if second is dtypes.bool_ or second.itemsize < first.itemsize:
        return False
    # Integers of one size have the same bits; signedness shows only when they are widened.
    widens = second.itemsize > first.itemsize
    return third.itemsize <= first.itemsize or (widens and (second.is_signed or not first.is_signed))


def _through(seen: Operand, original: Operand) -> Operand | None:
    """The view `seen` of a copy as a view of the contiguous original; None if the offset is no multiple of an item."""
    if seen.strides is None:
        return original
    begin = original.offset * original.meta.dtype.itemsize + seen.offset * seen.meta.dtype.itemsize
    if begin % seen.meta.dtype.itemsize:
        return None
    return attrs.evolve(seen, buffer=original.buffer, offset=begin // seen.meta.dtype.itemsize)


def _as_call(op: JobOp, job: Job) -> JobOp:
    """Turn an op that overwrites a whole temporary buffer, without reading it or casting, into one of kind "call"."""
    if op.kind != "into":
        return op
    (result,) = op.outputs
    if job.buffers[result.buffer].role != "temporary" or result.strides is not None or result.buffer in op.reads():
        return op
    made = op.infer().outputs[0]
    same = made.shape == result.meta.shape and made.dtype is result.meta.dtype
    return attrs.evolve(op, kind="call") if same else op
