"""Memory shared with other libraries by numpy's array interface, CUDA's and DLPack.

Lent memory stays alive, and is not reused for another tensor, as long as the borrower holds it.  Lending waits until
the value is computed and until all ops issued so far have read it, so that the borrower may read and write immediately.
Ops issued later are not ordered with the borrower: after an in-place op, wait for the tensor before reading the lent
memory, and before changing the memory wait for the results of ops that read it.  Memory of CUDA devices is shared in
the order of streams, without waiting: see `vmflow.cuda.exchange`.
"""

from __future__ import annotations

import ctypes
from typing import Any, Final

import numpy as np

from . import dtypes
from .devices import device as Device
from .dtypes import dtype as DType
from .errors import DeviceUnavailable
from .instructions.blob import Array
from .instructions.builder import physical_run
from .ops.creation.creation import chosen_device, from_array, from_numpy, tensor
from .tensors import Tensor

# DLPack's numbers of device types; 12 is an extension's own device.
_CPU: Final = (1, 0)
_KINDS: Final = {"cpu": 1, "cuda": 2, "sim": 12}

_CUDA: Final = _KINDS["cuda"]

# Kinds of devices whose memory the host can read: the CPU, and memory of the host that CUDA or ROCm has pinned.
_READABLE: Final = (1, 3, 11)

# The newest version of DLPack that this module understands.
_VERSION: Final = (1, 0)

# Type codes of DLDataType.  numpy knows no bfloat16, so its 16 bits are passed to numpy as unsigned integers.
_BFLOAT16: Final = 4
_UNSIGNED: Final = 1
# For each type code that numpy has, too, the bits of its elements: integers, floating-point and complex numbers, bools.
_BITS: Final = {0: (8, 16, 32, 64), 1: (8, 16, 32, 64), 2: (16, 32, 64), 5: (64, 128), 6: (8,)}


class _DLTensor(ctypes.Structure):
    """The first fields of DLPack's C struct ``DLTensor``, up to the dtype."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
    )


# For each name of a capsule, the offset of DLTensor in the struct that the capsule points to: DLManagedTensor begins
# with it, and DLManagedTensorVersioned has version, context, deleter and flags before it.
_OFFSETS: Final = {b"dltensor": 0, b"dltensor_versioned": 32}


# Lending


class _Lender:
    """The base object of a lent numpy array: keeps the tensor's memory alive while the borrower has the array."""

    __slots__ = ("__array_interface__", "_array", "_tensor")

    def __init__(self, alias: Tensor, array: Array) -> None:
        self._tensor = alias
        self._array = array
        self.__array_interface__ = array.__array_interface__


def lend(tensor: Tensor) -> Array:
    """Make a writable numpy array that shares the memory of a tensor on the CPU, after waiting for ops on it.

    Raises:
        RuntimeError: if the tensor requires a gradient.
        Exception: that of the op that failed to compute the value.
    """
    _check_without_gradient(tensor)
    array = tensor._array()
    blob = tensor._blob
    machine = blob.storage.machine
    if machine is not None and not machine.engine.idle():
        # Ops that were issued and have not run yet must not read values that the borrower writes.
        machine.wait(physical_run(machine, lambda builder: builder.await_uses((blob,))))
    blob.storage.shared = True
    # __array_interface__ has no type code for bfloat16: lend the array as uint16.
    plain = array.view(np.uint16) if tensor.dtype is dtypes.bfloat16 else array
    lent = np.asarray(_Lender(tensor.detach(), plain))
    return lent.view(array.dtype) if plain is not array else lent


def _check_without_gradient(tensor: Tensor) -> None:
    """Raise RuntimeError for a tensor that requires a gradient, which numpy's functions would lose silently."""
    if tensor.requires_grad:
        raise RuntimeError(
            "numpy: the tensor requires a gradient, which numpy would lose; use .numpy() for a copy of the values, or "
            ".detach() to share the memory"
        )


def _without_shared_memory(tensor: Tensor) -> str:
    """A tensor's kind, for messages, if its elements reach numpy by a copy only; "" if their memory can be shared."""
    if tensor.is_global:
        return "a global tensor"
    return "" if tensor.device.type == "cpu" else f"a tensor on {tensor.device}"


