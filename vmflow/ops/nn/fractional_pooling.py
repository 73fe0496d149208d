"""Fractional max-pooling: windows that begin at random positions (B. Graham, 2014)."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

from vmflow import dtypes, random
from vmflow.dtypes import COMPLEX, FLOATING
from vmflow.operands import check_tensors
from vmflow.ops.autocasting import autocast_as_op
from vmflow.ops.creation.creation import arange
from vmflow.ops.shape.joining import cat
from vmflow.transfers import beside

from .layer_operands import Pair, Sizes, batched, layout, sizes

if TYPE_CHECKING:
    from vmflow.tensors import Tensor


def _ratios(name: str, rank: int, output_ratio: Any) -> tuple[float, ...]:
    ratios = tuple(output_ratio) if isinstance(output_ratio, (tuple, list)) else (output_ratio,) * rank
    if len(ratios) != rank or not all([isinstance(ratio, (int, float)) and 0 < ratio < 1 for ratio in ratios]):
        raise ValueError(
            f"{name}: output_ratio must be numbers between 0 and 1, one for each dimension, got {output_ratio!r}"
        )
    return ratios


def check_output(name: str, rank: int, output_size: Any, output_ratio: Any) -> None:
    """Raise TypeError or ValueError unless exactly one of `output_size` and `output_ratio` is given, and fits."""
    if (output_size is None) == (output_ratio is None):
        raise ValueError(f"{name}: give either output_size or output_ratio")
    if output_size is None:
        _ratios(name, rank, output_ratio)
    else:
        sizes(name, "output_size", output_size, 1, rank)


def _starts(sample: Tensor, length: int, kernel: int, wanted: int) -> Tensor:
    """Compute where the windows begin along one dimension, (samples, channels, wanted), from random numbers `sample`.

    `sample` is (samples, channels), `length` the input's size and `kernel` the window's.  The last window ends where
    the input ends.
    """
    last = sample.new_full((*sample.shape, 1), length - kernel).long()
    if wanted == 1:
        return last
    step = (length - kernel) / (wanted - 1)
    places = beside(arange(wanted - 1, dtype=sample.dtype, device=sample.device), sample)
    moved = sample.unsqueeze(-1)
    # Round the distance between windows to the dtype of `sample`, as PyTorch does: the truncation below depends on the
    # last digit of the distance.
    width = sample.new_full((), step)
    return cat([((places + moved) * width).long() - (moved * width).long(), last], -1)


def _fractional_max_pool(
    rank: int,
    input: Tensor,
    kernel_size: Any,
    output_size: Any,
    output_ratio: Any,
    return_indices: bool,
    samples: Tensor | None,
) -> Any:
    name = f"fractional_max_pool{rank}d"
    check_tensors(name, input, optional=(samples,))
    check_output(name, rank, output_size, output_ratio)
    kernel = sizes(name, "kernel_size", kernel_size, 1, rank)
    if input.ndim not in (rank + 1, rank + 2) or not all(input.shape[-rank - 1 :]):
        raise ValueError(f"{name}: expected an input {layout(rank)}, not empty, got {list(input.shape)}")
    if not FLOATING <= input.dtype.category < COMPLEX:
        raise TypeError(f"{name} is not defined for {input.dtype.name} tensors; convert with .float() first")
    lengths = tuple(input.shape[-rank:])
    if output_size is None:
        ratios = _ratios(name, rank, output_ratio)
        wanted: Sizes = tuple([int(length * ratio) for length, ratio in zip(lengths, ratios, strict=True)])
    else:
        wanted = sizes(name, "output_size", output_size, 1, rank)
    for length, taps, count in zip(lengths, kernel, wanted, strict=True):
        if count < 1 or count + taps - 1 > length:
            raise ValueError(
                f"{name}: {list(wanted)} windows of {list(kernel)} do not fit into an input of shape "
                f"{list(input.shape)}"
            )
    lead = (1, input.shape[0]) if input.ndim == rank + 1 else tuple(input.shape[:2])
    if samples is None:
        kind = dtypes.float32 if dtypes.is_half(input.dtype) else input.dtype
        samples = beside(random.rand(*lead, rank, dtype=kind, device=input.device), input)
    elif samples.shape != (*lead, rank):
        raise ValueError(f"{name}: _random_samples must have shape {[*lead, rank]}, got {list(samples.shape)}")
    # As in PyTorch, the first random number of a two-dimensional image is for its columns, the second for its rows.
    order = (1, 0) if rank == 2 else tuple(range(rank))
    starts = [
        _starts(samples[..., place], length, taps, count)
        for place, length, taps, count in zip(order, lengths, kernel, wanted, strict=True)
    ]
    index = _indices(starts, lengths, kernel, wanted)

    def function(batch: Tensor) -> Any:
        flat = batch.flatten(2)
        windows = flat.detach().gather(2, index.flatten(2)).reshape(*index.shape)
        places = index.gather(3, windows.argmax(3, keepdim=True)).squeeze(3)
        values = flat.gather(2, places).reshape(*lead, *wanted)
        return (values, places.reshape(*lead, *wanted)) if return_indices else values

    return batched(rank, input, function)


def _indices(starts: list[Tensor], lengths: Sizes, kernel: Sizes, wanted: Sizes) -> Tensor:
    """Return the indices, in the flat image, of all elements of all windows: (samples, channels, windows, elements)."""
    rank = len(lengths)
    total: Tensor | None = None
    for axis, begin in enumerate(starts):
        taps = beside(arange(kernel[axis], device=begin.device), begin)
        places = (begin.unsqueeze(-1) + taps) * prod(lengths[axis + 1 :])
        shape = [1] * (2 * rank)
        shape[axis], shape[rank + axis] = wanted[axis], kernel[axis]
        places = places.reshape(*begin.shape[:2], *shape)
        total = places if total is None else total + places
    assert total is not None
    return total.reshape(*total.shape[:2], prod(wanted), prod(kernel))


@autocast_as_op
def fractional_max_pool2d(
    input: Tensor,
    kernel_size: int | Pair,
    output_size: int | Pair | None = None,
    output_ratio: float | tuple[float, float] | None = None,
    return_indices: bool = False,
    _random_samples: Tensor | None = None,
) -> Any:
    """The largest element of each window, where windows begin at random positions (B. Graham, 2014).

    Args:
        input: (samples, channels, height, width), or (channels, height, width).
        kernel_size: of the window.
        output_size: rows and columns, or one number for both.
        output_ratio: instead of `output_size`, a number between 0 and 1, or a pair: the output has the input's size
            times this number, rounded down.
        return_indices: whether to return a pair: the elements, and their int64 indices into the flattened image.
        _random_samples: (samples, channels, 2), or (1, channels, 2) without samples, within [0, 1): they decide
            where windows begin, along a row and then along a column; by default drawn from the default generator.

    Raises:
        TypeError: if `input` is not floating-point, or a size is no integer.
        ValueError: for shapes and ratios that do not fit, or unless exactly one of `output_size` and `output_ratio` is
            given.

    Example:
        >>> image = flow.arange(16.0).reshape(1, 1, 4, 4)
        >>> flow.nn.functional.fractional_max_pool2d(image, 2, 2, _random_samples=flow.zeros(1, 1, 2))
        tensor([[[[ 5.,  7.],
                  [13., 15.]]]])
    """
    return _fractional_max_pool(2, input, kernel_size, output_size, output_ratio, return_indices, _random_samples)


@autocast_as_op
def fractional_max_pool3d(
    input: Tensor,
    kernel_size: int | Sizes,
    output_size: int | Sizes | None = None,
    output_ratio: float | tuple[float, ...] | None = None,
    return_indices: bool = False,
    _random_samples: Tensor | None = None,
) -> Any:
    """`fractional_max_pool2d` for volumes, (samples, channels, depth, height, width).

    `_random_samples`, (samples, channels, 3), are for depth, height and width.

    Raises:
        TypeError, ValueError: as `fractional_max_pool2d`.

    Example:
        >>> flow.nn.functional.fractional_max_pool3d(flow.ones(1, 1, 4, 4, 4), 2, 2).shape
        vmflow.Size([1, 1, 2, 2, 2])
    """
    return _fractional_max_pool(3, input, kernel_size, output_size, output_ratio, return_indices, _random_samples)
