"""`Devices`: the streams of one machine, by device and kind, and the worker threads that run long instructions."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, final

from vmflow.devices import device as Device
from vmflow.forking import lock_held_while_forking
from vmflow.streams.stream import Stream
from vmflow.streams.worker import Worker

from . import stream_table

if TYPE_CHECKING:
    from contextvars import Context

    from vmflow.context import Mode

    from .virtual_machine import VirtualMachine


# The kinds of streams that only copy: their kernels need no scratch memory.
_COPYING: Final = ("host_to_device", "device_to_host")


@final
class FoundStream:
    """A device and its compute stream, as one cached object, which is replaced and not changed."""

    __slots__ = ("device", "stream")

    def __init__(self, device: Device, stream: Stream) -> None:
        self.device = device
        self.stream = stream


@final
class Devices:
    """The streams and worker threads of one machine.

    Args:
        machine: the machine.
        cpu_worker: "auto", "always" or "never"; see `CpuStreamPolicy`.
        run_item: called on a worker's thread with each item posted to it.
        make_context: makes the `contextvars.Context` in which a worker runs.

    Attributes:
        cpu_worker: see above.
    """

    def __init__(
        self,
        machine: VirtualMachine,
        cpu_worker: str,
        run_item: Callable[[Any], None],
        make_context: Callable[[], Context],
    ) -> None:
        self._machine = machine
        self._run_item = run_item
        self._make_context = make_context
        self.cpu_worker = cpu_worker
        self._streams: dict[tuple[Device | None, str], Stream] = {}
        # The compute stream that was looked up last, as a cache: most programs have only one.
        self._recent: FoundStream | None = None
        self._lock = lock_held_while_forking()
        self._worker_threads: set[int] = set()
        # Whether no instruction runs on a worker, as in a forked child, which has none.
        self._without_threads = False

    # Streams

    def stream(self, device: Device | None, kind: str) -> Stream:
        """Return the stream of a kind such as "compute" on a device, or on no device; opened at the first use.

        Raises:
            DeviceUnavailable, ValueError: see `stream_table.make_policy`.
        """
        stream = self._streams.get((device, kind))
        return stream if stream is not None else self._open(device, kind)

    def compute_stream(self, device: Device) -> Stream:
        """Return the compute stream of a device, from a cache since every op asks for it; see `stream`."""
        recent = self._recent
        if recent is not None and recent.device is device:
            return recent.stream
        stream = self.stream(device, "compute")
        self._recent = FoundStream(device, stream)
        return stream

    def stream_of(self, device: Device, mode: Mode) -> Stream:
        """Return the stream on which ops on `device` run: its compute stream, unless the mode has set another."""
        if mode.streams is None:
            return self.compute_stream(device)
        return self.stream(device, mode.streams.get(device, "compute"))

    def streams(self) -> list[Stream]:
        """All streams opened so far, without those that `drop_ended` has forgotten."""
        return list(self._streams.values())

    def drop_ended(self) -> None:
        """Forget the idle streams whose policies take no more instructions."""
        with self._lock:
            for key, stream in list(self._streams.items()):
                if stream.policy.takes_no_more() and stream.idle():
                    del self._streams[key]

    def _open(self, device: Device | None, kind: str) -> Stream:
        machine = self._machine
        policy = stream_table.make_policy(machine.name, device, kind, self.cpu_worker)
        if machine.races is not None:
            policy = machine.races.watched(policy)
        # Communication streams get no allocator: results from other ranks have memory of their own, since no stream of
        # this machine could wait for those ranks.
        allocates = device is not None and (policy.asynchronous or kind == "compute")
        allocates = allocates and not stream_table.exchanges(kind)
        # An allocator hands out memory in the order of one stream.  So a stream that the program or another
        # library has made gets an allocator of its own, and so does the stream of a pipeline stage whose kernels ask
        # for scratch memory.
        apart = kind.startswith((stream_table.STREAM_PREFIX, stream_table.EXTERNAL_PREFIX))
        apart = apart or (policy.launches_ahead and kind.startswith(stream_table.STAGE_PREFIX))
        owner = kind if apart else "compute"
        allocator = machine.memory.allocator(device, owner) if device is not None and allocates else None
        # Instructions on "comm" and "lazy_job" streams keep one order; exchanges in a communication scope, whose stream
        # has another kind, may overtake them.
        order = machine.transport if kind in ("comm", "lazy_job") else None
        if allocator is not None and kind not in _COPYING:
            policy.allocates_from(allocator)
        if stream_table.exchanges(kind) and order is None:
            # From the first exchange in a communication scope on, nothing is fused: an op that waits for one scope's
            # exchange, fused with ops of another scope, would delay these ops, and ranks could deadlock.
            machine.engine.fuse_nothing()
        stream = Stream(f"{device or 'host'}:{kind}", device, policy, allocator, order)
        with self._lock:
            return self._streams.setdefault((device, kind), stream)

    # Threads

    def on_scheduler_thread(self, stream: Stream, cost: int, loop_attached: bool) -> bool:
        """Whether an instruction runs on the scheduling thread, not on a worker; the arguments: see `StreamPolicy`."""
        return self._without_threads or stream.policy.on_scheduler_thread(cost, loop_attached)

    def is_worker(self, thread: int) -> bool:
        """Whether the thread with this identifier is one of the machine's workers."""
        return thread in self._worker_threads

    def post(self, stream: Stream, item: object) -> None:
        """Append an item to the queue of the stream's worker thread, which the first item starts."""
        if stream.worker is None:
            machine = self._machine
            worker = Worker(f"{machine.name}:{stream.name}", self._run_item, machine.loops.any, self._make_context())
            assert worker.thread.ident is not None
            self._worker_threads.add(worker.thread.ident)
            stream.start(worker)
        stream.post(item)

    def ran(self, stream: Stream) -> None:
        """Note that the stream's worker has run an item, whose report the driver has collected."""
        stream.ran()

    def stop_workers(self, deadline: float) -> list[Any]:
        """End the threads of all streams, and return the items that the workers have not begun.

        Waits for the items that are running, up to `deadline`, a time of `time.monotonic`.
        """
        left: list[Any] = []
        for stream in self.streams():
            left += stream.stop(max(0.0, deadline - time.monotonic()))
        return left

    def forget_workers(self) -> None:
        """Forget the identifiers of the worker threads in a forked child, where these do not exist."""
        self._worker_threads.clear()

    def go_without_threads(self) -> None:
        """Use no workers from now on, in a forked child, and forget the work that workers and devices had."""
        self._without_threads = True
        for stream in self.streams():
            stream.forget_handed_over()
