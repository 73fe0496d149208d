"""`Launcher`: hands kernels and copies to one stream of a device; kernel functions find the launcher by `current`.

A kernel may run long after its launch.  So `Launched` keeps the objects that the kernel still needs, and the checks to
make when the kernel has ended.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, final

import numpy as np

from vmflow.errors import InternalError

from .arrays import DeviceArray
from .device import CudaDevice, Explain
from .driver import Argument, CompileTarget, Handle

if TYPE_CHECKING:
    from vmflow.streams.allocator import BinAllocator

# Called when the launched work has ended: returns the error that the work has found, or None.
Check: TypeAlias = "Callable[[], Exception | None]"

# Called with an error that a check has found, to add the error's origin.
Note: TypeAlias = "Callable[[Exception], None]"


class Loadable(Hashable, Protocol):
    """A kernel that is loaded at the latest for its first launch on each device, and compiled before that."""

    def compile(self, target: CompileTarget) -> bytes:
        """Return the kernel's code for this target."""
        ...

    def load(self, device: CudaDevice) -> Handle:
        """Return the kernel's function on a device; the first call loads it and notes it in `CudaDevice.functions`."""
        ...


@final
class Launched:
    """Work that was handed to a device together.

    Attributes:
        kept: objects that the work needs until it has ended.
        checks: called when the work has ended.
    """

    __slots__ = ("checks", "kept")

    def __init__(self) -> None:
        self.kept: list[object] = []
        self.checks: list[Check] = []

    def error(self) -> Exception | None:
        """The first error that the checks find, or None; to be called after the work has ended."""
        found = [error for error in [check() for check in self.checks] if error is not None]
        return found[0] if found else None


class Launcher:
    """Hands kernels and copies to one stream of a device.

    Args:
        device: of the stream.
        stream: the driver's handle of the stream.

    Attributes:
        device, stream: see above.
        driver: of the device.
        allocator: of scratch memory, in the order of this stream; None if the stream has none of its own.
        launched: the work since the last `take_launched`.
    """

    def __init__(self, device: CudaDevice, stream: Handle) -> None:
        self.device = device
        self.driver = device.driver
        self.stream = stream
        self.allocator: BinAllocator | None = None
        self.launched = Launched()

    def allocate_from(self, allocator: BinAllocator) -> None:
        """Let the stream take scratch memory from an allocator of its own."""
        self.allocator = allocator

    def take_launched(self) -> Launched:
        """Return the work that was handed over since the last call."""
        launched, self.launched = self.launched, Launched()
        return launched

    def keep(self, thing: object) -> None:
        """Keep an object alive until the present work has ended."""
        self.launched.kept.append(thing)

    def check(self, check: Check) -> None:
        """Call a check when the present work has ended."""
        self.launched.checks.append(check)

    def error_report(self, explain: Explain) -> DeviceArray:
        """Memory in which a kernel of the present work reports a wrong value; see `ErrorReport`."""
        report = self.device.error_report(explain)
        self.check(report.error)
        return report.array

    def count_of_checks(self) -> int:
        """The number of checks of the present work, for `note_checks`."""
        return len(self.launched.checks)

    def note_checks(self, begin: int, note: Note) -> None:
        """Call `note` with the errors that the present work's checks so far find, except its first `begin` checks."""
        checks = self.launched.checks
        checks[begin:] = [partial(_noted, check, note) for check in checks[begin:]]

    # Memory

    def scratch(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> DeviceArray:
        """Memory for the kernels that are launched next; the stream may reuse it behind them once the array is dropped.

        Raises:
            OutOfMemory: if the device has too little memory left.
            InternalError: if the launcher has no allocator.
        """
        if self.allocator is None:
            raise InternalError("a kernel asked for scratch memory on a stream that only copies")
        nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        allocation = self.allocator.allocate(nbytes, ("scratch", None, 0, None))
        # The kernel function drops the array after launching; then the allocator gets the memory back.
        array: DeviceArray = allocation.array(shape, dtype)
        return array.owned_by(allocation)

    def constant(self, key: Hashable, make: Callable[[], np.ndarray[Any, Any]]) -> DeviceArray:
        """Copy constant numbers to new scratch memory.

        Args:
            key: identifies the numbers.
            make: makes them on the host; called if the device does not know the key.
        """
        numbers = self.device.constant(key, make)
        copied = self.scratch(numbers.shape, numbers.dtype)
        self.keep(numbers)
        self.driver.copy(copied, numbers, self.stream, constant=True)
        return copied

    # Work

    def function(self, kernel: Loadable) -> Handle:
        """The function of a kernel on the device; a kernel that has not been loaded there is loaded."""
        return self.device.functions.get(kernel) or kernel.load(self.device)

    def launch(
        self,
        function: Handle,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        arguments: Sequence[Argument],
        writes: Sequence[int],
        shared: int = 0,
    ) -> None:
        """See `Driver.launch`."""
        self.driver.launch(function, grid, block, arguments, writes, self.stream, shared)

    def call(
        self, name: str, function: Callable[..., object], arguments: Sequence[Any], results: Sequence[DeviceArray]
    ) -> None:
        """See `Driver.call`."""
        errors: list[Exception] = []
        self.driver.call(name, function, arguments, results, self.stream, errors.append)
        self.check(lambda: errors[0] if errors else None)

    def multiply(
        self, left: DeviceArray, right: DeviceArray, out: DeviceArray, bias: DeviceArray | None = None
    ) -> None:
        """See `Driver.multiply`."""
        self.driver.multiply(left, right, out, bias, self.stream)

    def copy(self, out: Any, source: Any) -> None:
        """Copy between two arrays, as `Driver.copy` does; both are kept alive until the copy has ended."""
        self.keep((out, source))
        self.driver.copy(out, source, self.stream)

    def fill(self, out: DeviceArray, byte: int) -> None:
        """See `Driver.fill`."""
        self.driver.fill(out, byte, self.stream)


def _noted(check: Check, note: Note) -> Exception | None:
    error = check()
    if error is not None:
        note(error)
    return error


class _Current(threading.local):
    launcher: Launcher | None = None


_current = _Current()


def current() -> Launcher:
    """The launcher of the instruction that this thread hands to a device.

    Raises:
        InternalError: if the thread hands over no instruction.
    """
    launcher = _current.launcher
    if launcher is None:
        raise InternalError("a kernel of a device was called outside of an instruction on one of its streams")
    return launcher


def launched_by(launcher: Launcher, work: Callable[[], None]) -> Launched:
    """Call `work` with `launcher` as the current launcher of this thread; returns the work handed over."""
    before = _current.launcher
    _current.launcher = launcher
    try:
        work()
    finally:
        _current.launcher = before
        launched = launcher.take_launched()
    return launched
