"""Compiling kernels for GPUs that are not here, and the registers and memory that they take there."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

import pytest

from vmflow.kernels.cuda import nvrtc
from vmflow.kernels.cuda.sources import CudaKernel, compile_options, full_source
from vmflow.streams.cuda.registry import device_of

ARCHITECTURES = (80, 90, 100)


class Usage(NamedTuple):
    """The resources that a compiled kernel takes: registers of a thread, and bytes of a block's shared memory.

    Attributes:
        spilled: bytes of registers that had no room, and are kept in memory.
    """

    registers: int
    shared: int
    spilled: int


def loaded_kernels(index: int = 0) -> list[CudaKernel]:
    """All kernels that a device has loaded."""
    return [kernel for kernel in device_of(index).functions if isinstance(kernel, CudaKernel)]


# Registers of a thread: with more than 64, a multiprocessor has fewer than half of the threads that it could have.
_MOST: Final = 64

# By the beginnings of their names, kernels that may take more, and why.
_MORE: Final = {
    "ctc_forwards": 80,  # the sum of two likelihoods takes functions of float64 that nothing else takes
    "shares_of_windows": 80,  # volumes have three loops, in each of which windows are divided and counted
}


def check_usage(kernels: Sequence[CudaKernel], architecture: int, most: int = _MOST) -> None:
    """Kernels, of which there are some, spill no registers on ``sm_<architecture>`` and take no more than `most`."""
    assert kernels
    for kernel in kernels:
        found = usage(kernel, architecture)
        limit = max([most, *[more for start, more in _MORE.items() if kernel.name.startswith(start)]])
        assert not found.spilled, (kernel.name, architecture)
        assert found.registers <= limit, (kernel.name, architecture, found)


def usage(kernel: CudaKernel, architecture: int) -> Usage:
    """Compile a kernel for ``sm_<architecture>``; the test is skipped if NVRTC cannot."""
    library = nvrtc.library()
    if architecture not in library.architectures:
        pytest.skip(f"NVRTC {library.version} does not compile for sm_{architecture}")
    options = (*compile_options(f"sm_{architecture}"), "--ptxas-options=-v")
    log = library.compile(full_source(kernel), kernel.name, options, to="cubin", keep=False).log
    registers = re.search(r"Used (\d+) registers", log)
    shared = re.search(r"(\d+) bytes smem", log)
    spills = re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", log)
    assert registers is not None, log
    assert spills is not None, log
    return Usage(int(registers[1]), int(shared[1]) if shared else 0, int(spills[1]) + int(spills[2]))
