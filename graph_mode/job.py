"""`Job`: what a graph does, as plain data: ops, in an order in which they can run, over numbered buffers.

A buffer is memory.  Most are written once, by the op that makes them; a variable, or the target of an in-place op, is
written again, so that the order of the ops is part of what a job means: an op reads what the latest op before it has
written.  Operands see buffers through strides, so that views cost nothing here either.

Jobs are never changed.  A pass makes another; see `graph_mode.passes`.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from vmflow.instructions.blob import Array

from .drawing import job_to_dot
from .job_parts import GATHERING as GATHERING
from .job_parts import Buffer as Buffer
from .job_parts import Draw as Draw
from .job_parts import Drawn as Drawn
from .job_parts import Gathering as Gathering
from .job_parts import JobOp as JobOp
from .job_parts import Operand as Operand
from .job_parts import Role as Role
from .job_parts import exact as exact
from .serialization import job_from_json, job_to_json


@attrs.frozen
class Job:
    """A graph's work.

    Attributes:
        name: of the graph.
        buffers: all that the ops use, by id.
        ops: in an order in which they can run.
        inputs: the buffers that a caller fills, in the order of the flattened arguments.
        outputs: what the caller gets, in the order of the flattened results.
        numbers: the buffers that a launch fills with numbers from outside, such as learning rates.
        draws: what a launch takes of random generators, in order.
        constants: the values of the buffers of that role; nobody changes them.
        micro_batches: how many times the ops of the phase "micro" run per launch.
    """

    name: str
    buffers: dict[int, Buffer] = attrs.field(repr=lambda buffers: f"<{len(buffers)} buffers>")
    ops: tuple[JobOp, ...] = attrs.field(repr=lambda ops: f"<{len(ops)} ops>")
    inputs: tuple[int, ...] = ()
    outputs: tuple[Operand, ...] = ()
    numbers: tuple[int, ...] = ()
    draws: tuple[Draw, ...] = ()
    constants: dict[int, Array] = attrs.field(
        factory=dict, eq=False, repr=lambda constants: f"<{len(constants)} constants>"
    )
    micro_batches: int = 1

    def variables(self) -> list[Buffer]:
        """Those that share the memory of tensors outside, in the order of their ids."""
        return [buffer for _, buffer in sorted(self.buffers.items()) if buffer.role == "variable"]

    def written(self) -> set[int]:
        """The buffers that an op changes after they had a value."""
        made: set[int] = {buffer.id for buffer in self.buffers.values() if buffer.role != "temporary"}
        changed: set[int] = set()
        for op in self.ops:
            for buffer in op.writes():
                if buffer in made:
                    changed.add(buffer)
                made.add(buffer)
        return changed

    def with_ops(self, ops: list[JobOp], buffers: dict[int, Buffer] | None = None) -> Job:
        """The same with these ops; buffers that nothing uses any more are left out.

        Args:
            ops: in an order in which they can run.
            buffers: all there are, if some are new.
        """
        have = self.buffers if buffers is None else buffers
        used = {operand.buffer for op in ops for operand in (*op.inputs, *op.outputs)}
        used.update(self.inputs, self.numbers, [operand.buffer for operand in self.outputs])
        return attrs.evolve(
            self,
            ops=tuple(ops),
            buffers={number: have[number] for number in sorted(used)},
            constants={number: array for number, array in self.constants.items() if number in used},
        )

    def check(self) -> None:
        """Make sure that it can run.

        Raises:
            ValueError: for an operand of an unknown buffer, or one that is read before anything was written to it; if
                ops of one phase use what the other makes, but for those that lead from the one to the other; if the
                micro-batches would meet a variable that the step has changed already.
        """
        filled = {buffer.id for buffer in self.buffers.values() if buffer.role != "temporary"}
        for position, op in enumerate(self.ops):
            for buffer in (*op.reads(), *op.writes()):
                if buffer not in self.buffers:
                    raise ValueError(f"op {position} ({op.name}) uses buffer {buffer}, which the job does not have")
            for buffer in op.reads():
                if buffer not in filled:
                    raise ValueError(f"op {position} ({op.name}) reads buffer {buffer}, to which nothing was written")
            filled.update(op.writes())
        for operand in self.outputs:
            if operand.buffer not in filled:
                raise ValueError(f"an output of the job is buffer {operand.buffer}, to which nothing was written")
        if self.micro_batches > 1:
            self._check_phases()

    def _check_phases(self) -> None:
        phases: dict[int, str] = {}
        changed: set[int] = set()
        for position, op in enumerate(self.ops):
            expected = "step" if op.kind == "unpack" else op.phase
            made = "step" if op.kind in ("accumulate", "pack") else op.phase
            for buffer in op.reads():
                if phases.get(buffer, expected) != expected:
                    raise ValueError(
                        f"op {position} ({op.name}) of the phase {expected!r} reads buffer {buffer}, which is made in "
                        f"the phase {phases[buffer]!r}; it must be accumulated or packed between"
                    )
            for buffer in (*op.reads(), *op.writes()):
                if op.phase == "micro" and buffer in changed:
                    raise ValueError(
                        f"op {position} ({op.name}) runs for each micro-batch, and uses buffer {buffer}, which the "
                        "step has changed before"
                    )
            for buffer in op.writes():
                if self.buffers[buffer].role == "temporary":
                    phases.setdefault(buffer, made)
                elif op.phase == "step":
                    changed.add(buffer)

    def to_json(self, indent: int | None = None) -> str:
        """As text; see `graph_mode.serialization`, also for what stays out: constants' values and updates' kernels."""
        return job_to_json(self, indent)

    @staticmethod
    def from_json(text: str, constants: Mapping[int, Array] | None = None) -> Job:
        """What `to_json` was called on.

        Args:
            text: the JSON.
            constants: by buffer, the values of all constants; None leaves them out, for a job that is not to run.

        Raises:
            ValueError: if the text is damaged or was made by a newer version; names the place.
        """
        return job_from_json(Job, text, constants)

    def to_dot(self) -> str:
        """As a picture's description for Graphviz: ops by module, and the buffers between them."""
        return job_to_dot(self)
