"""A stable radix sort of keys together with their positions, by their digits from the last to the first.

For each digit, every block counts the digit's values in its tile of keys, running sums turn the counts into starting
positions, and every block moves its keys there.  Keys of equal digits keep their order, so that the result does not
depend on the threads (N. Satish et al., Designing Efficient Sorting Algorithms for Manycore GPUs, 2009).
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from vmflow.streams.cuda.arrays import DeviceArray
from vmflow.streams.cuda.launching import Launcher

from .sources import THREADS, CudaKernel

# The bits of a digit, and the number of keys that a thread takes.
_BITS: Final = 4
_DIGITS: Final = 1 << _BITS
_KEYS: Final = 8
_TILE: Final = THREADS * _KEYS

_INT64: Final = np.dtype(np.int64)


class Sorted(NamedTuple):
    """Keys, in ascending order once they are sorted, and the former position of each key; the number 0 instead of
    positions before a sort, and if the sort has nothing to do.
    """

    keys: DeviceArray
    order: DeviceArray | int


def sort_keys(launcher: Launcher, keys: DeviceArray, limit: int) -> Sorted:
    """Sort a vector of int64 keys from 0 to `limit` - 1; equal keys keep their order."""
    return sort_by_bits(launcher, Sorted(keys, 0), max(limit - 1, 0).bit_length())


def sort_by_bits(launcher: Launcher, given: Sorted, bits: int) -> Sorted:
    """Sort keys as unsigned numbers below ``2 ** bits``; `given` may have the positions of an earlier sort."""
    (count,) = given.keys.shape
    found = given
    if count < 2:
        return found
    blocks = -(-count // _TILE)
    starts: DeviceArray | int = 0
    for shift in range(0, bits, _BITS):
        if blocks > 1:
            starts = launcher.scratch((_DIGITS * blocks,), _INT64)
            _COUNT.launch(launcher, blocks, (starts, found.keys, count, shift, blocks))
            _STARTS.launch(launcher, 1, (starts, _DIGITS * blocks))
        after = Sorted(launcher.scratch((count,), _INT64), launcher.scratch((count,), _INT64))
        arguments = (after.keys, after.order, found.keys, found.order, starts, count, shift, blocks)
        _MOVE.launch(launcher, blocks, arguments)
        found = after
    return found


# Returns the sum of `value` over all threads of the block that come before this thread.
SUM_BEFORE: Final = f"""
template <typename T> __device__ T sum_before(T value, T* shared) {{
    shared[threadIdx.x] = value;
    __syncthreads();
    for (int reach = 1; reach < {THREADS}; reach *= 2) {{
        const T more = threadIdx.x >= reach ? shared[threadIdx.x - reach] : 0;
        __syncthreads();
        shared[threadIdx.x] += more;
        __syncthreads();
    }}
    const T before = threadIdx.x ? shared[threadIdx.x - 1] : 0;
    __syncthreads();
    return before;
}}
"""

# Counts each tile's keys by digit; the counts of one digit in all tiles are neighbours.
_COUNT: Final = CudaKernel(
    "count_digits",
    f"""
extern "C" __global__ void count_digits(int64* counts, const int64* keys, int64 count, int64 shift, int64 blocks) {{
    __shared__ int found[{_DIGITS}];
    if (threadIdx.x < {_DIGITS}) found[threadIdx.x] = 0;
    __syncthreads();
    for (int key = 0; key < {_KEYS}; key++) {{
        const int64 i = ((int64)blockIdx.x * {_KEYS} + key) * {THREADS} + threadIdx.x;
        if (i < count) atomicAdd(found + (keys[i] >> shift & {_DIGITS - 1}), 1);
    }}
    __syncthreads();
    if (threadIdx.x < {_DIGITS}) counts[threadIdx.x * blocks + blockIdx.x] = found[threadIdx.x];
}}
""",
)

# Replaces each count by the sum of all counts before it: by one block, in which each thread has a stretch of counts.
_STARTS: Final = CudaKernel(
    "starts_of_digits",
    f"""{SUM_BEFORE}
extern "C" __global__ void starts_of_digits(int64* counts, int64 count) {{
    __shared__ int64 shared[{THREADS}];
    const int64 each = (count + {THREADS} - 1) / {THREADS}, begin = threadIdx.x * each;
    const int64 end = begin + each < count ? begin + each : count;
    int64 total = 0;
    for (int64 i = begin; i < end; i++) total += counts[i];
    total = sum_before(total, shared);
    for (int64 i = begin; i < end; i++) {{
        const int64 own = counts[i];
        counts[i] = total;
        total += own;
    }}
}}
""",
)

# Moves a tile's keys: each thread counts the digits of its keys; sums over digits and threads are the keys' positions.
_MOVE: Final = CudaKernel(
    "sort_by_digit",
    f"""{SUM_BEFORE}
extern "C" __global__ void sort_by_digit(int64* keys_out, int64* order_out, const int64* keys, const int64* order,
                                         const int64* starts, int64 count, int64 shift, int64 blocks) {{
    __shared__ int counts[{_DIGITS * THREADS}], shared[{THREADS}], first[{_DIGITS}];
    const int64 begin = (int64)blockIdx.x * {_TILE} + (int64)threadIdx.x * {_KEYS};
    for (int digit = 0; digit < {_DIGITS}; digit++) counts[digit * {THREADS} + threadIdx.x] = 0;
    for (int64 i = begin; i < begin + {_KEYS} && i < count; i++)
        counts[(keys[i] >> shift & {_DIGITS - 1}) * {THREADS} + threadIdx.x]++;
    __syncthreads();
    int total = 0;
    for (int i = 0; i < {_DIGITS}; i++) total += counts[threadIdx.x * {_DIGITS} + i];
    total = sum_before(total, shared);
    for (int i = 0; i < {_DIGITS}; i++) {{
        const int own = counts[threadIdx.x * {_DIGITS} + i];
        counts[threadIdx.x * {_DIGITS} + i] = total;
        total += own;
    }}
    __syncthreads();
    if (threadIdx.x < {_DIGITS}) first[threadIdx.x] = counts[threadIdx.x * {THREADS}];
    __syncthreads();
    for (int64 i = begin; i < begin + {_KEYS} && i < count; i++) {{
        const int64 key = keys[i];
        const int digit = key >> shift & {_DIGITS - 1};
        int64 place = counts[digit * {THREADS} + threadIdx.x]++;
        if (starts) place += starts[digit * blocks + blockIdx.x] - first[digit];
        keys_out[place] = key;
        order_out[place] = order ? order[i] : i;
    }}
}}
""",
    (0, 1),
)
