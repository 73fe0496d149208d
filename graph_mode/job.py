"""`Job`: a graph's work as plain data: ops over numbered buffers, in an order in which they can run.

Feeds and fetches are ops, too: the first ops of a job feed its arguments and variables, the last fetch its results.

Most buffers are written once, by the op that makes them; variables and targets of in-place ops may be written again,
so that the order of the ops is part of a job's meaning: an op reads the value written last.  Operands may have strides,
so that views need no ops.

Jobs are immutable.  A pass makes another job; see `graph_mode.passes`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Final

import attrs

from vmflow.instructions.blob import Array

from .drawing import job_picture
from .job_parts import (
    BOUNDARY as BOUNDARY,
    FEEDS as FEEDS,
    GATHERING as GATHERING,
    Buffer as Buffer,
    Draw as Draw,
    Drawn as Drawn,
    Gathering as Gathering,
    JobOp as JobOp,
    Kind as Kind,
    Operand as Operand,
    Role as Role,
    between_feeds_and_fetches as between_feeds_and_fetches,
    exact as exact,
    feed as feed,
    fetch as fetch,
)
from .serialization import job_from_json, job_to_json

_PLACES: Final[Mapping[Kind, int]] = {"feed_input": 0, "feed_variable": 0, "fetch_output": 2}


@attrs.frozen
class Job:
    """A graph's ops and buffers.

    Attributes:
        name: the name of the graph.
        buffers: all buffers of the ops, by id.
        ops: in an order in which they can run: feeds of `inputs`, feeds of variables, computing ops, and fetches of
            `outputs`.
        numbers: the buffers that a launch fills with numbers from outside, such as learning rates.
        draws: the ranges that a launch takes from the sequences of random generators, in order.
        constants: by buffer, the values of the buffers with the role "constant", which never change.
        micro_batches: the number of times that the ops of the phase "micro" run per launch.

    Raises no errors; `check` finds contradictions.

    Example:
        >>> double = flow.nn.Graph.trace(lambda x: x * 2)
        >>> y = double(flow.tensor([1, 2]))
        >>> [op.op for op in double.graph.job.ops]
        ['FeedInput', 'mul_scalar', 'FetchOutput']
    """

    name: str
    buffers: dict[int, Buffer] = attrs.field(repr=lambda buffers: f"<{len(buffers)} buffers>")
    ops: tuple[JobOp, ...] = attrs.field(repr=lambda ops: f"<{len(ops)} ops>")
    numbers: tuple[int, ...] = ()
    draws: tuple[Draw, ...] = ()
    constants: dict[int, Array] = attrs.field(
        factory=dict, eq=False, repr=lambda constants: f"<{len(constants)} constants>"
    )
    micro_batches: int = 1

    @cached_property
    def inputs(self) -> tuple[int, ...]:
        """The ids of the input buffers: those of the flattened arguments, then those of loaders' batches."""
        return tuple(self._fed("feed_input"))

    @cached_property
    def outputs(self) -> tuple[Operand, ...]:
        """The results of a call, flattened; behind them, any gradients that a call adds to `grad`."""
        return tuple([operand for op in self.ops if op.kind == "fetch_output" for operand in op.inputs])

    def variables(self) -> list[Buffer]:
        """The buffers that share the memory of tensors outside of the job."""
        return [self.buffers[number] for number in self._fed("feed_variable")]

    def _fed(self, kind: Kind) -> list[int]:
        return [operand.buffer for op in self.ops if op.kind == kind for operand in op.outputs]

    def _there_before(self) -> set[int]:
        """The ids of the buffers that have a value before the first op."""
        return {buffer.id for buffer in self.buffers.values() if buffer.role in ("constant", "number")}

    def written(self) -> set[int]:
        """The ids of buffers that an op writes when they have a value already."""
        made = self._there_before()
        changed: set[int] = set()
        for op in self.ops:
            for buffer in op.writes():
                if buffer in made:
                    changed.add(buffer)
                made.add(buffer)
        return changed

    def with_ops(self, ops: list[JobOp], buffers: dict[int, Buffer] | None = None) -> Job:
        """Return the job with these ops in place of its own; unused buffers, except numbers, are left out.

        Args:
            ops: in an order in which they can run.
            buffers: all buffers, by id, if some are new; None for the job's own.
        """
        have = self.buffers if buffers is None else buffers
        used = {operand.buffer for op in ops for operand in (*op.inputs, *op.outputs)}
        used.update(self.numbers)
        return attrs.evolve(
            self,
            ops=tuple(ops),
            buffers={number: have[number] for number in sorted(used)},
            constants={number: array for number, array in self.constants.items() if number in used},
        )

    def check(self) -> None:
        """Check that the job can run.

        Raises:
            ValueError: for an operand of an unknown buffer; for reading a buffer to which nothing was written; for
                feeds that are malformed, do not come first or feed a buffer twice, buffers of arguments and variables
                that are not fed, and fetches that are malformed or do not come last; for ops of one phase that read
                buffers made in the other, except for the ops that connect the phases; for micro-batches that use a
                variable that the step has changed before.
        """
        filled = self._there_before()
        before: Kind = "feed_input"
        for position, op in enumerate(self.ops):
            if _PLACES.get(op.kind, 1) < _PLACES.get(before, 1):
                raise ValueError(
                    f"op {position} ({op.name}) comes behind op {position - 1} ({self.ops[position - 1].name}); feeds "
                    "come before all other ops, and fetches behind them"
                )
            before = op.kind
            if before in FEEDS:
                self._check_feed(position, op, filled)
                continue
            if before == "fetch_output" and (len(op.inputs), len(op.outputs), op.phase) != (1, 0, "step"):
                raise ValueError(f"op {position} ({op.name}) has to fetch one operand, once for each launch")
            for buffer in (*op.reads(), *op.writes()):
                if buffer not in self.buffers:
                    raise ValueError(f"op {position} ({op.name}) uses buffer {buffer}, which the job does not have")
            for buffer in op.reads():
                if buffer not in filled:
                    raise ValueError(f"op {position} ({op.name}) reads buffer {buffer}, to which nothing was written")
            filled.update(op.writes())
        fed = {*self.inputs, *[variable.id for variable in self.variables()]}
        for declared in self.buffers.values():
            if declared.role in ("input", "variable") and declared.id not in fed:
                raise ValueError(f"no op feeds buffer {declared.id}, whose role is {declared.role!r}")
        if self.micro_batches > 1:
            self._check_phases()

    def _check_feed(self, position: int, op: JobOp, filled: set[int]) -> None:
        """Check one of the feeds, and add its buffer to the filled ones."""
        if op.inputs or len(op.outputs) != 1 or op.phase != "step":
            raise ValueError(f"op {position} ({op.name}) has to feed one buffer, once for each launch")
        (operand,) = op.outputs
        buffer = self.buffers.get(operand.buffer)
        if buffer is None:
            problem = "which the job does not have"
        elif op.kind != f"feed_{buffer.role}":
            problem = f"whose role is {buffer.role!r}"
        elif operand.strides is not None or operand.offset or operand.meta is not buffer.meta:
            problem = "but only a part of it, or as something else"
        elif buffer.id in filled:
            problem = "which has been fed before"
        else:
            filled.add(buffer.id)
            return
        raise ValueError(f"op {position} ({op.name}) feeds buffer {operand.buffer}, {problem}")

    def _check_phases(self) -> None:
        phases: dict[int, str] = {}
        changed: set[int] = set()
        for position, op in enumerate(self.ops):
            if op.kind in FEEDS:
                continue
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
        """The job as JSON, without constants' values and updates' kernels; see `graph_mode.serialization`.

        Raises:
            TypeError: if an attribute of an op cannot be written as JSON.
        """
        return job_to_json(self, indent)

    @staticmethod
    def from_json(text: str, constants: Mapping[int, Array] | None = None) -> Job:
        """The job from JSON that `to_json` has written.

        Args:
            text: the JSON.
            constants: by buffer, the values of all constants; None leaves them out, for a job that is not to run.

        Raises:
            ValueError: if the text is damaged, uses unknown ops or was written by a newer version, or the constants do
                not fit; names the place.
            DeviceUnavailable: if an op runs on a device that cannot be used here.
        """
        return job_from_json(Job, text, constants)

    def to_dot(self) -> str:
        """Return a drawing for Graphviz, in DOT: ops by module, and the buffers between them."""
        return job_picture(self).dot()

    def to_svg(self) -> str:
        """Return a drawing of the job as an SVG image."""
        return job_picture(self).svg()

    def _repr_html_(self) -> str:
        return job_picture(self).html()
