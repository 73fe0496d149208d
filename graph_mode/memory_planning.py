"""Where the registers of a compiled graph lie in memory: from lifetimes to offsets.  Nothing here runs or allocates.

A graph runs in a fixed order, so that it is known beforehand from which step to which each buffer is needed.  Buffers
that are never needed at the same step may have the same memory.  Finding the smallest memory is hard (NP-complete), and
a greedy placement is mostly within a few percent of it.  So `plan` tries several: buffers are placed one after the other,
ordered by size, lifetime, size x lifetime, first or last step, or by how full memory gets while they live, each into the
first or the smallest gap that is free for its whole lifetime.  The smallest layout wins.  If it is larger than the most
bytes that live at one step, which nothing can undercut, a local search shuffles the order for a limited number of steps.

What may be relied on:

- Buffers needed at the same step never overlap, except that one which `shares` another's memory lies exactly upon it.
  `check` verifies that independently of how the layout came about.
- Offsets and the total are multiples of the alignment.  The total is at least `lower_bound`, and at most the sum of
  all sizes.  No strategy promises more; more strategies or search steps never make it larger.
- The same buffers, in whatever sequence, give the same layout: no clock, no hash order, and the search is seeded.
- The time is bounded by the number of buffers, not by luck: see `plan`.

Before lifetimes come the order and the sharing.  `execution_order` reorders the ops so that less lives at a time, and
never more than in the given order.  `choose_in_place` lets outputs take over the memory of inputs that end there.
`lifetimes` turns both into buffers.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush
from itertools import accumulate, pairwise
from random import Random
from typing import Final, Literal

import attrs

# A cache line, and as wide as any vector unit.
ALIGNMENT: Final = 64

# How many placed blocks may be looked at in all strategies together, and again in the search: half a second or so each.
_VISITS: Final = 15_000_000


class BadLayout(ValueError):
    """A layout puts buffers where they must not be.

    Attributes:
        pair: the ids of the two buffers concerned; twice the same where the place is wrong in itself.
    """

    def __init__(self, message: str, pair: tuple[int, int]) -> None:
        super().__init__(message)
        self.pair = pair


@attrs.frozen
class Buffer:
    """Memory that is needed for a while.

    Attributes:
        id: what it is called in the layout.
        nbytes: its size; may be zero.
        first: the step of the execution order that produces it.
        last: the last step that needs it; the same as `first` if none does.
        shares: the id of the buffer whose memory it takes over in place, in the last step of that one.
    """

    id: int
    nbytes: int
    first: int
    last: int
    shares: int | None = None


@attrs.frozen
class Layout:
    """A place for each buffer.

    Attributes:
        offsets: the byte at which each buffer begins, by its id.
        nbytes: how large the memory has to be.
        strategy: how it was found.
    """

    offsets: dict[int, int] = attrs.field(repr=lambda offsets: f"<of {len(offsets)} buffers>")
    nbytes: int
    strategy: str


@attrs.frozen
class Moment:
    """What changes at one step.

    Attributes:
        step: of the execution order.
        nbytes: live at this step, those that end here included; memory that is taken over counts once.
        begin: the ids of the buffers that are needed from here on.
        end: the ids of the buffers that are needed for the last time.
    """

    step: int
    nbytes: int
    begin: tuple[int, ...]
    end: tuple[int, ...]


@attrs.frozen
class Op:
    """A step of the execution order, as far as memory is concerned.

    Attributes:
        inputs: the ids of the buffers it reads, by position.
        outputs: the ids of the buffers it writes, by position.
        may_share: (position of an input, position of an output): the kernel works also if the two are the same memory.
    """

    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    may_share: tuple[tuple[int, int], ...] = ()


# Buffers that share become one block.


@attrs.frozen
class _Block:
    """A buffer with all that take over its memory, one after the other."""

    size: int
    first: int
    last: int
    ids: tuple[int, ...]


def _aligned(nbytes: int, alignment: int) -> int:
    return -(-nbytes // alignment) * alignment


def _checked_alignment(alignment: int) -> int:
    if alignment < 1:
        raise ValueError(f"the alignment must be at least 1 byte, but is {alignment}")
    return alignment


def _blocks(buffers: Iterable[Buffer], alignment: int) -> list[_Block]:
    """The blocks in an order that does not depend on the sequence of the buffers."""
    _checked_alignment(alignment)
    by_id = _by_id(buffers)
    heirs = _heirs(by_id)
    blocks: list[_Block] = []
    for buffer in by_id.values():
        if buffer.shares is None:
            chain = list(_chain(buffer, heirs))
            size = max(_aligned(it.nbytes, alignment) for it in chain)
            blocks.append(_Block(size, buffer.first, chain[-1].last, tuple(it.id for it in chain)))
    if sum(len(block.ids) for block in blocks) < len(by_id):
        reached = {name for block in blocks for name in block.ids}
        circle = sorted(name for name in by_id if name not in reached)
        raise ValueError(f"the buffers {circle} share each other's memory in a circle: one must have its own")
    return sorted(blocks, key=lambda block: (block.first, -block.size, block.last, block.ids))


def _by_id(buffers: Iterable[Buffer]) -> dict[int, Buffer]:
    found: dict[int, Buffer] = {}
    for buffer in buffers:
        if buffer.nbytes < 0:
            raise ValueError(f"the size of a buffer must not be negative: {buffer}")
        if buffer.last < buffer.first:
            raise ValueError(f"a buffer must be needed until its first step at least: {buffer}")
        if buffer.id in found:
            raise ValueError(f"two buffers are called {buffer.id}: {found[buffer.id]} and {buffer}")
        found[buffer.id] = buffer
    return found


def _heirs(by_id: Mapping[int, Buffer]) -> dict[int, Buffer]:
    """Who takes over the memory of which buffer."""
    heirs: dict[int, Buffer] = {}
    for buffer in by_id.values():
        if buffer.shares is None:
            continue
        giver = by_id.get(buffer.shares)
        if giver is None:
            raise ValueError(f"{buffer} shares the memory of a buffer that is not among those given")
        if giver.last != buffer.first:
            raise ValueError(f"{buffer} must begin at step {giver.last}, the last that needs what it shares: {giver}")
        if giver.id in heirs:
            raise ValueError(f"{heirs[giver.id]} and {buffer} cannot both take over the memory of {giver}")
        heirs[giver.id] = buffer
    return heirs


def _chain(buffer: Buffer, heirs: Mapping[int, Buffer]) -> Iterator[Buffer]:
    """The buffer, its heir, the heir of that one ..."""
    heir: Buffer | None = buffer
    while heir is not None:
        yield heir
        heir = heirs.get(heir.id)


# What lives when


def lower_bound(buffers: Iterable[Buffer], alignment: int = ALIGNMENT) -> int:
    """The most bytes that live at one step: no layout can do with less.

    Args:
        buffers: those that a layout is wanted for.  Those that share memory count once, with the largest size.
        alignment: of each buffer, in bytes.

    Raises:
        ValueError: for buffers that cannot be; see `plan`.
    """
    return _peak(_blocks(buffers, alignment))


def timeline(buffers: Iterable[Buffer], alignment: int = ALIGNMENT) -> list[Moment]:
    """The steps at which buffers begin or end, with the bytes that live there; to be looked at.

    Args:
        buffers: as for `plan`.
        alignment: of each buffer, in bytes.

    Raises:
        ValueError: for buffers that cannot be; see `plan`.
    """
    known = sorted(buffers, key=lambda buffer: buffer.id)
    begin: dict[int, list[int]] = {}
    end: dict[int, list[int]] = {}
    for buffer in known:
        begin.setdefault(buffer.first, []).append(buffer.id)
        end.setdefault(buffer.last, []).append(buffer.id)
    steps, live = _pressure(_blocks(known, alignment))
    return [
        Moment(step, live[bisect_right(steps, step) - 1], tuple(begin.get(step, ())), tuple(end.get(step, ())))
        for step in sorted(begin.keys() | end.keys())
    ]


def _pressure(blocks: Iterable[_Block]) -> tuple[list[int], list[int]]:
    """Steps, ascending, and the bytes that live from each of them until the next."""
    changes: dict[int, int] = {}
    for block in blocks:
        changes[block.first] = changes.get(block.first, 0) + block.size
        changes[block.last + 1] = changes.get(block.last + 1, 0) - block.size
    steps = sorted(changes)
    return steps, list(accumulate(changes[step] for step in steps))


def _peak(blocks: Iterable[_Block]) -> int:
    return max(_pressure(blocks)[1], default=0)


# From blocks to offsets


def plan(
    buffers: Iterable[Buffer],
    strategies: Sequence[str] | None = None,
    search_steps: int = 200,
    alignment: int = ALIGNMENT,
    seed: int = 0,
) -> Layout:
    """Find a place for each buffer, so that those needed at the same step do not overlap.

    With the default arguments this takes about 10 milliseconds for a hundred buffers that do not fit perfectly, and at
    most 2 seconds or so for thousands: where placing all blocks in a certain order would take too long, only the largest
    are placed so, and the others above them in the order of their steps; the search ends sooner.

    Args:
        buffers: in any sequence.
        strategies: what to try, of `STRATEGIES`; None for all.  Later ones are not tried if one reaches the bound.
        search_steps: how many changed orders the local search may try, if the best layout is above the bound.
        alignment: of the offsets and the total, in bytes.
        seed: of the local search.

    Raises:
        ValueError: for a strategy that does not exist, or none; for a negative size or number of steps; for buffers that
            end before they begin, have the same id, or share memory with one that is unknown, that does not end where
            they begin, that is shared already, or in a circle.
    """
    chosen = _checked_strategies(strategies)
    if search_steps < 0:
        raise ValueError(f"the search must take 0 steps or more, not {search_steps}")
    blocks = _blocks(buffers, alignment)
    # Blocks of no size are in nobody's way.
    solid = [block for block in blocks if block.size]
    best = _best(solid, chosen, search_steps, Random(seed)) if solid else _Placement([], 0, chosen[0])
    offsets = {name: 0 for block in blocks for name in block.ids}
    for block, offset in zip(solid, best.offsets, strict=True):
        offsets.update(dict.fromkeys(block.ids, offset))
    return Layout(offsets, best.nbytes, best.strategy)


def _checked_strategies(strategies: Sequence[str] | None) -> Sequence[str]:
    if strategies is None:
        return STRATEGIES
    for name in strategies:
        if name not in STRATEGIES:
            raise ValueError(f"there is no strategy {name!r}, but there are {', '.join(map(repr, STRATEGIES))}")
    if not strategies:
        raise ValueError(f"give at least one strategy, of {', '.join(map(repr, STRATEGIES))}")
    return strategies


def check(layout: Layout, buffers: Iterable[Buffer], alignment: int = ALIGNMENT) -> None:
    """Make sure that a layout can be used for these buffers.

    Args:
        layout: from `plan`, or from anywhere else.
        buffers: all that have to be in it.  Those that share memory must have it whole, as large as the largest of them.
        alignment: of the offsets and of the sizes, in bytes.

    Raises:
        BadLayout: if two buffers overlap, or one is missing, unknown, apart from the one whose memory it shares, not
            aligned or out of bounds.
        ValueError: for buffers that cannot be; see `plan`.
    """
    blocks = _blocks(buffers, alignment)
    missing = layout.offsets.keys() ^ {name for block in blocks for name in block.ids}
    if missing:
        name = min(missing)
        which = "unknown" if name in layout.offsets else "not in the layout"
        raise BadLayout(f"buffer {name} is {which}", (name, name))
    for block in blocks:
        _check_bounds(block, layout, alignment)
    _check_overlaps(blocks, layout)


def _check_bounds(block: _Block, layout: Layout, alignment: int) -> None:
    name = block.ids[0]
    offset = layout.offsets[name]
    for heir in block.ids:
        if layout.offsets[heir] != offset:
            raise BadLayout(
                f"buffer {heir} is at {layout.offsets[heir]}, and not at {offset} with buffer {name}, which it shares",
                (name, heir),
            )
    if offset % alignment:
        raise BadLayout(f"buffer {name} is at {offset}, which is no multiple of {alignment}", (name, name))
    if offset < 0 or offset + block.size > layout.nbytes:
        raise BadLayout(
            f"buffer {name} is at {offset} to {offset + block.size}, outside of the {layout.nbytes} bytes", (name, name)
        )


def _check_overlaps(blocks: Iterable[_Block], layout: Layout) -> None:
    """Step by step, with what lives sorted by offset: what overlaps anything overlaps a neighbour."""
    live: list[tuple[int, int, _Block]] = []
    ends: list[tuple[int, int, int, _Block]] = []
    for number, block in enumerate(sorted((it for it in blocks if it.size), key=lambda block: block.first)):
        while ends and ends[0][0] < block.first:
            _, offset, old, _ = heappop(ends)
            del live[bisect_left(live, (offset, old), key=_place_of)]
        offset = layout.offsets[block.ids[0]]
        at = bisect_left(live, (offset, number), key=_place_of)
        for below in live[max(at - 1, 0) : at]:
            _check_apart(below[2], block, layout)
        for above in live[at : at + 1]:
            _check_apart(block, above[2], layout)
        live.insert(at, (offset, number, block))
        heappush(ends, (block.last, offset, number, block))


def _place_of(entry: tuple[int, int, _Block]) -> tuple[int, int]:
    return entry[0], entry[1]


def _check_apart(below: _Block, above: _Block, layout: Layout) -> None:
    first, second = below.ids[0], above.ids[0]
    end = layout.offsets[first] + below.size
    if end > layout.offsets[second]:
        raise BadLayout(
            f"buffers {first} and {second} overlap: at step {max(below.first, above.first)} both are needed, and the one "
            f"ends at {end}, the other begins at {layout.offsets[second]}",
            (first, second),
        )


@attrs.frozen
class _Placement:
    """Offsets of blocks, by position."""

    offsets: list[int]
    nbytes: int
    strategy: str


def _placement(blocks: Sequence[_Block], offsets: list[int], strategy: str) -> _Placement:
    top = max(offset + block.size for offset, block in zip(offsets, blocks, strict=True))
    return _Placement(offsets, top, strategy)


def _best(blocks: Sequence[_Block], strategies: Sequence[str], search_steps: int, random: Random) -> _Placement:
    bound = _peak(blocks)
    visits = _VISITS // max(1, sum(name in _ORDERED for name in strategies))
    best = _place(strategies[0], blocks, visits)
    for name in strategies[1:]:
        if best.nbytes > bound:
            # The first of equals stays.
            best = min(best, _place(name, blocks, visits), key=lambda placement: placement.nbytes)
    if best.nbytes > bound:
        best = _search(blocks, best, bound, search_steps, random)
    return best


def _place(name: str, blocks: Sequence[_Block], visits: int) -> _Placement:
    """Place the blocks by one strategy, which may look at about `visits` placed ones."""
    if name in _SWEEPS:
        backwards, smallest_gap = _SWEEPS[name]
        return _placement(blocks, _sweep(blocks, range(len(blocks)), backwards, smallest_gap), name)
    ranking, smallest_gap = _ORDERED[name]
    ranks = ranking(blocks)
    order = sorted(range(len(blocks)), key=lambda index: (ranks[index], index))
    at_most = int((2 * visits) ** 0.5)
    if len(order) <= at_most:
        return _placement(blocks, _insert(blocks, order, smallest_gap), name)
    # The others are small, so that a region of their own costs little.
    by_size = sorted(order, key=lambda index: -blocks[index].size)
    large, small = set(by_size[:at_most]), sorted(by_size[at_most:])
    offsets = _insert(blocks, [index for index in order if index in large], smallest_gap)
    floor = max(offsets[index] + blocks[index].size for index in large)
    above = _sweep(blocks, small, False, True)
    for index in small:
        offsets[index] = floor + above[index]
    return _placement(blocks, offsets, name)


def _insert(blocks: Sequence[_Block], order: Iterable[int], smallest_gap: bool, limit: int | None = None) -> list[int]:
    """Place the blocks of this order, each into a gap between those that are placed and live at the same time.

    Args:
        smallest_gap: into the smallest that is large enough, not the lowest.
        limit: in bytes; stop where a block would end above it.

    Returns:
        The offsets by index, 0 for blocks that are not in the order; empty if the limit was passed.
    """
    offsets = [0] * len(blocks)
    # By offset.
    placed: list[tuple[int, int, int, int]] = []
    for index in order:
        block = blocks[index]
        size, first, last = block.size, block.first, block.last
        free = 0
        found = found_size = -1
        for offset, end, other_first, other_last in placed:
            if other_first <= last and first <= other_last:
                gap = offset - free
                if gap >= size and (found < 0 or gap < found_size):
                    found, found_size = free, gap
                    if gap == size or not smallest_gap:
                        break
                if end > free:
                    free = end
        if found < 0:
            found = free
        if limit is not None and found + size > limit:
            return []
        offsets[index] = found
        insort(placed, (found, found + size, first, last))
    return offsets


def _sweep(blocks: Sequence[_Block], indices: Iterable[int], backwards: bool, smallest_gap: bool) -> list[int]:
    """Place blocks in the order of their first steps, or backwards of their last, as an allocator would at run time.

    Only what is free at one step has to be known, so that this takes little time for any number of blocks.

    Returns:
        The offsets by index, 0 for blocks that are not among the indices.
    """
    offsets = [0] * len(blocks)
    if backwards:
        spans = [(-blocks[index].last, -blocks[index].size, -blocks[index].first, index) for index in indices]
    else:
        spans = [(blocks[index].first, -blocks[index].size, blocks[index].last, index) for index in indices]
    gaps = _Gaps()
    ends: list[tuple[int, int]] = []
    for begin, minus_size, end, index in sorted(spans):
        while ends and ends[0][0] < begin:
            gone = heappop(ends)[1]
            gaps.give_back(offsets[gone], blocks[gone].size)
        offsets[index] = gaps.take(-minus_size, smallest_gap)
        heappush(ends, (end, index))
    return offsets


class _Gaps:
    """What is free below the end of what is used, by offset; above that, everything is."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._sizes: list[int] = []
        self._top = 0

    def take(self, size: int, smallest_gap: bool) -> int:
        """The offset of `size` bytes that were free."""
        at = self._smallest(size) if smallest_gap else self._lowest(size)
        if at < 0:
            self._top += size
            return self._top - size
        start = self._starts[at]
        if self._sizes[at] == size:
            del self._starts[at], self._sizes[at]
        else:
            self._starts[at] += size
            self._sizes[at] -= size
        return start

    def give_back(self, start: int, size: int) -> None:
        """These bytes are free again."""
        at = bisect_left(self._starts, start)
        if at < len(self._starts) and self._starts[at] == start + size:
            size += self._sizes[at]
            del self._starts[at], self._sizes[at]
        if at and self._starts[at - 1] + self._sizes[at - 1] == start:
            at -= 1
            start = self._starts[at]
            size += self._sizes[at]
            del self._starts[at], self._sizes[at]
        if start + size == self._top:
            self._top = start
        else:
            self._starts.insert(at, start)
            self._sizes.insert(at, size)

    def _lowest(self, size: int) -> int:
        for at, free in enumerate(self._sizes):
            if free >= size:
                return at
        return -1

    def _smallest(self, size: int) -> int:
        fits = [free for free in self._sizes if free >= size]
        return self._sizes.index(min(fits)) if fits else -1


