"""Details of ops that read and write parts of a tensor by indices and by geometry."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

# A layout of elements in memory: shape, strides and offset, in elements.
Geometry: TypeAlias = tuple[tuple[int, ...], tuple[int, ...], int]

# The part of a contiguous tensor that is written or read; None is the whole.
Part: TypeAlias = Geometry | None


class Reading(NamedTuple):
    """The op `index`.

    Attributes:
        selects: whether it takes slices along one dimension, by a vector of indices that are not negative.
    """

    selects: bool


class Writing(NamedTuple):
    """The op `index_put`.

    Attributes:
        shape: of the written elements, to which the value broadcasts.
    """

    shape: tuple[int, ...]


class Span(NamedTuple):
    """The memory within which the op `respread` writes and reads.

    Attributes:
        low: the position of the first element.
        size: the number of elements.
    """

    low: int
    size: int
