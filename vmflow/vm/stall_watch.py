"""`StallWatch`: logs the state of a machine when somebody waits and no instruction has ended for a long time."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

    from .virtual_machine import VirtualMachine
    from .wakers import ThreadWaker

# The default seconds without an ended instruction that count as a stall.
STALL_SECONDS: Final = 60.0


class StallWatch:
    """Watches one virtual machine for a stall while threads or coroutines wait for its instructions.

    A stall is logged once, on the logger ``vmflow``, and does not raise: a kernel may just take long.
    """

    def __init__(self, machine: VirtualMachine) -> None:
        self._machine = machine
        self._erased = -1
        self._since = 0.0
        self._reported = False
        self._armed: AbstractEventLoop | None = None

    def sleep(self, waker: ThreadWaker, patience: float | None) -> None:
        """Let this thread sleep until `waker` is woken, at most `stall_after` and, unless None, `patience` seconds.

        Checks for a stall before the sleep, and again if the time runs out.
        """
        seconds = self._machine.stall_after if patience is None else min(self._machine.stall_after, patience)
        self.look()
        if not waker.sleep(None if seconds == math.inf else seconds):
            self.look()

    def arm(self, loop: AbstractEventLoop) -> None:
        """While anybody waits, check for a stall every `stall_after` seconds, by a timer on one loop at a time.

        Does nothing if `stall_after` is infinite.
        """
        if self._machine.stall_after == math.inf:
            return
        if self._armed is None or self._armed.is_closed():
            self._armed = loop
            self.look()
            loop.call_later(self._machine.stall_after, self._look_on_loop, loop)

    def look(self) -> None:
        """Log a stall, once, if this method has seen no instruction end for `stall_after` seconds."""
        machine = self._machine
        now = time.monotonic()
        if machine.engine.idle():
            self._erased = -1  # the time begins anew with the next instruction
        elif machine.engine.total_erased != self._erased:
            self._erased = machine.engine.total_erased
            self._since = now
            self._reported = False
        elif now - self._since >= machine.stall_after and not self._reported:
            self._reported = True
            import logging  # imported here, because few programs stall and the import takes milliseconds

            logging.getLogger("vmflow").warning(
                "nothing has ended for %.0f seconds, although somebody waits; the state of the machine:\n%r",
                now - self._since,
                machine.snapshot(),
            )

    def _look_on_loop(self, loop: AbstractEventLoop) -> None:
        self._armed = None
        if self._machine.has_waiters():
            self.look()
            self._armed = loop
            loop.call_later(self._machine.stall_after, self._look_on_loop, loop)
