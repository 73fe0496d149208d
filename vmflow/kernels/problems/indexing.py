"""The details of ops that read or write elements of a tensor by indices or by strides, for their kernels."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

# A strided view of a tensor's memory: shape, strides and offset, in elements.
Geometry: TypeAlias = tuple[tuple[int, ...], tuple[int, ...], int]

# The strided view of a contiguous tensor that an op writes or reads; None stands for the whole tensor.
Part: TypeAlias = Geometry | None


class Reading(NamedTuple):
    """The details of the op `index`.

    Attributes:
        selects: whether the op takes slices along one dimension, by a vector of indices that are not negative.
    """

    selects: bool


class Writing(NamedTuple):
    """The details of the op `index_put`.

    Attributes:
        shape: the shape of the written elements, to which the values broadcast.
    """

    shape: tuple[int, ...]


class Span(NamedTuple):
    """The range of memory that the strided views of the op `respread` cover.

    Attributes:
        low: the position of the range's first element.
        size: the number of elements in the range.
    """

    low: int
    size: int
