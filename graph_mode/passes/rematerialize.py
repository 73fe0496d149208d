"""Make anew, right before the backward pass reads it, what would otherwise be kept at the peak of memory.

A value goes at its last use in the forward pass and comes back at its first in the backward pass.  What the ops that
make it read must be there still, or be made anew as well by a short chain of ops, or be smaller than what it brings
back.  Ops that change variables, such as those of running statistics, are not repeated.

Values are chosen by what lives when: always of those that live at the step where most does, the one that gives back
most bytes per nanosecond, until nothing lowers that step any more.  Then those are left out again without which the
most is no higher.  All that is added takes a part of the job's time, by the estimates of the op table: see
`GraphConfig.allow_recomputation`.  Little is enough for elementwise ops and normalisations, wide products want more.

A second run gives the same bits: the op is the same, what it reads has not been written since, and a random op has the
same place in its generator's sequence.  This comes behind everything that moves ops, since it is about their order.
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

# How many ops may follow each other to bring one value back.
_LONGEST: Final = 3

# How often the memory is planned anew; and by what part it has to shrink each time, lest nothing be changed.
_ROUNDS: Final = 4
_LEAST_GAIN: Final = 0.01

# How many values are considered in a round: building must stay quick for jobs of any size.
_TRIED: Final = 256


@attrs.frozen(eq=False)
class _Choice:
    """A value that may be made anew.

    Attributes:
        buffer: where it is.
        again: the positions of the ops to be repeated, ascending; the last makes it.
        place: the position before which they are repeated.
        reads: the buffers that the repeated ops read, but for those that they make.
        gone: the steps at which it need not be there: from, and up to but not including.
        size: its bytes.
        longer: buffers that have to live until that place: from which step on, and their bytes.
        making: the bytes that are needed beyond its own while it is made anew.
        cost: nanoseconds.
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
        """Change what lives at each step as it would; -1 for the sign takes that back."""
        begin, end = self.gone
        live[begin:end] -= sign * self.size
        for since, nbytes in self.longer:
            live[since:end] += sign * nbytes


def rematerialize(job: Job, settings: Settings) -> Job:
    """The job with ops repeated for the backward pass, where less memory is needed for that."""
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
    """What a chain needs of its own.

    Attributes:
        task: the chain.
        filled: how many steps come before its first op.
        lifetimes: see `lifetimes_of`.
    """

    task: Task
    filled: int
    lifetimes: list[Lifetime]


def _memory_of(job: Job) -> list[_Memory]:
    """Of each chain."""
    tasks, _ = form_tasks(job)
    elsewhere = frozenset([buffer for task in tasks for buffer in task.reads])
    chains = [task for task in tasks if task.op is None]
    return [_Memory(task, len(steps_before(task, elsewhere)), lifetimes_of(job, task, elsewhere)) for task in chains]


def _least(memory: list[_Memory]) -> int:
    """The bytes that the chains need at least."""
    return sum([lower_bound(each.lifetimes) for each in memory])


def _chosen(job: Job, memory: list[_Memory], allowance: int) -> Iterator[_Choice]:
    """What is to be made anew, of all chains."""
    flow = flow_of(job)
    for each in memory:
        for choice in _Chain(flow, each).choices(allowance):
            allowance -= choice.cost
            yield choice


@attrs.define
class _Span:
    """A buffer in the chain's memory: its bytes, and the first and the last step that need it."""

    size: int
    first: int
    last: int


