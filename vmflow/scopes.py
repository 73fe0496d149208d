"""`scope`: a deadline, a priority and a name for the work issued within a block, which can be cancelled."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, ParamSpec, TypeVar

from .context import MODE
from .instructions.scope import Scope
from .mode_carrying import carried

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


class scope:
    """A block, or a decorated function, whose instructions share a deadline and a priority and can be cancelled.

        async with flow.scope(timeout=0.05, priority=1, name="request 7") as request:
            y = await model(x)

    Work that has not begun when the deadline passes, or when the scope is cancelled, is dropped: its results raise
    `DeadlineExceeded` or `Cancelled` when read, its memory is freed, and tasks that await its results are woken
    immediately.  Work that has begun runs to its end.

    An optimizer's step is one instruction: it happens whole or, if it was dropped or one of its gradients was, not at
    all, and parameters and state keep their values; the same goes for the running statistics of batch norm.  Any other
    op in place that is dropped leaves its target without a value, as if computing it had failed.

    A block that is left by `asyncio.CancelledError`, `KeyboardInterrupt` or another exception that is no `Exception`
    cancels its scope; left otherwise, work issued in it goes on, and the deadline holds for it.

    ``with`` and ``async with`` do the same.  Scopes belong to the task or thread that enters them and are inherited by
    the tasks it starts.  Inside a generator use the decorator: a block open across a ``yield`` lasts for the consumer
    too.

    Args:
        deadline: on the clock of `time.monotonic`, in seconds.
        timeout: seconds from the moment the block is entered; the earlier of the two holds.
        priority: ready work of a higher priority goes first on its stream; work of a lower one is not starved, but gets
            a smaller share.  By default that of the outer scope, 0 without one.
        name: for error messages, snapshots and traces.
        shield: whether work issued within goes on when an outer scope is cancelled; its own deadline holds.

    Raises:
        TypeError: if `priority` is no integer, or `deadline` or `timeout` no number.
        ValueError: if `deadline` or `timeout` is nan.

    Example:
        >>> with flow.scope(timeout=60, name="request 7") as request:
        ...     flow.ones(2) + 1
        tensor([2., 2.])
    """

    def __init__(
        self,
        *,
        deadline: float | None = None,
        timeout: float | None = None,
        priority: int | None = None,
        name: str | None = None,
        shield: bool = False,
    ) -> None:
        for about, seconds in (("deadline", deadline), ("timeout", timeout)):
            if seconds is None:
                continue
            if not isinstance(seconds, (int, float)) or isinstance(seconds, bool):
                raise TypeError(f"scope: {about} must be a number of seconds, not {seconds!r}")
            if math.isnan(seconds):
                raise ValueError(f"scope: {about} must not be nan")
        if priority is not None and (not isinstance(priority, int) or isinstance(priority, bool)):
            raise TypeError(f"scope: priority must be an integer, not {priority!r}")
        if name is not None and not isinstance(name, str):
            raise TypeError(f"scope: name must be a string, not {name!r}")
        self._deadline = deadline
        self._timeout = timeout
        self._priority = priority
        self._name = name
        self._shield = shield
        self._entered: list[Scope] = []

    def __enter__(self) -> Scope:
        made = self._make()
        self._entered.append(made)
        _switch(made)
        return made

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        made = self._innermost()
        self._entered.remove(made)
        if kind is not None and not issubclass(kind, Exception):
            made.cancel()

    def _innermost(self) -> Scope:
        """The innermost open scope that was entered here; if it is the current one, the outer scope is restored.

        Several tasks may have entered this object.  One that was entered elsewhere has changed nothing here.
        """
        current = scope = MODE.get().scope
        while scope is not None:
            if scope in self._entered:
                if scope is current:
                    _switch(scope.outer)
                return scope
            scope = scope.outer
        if not self._entered:
            raise RuntimeError("scope: left without having been entered")
        return self._entered[-1]

    async def __aenter__(self) -> Scope:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, trace)

    def __call__(self, function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
        return carried(function, _switch, self._make, _abandon)

    def _make(self) -> Scope:
        deadline = self._deadline
        if self._timeout is not None:
            until = time.monotonic() + self._timeout
            deadline = until if deadline is None else min(deadline, until)
        return Scope(MODE.get().scope, self._name, self._priority, deadline, self._shield)


def current_scope() -> Scope | None:
    """The innermost scope of this task or thread.

    Example:
        >>> with flow.scope() as scope:
        ...     flow.current_scope() is scope
        True
    """
    return MODE.get().scope


def _abandon(scope: Scope, error: BaseException) -> None:
    """The decorated function was left by `error`."""
    if not isinstance(error, Exception):
        scope.cancel()


def _switch(scope: Any) -> Any:
    """Set the scope of the mode; returns the former one.

    Never by a context variable's token: leaving may happen in another task than entering, where a token is not valid.
    """
    mode = MODE.get()
    if mode.scope is not scope:
        MODE.set(mode.replace(scope=scope))
    return mode.scope
