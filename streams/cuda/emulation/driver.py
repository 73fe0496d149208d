"""`EmulatedDriver`: a CUDA device on the CPU, for tests of everything above the driver.

A simulated device decides when work runs: as late as the rules allow, immediately, or at random by a seed.  An
interpreter runs the PTX of kernels, and numpy stands in for CuPy.  Unless checks are off, two conflicting accesses that
nothing orders are an error when the later one is handed over.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, final

import numpy as np

from vmflow.errors import DeviceLost
from vmflow.streams.cuda.arrays import DeviceArray, bytes_at
from vmflow.streams.cuda.driver import Argument, CannotCapture, CompileTarget, DeviceProperties, Driver
from vmflow.streams.cuda.hazards import HOST, Hazards
from vmflow.streams.cuda.precision import allows_tf32
from vmflow.streams.simulated import SimulatedDevice, SimulatedEvent, SimulatedQueue, parse_positive

from .array_module import ARRAY_MODULE
from .memory import EmulatedMemory, IllegalAddress, Owner, Region, view
from .products import check_bias, compute_product

if TYPE_CHECKING:
    from vmflow.streams.cuda.ptx import Kernel as PtxKernel, Module, Region as PtxRegion

# How often emulated devices have begun to run each kernel in this process, by the kernel's name.
LAUNCHES: Final[Counter[str]] = Counter()

MEMORY_VARIABLE: Final = "VMFLOW_CUDA_MEMORY"
DEFAULT_BYTES: Final = 1 << 30
_MILLISECONDS_PER_PIECE: Final = 1e-3
_MULTIPROCESSORS: Final = 4
# The addresses of CUDA's two default streams.  `stream_address` adds any stream's number to `_FIRST_STREAM`.
_DEFAULT_STREAMS: Final = (1, 2)
_FIRST_STREAM: Final = 0x1000


@final
class EmulatedStream:
    """A stream of an emulated device.

    Attributes:
        queue: its queue on the simulated device.
        number: the number of the stream in `Hazards`.
        captured: the graph that work goes to while the stream is captured; else None.
    """

    __slots__ = ("captured", "number", "queue")

    def __init__(self, queue: SimulatedQueue, number: int) -> None:
        self.queue = queue
        self.number = number
        self.captured: list[_Node] | None = None

    def begin_capture(self) -> None:
        """Put work for the stream into a new graph from now on; RuntimeError if the stream is captured already."""
        if self.captured is not None:
            raise RuntimeError("the stream is captured already")
        self.captured = []

    def end_capture(self) -> list[_Node]:
        """End the capture and return the graph's work; RuntimeError if the stream is not captured."""
        if self.captured is None:
            raise RuntimeError("the stream is not captured")
        captured, self.captured = self.captured, None
        return captured


# work(regions): takes the block of each array of a `_Node`; None for an empty array.
_Work: TypeAlias = "Callable[[Sequence[Region | None]], None]"


class _Node(NamedTuple):
    """A piece of work: its name, its arrays, the positions of those that it writes, and the work itself."""

    name: str
    arrays: Sequence[DeviceArray]
    writes: set[int]
    work: _Work


@final
class EmulatedEvent:
    """An event of an emulated device, which may be recorded again.

    Attributes:
        timing: whether the event notes the time.
        recorded: the point in the queue of the stream that recorded it last; None before it is recorded.
        clock: see `Hazards.recorded`.
        time: with `timing`, the number of pieces of work that had begun on the machine when the event was reached.
    """

    __slots__ = ("clock", "recorded", "time", "timing")

    def __init__(self, timing: bool) -> None:
        self.timing = timing
        self.recorded: SimulatedEvent | None = None
        self.clock = np.zeros(1, np.int64)
        self.time = 0


