"""`HostNumbers`: random numbers for callers that are not ops, such as samplers."""

from __future__ import annotations

from typing import final

import numpy as np

from vmflow.instructions.blob import Array

from .numpy.random import Numbers, exponentials, permuted


@final
class HostNumbers:
    """Numbers on the host, computed on request, from a range of a generator's blocks.

    Each call continues in the range where the last one ended; it uses half as many blocks as it returns numbers.

    Args:
        seed, offset: of the range; see `vmflow.random.Generator.take`.
    """

    def __init__(self, seed: int, offset: int) -> None:
        self._seed = seed
        self._offset = offset

    def uniform(self, count: int) -> Array:
        """Numbers of float64, evenly distributed over [0, 1)."""
        return self._drawn("uniform_doubles", count, count)

    def exponential(self, count: int) -> Array:
        """Numbers of float64 from the exponential distribution of rate 1."""
        return exponentials(self.uniform(count))

    def integers(self, below: int, count: int) -> Array:
        """Integers of int64 from 0 up to, without, `below`."""
        return self._drawn("integers", count, count, below, 0)

    def permutation(self, count: int) -> Array:
        """The integers of int64 below `count`, in random order, like those of `vmflow.randperm`."""
        return permuted(self._words(count))

    def _words(self, count: int) -> Array:
        return self._drawn("words", 2 * count, count).view(np.uint64)

    def _drawn(self, kind: str, numbers: int, count: int, *parameters: int) -> Array:
        found = Numbers(kind, numbers).drawn(numbers, self._seed, self._offset, *parameters)
        self._offset += -(-count // 2)
        return found
