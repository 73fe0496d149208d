"""Questions about tensors and dtypes, most of them answered without computing anything."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from vmflow import dtypes, tensors as _tensors
from vmflow.dtypes import BOOL, dtype as DType
from vmflow.instructions.blob import Size

from .declaration import function, method, public
from .elementwise.inference import number, result_dtype
from .shape.view import sizes
from .table import broadcast_shapes as _broadcast_shapes

if TYPE_CHECKING:
    from vmflow.tensors import Tensor

    from .elementwise.inference import Scalar


@function()
def is_tensor(obj: Any) -> bool:
    """Whether it is a tensor."""
    return isinstance(obj, _tensors.Tensor)


@function()
def is_floating_point(input: Tensor) -> bool:
    """Whether the dtype is a floating-point one."""
    return input.is_floating_point()


@function()
def is_complex(input: Tensor) -> bool:
    """Whether the dtype is a complex one."""
    return input.is_complex()


@public()
def is_signed(input: Tensor) -> bool:
    """Whether the dtype has negative numbers: all have but uint8 and bool."""
    return input.dtype not in (dtypes.uint8, dtypes.bool_)


@public()
def is_same_size(input: Tensor, other: Tensor) -> bool:
    """Whether both have the same shape."""
    return input.shape == other.shape


@public()
def is_inference(input: Tensor) -> bool:
    """False: a tensor made under `inference_mode` is as any other."""
    return False


@public()
def get_device(input: Tensor) -> int:
    """The index of the device, -1 for the CPU."""
    return -1 if input.device.type == "cpu" else input.device.index or 0


@method()
def is_set_to(self: Tensor, tensor: Tensor) -> bool:
    """Whether both see the same memory, from the same place and by the same strides."""
    mine, other = self._blob, tensor._blob
    return mine.storage is other.storage and (mine.offset, self.shape, self.stride()) == (
        other.offset,
        tensor.shape,
        tensor.stride(),
    )


@public()
def is_nonzero(input: Tensor) -> bool:
    """Whether the one element is not zero.  Waits for it.

    Raises:
        RuntimeError: if there is not exactly one element.
    """
    if input.numel() != 1:
        raise RuntimeError(f"is_nonzero: a tensor of shape {list(input.shape)} has {input.numel()} elements, not one")
    return bool(input)


@function()
def numel(input: Tensor) -> int:
    """The number of elements."""
    return input.numel()


@function()
def result_type(tensor1: Tensor | Scalar, tensor2: Tensor | Scalar) -> DType:
    """The dtype that an op of these two, tensors or numbers, computes in."""
    given = (tensor1, tensor2)
    metas = tuple([value._blob.meta for value in given if isinstance(value, _tensors.Tensor)])
    kinds = tuple([type(number("result_type", value)) for value in given if not isinstance(value, _tensors.Tensor)])
    return result_dtype(metas, kinds)


@function()
def can_cast(from_: DType, to: DType) -> bool:
    """Whether a result of one dtype may be put into a tensor of another, as in-place ops do.

    Not if that would lose a fraction, an imaginary part, or make a truth value of a number.
    """
    if to.category == BOOL:
        return from_.category == BOOL
    return from_.category <= to.category


@function()
def broadcast_shapes(*shapes: int | tuple[int, ...]) -> Size:
    """The shape to which these, given as tuples or for vectors as numbers, broadcast together.

    Raises:
        ValueError: if they do not.
    """
    if not shapes:
        return Size(())
    given = [sizes("broadcast_shapes", (cast("Any", value),)) for value in shapes]
    if any([size < 0 for shape in given for size in shape]):
        raise ValueError(f"broadcast_shapes: sizes cannot be negative, got {[list(value) for value in given]}")
    return Size(_broadcast_shapes("broadcast_shapes", *given))
