"""Set a part of the mode while a function runs: also after its awaits and yields, and not in its caller or consumer."""

from __future__ import annotations

import functools
from collections.abc import AsyncGenerator, Callable, Generator
from typing import Any, ParamSpec, TypeAlias, TypeVar, cast

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

# A function that sets a part of the mode, such as its scope, and returns the former value.
Switch: TypeAlias = Callable[[Any], Any]

# A function that is called if an exception ends the wrapped call, with the value that was set and the exception.
LeftBy: TypeAlias = Callable[[Any, BaseException], None]


def _nothing(value: Any, error: BaseException) -> None:
    """The default of `left_by`: do nothing when an exception ends a call."""


def carried(
    function: Callable[Parameters, Result],
    switch: Switch,
    make_value: Callable[[], Any],
    left_by: LeftBy = _nothing,
) -> Callable[Parameters, Result]:
    """Wrap `function` (plain, coroutine, generator or async generator) to set a part of the mode while it runs.

    Args:
        switch: see `Switch`.
        make_value: called for the value to set, at each call of the function; a coroutine's or generator's call begins
            with its first step.
        left_by: called with that value and the exception, if an exception ends the call.
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
        async def wrapped(*args: Any, **kwargs: Any) -> Any:
            # No `_step` of the whole generator, as below: async generators have no ``yield from``.
            value = make_value()
            inner: AsyncGenerator[Any, Any] = cast(Any, function)(*args, **kwargs)
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
    """An awaitable that runs a coroutine with a part of the mode set, restored whenever the coroutine is suspended."""

    def __init__(self, coroutine: Any, switch: Switch, value: Any) -> None:
        self._coroutine = coroutine
        self._switch = switch
        self._value = value

    def __await__(self) -> Generator[Any, Any, Any]:
        return _step(self._coroutine.__await__(), self._switch, self._value)


def _step(inner: Generator[Any, Any, Any], switch: Switch, value: Any) -> Generator[Any, Any, Any]:
    """Run a generator with a part of the mode set to `value`, and restore the consumer's mode at each suspension."""
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
