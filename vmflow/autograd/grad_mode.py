"""Whether autograd records: `no_grad`, `enable_grad`, `inference_mode`, `set_grad_enabled`.

The mode belongs to the task or thread that sets it.  A decorator's mode follows the function: a coroutine or generator
has it while it runs, and the caller has its own mode while the function is suspended.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextvars import ContextVar
from types import TracebackType
from typing import Any, Final, ParamSpec, TypeAlias, TypeVar, overload

from vmflow.context import MODE
from vmflow.mode_carrying import carried

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

# Whether ops are recorded, and whether `inference_mode` is on.
State: TypeAlias = "tuple[bool, bool]"

# Whether `inference_mode` is on; not a field of `Mode`, which every op reads, since no op asks for this.
_INFERENCE: Final = ContextVar("vmflow.inference_mode", default=False)


def is_grad_enabled() -> bool:
    """Whether ops issued here are recorded.

    Example:
        >>> flow.is_grad_enabled()
        True
    """
    return MODE.get().grad


def is_inference_mode_enabled() -> bool:
    """Whether `inference_mode` is on here.

    Example:
        >>> with flow.inference_mode():
        ...     flow.is_inference_mode_enabled()
        True
    """
    return _INFERENCE.get()


class set_grad_enabled:
    """Set whether ops are recorded: from the call on, in a ``with`` block, or in a decorated function.

    Args:
        mode: True to record.

    Raises:
        TypeError: if `mode` is not True or False, or it decorates something that cannot be called.

    Example:
        >>> with flow.set_grad_enabled(False):
        ...     flow.is_grad_enabled()
        False
    """

    def __init__(self, mode: bool) -> None:
        if mode is not True and mode is not False:
            raise TypeError(f"set_grad_enabled: the mode must be True or False, not {mode!r}")
        self.mode = mode
        # The mode before the call; None once a block, which restores it at its end, or a decorator has taken it.
        self._before_call: bool | None = _set(mode)
        self._before: list[bool] = []

    def __enter__(self) -> None:
        before = _set(self.mode)
        self._before.append(before if self._before_call is None else self._before_call)
        self._before_call = None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _set(self._before.pop())

    def __call__(self, function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
        # `__init__` has set the mode, which a decorator must not change where the function is defined: undo it.
        if self._before_call is not None:
            _set(self._before_call)
            self._before_call = None
        return _decorated(function, _set, self.mode)

    def __repr__(self) -> str:
        return f"set_grad_enabled(mode={self.mode})"


class _GradMode:
    """Base of `no_grad` and `enable_grad`, which set the mode in a block or a decorated function only."""

    mode: bool

    @overload
    def __new__(cls, function: None = None) -> _GradMode: ...

    @overload
    def __new__(cls, function: Callable[Parameters, Result]) -> Callable[Parameters, Result]: ...  # type: ignore[misc]

    def __new__(cls, function: Any = None) -> Any:
        # Without parentheses, the class itself is the decorator.
        return super().__new__(cls) if function is None else cls()(function)

    def __init__(self, function: None = None) -> None:
        self._before: list[bool] = []

    def __enter__(self) -> None:
        self._before.append(_set(self.mode))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _set(self._before.pop())

    def __call__(self, function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
        return _decorated(function, _set, self.mode)


class no_grad(_GradMode):
    """Do not record: ``with no_grad():``, or ``@no_grad()`` or ``@no_grad`` on a function, coroutine or generator.

    Decorate a generator instead of writing ``with`` in it: a block that stays open across a ``yield`` lasts for the
    consumer too.  A decorated class gets a warning.

    Raises:
        TypeError: if it decorates something that cannot be called.

    Example:
        >>> x = flow.ones(2, requires_grad=True)
        >>> with flow.no_grad():
        ...     (x * 2).requires_grad
        False
    """

    mode = False


class enable_grad(_GradMode):
    """Record, also inside `no_grad`; used as `no_grad` is.

    Raises:
        TypeError: if it decorates something that cannot be called.

    Example:
        >>> with flow.no_grad(), flow.enable_grad():
        ...     flow.is_grad_enabled()
        True
    """

    mode = True


class inference_mode:
    """As `no_grad`; the name that PyTorch code uses for inference.

    Tensors made within are ordinary ones, which may be used under autograd later.

    Args:
        mode: False to leave inference mode, and record, even in `no_grad`.  ``@inference_mode`` needs no parentheses.

    Raises:
        TypeError: if it decorates something that cannot be called.

    Example:
        >>> with flow.inference_mode():
        ...     flow.is_grad_enabled()
        False
    """

    def __new__(cls, mode: Any = True) -> Any:
        return super().__new__(cls) if isinstance(mode, bool) or not callable(mode) else cls()(mode)

    def __init__(self, mode: bool = True) -> None:
        self.mode = mode
        self._before: list[State] = []

    def __enter__(self) -> None:
        self._before.append(_set_both((not self.mode, self.mode)))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _set_both(self._before.pop())

    def __call__(self, function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
        return _decorated(function, _set_both, (not self.mode, self.mode))


class set_multithreading_enabled:
    """PyTorch's switch for backward passes on several threads: a call, a context manager or a decorator.

    It changes nothing and raises no errors.

    Args:
        mode: ignored.

    Example:
        >>> with flow.autograd.set_multithreading_enabled(False):
        ...     pass
    """

    def __init__(self, mode: bool) -> None:
        self.mode = mode

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def __call__(self, function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
        return function


def _decorated(
    function: Callable[Parameters, Result], switch: Callable[[Any], Any], value: Any
) -> Callable[Parameters, Result]:
    if not callable(function):
        raise TypeError(f"a mode of autograd decorates functions, not {type(function).__name__}: {function!r:.100}")
    if isinstance(function, type):
        warnings.warn(
            f"a mode of autograd around the class {function.__name__} holds while its objects are made, and makes the "
            "name one of a function; decorate __init__ instead",
            FutureWarning,
            stacklevel=3,
        )
    return carried(function, switch, lambda: value)


def _set(grad: bool) -> bool:
    """Set whether ops are recorded; returns the setting before.

    A context variable's token would not be valid in another task, in which a block may be left.
    """
    mode = MODE.get()
    if mode.grad != grad:
        MODE.set(mode.replace(grad=grad))
    return mode.grad


def _set_both(state: State) -> State:
    """Set whether ops are recorded and whether `inference_mode` is on; return both settings from before."""
    grad, inference = state
    before = _INFERENCE.get()
    if before != inference:
        _INFERENCE.set(inference)
    return _set(grad), before
