"""The operands of instructions: `Storage` (the memory) and `Blob` (an array in it)."""

from __future__ import annotations

import sys
from math import prod
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np

from vmflow.dtypes import COMPLEX, FLOATING
from vmflow.errors import InternalError
from vmflow.forking import lock_held_while_forking
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

# The type of a device's arrays: `numpy.ndarray` on the CPU and simulated devices, another class on other devices.
Array = Any


class TensorMeta:
    """Shape, dtype and device: the properties of a tensor that are known before it is computed.

    The meta of a local tensor is made by `meta`, which returns one object for equal arguments as long as that object is
    in use.  So metas are compared by identity, and caches have them as keys.  Raises no errors: callers check the
    arguments.

    Attributes:
        sizes: the shape as a plain tuple.
        strides: the strides of a C-contiguous tensor of this shape, in elements.
        differentiable: whether the dtype has gradients: a floating-point or complex one.
        is_complex: whether the dtype is complex.
        spread: over which ranks the tensor is spread, and how; None for a local tensor.

    Example:
        >>> from vmflow.instructions.blob import meta
        >>> made = meta((2, 3), flow.float32, flow.device("cpu"))
        >>> made, made.numel, made.nbytes, made.strides
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


class MetaTable:
    """Metas by their properties, with one object for equal properties.

    Attributes:
        metas: the metas by their keys, tuples of properties; read without the lock.

    Args:
        limit: the number of metas at which those that no other object refers to are dropped; it grows if many remain.
    """

    def __init__(self, limit: int) -> None:
        self.metas: dict[Any, TensorMeta] = {}
        self._limit = limit
        self._lock: Any = lock_held_while_forking()

    def add(self, key: Any, made: TensorMeta) -> TensorMeta:
        """Return the table's meta for this key; if there is none yet, add and return `made`."""
        with self._lock:
            known = self.metas.get(key)
            if known is not None:
                return known
            if len(self.metas) >= self._limit:
                self._drop_unused()
            self.metas[key] = made
        return made

    def _drop_unused(self) -> None:
        # Compiled objects take no weak references.  A meta that only the table refers to has, once it is taken out, as
        # many references as an object that only a variable refers to.
        known: Any = object()
        unused = sys.getrefcount(known)
        for key in list(self.metas):
            known = self.metas.pop(key)
            if sys.getrefcount(known) > unused:
                self.metas[key] = known
        # If most are in use, the next search is put off, or each new meta would cost a search.
        self._limit = max(self._limit, 2 * len(self.metas))


_METAS: Final = MetaTable(1 << 17)


def meta(shape: tuple[int, ...], dtype: DType, device: Device) -> TensorMeta:
    """Return the `TensorMeta` of a shape, dtype and device, from a table.  Does not check the arguments.

    Example:
        >>> from vmflow.instructions.blob import meta
        >>> meta((2, 3), flow.int64, flow.device("cpu")).nbytes
        48
    """
    key = (shape, dtype, device)
    known = _METAS.metas.get(key)
    return _METAS.add(key, TensorMeta(Size(shape), dtype, device)) if known is None else known


def contiguous_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the strides, in elements, of a C-contiguous array of `shape`."""
    strides = [1] * len(shape)
    for axis in range(len(shape) - 2, -1, -1):
        strides[axis] = strides[axis + 1] * max(shape[axis + 1], 1)
    return tuple(strides)


# The largest result, in bytes, that a kernel on the host allocates itself, as a new numpy array: for small arrays that
# is faster than the host's allocator.
LET_KERNEL_ALLOCATE: Final = 1 << 16


def places_memory(meta: TensorMeta) -> bool:
    """Whether the device's allocator provides the memory of a result of this meta; else numpy does, as the op runs."""
    return meta.nbytes > LET_KERNEL_ALLOCATE or meta.device.type != "cpu"


