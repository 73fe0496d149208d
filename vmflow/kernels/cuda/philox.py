"""The random words of Philox 4x32-10 in CUDA C++, equal to those of `vmflow.kernels.numpy.philox`.

A kernel takes the place in a generator's sequence, a seed and an offset, in the parameters `PLACE`.  Each is a
number, or an array of one number in the device's memory, which each replay of a graph reads anew.
"""

from __future__ import annotations

from typing import Final

from vmflow.kernels.numpy.philox import WHOLE
from vmflow.streams.cuda.arrays import DeviceArray
from vmflow.streams.cuda.driver import Argument

# Parameters of a kernel for a seed and an offset, whose arguments `place_of` makes, and the statement that reads them.
PLACE: Final = "const int64* seed_at, const int64* offset_at, int64 seed_given, int64 offset_given"
READ_PLACE: Final = (
    "const uint64_t seed = seed_at ? *seed_at : seed_given, offset = offset_at ? *offset_at : offset_given;"
)

# A function that returns the four random words of block number `position` in the `lane`, under the key `seed`.
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
    """Return the signed integer that has the same 64 bits as `number`."""
    bits = int(number) & WHOLE
    return bits - (WHOLE + 1) if bits >> 63 else bits
