"""Chooses the order in which the ops of a graph run, to lower the peak of memory or to use the cache better."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush
from typing import Literal

import attrs

from .lifetimes import ALIGNMENT, Op, aligned, checked_alignment, producers_of, size_of


def execution_order(
    ops: Sequence[Op],
    edges: Iterable[tuple[int, int]],
    nbytes: Mapping[int, int],
    prefer: Literal["memory", "speed"] = "memory",
    pinned: Collection[int] = (),
    kept: Collection[int] = (),
    alignment: int = ALIGNMENT,
) -> list[int]:
    """Choose an order for ops; its peak of memory, without in-place results, is at most that of the given order.

    For "memory": the order with the lowest peak among the given order, two depth-first orders (an op's operands are
    computed directly before it) and a greedy one.
    For "speed": depth first, since fresh results are still in the cache; but the given order if that needs less memory.

    Args:
        ops: the ops, in some order in which they could run.
        edges: pairs of ops, by position: the first has to run before the second, in addition to the order that the
            ops' buffers require.
        nbytes: the size of each buffer that an op produces, by id.
        prefer: "memory" or "speed".
        pinned: buffers that have memory of their own, which is not counted.
        kept: buffers that are needed after the last op.
        alignment: sizes are rounded up to multiples of this number of bytes.

    Returns:
        The positions of the ops, in the order in which they should run.

    Raises:
        ValueError: if the ops could not run in the given order; for edges with unknown ops, a buffer of unknown size
            or of two producers, an alignment below 1, or any other `prefer`.
    """
    if prefer not in ("memory", "speed"):
        raise ValueError(f'prefer must be "memory" or "speed", not {prefer!r}')
    checked_alignment(alignment)
    work = _work(ops, edges, nbytes, frozenset(pinned), frozenset(kept), alignment)
    given = list(range(len(ops)))
    if prefer == "memory":
        candidates = [given, _depth_first(work, work.before), _depth_first(work, _wasteful_first(work)), _greedy(work)]
    else:
        candidates = [_depth_first(work, work.before), given]
    # `min` returns the first of equally good orders: for "memory", the given order stays if nothing is gained.
    return min(candidates, key=lambda order: _most_live(work, order))


@attrs.frozen
class _Work:
    """The ops to be ordered, by position: their dependences, and the sizes of their buffers.

    Attributes:
        before: by op, the ops whose results it reads, and those with an edge to it.
        after: by op, the ops that have it in `before`.
        reads: by op, the buffers that the op reads and that can be freed after their last reader.
        readers: by buffer that can be freed, the ops that read the buffer.
        sizes: the sizes of the buffers that ops produce and that are not pinned.
        makes: by op, the bytes of all its results in `sizes`.
        drops: by op, the bytes of its results in `sizes` that no op reads and that are not kept.
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
    producers = producers_of(ops)
    before: list[set[int]] = [{producers[name] for name in op.inputs if name in producers} for op in ops]
    for source, target in edges:
        if not (0 <= source < len(ops) and 0 <= target < len(ops)):
            raise ValueError(f"the edge {(source, target)} names an op that does not exist: there are {len(ops)}")
        if source >= target:
            raise ValueError(f"op {source} has to run before op {target}, but comes later in the given order")
        before[target].add(source)
    after: list[list[int]] = [[] for _ in ops]
    for target, sources in enumerate(before):
        for source in sorted(sources):
            after[source].append(target)
    sizes = {name: aligned(size_of(nbytes, name), alignment) for name in producers if name not in pinned}
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
    """Return the peak of memory, the most bytes alive at a step, if the ops run in this order."""
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


def _depth_first(work: _Work, needs: Sequence[Sequence[int]]) -> list[int]:
    """Order the ops depth first: before an op, the ops that it needs, in the sequence of its entry in `needs`."""
    order: list[int] = []
    seen: set[int] = set()
    for end, followers in enumerate(work.after):
        if followers:
            continue
        # Pairs of an op, and whether all ops that it needs have been visited.
        todo = [(end, False)]
        while todo:
            position, ready = todo.pop()
            if ready:
                order.append(position)
            elif position not in seen:
                seen.add(position)
                todo.append((position, True))
                todo.extend((need, False) for need in reversed(needs[position]))
    return order


def _wasteful_first(work: _Work) -> list[list[int]]:
    """Return, by op, the ops that it needs, sorted by the memory that they take beyond their results, largest first.

    The sort assumes that each result is read once: for a tree, the sequence is the best (Sethi and Ullman).
    """
    takes: list[int] = []
    sorted_needs: list[list[int]] = []
    for position, needs in enumerate(work.before):
        sequence = sorted(needs, key=lambda need: work.makes[need] - takes[need])
        results = most = 0
        for need in sequence:
            most = max(most, results + takes[need])
            results += work.makes[need]
        takes.append(max(most, results + work.makes[position]))
        sorted_needs.append(sequence)
    return sorted_needs


def _greedy(work: _Work) -> list[int]:
    """Order ops greedily: next comes the ready op that frees most bytes or adds least; the given order breaks ties."""
    waits_for = [len(sources) for sources in work.before]
    left = {name: len(readers) for name, readers in work.readers.items()}
    # By buffer that can be freed, the sum of its remaining readers' positions: for one reader, its position.
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
            # Skip the entry: the op has run, or has become cheaper since then and has another entry.
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
