"""`Extrema`: the largest elements found so far, and where they were."""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple


class Extrema(NamedTuple):
    """Elements, and the place of each.

    Attributes:
        values: the elements.
        places: for each, its index in a plane that is laid out flat; None where nobody asks.
    """

    values: Any
    places: Any

    @classmethod
    def of_planes(cls, xp: Any, array: Any) -> Extrema:
        """All elements of (samples, channels, ...)."""
        plane = array.shape[2:]
        return cls(array, xp.broadcast_to(xp.arange(prod(plane)).reshape(plane), array.shape))

    def taken(self, xp: Any, index: Any, axis: int) -> Extrema:
        """A copy of those at an index along one dimension."""
        places = None if self.places is None else xp.take(self.places, index, axis=axis)
        return Extrema(xp.take(self.values, index, axis=axis), places)

    def part(self, index: Any) -> Extrema:
        """A view of some of them."""
        return Extrema(self.values[index], None if self.places is None else self.places[index])

    def improve(self, xp: Any, others: Extrema, *, last_nan: bool) -> None:
        """Let larger elements take the place of these.

        Args:
            others: as many.
            last_nan: whether nan takes the place of nan.
        """
        values, candidates = self.values, others.values
        # Only nan differs from itself, and it is larger than everything.
        better = candidates != candidates
        if not last_nan:
            better = xp.logical_and(better, values == values)
        better = xp.logical_or(better, candidates > values)
        xp.copyto(values, candidates, where=better)
        if self.places is not None:
            xp.copyto(self.places, others.places, where=better)
