"""Philox 4x32-10: four random words of 32 bits for each counter of 128 bits, under a key of 64 bits.

J. Salmon, M. Moraes, R. Dror and D. Shaw, Parallel random numbers: as easy as 1, 2, 3, SC 2011.

The key is the seed.  The lower half of the counter is the number of a block of four words in the sequence of the seed,
and wraps around; the upper half is a lane, in which an op finds further words for the same block.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import numpy as np

Words: TypeAlias = np.ndarray[Any, np.dtype[np.uint32]]

_ROUNDS: Final = 10
_MULTIPLIERS: Final = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
# What the two halves of the key grow by in each round: the golden ratio, and the square root of 3 less 1.
_STEPS: Final = 0x9E3779B9, 0xBB67AE85

_MASK: Final = np.uint64(0xFFFFFFFF)
_HALF: Final = np.uint64(32)
WHOLE: Final = (1 << 64) - 1

# Blocks that are computed together: their words stay in the second cache.
_TOGETHER: Final = 1 << 12


def words(seed: int, position: int, first: int, count: int, lane: int = 0) -> Words:
    """The words `first` to ``first + count`` of those that belong to the blocks from a position on.

    Args:
        seed, position, lane: of 64 bits each.
        first, count: in words.
    """
    block, skipped = divmod(first, 4)
    blocks = -(-(skipped + count) // 4)
    found = np.empty((blocks, 4), np.uint32)
    for start in range(0, blocks, _TOGETHER):
        part = found[start : start + _TOGETHER]
        counters = np.arange(len(part), dtype=np.uint64) + np.uint64((position + block + start) & WHOLE)
        part[:] = np.stack(_encrypted(seed, counters, lane), axis=1)
    return found.reshape(-1)[skipped : skipped + count]


def blocks(seed: int, position: int, places: Any, lane: int = 0) -> Words:
    """The words of the blocks at some places behind a position: one row of four for each.

    Args:
        seed, position, lane: see `words`.
        places: integers that are not negative.
    """
    counters = places.astype(np.uint64) + np.uint64(position)
    return np.stack(_encrypted(seed, counters, lane), axis=1).astype(np.uint32)


def _encrypted(seed: int, counters: Any, lane: int) -> list[Any]:
    """The four words of each counter, as integers of 64 bits, in which products have room."""
    words = [
        counters & _MASK,
        counters >> _HALF,
        np.full_like(counters, lane & 0xFFFFFFFF),
        np.full_like(counters, lane >> 32),
    ]
    key = [seed & 0xFFFFFFFF, seed >> 32]
    for _ in range(_ROUNDS):
        one, other = words[0] * _MULTIPLIERS[0], words[2] * _MULTIPLIERS[1]
        words[1] ^= other >> _HALF
        words[1] ^= np.uint64(key[0])
        words[3] ^= one >> _HALF
        words[3] ^= np.uint64(key[1])
        one &= _MASK
        other &= _MASK
        words = [words[1], other, words[3], one]
        key = [(half + step) & 0xFFFFFFFF for half, step in zip(key, _STEPS, strict=True)]
    return words