@mypyc_attr(allow_interpreted_subclasses=True)
class Storage:
    """Memory on a device, shared by a tensor and all its views.

    Attributes:
        array: the memory as one C-contiguous array, None until the memory is allocated and after release.
        allocation: the allocator's block that holds the memory; None if no allocator owns the memory.
        machine: the virtual machine that orders the accesses; may be None before the first access.
        stream: the stream that used the storage last, in program order, among the streams of one device: the device
            that used the storage first, mostly the storage's own.  May be None before the first use.
        writer: the last instruction issued to write the storage, for which readers wait; it may have ended.  Or None.
        failure: the failure of the instruction that should have written the storage, held instead of data; or None.
        fault: a failure that a device found after it had been given the writing instruction; or None.  Instructions
            that read the storage and were launched meanwhile fail with it, too.
        version: the number of in-place writes that were issued.  Autograd compares it to notice changed saved values.
        history: the number of in-place writes that autograd recorded; a view made before the last of them has an
            outdated history.
        shared: whether code outside of vmflow may access the memory.  Then no instruction that reads the memory waits
            for later ones to be fused with.
        lazy: whether the storage belongs to a symbolic tensor of a graph that is being built.
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
        """The `Dependence` that orders the instructions that access this storage, made when it is first asked for."""
        if self._dependence is None:
            new = Dependence(self.machine)
            # This line calls no function, so that Python does not switch to a thread that makes a second Dependence.
            self._dependence = self._dependence or new
        return self._dependence

    def use_on(self, stream: Stream | None) -> None:
        """Note that the next instruction that accesses the storage runs on `stream`."""
        self.stream = stream

    def take_over(
        self,
        stream: Stream | None,
        dependence: Dependence,
        incoming: Instruction | None,
        pending: deque[Instruction],
        holds_value: bool = False,
    ) -> None:
        """Let another virtual machine order the accesses to this storage from now on.

        Args:
            stream: the new machine's stream for the next accesses; the new value of the attribute `stream`.
            dependence: a new dependence of that machine, without accesses.
            incoming: an instruction of that machine that ends when the old machine's accesses have ended; None if
                there are no accesses to wait for.
            pending: the new machine's list of issued instructions, to which `incoming` is appended.
            holds_value: whether all issued writes have ended, so that readers need not wait for `incoming`.
        """
        # The stream is set before the machine, since threads without a lock read the machine first.  No function is
        # called before the append, so that Ctrl-C cannot come in between; see `expect`.
        self.stream = stream
        self._dependence = dependence
        self.machine = dependence.machine
        if incoming is not None:
            if not holds_value:
                self.writer = incoming
            pending.append(incoming)

    def expect(self, writer: Instruction, pending: deque[Instruction]) -> None:
        """Note `writer` as the instruction that writes the storage next, and append `writer` to `pending`."""
        # Python checks for signals after calls and jumps, hence not between these two lines.  Otherwise Ctrl-C could
        # leave a storage waiting for an instruction that was never issued.
        self.writer = writer
        pending.append(writer)

    def allocate(self, meta: TensorMeta, instruction: Instruction) -> None:
        """Allocate the storage's memory for an array of `meta`, on the stream of `instruction`; see `allocate_on`."""
        if self.array is None and places_memory(meta):
            owner = (instruction.name, instruction.code, instruction.last, self.dependence)
            self.allocate_on(instruction.stream, meta, owner)

    def allocate_on(self, stream: Stream, meta: TensorMeta, owner: tuple[Any, ...]) -> None:
        """Allocate the storage's memory for an array of `meta`, with the allocator of `stream`, where it is used next.

        Does nothing if the storage has memory or `stream` has no allocator of the meta's device, nor for results that
        kernels allocate themselves.

        Args:
            owner: for reports of memory: the name of the instruction that needs the memory, the user's code and
                bytecode offset, and the dependence that orders the accesses; the last three may be unknown.

        Raises:
            OutOfMemory: if the allocator finds too little memory.
        """
        if self.array is not None or not places_memory(meta):
            return
        allocator = stream.allocator
        # A stream that copies from a device to the host has the device's allocator, which has no host memory: the
        # kernel allocates the result.
        if allocator is not None and stream.device is meta.device:
            allocation = allocator.allocate(meta.nbytes, owner)
            self.allocation = allocation
            self.array = allocation.array(meta.sizes, meta.dtype.numpy)

    def let_go(self) -> None:
        """Drop the memory."""
        self.allocation = None
        self.array = None

    def poison(self, failure: Failure) -> None:
        """Let the storage hold `failure` instead of data, for its readers."""
        self.failure = failure

    def mend(self) -> None:
        """Forget the storage's failure: the whole storage is being written, was written, or has been released."""
        self.failure = None

    def settle(self, fault: Failure | None, whole: bool) -> None:
        """Note that a device has ended an instruction that writes the storage, successfully or not.

        Args:
            fault: the error that the device has found, here or in an instruction whose result this one reads; or None.
            whole: whether the instruction writes the whole storage, so that earlier faults do not matter any more.
        """
        if fault is not None:
            self.fault = self.failure = fault
        elif whole and self.fault is not None:
            if self.failure is self.fault:
                self.failure = None
            self.fault = None

    def admit(self) -> None:
        """Raise, in subclasses, if the storage stands for no memory of a machine; called before `take_over`."""

    def settled(self) -> bool:
        """Whether every instruction issued so far that writes the storage has ended."""
        writer = self.writer
        if writer is None:
            return True
        if writer.state == ERASED:
            self.writer = None
            return True
        return False


