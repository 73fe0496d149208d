"""Ops as expressions of one element, in the part of C that CUDA C++ has as well: by op, the dtypes and the text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

# The type of an element of each dtype.  bools are numbers that are 0 or 1.
C_TYPES: Final = {
    "float32": "float",
    "float64": "double",
    "int8": "int8_t",
    "int16": "int16_t",
    "int32": "int32_t",
    "int64": "int64_t",
    "uint8": "uint8_t",
    "uint16": "uint16_t",
    "uint32": "uint32_t",
    "uint64": "uint64_t",
    "bool": "uint8_t",
}

# Half precision, which variables hold in float32, rounded.  C has none.
HALVES: Final = frozenset({"float16", "bfloat16"})

# C has none of these either: where the language has them, a conversion is ``converted<type>(value)``.
COMPLEX: Final = frozenset({"complex64", "complex128"})

FLOATS: Final = frozenset({"float32", "float64"})
_SINGLE: Final = frozenset({"float32"})
INTEGERS: Final = frozenset({"int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"})
_NUMBERS: Final = FLOATS | INTEGERS
_BOOL: Final = frozenset({"bool"})
_ALL: Final = _NUMBERS | _BOOL


class Rule(NamedTuple):
    """How an op is written.

    Attributes:
        dtypes: those that it can be computed in.
        write: takes the dtype to compute in and the operands, as C of that type, and returns the result as C.
        exact: whether the result agrees with numpy's to the bit.
        wrong: takes the same, and returns a condition under which the operands are an error, or ""; None if they never
            are.
    """

    dtypes: frozenset[str]
    write: Callable[..., str]
    exact: bool = True
    wrong: Callable[..., str] | None = None


def _form(pattern: str) -> Callable[..., str]:
    """A pattern with the operands {0}, {1}, ..., and with {f}, the suffix of names and numbers of float32."""

    def write(dtype: str, *operands: str) -> str:
        return pattern.format(*operands, f="f" if dtype == "float32" else "")

    return write


def _wrapping(pattern: str) -> Callable[..., str]:
    """A pattern of arithmetic, which wraps around in integers.

    An overflow of a signed integer is undefined in C.  Narrow integers are computed in int, where nothing overflows but
    products of uint16.
    """

    def write(dtype: str, *operands: str) -> str:
        unsigned = {"int32": "uint32_t", "int64": "uint64_t", "uint16": "uint32_t"}.get(dtype)
        if unsigned is None:
            return pattern.format(*operands)
        return f"({C_TYPES[dtype]})({pattern.format(*[f'({unsigned}){operand}' for operand in operands])})"

    return write


def _by_kind(floats: str, others: str) -> Callable[..., str]:
    """A pattern for floating-point numbers, and one for others."""
    return lambda dtype, *operands: _form(floats if dtype in FLOATS else others)(dtype, *operands)


# Like numpy's vector instructions: the second of two zeros, and nan if either is.
_larger: Final = _by_kind("(({0} > {1}) | ({0} != {0}) ? {0} : {1})", "({0} > {1} ? {0} : {1})")
_smaller: Final = _by_kind("(({0} < {1}) | ({0} != {0}) ? {0} : {1})", "({0} < {1} ? {0} : {1})")

_EXTREMA: Final = {"maximum": _larger, "minimum": _smaller}
_LIMITS: Final = {"clamp_min": _larger, "clamp_max": _smaller}
_COMPARISONS: Final = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_BITS: Final = {"bitwise_and": "&", "bitwise_or": "|", "bitwise_xor": "^"}

# The rules of ops by their names, without `_scalar`.  `where`, `cast` and `clamp` treat their operands differently, see
# `bodies`.
RULES: Final[dict[str, Rule]] = {
    "add": Rule(_NUMBERS, _wrapping("{0} + {1}")),
    "sub": Rule(_NUMBERS, _wrapping("{0} - {1}")),
    "mul": Rule(_NUMBERS, _wrapping("{0} * {1}")),
    "div": Rule(FLOATS, _form("{0} / {1}")),
    "neg": Rule(_NUMBERS, _wrapping("-{0}")),
    "sign": Rule(_NUMBERS, _form("({0} > 0) - ({0} < 0)")),  # 0 of nan, like the op
    "square": Rule(_NUMBERS, _wrapping("{0} * {0}")),
    "abs": Rule(_NUMBERS, _by_kind("fabs{f}({0})", "({0} < 0 ? -{0} : {0})")),
    "reciprocal": Rule(FLOATS, _form("1 / {0}")),
    "sqrt": Rule(FLOATS, _form("sqrt{f}({0})")),
    "rsqrt": Rule(FLOATS, _form("1 / sqrt{f}({0})")),
    "floor": Rule(_NUMBERS, _by_kind("floor{f}({0})", "{0}")),
    "ceil": Rule(_NUMBERS, _by_kind("ceil{f}({0})", "{0}")),
    "trunc": Rule(_NUMBERS, _by_kind("trunc{f}({0})", "{0}")),
    "round": Rule(_NUMBERS, _by_kind("rint{f}({0})", "{0}")),
    "copysign": Rule(FLOATS, _form("copysign{f}({0}, {1})")),
    "isnan": Rule(_ALL, _by_kind("{0} != {0}", "0")),
    "isinf": Rule(_ALL, _by_kind("fabs{f}({0}) == INF", "0")),
    "isfinite": Rule(_ALL, _by_kind("fabs{f}({0}) < INF", "1")),
    "signbit": Rule(_ALL, _by_kind("copysign{f}(1.0{f}, {0}) < 0", "{0} < 0")),
    "conj": Rule(_NUMBERS, _form("{0}")),
    "fmax": Rule(_ALL, _by_kind("(({0} > {1}) | ({1} != {1}) ? {0} : {1})", "({0} > {1} ? {0} : {1})")),
    "fmin": Rule(_ALL, _by_kind("(({0} < {1}) | ({1} != {1}) ? {0} : {1})", "({0} < {1} ? {0} : {1})")),
    "logical_and": Rule(_ALL, _form("({0} != 0) & ({1} != 0)")),
    "logical_or": Rule(_ALL, _form("({0} != 0) | ({1} != 0)")),
    "logical_xor": Rule(_ALL, _form("({0} != 0) ^ ({1} != 0)")),
    "logical_not": Rule(_ALL, _form("{0} == 0")),
    "bitwise_not": Rule(INTEGERS | _BOOL, lambda dtype, x: f"!{x}" if dtype == "bool" else f"~{x}"),
    "relu": Rule(_NUMBERS, lambda dtype, x: _larger(dtype, x, "0")),
    "relu_gradient": Rule(FLOATS, _form("{0} <= 0 ? 0 : {1}")),
    "exp": Rule(_SINGLE, _form("exp_f({0})"), exact=False),
    "log": Rule(_SINGLE, _form("log_f({0})"), exact=False),
    "sigmoid": Rule(_SINGLE, _form("sigmoid_f({0})"), exact=False),
    "silu": Rule(_SINGLE, _form("silu_f({0})"), exact=False),
    "erf": Rule(_SINGLE, _form("erf_f({0})")),
    "gelu": Rule(_SINGLE, _form("gelu_f({0})")),
    "gelu_gradient": Rule(_SINGLE, _form("gelu_gradient_f({0}, {1})"), exact=False),
    "tanh": Rule(_SINGLE, _form("tanh_f({0})"), exact=False),
    "expm1": Rule(_SINGLE, _form("expm1_f({0})"), exact=False),
    "log1p": Rule(_SINGLE, _form("log1p_f({0})"), exact=False),
    **{name: Rule(_ALL, write) for name, write in _EXTREMA.items()},
    **{name: Rule(_NUMBERS, write) for name, write in _LIMITS.items()},
    **{name: Rule(_ALL, _form(f"{{0}} {sign} {{1}}")) for name, sign in _COMPARISONS.items()},
    **{name: Rule(INTEGERS | _BOOL, _form(f"{{0}} {sign} {{1}}")) for name, sign in _BITS.items()},
}


def clamped(dtype: str, x: str, low: str, high: str) -> str:
    """A value limited to a range, as C; `x` is an expression without effects."""
    return _smaller(dtype, _larger(dtype, x, low), high)


def held_in(dtype: str) -> str:
    """The dtype of variables for elements of a dtype."""
    return "float32" if dtype in HALVES else dtype


def rounded_to(dtype: str, value: str) -> str:
    """A number rounded to half precision, in float32."""
    return f"rounded_{dtype}({value})"


def converted(value: str, given: str, wanted: str) -> str | None:
    """A value of one dtype as another; None if C does not define numpy's result."""
    if given == wanted:
        return value
    if wanted in COMPLEX:
        return f"converted<{wanted}>({value})"
    if given in COMPLEX:
        real = f"converted<{'bool' if wanted == 'bool' else C_TYPES[held_in(wanted)]}>({value})"
        return rounded_to(wanted, real) if wanted in HALVES else real
    if wanted == "bool":
        return f"({value} != 0)"
    if held_in(given) in FLOATS and wanted in INTEGERS:
        return None
    return rounded_to(wanted, value) if wanted in HALVES else f"({C_TYPES[wanted]}){value}"
