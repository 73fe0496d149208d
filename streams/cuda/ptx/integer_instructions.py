"""Lowers instructions on integers or bits to functions of arrays."""

from __future__ import annotations

from typing import Final

import numpy as np

from . import integers as ints
from .groups import Group
from .lowering import PREDICATE, Lowering, Operation, Source, operation, read, write
from .statements import Immediate, Instruction, Operand, Register
from .types import SCALARS, Array, Scalar

_U32: Final = SCALARS["u32"]

# The name of the carry flag's register, a predicate; made by `FunctionBuilder`.
CARRY: Final = "%carry"


def typed(lowering: Lowering, instruction: Instruction) -> Scalar:
    """The type of an instruction: the last of its modifiers that names one."""
    for word in reversed(instruction.modifiers):
        if word in SCALARS:
            return SCALARS[word]
    raise lowering.unsupported("this instruction needs a type")


def _same(lowering: Lowering, instruction: Instruction, function: ints.Function, scalar: Scalar) -> Operation | None:
    """Make an operation whose operands have the type of its result."""
    target, *sources = instruction.operands
    return lowering.compute(function, (target, scalar), [(source, scalar) for source in sources])


def _modular(scalar: Scalar) -> Scalar:
    """The unsigned type of this size: sums and lower halves of products have the same bits, and registers hold it."""
    return SCALARS[f"u{8 * scalar.size}"]


def lower_add(lowering: Lowering, instruction: Instruction) -> Operation | None:
    """``add``, ``sub``, ``addc`` and ``subc`` of integers."""
    scalar, words = typed(lowering, instruction), instruction.modifiers
    subtracts = instruction.opcode.startswith("sub")
    carries = "cc" in words or instruction.opcode in ("addc", "subc")
    saturates = _saturates(lowering, instruction, scalar, carries)
    if carries:
        return _with_carry(lowering, instruction, _modular(scalar), subtracts)
    if saturates:
        return _same(lowering, instruction, ints.subtract_saturated if subtracts else ints.add_saturated, scalar)
    return _same(lowering, instruction, np.subtract if subtracts else np.add, _modular(scalar))


def _saturates(lowering: Lowering, instruction: Instruction, scalar: Scalar, carries: bool) -> bool:
    """Whether a result is saturated; raises for ``sat`` of other types than s32, or with the carry flag."""
    if "sat" not in instruction.modifiers:
        return False
    if scalar.name != "s32" or carries:
        raise lowering.unsupported("only results of the type s32 without a carry can be saturated")
    return True


def _with_carry(lowering: Lowering, instruction: Instruction, scalar: Scalar, subtracts: bool) -> Operation:
    target, a, b = instruction.operands
    return _carrying(
        lowering, instruction, target, (lowering.source(a, scalar), lowering.source(b, scalar)), scalar, subtracts
    )


def _carrying(
    lowering: Lowering,
    instruction: Instruction,
    target_operand: Operand,
    terms: tuple[Source, Source],
    scalar: Scalar,
    subtracts: bool,
    factor: Source | None = None,
    high: bool = False,
) -> Operation:
    """Lower a sum or a difference of two terms that reads or writes the carry flag, or both.

    With a `factor`, the first term is the upper (`high`) or lower half of its product with the factor.
    """
    flag = Register(CARRY)
    carry_in = lowering.source(flag, PREDICATE) if instruction.opcode.endswith("c") else None
    target = lowering.target(target_operand, scalar)
    carry_out = lowering.target(flag, PREDICATE) if "cc" in instruction.modifiers else None

    def run(group: Group) -> None:
        a, b = read(group, terms[0]), read(group, terms[1])
        if factor is not None:
            a = ints.multiply_high(a, read(group, factor)) if high else a * read(group, factor)
        carry = read(group, carry_in).astype(scalar.dtype) if carry_in is not None else None
        total, flags = _sum(a, b, carry, subtracts)
        write(group, target, total)
        write(group, carry_out, flags)

    return run


def _sum(a: Array, b: Array, carry: Array | None, subtracts: bool) -> tuple[Array, Array]:
    total = a - b if subtracts else a + b
    flags = a < b if subtracts else total < a
    if carry is not None:
        partial = total
        total = total - carry if subtracts else total + carry
        flags = flags | (partial < carry if subtracts else total < carry)
    return total, flags


def lower_multiply(lowering: Lowering, instruction: Instruction) -> Operation | None:
    """``mul`` and ``mul24`` of integers."""
    scalar, words = typed(lowering, instruction), instruction.modifiers
    if "sat" in words:
        raise lowering.unsupported("a product of integers cannot be saturated")
    if instruction.opcode == "mul24":
        return _same(lowering, instruction, _product_of_24_bits(lowering, instruction, scalar), scalar)
    if "wide" in words:
        target, a, b = instruction.operands
        return lowering.compute(ints.multiply_wide, (target, _wide(scalar)), [(a, scalar), (b, scalar)])
    if "hi" in words:
        return _same(lowering, instruction, ints.multiply_high, scalar)
    return _same(lowering, instruction, np.multiply, _modular(scalar))


def _product_of_24_bits(lowering: Lowering, instruction: Instruction, scalar: Scalar) -> ints.Function:
    """The function that multiplies for ``mul24`` and ``mad24``: it gives the low or the upper 32 of 48 bits."""
    halves = {"lo": ints.multiply_low_of_24_bits, "hi": ints.multiply_high_of_24_bits}
    half = next((halves[word] for word in instruction.modifiers if word in halves), None)
    if half is None or scalar.name not in ("s32", "u32"):
        raise lowering.unsupported("products of numbers of 24 bits have a low or high half of the type s32 or u32")
    return half


