"""Instructions at which the threads of a warp or of a block meet.

A *gate* is such an instruction.  Threads wait at a gate until all that must meet are there; see `execution`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np

from .faults import BarrierError, Place
from .groups import WARP, Group
from .integer_instructions import typed
from .lowering import PREDICATE, Lowering, Source, Target, read, write
from .statements import Immediate, Instruction, Vector
from .types import SCALARS, Array

_U32: Final = SCALARS["u32"]
_FIVE_BITS: Final = np.uint32(31)


class WarpGate(NamedTuple):
    """An instruction for which some threads of a warp meet.

    Attributes:
        mask: the bits of these threads.
        operation: runs when all these threads, except those that have ended, are there.
    """

    mask: Source
    operation: Callable[[Group], None]
    place: Place

    def pass_through(self, group: Group) -> None:
        """Run the operation for threads that wait for no other, and note that they have synchronised."""
        self.operation(group)
        clock = group.batch.launch.clock
        clock.synced[group.lanes] = clock.tick()

    def missing(self, group: Group) -> Array | None:
        """Whether each thread has to wait for another; None if none has to.

        Raises:
            BarrierError: if a thread's mask does not contain the thread itself.
        """
        masks = group.spread(read(group, self.mask))
        bits = np.uint32(1) << (group.lanes & 31).astype(np.uint32)
        outside = (masks & bits) == 0
        if outside.any():
            position = int(np.argmax(outside))
            reason = f"the mask {int(masks[position]):#010x} does not include the thread that executes the instruction"
            raise group.fault(BarrierError, self.place, [position], reason)
        if group.count == group.batch.living:
            return None
        wanted = masks & group.batch.living_in_warps().take(group.lanes >> 5)
        absent = (wanted & ~warp_bits(group, np.ones(1, bool))) != 0
        return absent if absent.any() else None


class BlockGate(NamedTuple):
    """A barrier, for which all or some threads of a block meet.

    Attributes:
        members: the number of threads that meet; None for all that have not ended.
        reduction: the kind, the result and the predicate of a reduction; None without one.
    """

    members: Source | None
    reduction: tuple[str, Target | None, Source] | None
    place: Place

    def pass_through(self, group: Group) -> None:
        """Run the reduction, if any, for threads that wait for no other, and note the time of their blocks' barrier."""
        if self.reduction is not None:
            self._reduce(group, *self.reduction)
        batch = group.batch
        clock = batch.launch.clock
        now = clock.tick()
        if group.count == batch.living:
            clock.barriers[batch.first : batch.first + batch.blocks] = now
        else:
            clock.barriers[batch.first + group.blocks] = now

    def _reduce(self, group: Group, kind: str, target: Target | None, source: Source) -> None:
        holds = group.spread(read(group, source))
        counts = np.bincount(group.blocks, holds, group.batch.blocks).take(group.blocks)
        everybody = np.bincount(group.blocks, minlength=group.batch.blocks).take(group.blocks)
        if kind == "popc":
            write(group, target, counts.astype(np.uint32))
        else:
            write(group, target, counts == everybody if kind == "and" else counts > 0)

    def missing(self, group: Group) -> Array | None:
        """Whether each thread has to wait for another; None if none has to."""
        if group.count == group.batch.living and self.members is None:
            return None
        here = np.bincount(group.blocks, minlength=group.batch.blocks)
        if self.members is None:
            absent = here.take(group.blocks) != group.batch.living_in_blocks().take(group.blocks)
        else:
            absent = here.take(group.blocks) < group.spread(read(group, self.members))
        return absent if absent.any() else None


Gate = WarpGate | BlockGate


# Helpers


def in_warps(group: Group, values: Array, fill: Any = 0) -> Array:
    """Spread the group's values over all lanes of the batch, with `fill` at lanes outside the group."""
    lanes = len(group.batch.alive)
    values = group.spread(values)
    if group.count == lanes:
        return values
    every = np.full(lanes, fill, values.dtype)
    every[group.lanes] = values
    return every


