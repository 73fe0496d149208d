"""Whether autograd records: `no_grad`, `enable_grad`, `set_grad_enabled`.

The mode belongs to the task or thread that sets it.  As a decorator it follows the function: a coroutine or generator
carries it while it runs and gives the caller's mode back whenever it is suspended.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import ParamSpec, TypeVar

from vmflow.context import MODE
from vmflow.mode_carrying import carried

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
        return carried(function, _set, lambda: self.mode)


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
        return carried(function, _set, lambda: self.mode)


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