def as_array(tensor: Tensor, dtype: Any, copy: bool | None) -> Array:
    """See `Tensor.__array__`."""
    _check_without_gradient(tensor)
    wanted = tensor.dtype.numpy if dtype is None else np.dtype(dtype)
    kind = _without_shared_memory(tensor)
    if kind:
        if copy is False:
            raise ValueError(f"the memory of {kind} cannot be lent to numpy; it has to be copied")
        return tensor.numpy().astype(wanted, copy=False)
    if wanted != tensor.dtype.numpy:
        if copy is False:
            raise ValueError(f"a tensor of {tensor.dtype.name} cannot be lent to numpy as {wanted} without a copy")
        return lend(tensor).astype(wanted)
    return tensor.numpy() if copy else lend(tensor)


def array_interface(tensor: Tensor) -> dict[str, Any]:
    """See `Tensor.__array_interface__`."""
    kind = _without_shared_memory(tensor)
    if kind:
        raise AttributeError(f"{kind} has no __array_interface__; copy it with .numpy()")
    if tensor.dtype is dtypes.bfloat16:
        raise AttributeError("numpy's array interface has no word for bfloat16; use numpy.asarray(tensor)")
    lent = lend(tensor)
    interface: dict[str, Any] = dict(lent.__array_interface__)
    if lent.size:
        # "data" is a buffer object instead of an address: the borrower then keeps the memory alive without the tensor.
        interface["data"] = lent.reshape(-1).view(np.uint8) if lent.flags.c_contiguous else _span(lent)
        interface["strides"] = lent.strides
    return interface


def cuda_array_interface(tensor: Tensor) -> dict[str, Any]:
    """See `Tensor.__cuda_array_interface__`; the tensor must be on a CUDA device."""
    _check_without_gradient(tensor)
    from .cuda import exchange  # imported here, as it imports the code of CUDA devices

    return exchange.array_interface(tensor)


def call_numpy(function: Any, args: Any, kwargs: Any) -> Any:
    """See `Tensor.__array_function__`."""
    return function(*_as_arrays(args), **_as_arrays(kwargs))


def _as_arrays(given: Any) -> Any:
    """Return `given` with numpy arrays in place of tensors, also inside of lists, tuples and the values of dicts."""
    if isinstance(given, Tensor):
        return np.asarray(given)
    if type(given) in (list, tuple):
        return type(given)([_as_arrays(item) for item in given])
    if type(given) is dict:
        return {key: _as_arrays(value) for key, value in given.items()}
    return given


def _span(array: Array) -> Array:
    """View a strided array as a vector of bytes, from its first element to its last, with the gaps between them."""
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
    if tensor.requires_grad:
        raise BufferError("__dlpack__: the tensor requires a gradient, which would be lost; use .detach()")
    here = dlpack_device(tensor)
    wanted = here if dl_device is None else (int(dl_device[0]), int(dl_device[1]))
    if tensor.is_global and wanted != _CPU:
        raise BufferError(
            "__dlpack__: a global tensor is in the memory of several ranks; export this rank's part, .to_local(), or a "
            "copy on the CPU with dl_device=(1, 0)"
        )
    if wanted == here and tensor.device.type == "cuda":
        from .cuda import exchange

        array = exchange.lend(tensor.clone() if copy else tensor, stream)
        return _capsule_of(array, wanted, tensor.dtype is dtypes.bfloat16, max_version, None)
    if stream is not None:
        raise BufferError(f"__dlpack__: a tensor on {tensor.device} has no stream to wait on; stream must be None")
    if wanted != _CPU:
        raise BufferError(
            f"__dlpack__: no other library can see the memory of device {wanted}; export to the CPU with "
            "dl_device=(1, 0), or use .cpu()"
        )
    kind = _without_shared_memory(tensor)
    if kind:
        if copy is False:
            raise BufferError(f"__dlpack__: {kind} reaches the CPU by a copy only")
        array, copy = tensor.numpy(), None
    else:
        array = lend(tensor)
    bfloat16 = tensor.dtype is dtypes.bfloat16
    return _capsule_of(array.view(np.uint16) if bfloat16 else array, _CPU, bfloat16, max_version, copy)


def _capsule_of(
    array: Array, device: tuple[int, int], bfloat16: bool, max_version: tuple[int, int] | None, copy: bool | None
) -> Any:
    """Make a DLPack capsule of `array`, and put the true `device` into it, and bfloat16 for uint16 if `bfloat16`."""
    capsule = array.__dlpack__(max_version=max_version, copy=copy)
    described = _described(capsule)
    described.device_type, described.device_id = device
    if bfloat16:
        described.code = _BFLOAT16
    return capsule


