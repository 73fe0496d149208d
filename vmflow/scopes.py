"""`scope`: a deadline, a priority and a name for the ops issued within a block, which can be cancelled together."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from numbers import Real
from types import TracebackType
from typing import Any, Final, ParamSpec, TypeVar

from .arguments import is_integer
from .context import MODE
from .instructions.scope import CLOCK, Scope
from .mode_carrying import carried

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


# Exceptions that leave a block without cancelling its scope.
_ORDINARY: Final = (Exception, GeneratorExit)


class scope:
    """A context manager, or decorator, whose instructions share a deadline and a priority and can be cancelled.

        async with flow.scope(timeout=0.05, priority=1, name="request 7") as request:
            y = await model(x)

    Work that has not begun when the deadline passes, or when the scope is cancelled, is dropped: its results raise
    `DeadlineExceeded` or `Cancelled` when read, its memory is freed, and tasks that await its results are woken
    immediately.  Work that has begun runs to its end.

    An optimizer's step, but `LBFGS`'s, is one instruction for each device: it happens whole or, if it or one of its
    gradients was dropped, not at all, and parameters and state keep their values; so do the running statistics of
    batch norm.  Any other in-place op that is dropped leaves its target without a value, as if it had failed.

    A block that is left by `asyncio.CancelledError`, `KeyboardInterrupt` or another exception that is no `Exception`
    cancels its scope.  After another exit, also by `GeneratorExit`, since a consumer may still use what the generator
    has yielded, work issued in the block continues, and the deadline still holds for it.

    ``with`` and ``async with`` do the same.  Scopes belong to the task or thread that enters them and are inherited by
    the tasks that it starts.  Inside a generator use the decorator: a block open across a ``yield`` would include the
    consumer's ops.

    Args:
        deadline: in seconds on the clock of `time.monotonic`; within `flow.distributed.simulate`, on the clock of the
            simulation, which begins at 0.
        timeout: seconds from the moment the block is entered; the earlier of `deadline` and `timeout` holds.
        priority: ready work of a higher priority goes first on its stream; work of a lower one is not starved, but gets
            a smaller share.  By default the priority of the outer scope, 0 without an outer scope.
        name: shown in error messages, snapshots and traces.
        shield: whether work issued in the block continues when an outer scope is cancelled or has expired; the scope's
            own deadline still holds.

    Raises:
        TypeError: if `priority` is no integer, `deadline` or `timeout` no number, or `name` no string.
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
            if not isinstance(seconds, Real) or isinstance(seconds, bool):
                raise TypeError(f"scope: {about} must be a number of seconds, not {seconds!r}")
            if math.isnan(seconds):
                raise ValueError(f"scope: {about} must not be nan")
        if priority is not None:
            if not is_integer(priority):
                raise TypeError(f"scope: priority must be an integer, not {priority!r}")
            priority = operator.index(priority)
        if name is not None and not isinstance(name, str):
            raise TypeError(f"scope: name must be a string, not {name!r}")
        self._deadline = None if deadline is None else float(deadline)
        self._timeout = None if timeout is None else float(timeout)
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
        if kind is not None and not issubclass(kind, _ORDINARY):
            made.cancel()

    def _innermost(self) -> Scope:
        """Find the scope that this task or thread entered last by this object; if current, restore its outer scope.

        Several tasks may have entered this object; if none of the object's scopes is open here, the newest is found.
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
            until = CLOCK.get()() + self._timeout
            deadline = until if deadline is None else min(deadline, until)
        return Scope(MODE.get().scope, self._name, self._priority, deadline, self._shield)


def current_scope() -> Scope | None:
    """The scope to which ops called here belong; None if there is none.

    Example:
        >>> with flow.scope() as scope:
        ...     flow.current_scope() is scope
        True
    """
    return MODE.get().scope


def _abandon(scope: Scope, error: BaseException) -> None:
    """Cancel the scope of a decorated function that `error` has ended, unless `error` is one of `_ORDINARY`."""
    if not isinstance(error, _ORDINARY):
        scope.cancel()


def _switch(scope: Any) -> Any:
    """Set the scope in this context's `Mode`, and return the former scope.

    A context variable's token is not used: a block may be left in another task than it was entered in, where the token
    is not valid.
    """
    mode = MODE.get()
    if mode.scope is not scope:
        MODE.set(mode.replace(scope=scope))
    return mode.scope
