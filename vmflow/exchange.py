"""Memory shared with other libraries: numpy's array interface and DLPack, in both directions.

What is lent stays alive and is not given to anybody else for as long as the borrower holds it.  Lending waits until the
value is there and until nothing issued so far reads it, so that the borrower may read and write at once.  Ops issued
later are not ordered with the borrower: after an in-place op, wait for the tensor before looking at what was lent, and
before changing it wait for the results of ops that read it.
"""

from __future__ import annotations

import ctypes
from typing import Any, Final

import numpy as np

from . import dtypes
from .devices import device as Device
from .instructions.blob import Array
from .instructions.builder import physical_run
from .ops.creation.creation import chosen_device, from_array, from_numpy, tensor
from .tensors import Tensor

# DLPack's numbers for devices (12 is "an extension's device", which no other library can look into).
_CPU: Final = (1, 0)
_KINDS: Final = {"cpu": 1, "cuda": 2, "sim": 12}

# The beginning of a DLDataType, as (code, bits); numpy knows no bfloat16, and is told that it is uint16.
_BFLOAT16: Final = (4, 16)
_UINT16: Final = (1, 16)

# Where the DLDataType lies in what a capsule points to: behind data, device and ndim of the DLTensor, which a
# versioned one has behind version, context, deleter and flags.
_TYPE_OFFSETS: Final = {b"dltensor": 20, b"dltensor_versioned": 52}


# Lending


class _Lender:
    """What a lent array has as its base: holds the memory and the lease on it."""

    __slots__ = ("__array_interface__", "_array", "_tensor")

    def __init__(self, alias: Tensor, array: Array) -> None:
        self._tensor = alias
        self._array = array
        self.__array_interface__ = array.__array_interface__


def lend(tensor: Tensor) -> Array:
    """A writable numpy array over the memory of a tensor on the CPU.

    Raises:
        RuntimeError: if the tensor requires a gradient.
        Exception: that of the op that failed to compute the value.
    """
    _check_without_gradient(tensor)
    array = tensor._array()
    blob = tensor._blob
    machine = blob.storage.machine
    if machine is not None and not machine.engine.idle():
        # Reads that were issued and have not run must not see what the borrower is going to write.
        machine.wait(physical_run(machine, lambda builder: builder.await_uses((blob,))))
    blob.storage.shared = True
    # numpy's interfaces have no word for bfloat16; of the same size, and not looked at.
    plain = array.view(np.uint16) if tensor.dtype is dtypes.bfloat16 else array
    lent = np.asarray(_Lender(tensor.detach(), plain))
    return lent.view(array.dtype) if plain is not array else lent


def _check_without_gradient(tensor: Tensor) -> None:
    """numpy's functions take whatever looks like an array: a gradient must not get lost in passing."""
    if tensor.requires_grad:
        raise RuntimeError(
            "numpy: the tensor requires a gradient, which numpy would lose; use .numpy() for a copy of the values, or "
            ".detach() to share the memory"
        )


def as_array(tensor: Tensor, dtype: Any, copy: bool | None) -> Array:
    """See `Tensor.__array__`."""
    _check_without_gradient(tensor)
    wanted = tensor.dtype.numpy if dtype is None else np.dtype(dtype)
    if tensor.device.type != "cpu":
        if copy is False:
            raise ValueError(f"the memory of a tensor on {tensor.device} cannot be lent to numpy; it has to be copied")
        return tensor.numpy().astype(wanted, copy=False)
    if wanted != tensor.dtype.numpy:
        if copy is False:
            raise ValueError(f"a tensor of {tensor.dtype.name} cannot be lent to numpy as {wanted} without a copy")
        return lend(tensor).astype(wanted)
    return tensor.numpy() if copy else lend(tensor)


def array_interface(tensor: Tensor) -> dict[str, Any]:
    """See `Tensor.__array_interface__`."""
    if tensor.device.type != "cpu":
        raise AttributeError(f"a tensor on {tensor.device} has no __array_interface__; copy it with .cpu()")
    if tensor.dtype is dtypes.bfloat16:
        raise AttributeError("numpy's array interface has no word for bfloat16; use numpy.asarray(tensor)")
    lent = lend(tensor)
    interface: dict[str, Any] = dict(lent.__array_interface__)
    if lent.size:
        # As an object and not as an address: the borrower then holds what was lent, whatever becomes of the tensor.
        interface["data"] = lent.reshape(-1).view(np.uint8) if lent.flags.c_contiguous else _span(lent)
        interface["strides"] = lent.strides
    return interface


def call_numpy(function: Any, args: Any, kwargs: Any) -> Any:
    """See `Tensor.__array_function__`."""
    return function(*_as_arrays(args), **_as_arrays(kwargs))


def _as_arrays(given: Any) -> Any:
    """Arguments with arrays in place of tensors, also inside of lists, tuples and dicts."""
    if isinstance(given, Tensor):
        return np.asarray(given)
    if type(given) in (list, tuple):
        return type(given)([_as_arrays(it) for it in given])
    if type(given) is dict:
        return {key: _as_arrays(it) for key, it in given.items()}
    return given


def _span(array: Array) -> Array:
    """The bytes from the first element to the last, with what lies between."""
    length = sum([(size - 1) * stride for size, stride in zip(array.shape, array.strides, strict=True)])
    first = array[(*[slice(1)] * array.ndim, ...)].reshape(1).view(np.uint8)
    return np.lib.stride_tricks.as_strided(first, (length + array.dtype.itemsize,), (1,))