@final
class EmulatedMachine:
    """Devices that are emulated together, with one memory, and one simulated device that decides which work runs next.

    Args:
        count: the number of devices.
        mode, seed: see `SimulatedDevice`.
        nbytes: of memory of each device; None for ``VMFLOW_CUDA_MEMORY``, or 1 GiB.
        check: whether conflicting accesses that nothing orders are errors.

    Raises:
        ValueError: for an unknown `mode`, or if ``VMFLOW_CUDA_MEMORY`` is used and is no positive integer.

    Attributes:
        drivers: of the devices.
        simulated: decides when work runs.
        memory: of all devices, and page-locked memory.
        hazards: checks the order of accesses.
        streams: by the device's index and the stream's address.
    """

    def __init__(
        self, count: int = 2, mode: str = "lazy", *, seed: int = 0, nbytes: int | None = None, check: bool = True
    ) -> None:
        self.simulated = SimulatedDevice("cuda", mode, seed=seed)
        self.hazards = Hazards(check)
        self.memory = EmulatedMemory()
        self.streams: dict[tuple[int, int], EmulatedStream] = {}
        # Guards the streams and the hazards, which several virtual machines may use from several threads.
        self.guard = threading.RLock()
        given = os.environ.get(MEMORY_VARIABLE, str(DEFAULT_BYTES))
        size = parse_positive(MEMORY_VARIABLE, given, DEFAULT_BYTES) if nbytes is None else nbytes
        self.drivers = [EmulatedDriver(self, index, size) for index in range(count)]


