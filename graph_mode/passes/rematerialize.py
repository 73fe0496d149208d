"""Compute values a second time, right before the backward pass reads them, if keeping them raises the peak of memory.

A value is released during its longest time without a read since its last use in the forward pass, and computed again
before the backward read that follows.  Each operand of the repeated op is still there, is computed again, too, or is
kept longer if that takes less memory than the release saves.  Ops that change variables, such as those of running
statistics, are not repeated.

Values are chosen greedily: among those that are kept unused at the peak, the value that saves most bytes per
nanosecond, until none lowers the peak.  Then choices that do not lower the peak after all are dropped.  The repeated
ops may take a given part of the job's time, by the estimates of the op table: see `GraphConfig.allow_recomputation`.

A second run gives the same bits: the op is the same, its operands have not been written since, and a random op has the
same place in its generator's sequence.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import attrs
import numpy as np
import numpy.typing as npt

from vmflow.graph_mode.chain_memory import cost_of, lifetimes_of, steps_before, workspace_of
from vmflow.graph_mode.job import Buffer, Job, JobOp
from vmflow.graph_mode.lifetimes import ALIGNMENT, Buffer as Lifetime, aligned, blocks_of, lower_bound
from vmflow.graph_mode.tasks import Task, form_tasks

from .flow import Flow, flow_of
from .recompute import renamed

if TYPE_CHECKING:
    from . import Settings

# The greatest depth of the tree of ops that are repeated for one value.
_LONGEST: Final = 3

# The most rounds of choosing values, and the least part of the memory that the choices of a round have to save.
_ROUNDS: Final = 4
_LEAST_GAIN: Final = 0.01

# The most values chosen in a round for one chain, so that large jobs build quickly.
_TRIED: Final = 256


@attrs.frozen(eq=False)
class _Choice:
    """A value that can be computed again.

    Attributes:
        buffer: the value's buffer.
        again: the positions of the ops to repeat, ascending; the last computes the value.
        place: the position before which the ops are repeated.
        reads: the buffers that the repeated ops read, without those that they make.
        gone: the first step at which the value is absent, and the step at which it is there again.
        size: the value's bytes.
        longer: for each buffer that has to live until `place`, the first additional step, and its bytes.
        making: the bytes that the repetition adds to those alive before `place`, without the value's own.
        cost: estimated nanoseconds of the repeated ops.
    """

    buffer: int
    again: tuple[int, ...]
    place: int
    reads: frozenset[int]
    gone: tuple[int, int]
    size: int
    longer: tuple[tuple[int, int], ...]
    making: int
    cost: int

    def shift(self, live: npt.NDArray[np.int64], sign: int = 1) -> None:
        """Add the choice's effect to the bytes alive at each step; with sign -1, remove the effect."""
        begin, end = self.gone
        live[begin:end] -= sign * self.size
        for since, nbytes in self.longer:
            live[since:end] += sign * nbytes


def rematerialize(job: Job, settings: Settings) -> Job:
    """Repeat ops for the backward pass where that saves memory, within the time that `GraphConfig.allow_recomputation`
    permits.
    """
    if not settings.config.recomputation or not any([op.backward for op in job.ops]):
        return job
    allowance = int(settings.config.recomputation * sum([cost_of(op) for op in job.ops]))
    memory = _memory_of(job)
    for _ in range(_ROUNDS):
        chosen = list(_chosen(job, memory, allowance))
        if not chosen:
            break
        changed = _with_copies(job, chosen)
        needed = _memory_of(changed)
        if _least(needed) > (1 - _LEAST_GAIN) * _least(memory):
            break
        job, memory = changed, needed
        allowance -= sum([choice.cost for choice in chosen])
    return job


@attrs.frozen
class _Memory:
    """The memory that only one chain uses.

    Attributes:
        task: the chain.
        filled: the number of steps that fill arguments and numbers before the first op.
        lifetimes: see `lifetimes_of`.
    """

    task: Task
    filled: int
    lifetimes: list[Lifetime]


def _memory_of(job: Job) -> list[_Memory]:
    """The memory of each chain."""
    tasks, _ = form_tasks(job)
    elsewhere = frozenset([buffer for task in tasks for buffer in task.reads])
    chains = [task for task in tasks if task.op is None]
    return [_Memory(task, len(steps_before(task, elsewhere)), lifetimes_of(job, task, elsewhere)) for task in chains]


