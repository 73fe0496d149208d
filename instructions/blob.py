"""The operands of instructions: `Storage` (the memory) and `Blob` (an array in it)."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np

from vmflow.dtypes import COMPLEX, FLOATING
from vmflow.errors import InternalError
from vmflow.native import mypyc_attr

from .instruction import ERASED, Dependence
from .size import Size as Size

if TYPE_CHECKING:
    from collections import deque

    from vmflow.devices import device as Device
    from vmflow.dtypes import dtype as DType
    from vmflow.streams.allocator import Allocation
    from vmflow.streams.stream import Stream

    from .failure import Failure
    from .instruction import Instruction

# An array of the device's array module (numpy on the host, cupy on CUDA); only that module knows its class.
Array = Any


class TensorMeta:
    """Shape, dtype and device: the properties of a tensor that are known before it is computed.

    Made by `meta`, which returns one object for equal metas as long as it remembers them; caches are keyed by identity.

    Attributes:
        sizes: the shape as a plain tuple, which numpy takes in a third of the time.
        strides: of the C-contiguous layout, in elements.
        differentiable: whether the dtype has gradients: a floating-point or complex one.
        is_complex: whether the dtype is complex.
        spread: over which ranks the tensor is spread, and how; None for a local tensor.

    Raises no errors: `meta` and ops check the arguments.

    Example:
        >>> meta = flow.random.meta((2, 3), flow.float32, flow.device("cpu"))
        >>> meta, meta.numel, meta.nbytes, meta.strides
        (float32[2, 3], 6, 24, (3, 1))
    """

    __slots__ = (
        "device",
        "differentiable",
        "dtype",
        "is_complex",
        "nbytes",
        "numel",
        "shape",
        "sizes",
        "spread",
        "strides",
    )

    def __init__(self, shape: Size, dtype: DType, device: Device) -> None:
        self.shape = shape
        self.sizes = tuple(shape)
        self.dtype = dtype
        self.device = device
        self.numel: int = prod(shape)
        self.nbytes: int = self.numel * dtype.itemsize
        self.strides = contiguous_strides(shape)
        self.differentiable: bool = dtype.category >= FLOATING
        self.is_complex: bool = dtype.category >= COMPLEX
        self.spread: Any = None

    def __repr__(self) -> str:
        return f"{self.dtype.name}[{', '.join(map(str, self.shape))}]"


_METAS: dict[tuple[tuple[int, ...], DType, Device], TensorMeta] = {}
_METAS_LIMIT = 1 << 17


def meta(shape: tuple[int, ...], dtype: DType, device: Device) -> TensorMeta:
    """The `TensorMeta` of a shape, dtype and device.  Raises no errors.

    Example:
        >>> flow.random.meta((2, 3), flow.int64, flow.device("cpu")).nbytes
        48
    """
    key = (shape, dtype, device)
    known = _METAS.get(key)
    if known is None:
        # Forgetting metas costs only repeated inference: no code relies on equal metas being one object.
        if len(_METAS) >= _METAS_LIMIT:
            _METAS.clear()
        known = _METAS[key] = TensorMeta(Size(shape), dtype, device)
    return known


def contiguous_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides, in elements, of a C-contiguous array of this shape."""
    strides = [1] * len(shape)
    for axis in range(len(shape) - 2, -1, -1):
        strides[axis] = strides[axis + 1] * max(shape[axis + 1], 1)
    return tuple(strides)


# Bytes up to which the kernel itself allocates a result on the host, which is fastest with numpy.
LET_KERNEL_ALLOCATE: Final = 1 << 16


def places_memory(meta: TensorMeta) -> bool:
    """Whether a result of this meta lies in memory of the device's allocator, not in memory that the kernel makes."""
    return meta.nbytes > LET_KERNEL_ALLOCATE or meta.device.type != "cpu"


