"""Whether autograd records: `no_grad`, `enable_grad`, `set_grad_enabled`.

The mode belongs to the task or thread that sets it.  As a decorator it follows the function: a coroutine or generator
carries it while it runs and gives the caller's mode back whenever it is suspended.
"""

from __future__ import annotations

import functools
from collections.abc import AsyncGenerator, Callable, Generator
from types import TracebackType
from typing import Any, ParamSpec, TypeVar, cast

from vmflow.context import MODE

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def is_grad_enabled() -> bool:
    """Whether ops issued here are recorded."""
    return MODE.get().grad


class set_grad_enabled:
    """Set whether ops are recorded: at once, as a context manager, or as a decorator.

    Args:
        mode: True to record.
    """

    def __init__(self, mode: bool) -> None:
        self.mode = mode
        self._before = [_set(mode)]

    def __enter__(self) -> None:
        if not self._before:
            self._before.append(_set(self.mode))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _set(self._before.pop())

    def __call__(self, function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
        # Used as a decorator, it was not meant to change the mode where the function is defined.
        if self._before:
            _set(self._before.pop())
        return _decorate(function, self.mode)


class _GradMode:
    """Base of the two that do nothing until entered."""

    mode: bool

    def __init__(self) -> None:
        self._before: list[bool] = []

    def __enter__(self) -> None:
        self._before.append(_set(self.mode))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _set(self._before.pop())

    def __call__(self, function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
        return _decorate(function, self.mode)


class no_grad(_GradMode):
    """Do not record: ``with no_grad():``, or ``@no_grad()`` on a function, coroutine function or generator.

    Inside a generator use the decorator form of it: a ``with`` block that stays open across a ``yield`` lasts for the
    consumer too.
    """

    mode = False


class inference_mode(no_grad):
    """As `no_grad`; the name that PyTorch code uses for inference."""


class enable_grad(_GradMode):
    """Record, also inside `no_grad`."""

    mode = True


def _set(grad: bool) -> bool:
    """Set and return what it was before.

    Never by a context variable's token: leaving may happen in another task than entering, where a token is not valid.
    """
    mode = MODE.get()
    if mode.grad != grad:
        MODE.set(mode.replace(grad=grad))
    return mode.grad


def _decorate(function: Callable[Parameters, Result], mode: bool) -> Callable[Parameters, Result]:
    import inspect  # numpy has imported it already

    wrapped: Any
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def wrapped(*args: Any, **kwargs: Any) -> Any:
            return await _Stepwise(cast(Any, function)(*args, **kwargs), mode)

    elif inspect.isasyncgenfunction(function):

        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            return _step_async(cast(Any, function)(*args, **kwargs), mode)

    elif inspect.isgeneratorfunction(function):

        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            return (yield from _step(cast(Any, function)(*args, **kwargs), mode))

    else:

        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            before = _set(mode)
            try:
                return function(*args, **kwargs)
            finally:
                _set(before)

    return cast("Callable[Parameters, Result]", wrapped)


class _Stepwise:
    """Awaits a coroutine in a mode."""

    def __init__(self, coroutine: Any, mode: bool) -> None:
        self._coroutine = coroutine
        self._mode = mode

    def __await__(self) -> Generator[Any, Any, Any]:
        return _step(self._coroutine.__await__(), self._mode)


def _step(inner: Generator[Any, Any, Any], mode: bool) -> Generator[Any, Any, Any]:
    """Run a generator with the mode set while it runs, and the consumer's whenever it is suspended."""
    advance: Callable[[], Any] = functools.partial(next, inner)
    try:
        while True:
            before = _set(mode)
            try:
                item = advance()
            except StopIteration as stop:
                return stop.value
            finally:
                _set(before)
            try:
                sent = yield item
            except GeneratorExit:
                raise
            except BaseException as error:
                advance = functools.partial(inner.throw, error)
            else:
                advance = functools.partial(next, inner) if sent is None else functools.partial(inner.send, sent)
    finally:
        before = _set(mode)
        try:
            inner.close()
        finally:
            _set(before)


async def _step_async(inner: AsyncGenerator[Any, Any], mode: bool) -> AsyncGenerator[Any, Any]:
    """The same for an async generator."""
    step: Any = inner.__anext__()
    try:
        while True:
            try:
                item = await _Stepwise(step, mode)
            except StopAsyncIteration:
                return
            try:
                sent = yield item
            except GeneratorExit:
                raise
            except BaseException as error:
                step = inner.athrow(error)
            else:
                step = inner.asend(sent)
    finally:
        await _Stepwise(inner.aclose(), mode)
