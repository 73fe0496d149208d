"""Adaptive pooling: a line, an image or a volume is divided into a given number of windows of nearly equal size.

If the windows divide the input exactly, this is ordinary pooling.  Else neighbours may overlap by an element.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from vmflow import dtypes, interpreter as _interpreter
from vmflow.dtypes import COMPLEX, INTEGER
from vmflow.instructions.blob import meta
from vmflow.operands import check_tensors
from vmflow.ops.elementwise.inference import CHEAP
from vmflow.ops.table import Attributes, Count, Form, Inferred, Kinds, Metas, OpExpr

from .layer_operands import Sizes, batched, check_floating, check_shape, layout, sizes
from .pooling import (
    avg_pool1d,
    avg_pool2d,
    avg_pool3d,
    in_data_format,
    max_gradient,
    max_pool1d,
    max_pool2d,
    max_pool3d,
)

if TYPE_CHECKING:
    from vmflow.autograd.node import OpNode
    from vmflow.tensors import Tensor

# The attributes of the ops of average pooling and its gradient: (output size, input size).  Max-pooling has the output
# size alone.
_Both = tuple[Sizes, Sizes]

_AVERAGES: Final[dict[int, Any]] = {1: avg_pool1d, 2: avg_pool2d, 3: avg_pool3d}
_LARGEST: Final[dict[int, Any]] = {1: max_pool1d, 2: max_pool2d, 3: max_pool3d}


def _infer_mean(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    wanted, _ = cast("_Both", attributes)
    (source,) = metas
    output = meta((*source.shape[:2], *wanted), source.dtype, source.device)
    return Inferred(output, source.numel * CHEAP * 4 + 5000)


def _infer_mean_gradient(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    wanted, given = cast("_Both", attributes)
    (gradient,) = metas
    name = f"adaptive_avg_pool{len(given)}d"
    check_floating(name, gradient)
    check_shape(name, "a gradient", gradient, (*gradient.shape[:2], *wanted))
    output = meta((*gradient.shape[:2], *given), gradient.dtype, gradient.device)
    return Inferred(output, output.numel * CHEAP * 4 + 5000)


def _mean_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    both = cast("_Both", node.attributes)
    return (_interpreter.dispatch(FAMILIES[len(both[0])].mean_gradient, (gradient,), both),)


def _mean_gradient_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    both = cast("_Both", node.attributes)
    return (_interpreter.dispatch(FAMILIES[len(both[0])].mean, (gradient,), both),)


def _infer_largest(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    wanted = cast("Sizes", attributes)
    (source,) = metas
    shape = (*source.shape[:2], *wanted)
    outputs = (meta(shape, source.dtype, source.device), meta(shape, dtypes.int64, source.device))
    return Inferred(outputs, source.numel * CHEAP * 10 + 10000)


class _Family(NamedTuple):
    """The ops of adaptive pooling for one number of spatial dimensions."""

    mean: OpExpr
    mean_gradient: OpExpr
    largest: OpExpr


def _declared(rank: int) -> _Family:
    family = _Family(
        OpExpr(f"adaptive_avg_pool{rank}d", _infer_mean, Form(1, _Both), "pooling"),
        OpExpr(f"adaptive_avg_pool{rank}d_gradient", _infer_mean_gradient, Form(1, _Both), "pooling"),
        OpExpr(f"adaptive_max_pool{rank}d", _infer_largest, Form(1, tuple[Count, ...]), "pooling"),
    )
    family.mean.gradient()(_mean_gradient)
    family.mean_gradient.gradient()(_mean_gradient_gradient)
    family.largest.gradient(outputs=(1,))(max_gradient)
    return family


FAMILIES: Final = {rank: _declared(rank) for rank in (1, 2, 3)}


# Functions


def _wanted(name: str, rank: int, input: Tensor, output_size: Any) -> Sizes:
    """Convert the argument `output_size` to a size for each spatial dimension; a None stands for the input's size.

    Raises:
        TypeError, ValueError: for an input or an `output_size` that does not fit.
    """
    check_tensors(name, input)
    if input.ndim not in (rank + 1, rank + 2) or not all(input.shape[-rank:]):
        raise ValueError(
            f"{name}: expected an input {layout(rank)} with every size but that of the batch above 0, got "
            f"{list(input.shape)}"
        )
    target = tuple(output_size) if isinstance(output_size, (tuple, list)) else (output_size,)
    if len(target) == 1:
        target *= rank
    if len(target) == rank:
        target = tuple(
            [size if count is None else count for count, size in zip(target, input.shape[-rank:], strict=True)]
        )
    return sizes(name, "output_size", target, 1, rank)


def _even(input: Tensor, wanted: Sizes) -> Sizes | None:
    """Return the size of the windows if `wanted` windows of equal size divide the input exactly, else None."""
    lengths = input.shape[-len(wanted) :]
    if any(length % count for length, count in zip(lengths, wanted, strict=True)):
        return None
    return tuple([length // count for length, count in zip(lengths, wanted, strict=True)])


def _adaptive_avg_pool(rank: int, input: Tensor, output_size: Any, data_format: str) -> Tensor:
    name = f"adaptive_avg_pool{rank}d"
    if data_format != "channels_first":
        result: Tensor = in_data_format(
            name, rank, input, data_format, lambda moved: _adaptive_avg_pool(rank, moved, output_size, "channels_first")
        )
        return result
    wanted = _wanted(name, rank, input, output_size)
    check_floating(name, input._blob.meta)
    if set(wanted) == {1}:
        return input.mean(tuple(range(-rank, 0)), keepdim=True)
    even = _even(input, wanted)
    if even is not None:
        average: Tensor = _AVERAGES[rank](input, even)
        return average
    both = (wanted, tuple(input.shape[-rank:]))
    result = batched(rank, input, lambda batch: _interpreter.dispatch(FAMILIES[rank].mean, (batch,), both))
    return result


def adaptive_avg_pool1d(input: Tensor, output_size: int | tuple[int], *, data_format: str = "channels_first") -> Tensor:
    """The mean of windows that divide (samples, channels, length), or (channels, length); see `adaptive_avg_pool2d`.

    Returns:
        A tensor of shape (samples, channels, output_size), or without samples.

    Raises:
        TypeError, ValueError: as `adaptive_avg_pool2d`.

    Example:
        >>> flow.adaptive_avg_pool1d(flow.tensor([[1.0, 2.0, 3.0, 4.0]]), 2)
        tensor([[1.5000, 3.5000]])
    """
    return _adaptive_avg_pool(1, input, output_size, data_format)


def adaptive_avg_pool2d(
    input: Tensor, output_size: int | tuple[int | None, int | None] | None, *, data_format: str = "channels_first"
) -> Tensor:
    """The mean of each of rows x columns windows that divide the image as evenly as possible.

    Args:
        input: (samples, channels, height, width), or (channels, height, width).
        output_size: rows and columns, one number for both; None keeps the input's size.
        data_format: "channels_first", as above, or "channels_last", of input and output.  From OneFlow.

    Returns:
        A tensor of shape (samples, channels, rows, columns), or without samples.  The windows of row i cover the
        input's rows from ``floor(i * height / rows)`` up to, without, ``ceil((i + 1) * height / rows)``.

    Raises:
        TypeError: if `input` is no floating-point tensor, or `output_size` neither one nor two integers or None.
        ValueError: for other numbers of dimensions, an empty image, an `output_size` below 1, or another data format.

    Example:
        >>> flow.nn.functional.adaptive_avg_pool2d(flow.tensor([[[1.0, 2.0], [3.0, 4.0]]]), (1, 2))
        tensor([[[2., 3.]]])
    """
    return _adaptive_avg_pool(2, input, output_size, data_format)


def adaptive_avg_pool3d(
    input: Tensor, output_size: int | tuple[int | None, ...] | None, *, data_format: str = "channels_first"
) -> Tensor:
    """The mean of windows that divide (samples, channels, depth, height, width); see `adaptive_avg_pool2d`.

    Returns:
        A tensor of shape (samples, channels, *output_size), or without samples.

    Raises:
        TypeError, ValueError: as `adaptive_avg_pool2d`.

    Example:
        >>> flow.nn.functional.adaptive_avg_pool3d(flow.arange(8.0).reshape(1, 2, 2, 2), 1)
        tensor([[[[3.5000]]]])
    """
    return _adaptive_avg_pool(3, input, output_size, data_format)


def _adaptive_max_pool(rank: int, input: Tensor, output_size: Any, return_indices: bool) -> Any:
    name = f"adaptive_max_pool{rank}d"
    wanted = _wanted(name, rank, input, output_size)
    if not INTEGER <= input.dtype.category < COMPLEX:
        raise TypeError(f"{name} is not defined for {input.dtype.name} tensors")
    even = _even(input, wanted)
    if even is not None:
        return _LARGEST[rank](input, even, return_indices=return_indices)

    def function(batch: Tensor) -> Any:
        values, indices = _interpreter.dispatch_several(FAMILIES[rank].largest, (batch,), wanted)
        return (values, indices) if return_indices else values

    return batched(rank, input, function)


def adaptive_max_pool1d(input: Tensor, output_size: int | tuple[int], return_indices: bool = False) -> Any:
    """The largest element of windows that divide (samples, channels, length); see `adaptive_max_pool2d`.

    Raises:
        TypeError, ValueError: as `adaptive_max_pool2d`.

    Example:
        >>> flow.nn.functional.adaptive_max_pool1d(flow.tensor([[1.0, 2.0, 3.0, 4.0]]), 2)
        tensor([[2., 4.]])
    """
    return _adaptive_max_pool(1, input, output_size, return_indices)


def adaptive_max_pool2d(
    input: Tensor, output_size: int | tuple[int | None, int | None] | None, return_indices: bool = False
) -> Any:
    """The largest element of each of rows x columns windows that divide the image as evenly as possible.

    Args:
        input: (samples, channels, height, width), or (channels, height, width).
        output_size: rows and columns, one number for both; None keeps the input's size.
        return_indices: whether to return a pair: the elements, and their int64 indices into the flattened image.

    Raises:
        TypeError: if `input` is no tensor, or bool or complex, or `output_size` neither one nor two integers or None.
        ValueError: for other numbers of dimensions, an empty image, or an `output_size` below 1.

    Example:
        >>> flow.nn.functional.adaptive_max_pool2d(flow.tensor([[[1.0, 2.0], [3.0, 4.0]]]), (1, 2))
        tensor([[[3., 4.]]])
    """
    return _adaptive_max_pool(2, input, output_size, return_indices)


def adaptive_max_pool3d(
    input: Tensor, output_size: int | tuple[int | None, ...] | None, return_indices: bool = False
) -> Any:
    """The largest element of windows that divide (samples, channels, depth, ...); see `adaptive_max_pool2d`.

    Raises:
        TypeError, ValueError: as `adaptive_max_pool2d`.

    Example:
        >>> flow.nn.functional.adaptive_max_pool3d(flow.arange(8.0).reshape(1, 2, 2, 2), 1)
        tensor([[[[7.]]]])
    """
    return _adaptive_max_pool(3, input, output_size, return_indices)
