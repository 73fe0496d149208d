"""The error of offsets that name no bags, for kernels of all devices."""

from __future__ import annotations


def wrong_offset(position: int, offset: int, count: int) -> IndexError:
    """Return the error of the wrong `offset` at `position` of `embedding_bag`, for `count` indices."""
    if not position:
        return IndexError(f"embedding_bag: the first bag must begin at index 0, not {offset}")
    return IndexError(
        f"embedding_bag: offset {offset} at {position} is less than the one before or more than the {count} indices"
    )
