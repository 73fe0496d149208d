"""Layouts from lifetimes: nothing overlaps, nothing is far from the best, and the same comes out each time."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import combinations
from random import Random

import attrs
import pytest
from hypothesis import given, settings, strategies as st

from vmflow.graph_mode.memory_planning import (
    STRATEGIES,
    BadLayout,
    Buffer,
    Layout,
    check,
    choose_in_place,
    lifetimes,
    lower_bound,
    plan,
    timeline,
)

from .training_step import gpt

pytestmark = pytest.mark.host

_seeded = settings(derandomize=True, database=None)


@st.composite
def _buffers(draw: st.DrawFn, at_most: int = 25) -> list[Buffer]:
    """Random lifetimes, of which some continue those before them, in a random sequence."""
    names = draw(st.permutations(range(draw(st.integers(0, at_most)))))
    buffers: list[Buffer] = []
    for name in names:
        nbytes = draw(st.sampled_from([0, 1, 64, 65]) | st.integers(0, 2000))
        first, shares = draw(st.integers(0, 20)), None
        if buffers and buffers[-1].first < buffers[-1].last and draw(st.booleans()):
            first, shares = buffers[-1].last, buffers[-1].id
        buffers.append(Buffer(name, nbytes, first, first + draw(st.integers(0, 8)), shares))
    return draw(st.permutations(buffers))


def _random_buffers(count: int, lifetime: int, seed: int, steps: int | None = None) -> list[Buffer]:
    """Sizes over some powers of two, lifetimes up to so many steps."""
    random = Random(seed)
    firsts = [random.randrange(steps or count) for _ in range(count)]
    return [
        Buffer(name, int(2 ** (6 + 10 * random.random())), first, first + random.randrange(lifetime))
        for name, first in enumerate(firsts)
    ]


def _rounded(nbytes: int, alignment: int) -> int:
    return (nbytes + alignment - 1) // alignment * alignment


def _overlapping(layout: Layout, buffers: Sequence[Buffer], alignment: int) -> list[tuple[int, int]]:
    """All pairs that lie upon each other while both are needed, unless one has taken over the other's memory."""
    found = []
    for one, other in combinations(buffers, 2):
        at, other_at = layout.offsets[one.id], layout.offsets[other.id]
        together = one.first <= other.last and other.first <= one.last
        touching = at < other_at + _rounded(other.nbytes, alignment) and other_at < at + _rounded(one.nbytes, alignment)
        solid = one.nbytes and other.nbytes
        if together and touching and solid and one.id != other.shares and other.id != one.shares:
            found.append((one.id, other.id))
    return found


def _most_live(buffers: Sequence[Buffer], alignment: int) -> int:
    """Step by step, with each chain of buffers that share counted once."""
    heirs = {buffer.shares: buffer for buffer in buffers if buffer.shares is not None}
    chains: list[tuple[int, int, int]] = []
    for buffer in buffers:
        if buffer.shares is None:
            size, end = buffer.nbytes, buffer
            while end.id in heirs:
                end = heirs[end.id]
                size = max(size, end.nbytes)
            chains.append((_rounded(size, alignment), buffer.first, end.last))
    steps = range(max((end for _, _, end in chains), default=-1) + 1)
    return max((sum(size for size, first, last in chains if first <= step <= last) for step in steps), default=0)


# Properties of all layouts


@given(_buffers(), st.sampled_from([1, 64, 512]), st.none() | st.sampled_from(STRATEGIES))
@_seeded
def test_layouts_are_sound(buffers: list[Buffer], alignment: int, strategy: str | None) -> None:
    layout = plan(buffers, None if strategy is None else [strategy], 20, alignment)
    check(layout, buffers, alignment)
    assert _overlapping(layout, buffers, alignment) == []
    assert all(offset % alignment == 0 for offset in layout.offsets.values())
    assert all(
        layout.offsets[buffer.id] == layout.offsets[buffer.shares] for buffer in buffers if buffer.shares is not None
    )
    assert all(layout.offsets[buffer.id] + buffer.nbytes <= layout.nbytes for buffer in buffers)


@given(_buffers(), st.sampled_from([1, 64, 512]))
@_seeded
def test_layouts_are_between_the_bound_and_the_sum(buffers: list[Buffer], alignment: int) -> None:
    bound = lower_bound(buffers, alignment)
    assert bound == _most_live(buffers, alignment)
    assert bound == max((moment.nbytes for moment in timeline(buffers, alignment)), default=0)
    for strategy in STRATEGIES:
        nbytes = plan(buffers, [strategy], 0, alignment).nbytes
        assert bound <= nbytes <= sum(_rounded(buffer.nbytes, alignment) for buffer in buffers)


