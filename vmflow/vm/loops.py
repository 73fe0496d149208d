"""`Loops`: driving a machine from event loops, by one callback per turn of the loop, under a time budget."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, final

from .wakers import LoopWaker, call_soon

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

    from .virtual_machine import VirtualMachine

_now: Final = time.perf_counter_ns


@final
class Loops:
    """The event loops that drive one machine.

    Args:
        machine: the machine.

    Attributes:
        home: the loop of the `async with` block, which alone drives; None outside of one.
    """

    def __init__(self, machine: VirtualMachine) -> None:
        self._machine = machine
        self.home: AbstractEventLoop | None = None
        # The loop that is going to drive soon.
        self._armed: AbstractEventLoop | None = None
        # An entry for each loop that drives the machine, or has driven it.
        self._wakers: dict[AbstractEventLoop, LoopWaker] = {}
        # The moment of `time.perf_counter_ns` up to which instructions may run inline in a loop's present turn.
        self._until: dict[AbstractEventLoop, int] = {}

    def forget(self) -> None:
        """Forget all loops in a forked child, in which none of them runs."""
        self._wakers.clear()
        self._until.clear()
        self._armed = None
        self.home = None

    def enter(self, loop: AbstractEventLoop | None) -> None:
        """Note that the machine's `async with` block begins on this loop.

        Raises:
            RuntimeError: if it has begun already.
        """
        if self.home is not None:
            raise RuntimeError(f"the virtual machine {self._machine.name!r} is already entered")
        self.home = loop

    def any(self) -> bool:
        """Whether a loop drives, or has driven, the machine, and must stay responsive."""
        return bool(self._wakers)

    def arm(self, loop: AbstractEventLoop) -> None:
        """Let `loop`, which runs on this thread, drive soon."""
        if self._armed is not loop:
            self._armed = loop
            loop.call_soon(self.turn, loop)

    def arm_home(self) -> None:
        """Let the loop of the `async with` block drive, from another thread; if it is closed, this thread drives."""
        if self._armed is not None or self.home is None:
            return
        self._armed = self.home
        if not call_soon(self.home, self.turn, self.home):
            self._armed = self.home = None
            self._machine.driver.drive()

    def turn(self, loop: AbstractEventLoop) -> None:
        """The callback that drives from an event loop."""
        machine = self._machine
        self._armed = None
        waker = self._wakers.get(loop)
        if waker is None:
            self.forget_closed()
            waker = self._wakers[loop] = LoopWaker(loop, self.turn)
        deadline = time.perf_counter() + machine.turn_budget
        if not machine.driver.drive(None, deadline):
            machine.driver.add_waker(waker)
            if not machine.driver.drive(None, deadline):
                return
        machine.handover.sources()  # forgets finished handovers
        if machine.driver.can_go_on():
            if self._armed is None:
                self.arm(loop)
            return
        if machine.engine.idle():
            return
        machine.driver.add_waker(waker)
        machine.driver.pass_on()
        if machine.has_waiters():
            machine.waiters.watch.arm(loop)
        # Also without waiters here, since another machine may have some.
        for work in machine.completion.oldest():
            if work.event is not None and work.instruction.stream.policy.await_progress(work.event, waker.wake):
                break

    def in_time(self, loop: AbstractEventLoop) -> bool:
        """Return whether inline calls may go on in the loop's present turn; the first of them begins its budget."""
        until = self._until.get(loop)
        if until is not None:
            return _now() < until
        for other in list(self._until):
            if other.is_closed():
                self._until.pop(other, None)
        loop.call_soon(self._until.pop, loop, None)  # first, since it may raise KeyboardInterrupt
        self._until[loop] = _now() + int(self._machine.turn_budget * 1e9)
        return True

    def forget_closed(self) -> None:
        """Forget loops that have been closed."""
        for loop in [loop for loop in list(self._wakers) if loop.is_closed()]:
            self._wakers.pop(loop, None)
            if self._armed is loop:
                self._armed = None
