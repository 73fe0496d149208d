"""`BackPressure`: holds back producers while too many instructions, or bytes of large results, are unfinished."""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Generator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from vmflow.errors import BackPressureWarning
from vmflow.instructions import origin
from vmflow.instructions.instruction import ERASED, Instruction

from .wakers import FutureWaker, ThreadWaker, running_loop

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

    from .virtual_machine import VirtualMachine


class BackPressure:
    """Holds back threads and coroutines that issue too many instructions, or too many bytes of large results.

    Threads without a running loop wait; coroutines run turns as they issue, and wait at a checkpoint or an `await`.

    Args:
        machine: the machine, with its limits `high_water` and `high_water_bytes`.

    Attributes:
        issued_bytes: the bytes of the large results of all instructions ever issued, without inline ones;
            `engine.erased_bytes` counts those of the instructions that have ended.
    """

    def __init__(self, machine: VirtualMachine) -> None:
        self._machine = machine
        self._waiting: deque[ThreadWaker | FutureWaker] = deque()
        self.issued_bytes = 0

    def forget(self) -> None:
        """Forget the waiting producers in a forked child, where their threads and coroutines do not exist."""
        self._waiting.clear()

    def count(self, nbytes: int) -> None:
        """Count the bytes of the large results of an instruction that was issued; any thread may call this."""
        self.issued_bytes += nbytes  # atomic under the GIL, since this line calls no function

    def outstanding_bytes(self) -> int:
        """Return the bytes of the large results of all instructions that have not ended."""
        return self.issued_bytes - self._machine.engine.erased_bytes

    def above(self, share: float) -> bool:
        """Whether unfinished instructions, or the bytes of their large results, exceed `share` of a high-water mark."""
        machine = self._machine
        return (
            machine.engine.outstanding() > share * machine.high_water
            or self.outstanding_bytes() > share * machine.high_water_bytes
        )

    def _overdue(self, instruction: Instruction) -> bool:
        """Whether more is unfinished than a coroutine leaves that awaits a checkpoint before each instruction.

        Such a coroutine may exceed the mark of bytes by one result, that of `instruction`, which was issued last.
        """
        machine = self._machine
        last = 0 if instruction.state == ERASED else instruction.nbytes
        return (
            machine.engine.outstanding() > machine.high_water
            or self.outstanding_bytes() - last > machine.high_water_bytes
        )

    def _full(self) -> bool:
        """Whether a high-water mark is reached, so that any further instruction, or large result, would exceed it."""
        machine = self._machine
        return (
            machine.engine.outstanding() >= machine.high_water or self.outstanding_bytes() >= machine.high_water_bytes
        )

    def waiting(self) -> int:
        """The number of threads and coroutines that wait until they may issue more instructions."""
        return len(self._waiting)

    def wake_if_low(self) -> None:
        """Wake the waiting producers if at most half of each high-water mark is in use; called as instructions end."""
        if self._waiting and not self.above(0.5):
            self.wake()

    def wake(self) -> None:
        """Wake the waiting producers, each of which checks the high-water marks again."""
        while self._waiting:
            try:
                waker = self._waiting.popleft()
            except IndexError:  # the last waiting producer has given up
                return
            waker.wake()

    def throttle(self, loop: AbstractEventLoop | None, instruction: Instruction) -> None:
        """Make the producer of an instruction that exceeds a mark wait; on an event loop, run instructions here.

        If too much is still unfinished then, see `_overdue`, warn the coroutine, which awaits too little.

        A thread that already runs turns or an instruction goes on immediately.
        """
        machine = self._machine
        if machine.driver.inside():
            return
        if loop is None:
            self._sleep_until_low()
            return
        machine.driver.drive()
        if self._overdue(instruction):
            warnings.warn(
                f"the virtual machine {machine.name!r} has more work than it can take "
                f"(high_water={machine.high_water}, high_water_bytes={machine.high_water_bytes}); call "
                "`await vmflow.checkpoint()` in loops that issue a lot without awaiting any result",
                BackPressureWarning,
                stacklevel=origin.depth(),
            )

    def await_low_water(self) -> Generator[Any, None, None]:
        """Suspend the coroutine at a high-water mark, until at most half of each is in use or the machine has closed.

        Raises:
            RuntimeError: without a running asyncio loop.
        """
        machine = self._machine
        loop = running_loop()
        if loop is None:
            raise RuntimeError("a checkpoint needs a running asyncio event loop; plain code waits by itself")
        if not self._full():
            return
        while self.above(0.5) and not machine.closed:
            waker = FutureWaker(loop, loop.create_future())
            self._waiting.append(waker)
            try:
                # The marks are checked again now that the waker is in the queue: a worker that finished instructions
                # before that has not woken this coroutine.
                if self.above(0.5):
                    machine.loops.arm(loop)
                    yield from waker.future
            finally:
                with suppress(ValueError):
                    self._waiting.remove(waker)

    def _sleep_until_low(self) -> None:
        """Block this thread, running instructions meanwhile, until at most half of each high-water mark is in use."""
        machine = self._machine
        waker = ThreadWaker()
        try:
            while self.above(0.5):
                # `wake` has removed the waker from the queue, but other producers may have issued more since then.
                if waker not in self._waiting:
                    self._waiting.append(waker)
                machine.waiters.advance(None, waker, machine.control_stream(), lambda: not self.above(0.5))
        finally:
            with suppress(ValueError):
                self._waiting.remove(waker)
            machine.driver.pass_on()
