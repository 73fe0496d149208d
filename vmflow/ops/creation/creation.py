"""New tensors from data, sizes and ranges."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from vmflow import dtypes, interpreter as _interpreter, tensor_fields as _fields, tensors as _tensors
from vmflow.arguments import flag
from vmflow.context import MODE
from vmflow.devices import device as Device
from vmflow.dtypes import dtype as DType
from vmflow.instructions.blob import Array, Blob, Size, Storage, TensorMeta, meta
from vmflow.instructions.release_tensor import Lease
from vmflow.memory_formats import contiguous_format, inverse, memory_format, order_of
from vmflow.operands import check_tensors
from vmflow.ops.copying import chosen_order, full_of, ones_of, transfer, zeros_of
from vmflow.ops.declaration import function, method
from vmflow.ops.destination import out_as_made
from vmflow.ops.elementwise.inference import CHEAP, fitting, number
from vmflow.ops.shape.view import lengths
from vmflow.ops.table import LEASED_FROM, Attributes, Form, Inferred, Kinds, Metas, OpExpr

if TYPE_CHECKING:
    from vmflow.tensors import Tensor

_HOST: Final = Device("cpu")


def chosen_device(device: Device | str | None) -> Device:
    """Return `device`, or for None the default device of the thread or task, which is the CPU unless it was set.

    Raises:
        DeviceUnavailable: if the device cannot be used on this machine.
    """
    chosen = Device(device) if device is not None else MODE.get().device or Device("cpu")
    chosen.require()
    return chosen


@function()
def set_default_device(device: Device | str | None) -> None:
    """Set the device of new tensors, for this thread or task and the tasks it starts from now on; None is the CPU.

    Inside a block ``with device(...)``, the setting ends with the block.

    Raises:
        ValueError: if the device's type is unknown.
        DeviceUnavailable: if the device cannot be used on this machine.

    Example:
        >>> flow.set_default_device("meta")
        >>> flow.zeros(2).device.type
        'meta'
        >>> flow.set_default_device(None)
    """
    MODE.set(MODE.get().replace(device=None if device is None else chosen_device(device)))


@function()
def get_default_device() -> Device:
    """The device of new tensors: that of a block ``with device(...)`` or of `set_default_device`, else the CPU.

    Example:
        >>> flow.get_default_device().type
        'cpu'
    """
    return MODE.get().device or Device("cpu")


def sized_meta(
    name: str,
    size: tuple[Any, ...],
    dtype: DType | None,
    device: Device | str | None,
    named: dict[str, Any] | None = None,
    placement: Any = None,
    sbp: Any = None,
) -> TensorMeta:
    """Return the meta of the tensor that a function such as `zeros` is to make, from the sizes that its caller gave.

    Args:
        name: of the function, for errors.
        size, named: the function's positional and keyword arguments; `placement` and `sbp` may be among the latter.
        dtype, device: None for the defaults.
        placement, sbp: of a global tensor; None for a local one.

    Raises:
        TypeError: if there are no sizes, or a size is no integer.
        ValueError: if a size is negative.

    Example:
        >>> flow.random.sized_meta("zeros", (2, 3), None, None).shape
        vmflow.Size([2, 3])
    """
    if named:
        placement, sbp = named.pop("placement", placement), named.pop("sbp", sbp)
    if not size and not named:
        raise TypeError(f"{name}: expected sizes; () makes a 0-d tensor")
    shape = lengths(name, size, named)
    kind = _dtype(name, dtype) or dtypes.get_default_dtype()
    if placement is None and sbp is None:
        return meta(shape, kind, chosen_device(device))
    from vmflow.distributed.spread import asked_meta  # needed by few programs

    return asked_meta(name, shape, kind, device, placement, sbp)


def _dtype(name: str, dtype: DType | None) -> DType | None:
    if dtype is not None and not isinstance(dtype, DType):
        raise TypeError(f"{name}: dtype must be a vmflow dtype such as vmflow.float32, not {dtype!r}")
    return dtype


def tracked(tensor: Tensor, requires_grad: bool) -> Tensor:
    """Let `tensor`, of any shape, require a gradient if `requires_grad` is true, and return it.

    Raises:
        RuntimeError: if the dtype has no gradients.

    Example:
        >>> flow.random.tracked(flow.tensor([1.0]), True)
        tensor([1.], requires_grad=True)
    """
    return tensor.requires_grad_() if requires_grad else tensor


# From data


def _of(kind: DType, array: Array) -> Array:
    """Return a view of an array with vmflow's own numpy dtype object for `kind`, which kernels expect.

    Unpickled arrays have equal, but other, dtype objects."""
    return array if array.dtype is kind.numpy else array.view(kind.numpy)


def from_array(array: Array, device: Device) -> Tensor:
    """Make a tensor of a C-contiguous numpy array: on the CPU with its memory, on another `device` with a copy."""
    kind = dtypes.from_numpy(array.dtype)
    storage = Storage(None, _of(kind, array))
    blob = Blob(storage, meta(array.shape, kind, _HOST))
    made = _fields.new_tensor(blob, Lease(storage) if array.nbytes >= LEASED_FROM else None)
    recorder = MODE.get().interpreter
    if recorder is not None:
        recorder.made(storage)
    return made if device.type == "cpu" else transfer(made, device)


@function()
def tensor(
    data: Any,
    *,
    dtype: DType | None = None,
    device: Device | str | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
    placement: Any = None,
    sbp: Any = None,
) -> Tensor:
    """Make a tensor with a copy of `data`: a number, an array, a tensor, or nested sequences of these.

    Floats get the default dtype, integers int64, bools bool; arrays and tensors keep their dtype.  For a global
    tensor, `data` is the whole global value, the same on all ranks.

    Args:
        data: the values.
        dtype, device: of the result; by default the dtype said above, and the device of a tensor `data`, else that of
            `vmflow.get_default_device`.
        requires_grad: whether gradients are computed for the tensor.
        pin_memory: without effect, in all functions that make tensors; see `Tensor.pin_memory`.
        placement, sbp: of a global tensor, see `Tensor.to_global`; both or none.

    Raises:
        TypeError: if `data` holds anything but numbers, or Python's complex numbers for a real dtype.
        ValueError: if nested sequences differ in length, or Python's nan is to become an integer.
        OverflowError: if a Python number does not fit into an integer dtype, or an int into float64.

    Example:
        >>> flow.tensor([[1, 2], [3, 4]])
        tensor([[1, 2],
                [3, 4]])
    """
    _dtype("tensor", dtype)
    if placement is not None or sbp is not None:
        from vmflow.distributed.global_tensors import cut  # needed by few programs

        return tracked(cut("tensor", tensor(data, dtype=dtype), device, placement, sbp), requires_grad)
    if not isinstance(data, _tensors.Tensor) and hasattr(data, "__cuda_array_interface__"):
        data = _from_cuda(data)
    if isinstance(data, _tensors.Tensor):
        copy = data.detach().to(device=device, dtype=dtype)
        copy = copy.clone() if copy._blob.storage is data._blob.storage else copy
        return tracked(copy, requires_grad)
    target = chosen_device(device)
    kinds: set[DType] = set()
    plain = _plain(data, kinds)
    kind = dtype
    for other in kinds if kind is None else ():
        kind = other if kind is None else dtypes.promote_types(kind, other)
    kind = kind or dtypes.get_default_dtype()
    with np.errstate(all="ignore"):  # no warning: numbers too large for float32 become inf
        try:
            array = np.array(plain, kind.numpy, order="C")
        except ValueError as error:
            if "inhomogeneous" in str(error):
                raise ValueError(f"tensor: nested sequences must have equal lengths ({error})") from None
            raise ValueError(f"tensor: {error}") from None
        except OverflowError as error:
            raise OverflowError(f"tensor: {error}") from None
    return tracked(from_array(array, target), requires_grad)


_NUMBERS = frozenset((bool, int, float, complex))


def _plain(data: Any, dtypes_found: set[DType]) -> Any:
    """Convert `data` for `np.array`, tensors in it to arrays; add the dtypes of its elements to `dtypes_found`.

    Raises:
        TypeError: if `data` contains anything but numbers.
    """
    if isinstance(data, (list, tuple, range)):
        kinds = set(map(type, data))
        if kinds <= _NUMBERS:
            dtypes_found |= {dtypes.of_scalar(kind) for kind in kinds}
            return data
        return [_plain(item, dtypes_found) for item in data]
    if isinstance(data, _tensors.Tensor):
        dtypes_found.add(data.dtype)
        return data.detach().numpy()
    if isinstance(data, (np.ndarray, np.generic)):
        dtypes_found.add(dtypes.from_numpy(data.dtype))
        return data
    if isinstance(data, (bool, int, float, complex)):
        dtypes_found.add(dtypes.of_scalar(type(data)))
        return data
    if hasattr(data, "__array__"):
        return _plain(np.asarray(data), dtypes_found)
    raise TypeError(f"tensor: expected numbers, sequences of numbers, arrays or tensors, got {type(data).__name__}")


@function()
def as_tensor(data: Any, dtype: DType | None = None, device: Device | str | None = None) -> Tensor:
    """Convert `data`, of any shape, to a tensor.

    Tensors, arrays that `from_numpy` accepts, and objects with ``__cuda_array_interface__`` are copied only to another
    dtype or device; else the result for them is `data` itself, or shares its memory.

    Raises:
        TypeError, ValueError, OverflowError: as `tensor`.

    Example:
        >>> flow.as_tensor([1, 2])
        tensor([1, 2])
    """
    if isinstance(data, _tensors.Tensor):
        return data.to(device=device, dtype=dtype)
    _dtype("as_tensor", dtype)
    fits = isinstance(data, np.ndarray) and (dtype is None or dtype.numpy == data.dtype)
    if fits and memory_layout(data) is not None:
        return from_numpy(data).to(chosen_device(device))
    if hasattr(data, "__cuda_array_interface__"):
        return _from_cuda(data).to(device=device, dtype=dtype)
    return tensor(data, dtype=dtype, device=device)


@function()
def asarray(
    obj: Any,
    *,
    dtype: DType | None = None,
    device: Device | str | None = None,
    copy: bool | None = None,
    requires_grad: bool | None = None,
) -> Tensor:
    """Convert `obj` to a tensor, without a copy where `as_tensor` makes none.

    Args:
        obj: a tensor, an array, numbers or sequences of them; or another object with the buffer protocol, such as
            bytes, whose memory becomes a vector as `frombuffer` makes it.
        dtype: of the result, by default the object's.  The memory of a buffer is read as this dtype, by default the
            default dtype, whatever the buffer's own elements are.
        device: of the result, by default that of a tensor or CUDA array `obj`, else `vmflow.get_default_device()`.
        copy: True for a tensor with memory of its own; False for an error if the memory cannot be shared; None to copy
            in that case only.
        requires_grad: True to record gradients, also of `obj` if that is a tensor which is returned as it is; False for
            a result without history.  By default a tensor keeps its history, and others have none.

    Raises:
        ValueError: if a copy is needed and `copy` is False, or a buffer is empty or holds no whole number of elements.
        TypeError: if `obj` holds anything but numbers.
        RuntimeError: if `requires_grad` is True for a tensor that is neither floating-point nor complex.

    Example:
        >>> flow.asarray([1, 2])
        tensor([1, 2])
        >>> flow.asarray(bytearray([1, 2, 0, 1]), dtype=flow.int16)
        tensor([513, 256], dtype=vmflow.int16)
    """
    copies = None if copy is None else flag("asarray", "copy", copy)
    records = None if requires_grad is None else flag("asarray", "requires_grad", requires_grad)
    if _is_buffer(obj):
        made = frombuffer(obj, dtype=_dtype("asarray", dtype) or dtypes.get_default_dtype()).to(chosen_device(device))
        shares = made._blob.storage.shared and not memoryview(obj).readonly
    else:
        made = as_tensor(obj, dtype=dtype, device=device)
        shares = made is obj if isinstance(obj, _tensors.Tensor) else made._blob.storage.shared
    if copies is False and not shares:
        raise ValueError(
            f"asarray: a {type(obj).__name__} cannot become such a tensor without a copy; leave copy=False away"
        )
    if copies and shares:
        made = made.clone()
    if records:
        return made.requires_grad_()
    return made.detach() if records is False and made.requires_grad else made


def _is_buffer(obj: Any) -> bool:
    """Return whether an object is known as memory alone: it has the buffer protocol, and no other that says more."""
    known = (_tensors.Tensor, np.ndarray, np.generic)
    if isinstance(obj, known) or hasattr(obj, "__array__") or hasattr(obj, "__cuda_array_interface__"):
        return False
    try:
        memoryview(obj)
    except TypeError:
        return False
    return True


@function()
def frombuffer(buffer: Any, *, dtype: DType, count: int = -1, offset: int = 0, requires_grad: bool = False) -> Tensor:
    """A vector that shares memory with an object that has the buffer protocol, such as a bytearray.

    Args:
        buffer: the object; a read-only one is copied.
        dtype: of the elements, which lie in the buffer without gaps.
        count: the number of elements, by default all that fit.
        offset: the number of bytes to skip at the beginning.
        requires_grad: whether gradients are recorded.

    Raises:
        ValueError: if no bytes are left after `offset`, fewer than `count` elements, or, without `count`, no whole
            number of elements; if `offset` is negative, or `count` is 0 or below -1.

    Example:
        >>> flow.frombuffer(bytearray([1, 2, 0, 1]), dtype=flow.int16)
        tensor([513, 256], dtype=vmflow.int16)
    """
    _dtype("frombuffer", dtype)
    size, itemsize = memoryview(buffer).nbytes, dtype.itemsize
    if not 0 <= offset < size:
        raise ValueError(f"frombuffer: an offset of {offset} bytes is not within a buffer of {size}")
    if count == 0 or count < -1:
        raise ValueError(f"frombuffer: count must be positive, or -1 for all elements, not {count}")
    if count < 0 and (size - offset) % itemsize:
        raise ValueError(f"frombuffer: {size - offset} bytes are no whole number of elements of {itemsize} bytes")
    if count > 0 and offset + count * itemsize > size:
        raise ValueError(
            f"frombuffer: {count} elements of {itemsize} bytes from {offset} are more than the buffer's {size} bytes"
        )
    array = np.frombuffer(buffer, dtype.numpy, count, offset)
    return tracked(from_numpy(array if array.flags.writeable else array.copy()), requires_grad)


@function()
def scalar_tensor(
    s: Any,
    *,
    dtype: DType | None = None,
    device: Device | str | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """Make a 0-d tensor of a number, by default of the default dtype.

    Raises:
        TypeError, ValueError, OverflowError: as `full`.

    Example:
        >>> flow.scalar_tensor(2)
        tensor(2.)
    """
    return full((), s, dtype=dtype or dtypes.get_default_dtype(), device=device, requires_grad=requires_grad)


def _from_cuda(data: Any) -> Tensor:
    from vmflow.exchange import from_cuda_array  # needs this module

    return from_cuda_array(data)


def memory_layout(array: Array) -> tuple[Array, tuple[int, ...], int] | None:
    """Describe `array` as a strided view of a C-contiguous array: (that array, strides, offset), in elements.

    None if a tensor cannot share the memory: `array` is read-only, byte-swapped, has a negative stride, or its strides,
    its offset or its base's size are no multiples of the element size.  Elements are not read.
    """
    itemsize = array.dtype.itemsize
    if not (array.flags.writeable and array.dtype.isnative) or any(
        [stride < 0 or stride % itemsize for stride in array.strides]
    ):
        return None
    strides = tuple([stride // itemsize for stride in array.strides])
    block = array
    while isinstance(block.base, np.ndarray):
        block = block.base
    if not block.flags.c_contiguous:
        block = block.T
    if not block.flags.c_contiguous:
        # The owner of the memory is no contiguous numpy array: view the memory from the first element of `array` to
        # the last as one vector, whose elements outside of `array` are never accessed.
        span = 1 + sum([(size - 1) * stride for size, stride in zip(array.shape, strides, strict=True)])
        return np.lib.stride_tricks.as_strided(array, (span,), (itemsize,)), strides, 0
    start = array.__array_interface__["data"][0] - block.__array_interface__["data"][0]
    if start % itemsize or block.nbytes % itemsize:
        return None
    return block, strides, start // itemsize


@function()
def from_numpy(ndarray: Array) -> Tensor:
    """Make a tensor that shares memory with a numpy array.

    Ops read the array when they run: write it only after `vmflow.synchronize`, or copy it by `vmflow.tensor`.

    Raises:
        TypeError: if `ndarray` is no array, or has a dtype that vmflow lacks.
        ValueError: if the array is read-only or byte-swapped; unless it is C-contiguous, also if it has a negative
            stride, or its strides, its offset in its base, or its base's size are no multiples of the size of its
            elements.

    Example:
        >>> import numpy as np
        >>> flow.from_numpy(np.array([1.0, 2.0]))
        tensor([1., 2.], dtype=vmflow.float64)
    """
    if not isinstance(ndarray, np.ndarray):
        raise TypeError(f"from_numpy: expected a numpy array, got {type(ndarray).__name__}")
    kind = dtypes.from_numpy(ndarray.dtype)
    if not ndarray.flags.writeable:
        raise ValueError("from_numpy: the array is read-only and in-place ops would change it; pass a copy")
    if ndarray.flags.c_contiguous and ndarray.dtype.isnative:
        made = from_array(ndarray, _HOST)
        made._blob.storage.shared = True
        return made
    layout = memory_layout(ndarray)
    if layout is None:
        raise ValueError(
            "from_numpy: the array is byte-swapped, has a negative stride, or is a part of larger elements; "
            "pass numpy.ascontiguousarray(array), or vmflow.tensor(array) to copy"
        )
    block, strides, offset = layout
    blob = Blob(Storage(None, _of(kind, block)), meta(ndarray.shape, kind, Device("cpu")), strides, offset)
    blob.storage.shared = True
    return _fields.new_tensor(blob, None)


# From sizes


@function()
def zeros(
    *size: Any,
    dtype: DType | None = None,
    device: Device | str | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
    **named: Any,
) -> Tensor:
    """Make a tensor of zeros.

    Args:
        size: the shape, as ``zeros(2, 3)``, ``zeros((2, 3))`` or ``zeros(size=(2, 3))``.
        dtype, device: None for the defaults.
        requires_grad: whether gradients are computed for the tensor.
        pin_memory: see `tensor`.
        named: `size` by name, and `placement` and `sbp` of a global tensor, see `Tensor.to_global`.

    Raises:
        TypeError: if there are no sizes, or a size is no integer.
        ValueError: if a size is negative.

    Example:
        >>> flow.zeros(2, 3)
        tensor([[0., 0., 0.],
                [0., 0., 0.]])
    """
    return tracked(zeros_of(sized_meta("zeros", size, dtype, device, named)), requires_grad)


@function()
def ones(
    *size: Any,
    dtype: DType | None = None,
    device: Device | str | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
    **named: Any,
) -> Tensor:
    """Make a tensor of ones of the shape `size`; for the arguments, see `zeros`.

    Raises:
        TypeError, ValueError: as `zeros`.

    Example:
        >>> flow.ones(2, dtype=flow.int32)
        tensor([1, 1], dtype=vmflow.int32)
    """
    return tracked(ones_of(sized_meta("ones", size, dtype, device, named)), requires_grad)


@function()
@out_as_made()
def full(
    size: tuple[int, ...] | list[int],
    fill_value: bool | int | float | complex | Tensor,
    *,
    dtype: DType | None = None,
    device: Device | str | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
    placement: Any = None,
    sbp: Any = None,
    out: Tensor | None = None,
) -> Tensor:
    """Make a tensor of the shape `size` filled with `fill_value`, by default of the dtype that `tensor` gives a number.

    The value of a tensor is waited for.

    Raises:
        TypeError: if a size is no integer, or `fill_value` is no number or tensor, or complex for a real dtype.
        ValueError: if a size is negative, `fill_value` has not one element, or the dtype does not hold it.
        OverflowError: if `fill_value` is an integer that neither int64 nor uint64 holds.

    Example:
        >>> flow.full((2, 2), 7)
        tensor([[7, 7],
                [7, 7]])
    """
    value = one_number("full", fill_value)
    kind = dtype if dtype is not None else dtypes.of_scalar(type(value))
    return tracked(full_of(sized_meta("full", (size,), kind, device, None, placement, sbp), value), requires_grad)


def one_number(name: str, value: Any) -> Any:
    """Convert `value`, a number or a tensor of one element, to a Python number; waits for the value of a tensor.

    Raises:
        TypeError: if `value` is neither a number nor a tensor.
        ValueError: if `value` is a tensor of no or several elements.
        OverflowError: if `value` is an integer that neither int64 nor uint64 holds.
    """
    return number(name, value.item() if isinstance(value, _tensors.Tensor) else value)


def _infer_empty(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    (output,) = attributes
    assert isinstance(output, TensorMeta)
    return Inferred(output, 1000)


_EMPTY = OpExpr("empty", _infer_empty, Form(0, tuple[TensorMeta]), "creation")


@function()
def empty(
    *size: Any,
    dtype: DType | None = None,
    device: Device | str | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
    memory_format: memory_format = contiguous_format,
    **named: Any,
) -> Tensor:
    """Make a tensor with uninitialized elements, in the memory order of `memory_format`.

    Raises:
        TypeError: if there are no sizes, or a size is no integer.
        ValueError: if a size is negative, or the memory format is `preserve_format`, or for another number of
            dimensions.

    Example:
        >>> flow.empty(2, 3).shape
        vmflow.Size([2, 3])
    """
    output = sized_meta("empty", size, dtype, device, named)
    return tracked(laid_out(_empty_of, output, order_of("empty", len(output.shape), memory_format)), requires_grad)


def _empty_of(output: TensorMeta) -> Tensor:
    return _interpreter.dispatch(_EMPTY, (), (output,))


def laid_out(make: Callable[[TensorMeta], Tensor], output: TensorMeta, order: tuple[int, ...] | None) -> Tensor:
    """Return a tensor of the meta `output`, made by `make`, whose dimensions are stored in `order`, outermost first.

    None is C order.

    Raises:
        ValueError: for a global tensor in another order than C order.

    Example:
        >>> meta = flow.random.sized_meta("zeros", (2, 3), None, None)
        >>> flow.random.laid_out(lambda output: flow.zeros(output.shape), meta, (1, 0)).stride()
        (1, 2)
    """
    if order is None:
        return make(output)
    if output.spread is not None:
        raise ValueError("global tensors lie in order; leave memory_format out")
    shape = tuple([output.shape[axis] for axis in order])
    return make(meta(shape, output.dtype, output.device)).permute(inverse(order))


def meta_like(name: str, input: Tensor, dtype: DType | None, device: Device | str | None) -> TensorMeta:
    """Return a meta with the shape of `input`, and its dtype and device (or global spread) where none is given.

    Partial sums give broadcast.

    Raises:
        TypeError: if `input` is no tensor; the message names the function `name`.
        DeviceUnavailable: if the device cannot be used on this machine.

    Example:
        >>> flow.random.meta_like("zeros_like", flow.zeros(2, 3), flow.int32, None).dtype
        vmflow.int32
    """
    check_tensors(name, input)
    spread = input._blob.meta.spread
    if spread is not None and device is None:
        like: TensorMeta = spread.like(tuple(input.shape), _dtype(name, dtype) or input.dtype)
        return like
    return meta(
        tuple(input.shape),
        _dtype(name, dtype) or input.dtype,
        input.device if device is None else chosen_device(device),
    )


@function()
def zeros_like(
    input: Tensor,
    *,
    dtype: DType | None = None,
    device: Device | str | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
    memory_format: memory_format = contiguous_format,
) -> Tensor:
    """Make a tensor of zeros, of `input`'s shape and by default its dtype and device.

    Raises:
        TypeError: if the memory format is none of vmflow's.
        ValueError: if the memory format is for another number of dimensions.

    Example:
        >>> flow.zeros_like(flow.tensor([1, 2]))
        tensor([0, 0])
    """
    order = chosen_order("zeros_like", input, memory_format)
    return tracked(laid_out(zeros_of, meta_like("zeros_like", input, dtype, device), order), requires_grad)


@function()
def ones_like(
    input: Tensor,
    *,
    dtype: DType | None = None,
    device: Device | str | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
    memory_format: memory_format = contiguous_format,
) -> Tensor:
    """Make a tensor of ones, of `input`'s shape and by default its dtype and device.

    Raises:
        TypeError, ValueError: as `zeros_like`.

    Example:
        >>> flow.ones_like(flow.tensor([5, 6]))
        tensor([1, 1])
    """
    order = chosen_order("ones_like", input, memory_format)
    return tracked(laid_out(ones_of, meta_like("ones_like", input, dtype, device), order), requires_grad)


@function()
def full_like(
    input: Tensor,
    fill_value: bool | int | float | complex,
    *,
    dtype: DType | None = None,
    device: Device | str | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
    memory_format: memory_format = contiguous_format,
) -> Tensor:
    """Make a tensor filled with `fill_value`, of `input`'s shape and by default its dtype and device.

    Raises:
        TypeError, ValueError, OverflowError: as `full`; for the memory format, as `zeros_like`.

    Example:
        >>> flow.full_like(flow.tensor([1, 2]), 7)
        tensor([7, 7])
    """
    value = one_number("full_like", fill_value)
    order = chosen_order("full_like", input, memory_format)
    output = meta_like("full_like", input, dtype, device)
    return tracked(laid_out(lambda laid: full_of(laid, value), output, order), requires_grad)


@function()
def empty_like(
    input: Tensor,
    *,
    dtype: DType | None = None,
    device: Device | str | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
    memory_format: memory_format = contiguous_format,
) -> Tensor:
    """Make a tensor with uninitialized elements, of `input`'s shape and by default its dtype and device.

    Raises:
        TypeError, ValueError: as `zeros_like`.

    Example:
        >>> flow.empty_like(flow.tensor([1, 2])).shape
        vmflow.Size([2])
    """
    order = chosen_order("empty_like", input, memory_format)
    return tracked(laid_out(_empty_of, meta_like("empty_like", input, dtype, device), order), requires_grad)


# Ranges


def _infer_range(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    (output,) = attributes
    assert isinstance(output, TensorMeta)
    return Inferred(output, output.numel * CHEAP * 4)


_RANGE = OpExpr("arange", _infer_range, Form(0, tuple[TensorMeta], scalars=2), "creation")


@function()
@out_as_made()
def arange(
    start: float,
    end: float | None = None,
    step: float = 1,
    *,
    dtype: DType | None = None,
    device: Device | str | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
    placement: Any = None,
    sbp: Any = None,
    out: Tensor | None = None,
) -> Tensor:
    """``start, start + step, ...`` up to, without, `end`; ``arange(end)`` starts at 0.

    Each of the ceil((end - start) / step) elements is computed from its index, in int64 or double precision, so that
    rounding errors do not add up.  The dtype is by default int64 if all arguments are integers, else the default dtype;
    for an integer `dtype` the arguments first lose their fractions.

    Raises:
        ValueError: if `step` is 0 or leads away from `end`, an argument is not finite, or `start` or `step` is 2**63 or
            more and an integer dtype does not hold it.
        OverflowError: for an integer that neither int64 nor uint64 holds.
        TypeError: for bool as dtype, or an argument that is no real number.

    Example:
        >>> flow.arange(1, 10, 3)
        tensor([1, 4, 7])
    """
    if end is None:
        start, end = 0, start
    start, end, step = [
        number("arange", limit.item() if isinstance(limit, _tensors.Tensor) else limit) for limit in (start, end, step)
    ]
    if isinstance(start, complex) or isinstance(end, complex) or isinstance(step, complex):
        raise TypeError(f"arange: the limits and the step must be real, got {start}, {end} and {step}")
    integers = all([isinstance(limit, int) for limit in (start, end, step)])
    if _dtype("arange", dtype) is dtypes.bool_:
        raise TypeError("arange: there is no range of bools")
    if not (math.isfinite(start) and math.isfinite(end) and math.isfinite(step)):
        raise ValueError(f"arange: the limits must be finite, got {start}, {end} and {step}")
    if dtype is not None and dtype.category == dtypes.INTEGER and not integers:
        if int(step) == 0 != step:
            raise ValueError(f"arange: the step {step} is 0 as {dtype.name}; give a floating-point dtype")
        start, end, step = int(start), int(end), int(step)
        integers = True
    if step == 0:
        raise ValueError("arange: step must not be 0")
    if (end - start) * step < 0:
        raise ValueError(f"arange: a step of {step} does not lead from {start} to {end}")
    length = -(-(end - start) // step) if integers else math.ceil((end - start) / step)
    output = sized_meta(
        "arange", (int(length),), dtypes.int64 if dtype is None and integers else dtype, device, None, placement, sbp
    )
    if integers and max(start, step) >= 1 << 63:
        # Kernels take integers of int64, in which those of uint64 wrap around.
        if output.dtype.category == dtypes.INTEGER:
            start, step = [
                value if value < 1 << 63 else fitting("arange", value, output.dtype) - (1 << 64)
                for value in (start, step)
            ]
        else:
            start, step = float(start), float(step)
    return tracked(_interpreter.dispatch(_RANGE, (), (output,), (start, step)), requires_grad)


def _infer_linspace(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    (output,) = attributes
    assert isinstance(output, TensorMeta)
    return Inferred(output, output.numel * CHEAP * 8)


_LINSPACE = OpExpr("linspace", _infer_linspace, Form(0, tuple[TensorMeta], scalars=2), "creation")


@function()
@out_as_made()
def linspace(
    start: complex,
    end: complex,
    steps: int,
    *,
    dtype: DType | None = None,
    device: Device | str | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
    placement: Any = None,
    sbp: Any = None,
    out: Tensor | None = None,
) -> Tensor:
    """Make a vector of `steps` values from `start` to `end`, both included, at equal distances.

    An integer dtype drops fractions.  A vector of one element holds `start`.  Complex limits give a complex dtype.

    Raises:
        TypeError: for the dtype bool; for another than a complex one if a limit is complex; if `steps` is no integer.
        ValueError: if `steps` is negative, or an integer dtype does not hold a limit.

    Example:
        >>> flow.linspace(0, 1, 3)
        tensor([0.0000, 0.5000, 1.0000])
    """
    if steps < 0:
        raise ValueError(f"linspace: steps cannot be negative, got {steps}")
    output = sized_meta("linspace", (steps,), dtype, device, None, placement, sbp)
    if output.dtype is dtypes.bool_:
        raise TypeError("linspace is not defined for bool tensors; give a dtype of numbers")
    limits = one_number("linspace", start), one_number("linspace", end)
    if any([isinstance(limit, complex) for limit in limits]):
        kind = dtypes.promote_types(output.dtype, dtypes.complex64) if dtype is None else output.dtype
        for limit in limits:
            fitting("linspace", limit, kind)
        real, imag = [
            linspace(first, last, steps, dtype=kind.to_real(), device=device, placement=placement, sbp=sbp)
            for first, last in ([limit.real for limit in limits], [limit.imag for limit in limits])
        ]
        return tracked(real + imag * 1j, requires_grad)
    if output.dtype.category == dtypes.INTEGER:
        for limit in limits:
            fitting("linspace", limit, output.dtype)
    return tracked(_interpreter.dispatch(_LINSPACE, (), (output,), limits), requires_grad)


def _infer_eye(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    (output,) = attributes
    assert isinstance(output, TensorMeta)
    rows, columns = output.shape
    return Inferred(output, rows * columns * CHEAP)


_EYE = OpExpr("eye", _infer_eye, Form(0, tuple[TensorMeta]), "creation")


@function()
@out_as_made()
def eye(
    n: int,
    m: int | None = None,
    *,
    dtype: DType | None = None,
    device: Device | str | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
    placement: Any = None,
    sbp: Any = None,
    out: Tensor | None = None,
) -> Tensor:
    """Make an n x m matrix (m is n by default) with ones on the diagonal and zeros elsewhere.

    Raises:
        TypeError: if a size is no integer.
        ValueError: if a size is negative.

    Example:
        >>> flow.eye(2, 3)
        tensor([[1., 0., 0.],
                [0., 1., 0.]])
    """
    output = sized_meta("eye", (n, n if m is None else m), dtype, device, None, placement, sbp)
    return tracked(_interpreter.dispatch(_EYE, (), (output,)), requires_grad)


# Like a tensor: methods


def are_sizes(data: tuple[Any, ...]) -> bool:
    """Return whether the arguments of `Tensor` are the sizes of its dimensions, or a `Size`, and not its elements."""
    return all(isinstance(datum, (int, np.integer)) for datum in data) or (len(data) == 1 and isinstance(data[0], Size))


@method()
def __init__(self: Tensor, *data: Any, device: Device | str | None = None) -> None:
    if are_sizes(data):
        made = empty(*(data or (0,)), device=device)
    else:
        made = tensor(*data, dtype=dtypes.get_default_dtype(), device=device)
    self._blob, self._lease, self._autograd, self._base = made._blob, made._lease, None, None


@method()
def new_zeros(
    self: Tensor,
    *size: Any,
    dtype: DType | None = None,
    device: Device | str | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
    **named: Any,
) -> Tensor:
    """Make a tensor of zeros of the shape `size`, by default with this tensor's dtype and device.

    Raises:
        TypeError: if a size is no integer.
        ValueError: if a size is negative.

    Example:
        >>> flow.tensor([1]).new_zeros(2)
        tensor([0, 0])
    """
    return tracked(zeros_of(_meta_like(self, "new_zeros", size, dtype, device, named)), requires_grad)


@method()
def new_ones(
    self: Tensor,
    *size: Any,
    dtype: DType | None = None,
    device: Device | str | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
    **named: Any,
) -> Tensor:
    """Make a tensor of ones of the shape `size`, by default with this tensor's dtype and device.

    Raises:
        TypeError, ValueError: as `new_zeros`.

    Example:
        >>> flow.tensor([1]).new_ones(2)
        tensor([1, 1])
    """
    return tracked(ones_of(_meta_like(self, "new_ones", size, dtype, device, named)), requires_grad)


@method()
def new_full(
    self: Tensor,
    size: tuple[Any, ...],
    fill_value: Any,
    dtype: DType | None = None,
    device: Device | str | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """Make a tensor of the shape `size` filled with `fill_value`, by default with this tensor's dtype and device.

    Raises:
        TypeError, ValueError, OverflowError: as `vmflow.full`.

    Example:
        >>> flow.tensor([1]).new_full((2,), 7)
        tensor([7, 7])
    """
    value = one_number("new_full", fill_value)
    return tracked(full_of(_meta_like(self, "new_full", (size,), dtype, device), value), requires_grad)


@method()
def new_empty(
    self: Tensor,
    *size: Any,
    dtype: DType | None = None,
    device: Device | str | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
    **named: Any,
) -> Tensor:
    """Make an uninitialized tensor of the shape `size`, by default with this tensor's dtype and device.

    Raises:
        TypeError, ValueError: as `new_zeros`.

    Example:
        >>> flow.tensor([1]).new_empty(2).dtype
        vmflow.int64
    """
    made = _meta_like(self, "new_empty", size, dtype, device, named)
    return tracked(_interpreter.dispatch(_EMPTY, (), (made,)), requires_grad)


@method()
def new(self: Tensor, *data: Any) -> Tensor:
    """Call `new_empty` for integers, a `Size`, or nothing (shape [0]), else `new_tensor`; PyTorch's older name.

    Raises:
        TypeError, ValueError, OverflowError: as `new_empty` and `new_tensor`.

    Example:
        >>> flow.ones(1).new([1, 2])
        tensor([1., 2.])
    """
    if are_sizes(data):
        return new_empty(self, *data) if data else new_empty(self, 0)
    return new_tensor(self, *data)


@method()
def new_tensor(
    self: Tensor,
    data: Any,
    *,
    dtype: DType | None = None,
    device: Device | str | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """Copy `data`, by default to this tensor's dtype and device, with the shape of `data`.

    Raises:
        TypeError, ValueError, OverflowError: as `vmflow.tensor`.

    Example:
        >>> flow.ones(1).new_tensor([1, 2])
        tensor([1., 2.])
    """
    kind = dtype or self.dtype
    spread = self._blob.meta.spread
    if spread is not None and device is None:
        everywhere = spread.everywhere()
        return tensor(data, dtype=kind, requires_grad=requires_grad, placement=everywhere.placement, sbp=everywhere.sbp)
    chosen = self.device if device is None else Device(device)
    return tensor(data, dtype=kind, device=chosen, requires_grad=requires_grad)


def _meta_like(
    self: Tensor,
    name: str,
    size: tuple[Any, ...],
    dtype: DType | None,
    device: Device | str | None,
    named: dict[str, Any] | None = None,
) -> TensorMeta:
    """Return the meta of a tensor that a method such as `new_zeros` of `self` makes.

    A global `self` gives a global meta by default: broadcast on its ranks, or for the same shape with its splits."""
    placement, sbp = (named.pop("placement", None), named.pop("sbp", None)) if named else (None, None)
    shape = lengths(name, size, named)
    kind = _dtype(name, dtype) or self.dtype
    spread = self._blob.meta.spread
    if spread is not None and placement is None and sbp is None and device is None:
        beside: TensorMeta = spread.like(shape, kind) if shape == self.shape else spread.everywhere().like(shape, kind)
        return beside
    if placement is not None or sbp is not None:
        return sized_meta(name, (shape,), kind, device, None, placement, sbp)
    chosen = self.device
    if device is not None:
        chosen = Device(device)
        chosen.require()
    return meta(shape, kind, chosen)