def from_dlpack(x: Any, /, *, device: Device | str | None = None, copy: bool | None = None) -> Tensor:
    """Make a tensor with the shape, dtype and elements of another library's array; share its memory if possible.

    Memory is shared if it is on the CPU or on a CUDA device that can be used here, is writable and has no negative
    strides; else it is copied, to the CPU if its device cannot be used here.  Exporters from before DLPack 1.0 do not
    say whether memory is writable, so their memory is copied.  As with `from_numpy`, in-place ops change the shared
    memory when they run.

    On a CUDA device, streams order ops on the tensor after the owner's work.

    Args:
        x: an object with ``__dlpack__``, or an unused capsule; a capsule of a CUDA device is taken to be in the order
            of CUDA's default stream.
        device: of the tensor; None for the device of `x`, or the CPU if that device cannot be used here.
        copy: True to copy in any case, False never to copy, None to copy if necessary.

    Raises:
        TypeError: if `x` is neither, its dtype is none of vmflow's, or `device` is neither a string nor a device.
        BufferError: if `copy` is False and a copy is needed, the owner cannot export `x`, or the memory cannot be read
            here; for a capsule that was used before, or a negative stride on a CUDA device.
        ValueError: if `device` is an unknown name.
        DeviceUnavailable: if `device` cannot be used here.

    Example:
        >>> import numpy
        >>> flow.from_dlpack(numpy.array([1, 2]))
        tensor([1, 2])
    """
    target = None if device is None else chosen_device(device)
    made = _taken_over(x, copy) if not isinstance(x, Tensor) else x.detach()
    if target is None or target is made.device:
        return made.clone() if copy and isinstance(x, Tensor) else made
    if copy is False:
        raise BufferError(f"from_dlpack: a tensor on {made.device} reaches {target} by a copy only")
    return made.to(target)


def from_cuda_array(x: Any) -> Tensor:
    """Make a tensor that shares the memory of an object with ``__cuda_array_interface__``.

    Ops on the tensor are ordered after the work of the stream that the interface names, if any.  The tensor of an
    object without elements, which has no memory, is on the current CUDA device.

    Raises:
        TypeError: if vmflow has no such dtype.
        BufferError: if the memory is read-only, has a mask, or a stride that is negative or no multiple of the size of
            an element.
        ValueError: if no CUDA device has memory at the address.
        DeviceUnavailable: if CUDA devices cannot be used here.
    """
    interface = x.__cuda_array_interface__
    if interface["data"][1] or interface.get("mask") is not None:
        raise BufferError(f"memory of a {type(x).__name__} that is read-only or masked cannot be shared; pass a copy")
    from .cuda import exchange

    array = _shown(x, interface)
    kind = dtypes.from_numpy(array.dtype)
    if not array.size:
        return exchange.borrowed(array, kind, chosen_device("cuda"), None)
    return exchange.borrowed(array, kind, exchange.device_at(interface["data"][0]), interface.get("stream"))


def _taken_over(x: Any, copy: bool | None) -> Tensor:
    device = _cuda_device_of(x)
    if device is not None:
        return _borrowed(x, device, copy)
    capsule = _requested(x, copy)
    kind_of_device = _described(capsule).device_type
    if kind_of_device not in _READABLE:
        raise BufferError(
            f"from_dlpack: memory on a device of DLPack's kind {kind_of_device} cannot be read by the host; copy it to "
            "the CPU first"
        )
    array, kind = _received(capsule)
    array = array.view(kind.numpy)
    if copy:
        return from_array(array.copy(order="C"), Device("cpu"))
    if array.flags.writeable and all([stride >= 0 for stride in array.strides]):
        return from_numpy(array)
    if copy is False:
        raise BufferError(
            "from_dlpack: memory that is read-only or has a negative stride has to be copied, and copy is False"
        )
    return tensor(array, device="cpu")


def _borrowed(x: Any, device: Device, copy: bool | None) -> Tensor:
    """Make a tensor of `x`, a capsule or an object with ``__dlpack__``, whose memory is on the CUDA device `device`."""
    from .cuda import exchange

    if _is_capsule(x):
        capsule, lender = x, exchange.DEFAULT_STREAM
    else:
        capsule, lender = _exported(x, stream=exchange.stream_address(device)), None
    array, kind = _received(capsule)
    read_only = not array.flags.writeable
    if read_only and copy is False:
        raise BufferError("from_dlpack: memory that is read-only has to be copied, and copy is False")
    made = exchange.borrowed(_shown(array, array.__array_interface__), kind, device, lender)
    return made.clone() if copy or read_only else made


