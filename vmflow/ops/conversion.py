"""The methods of `Tensor` that convert to another dtype or device."""

from __future__ import annotations

import builtins
from typing import TYPE_CHECKING, Any

from vmflow import dtypes, tensors as _tensors
from vmflow.devices import cuda_device, device as Device
from vmflow.dtypes import dtype as DType
from vmflow.memory_formats import inverse, memory_format, preserve_format
from vmflow.operands import check_tensors

from .copying import cast_in_order, chosen_order, contiguous, transfer
from .declaration import method

if TYPE_CHECKING:
    from vmflow.tensors import Tensor

# Methods of this module are named `bool` and `int` and hide the built-in types, so these are `_bool` and `_int` here.
_bool = builtins.bool
_int = builtins.int

_TYPE_NAMES = {
    dtypes.bool_: "vmflow.BoolTensor",
    dtypes.uint8: "vmflow.ByteTensor",
    dtypes.uint16: "vmflow.UInt16Tensor",
    dtypes.uint32: "vmflow.UInt32Tensor",
    dtypes.uint64: "vmflow.UInt64Tensor",
    dtypes.int8: "vmflow.CharTensor",
    dtypes.int16: "vmflow.ShortTensor",
    dtypes.int32: "vmflow.IntTensor",
    dtypes.int64: "vmflow.LongTensor",
    dtypes.float16: "vmflow.HalfTensor",
    dtypes.bfloat16: "vmflow.BFloat16Tensor",
    dtypes.float32: "vmflow.FloatTensor",
    dtypes.float64: "vmflow.DoubleTensor",
    dtypes.complex64: "vmflow.ComplexFloatTensor",
    dtypes.complex128: "vmflow.ComplexDoubleTensor",
}


