"""The rules that write elementwise ops in CUDA C++: the C kernels' rules, and calls of CUDA's math library and our
functions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from vmflow.kernels.expressions.rules import C_TYPES, FLOATS, INTEGERS, RULES as IN_C, Rule

from .complex_functions import COMPLEX_RULES

# Ops that are functions of CUDA's math library: for float64, and, with an f appended, for float32 unless the C kernels
# have a rule.  The tests allow 6 units in the last place for erfc and 3 for the others, and in float64 one unit more.
LIBRARY: Final = (
    *("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "erf", "erfc", "hypot", "atan2"),
    *("sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh"),
)

_BOOL: Final = frozenset({"bool"})
_DOUBLE: Final = frozenset({"float64"})
_NUMBERS: Final = FLOATS | INTEGERS

# By op, the function of a division; an integer divisor of 0 is reported as an error.
_DIVISIONS: Final = {
    "floor_divide": "floor_divided",
    "trunc_divide": "trunc_divided",
    "remainder": "remainder_of",
    "fmod": "fmod_of",
}


def _by_library(function: str) -> Callable[..., str]:
    def write(dtype: str, *operands: str) -> str:
        return f"{function}{'f' if dtype == 'float32' else ''}({', '.join(operands)})"

    return write


def _call(function: str) -> Callable[..., str]:
    """Make a `Rule.write` that calls a function template with its type written out, since C++ arithmetic turns small
    integers into ints.
    """

    def write(dtype: str, *operands: str) -> str:
        return f"{function}<{C_TYPES[dtype]}>({', '.join(operands)})"

    return write


def _of_doubles(function: str) -> Callable[..., str]:
    """Make a `Rule.write` that calls a function that computes in float64 for operands of any dtype."""
    return lambda dtype, *operands: f"{function}({', '.join([f'(double){operand}' for operand in operands])})"


def _joined(first: Rule | None, second: Rule) -> Rule:
    """Return a rule that writes ops in the dtypes of `first` by `first`, and in other dtypes by `second`."""
    if first is None:
        return second

    def write(dtype: str, *operands: str) -> str:
        return (first if dtype in first.dtypes else second).write(dtype, *operands)

    return Rule(first.dtypes | second.dtypes, write, first.exact, first.wrong or second.wrong)


def _division(function: str) -> Rule:
    def wrong(dtype: str, dividend: str, divisor: str) -> str:
        return f"{divisor} == 0" if dtype in INTEGERS else ""

    return Rule(_NUMBERS, _call(function), wrong=wrong)


_FURTHER: Final[dict[str, Rule]] = {
    **{name: Rule(FLOATS, _by_library(name), exact=False) for name in LIBRARY},
    "sigmoid": Rule(FLOATS, lambda dtype, x: f"1 / (exp(-{x}) + 1)", exact=False),
    "silu": Rule(FLOATS, lambda dtype, x: f"{x} / (exp(-{x}) + 1)", exact=False),
    "gelu": Rule(_DOUBLE, lambda dtype, x: f"gelu_of_double({x})", exact=False),
    "gelu_gradient": Rule(_DOUBLE, lambda dtype, *both: f"gelu_gradient_of_double({', '.join(both)})", exact=False),
    "add": Rule(_BOOL, lambda dtype, x, y: f"{x} | {y}"),
    "mul": Rule(_BOOL, lambda dtype, x, y: f"{x} & {y}"),
    "sign": Rule(_BOOL, lambda dtype, x: x),
    **{name: _division(function) for name, function in _DIVISIONS.items()},
    # As on the CPU, a quotient is rounded to half precision before its fraction is cut off.
    "trunc_divide_float16": Rule(FLOATS, lambda dtype, x, y: f"truncf(rounded_float16({x} / {y}))"),
    "trunc_divide_bfloat16": Rule(FLOATS, lambda dtype, x, y: f"truncf(rounded_bfloat16({x} / {y}))"),
    "pow": Rule(_NUMBERS, _call("power"), exact=False),
    "pow_scalar": Rule(_NUMBERS, _call("power_of_all"), exact=False),
    "bitwise_left_shift": Rule(INTEGERS, _call("shifted_left")),
    "bitwise_right_shift": Rule(INTEGERS, _call("shifted_right")),
    "heaviside": Rule(_NUMBERS | _BOOL, lambda dtype, x, y: f"{x} == 0 ? {y} : {x} > 0"),
    "nextafter": Rule(FLOATS, _by_library("nextafter")),
    # Variables hold half-precision numbers in float32, whose next number is not the next one of half precision.
    "nextafter_float16": Rule(FLOATS, lambda dtype, *both: f"next_of_half<half>({', '.join(both)})"),
    "nextafter_bfloat16": Rule(FLOATS, lambda dtype, *both: f"next_of_half<bfloat16>({', '.join(both)})"),
    "logaddexp": Rule(FLOATS, _call("added_in_logarithms"), exact=False),
    "logaddexp2": Rule(FLOATS, _call("added_in_logarithms_by_2"), exact=False),
    "xlogy": Rule(FLOATS, _call("product_with_logarithm"), exact=False),
    "entr": Rule(FLOATS, _call("entropy"), exact=False),
    "sinc": Rule(FLOATS, _call("sine_by_argument"), exact=False),
    "erfinv": Rule(FLOATS, _by_library("erfinv"), exact=False),
    "erfcx": Rule(FLOATS, _by_library("erfcx"), exact=False),
    "ndtri": Rule(FLOATS, _by_library("normcdfinv"), exact=False),
    **{name: Rule(FLOATS, _of_doubles(f"bessel_{name}"), exact=False) for name in ("i0", "i0e", "i1", "i1e")},
    "igamma": Rule(FLOATS, _of_doubles("lower_gamma"), exact=False),
    "igammac": Rule(FLOATS, _of_doubles("upper_gamma"), exact=False),
    "zeta": Rule(FLOATS, _of_doubles("zeta_of"), exact=False),
    "gcd": Rule(INTEGERS, _call("common_divisor")),
    "lcm": Rule(INTEGERS, _call("common_multiple")),
    # lgamma and digamma compute in float64 for all dtypes, since both lose digits next to their zeros.
    "lgamma": Rule(FLOATS, lambda dtype, x: f"lgamma((double){x})", exact=False),
    "digamma": Rule(FLOATS, lambda dtype, x: f"digamma_of({x})", exact=False),
}

RULES: Final[dict[str, Rule]] = dict(IN_C)
for _rules in (_FURTHER, COMPLEX_RULES):
    for _name, _rule in _rules.items():
        RULES[_name] = _joined(RULES.get(_name), _rule)
