"""Streams and events of CUDA devices, under PyTorch's names.

The virtual machine orders ops by the memory they touch, on all streams.  So a program may put ops on several streams
without waiting between them: no result is read before it is computed, and no memory is reused too early.
`wait_stream` and events are for work whose order does not follow from tensors, and for timing.  Copies between devices,
the host among them, run on streams of their own.
"""

from __future__ import annotations

import itertools
from collections.abc import Generator
from types import TracebackType
from typing import Any, Final, cast, final

from vmflow.arguments import whole_number
from vmflow.context import MODE
from vmflow.devices import cuda_device, device as Device
from vmflow.errors import DeviceUnavailable
from vmflow.instructions.builder import InstructionsBuilder, physical_run
from vmflow.instructions.instruction import Dependence, Instruction
from vmflow.instructions.stream_events import SharedEvent
from vmflow.open_blocks import OpenBlocks
from vmflow.streams import Stream as MachineStream
from vmflow.streams.cuda.device import CudaEvent
from vmflow.streams.cuda.policy import CudaStreamPolicy
from vmflow.vm.race_watch import WatchedEvent, unwatched
from vmflow.vm.stream_table import EXTERNAL_PREFIX, STREAM_PREFIX
from vmflow.vm.virtual_machine import VirtualMachine, current_machine
from vmflow.vm.waiting import Synchronization
from vmflow.vm.wakers import running_loop

# `Stream` objects are numbered in turn from 0 to `STREAMS` - 1.  Two of one device, priority and number are equal.
STREAMS: Final = 32

_numbers: Final = itertools.count()

_BLOCKS: Final = OpenBlocks(
    "vmflow.cuda.stream_blocks",
    lambda: MODE.get().streams,
    lambda chosen: MODE.set(MODE.get().replace(streams=chosen)),
)


@final
class Stream:
    """A CUDA stream: ops of a device that run one after another, and maybe concurrently with ops of other streams.

        side = flow.cuda.Stream()
        with flow.cuda.stream(side):
            y = model(x)        # runs on `side`, after the ops that compute x
        z = y + 1               # runs on the usual stream, after y

    Args:
        device: of the stream; the current one by default.
        priority: negative for a stream whose work the device prefers.

    Attributes:
        device: the stream's device.
        priority: as given, or 0 if a positive number was given.
        kind: the string by which a virtual machine knows the stream, see `VirtualMachine.stream`.

    Raises:
        DeviceUnavailable: if the device cannot be used.
        ValueError: if `device` is no CUDA device.
        TypeError: if `priority` is no integer.

    Example:
        >>> if flow.cuda.is_available():
        ...     with flow.cuda.Stream():
        ...         y = flow.ones(2, device="cuda") + 1
    """

    def __init__(self, device: Device | str | int | None = None, priority: int = 0) -> None:
        urgency = min(whole_number("Stream", "priority", priority), 0)
        self._be(cuda_device(device), f"{STREAM_PREFIX}{urgency}:{next(_numbers) % STREAMS}")

    @classmethod
    def of_kind(cls, device: Device, kind: str) -> Stream:
        """The stream of `device` that a virtual machine knows by the string `kind`, such as "compute"."""
        stream = cls.__new__(cls)
        cls._be(stream, device, kind)
        return stream

    def _be(self, device: Device, kind: str) -> None:
        device.require()
        self.device = device
        self.priority = int(kind.split(":")[1]) if kind.startswith(STREAM_PREFIX) else 0
        self.kind = kind

    def __cuda_stream__(self) -> tuple[int, int]:
        """The CUDA stream protocol for other libraries: the protocol's version, and the stream's address."""
        return 0, self.cuda_stream

    @property
    def cuda_stream(self) -> int:
        """The address of the stream's ``cudaStream_t``, for other libraries.

        An op enters the ``cudaStream_t`` when it is launched; `synchronize` waits until all issued ops have ended.
        """
        policy = policy_of(self.on(current_machine()))
        return policy.device.driver.stream_address(policy.handle)

    def wait_event(self, event: Event) -> None:
        """Let work issued to this stream from now on run after the work before the last recording of `event`."""
        event.wait(self)

    def wait_stream(self, stream: Stream) -> None:
        """Let work issued to this stream from now on run after all work issued to `stream` so far."""
        self.wait_event(stream.record_event())

    def record_event(self, event: Event | None = None) -> Event:
        """Record an event, by default a new one, after all work issued to this stream so far, and return it."""
        event = Event() if event is None else event
        event.record(self)
        return event

    def query(self) -> bool:
        """Whether all work issued to this stream so far has ended.

        On an event loop, the work goes on in the loop's next iterations: ``while not stream.query(): await sleep(0)``.
        """
        machine = current_machine()
        source = self.on(machine)
        machine.driver.go_on()
        policy = policy_of(source)
        return not machine.unfinished(source) and policy.device.is_idle(policy.handle)

    def synchronize(self) -> Synchronization:
        """Wait for all work issued to this stream: await the result; without a running event loop this call blocks."""
        return self.record_event().synchronize()

    def __enter__(self) -> Stream:
        _BLOCKS.enter(self, {**(MODE.get().streams or {}), self.device: self.kind})
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _BLOCKS.leave(self)

    def on(self, machine: VirtualMachine) -> MachineStream:
        """The stream of `machine` that runs the ops issued to this CUDA stream."""
        return machine.stream(self.device, self.kind)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and (self.device, self.kind) == (other.device, other.kind)

    def __hash__(self) -> int:
        return hash((self.device, self.kind))

    def __repr__(self) -> str:
        return f"<vmflow.cuda.Stream {self.kind} of {self.device}>"