def warp_bits(group: Group, holds: Array) -> Array:
    """For each thread, the bits of the threads of its warp, in the group, for which `holds` is true."""
    every = in_warps(group, holds, False).reshape(-1, WARP)
    bits = np.bitwise_or.reduce(every.astype(np.uint32) << np.arange(WARP, dtype=np.uint32), axis=1)
    return np.asarray(bits.take(group.lanes >> 5))


# Instructions


def lower_shuffle(lowering: Lowering, instruction: Instruction) -> WarpGate:
    """``shfl.sync``."""
    if "sync" not in instruction.modifiers:
        raise lowering.unsupported("only shfl.sync is known")
    mode = instruction.modifiers[1]
    results, value, amount, clamp, members = instruction.operands
    parts = results.parts if isinstance(results, Vector) else (results,)
    sources = [lowering.source(operand, _U32) for operand in (value, amount, clamp)]
    mask = lowering.source(members, _U32)
    target = lowering.target(parts[0], _U32)
    valid = lowering.target(parts[1], PREDICATE) if len(parts) > 1 else None

    def run(group: Group) -> None:
        values, amounts, clamps = (read(group, source) for source in sources)
        lane = (group.lanes & 31).astype(np.uint32)
        chosen, inside = _source_lane(mode, lane, amounts & _FIVE_BITS, clamps)
        index = (group.lanes & ~31) + np.where(inside, chosen, lane)
        # The value of a thread that takes no part is undefined: all bits are 1, which is NaN for floats.
        write(group, target, in_warps(group, values, 0xFFFFFFFF).take(index))
        write(group, valid, inside)

    return WarpGate(mask, run, instruction.place)


def _source_lane(mode: str, lane: Array, amount: Array, clamp: Array) -> tuple[Array, Array]:
    """The lane of the warp from which each thread reads, and whether there is one."""
    segment = (clamp >> np.uint32(8)) & _FIVE_BITS
    last = (lane & segment) | (clamp & _FIVE_BITS & ~segment)
    if mode == "up":
        below = lane.astype(np.int32) - amount.astype(np.int32)
        return below, np.asarray(below >= last.astype(np.int32))
    if mode == "down":
        chosen = lane + amount
    elif mode == "bfly":
        chosen = lane ^ amount
    else:
        chosen = (lane & segment) | (amount & ~segment)
    return chosen, chosen <= last


def lower_vote(lowering: Lowering, instruction: Instruction) -> WarpGate:
    """``vote.sync``."""
    if "sync" not in instruction.modifiers:
        raise lowering.unsupported("only vote.sync is known")
    mode = instruction.modifiers[1]
    target_operand, condition, members = instruction.operands
    source, mask = lowering.source(condition, PREDICATE), lowering.source(members, _U32)
    target = lowering.target(target_operand, _U32 if mode == "ballot" else PREDICATE)

    def run(group: Group) -> None:
        masks = read(group, mask)
        holds = warp_bits(group, read(group, source)) & masks
        everybody = warp_bits(group, np.ones(1, bool)) & masks
        if mode == "ballot":
            write(group, target, holds)
        elif mode == "any":
            write(group, target, holds != 0)
        else:
            all_hold = holds == everybody
            write(group, target, all_hold if mode == "all" else all_hold | (holds == 0))

    return WarpGate(mask, run, instruction.place)


def _sets(group: Group, mask: Source) -> tuple[Array, int]:
    """Return, for each thread, the number of the set of threads with which it meets, and the number of sets."""
    keys = (group.lanes >> 5 << 32) | group.spread(read(group, mask)).astype(np.int64)
    known, numbers = np.unique(keys, return_inverse=True)
    return numbers, len(known)


