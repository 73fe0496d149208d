"""`Window`: a part of a tensor, such as the elements that a rank has."""

from __future__ import annotations

from math import prod
from typing import NamedTuple

from .sbp import share
from .spread import Shape, Spread


class Window(NamedTuple):
    """A part of a tensor: a range of indices along each dimension.

    Attributes:
        starts, sizes: for each dimension, the first index of the range, and its length.
    """

    starts: Shape
    sizes: Shape

    @property
    def numel(self) -> int:
        """The number of elements."""
        return prod(self.sizes)

    def shared_with(self, other: Window) -> Window | None:
        """The window of the elements that this one and `other` have in common; None if there are none."""
        starts, sizes = [], []
        for start, size, first, length in zip(*self, *other, strict=True):
            low, high = max(start, first), min(start + size, first + length)
            if low >= high:
                return None
            starts.append(low)
            sizes.append(high - low)
        return Window(tuple(starts), tuple(sizes))

    def slices_of(self, inner: Window) -> tuple[slice, ...]:
        """The slices that select `inner`, a window within this one, from a tensor of this window's elements."""
        return tuple(
            [slice(at - start, at - start + size) for start, at, size in zip(self.starts, *inner, strict=True)]
        )


def whole_window(shape: Shape) -> Window:
    """The window of a whole tensor."""
    return Window((0,) * len(shape), shape)


def window_of(spread: Spread, shape: Shape, rank: int) -> Window:
    """The elements of a tensor of this shape that a rank of the placement has, or has summands of."""
    here = spread.placement.coordinates(rank)
    assert here is not None
    starts, sizes = [0] * len(shape), list(shape)
    for axis, sbp in enumerate(spread.sbp):
        if sbp.is_split:
            start, size = share(sizes[sbp.dim], spread.placement.shape[axis], here[axis])
            starts[sbp.dim] += start
            sizes[sbp.dim] = size
    return Window(tuple(starts), tuple(sizes))


def holders(spread: Spread, shape: Shape) -> dict[Window, list[int]]:
    """Return the windows of all ranks' parts, without empty ones, each with the ranks that have its elements."""
    ranks: dict[Window, list[int]] = {}
    for rank in spread.placement.group:
        window = window_of(spread, shape, rank)
        if window.numel:
            ranks.setdefault(window, []).append(rank)
    return ranks
