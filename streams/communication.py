"""`CommunicationStreamPolicy`: the policy of the stream of exchanges between this rank and the others."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final

from vmflow.errors import DeviceUnavailable

from .stream import Event, StreamPolicy, Verdict

if TYPE_CHECKING:
    from .channel import Channel, Operation, Work

# The kind of the streams of exchanges; in a communication scope, a colon and the scope's path follow.
KIND: Final = "comm"

# In this task's or thread's communication scope, the connection from this rank to the others; or None.
CHANNEL: Final[ContextVar[Channel | None]] = ContextVar("vmflow.channel", default=None)


class CommunicationStreamPolicy(StreamPolicy):
    """Hands operations to a channel in program order: the ranks of a group must start the same ones in one order.

    Args:
        channel: the connection to the other ranks, in one communication scope.
    """

    kind = KIND
    sequential = True
    asynchronous = True

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self._work: Work | None = None
        self._left = False

    def takes_no_more(self) -> bool:
        return self._left

    def start(self, operation: Operation, given: Any, gotten: Any, failure: BaseException | None, place: str) -> None:
        """See `Channel.start`; called by the work that is being enqueued."""
        self._work = self.channel.start(operation, given, gotten, failure, place)
        self._left = operation.kind == "leave"

    def on_scheduler_thread(self, cost: int, loop_attached: bool) -> bool:
        # Starting an operation takes so little time that a worker would not pay.
        return True

    def enqueue(self, work: Callable[[], None], fail: Callable[[BaseException], None]) -> Verdict:
        self._work = None
        work()
        started = self._work
        return lambda: None if started is None else started.error

    def record(self, timing: bool = False) -> Reached:
        return Reached(self.channel, self.channel.started())

    def wait(self, event: Event) -> None:
        raise NotImplementedError("operations between ranks begin when the host knows that their operands are there")

    def synchronize(self) -> None:
        self.channel.wait(self.channel.started())

    def await_progress(self, event: Event, wake: Callable[[], None]) -> bool:
        assert isinstance(event, Reached)
        self.channel.call_when_reached(event.count, wake)
        return False

    def __repr__(self) -> str:
        return f"CommunicationStreamPolicy(rank {self.channel.rank})"


class Reached:
    """An event that is reached when the first `count` operations of a channel have ended."""

    __slots__ = ("channel", "count")

    def __init__(self, channel: Channel, count: int) -> None:
        self.channel = channel
        self.count = count

    def query(self) -> bool:
        return self.channel.reached(self.count)

    def synchronize(self) -> None:
        self.channel.wait(self.count)


def open_lane() -> CommunicationStreamPolicy:
    """Make the policy of a new stream of exchanges for this rank.

    Raises:
        DeviceUnavailable: if there is no connection to other ranks.
    """
    channel = CHANNEL.get()
    if channel is None:
        raise DeviceUnavailable(
            "there is no way to other ranks here: run the program by vmflow.distributed.simulate(function, ranks=...)"
        )
    return CommunicationStreamPolicy(channel)
