"""The rules of ops on CUDA devices: those of C, and functions of CUDA's math library for what has none there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from vmflow.kernels.expressions.rules import FLOATS, RULES as IN_C, Rule

# The ops that are functions of the library: of float64, and, with an f behind the name, of float32.  The tests allow 6
# units in the last place for erfc, and 3 for the others.
LIBRARY: Final = (
    *("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "erf", "erfc", "hypot", "atan2"),
    *("sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh"),
)


def _by_library(function: str) -> Callable[..., str]:
    def write(dtype: str, *operands: str) -> str:
        return f"{function}{'f' if dtype == 'float32' else ''}({', '.join(operands)})"

    return write


def _in_c_or(name: str, otherwise: Callable[..., str]) -> Rule:
    """The rule of C for its dtypes, and another for the other floating-point ones."""
    common = IN_C.get(name)
    if common is None:
        return Rule(FLOATS, otherwise, exact=False)

    def write(dtype: str, *operands: str) -> str:
        return (common.write if dtype in common.dtypes else otherwise)(dtype, *operands)

    return Rule(FLOATS | common.dtypes, write, common.exact)


RULES: Final[dict[str, Rule]] = {
    **IN_C,
    **{name: _in_c_or(name, _by_library(name)) for name in LIBRARY},
    "sigmoid": _in_c_or("sigmoid", lambda dtype, x: f"1 / (exp(-{x}) + 1)"),
    "silu": _in_c_or("silu", lambda dtype, x: f"{x} / (exp(-{x}) + 1)"),
}
