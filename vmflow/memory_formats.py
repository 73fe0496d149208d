"""Memory formats: in which order the elements of a tensor lie in memory.

A tensor in ``channels_last`` is a permuted view of a tensor whose channels come last: every op takes it, and sees its
usual shape.  Results of ops, except views, are in ``contiguous_format``, for any formats of the operands, unless the
call gives another one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final


class memory_format:
    """An order of a tensor's elements in memory: one of four objects, as in PyTorch.

    Programs use these objects and make none; raises no errors.

    Example:
        >>> flow.zeros(2, 3, 4, 4).to(memory_format=flow.channels_last).stride()
        (48, 1, 12, 3)
    """

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return f"vmflow.{self._name}"

    def __reduce__(self) -> str:
        return self._name  # the name of a module attribute, so that copying and unpickling give the same object


contiguous_format: Final = memory_format("contiguous_format")
channels_last: Final = memory_format("channels_last")
channels_last_3d: Final = memory_format("channels_last_3d")
preserve_format: Final = memory_format("preserve_format")

# For both channels-last formats, a tensor's dimensions in memory order: from the largest stride to the smallest.
_ORDERS: Final = {channels_last: (0, 2, 3, 1), channels_last_3d: (0, 2, 3, 4, 1)}


def fits_rank(wanted: memory_format, rank: int) -> bool:
    """Whether a tensor of `rank` dimensions can have the memory format `wanted`."""
    order = _ORDERS.get(wanted)
    return order is None or len(order) == rank


def order_of(name: str, rank: int, wanted: memory_format) -> tuple[int, ...] | None:
    """The dimensions of a tensor in the format `wanted`, from the largest stride to the smallest.

    Errors begin with `name`.

    Returns:
        None if that is the order of the dimensions themselves.

    Raises:
        TypeError: if `wanted` is no memory format.
        ValueError: for `preserve_format`, which is no order, or if `wanted` is for another number of dimensions.
    """
    if not isinstance(wanted, memory_format):
        raise TypeError(f"{name}: memory_format must be one such as vmflow.channels_last, not {wanted!r}")
    if wanted is preserve_format:
        raise ValueError(f"{name}: preserve_format is no order of elements; give contiguous_format or channels_last")
    order = _ORDERS.get(wanted)
    if order is not None and len(order) != rank:
        raise ValueError(f"{name}: {wanted!r} is for tensors of {len(order)} dimensions, got one of {rank}")
    return order


def preserved_order(shape: Sequence[int], strides: Sequence[int]) -> tuple[int, ...] | None:
    """The dimensions sorted from the largest stride to the smallest.

    None if that is the order of the dimensions themselves, or if elements have gaps between them or overlap.
    """
    order = tuple(sorted(range(len(shape)), key=lambda axis: (-strides[axis], -shape[axis])))
    if order == tuple(range(len(shape))) or not lies_in(order, shape, strides):
        return None
    return order


def lies_in(order: Sequence[int], shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether elements are in memory without gaps, with `order` from the slowest to the fastest dimension.

    Dimensions of size 1 may be anywhere in the order.
    """
    expected = 1
    for axis in reversed(order):
        if shape[axis] != 1:
            if strides[axis] != expected:
                return False
            expected *= shape[axis]
    return True


def inverse(order: Sequence[int]) -> tuple[int, ...]:
    """The inverse of the permutation `order`."""
    return tuple(sorted(range(len(order)), key=lambda place: order[place]))