def _by_size(blocks: Sequence[_Block]) -> list[tuple[int, ...]]:
    return [(-block.size, block.first - block.last) for block in blocks]


def _by_lifetime(blocks: Sequence[_Block]) -> list[tuple[int, ...]]:
    return [(block.first - block.last, -block.size) for block in blocks]


def _by_area(blocks: Sequence[_Block]) -> list[tuple[int, ...]]:
    return [(-block.size * (block.last - block.first + 1),) for block in blocks]


def _by_peak(blocks: Sequence[_Block]) -> list[tuple[int, ...]]:
    """Those that live where memory is fullest come first, the largest of them at the very bottom."""
    steps, live = _pressure(blocks)
    # Row k has the maximum of 2**k entries from each on, so that two overlapping ones answer for any range.
    rows = [live]
    while 2 * (width := 1 << (len(rows) - 1)) <= len(live):
        rows.append(list(map(max, rows[-1], rows[-1][width:])))
    ranks: list[tuple[int, ...]] = []
    for block in blocks:
        begin, end = bisect_left(steps, block.first), bisect_left(steps, block.last + 1)
        row = (end - begin).bit_length() - 1
        ranks.append((-max(rows[row][begin], rows[row][end - (1 << row)]), -block.size, block.first - block.last))
    return ranks


