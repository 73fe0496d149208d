"""`Driver`: the interface through which the virtual machine and the kernels use one CUDA device.

Two classes implement it: `CupyDriver` for a GPU, and `EmulatedDriver`, which computes on the CPU instead.  Order,
lifetimes and failures are the business of the callers.

Only `step` and the ``synchronize`` methods are meant to wait for the device.  Work that is handed to a stream runs
behind all work that was handed to that stream before.  Streams, events, modules and functions are opaque handles.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from .arrays import DeviceArray

Handle: TypeAlias = Any

# A Python number or an array, as an argument of a kernel.
Argument: TypeAlias = "int | float | DeviceArray"


class DeviceProperties(NamedTuple):
    """The properties of a device that programs ask for; the names are those of PyTorch.

    Attributes:
        name: of the model.
        major, minor: the compute capability.
        total_memory: bytes.
        multi_processor_count: the number of multiprocessors.
        warp_size: the number of threads that run in lockstep.
    """

    name: str
    major: int
    minor: int
    total_memory: int
    multi_processor_count: int
    warp_size: int = 32


class CompileTarget(NamedTuple):
    """The form of code that a driver loads.

    Attributes:
        kind: "ptx" or "cubin".
        architecture: for NVRTC, for instance "compute_80" or "sm_90".
    """

    kind: Literal["ptx", "cubin"]
    architecture: str


class CannotCapture(RuntimeError):
    """Work was handed to a stream that is captured, and a graph cannot hold it."""


class Driver:
    """One CUDA device.

    Any method may raise `DeviceLost` if the device has stopped working.  An emulated device raises `ValueError` for
    arrays that do not fit, and `DeviceDeadlock` in the ``synchronize`` methods if the awaited work can never run.

    Attributes:
        index: the number of the device.
        target: the form of code that `load` takes.
        emulated: whether it runs on the CPU.
    """

    index: int
    target: CompileTarget
    emulated: bool

    def properties(self) -> DeviceProperties:
        """The properties of the device."""
        raise NotImplementedError

    def synchronize(self) -> None:
        """Block until all work on the device has ended."""
        raise NotImplementedError

    # Streams

    def create_stream(self, priority: int = 0) -> Handle:
        """A new stream, which waits for no other; a GPU prefers work on streams with lower numbers as `priority`."""
        raise NotImplementedError

    def stream_address(self, stream: Handle) -> int:
        """The ``cudaStream_t`` of a stream, for other libraries."""
        raise NotImplementedError

    def stream_at(self, address: int) -> Handle:
        """The stream of a ``cudaStream_t``, mostly another library's; 1 and 2 stand for CUDA's default streams.

        Raises:
            ValueError: if an emulated device has no such stream.
        """
        raise NotImplementedError

    def stream_wait(self, stream: Handle, event: Handle) -> None:
        """Run work that is handed to `stream` from now on behind the last `record` of `event`, of any device."""
        raise NotImplementedError

    def query_stream(self, stream: Handle) -> bool:
        """Whether all work that the stream has been handed so far has ended."""
        raise NotImplementedError

    def synchronize_stream(self, stream: Handle) -> None:
        """Block until all work on the stream has ended."""
        raise NotImplementedError

    # Events

    def create_event(self, timing: bool = False) -> Handle:
        """A new event, which counts as reached until it is recorded; `timing` makes it note the time."""
        raise NotImplementedError

    def record(self, event: Handle, stream: Handle) -> None:
        """Let the event be reached when all work that the stream has been handed so far has ended."""
        raise NotImplementedError

    def query(self, event: Handle) -> bool:
        """Whether the event has been reached."""
        raise NotImplementedError

    def synchronize_event(self, event: Handle) -> None:
        """Block until the event has been reached."""
        raise NotImplementedError

    def elapsed(self, start: Handle, end: Handle) -> float:
        """Milliseconds between two events with timing, both of which have been reached."""
        raise NotImplementedError

    def step(self) -> bool:
        """On an emulated device, run a piece of work, if any is left, and return True; on a GPU, return False.

        Raises:
            DeviceDeadlock: if an emulated device has work left, and none of it can ever run.
        """
        return False

    # Memory

    def allocate(self, nbytes: int) -> DeviceArray:
        """A block of memory as an array of bytes; it goes back to the device's pool when nothing refers to it.

        Raises:
            MemoryError: if the device has no more.
        """
        raise NotImplementedError

    def empty_cache(self) -> None:
        """Give the unused blocks of the pool back to the device."""
        raise NotImplementedError

    def memory_info(self) -> tuple[int, int]:
        """The free bytes of the device, and all its bytes."""
        raise NotImplementedError

    def device_at(self, address: int) -> int:
        """The index of the device whose memory has this address.

        Raises:
            ValueError: if no device has memory there.
        """
        raise NotImplementedError

    def pinned(self, nbytes: int) -> np.ndarray[Any, Any]:
        """Page-locked memory of the host as an array of bytes, for copies that do not block the host.

        Raises:
            MemoryError: if the host has no more.
        """
        raise NotImplementedError

    def mapped(self, array: np.ndarray[Any, Any]) -> DeviceArray:
        """Page-locked memory of the host, as an array that kernels of the device can use."""
        raise NotImplementedError

    def host_access(self, array: np.ndarray[Any, Any], write: bool) -> None:
        """Called before the host reads or writes page-locked memory, so that an emulated device can check the order."""

    # Work

    def copy(self, out: Any, source: Any, stream: Handle, constant: bool = False) -> None:
        """Copy bytes between two contiguous arrays of one size: of this device, of another one, or page-locked.

        The caller keeps both arrays alive until the copy has ended.

        Args:
            out, source: the arrays.
            stream: the stream that copies.
            constant: whether the source never changes.  A graph can hold copies from a device to a device,
                and of constants to a device.
        """
        raise NotImplementedError

    def fill(self, out: DeviceArray, byte: int, stream: Handle) -> None:
        """Set all bytes of a contiguous array to `byte`."""
        raise NotImplementedError

    def load(self, code: bytes) -> Handle:
        """A module of compiled code, in the form of `target`."""
        raise NotImplementedError

    def function(self, module: Handle, name: str) -> Handle:
        """A kernel of a module."""
        raise NotImplementedError

    def launch(
        self,
        function: Handle,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        arguments: Sequence[Argument],
        writes: Sequence[int],
        stream: Handle,
        shared: int = 0,
    ) -> None:
        """Hand a kernel to a stream.

        Args:
            function: a result of `function`.
            grid: the numbers of blocks.
            block: the numbers of threads of a block.
            arguments: in the order of the kernel's parameters.
            writes: the positions, in `arguments`, of the arrays that the kernel writes; it only reads the others.
            stream: the stream.
            shared: bytes of dynamic shared memory of a block.
        """
        raise NotImplementedError

    def call(
        self,
        name: str,
        function: Callable[..., object],
        arguments: Sequence[Any],
        results: Sequence[DeviceArray],
        stream: Handle,
        failed: Callable[[Exception], None],
    ) -> None:
        """Compute by functions of the device's array module: ``function(module, *arguments, *results)``.

        The arrays become arrays of that module; other arguments stay as they are.  The function writes the results and
        reads the arguments.

        Args:
            name: of the op, for people.
            failed: called with an error of the function on an emulated device, where the function may run later; the
                driver of a GPU raises the error.
        """
        raise NotImplementedError

    def multiply(
        self,
        left: DeviceArray,
        right: DeviceArray,
        out: DeviceArray,
        bias: DeviceArray | None,
        stream: Handle,
    ) -> None:
        """Compute products of matrices: ``out = left @ right + bias``, with at least one number in each sum.

        Half precision is multiplied exactly, summed up in float32 and rounded once.  Factors in float32 and complex64
        may be rounded to TensorFloat32 first if `precision` allows that now.

        Args:
            left, right: of shape (n, k) and (k, m), or (b, n, k) and (b, k, m) for b products; of one dtype, which is
                floating-point or complex.  Along one of the last two dimensions, elements lie side by side.
            out: (n, m) or (b, n, m), of the factors' dtype, or of float32 if that is of half precision.
            bias: (m,), contiguous, of the dtype of `out`, real, and at a multiple of 16 bytes; None for none.  With
                one, the elements of rows of `out` lie side by side.
            stream: the stream that computes.

        Raises:
            CannotCapture: while the stream is captured, if no graph can hold this product.
            RuntimeError: if the library fails.
        """
        raise NotImplementedError

    # Graphs

    def begin_capture(self, stream: Handle) -> None:
        """From now on, put kernels, fills, products and copies for `stream` into a graph, without running them.

        Copies and products that no graph can hold, `call` and `launch_graph` raise `CannotCapture`.
        """
        raise NotImplementedError

    def end_capture(self, stream: Handle) -> Handle:
        """The graph of all work that was captured; to be called also if capturing has failed.

        The memory that the work uses has to be kept for as long as the graph is launched.
        """
        raise NotImplementedError

    def launch_graph(self, graph: Handle, stream: Handle) -> None:
        """Run all work of a graph, behind all work that the stream has been handed before."""
        raise NotImplementedError
