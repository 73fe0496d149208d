"""The details of ops that write elements into a tensor of zeros, for their kernels."""

from __future__ import annotations

from typing import NamedTuple


class Slices(NamedTuple):
    """The slices along one dimension that the op `scatter_slices` fills, in order.

    Attributes:
        filled: (start, stop, step) of each slice.
        gaps: (start, stop) of each range that is set to zero first: outside of all slices, and the whole extent of a
            slice whose step is not 1.
    """

    filled: tuple[tuple[int, int, int], ...]
    gaps: tuple[tuple[int, int], ...]
