"""Storages: objects for the memory of tensors, as in PyTorch, which tell which tensors share memory.

vmflow's ops do not take storages.  A storage refers to a tensor, which keeps the memory alive.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from . import dtypes
from .devices import cuda_device, device as Device
from .dtypes import dtype as DType
from .instructions.blob import Blob, Storage, meta
from .tensor_fields import blob_of, lease_of, new_tensor
from .tensors import Tensor, settle


class UntypedStorage:
    """The memory of a tensor of any shape and of all its views, as bytes; see `Tensor.untyped_storage`.

    Two storages of one class are equal if their tensors are views of each other or of one tensor.  Making one raises no
    errors.

    Example:
        >>> x = flow.zeros(2, 3)
        >>> x[1].untyped_storage() == x.untyped_storage()
        True
    """

    def __init__(self, tensor: Tensor) -> None:
        self._tensor = tensor.detach()

    @property
    def dtype(self) -> DType:
        """The dtype of the elements."""
        return dtypes.uint8

    @property
    def device(self) -> Device:
        """The device of the memory."""
        return self._tensor.device

    @property
    def is_cuda(self) -> bool:
        """Whether on a CUDA device."""
        return self._tensor.is_cuda

    def data_ptr(self) -> int:
        """The address of the memory's first byte, 0 if the tensor has no elements; waits as `Tensor.data_ptr` does."""
        address = self._tensor.data_ptr()
        return address and address - self._tensor.storage_offset() * self._tensor.itemsize

    def nbytes(self) -> int:
        """The number of bytes of the memory; for a view's storage, this waits until the value is computed.

        Raises:
            RuntimeError: if the tensor is global, or belongs to a graph that is being built.
            Exception: that of the op that failed to compute the value.
        """
        if self._tensor.is_lazy:
            raise RuntimeError("a tensor of a graph that is being built has no memory yet")
        if self._tensor.is_global:
            raise RuntimeError("a global tensor is in the memory of several ranks; see the storage of its to_local()")
        blob = blob_of(self._tensor)
        if blob.strides is None:
            return self._tensor.nbytes
        if not blob.storage.settled() or blob.storage.array is None or blob.storage.failure is not None:
            settle(self._tensor)
        array = blob.storage.array
        return int(array.size) * int(array.dtype.itemsize)

    def element_size(self) -> int:
        """Bytes per element."""
        size: int = self.dtype.itemsize
        return size

    def size(self) -> int:
        """The number of elements."""
        return self.nbytes() // self.element_size()

    def tolist(self) -> list[Any]:
        """The elements as Python numbers; waits for them."""
        found: list[Any] = self._whole().tolist()
        return found

    def cpu(self) -> UntypedStorage:
        """A storage on the CPU: the same memory if it is there already, else a copy."""
        return type(self)(self._whole().to("cpu"))

    def cuda(self, device: int | str | Device | None = None) -> UntypedStorage:
        """A storage on a CUDA device: the same memory if it is there already, else a copy.

        Raises:
            ValueError: if `device` is no CUDA device.
            DeviceUnavailable: if the device cannot be used here.
        """
        return type(self)(self._whole().to(cuda_device(device)))

    def _whole(self) -> Tensor:
        """The storage's whole memory as a tensor of one dimension, of the storage's dtype, which shares the memory."""
        seen = meta((self.size(),), self.dtype, self.device)
        whole: Tensor = new_tensor(Blob(self._storage(), seen, (1,), 0), lease_of(self._tensor))
        return whole

    def _storage(self) -> Storage:
        return blob_of(self._tensor).storage

    def __len__(self) -> int:
        return self.size()

    def __getitem__(self, index: int) -> Any:
        return self._whole()[index].item()

    def __iter__(self) -> Iterator[Any]:
        return iter(self.tolist())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, UntypedStorage) or type(other) is not type(self):
            return NotImplemented
        return self._storage() is other._storage()

    def __hash__(self) -> int:
        return hash(self._storage())

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.size()} elements of {self.dtype!r} on {self.device}>"


class TypedStorage(UntypedStorage):
    """The memory of a tensor and of all its views, as elements of the tensor's dtype; see `Tensor.storage`.

    Making one raises no errors.

    Example:
        >>> flow.tensor([1, 2, 3]).storage().tolist()
        [1, 2, 3]
    """

    @property
    def dtype(self) -> DType:
        return self._tensor.dtype

    def untyped(self) -> UntypedStorage:
        """The same memory as bytes."""
        return UntypedStorage(self._tensor)


def is_storage(obj: object) -> bool:
    """Whether `obj` is a storage, as `Tensor.storage` and `Tensor.untyped_storage` return.  Raises no errors.

    Example:
        >>> flow.is_storage(flow.ones(2)), flow.is_storage(flow.ones(2).storage())
        (False, True)
    """
    return isinstance(obj, UntypedStorage)
