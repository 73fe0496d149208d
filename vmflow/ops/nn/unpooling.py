"""Pooling functions: `max_unpool`, the inverse of max-pooling by indices, and `lp_pool`, roots of sums of powers."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

from vmflow import dtypes
from vmflow.operands import check_tensors
from vmflow.ops.autocasting import autocast_as_op

from .layer_operands import Pair, Sizes, layout, sizes
from .pooling import avg_pool1d, avg_pool2d, avg_pool3d

if TYPE_CHECKING:
    from vmflow.tensors import Tensor


def _unpooled_size(name: str, input: Tensor, kernel: Sizes, step: Sizes, margin: Sizes, output_size: Any) -> Sizes:
    """Return the size of an unpooled result: `output_size`, or, for None, the usual size, which windows cover exactly.

    Raise TypeError or ValueError for an `output_size` that is no tuple or list of integers, longer than a shape, or not
    within the stride of the usual size."""
    rank = len(kernel)
    usual = [
        (size - 1) * stride - 2 * padding + taps
        for size, stride, padding, taps in zip(input.shape[-rank:], step, margin, kernel, strict=True)
    ]
    if output_size is None:
        return tuple(usual)
    if not isinstance(output_size, (tuple, list)):
        raise TypeError(f"{name}: output_size must be a list of sizes, not {output_size!r}")
    wanted = sizes(name, "output_size", tuple(output_size)[-rank:], 0, rank)
    if len(output_size) > rank + 2 or any(
        not least - stride < size < least + stride for least, stride, size in zip(usual, step, wanted, strict=True)
    ):
        raise ValueError(
            f"{name}: output_size {list(output_size)} is not within the stride {list(step)} of {usual}, the usual size "
            f"of an unpooled input of shape {list(input.shape)}"
        )
    return wanted


def _max_unpool(
    rank: int, input: Tensor, indices: Tensor, kernel_size: Any, stride: Any, padding: Any, output_size: Any
) -> Tensor:
    name = f"max_unpool{rank}d"
    kernel = sizes(name, "kernel_size", kernel_size, 1, rank)
    step = kernel if stride is None else sizes(name, "stride", stride, 1, rank)
    margin = sizes(name, "padding", padding, 0, rank)
    if input.ndim not in (rank + 1, rank + 2) or not all(input.shape[-rank:]):
        raise ValueError(f"{name}: expected an input {layout(rank)}, not empty, got {list(input.shape)}")
    if indices.dtype is not dtypes.int64:
        raise TypeError(f"{name}: indices must be int64, not {indices.dtype.name}")
    if indices.shape != input.shape:
        raise ValueError(
            f"{name}: indices of shape {list(indices.shape)} do not fit an input of shape {list(input.shape)}"
        )
    size = _unpooled_size(name, input, kernel, step, margin, output_size)
    lead = input.shape[:-rank]
    flat = input.new_zeros(*lead, prod(size))
    result = flat.scatter(-1, indices.flatten(-rank), input.flatten(-rank))
    return result.reshape(*lead, *size)


@autocast_as_op
def max_unpool1d(
    input: Tensor,
    indices: Tensor,
    kernel_size: int | tuple[int],
    stride: int | tuple[int] | None = None,
    padding: int | tuple[int] = 0,
    output_size: Any = None,
) -> Tensor:
    """Put the elements found by `max_pool1d` back to their indices, among zeros; see `max_unpool2d`.

    Raises:
        TypeError, ValueError, IndexError: as `max_unpool2d`.

    Example:
        >>> flow.nn.functional.max_unpool1d(flow.tensor([[5.0]]), flow.tensor([[1]]), 2)
        tensor([[0., 5.]])
    """
    check_tensors("max_unpool1d", input, indices)
    return _max_unpool(1, input, indices, kernel_size, stride, padding, output_size)


@autocast_as_op
def max_unpool2d(
    input: Tensor,
    indices: Tensor,
    kernel_size: int | Pair,
    stride: int | Pair | None = None,
    padding: int | Pair = 0,
    output_size: Any = None,
) -> Tensor:
    """Put the elements found by `max_pool2d` back to their indices in the image, among zeros.

    Args:
        input: (samples, channels, rows, columns), or (channels, rows, columns).
        indices: of the input's elements in a flattened image of the result, int64, as `max_pool2d` returns them.
        kernel_size, stride, padding: those given to `max_pool2d`.
        output_size: the size of the image, or the shape of the result, a tuple or list; needed where images of several
            sizes are pooled to that of `input`.

    Raises:
        TypeError: for indices of another dtype, if a size is no integer, or `output_size` no tuple or list.
        ValueError: for shapes that do not fit.
        IndexError: for an index outside of the image, when the result is read.

    Example:
        >>> flow.nn.functional.max_unpool2d(flow.tensor([[[5.0]]]), flow.tensor([[[3]]]), 2)
        tensor([[[0., 0.],
                 [0., 5.]]])
    """
    check_tensors("max_unpool2d", input, indices)
    return _max_unpool(2, input, indices, kernel_size, stride, padding, output_size)


@autocast_as_op
def max_unpool3d(
    input: Tensor,
    indices: Tensor,
    kernel_size: int | Sizes,
    stride: int | Sizes | None = None,
    padding: int | Sizes = 0,
    output_size: Any = None,
) -> Tensor:
    """Put the elements found by `max_pool3d` back to their indices, among zeros; see `max_unpool2d`.

    Raises:
        TypeError, ValueError, IndexError: as `max_unpool2d`.

    Example:
        >>> flow.nn.functional.max_unpool3d(flow.tensor([[[[5.0]]]]), flow.tensor([[[[1]]]]), (1, 1, 2))
        tensor([[[[0., 5.]]]])
    """
    check_tensors("max_unpool3d", input, indices)
    return _max_unpool(3, input, indices, kernel_size, stride, padding, output_size)


_AVERAGES: dict[int, Any] = {1: avg_pool1d, 2: avg_pool2d, 3: avg_pool3d}


def _lp_pool(rank: int, input: Tensor, norm_type: float, kernel_size: Any, stride: Any, ceil_mode: bool) -> Tensor:
    name = f"lp_pool{rank}d"
    if norm_type == 0:
        raise ValueError(f"{name}: norm_type must not be 0")
    count = prod(sizes(name, "kernel_size", kernel_size, 1, rank))
    mean: Tensor = _AVERAGES[rank](input.pow(norm_type), kernel_size, stride, 0, ceil_mode)
    # Except for 1 and -1, a negative sum counts as 0; PyTorch gives nan.
    total = mean if norm_type in (1, -1) else mean.relu()
    return (total * count).pow(1.0 / norm_type)


def lp_pool1d(
    input: Tensor,
    norm_type: float,
    kernel_size: int | tuple[int],
    stride: int | tuple[int] | None = None,
    ceil_mode: bool = False,
) -> Tensor:
    """The root of the sum of powers of elements of each window of (samples, channels, length); see `lp_pool2d`.

    Raises:
        TypeError, ValueError: as `lp_pool2d`.

    Example:
        >>> flow.nn.functional.lp_pool1d(flow.tensor([[3.0, 4.0]]), 2, 2)
        tensor([[5.]])
    """
    check_tensors("lp_pool1d", input)
    return _lp_pool(1, input, norm_type, kernel_size, stride, ceil_mode)


def lp_pool2d(
    input: Tensor,
    norm_type: float,
    kernel_size: int | Pair,
    stride: int | Pair | None = None,
    ceil_mode: bool = False,
) -> Tensor:
    """``sum(x ** norm_type) ** (1 / norm_type)`` over each window.

    A negative sum counts as 0 unless `norm_type` is 1 or -1.

    Args:
        input: (samples, channels, height, width), or (channels, height, width).
        norm_type: the power.
        kernel_size: of the window.
        stride: step of the window; the window's size by default.
        ceil_mode: whether windows may stick out below and to the right; their sums are scaled up as if they were whole.

    Raises:
        TypeError: if ``x ** norm_type`` is not floating-point, or as `avg_pool2d`.
        ValueError: for the power 0, or as `avg_pool2d`.

    Example:
        >>> flow.nn.functional.lp_pool2d(flow.tensor([[[3.0, 4.0]]]), 2, (1, 2))
        tensor([[[5.]]])
    """
    check_tensors("lp_pool2d", input)
    return _lp_pool(2, input, norm_type, kernel_size, stride, ceil_mode)


def lp_pool3d(
    input: Tensor,
    norm_type: float,
    kernel_size: int | Sizes,
    stride: int | Sizes | None = None,
    ceil_mode: bool = False,
) -> Tensor:
    """The root of the sum of powers of elements of each window of (..., depth, height, width); see `lp_pool2d`.

    Raises:
        TypeError, ValueError: as `lp_pool2d`.

    Example:
        >>> flow.nn.functional.lp_pool3d(flow.tensor([[[[3.0, 4.0]]]]), 2, (1, 1, 2))
        tensor([[[[5.]]]])
    """
    check_tensors("lp_pool3d", input)
    return _lp_pool(3, input, norm_type, kernel_size, stride, ceil_mode)
