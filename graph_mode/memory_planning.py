"""Chooses the offsets of a compiled graph's buffers in memory, from their lifetimes.

A graph runs in a fixed order, so that the first and the last step that need each buffer are known beforehand.  Buffers
that are never needed at the same step may share memory.  Finding the smallest memory is NP-hard.  So `plan` tries
several greedy placements: buffers are placed one by one, sorted by size, lifetime, size x lifetime, first or last step,
or the most bytes alive during their lifetime, each into the lowest or the smallest gap that is free for its whole
lifetime.  The smallest layout wins.  If it is larger than the most bytes alive at one step, the lower bound, a local
search tries a limited number of other orders.

Guarantees:

- Buffers needed at the same step never overlap, except that a buffer which `shares` another has the other's offset.
- Offsets and the total are multiples of the alignment.  The total is at least `lower_bound`, and at most the sum of
  all rounded sizes.  More search steps never make the total larger.
- The same buffers give the same layout, in any sequence, if the other arguments are equal.

Before `plan`, `execution_order` orders the ops, `choose_in_place` lets outputs of an op take over the memory of inputs
that no later op needs, and `lifetimes` makes buffers of the ordered ops.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Sequence
from heapq import heappop, heappush
from random import Random
from typing import Final

import attrs

from .execution_order import execution_order as execution_order
from .in_place import choose_in_place as choose_in_place
from .lifetimes import (
    ALIGNMENT,
    Block,
    Buffer as Buffer,
    Moment as Moment,
    Op as Op,
    blocks_of,
    lifetimes as lifetimes,
    lower_bound as lower_bound,
    peak_of,
    pressure_of,
    timeline as timeline,
)

# The most looks at placed blocks in all strategies that sort, and again in the search: half a second or so each.
_VISITS: Final = 8_000_000


class BadLayout(ValueError):
    """A layout puts buffers in invalid places.

    Attributes:
        pair: the ids of the two buffers; twice the same if only one buffer is concerned.
    """

    def __init__(self, message: str, pair: tuple[int, int]) -> None:
        super().__init__(message)
        self.pair = pair


@attrs.frozen
class Layout:
    """A place for each buffer.

    Attributes:
        offsets: the first byte of each buffer, by its id.
        nbytes: the size of the memory.
        strategy: the name of the strategy, with ", searched" if the local search improved its layout.
    """

    offsets: dict[int, int] = attrs.field(repr=lambda offsets: f"<of {len(offsets)} buffers>")
    nbytes: int
    strategy: str


# From blocks to offsets


def plan(
    buffers: Iterable[Buffer],
    strategies: Sequence[str] | None = None,
    search_steps: int = 200,
    alignment: int = ALIGNMENT,
    seed: int = 0,
) -> Layout:
    """Find a place for each buffer, so that those needed at the same step do not overlap.

    With very many buffers, strategies that sort place only the largest in their order, and the others above in the
    order of first steps; and the search tries fewer orders, or none.

    Args:
        buffers: in any sequence.
        strategies: names from `STRATEGIES`; None for all.  Once one reaches the lower bound, no other is tried.
        search_steps: the most orders that the local search tries if the best layout is above the bound.
        alignment: the alignment of the offsets and the total, in bytes.
        seed: the seed of the local search.

    Raises:
        ValueError: for an unknown strategy, or `strategies` without any; for a negative size or `search_steps`; for an
            alignment below 1; for buffers that end before they begin, have the same id, or share memory with one that
            is unknown, does not begin before them and end where they begin, or is shared already.
    """
    chosen = _checked_strategies(strategies)
    if search_steps < 0:
        raise ValueError(f"search_steps must be 0 or more, not {search_steps}")
    blocks = blocks_of(buffers, alignment)
    # Blocks of no size need no place.
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
            raise ValueError(f"there is no strategy {name!r}; choose from {', '.join(map(repr, STRATEGIES))}")
    if not strategies:
        raise ValueError(f"give at least one strategy of {', '.join(map(repr, STRATEGIES))}")
    return strategies


def check(layout: Layout, buffers: Iterable[Buffer], alignment: int = ALIGNMENT) -> None:
    """Check that a layout can be used for these buffers.

    Args:
        layout: the layout.
        buffers: all buffers of the layout.  Buffers that share memory occupy as much as the largest of them.
        alignment: offsets must be multiples of this number of bytes, and sizes are rounded up to multiples of it.

    Raises:
        BadLayout: if two buffers needed at the same step overlap, or one is missing, unknown, not at the offset of the
            one whose memory it shares, not aligned or out of bounds.
        ValueError: for invalid buffers or an alignment below 1; see `plan`.
    """
    blocks = blocks_of(buffers, alignment)
    missing = layout.offsets.keys() ^ {name for block in blocks for name in block.ids}
    if missing:
        name = min(missing)
        problem = "unknown" if name in layout.offsets else "not in the layout"
        raise BadLayout(f"buffer {name} is {problem}", (name, name))
    for block in blocks:
        _check_bounds(block, layout, alignment)
    _check_overlaps(blocks, layout)


def _check_bounds(block: Block, layout: Layout, alignment: int) -> None:
    name = block.ids[0]
    offset = layout.offsets[name]
    for heir in block.ids:
        if layout.offsets[heir] != offset:
            raise BadLayout(
                f"buffer {heir} is at {layout.offsets[heir]}, but must be at {offset}, in the memory of buffer {name}",
                (name, heir),
            )
    if offset % alignment:
        raise BadLayout(f"buffer {name} is at {offset}, which is no multiple of {alignment}", (name, name))
    if offset < 0 or offset + block.size > layout.nbytes:
        raise BadLayout(
            f"buffer {name} is at {offset} to {offset + block.size}, outside of the {layout.nbytes} bytes", (name, name)
        )


def _check_overlaps(blocks: Iterable[Block], layout: Layout) -> None:
    """Raise if blocks alive at a step overlap: walk through the steps; if any overlap, two neighbours by offset do."""
    live: list[tuple[int, int, Block]] = []
    ends: list[tuple[int, int, int, Block]] = []
    for number, block in enumerate(sorted((block for block in blocks if block.size), key=lambda block: block.first)):
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


def _place_of(entry: tuple[int, int, Block]) -> tuple[int, int]:
    return entry[0], entry[1]


def _check_apart(below: Block, above: Block, layout: Layout) -> None:
    first, second = below.ids[0], above.ids[0]
    end = layout.offsets[first] + below.size
    if end > layout.offsets[second]:
        raise BadLayout(
            f"buffers {first} and {second} overlap: both are needed at step {max(below.first, above.first)}, "
            f"but the first ends at {end} and the second begins at {layout.offsets[second]}",
            (first, second),
        )


@attrs.frozen
class _Placement:
    """Offsets of blocks, by position."""

    offsets: list[int]
    nbytes: int
    strategy: str


def _placement(blocks: Sequence[Block], offsets: list[int], strategy: str) -> _Placement:
    top = max(offset + block.size for offset, block in zip(offsets, blocks, strict=True))
    return _Placement(offsets, top, strategy)


def _best(blocks: Sequence[Block], strategies: Sequence[str], search_steps: int, random: Random) -> _Placement:
    bound = peak_of(blocks)
    parts = _parted(blocks, _VISITS // max(1, sum(name in _ORDERED for name in strategies)))
    best: _Placement | None = None
    for name in strategies:
        placement = _place(name, blocks, parts)
        # The first of equally small layouts is kept.
        if best is None or placement.nbytes < best.nbytes:
            best = placement
        if best.nbytes == bound:
            return best
    assert best is not None
    return _search(blocks, best, bound, search_steps, random)


@attrs.frozen
class _Parts:
    """The blocks that each strategy of `_ORDERED` places in its order; and the small blocks, placed once.

    Attributes:
        large: indices of the blocks to place in order.
        small: indices of the other blocks.
        offsets: by index, the offsets of the small blocks in a region of their own.
    """

    large: frozenset[int]
    small: list[int]
    offsets: list[int]


def _parted(blocks: Sequence[Block], visits: int) -> _Parts:
    """Select the largest blocks, as many as about `visits` comparisons of two blocks can place; place the others."""
    by_size = sorted(range(len(blocks)), key=lambda index: -blocks[index].size)
    at_most = int((2 * visits) ** 0.5)
    small = sorted(by_size[at_most:])
    return _Parts(frozenset(by_size[:at_most]), small, _sweep(blocks, small, False, True))


def _place(name: str, blocks: Sequence[Block], parts: _Parts) -> _Placement:
    if name in _SWEEPS:
        return _placement(blocks, _sweep(blocks, range(len(blocks)), *_SWEEPS[name]), name)
    ranking, smallest_gap = _ORDERED[name]
    ranks = ranking(blocks)
    offsets = _insert(blocks, sorted(parts.large, key=lambda index: (ranks[index], index)), smallest_gap)
    floor = max(offsets[index] + blocks[index].size for index in parts.large)
    for index in parts.small:
        offsets[index] = floor + parts.offsets[index]
    return _placement(blocks, offsets, name)


def _insert(blocks: Sequence[Block], order: Iterable[int], smallest_gap: bool, limit: int | None = None) -> list[int]:
    """Place the blocks in this order, each in a gap among the placed blocks that live at the same time, or above them.

    Args:
        blocks: all blocks.
        order: indices of the blocks to place.
        smallest_gap: whether to take the smallest gap that is large enough, instead of the lowest.
        limit: the most bytes that the layout may need; None for no limit.

    Returns:
        The offsets by index, 0 for blocks that are not in the order; empty if a block would end above the limit.
    """
    offsets = [0] * len(blocks)
    # (offset, end, first step, last step), sorted by offset.
    placed: list[tuple[int, int, int, int]] = []
    for index in order:
        block = blocks[index]
        size, first, last = block.size, block.first, block.last
        free = 0
        best = best_size = -1
        for offset, end, other_first, other_last in placed:
            if other_first <= last and first <= other_last:
                gap = offset - free
                if gap >= size and (best < 0 or gap < best_size):
                    best, best_size = free, gap
                    if gap == size or not smallest_gap:
                        break
                if end > free:
                    free = end
        if best < 0:
            best = free
        if limit is not None and best + size > limit:
            return []
        offsets[index] = best
        insort(placed, (best, best + size, first, last))
    return offsets


def _sweep(blocks: Sequence[Block], indices: Iterable[int], backwards: bool, smallest_gap: bool) -> list[int]:
    """Place blocks in the order of their first steps, or backwards in that of their last steps.

    Only the gaps at one step have to be known, so that this takes little time also for many blocks.

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
    """The free gaps below the end of used memory."""

    def __init__(self) -> None:
        # The starts of the gaps, ascending, and the size of each.
        self._starts: list[int] = []
        self._sizes: dict[int, int] = {}
        # (size, start), ascending.
        self._by_size: list[tuple[int, int]] = []
        self._top = 0

    def take(self, size: int, smallest_gap: bool) -> int:
        """Occupy bytes in the lowest or smallest gap that is large enough, else at the end; return their offset."""
        start = self._smallest(size) if smallest_gap else self._lowest(size)
        if start < 0:
            self._top += size
            return self._top - size
        left = self._remove(start) - size
        if left:
            self._add(start + size, left)
        return start

    def give_back(self, start: int, size: int) -> None:
        """Free these bytes."""
        if start + size in self._sizes:
            size += self._remove(start + size)
        at = bisect_left(self._starts, start) - 1
        if at >= 0 and self._starts[at] + self._sizes[self._starts[at]] == start:
            start = self._starts[at]
            size += self._remove(start)
        if start + size == self._top:
            self._top = start
        else:
            self._add(start, size)

    def _lowest(self, size: int) -> int:
        sizes = self._sizes
        for start in self._starts:
            if sizes[start] >= size:
                return start
        return -1

    def _smallest(self, size: int) -> int:
        at = bisect_left(self._by_size, (size, 0))
        return self._by_size[at][1] if at < len(self._by_size) else -1

    def _add(self, start: int, size: int) -> None:
        insort(self._starts, start)
        insort(self._by_size, (size, start))
        self._sizes[start] = size

    def _remove(self, start: int) -> int:
        """Remove a gap, and return its size."""
        size = self._sizes.pop(start)
        del self._starts[bisect_left(self._starts, start)]
        del self._by_size[bisect_left(self._by_size, (size, start))]
        return size


