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
        # The loop on which `turn` was scheduled last; None if `turn` has begun on any loop since.
        self._armed: AbstractEventLoop | None = None
        # The wakers of loops that have run turns of the machine.
        self._wakers: dict[AbstractEventLoop, LoopWaker] = {}
        # By loop, the time of `time.perf_counter_ns` up to which ops may run inline in its present turn, once one has.
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
            RuntimeError: if the machine has a `home` already.
        """
        if self.home is not None:
            raise RuntimeError(f"the virtual machine {self._machine.name!r} is already entered")
        self.home = loop

    def any(self) -> bool:
        """Whether any loop that was not found closed has run turns of the machine."""
        return bool(self._wakers)

    def arm(self, loop: AbstractEventLoop) -> None:
        """Schedule `turn` on `loop`, which runs on this thread, unless that was done last and is still due."""
        if self._armed is not loop:
            self._armed = loop
            loop.call_soon(self.turn, loop)

    def arm_home(self) -> None:
        """Schedule the machine's turns on the loop of its `async with` block, from any thread.

        Does nothing without such a loop, or if any loop is about to run the turns.  If the block's loop is closed, this
        thread runs them.
        """
        if self.home is None or (self._armed is not None and not self._armed.is_closed()):
            return
        self._armed = self.home
        if not call_soon(self.home, self.turn, self.home):
            self._armed = self.home = None
            self._machine.driver.drive()

    def turn(self, loop: AbstractEventLoop) -> None:
        """Run turns until none can go on or about `turn_budget` seconds have passed; a callback of the event loop."""
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
            # Perhaps nobody else runs the turns of `previous`, from which this machine takes storages over.
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
        # Devices' progress is awaited even if nobody waits on this virtual machine: somebody may wait on another one.
        for work in machine.completion.oldest():
            if work.event is not None and work.instruction.stream.policy.await_progress(work.event, waker.wake):
                break

    def in_time(self, loop: AbstractEventLoop) -> bool:
        """Whether the loop's present turn has time left for inline calls: `turn_budget` from the first such call on."""
        until = self._until.get(loop)
        if until is not None:
            return _now() < until
        for other in list(self._until):
            if other.is_closed():
                self._until.pop(other, None)
        loop.call_soon(self._until.pop, loop, None)  # first, as KeyboardInterrupt may be raised here
        self._until[loop] = _now() + int(self._machine.turn_budget * 1e9)
        return True

    def forget_closed(self) -> None:
        """Drop the wakers of closed event loops, and note that no turn is scheduled on such a loop."""
        for loop in [loop for loop in list(self._wakers) if loop.is_closed()]:
            self._wakers.pop(loop, None)
        armed = self._armed
        if armed is not None and armed.is_closed():
            self._armed = None
