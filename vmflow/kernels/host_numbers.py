"""`HostNumbers`: random numbers for callers that are not ops, such as samplers."""

from __future__ import annotations

from typing import final

import numpy as np

from vmflow.instructions.blob import Array

from .numpy.random import Numbers, exponentials, permuted


@final
class HostNumbers:
    """Random numbers on the host, computed on request from consecutive blocks of a counter-based generator.

    Each call takes the next ``(count + 1) // 2`` blocks.

    Args:
        seed, offset: the generator's seed, and the first block; see `vmflow.random.Generator.take`.
    """

    def __init__(self, seed: int, offset: int) -> None:
        self._seed = seed
        self._offset = offset

    def uniform(self, count: int) -> Array:
        """Return `count` random numbers, float64, evenly distributed over [0, 1)."""
        return self._drawn("uniform_doubles", count, count)

    def exponential(self, count: int) -> Array:
        """Return `count` random numbers, float64, from the exponential distribution of rate 1."""
        return exponentials(self.uniform(count))

    def integers(self, below: int, count: int) -> Array:
        """Return `count` random integers, int64, evenly distributed over 0 to `below` - 1; `below` is positive."""
        return self._drawn("integers", count, count, below, 0)

    def permutation(self, count: int) -> Array:
        """Return the integers 0 to `count` - 1, int64, in random order, like `vmflow.randperm`."""
        return permuted(self._words(count))

    def _words(self, count: int) -> Array:
        return self._drawn("words", 2 * count, count).view(np.uint64)

    def _drawn(self, kind: str, numbers: int, count: int, *parameters: int) -> Array:
        found = Numbers(kind, numbers).drawn(numbers, self._seed, self._offset, *parameters)
        self._offset += -(-count // 2)
        return found