@given(_buffers(), st.randoms(use_true_random=False))
@_seeded
def test_the_sequence_of_buffers_is_no_matter(buffers: list[Buffer], random: Random) -> None:
    other = list(buffers)
    random.shuffle(other)
    assert plan(other, search_steps=20) == plan(buffers, search_steps=20)


@given(_buffers(), st.sampled_from(STRATEGIES), st.integers(0, 5))
@_seeded
def test_more_effort_never_makes_it_worse(buffers: list[Buffer], strategy: str, seed: int) -> None:
    alone = plan(buffers, [strategy], 0)
    searched = [plan(buffers, [strategy], steps, seed=seed).nbytes for steps in (1, 5, 50)]
    assert [alone.nbytes, *searched] == sorted([alone.nbytes, *searched], reverse=True)
    assert plan(buffers, search_steps=0).nbytes <= alone.nbytes


@given(_buffers(12), st.sampled_from([1, 64]), st.data())
@_seeded
def test_the_check_finds_what_is_wrong_and_nothing_else(
    buffers: list[Buffer], alignment: int, data: st.DataObject
) -> None:
    """With buffers moved at random, each chain as a whole and as large as its largest."""
    largest: dict[int | None, int] = {}
    heads: dict[int, int] = {}
    for buffer in sorted(buffers, key=lambda x: _depth(x, buffers)):
        heads[buffer.id] = buffer.id if buffer.shares is None else heads[buffer.shares]
        largest[heads[buffer.id]] = max(largest.get(heads[buffer.id], 0), buffer.nbytes)
    whole = [attrs.evolve(value, nbytes=largest[heads[value.id]]) for value in buffers]
    at = {head: alignment * data.draw(st.integers(0, 3000 // alignment)) for head in set(heads.values())}
    offsets = {name: at[head] for name, head in heads.items()}
    layout = Layout(offsets, 3000 + 2 * 2048, "by chance")
    expected = {frozenset((heads[one], heads[other])) for one, other in _overlapping(layout, whole, alignment)}
    expected -= {frozenset((head,)) for head in at}
    if not expected:
        check(layout, whole, alignment)
    else:
        with pytest.raises(BadLayout, match="overlap") as caught:
            check(layout, whole, alignment)
        assert frozenset(caught.value.pair) in expected


def _depth(buffer: Buffer, buffers: Sequence[Buffer]) -> int:
    """How many have had its memory before."""
    by_id = {value.id: value for value in buffers}
    depth = 0
    while buffer.shares is not None:
        buffer = by_id[buffer.shares]
        depth += 1
    return depth


# How good they are


def _smallest(buffers: Sequence[Buffer]) -> int:
    """The best of first fit in every order: the order of the offsets in a smallest layout is one of them."""
    bound = lower_bound(buffers)
    best = sum(_rounded(value.nbytes, 64) for value in buffers)

    def go_on(placed: list[tuple[int, int, Buffer]], left: list[Buffer], top: int) -> None:
        nonlocal best
        if not left:
            best = min(best, top)
        for buffer in left:
            near = [value for value in placed if value[2].first <= buffer.last and buffer.first <= value[2].last]
            size = _rounded(buffer.nbytes, 64)
            at = min(
                at
                for at in [0, *(end for _, end, _ in near)]
                if all(at >= end or at + size <= begin for begin, end, _ in near)
            )
            if best > bound and at + size < best:
                others = [value for value in left if value is not buffer]
                go_on([*placed, (at, at + size, buffer)], others, max(top, at + size))

    go_on([], list(buffers), 0)
    return best


def _small_case(seed: int) -> list[Buffer]:
    random = Random(seed)
    firsts = [random.randrange(9) for _ in range(9)]
    return [
        Buffer(name, 64 * random.randint(1, 6), first, first + random.randrange(5)) for name, first in enumerate(firsts)
    ]


@pytest.mark.slow
def test_small_cases_come_out_as_small_as_can_be() -> None:
    cases = [_small_case(seed) for seed in range(200)]
    smallest = [_smallest(case) for case in cases]
    assert [plan(case, search_steps=200).nbytes for case in cases] == smallest
    without = [plan(case, search_steps=0).nbytes / least - 1 for case, least in zip(cases, smallest, strict=True)]
    assert min(without) == 0
    assert 0 < sum(without) / len(without) < 0.005


def test_the_search_finds_what_no_strategy_does() -> None:
    above, found = 0, 0
    for seed in range(20):
        buffers = _random_buffers(60, 30, seed)
        alone, searched = plan(buffers, search_steps=0), plan(buffers)
        above += alone.nbytes > lower_bound(buffers)
        if searched.nbytes < alone.nbytes:
            found += 1
            assert searched.strategy == f"{alone.strategy}, searched"
    assert found >= above / 2 > 0


@pytest.mark.parametrize("strategy", [strategy for strategy in STRATEGIES if strategy.endswith(("start", "end"))])
def test_buffers_of_one_size_leave_no_gap_in_order_of_steps(strategy: str) -> None:
    """As colouring intervals from left to right does, or from right to left."""
    buffers = [attrs.evolve(buffer, nbytes=1000) for buffer in _random_buffers(200, 30, seed=1)]
    nbytes = plan(buffers, [strategy], search_steps=0).nbytes
    assert nbytes == lower_bound(buffers)


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("layers", [1, 4, 12])
def test_a_training_step_is_close_to_the_bound(layers: int, in_place: bool) -> None:
    step = gpt(layers)
    shares = choose_in_place(step.ops, step.nbytes, step.pinned) if in_place else {}
    buffers = lifetimes(step.ops, step.nbytes, step.pinned, shares=shares)
    layout = plan(buffers)
    check(layout, buffers)
    assert layout.nbytes <= 1.15 * lower_bound(buffers)
    # One by one, these find it as well; the others do not have to.
    for strategy in ("first fit by start", "best fit by size", "first fit by peak"):
        assert plan(buffers, [strategy], 0).nbytes <= 1.15 * lower_bound(buffers)
    assert sum(buffer.nbytes for buffer in buffers) > 2 * layout.nbytes


@pytest.mark.parametrize("strategy", ["first fit by size", "best fit by lifetime", "best fit by peak"])
def test_too_many_to_be_placed_in_order_are_placed_all_the_same(strategy: str) -> None:
    buffers = _random_buffers(5000, 300, seed=2)
    layout = plan(buffers, [strategy], search_steps=1)
    check(layout, buffers)
    assert layout.strategy == strategy
    assert layout.nbytes <= 1.3 * lower_bound(buffers)


@pytest.mark.parametrize("lifetime", [100, 5000])
def test_ten_thousand_buffers_take_a_second_or_two(lifetime: int) -> None:
    buffers = _random_buffers(10_000, lifetime, seed=1)
    # Of this process alone: others may be running.
    begin = time.process_time()
    layout = plan(buffers)
    seconds = time.process_time() - begin
    check(layout, buffers)
    assert layout.nbytes <= 1.15 * lower_bound(buffers)
    assert seconds < 4


# Arguments and results


def test_a_buffer_that_takes_over_has_the_same_place() -> None:
    buffers = [
        Buffer(0, 100, 0, 1),
        Buffer(1, 100, 1, 2, shares=0),
        Buffer(2, 200, 2, 3, shares=1),
        Buffer(3, 64, 1, 3),
    ]
    layout = plan(buffers)
    assert layout.offsets[0] == layout.offsets[1] == layout.offsets[2]
    # The whole chain has the memory of the largest.
    assert layout.nbytes == 256 + 64 == lower_bound(buffers)


@pytest.mark.parametrize("order", ["start", "size"])
def test_the_first_gap_is_the_lowest_and_the_best_is_the_smallest(order: str) -> None:
    sizes = [(640, 1), (576, 3), (512, 1), (448, 3)]
    buffers = [Buffer(name, nbytes, 0, last) for name, (nbytes, last) in enumerate(sizes)]
    buffers.append(Buffer(4, 256, 2, 3))
    assert plan(buffers, [f"first fit by {order}"], 0).offsets == {0: 0, 1: 640, 2: 1216, 3: 1728, 4: 0}
    assert plan(buffers, [f"best fit by {order}"], 0).offsets == {0: 0, 1: 640, 2: 1216, 3: 1728, 4: 1216}


def test_what_ends_at_a_step_is_in_the_way_of_what_begins_there() -> None:
    assert plan([Buffer(0, 64, 0, 1), Buffer(1, 64, 1, 2)]).nbytes == 128
    assert plan([Buffer(0, 64, 0, 1), Buffer(1, 64, 2, 2)]).nbytes == 64


def test_nothing_takes_no_memory() -> None:
    assert plan([]) == Layout({}, 0, STRATEGIES[0])
    empty = [Buffer(5, 0, 0, 9), Buffer(6, 0, 3, 4)]
    assert plan(empty).offsets == {5: 0, 6: 0}
    assert plan(empty).nbytes == lower_bound(empty) == lower_bound([]) == 0
    assert timeline([]) == []
    check(plan(empty), empty)


def test_steps_may_be_far_apart_or_negative() -> None:
    buffers = [Buffer(0, 64, -(10**18), 0), Buffer(1, 64, 0, 10**18), Buffer(2, 64, 10**18, 10**18)]
    assert plan(buffers).nbytes == 128


def test_the_timeline_tells_what_begins_and_ends() -> None:
    buffers = [Buffer(0, 64, 0, 4), Buffer(1, 65, 2, 4, None), Buffer(2, 64, 4, 6, shares=0)]
    assert [(value.step, value.nbytes, value.begin, value.end) for value in timeline(buffers)] == [
        (0, 64, (0,), ()),
        (2, 192, (1,), ()),
        (4, 192, (2,), (0, 1)),
        (6, 64, (), (2,)),
    ]


def test_a_layout_does_not_print_all_its_offsets() -> None:
    layout = plan([Buffer(name, 64, 0, 0) for name in range(1000)])
    assert repr(layout) == "Layout(offsets=<of 1000 buffers>, nbytes=64000, strategy='first fit by start')"


@pytest.mark.parametrize(
    ("buffers", "message"),
    [
        ([Buffer(0, -1, 0, 0)], "must not be negative: Buffer"),
        ([Buffer(0, 1, 1, 0)], "until its first step"),
        ([Buffer(0, 1, 0, 0), Buffer(0, 1, 1, 1)], "two buffers have the id 0"),
        ([Buffer(0, 1, 0, 0, shares=7)], "shares the memory of an unknown buffer"),
        ([Buffer(0, 1, 0, 2), Buffer(1, 1, 1, 3, shares=0)], "must begin at step 2"),
        ([Buffer(0, 1, 0, 2), Buffer(1, 1, 2, 3, shares=0), Buffer(2, 1, 2, 3, shares=0)], "cannot both take over"),
        ([Buffer(0, 1, 0, 0), Buffer(1, 1, 0, 0, shares=0)], "must begin after the buffer it takes over"),
        ([Buffer(0, 1, 0, 0, shares=1), Buffer(1, 1, 0, 0, shares=0)], "must begin after the buffer it takes over"),
    ],
)
def test_invalid_buffers_are_refused(buffers: list[Buffer], message: str) -> None:
    for use in (plan, lower_bound, timeline, lambda given: check(Layout({}, 0, ""), given)):
        with pytest.raises(ValueError, match=message):
            use(buffers)


def test_invalid_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="there is no strategy 'by luck'; choose from 'first fit by start', "):
        plan([], ["by luck"])
    with pytest.raises(ValueError, match="at least one strategy"):
        plan([], [])
    with pytest.raises(ValueError, match="search_steps must be 0 or more, not -1"):
        plan([], search_steps=-1)
    with pytest.raises(ValueError, match="at least 1 byte, but is 0"):
        plan([], alignment=0)


@pytest.mark.parametrize(
    ("offsets", "nbytes", "message", "pair"),
    [
        ({0: 0, 1: 64}, 192, "buffer 2 is not in the layout", (2, 2)),
        ({0: 0, 1: 64, 2: 64, 9: 0}, 192, "buffer 9 is unknown", (9, 9)),
        ({0: 0, 1: 64, 2: 128}, 192, "buffer 2 is at 128, but must be at 64, in the memory of buffer 1", (1, 2)),
        ({0: 32, 1: 128, 2: 128}, 192, "buffer 0 is at 32, which is no multiple of 64", (0, 0)),
        ({0: 0, 1: 192, 2: 192}, 192, "at 192 to 256, outside of the 192 bytes", (1, 1)),
        ({0: -64, 1: 0, 2: 0}, 192, "at -64 to 0, outside", (0, 0)),
        (
            {0: 64, 1: 64, 2: 64},
            192,
            "both are needed at step 1, but the first ends at 128 and the second begins",
            (0, 1),
        ),
    ],
)
def test_invalid_layouts_are_refused(offsets: dict[int, int], nbytes: int, message: str, pair: tuple[int, int]) -> None:
    buffers = [Buffer(0, 64, 0, 1), Buffer(1, 60, 1, 2), Buffer(2, 64, 2, 3, shares=1)]
    with pytest.raises(BadLayout, match=message) as caught:
        check(Layout(offsets, nbytes, ""), buffers)
    assert tuple(sorted(caught.value.pair)) == pair
