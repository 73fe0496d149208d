"""`VirtualMachineEngine` decides when each instruction may run.  It has no side effects: events in, decisions out.

No thread, no event loop, no clock, no array.  The events are `receive`, `completed`, `failed` and `add_probe`; the
decisions are the instructions that `schedule` returns, to be launched now, in order.  The driver (see `driver`)
launches them and reports their ends.

The lists, by the field's names:

    pending        received, not yet seen.  The only one that other threads touch, by appending.
    local pending  the window taken from pending in this turn, before edges are drawn.
    ready          every edge satisfied, not yet handed to its stream; kept per stream, by priority and program order.
    lively         everything seen and not yet erased, in arrival order.
    barrier        barriers waiting for their turn.

Cost is constant per access and per edge: no list is ever searched.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Final, final

from vmflow.errors import InternalError
from vmflow.instructions.instruction import (
    DONE,
    ERASED,
    LAUNCHED,
    NEW,
    READY,
    WAITING,
    Dependence,
    Instruction,
    members_of,
)
from vmflow.instructions.policy import InstructionPolicy
from vmflow.instructions.scope import priority_of
from vmflow.streams.queues import BySerial
from vmflow.streams.stream import Stream

from .lively import Lively
from .story import Fence, Story

# The most instructions that one turn takes from pending.  Larger turns spread the turn's own cost over more
# instructions; smaller ones let the driver check the clock, and new instructions of other threads, more often.
WINDOW: Final = 64

# So many instructions of a higher priority may overtake one of a lower priority, for each step between the two.
AGEING: Final = 16

# Nanoseconds that launching any instruction costs.
LAUNCH_COST: Final = 1_000


# Consecutive small instructions of a stream are scheduled as one, up to this many nanoseconds of work, by which later
# instructions, waiters and an event loop may be delayed.
FUSE_BELOW: Final = 20_000


class Rank:
    """The ready instructions of one stream and one priority.

    The earliest in program order goes first: the rest often waits for it, and then no more memory is needed at a time
    than a sequential program needs.

    Attributes:
        instructions: the ready ones.
        passed_over: how often an instruction of another priority was launched while these were waiting.
    """

    __slots__ = ("instructions", "passed_over", "priority")

    def __init__(self, priority: int) -> None:
        self.priority = priority
        self.instructions = BySerial()
        self.passed_over = 0


@final
class VirtualMachineEngine:
    """Decides which instructions may run next, and holds every fact that this depends on.

    Args:
        window: the largest number of instructions absorbed in one turn.
        fuse_below: nanoseconds of estimated work that are fused at most; 0 to fuse nothing, and to make no chains.
        story: how many turns the story remembers.
    """

    def __init__(self, window: int = WINDOW, story: int = 32, fuse_below: int = FUSE_BELOW) -> None:
        if window < 1:
            raise ValueError(f"window must be at least 1, not {window}")
        if fuse_below < 0:
            raise ValueError(f"fuse_below must be nanoseconds, 0 to fuse nothing, not {fuse_below}")
        self.window = window
        self.fuse_below = fuse_below
        self.pending: deque[Instruction] = deque()
        self.local_pending: list[Instruction] = []
        # Streams with ready instructions that are not full, in the order in which they became so.
        self.ready: dict[Stream, None] = {}
        self.lively = Lively()
        self.barriers: deque[Instruction] = deque()
        # Streams with running instructions, in the order in which they became so.
        self.active_streams: dict[Stream, None] = {}
        self.total_inserted = 0
        self.total_erased = 0
        # Bytes of the large results of all instructions ever erased.
        self.erased_bytes = 0
        # Erased in the last turn; the driver wakes their waiters.
        self.erased: list[Instruction] = []
        self.story = Story(story)
        # Reported, and not yet handled by a turn.
        self._finished: list[Instruction] = []
        self._barrier_due = False
        # For the story: failures reported, and instructions absorbed with other than the usual order.
        self._failures: list[tuple[int, str]] = []
        self._fences: list[Fence] = []
        self._fused: list[Instruction] = []
        self._probes: list[Callable[[], bool]] = []

    # Events

    def receive(self, instruction: Instruction) -> None:
        """Take an instruction that was issued.  May be called from any thread; the order of calls is program order."""
        self.pending.append(instruction)

    def completed(self, instruction: Instruction) -> None:
        """A launched instruction has finished."""
        if instruction.state != LAUNCHED:
            raise InternalError(f"{instruction!r} was reported finished but is not running\n{self.story}")
        instruction.state = DONE
        instruction.policy = None
        if instruction.members is not None:
            for member in instruction.members:
                member.state = DONE
                member.policy = None
        self._finished.append(instruction)
        stream = instruction.stream
        stream.outstanding -= instruction.cost + LAUNCH_COST
        if stream.full and stream.outstanding < stream.policy.depth:
            stream.full = False
            self.ready[stream] = None

    def failed(self, instruction: Instruction, error: BaseException) -> None:
        """Note that a launched instruction has ended by raising.  Its successors run as those of any other."""
        self.completed(instruction)
        self.remember_failure(instruction, error)

    def remember_failure(self, instruction: Instruction, error: BaseException) -> None:
        """Note in the story that an instruction has raised; it may be a member of one that is about to be reported."""
        self._failures.append((instruction.serial, f"{type(error).__name__}: {error}"))

    def add_probe(self, probe: Callable[[], bool]) -> None:
        """Call `probe` at the end of every turn until it returns True."""
        self._probes.append(probe)

    # Decisions

    def schedule(self) -> list[Instruction]:
        """Take a turn: return the instructions to launch now, in order.

        Each of them must be reported by `completed` or `failed`, in any order; a stream's are erased in order.
        """
        launches: list[Instruction] = []
        erased: list[Instruction] = []
        self.erased = erased
        finished = self._finished
        if finished:
            self._release_finished(erased)
        if self.barriers:
            self._try_barrier(launches)
        if self.pending:
            self._absorb()
        if self.ready:
            self._dispatch(launches)
        if finished or launches or self.local_pending:
            self.story.remember(
                finished, erased, self.local_pending, launches, self._failures, self._fences, self._fused
            )
            # The story keeps these lists, also the empty ones, so that new ones are needed.
            self.local_pending = []
            self._finished = []
            self._failures = []
            self._fences = []
            self._fused = []
        if self._probes:
            self._probes = [probe for probe in self._probes if not probe()]
        self._barrier_due = bool(self.barriers) and self.barriers[0] is self.lively.first
        return launches

    def has_work(self) -> bool:
        """Whether another turn would change anything, with no further event.  May be asked from any thread."""
        return bool(self._finished or self.pending) or bool(self.ready) or self._barrier_due

    def outstanding(self) -> int:
        """The number of instructions received and not erased.  May be asked from any thread."""
        return self.total_inserted - self.total_erased + len(self.pending)

    def idle(self) -> bool:
        """Whether all known instructions have been erased.  May be asked from any thread."""
        return not (self.pending or self.local_pending or self.lively.count)

    def withdraw(self, instruction: Instruction, fail: Callable[[InstructionPolicy], None]) -> bool:
        """Take back an instruction that no turn has seen yet; returns whether that was possible.

        As in `abandon`, `fail` is called with its policy before its state says that it has ended.
        """
        try:
            self.pending.remove(instruction)
        except ValueError:
            return False
        if instruction.policy is not None:
            fail(instruction.policy)
        instruction.erase()
        self.erased_bytes += instruction.nbytes
        return True

    def abandon(self, unrun: list[Instruction], fail: Callable[[InstructionPolicy], None]) -> list[Instruction]:
        """Forget every instruction that has not begun: all that are not launched, and the launched ones in `unrun`.

        `fail` is called with the policy of each before its state says that it has ended, since other threads read the
        state.  Returns these instructions.  Instructions that are running stay lively and end in the usual way.  Only
        for the end of an engine's life: a new instruction would not wait for the running ones, because the accesses of
        the forgotten ones have displaced theirs.
        """
        # In this order, since launched instructions precede those that wait for them.
        unbegun = (
            unrun + [instruction for instruction in self.lively if instruction.state < LAUNCHED] + list(self.pending)
        )
        self.pending.clear()
        self.barriers.clear()
        for instruction in unrun:
            instruction.stream.running.remove(instruction)
            instruction.stream.outstanding -= instruction.cost + LAUNCH_COST
        self.ready.clear()
        for stream in {instruction.stream for instruction in unbegun}:
            stream.ready.clear()
            stream.ranked = None
            stream.full = False
        for instruction in unbegun:
            policy = instruction.policy
            if policy is None:
                raise InternalError(f"{instruction!r} has run and cannot be abandoned\n{self.story}")
            fail(policy)
            instruction.policy = None
            instruction.on_launch = instruction.on_finish = None
            instruction.waits = 0
            for member in instruction.members or ():
                member.policy = None
            if instruction.state == NEW:
                instruction.state = ERASED
                self.erased_bytes += instruction.nbytes
            else:
                self._erase(instruction)
        for instruction in self.lively:
            instruction.on_launch = instruction.on_finish = None
        for stream in [stream for stream in self.active_streams if stream.running.first is None]:
            del self.active_streams[stream]
        abandoned = members_of(unbegun)
        seen = [instruction for instruction in abandoned if instruction.serial >= 0]
        if seen:
            self.story.remember_abandoned(seen)
        return abandoned

    # The steps of a turn

    def _release_finished(self, erased: list[Instruction]) -> None:
        """Erase finished instructions, from the head of each stream only: completion is in order per stream."""
        emptied: list[Stream] = []
        for stream in self.active_streams:
            running = stream.running
            while running.first is not None and running.first.state == DONE:
                instruction = running.popleft()
                self._erase(instruction)
                if instruction.members is None:
                    erased.append(instruction)
                else:
                    erased.extend(instruction.members)
            if running.first is None:
                emptied.append(stream)
        for stream in emptied:
            del self.active_streams[stream]

    def _erase(self, instruction: Instruction) -> None:
        instruction.state = ERASED
        for dependence in instruction.writes:
            if dependence.writer is instruction:
                dependence.writer = None
        for dependence in instruction.reads:
            readers = dependence.readers
            if readers is not None and instruction in readers:
                del readers[instruction]
                if not readers:
                    # Else the garbage collector would visit a table for each living storage.
                    dependence.readers = None
        successors = instruction.on_finish
        if successors is not None:
            instruction.on_finish = None
            for successor in successors:
                self._satisfy(successor)
        self.lively.remove(instruction)
        if instruction.members is None:
            self.total_erased += 1
        else:
            for member in instruction.members:
                member.state = ERASED
            self.total_erased += len(instruction.members)
        self.erased_bytes += instruction.nbytes

    def _try_barrier(self, launches: list[Instruction]) -> None:
        """Launch the first barrier if it is the oldest lively instruction."""
        barrier = self.barriers[0]
        if self.lively.first is barrier:
            self.barriers.popleft()
            self._launch(barrier, launches)

    def _absorb(self) -> None:
        """Take a window of pending instructions, fuse, and draw their edges."""
        pending = self.pending
        taken = self.local_pending
        for _ in range(min(self.window, len(pending))):
            # Added before it is removed, since another thread may call `idle` in between.
            taken.append(pending[0])
            pending.popleft()
        end = len(taken)
        position = 0
        while position < end:
            instruction = taken[position]
            policy = instruction.policy
            if policy is None or instruction.state != NEW:
                raise InternalError(f"{instruction!r} was issued twice\n{self.story}")
            position += 1
            if policy.fusable and position < end:
                chained = policy.prepares
                behind = self._chained_behind(taken, position) if chained else self._fusable_behind(taken, position)
                if behind > position:
                    members = tuple(taken[position - 1 : behind])
                    policy = policy.fused(members, taken[behind:])
                    instruction = self._fuse(members, policy)
                    position = behind
            instruction.serial = self.total_inserted
            self.total_inserted += 1
            instruction.state = WAITING
            self.lively.add(instruction)
            if instruction.members is not None:
                self._number(instruction.members)
            preschedulable = policy.preschedulable
            if policy.barrier:
                self._fences.append((instruction.serial, True, None))
                self.barriers.append(instruction)
                continue
            follows = policy.follows
            if not preschedulable or follows is not None:
                self._fences.append((instruction.serial, False, follows))
            self._connect(instruction, preschedulable, follows)
            if instruction.waits == 0:
                self._make_ready(instruction)

    def _fusable_behind(self, taken: list[Instruction], position: int) -> int:
        """Return the end of the instructions, from `position` on, that can be fused with the one before `position`."""
        first = taken[position - 1]
        stream = first.stream
        if stream.policy.launches_ahead:
            # The device reports that a launch has failed, not which of several instructions.
            return position
        mode = first.mode
        budget = self.fuse_below - first.cost
        for behind in range(position, len(taken)):
            instruction = taken[behind]
            policy = instruction.policy
            budget -= instruction.cost + LAUNCH_COST
            if (
                budget < 0
                or instruction.stream is not stream
                or policy is None
                or not policy.fusable
                or policy.prepares
                or (instruction.mode is not mode and priority_of(instruction) != priority_of(first))
                or _waits_elsewhere(instruction, stream)
            ):
                return behind
        return len(taken)

    def fuse_nothing(self) -> None:
        """Schedule every instruction by itself from now on."""
        self.fuse_below = 0

    def _chained_behind(self, taken: list[Instruction], position: int) -> int:
        """Return the end of the instructions, from `position` on, that make a chain with the one before `position`."""
        first = taken[position - 1]
        links = first.policy.chain(first) if first.policy is not None and self.fuse_below else None
        if links is None:
            return position
        behind = position
        while behind < len(taken) and not _waits_elsewhere(taken[behind], first.stream) and links.take(taken[behind]):
            behind += 1
        return behind

    def _fuse(self, members: tuple[Instruction, ...], policy: InstructionPolicy) -> Instruction:
        """One instruction that stands for all members; `policy` runs them."""
        first = members[0]
        reads: list[Dependence] = []
        writes: list[Dependence] = []
        cost = -LAUNCH_COST
        nbytes = 0
        for member in members:
            reads += member.reads
            writes += member.writes
            cost += member.cost + LAUNCH_COST
            nbytes += member.nbytes
        fused = Instruction(
            first.stream, policy, tuple(reads), tuple(writes), cost, first.code, first.last, first.mode, nbytes
        )
        fused.members = members
        self._fused.append(fused)
        return fused

    def _number(self, members: tuple[Instruction, ...]) -> None:
        """Give members serials of their own; the instruction that stands for them has that of the first."""
        serial = self.total_inserted - 1
        for member in members:
            if member.state != NEW:
                raise InternalError(f"{member!r} was issued twice\n{self.story}")
            member.serial = serial
            member.state = WAITING
            serial += 1
        self.total_inserted = serial

    def _connect(self, instruction: Instruction, preschedulable: bool, follows: Stream | None) -> None:
        """Draw the edges into `instruction` and enter it into its dependences.

        Writes come first, so that an instruction that reads and writes one storage finds itself as its writer.
        """
        stream = instruction.stream
        if stream.policy.sequential:
            if stream.order is None:
                stream.order = Dependence()
            instruction.writes = (stream.order, *instruction.writes)
        for dependence in instruction.writes:
            writer = dependence.writer
            if writer is not None:
                self._edge(writer, instruction, preschedulable, follows)
            readers = dependence.readers
            if readers is not None:
                for reader in readers:
                    self._edge(reader, instruction, preschedulable, follows)
                dependence.readers = None
            dependence.writer = instruction
        for dependence in instruction.reads:
            writer = dependence.writer
            if writer is instruction:
                continue
            if writer is not None:
                self._edge(writer, instruction, preschedulable, follows)
            readers = dependence.readers
            if readers is None:
                dependence.readers = {instruction: None}
            else:
                readers[instruction] = None

    def _edge(self, source: Instruction, target: Instruction, preschedulable: bool, follows: Stream | None) -> None:
        """Make `target` wait for `source`: for its launch on its own stream or the one it follows, else for its end.

        An edge already satisfied is not drawn.  The dependence forgets the older access nevertheless, which is sound
        only because completion is in order per stream: waiting for `target` includes waiting for `source`.
        """
        if source is target:
            return
        if preschedulable and (source.stream is target.stream or source.stream is follows):
            if source.state >= LAUNCHED:
                return
            successors = source.on_launch
            if successors is None:
                successors = source.on_launch = []
        else:
            if source.state == ERASED:
                return
            successors = source.on_finish
            if successors is None:
                successors = source.on_finish = []
        # Several operands often share one producer, whose edges would be adjacent.
        if successors and successors[-1] is target:
            return
        successors.append(target)
        target.waits += 1

    def _satisfy(self, instruction: Instruction) -> None:
        instruction.waits -= 1
        if instruction.waits == 0:
            self._make_ready(instruction)

    def _make_ready(self, instruction: Instruction) -> None:
        instruction.state = READY
        stream = instruction.stream
        mode = instruction.mode
        if mode is not None and mode.scope is not None and mode.scope.priority:
            self._rank(stream, mode.scope.priority).push(instruction)
        else:
            stream.ready.push(instruction)
        if not stream.full:
            self.ready[stream] = None

    def _rank(self, stream: Stream, priority: int) -> BySerial:
        ranked: dict[int, Rank] | None = stream.ranked
        if ranked is None:
            # Instructions without a priority have rank 0 and stay in `stream.ready`, the only list in most programs.
            ordinary = Rank(0)
            ordinary.instructions = stream.ready
            ranked = stream.ranked = {0: ordinary}
        rank = ranked.get(priority)
        if rank is None:
            rank = ranked[priority] = Rank(priority)
        return rank.instructions

    def _dispatch(self, launches: list[Instruction]) -> None:
        """Launch ready instructions until their streams are full, and prescheduled successors right after them."""
        streams = self.ready
        while streams:
            stream = next(iter(streams))
            del streams[stream]
            depth = stream.policy.depth
            ready = stream.ready
            while not ready.is_empty() or stream.ranked is not None:
                if stream.outstanding >= depth:
                    stream.full = True
                    streams.pop(stream, None)
                    break
                instruction = ready.pop() if stream.ranked is None else _most_urgent(stream)
                self._launch(instruction, launches)
                successors = instruction.on_launch
                if successors is not None:
                    instruction.on_launch = None
                    for successor in successors:
                        self._satisfy(successor)

    def _launch(self, instruction: Instruction, launches: list[Instruction]) -> None:
        instruction.state = LAUNCHED
        stream = instruction.stream
        stream.outstanding += instruction.cost + LAUNCH_COST
        running = stream.running
        if running.first is None:
            self.active_streams[stream] = None
        running.append(instruction)
        launches.append(instruction)
        if instruction.members is not None:
            for member in instruction.members:
                member.state = LAUNCHED

    # Looking inside

    def check_invariants(self) -> None:
        """Raise InternalError if the lists contradict each other.

        Call it between turns; it takes time proportional to the number of lively instructions.
        """
        problems: list[str] = []
        edges: dict[Instruction, int] = {}
        for instruction in self.lively:
            for successor in instruction.successors():
                edges[successor] = edges.get(successor, 0) + 1
        ready = {waiting for instruction in self.lively for waiting in _ready_on(instruction.stream)}
        running = {instruction for stream in self.active_streams for instruction in stream.running}
        barriers = set(self.barriers)
        lively = len(members_of(self.lively))
        if self.total_inserted - self.total_erased != lively:
            problems.append(f"{self.total_inserted} inserted - {self.total_erased} erased is not {lively} lively")
        serials = [instruction.serial for instruction in self.lively]
        if serials != sorted(serials):
            problems.append("lively is not in arrival order")
        for instruction in self.lively:
            problems += self._contradictions(instruction, edges.get(instruction, 0), ready, running, barriers)
        strangers = (ready | running | barriers | edges.keys()) - set(self.lively)
        problems += [f"{instruction!r} is in a list but not lively" for instruction in strangers]
        if problems:
            raise InternalError("the engine contradicts itself: " + "; ".join(problems) + f"\n{self.story}")

    def _contradictions(
        self,
        instruction: Instruction,
        edges: int,
        ready: set[Instruction],
        running: set[Instruction],
        barriers: set[Instruction],
    ) -> list[str]:
        problems: list[str] = []
        state = instruction.state
        if instruction.waits != edges:
            problems.append(f"{instruction!r} waits for {instruction.waits} edges and has {edges}")
        if (instruction in ready) != (state == READY):
            problems.append(f"{instruction!r} and the ready list disagree")
        if (instruction in running) != (state in (LAUNCHED, DONE)):
            problems.append(f"{instruction!r} and its stream disagree")
        if state == WAITING and instruction.waits == 0 and instruction not in barriers:
            problems.append(f"{instruction!r} waits for nothing and is not ready")
        if state >= READY and instruction.waits:
            problems.append(f"{instruction!r} went ahead of its predecessors")
        for member in instruction.members or ():
            if member.state != (WAITING if state == READY else state):
                problems.append(f"{member!r} and {instruction!r}, which stands for it, disagree")
        for dependence in instruction.writes + instruction.reads:
            for access in (dependence.writer, *(dependence.readers or ())):
                if access is not None and access.state == ERASED:
                    problems.append(f"{access!r} is remembered by a dependence of {instruction!r} after its end")
        return problems


def _waits_elsewhere(instruction: Instruction, stream: Stream) -> bool:
    """Whether an instruction may have to wait for another stream: fused, the instructions before it would wait, too."""
    for dependence in instruction.reads:
        writer = dependence.writer
        if writer is not None and writer.stream is not stream:
            return True
    for dependence in instruction.writes:
        writer = dependence.writer
        if writer is not None and writer.stream is not stream:
            return True
        if dependence.readers:
            for reader in dependence.readers:
                if reader.stream is not stream:
                    return True
    return False


def _most_urgent(stream: Stream) -> Instruction:
    """Take out the instruction to launch next, where there are several priorities.

    Being passed over `AGEING` times counts as much as one step of priority, so that nothing starves.
    """
    ranked: dict[int, Rank] = stream.ranked
    waiting = [rank for rank in ranked.values() if not rank.instructions.is_empty()]
    chosen = waiting[0]
    for rank in waiting:
        rank.passed_over += 1
        if _urgency(rank) > _urgency(chosen):
            chosen = rank
    chosen.passed_over = 0
    instruction = chosen.instructions.pop()
    if chosen.instructions.is_empty() and chosen.priority != 0:
        del ranked[chosen.priority]
        if len(ranked) == 1:
            stream.ranked = None
    return instruction


def _urgency(rank: Rank) -> int:
    return rank.priority * AGEING + rank.passed_over


def _ready_on(stream: Stream) -> list[Instruction]:
    """The ready instructions of a stream, of all priorities."""
    if stream.ranked is None:
        return list(stream.ready)
    ranks: Iterable[Rank] = stream.ranked.values()
    return [instruction for rank in ranks for instruction in rank.instructions]
