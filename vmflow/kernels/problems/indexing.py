"""Details of ops that read and write parts of a tensor by indices and by geometry."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

# How elements lie in memory: shape, strides and offset, in elements.
Geometry: TypeAlias = tuple[tuple[int, ...], tuple[int, ...], int]

# The part of a contiguous tensor that is written or read; None is the whole.
Part: TypeAlias = Geometry | None


class Reading(NamedTuple):
    """The op `index`.

    Attributes:
        selects: whether it takes slices along one dimension, as a vector of indices from 0 on names them.
    """

    selects: bool


class Writing(NamedTuple):
    """The op `index_put`.

    Attributes:
        shape: of the elements that are written, to which the value broadcasts.
    """

    shape: tuple[int, ...]


class Span(NamedTuple):
    """The memory within which the op `respread` writes and reads.

    Attributes:
        low: the place of the first element.
        size: how many elements it has.
    """

    low: int
    size: int
