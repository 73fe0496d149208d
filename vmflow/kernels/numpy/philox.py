"""Philox 4x32-10: four random words of 32 bits for each counter of 128 bits, under a key of 64 bits.

J. Salmon, M. Moraes, R. Dror and D. Shaw, Parallel random numbers: as easy as 1, 2, 3, SC 2011.

The key is the seed.  The lower half of the counter is the number of a block of four words in the sequence of the seed,
and wraps around; the upper half is a lane, from which an op takes further words for the same block.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import numpy as np

Words: TypeAlias = np.ndarray[Any, np.dtype[np.uint32]]

_ROUNDS: Final = 10
# Factors of the third and the first word of a block.
_MULTIPLIERS: Final = np.array([[0xCD9E8D57], [0xD2511F53]], np.uint64)
# The increments of the two halves of the key in each round: the golden ratio less 1, and the square root of 3 less 1,
# times 2**32.
_STEPS: Final = 0x9E3779B9, 0xBB67AE85

_MASK: Final = np.uint64(0xFFFFFFFF)
_HALF: Final = np.uint64(32)
WHOLE: Final = (1 << 64) - 1

# The most blocks that are computed together, so that their words fit into a core's cache.
_TOGETHER: Final = 1 << 12


def words(seed: int, position: int, first: int, count: int, lane: int = 0) -> Words:
    """Return `count` words of the sequence of blocks from number `position` on, starting at its word `first`.

    Args:
        seed, position, lane: the seed, the number of the first block, and the lane, of 64 bits each.
        first, count: numbers of words.
    """
    block, skipped = divmod(first, 4)
    number = -(-(skipped + count) // 4)
    if number <= _TOGETHER:
        return blocks(seed, position, np.arange(block, block + number), lane).reshape(-1)[skipped : skipped + count]
    parts = [np.arange(start, min(start + _TOGETHER, number)) + block for start in range(0, number, _TOGETHER)]
    found = np.concatenate([blocks(seed, position, part, lane) for part in parts])
    return found.reshape(-1)[skipped : skipped + count]


def blocks(seed: int, position: int, places: Any, lane: int = 0) -> Words:
    """Return the words of the blocks with the numbers ``position + places``: an array (len(places), 4).

    Args:
        seed, position, lane: see `words`.
        places: a vector of integers that are not negative.
    """
    # Words are integers of 64 bits here, which hold their products.  The first and the third are multiplied, and are
    # the rows of one array; the second and the fourth are those of another.
    counters = places.astype(np.uint64) + np.uint64(position)
    multiplied, added = np.empty((2, counters.size), np.uint64), np.empty((2, counters.size), np.uint64)
    multiplied[0], multiplied[1] = counters & _MASK, lane & 0xFFFFFFFF
    added[0], added[1] = counters >> _HALF, lane >> 32
    product = np.empty_like(added)
    low, high = seed & 0xFFFFFFFF, seed >> 32
    for _ in range(_ROUNDS):
        np.multiply(multiplied[::-1], _MULTIPLIERS, product)
        np.right_shift(product, _HALF, multiplied)
        np.bitwise_xor(multiplied, added, multiplied)
        np.bitwise_xor(multiplied, np.array([[low], [high]], np.uint64), multiplied)
        np.bitwise_and(product, _MASK, added)
        low, high = (low + _STEPS[0]) & 0xFFFFFFFF, (high + _STEPS[1]) & 0xFFFFFFFF
    found = np.empty((counters.size, 4), np.uint32)
    found[:, 0::2], found[:, 1::2] = multiplied.T, added.T
    return found
