"""The functions that compute elementwise ops, and the operands that stand for Python numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

import numpy as np

from vmflow.instructions.blob import Array
from vmflow.kernels.choosing import Function

# number(Python number, dtype in which the op computes) -> the operand of the function.
Number: TypeAlias = "Callable[[Any, np.dtype[Any]], Any]"


# Numbers as operands


_constants: dict[tuple[Any, Any], Array] = {}


def constant(value: Any, numpy_dtype: np.dtype[Any]) -> Array:
    """Return `value` as a 0-d array, which a ufunc takes faster.  Integers of up to 64 bits wrap around."""
    if not value or type(value) is complex:
        return np.array(value).astype(numpy_dtype)  # 0.0 and -0.0 are equal, and must not be confused
    key = (value, numpy_dtype)
    found = _constants.get(key)
    if found is None:
        if len(_constants) >= 4096:
            _constants.clear()
        found = _constants[key] = np.array(value).astype(numpy_dtype)
    return found


def saturated(value: Any, numpy_dtype: np.dtype[Any]) -> Array:
    """Like `constant`, but an integer that does not fit becomes the nearest that does, for limits."""
    if numpy_dtype.kind in "iu":
        limits = np.iinfo(numpy_dtype)
        value = min(max(value, limits.min), limits.max)
    return constant(value, numpy_dtype)


def comparable(value: Any, numpy_dtype: np.dtype[Any]) -> Any:
    """Like `constant`, but an integer that does not fit is left to numpy, whose comparisons handle it."""
    if numpy_dtype.kind in "iu" and not np.iinfo(numpy_dtype).min <= value <= np.iinfo(numpy_dtype).max:
        return value
    return constant(value, numpy_dtype)


# The functions of ops

# `_FUNCTIONS` has ops also with "_scalar" appended, where a number needs another function than a tensor.
_FUNCTIONS: Final[dict[str, Function]] = {}
_NUMBERS: Final[dict[str, Number]] = {}

# By op, the name of numpy's function where it differs from the op's.
NAMES: Final = {
    "sub": "subtract",
    "mul": "multiply",
    "div": "true_divide",
    "atan2": "arctan2",
    "abs": "absolute",
    "conj": "conjugate",
    "eq": "equal",
    "ne": "not_equal",
    "lt": "less",
    "le": "less_equal",
    "gt": "greater",
    "ge": "greater_equal",
    "bitwise_left_shift": "left_shift",
    "bitwise_right_shift": "right_shift",
    "asin": "arcsin",
    "acos": "arccos",
    "atan": "arctan",
    "asinh": "arcsinh",
    "acosh": "arccosh",
    "atanh": "arctanh",
}


def computes(*ops: str) -> Callable[[Function], Function]:
    """Declare that the decorated ``function(*operands, out)`` computes these ops; for others, see `function_of`."""

    def declare(function: Function) -> Function:
        for op in ops:
            _FUNCTIONS[op] = function
        return function

    return declare


def takes_numbers(number: Number, *ops: str) -> None:
    """Declare how these ops turn a Python number into an operand; others do so by `constant`."""
    for op in ops:
        _NUMBERS[op] = number


def function_of(op: str) -> Function:
    """Return the ``function(*operands, out)`` that computes this op: a declared one, else numpy's."""
    base = op.removesuffix("_scalar")
    found = _FUNCTIONS.get(op) or _FUNCTIONS.get(base)
    return getattr(np, NAMES.get(base, base)) if found is None else found


def number_of(op: str) -> Number:
    """Return the function that turns a Python number into an operand of this op."""
    return _NUMBERS.get(op.removesuffix("_scalar"), constant)
