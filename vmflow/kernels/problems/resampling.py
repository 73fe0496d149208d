"""The details of `interpolate` for its kernels: how each dimension is resampled."""

from __future__ import annotations

import math
from typing import NamedTuple


class Along(NamedTuple):
    """How `interpolate` resamples one dimension.

    Attributes:
        filter: "nearest", "nearest-exact", "linear" or "cubic".
        source, target: the input's and the output's size in this dimension.
        align_corners: whether the centres of the first and last elements stay in place, not their outer edges.
        scale: the input elements per output element if the caller's scale factor is to be used as it is, else 0.
        antialias: whether the filter is widened where the output is smaller.
    """

    filter: str
    source: int
    target: int
    align_corners: bool
    scale: float
    antialias: bool

    def step(self) -> float:
        """Input elements per output element."""
        if self.align_corners:
            return (self.source - 1) / (self.target - 1) if self.target > 1 else 0.0
        return self.scale or self.source / self.target

    def taps(self, transposed: bool) -> int:
        """Estimate the number of elements from which one element of the result is computed.

        Args:
            transposed: whether the result is the gradient by the source, of the source's size.
        """
        count = {"linear": 2, "cubic": 4}.get(self.filter, 1)
        if self.antialias:
            count = min(math.ceil(count * max(self.step(), 1.0)) + 1, self.source)
        return max(math.ceil(count * self.target / self.source), 1) if transposed else count