@mypyc_attr(allow_interpreted_subclasses=True)
class Storage:
    """Memory on a device, shared by a tensor and all its views.

    Attributes:
        array: the memory as one C-contiguous array, None until it is written for the first time and after release.
        allocation: its part of the device's memory; None if an allocator does not own the memory.
        machine: the virtual machine that orders the accesses, None before the first.
        stream: the stream of the storage's device that used it last; None before the first use.
        writer: the last issued instruction that writes it, in program order.  Readers of the value wait for it.
        failure: why it holds no data, if an instruction that should have written it failed.
        fault: the same, if a device found the error after the instruction had been launched; instructions launched
            after that one pass it on.
        version: the number of in-place writes that were issued.  Autograd compares it to notice changed saved values.
        history: the number of these writes that autograd recorded; a view made before the last one has an outdated
            history.
        shared: whether code outside of vmflow may access the memory.  It waits for the issued instructions only, so
            that no instruction that reads the memory may be delayed.
        lazy: whether it stands for memory of a graph that is being built.
    """

    lazy: ClassVar[bool] = False

    __slots__ = (
        "__weakref__",
        "_dependence",
        "allocation",
        "array",
        "failure",
        "fault",
        "history",
        "machine",
        "shared",
        "stream",
        "version",
        "writer",
    )

    def __init__(self, machine: Any = None, array: Array = None, stream: Stream | None = None) -> None:
        self.array: Array = array
        self.allocation: Allocation | None = None
        self.machine = machine
        self._dependence: Dependence | None = None
        self.stream = stream
        self.writer: Instruction | None = None
        self.failure: Failure | None = None
        self.fault: Failure | None = None
        self.version = 0
        self.history = 0
        self.shared = False

    @property
    def dependence(self) -> Dependence:
        """The dependence that orders the instructions that access the storage; made for the first of them."""
        if self._dependence is None:
            new = Dependence(self.machine)
            # No call in this line, so that no other thread runs in between and makes a second dependence.
            self._dependence = self._dependence or new
        return self._dependence

    def use_on(self, stream: Stream | None) -> None:
        """Note the stream on which the storage is used from now on."""
        self.stream = stream

    def take_over(
        self, stream: Stream | None, dependence: Dependence, incoming: Instruction | None, pending: deque[Instruction]
    ) -> None:
        """Let another machine order the accesses to this storage from now on.

        Args:
            stream: of that machine, see `stream`.
            dependence: of that machine, without accesses.
            incoming: the instruction before all accesses there; None if there is nothing to wait for.
            pending: the list that this instruction joins.
        """
        # In this order, since readers without a lock read the machine first and the stream second.  Without calls
        # except for the last one; see `expect`.
        self.stream = stream
        self._dependence = dependence
        self.machine = dependence.machine
        if incoming is not None:
            self.writer = incoming
            pending.append(incoming)

    def expect(self, writer: Instruction, pending: deque[Instruction]) -> None:
        """Note the next writer of the storage, and append it to the pending instructions."""
        # Python checks for signals after calls and jumps, hence not between these two.  Otherwise Ctrl-C could leave a
        # storage waiting for an instruction that was never issued.
        self.writer = writer
        pending.append(writer)

    def allocate(self, meta: TensorMeta, instruction: Instruction) -> None:
        """Get memory for an array of this meta, for `instruction` and later ones; see `allocate_on`."""
        if self.array is None and places_memory(meta):
            owner = (instruction.name, instruction.code, instruction.last, self.dependence)
            self.allocate_on(instruction.stream, meta, owner)

    def allocate_on(self, stream: Stream, meta: TensorMeta, owner: tuple[Any, ...]) -> None:
        """Get memory for an array of this meta, to be used on this stream from now on.

        Does nothing if there is some, nor for results that kernels allocate themselves: a worker may be doing so now,
        and its result must not be replaced.

        Args:
            owner: the name of the instruction that needs it, the user's code and bytecode offset, and the dependence
                that orders the accesses; the last three may be unknown.

        Raises:
            OutOfMemory: if the device has too little memory.
        """
        if self.array is not None or not places_memory(meta):
            return
        allocator = stream.allocator
        # A stream that copies to the host has its device's allocator, which has no memory of the host.
        if allocator is not None and stream.device is meta.device:
            allocation = allocator.allocate(meta.nbytes, owner)
            self.allocation = allocation
            self.array = allocation.array(meta.sizes, meta.dtype.numpy)

    def let_go(self) -> None:
        """Drop the memory."""
        self.allocation = None
        self.array = None

    def poison(self, failure: Failure) -> None:
        """Let the storage hold a failure instead of data."""
        self.failure = failure

    def mend(self) -> None:
        """Remove the failure, after the whole storage has been written again."""
        self.failure = None

    def settle(self, fault: Failure | None, whole: bool) -> None:
        """Note that a device has ended an instruction that writes the storage.

        Args:
            fault: the error that the device has found, if any.
            whole: whether the instruction writes the whole storage, so that earlier faults do not matter any more.
        """
        if fault is not None:
            self.fault = self.failure = fault
        elif whole and self.fault is not None:
            if self.failure is self.fault:
                self.failure = None
            self.fault = None

    def admit(self) -> None:
        """Raise if no machine can use the storage; called before another machine takes it over."""

    def settled(self) -> bool:
        """Whether every write of the storage that was issued so far has finished."""
        writer = self.writer
        if writer is None:
            return True
        if writer.state == ERASED:
            self.writer = None
            return True
        return False


