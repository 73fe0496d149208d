"""Checks of layers' operands: pairs of sizes, floating-point dtypes, and half precision in float32."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from vmflow import dtypes
from vmflow.dtypes import FLOATING, dtype as DType
from vmflow.instructions.blob import TensorMeta
from vmflow.ops.table import MOST_OF_WINDOWS

if TYPE_CHECKING:
    from vmflow.tensors import Tensor

# Height and width.
Pair = tuple[int, int]

# One number for each spatial dimension: length; height and width; or depth, height and width.
Sizes = tuple[int, ...]

# The names of the spatial dimensions, by their number.
SPATIAL: dict[int, str] = {1: "length", 2: "height, width", 3: "depth, height, width"}

_EACH: dict[int, str] = {1: "a tuple of one", 2: "a pair of integers", 3: "three integers"}


def sizes(name: str, what: str, value: Any, least: int, rank: int) -> Sizes:
    """One integer for all of `rank` spatial dimensions, or one for each.

    Raises:
        TypeError: if it is neither.
        ValueError: if one is below `least`, or above `MOST_OF_WINDOWS`.
    """
    numbers = tuple(value) if isinstance(value, (tuple, list)) else (value,)
    if len(numbers) == 1:
        numbers *= rank
    if len(numbers) != rank or any(not hasattr(size, "__index__") or isinstance(size, bool) for size in numbers):
        raise TypeError(f"{name}: {what} must be an integer or {_EACH[rank]}, not {value!r}")
    integers = tuple([int(size) for size in numbers])
    if min(integers) < least:
        raise ValueError(f"{name}: {what} must be at least {least}, got {value!r}")
    if max(integers) > MOST_OF_WINDOWS:
        raise ValueError(f"{name}: {what} must be at most {MOST_OF_WINDOWS}, got {value!r}")
    return integers


def check_shape(name: str, what: str, operand: TensorMeta, shape: tuple[int, ...]) -> None:
    """Raise ValueError unless an operand of this name has this shape."""
    if operand.shape != tuple(shape):
        raise ValueError(f"{name}: expected {what} of shape {list(shape)}, got {list(operand.shape)}")


def layout(rank: int) -> str:
    """A description, for errors, of an input with `rank` spatial dimensions, with and without a batch."""
    return f"(samples, channels, {SPATIAL[rank]}) or (channels, {SPATIAL[rank]})"


def batched(rank: int, input: Tensor, function: Callable[[Tensor], Any]) -> Any:
    """Apply `function` to a batch, or to a single sample, which has no dimension of samples."""
    if input.ndim != rank + 1:
        return function(input)
    results = function(input.unsqueeze(0))
    return tuple([result.squeeze(0) for result in results]) if isinstance(results, tuple) else results.squeeze(0)


def check_floating(name: str, source: TensorMeta) -> None:
    """Raise unless `source` has a floating-point dtype.

    Raises:
        TypeError: for another dtype.
    """
    if source.dtype.category != FLOATING:
        raise TypeError(f"{name} is not defined for {source.dtype.name} tensors; convert with .float() first")


def is_half(source: TensorMeta) -> bool:
    """Whether the dtype has sixteen bits."""
    return dtypes.is_half(source.dtype)


def computes_in(source: TensorMeta) -> DType:
    """The dtype to compute in: float32 for half precision, else the tensor's own."""
    return dtypes.float32 if is_half(source) else source.dtype
