"""Compiling kernels, and running them on numpy arrays as if these were on a device."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from vmflow.kernels.cuda import nvrtc
from vmflow.streams.cuda import ptx

Array = npt.NDArray[Any]

# Addresses of arrays are this far apart, so that an address outside of one is not within the next.
APART = 1 << 32

TYPES = """
typedef signed char int8; typedef unsigned char uint8; typedef short int16; typedef unsigned short uint16;
typedef int int32; typedef unsigned int uint32; typedef long long int64; typedef unsigned long long uint64;
"""


@cache
def compiled(source: str, architecture: str = "compute_80", *options: str) -> str:
    """The PTX of CUDA C++."""
    given = (f"--gpu-architecture={architecture}", *options)
    return nvrtc.library().compile(TYPES + source, "kernel.cu", given).code.decode()


def load(source: str, architecture: str = "compute_80", *options: str) -> ptx.Module:
    """A module of CUDA C++."""
    return ptx.parse(compiled(source, architecture, *options))


ENTRY = """
.visible .entry kernel(.param .u64 p) {
  .reg .b64 %rd<8>; .reg .b32 %r<8>; .reg .b16 %h<8>; .reg .pred %p<8>;
  ld.param.u64 %rd1, [p];
  BODY
}
"""


def written(body: str, before: str = "") -> ptx.Kernel:
    """A kernel whose instructions are written in PTX; %rd1 is its only parameter, an address.

    Args:
        body: the instructions.
        before: declarations of the module.
    """
    return ptx.parse(before + ENTRY.replace("BODY", body)).kernels["kernel"]


def run(
    kernel: ptx.Kernel,
    grid: int | Sequence[int],
    block: int | Sequence[int],
    *arguments: Any,
    shared_bytes: int = 0,
    **options: Any,
) -> ptx.Counters:
    """Run a kernel; arrays among its arguments are memory of the device, named after their position."""
    regions: list[ptx.Region] = []
    given: list[Any] = []
    for argument in arguments:
        if isinstance(argument, np.ndarray):
            start = (len(regions) + 1) * APART
            buffer = argument.reshape(-1).view(np.uint8)
            regions.append(ptx.Region(start, buffer, argument.flags.writeable, f"argument {len(given)}"))
            given.append(start)
        else:
            given.append(argument)
    extents = [(extent,) if isinstance(extent, int) else extent for extent in (grid, block)]
    return kernel.run(extents[0], extents[1], given, regions, shared_bytes, **options)


def bits(array: Array) -> Array:
    """The bits of floats, all NaN made one."""
    unsigned = array.view(f"u{array.dtype.itemsize}")
    return np.where(np.isnan(array), unsigned.dtype.type(0xFFFF), unsigned)
