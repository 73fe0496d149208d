"""PyTorch's old tensor types, each for one dtype, which make tensors: ``FloatTensor([1, 2])``, ``LongTensor(2, 3)``."""

from __future__ import annotations

from typing import Any, Final

from . import dtypes
from .devices import device as Device
from .dtypes import dtype as DType, set_default_dtype
from .ops.creation.creation import are_sizes, empty, set_default_device, tensor
from .tensors import Tensor


class TensorType:
    """One of PyTorch's old tensor types: the tensors of one dtype, on the CPU or on CUDA devices.

    Called with data, it makes a tensor of them; with integers or a size, an uninitialised tensor of that shape.
    ``isinstance(x, flow.FloatTensor)`` asks whether a tensor has the type's dtype, and its `is_cuda`.

    Attributes:
        dtype: the tensors' dtype.
        is_cuda: whether the tensors are on CUDA devices; else they are on the CPU or another device.
    """

    def __init__(self, dtype: DType, name: str, is_cuda: bool = False) -> None:
        self.dtype = dtype
        self.is_cuda = is_cuda
        self.__name__ = self.__qualname__ = f"{name}Tensor"

    def __call__(self, *data: Any, device: Device | str | None = None) -> Tensor:
        """Make a tensor of the type's dtype on a device of the type.

        Args:
            data: the elements, or the sizes of the dimensions; without any, the tensor is empty.
            device: the tensor's device, by default the CPU or the current CUDA device.

        Raises:
            ValueError: if the device is a CUDA device and the type is for others, or the reverse.
            DeviceUnavailable: if the device cannot be used here.
            TypeError, ValueError: as `vmflow.tensor`, for data that make no tensor.
        """
        place = Device(device) if device is not None else Device("cuda" if self.is_cuda else "cpu")
        if (place.type == "cuda") is not self.is_cuda:
            raise ValueError(f"{self!r} makes no tensors on {place}; use vmflow.tensor(data, dtype=, device=)")
        if are_sizes(data):
            return empty(*(data or (0,)), dtype=self.dtype, device=place)
        return tensor(*data, dtype=self.dtype, device=place)

    def __instancecheck__(self, instance: object) -> bool:
        return isinstance(instance, Tensor) and instance.dtype is self.dtype and instance.is_cuda is self.is_cuda

    def __repr__(self) -> str:
        return f"vmflow.{'cuda.' if self.is_cuda else ''}{self.__name__}"


_NAMES: Final = {
    "BFloat16": dtypes.bfloat16,
    "Bool": dtypes.bool_,
    "Byte": dtypes.uint8,
    "Char": dtypes.int8,
    "Double": dtypes.float64,
    "Float": dtypes.float32,
    "Half": dtypes.float16,
    "Int": dtypes.int32,
    "Long": dtypes.int64,
    "Short": dtypes.int16,
}

HOST: Final = {f"{name}Tensor": TensorType(dtype, name) for name, dtype in _NAMES.items()}
CUDA: Final = {f"{name}Tensor": TensorType(dtype, name, is_cuda=True) for name, dtype in _NAMES.items()}

BFloat16Tensor = HOST["BFloat16Tensor"]
BoolTensor = HOST["BoolTensor"]
ByteTensor = HOST["ByteTensor"]
CharTensor = HOST["CharTensor"]
DoubleTensor = HOST["DoubleTensor"]
FloatTensor = HOST["FloatTensor"]
HalfTensor = HOST["HalfTensor"]
IntTensor = HOST["IntTensor"]
LongTensor = HOST["LongTensor"]
ShortTensor = HOST["ShortTensor"]


def tensor_type(given: Any) -> TensorType:
    """Look up a tensor type by its name with a module, such as "vmflow.cuda.FloatTensor" or "torch.FloatTensor".

    A tensor type instead of a name is returned as it is.

    Raises:
        TypeError: if `given` is neither a tensor type nor the name of one.
    """
    if isinstance(given, TensorType):
        return given
    if isinstance(given, str):
        _, _, rest = given.partition(".")
        found = CUDA.get(rest.removeprefix("cuda.")) if rest.startswith("cuda.") else HOST.get(rest)
        if found is not None:
            return found
    raise TypeError(
        "type: expected a dtype or a kind of tensors such as vmflow.FloatTensor or 'vmflow.cuda.FloatTensor', "
        f"not {given!r}"
    )


def set_default_tensor_type(t: TensorType | str | DType) -> None:
    """Set the default dtype of new floating-point tensors, and the default device of all new tensors, by a tensor type.

    It calls `set_default_dtype` and `set_default_device`: the setting holds for this thread or task and the tasks that
    it starts from now on, for tensors of any shape.

    Args:
        t: a tensor type such as `vmflow.FloatTensor`, or its name; or a dtype, for tensors on the CPU.

    Raises:
        TypeError: if `t` is none of these, or not floating-point.
        DeviceUnavailable: if `t` is a type of CUDA tensors, and there is no CUDA device.

    Example:
        >>> flow.set_default_tensor_type(flow.FloatTensor)
        >>> flow.tensor(1.0).dtype
        vmflow.float32
    """
    if isinstance(t, DType):
        dtype, is_cuda = t, False
    else:
        kind = tensor_type(t)
        dtype, is_cuda = kind.dtype, kind.is_cuda
    if is_cuda:
        Device("cuda").require()
    set_default_dtype(dtype)
    set_default_device("cuda" if is_cuda else None)
