"""`Size`: the shape of a tensor."""

from __future__ import annotations

from math import prod


class Size(tuple[int, ...]):
    """The shape of a tensor: a tuple of ints that also knows `numel`."""

    __slots__ = ()

    def numel(self) -> int:
        """The product of the dimensions."""
        return prod(self)

    def __repr__(self) -> str:
        return f"vmflow.Size({list(self)})"
