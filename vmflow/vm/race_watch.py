"""`RaceWatch`: tells a race detector about launches, ends, events and waits on a machine's streams."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from vmflow.forking import lock_held_while_forking
from vmflow.instructions import origin
from vmflow.instructions.instruction import Dependence, Instruction
from vmflow.streams import Allocation, BinAllocator, StreamPolicy
from vmflow.streams.races import Clock, RaceDetector, Ticket
from vmflow.streams.stream import Event, Verdict


class RaceWatch:
    """Connects a virtual machine with a race detector: reports its instructions, events and allocations."""

    def __init__(self) -> None:
        self.detector = RaceDetector()
        self._tickets: dict[Instruction, Ticket] = {}
        self._freed: list[tuple[int, int, int, Dependence]] = []
        # A lock, since a thread may read a tensor while another one launches instructions.
        self._lock = lock_held_while_forking()

    def callbacks(self) -> tuple[Callable[[Allocation], None], Callable[[Allocation], None]]:
        """Return the callbacks for allocators: one for handing out memory, and one for freeing it."""
        return self._handed_out, self._was_freed

    def watched(self, policy: StreamPolicy) -> StreamPolicy:
        """Wrap a stream's policy, so that it reports its events and waits to the race detector."""
        return WatchedStreamPolicy(policy, self)

    def launched(self, instruction: Instruction) -> None:
        """Tell the detector that an instruction is about to be launched, after its preparation.

        Raises:
            RaceDetected: if nothing orders one of the instruction's accesses behind an earlier one that conflicts, or
                if it accesses memory that was freed.
        """
        policy = instruction.policy
        touches = policy is not None and policy.touches_memory
        with self._lock:
            self._tickets[instruction] = self.detector.launched(
                instruction.stream.policy,
                instruction.reads if touches else (),
                instruction.writes if touches else (),
                _InstructionInfo(instruction),
            )
            self._tell_freed()

    def finished(self, instruction: Instruction) -> None:
        """Tell the detector that the machine knows of an instruction's end."""
        with self._lock:
            ticket = self._tickets.pop(instruction, None)
            if ticket is not None:
                self.detector.finished(ticket)

    def host_reads(self, dependence: Dependence) -> None:
        """Check a read of a storage's memory by the program itself, outside of all instructions.

        Raises:
            RaceDetected: if a write to the memory is not known to have ended, or the memory was freed.
        """
        with self._lock:
            self.detector.host_access(dependence, False, "a read by the program")

    def quiet(self) -> None:
        """Forget all accesses, since all instructions have ended."""
        with self._lock:
            self._tickets.clear()
            self._freed.clear()
            self.detector.quiet()

    def recorded(self, stream: WatchedStreamPolicy) -> Clock:
        """Return the detector's vector clock for an event that is recorded on `stream` now."""
        with self._lock:
            return self.detector.recorded(stream)

    def waits(self, stream: WatchedStreamPolicy, clock: Clock) -> None:
        """Tell the detector that later work of `stream` is ordered after the event whose vector clock is `clock`."""
        with self._lock:
            self.detector.waits(stream, clock)

    def _handed_out(self, allocation: Allocation) -> None:
        with self._lock:
            self._tell_freed()
            self.detector.handed_out(*_range(allocation))

    def _was_freed(self, allocation: Allocation) -> None:
        with self._lock:
            self._freed.append(_range(allocation))

    def _tell_freed(self) -> None:
        for block, start, stop, dependence in self._freed:
            self.detector.freed(block, start, stop, dependence)
        self._freed.clear()


def _range(allocation: Allocation) -> tuple[int, int, int, Dependence]:
    start = allocation.offset
    return id(allocation.block), start, start + allocation.nbytes, allocation.owner[3]


class _InstructionInfo:
    """Describes an instruction in messages of the race detector, even long after the instruction has ended."""

    __slots__ = ("code", "last", "name", "serial", "stream")

    def __init__(self, instruction: Instruction) -> None:
        self.name = instruction.name
        self.serial = instruction.serial
        self.stream = instruction.stream.name
        self.code = instruction.code
        self.last = instruction.last

    def __str__(self) -> str:
        return f"{self.name} #{self.serial} on {self.stream}, issued at {origin.describe(self.code, self.last)}"


class WatchedEvent:
    """A device event with its vector clock, from which the race detector knows the instructions before it."""

    __slots__ = ("clock", "event")

    def __init__(self, event: Event, clock: Clock) -> None:
        self.event = event
        self.clock = clock

    def query(self) -> bool:
        return self.event.query()

    def synchronize(self) -> None:
        self.event.synchronize()


def unwatched(policy: StreamPolicy) -> StreamPolicy:
    """Return the stream policy that a `WatchedStreamPolicy` wraps; any other policy is returned as it is."""
    return policy.policy if isinstance(policy, WatchedStreamPolicy) else policy


class WatchedStreamPolicy(StreamPolicy):
    """A stream policy that wraps another one, and reports its events and waits to the race detector."""

    def __init__(self, policy: StreamPolicy, watch: RaceWatch) -> None:
        self.policy = policy
        self.watch = watch
        self.kind = policy.kind
        self.sequential = policy.sequential
        self.asynchronous = policy.asynchronous
        self.launches_ahead = policy.launches_ahead
        self.depth = policy.depth

    def on_scheduler_thread(self, cost: int, loop_attached: bool) -> bool:
        return self.policy.on_scheduler_thread(cost, loop_attached)

    def synchronize(self) -> None:
        self.policy.synchronize()

    def enqueue(self, work: Callable[[], None], fail: Callable[[BaseException], None]) -> Verdict | None:
        return self.policy.enqueue(work, fail)

    def record(self, timing: bool = False) -> WatchedEvent:
        return WatchedEvent(self.policy.record(timing), self.watch.recorded(self))

    def mark(self) -> Any:
        return self.policy.mark()

    def nanoseconds(self, mark: Any) -> int:
        return self.policy.nanoseconds(mark)

    def wait(self, event: Event) -> None:
        assert isinstance(event, WatchedEvent)
        self.policy.wait(event.event)
        self.watch.waits(self, event.clock)

    def await_progress(self, event: Event, wake: Callable[[], None]) -> bool:
        assert isinstance(event, WatchedEvent)
        return self.policy.await_progress(event.event, wake)

    def allocates_from(self, allocator: BinAllocator) -> None:
        self.policy.allocates_from(allocator)

    def takes_no_more(self) -> bool:
        return self.policy.takes_no_more()

    def close(self) -> None:
        self.policy.close()

    def hold(self, thing: object) -> None:
        self.policy.hold(thing)

    def __repr__(self) -> str:
        return f"WatchedStreamPolicy({self.policy!r})"
