"""`SimulatedEventLoop`: the event loop of a rank of a simulation; while it waits, other ranks run."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable
from typing import Any, TypeVar, TypeVarTuple, final

from .scheduler import Scheduler

Result = TypeVar("Result")
Arguments = TypeVarTuple("Arguments")


@final
class RankSelector(selectors.DefaultSelector):
    """Lets other ranks run where an event loop would look or wait for events."""

    def __init__(self, scheduler: Scheduler, rank: int) -> None:
        super().__init__()
        self._scheduler = scheduler
        self._rank = rank

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        events = super().select(0)
        if events or (timeout is not None and timeout <= 0):
            self._scheduler.pause(self._rank)
            return events or super().select(0)
        deadline = None if timeout is None else self._scheduler.now + timeout
        self._scheduler.block(self._has_events, "its event loop to have something to do", deadline)
        return super().select(0)

    def _has_events(self) -> bool:
        return bool(super().select(0))


@final
class SimulatedEventLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock and waiting are those of a simulation.

    Args:
        scheduler: has the clock.
        rank: runs the loop.
    """

    def __init__(self, scheduler: Scheduler, rank: int) -> None:
        super().__init__(RankSelector(scheduler, rank))
        self._scheduler = scheduler

    def time(self) -> float:
        return self._scheduler.now

    def run_in_executor(
        self, executor: Any, func: Callable[[*Arguments], Result], *args: *Arguments
    ) -> asyncio.Future[Result]:
        """Run a function in a thread, as asyncio does.

        The clock stands still until the function ends, the future is cancelled, or the function waits for ranks.
        """
        future = super().run_in_executor(executor, func, *args)
        self._scheduler.count_outside(1)
        future.add_done_callback(lambda _: self._scheduler.count_outside(-1))
        return future
