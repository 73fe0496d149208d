"""`VirtualMachineEngine` decides when instructions may run.  It runs none itself: events in, decisions out.

It uses no thread, event loop, clock or array.  The events are instructions appended to `pending`, and calls, mostly of
`completed` and `failed`; the decisions are the instructions that `schedule` returns, to be launched now, in order.  The
driver (see `driver`) launches them and reports their ends.

The lists of instructions, named as in OneFlow:

    pending        received, not yet seen by a turn.  Threads that do not drive the machine only append to it.
    local pending  taken from pending in this turn.
    ready          every edge satisfied, not yet launched; kept per stream, by priority and program order.
    lively         seen by a turn and not yet erased, in arrival order; a fused instruction in place of its members.
    barrier        barriers that wait until they are the oldest lively instruction.
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

# By default, the most instructions that one turn of the engine takes from `pending`.
WINDOW: Final = 64

# About how many instructions of a higher priority may overtake one of a lower priority, per step of priority.
AGEING: Final = 16

# Estimated nanoseconds that launching any instruction costs, besides its own cost.
LAUNCH_COST: Final = 1_000


# Consecutive small instructions of a stream are fused into one, by default up to this many estimated nanoseconds: the
# fused one may delay later instructions, waiters and an event loop by so much.  Chains have limits of their own.
FUSE_BELOW: Final = 20_000


class Rank:
    """The ready instructions of one stream and one priority.

    The earliest in program order is launched first: later instructions often wait for it, and program order needs
    little memory at a time.

    Attributes:
        instructions: the ready instructions.
        passed_over: how many instructions of other priorities were launched while some of these waited, since the last
            launch of one of these.
    """

    __slots__ = ("instructions", "passed_over", "priority")

    def __init__(self, priority: int) -> None:
        self.priority = priority
        self.instructions = BySerial()
        self.passed_over = 0


@final
class VirtualMachineEngine:
    """Decides which instructions of a virtual machine may run next, from their accesses, streams and priorities.

    Args:
        window: the largest number of new instructions that one turn takes.
        fuse_below: the most estimated nanoseconds of instructions fused into one, but for chains; 0 to fuse nothing.
        story: the number of turns that the story remembers, for debugging.

    Raises:
        ValueError: if `window` is less than 1, or `fuse_below` or `story` is negative.
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
        # The streams that have ready instructions and are not full, in the order in which they became so.
        self.ready: dict[Stream, None] = {}
        self.lively = Lively()
        self.barriers: deque[Instruction] = deque()
        # The streams with launched instructions that are not erased, in the order in which their first was launched.
        self.active_streams: dict[Stream, None] = {}
        self.total_inserted = 0
        self.total_erased = 0
        # The bytes of the large results of all instructions ever erased, for back-pressure.
        self.erased_bytes = 0
        # The instructions erased in the last turn, whose waiters the driver wakes.
        self.erased: list[Instruction] = []
        self.story = Story(story)
        # The instructions reported by `completed` or `failed` since the last turn.
        self._finished: list[Instruction] = []
        self._barrier_due = False
        # For the story of the next turn: reported failures; new instructions that are barriers, are not preschedulable
        # or follow another stream; and fused instructions.
        self._failures: list[tuple[int, str]] = []
        self._fences: list[Fence] = []
        self._fused: list[Instruction] = []
        self._probes: list[Callable[[], bool]] = []

    # Events

    def receive(self, instruction: Instruction) -> None:
        """Append an issued instruction to `pending`, whose order is program order.  Any thread may call this."""
        self.pending.append(instruction)

    def completed(self, instruction: Instruction) -> None:
        """Note that a launched instruction has finished; a turn erases it behind the earlier ones of its stream."""
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
        """Note that a launched instruction has failed with `error`.  Its successors may run as if it had succeeded."""
        self.completed(instruction)
        self.remember_failure(instruction, error)

    def remember_failure(self, instruction: Instruction, error: BaseException) -> None:
        """Note for the story that an instruction, or a member of a fused instruction, has failed with `error`."""
        self._failures.append((instruction.serial, f"{type(error).__name__}: {error}"))

    def add_probe(self, probe: Callable[[], bool]) -> None:
        """Call `probe` at the end of every turn until it returns True."""
        self._probes.append(probe)

    # Decisions

    def schedule(self) -> list[Instruction]:
        """Take one turn: handle reports and new instructions, and return the instructions to launch now, in order.

        Their ends are to be reported by `completed` or `failed`, in any order; a stream's are erased in launch order.
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
            # The story keeps these lists, empty ones included, so that the next turn needs new lists.
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
        """Whether another turn would change anything without a further event.  Any thread may call this."""
        return bool(self._finished or self.pending) or bool(self.ready) or self._barrier_due

    def outstanding(self) -> int:
        """Return the number of instructions received and not erased; during another thread's turn perhaps too few."""
        return self.total_inserted - self.total_erased + len(self.pending)

    def idle(self) -> bool:
        """Whether all instructions received so far have been erased.  Any thread may call this."""
        return not (self.pending or self.local_pending or self.lively.count)

    def withdraw(self, instruction: Instruction, fail: Callable[[Instruction], None]) -> bool:
        """Take back a received instruction if no turn has seen it yet; returns whether that was possible.

        As in `abandon`, `fail` is called with the instruction before its state becomes ERASED.
        """
        try:
            self.pending.remove(instruction)
        except ValueError:
            return False
        if instruction.policy is not None:
            fail(instruction)
        instruction.erase()
        self.erased_bytes += instruction.nbytes
        return True

    def abandon(self, unrun: list[Instruction], fail: Callable[[Instruction], None]) -> list[Instruction]:
        """Forget every instruction that has not begun: all that are not launched, and the launched ones in `unrun`.

        `fail` is called with each, a fused one as a whole, before its state becomes ERASED.  Returns the forgotten
        instructions, members in place of fused ones.  Running instructions stay lively and end in the usual way.  A new
        instruction might not wait for a running one, if a forgotten one was to wait for that.
        """
        # The launched instructions come first, since they precede the instructions that wait for them.
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
            if instruction.policy is None:
                raise InternalError(f"{instruction!r} has run and cannot be abandoned\n{self.story}")
            fail(instruction)
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
        """Erase the finished instructions at the head of each stream, so that a stream's are erased in launch order."""
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
                    # An empty dict of readers is dropped: the garbage collector would visit one per living storage.
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
        """Launch the first barrier if all instructions issued before it are erased."""
        barrier = self.barriers[0]
        if self.lively.first is barrier:
            self.barriers.popleft()
            self._launch(barrier, launches)

    def _absorb(self) -> None:
        """Take up to `window` pending instructions, fuse some of them, and add the edges into them."""
        pending = self.pending
        taken = self.local_pending
        for _ in range(min(self.window, len(pending))):
            # The instruction is added to `local_pending` before it is removed from `pending`, since another thread may
            # call `idle` in between.
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
        """Return the index behind the instructions from `position` on that can be fused with the one before them."""
        first = taken[position - 1]
        stream = first.stream
        if stream.policy.launches_ahead:
            # Only chains are fused on such a stream: its device reports a failure, but not of which member.
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
        """Fuse no instructions and make no chains from now on."""
        self.fuse_below = 0

    def _chained_behind(self, taken: list[Instruction], position: int) -> int:
        """Return the index behind the instructions from `position` on that join the one before them in a `Chain`."""
        first = taken[position - 1]
        links = first.policy.chain(first) if first.policy is not None and self.fuse_below else None
        if links is None:
            return position
        behind = position
        while behind < len(taken) and not _waits_elsewhere(taken[behind], first.stream) and links.take(taken[behind]):
            behind += 1
        return behind

    def _fuse(self, members: tuple[Instruction, ...], policy: InstructionPolicy) -> Instruction:
        """Make one instruction that stands for all members, with their accesses; `policy` runs them."""
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
        """Give members serials of their own; the fused instruction keeps the serial of the first."""
        serial = self.total_inserted - 1
        for member in members:
            if member.state != NEW:
                raise InternalError(f"{member!r} was issued twice\n{self.story}")
            member.serial = serial
            member.state = WAITING
            serial += 1
        self.total_inserted = serial

    def _connect(self, instruction: Instruction, preschedulable: bool, follows: Stream | None) -> None:
        """Add the edges from earlier instructions to `instruction`, and enter it into its dependences.

        Writes come first, so that an instruction that reads and writes one storage finds itself as the writer.
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
        """Make `target` wait for the launch of `source` if `target` may, else for the erasure of `source`.

        `target` may if it is `preschedulable` and `source` is on the stream of `target` or on `follows`.  An edge
        already satisfied is not added.
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
        # If several operands come from one producer, its edges to `target` would be adjacent: one is enough.
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
            # Instructions of priority 0 stay in `stream.ready`, the only list of ready instructions in most programs.
            ordinary = Rank(0)
            ordinary.instructions = stream.ready
            ranked = stream.ranked = {0: ordinary}
        rank = ranked.get(priority)
        if rank is None:
            rank = ranked[priority] = Rank(priority)
        return rank.instructions

    def _dispatch(self, launches: list[Instruction]) -> None:
        """On streams that are not full, launch ready instructions, and successors that need only be behind a launch."""
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
        """Raise InternalError if the engine's lists and the instructions' states contradict each other.

        Call this between turns; it looks at all lively instructions and their accesses.
        """
        problems: list[str] = []
        edges: dict[Instruction, int] = {}
        for instruction in self.lively:
            for successor in instruction.successors():
                edges[successor] = edges.get(successor, 0) + 1
        streams = {instruction.stream for instruction in self.lively}
        ready = {waiting for stream in streams for waiting in ready_on(stream)}
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
    """Whether an instruction may have to wait for instructions of another stream than `stream`.

    Such an instruction is not fused with earlier ones, which would have to wait, too.
    """
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
    """Remove and return the stream's instruction to launch next, of several priorities.

    Being passed over `AGEING` times counts as much as one step of priority, so that no instruction starves.
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


def ready_on(stream: Stream) -> list[Instruction]:
    """Return the ready instructions of a stream, of all priorities."""
    if stream.ranked is None:
        return list(stream.ready)
    # A copy, since a snapshot may look while another thread runs turns.
    ranks: Iterable[Rank] = list(stream.ranked.values())
    return [instruction for rank in ranks for instruction in rank.instructions]
