"""`Size`: the shape of a tensor."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from operator import index
from typing import SupportsIndex, overload


class Size(tuple[int, ...]):
    """The shape of a tensor: a tuple of ints with the method `numel`.  Its slices, sums and multiples are sizes, too.

    Raises:
        TypeError: if the argument is no iterable, or an item is no integer.

    Example:
        >>> size = flow.zeros(2, 3).shape
        >>> size, size.numel(), size[0]
        (vmflow.Size([2, 3]), 6, 2)
        >>> size[1:] + (4,)
        vmflow.Size([3, 4])
    """

    __slots__ = ()

    def __new__(cls, iterable: Iterable[SupportsIndex] = (), /) -> Size:
        return super().__new__(cls, [index(size) for size in iterable])

    @overload
    def __getitem__(self, key: SupportsIndex, /) -> int: ...
    @overload
    def __getitem__(self, key: slice, /) -> Size: ...
    def __getitem__(self, key: SupportsIndex | slice, /) -> int | Size:
        if type(key) is slice:
            return tuple.__new__(Size, tuple.__getitem__(self, key))
        return tuple.__getitem__(self, key)

    def __add__(self, other: tuple[int, ...], /) -> Size:  # type: ignore[override]
        return Size((*self, *other)) if isinstance(other, tuple) else NotImplemented

    def __radd__(self, other: tuple[int, ...], /) -> Size:
        return Size((*other, *self)) if isinstance(other, tuple) else NotImplemented

    def __mul__(self, count: SupportsIndex, /) -> Size:
        return Size(tuple.__mul__(self, count))

    __rmul__ = __mul__

    def numel(self) -> int:
        """The product of the dimensions."""
        return prod(self)

    def __repr__(self) -> str:
        return f"vmflow.Size({list(self)})"
