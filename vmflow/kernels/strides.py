"""Merges the dimensions of several arrays that one loop goes through."""

from __future__ import annotations

from collections.abc import Sequence


def with_merged_dimensions(
    shape: Sequence[int], strides: Sequence[Sequence[int]]
) -> tuple[tuple[int, ...], list[list[int]]]:
    """Reshape arrays to as few dimensions as possible, with their elements in the same order.

    Dimensions of size 1 are left out, and dimensions that are contiguous in all arrays are merged.

    Args:
        shape: that all arrays have, or broadcast to.
        strides: of each array and dimension, 0 where an array is broadcast; in bytes or elements.

    Returns:
        The shape, and the strides of each array.
    """
    sizes: list[int] = []
    merged: list[list[int]] = [[] for _ in strides]
    for axis, size in enumerate(shape):
        if size == 1:
            continue
        steps = [each[axis] for each in strides]
        if sizes and all([before[-1] == step * size for before, step in zip(merged, steps, strict=True)]):
            sizes[-1] *= size
            for before, step in zip(merged, steps, strict=True):
                before[-1] = step
        else:
            sizes.append(size)
            for before, step in zip(merged, steps, strict=True):
                before.append(step)
    return tuple(sizes), merged