def _wide(scalar: Scalar) -> Scalar:
    return SCALARS[f"{scalar.name[0]}{16 * scalar.size}"]


def lower_multiply_add(lowering: Lowering, instruction: Instruction) -> Operation | None:
    """``mad``, ``madc`` and ``mad24`` of integers."""
    scalar, words = typed(lowering, instruction), instruction.modifiers
    target, a, b, c = instruction.operands
    carries = "cc" in words or instruction.opcode == "madc"
    saturates = _saturates(lowering, instruction, scalar, carries)
    if saturates and "hi" not in words:
        raise lowering.unsupported("only the upper half of a product plus an operand can be saturated")
    if carries:
        high = "hi" in words
        kind = scalar if high else _modular(scalar)
        first, factor, term = (lowering.source(operand, kind) for operand in (a, b, c))
        if kind.kind == "signed":
            raise lowering.unsupported("the upper half of a signed product with a carry is not known")
        return _carrying(lowering, instruction, target, (first, term), kind, False, factor, high)
    if "wide" in words:
        wide = _wide(scalar)
        return lowering.compute(
            lambda x, y, z: ints.multiply_wide(x, y) + z, (target, wide), [(a, scalar), (b, scalar), (c, wide)]
        )
    total: ints.Function = ints.add_saturated if saturates else np.add
    if instruction.opcode == "mad24":
        product = _product_of_24_bits(lowering, instruction, scalar)
        return _same(lowering, instruction, lambda x, y, z: total(product(x, y), z), scalar)
    if "hi" in words:
        return _same(lowering, instruction, lambda x, y, z: total(ints.multiply_high(x, y), z), scalar)
    return _same(lowering, instruction, lambda x, y, z: x * y + z, _modular(scalar))


_SAME: Final[dict[str, ints.Function]] = {
    "div": ints.divide,
    "rem": ints.remainder,
    "min": np.minimum,
    "max": np.maximum,
    "abs": np.abs,
    "neg": np.negative,
    "sad": ints.sum_of_differences,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "not": np.invert,
    "cnot": lambda a: (a == 0).astype(a.dtype),
    "brev": ints.reverse_bits,
}


def lower_same(lowering: Lowering, instruction: Instruction) -> Operation | None:
    """Instructions whose operands have the type of their result."""
    scalar = typed(lowering, instruction)
    if instruction.modifiers[-1] != scalar.name or {"relu", "sat"} & set(instruction.modifiers):
        raise lowering.unsupported("this form of the instruction is not known")
    return _same(lowering, instruction, _SAME[instruction.opcode], scalar)


def lower_count(lowering: Lowering, instruction: Instruction) -> Operation | None:
    """``clz``, ``popc`` and ``bfind``, which count bits or find the highest."""
    scalar = typed(lowering, instruction)
    found = ints.shift_to_highest if "shiftamt" in instruction.modifiers else ints.find_highest
    function = {"clz": ints.leading_zeros, "popc": ints.count_ones, "bfind": found}[instruction.opcode]
    target, source = instruction.operands
    return lowering.compute(function, (target, _U32), [(source, scalar)])


def lower_shift(lowering: Lowering, instruction: Instruction) -> Operation | None:
    """``shl`` and ``shr``."""
    scalar = typed(lowering, instruction)
    target, value, amount = instruction.operands
    if instruction.opcode == "shl":
        function, kind = ints.shift_left, _modular(scalar)
    else:
        function, kind = ints.shift_right, scalar if scalar.kind == "signed" else _modular(scalar)
    return lowering.compute(function, (target, kind), [(value, kind), (amount, _U32)])


def lower_funnel(lowering: Lowering, instruction: Instruction) -> Operation | None:
    """``shf``."""
    function = ints.funnel_shift("l" in instruction.modifiers, "wrap" in instruction.modifiers)
    return _same(lowering, instruction, function, _U32)


def lower_field(lowering: Lowering, instruction: Instruction) -> Operation | None:
    """``bfe`` and ``bfi``."""
    scalar = typed(lowering, instruction)
    target, *values, start, length = instruction.operands
    function = ints.extract_field if instruction.opcode == "bfe" else ints.insert_field
    kind = scalar if instruction.opcode == "bfe" else _modular(scalar)
    sources = [(value, kind) for value in values] + [(start, _U32), (length, _U32)]
    return lowering.compute(function, (target, kind), sources)


def lower_permute(lowering: Lowering, instruction: Instruction) -> Operation | None:
    """``prmt`` without a mode."""
    if instruction.modifiers != ("b32",):
        raise lowering.unsupported("modes of prmt are not known")
    return _same(lowering, instruction, ints.permute_bytes, _U32)


def lower_logic(lowering: Lowering, instruction: Instruction) -> Operation | None:
    """``lop3``."""
    target, a, b, c, table = instruction.operands[:5]
    if not isinstance(table, Immediate) or table.bits is not None or len(instruction.operands) > 5:
        raise lowering.unsupported("this form of lop3 is not known")
    function = ints.logic_of_three(int(table.value))
    return lowering.compute(function, (target, _U32), [(a, _U32), (b, _U32), (c, _U32)])


def lower_dot(lowering: Lowering, instruction: Instruction) -> Operation | None:
    """``dp4a``."""
    a, b = instruction.modifiers[-2:]
    target, *sources = instruction.operands
    function = ints.dot_of_bytes(a == "s32", b == "s32")
    found = [lowering.source(sources[0], _U32), lowering.source(sources[1], _U32)]
    found.append(lowering.source(sources[2], SCALARS["s32"] if "s32" in (a, b) else _U32))
    result = lowering.target(target, _U32)
    return None if result is None else operation(function, result, found)
