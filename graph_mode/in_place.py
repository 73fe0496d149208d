"""Chooses outputs of a graph's ops that take over the memory of an input, as in-place ops do."""

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
    """Choose the outputs that take over the memory of an input.

    An input may be taken over if an op made it, if the output's op allows this at each of the input's positions, if no
    later step needs it, if neither input nor output is pinned, and if it is at least as large as the output, which is
    not empty.  An output smaller than its input keeps the rest of the memory from other uses; so pairs of equal size
    are chosen first, and others only if they do not raise the peak of memory.

    Args:
        ops: the ops, in the order in which they run.
        nbytes: the size of each buffer, by id.
        pinned: buffers that have memory of their own: variables, and inputs and outputs of the graph.
        last_uses: by buffer, the last step that needs it, where that step is later than the last op that reads it.
        alignment: sizes are rounded up to multiples of this number of bytes.

    Returns:
        By output, the input whose memory it takes over: the `shares` of its `Buffer`.

    Raises:
        ValueError: as in `lifetimes`; for an alignment below 1, or `may_share` of positions that the op does not have.
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
    taken: set[int] = set()

    # Pairs of equal size lower the bytes alive at the op's step, and do not raise them at any other step.
    for size, _, giver, output in pairs:
        if sizes[giver] == size and output not in shares and giver not in taken:
            shares[output] = giver
            taken.add(giver)

    _share_larger(
        buffers, [pair for pair in pairs if pair[3] not in shares and pair[2] not in taken], shares, alignment
    )
    return shares


def _share_larger(
    buffers: Mapping[int, Buffer], pairs: Iterable[tuple[int, int, int, int]], shares: dict[int, int], alignment: int
) -> None:
    """Add to `shares` those pairs of a smaller output and a larger input that do not raise the peak of memory."""
    blocks = blocks_of((attrs.evolve(buffer, shares=shares.get(buffer.id)) for buffer in buffers.values()), alignment)
    # Blocks that come to share memory are joined: `leaders` leads from each of a block's ids towards the first id of
    # the joined blocks; see `_leader`.
    sizes, ends = {block.ids[0]: block.size for block in blocks}, {block.ids[0]: block.last for block in blocks}
    leaders = {name: block.ids[0] for block in blocks for name in block.ids}
    live = _live_by_step(blocks)
    peak = max(live, default=0)
    taken = set(shares.values())
    for size, step, giver, output in pairs:
        if output in shares or giver in taken:
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
        taken.add(giver)


def _leader(leaders: dict[int, int], name: int) -> int:
    while leaders[name] != name:
        # Shorten the path for later lookups.
        leaders[name] = name = leaders[leaders[name]]
    return name


def _live_by_step(blocks: Iterable[Block]) -> list[int]:
    """Return a list of the bytes alive at step 0, 1, and so on."""
    steps, live = pressure_of(blocks)
    by_step = [0] * (steps[0] if steps else 0)
    for nbytes, (step, following) in zip(live, pairwise(steps), strict=False):
        by_step += [nbytes] * (following - step)
    return by_step


def _sharable(op: Op, step: int) -> list[tuple[int, int]]:
    """Return the pairs (id of an input, id of an output) of an op that may share memory, by its `may_share`."""
    allowed = set(op.may_share)
    for read, made in op.may_share:
        if not (0 <= read < len(op.inputs) and 0 <= made < len(op.outputs)):
            raise ValueError(
                f"op {step} has no input {read} or no output {made}, which its may_share names as sharable: {op}"
            )
    return [
        (op.inputs[read], op.outputs[made])
        for read, made in dict.fromkeys(op.may_share)
        if all((at, made) in allowed for at, name in enumerate(op.inputs) if name == op.inputs[read])
    ]
