"""`VirtualMachineEngine` decides when each instruction may run.  It is pure: events in, decisions out.

No thread, no event loop, no clock, no array.  The events are `receive`, `completed`, `failed` and `add_probe`; the
decisions are what `schedule` returns, the instructions to launch now, in order.  Whoever drives it (see
`virtual_machine`) launches them and reports how they ended.

The lists, by the field's names:

    pending        received, not yet seen.  The only one that other threads touch, by appending.
    local pending  the window taken from pending in this turn, before edges are drawn.
    ready          every edge satisfied, not yet handed to its stream.
    lively         everything seen and not yet erased, in arrival order.
    barrier        barriers waiting for their turn.

Cost is constant per access and per edge: no list is ever searched.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
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
)
from vmflow.instructions.policy import InstructionPolicy
from vmflow.streams import Stream

from .story import Story

# How many instructions one turn takes from pending.  Larger turns spread the turn's own cost over more instructions;
# smaller ones let the driver look at the clock, and at what others issued, more often.
WINDOW: Final = 64


@final
class VirtualMachineEngine:
    """Every fact about what may run next.

    Args:
        window: the largest number of instructions absorbed in one turn.
        story: how many turns the story remembers.
    """

    def __init__(self, window: int = WINDOW, story: int = 32) -> None:
        if window < 1:
            raise ValueError(f"window must be at least 1, not {window}")
        self.window = window
        self.pending: deque[Instruction] = deque()
        self.local_pending: list[Instruction] = []
        self.ready: deque[Instruction] = deque()
        self.lively: OrderedDict[Instruction, None] = OrderedDict()
        self.barriers: deque[Instruction] = deque()
        # Streams with something running, in the order they became so.
        self.active_streams: dict[Stream, None] = {}
        self.total_inserted = 0
        self.total_erased = 0
        # Erased in the last turn; the driver wakes whoever waits for them.
        self.erased: list[Instruction] = []
        self.story = Story(story)
        self._reported = False
        self._barrier_due = False
        # For the story: failures reported, and instructions absorbed with other than the usual order.
        self._failures: list[tuple[int, str]] = []
        self._fences: list[tuple[int, bool]] = []
        self._probes: list[Callable[[], bool]] = []

    # Events

    def receive(self, instruction: Instruction) -> None:
        """A producer issued an instruction.  May be called from any thread; order of calls is program order."""
        self.pending.append(instruction)

    def completed(self, instruction: Instruction) -> None:
        """A launched instruction has finished."""
        if instruction.state != LAUNCHED:
            raise InternalError(f"{instruction!r} was reported finished but is not running\n{self.story}")
        instruction.state = DONE
        instruction.policy = None
        self._reported = True

    def failed(self, instruction: Instruction, error: BaseException) -> None:
        """A launched instruction has finished by raising.  It unlocks its successors like any other."""
        self.completed(instruction)
        self._failures.append((instruction.serial, f"{type(error).__name__}: {error}"))

    def add_probe(self, probe: Callable[[], bool]) -> None:
        """Call `probe` at the end of every turn until it returns True."""
        self._probes.append(probe)

    # Decisions

    def schedule(self) -> list[Instruction]:
        """One turn: what is to be launched now, in order.

        Each of them must be reported by `completed` or `failed`, in any order; a turn makes of it what the in-order
        streams allow.
        """
        launches: list[Instruction] = []
        erased: list[Instruction] = []
        self.erased = erased
        if self._reported:
            self._reported = False
            self._release_finished(erased)
        if self.barriers:
            self._try_barrier(launches)
        if self.pending:
            self._absorb()
        if self.ready:
            self._dispatch(launches)
        if erased or launches or self.local_pending:
            self.story.remember(erased, self.local_pending, launches, self._failures, self._fences)
            # The story keeps these lists, also the empty ones: filling them later would rewrite what it tells.
            self.local_pending = []
            self._failures = []
            self._fences = []
        if self._probes:
            self._probes = [probe for probe in self._probes if not probe()]
        self._barrier_due = bool(self.barriers) and self.barriers[0] is next(iter(self.lively))
        return launches

    def has_work(self) -> bool:
        """Whether another turn would change anything, with no further event.  May be asked from any thread."""
        return self._reported or bool(self.pending) or bool(self.ready) or self._barrier_due

    def idle(self) -> bool:
        """Whether nothing is known that has not been erased.  May be asked from any thread."""
        return not (self.pending or self.local_pending or self.lively)

    def abandon(self, unrun: list[Instruction], fail: Callable[[InstructionPolicy], None]) -> list[Instruction]:
        """Forget everything that has not begun: what is not launched, and of the launched those the driver names.

        Each one's policy is handed to `fail` before its state says that it has ended, since other threads go by that.
        Returns them.  What is really running stays lively and ends in the usual way.  For the end of an engine's life:
        the accesses of what is forgotten have displaced those of what is running, which a newcomer would therefore not
        wait for.
        """
        # What was launched came before whatever waits for it.
        doomed = unrun + [it for it in self.lively if it.state < LAUNCHED] + list(self.pending)
        self.pending.clear()
        self.ready.clear()
        self.barriers.clear()
        for instruction in unrun:
            instruction.stream.running.remove(instruction)
        for instruction in doomed:
            policy = instruction.policy
            if policy is None:
                raise InternalError(f"{instruction!r} has run and cannot be abandoned\n{self.story}")
            fail(policy)
            instruction.policy = None
            instruction.on_launch = instruction.on_finish = None
            instruction.waits = 0
            if instruction.state == NEW:
                instruction.state = ERASED
            else:
                self._erase(instruction)
        for instruction in self.lively:
            instruction.on_launch = instruction.on_finish = None
        for stream in [stream for stream in self.active_streams if not stream.running]:
            del self.active_streams[stream]
        seen = [instruction for instruction in doomed if instruction.serial >= 0]
        if seen:
            self.story.remember_abandoned(seen)
        return doomed

    # The steps of a turn

    def _release_finished(self, erased: list[Instruction]) -> None:
        """Erase what has finished, from the head of each stream only: completion is in order per stream."""
        emptied: list[Stream] = []
        for stream in self.active_streams:
            running = stream.running
            while running and running[0].state == DONE:
                instruction: Instruction = running.popleft()
                self._erase(instruction)
                erased.append(instruction)
            if not running:
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
            if readers is not None:
                readers.pop(instruction, None)
        successors = instruction.on_finish
        if successors is not None:
            instruction.on_finish = None
            for successor in successors:
                self._satisfy(successor)
        del self.lively[instruction]
        self.total_erased += 1

    def _try_barrier(self, launches: list[Instruction]) -> None:
        """Launch the first barrier if it is the oldest lively instruction."""
        barrier = self.barriers[0]
        if next(iter(self.lively)) is barrier:
            self.barriers.popleft()
            self._launch(barrier, launches)

    def _absorb(self) -> None:
        """Take a window of pending instructions and draw their edges."""
        pending = self.pending
        taken = self.local_pending
        for _ in range(min(self.window, len(pending))):
            # First in the one, then out of the other: `idle` may be asked from another thread in between.
            taken.append(pending[0])
            pending.popleft()
        for instruction in taken:
            policy = instruction.policy
            if policy is None or instruction.state != NEW:
                raise InternalError(f"{instruction!r} was issued twice\n{self.story}")
            instruction.serial = self.total_inserted
            self.total_inserted += 1
            instruction.state = WAITING
            self.lively[instruction] = None
            preschedulable = policy.preschedulable
            if policy.barrier:
                self._fences.append((instruction.serial, True))
                self.barriers.append(instruction)
                continue
            if not preschedulable:
                self._fences.append((instruction.serial, False))
            self._connect(instruction, preschedulable)
            if instruction.waits == 0:
                instruction.state = READY
                self.ready.append(instruction)

    def _connect(self, instruction: Instruction, preschedulable: bool) -> None:
        """Draw the edges into `instruction` and enter it into its dependences.

        Writes come first, so that an instruction that reads and writes one storage meets itself, not its predecessor.
        """
        stream = instruction.stream
        if stream.policy.sequential:
            if stream.order is None:
                stream.order = Dependence()
            instruction.writes = (stream.order, *instruction.writes)
        for dependence in instruction.writes:
            writer = dependence.writer
            if writer is not None:
                self._edge(writer, instruction, preschedulable)
            readers = dependence.readers
            if readers is not None:
                for reader in readers:
                    self._edge(reader, instruction, preschedulable)
                # Also if there is none: the table keeps the room of all that it ever held at once.
                readers.clear()
            dependence.writer = instruction
        for dependence in instruction.reads:
            writer = dependence.writer
            if writer is instruction:
                continue
            if writer is not None:
                self._edge(writer, instruction, preschedulable)
            readers = dependence.readers
            if readers is None:
                dependence.readers = {instruction: None}
            else:
                readers[instruction] = None

    def _edge(self, source: Instruction, target: Instruction, preschedulable: bool) -> None:
        """Make `target` wait for `source`: for its launch on the same stream, else for its end.

        An edge already satisfied is not drawn.  That the older access is dropped from its dependence all the same is
        sound only because completion is in order per stream: whoever waits for `target` waits for `source` too.
        """
        if source is target:
            return
        if preschedulable and source.stream is target.stream:
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
        # Several operands often share one producer; its edges would follow each other directly.
        if successors and successors[-1] is target:
            return
        successors.append(target)
        target.waits += 1

    def _satisfy(self, instruction: Instruction) -> None:
        instruction.waits -= 1
        if instruction.waits == 0:
            instruction.state = READY
            self.ready.append(instruction)

    def _dispatch(self, launches: list[Instruction]) -> None:
        """Hand everything ready to its stream, and prescheduled successors right behind."""
        ready = self.ready
        while ready:
            instruction = ready.popleft()
            self._launch(instruction, launches)
            successors = instruction.on_launch
            if successors is not None:
                instruction.on_launch = None
                for successor in successors:
                    self._satisfy(successor)

    def _launch(self, instruction: Instruction, launches: list[Instruction]) -> None:
        instruction.state = LAUNCHED
        running = instruction.stream.running
        if not running:
            self.active_streams[instruction.stream] = None
        running.append(instruction)
        launches.append(instruction)

    # Looking inside

    def check_invariants(self) -> None:
        """Raise InternalError if the lists contradict each other.

        Meant for between turns; takes time proportional to what is lively.
        """
        problems: list[str] = []
        edges: dict[Instruction, int] = {}
        for instruction in self.lively:
            for successor in (instruction.on_launch or []) + (instruction.on_finish or []):
                edges[successor] = edges.get(successor, 0) + 1
        ready = set(self.ready)
        running = {it for stream in self.active_streams for it in stream.running}
        barriers = set(self.barriers)
        if self.total_inserted - self.total_erased != len(self.lively):
            problems.append(
                f"{self.total_inserted} inserted - {self.total_erased} erased is not {len(self.lively)} lively"
            )
        serials = [instruction.serial for instruction in self.lively]
        if serials != sorted(serials):
            problems.append("lively is not in arrival order")
        for instruction in self.lively:
            problems += self._contradictions(instruction, edges.get(instruction, 0), ready, running, barriers)
        strangers = (ready | running | barriers | edges.keys()) - self.lively.keys()
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
        for dependence in instruction.writes + instruction.reads:
            for access in (dependence.writer, *(dependence.readers or ())):
                if access is not None and access.state == ERASED:
                    problems.append(f"{access!r} is remembered by a dependence of {instruction!r} after its end")
        return problems
