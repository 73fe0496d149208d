"""Manipulation of shapes by the array API standard, version 2024.12."""

from __future__ import annotations

from collections.abc import Sequence

import vmflow as flow
from vmflow.operands import check_tensors, listed_tensors
from vmflow.ops.table import as_tuple
from vmflow.tensors import Tensor

from .data_types import result_type

Axes = int | tuple[int, ...]


def broadcast_arrays(*arrays: Tensor) -> list[Tensor]:
    """All tensors, expanded to their common shape.

    Raises:
        ValueError: if the shapes do not broadcast.

    Example:
        >>> flow.array_api.broadcast_arrays(flow.tensor([1, 2]), flow.tensor(5))
        [tensor([1, 2]), tensor([5, 5])]
    """
    return list(flow.broadcast_tensors(*arrays))


def broadcast_to(x: Tensor, /, shape: tuple[int, ...]) -> Tensor:
    """`x` expanded to another shape: its dimensions of size 1 are repeated, and new ones added in front.

    Raises:
        ValueError: if `x` does not broadcast to the shape.

    Example:
        >>> flow.array_api.broadcast_to(flow.tensor([1, 2]), (2, 2))
        tensor([[1, 2],
                [1, 2]])
    """
    check_tensors("broadcast_to", x)
    return flow.broadcast_to(x, tuple(shape))


def concat(arrays: Sequence[Tensor], /, *, axis: int | None = 0) -> Tensor:
    """The tensors joined along the dimension `axis`; flattened first if `axis` is None.

    The dtypes promote.

    Raises:
        TypeError: if no integer dtype holds the values of all, as of uint64 and int8.
        ValueError: if there is no tensor, one is 0-d and `axis` is not None, or the shapes differ in another dimension;
            empty tensors of shape (0,) fit any shape.
        IndexError: if there is no dimension `axis`.

    Example:
        >>> flow.array_api.concat([flow.tensor([1, 2]), flow.tensor([3])])
        tensor([1, 2, 3])
    """
    parts = _of_one_dtype("concat", arrays)
    return flow.cat([part.reshape(-1) for part in parts]) if axis is None else flow.cat(parts, axis)


def _of_one_dtype(name: str, arrays: Sequence[Tensor]) -> list[Tensor]:
    """Cast tensors, the argument of the function `name`, to the dtype to which they promote together."""
    tensors = listed_tensors(name, arrays)
    if not tensors:
        raise ValueError(f"{name}: expected at least one tensor")
    kind = result_type(*tensors)
    return [tensor.to(kind) for tensor in tensors]


def expand_dims(x: Tensor, /, *, axis: int = 0) -> Tensor:
    """`x` with a new dimension of size 1 at `axis`.

    Raises:
        IndexError: if `axis` is out of range.

    Example:
        >>> flow.array_api.expand_dims(flow.tensor([1, 2]), axis=1)
        tensor([[1],
                [2]])
    """
    check_tensors("expand_dims", x)
    return flow.unsqueeze(x, axis)


def flip(x: Tensor, /, *, axis: Axes | None = None) -> Tensor:
    """`x` reversed along the dimensions `axis`; along all if `axis` is None.

    Raises:
        ValueError: if a dimension is named twice.
        IndexError: if a dimension does not exist.

    Example:
        >>> flow.array_api.flip(flow.tensor([1, 2, 3]))
        tensor([3, 2, 1])
    """
    check_tensors("flip", x)
    return flow.flip(x, tuple(range(x.ndim)) if axis is None else as_tuple(axis))


def moveaxis(x: Tensor, source: Axes, destination: Axes, /) -> Tensor:
    """`x` with dimensions `source` moved to positions `destination`; the other dimensions keep their order.

    Raises:
        ValueError: if `source` and `destination` differ in length, or one names a dimension twice.
        IndexError: if a dimension does not exist.

    Example:
        >>> flow.array_api.moveaxis(flow.zeros(2, 3, 4), 0, -1).shape
        vmflow.Size([3, 4, 2])
    """
    check_tensors("moveaxis", x)
    return flow.movedim(x, source, destination)


def permute_dims(x: Tensor, /, axes: tuple[int, ...]) -> Tensor:
    """`x` with its dimensions in the order `axes`.

    Raises:
        ValueError: if `axes` does not list each dimension once.
        IndexError: if a dimension does not exist.

    Example:
        >>> flow.array_api.permute_dims(flow.zeros(2, 3), (1, 0)).shape
        vmflow.Size([3, 2])
    """
    check_tensors("permute_dims", x)
    return flow.permute(x, tuple(axes))


