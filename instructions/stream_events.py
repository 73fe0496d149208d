"""Order between two streams of one device, kept by the device itself: `StreamWait`, and its two halves.

An instruction that reads a result of another stream has to wait until the writer has *finished*, which the host must
notice.  A device with events can do better: its stream waits by itself, and the host goes on immediately.
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
    """Make its stream wait for everything that has been launched on `source`, a stream of the same device.

    It may be launched as soon as its predecessors on `source` have been; its end includes theirs.
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
    """An event that one instruction records and others wait for.

    Args:
        source: the stream that it is recorded on.
        timing: whether the device notes the time.

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
    """Record `shared` on its own stream, after everything that has been launched there."""

    __slots__ = ("shared",)

    name = "stream_record_event"
    prepares = True
    touches_memory = False

    def __init__(self, shared: SharedEvent) -> None:
        self.shared = shared

    def prepare(self, instruction: Instruction) -> None:
        self.shared.event = instruction.stream.policy.record(self.shared.timing)

    def compute(self) -> None:
        """Do nothing: the event was recorded when the instruction was launched."""


class StreamWaitEvent(InstructionPolicy):
    """Make its stream wait for `shared`, which an instruction ordered before this one must record."""

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
