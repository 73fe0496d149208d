"""The order in which the ops of a graph run, so that less lives at a time."""

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
    """Choose an order for ops, such that no more bytes live at a step than in the given one.

    For memory: the order that needs least, of the given one, depth first (what an op needs comes directly before it)
    and greedy (next comes the op that frees most, or adds least).  For speed: depth first, since results that were just
    made are still in the cache; unless that needs more memory than the given order, which then stays.

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
        ValueError: if the ops could not run in the order given; for edges from or to nowhere, a buffer of unknown size,
            or another preference.
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
    # The first of equals: so the given order stays where nothing is won.
    return min(candidates, key=lambda order: _most_live(work, order))


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
    producers = producers_of(ops)
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


def _depth_first(work: _Work, needs: Sequence[Sequence[int]]) -> list[int]:
    """From what nothing waits for back to what it needs, in the sequence in which each op's `needs` are given."""
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
                todo.extend((need, False) for need in reversed(needs[position]))
    return order


def _wasteful_first(work: _Work) -> list[list[int]]:
    """What each op needs, first what takes most memory beyond its result on the way.

    As if no result were read twice: of a tree, that is the best sequence (Sethi and Ullman).
    """
    takes: list[int] = []
    sorted_needs: list[list[int]] = []
    for position, needs in enumerate(work.before):
        sequence = sorted(needs, key=lambda need: work.makes[need] - takes[need])
        results = most = 0
        for it in sequence:
            most = max(most, results + takes[it])
            results += work.makes[it]
        takes.append(max(most, results + work.makes[position]))
        sorted_needs.append(sequence)
    return sorted_needs


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