def _least(memory: list[_Memory]) -> int:
    """A lower bound for the chains' bytes."""
    return sum([lower_bound(chain.lifetimes) for chain in memory])


def _chosen(job: Job, memory: list[_Memory], allowance: int) -> Iterator[_Choice]:
    """Choose the values of all chains to compute again, within `allowance` nanoseconds."""
    flow = flow_of(job)
    for chain in memory:
        for choice in _Chain(flow, chain).choices(allowance):
            allowance -= choice.cost
            yield choice


@attrs.define
class _Span:
    """A buffer in the chain's memory: its bytes, and the first and the last step that use it."""

    size: int
    first: int
    last: int


class _Chain:
    """Chooses values of one chain to compute again."""

    def __init__(self, flow: Flow, memory: _Memory) -> None:
        self._flow = flow
        self._job = flow.job
        self._step = {position: memory.filled + index for index, position in enumerate(memory.task.ops)}
        self._spans = {
            lifetime.id: _Span(aligned(lifetime.nbytes, ALIGNMENT), lifetime.first, lifetime.last)
            for lifetime in memory.lifetimes
        }
        # The bytes alive during each step; and at each step's start, before its op has made results.
        self._live = np.zeros(memory.filled + len(memory.task.ops) + 1, np.int64)
        self._entering = np.zeros_like(self._live)
        for block in blocks_of(memory.lifetimes, ALIGNMENT):
            self._live[block.first : block.last + 1] += block.size
            self._entering[block.first + 1 : block.last + 1] += block.size
        choices = [
            choice
            for span in sorted(self._spans)
            if self._is_candidate(span) and (choice := self._choice(span)) is not None
        ]
        # Most bytes per nanosecond first.
        self._candidates = sorted(choices, key=lambda choice: choice.cost / choice.size)
        self._forgotten: set[int] = set()
        self._needed: set[int] = set()

    def _is_candidate(self, buffer: int) -> bool:
        """Whether the buffer is a repeatable op's largest result, and its last reader is a backward op."""
        makers, readers = self._flow.writers.get(buffer, []), self._flow.readers.get(buffer, [])
        if not makers or not readers or makers[0] not in self._step or not self._spans[buffer].size:
            return False
        maker, last = self._job.ops[makers[0]], self._job.ops[readers[-1]]
        # Smaller results of the same op, such as the statistics of a normalisation, are not worth a second run.
        largest = max([operand.meta.nbytes for operand in maker.outputs])
        if self._job.buffers[buffer].meta.nbytes < largest:
            return False
        return last.backward and self._repeatable(maker, last)

    def choices(self, allowance: int) -> list[_Choice]:
        """Choose the chain's values to compute again, within `allowance` nanoseconds."""
        taken: list[_Choice] = []
        for _ in range(_TRIED):
            peak = int(self._live.argmax())
            choice = self._best_at(peak, allowance)
            if choice is None:
                break
            choice.shift(self._live)
            choice.shift(self._entering)
            self._candidates.remove(choice)
            self._forgotten.add(choice.buffer)
            self._needed.update(choice.reads)
            allowance -= choice.cost
            taken.append(choice)
        return self._without_the_needless(taken)

    def _without_the_needless(self, taken: list[_Choice]) -> list[_Choice]:
        """The choices without which the peak would be higher; the most expensive are dropped first."""
        most = int(self._live.max())
        needed: list[_Choice] = []
        for choice in sorted(taken, key=lambda choice: -choice.cost):
            choice.shift(self._live, -1)
            if int(self._live.max()) > most:
                choice.shift(self._live)
                needed.append(choice)
        return needed

    def _best_at(self, peak: int, allowance: int) -> _Choice | None:
        """Return the first candidate that costs at most `allowance`, and lowers the bytes at step `peak` and raises no
        step above them; None if there is none.
        """
        most = int(self._live[peak])
        for choice in self._candidates:
            idle = choice.gone[0] <= peak < choice.gone[1] and choice.buffer not in self._needed
            if idle and choice.cost <= allowance and self._lowers(choice, peak, most):
                return choice
        return None

    def _lowers(self, choice: _Choice, peak: int, most: int) -> bool:
        """Whether the choice lowers the bytes at `peak`, raises none above `most`, and reads no value chosen before."""
        longer = [nbytes for since, nbytes in choice.longer if since <= peak]
        if sum(longer) >= choice.size or not self._forgotten.isdisjoint(choice.reads):
            return False
        begin = min([choice.gone[0], *[since for since, _ in choice.longer]])
        end = choice.gone[1]
        choice.shift(self._live)
        highest = int(self._live[begin:end].max())
        choice.shift(self._live, -1)
        return highest <= most and int(self._entering[end]) + choice.making < most

    def _choice(self, buffer: int) -> _Choice | None:
        """Return how to compute a value again for the backward read after its longest idle time; None if there is no
        way, or no step between.
        """
        readers, maker = self._flow.readers[buffer], self._flow.writers[buffer][0]
        late = len(readers)
        while late and self._job.ops[readers[late - 1]].backward:
            late -= 1
        used = [self._step[reader] for reader in (maker, *readers)]
        idle = [(used[index + 1] - used[index], index) for index in range(late, len(readers))]
        _, gap = max(idle)
        last_before, place = used[gap], readers[gap]
        again: set[int] = set()
        longer: dict[int, None] = {}
        if used[gap + 1] - last_before < 2 or not self._collect(maker, place, again, longer, _LONGEST):
            return None
        ordered = tuple(sorted(again))
        ops = [self._job.ops[index] for index in ordered]
        made = {output.buffer: aligned(output.meta.nbytes, ALIGNMENT) for op in ops for output in op.outputs}
        spans = [self._spans[operand] for operand in longer]
        size = self._spans[buffer].size
        workspace = max([workspace_of(op) for op in ops])
        return _Choice(
            buffer,
            ordered,
            place,
            frozenset([read for op in ops for read in op.reads() if read not in made]),
            (last_before + 1, used[gap + 1]),
            size,
            tuple([(span.last + 1, span.size) for span in spans]),
            sum(made.values()) - size + workspace + sum([span.size for span in spans]),
            max(1, sum([cost_of(op) for op in ops])),
        )

    def _collect(self, position: int, place: int, again: set[int], longer: dict[int, None], depth: int) -> bool:
        """Collect ops to repeat, from the op at `position` back, and buffers to keep longer; False if impossible."""
        op = self._job.ops[position]
        if not depth or position not in self._step or not self._repeatable(op, self._job.ops[place]):
            return False
        again.add(position)
        for buffer in dict.fromkeys(op.reads()):
            if self._flow.version(buffer, position) != self._flow.version(buffer, place):
                return False
            span = self._spans.get(buffer)
            if span is None or span.last >= self._step[place]:
                continue  # alive in any case
            if self._job.buffers[buffer].role == "input":
                return False  # an argument that lies in the caller's memory is given back after its last read
            maker = self._flow.writers.get(buffer, [-1])[0]
            further, others = set(again), dict(longer)
            if maker >= 0 and self._collect(maker, place, further, others, depth - 1):
                again.update(further)
                longer.update(others)
            else:
                longer[buffer] = None
        return True

    def _repeatable(self, op: JobOp, reader: JobOp) -> bool:
        together = (op.phase, op.stage) == (reader.phase, reader.stage)
        return op.kind == "call" and together and self._flow.written_once(op)


