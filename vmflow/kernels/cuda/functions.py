"""The functions that compute elementwise ops on arrays of a device: a ufunc of the array module, or one of our own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

from vmflow.kernels.numpy.ufuncs import NAMES

# function(xp, *operands) -> result, which may have another dtype than the op's.  The operands have the dtype in which
# the op computes; a number is a scalar of numpy.
ElementFunction: TypeAlias = "Callable[..., Any]"

_FUNCTIONS: Final[dict[str, ElementFunction]] = {}

# Where the array module's name is another than numpy's.
_UFUNCS: Final = {**NAMES, "clamp_min": "maximum", "clamp_max": "minimum", "bitwise_not": "invert"}


def computes(*ops: str) -> Callable[[ElementFunction], ElementFunction]:
    """Declare that ``function(xp, *operands)`` computes these ops; others are computed by a ufunc."""

    def declare(function: ElementFunction) -> ElementFunction:
        for op in ops:
            _FUNCTIONS[op] = function
        return function

    return declare


def function_of(op: str) -> ElementFunction | None:
    """The function of our own that computes an op; None if a ufunc does."""
    return _FUNCTIONS.get(op) or _FUNCTIONS.get(op.removesuffix("_scalar"))


def ufunc_of(xp: Any, op: str) -> Any:
    """The ufunc that computes an op."""
    base = op.removesuffix("_scalar")
    return getattr(xp, _UFUNCS.get(base, base))
