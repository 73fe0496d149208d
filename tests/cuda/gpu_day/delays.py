"""Kernels that take long, so that whatever relies on luck goes wrong: the work behind them is late."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

import vmflow as flow
from vmflow.kernels.cuda.sources import CudaKernel
from vmflow.multi_tensor import Update, issue_update
from vmflow.streams.cuda.launching import current

# Steps of a chain of integer products, of some nanoseconds each: on a GPU about ten milliseconds, and on an emulated
# device, which interprets each of them, as few as the compiler leaves.
GPU_STEPS: Final = 2_000_000
EMULATED_STEPS: Final = 20

_ESTIMATE: Final = 10_000_000


@lru_cache(1)
def _kernel() -> CudaKernel:
    # The chain ends at a number that is known to be even, and no compiler knows it.
    source = """
extern "C" __global__ void late_add(float* out, int64 count, int64 steps, double number) {
    unsigned int chain = 2;
    for (int64 step = 0; step < steps; ++step) chain = chain * 1664526u + 1013904222u;
    const int64 threads = (int64)gridDim.x * blockDim.x;
    for (int64 i = (int64)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += threads) {
        out[i] += (float)number + (float)(chain & 1u);
    }
}
"""
    return CudaKernel("late_add", source)


def late_add(tensor: flow.Tensor, number: float, steps: int) -> None:
    """Add a number to a contiguous tensor of float32 in place, after a delay on the device, on the current stream."""

    def add(inputs: list[Any], outputs: list[Any]) -> None:
        (array,) = outputs
        _kernel().launch_over(current(), array.size, (array, array.size, steps, float(number)))

    issue_update(Update("late_add", add, [], [tensor], _ESTIMATE))


def late_copy(out: flow.Tensor, source: flow.Tensor, steps: int) -> None:
    """Add a tensor to another one of float32, after a delay on the device, on the current stream."""

    def add(inputs: list[Any], outputs: list[Any]) -> None:
        (given,), (array,) = inputs, outputs
        _reader().launch_over(current(), array.size, (array, given, array.size, steps))

    issue_update(Update("late_copy", add, [source], [out], _ESTIMATE))


@lru_cache(1)
def _reader() -> CudaKernel:
    source = """
extern "C" __global__ void late_copy(float* out, const float* in, int64 count, int64 steps) {
    unsigned int chain = 2;
    for (int64 step = 0; step < steps; ++step) chain = chain * 1664526u + 1013904222u;
    const int64 threads = (int64)gridDim.x * blockDim.x;
    for (int64 i = (int64)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += threads) {
        out[i] = in[i] + (float)(chain & 1u);
    }
}
"""
    return CudaKernel("late_copy", source)
