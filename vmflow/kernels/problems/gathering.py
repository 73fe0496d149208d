"""Details of ops that put elements into a tensor of zeros."""

from __future__ import annotations

from typing import NamedTuple


class Slices(NamedTuple):
    """The slices along one dimension that the op `scatter_slices` fills, in order.

    Attributes:
        filled: start, stop and step of each.
        gaps: start and stop of each run of elements that become zero first: between slices, and the whole extent of a
            slice whose step is not 1.
    """

    filled: tuple[tuple[int, int, int], ...]
    gaps: tuple[tuple[int, int], ...]
