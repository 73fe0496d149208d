"""Graphs of a device: work that is captured once, and launched again and again as one.

A captured kernel reads and writes the same addresses at every launch.  So a graph keeps the scratch memory of its
kernels, and the caller keeps the memory of the operands.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, final

import numpy as np

from vmflow.streams.allocator import BinAllocator

from .arrays import DeviceArray
from .device import CudaDevice, Explain
from .driver import CannotCapture, Handle
from .launching import Check, Launched, Launcher, Note, launched_by

# The most kernels of a graph that may report wrong values.
_MOST_REPORTS: Final = 512

_WORD: Final = np.dtype(np.int64)


@final
class CapturedGraph:
    """Work of a stream that can be launched as one.

    Args:
        graph: the driver's handle.
        kept: objects that the work needs.
        reports: where kernels report wrong values, two words for each kernel that can.
        explains: for each of these kernels, a function that makes the error.
    """

    def __init__(
        self, graph: Handle, kept: Sequence[object], reports: DeviceArray, explains: Sequence[Explain]
    ) -> None:
        self._graph = graph
        self._kept = kept
        self._reports = reports
        self._explains = explains

    def launch(self, launcher: Launcher) -> None:
        """Launch the work on the launcher's stream, behind all work that this stream has been handed before."""
        launcher.keep(self)
        launcher.driver.launch_graph(self._graph, launcher.stream)
        if self._explains:
            # The reports are copied, since the next launch may have begun before the host reads those of this one.
            landed = launcher.device.pinned.array(self._reports.shape, _WORD)
            launcher.copy(landed, self._reports)
            launcher.fill(self._reports, 0)
            launcher.check(partial(self._error, launcher.device, landed))

    def _error(self, device: CudaDevice, landed: np.ndarray[Any, Any]) -> Exception | None:
        try:
            device.driver.host_access(landed, write=False)
        except Exception as error:
            return error
        for (position, value), explain in zip(landed.tolist(), self._explains, strict=True):
            if position:
                return explain(position - 1, value)
        return None


def memory_of_graph(launcher: Launcher) -> BinAllocator:
    """Make an allocator of the launcher's device for one graph: nothing else reuses its memory."""
    assert launcher.allocator is not None
    return BinAllocator(launcher.allocator.memory)


def capture(launcher: Launcher, allocator: BinAllocator, work: Callable[[], None]) -> CapturedGraph:
    """Call `work`, and return the graph of all that it launches by the current launcher; none of that runs.

    Args:
        launcher: of the stream that captures the work.
        allocator: of memory for the graph alone.
        work: launches kernels whose code is on the device already.

    Raises:
        CannotCapture: if `work` launches work that no graph can hold.
    """
    capturing = _CapturingLauncher(launcher.device, launcher.stream, allocator)
    driver, stream = launcher.driver, launcher.stream
    driver.begin_capture(stream)
    try:
        launched: Launched = launched_by(capturing, work)
    finally:
        graph = driver.end_capture(stream)
    reports = capturing.reports.strided((len(capturing.explains), 2), _WORD)
    launcher.fill(reports, 0)
    return CapturedGraph(graph, (launched.kept, allocator, capturing.reports), reports, capturing.explains)


@final
class _CapturingLauncher(Launcher):
    """Hands work to a stream that is captured.

    Attributes:
        reports: words in which the graph's kernels report wrong values.
        explains: for each pair of words in use, a function that makes the error.
    """

    def __init__(self, device: CudaDevice, stream: Handle, allocator: BinAllocator) -> None:
        super().__init__(device, stream)
        self.allocate_from(allocator)
        self.reports = self.scratch((_MOST_REPORTS, 2), _WORD)
        self.explains: list[Explain] = []

    def check(self, check: Check) -> None:
        raise CannotCapture("work whose end the host has to look at")

    def error_report(self, explain: Explain) -> DeviceArray:
        position = len(self.explains)
        if position == _MOST_REPORTS:
            raise CannotCapture(f"more than {_MOST_REPORTS} kernels that report wrong values")
        self.explains.append(explain)
        return self.reports.strided((2,), _WORD, position * 2 * _WORD.itemsize)

    def count_of_checks(self) -> int:
        return len(self.explains)

    def note_checks(self, begin: int, note: Note) -> None:
        self.explains[begin:] = [partial(_noted, explain, note) for explain in self.explains[begin:]]


def _noted(explain: Explain, note: Note, position: int, value: int) -> Exception:
    error = explain(position, value)
    note(error)
    return error
