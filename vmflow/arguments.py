"""Checks of arguments that are integers, real numbers or flags."""

from __future__ import annotations

import numbers
import operator
from typing import Any

import numpy as np


def is_integer(value: Any) -> bool:
    """Return whether `value` is an integer of Python or numpy, or a tensor of one integer or bool; a bool is none.

    Example:
        >>> from vmflow.arguments import is_integer
        >>> is_integer(3), is_integer(3.0), is_integer(True)
        (True, False, False)
    """
    if type(value) is int:
        return True
    if isinstance(value, bool):
        return False
    try:
        operator.index(value)
    except (TypeError, ValueError):
        return False
    return True


def whole_number(name: str, what: str, value: Any, least: int | None = None) -> int:
    """Convert `value`, an argument of a function, to an int; errors call it `what` of the function `name`.

    Raises:
        TypeError: if the value is no integer; see `is_integer`.
        ValueError: if it is below `least`, unless that is None.

    Example:
        >>> from vmflow.arguments import whole_number
        >>> whole_number("repeat", "a number", 3)
        3
    """
    if not is_integer(value):
        raise TypeError(f"{name}: {what} must be an integer, not {value!r}")
    number = operator.index(value)
    if least is not None and number < least:
        raise ValueError(f"{name}: {what} must be at least {least}, not {number}")
    return number


def real_number(name: str, what: str, value: Any) -> float:
    """Convert `value`, an argument of a function, to a float; errors call it `what` of the function `name`.

    Raises:
        TypeError: if the value is neither a real number nor a tensor of one element or a 0-d array.

    Example:
        >>> from vmflow.arguments import real_number
        >>> real_number("normal_", "std", 1)
        1.0
    """
    is_complex = isinstance(value, numbers.Complex) and not isinstance(value, numbers.Real)
    if not hasattr(value, "__float__") or is_complex:
        raise TypeError(f"{name}: {what} must be a real number, not {value!r}")
    try:
        return float(value)
    except (TypeError, ValueError) as error:  # of an array or a tensor
        raise TypeError(f"{name}: {what} must be a real number, not {value!r}") from error


def flag(name: str, what: str, value: Any) -> bool:
    """Convert `value`, an argument of a function, to a bool; errors call it `what` of the function `name`.

    Raises:
        TypeError: if the value is neither a bool nor a numpy bool.

    Example:
        >>> from vmflow.arguments import flag
        >>> flag("sum", "keepdim", True)
        True
    """
    if value is True or value is False:
        return value
    if isinstance(value, np.bool_):
        return bool(value)
    raise TypeError(f"{name}: {what} must be True or False, not {value!r}")
