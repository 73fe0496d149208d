"""`ClockedDriver`: a simulated CUDA device that computes nothing, and whose kernels take time as on a GPU.

A kernel ends by the clock: its duration after the end of the kernel before it on its stream, or after its launch if
that was later.  So the device takes no time of the host's processor, and a benchmark measures the host's work alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, final

import numpy as np

from vmflow.streams.cuda.arrays import DeviceArray, bytes_at
from vmflow.streams.cuda.driver import Argument, CompileTarget, DeviceProperties, Driver, Handle

# The fixed seconds of each kernel, and the bytes and the floating-point operations that it processes per second.
KERNEL_SECONDS = 5e-6
BYTES_PER_SECOND = 1e12
FLOPS_PER_SECOND = 2e13


class Clock:
    """A stream or an event of the clocked device.

    Attributes:
        end: when the work of the stream, or before the event, is done, in seconds of `time.perf_counter`.
    """

    def __init__(self) -> None:
        self.end = 0.0


@final
class ClockedDriver(Driver):
    """The driver of a CUDA device that computes nothing: kernels and copies only take time, without the host's help.

    Attributes:
        launched: the number of launched kernels and copies.
        busy: the seconds that all of them take together.
    """

    index = 0
    target = CompileTarget("ptx", "compute_80")
    emulated = True

    def __init__(self) -> None:
        self.launched = 0
        self.busy = 0.0
        self._addresses = 0x7000_0000_0000

    def properties(self) -> DeviceProperties:
        return DeviceProperties("clocked device", 8, 0, 1 << 34, 100)

    def create_stream(self, priority: int = 0) -> Clock:
        return Clock()

    def create_event(self, timing: bool = False) -> Clock:
        return Clock()

    def record(self, event: Clock, stream: Clock) -> None:
        event.end = stream.end

    def query(self, event: Clock) -> bool:
        return time.perf_counter() >= event.end

    def synchronize_event(self, event: Clock) -> None:
        while (left := event.end - time.perf_counter()) > 0:
            time.sleep(left)  # sleeps, as CUDA does for events with blocking synchronization

    def stream_wait(self, stream: Clock, event: Clock) -> None:
        stream.end = max(stream.end, event.end)

    def allocate(self, nbytes: int) -> DeviceArray:
        self._addresses += -(-nbytes // 512) * 512
        return bytes_at(self._addresses - nbytes, nbytes, None)

    def pinned(self, nbytes: int) -> np.ndarray[Any, Any]:
        return np.zeros(nbytes, np.uint8)

    def mapped(self, array: np.ndarray[Any, Any]) -> DeviceArray:
        return DeviceArray(int(array.ctypes.data), array.shape, array.dtype, array.strides, None, array)

    def copy(self, out: Any, source: Any, stream: Clock, constant: bool = False) -> None:
        self._take(stream, out.nbytes / BYTES_PER_SECOND)

    def fill(self, out: DeviceArray, byte: int, stream: Clock) -> None:
        self._take(stream, out.nbytes / BYTES_PER_SECOND)

    def load(self, code: bytes) -> Handle:
        return code

    def function(self, module: Handle, name: str) -> Handle:
        return name

    def launch(
        self,
        function: Handle,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        arguments: Sequence[Argument],
        writes: Sequence[int],
        stream: Clock,
        shared: int = 0,
    ) -> None:
        self._take(stream, _bytes(arguments) / BYTES_PER_SECOND)

    def call(
        self,
        name: str,
        function: Callable[..., object],
        arguments: Sequence[Any],
        results: Sequence[DeviceArray],
        stream: Clock,
        failed: Callable[[Exception], None],
    ) -> None:
        seconds = _bytes([*arguments, *results]) / BYTES_PER_SECOND
        if "matmul" in name:
            seconds += 2 * results[0].size * arguments[0].shape[-1] / FLOPS_PER_SECOND
        self._take(stream, seconds)

    def _take(self, stream: Clock, seconds: float) -> None:
        self.launched += 1
        self.busy += seconds + KERNEL_SECONDS
        stream.end = max(stream.end, time.perf_counter()) + seconds + KERNEL_SECONDS


def _bytes(arguments: Sequence[Any]) -> int:
    return sum([argument.nbytes for argument in arguments if isinstance(argument, DeviceArray)])
