"""`CupyDriver`: a GPU by CuPy's bindings of CUDA.

Most methods are a call or two of CUDA.
"""

from __future__ import annotations

import ctypes
import struct
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple, final

import cupy
import cupyx
import numpy as np
from cupy.cuda import driver as cuda_driver, runtime

from vmflow.errors import DeviceLost

from .arrays import DeviceArray, bytes_at
from .cublaslt import Products, workspace_size
from .driver import Argument, CannotCapture, CompileTarget, DeviceProperties, Driver

# Statuses of an event or a stream.
_REACHED: Final = 0
_NOT_REACHED: Final = 600

# CUDA's number of the error "out of memory".
_NO_MEMORY: Final = 2

_FLOAT32: Final = np.dtype(np.float32)
# The bytes of a number of half precision.
_HALF: Final = 2

# Errors taken to mean that the context is unusable: illegal address, misaligned address, illegal instruction, launch
# failure and the like (700, 702, 710, 714 to 721), an uncorrectable fault of the memory (214), unknown errors (999).
_STICKY: Final = frozenset({214, 700, 702, 710, *range(714, 721), 721, 999})


def open_devices() -> list[Driver]:
    """The drivers of all GPUs that CUDA shows."""
    return [CupyDriver(index) for index in range(runtime.getDeviceCount())]


