"""Memory of CUDA devices shared with other libraries, with the order of the work on both sides.

A value may still be computed when its memory changes hands.  So a hand-over names a stream: work of the borrower on
that stream runs behind all that the lender has issued.  The host waits for nothing that has been launched.

numpy makes and reads the capsules of DLPack, on arrays whose addresses lie on a device.  It never looks at an element.
"""

from __future__ import annotations

from typing import Any, Final, cast

import numpy as np

from vmflow import dtypes
from vmflow.devices import device as Device
from vmflow.instructions.blob import Array, Blob, Storage, meta
from vmflow.instructions.builder import physical_run
from vmflow.instructions.release_tensor import Lease
from vmflow.instructions.stream_events import SharedEvent
from vmflow.ops.creation.creation import memory_layout
from vmflow.streams.cuda.arrays import DeviceArray
from vmflow.streams.cuda.device import CudaEvent
from vmflow.streams.cuda.driver import Handle
from vmflow.streams.cuda.policy import CudaStreamPolicy
from vmflow.streams.cuda.registry import device_of
from vmflow.tensor_fields import new_tensor
from vmflow.tensors import Tensor
from vmflow.vm.virtual_machine import current_machine

from .streams import event_of, policy_of

# The address that stands for CUDA's default stream.
DEFAULT_STREAM: Final = 1

# In DLPack, the stream of a borrower that keeps order by itself.
_UNORDERED: Final = -1


# Lending


class _Lender:
    """The base of an array that stands for lent memory: holds the memory.

    Args:
        alias: of the tensor, which keeps the memory from being reused.
        array: the memory.
        home: the stream in whose order the memory is handed out.
        borrower: the stream on which it is used elsewhere; None if that is not known.
    """

    __slots__ = ("__array_interface__", "_alias", "_borrower", "_home")

    def __init__(self, alias: Tensor, array: DeviceArray, home: CudaStreamPolicy, borrower: Handle) -> None:
        self._alias = alias
        self._home = home
        self._borrower = borrower
        # numpy's interfaces have no word for bfloat16.
        typestr = "<u2" if alias.dtype is dtypes.bfloat16 else array.dtype.str
        self.__array_interface__ = {**array.__cuda_array_interface__, "typestr": typestr}

    def __del__(self) -> None:
        if self._borrower is not None:
            self._home.device.give_back(self._home.handle, self._borrower)


def lend(tensor: Tensor, stream: int | None) -> Array:
    """An array that stands for the memory of a tensor on a CUDA device; only its layout and address may be used.

    Args:
        tensor: whose memory is lent.
        stream: the address of the stream that the borrower is going to use it on, or a number of DLPack: -1 for no
            order, None for CUDA's default stream.

    Raises:
        BufferError: if DLPack allows no such stream.
        Exception: that of the op that failed to compute the value.
    """
    if stream == 0:
        raise BufferError("__dlpack__: stream 0 could be either of CUDA's default streams; give 1 or 2")
    array, event = _launched(tensor)
    machine = current_machine()
    home = policy_of(machine.releases.home_of(tensor._blob.storage, machine.stream(tensor.device)))
    borrower = None
    if stream != _UNORDERED:
        borrower = home.device.driver.stream_at(DEFAULT_STREAM if stream is None else stream)
        home.device.let_wait(borrower, event)
    return np.asarray(_Lender(tensor.detach(), array, home, borrower))


def array_interface(tensor: Tensor) -> dict[str, Any]:
    """See `Tensor.__cuda_array_interface__`."""
    if tensor.dtype is dtypes.bfloat16:
        raise AttributeError("__cuda_array_interface__ has no word for bfloat16; use DLPack")
    array, _ = _launched(tensor)
    return {**array.__cuda_array_interface__, "stream": stream_address(tensor.device)}


def address_of(tensor: Tensor) -> int:
    """See `Tensor.data_ptr`."""
    array, _ = _launched(tensor)
    return array.pointer if array.size else 0


def _launched(tensor: Tensor) -> tuple[DeviceArray, CudaEvent]:
    """The memory of a tensor, and an event of the current stream behind all uses of it that were issued so far."""
    machine = current_machine()
    stream = machine.stream(tensor.device)
    storage = tensor._blob.storage
    shared = SharedEvent(stream)
    instruction = physical_run(
        machine, lambda builder: builder.record_event(shared, (), machine.access(storage, stream))
    )
    machine.driver.drive()
    if shared.event is None:
        machine.wait(instruction)
    if storage.failure is not None:
        storage.failure.throw()
    storage.shared = True
    return cast(DeviceArray, tensor._blob.array()), event_of(shared)


# Borrowing


def device_at(address: int) -> Device:
    """The CUDA device whose memory has this address.

    Raises:
        DeviceUnavailable: if no CUDA device can be used here.
        ValueError: if it is the memory of none.
    """
    Device("cuda", 0).require()
    return Device("cuda", device_of(0).driver.device_at(address))


def stream_address(device: Device) -> int:
    """The address of the stream of a device on which memory is borrowed: the current one."""
    policy = policy_of(current_machine().stream(device))
    return policy.device.driver.stream_address(policy.handle)


def borrowed(array: Array, dtype: Any, device: Device, lender: int | None) -> Tensor:
    """A tensor that uses the memory of another library on the current stream.

    Args:
        array: stands for the memory, which it keeps, as that of `lend`.
        dtype: of the elements.
        device: whose memory it is.
        lender: the address of the stream whose work computes it; None if the current stream is behind it already.

    Raises:
        BufferError: if the memory cannot be used without a copy.
    """
    layout = memory_layout(array)
    if layout is None:
        raise BufferError("memory of a device that is read-only or has a negative stride cannot be shared")
    block, strides, offset = layout
    machine = current_machine()
    stream = machine.stream(device)
    if lender is not None:
        policy = policy_of(stream)
        policy.wait(policy.device.record(policy.device.driver.stream_at(lender)))
    memory = DeviceArray(block.__array_interface__["data"][0], block.shape, dtype.numpy, owner=array)
    whole = array.flags.c_contiguous and offset == 0 and block.size == array.size
    storage = Storage(None, memory.reshape(array.shape) if whole else memory)
    storage.shared = True
    blob = Blob(storage, meta(array.shape, dtype, device), None if whole else strides, offset)
    # Other streams have to wait for this one, which is behind the lender's.
    physical_run(machine, lambda builder: builder.touch(stream, (blob,)))
    return new_tensor(blob, Lease(storage))