def _by_size(blocks: Sequence[Block]) -> list[tuple[int, ...]]:
    return [(-block.size, block.first - block.last) for block in blocks]


def _by_lifetime(blocks: Sequence[Block]) -> list[tuple[int, ...]]:
    return [(block.first - block.last, -block.size) for block in blocks]


def _by_area(blocks: Sequence[Block]) -> list[tuple[int, ...]]:
    return [(-block.size * (block.last - block.first + 1),) for block in blocks]


def _by_peak(blocks: Sequence[Block]) -> list[tuple[int, ...]]:
    """Return sort keys: first blocks with the most bytes alive during their lifetime; of equals, the largest."""
    steps, live = pressure_of(blocks)
    # Row k has the maximum of each run of 2**k entries of `live`; any range is covered by two runs of one row.
    rows = [live]
    while 2 * (width := 1 << (len(rows) - 1)) <= len(live):
        rows.append(list(map(max, rows[-1], rows[-1][width:])))
    ranks: list[tuple[int, ...]] = []
    for block in blocks:
        begin, end = bisect_left(steps, block.first), bisect_left(steps, block.last + 1)
        row = (end - begin).bit_length() - 1
        ranks.append((-max(rows[row][begin], rows[row][end - (1 << row)]), -block.size, block.first - block.last))
    return ranks


