"""Threads of the sessions' own, since the loop's executor may be full of other work."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Awaitable, Callable
from typing import TypeVar

Result = TypeVar("Result")


async def in_thread(function: Callable[[], Result], name: str) -> Result:
    """Call a function on a new thread of this name, in a copy of the caller's context; return the function's result.

    Cancelling the call does not stop the function, but drops its result.
    """
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()
    results: list[Result] = []
    # Popped below: an error that its own frames refer to would keep their objects alive until garbage is collected.
    errors: list[BaseException] = []

    def end() -> None:
        if ended.done():
            errors.clear()
        else:
            ended.set_result(None)

    def work() -> None:
        try:
            results.append(function())
        except BaseException as raised:
            errors.append(raised)
        if not loop.is_closed():
            loop.call_soon_threadsafe(end)

    thread = threading.Thread(target=contextvars.copy_context().run, args=(work,), name=name, daemon=True)
    thread.start()
    await ended
    thread.join()  # takes little time; callers rely on the thread having ended
    if errors:
        raise errors.pop()
    return results[0]


class LoopThread:
    """An event loop on a thread of its own, for plain code.

    Args:
        name: how the thread's name begins.
    """

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=f"{name}: loop", daemon=True)
        self._thread.start()

    def call(self, function: Callable[[], Awaitable[Result]]) -> Result:
        """Run a coroutine function on the loop; blocks until it has returned, and returns its result."""

        async def called() -> Result:
            return await function()

        return asyncio.run_coroutine_threadsafe(called(), self._loop).result()

    def stop(self) -> None:
        """End the loop and its thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()
