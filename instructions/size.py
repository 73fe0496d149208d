"""`Size`: the shape of a tensor."""

from __future__ import annotations

from math import prod


class Size(tuple[int, ...]):
    """The shape of a tensor: a tuple of ints with the method `numel`.

    Raises:
        TypeError: if the argument is no iterable.
    Example:
        >>> size = flow.zeros(2, 3).shape
        >>> size, size.numel(), size[0]
        (vmflow.Size([2, 3]), 6, 2)
    """

    __slots__ = ()

    def numel(self) -> int:
        """The product of the dimensions."""
        return prod(self)

    def __repr__(self) -> str:
        return f"vmflow.Size({list(self)})"
