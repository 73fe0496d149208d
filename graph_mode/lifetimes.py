"""The steps at which the buffers of a graph are needed, and the bytes alive at each step."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Final

import attrs

# In bytes: a cache line of most processors, and the width of AVX-512's registers.
ALIGNMENT: Final = 64


@attrs.frozen
class Buffer:
    """Memory that is needed during some steps.

    Attributes:
        id: its name in the layout.
        nbytes: its size; may be zero.
        first: the step of the execution order that produces it.
        last: the last step that needs it; `first` if there is none.
        shares: the id of the buffer whose memory it takes over, in the last step of that buffer; None for no buffer.
    """

    id: int
    nbytes: int
    first: int
    last: int
    shares: int | None = None


@attrs.frozen
class Moment:
    """The buffers that begin and end at one step.

    Attributes:
        step: the step of the execution order.
        nbytes: the bytes alive at this step, as for `lower_bound`; those of ending buffers are included.
        begin: the ids of the buffers that are needed from this step on.
        end: the ids of the buffers that are needed at this step for the last time.
    """

    step: int
    nbytes: int
    begin: tuple[int, ...]
    end: tuple[int, ...]


@attrs.frozen
class Op:
    """The use of memory by a step of the execution order.

    Attributes:
        inputs: the ids of the buffers that it reads, by position.
        outputs: the ids of the buffers that it writes, by position.
        may_share: pairs of an input's and an output's position: the kernel also works if both are the same memory.
    """

    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    may_share: tuple[tuple[int, int], ...] = ()


@attrs.frozen
class Block:
    """A buffer with all buffers that take over its memory, one after the other."""

    size: int
    first: int
    last: int
    ids: tuple[int, ...]


def aligned(nbytes: int, alignment: int) -> int:
    return -(-nbytes // alignment) * alignment


def checked_alignment(alignment: int) -> int:
    if alignment < 1:
        raise ValueError(f"the alignment must be at least 1 byte, but is {alignment}")
    return alignment


def blocks_of(buffers: Iterable[Buffer], alignment: int) -> list[Block]:
    """The blocks in an order that does not depend on the sequence of the buffers."""
    checked_alignment(alignment)
    by_id = _by_id(buffers)
    heirs = _heirs(by_id)
    blocks: list[Block] = []
    for buffer in by_id.values():
        if buffer.shares is None:
            chain = list(_chain(buffer, heirs))
            size = max(aligned(member.nbytes, alignment) for member in chain)
            blocks.append(Block(size, buffer.first, chain[-1].last, tuple(member.id for member in chain)))
    return sorted(blocks, key=lambda block: (block.first, -block.size, block.last, block.ids))


def _by_id(buffers: Iterable[Buffer]) -> dict[int, Buffer]:
    by_id: dict[int, Buffer] = {}
    for buffer in buffers:
        if buffer.nbytes < 0:
            raise ValueError(f"the size of a buffer must not be negative: {buffer}")
        if buffer.last < buffer.first:
            raise ValueError(f"a buffer must be needed until its first step at least: {buffer}")
        if buffer.id in by_id:
            raise ValueError(f"two buffers have the id {buffer.id}: {by_id[buffer.id]} and {buffer}")
        by_id[buffer.id] = buffer
    return by_id


def _heirs(by_id: Mapping[int, Buffer]) -> dict[int, Buffer]:
    """By id of a buffer, the buffer that takes over its memory."""
    heirs: dict[int, Buffer] = {}
    for buffer in by_id.values():
        if buffer.shares is None:
            continue
        giver = by_id.get(buffer.shares)
        if giver is None:
            raise ValueError(f"{buffer} shares the memory of an unknown buffer")
        if giver.last != buffer.first:
            raise ValueError(
                f"{buffer} must begin at step {giver.last}, the last step that needs the buffer it takes over: {giver}"
            )
        if giver.first == giver.last:
            # Refused: both buffers would be results of one op, and an op does not read its own results.
            raise ValueError(f"{buffer} must begin after the buffer it takes over: {giver}")
        if giver.id in heirs:
            raise ValueError(f"{heirs[giver.id]} and {buffer} cannot both take over the memory of {giver}")
        heirs[giver.id] = buffer
    return heirs


def _chain(buffer: Buffer, heirs: Mapping[int, Buffer]) -> Iterator[Buffer]:
    """The buffer, the one that takes over its memory, the one after that, and so on."""
    heir: Buffer | None = buffer
    while heir is not None:
        yield heir
        heir = heirs.get(heir.id)


# Bytes alive at each step


def lower_bound(buffers: Iterable[Buffer], alignment: int = ALIGNMENT) -> int:
    """The most bytes alive at one step; no layout with this alignment needs less.

    Args:
        buffers: the buffers of the layout.  Buffers that share memory count once, with the largest size.
        alignment: sizes are rounded up to multiples of this number of bytes.

    Raises:
        ValueError: for invalid buffers or an alignment below 1; see `plan`.
    """
    return peak_of(blocks_of(buffers, alignment))


def timeline(buffers: Iterable[Buffer], alignment: int = ALIGNMENT) -> list[Moment]:
    """The steps at which buffers begin or end, with the bytes alive at each.

    Args:
        buffers: as for `plan`.
        alignment: sizes are rounded up to multiples of this number of bytes.

    Raises:
        ValueError: for invalid buffers or an alignment below 1; see `plan`.
    """
    known = sorted(buffers, key=lambda buffer: buffer.id)
    begin: dict[int, list[int]] = {}
    end: dict[int, list[int]] = {}
    for buffer in known:
        begin.setdefault(buffer.first, []).append(buffer.id)
        end.setdefault(buffer.last, []).append(buffer.id)
    steps, live = pressure_of(blocks_of(known, alignment))
    return [
        Moment(step, live[bisect_right(steps, step) - 1], tuple(begin.get(step, ())), tuple(end.get(step, ())))
        for step in sorted(begin.keys() | end.keys())
    ]


def pressure_of(blocks: Iterable[Block]) -> tuple[list[int], list[int]]:
    """Return the steps at which blocks begin or have just ended, ascending, and the bytes alive from each step on."""
    changes: dict[int, int] = {}
    for block in blocks:
        changes[block.first] = changes.get(block.first, 0) + block.size
        changes[block.last + 1] = changes.get(block.last + 1, 0) - block.size
    steps = sorted(changes)
    return steps, list(accumulate(changes[step] for step in steps))


def peak_of(blocks: Iterable[Block]) -> int:
    return max(pressure_of(blocks)[1], default=0)


# From ops to buffers


def lifetimes(
    ops: Sequence[Op],
    nbytes: Mapping[int, int],
    pinned: Collection[int] = (),
    last_uses: Mapping[int, int] | None = None,
    shares: Mapping[int, int] | None = None,
) -> list[Buffer]:
    """The buffers that ops produce, with the steps that need them, for `memory_planning.plan`.

    Args:
        ops: in the order in which they run; step 0 is the first.
        nbytes: the size of each buffer, by id.
        pinned: buffers that have memory of their own: variables, and inputs and outputs of the graph.
        last_uses: by buffer, the last step that needs it, where that is later than its last reader among the ops.
        shares: by buffer, the buffer whose memory it takes over, from `choose_in_place`.

    Returns:
        A buffer for each output that is not pinned.  Buffers that no op produces have memory of their own, too, and
        are left out.

    Raises:
        ValueError: for a result of unknown size that is not pinned, a buffer that is produced twice, or one that its
            producer or an earlier op reads.
    """
    producers = producers_of(ops)
    last = _last_uses(ops, producers, last_uses)
    own = frozenset(pinned)
    taken = {} if shares is None else shares
    return [
        Buffer(name, size_of(nbytes, name), step, last[name], taken.get(name))
        for name, step in producers.items()
        if name not in own
    ]


def producers_of(ops: Sequence[Op]) -> dict[int, int]:
    """By buffer, the step that produces it, if any; raises ValueError for ops that could not run in this order."""
    producers: dict[int, int] = {}
    for step, op in enumerate(ops):
        for name in op.outputs:
            if name in producers:
                raise ValueError(f"buffer {name} is produced twice, by op {producers[name]} and by op {step}")
            producers[name] = step
    for step, op in enumerate(ops):
        for name in op.inputs:
            if producers.get(name, -1) >= step:
                raise ValueError(
                    f"op {step} reads buffer {name}, which op {producers[name]} produces only then or later"
                )
    return producers


def _last_uses(ops: Sequence[Op], producers: Mapping[int, int], others: Mapping[int, int] | None) -> dict[int, int]:
    last = dict(producers)
    for step, op in enumerate(ops):
        for name in op.inputs:
            if name in last:
                last[name] = step
    for name, step in ({} if others is None else others).items():
        if name in last:
            last[name] = max(last[name], step)
    return last


def size_of(nbytes: Mapping[int, int], name: int) -> int:
    try:
        return nbytes[name]
    except KeyError:
        raise ValueError(f"the size of buffer {name} is not given") from None
