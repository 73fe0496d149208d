"""Memory of CUDA devices shared with other libraries, with the work of both libraries ordered on streams.

A value need not be computed when its memory is lent.  With DLPack, the borrower names a stream: the borrower's work on
that stream runs after the lender's earlier work on the memory, unless the borrower asks for no order.  With
``__cuda_array_interface__``, the lender names its stream, and the borrower orders its own work.  The host waits until
the lender's work is launched, and sometimes until that work ends.

numpy makes and reads the capsules of DLPack, for arrays with addresses on a device.  It never reads an element.
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

from .streams import current_stream, event_of, policy_of

# The number that stands for CUDA's (legacy) default stream in DLPack and among stream addresses.
DEFAULT_STREAM: Final = 1

# DLPack's stream number by which a borrower asks for no ordering.
_UNORDERED: Final = -1


# Lending


class _Lender:
    """The base object of a numpy array that describes lent device memory: keeps the memory alive.

    When the borrower drops the array, vmflow's stream `home` is ordered after the stream `borrower`, if there is one.

    Args:
        alias: a tensor on the lent memory, which keeps it from being reused.
        array: the device array of that memory.
        home: vmflow's stream that reuses the memory once it is released.
        borrower: the stream on which the other library uses the memory; None if the library asked for no order.
    """

    __slots__ = ("__array_interface__", "_alias", "_borrower", "_home")

    def __init__(self, alias: Tensor, array: DeviceArray, home: CudaStreamPolicy, borrower: Handle) -> None:
        self._alias = alias
        self._home = home
        self._borrower = borrower
        # __array_interface__ has no type code for bfloat16, so its bits pass as 16-bit integers.
        typestr = "<u2" if alias.dtype is dtypes.bfloat16 else array.dtype.str
        self.__array_interface__ = {**array.__cuda_array_interface__, "typestr": typestr}

    def __del__(self) -> None:
        if self._borrower is not None:
            self._home.device.give_back(self._home.handle, self._borrower)


def lend(tensor: Tensor, stream: int | None) -> Array:
    """Describe the memory of a tensor on a CUDA device by a numpy array, of which only layout and address may be used.

    Args:
        tensor: the tensor whose memory is lent.
        stream: the address of the stream on which the borrower will use the memory, or a number of DLPack: -1 for no
            order, None for CUDA's default stream.

    Raises:
        BufferError: for stream 0, which DLPack does not allow.
        Exception: that of the op, if it failed before or as it was launched.
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
    """Launch all ops issued on a tensor's memory; return its device array and an event after these ops.

    The event is recorded on the current stream.  Raises the exception of an op that has failed.
    """
    machine = current_machine()
    stream = current_stream(tensor.device).on(machine)
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
    """The CUDA device whose memory contains `address`.

    Raises:
        DeviceUnavailable: if no CUDA device can be used here.
        ValueError: if no CUDA device has memory at the address.
    """
    Device("cuda", 0).require()
    return Device("cuda", device_of(0).driver.device_at(address))


def stream_address(device: Device) -> int:
    """The address of the current stream of `device`, for other libraries."""
    return current_stream(device).cuda_stream


def borrowed(array: Array, dtype: Any, device: Device, lender: int | None) -> Tensor:
    """Make a tensor on device memory of another library.

    Args:
        array: a numpy array that describes the memory and keeps it alive, like the result of `lend`.
        dtype: of the elements.
        device: the CUDA device that has the memory.
        lender: the address of the lender's stream, whose work computes the value and for which the current stream
            waits; None if the current stream is ordered after that work already.

    Raises:
        BufferError: if the array is read-only, or has strides that a tensor cannot have; see `memory_layout`.
    """
    layout = memory_layout(array)
    if layout is None:
        raise BufferError(
            "memory of a device that is read-only, or has a negative stride or one that is no multiple of the size of "
            "an element, cannot be shared"
        )
    block, strides, offset = layout
    machine = current_machine()
    stream = current_stream(device).on(machine)
    if lender is not None:
        policy = policy_of(stream)
        policy.wait(policy.device.record(policy.device.driver.stream_at(lender)))
    memory = DeviceArray(block.__array_interface__["data"][0], block.shape, dtype.numpy, owner=array)
    whole = array.flags.c_contiguous and offset == 0 and block.size == array.size
    storage = Storage(None, memory.reshape(array.shape) if whole else memory)
    storage.shared = True
    blob = Blob(storage, meta(array.shape, dtype, device), None if whole else strides, offset)
    # This orders other streams' uses of the memory after the current stream, which waits for the lender's stream.
    physical_run(machine, lambda builder: builder.touch(stream, (blob,)))
    return new_tensor(blob, Lease(storage))
