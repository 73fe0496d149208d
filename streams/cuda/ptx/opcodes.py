"""The known instructions except jumps, calls, ``ret`` and ``exit``, with the functions that lower them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from . import access, atomics, conversions, floats, integer_instructions as integers, moves, warps
from .faults import Trap
from .groups import Group
from .lowering import Lowering, Operation, scalar_of, write
from .statements import Instruction
from .types import SCALARS

Lower = Callable[[Lowering, Instruction], Operation | None]
LowerGate = Callable[[Lowering, Instruction], warps.Gate]


def _by_type(of_integers: Lower, of_floats: Lower) -> Lower:
    """Make a lowering that chooses between two others by the type of the instruction."""

    def lower(lowering: Lowering, instruction: Instruction) -> Operation | None:
        scalar = integers.typed(lowering, instruction)
        return (of_floats if scalar.kind == "float" else of_integers)(lowering, instruction)

    return lower


def _nothing(lowering: Lowering, instruction: Instruction) -> None:
    """Lower an instruction without effect here, such as a hint for caches, to no operation."""


def _trap(lowering: Lowering, instruction: Instruction) -> Operation:
    """``trap``, ``brkpt``."""

    def run(group: Group) -> None:
        raise group.fault(Trap, instruction.place, [0], "the kernel has stopped itself")

    return run


def _fence(lowering: Lowering, instruction: Instruction) -> Operation | None:
    """``membar``, ``fence``: order a block's accesses so far before later accesses of other blocks.

    Another block's accesses count as later from its first atomic access to global memory after the fence on.  Fences of
    the scope ``cta`` or of proxies do nothing here.
    """
    if {"cta", "proxy"} & set(instruction.modifiers):
        return None

    def run(group: Group) -> None:
        clock = group.batch.launch.clock
        clock.fence(group.batch.first + group.blocks)

    return run


def _active_mask(lowering: Lowering, instruction: Instruction) -> Operation:
    """Lower ``activemask``, whose result is the mask of the warp's threads that execute it together."""
    target = lowering.target(instruction.operands[0], SCALARS["b32"])

    def run(group: Group) -> None:
        write(group, target, warps.warp_bits(group, np.ones(1, bool)))

    return run


_INTEGERS: Final = integers.lower_same
_FLOATS: Final = floats.lower_float

LOWER: Final[dict[str, Lower]] = {
    "abs": _by_type(_INTEGERS, floats.lower_sign),
    "activemask": _active_mask,
    "add": _by_type(integers.lower_add, _FLOATS),
    "addc": integers.lower_add,
    "and": _INTEGERS,
    "applypriority": _nothing,
    "atom": atomics.lower_atomic,
    "bfe": integers.lower_field,
    "bfi": integers.lower_field,
    "bfind": integers.lower_count,
    "brev": _INTEGERS,
    "brkpt": _trap,
    "clz": integers.lower_count,
    "cnot": _INTEGERS,
    "copysign": floats.lower_copysign,
    "cos": _FLOATS,
    "cvt": conversions.lower_convert,
    "cvta": access.lower_cvta,
    "discard": _nothing,
    "div": _by_type(_INTEGERS, _FLOATS),
    "dp4a": integers.lower_dot,
    "ex2": _FLOATS,
    "fence": _fence,
    "fma": _FLOATS,
    "isspacep": access.lower_isspacep,
    "ld": access.lower_load,
    "ldu": access.lower_load,
    "lg2": _FLOATS,
    "lop3": integers.lower_logic,
    "mad": _by_type(integers.lower_multiply_add, _FLOATS),
    "mad24": integers.lower_multiply_add,
    "madc": integers.lower_multiply_add,
    "max": _by_type(_INTEGERS, floats.lower_extreme),
    "membar": _fence,
    "min": _by_type(_INTEGERS, floats.lower_extreme),
    "mov": moves.lower_move,
    "mul": _by_type(integers.lower_multiply, _FLOATS),
    "mul24": integers.lower_multiply,
    "nanosleep": _nothing,
    "neg": _by_type(_INTEGERS, floats.lower_sign),
    "not": _INTEGERS,
    "or": _INTEGERS,
    "popc": integers.lower_count,
    "prefetch": _nothing,
    "prefetchu": _nothing,
    "prmt": integers.lower_permute,
    "rcp": _FLOATS,
    "red": atomics.lower_atomic,
    "rem": _INTEGERS,
    "rsqrt": _FLOATS,
    "sad": _INTEGERS,
    "selp": moves.lower_select,
    "set": moves.lower_set,
    "setp": moves.lower_compare,
    "shf": integers.lower_funnel,
    "shl": integers.lower_shift,
    "shr": integers.lower_shift,
    "sin": _FLOATS,
    "slct": moves.lower_select_by_sign,
    "sqrt": _FLOATS,
    "st": access.lower_store,
    "sub": _by_type(integers.lower_add, _FLOATS),
    "subc": integers.lower_add,
    "tanh": _FLOATS,
    "testp": floats.lower_test,
    "trap": _trap,
    "xor": _INTEGERS,
}

# The numbers of operands, with the result, of opcodes for which they are fixed and checked.
_UNARY: Final = "abs bfind brev clz cnot cos cvta ex2 isspacep lg2 neg not popc rcp rsqrt sin sqrt tanh testp"
_BINARY: Final = "add addc and copysign div max min mul mul24 or rem shl shr sub subc xor"
_TERNARY: Final = "bfe dp4a fma mad mad24 madc prmt sad selp shf slct"
OPERANDS: Final[dict[str, int]] = {
    opcode: count
    for count, opcodes in ((1, "activemask"), (2, f"{_UNARY} ld ldu mov st"), (3, _BINARY), (4, _TERNARY), (5, "bfi"))
    for opcode in opcodes.split()
}

GATES: Final[dict[str, LowerGate]] = {
    "bar": warps.lower_barrier,
    "barrier": warps.lower_barrier,
    "elect": warps.lower_elect,
    "match": warps.lower_match,
    "redux": warps.lower_reduce,
    "shfl": warps.lower_shuffle,
    "vote": warps.lower_vote,
}


def memory_access(instruction: Instruction) -> tuple[str, int] | None:
    """The state space of an access to memory and its bytes for each thread; None for other instructions or types."""
    scalar = scalar_of(instruction.modifiers)
    if instruction.opcode not in ("ld", "ldu", "st", "atom", "red") or scalar is None:
        return None
    return access.space_of(instruction), scalar.size * access.vector_of(instruction)
