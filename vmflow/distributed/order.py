"""`Order`: the order of exchanges of a communication scope, and the task that may start them.

All ranks must start the exchanges of a communication scope in the same order.  Event loops may switch between tasks in
another order on each rank; so only one task may exchange in a scope until it has ended.
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from contextvars import ContextVar
from typing import Any, Final, TypeAlias, final

from vmflow.streams.communication import KIND

from .process import current_process

# A task, or a thread for its code outside of tasks.
Runner: TypeAlias = "asyncio.Task[Any] | threading.Thread"


@final
class Order:
    """An order of exchanges, the same on all ranks.

    Args:
        path: the names of the enclosing communication scopes and of this one, with the number of each entry, such as
            "a#1/b#2"; empty for the outermost.
        timeout: seconds after which an exchange fails if not all ranks have started it; None for the default.

    Attributes:
        path, timeout: as given.
        entered: by name, how often a scope was entered within this one.
        inner: the names of the scopes that are open within this one.
    """

    __slots__ = ("_owner", "entered", "inner", "path", "timeout")

    def __init__(self, path: str = "", timeout: float | None = None) -> None:
        self.path = path
        self.timeout = timeout
        self.entered: dict[str, int] = {}
        self.inner: set[str] = set()
        self._owner: weakref.ref[Any] | None = None

    @property
    def stream(self) -> str:
        """The kind of the stream of this order's exchanges."""
        return f"{KIND}:{self.path}" if self.path else KIND

    def claim(self) -> None:
        """Make the running task or thread the one that exchanges in this order.

        Raises:
            RuntimeError: if another task, or another thread than this one, exchanges in it and has not ended.
        """
        runner = _runner()
        owner = None if self._owner is None else self._owner()
        if owner is runner:
            return
        # Code outside of tasks waits while a loop runs in its thread, so a task may take over the order of its thread.
        if owner is None or _has_ended(owner) or owner is threading.current_thread():
            self._owner = weakref.ref(runner)
            return
        raise RuntimeError(
            f"{_named(runner)} exchanges with other ranks in {self}, as {_named(owner)} does: other ranks might start "
            "these exchanges in another order; give it an order of its own, by "
            "'async with vmflow.comm_scope(name):' on all ranks"
        )

    def __str__(self) -> str:
        return f"the communication scope {self.path!r}" if self.path else "the outermost communication scope"


def check_timeout(name: str, timeout: object) -> None:
    """Raise TypeError if the timeout given to the function `name` is no int or float, ValueError if not positive."""
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)):
        raise TypeError(f"{name}: the timeout must be a number of seconds, not {timeout!r}")
    if not timeout > 0:
        raise ValueError(f"{name}: the timeout must be positive, got {timeout}")


def _runner() -> Runner:
    try:
        task = asyncio.current_task()
    except RuntimeError:  # no loop runs here
        task = None
    return threading.current_thread() if task is None else task


def _has_ended(runner: Runner) -> bool:
    return runner.done() if isinstance(runner, asyncio.Task) else not runner.is_alive()


def _named(runner: Runner) -> str:
    kind = "task" if isinstance(runner, asyncio.Task) else "thread"
    name = runner.get_name() if isinstance(runner, asyncio.Task) else runner.name
    return f"{kind} {name!r}"


# The `Order` of this task or thread; None stands for the outermost order of its rank.
ORDER: Final[ContextVar[Order | None]] = ContextVar("vmflow.comm_scope", default=None)


def current_order() -> Order:
    """The order of exchanges that this task or thread is in."""
    return ORDER.get() or outermost()


def outermost() -> Order:
    """The order that the program of this rank begins in."""
    process = current_process()
    if process.order is None:
        process.order = Order()
    order: Order = process.order
    return order
