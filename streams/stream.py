"""A stream is one in-order queue of one device; its policy decides how the queue executes.

Order is the only promise: work that was handed to a stream first finishes first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Final, Protocol, TypeAlias

from vmflow.native import keep_fields, mypyc_attr

from .queues import BySerial, Fifo
from .worker import Worker

# verdict() -> the error that the device has found in work that has ended, or None
Verdict: TypeAlias = "Callable[[], Exception | None]"

# Nanoseconds: more than a hundred years.
NO_LIMIT: Final = 1 << 62


class Event(Protocol):
    """A point in a device's stream."""

    def query(self) -> bool:
        """Whether the event has been reached."""
        ...

    def synchronize(self) -> None:
        """Block until the event has been reached."""
        ...


@mypyc_attr(allow_interpreted_subclasses=True)
class StreamPolicy:
    """The way in which one kind of stream executes its work.

    Attributes:
        kind: the name of the kind, as shown in reprs and the story ("compute", "control", ...).
        sequential: whether the stream's instructions keep program order even if they share no data.  Streams of
            exchanges need it (all ranks must see one order); compute streams do not.
        asynchronous: whether the stream takes work by `enqueue`, and may end it later; otherwise the host calls work.
        launches_ahead: whether `enqueue` calls work immediately, which launches kernels that the device runs later, as
            on streams of a GPU.
        depth: nanoseconds of estimated work that may be handed over and not finished before more is held back.
    """

    kind: str = "stream"
    sequential: bool = False
    asynchronous: bool = False
    launches_ahead: bool = False
    depth: int = NO_LIMIT

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        keep_fields(cls)

    def on_scheduler_thread(self, cost: int, loop_attached: bool) -> bool:
        """Whether work of `cost` nanoseconds (an estimate) should run on the thread that schedules.

        `loop_attached` means that the scheduling thread should stay responsive, because an event loop drives the
        machine, or has driven it.
        """
        raise NotImplementedError

    def synchronize(self) -> None:
        """Block until all work of this stream on its device has ended.  Does nothing where the host calls the work."""

    def keep_order(self) -> None:
        """Keep program order from now on; see `sequential`."""
        self.sequential = True

    def takes_no_more(self) -> bool:
        """Whether the stream will be handed no more work, so that it can be forgotten when it is idle."""
        return False

    def close(self) -> None:
        """End the policy's own threads; called when the stream's machine ends."""

    # Asynchronous streams only

    def enqueue(self, work: Callable[[], None], fail: Callable[[BaseException], None]) -> Verdict | None:
        """Hand `work` over, to run behind everything enqueued before; `fail` is called if `work` cannot be called.

        Returns:
            A function that returns, once the work has ended, its error or None; None if the device checks nothing.
        """
        raise NotImplementedError

    def allocates_from(self, allocator: Any) -> None:
        """Let kernels on this stream take scratch memory from `allocator`, in the stream's order."""

    def hold(self, thing: object) -> None:
        """Keep an object alive until all work handed over up to now has ended, unless the device keeps it itself."""

    def record(self, timing: bool = False) -> Event:
        """An event that is reached when everything enqueued so far has finished.

        Args:
            timing: whether the device notes the time, where it can.
        """
        raise NotImplementedError

    def mark(self) -> Any:
        """A point in time: when all that was enqueued so far has finished; None if the device cannot note times."""
        return None

    def nanoseconds(self, mark: Any) -> int:
        """Return the time at which a mark was reached, on the clock of ``time.perf_counter_ns``."""
        raise NotImplementedError

    def wait(self, event: Event) -> None:
        """Hold back work that is enqueued from now on until `event`, of any stream of the same device, is reached."""
        raise NotImplementedError

    def await_progress(self, event: Event, wake: Callable[[], None]) -> bool:
        """Call `wake`, on any thread, when `event` of this stream may be reached; for a host with nothing else to do.

        Returns:
            Whether this call has let the device go on, and then called `wake`.
        """
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class Stream:
    """An in-order queue of a device.

    Attributes:
        name: for reprs, such as ``"cpu:compute"``.
        device: the device it belongs to (any hashable value); None if it belongs to no device.
        policy: how it executes.
        ready: the instructions of priority 0 that may be handed over next.  Owned by the engine, like the next four.
        ranked: by priority, all instructions that may be handed over next; None while all have priority 0.
        running: the instructions handed over and not yet erased, oldest first.
        outstanding: nanoseconds of estimated work handed over and not yet finished.
        full: whether work was held back because `outstanding` has reached `policy.depth`.
        posted: the number of items handed to the worker whose end the machine has not noted.  While it is not zero,
            nothing may run inline, or the order would break.
        order: the dependence that keeps program order on a `sequential` stream; None until used, unless it is shared.
        worker: the thread for work that must not run on the scheduling thread; None before the first such work, and
            after `stop`.
        in_flight: work of an asynchronous device that is not known to have finished, oldest first.
        allocator: of the device's memory; None where arrays come from elsewhere.
    """

    __slots__ = (
        "allocator",
        "device",
        "full",
        "in_flight",
        "name",
        "order",
        "outstanding",
        "policy",
        "posted",
        "ranked",
        "ready",
        "running",
        "worker",
    )

    def __init__(
        self, name: str, device: object, policy: StreamPolicy, allocator: Any = None, order: Any = None
    ) -> None:
        self.name = name
        self.device = device
        self.policy = policy
        self.ready = BySerial()
        self.ranked: Any = None
        self.running = Fifo()
        self.outstanding = 0
        self.full = False
        self.posted = 0
        self.order = order
        self.worker: Worker | None = None
        self.in_flight: deque[Any] = deque()
        self.allocator = allocator

    def idle(self) -> bool:
        """Whether nothing runs on the stream, and no instruction of priority 0 is ready."""
        return self.running.first is None and self.ready.is_empty() and not self.in_flight and not self.posted

    def start(self, worker: Worker) -> None:
        """From now on, `post` hands items to this worker."""
        self.worker = worker

    def post(self, item: object) -> None:
        """Hand an item to the worker, behind those it has."""
        assert self.worker is not None
        self.posted += 1
        self.worker.post(item)

    def ran(self) -> None:
        """Note that the worker has run an item, and that the machine knows it."""
        self.posted -= 1

    def stop(self, timeout: float) -> list[Any]:
        """End the stream's threads, waiting up to `timeout` seconds for the worker's item; returns items not run."""
        self.policy.close()
        if self.worker is None:
            return []
        left = self.worker.stop(timeout)
        self.posted -= len(left)
        self.worker = None
        return left

    def forget_handed_over(self) -> None:
        """Forget the worker and the device's work: in a forked child, neither exists."""
        self.worker = None
        self.posted = 0
        self.in_flight.clear()

    def __repr__(self) -> str:
        return f"<Stream {self.name} {self.policy!r} running={len(self.running)} posted={self.posted}>"
