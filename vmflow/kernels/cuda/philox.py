"""Philox 4x32-10 on devices: the same random words as those of the host; see `vmflow.kernels.numpy.philox`."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

_ROUNDS: Final = 10
_MULTIPLIERS: Final = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_STEPS: Final = 0x9E3779B9, 0xBB67AE85
_MASK: Final = np.uint64(0xFFFFFFFF)
_HALF: Final = np.uint64(32)


def words(xp: Any, seed: int, position: int, count: int, lane: int = 0) -> Any:
    """The first words of those that belong to the blocks from a position on.

    Args:
        xp: the array module.
        seed, position, lane: of 64 bits each.
        count: of words.
    """
    # Words are integers of 64 bits here, in which products have room.
    counters = xp.arange(-(-count // 4), dtype=np.uint64) + np.uint64(position)
    first, second = counters & _MASK, counters >> _HALF
    third = xp.full_like(counters, lane & 0xFFFFFFFF)
    fourth = xp.full_like(counters, lane >> 32)
    low, high = seed & 0xFFFFFFFF, seed >> 32
    for _ in range(_ROUNDS):
        former, latter = first * _MULTIPLIERS[0], third * _MULTIPLIERS[1]
        first = (latter >> _HALF) ^ second ^ np.uint64(low)
        second = latter & _MASK
        third = (former >> _HALF) ^ fourth ^ np.uint64(high)
        fourth = former & _MASK
        low, high = (low + _STEPS[0]) & 0xFFFFFFFF, (high + _STEPS[1]) & 0xFFFFFFFF
    return xp.stack([first, second, third, fourth], axis=1).reshape(-1)[:count].astype(np.uint32)


def kept_elements(xp: Any, shape: tuple[int, ...], p: float, seed: int, offset: int) -> Any:
    """An array that is true with probability ``1 - p``, at the same places as on the host.

    Sixteen random bits decide nearly always.  Where they equal those of p, a further word decides by the rest of p.
    """
    count = int(np.prod(shape, dtype=np.int64))
    limit = int(p * 65536)
    bits = words(xp, seed, offset, (count + 1) // 2).view(np.uint16)[:count]
    further = words(xp, seed, offset, count, 1) * 2.0**-32 >= p * 65536 - limit
    return xp.where(bits == limit, further, bits > limit).reshape(shape)
