"""Which outputs of a graph's ops take over the memory of an input."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import pairwise

import attrs

from .lifetimes import ALIGNMENT, Block, Buffer, Op, aligned, blocks_of, checked_alignment, lifetimes, pressure_of


def choose_in_place(
    ops: Sequence[Op],
    nbytes: Mapping[int, int],
    pinned: Collection[int] = (),
    last_uses: Mapping[int, int] | None = None,
    alignment: int = ALIGNMENT,
) -> dict[int, int]:
    """Choose which outputs take over the memory of an input.

    An input may be taken over if the op allows that at each position at which it reads the input, if no later op reads
    it, if neither it nor the output is pinned, and if it is at least as large as the output.  Those that save most come
    first.  An output smaller than the memory it takes over keeps all of that from being used otherwise; so those of the
    same size are chosen before, and such a one only where it does not raise the most bytes that live at a step.

    Args:
        ops: in the order in which they run.
        nbytes: the size of each buffer, by id.
        pinned: buffers that have memory of their own: variables, and inputs and outputs of the graph.
        last_uses: the last step that needs a buffer, where that is later than its last reader among the ops.
        alignment: to which sizes are rounded up, in bytes.

    Returns:
        For each output that shares the input whose memory it takes over, by id: the `shares` of its `Buffer`.

    Raises:
        ValueError: as `lifetimes`, and for `may_share` of positions that the op does not have.
    """
    checked_alignment(alignment)
    buffers = {lifetime.id: lifetime for lifetime in lifetimes(ops, nbytes, pinned, last_uses)}
    sizes = {name: aligned(buffer.nbytes, alignment) for name, buffer in buffers.items()}
    pairs = [
        (sizes[output], step, giver, output)
        for step, op in enumerate(ops)
        for giver, output in _sharable(op, step)
        if giver in buffers and output in buffers and buffers[giver].last == step and sizes[giver] >= sizes[output] > 0
    ]
    pairs.sort(key=lambda pair: (-pair[0], pair[1]))
    shares: dict[int, int] = {}
    given: set[int] = set()

    # Of the same size: less lives at that step, and nowhere more.
    for size, _, giver, output in pairs:
        if sizes[giver] == size and output not in shares and giver not in given:
            shares[output] = giver
            given.add(giver)

    _share_larger(
        buffers, [pair for pair in pairs if pair[3] not in shares and pair[2] not in given], shares, alignment
    )
    return shares


def _share_larger(
    buffers: Mapping[int, Buffer], pairs: Iterable[tuple[int, int, int, int]], shares: dict[int, int], alignment: int
) -> None:
    """Add to `shares` the pairs whose output is smaller than the memory it takes over, where that raises no peak."""
    blocks = blocks_of((attrs.evolve(buffer, shares=shares.get(buffer.id)) for buffer in buffers.values()), alignment)
    # What an id belongs to changes when blocks become one: all follow the first id of theirs.
    sizes, ends = {block.ids[0]: block.size for block in blocks}, {block.ids[0]: block.last for block in blocks}
    leaders = {name: block.ids[0] for block in blocks for name in block.ids}
    live = _live_by_step(blocks)
    peak = max(live, default=0)
    given = set(shares.values())
    for size, step, giver, output in pairs:
        if output in shares or giver in given:
            continue
        leader, end = _leader(leaders, giver), ends[output]
        waste = sizes[leader] - size
        if max(live[step + 1 : end + 1], default=0) + waste > peak:
            continue
        live[step] -= size
        for later in range(step + 1, end + 1):
            live[later] += waste
        ends[leader] = end
        leaders[output] = leader
        shares[output] = giver
        given.add(giver)


def _leader(leaders: dict[int, int], name: int) -> int:
    while leaders[name] != name:
        # Shortened on the way, for those who come later.
        leaders[name] = name = leaders[leaders[name]]
    return name


def _live_by_step(blocks: Iterable[Block]) -> list[int]:
    """The bytes that live at step 0, 1, ..."""
    steps, live = pressure_of(blocks)
    found = [0] * (steps[0] if steps else 0)
    for nbytes, (step, following) in zip(live, pairwise(steps), strict=False):
        found += [nbytes] * (following - step)
    return found


def _sharable(op: Op, step: int) -> list[tuple[int, int]]:
    """The pairs of ids, of an input and an output, that may be one memory."""
    allowed = set(op.may_share)
    for given, taken in op.may_share:
        if not (0 <= given < len(op.inputs) and 0 <= taken < len(op.outputs)):
            raise ValueError(
                f"op {step} has no input {given} or no output {taken}, which are said to be sharable: {op}"
            )
    return [
        (op.inputs[given], op.outputs[taken])
        for given, taken in dict.fromkeys(op.may_share)
        if all((at, taken) in allowed for at, name in enumerate(op.inputs) if name == op.inputs[given])
    ]
