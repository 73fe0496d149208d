"""`CudaStreamPolicy`: a stream of a CUDA device, to which work is handed immediately, and which runs it later."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from vmflow.streams.stream import Event, StreamPolicy, Verdict

from .device import CudaDevice, CudaEvent
from .driver import Handle
from .launching import Launched, Launcher, launched_by
from .waiter import EventWaiter

if TYPE_CHECKING:
    from vmflow.streams.allocator import BinAllocator

# Nanoseconds of work, as estimated for one core of a CPU, that a stream is handed ahead.  The host must stay ahead of
# the device, or the device idles; but work on the device can be neither overtaken nor dropped.  If a GPU computes a
# hundred times as fast, this is ten milliseconds there.
DEPTH_NANOSECONDS: Final = 1_000_000_000

# CUDA tells the milliseconds between two events in float32, whose step is 0.1 microseconds after a second and 250 after
# an hour.  So a mark that is `_RENEWED` nanoseconds later than the event from which marks are measured replaces it.  If
# that event is `_OUTDATED` nanoseconds old, `mark` waits for the stream's work, and measures from the end of that work.
_RENEWED: Final = 1_000_000_000
_OUTDATED: Final = 10_000_000_000


class CudaStreamPolicy(StreamPolicy):
    """A stream of a CUDA device.

    Args:
        kind: "compute", "host_to_device" or "device_to_host"; or begins with "compute:", "stream:" or "external:".
        device: the device.
        handle: the driver's handle of the stream.
        sequential: see `StreamPolicy`.
    """

    asynchronous = True
    launches_ahead = True
    depth = DEPTH_NANOSECONDS

    def __init__(self, kind: str, device: CudaDevice, handle: Handle, sequential: bool = False) -> None:
        self.kind = kind
        self.sequential = sequential
        self.device = device
        self.handle = handle
        self.launcher = Launcher(device, self.handle)
        # For a stream whose work is timed: a recent event whose time on the host's clock is known, and that time.
        self._zero: tuple[CudaEvent, int] | None = None
        # Started when an event loop first has nothing to do but wait for this stream of a GPU.
        self._waiter: EventWaiter | None = None

    def allocates_from(self, allocator: BinAllocator) -> None:
        """Let the stream take scratch memory from an allocator of its own, in the stream's order."""
        self.launcher.allocate_from(allocator)

    def on_scheduler_thread(self, cost: int, loop_attached: bool) -> bool:
        # Launching takes so little time that a worker would not pay.
        return True

    def enqueue(self, work: Callable[[], None], fail: Callable[[BaseException], None]) -> Verdict:
        if self.device.lost is not None:
            fail(self.device.loss())
            return _nothing
        self.device.await_borrowers()
        return self._error_of(launched_by(self.launcher, work))

    def _error_of(self, launched: Launched) -> Verdict:
        """Return a function to call after the work has ended.

        It returns an error if the device has been lost, else the work's error, or None.
        """
        return lambda: self.device.loss() if self.device.lost is not None else launched.error()

    def hold(self, thing: object) -> None:
        self.launcher.keep(thing)

    def record(self, timing: bool = False) -> CudaEvent:
        return self.device.record(self.handle, timing)

    def mark(self) -> CudaEvent | None:
        if self.device.lost is not None:
            return None
        if self._zero is None or time.perf_counter_ns() - self._zero[1] > _OUTDATED:
            zero = self.record(timing=True)
            zero.synchronize()
            self._zero = zero, time.perf_counter_ns()
        mark = self.record(timing=True)
        return mark if mark.handle is not None else None  # the device may have been lost meanwhile

    def nanoseconds(self, mark: CudaEvent) -> int:
        assert self._zero is not None
        zero, begin = self._zero
        reached = begin + round(zero.milliseconds_until(mark) * 1e6)
        if reached - begin > _RENEWED:
            self._zero = mark, reached
        return reached

    def wait(self, event: Event) -> None:
        if not isinstance(event, CudaEvent):
            raise ValueError(f"{event!r} is no event of a CUDA device, and {self!r} cannot wait for it")
        self.device.let_wait(self.handle, event)

    def synchronize(self) -> None:
        self.record().synchronize()

    def await_progress(self, event: Event, wake: Callable[[], None]) -> bool:
        if self.device.driver.step():
            wake()
            return True
        if self._waiter is None:
            self._waiter = EventWaiter(f"cuda:{self.device.driver.index}:{self.kind}")
        self._waiter.add(event, wake)
        return False

    def close(self) -> None:
        if self._waiter is not None:
            self._waiter.stop()
            self._waiter = None

    def __repr__(self) -> str:
        return f"CudaStreamPolicy({self.kind!r}, cuda:{self.device.driver.index})"


def _nothing() -> None:
    return None
