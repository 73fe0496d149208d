"""`CudaDevice`: one device of this process, with everything that its streams share."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from typing import Any, Final, final

import numpy as np

from vmflow.errors import DeviceLost

from .arrays import DeviceArray
from .driver import Driver, Handle
from .pinned import PinnedMemory

# Words of page-locked memory in which one kernel can report an error: the position, and the wrong value.
_WORDS: Final = 2

# The most arrays of constants that a device keeps.
_MOST_CONSTANTS: Final = 256

# explain(position, value) -> the error, of a kernel that has found a wrong value
Explain = Callable[[int, int], Exception]


@final
class CudaDevice:
    """A device, its memory for transfers, its loaded kernels and its state.

    Args:
        driver: of the device.

    Attributes:
        driver: see above.
        pinned: page-locked memory for copies from and to the device.
        functions: by kernel, the function that was loaded on this device.
        lost: the reason why the device has stopped working; None while it works.
        forked: whether this process was forked from one that had opened the device, and cannot use the device.
    """

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self.pinned = PinnedMemory(driver)
        self.functions: dict[object, Handle] = {}
        self.lost: DeviceLost | None = None
        self.forked = False
        self._events: deque[Handle] = deque()
        self._reports: deque[np.ndarray[Any, Any]] = deque()
        self._constants: dict[Hashable, np.ndarray[Any, Any]] = {}
        # Pairs of streams: the first, the home of memory, has to wait for the second, that of a borrower.
        self._returned: deque[tuple[Handle, Handle]] = deque()

    # Events.  Handles of those without timing are reused, since creating one takes time.

    def record(self, stream: Handle, timing: bool = False) -> CudaEvent:
        """An event behind all work that the stream has been handed so far.

        If the device has been lost, the event counts as reached.
        """
        self.await_borrowers()
        return self._record(stream, timing)

    def let_wait(self, stream: Handle, event: CudaEvent) -> None:
        """Order work that is handed to `stream` from now on behind `event`, which may be another device's.

        An event that could not be created, since its device was lost, counts as reached.
        """
        if event.handle is None:
            return
        try:
            self.driver.stream_wait(stream, event.handle)
        except DeviceLost as error:
            self.lose(error)

    def is_idle(self, stream: Handle) -> bool:
        """Whether all work that the stream has been handed so far has ended; also true if the device has been lost."""
        try:
            return self.driver.query_stream(stream)
        except DeviceLost as error:
            self.lose(error)
            return True

    def _record(self, stream: Handle, timing: bool = False) -> CudaEvent:
        handle: Handle = None
        try:
            try:
                handle = self.driver.create_event(True) if timing else self._events.pop()
            except IndexError:
                handle = self.driver.create_event()
            self.driver.record(handle, stream)
        except DeviceLost as error:
            self.lose(error)
        return CudaEvent(self, handle, timing)

    def keep_event(self, handle: Handle) -> None:
        """Put the handle of an event among the handles to reuse; called by destructors."""
        self._events.append(handle)

    # Memory lent to other libraries

    def give_back(self, home: Handle, borrower: Handle) -> None:
        """Take note that memory, allocated in the order of `home`, came back from a library; called by destructors.

        Work on `home` that is handed over from now on runs behind all work that `borrower` has been handed.
        """
        self._returned.append((home, borrower))

    def await_borrowers(self) -> None:
        """Let each home stream wait for the streams that borrowed its memory, as noted by `give_back`.

        Called before streams are handed work.
        """
        while self._returned:
            home, borrower = self._returned.popleft()
            self.let_wait(home, self._record(borrower))

    # Constants

    def constant(self, key: Hashable, make: Callable[[], np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
        """Numbers in page-locked memory that never change; `make` is called for an unknown key."""
        numbers = self._constants.get(key)
        if numbers is None:
            made = make()
            if len(self._constants) >= _MOST_CONSTANTS:
                self._constants.clear()  # running copies keep theirs
            numbers = self.pinned.array(made.shape, made.dtype)
            self.driver.host_access(numbers, write=True)
            np.copyto(numbers, made)
            self._constants[key] = numbers
        return numbers

    # Errors

    def lose(self, error: DeviceLost) -> None:
        """Record that the device has stopped working."""
        if self.lost is None:
            self.lost = error

    def leave_to_parent(self, error: DeviceLost) -> None:
        """Make the device unusable in a forked child."""
        self.forked = True
        self.lost = error

    def loss(self) -> DeviceLost:
        """Make a new `DeviceLost` error of the lost device, to which its receiver may add notes."""
        assert self.lost is not None
        error = DeviceLost(str(self.lost))
        error.__cause__ = self.lost
        return error

    def error_report(self, explain: Explain) -> ErrorReport:
        """Words in which a kernel reports a wrong value that it finds."""
        try:
            words = self._reports.pop()
        except IndexError:
            words = self.driver.pinned(_WORDS * 8).view(np.int64)
            self.driver.host_access(words, write=True)
            words[...] = 0
        return ErrorReport(self, words, explain)

    def keep_report(self, words: np.ndarray[Any, Any]) -> None:
        """Put the words of an error report among the words to reuse."""
        self._reports.append(words)


@final
class ErrorReport:
    """The words in which a kernel reports a wrong value, such as an index that is out of range.

    The kernel writes 1 + the position, or 1 + another number for `explain`, into the first word, and perhaps the value
    into the second.

    Attributes:
        array: the words, as an argument of the kernel.
    """

    __slots__ = ("_device", "_explain", "_words", "array")

    def __init__(self, device: CudaDevice, words: np.ndarray[Any, Any], explain: Explain) -> None:
        self._device = device
        self._words = words
        self._explain = explain
        self.array: DeviceArray = device.driver.mapped(words)

    def error(self) -> Exception | None:
        """The error that the kernel has reported, or None; to be called once, after the kernel has ended."""
        words = self._words
        try:
            self._device.driver.host_access(words, write=True)
        except Exception as error:
            return error
        position, value = int(words[0]), int(words[1])
        words[...] = 0
        self._device.keep_report(words)
        return self._explain(position - 1, value) if position else None


@final
class CudaEvent:
    """An event of a device: a point in a stream's work.  A handle without timing is reused when the object dies.

    Attributes:
        handle: the driver's; None if the device was lost before it could be created.
        timing: whether the event notes the time.
    """

    __slots__ = ("_device", "_reached", "handle", "timing")

    def __init__(self, device: CudaDevice, handle: Handle, timing: bool) -> None:
        self._device = device
        self.handle = handle
        self.timing = timing
        self._reached = handle is None

    def query(self) -> bool:
        """Whether the event has been reached; also true if the device has been lost, so that it never will be."""
        if not self._reached:
            try:
                self._reached = self._device.driver.query(self.handle)
            except DeviceLost as error:
                self._device.lose(error)
                self._reached = True
        return self._reached

    def synchronize(self) -> None:
        """Block until the event has been reached, or the device has been lost."""
        if self._reached:
            return
        try:
            self._device.driver.synchronize_event(self.handle)
        except DeviceLost as error:
            self._device.lose(error)
        self._reached = True

    def milliseconds_until(self, end: CudaEvent) -> float:
        """The milliseconds from this event to a later one, both with timing and reached.

        Raises:
            DeviceLost: if the device has been lost and the times are not known.
        """
        if self.handle is None or end.handle is None:
            raise self._device.loss()
        return self._device.driver.elapsed(self.handle, end.handle)

    def __del__(self) -> None:
        if not self.timing and self.handle is not None:
            self._device.keep_event(self.handle)