@final
class EmulatedDriver(Driver):
    """An emulated device; made by `EmulatedMachine`.

    Attributes:
        launches: the number of launches of kernels outside of graphs, failed ones too.
        graphs: the number of launches of graphs, failed ones too.
        captures_products: whether products can be captured: cuBLASLt's can, CuPy's cannot.
        lost: the error that has ended the device; None while it works.
    """

    target = CompileTarget("ptx", "compute_80")
    emulated = True

    def __init__(self, machine: EmulatedMachine, index: int, nbytes: int) -> None:
        self.index = index
        self.launches = 0
        self.graphs = 0
        self.captures_products = True
        self.lost: Exception | None = None
        self._machine = machine
        self._simulated = machine.simulated
        self._memory = machine.memory
        self._hazards = machine.hazards
        self._nbytes = nbytes
        self._streams = 0

    def properties(self) -> DeviceProperties:
        return DeviceProperties(f"emulated device {self.index}", 8, 0, self._nbytes, _MULTIPROCESSORS)

    def synchronize(self) -> None:
        with self._machine.guard:
            streams = [stream for (device, _), stream in self._machine.streams.items() if device == self.index]
        for stream in streams:
            self.synchronize_stream(stream)
        self._raise_if_lost()

    def step(self) -> bool:
        self._simulated.proceed()
        return True

    def lose(self, error: Exception) -> None:
        """Let the device stop working, as a GPU does after an illegal access."""
        if self.lost is None:
            self.lost = error

    # Streams and events

    def create_stream(self, priority: int = 0) -> EmulatedStream:
        with self._machine.guard:
            self._streams += 1
            name = f"stream {self._streams} of cuda:{self.index}"
            made = EmulatedStream(self._simulated.queue(name), self._hazards.add_stream(name))
            self._machine.streams[self.index, self.stream_address(made)] = made
            return made

    def stream_address(self, stream: EmulatedStream) -> int:
        return _FIRST_STREAM + stream.number

    def stream_at(self, address: int) -> EmulatedStream:
        with self._machine.guard:
            found = self._machine.streams.get((self.index, address))
            if found is None and address in _DEFAULT_STREAMS:
                found = self._machine.streams[self.index, address] = self.create_stream()
        if found is None:
            raise ValueError(f"cuda:{self.index} has no stream at {address:#x}")
        return found

    def stream_wait(self, stream: EmulatedStream, event: EmulatedEvent) -> None:
        self._raise_if_lost()
        if event.recorded is None:
            return
        with self._machine.guard:
            self._hazards.waits(stream.number, event.clock)
        stream.queue.wait(event.recorded)

    def query_stream(self, stream: EmulatedStream) -> bool:
        event = self.create_event()
        self.record(event, stream)
        return self.query(event)

    def synchronize_stream(self, stream: EmulatedStream) -> None:
        event = self.create_event()
        self.record(event, stream)
        self.synchronize_event(event)

    def create_event(self, timing: bool = False) -> EmulatedEvent:
        self._raise_if_lost()
        return EmulatedEvent(timing)

    def record(self, event: EmulatedEvent, stream: EmulatedStream) -> None:
        self._raise_if_lost()
        with self._machine.guard:
            event.clock = self._hazards.recorded(stream.number)
        if event.timing:
            stream.queue.enqueue(lambda: _note_time(event, self._simulated), _ignore)
        event.recorded = stream.queue.record()

    def query(self, event: EmulatedEvent) -> bool:
        self._raise_if_lost()
        if event.recorded is not None and not event.recorded.query():
            return False
        self._saw(event)
        return True

    def synchronize_event(self, event: EmulatedEvent) -> None:
        if event.recorded is not None:
            event.recorded.synchronize()
        self._raise_if_lost()
        self._saw(event)

    def elapsed(self, start: EmulatedEvent, end: EmulatedEvent) -> float:
        return (end.time - start.time) * _MILLISECONDS_PER_PIECE

    def _saw(self, event: EmulatedEvent) -> None:
        with self._machine.guard:
            self._hazards.waits(HOST, event.clock)

    # Memory

    def allocate(self, nbytes: int) -> DeviceArray:
        used = self._memory.used(self.index)
        if used + nbytes > self._nbytes:
            raise MemoryError(f"cuda:{self.index} has {self._nbytes - used} bytes left, and {nbytes} were asked for")
        region = self._memory.allocate(self.index, nbytes)
        return bytes_at(region.start, nbytes, Owner(self._memory, region))

    def empty_cache(self) -> None:
        """Do nothing: no blocks are kept."""

    def memory_info(self) -> tuple[int, int]:
        return self._nbytes - self._memory.used(self.index), self._nbytes

    def device_at(self, address: int) -> int:
        found = self._memory.device_at(address)
        if found is None:
            raise ValueError(f"no emulated device has memory at {address:#x}")
        return found

    def pinned(self, nbytes: int) -> np.ndarray[Any, Any]:
        return self._memory.pinned(nbytes)

    def mapped(self, array: np.ndarray[Any, Any]) -> DeviceArray:
        region = self._pinned_region(array)
        return DeviceArray(int(array.ctypes.data), array.shape, array.dtype, array.strides, None, (array, region))

    def host_access(self, array: np.ndarray[Any, Any], write: bool) -> None:
        region = self._pinned_region(array)
        start = int(array.ctypes.data) - region.start
        with self._machine.guard:
            self._hazards.begin(HOST, "the program")
            self._hazards.access(HOST, region.shadow, start, start + array.nbytes, write)

    def _pinned_region(self, array: np.ndarray[Any, Any]) -> Region:
        start = int(array.ctypes.data)
        region = self._memory.region_at(start, start + array.nbytes, "a copy")
        if not array.flags.c_contiguous:
            raise ValueError(f"a device copies contiguous memory of the host, not an array of strides {array.strides}")
        return region

    # Work

    def copy(self, out: Any, source: Any, stream: EmulatedStream, constant: bool = False) -> None:
        on_device = isinstance(out, DeviceArray) and (constant or isinstance(source, DeviceArray))
        if stream.captured is not None and not on_device:
            raise CannotCapture("a copy from or to memory of the host")
        ends = [self._operand(array) for array in (out, source)]
        if ends[0].nbytes != ends[1].nbytes or not (ends[0].contiguous and ends[1].contiguous):
            raise ValueError(f"a copy takes contiguous arrays of one size, not {ends[1]!r} to {ends[0]!r}")
        flat = [array.strided((array.nbytes,), np.dtype(np.uint8)).loose() for array in ends]

        def work(regions: Sequence[Region | None]) -> None:
            to, given = [view(array, region, "copy") for array, region in zip(flat, regions, strict=True)]
            to[...] = given

        self._hand_over(stream, _Node("copy", flat, {0}, work))

    def fill(self, out: DeviceArray, byte: int, stream: EmulatedStream) -> None:
        if not out.contiguous:
            raise ValueError(f"only a contiguous array can be filled with a byte, not {out!r}")
        flat = out.strided((out.nbytes,), np.dtype(np.uint8)).loose()
        self._hand_over(stream, _Node("fill", [flat], {0}, lambda regions: view(flat, regions[0], "fill").fill(byte)))

    def load(self, code: bytes) -> Module:
        from vmflow.streams.cuda.ptx import parse  # imported here, since few programs need the interpreter

        return parse(code.rstrip(b"\0").decode())

    def function(self, module: Module, name: str) -> PtxKernel:
        return module.kernels[name]

    def launch(
        self,
        function: PtxKernel,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        arguments: Sequence[Argument],
        writes: Sequence[int],
        stream: EmulatedStream,
        shared: int = 0,
    ) -> None:
        arrays = [argument.loose() for argument in arguments if isinstance(argument, DeviceArray)]
        written = {
            sum([isinstance(before, DeviceArray) for before in arguments[:position]])
            for position in writes
            if isinstance(arguments[position], DeviceArray)
        }
        self.launches += stream.captured is None
        values = [argument.pointer if isinstance(argument, DeviceArray) else argument for argument in arguments]
        _check_kinds(function, values)

        def work(regions: Sequence[Region | None]) -> None:
            LAUNCHES[function.name] += 1
            windows = _windows(function.name, arrays, regions, written)
            function.run(grid, block, values, windows, shared_bytes=shared)

        self._hand_over(stream, _Node(function.name, arrays, written, work))

    def call(
        self,
        name: str,
        function: Callable[..., object],
        arguments: Sequence[Any],
        results: Sequence[DeviceArray],
        stream: EmulatedStream,
        failed: Callable[[Exception], None],
    ) -> None:
        if stream.captured is not None:
            raise CannotCapture(f"{name}, which functions of CuPy compute")
        operands = [*results, *[argument for argument in arguments if isinstance(argument, DeviceArray)]]
        operands = [array.loose() for array in operands]
        places = [isinstance(argument, DeviceArray) for argument in arguments]

        def work(regions: Sequence[Region | None]) -> None:
            views = [view(array, region, name) for array, region in zip(operands, regions, strict=True)]
            outs, rest = views[: len(results)], iter(views[len(results) :])
            given = [next(rest) if place else argument for place, argument in zip(places, arguments, strict=True)]
            try:
                with np.errstate(all="ignore"):
                    function(ARRAY_MODULE, *given, *outs)
            except IllegalAddress:
                raise
            except Exception as error:
                failed(error)

        arguments = [None if place else argument for place, argument in zip(places, arguments, strict=True)]
        self._hand_over(stream, _Node(name, operands, set(range(len(results))), work))

    def multiply(
        self,
        left: DeviceArray,
        right: DeviceArray,
        out: DeviceArray,
        bias: DeviceArray | None,
        stream: EmulatedStream,
    ) -> None:
        if stream.captured is not None and not self.captures_products:
            raise CannotCapture("a product of matrices that CuPy computes")
        check_bias(bias, out)
        arrays = [array.loose() for array in (out, left, right, *([] if bias is None else [bias]))]
        tf32 = allows_tf32()

        def work(regions: Sequence[Region | None]) -> None:
            views = [view(array, region, "multiply") for array, region in zip(arrays, regions, strict=True)]
            to, one, other, *added = views
            compute_product(to, one, other, added[0] if added else None, tf32)

        self._hand_over(stream, _Node("multiply", arrays, {0}, work))

    # Graphs

    def begin_capture(self, stream: EmulatedStream) -> None:
        self._raise_if_lost()
        stream.begin_capture()

    def end_capture(self, stream: EmulatedStream) -> list[_Node]:
        return stream.end_capture()

    def launch_graph(self, graph: list[_Node], stream: EmulatedStream) -> None:
        if stream.captured is not None:
            raise CannotCapture("another graph")
        self.graphs += 1
        works = [(node.work, self._accessed(node, stream)) for node in graph]

        def run() -> None:
            for work, regions in works:
                work(regions)

        self._enqueue(stream, run)

    # Inside

    def _operand(self, array: Any) -> DeviceArray:
        return array if isinstance(array, DeviceArray) else self.mapped(array)

    def _hand_over(self, stream: EmulatedStream, node: _Node) -> None:
        """Queue a piece of work on the stream; if the stream is captured, put the work into the graph instead."""
        if stream.captured is not None:
            stream.captured.append(node)
            return
        regions = self._accessed(node, stream)
        self._enqueue(stream, lambda: node.work(regions))

    def _accessed(self, node: _Node, stream: EmulatedStream) -> list[Region | None]:
        """Check and record the stream's accesses to the node's arrays; return their blocks, None for empty arrays."""
        self._raise_if_lost()
        regions = [self._memory.region_of(array, node.name) for array in node.arrays]
        with self._machine.guard:
            self._hazards.begin(stream.number, node.name)
            for position, (array, region) in enumerate(zip(node.arrays, regions, strict=True)):
                if region is not None:
                    low, high = array.extent()
                    start, stop = low - region.start, high - region.start
                    self._hazards.access(stream.number, region.shadow, start, stop, position in node.writes)
        return regions

    def _enqueue(self, stream: EmulatedStream, work: Callable[[], None]) -> None:
        def run() -> None:
            if self.lost is not None:
                return
            try:
                work()
            except Exception as error:
                self.lose(error)

        stream.queue.enqueue(run, self.lose_by)

    def lose_by(self, error: BaseException) -> None:
        """Make the device lost: `error` is why the simulated device has not run a piece of work."""
        self.lose(error if isinstance(error, Exception) else RuntimeError(str(error)))

    def _raise_if_lost(self) -> None:
        if self.lost is not None:
            raise DeviceLost(
                f"cuda:{self.index} has stopped working and its memory is lost; the process must be started again: "
                f"{self.lost}"
            ) from self.lost


