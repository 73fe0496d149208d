"""The errors of PTX, and of kernels that run.

RuntimeError
 +-- PtxError
      +-- PtxSyntaxError
      +-- UnsupportedInstruction
      +-- KernelFault
           +-- IllegalAccess
           +-- DataRace
           +-- BarrierError
           +-- Trap
           +-- NoProgress
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
        line: of the PTX, from 1; 0 for the end of a function.
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
        address: in its state space, also if it was generic; one outside of the windows counts as global.
    """

    def __init__(self, kernel: str, place: Place, threads: tuple[ThreadName, ...], reason: str, address: int) -> None:
        super().__init__(kernel, place, threads, reason)
        self.address = address


class DataRace(KernelFault):
    """Two threads use the same bytes, at least one of them writes, and nothing orders the two uses."""


class BarrierError(KernelFault):
    """Threads wait for others that never come, as at a divergent barrier; or a mask lacks the thread that uses it."""


class Trap(KernelFault):
    """The kernel executed ``trap``, as by ``__trap()`` in CUDA C++, or ``brkpt``."""


class NoProgress(KernelFault):
    """Threads have executed as many basic blocks as they may: perhaps the kernel never ends."""
