"""`Replay`: kernels that run over the same memory again and again, one by one at first, and then as a graph.

The first run loads the kernels.  The second captures them, and runs them both ways over the same inputs: one by one,
and as the graph.  If all results have the same bits, runs launch the graph as soon as the host knows this; if not, or
if the work cannot be captured or compared, later runs go on one by one.  The results of the first two runs are those of
the kernels one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Final, TypeAlias, final

import numpy as np

from vmflow.errors import OutOfMemory
from vmflow.streams.cuda.arrays import DeviceArray
from vmflow.streams.cuda.capturing import CapturedGraph, capture, memory_of_graph
from vmflow.streams.cuda.driver import CannotCapture
from vmflow.streams.cuda.launching import Launcher, Note, current

from .sources import CudaKernel

_WORD: Final = np.dtype(np.int64)
_BYTE: Final = np.dtype(np.uint8)

# A place in a sequence of random numbers, as an operand of a kernel: an integer, or an array that holds it.
Place: TypeAlias = "int | DeviceArray"

# call(places, noted): launch all kernels in order, and call noted(note) behind those of each op; see
# `Launcher.note_checks`.
Calls: TypeAlias = "Callable[[Sequence[Place], Callable[[Note], None]], None]"


@final
class Replay:
    """Runs kernels over the same memory again and again, as a captured graph if possible; see the module.

    Args:
        changed: memory that the kernels change; the second run restores it before the graph runs.
        results: the arrays in the changed memory that other code reads.
        places: the number of places in sequences of random numbers that each run takes.
        report: called at most once: with None when later runs launch the graph, or with the reason why they do not.
    """

    def __init__(
        self,
        changed: Sequence[DeviceArray],
        results: Sequence[DeviceArray],
        places: int,
        report: Callable[[str | None], None],
    ) -> None:
        self._report = report
        self._refused = False
        self._changed = [array for array in map(_as_bytes, changed) if array.size]
        self._results = [array for array in map(_as_bytes, results) if array.size]
        self._count = places
        self._places: DeviceArray | None = None
        self._ran = False
        self._graph: CapturedGraph | None = None
        self._verified = False

    def run(self, call: Calls, places: Sequence[int]) -> None:
        """Do one run by the current launcher: the kernels one by one, as the graph, or in the second run perhaps both.

        Args:
            call: see `Calls`.
            places: this run's places in sequences of random numbers.
        """
        launcher = current()
        if self._verified:
            self._launch(launcher, places)
        elif self._ran and self._graph is None and not self._refused:
            self._capture(launcher, call)
            self._verify(launcher, call, places)
        else:
            _call(launcher, call, places)
        self._ran = True

    def _launch(self, launcher: Launcher, places: Sequence[int]) -> None:
        assert self._graph is not None
        if self._places is not None:
            staged = launcher.device.pinned.array(self._places.shape, _WORD)
            launcher.driver.host_access(staged, write=True)
            staged[...] = np.array(places, np.uint64).view(np.int64)
            launcher.copy(self._places, staged)
        self._graph.launch(launcher)

    def _capture(self, launcher: Launcher, call: Calls) -> None:
        try:
            allocator = memory_of_graph(launcher)
            places: list[Place] = []
            if self._count:
                memory = allocator.allocate(self._count * _WORD.itemsize, ("places", None, 0, None))
                self._places = memory.array((self._count,), _WORD).owned_by(memory)
                places += [self._places.strided((), _WORD, at * _WORD.itemsize) for at in range(self._count)]
            self._graph = capture(launcher, allocator, partial(_call_current, call, places))
        except Exception as error:
            # If the kernels fail one by one, too, the run raises that error.
            self._refuse(_refusal(error))

    def _verify(self, launcher: Launcher, call: Calls, places: Sequence[int]) -> None:
        """Run the kernels one by one, then as the graph, and compare the results; the first results stay.

        Without a graph, or memory to compare, run them one by one only.
        """
        if self._graph is None:
            _call(launcher, call, places)
            return
        try:
            before, after, expected = [
                [launcher.scratch(array.shape, _BYTE) for array in arrays]
                for arrays in (self._changed, self._changed, self._results)
            ]
        except OutOfMemory as error:
            self._refuse(f"there is no memory to verify a graph of the device: {error}")
            _call(launcher, call, places)
            return
        _copy_all(launcher, self._changed, before)
        _call(launcher, call, places)
        _copy_all(launcher, self._results, expected)
        _copy_all(launcher, self._changed, after)
        _copy_all(launcher, before, self._changed)
        self._launch(launcher, places)
        report = launcher.device.error_report(lambda position, value: ValueError(f"byte {position} of a result"))
        for copy, array in zip(expected, self._results, strict=True):
            _comparison().launch_over(launcher, array.size, (report.array, copy, array, array.size))
        _copy_all(launcher, after, self._changed)
        launcher.check(lambda: self._compared(report.error()))

    def _compared(self, difference: Exception | None) -> None:
        """Note that the device has compared the results of both ways: later runs launch the graph if there is no
        `difference`.
        """
        if difference is not None:
            self._refuse(f"the graph of the device has computed other bits, at {difference}")
        elif self._graph is not None:
            self._verified = True
            self._report(None)

    def _refuse(self, reason: str) -> None:
        self._graph = None
        self._refused = True
        self._report(reason)


def _refusal(error: Exception) -> str:
    """Return the reason why no graph was captured: `error`, or, if another error caused it, the cause."""
    cause = error.__cause__ or error
    return f"a graph of the device cannot {'hold ' if isinstance(cause, CannotCapture) else 'be made: '}{cause}"


def _call(launcher: Launcher, call: Calls, places: Sequence[Place]) -> None:
    begin = launcher.count_of_checks()

    def noted(note: Note) -> None:
        nonlocal begin
        launcher.note_checks(begin, note)
        begin = launcher.count_of_checks()

    call(places, noted)


def _call_current(call: Calls, places: Sequence[Place]) -> None:
    _call(current(), call, places)


def _as_bytes(array: DeviceArray) -> DeviceArray:
    return array.strided((array.nbytes,), _BYTE)


def _copy_all(launcher: Launcher, arrays: Sequence[DeviceArray], outs: Sequence[DeviceArray]) -> None:
    for array, out in zip(arrays, outs, strict=True):
        launcher.copy(out, array)


@lru_cache(1)
def _comparison() -> CudaKernel:
    source = """
extern "C" __global__ void compare_bytes(unsigned long long* report, const unsigned char* one,
                                         const unsigned char* other, int64 count) {
    const int64 threads = (int64)gridDim.x * blockDim.x;
    for (int64 i = (int64)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += threads) {
        if (one[i] != other[i]) atomicCAS(report, 0ULL, (unsigned long long)i + 1);
    }
}
"""
    return CudaKernel("compare_bytes", source)
