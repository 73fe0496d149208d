"""`JobQueue`: which graph runs on a machine, in which order launches start, and what of that a forked child can use."""

from __future__ import annotations

import os
import weakref
from collections import deque
from typing import TYPE_CHECKING, Any, final

from vmflow.forking import lock_held_while_forking
from vmflow.vm.turn_lock import TurnLock

from .launch import Launch

if TYPE_CHECKING:
    from vmflow.vm.virtual_machine import VirtualMachine

    from .runtime import GraphRuntime


@final
class JobQueue:
    """Which graph runs on a machine.  Launches of one graph overlap; those of another wait until it has ended."""

    def __init__(self) -> None:
        self._turn = TurnLock()
        self._again = False
        self._waiting: deque[tuple[GraphRuntime, Launch]] = deque()
        # One entry for each that has ended and has not been counted.
        self._left: deque[None] = deque()
        self._running: GraphRuntime | None = None
        self._in_flight = 0

    def enter(self, runtime: GraphRuntime, launch: Launch) -> None:
        """Start this launch as soon as those before it allow."""
        self._waiting.append((runtime, launch))
        self.advance()

    def leave(self) -> None:
        """A launch that was started has ended."""
        self._left.append(None)
        self.advance()

    def has_one(self) -> bool:
        """Whether what is being started is all there is; asked by what is."""
        return self._in_flight == 1

    def advance(self) -> None:
        """Start what can start, in order: hence one at a time, and with nobody starting anything in between."""
        self._again = True
        escaping: BaseException | None = None
        # Whose turn it is sees the flag, or has given it back before it was set.
        while self._again and self._turn.acquire(blocking=False):
            try:
                self._again = False
                self._advance()
            except BaseException as error:
                # One launch could not be started; that is no reason to forget those behind it.
                escaping = escaping or error
                self._again = True
            finally:
                self._turn.release()
        if escaping is not None:
            raise escaping

    def renew(self) -> None:
        """In a forked child: see `TurnLock.renew`."""
        self._turn.renew()
        if self._again:
            self.advance()

    def _advance(self) -> None:
        while True:
            while self._left:
                self._left.popleft()
                self._in_flight -= 1
            if self._in_flight == 0:
                self._running = None
            if not self._waiting:
                return
            runtime, launch = self._waiting[0]
            if launch.failure is not None or launch.over:
                self._waiting.popleft()
                launch.finish()
                continue
            if not launch.opened:
                return
            if self._in_flight and (self._running is not runtime or self._in_flight >= runtime.at_once):
                return
            self._running = runtime
            self._in_flight += 1
            self._waiting.popleft()
            launch.start()
            runtime.start(launch)


_queues: weakref.WeakKeyDictionary[Any, JobQueue] = weakref.WeakKeyDictionary()
_queues_lock = lock_held_while_forking()


def queue_of(machine: VirtualMachine) -> JobQueue:
    """The machine's."""
    with _queues_lock:
        found = _queues.get(machine)
        if found is None:
            found = _queues[machine] = JobQueue()
        return found


# Forking: only the thread that forks is in the child.  The machines have finished before what they could.


def _after_fork_in_child() -> None:
    for machine, queue in list(_queues.items()):
        for runtime in list(machine.graphs.values()):
            runtime.renew()
        queue.renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
