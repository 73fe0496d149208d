"""`RULES`: how elementwise ops are written as expressions of one element that are valid in both C and CUDA C++."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

# The C type of an element of each dtype that C code supports.  bools are stored as numbers that are 0 or 1.
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

# The dtypes of half precision.  C code does not support them; in CUDA C++, variables hold them as float32 numbers,
# rounded.
HALVES: Final = frozenset({"float16", "bfloat16"})

# The complex dtypes.  C code does not support them; in CUDA C++ a conversion is ``converted<type>(value)``.
COMPLEX: Final = frozenset({"complex64", "complex128"})

FLOATS: Final = frozenset({"float32", "float64"})
_SINGLE: Final = frozenset({"float32"})
INTEGERS: Final = frozenset({"int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"})
_NUMBERS: Final = FLOATS | INTEGERS
_BOOL: Final = frozenset({"bool"})
_ALL: Final = _NUMBERS | _BOOL


class Rule(NamedTuple):
    """How an elementwise op is written as a C expression.

    Attributes:
        dtypes: the dtypes that the op can be computed in.
        write: ``write(dtype, *operands)`` returns the C expression of the result, from expressions of that dtype.
        exact: whether the result agrees with numpy's to the bit, but for the sign of the extremum of two zeros.
        wrong: ``wrong(dtype, *operands)`` returns a C condition that the operands are an error, or ""; None if they
            never are.
    """

    dtypes: frozenset[str]
    write: Callable[..., str]
    exact: bool = True
    wrong: Callable[..., str] | None = None


def _form(pattern: str) -> Callable[..., str]:
    """Make a `Rule.write` from a pattern with the operands {0}, {1}, ..., and {f}, for C's suffix of float32 if any."""

    def write(dtype: str, *operands: str) -> str:
        return pattern.format(*operands, f="f" if dtype == "float32" else "")

    return write


def _wrapping(pattern: str) -> Callable[..., str]:
    """Make a `Rule.write` from a pattern of arithmetic that wraps around where integers overflow.

    An overflow of a signed integer is undefined in C, so the pattern is computed in unsigned integers.  C computes
    narrow integers in int, where nothing overflows but products of uint16.
    """

    def write(dtype: str, *operands: str) -> str:
        unsigned = {"int32": "uint32_t", "int64": "uint64_t", "uint16": "uint32_t"}.get(dtype)
        if unsigned is None:
            return pattern.format(*operands)
        return f"({C_TYPES[dtype]})({pattern.format(*[f'({unsigned}){operand}' for operand in operands])})"

    return write


def _by_kind(floats: str, others: str) -> Callable[..., str]:
    """Make a `Rule.write` from two patterns: one for floating-point dtypes, and one for all others."""
    return lambda dtype, *operands: _form(floats if dtype in FLOATS else others)(dtype, *operands)


# The larger and the smaller number, as numpy's vector instructions choose: the second of two zeros, and nan if either
# operand is nan.
_larger: Final = _by_kind("(({0} > {1}) | ({0} != {0}) ? {0} : {1})", "({0} > {1} ? {0} : {1})")
_smaller: Final = _by_kind("(({0} < {1}) | ({0} != {0}) ? {0} : {1})", "({0} < {1} ? {0} : {1})")

_EXTREMA: Final = {"maximum": _larger, "minimum": _smaller}
_LIMITS: Final = {"clamp_min": _larger, "clamp_max": _smaller}
_COMPARISONS: Final = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_BITS: Final = {"bitwise_and": "&", "bitwise_or": "|", "bitwise_xor": "^"}

# By an op's name without `_scalar`, its rule.  `bodies` writes `where`, `cast` and `clamp`; ops that only CUDA devices
# generate have rules in `vmflow.kernels.cuda.rules`.
RULES: Final[dict[str, Rule]] = {
    "add": Rule(_NUMBERS, _wrapping("{0} + {1}")),
    "sub": Rule(_NUMBERS, _wrapping("{0} - {1}")),
    "mul": Rule(_NUMBERS, _wrapping("{0} * {1}")),
    "div": Rule(FLOATS, _form("{0} / {1}")),
    "neg": Rule(_NUMBERS, _wrapping("-{0}")),
    "sign": Rule(_NUMBERS, _form("({0} > 0) - ({0} < 0)")),  # sign(nan) is 0, as in PyTorch
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
    """Write the C expression of min(max(x, low), high), which contains each operand several times."""
    return _smaller(dtype, _larger(dtype, x, low), high)


def held_in(dtype: str) -> str:
    """Return the dtype of the variables that hold elements of a dtype: float32 for half precision, else the dtype."""
    return "float32" if dtype in HALVES else dtype


def rounded_to(dtype: str, value: str) -> str:
    """Write the expression that rounds a float32 value to half precision; the result is float32 again."""
    return f"rounded_{dtype}({value})"


def converted(value: str, given: str, wanted: str) -> str | None:
    """Write the conversion of a value from one dtype to another; None for a real floating-point number to an integer.

    C does not define this conversion like numpy.
    """
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
