"""Merges dimensions of the arrays of an elementwise loop, so that the loop has as few dimensions as possible."""

from __future__ import annotations

from collections.abc import Sequence


def with_merged_dimensions(
    shape: Sequence[int], strides: Sequence[Sequence[int]]
) -> tuple[tuple[int, ...], list[list[int]]]:
    """Describe several arrays of one shape with as few dimensions as possible, keeping the order of their elements.

    Dimensions of size 1 are left out, and neighbouring dimensions are merged where one stride suffices in each array.

    Args:
        shape: the shape that all arrays have, or broadcast to.
        strides: for each array, the stride of each dimension, 0 where it is broadcast; in bytes or elements.

    Returns:
        The merged shape, and the strides of each array for it.
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
