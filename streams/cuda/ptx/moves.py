"""Instructions that move, compare and select values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from . import rounding
from .groups import Group
from .integer_instructions import typed
from .lowering import PREDICATE, Lowering, Operation, operation, read, write
from .statements import Instruction, Operand, Register, Vector
from .types import SCALARS, Array, Scalar

Function = Callable[..., Any]

_CLOCKS: Final = ("%clock", "%clock64", "%clock_hi", "%globaltimer", "%globaltimer_lo", "%globaltimer_hi")


def lower_move(lowering: Lowering, instruction: Instruction) -> Operation | None:
    """``mov``."""
    scalar = typed(lowering, instruction)
    target, source = instruction.operands
    if isinstance(target, Vector):
        return _unpack(lowering, target, source, scalar)
    if isinstance(source, Vector):
        return _pack(lowering, target, source, scalar)
    if isinstance(source, Register) and source.name in _CLOCKS:
        return _read_clock(lowering, target, scalar, source.name)
    return _copy(lowering, target, source, scalar)


def _copy(lowering: Lowering, target: Operand, source: Operand, scalar: Scalar) -> Operation | None:
    found, result = lowering.source(source, scalar), lowering.target(target, scalar)
    if result is None:
        return None
    if found.convert is None and result.convert is None:
        return copy(result.slot, found.slot)
    return operation(lambda values: values, result, [found])


def copy(d: int, a: int) -> Operation:
    """An operation that copies register `a` to register `d`."""

    def run(group: Group) -> None:
        registers = group.registers
        registers[d] = registers[a]

    return run


def _read_clock(lowering: Lowering, target: Operand, scalar: Scalar, name: str) -> Operation:
    result = lowering.target(target, scalar)
    shift = np.uint64(32 if name.endswith("_hi") else 0)

    def run(group: Group) -> None:
        now = np.array([group.batch.launch.counters.instructions], np.uint64) >> shift
        write(group, result, now.astype(scalar.bits).view(scalar.dtype))

    return run


def _part(scalar: Scalar, count: int) -> Scalar:
    return SCALARS[f"b{8 * scalar.size // count}"]


def _unpack(lowering: Lowering, target: Vector, source: Operand, scalar: Scalar) -> Operation:
    """``mov.b64 {a, b}, c``: `a` gets the lowest part of `c`."""
    whole = SCALARS[f"b{8 * scalar.size}"]
    part = _part(scalar, len(target.parts))
    found = lowering.source(source, whole)
    results = [lowering.target(operand, part) for operand in target.parts]

    def run(group: Group) -> None:
        values = read(group, found)
        for number, result in enumerate(results):
            if result is not None:
                moved = values >> whole.dtype.type(8 * part.size * number) if number else values
                write(group, result, moved.astype(part.dtype))

    return run


def _pack(lowering: Lowering, target: Operand, source: Vector, scalar: Scalar) -> Operation:
    """``mov.b64 a, {b, c}``."""
    whole = SCALARS[f"b{8 * scalar.size}"]
    part = _part(scalar, len(source.parts))
    found = [lowering.source(operand, part) for operand in source.parts]
    result = lowering.target(target, whole)

    def run(group: Group) -> None:
        total = read(group, found[0]).astype(whole.dtype)
        for number, one in enumerate(found[1:], 1):
            total = total | read(group, one).astype(whole.dtype) << whole.dtype.type(8 * part.size * number)
        write(group, result, total)

    return run


def lower_select(lowering: Lowering, instruction: Instruction) -> Operation | None:
    """``selp``."""
    scalar = typed(lowering, instruction)
    target, a, b, condition = instruction.operands

    def select(first: Array, second: Array, chosen: Array) -> Array:
        return np.where(chosen, first, second)

    return lowering.compute(select, (target, scalar), [(a, scalar), (b, scalar), (condition, PREDICATE)])


def lower_select_by_sign(lowering: Lowering, instruction: Instruction) -> Operation | None:
    """``slct``: the first of two values where a third is at least 0, else the second."""
    types = [SCALARS[word] for word in instruction.modifiers if word in SCALARS]
    target, a, b, sign = instruction.operands
    flushes = "ftz" in instruction.modifiers

    def select(first: Array, second: Array, value: Array) -> Array:
        return np.where((rounding.flush(value) if flushes else value) >= 0, first, second)

    return lowering.compute(select, (target, types[0]), [(a, types[0]), (b, types[0]), (sign, types[1])])


# Comparisons


def _unordered(function: Function) -> Function:
    """Make a comparison hold where an operand is NaN, too."""
    return lambda a, b: function(a, b) | np.isnan(a) | np.isnan(b)


def _ordered_unequal(a: Array, b: Array) -> Array:
    return np.asarray((a != b) & ~np.isnan(a) & ~np.isnan(b))


_COMPARE: Final[dict[str, Function]] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "lo": np.less,
    "ls": np.less_equal,
    "hi": np.greater,
    "hs": np.greater_equal,
    "equ": _unordered(np.equal),
    "neu": np.not_equal,
    "ltu": _unordered(np.less),
    "leu": _unordered(np.less_equal),
    "gtu": _unordered(np.greater),
    "geu": _unordered(np.greater_equal),
    "num": lambda a, b: ~(np.isnan(a) | np.isnan(b)),
    "nan": lambda a, b: np.isnan(a) | np.isnan(b),
}
_COMBINE: Final[dict[str, Function]] = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}


def _comparison(lowering: Lowering, words: tuple[str, ...], scalar: Scalar) -> Function:
    name = words[0]
    if name not in _COMPARE:
        raise lowering.unsupported("there is no such comparison")
    function = _COMPARE[name]
    if name == "ne" and scalar.kind == "float":
        function = _ordered_unequal
    if "ftz" in words:
        inner = function
        function = lambda a, b: inner(rounding.flush(a), rounding.flush(b))  # noqa: E731
    return function


def lower_compare(lowering: Lowering, instruction: Instruction) -> Operation | None:
    """``setp``."""
    scalar, words = typed(lowering, instruction), instruction.modifiers
    if scalar.is_pair:
        return _compare_pairs(lowering, instruction, scalar)
    compare = _comparison(lowering, words, scalar)
    combine = next((_COMBINE[word] for word in words[1:] if word in _COMBINE), None)
    target, a, b, *third = instruction.operands
    sources = [(a, scalar), (b, scalar), *[(operand, PREDICATE) for operand in third]]
    if isinstance(target, Vector) and len(target.parts) != 2:
        raise lowering.unsupported("this comparison is not known")
    if isinstance(target, Vector):
        return _compare_twice(lowering, target, sources, compare, combine)
    if combine is None:
        return lowering.compute(compare, (target, PREDICATE), sources)
    return lowering.compute(lambda x, y, z: combine(compare(x, y), z), (target, PREDICATE), sources)


def _compare_twice(
    lowering: Lowering,
    target: Vector,
    sources: list[tuple[Operand, Scalar]],
    compare: Function,
    combine: Function | None,
) -> Operation:
    """``setp`` with two results; the second is that of the negated comparison."""
    found = [lowering.source(operand, scalar) for operand, scalar in sources]
    results = [lowering.target(operand, PREDICATE) for operand in target.parts]

    def run(group: Group) -> None:
        values = [read(group, source) for source in found]
        holds = np.asarray(compare(values[0], values[1]))
        for result, outcome in zip(results, (holds, ~holds), strict=True):
            write(group, result, outcome if combine is None else np.asarray(combine(outcome, values[2])))

    return run


def _compare_pairs(lowering: Lowering, instruction: Instruction, scalar: Scalar) -> Operation:
    """``setp`` of words with two 16-bit floats each: one result for the lower, one for the upper."""
    compare = _comparison(lowering, instruction.modifiers, scalar)
    target, a, b = instruction.operands[:3]
    if not isinstance(target, Vector) or len(instruction.operands) > 3:
        raise lowering.unsupported("this comparison is not known")
    word = SCALARS["b32"]
    found = [lowering.source(operand, word) for operand in (a, b)]
    results = [lowering.target(operand, PREDICATE) for operand in target.parts]

    def run(group: Group) -> None:
        pairs = [np.ascontiguousarray(read(group, source)).view(scalar.dtype).reshape(-1, 2) for source in found]
        holds = np.asarray(compare(*pairs))
        for number, result in enumerate(results):
            write(group, result, np.ascontiguousarray(holds[:, number]))

    return run


def lower_set(lowering: Lowering, instruction: Instruction) -> Operation | None:
    """``set``: a comparison whose result is all ones (1.0 for floats), or zero."""
    types = [SCALARS[word] for word in instruction.modifiers if word in SCALARS]
    if len(types) != 2 or any(one.is_pair for one in types):
        raise lowering.unsupported("this comparison is not known")
    result, scalar = types
    compare = _comparison(lowering, instruction.modifiers, scalar)
    combine = next((_COMBINE[word] for word in instruction.modifiers[1:] if word in _COMBINE), None)
    target, a, b, *third = instruction.operands
    true = np.ones(1, result.dtype) if result.kind == "float" else ~np.zeros(1, result.dtype)
    false = np.zeros(1, result.dtype)

    def choose(x: Array, y: Array, *more: Array) -> Array:
        holds = compare(x, y) if combine is None else combine(compare(x, y), more[0])
        return np.where(holds, true, false)

    sources = [(a, scalar), (b, scalar), *[(operand, PREDICATE) for operand in third]]
    return lowering.compute(choose, (target, result), sources)