def current_stream(device: Device | str | int | None = None) -> Stream:
    """The stream that eager ops on a device, except copies between devices, are issued to in this task or thread.

    Raises:
        DeviceUnavailable: if the device cannot be used.
        ValueError: if `device` is no CUDA device.

    Example:
        >>> if flow.cuda.is_available():
        ...     assert flow.cuda.current_stream() == flow.cuda.default_stream()
    """
    found = cuda_device(device)
    kinds = MODE.get().streams
    return Stream.of_kind(found, "compute" if kinds is None else kinds.get(found, "compute"))


def default_stream(device: Device | str | int | None = None) -> Stream:
    """The stream that eager ops on a device, except copies between devices, are issued to if none was chosen.

    Raises:
        DeviceUnavailable: if the device cannot be used.
        ValueError: if `device` is no CUDA device.

    Example:
        >>> if flow.cuda.is_available():
        ...     assert flow.cuda.default_stream().query() in (True, False)
    """
    return Stream.of_kind(cuda_device(device), "compute")


def ExternalStream(stream_ptr: Any, device: Device | str | int | None = None) -> Stream:
    """Wrap a CUDA stream of another library, so that ops can be issued to it.

    Args:
        stream_ptr: the ``cudaStream_t`` as an int, or an object with ``__cuda_stream__``.  Its owner must keep the
            stream until the ops issued to it have ended.
        device: of the stream; the current one by default.

    Raises:
        ValueError: if `stream_ptr` is no address, or the device no CUDA device.
        DeviceUnavailable: if the device cannot be used.

    Example:
        >>> flow.cuda.ExternalStream(0)
        Traceback (most recent call last):
        ValueError: ExternalStream: expected the address of a stream, which is positive, not 0
    """
    protocol = getattr(stream_ptr, "__cuda_stream__", None)
    address = stream_ptr if protocol is None else protocol()[1]
    if not isinstance(address, int) or isinstance(address, bool) or address < 1:
        raise ValueError(f"ExternalStream: expected the address of a stream, which is positive, not {stream_ptr!r}")
    return Stream.of_kind(cuda_device(device), f"{EXTERNAL_PREFIX}{address}")


def set_stream(stream: Stream | None) -> None:
    """Issue eager ops on the device of `stream` to `stream` from now on, in this task or thread; None changes nothing.

    Copies between devices are excepted.  Raises no errors.

    Example:
        >>> if flow.cuda.is_available():
        ...     flow.cuda.set_stream(flow.cuda.default_stream())
    """
    if stream is None:
        return
    mode = MODE.get()
    MODE.set(mode.replace(streams={**(mode.streams or {}), stream.device: stream.kind}))


class stream:
    """A context manager in which eager ops on a stream's device are issued to that stream; None changes nothing.

    Copies between devices are excepted.  Raises no errors.

    Example:
        >>> with flow.cuda.stream(flow.cuda.Stream() if flow.cuda.is_available() else None):
        ...     flow.ones(2) + 1
        tensor([2., 2.])
    """

    def __init__(self, stream: Stream | None) -> None:
        self._stream = stream

    def __enter__(self) -> Stream | None:
        return None if self._stream is None else self._stream.__enter__()

    def __exit__(self, *raised: Any) -> None:
        if self._stream is not None:
            self._stream.__exit__(*raised)