class _Chain:
    """Choosing among the values of one chain.

    Args:
        flow: of the job.
        memory: of the chain.
    """

    def __init__(self, flow: Flow, memory: _Memory) -> None:
        self._flow = flow
        self._job = flow.job
        self._step = {position: memory.filled + index for index, position in enumerate(memory.task.ops)}
        self._spans = {
            lifetime.id: _Span(aligned(lifetime.nbytes, ALIGNMENT), lifetime.first, lifetime.last)
            for lifetime in memory.lifetimes
        }
        # What lives at each step; and when it begins, before the op has made anything.
        self._live = np.zeros(memory.filled + len(memory.task.ops) + 1, np.int64)
        self._entering = np.zeros_like(self._live)
        for block in blocks_of(memory.lifetimes, ALIGNMENT):
            self._live[block.first : block.last + 1] += block.size
            self._entering[block.first + 1 : block.last + 1] += block.size
        found = [
            choice
            for span in sorted(self._spans)
            if self._may_be_made_anew(span) and (choice := self._choice(span)) is not None
        ]
        # Those that give back most bytes per nanosecond come first.
        self._candidates = sorted(found, key=lambda it: it.cost / it.size)
        self._forgotten: set[int] = set()
        self._needed: set[int] = set()

    def _may_be_made_anew(self, buffer: int) -> bool:
        """Whether an op of the chain that can be repeated makes it, for the backward pass among others."""
        makers, readers = self._flow.writers.get(buffer, []), self._flow.readers.get(buffer, [])
        if not makers or not readers or makers[0] not in self._step or not self._spans[buffer].size:
            return False
        maker, last = self._job.ops[makers[0]], self._job.ops[readers[-1]]
        # What else an op makes, such as the statistics of a normalisation, is not worth running it again.
        largest = max([operand.meta.nbytes for operand in maker.outputs])
        if self._job.buffers[buffer].meta.nbytes < largest:
            return False
        return last.backward and self._repeatable(maker, last)

    def choices(self, allowance: int) -> list[_Choice]:
        """What to make anew, within so many nanoseconds."""
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
        """Those without which more would live at the worst step; the dearest go first."""
        most = int(self._live.max())
        needed: list[_Choice] = []
        for choice in sorted(taken, key=lambda it: -it.cost):
            choice.shift(self._live, -1)
            if int(self._live.max()) > most:
                choice.shift(self._live)
                needed.append(choice)
        return needed

    def _best_at(self, peak: int, allowance: int) -> _Choice | None:
        """Of what need not live at this step, the best that raises no other."""
        most = int(self._live[peak])
        for choice in self._candidates:
            idle = choice.gone[0] <= peak < choice.gone[1] and choice.buffer not in self._needed
            if idle and choice.cost <= allowance and self._lowers(choice, peak, most):
                return choice
        return None

    def _lowers(self, choice: _Choice, peak: int, most: int) -> bool:
        """Whether less lives at that step with the choice, and nowhere as much as now."""
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
        """How the value could be made anew, where it lies idle longest until the backward pass reads it."""
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
        ops = [self._job.ops[it] for it in ordered]
        made = {output.buffer: aligned(output.meta.nbytes, ALIGNMENT) for op in ops for output in op.outputs}
        spans = [self._spans[it] for it in longer]
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
        """Gather the ops to be repeated for the result of this one, and what has to live longer for that."""
        op = self._job.ops[position]
        if not depth or position not in self._step or not self._repeatable(op, self._job.ops[place]):
            return False
        again.add(position)
        for buffer in dict.fromkeys(op.reads()):
            if self._flow.version(buffer, position) != self._flow.version(buffer, place):
                return False
            span = self._spans.get(buffer)
            if span is None or span.last >= self._step[place]:
                continue  # it is there in any case
            if self._job.buffers[buffer].role == "input":
                return False  # the caller may want to write it, and gets it back when it has been read
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
    """The job with the ops of the choices repeated, and what reads their values from there on reading the copies."""
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
    """The op once more, from and into buffers of the copies' own."""
    inputs = renamed(op.inputs, own)
    for operand in op.outputs:
        number = own[operand.buffer] = max(buffers) + 1
        buffers[number] = Buffer(number, buffers[operand.buffer].meta)
    return attrs.evolve(op, inputs=inputs, outputs=renamed(op.outputs, own), backward=True)
