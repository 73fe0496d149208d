"""Functions that tell properties of tensors and dtypes, most of them without any computation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from vmflow import tensors as _tensors
from vmflow.dtypes import BOOL, dtype as DType
from vmflow.instructions.blob import Size
from vmflow.operands import check_tensors, described

from .declaration import function, method, public
from .elementwise.inference import number, result_dtype
from .shape.view import sizes
from .table import broadcast_shapes as _broadcast_shapes

if TYPE_CHECKING:
    from vmflow.tensors import Tensor

    from .elementwise.inference import Scalar


@function()
def is_tensor(obj: Any) -> bool:
    """Whether an object is a tensor.  Raises no error for any object.

    Example:
        >>> flow.is_tensor(flow.tensor(1))
        True
    """
    return isinstance(obj, _tensors.Tensor)


@function()
def is_floating_point(input: Tensor) -> bool:
    """Whether the elements are of a floating-point dtype.

    Raises:
        TypeError: if `input` is no tensor.

    Example:
        >>> flow.is_floating_point(flow.tensor(1.0))
        True
    """
    check_tensors("is_floating_point", input)
    return input.is_floating_point()


@function()
def is_complex(input: Tensor) -> bool:
    """Whether the elements are of a complex dtype.

    Raises:
        TypeError: if `input` is no tensor.

    Example:
        >>> flow.is_complex(flow.tensor(1j))
        True
    """
    check_tensors("is_complex", input)
    return input.is_complex()


@public()
def is_signed(input: Tensor) -> bool:
    """Whether the tensor's dtype has negative numbers: False for bool and unsigned integers.

    Raises:
        TypeError: if `input` is no tensor.

    Example:
        >>> flow.is_signed(flow.tensor(1, dtype=flow.uint8))
        False
    """
    check_tensors("is_signed", input)
    return input.dtype.is_signed


@public()
def is_same_size(input: Tensor, other: Tensor) -> bool:
    """Whether two tensors have the same shape.

    Raises:
        TypeError: if an argument is no tensor.

    Example:
        >>> flow.is_same_size(flow.zeros(2), flow.ones(2))
        True
    """
    check_tensors("is_same_size", input, other)
    return input.shape == other.shape


@public()
def is_inference(input: Tensor) -> bool:
    """False for every tensor, of any shape: tensors made under `inference_mode` are like others.  Raises no errors.

    Example:
        >>> flow.is_inference(flow.tensor(1))
        False
    """
    return False


@public()
def get_device(input: Tensor) -> int:
    """The number of the device on which the tensor is; -1 for the CPU, 0 for the meta device.

    Raises:
        TypeError: if `input` is no tensor.

    Example:
        >>> flow.get_device(flow.tensor(1))
        -1
    """
    check_tensors("get_device", input)
    return -1 if input.device.type == "cpu" else input.device.index or 0


@method()
def is_set_to(self: Tensor, tensor: Tensor) -> bool:
    """Whether both tensors view the same memory, with the same offset, shape and strides.

    Raises:
        TypeError: if `tensor` is no tensor.

    Example:
        >>> x = flow.zeros(2)
        >>> x.is_set_to(x.view(2))
        True
    """
    check_tensors("is_set_to", tensor)
    mine, other = self._blob, tensor._blob
    return mine.storage is other.storage and (mine.offset, self.shape, self.stride()) == (
        other.offset,
        tensor.shape,
        tensor.stride(),
    )


@public()
def is_nonzero(input: Tensor) -> bool:
    """Whether the only element of a tensor is not zero.  Waits until the element is computed.

    Raises:
        TypeError: if `input` is no tensor.
        RuntimeError: if there is not exactly one element, or for a meta tensor.

    Example:
        >>> flow.is_nonzero(flow.tensor([5]))
        True
    """
    check_tensors("is_nonzero", input)
    if input.numel() != 1:
        raise RuntimeError(f"is_nonzero: a tensor of shape {list(input.shape)} has {input.numel()} elements, not one")
    return bool(input)


@function()
def numel(input: Tensor) -> int:
    """The number of elements of a tensor.

    Raises:
        TypeError: if `input` is no tensor.

    Example:
        >>> flow.numel(flow.zeros(2, 3))
        6
    """
    check_tensors("numel", input)
    return input.numel()


@function()
def result_type(tensor1: Tensor | Scalar, tensor2: Tensor | Scalar) -> DType:
    """The dtype to which two operands of an op, tensors or numbers, promote.

    Raises:
        TypeError: if an operand is neither a tensor nor a number, or for uint64 with a signed integer dtype.
        OverflowError: for an integer beyond int64 and uint64.

    Example:
        >>> flow.result_type(flow.tensor([1]), 2.0)
        vmflow.float32
    """
    operands = (tensor1, tensor2)
    metas = tuple([operand._blob.meta for operand in operands if isinstance(operand, _tensors.Tensor)])
    numbers = [operand for operand in operands if not isinstance(operand, _tensors.Tensor)]
    kinds = tuple([type(number("result_type", scalar)) for scalar in numbers])
    return result_dtype(metas, kinds)


@function()
def can_cast(from_: DType, to: DType) -> bool:
    """Whether an in-place op such as `add_` may store a result of dtype `from_` in a tensor of dtype `to`.

    False if the cast would lose a fraction or an imaginary part, or turn a number into a bool.

    Raises:
        TypeError: if an argument is no dtype.

    Example:
        >>> flow.can_cast(flow.float32, flow.int32)
        False
    """
    for given in (from_, to):
        if not isinstance(given, DType):
            raise TypeError(f"can_cast: expected dtypes, got {described(given)}")
    if to.category == BOOL:
        return from_.category == BOOL
    return from_.category <= to.category


@function()
def broadcast_shapes(*shapes: int | tuple[int, ...]) -> Size:
    """The shape to which these shapes broadcast together; a number n stands for the shape (n,).

    Raises:
        TypeError: if a size is no integer.
        ValueError: if the shapes do not broadcast, or a size is negative.

    Example:
        >>> flow.broadcast_shapes((2, 1), 3)
        vmflow.Size([2, 3])
    """
    if not shapes:
        return Size(())
    tuples = [sizes("broadcast_shapes", (cast("Any", shape),)) for shape in shapes]
    if any([size < 0 for shape in tuples for size in shape]):
        raise ValueError(f"broadcast_shapes: sizes cannot be negative, got {[list(shape) for shape in tuples]}")
    return Size(_broadcast_shapes("broadcast_shapes", *tuples))
