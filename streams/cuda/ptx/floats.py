"""Lowers instructions on floats to functions of arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from . import rounding
from .integer_instructions import typed
from .lowering import PREDICATE, Lowering, Operation
from .rounding import MODES, Mode
from .statements import Instruction
from .types import BFLOAT16, SCALARS, Array, DType, Scalar

Function = Callable[..., Any]


def mode_of(words: Sequence[str]) -> Mode:
    """The rounding mode of an instruction, "rn" by default."""
    return next((mode for mode in MODES if mode in words), "rn")


def saturate(values: Array) -> Array:
    """Values limited to [0, 1]; NaN becomes 0."""
    one, zero = np.ones(1, values.dtype), np.zeros(1, values.dtype)
    return np.where(values > zero, np.minimum(values, one), zero)


def _multiply(a: Array, b: Array, mode: Mode) -> Array:
    if a.dtype == BFLOAT16:
        # A product of two bfloat16 numbers may be too small for float32, in which numpy would compute it.
        return rounding.narrow(a.astype(np.float64) * b.astype(np.float64), BFLOAT16, mode)
    return rounding.multiply(a, b, mode)


def _arithmetic(opcode: str, mode: Mode, dtype: DType) -> Function:
    """The function of an instruction that rounds."""
    if mode == "rn" and not (opcode == "mul" and dtype == BFLOAT16):
        plain: dict[str, Function] = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide}
        if opcode in plain:
            return plain[opcode]
    functions: dict[str, Function] = {
        "add": lambda a, b: rounding.add(a, b, mode),
        "sub": lambda a, b: rounding.add(a, -b, mode),
        "mul": lambda a, b: _multiply(a, b, mode),
        "div": lambda a, b: rounding.divide(a, b, mode),
        "fma": lambda a, b, c: rounding.fma(a, b, c, mode),
        "mad": lambda a, b, c: rounding.fma(a, b, c, mode),
        "rcp": lambda a: rounding.divide(np.ones(1, a.dtype), a, mode),
        "sqrt": lambda a: rounding.square_root(a, mode),
    }
    return functions[opcode]


def in_double(function: Function) -> Function:
    """Make a function that computes in doubles and rounds to the format of the operands."""

    def compute(*operands: Array) -> Array:
        result = function(*[operand.astype(np.float64) for operand in operands])
        return rounding.narrow(np.asarray(result), operands[0].dtype)

    return compute


def _coarse_reciprocal(values: Array) -> Array:
    """``rcp.approx.ftz.f64``: a reciprocal with zeros in its lower half."""
    return (np.divide(1.0, values).view(np.uint64) & np.uint64(0xFFFFFFFF00000000)).view(np.float64)


def _coarse_inverse_root(values: Array) -> Array:
    """``rsqrt.approx.ftz.f64``: an inverse square root with zeros in its lower half."""
    root = np.divide(1.0, np.sqrt(values))
    return (root.view(np.uint64) & np.uint64(0xFFFFFFFF00000000)).view(np.float64)


# Approximations are nearly exact here; those of the hardware may differ.
_APPROXIMATE: Final[dict[str, Function]] = {
    "div": in_double(np.divide),
    "rcp": in_double(lambda a: 1 / a),
    "sqrt": in_double(np.sqrt),
    "rsqrt": in_double(lambda a: 1 / np.sqrt(a)),
    "sin": in_double(np.sin),
    "cos": in_double(np.cos),
    "ex2": in_double(np.exp2),
    "lg2": in_double(np.log2),
    "tanh": in_double(np.tanh),
}
_COARSE: Final[dict[str, Function]] = {"rcp": _coarse_reciprocal, "rsqrt": _coarse_inverse_root}


def lower_float(lowering: Lowering, instruction: Instruction) -> Operation | None:
    """Instructions that round, and approximations."""
    scalar, words = typed(lowering, instruction), instruction.modifiers
    opcode = instruction.opcode
    if "approx" in words or "full" in words or opcode in ("ex2", "tanh"):
        coarse = scalar.size == 8 and "ftz" in words and opcode in _COARSE
        if opcode not in _APPROXIMATE:
            raise lowering.unsupported("there is no such approximation")
        function = _COARSE[opcode] if coarse else _APPROXIMATE[opcode]
    else:
        function = _arithmetic(opcode, mode_of(words), scalar.dtype)
    if "relu" in words:
        function = _then(function, _positive)
    return lower_packed(lowering, instruction, scalar, finished(function, words))


def finished(function: Function, words: Sequence[str]) -> Function:
    """Add ``ftz`` and ``sat`` to a function if `words` has them: subnormals are zeros, results within [0, 1]."""
    if "ftz" in words:
        function = _flushing(function)
    if "sat" in words:
        function = _then(function, saturate)
    return function


def _positive(values: Array) -> Array:
    zero = np.zeros(1, values.dtype)
    return np.where(np.isnan(values) | (values > zero), values, zero)


def _flushing(function: Function) -> Function:
    def compute(*operands: Array) -> Array:
        return rounding.flush(function(*[rounding.flush(operand) for operand in operands]))

    return compute


def _then(function: Function, after: Function) -> Function:
    def compute(*operands: Array) -> Array:
        return np.asarray(after(np.asarray(function(*operands))))

    return compute


def lower_packed(lowering: Lowering, instruction: Instruction, scalar: Scalar, function: Function) -> Operation | None:
    """Make an operation whose operands have its result's type, maybe two floats in a word; None for the sink ``_``."""
    target, *sources = instruction.operands
    if scalar.is_pair:
        word = SCALARS["b32"]
        return lowering.compute(
            on_pairs(function, scalar.dtype), (target, word), [(source, word) for source in sources]
        )
    return lowering.compute(function, (target, scalar), [(source, scalar) for source in sources])


