"""New tensors from data, sizes and ranges."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from vmflow import dtypes
from vmflow import interpreter as _interpreter
from vmflow import tensor as _tensor
from vmflow.context import MODE
from vmflow.devices import device as Device
from vmflow.dtypes import dtype as DType
from vmflow.instructions.blob import Array, Blob, Storage, TensorMeta, meta
from vmflow.instructions.instruction import Dependence
from vmflow.instructions.release_tensor import Lease

from .elementwise import CHEAP, full_of
from .table import Attributes, Inferred, Kinds, Metas, OpExpr, array_module
from .view import sizes

if TYPE_CHECKING:
    from vmflow.tensor import Tensor


def chosen_device(device: Device | str | None) -> Device:
    """The given device, else the mode's, else the CPU.

    Raises:
        DeviceUnavailable: if it cannot be used here.
    """
    chosen = Device(device) if device is not None else MODE.get().device or Device("cpu")
    chosen.require()
    return chosen


def set_default_device(device: Device | str | None) -> None:
    """The device of new tensors, for this thread or task and the tasks it starts from now on; None is the CPU."""
    MODE.set(MODE.get().replace(device=None if device is None else chosen_device(device)))


def _meta(name: str, size: tuple[Any, ...], dtype: DType | None, device: Device | str | None) -> TensorMeta:
    shape = sizes(name, size)
    if any(length < 0 for length in shape):
        raise ValueError(f"{name}: sizes cannot be negative, got {list(shape)}")
    return meta(shape, _dtype(name, dtype) or dtypes.get_default_dtype(), chosen_device(device))


def _dtype(name: str, dtype: DType | None) -> DType | None:
    if dtype is not None and not isinstance(dtype, DType):
        raise TypeError(f"{name}: dtype must be a vmflow dtype such as vmflow.float32, not {dtype!r}")
    return dtype


def _track(tensor: Tensor, requires_grad: bool) -> Tensor:
    return tensor.requires_grad_() if requires_grad else tensor


# From data


def from_array(array: Array, device: Device) -> Tensor:
    """A tensor that takes over a C-contiguous array; for arrays nobody else holds."""
    storage = Storage(Dependence(), array)
    blob = Blob(storage, meta(array.shape, dtypes.from_numpy(array.dtype), device))
    return _interpreter.new_tensor(blob, Lease(storage))


def tensor(
    data: Any,
    *,
    dtype: DType | None = None,
    device: Device | str | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """A new tensor with a copy of `data`: a number, nested sequences of numbers, a numpy array or a tensor.

    Floats become the default dtype, integers int64; arrays and tensors keep theirs.

    Raises:
        TypeError: if `data` holds something else than numbers.
        ValueError: if nested sequences differ in length.
    """
    _dtype("tensor", dtype)
    if isinstance(data, _tensor.Tensor):
        copy = data.detach().to(device=device, dtype=dtype)
        copy = copy.clone() if copy._blob.storage is data._blob.storage else copy
        return _track(copy, requires_grad)
    target = chosen_device(device)
    if isinstance(data, (list, tuple)):
        data = _without_tensors(data)
    try:
        array = np.asarray(data)
    except ValueError as error:
        raise ValueError(f"tensor: nested sequences must have equal lengths ({error})") from None
    if dtype is None and not isinstance(data, (np.ndarray, np.generic)):
        # Python numbers; numpy has chosen its own widest dtypes for them.
        if array.dtype.kind == "f":
            dtype = dtypes.get_default_dtype()
        elif array.dtype.kind == "c":
            dtype = dtypes.of_scalar(complex)
        elif array.dtype.kind in "iu":
            dtype = dtypes.int64
    if array.dtype.kind in "OUSVmM" and array.dtype != dtypes.bfloat16.numpy:
        raise TypeError(f"tensor: expected numbers, got {type(data).__name__} of {array.dtype} elements")
    if array.size == 0 and not isinstance(data, np.ndarray) and dtype is None:
        dtype = dtypes.get_default_dtype()
    kind = dtype if dtype is not None else dtypes.from_numpy(array.dtype)
    return _track(from_array(np.array(array, kind.numpy, order="C"), target), requires_grad)


def _without_tensors(data: Any) -> Any:
    """Nested sequences with the tensors among them read."""
    if isinstance(data, _tensor.Tensor):
        return data.numpy()
    if isinstance(data, (list, tuple)):
        return [_without_tensors(item) for item in data]
    return data


def as_tensor(data: Any, dtype: DType | None = None, device: Device | str | None = None) -> Tensor:
    """`data` as a tensor, without a copy where it is one already or a numpy array that fits."""
    if isinstance(data, _tensor.Tensor):
        return data.to(device=device, dtype=dtype)
    if isinstance(data, np.ndarray) and (dtype is None or dtype.numpy == data.dtype):
        return from_numpy(data)
    return tensor(data, dtype=dtype, device=device)


def from_numpy(ndarray: Array) -> Tensor:
    """A tensor that shares memory with a numpy array.

    In-place ops on the tensor change the array when they run, which may be later than they are issued; wait for the
    tensor before looking at the array.

    Raises:
        TypeError: if it is no array, or no dtype fits.
        ValueError: if the array is read-only.
    """
    if not isinstance(ndarray, np.ndarray):
        raise TypeError(f"from_numpy: expected a numpy array, got {type(ndarray).__name__}")
    kind = dtypes.from_numpy(ndarray.dtype)
    if not ndarray.flags.writeable:
        raise ValueError("from_numpy: the array is read-only and in-place ops would change it; pass a copy")
    if ndarray.flags.c_contiguous and ndarray.dtype.isnative:
        return from_array(ndarray, Device("cpu"))
    root = ndarray
    while isinstance(root.base, np.ndarray):
        root = root.base
    if not (root.flags.c_contiguous and ndarray.dtype.isnative) or any(
        stride % kind.itemsize for stride in ndarray.strides
    ):
        raise ValueError(
            "from_numpy: the array's memory is not one C-contiguous native block of its elements; "
            "pass numpy.ascontiguousarray(array), or vmflow.tensor(array) to copy"
        )
    start = ndarray.__array_interface__["data"][0] - root.__array_interface__["data"][0]
    if start % kind.itemsize:
        raise ValueError("from_numpy: the array is not aligned to its elements; pass a copy")
    blob = Blob(
        Storage(Dependence(), root),
        meta(ndarray.shape, kind, Device("cpu")),
        tuple([stride // kind.itemsize for stride in ndarray.strides]),
        start // kind.itemsize,
    )
    return _interpreter.new_tensor(blob, None)


# From sizes


def zeros(
    *size: Any, dtype: DType | None = None, device: Device | str | None = None, requires_grad: bool = False
) -> Tensor:
    """A tensor of zeros."""
    return _track(full_of(_meta("zeros", size, dtype, device), 0), requires_grad)


def ones(
    *size: Any, dtype: DType | None = None, device: Device | str | None = None, requires_grad: bool = False
) -> Tensor:
    """A tensor of ones."""
    return _track(full_of(_meta("ones", size, dtype, device), 1), requires_grad)


def full(
    size: tuple[int, ...] | list[int],
    fill_value: bool | int | float | complex,
    *,
    dtype: DType | None = None,
    device: Device | str | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """A tensor of `fill_value`; its dtype follows the value."""
    kind = dtype if dtype is not None else dtypes.of_scalar(type(fill_value))
    return _track(full_of(_meta("full", (size,), kind, device), fill_value), requires_grad)


def _infer_empty(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    (output,) = attributes
    assert isinstance(output, TensorMeta)
    xp = array_module(output.device)

    def kernel(out: Array | None) -> Array:
        return xp.empty(output.shape, output.dtype.numpy) if out is None else out

    return Inferred(output, kernel, 1000)


_EMPTY = OpExpr("empty", _infer_empty)


def empty(
    *size: Any, dtype: DType | None = None, device: Device | str | None = None, requires_grad: bool = False
) -> Tensor:
    """A tensor whose elements are whatever was in memory."""
    return _track(_interpreter.dispatch(_EMPTY, (), (_meta("empty", size, dtype, device),)), requires_grad)


def _like(input: Tensor, dtype: DType | None, device: Device | str | None) -> TensorMeta:
    return meta(
        tuple(input.shape),
        _dtype("like", dtype) or input.dtype,
        input.device if device is None else chosen_device(device),
    )


def zeros_like(
    input: Tensor, *, dtype: DType | None = None, device: Device | str | None = None, requires_grad: bool = False
) -> Tensor:
    """Zeros of the shape, dtype and device of `input`."""
    return _track(full_of(_like(input, dtype, device), 0), requires_grad)


def ones_like(
    input: Tensor, *, dtype: DType | None = None, device: Device | str | None = None, requires_grad: bool = False
) -> Tensor:
    """Ones of the shape, dtype and device of `input`."""
    return _track(full_of(_like(input, dtype, device), 1), requires_grad)


def full_like(
    input: Tensor,
    fill_value: bool | int | float | complex,
    *,
    dtype: DType | None = None,
    device: Device | str | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """`fill_value` in the shape, dtype and on the device of `input`."""
    return _track(full_of(_like(input, dtype, device), fill_value), requires_grad)


def empty_like(
    input: Tensor, *, dtype: DType | None = None, device: Device | str | None = None, requires_grad: bool = False
) -> Tensor:
    """As `empty`, of the shape, dtype and device of `input`."""
    return _track(_interpreter.dispatch(_EMPTY, (), (_like(input, dtype, device),)), requires_grad)


# Ranges


def _infer_range(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    output, start, step = cast("tuple[TensorMeta, float, float]", attributes)
    xp = array_module(output.device)
    to = output.dtype.numpy

    def kernel(out: Array | None) -> Array:
        count = xp.arange(output.numel)
        return (start + step * count).astype(to) if step != 1 or start != 0 else count.astype(to)

    return Inferred(output, kernel, output.numel * CHEAP * 4)


_RANGE = OpExpr("arange", _infer_range)


def arange(
    start: float,
    end: float | None = None,
    step: float = 1,
    *,
    dtype: DType | None = None,
    device: Device | str | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """``start, start + step, ...`` up to but without `end`; with one argument from 0 up to it.

    int64 if all arguments are integers, else the default dtype.

    Raises:
        ValueError: if `step` is 0 or leads away from `end`.
    """
    if end is None:
        start, end = 0, start
    if step == 0:
        raise ValueError("arange: step must not be 0")
    if (end - start) * step < 0:
        raise ValueError(f"arange: a step of {step} does not lead from {start} to {end}")
    if dtype is None and all(isinstance(it, int) for it in (start, end, step)):
        dtype = dtypes.int64
    output = _meta("arange", (ceil((end - start) / step),), dtype, device)
    return _track(_interpreter.dispatch(_RANGE, (), (output, start, step)), requires_grad)


def linspace(
    start: float,
    end: float,
    steps: int,
    *,
    dtype: DType | None = None,
    device: Device | str | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """`steps` values from `start` to `end`, both included, at equal distances."""
    if steps < 0:
        raise ValueError(f"linspace: steps cannot be negative, got {steps}")
    step = (end - start) / (steps - 1) if steps > 1 else 0.0
    output = _meta("linspace", (steps,), dtype, device)
    return _track(_interpreter.dispatch(_RANGE, (), (output, float(start), float(step))), requires_grad)


def _infer_eye(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    (output,) = attributes
    assert isinstance(output, TensorMeta)
    xp = array_module(output.device)
    rows, columns = output.shape

    def kernel(out: Array | None) -> Array:
        return xp.eye(rows, columns, dtype=output.dtype.numpy)

    return Inferred(output, kernel, output.numel * CHEAP)


_EYE = OpExpr("eye", _infer_eye)


def eye(
    n: int,
    m: int | None = None,
    *,
    dtype: DType | None = None,
    device: Device | str | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """An n x m matrix (m is n by default) with ones on the diagonal and zeros elsewhere."""
    output = _meta("eye", (n, n if m is None else m), dtype, device)
    return _track(_interpreter.dispatch(_EYE, (), (output,)), requires_grad)
