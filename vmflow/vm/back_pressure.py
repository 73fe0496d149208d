"""`BackPressure`: a producer that issues too many instructions waits until half of them have ended."""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Generator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from vmflow.errors import BackPressureWarning
from vmflow.instructions import origin

from .wakers import FutureWaker, ThreadWaker, running_loop

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

    from .virtual_machine import VirtualMachine


class BackPressure:
    """Counts the outstanding instructions of one machine, and the bytes of their large results, against its marks.

    Args:
        machine: the machine.

    Attributes:
        issued_bytes: of the large results of all instructions ever issued; the engine counts those of erased ones.
    """

    def __init__(self, machine: VirtualMachine) -> None:
        self._machine = machine
        self._waiting: deque[ThreadWaker | FutureWaker] = deque()
        self.issued_bytes = 0

    def forget(self) -> None:
        """Forget all waiting producers: in a forked child, their threads and coroutines do not exist."""
        self._waiting.clear()

    def count(self, nbytes: int) -> None:
        """Count the bytes of the results of an instruction that was issued; from any thread."""
        self.issued_bytes += nbytes  # no call in this line, hence no other thread in between

    def outstanding_bytes(self) -> int:
        """The bytes of the large results of unfinished instructions."""
        return self.issued_bytes - self._machine.engine.erased_bytes

    def above(self, share: float) -> bool:
        """Return whether instructions, or bytes of results, exceed this share of the high-water marks."""
        machine = self._machine
        return (
            machine.engine.outstanding() > share * machine.high_water
            or self.outstanding_bytes() > share * machine.high_water_bytes
        )

    def waiting(self) -> int:
        """The number of waiting producers."""
        return len(self._waiting)

    def wake_if_low(self) -> None:
        """Wake the waiting producers if at most half of the marks is outstanding; called when instructions end."""
        if self._waiting and not self.above(0.5):
            self.wake()

    def wake(self) -> None:
        """Wake the waiting producers; each of them checks the marks again."""
        while self._waiting:
            try:
                waker = self._waiting.popleft()
            except IndexError:  # the last waiter has given up
                return
            waker.wake()

    def throttle(self, loop: AbstractEventLoop | None) -> None:
        """Make a producer that is above the marks wait, or drive if it runs on an event loop.

        A loop's thread may not block; but a coroutine that issues so much without awaiting keeps the loop from running
        anyway, so that driving here costs the loop nothing.
        """
        machine = self._machine
        if machine.driver.inside():
            return
        if loop is None:
            self._sleep_until_low()
            return
        machine.driver.drive()
        if self.above(1.0):
            warnings.warn(
                f"the virtual machine {machine.name!r} has more work than it can take "
                f"(high_water={machine.high_water}, high_water_bytes={machine.high_water_bytes}); call "
                "`await vmflow.checkpoint()` in loops that issue a lot without awaiting any result",
                BackPressureWarning,
                stacklevel=origin.depth(),
            )

    def await_low_water(self) -> Generator[Any, None, None]:
        """Suspend the coroutine if more than the high-water marks is outstanding, until half as much is.

        Raises:
            RuntimeError: without a running asyncio loop.
        """
        machine = self._machine
        loop = running_loop()
        if loop is None:
            raise RuntimeError("a checkpoint needs a running asyncio event loop; plain code waits by itself")
        # At the mark, one more instruction would be above it.
        if not self.above(1.0 - 1.0 / machine.high_water):
            return
        while self.above(0.5) and not machine.closed:
            waker = FutureWaker(loop, loop.create_future())
            self._waiting.append(waker)
            try:
                # Checked after appending, since a worker may have finished instructions in between.
                if self.above(0.5):
                    machine.loops.arm(loop)
                    yield from waker.future
            finally:
                with suppress(ValueError):
                    self._waiting.remove(waker)

    def _sleep_until_low(self) -> None:
        """Block while more than half of the marks is outstanding."""
        machine = self._machine
        waker = ThreadWaker()
        try:
            while self.above(0.5):
                # Each time, since other producers may have issued more after this thread was woken.
                if waker not in self._waiting:
                    self._waiting.append(waker)
                machine.waiters.advance(None, waker, machine.control_stream(), lambda: not self.above(0.5))
        finally:
            with suppress(ValueError):
                self._waiting.remove(waker)
            machine.driver.pass_on()