def lower_match(lowering: Lowering, instruction: Instruction) -> WarpGate:
    """``match.any.sync`` and ``match.all.sync``."""
    scalar = typed(lowering, instruction)
    results, value, members = instruction.operands
    parts = results.parts if isinstance(results, Vector) else (results,)
    source, mask = lowering.source(value, scalar), lowering.source(members, _U32)
    target = lowering.target(parts[0], _U32)
    valid = lowering.target(parts[1], PREDICATE) if len(parts) > 1 else None
    finds_all = "all" in instruction.modifiers

    def run(group: Group) -> None:
        values = group.spread(read(group, source))
        numbers, _ = _sets(group, mask)
        keys = np.stack([numbers.astype(np.uint64), values.astype(np.uint64)])
        same = np.unique(keys, axis=1, return_inverse=True)[1].reshape(-1)
        bits = np.uint32(1) << (group.lanes & 31).astype(np.uint32)
        per_set = np.zeros(int(same.max()) + 1, np.uint32)
        np.bitwise_or.at(per_set, same, bits)
        found = per_set.take(same)
        if finds_all:
            everybody = warp_bits(group, np.ones(1, bool)) & read(group, mask)
            agree = found == everybody
            found = np.where(agree, found, np.uint32(0))
            write(group, valid, agree)
        write(group, target, found)

    return WarpGate(mask, run, instruction.place)


_REDUCE: Final[dict[str, np.ufunc]] = {
    "add": np.add,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}


def lower_reduce(lowering: Lowering, instruction: Instruction) -> WarpGate:
    """``redux.sync`` of integers."""
    scalar = typed(lowering, instruction)
    function = next((_REDUCE[word] for word in instruction.modifiers if word in _REDUCE), None)
    if function is None or scalar.kind == "float":
        raise lowering.unsupported("this reduction is not known")
    target_operand, value, members = instruction.operands
    source, mask = lowering.source(value, scalar), lowering.source(members, _U32)
    target = lowering.target(target_operand, scalar)
    # The neutral elements of reductions.
    bounds = np.iinfo(scalar.dtype)
    begin = {"min": bounds.max, "max": bounds.min, "and": ~scalar.dtype.type(0)}
    first = next((begin[word] for word in instruction.modifiers if word in begin), 0)

    def run(group: Group) -> None:
        numbers, count = _sets(group, mask)
        totals = np.full(count, first, scalar.dtype)
        function.at(totals, numbers, group.spread(read(group, source)))
        write(group, target, totals.take(numbers))

    return WarpGate(mask, run, instruction.place)


def lower_elect(lowering: Lowering, instruction: Instruction) -> WarpGate:
    """Lower ``elect.sync``, which elects the lowest of the participating threads."""
    results, members = instruction.operands
    parts = results.parts if isinstance(results, Vector) else (results,)
    mask = lowering.source(members, _U32)
    target = lowering.target(parts[0], _U32)
    leads = lowering.target(parts[1], PREDICATE) if len(parts) > 1 else None

    def run(group: Group) -> None:
        everybody = warp_bits(group, np.ones(1, bool)) & read(group, mask)
        lowest = np.bitwise_count((everybody & (~everybody + np.uint32(1))) - np.uint32(1)).astype(np.uint32)
        write(group, target, lowest)
        write(group, leads, lowest == (group.lanes & 31))

    return WarpGate(mask, run, instruction.place)


def lower_barrier(lowering: Lowering, instruction: Instruction) -> Gate:
    """Lower ``bar`` and ``barrier``, which let the threads of a warp or of a block meet."""
    words = instruction.modifiers
    operands = list(instruction.operands)
    if "warp" in words:
        return WarpGate(lowering.source(operands[0], _U32), lambda group: None, instruction.place)
    if "red" in words:
        kind = next(word for word in words if word in ("popc", "and", "or"))
        target = lowering.target(operands.pop(0), _U32 if kind == "popc" else PREDICATE)
        source = lowering.source(operands.pop(), PREDICATE)
        reduction = (kind, target, source)
    elif "sync" in words:
        reduction = None
    else:
        raise lowering.unsupported("threads that arrive at a barrier without waiting are not known")
    if not isinstance(operands[0], Immediate) or operands[0].bits is not None:
        raise lowering.unsupported("the number of a barrier must be a constant integer")
    count = lowering.source(operands[1], _U32) if len(operands) > 1 else None
    return BlockGate(count, reduction, instruction.place)
