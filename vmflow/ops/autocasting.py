"""Functions of several ops that autocast takes for one op: it casts their operands before they look at them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final, TypeVar, cast

from vmflow.context import MODE

# A decorator from this to this keeps the function's type, and mypy knows so before it has inferred anything.  It must,
# because functions and the methods of tensors import each other.
Function = TypeVar("Function", bound=Callable[..., Any])

# The names of these functions; `vmflow.amp.policy` has a class for each.
FUNCTIONS: Final[set[str]] = set()


def autocast_as_op(function: Function) -> Function:
    """Let autocast treat a function as one op, by the class that `vmflow.amp.policy` has for the function's name.

    Under autocast the tensors among its arguments are cast first, and its body runs without autocast.  So a function
    that compares dtypes, or chooses by them, sees what its ops will get; and a function that needs float32 is computed
    in float32 from beginning to end, also where it multiplies matrices.  Tensors within lists are not cast.

    Declare a function that changes one of its arguments in place otherwise: it would change a copy.
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