_Ranking = Callable[[Sequence[_Block]], list[tuple[int, ...]]]

# Which strategies place in the order of steps: whether backwards, and whether into the smallest gap.
_SWEEPS: Final[dict[str, tuple[bool, bool]]] = {
    "first fit by start": (False, False),
    "best fit by start": (False, True),
    "first fit by end": (True, False),
    "best fit by end": (True, True),
}

# Which place in an order of their own, and whether into the smallest gap.
_ORDERED: Final[dict[str, tuple[_Ranking, bool]]] = {
    "first fit by size": (_by_size, False),
    "best fit by size": (_by_size, True),
    "first fit by lifetime": (_by_lifetime, False),
    "best fit by lifetime": (_by_lifetime, True),
    "first fit by size x lifetime": (_by_area, False),
    "best fit by size x lifetime": (_by_area, True),
    "first fit by peak": (_by_peak, False),
    "best fit by peak": (_by_peak, True),
}

# The quick ones first, since the others need not be tried if one of them reaches the bound.
STRATEGIES: Final[tuple[str, ...]] = (*_SWEEPS, *_ORDERED)


def _search(blocks: Sequence[_Block], start: _Placement, bound: int, steps: int, random: Random) -> _Placement:
    """Change the order in which blocks are placed, as long as memory gets no larger.

    Placed by first fit in the order of their offsets, all blocks of a layout come to lie where they were or lower.  So
    the search begins no worse than `start`, and some order leads to the smallest layout there is.
    """
    best, offsets = start, start.offsets
    order = sorted(range(len(blocks)), key=lambda index: (start.offsets[index], index))
    trial = order
    for _ in range(min(steps, 2 * _VISITS // len(blocks) ** 2)):
        placed = _insert(blocks, trial, False, best.nbytes)
        if placed:
            order, offsets = trial, placed
            found = _placement(blocks, placed, f"{start.strategy}, searched")
            if found.nbytes < best.nbytes:
                best = found
            if best.nbytes == bound:
                break
        trial = _changed(order, blocks, offsets, best.nbytes, random)
    return best


def _changed(order: list[int], blocks: Sequence[_Block], offsets: list[int], top: int, random: Random) -> list[int]:
    """Another order: one of the blocks that reach the top comes earlier, or two swap places."""
    changed = list(order)
    if random.random() < 0.5:
        highest = [at for at, index in enumerate(order) if offsets[index] + blocks[index].size == top]
        at = random.choice(highest)
        changed.insert(random.randint(0, at), changed.pop(at))
    else:
        one, other = random.randrange(len(order)), random.randrange(len(order))
        changed[one], changed[other] = changed[other], changed[one]
    return changed


# From ops to buffers


def lifetimes(
    ops: Sequence[Op],
    nbytes: Mapping[int, int],
    pinned: Collection[int] = (),
    last_uses: Mapping[int, int] | None = None,
    shares: Mapping[int, int] | None = None,
) -> list[Buffer]:
    """The buffers of ops that run in this order, for `plan`.

    Args:
        ops: in the order in which they run; step 0 is the first.
        nbytes: the size of each buffer, by id.
        pinned: buffers that have memory of their own: variables, and inputs and outputs of the graph.
        last_uses: the last step that needs a buffer, where that is later than its last reader among the ops.
        shares: whose memory a buffer takes over, from `choose_in_place`.

    Returns:
        One for each output of an op that is not pinned.  What no op produces has memory of its own as well.

    Raises:
        ValueError: for a buffer of unknown size, one that two ops produce or that is read before it is produced.
    """
    producers = _producers(ops)
    last = _last_uses(ops, producers, last_uses)
    own = frozenset(pinned)
    taken = {} if shares is None else shares
    return [
        Buffer(name, _size(nbytes, name), step, last[name], taken.get(name))
        for name, step in producers.items()
        if name not in own
    ]


def choose_in_place(
    ops: Sequence[Op],
    nbytes: Mapping[int, int],
    pinned: Collection[int] = (),
    last_uses: Mapping[int, int] | None = None,
    alignment: int = ALIGNMENT,
) -> dict[int, int]:
    """Choose which outputs take over the memory of an input.

    An input may be taken over if the op allows it at each position at which it reads the input, if no later op reads it,
    if it is not pinned, and if it is at least as large as the output.  Those that save most come first, each input and
    output once.  An output smaller than the memory it takes over keeps all of that from being used otherwise; so it
    only does where that does not raise the most bytes that live at a step.

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
    _checked_alignment(alignment)
    buffers = {it.id: it for it in lifetimes(ops, nbytes, pinned, last_uses)}
    sizes = {name: _aligned(it.nbytes, alignment) for name, it in buffers.items()}
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
    blocks = _blocks((attrs.evolve(it, shares=shares.get(it.id)) for it in buffers.values()), alignment)
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


def _live_by_step(blocks: Iterable[_Block]) -> list[int]:
    """The bytes that live at step 0, 1, ..."""
    steps, live = _pressure(blocks)
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


def _producers(ops: Sequence[Op]) -> dict[int, int]:
    """The step that produces each buffer, for those that an op does."""
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


def _size(nbytes: Mapping[int, int], name: int) -> int:
    try:
        return nbytes[name]
    except KeyError:
        raise ValueError(f"the size of buffer {name} is not given") from None


# The order of ops


def execution_order(
    ops: Sequence[Op],
    edges: Iterable[tuple[int, int]],
    nbytes: Mapping[int, int],
    prefer: Literal["memory", "speed"] = "memory",
    pinned: Collection[int] = (),
    kept: Collection[int] = (),
    alignment: int = ALIGNMENT,
) -> list[int]:
    """Choose an order for ops, such that no more bytes live at a step than in the given one.

    For memory: the order that needs least, of the given one, depth first (what an op needs comes directly before it) and
    greedy (next comes the op that frees most, or adds least).  For speed: depth first, since results that were just made
    are still in the cache.  The given order stays unless another needs less, or is as good and preferred for speed.

    Args:
        ops: in some order in which they could run.
        edges: (op, op), by position: the one has to run before the other, beyond what their buffers say.
        nbytes: the size of each buffer that an op produces, by id.
        prefer: memory or speed.
        pinned: buffers that have memory of their own.
        kept: buffers that are needed after the last op.
        alignment: to which sizes are rounded up, in bytes.

    Returns:
        The positions of the ops, in the order in which they should run.

    Raises:
        ValueError: for an order that the given ops could not run in, edges from or to nowhere, a buffer of unknown size,
            or another preference.
    """
    if prefer not in ("memory", "speed"):
        raise ValueError(f'prefer must be "memory" or "speed", not {prefer!r}')
    _checked_alignment(alignment)
    work = _work(ops, edges, nbytes, frozenset(pinned), frozenset(kept), alignment)
    given = list(range(len(ops)))
    if prefer == "memory":
        candidates = [given, _depth_first(work, False), _depth_first(work, True), _greedy(work)]
    else:
        candidates = [_depth_first(work, False), given]
    # The first of equals.
    best = min(candidates, key=lambda order: _most_live(work, order))
    return best if _most_live(work, best) < _most_live(work, given) or prefer == "speed" else given


@attrs.frozen
class _Work:
    """What has to run, by position.

    Attributes:
        before: the ops that have to run before each.
        after: the ops that have to run after each.
        reads: the buffers each reads; only those that can be freed.
        readers: the ops that read a buffer.
        sizes: of the buffers that ops produce and that take memory here.
        makes: the bytes that each produces.
        drops: the bytes that each produces for nobody.
    """

    before: list[list[int]]
    after: list[list[int]]
    reads: list[list[int]]
    readers: dict[int, list[int]]
    sizes: dict[int, int]
    makes: list[int]
    drops: list[int]


def _work(
    ops: Sequence[Op],
    edges: Iterable[tuple[int, int]],
    nbytes: Mapping[int, int],
    pinned: Collection[int],
    kept: Collection[int],
    alignment: int,
) -> _Work:
    producers = _producers(ops)
    before: list[set[int]] = [{producers[name] for name in op.inputs if name in producers} for op in ops]
    for source, target in edges:
        if not (0 <= source < len(ops) and 0 <= target < len(ops)):
            raise ValueError(f"there is no op for the edge {(source, target)}: there are {len(ops)}")
        if source >= target:
            raise ValueError(f"op {source} has to run before op {target}, but comes later in the order given")
        before[target].add(source)
    after: list[list[int]] = [[] for _ in ops]
    for target, sources in enumerate(before):
        for source in sorted(sources):
            after[source].append(target)
    sizes = {name: _aligned(_size(nbytes, name), alignment) for name in producers if name not in pinned}
    freed = sizes.keys() - kept
    reads = [[name for name in dict.fromkeys(op.inputs) if name in freed] for op in ops]
    readers: dict[int, list[int]] = {name: [] for name in freed}
    for position, names in enumerate(reads):
        for name in names:
            readers[name].append(position)
    return _Work(
        before=[sorted(sources) for sources in before],
        after=after,
        reads=reads,
        readers=readers,
        sizes=sizes,
        makes=[sum(sizes.get(name, 0) for name in op.outputs) for op in ops],
        drops=[sum(sizes[name] for name in op.outputs if name in freed and not readers[name]) for op in ops],
    )


def _most_live(work: _Work, order: Iterable[int]) -> int:
    """The most bytes that live at a step of this order."""
    left = {name: len(readers) for name, readers in work.readers.items()}
    live = peak = 0
    for position in order:
        live += work.makes[position]
        peak = max(peak, live)
        live -= work.drops[position]
        for name in work.reads[position]:
            left[name] -= 1
            if not left[name]:
                live -= work.sizes[name]
    return peak


def _depth_first(work: _Work, largest_first: bool) -> list[int]:
    """From what nothing waits for back to what it needs; of several, the first or the one that makes most."""
    order: list[int] = []
    seen: set[int] = set()
    for end, followers in enumerate(work.after):
        if followers:
            continue
        # (an op, whether all it needs has been seen to)
        todo = [(end, False)]
        while todo:
            position, ready = todo.pop()
            if ready:
                order.append(position)
            elif position not in seen:
                seen.add(position)
                todo.append((position, True))
                needs = sorted(work.before[position], key=lambda it: work.makes[it]) if largest_first else []
                todo.extend((it, False) for it in needs or reversed(work.before[position]))
    return order


def _greedy(work: _Work) -> list[int]:
    """Always the op that frees most, or adds least; of equals, the first in the given order."""
    waits_for = [len(sources) for sources in work.before]
    left = {name: len(readers) for name, readers in work.readers.items()}
    # The sum of the readers still to come: of the last one, that is itself.
    to_come = {name: sum(readers) for name, readers in work.readers.items()}
    adds = [made - dropped for made, dropped in zip(work.makes, work.drops, strict=True)]
    for name, readers in work.readers.items():
        if len(readers) == 1:
            adds[readers[0]] -= work.sizes[name]
    ready = [(adds[position], position) for position, count in enumerate(waits_for) if not count]
    heapify(ready)
    order: list[int] = []
    done = [False] * len(adds)
    while ready:
        added, position = heappop(ready)
        if done[position] or added != adds[position]:
            # It has become cheaper since, and is in the heap once more.
            continue
        done[position] = True
        order.append(position)
        for name in work.reads[position]:
            left[name] -= 1
            to_come[name] -= position
            if left[name] == 1:
                last = to_come[name]
                adds[last] -= work.sizes[name]
                if not waits_for[last]:
                    heappush(ready, (adds[last], last))
        for follower in work.after[position]:
            waits_for[follower] -= 1
            if not waits_for[follower]:
                heappush(ready, (adds[follower], follower))
    return order
