"""Atomic operations: ``atom`` and ``red``.

Threads of one instruction that access one address take turns, in the order of their lanes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from .access import LOCATE, address_source, raise_race, read_address, space_of, stamps_of, wrapped
from .faults import Place
from .groups import Group
from .lowering import Lowering, Operation, read, scalar_of, write
from .memory import Piece
from .statements import Instruction
from .types import SCALARS, Array

Combine = Callable[..., Any]


def _increment(old: Array, limit: Array) -> Array:
    zero, one = np.zeros(1, old.dtype), np.ones(1, old.dtype)
    return np.where(old >= limit, zero, old + one)


def _decrement(old: Array, limit: Array) -> Array:
    return np.where((old == 0) | (old > limit), limit, old - np.ones(1, old.dtype))


def _exchange(old: Array, new: Array) -> Array:
    return new


def _compare_and_swap(old: Array, expected: Array, new: Array) -> Array:
    return np.where(old == expected, new, old)


_COMBINE: Final[dict[str, Combine]] = {
    "add": np.add,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "inc": _increment,
    "dec": _decrement,
    "exch": _exchange,
    "cas": _compare_and_swap,
}


def lower_atomic(lowering: Lowering, instruction: Instruction) -> Operation:
    """``atom`` and ``red``."""
    scalar = scalar_of(instruction.modifiers)
    name = next((word for word in instruction.modifiers if word in _COMBINE), None)
    if scalar is None or name is None:
        raise lowering.unsupported("this atomic operation is not known")
    packed = scalar.is_pair
    held = SCALARS["b32"] if packed else scalar
    operands = list(instruction.operands)
    target = lowering.target(operands.pop(0), held) if instruction.opcode == "atom" else None
    source, offset = address_source(lowering, operands.pop(0))
    if len(operands) != (2 if name == "cas" else 1):
        raise lowering.unsupported("this form of the instruction is not known")
    values = [lowering.source(operand, held) for operand in operands]
    locate, place, step = LOCATE[space_of(instruction)], instruction.place, wrapped(offset)
    combine = _in_halves(_COMBINE[name], scalar.dtype) if packed else _COMBINE[name]

    def run(group: Group) -> None:
        pieces = locate(group, read_address(group, source, step), scalar.size, place, True)
        given = [group.spread(read(group, value)) for value in values]
        old = np.empty(group.count, held.dtype)
        for piece in pieces:
            positions = slice(None) if piece.positions is None else piece.positions
            _note(group, piece, scalar.size, place)
            array, indices = piece.area.elements(piece.offsets, held.dtype)
            indices = np.broadcast_to(indices, old[positions].shape)
            old[positions] = update(array, indices, combine, *[value[positions] for value in given])
        write(group, target, old)

    return run


def _in_halves(combine: Combine, dtype: Any) -> Combine:
    """Make a function of 32-bit words that applies `combine` to both halves, as floats of `dtype`."""

    def halves(old: Array, value: Array) -> Array:
        pairs = np.ascontiguousarray(old).view(dtype), np.ascontiguousarray(value).view(dtype)
        return np.asarray(combine(*pairs)).view(np.uint32)

    return halves


def _note(group: Group, piece: Piece, size: int, place: Place) -> None:
    area = piece.area
    threads = group.count if piece.positions is None else len(piece.positions)
    area.traffic.count_read(size * threads)
    area.traffic.count_written(size * threads)
    if area.shadow is None:
        return
    conflict = area.shadow.atomic(*stamps_of(group, piece, size))
    if conflict is not None:
        raise_race(group, piece, size, place, "accesses atomically", conflict)
    if area is not group.batch.shared:
        # From now on, accesses of these threads' blocks are ordered behind all that another block has accessed before
        # its last fence.
        clock = group.batch.launch.clock
        numbers = group.identities if piece.positions is None else group.identities[piece.positions]
        clock.looks[numbers >> 11] = clock.tick()


def update(array: Array, indices: Array, combine: Combine, *values: Array) -> Array:
    """Combine elements of an array with values in place, thread by thread; return the old element for each thread."""
    order = np.argsort(indices, kind="stable")
    sorted_indices = indices[order]
    begins = np.flatnonzero(np.concatenate([[True], sorted_indices[1:] != sorted_indices[:-1]]))
    lengths = np.diff(np.append(begins, len(indices)))
    found = np.empty(len(indices), array.dtype)
    chosen = [value[order] for value in values]
    if isinstance(combine, np.ufunc) and len(begins) < int(lengths.max()):
        _by_address(array, sorted_indices, begins, lengths, combine, chosen[0], found)
    else:
        _by_rounds(array, sorted_indices, begins, lengths, combine, chosen, found)
    result = np.empty_like(found)
    result[order] = found
    return result


def _by_address(
    array: Array, indices: Array, begins: Array, lengths: Array, combine: np.ufunc, values: Array, found: Array
) -> None:
    """Combine values at few addresses: address by address, the values of all its threads together."""
    for begin, length in zip(begins.tolist(), lengths.tolist(), strict=True):
        index = indices[begin]
        steps = combine.accumulate(np.concatenate([array[index : index + 1], values[begin : begin + length]]))
        found[begin : begin + length] = steps[:-1]
        array[index] = steps[-1]


def _by_rounds(
    array: Array, indices: Array, begins: Array, lengths: Array, combine: Combine, values: list[Array], found: Array
) -> None:
    """Combine values at many addresses: in each round, the value of one thread at each address."""
    for number in range(int(lengths.max())):
        positions = begins[lengths > number] + number
        where = indices[positions]
        old = array[where]
        found[positions] = old
        array[where] = combine(old, *[value[positions] for value in values])
