"""Windows: which elements of a tensor each rank has, and which of them two ranks have in common."""

from __future__ import annotations

from math import prod
from typing import NamedTuple

from .sbp import share
from .spread import Shape, Spread


class Window(NamedTuple):
    """A part of a tensor.

    Attributes:
        starts, sizes: along each dimension.
    """

    starts: Shape
    sizes: Shape

    @property
    def numel(self) -> int:
        """How many elements it has."""
        return prod(self.sizes)

    def shared_with(self, other: Window) -> Window | None:
        """The elements that both have; None if there are none."""
        starts, sizes = [], []
        for start, size, first, length in zip(*self, *other, strict=True):
            low, high = max(start, first), min(start + size, first + length)
            if low >= high:
                return None
            starts.append(low)
            sizes.append(high - low)
        return Window(tuple(starts), tuple(sizes))

    def slices_of(self, inner: Window) -> tuple[slice, ...]:
        """Where a window within this one is in it."""
        return tuple(
            [slice(at - start, at - start + size) for start, at, size in zip(self.starts, *inner, strict=True)]
        )


def whole_window(shape: Shape) -> Window:
    """All of a tensor."""
    return Window((0,) * len(shape), shape)


def window_of(spread: Spread, shape: Shape, rank: int) -> Window:
    """The elements that a rank of the placement has of a tensor of this shape; of partial sums, a summand of each."""
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
    """The ranks that have each of the different parts that have elements."""
    found: dict[Window, list[int]] = {}
    for rank in spread.placement.group:
        window = window_of(spread, shape, rank)
        if window.numel:
            found.setdefault(window, []).append(rank)
    return found
