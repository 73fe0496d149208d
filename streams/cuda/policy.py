"""`CudaStreamPolicy`: a stream of a CUDA device, whose work is handed over at once and runs behind the host's back."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, final

from vmflow.errors import DeviceLost
from vmflow.streams.stream import Event, StreamPolicy

from .driver import Driver, Handle
from .launching import Launched, Launcher, launching
from .waiter import EventWaiter

if TYPE_CHECKING:
    from vmflow.streams.allocator import BinAllocator

# Nanoseconds of estimated work that a stream is handed ahead.  The host must stay ahead of the device, or it idles; but
# work in its hands can be neither overtaken nor dropped.
DEPTH_NANOSECONDS: Final = 20_000_000


@final
class CudaEvent:
    """A point in a stream of a CUDA device; its handle goes back to the pool with it.

    Attributes:
        handle: the driver's.
        timing: whether it notes the time.
    """

    __slots__ = ("_pool", "_reached", "handle", "timing")

    def __init__(self, pool: EventPool, handle: Handle, timing: bool) -> None:
        self._pool = pool
        self.handle = handle
        self.timing = timing
        self._reached = False

    def query(self) -> bool:
        """Whether it has been reached, or the device has been lost, so that it never will be."""
        if not self._reached:
            try:
                self._reached = self._pool.driver.query(self.handle)
            except DeviceLost as error:
                self._pool.lose(error)
                self._reached = True
        return self._reached

    def synchronize(self) -> None:
        """Return when it has been reached, or the device has been lost."""
        if self._reached:
            return
        try:
            self._pool.driver.synchronize_event(self.handle)
        except DeviceLost as error:
            self._pool.lose(error)
        self._reached = True

    def milliseconds_until(self, end: CudaEvent) -> float:
        """The time from this event to a later one, both with timing and reached."""
        return self._pool.driver.elapsed(self.handle, end.handle)

    def __del__(self) -> None:
        if not self.timing:
            self._pool.give_back(self.handle)


@final
class EventPool:
    """The events of one device, which are used again: a new one takes longer than a launch.

    Args:
        driver: of the device.

    Attributes:
        driver: as given.
        lost: why the device has stopped working; None while it works.
    """

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self.lost: DeviceLost | None = None
        self._free: deque[Handle] = deque()
        # For destructors: a method of C's, which takes no lock.
        self.give_back: Final = self._free.append

    def record(self, stream: Handle, timing: bool = False) -> CudaEvent:
        """An event behind all work that the stream has been handed so far."""
        try:
            handle = self.driver.create_event(True) if timing else self._free.pop()
        except IndexError:
            handle = self.driver.create_event()
        event = CudaEvent(self, handle, timing)
        self.driver.record(handle, stream)
        return event

    def lose(self, error: DeviceLost) -> None:
        """The device has stopped working."""
        if self.lost is None:
            self.lost = error

    def failure(self) -> DeviceLost:
        """A new error that says so: its receiver may add notes to it."""
        assert self.lost is not None
        error = DeviceLost(str(self.lost))
        error.__cause__ = self.lost
        return error


class CudaStreamPolicy(StreamPolicy):
    """A stream of a CUDA device.

    Args:
        kind: "compute", "host_to_device", "device_to_host", "comm", or "compute:1" and so on.
        events: of the device.
        priority: of the stream; lower numbers are preferred.
        sequential: see `StreamPolicy`.
    """

    asynchronous = True
    launches = True
    depth = DEPTH_NANOSECONDS

    def __init__(self, kind: str, events: EventPool, priority: int = 0, sequential: bool = False) -> None:
        self.kind = kind
        self.sequential = sequential
        self.events = events
        self.handle = events.driver.create_stream(priority)
        self.launcher = Launcher(events.driver, self.handle)
        # Started when an event loop first has nothing to do but wait for this stream.
        self._waiter: EventWaiter | None = None

    def allocates_from(self, allocator: BinAllocator) -> None:
        """The stream has memory of its own, handed out in its order."""
        self.launcher.allocator = allocator

    def on_scheduler_thread(self, cost: int, loop_attached: bool) -> bool:
        # Handing over takes no time worth a worker.
        return True

    def enqueue(self, work: Callable[[], None], fail: Callable[[BaseException], None]) -> Callable[[], Any]:
        if self.events.lost is not None:
            fail(self.events.failure())
            return _nothing
        with launching(self.launcher):
            try:
                work()
            finally:
                launched = self.launcher.take_launched()
        return self._error_of(launched)

    def _error_of(self, launched: Launched) -> Callable[[], Exception | None]:
        """Asked when the work has ended: what has gone wrong."""
        return lambda: self.events.failure() if self.events.lost is not None else launched.error()

    def hold(self, thing: object) -> None:
        self.launcher.keep(thing)

    def record(self, timing: bool = False) -> CudaEvent:
        return self.events.record(self.handle, timing)

    def wait(self, event: Event) -> None:
        if not isinstance(event, CudaEvent):
            raise ValueError(f"{event!r} is no event of a CUDA device, and {self!r} cannot wait for it")
        self.events.driver.stream_wait(self.handle, event.handle)

    def synchronize(self) -> None:
        self.record().synchronize()

    def await_progress(self, event: Event, wake: Callable[[], None]) -> bool:
        if self.events.driver.step():
            wake()
            return True
        if self._waiter is None:
            self._waiter = EventWaiter(f"cuda:{self.events.driver.index}:{self.kind}")
        self._waiter.add(event, wake)
        return False

    def __repr__(self) -> str:
        return f"CudaStreamPolicy({self.kind!r}, cuda:{self.events.driver.index})"


def _nothing() -> None:
    return None