@final
class CupyDriver(Driver):
    """A GPU by CuPy's bindings.

    Args:
        index: of the device.
    """

    emulated = False

    def __init__(self, index: int) -> None:
        self.index = index
        found = runtime.getDeviceProperties(index)
        self._properties = DeviceProperties(
            found["name"].decode(),
            found["major"],
            found["minor"],
            found["totalGlobalMem"],
            found["multiProcessorCount"],
        )
        self.target = CompileTarget("cubin", f"sm_{found['major']}{found['minor']}")
        self._pool = cupy.get_default_memory_pool()
        self._products = Products(workspace_size(found["major"]), self.allocate)
        # The addresses of streams that are captured.
        self._captured: set[int] = set()

    def properties(self) -> DeviceProperties:
        return self._properties

    def synchronize(self) -> None:
        with self._on_device():
            runtime.deviceSynchronize()

    # Streams

    def create_stream(self, priority: int = 0) -> Any:
        with self._on_device():
            return cupy.cuda.Stream(non_blocking=True, priority=priority)

    def stream_address(self, stream: Any) -> int:
        return int(stream.ptr)

    def stream_at(self, address: int) -> Any:
        with self._on_device():
            return cupy.cuda.Stream.from_external(_External(address))

    def stream_wait(self, stream: Any, event: Any) -> None:
        with self._on_device():
            runtime.streamWaitEvent(stream.ptr, event.ptr)

    def query_stream(self, stream: Any) -> bool:
        with self._on_device():
            return self._is_reached(runtime.streamQuery(stream.ptr))

    def synchronize_stream(self, stream: Any) -> None:
        with self._on_device():
            runtime.streamSynchronize(stream.ptr)

    # Events

    def create_event(self, timing: bool = False) -> Any:
        with self._on_device():
            return cupy.cuda.Event(block=True, disable_timing=not timing)

    def record(self, event: Any, stream: Any) -> None:
        with self._on_device():
            runtime.eventRecord(event.ptr, stream.ptr)

    def query(self, event: Any) -> bool:
        return self._is_reached(runtime.eventQuery(event.ptr))

    def synchronize_event(self, event: Any) -> None:
        with self._on_device():
            runtime.eventSynchronize(event.ptr)

    def elapsed(self, start: Any, end: Any) -> float:
        with self._on_device():
            return float(runtime.eventElapsedTime(start.ptr, end.ptr))

    # Memory

    def allocate(self, nbytes: int) -> DeviceArray:
        with self._on_device():
            memory = self._pool.malloc(nbytes)
        return bytes_at(int(memory.ptr), nbytes, memory)

    def empty_cache(self) -> None:
        with self._on_device():
            self._pool.free_all_blocks()

    def memory_info(self) -> tuple[int, int]:
        with self._on_device():
            free, total = runtime.memGetInfo()
        return int(free), int(total)

    def device_at(self, address: int) -> int:
        with self._on_device():
            found = runtime.pointerGetAttributes(address)
        if not found.devicePointer:
            raise ValueError(f"no CUDA device has memory at {address:#x}")
        return int(found.device)

    def pinned(self, nbytes: int) -> np.ndarray[Any, Any]:
        with self._on_device():
            try:
                memory = cupy.cuda.PinnedMemory(nbytes)  # from no pool: the caller keeps memory that it wants to reuse
            except runtime.CUDARuntimeError as error:
                if error.status == _NO_MEMORY:
                    raise MemoryError(f"the host has no {nbytes} bytes to lock: {error}") from error
                raise
        return np.ndarray((nbytes,), np.uint8, cupy.cuda.PinnedMemoryPointer(memory, 0))

    def mapped(self, array: np.ndarray[Any, Any]) -> DeviceArray:
        # With unified addressing, kernels reach page-locked memory at the host's own address.
        return DeviceArray(int(array.ctypes.data), array.shape, array.dtype, array.strides, None, array)

    # Work

    def copy(self, out: Any, source: Any, stream: Any, constant: bool = False) -> None:
        if not (isinstance(out, DeviceArray) and (constant or isinstance(source, DeviceArray))):
            self._refuse_capture(stream, "a copy from or to memory of the host")
        with self._on_device():
            runtime.memcpyAsync(_address(out), _address(source), out.nbytes, runtime.memcpyDefault, stream.ptr)

    def fill(self, out: DeviceArray, byte: int, stream: Any) -> None:
        with self._on_device():
            runtime.memsetAsync(out.pointer, byte, out.nbytes, stream.ptr)

    def load(self, code: bytes) -> Any:
        with self._on_device():
            return cuda_driver.moduleLoadData(code)

    def function(self, module: Any, name: str) -> Any:
        with self._on_device():
            return cuda_driver.moduleGetFunction(module, name)

    def launch(
        self,
        function: Any,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        arguments: Sequence[Argument],
        writes: Sequence[int],
        stream: Any,
        shared: int = 0,
    ) -> None:
        values, pointers = _packed(arguments)
        with self._on_device():
            cuda_driver.launchKernel(function, *grid, *block, shared, stream.ptr, pointers.buffer_info()[0], 0)
        del values  # CUDA has copied the arguments

    def call(
        self,
        name: str,
        function: Callable[..., object],
        arguments: Sequence[Any],
        results: Sequence[DeviceArray],
        stream: Any,
        failed: Callable[[Exception], None],
    ) -> None:
        self._refuse_capture(stream, f"{name}, which functions of CuPy compute")
        given = [self._native(argument) for argument in arguments]
        outs = [self._native(result) for result in results]
        # By default, CuPy ignores that a matrix cannot be factored, and the results are meaningless numbers.
        with self._on_device(), stream, cupyx.errstate(linalg="raise"):
            function(cupy, *given, *outs)

    def multiply(
        self, left: DeviceArray, right: DeviceArray, out: DeviceArray, bias: DeviceArray | None, stream: Any
    ) -> None:
        with self._on_device():
            refusal = self._products.multiply(left, right, out, bias, int(stream.ptr))
        if refusal is None:
            return
        self._refuse_capture(stream, f"a product of matrices that CuPy computes, because {refusal}")
        with self._on_device(), stream:
            one, other, to = [self._native(array) for array in (left, right, out)]
            # Half precision with a bias is summed up in float32, or it would be rounded before the bias and behind it.
            computed = _FLOAT32 if bias is not None and out.itemsize == _HALF else out.dtype
            if left.dtype != computed:
                one, other = one.astype(computed), other.astype(computed)
            product = to if computed == out.dtype else cupy.empty(out.shape, computed)
            cupy.matmul(one, other, out=product)
            if bias is not None:
                cupy.add(product, self._native(bias), out=to)

    # Graphs

    def begin_capture(self, stream: Any) -> None:
        with self._on_device():
            self._products.begin_capture(int(stream.ptr))
            stream.begin_capture()
        self._captured.add(int(stream.ptr))

    def end_capture(self, stream: Any) -> Any:
        self._captured.discard(int(stream.ptr))
        workspace = self._products.end_capture(int(stream.ptr))
        with self._on_device():
            return _Graph(stream.end_capture(), workspace)

    def launch_graph(self, graph: Any, stream: Any) -> None:
        self._refuse_capture(stream, "another graph")
        with self._on_device():
            graph.graph.launch(stream)

    # Inside

    def _refuse_capture(self, stream: Any, work: str) -> None:
        """Raise `CannotCapture` if the stream is captured, for work that a graph cannot hold."""
        if int(stream.ptr) in self._captured:
            raise CannotCapture(work)

    def _native(self, array: Any) -> Any:
        """A `DeviceArray` as CuPy's array; other objects as they are."""
        if not isinstance(array, DeviceArray):
            return array
        if array.native is not None:
            return array.native
        root = array.root
        memory = cupy.cuda.UnownedMemory(root.pointer, max(root.nbytes, 1), root, self.index)
        at = cupy.cuda.MemoryPointer(memory, array.pointer - root.pointer)
        return array.remember(cupy.ndarray(array.shape, array.dtype, at, strides=array.strides))

    @contextmanager
    def _on_device(self) -> Iterator[None]:
        """Make this the thread's current device; errors after which the device is unusable become `DeviceLost`."""
        runtime.setDevice(self.index)
        try:
            yield
        except (runtime.CUDARuntimeError, cuda_driver.CUDADriverError) as error:
            if error.status in _STICKY:
                raise self._lost(error) from error
            raise

    def _is_reached(self, status: int) -> bool:
        """Whether a status of an event or a stream says that all work before has ended; raises DeviceLost on errors."""
        if status not in (_REACHED, _NOT_REACHED):
            raise self._lost(runtime.CUDARuntimeError(status))
        return bool(status == _REACHED)

    def _lost(self, error: Exception) -> DeviceLost:
        return DeviceLost(
            f"cuda:{self.index} has stopped working and its memory is lost; the process must be started again: {error}"
        )


class _Graph(NamedTuple):
    """A graph, and the workspace of its matrix products, or None."""

    graph: Any
    workspace: DeviceArray | None


@final
class _External:
    """A stream of another library, by CUDA's stream protocol."""

    def __init__(self, address: int) -> None:
        self._address = address

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self._address


def _address(array: Any) -> int:
    return array.pointer if isinstance(array, DeviceArray) else int(array.ctypes.data)


def _packed(arguments: Sequence[Argument]) -> tuple[Any, array[int]]:
    """The arguments of a kernel in eight bytes each, and the addresses of these.

    The kernels of vmflow take 64-bit integers, doubles and pointers only.
    """
    values = [argument.pointer if isinstance(argument, DeviceArray) else argument for argument in arguments]
    kinds = "".join(["d" if isinstance(value, float) else "q" for value in values])
    packed = ctypes.create_string_buffer(struct.pack(kinds, *values), max(8 * len(values), 1))
    start = ctypes.addressof(packed)
    return packed, array("Q", range(start, start + 8 * len(values), 8))