# DLPack


def dlpack_device(tensor: Tensor) -> tuple[int, int]:
    """See `Tensor.__dlpack_device__`."""
    kind = _KINDS.get(tensor.device.type)
    if kind is None:
        raise BufferError(f"DLPack has no word for the device {tensor.device}")
    return kind, tensor.device.index


def to_capsule(
    tensor: Tensor,
    stream: Any,
    max_version: tuple[int, int] | None,
    dl_device: tuple[int, int] | None,
    copy: bool | None,
) -> Any:
    """See `Tensor.__dlpack__`."""
    if stream is not None:
        raise BufferError(f"__dlpack__: a tensor on {tensor.device} has no stream to wait on; stream must be None")
    if tensor.requires_grad:
        raise BufferError("__dlpack__: the tensor requires a gradient, which would be lost; use .detach()")
    wanted = dlpack_device(tensor) if dl_device is None else (int(dl_device[0]), int(dl_device[1]))
    if wanted != _CPU:
        raise BufferError(
            f"__dlpack__: nobody else can see the memory of device {wanted}; export to the CPU with "
            "dl_device=(1, 0), or use .cpu()"
        )
    if tensor.device.type != "cpu":
        if copy is False:
            raise BufferError(f"__dlpack__: a tensor on {tensor.device} reaches the CPU by a copy only")
        array, copy = tensor.numpy(), None
    else:
        array = lend(tensor)
    if tensor.dtype is not dtypes.bfloat16:
        return array.__dlpack__(max_version=max_version, copy=copy)
    capsule = array.view(np.uint16).__dlpack__(max_version=max_version, copy=copy)
    _element_type(capsule)[:2] = _BFLOAT16
    return capsule


def from_dlpack(x: Any, /, *, device: Device | str | None = None, copy: bool | None = None) -> Tensor:
    """A tensor from what another library holds: shares memory where it can.

    Memory is shared with what lies on the CPU, may be written and has no negative strides; else it is copied.  What
    comes from before DLPack 1.0 does not say whether it may be written, and is copied.  As with `from_numpy`, in-place
    ops change the shared memory when they run.

    Args:
        x: an object with ``__dlpack__``, or a capsule that nobody has taken yet.
        device: where the tensor is to be; None to leave it on the CPU, where all that can be taken over is.
        copy: True to copy in any case, False never to copy, None as necessary.

    Raises:
        TypeError: if it is neither, or no dtype fits.
        BufferError: if `copy` is False and a copy is needed, or its owner cannot bring it to the CPU.
    """
    target = None if device is None else chosen_device(device)
    made = _taken_over(x, copy) if not isinstance(x, Tensor) else x.detach()
    if target is None or target is made.device:
        return made.clone() if copy and isinstance(x, Tensor) else made
    if copy is False:
        raise BufferError(f"from_dlpack: a tensor on {made.device} reaches {target} by a copy only")
    return made.to(target)


def _taken_over(x: Any, copy: bool | None) -> Tensor:
    capsule = _requested(x)
    kind = _element_type(capsule)
    bfloat16 = tuple(kind[:2]) == _BFLOAT16
    if bfloat16:
        kind[:2] = _UINT16
    array = np.from_dlpack(_Parcel(capsule))
    if bfloat16:
        array = array.view(dtypes.bfloat16.numpy)
    if copy:
        return from_array(array.copy(order="C"), Device("cpu"))
    if array.flags.writeable and all([stride >= 0 for stride in array.strides]):
        return from_numpy(array)
    if copy is False:
        raise BufferError(
            "from_dlpack: memory that is read-only or has a negative stride has to be copied, and copy is False"
        )
    return tensor(array, device="cpu")


def _requested(x: Any) -> Any:
    """The capsule of `x`, with memory on the CPU."""
    if type(x).__name__ == "PyCapsule":
        return x
    if not (hasattr(x, "__dlpack__") and hasattr(x, "__dlpack_device__")):
        raise TypeError(f"from_dlpack: expected an object with __dlpack__ or a capsule, got {type(x).__name__}")
    elsewhere = {} if tuple(map(int, x.__dlpack_device__())) == _CPU else {"dl_device": _CPU}
    try:
        return x.__dlpack__(max_version=(1, 0), **elsewhere)
    except TypeError:
        if elsewhere:
            raise BufferError(f"from_dlpack: this {type(x).__name__} is not on the CPU; copy it there first") from None
        return x.__dlpack__()  # from before there were versions


class _Parcel:
    """Hands a capsule to numpy."""

    def __init__(self, capsule: Any) -> None:
        self._capsule = capsule

    def __dlpack__(self, **wishes: Any) -> Any:
        return self._capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return _CPU


def _element_type(capsule: Any) -> Any:
    """The DLDataType of what a capsule holds, as four bytes that can be changed."""
    interface = ctypes.pythonapi
    interface.PyCapsule_GetName.restype = ctypes.c_char_p
    interface.PyCapsule_GetName.argtypes = [ctypes.py_object]
    interface.PyCapsule_GetPointer.restype = ctypes.c_void_p
    interface.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    name = interface.PyCapsule_GetName(capsule)
    if name not in _TYPE_OFFSETS:
        raise BufferError(f"from_dlpack: expected a DLPack capsule that nobody has taken yet, got one named {name!r}")
    address = interface.PyCapsule_GetPointer(capsule, name)
    return (ctypes.c_uint8 * 4).from_address(address + _TYPE_OFFSETS[name])
