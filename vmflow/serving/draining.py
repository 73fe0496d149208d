"""Ending a server without failed requests: the session is drained before its server stops listening.

A server that is told to stop closes its socket, waits for its connections and only then tells the application.  So the
signal is caught first: the session reports that it is not ready, still takes requests for a delay in which a
load balancer can notice, finishes its requests, and only then the server gets its signal.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

from .session import InferenceSession

_log: Final = logging.getLogger(__name__)


def can_take_signals() -> bool:
    """Whether this is the main thread, and SIGTERM has a handler that `drain_on_signal` can replace.

    uvicorn sets one; hypercorn's is one of the event loop, which `drain_on_signal` cannot replace.
    """
    if threading.current_thread() is not threading.main_thread():
        return False
    handler = signal.getsignal(signal.SIGTERM)
    return callable(handler) and getattr(handler, "__module__", "") != "asyncio.unix_events"


@contextmanager
def drain_on_signal(
    session: InferenceSession,
    *,
    delay: float = 0.0,
    timeout: float | None = None,
    signals: tuple[int, ...] = (signal.SIGTERM, signal.SIGINT),
) -> Iterator[None]:
    """A block in which signals drain a session before they have their usual effect.

    Enter the block in a coroutine on the main thread after the server has started, as in the lifespan of its
    application.  A second signal has its usual effect immediately.

    Args:
        session: the session to drain.
        delay: see `InferenceSession.drain`.
        timeout: see `InferenceSession.drain`; requests that have not ended by then fail.
        signals: the signals' numbers.

    Raises:
        RuntimeError: on another thread, or outside of a coroutine.

    Example:
        >>> import asyncio, signal
        >>> session = flow.serving.InferenceSession(abs, inputs=flow.serving.TensorSpec((2,)))
        >>> async def main():
        ...     before = signal.getsignal(signal.SIGTERM)
        ...     with flow.serving.drain_on_signal(session):
        ...         print(signal.getsignal(signal.SIGTERM) is before)
        >>> asyncio.run(main())
        False
    """
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError("drain_on_signal: only the main thread has signals")
    loop = asyncio.get_running_loop()
    before: dict[int, Any] = {}
    tasks: list[asyncio.Task[None]] = []

    def pass_on(number: int) -> None:
        if number in before:
            signal.signal(number, before.pop(number))
        signal.raise_signal(number)

    async def drain(number: int) -> None:
        try:
            if not await session.drain(delay, timeout):
                _log.warning("session %r has not ended in %s s; its remaining requests fail", session.name, timeout)
                await session.close()
        except Exception:  # the server must end nevertheless
            _log.exception("session %r could not be drained", session.name)
        pass_on(number)

    def begin(number: int) -> None:
        if tasks:  # a second signal
            pass_on(number)
        else:
            _log.info("draining session %r", session.name)
            tasks.append(loop.create_task(drain(number)))

    def taken(number: int, frame: FrameType | None) -> None:
        loop.call_soon_threadsafe(begin, number)

    for number in signals:
        before[number] = signal.signal(number, taken)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for task in tasks:
            task.cancel()