def _check_kinds(function: PtxKernel, arguments: Sequence[int | float]) -> None:
    """Raise TypeError if a floating-point parameter gets an integer: a GPU would reinterpret its bytes."""
    for parameter, argument in zip(function.parameters, arguments, strict=False):
        if parameter.type.startswith("f") and not isinstance(argument, float):
            raise TypeError(f"{function.name}: {parameter.name} is a double, and gets the integer {argument!r}")


def _windows(
    kernel: str, arrays: Sequence[DeviceArray], regions: Sequence[Region | None], writes: set[int]
) -> list[PtxRegion]:
    """Return the regions that a kernel may use: arrays from first to last byte, overlapping ones merged.

    Raises:
        IllegalAddress: if a block was freed.
    """
    spans: list[tuple[int, int, bool, Region]] = []
    for position, (array, region) in enumerate(zip(arrays, regions, strict=True)):
        if region is None:
            continue
        if region.freed:
            raise IllegalAddress(f"{kernel} uses {array!r}, whose memory was freed before it had ended")
        low, high = array.extent()
        spans.append((low, high, position in writes, region))
    spans.sort(key=lambda span: span[:2])
    merged: list[tuple[int, int, bool, Region]] = []
    for low, high, writable, region in spans:
        if merged and low < merged[-1][1]:
            before = merged.pop()
            merged.append((before[0], max(before[1], high), before[2] or writable, region))
        else:
            merged.append((low, high, writable, region))
    from vmflow.streams.cuda.ptx import Region as PtxRegion

    return [
        PtxRegion(low, region.buffer[low - region.start : high - region.start], writable, f"memory at {low:#x}")
        for low, high, writable, region in merged
    ]


def _note_time(event: EmulatedEvent, device: SimulatedDevice) -> None:
    event.time = device.ran


def _ignore(error: BaseException) -> None:
    """Ignore an error of the simulated device; because of the error, the event's time is not noted."""
