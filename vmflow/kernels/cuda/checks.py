"""Range checks of integers in a device's memory: kernels check them, and errors are raised when the work has ended."""

from __future__ import annotations

from functools import lru_cache

from vmflow.streams.cuda.arrays import DeviceArray
from vmflow.streams.cuda.device import Explain
from vmflow.streams.cuda.launching import Launcher

from .pointwise import copy_array
from .sources import STORED, CudaKernel


def check_range(launcher: Launcher, array: DeviceArray, low: int, high: int, explain: Explain) -> None:
    """Launch a kernel that reports an error if an integer of the array is outside ``low <= value < high``; of several
    such integers, it reports the one that a thread finds first.

    Args:
        explain: makes the exception from the element's position in C order and its value.
    """
    if not array.size:
        return
    if not array.contiguous:
        copied = launcher.scratch(array.shape, array.dtype)
        copy_array(launcher, array, copied)
        array = copied
    report = launcher.error_report(explain)
    _range(array.dtype.name).launch_over(launcher, array.size, (report, array, array.size, low, high))


def check_indices(
    launcher: Launcher, name: str, indices: DeviceArray, shape: tuple[int, ...], dim: int, from_the_end: bool = False
) -> None:
    """Launch a kernel that reports an error if an index is out of range for dimension `dim` of an array of `shape`.

    Args:
        name: of the op, for the error's message unless `from_the_end`.
        shape: of the indexed array.
        from_the_end: whether indices below 0 count from the end.
    """
    size = shape[dim] if shape else 1

    def explain(position: int, value: int) -> Exception:
        if from_the_end:
            return IndexError(f"index {value} is out of bounds for axis {dim} with size {size}")
        return IndexError(f"{name}: index {value} is out of range for dimension {dim} of size {size}")

    check_range(launcher, indices, -size if from_the_end else 0, size, explain)


@lru_cache(None)
def _range(dtype: str) -> CudaKernel:
    name = f"check_range_{dtype}"
    source = f"""
extern "C" __global__ void {name}(unsigned long long* report, const {STORED[dtype]}* in, int64 count, int64 low,
                                  int64 high) {{
    const int64 threads = (int64)gridDim.x * blockDim.x;
    for (int64 i = (int64)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += threads) {{
        const int64 value = in[i];
        if (value < low || value >= high) {{
            if (atomicCAS(report, 0ULL, (unsigned long long)i + 1) == 0) report[1] = value;
        }}
    }}
}}
"""
    return CudaKernel(name, source)
