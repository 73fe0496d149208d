"""The errors of PTX, and of kernels that run.

RuntimeError
 +-- PtxError
      +-- PtxSyntaxError          the text is not in the supported subset of PTX
      +-- UnsupportedInstruction  an instruction that the interpreter does not know
      +-- KernelFault             a kernel did something forbidden, or ended early
           +-- IllegalAccess      an access outside of all memory, misaligned, or a store to read-only memory
           +-- DataRace           two threads use the same bytes, one of them writing, and nothing orders the uses
           +-- BarrierError       threads wait for others that never come
           +-- Trap               the kernel executed ``trap`` or ``brkpt``
           +-- NoProgress         threads have used up their limit of basic blocks
"""

from __future__ import annotations

from typing import NamedTuple


class PtxError(RuntimeError):
    """An error of PTX, or of a kernel that runs."""


class PtxSyntaxError(PtxError, ValueError):
    """The text is not in the supported subset of PTX; the message has the line."""


class UnsupportedInstruction(PtxError, NotImplementedError):
    """An instruction, or use of one, that the interpreter does not know; the message has its text and its line."""


class Place(NamedTuple):
    """The position of an instruction.

    Attributes:
        text: the instruction.
        line: of the PTX, from 1.
        source: file and line of the CUDA C++, if that was compiled with ``-lineinfo``; else None.
    """

    text: str
    line: int
    source: str | None = None

    def __str__(self) -> str:
        origin = f", from {self.source}" if self.source else ""
        return f"line {self.line} of the PTX{origin}: {self.text}"


class ThreadName(NamedTuple):
    """One thread of a launch."""

    block: tuple[int, int, int]
    thread: tuple[int, int, int]

    def __str__(self) -> str:
        return f"thread {self.thread} of block {self.block}"


class KernelFault(PtxError):
    """A kernel did something forbidden, or ended early.

    Attributes:
        kernel: the kernel's name.
        place: the instruction.
        threads: one failed thread; `reason` names the other side of a race.
        reason: the message, without kernel, place and threads.
    """

    def __init__(self, kernel: str, place: Place, threads: tuple[ThreadName, ...], reason: str) -> None:
        super().__init__(kernel, place, threads, reason)
        self.kernel = kernel
        self.place = place
        self.threads = threads
        self.reason = reason

    def __str__(self) -> str:
        names = " and ".join(map(str, self.threads))
        return f"kernel {self.kernel}, {names}: {self.reason}\n  at {self.place}"


class IllegalAccess(KernelFault):
    """An access outside of all memory, a store to read-only memory, or a misaligned access.

    Attributes:
        address: in the state space in which it lies, never generic.
    """

    def __init__(self, kernel: str, place: Place, threads: tuple[ThreadName, ...], reason: str, address: int) -> None:
        super().__init__(kernel, place, threads, reason)
        self.address = address


class DataRace(KernelFault):
    """Two threads use the same bytes, at least one of them writes, and nothing orders the two uses."""


class BarrierError(KernelFault):
    """Threads wait for others that never come, as at a divergent barrier; or a thread's mask lacks this thread."""


class Trap(KernelFault):
    """The kernel executed ``trap``, as by ``__trap()`` in CUDA C++, or ``brkpt``."""


class NoProgress(KernelFault):
    """Threads have executed as many basic blocks as they may: perhaps the kernel never ends."""
