"""Checks of the operands of layers: sizes for each spatial dimension, shapes, and dtypes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from vmflow import dtypes
from vmflow.arguments import is_integer
from vmflow.dtypes import FLOATING, INTEGER, dtype as DType
from vmflow.instructions.blob import TensorMeta
from vmflow.ops.table import MOST_OF_WINDOWS

if TYPE_CHECKING:
    from vmflow.tensors import Tensor

# Height and width.
Pair = tuple[int, int]

# One integer for each spatial dimension: for the length; for height and width; or for depth, height and width.
Sizes = tuple[int, ...]

# Names, in error messages, of the spatial dimensions of a line, an image and a volume.
SPATIAL: dict[int, str] = {1: "length", 2: "height, width", 3: "depth, height, width"}

_EACH: dict[int, str] = {1: "a tuple of one", 2: "a pair of integers", 3: "three integers"}


def sizes(name: str, what: str, value: Any, least: int, rank: int) -> Sizes:
    """Convert an argument such as a stride, one integer or one for each dimension, to a tuple of `rank` integers.

    Raises:
        TypeError: if `value` is neither one integer nor a tuple or list of one or of `rank` integers.
        ValueError: if an integer is below `least`, or above `MOST_OF_WINDOWS`.
    """
    numbers = tuple(value) if isinstance(value, (tuple, list)) else (value,)
    if len(numbers) == 1:
        numbers *= rank
    if len(numbers) != rank or not all([is_integer(size) for size in numbers]):
        raise TypeError(f"{name}: {what} must be an integer or {_EACH[rank]}, not {value!r}")
    integers = tuple([int(size) for size in numbers])
    if min(integers) < least:
        raise ValueError(f"{name}: {what} must be at least {least}, got {value!r}")
    if max(integers) > MOST_OF_WINDOWS:
        raise ValueError(f"{name}: {what} must be at most {MOST_OF_WINDOWS}, got {value!r}")
    return integers


def check_shape(name: str, what: str, operand: TensorMeta, shape: tuple[int, ...]) -> None:
    """Raise ValueError, which names the op and the operand, unless the operand has the shape `shape`."""
    if operand.shape != tuple(shape):
        raise ValueError(f"{name}: expected {what} of shape {list(shape)}, got {list(operand.shape)}")


def layout(rank: int) -> str:
    """Describe, for errors, the shape of an input with `rank` spatial dimensions, with and without a batch."""
    return f"(samples, channels, {SPATIAL[rank]}) or (channels, {SPATIAL[rank]})"


def batched(rank: int, input: Tensor, function: Callable[[Tensor], Any]) -> Any:
    """Apply `function` to a batch; or to a single sample as a batch of one, and squeeze that from the results."""
    if input.ndim != rank + 1:
        return function(input)
    results = function(input.unsqueeze(0))
    return tuple([result.squeeze(0) for result in results]) if isinstance(results, tuple) else results.squeeze(0)


def check_floating(name: str, source: TensorMeta) -> None:
    """Raise TypeError unless the operand of the op `name` has a floating-point dtype."""
    if source.dtype.category != FLOATING:
        raise TypeError(f"{name} is not defined for {source.dtype.name} tensors; convert with .float() first")


def check_class_indices(name: str, target: TensorMeta) -> None:
    """Raise TypeError unless the class indices of the op or layer `name` have an integer dtype."""
    if target.dtype.category != INTEGER:
        raise TypeError(f"{name}: class indices must be integers, not {target.dtype.name}; convert with .long()")


def is_half(source: TensorMeta) -> bool:
    """Return whether the tensor's dtype is float16 or bfloat16."""
    return dtypes.is_half(source.dtype)


def computes_in(source: TensorMeta) -> DType:
    """Return the dtype in which a layer's kernel computes: float32 for float16 and bfloat16, else the tensor's own."""
    return dtypes.float32 if is_half(source) else source.dtype