def fault_of(inputs: tuple[Blob, ...], failure: Failure | None) -> Failure | None:
    """Return `failure` if there is one, else the first fault of an input's storage, else None."""
    if failure is None:
        for blob in inputs:
            if blob.storage.fault is not None:
                return blob.storage.fault
    return failure


def strided(
    array: Array, shape: tuple[int, ...], numpy_dtype: np.dtype[Any], offset: int, strides: tuple[int, ...] | None
) -> Array:
    """Another view of the memory of a contiguous array; offset and strides in bytes."""
    if type(array) is not np.ndarray:
        return array.strided(shape, numpy_dtype, offset, strides)
    # As bytes, because ml_dtypes' arrays do not export a buffer and because a view may change the dtype.
    return np.ndarray(shape, numpy_dtype, array.reshape(-1).view(np.uint8), offset, strides)


def expect_writers(writes: list[tuple[Storage, Instruction]]) -> None:
    """Note the writer of each storage, which is about to be issued."""
    for storage, instruction in writes:
        storage.writer = instruction


def count_writes(storages: list[Storage]) -> None:
    """Count an in-place write of each storage."""
    for storage in storages:
        storage.version += 1


@mypyc_attr(free_list_len=1)
class Blob:
    """An array in a storage.

    Attributes:
        storage: the memory.
        meta: shape, dtype and device.
        strides: in elements, or None when the blob is the whole storage, C-contiguous and of its dtype.
        offset: of the first element, in elements of the blob's dtype.
    """

    __slots__ = ("meta", "offset", "storage", "strides")

    def __init__(
        self, storage: Storage, meta: TensorMeta, strides: tuple[int, ...] | None = None, offset: int = 0
    ) -> None:
        self.storage = storage
        self.meta = meta
        self.strides = strides
        self.offset = offset

    def array(self) -> Array:
        """The blob's array, which shares memory with the storage.  Only for a running instruction."""
        base = self.storage.array
        if self.strides is None:
            return base
        meta = self.meta
        if meta.numel == 0:
            if base is None or type(base) is np.ndarray:
                return np.empty(meta.sizes, meta.dtype.numpy)
            return base.strided(meta.sizes, meta.dtype.numpy)
        if self.strides == meta.strides and base.size == meta.numel and base.dtype == meta.dtype.numpy:
            return base.reshape(meta.sizes)
        itemsize = meta.dtype.itemsize
        strides = tuple([stride * itemsize for stride in self.strides])
        return strided(base, meta.sizes, meta.dtype.numpy, self.offset * itemsize, strides)

    def destination(self) -> Array:
        """The blob's array, for writing; its memory is allocated if the storage has none yet.

        If a failure has left the storage without memory, a part of it gets memory of its own: the value is lost, as is
        the rest of the storage.
        """
        storage = self.storage
        if storage.array is None:
            array = np.empty(self.meta.shape, self.meta.dtype.numpy)
            if self.strides is not None:
                if storage.failure is None:
                    raise InternalError(f"{self!r} is a part of a storage that was never written as a whole")
                return array
            storage.array = array
        return self.array()

    def __repr__(self) -> str:
        return f"<Blob {self.meta!r}>"


def access(machine: Any, storage: Storage, stream: Stream) -> Dependence:
    """`VirtualMachine.access`, without a call if the storage was last used on the same stream."""
    # In this order, since `Storage.take_over` changes the stream first.
    dependence = storage.dependence
    if storage.stream is stream:
        return dependence
    new: Dependence = machine.access(storage, stream)
    return new