@final
class Event:
    """A CUDA event: a point in the work of a stream, which other streams and the host can wait for and time.

        start, end = (flow.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        y = model(x)
        end.record()
        await end.synchronize()          # or end.synchronize() in plain code
        print(start.elapsed_time(end))   # milliseconds

    Args:
        enable_timing: whether `elapsed_time` may be called.
        blocking: PyTorch's argument; makes no difference.
        interprocess: PyTorch's argument; must be False.

    Raises:
        ValueError: for ``interprocess=True``.
        DeviceUnavailable: in `record` and `synchronize`, if they need the current stream and its device cannot be used.
        RuntimeError: in all methods but `record`, if another virtual machine than that of the recording is current.

    Example:
        >>> flow.cuda.Event(enable_timing=True).query()  # never recorded
        True
    """

    def __init__(self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False) -> None:
        if interprocess:
            raise ValueError("interprocess=True: events of vmflow cannot be shared with other processes")
        self._timing = enable_timing
        self._shared: SharedEvent | None = None
        self._instruction: Instruction | None = None
        self._machine: VirtualMachine | None = None
        self._dependence: Dependence | None = None

    def record(self, stream: Stream | None = None) -> None:
        """Record the event after all work issued so far to `stream`, by default the current one."""
        stream = current_stream() if stream is None else stream
        machine = current_machine()
        source = stream.on(machine)
        behind = machine.keep_program_order(source)
        if self._machine is not machine:
            self._machine, self._dependence = machine, Dependence(machine)
        dependence = cast(Dependence, self._dependence)
        shared = SharedEvent(source, self._timing)

        def build(builder: InstructionsBuilder) -> Instruction:
            return builder.record_event(shared, behind, dependence)

        self._instruction = physical_run(machine, build)
        self._shared = shared

    def wait(self, stream: Stream | None = None) -> None:
        """Let work issued from now on to `stream`, by default the current one, run after the event is reached.

        An event that was never recorded delays no work.
        """
        if self._shared is None:
            return
        machine, shared, dependence = self._recorded_here()
        target = (current_stream() if stream is None else stream).on(machine)
        machine.keep_program_order(target)
        if target is not shared.source:
            physical_run(machine, lambda builder: builder.wait_event(target, shared, dependence))

    def query(self) -> bool:
        """Whether all work before the event has ended; True for an event that was never recorded.

        On an event loop, see `Stream.query`.
        """
        if self._shared is None:
            return True
        machine, shared, _ = self._recorded_here()
        machine.driver.go_on()
        return shared.event is not None and shared.event.query()

    def synchronize(self) -> Synchronization:
        """Wait until the event is reached: await the result; without a running event loop this call blocks.

        An event that was never recorded is recorded first, on the current stream.
        """
        if self._instruction is None:
            self.record()
        machine, _, _ = self._recorded_here()
        instruction = cast(Instruction, self._instruction)
        if running_loop() is None:
            machine.wait(instruction)
        return Synchronization(machine, instruction)

    def __await__(self) -> Generator[Any, None, None]:
        return self.synchronize().__await__()

    def elapsed_time(self, end_event: Event) -> float:
        """Milliseconds from this event to `end_event`.

        Raises:
            ValueError: if one of the events was made without timing.
            RuntimeError: if one of the events has not been recorded, or not been reached.
        """
        if not (self._timing and end_event._timing):
            raise ValueError("elapsed_time needs two events made with enable_timing=True")
        if not (self._instruction and end_event._instruction and self.query() and end_event.query()):
            raise RuntimeError(
                "elapsed_time needs two events that have been reached: record and synchronize them first"
            )
        return self._reached().milliseconds_until(end_event._reached())

    def _reached(self) -> CudaEvent:
        assert self._shared is not None
        return event_of(self._shared)

    def _recorded_here(self) -> tuple[VirtualMachine, SharedEvent, Dependence]:
        assert self._machine is not None
        assert self._shared is not None
        assert self._dependence is not None
        if self._machine is not current_machine():
            raise RuntimeError(
                f"the event was recorded on the virtual machine {self._machine.name!r} and cannot be used on "
                f"{current_machine().name!r}: synchronize it there, or record another here"
            )
        return self._machine, self._shared, self._dependence

    def __repr__(self) -> str:
        return f"<vmflow.cuda.Event {'not recorded' if self._shared is None else f'of {self._shared.source.name}'}>"


def event_of(shared: SharedEvent) -> CudaEvent:
    """The `CudaEvent` that was recorded for `shared`, without the wrapper of a machine that watches for races."""
    found = shared.event
    if isinstance(found, WatchedEvent):
        found = found.event
    assert isinstance(found, CudaEvent)
    return found


def policy_of(stream: MachineStream) -> CudaStreamPolicy:
    """The policy of a machine's CUDA stream, without the wrapper of a machine that watches for races.

    Raises:
        DeviceUnavailable: if that is no `CudaStreamPolicy`.
    """
    policy = unwatched(stream.policy)
    if not isinstance(policy, CudaStreamPolicy):
        raise DeviceUnavailable(f"{stream.name} is no stream of a CUDA device")
    return policy
