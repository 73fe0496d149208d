"""`JobQueue` starts the launches of graphs for a machine's `LaunchLazyJob` instructions; it survives a fork."""

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
    """Starts launches in order.

    Up to `at_once` launches of one runtime overlap; launches of other runtimes wait until these have ended.
    """

    def __init__(self) -> None:
        self._turn = TurnLock()
        self._again = False
        self._waiting: deque[tuple[GraphRuntime, Launch]] = deque()
        # One entry for each launch that has ended and has not been subtracted from `_count`.
        self._left: deque[None] = deque()
        self._running: GraphRuntime | None = None
        # The number of started launches, less those subtracted after their end.
        self._count = 0

    def enter(self, runtime: GraphRuntime, launch: Launch) -> None:
        """Start this launch, or end it if it has failed, once its arguments and the launches before it allow."""
        self._waiting.append((runtime, launch))
        self.advance()

    def leave(self) -> None:
        """Note that a started launch has ended, and `advance`."""
        self._left.append(None)
        self.advance()

    def has_one(self) -> bool:
        """Whether all launches that the queue started, but the one being started, have ended."""
        return self._count == 1

    def advance(self) -> None:
        """Start launches that can start, and finish failed ones, in order; one thread at a time does so."""
        self._again = True
        escaping: BaseException | None = None
        # If another thread holds the turn now, it reads `_again` after it has released the turn.
        while self._again and self._turn.acquire(blocking=False):
            try:
                self._again = False
                self._advance()
            except BaseException as error:
                # One launch could not be started; the others still have to be.
                escaping = escaping or error
                self._again = True
            finally:
                self._turn.release()
        if escaping is not None:
            raise escaping

    def renew(self) -> None:
        """Free the queue's lock in a forked child, and `advance` if need be; see `TurnLock.renew`."""
        self._turn.renew()
        if self._again:
            self.advance()

    def _advance(self) -> None:
        while True:
            while self._left:
                self._left.popleft()
                self._count -= 1
            if self._count == 0:
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
            if self._count and (self._running is not runtime or self._count >= runtime.at_once):
                return
            self._running = runtime
            self._count += 1
            self._waiting.popleft()
            launch.start()
            runtime.start(launch)


_queues: weakref.WeakKeyDictionary[Any, JobQueue] = weakref.WeakKeyDictionary()
_queues_lock = lock_held_while_forking()


def queue_of(machine: VirtualMachine) -> JobQueue:
    """The queue of a machine."""
    with _queues_lock:
        queue = _queues.get(machine)
        if queue is None:
            queue = _queues[machine] = JobQueue()
        return queue


def _after_fork_in_child() -> None:
    for machine, queue in list(_queues.items()):
        for runtime in list(machine.graphs.values()):
            runtime.renew()
        queue.renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
