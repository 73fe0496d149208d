"""Shapes by the array API standard."""

from __future__ import annotations

from collections.abc import Sequence

import vmflow as flow
from vmflow.tensors import Tensor

from .data_types import result_type

Axes = int | tuple[int, ...]


def _tuple(axes: Axes) -> tuple[int, ...]:
    return (axes,) if isinstance(axes, int) else tuple(axes)


def broadcast_arrays(*arrays: Tensor) -> list[Tensor]:
    """All in their common shape."""
    return list(flow.broadcast_tensors(*arrays))


def broadcast_to(x: Tensor, /, shape: tuple[int, ...]) -> Tensor:
    """`x` in another shape, its dimensions of one element repeated."""
    return flow.broadcast_to(x, tuple(shape))


def concat(arrays: Sequence[Tensor], /, *, axis: int | None = 0) -> Tensor:
    """Joined along a dimension; flattened first if `axis` is None."""
    kind = result_type(*arrays)
    parts = [array.to(kind) for array in arrays]
    return flow.cat([part.reshape(-1) for part in parts]) if axis is None else flow.cat(parts, axis)


def expand_dims(x: Tensor, /, *, axis: int = 0) -> Tensor:
    """With a new dimension of one element."""
    return flow.unsqueeze(x, axis)


def flip(x: Tensor, /, *, axis: Axes | None = None) -> Tensor:
    """Reversed along these dimensions; along all if `axis` is None."""
    return flow.flip(x, tuple(range(x.ndim)) if axis is None else _tuple(axis))


def moveaxis(x: Tensor, source: Axes, destination: Axes, /) -> Tensor:
    """Dimensions moved, the others in their order."""
    return flow.movedim(x, source, destination)


def permute_dims(x: Tensor, /, axes: tuple[int, ...]) -> Tensor:
    """The dimensions in another order."""
    return flow.permute(x, tuple(axes))


def repeat(x: Tensor, repeats: int | Tensor, /, *, axis: int | None = None) -> Tensor:
    """Each element so many times; `x` flattened first if `axis` is None."""
    return flow.repeat_interleave(x, repeats, axis)


def reshape(x: Tensor, /, shape: tuple[int, ...], *, copy: bool | None = None) -> Tensor:
    """In another shape.

    Args:
        x: the elements.
        shape: one length may be -1, for what is left.
        copy: True to copy in any case, False never to copy, None as necessary.

    Raises:
        ValueError: if `copy` is False and a copy is needed.
    """
    made = flow.reshape(x, tuple(shape))
    shared = made._blob.storage is x._blob.storage
    if copy is False and not shared:
        raise ValueError(f"reshape: {list(x.shape)} as it lies in memory becomes {list(made.shape)} by a copy only")
    return made.clone() if copy and shared else made


def roll(x: Tensor, /, shift: Axes, *, axis: Axes | None = None) -> Tensor:
    """Elements shifted, those that leave at one end coming in at the other."""
    if axis is None:
        return flow.roll(x, sum(_tuple(shift)))
    axes, shifts = _tuple(axis), _tuple(shift)
    if len(axes) == 1 and len(shifts) != 1:
        return flow.roll(x, sum(shifts), axes)
    return flow.roll(x, shifts * len(axes) if len(shifts) == 1 else shifts, axes)


def squeeze(x: Tensor, /, axis: Axes) -> Tensor:
    """Without these dimensions of one element.

    Raises:
        ValueError: if one has another length.
    """
    for one in _tuple(axis):
        if x.size(one) != 1:
            raise ValueError(f"squeeze: dimension {one} of {list(x.shape)} has {x.size(one)} elements, not one")
    return flow.squeeze(x, _tuple(axis))


def stack(arrays: Sequence[Tensor], /, *, axis: int = 0) -> Tensor:
    """Joined along a new dimension."""
    kind = result_type(*arrays)
    return flow.stack([array.to(kind) for array in arrays], axis)


def tile(x: Tensor, repetitions: tuple[int, ...], /) -> Tensor:
    """The whole repeated along its dimensions."""
    return flow.tile(x, tuple(repetitions)) if repetitions else x.clone()


def unstack(x: Tensor, /, *, axis: int = 0) -> tuple[Tensor, ...]:
    """Taken apart along a dimension."""
    return tuple(flow.unbind(x, axis))
