"""Make one stream of a device wait for another by events: `StreamWait`, or `StreamRecordEvent` and `StreamWaitEvent`.

Without events, an instruction that reads a result of another stream is launched when the host has noticed that the
writer has *finished*.  With events, the stream waits on the device, and the host need not wait to launch the reader.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vmflow.errors import InternalError

from .policy import InstructionPolicy

if TYPE_CHECKING:
    from vmflow.streams import Stream
    from vmflow.streams.stream import Event

    from .instruction import Instruction


class StreamWait(InstructionPolicy):
    """Make this instruction's stream wait for all work launched so far on `source`, a stream of the same device.

    It may be launched before its predecessors on `source` have ended; when it ends, they have ended.
    """

    __slots__ = ("follows",)

    name = "stream_wait"
    prepares = True
    touches_memory = False

    def __init__(self, source: Stream) -> None:
        self.follows = source

    def prepare(self, instruction: Instruction) -> None:
        assert self.follows is not None
        instruction.stream.policy.wait(self.follows.policy.record())

    def compute(self) -> None:
        """Nothing: the device waits."""

    def describe(self) -> str:
        return f"{self.name} for {self.follows}"


class SharedEvent:
    """A device event that one instruction records on a stream and that other instructions wait for.

    Args:
        source: the stream that the event is recorded on.
        timing: whether the device notes the time of the event.

    Attributes:
        source, timing: as given.
        event: the device's event; None until the recording instruction is launched.
    """

    __slots__ = ("event", "source", "timing")

    def __init__(self, source: Stream, timing: bool = False) -> None:
        self.source = source
        self.timing = timing
        self.event: Event | None = None


class StreamRecordEvent(InstructionPolicy):
    """Record the event `shared` on the instruction's stream, behind all work launched there so far."""

    __slots__ = ("shared",)

    name = "stream_record_event"
    prepares = True
    touches_memory = False

    def __init__(self, shared: SharedEvent) -> None:
        self.shared = shared

    def prepare(self, instruction: Instruction) -> None:
        self.shared.event = instruction.stream.policy.record(self.shared.timing)

    def compute(self) -> None:
        """Do nothing: `prepare` has recorded the event when the instruction was launched."""


class StreamWaitEvent(InstructionPolicy):
    """Make the instruction's stream wait for the event `shared`, recorded by an earlier `StreamRecordEvent`."""

    __slots__ = ("follows", "shared")

    name = "stream_wait_event"
    prepares = True
    touches_memory = False

    def __init__(self, shared: SharedEvent) -> None:
        self.shared = shared
        self.follows = shared.source

    def prepare(self, instruction: Instruction) -> None:
        if self.shared.event is None:
            raise InternalError(f"{instruction!r} waits for an event that nobody recorded: they share no dependence")
        instruction.stream.policy.wait(self.shared.event)

    def compute(self) -> None:
        """Nothing: the device waits."""