def _cuda_device_of(x: Any) -> Device | None:
    """The CUDA device that has the memory of `x`; None if no CUDA device has it, or that device cannot be used here."""
    if _is_capsule(x):
        described = _described(x)
        kind, index = described.device_type, described.device_id
    else:
        if not (hasattr(x, "__dlpack__") and hasattr(x, "__dlpack_device__")):
            raise TypeError(f"from_dlpack: expected an object with __dlpack__ or a capsule, got {type(x).__name__}")
        kind, index = map(int, x.__dlpack_device__())
    if kind != _CUDA:
        return None
    device = Device("cuda", index)
    try:
        device.require()
    except DeviceUnavailable:
        return None
    return device


def _is_capsule(x: Any) -> bool:
    return type(x).__name__ == "PyCapsule"


def _requested(x: Any, copy: bool | None) -> Any:
    """Return `x` if it is a capsule, else its capsule on the CPU, which may be of a copy unless `copy` is False."""
    if _is_capsule(x):
        return x
    if tuple(map(int, x.__dlpack_device__())) == _CPU:
        return _exported(x)
    wishes = {"copy": False} if copy is False else {}
    try:
        return x.__dlpack__(max_version=_VERSION, dl_device=_CPU, **wishes)
    except TypeError:
        raise BufferError(f"from_dlpack: this {type(x).__name__} is not on the CPU; copy it there first") from None


def _exported(x: Any, **wishes: Any) -> Any:
    """Call ``x.__dlpack__`` for a capsule on the device of `x`, without a version if the exporter takes none."""
    try:
        return x.__dlpack__(max_version=_VERSION, **wishes)
    except TypeError:
        return x.__dlpack__(**wishes)  # an exporter from before DLPack 1.0, which has no argument max_version


def _received(capsule: Any) -> tuple[Array, DType]:
    """Return a numpy array of a capsule's memory, and the vmflow dtype of its elements.

    The capsule is changed for numpy: bfloat16 becomes uint16, and the device becomes the CPU.

    Raises:
        TypeError: if vmflow does not have the dtype.
    """
    described = _described(capsule)
    bfloat16 = (described.code, described.bits) == (_BFLOAT16, 16)
    if bfloat16:
        described.code = _UNSIGNED
    elif described.bits not in _BITS.get(described.code, ()):
        raise TypeError(
            f"from_dlpack: vmflow has no dtype for DLPack's type code {described.code} of {described.bits} bits"
        )
    described.device_type, described.device_id = _CPU
    array = np.from_dlpack(_Parcel(capsule))
    return array, dtypes.bfloat16 if bfloat16 else dtypes.from_numpy(array.dtype)


class _Parcel:
    """An object with ``__dlpack__`` that hands a capsule to ``np.from_dlpack``, which takes no capsules."""

    def __init__(self, capsule: Any) -> None:
        self._capsule = capsule

    def __dlpack__(self, **wishes: Any) -> Any:
        return self._capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return _CPU


def _shown(owner: Any, interface: dict[str, Any]) -> Array:
    """Make a writable numpy array of the memory in an array interface, on any device; the array keeps `owner` alive."""
    return np.asarray(_Shown(owner, {**interface, "data": (interface["data"][0], False)}))


class _Shown:
    """An object with ``__array_interface__`` that numpy makes an array of; keeps the memory's owner alive."""

    __slots__ = ("__array_interface__", "_owner")

    def __init__(self, owner: Any, interface: dict[str, Any]) -> None:
        self._owner = owner
        self.__array_interface__ = interface


def _described(capsule: Any) -> _DLTensor:
    """The `DLTensor` struct inside a DLPack capsule, not a copy: assigning its fields changes the capsule.

    Raises:
        BufferError: if `capsule` does not bear the name of an unused DLPack capsule.
    """
    interface = ctypes.pythonapi
    interface.PyCapsule_GetName.restype = ctypes.c_char_p
    interface.PyCapsule_GetName.argtypes = [ctypes.py_object]
    interface.PyCapsule_GetPointer.restype = ctypes.c_void_p
    interface.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    name = interface.PyCapsule_GetName(capsule)
    if name not in _OFFSETS:
        raise BufferError(f"from_dlpack: expected a DLPack capsule that nobody has taken yet, got one named {name!r}")
    return _DLTensor.from_address(interface.PyCapsule_GetPointer(capsule, name) + _OFFSETS[name])
