"""`Loops`: runs a machine's turns on event loops, by callbacks, each under a time budget."""

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
    """The event loops that run the turns of one machine.

    Attributes:
        home: the loop on which the machine's `async with` block was entered, which runs turns for threads without a
            loop; else None.
    """

    def __init__(self, machine: VirtualMachine) -> None:
        self._machine = machine
        self.home: AbstractEventLoop | None = None
        # The loop on which `turn` was scheduled last, if it has not begun since; None without one.
        self._armed: AbstractEventLoop | None = None
        # The wakers of loops that have run turns of the machine.
        self._wakers: dict[AbstractEventLoop, LoopWaker] = {}
        # For each loop, the time of `time.perf_counter_ns` up to which ops may run inline in its present turn.
        self._until: dict[AbstractEventLoop, int] = {}

    def forget(self) -> None:
        """Forget all loops in a forked child, where they do not run."""
        self._wakers.clear()
        self._until.clear()
        self._armed = None
        self.home = None

    def enter(self, loop: AbstractEventLoop | None) -> None:
        """Note that the machine's `async with` block is entered on `loop`.

        Raises:
            RuntimeError: if the block was entered already.
        """
        if self.home is not None:
            raise RuntimeError(f"the virtual machine {self._machine.name!r} is already entered")
        self.home = loop

    def any(self) -> bool:
        """Whether any loop has run turns of the machine, so that long instructions go to workers."""
        return bool(self._wakers)

    def arm(self, loop: AbstractEventLoop) -> None:
        """Schedule the machine's turns on `loop`, which runs on this thread, unless that is done already."""
        if self._armed is not loop:
            self._armed = loop
            loop.call_soon(self.turn, loop)

    def arm_home(self) -> None:
        """Schedule the machine's turns on the loop of its `async with` block, from another thread.

        Does nothing without such a loop, or if a loop is about to run the turns.  If the block's loop is closed, this
        thread runs them.
        """
        if self.home is None or (self._armed is not None and not self._armed.is_closed()):
            return
        self._armed = self.home
        if not call_soon(self.home, self.turn, self.home):
            self._armed = self.home = None
            self._machine.driver.drive()

    def turn(self, loop: AbstractEventLoop) -> None:
        """Run the machine's turns, for about `turn_budget` seconds at most; a callback of the event loop."""
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
        for previous in machine.handover.sources():
            # Perhaps nobody else runs the turns for which this machine waits.
            if previous is not machine:
                previous.loops.arm(loop)
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
        # Devices' progress is awaited even if nobody waits on this virtual machine, since somebody may on another one.
        for work in machine.completion.oldest():
            if work.event is not None and work.instruction.stream.policy.await_progress(work.event, waker.wake):
                break

    def in_time(self, loop: AbstractEventLoop) -> bool:
        """Whether the loop's present turn has time left for inline calls: `turn_budget` from the first one on."""
        until = self._until.get(loop)
        if until is not None:
            return _now() < until
        for other in list(self._until):
            if other.is_closed():
                self._until.pop(other, None)
        loop.call_soon(self._until.pop, loop, None)  # before the entry is made: this call may raise KeyboardInterrupt
        self._until[loop] = _now() + int(self._machine.turn_budget * 1e9)
        return True

    def forget_closed(self) -> None:
        """Forget the event loops that have been closed."""
        for loop in [loop for loop in list(self._wakers) if loop.is_closed()]:
            self._wakers.pop(loop, None)
        armed = self._armed
        if armed is not None and armed.is_closed():
            self._armed = None
