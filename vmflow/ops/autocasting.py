"""A decorator for functions of several ops that autocast treats as one op, casting only the functions' arguments."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final, TypeVar, cast

from vmflow.context import MODE

# `autocast_as_op` is annotated as Function -> Function, so that mypy gives a decorated function the type of its `def`.
Function = TypeVar("Function", bound=Callable[..., Any])

# The names of all functions decorated with `autocast_as_op`; `vmflow.amp.policy` assigns each a class of dtypes.
FUNCTIONS: Final[set[str]] = set()


def autocast_as_op(function: Function) -> Function:
    """Let autocast treat a function as one op, with the class of dtypes that `vmflow.amp.policy` has for its name.

    Under autocast its arguments that are tensors of float32, float16 or bfloat16 are cast first, and its body runs
    without autocast; with ``out`` neither happens.  So a function that compares dtypes sees the dtypes in which its ops
    compute, and one of the float32 class computes in float32 throughout.  Tensors in lists are not cast.

    Do not decorate functions that change an argument in place: they would change the cast copy.
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
    """Return whether autocast is on: then `embedding_bag` promotes operands of different dtypes, and accepts them."""
    return MODE.get().autocast is not None
