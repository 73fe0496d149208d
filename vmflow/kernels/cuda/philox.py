"""The words of Philox 4x32-10, those of `vmflow.kernels.numpy.philox`, for kernels.

A kernel takes the place in a generator's sequence, which is a seed and an offset, by the parameters `PLACE`.  Both are
numbers, or arrays of one number each in the device's memory, which a graph changes from one replay to the next.
"""

from __future__ import annotations

from math import prod
from typing import Any, Final

import numpy as np

from vmflow.kernels.numpy.philox import WHOLE as WHOLE
from vmflow.streams.cuda.arrays import DeviceArray
from vmflow.streams.cuda.driver import Argument

# Parameters of a kernel, for the arguments that `place_of` makes, and a statement that reads them.
PLACE: Final = "const int64* seed_at, const int64* offset_at, int64 seed_given, int64 offset_given"
READ_PLACE: Final = (
    "const uint64_t seed = seed_at ? *seed_at : seed_given, offset = offset_at ? *offset_at : offset_given;"
)

# The four words of the block number `position` under the key `seed`.
PHILOX: Final = """
struct words { uint32_t of[4]; };

__device__ __forceinline__ words philox(uint64_t seed, uint64_t position, uint64_t lane) {
    uint32_t a = (uint32_t)position, b = (uint32_t)(position >> 32), c = (uint32_t)lane, d = (uint32_t)(lane >> 32);
    uint32_t low = (uint32_t)seed, high = (uint32_t)(seed >> 32);
    #pragma unroll
    for (int round = 0; round < 10; round++, low += 0x9E3779B9u, high += 0xBB67AE85u) {
        const uint64_t one = (uint64_t)a * 0xD2511F53u, other = (uint64_t)c * 0xCD9E8D57u;
        a = (uint32_t)(other >> 32) ^ b ^ low;
        c = (uint32_t)(one >> 32) ^ d ^ high;
        b = (uint32_t)other, d = (uint32_t)one;
    }
    return {{a, b, c, d}};
}
"""


def place_of(seed: int | DeviceArray, offset: int | DeviceArray) -> list[Argument]:
    """The arguments for `PLACE`."""
    arrays: list[Argument] = [number if isinstance(number, DeviceArray) else 0 for number in (seed, offset)]
    return arrays + [0 if isinstance(number, DeviceArray) else signed(number) for number in (seed, offset)]


def signed(number: int) -> int:
    """The integer with a sign that has the same 64 bits."""
    bits = int(number) & WHOLE
    return bits - (WHOLE + 1) if bits >> 63 else bits


# The same words as arrays of the array module

_ROUNDS: Final = 10
# Factors of the first and the third word of a block.
_FIRST: Final = np.uint64(0xD2511F53)
_THIRD: Final = np.uint64(0xCD9E8D57)
# The two halves of the key grow by these in each round.
_STEPS: Final = 0x9E3779B9, 0xBB67AE85

_HALF: Final = np.uint64(32)
_MASK: Final = np.uint64(0xFFFFFFFF)


def words(xp: Any, seed: int, position: int, count: int, lane: int = 0) -> Any:
    """The first words of those that belong to the blocks from a position on.

    Args:
        xp: the array module.
        seed, position, lane: of 64 bits each.
        count: how many.
    """
    return blocks(xp, seed, position, xp.arange(-(-count // 4)), lane).reshape(-1)[:count]


def blocks(xp: Any, seed: int, position: int, places: Any, lane: int = 0) -> Any:
    """The words of the blocks at some places behind a position: one row of four for each.

    Args:
        xp: the array module.
        seed, position, lane: see `words`.
        places: integers that are not negative.
    """
    # Words are integers of 64 bits here, in which products have room.
    counters = places.astype("uint64") + np.uint64(position)
    first, second = counters & _MASK, counters >> _HALF
    third, fourth = (xp.full_like(first, np.uint64(half)) for half in (lane & 0xFFFFFFFF, lane >> 32))
    low, high = seed & 0xFFFFFFFF, seed >> 32
    for _ in range(_ROUNDS):
        product, other = first * _FIRST, third * _THIRD
        first, second = (other >> _HALF) ^ second ^ np.uint64(low), other & _MASK
        third, fourth = (product >> _HALF) ^ fourth ^ np.uint64(high), product & _MASK
        low, high = (low + _STEPS[0]) & 0xFFFFFFFF, (high + _STEPS[1]) & 0xFFFFFFFF
    return xp.stack((first, second, third, fourth), axis=-1).astype("uint32")


def kept_elements(xp: Any, shape: tuple[int, ...], p: float, seed: int, offset: int) -> Any:
    """An array that is true with probability ``1 - p``, at the same places as on the host.

    Sixteen random bits decide nearly always.  Where they equal those of p, a further word decides by the rest of p.
    """
    count = prod(shape)
    limit = int(p * 65536)
    rest = p * 65536 - limit
    bits = words(xp, seed, offset, (count + 1) // 2).view("uint16")[:count]
    kept = bits >= limit
    if rest:
        further = words(xp, seed, offset, count, 1) * 2.0**-32 >= rest
        kept = xp.where(bits == limit, further, kept)
    return kept.reshape(shape)
