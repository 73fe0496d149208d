"""Objects that wake a sleeping thread, a suspended coroutine, or an event loop that is to run a machine's turns.

Any thread may call their `wake`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Future

_modules: Final = sys.modules
# Contains `asyncio.events._get_running_loop`, once `running_loop` has found asyncio imported.
_get_running_loop: Final[list[Callable[[], Any]]] = []


def running_loop() -> AbstractEventLoop | None:
    """Return the asyncio loop that runs on this thread, or None, as in a program that never imported asyncio."""
    if not _get_running_loop:
        events = _modules.get("asyncio.events")
        if events is None:
            return None
        # While another thread is importing asyncio, the module may still lack the function.
        function = getattr(events, "_get_running_loop", None)
        if function is None:
            return None
        _get_running_loop.append(function)
    loop: AbstractEventLoop | None = _get_running_loop[0]()
    return loop


class ThreadWaker:
    """Wakes one sleeping thread."""

    __slots__ = ("_bell",)

    def __init__(self) -> None:
        # A queue and not a semaphore, which is Python code around a lock: Ctrl-C in the middle of it could leave the
        # lock taken, and the waking thread would wait for ever.
        self._bell: SimpleQueue[None] = SimpleQueue()

    def sleep(self, seconds: float | None = None) -> bool:
        """Sleep until `wake` is called, at most `seconds` if given; returns False if the time ran out.

        Each call of `wake` ends one sleep; if the thread does not sleep, a later one.
        """
        try:
            self._bell.get(timeout=None if seconds is None else max(0.0, seconds))
        except Empty:
            return False
        return True

    def wake(self) -> None:
        self._bell.put(None)


class LoopWaker:
    """Wakes an event loop, from any thread, by scheduling the callback ``turn(loop)`` on it."""

    __slots__ = ("loop", "turn")

    def __init__(self, loop: AbstractEventLoop, turn: Callable[[AbstractEventLoop], None]) -> None:
        self.loop = loop
        self.turn = turn

    def wake(self) -> None:
        call_soon(self.loop, self.turn, self.loop)


class FutureWaker:
    """Wakes the coroutine that awaits `future` on `loop`, from any thread."""

    __slots__ = ("future", "loop")

    def __init__(self, loop: AbstractEventLoop, future: Future[None]) -> None:
        self.loop = loop
        self.future = future

    def wake(self) -> None:
        if running_loop() is self.loop:
            self._set()
        else:
            call_soon(self.loop, self._set)

    def _set(self) -> None:
        if not self.future.done():
            self.future.set_result(None)


def call_soon(loop: AbstractEventLoop, callback: Callable[..., None], *arguments: object) -> bool:
    """Schedule `callback` on an event loop, from any thread; returns False if the loop is closed."""
    try:
        loop.call_soon_threadsafe(callback, *arguments)
    except RuntimeError:
        if loop.is_closed():
            return False
        raise
    return True
