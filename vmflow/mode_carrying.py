"""Let a function carry a part of the mode with it: through awaits and yields, and not into its caller."""

from __future__ import annotations

import functools
from collections.abc import AsyncGenerator, Callable, Generator
from typing import Any, ParamSpec, TypeAlias, TypeVar, cast

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

# Sets a part of the mode and returns its former value.
Switch: TypeAlias = Callable[[Any], Any]

# Called with the value that was set, and the exception that ended the call.
LeftBy: TypeAlias = Callable[[Any, BaseException], None]


def _nothing(value: Any, error: BaseException) -> None:
    """It does not matter how a call ends."""


def carried(
    function: Callable[Parameters, Result],
    switch: Switch,
    make_value: Callable[[], Any],
    left_by: LeftBy = _nothing,
) -> Callable[Parameters, Result]:
    """`function` (plain, coroutine, generator or async generator) with a part of the mode set while it runs.

    Args:
        switch: see `Switch`.
        make_value: makes the value to set, at each call.
        left_by: called with the exception, if a call ends by one.
    """
    import inspect  # numpy has imported it already

    wrapped: Any
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def wrapped(*args: Any, **kwargs: Any) -> Any:
            value = make_value()
            try:
                return await _Stepwise(cast(Any, function)(*args, **kwargs), switch, value)
            except BaseException as error:
                left_by(value, error)
                raise

    elif inspect.isasyncgenfunction(function):

        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            value = make_value()
            return _step_async(cast(Any, function)(*args, **kwargs), switch, value, left_by)

    elif inspect.isgeneratorfunction(function):

        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            value = make_value()
            try:
                return (yield from _step(cast(Any, function)(*args, **kwargs), switch, value))
            except BaseException as error:
                left_by(value, error)
                raise

    else:

        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            value = make_value()
            before = switch(value)
            try:
                return function(*args, **kwargs)
            except BaseException as error:
                left_by(value, error)
                raise
            finally:
                switch(before)

    return cast("Callable[Parameters, Result]", wrapped)


class _Stepwise:
    """Awaits a coroutine in a mode."""

    def __init__(self, coroutine: Any, switch: Switch, value: Any) -> None:
        self._coroutine = coroutine
        self._switch = switch
        self._value = value

    def __await__(self) -> Generator[Any, Any, Any]:
        return _step(self._coroutine.__await__(), self._switch, self._value)


def _step(inner: Generator[Any, Any, Any], switch: Switch, value: Any) -> Generator[Any, Any, Any]:
    """Run a generator with the mode set while it runs, and the consumer's whenever it is suspended."""
    advance: Callable[[], Any] = functools.partial(next, inner)
    try:
        while True:
            before = switch(value)
            try:
                item = advance()
            except StopIteration as stop:
                return stop.value
            finally:
                switch(before)
            try:
                sent = yield item
            except GeneratorExit:
                raise
            except BaseException as error:
                advance = functools.partial(inner.throw, error)
            else:
                advance = functools.partial(next, inner) if sent is None else functools.partial(inner.send, sent)
    finally:
        before = switch(value)
        try:
            inner.close()
        finally:
            switch(before)


async def _step_async(
    inner: AsyncGenerator[Any, Any], switch: Switch, value: Any, left_by: LeftBy
) -> AsyncGenerator[Any, Any]:
    """The same for an async generator."""
    step: Any = inner.__anext__()
    try:
        while True:
            try:
                item = await _Stepwise(step, switch, value)
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
    except BaseException as error:
        left_by(value, error)
        raise
    finally:
        await _Stepwise(inner.aclose(), switch, value)
