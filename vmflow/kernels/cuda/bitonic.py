"""The order of integers in the rows of a matrix, by a bitonic sort; equal ones keep their order.

A row is filled up to a power of two.  Stretches that fit into a block's shared memory are sorted and merged there.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import numpy as np

from vmflow.streams.cuda.arrays import DeviceArray
from vmflow.streams.cuda.launching import Launcher

from .pointwise import copy_array
from .sources import STORED, CudaKernel

# Elements that a block has in shared memory; each of its threads compares two.
_STRETCH: Final = 1024
_INTEGER: Final = np.dtype(np.int64)


def order_of_rows(launcher: Launcher, keys: DeviceArray, out: DeviceArray) -> None:
    """Write the places of the smallest keys of each row.

    Args:
        keys: a contiguous matrix of integers of 64 bits, compared as ones without a sign.
        out: for the first places of each row, of which it has as many as `keys`; of an integer dtype.
    """
    rows, columns = keys.shape
    wanted = out.size // rows if rows else 0
    if not wanted:
        return
    width = max(1 << (columns - 1).bit_length(), 2)
    stretch = min(width, _STRETCH)
    sorted_keys, places = [launcher.scratch((rows, width), _INTEGER) for _ in range(2)]
    blocks = rows * width // stretch
    pair = (sorted_keys, places)
    _kernel("sort").launch(launcher, blocks, (*pair, keys, columns, width, stretch), stretch // 2)
    length = 2 * stretch
    while length <= width:
        distance = length // 2
        while distance >= stretch:
            _kernel("pass").launch_over(
                launcher, rows * width // 2, (*pair, rows * width // 2, width, length, distance)
            )
            distance //= 2
        _kernel("merge").launch(launcher, blocks, (*pair, width, length, stretch), stretch // 2)
        length *= 2
    flat = out if out.contiguous else launcher.scratch(out.shape, out.dtype)
    _take(flat.dtype.name).launch_over(launcher, flat.size, (flat, places, flat.size, wanted, width))
    if flat is not out:
        copy_array(launcher, flat, out)


_COMPARING: Final = """
// Whether two pairs are in the wrong order, the places of equal keys included.
__device__ __forceinline__ bool behind(uint64_t key, int64 place, uint64_t other, int64 other_place) {
    return key > other || (key == other && place > other_place);
}

__device__ __forceinline__ void arrange(uint64_t* keys, int64* places, int64 low, int64 high, bool upwards) {
    if (behind(keys[low], places[low], keys[high], places[high]) == upwards) {
        const uint64_t key = keys[low];
        const int64 place = places[low];
        keys[low] = keys[high], places[low] = places[high];
        keys[high] = key, places[high] = place;
    }
}

// One pass over a stretch in shared memory; `first` is the place of its first element in the row.
__device__ __forceinline__ void pass(uint64_t* keys, int64* places, int64 first, int64 length, int64 distance) {
    const int64 low = threadIdx.x / distance * 2 * distance + threadIdx.x % distance;
    arrange(keys, places, low, low + distance, ((first + low) & length) == 0);
    __syncthreads();
}
"""

_SORT: Final = f"""
extern "C" __global__ void sort_stretches(uint64_t* keys, int64* places, const uint64_t* in, int64 columns, int64 width,
                                          int64 stretch) {{
    __shared__ uint64_t own[{_STRETCH}];
    __shared__ int64 own_places[{_STRETCH}];
    const int64 begin = blockIdx.x * stretch, row = begin / width, first = begin % width;
    for (int64 i = threadIdx.x; i < stretch; i += blockDim.x) {{
        own[i] = first + i < columns ? in[row * columns + first + i] : ~0ULL;
        own_places[i] = first + i;
    }}
    __syncthreads();
    for (int64 length = 2; length <= stretch; length *= 2) {{
        for (int64 distance = length / 2; distance > 0; distance /= 2) pass(own, own_places, first, length, distance);
    }}
    for (int64 i = threadIdx.x; i < stretch; i += blockDim.x) {{
        keys[begin + i] = own[i];
        places[begin + i] = own_places[i];
    }}
}}
"""

_MERGE: Final = f"""
extern "C" __global__ void merge_stretches(uint64_t* keys, int64* places, int64 width, int64 length, int64 stretch) {{
    __shared__ uint64_t own[{_STRETCH}];
    __shared__ int64 own_places[{_STRETCH}];
    const int64 begin = blockIdx.x * stretch;
    for (int64 i = threadIdx.x; i < stretch; i += blockDim.x) {{
        own[i] = keys[begin + i];
        own_places[i] = places[begin + i];
    }}
    __syncthreads();
    for (int64 distance = stretch / 2; distance > 0; distance /= 2) {{
        pass(own, own_places, begin % width, length, distance);
    }}
    for (int64 i = threadIdx.x; i < stretch; i += blockDim.x) {{
        keys[begin + i] = own[i];
        places[begin + i] = own_places[i];
    }}
}}
"""

_PASS: Final = """
extern "C" __global__ void pass_over_rows(uint64_t* keys, int64* places, int64 count, int64 width, int64 length,
                                          int64 distance) {
    const int64 threads = (int64)gridDim.x * blockDim.x;
    for (int64 i = (int64)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += threads) {
        const int64 low = i / distance * 2 * distance + i % distance;
        arrange(keys, places, low, low + distance, (low % width & length) == 0);
    }
}
"""

_SOURCES: Final = {
    "sort": ("sort_stretches", _SORT),
    "merge": ("merge_stretches", _MERGE),
    "pass": ("pass_over_rows", _PASS),
}


@lru_cache(None)
def _kernel(kind: str) -> CudaKernel:
    name, source = _SOURCES[kind]
    return CudaKernel(name, _COMPARING + source, (0, 1))


@lru_cache(None)
def _take(dtype: str) -> CudaKernel:
    name = f"first_places_{dtype}"
    source = f"""
extern "C" __global__ void {name}({STORED[dtype]}* out, const int64* places, int64 count, int64 wanted, int64 width) {{
    const int64 threads = (int64)gridDim.x * blockDim.x;
    for (int64 i = (int64)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += threads) {{
        out[i] = places[i / wanted * width + i % wanted];
    }}
}}
"""
    return CudaKernel(name, source)