def fault_of(inputs: tuple[Blob, ...], failure: Failure | None) -> Failure | None:
    """Return an instruction's `failure`, or else the first `Storage.fault` among the storages of `inputs`; or None."""
    if failure is None:
        for blob in inputs:
            if blob.storage.fault is not None:
                return blob.storage.fault
    return failure


def strided(
    array: Array, shape: tuple[int, ...], numpy_dtype: np.dtype[Any], offset: int, strides: tuple[int, ...] | None
) -> Array:
    """Return a view of a contiguous array's memory with another shape and dtype.

    Offset and strides are in bytes; None stands for C-contiguous strides.
    """
    if type(array) is not np.ndarray:
        return array.strided(shape, numpy_dtype, offset, strides)
    # The buffer is viewed as bytes, because arrays of ml_dtypes export no buffer and a view may change the dtype.
    return np.ndarray(shape, numpy_dtype, array.reshape(-1).view(np.uint8), offset, strides)


def expect_writers(writes: list[tuple[Storage, Instruction]]) -> None:
    """Set `Storage.writer` of each storage to the instruction that will write it, which is about to be issued."""
    for storage, instruction in writes:
        storage.writer = instruction


def count_writes(storages: list[Storage]) -> None:
    """Increment `Storage.version` of each storage, for an in-place write."""
    for storage in storages:
        storage.version += 1


@mypyc_attr(free_list_len=1)
class Blob:
    """An operand of an instruction: a whole `Storage` or a strided view of it.

    Attributes:
        storage: the memory.
        meta: shape, dtype and device.
        strides: strides in elements, or None when the blob is the whole storage, C-contiguous, of the storage's dtype.
        offset: where the first element lies in the storage, in elements of the blob's dtype.
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
        """Return `Storage.array`, which may be None, or a view of it; for a view without elements, an empty array."""
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
        """Return the array for an instruction to write into, allocated if the storage has no memory yet.

        If a failed instruction has left the storage without memory, a blob that is a view of it gets a temporary
        array: the value written there is lost, as is the rest of the storage.  Without such a failure, a view of a
        storage without memory raises InternalError.
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
    """Return the dependence of a storage for an access on `stream`, as `VirtualMachine.access` does.

    The machine is not called if the storage was last used on `stream`.
    """
    # The dependence is read before the stream, since `Storage.take_over` changes the stream first.
    dependence = storage.dependence
    if storage.stream is stream:
        return dependence
    new: Dependence = machine.access(storage, stream)
    return new
