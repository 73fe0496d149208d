"""``cvt``: conversions between types."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from . import rounding
from .floats import mode_of, saturate
from .lowering import Lowering, Operation
from .statements import Instruction
from .types import SCALARS, Array, Scalar

Function = Callable[[Array], Array]

# The functions that round a float to an integral float.
_INTEGRAL: Final[dict[str, Callable[..., Any]]] = {
    "rni": np.rint,
    "rzi": np.trunc,
    "rmi": np.floor,
    "rpi": np.ceil,
}


def lower_convert(lowering: Lowering, instruction: Instruction) -> Operation | None:
    """``cvt``."""
    types = [SCALARS[word] for word in instruction.modifiers if word in SCALARS]
    if len(types) != 2 or {"satfinite", "rna", "rs"} & set(instruction.modifiers):
        raise lowering.unsupported("this conversion is not known")
    result, given = types
    if result.is_pair:
        return _lower_pair(lowering, instruction, result, given)
    target, source = instruction.operands
    return lowering.compute(_conversion(result, given, instruction.modifiers), (target, result), [(source, given)])


def _lower_pair(lowering: Lowering, instruction: Instruction, result: Scalar, given: Scalar) -> Operation | None:
    """Lower ``cvt`` of two float32 operands to two 16-bit floats in a word; the first becomes the upper half."""
    if given.name != "f32" or len(instruction.operands) != 3:
        raise lowering.unsupported("this conversion is not known")
    target, high, low = instruction.operands
    part = SCALARS["bf16" if result.name == "bf16x2" else "f16"]
    convert = _conversion(part, given, instruction.modifiers)

    def pack(upper: Array, lower: Array) -> Array:
        first, second = (convert(values).view(np.uint16).astype(np.uint32) for values in (upper, lower))
        return np.asarray((first << np.uint32(16)) | second)

    return lowering.compute(pack, (target, SCALARS["b32"]), [(high, given), (low, given)])


def _conversion(result: Scalar, given: Scalar, words: Sequence[str]) -> Function:
    """The function of a conversion."""
    if given.kind == "float" and result.kind == "float":
        convert = _between_floats(result, given, words)
    elif given.kind == "float":
        convert = _to_integer(result, given, words)
    elif result.kind == "float":
        mode = mode_of(words)

        def convert(values: Array) -> Array:
            return rounding.integer_to_float(values, result.dtype, mode)
    else:
        convert = _between_integers(result, "sat" in words)
    if "sat" in words and result.kind == "float":
        inner = convert
        return lambda values: saturate(inner(values))
    return convert


def _between_floats(result: Scalar, given: Scalar, words: Sequence[str]) -> Function:
    flushes = "ftz" in words
    integral = next((_INTEGRAL[word] for word in words if word in _INTEGRAL), None)
    mode = mode_of(words)

    def convert(values: Array) -> Array:
        if flushes and given.size == 4:
            values = rounding.flush(values)
        if integral is not None:
            values = np.asarray(integral(values))
        if result.size > given.size:
            values = values.astype(result.dtype)
        elif result.name != given.name:
            # Singles hold both formats of 16 bits, of which neither holds the other.
            wide = values.astype(np.float32) if given.size == 2 else values
            values = rounding.narrow(wide, result.dtype, mode)
        if "relu" in words:
            values = np.where(np.isnan(values) | (values > 0), values, values.dtype.type(0))
        return rounding.flush(values) if flushes and result.size == 4 else values

    return convert


def _to_integer(result: Scalar, given: Scalar, words: Sequence[str]) -> Function:
    """Make a function that rounds floats to integers of a type; floats out of range become the type's limits."""
    integral = next((_INTEGRAL[word] for word in words if word in _INTEGRAL), np.trunc)
    bounds = np.iinfo(result.dtype)
    # The integer that NaN becomes depends on the sizes of both types.
    nan = 1 << (8 * result.size - 1) if 8 in (result.size, given.size) else 0
    flushes = "ftz" in words and given.size == 4

    def convert(values: Array) -> Array:
        if flushes:
            values = rounding.flush(values)
        whole = np.asarray(integral(values.astype(np.float64)))
        # A double cannot hold the greatest integer of 64 bits, but holds the next, hence ``>=``.
        above, below = whole >= float(bounds.max), whole <= float(bounds.min)
        inside = np.where(above | below | np.isnan(whole), 0.0, whole).astype(result.dtype)
        found = np.where(above, result.dtype.type(bounds.max), np.where(below, result.dtype.type(bounds.min), inside))
        missing = np.isnan(whole)
        if missing.any():
            found = np.where(missing, np.array(nan, np.uint64).astype(result.bits).view(result.dtype), found)
        return found

    return convert


def _between_integers(result: Scalar, saturates: bool) -> Function:
    dtype = result.dtype
    if not saturates:
        return lambda values: values.astype(dtype)
    bounds = np.iinfo(dtype)

    def convert(values: Array) -> Array:
        least = max(bounds.min, int(np.iinfo(values.dtype).min))
        most = min(bounds.max, int(np.iinfo(values.dtype).max))
        return np.clip(values, values.dtype.type(least), values.dtype.type(most)).astype(dtype)

    return convert
