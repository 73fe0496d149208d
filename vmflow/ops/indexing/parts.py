"""OneFlow's functions for parts of tensors: slices by lists of (start, stop, step), `batch_gather` and `in_top_k`."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import TYPE_CHECKING

from vmflow import dtypes
from vmflow.operands import check_tensors
from vmflow.ops.declaration import function
from vmflow.ops.shape.strided import slice_scatter
from vmflow.ops.shape.view import sliced
from vmflow.ops.table import broadcast_shapes

from .gathering import gather

if TYPE_CHECKING:
    from vmflow.tensors import Tensor

Part = tuple[int, int, int]


def _parts(name: str, slice_tup_list: Sequence[Sequence[int | None]], shape: tuple[int, ...]) -> list[Part]:
    """Convert slices (start, stop, step) to (start, length, step) of each dimension; dimensions without one stay whole.

    Raises:
        TypeError, ValueError: if `slice_tup_list` is no list of (start, stop, step), is too long, or a step is below 1.
    """
    if len(slice_tup_list) > len(shape):
        raise ValueError(f"{name}: {len(slice_tup_list)} slices for a tensor of {len(shape)} dimensions")
    parts: list[Part] = []
    for size, triple in zip(shape, [*slice_tup_list, *[(None,) * 3] * (len(shape) - len(slice_tup_list))], strict=True):
        if not isinstance(triple, (tuple, list)) or len(triple) != 3:
            raise ValueError(f"{name}: expected (start, stop, step) of each dimension, got {triple!r}")
        if any([bound is not None and not hasattr(bound, "__index__") for bound in triple]):
            raise TypeError(f"{name}: start, stop and step are integers or None, got {triple!r}")
        if triple[2] is not None and triple[2] < 1:
            raise ValueError(f"{name}: a step must be positive, got {triple[2]}")
        chosen = range(*builtins.slice(*triple).indices(size))
        parts.append((chosen.start if chosen else 0, len(chosen), chosen.step))
    return parts


@function()
def slice(input: Tensor, slice_tup_list: Sequence[Sequence[int | None]]) -> Tensor:
    """View a part of each dimension, as ``input[start:stop:step, ...]``.

    Args:
        input: any tensor.
        slice_tup_list: (start, stop, step), integers or None, of the first dimensions; other dimensions stay whole.

    Raises:
        TypeError, ValueError: if `slice_tup_list` is no such list, has more slices than dimensions, or a step below 1.

    Example:
        >>> vmflow.slice(vmflow.ones(3, 6, 9), [[None, None, None], [0, 5, 2], [0, 6, 3]]).shape
        vmflow.Size([3, 3, 2])
    """
    check_tensors("slice", input)
    for axis, (start, length, step) in enumerate(_parts("slice", slice_tup_list, tuple(input.shape))):
        if (start, length, step) != (0, input.shape[axis], 1):
            input = sliced(input, axis, start, length, step)
    return input.view(input.shape)


@function()
def slice_update(input: Tensor, update: Tensor, slice_tup_list: Sequence[Sequence[int | None]]) -> Tensor:
    """Copy `input` with `update` in place of ``slice(input, slice_tup_list)``.

    Args:
        input, slice_tup_list: as of `slice`.
        update: of a shape that broadcasts to the part's; converted to the dtype of `input`.

    Raises:
        TypeError, ValueError: as `slice`, and for an update that is no tensor or does not broadcast.

    Example:
        >>> vmflow.slice_update(vmflow.ones(5), vmflow.tensor([2.0, 3.0, 4.0]), [[1, 4, 1]])
        tensor([1., 2., 3., 4., 1.])
    """
    check_tensors("slice_update", input, update)
    parts = _parts("slice_update", slice_tup_list, tuple(input.shape))
    shape = tuple([length for _, length, _ in parts])
    if broadcast_shapes("slice_update", shape, tuple(update.shape)) != shape:
        raise ValueError(f"slice_update: an update of shape {list(update.shape)} does not fit a part of {list(shape)}")
    result = update.to(input.dtype).expand(shape)
    # From the last dimension to the first, embed `result` in the elements of `input` before, between and behind the
    # part along that dimension.
    for axis in reversed(range(len(parts))):
        whole = input
        for before, (start, length, step) in enumerate(parts[:axis]):
            whole = sliced(whole, before, start, length, step)
        start, length, step = parts[axis]
        result = slice_scatter(whole, result, axis, start, start + length * step, step)
    return result if parts else result.clone()


@function()
def batch_gather(input: Tensor, indices: Tensor) -> Tensor:
    """Gather slices of `input` by indices along a dimension, separately for each element of the batch.

    Args:
        input: (*batch, size, *line).
        indices: (*batch, count), integers.

    Returns:
        (*batch, count, *line).

    Raises:
        TypeError: if `input` is no tensor, or `indices` no integer tensor.
        ValueError: if the shapes do not fit.
        IndexError: for an index that is negative or too large, when the result is read.

    Example:
        >>> vmflow.batch_gather(vmflow.arange(6).reshape(2, 3), vmflow.tensor([[0, 0], [2, 1]]))
        tensor([[0, 0],
                [5, 4]])
    """
    check_tensors("batch_gather", input, indices)
    axis = indices.ndim - 1
    if axis < 0 or input.ndim <= axis or tuple(input.shape[:axis]) != tuple(indices.shape[:axis]):
        raise ValueError(
            f"batch_gather: expected an input (*batch, size, ...) and indices (*batch, count), got "
            f"{list(input.shape)} and {list(indices.shape)}"
        )
    line = tuple(input.shape[axis + 1 :])
    index = indices.reshape(*indices.shape, *[1] * len(line)).expand(*indices.shape, *line)
    return gather(input, axis, index)


@function()
def in_top_k(targets: Tensor, predictions: Tensor, k: int) -> Tensor:
    """Whether the target is among the `k` classes with the highest predictions; ties count for the target.

    False if the target is no class, a prediction of its sample is nan, or the target's own prediction is infinite.

    Args:
        targets: (samples,), int32 or int64.
        predictions: (samples, classes), floating-point.
        k: the number of best classes.

    Returns:
        (samples,), bool.

    Raises:
        TypeError, ValueError: for other dtypes, and shapes that do not fit.

    Example:
        >>> vmflow.in_top_k(vmflow.tensor([3, 1]), vmflow.tensor([[0.0, 1, 2, 3], [3, 2, 1, 0]]), 1)
        tensor([ True, False])
    """
    check_tensors("in_top_k", targets, predictions)
    if targets.dtype not in (dtypes.int32, dtypes.int64):
        raise TypeError(f"in_top_k: expected targets of int32 or int64, got {targets.dtype.name}")
    if predictions.dtype.category != dtypes.FLOATING:
        raise TypeError(f"in_top_k: expected floating-point predictions, got {predictions.dtype.name}")
    if targets.ndim != 1 or predictions.ndim != 2 or targets.shape[0] != predictions.shape[0]:
        raise ValueError(
            f"in_top_k: expected targets (samples,) and predictions (samples, classes), got {list(targets.shape)} and "
            f"{list(predictions.shape)}"
        )
    classes = predictions.shape[1]
    if not classes:
        return targets.new_zeros(tuple(targets.shape), dtype=dtypes.bool_)
    known = (targets >= 0) & (targets < classes)
    of_target = gather(predictions, 1, targets.clamp(0, classes - 1).unsqueeze(1))
    larger = (predictions > of_target).sum(1)
    finite = of_target.squeeze(1).isfinite() & ~predictions.isnan().any(1)
    return known & finite & (larger < k)
