"""Shapes and strides of several arrays that one loop goes through, with neighbouring dimensions merged."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from vmflow.kernels.strides import with_merged_dimensions


class Layout(NamedTuple):
    """The common shape and the strides of several arrays, for one loop through all of them.

    Attributes:
        shape: without dimensions of size 1; neighbouring dimensions are merged where one stride suffices in each array.
        strides: each array's strides, in elements; 0 where the array is broadcast.
    """

    shape: tuple[int, ...]
    strides: tuple[tuple[int, ...], ...]

    @property
    def flat(self) -> bool:
        """Whether all arrays are contiguous, and none is broadcast."""
        return not self.shape or (len(self.shape) == 1 and all([strides == (1,) for strides in self.strides]))


def common_layout(shape: tuple[int, ...], forms: Sequence[tuple[tuple[int, ...], tuple[int, ...], int]]) -> Layout:
    """Return the layout of arrays that broadcast to a shape.

    Args:
        shape: the shape that all arrays broadcast to.
        forms: for each array, its shape, its strides in bytes, and the bytes of an element.
    """
    sizes, strides = with_merged_dimensions(shape, [_broadcast_strides(len(shape), *form) for form in forms])
    return Layout(sizes, tuple([tuple(each) for each in strides]))


def _broadcast_strides(ndim: int, shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> list[int]:
    """Return an array's strides along `ndim` dimensions, in elements; 0 where the array is broadcast."""
    own = [0 if size == 1 else stride // itemsize for size, stride in zip(shape, strides, strict=True)]
    return [0] * (ndim - len(shape)) + own