def repeat(x: Tensor, repeats: int | Tensor, /, *, axis: int | None = None) -> Tensor:
    """Repeat each element along `axis`; flatten `x` first if `axis` is None.

    Args:
        x: of any shape.
        repeats: the number of repetitions, or a vector with a number for each position along `axis`.
        axis: the dimension.

    Raises:
        TypeError: if `repeats` is neither an integer nor a tensor of integers.
        ValueError: if a number is negative, or a vector has neither one number for each position nor one for all.
        IndexError: if there is no dimension `axis`.

    Example:
        >>> flow.array_api.repeat(flow.tensor([1, 2]), 2)
        tensor([1, 1, 2, 2])
    """
    check_tensors("repeat", x)
    return flow.repeat_interleave(x, repeats, axis)


def reshape(x: Tensor, /, shape: tuple[int, ...], *, copy: bool | None = None) -> Tensor:
    """`x` in another shape.

    Args:
        x: the elements.
        shape: the new sizes; -1 for a size that follows from the other sizes.
        copy: True to copy in any case, False never to copy, None to copy if necessary.

    Raises:
        ValueError: if the elements do not fit into the shape, or `copy` is False and a copy is needed.

    Example:
        >>> flow.array_api.reshape(flow.tensor([1, 2, 3, 4]), (2, -1))
        tensor([[1, 2],
                [3, 4]])
    """
    check_tensors("reshape", x)
    result = flow.reshape(x, tuple(shape))
    shared = result._blob.storage is x._blob.storage
    if copy is False and not shared:
        raise ValueError(
            f"reshape: a tensor of shape {list(x.shape)} with these strides becomes {list(result.shape)} only by a "
            "copy, but copy is False"
        )
    return result.clone() if copy and shared else result


def roll(x: Tensor, /, shift: Axes, *, axis: Axes | None = None) -> Tensor:
    """`x` with elements shifted along the dimensions `axis`; elements beyond the end reappear at the start.

    If `axis` is None, the flattened tensor is shifted.  Several shifts of one dimension add up; one shift of several
    dimensions shifts each.

    Raises:
        ValueError: if the numbers of shifts and of dimensions differ, and neither is 1.
        IndexError: if a dimension does not exist.

    Example:
        >>> flow.array_api.roll(flow.tensor([1, 2, 3]), 1)
        tensor([3, 1, 2])
    """
    check_tensors("roll", x)
    if axis is None:
        return flow.roll(x, sum(as_tuple(shift)))
    axes, shifts = as_tuple(axis), as_tuple(shift)
    if len(axes) == 1 and len(shifts) != 1:
        return flow.roll(x, sum(shifts), axes)
    return flow.roll(x, shifts * len(axes) if len(shifts) == 1 else shifts, axes)


def squeeze(x: Tensor, /, axis: Axes) -> Tensor:
    """`x` without the dimensions `axis`, which have size 1.

    Raises:
        ValueError: if a dimension has another size, or is named twice.
        IndexError: if a dimension does not exist.

    Example:
        >>> flow.array_api.squeeze(flow.tensor([[1, 2]]), 0)
        tensor([1, 2])
    """
    check_tensors("squeeze", x)
    for dim in as_tuple(axis):
        if x.size(dim) != 1:
            raise ValueError(f"squeeze: expected size 1 in dimension {dim}, got shape {list(x.shape)}")
    return flow.squeeze(x, as_tuple(axis))


def stack(arrays: Sequence[Tensor], /, *, axis: int = 0) -> Tensor:
    """The tensors joined along a new dimension at `axis`.

    The dtypes promote.

    Raises:
        TypeError: if no integer dtype holds the values of all, as of uint64 and int8.
        ValueError: if there is no tensor, or the shapes differ.
        IndexError: if `axis` is out of range.

    Example:
        >>> flow.array_api.stack([flow.tensor([1, 2]), flow.tensor([3, 4])])
        tensor([[1, 2],
                [3, 4]])
    """
    return flow.stack(_of_one_dtype("stack", arrays), axis)


def tile(x: Tensor, repetitions: tuple[int, ...], /) -> Tensor:
    """`x` repeated as a whole along its last dimensions; further `repetitions` add dimensions in front.

    Raises:
        TypeError: if a repetition is no integer.
        ValueError: if a repetition is negative.

    Example:
        >>> flow.array_api.tile(flow.tensor([1, 2]), (2,))
        tensor([1, 2, 1, 2])
    """
    check_tensors("tile", x)
    return flow.tile(x, tuple(repetitions)) if repetitions else x.clone()


def unstack(x: Tensor, /, *, axis: int = 0) -> tuple[Tensor, ...]:
    """Split `x` along the dimension `axis` into slices without that dimension.

    Raises:
        IndexError: if there is no dimension `axis`.

    Example:
        >>> flow.array_api.unstack(flow.tensor([[1, 2], [3, 4]]))
        (tensor([1, 2]), tensor([3, 4]))
    """
    check_tensors("unstack", x)
    return tuple(flow.unbind(x, axis))