_Ranking = Callable[[Sequence[Block]], list[tuple[int, ...]]]

# The strategies that place in the order of steps: whether backwards, and whether into the smallest gap.
_SWEEPS: Final[dict[str, tuple[bool, bool]]] = {
    "first fit by start": (False, False),
    "best fit by start": (False, True),
    "first fit by end": (True, False),
    "best fit by end": (True, True),
}

# The strategies that sort the blocks: by which key, and whether into the smallest gap.
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

# Fast strategies come first, since no other strategy is tried after one that reaches the bound.
STRATEGIES: Final[tuple[str, ...]] = (*_SWEEPS, *_ORDERED)


def _search(blocks: Sequence[Block], start: _Placement, bound: int, steps: int, random: Random) -> _Placement:
    """Search for a smaller layout by changes to the order of placing; changes that enlarge the layout are undone.

    First fit in the order of their offsets puts all blocks of a layout where they were, or lower.  So the search begins
    no worse than `start`, and some order leads to the smallest layout of all.
    """
    best, offsets = start, start.offsets
    order = sorted(range(len(blocks)), key=lambda index: (start.offsets[index], index))
    trial = order
    for _ in range(min(steps, 2 * _VISITS // len(blocks) ** 2)):
        placed = _insert(blocks, trial, False, best.nbytes)
        if placed:
            order, offsets = trial, placed
            placement = _placement(blocks, placed, f"{start.strategy}, searched")
            if placement.nbytes < best.nbytes:
                best = placement
            if best.nbytes == bound:
                break
        trial = _changed(order, blocks, offsets, best.nbytes, random)
    return best


def _changed(order: list[int], blocks: Sequence[Block], offsets: list[int], top: int, random: Random) -> list[int]:
    """Return the order with one change at random, or none: a block that ends at `top` comes earlier, or blocks alive
    with it move.
    """
    changed = list(order)
    at = random.choice([at for at, index in enumerate(order) if offsets[index] + blocks[index].size == top])
    if random.random() < 0.5:
        changed.insert(random.randint(0, at), changed.pop(at))
        return changed
    highest = blocks[order[at]]
    near = [
        at
        for at, index in enumerate(order)
        if blocks[index].first <= highest.last and highest.first <= blocks[index].last
    ]
    one, other = random.choice(near), random.choice(near)
    if random.random() < 0.5:
        changed.insert(other, changed.pop(one))
    else:
        changed[one], changed[other] = changed[other], changed[one]
    return changed