def on_pairs(function: Function, dtype: DType) -> Function:
    """Make a function of 32-bit words with two 16-bit floats each that applies `function` to the floats."""

    def compute(*words: Array) -> Array:
        pairs = [np.ascontiguousarray(word).view(dtype).reshape(-1, 2) for word in words]
        return np.ascontiguousarray(function(*pairs)).view(np.uint32).reshape(-1)

    return compute


# Selection and signs


def _extreme(function: Function, zeros: Function) -> Function:
    """Make ``min`` or ``max`` order zeros by sign; `zeros` combines their bits."""

    def compute(a: Array, b: Array) -> Array:
        result = np.asarray(function(a, b))
        both = (a == 0) & (b == 0)
        if both.any():
            bits = np.dtype(f"u{a.dtype.itemsize}")
            result = np.where(both, zeros(a.view(bits), b.view(bits)).view(a.dtype), result)
        return result

    return compute


def _number(function: Function) -> Function:
    """Make ``min`` or ``max`` of a number and NaN give the number."""

    def compute(a: Array, b: Array) -> Array:
        return np.where(np.isnan(a), b, np.where(np.isnan(b), a, function(a, b)))

    return compute


def lower_extreme(lowering: Lowering, instruction: Instruction) -> Operation | None:
    """``min`` and ``max`` of floats."""
    scalar, words = typed(lowering, instruction), instruction.modifiers
    if "xorsign" in words or len(instruction.operands) != 3:
        raise lowering.unsupported("this form of the instruction is not known")
    least = instruction.opcode == "min"
    if "NaN" in words:
        chosen: Function = np.minimum if least else np.maximum
    elif scalar.dtype == BFLOAT16:
        chosen = _number(np.minimum if least else np.maximum)
    else:
        chosen = np.fmin if least else np.fmax
    function = _extreme(chosen, np.bitwise_or if least else np.bitwise_and)
    return lower_packed(lowering, instruction, scalar, finished(function, words))


def lower_sign(lowering: Lowering, instruction: Instruction) -> Operation | None:
    """``neg`` and ``abs`` of floats, also of NaN."""
    scalar = typed(lowering, instruction)
    bits = np.dtype(f"u{scalar.dtype.itemsize}")
    sign = bits.type(1 << (8 * bits.itemsize - 1))
    negates = instruction.opcode == "neg"

    def change(values: Array) -> Array:
        raw = np.ascontiguousarray(values).view(bits)
        return np.asarray(raw ^ sign if negates else raw & ~sign).view(values.dtype)

    return lower_packed(lowering, instruction, scalar, finished(change, instruction.modifiers))


def lower_copysign(lowering: Lowering, instruction: Instruction) -> Operation | None:
    """``copysign``, whose first source operand gives the sign."""
    scalar = typed(lowering, instruction)
    return lower_packed(lowering, instruction, scalar, lambda sign, value: np.copysign(value, sign))


_TESTS: Final[dict[str, Function]] = {
    "finite": np.isfinite,
    "infinite": np.isinf,
    "number": lambda a: ~np.isnan(a),
    "notanumber": np.isnan,
    # PTX counts zeros as normal numbers.
    "normal": lambda a: np.isfinite(a) & ((a == 0) | (np.abs(a) >= np.finfo(a.dtype).smallest_normal)),
    "subnormal": lambda a: (a != 0) & (np.abs(a) < np.finfo(a.dtype).smallest_normal),
}


def lower_test(lowering: Lowering, instruction: Instruction) -> Operation | None:
    """``testp``."""
    scalar = typed(lowering, instruction)
    test = _TESTS.get(instruction.modifiers[0])
    if test is None:
        raise lowering.unsupported("there is no such test")
    target, source = instruction.operands
    return lowering.compute(test, (target, PREDICATE), [(source, scalar)])
