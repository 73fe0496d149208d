"""Kernels that take long, so that code that relies on luck fails: the work behind them is late."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

import vmflow as flow
from vmflow.kernels.cuda.sources import CudaKernel
from vmflow.multi_tensor import Update, issue_update
from vmflow.streams.cuda.launching import current

# Steps of a chain of integer products, each of which needs the one before, and which no compiler joins.  On a GPU they
# take a millisecond in a small kernel, and some ten in a large one.  An emulated device interprets each step.
GPU_STEPS: Final = 400_000
EMULATED_STEPS: Final = 20

# No 32 bits are this number, which the compiler does not know.
_NEVER: Final = -1

_ESTIMATE: Final = 1_000_000


def late_add(tensor: flow.Tensor, number: float, steps: int) -> None:
    """Add a number to a contiguous tensor of float32 in place, after a delay on the device, on the current stream."""

    def add(inputs: list[Any], outputs: list[Any]) -> None:
        (out,) = outputs
        _kernel("late_add", "out[i] + (float)number").launch_over(
            current(), out.size, (out, 0, out.size, steps, _NEVER, float(number))
        )

    issue_update(Update("late_add", add, [], [tensor], _ESTIMATE))


def late_copy(out: flow.Tensor, source: flow.Tensor, steps: int) -> None:
    """Copy a contiguous tensor of float32 to another one, after a delay on the device, on the current stream."""

    def copy(inputs: list[Any], outputs: list[Any]) -> None:
        (given,), (landed,) = inputs, outputs
        _kernel("late_copy", "in[i]").launch_over(
            current(), landed.size, (landed, given, landed.size, steps, _NEVER, 0.0)
        )

    issue_update(Update("late_copy", copy, [source], [out], _ESTIMATE))


@lru_cache(None)
def _kernel(name: str, value: str) -> CudaKernel:
    source = f"""
extern "C" __global__ void {name}(float* out, const float* in, int64 count, int64 steps, int64 never, double number) {{
    unsigned int chain = 1;
    for (int64 step = 0; step < steps; ++step) chain = chain * (chain | 5u) + 1u;
    if ((int64)chain == never) return;
    const int64 threads = (int64)gridDim.x * blockDim.x;
    for (int64 i = (int64)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += threads) out[i] = {value};
}}
"""
    return CudaKernel(name, source)
