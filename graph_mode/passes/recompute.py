"""Compute a block's results again for the backward pass, instead of keeping them until then.

For a block with ``config.activation_checkpointing``, the ops of its forward pass that its backward pass depends on are
repeated right before the first backward op that reads a result within the block.  The block's inputs, and outputs that
are read after that, stay in memory; results within the block are released after the forward pass.  A block that is
called several times is repeated once for each call; calls that follow each other directly are repeated together.

A second run gives the same bits: random ops have the same place in their generator's sequence.  If a buffer that the
ops read has been written since, the call is left as it is.  Ops that change variables, such as those of running
statistics, are not repeated.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Final

import attrs

from vmflow.graph_mode.job import Buffer, Job, JobOp, Operand

if TYPE_CHECKING:
    from . import Settings

_REPEATABLE: Final = ("call", "into", "transfer")


@attrs.define(eq=False)
class _Entry:
    """An op of the job being changed.

    Attributes:
        op: the op.
        copy: 0 for an original; else the number of the run of copies that it belongs to.
    """

    op: JobOp
    copy: int = 0

    @property
    def forward(self) -> bool:
        """Whether the op is a forward op, or a copy of one."""
        return not self.op.backward or self.copy > 0


def recompute(job: Job, settings: Settings) -> Job:
    """Repeat the ops of checkpointed blocks where the backward pass needs their results."""
    paths = [path for path, config in settings.blocks.items() if config.activation_checkpointing]
    work = _Work(job)
    # Outer blocks come first, so that the blocks within them find the copies.
    for path in sorted(paths, key=lambda path: path.count(".")):
        for run in reversed(list(_runs(work.entries, path))):
            work.repeat(run)
    return job.with_ops([entry.op for entry in work.entries], work.buffers) if work.copies else job


def _runs(entries: Sequence[_Entry], path: str) -> Iterator[list[_Entry]]:
    """Yield the runs of consecutive forward ops, or of consecutive copies, of the block at `path`, in order."""

    def call(entry: _Entry) -> int | None:
        inside = entry.op.module == path or entry.op.module.startswith(path + ".")
        return entry.copy if inside and entry.forward else None

    for key, run in groupby(entries, call):
        if key is not None:
            yield list(run)


class _Work:
    """A job being changed.

    Attributes:
        entries: its ops.
        buffers: its buffers.
        copies: the number of copied runs of ops.
    """

    def __init__(self, job: Job) -> None:
        self.entries = [_Entry(op) for op in job.ops]
        self.buffers = dict(job.buffers)
        self.copies = 0
        self._next = max(self.buffers, default=-1) + 1

    def repeat(self, run: list[_Entry]) -> None:
        """Copy the ops of this run that the backward pass needs, and let it read the copies, if that is possible."""
        start = self.entries.index(run[0])
        end = start + len(run)
        made = self._made(start, end)
        leaving: set[int] = set()
        first: dict[int, int] = {}
        last: dict[int, int] = {}
        for position in range(end, len(self.entries)):
            entry = self.entries[position]
            for buffer in made.intersection(entry.op.reads()):
                last[buffer] = position
                if entry.forward:
                    leaving.add(buffer)
                else:
                    first.setdefault(buffer, position)
        wanted = first.keys() - leaving
        if not wanted:
            return
        place = min([first[buffer] for buffer in wanted])
        living = {buffer for buffer in leaving if last[buffer] >= place}
        own = made - living
        chosen = self._needed(start, end, wanted, own)
        later = {buffer for entry in self.entries[end:] for buffer in entry.op.writes()}
        if wanted.isdisjoint(later) and self._stays_the_same(chosen, made, own, place):
            self._copy(chosen, wanted, own, place)

    def _made(self, start: int, end: int) -> set[int]:
        """The temporary buffers that are first written by the ops at positions in ``range(start, end)``."""
        made = {buffer for entry in self.entries[start:end] for buffer in entry.op.writes()}
        made = {buffer for buffer in made if self.buffers[buffer].role == "temporary"}
        return made.difference(*[entry.op.writes() for entry in self.entries[:start]])

    def _needed(self, start: int, end: int, wanted: set[int], own: set[int]) -> list[int]:
        """The positions, in ``range(start, end)``, of the ops that write `wanted` buffers, or `own` buffers that a
        later one of these ops reads.
        """
        needed = set(wanted)
        chosen: list[int] = []
        for position in reversed(range(start, end)):
            op = self.entries[position].op
            if needed.intersection(op.writes()):
                chosen.append(position)
                needed.update(own.intersection(op.reads()))
        return chosen[::-1]

    def _stays_the_same(self, chosen: list[int], made: set[int], own: set[int], place: int) -> bool:
        """Whether running these ops again at `place` gives equal results and has no other effect."""
        written: dict[int, int] = {}  # by buffer, its last write between the first chosen op and `place`
        for position in range(chosen[0], place):
            written.update(dict.fromkeys(self.entries[position].op.writes(), position))
        again: set[int] = set()
        for position in chosen:
            op = self.entries[position].op
            if op.kind not in _REPEATABLE or not made.issuperset(op.writes()):
                return False
            if op.phase != self.entries[place].op.phase:
                return False
            if any([written.get(buffer, -1) > position for buffer in op.reads() if buffer not in again]):
                return False
            again.update(own.intersection(op.writes()))
        return True

    def _copy(self, chosen: list[int], wanted: set[int], own: set[int], place: int) -> None:
        names: dict[int, int] = {}
        copies: list[_Entry] = []
        self.copies += 1
        for position in chosen:
            op = self.entries[position].op
            inputs = renamed(op.inputs, {buffer: names[buffer] for buffer in own.intersection(names)})
            for buffer in op.writes():
                if buffer not in names:
                    names[buffer] = self._next
                    self.buffers[self._next] = Buffer(self._next, self.buffers[buffer].meta)
                    self._next += 1
            copy = attrs.evolve(op, inputs=inputs, outputs=renamed(op.outputs, names), backward=True)
            copies.append(_Entry(copy, self.copies))
        taken = {buffer: names[buffer] for buffer in wanted}
        for entry in self.entries[place:]:
            if not entry.forward and not wanted.isdisjoint(entry.op.reads()):
                entry.op = attrs.evolve(entry.op, inputs=renamed(entry.op.inputs, taken))
        self.entries[place:place] = copies


def renamed(operands: tuple[Operand, ...], names: dict[int, int]) -> tuple[Operand, ...]:
    return tuple(
        [
            attrs.evolve(operand, buffer=names[operand.buffer]) if operand.buffer in names else operand
            for operand in operands
        ]
    )