def parse_to(
    args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[DType | None, Device | None, _bool, memory_format | None]:
    """Parse the arguments of `Tensor.to` and return (dtype, device, copy, memory format).

    Each of them is None if it is not given, but `copy` is then False.

    Raises:
        TypeError: for an argument that `Tensor.to` does not have, or of a wrong type.
        ValueError: for an unknown device.
    """
    dtype: DType | None = kwargs.pop("dtype", None)
    device: Any = kwargs.pop("device", None)
    copy = _bool(kwargs.pop("copy", False))
    wanted: memory_format | None = kwargs.pop("memory_format", None)
    kwargs.pop("non_blocking", None)  # accepted for PyTorch's sake
    if kwargs:
        raise TypeError(f"to: unexpected arguments {', '.join(kwargs)}")
    flags = 0
    for argument in args:
        if isinstance(argument, _bool) and flags < 2:
            # PyTorch's positional arguments non_blocking and copy, in this order.
            copy = copy or (argument and flags == 1)
            flags += 1
        elif isinstance(argument, DType) and dtype is None:
            dtype = argument
        elif isinstance(argument, (str, Device)) and device is None:
            device = argument
        elif isinstance(argument, _tensors.Tensor) and dtype is None and device is None:
            dtype, device = argument.dtype, argument.device
        elif argument is not None:
            raise TypeError(f"to: expected one dtype, one device or one tensor, got {', '.join(map(repr, args))}")
    if dtype is not None and not isinstance(dtype, DType):
        raise TypeError(f"to: dtype must be a vmflow dtype such as vmflow.float32, not {dtype!r}")
    if wanted is not None and not isinstance(wanted, memory_format):
        raise TypeError(f"to: memory_format must be one such as vmflow.channels_last, not {wanted!r}")
    return dtype, None if device is None else Device(device), copy, wanted


@method()
def to(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """Convert to another dtype or device: ``to(dtype)``, ``to(device)``, ``to(device, dtype)`` or ``to(other)``.

    ``to(memory_format=vmflow.channels_last)`` changes the order of elements in memory; without a format, a copy is in
    C order.  The shape stays.  Returns the tensor itself if nothing changes, unless ``copy=True``.

    Raises:
        TypeError: for any other argument.
        ValueError: for an unknown device, or a memory format for another number of dimensions.
        DeviceUnavailable: if the device cannot be used on this machine.
        RuntimeError: if a meta or global tensor would be copied to another device, except the meta device.

    Example:
        >>> flow.tensor([1, 2]).to(flow.float32)
        tensor([1., 2.])
    """
    dtype, device, copy, format = parse_to(args, kwargs)
    result = self
    order = None if format is None else chosen_order("to", self, format)
    if device is not None and device is not self.device:
        device.require()
        result = (
            transfer(self, device) if order is None else transfer(self.permute(order), device).permute(inverse(order))
        )
    if dtype is not None and dtype is not self.dtype:
        return cast_in_order(result, dtype, order)
    if format is not None and format is not preserve_format:
        result = contiguous(result, format)
    return cast_in_order(self, self.dtype, order) if copy and result is self else result


@method()
def cpu(self: Tensor) -> Tensor:
    """Copy the tensor, of any shape, to the CPU; return the tensor itself if it is on the CPU.

    Raises:
        RuntimeError: for a meta tensor, or a global one on other devices.

    Example:
        >>> flow.tensor([1, 2]).cpu()
        tensor([1, 2])
    """
    return self.to("cpu")


@method()
def cuda(self: Tensor, device: Device | str | _int | None = None, non_blocking: _bool = False) -> Tensor:
    """Copy the tensor, of any shape, to a CUDA device, by default the current one; return it unchanged if it is there.

    Raises:
        TypeError, ValueError: if `device` is no CUDA device.
        DeviceUnavailable: if there is no such device.
        RuntimeError: for a meta tensor, or a global one on other devices.

    Example:
        >>> flow.ones(1).cuda().is_cuda if flow.cuda.is_available() else True
        True
    """
    return self.to(cuda_device(device))


@method()
def type(self: Tensor, dtype: DType | str | Any = None, non_blocking: _bool = False) -> Any:
    """Convert to another dtype; without `dtype`, return the name of this tensor's type, such as ``vmflow.FloatTensor``.

    Args:
        dtype: a dtype; or a tensor type such as `vmflow.cuda.FloatTensor`, or its name, which also move the tensor to a
            CUDA device, or from there to the CPU.  The shape stays.

    Raises:
        TypeError: for any other `dtype`.
        DeviceUnavailable: if the tensor type is of a CUDA device that cannot be used.
        RuntimeError: for a meta tensor with a CUDA tensor type, or a global tensor that would be moved.

    Example:
        >>> flow.tensor([1, 2]).type()
        'vmflow.LongTensor'
    """
    if dtype is None:
        name = _TYPE_NAMES[self.dtype]
        return name.replace(".", ".cuda.") if self.is_cuda else name
    if isinstance(dtype, DType):
        return self.to(dtype)
    from vmflow.typed_tensors import tensor_type  # needs functions that make tensors

    kind = tensor_type(dtype)
    return self.to(self.device if self.is_cuda is kind.is_cuda else "cuda" if kind.is_cuda else "cpu", kind.dtype)


@method()
def type_as(self: Tensor, other: Tensor) -> Tensor:
    """Convert to the dtype of `other`; shape and device stay.

    Raises:
        TypeError: if `other` is no tensor.

    Example:
        >>> flow.tensor([1, 2]).type_as(flow.zeros(1))
        tensor([1., 2.])
    """
    check_tensors("type_as", other)
    return self.to(other.dtype)


@method()
def bool(self: Tensor) -> Tensor:
    """Convert the elements to bool: each to True if it is not zero.  Raises no errors.

    Example:
        >>> flow.tensor([0, 2]).bool()
        tensor([False,  True])
    """
    return self.to(dtypes.bool_)


@method()
def byte(self: Tensor) -> Tensor:
    """Convert the elements to uint8; raises no errors.

    Example:
        >>> flow.tensor([1, 2]).byte()
        tensor([1, 2], dtype=vmflow.uint8)
    """
    return self.to(dtypes.uint8)


@method()
def char(self: Tensor) -> Tensor:
    """Convert the elements to int8; raises no errors.

    Example:
        >>> flow.tensor([1, 2]).char()
        tensor([1, 2], dtype=vmflow.int8)
    """
    return self.to(dtypes.int8)


@method()
def short(self: Tensor) -> Tensor:
    """Convert the elements to int16; raises no errors.

    Example:
        >>> flow.tensor([1, 2]).short()
        tensor([1, 2], dtype=vmflow.int16)
    """
    return self.to(dtypes.int16)


@method()
def int(self: Tensor) -> Tensor:
    """Convert the elements to int32; raises no errors.

    Example:
        >>> flow.tensor([1.7, -1.7]).int()
        tensor([ 1, -1], dtype=vmflow.int32)
    """
    return self.to(dtypes.int32)


@method()
def long(self: Tensor) -> Tensor:
    """Convert the elements to int64; raises no errors.

    Example:
        >>> flow.tensor([1.7, -1.7]).long()
        tensor([ 1, -1])
    """
    return self.to(dtypes.int64)


@method()
def half(self: Tensor) -> Tensor:
    """Convert the elements to float16; raises no errors.

    Example:
        >>> flow.tensor([1, 2]).half()
        tensor([1., 2.], dtype=vmflow.float16)
    """
    return self.to(dtypes.float16)


@method()
def bfloat16(self: Tensor) -> Tensor:
    """Convert the elements to bfloat16; raises no errors.

    Example:
        >>> flow.tensor([1, 2]).bfloat16()
        tensor([1., 2.], dtype=vmflow.bfloat16)
    """
    return self.to(dtypes.bfloat16)


@method()
def float(self: Tensor) -> Tensor:
    """Convert the elements to float32; raises no errors.

    Example:
        >>> flow.tensor([1, 2]).float()
        tensor([1., 2.])
    """
    return self.to(dtypes.float32)


@method()
def double(self: Tensor) -> Tensor:
    """Convert the elements to float64; raises no errors.

    Example:
        >>> flow.tensor([1, 2]).double()
        tensor([1., 2.], dtype=vmflow.float64)
    """
    return self.to(dtypes.float64)


@method()
def cfloat(self: Tensor) -> Tensor:
    """Convert the elements to complex64; raises no errors.

    Example:
        >>> flow.tensor([1, 2]).cfloat()
        tensor([1.+0.j, 2.+0.j])
    """
    return self.to(dtypes.complex64)


@method()
def cdouble(self: Tensor) -> Tensor:
    """Convert the elements to complex128; raises no errors.

    Example:
        >>> flow.tensor([1, 2]).cdouble()
        tensor([1.+0.j, 2.+0.j], dtype=vmflow.complex128)
    """
    return self.to(dtypes.complex128)


@method()
def to_device(self: Tensor, device: Device | str, /, *, stream: None = None) -> Tensor:
    """Copy the tensor to another device: `to` by the name that the array API standard has for it.  The shape stays.

    Raises:
        ValueError: if a stream is given, since vmflow itself orders copies between devices.  Other errors are as for
            `to`.

    Example:
        >>> flow.tensor([1, 2]).to_device("cpu")
        tensor([1, 2])
    """
    if stream is not None:
        raise ValueError(f"to_device: stream must be None, not {stream!r}")
    return self.to(device=device)