def _with_copies(job: Job, chosen: list[_Choice]) -> Job:
    """The job with the chosen ops repeated; later readers of the chosen values read the copies."""
    buffers = dict(job.buffers)
    before: defaultdict[int, list[_Choice]] = defaultdict(list)
    for choice in chosen:
        before[choice.place].append(choice)
    names: dict[int, int] = {}
    ops: list[JobOp] = []
    for position, op in enumerate(job.ops):
        for choice in before.get(position, ()):
            own: dict[int, int] = {}
            for again in choice.again:
                ops.append(_copy(job.ops[again], own, buffers))
            names[choice.buffer] = own[choice.buffer]
        renames = not names.keys().isdisjoint(op.reads())
        ops.append(attrs.evolve(op, inputs=renamed(op.inputs, names)) if renames else op)
    return job.with_ops(ops, buffers)


def _copy(op: JobOp, own: dict[int, int], buffers: dict[int, Buffer]) -> JobOp:
    """Return a copy of the op with operands renamed by `own`; its new buffers are added to `own` and `buffers`."""
    inputs = renamed(op.inputs, own)
    for operand in op.outputs:
        number = own[operand.buffer] = max(buffers) + 1
        buffers[number] = Buffer(number, buffers[operand.buffer].meta)
    return attrs.evolve(op, inputs=inputs, outputs=renamed(op.outputs, own), backward=True)
