"""Functions of several ops that autocast treats as one op: their operands are cast before their bodies run."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final, TypeVar, cast

from vmflow.context import MODE

# A decorator of this type keeps the function's type, which mypy knows before any inference.  It has to, because
# functions and the methods of tensors import each other.
Function = TypeVar("Function", bound=Callable[..., Any])

# The names of these functions; `vmflow.amp.policy` has a class for each.
FUNCTIONS: Final[set[str]] = set()


def autocast_as_op(function: Function) -> Function:
    """Let autocast treat a function as one op, by the class that `vmflow.amp.policy` has for the function's name.

    Under autocast the tensors among its arguments are cast first, and its body runs without autocast.  So a function
    that compares dtypes, or chooses by them, sees the operands of its ops; and a function that needs float32 is
    computed in float32 throughout, also where it multiplies matrices.  Tensors within lists are not cast.

    Do not use this for functions that change an argument in place: they would change a copy.
    """
    name = function.__name__
    FUNCTIONS.add(name)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        casts = MODE.get().autocast
        if casts is None:
            return function(*args, **kwargs)
        return casts.call(name, function, args, kwargs)

    return cast("Function", call)


def promotes_here() -> bool:
    """Whether operands of a function may differ in dtype here, because autocast gives layers different ones."""
    return MODE.get().autocast is not None
