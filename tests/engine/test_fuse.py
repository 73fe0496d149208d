"""Consecutive small instructions of one stream are scheduled as one, and nobody else can tell."""

from __future__ import annotations

import pytest

from vmflow.errors import InternalError
from vmflow.vm import VirtualMachineEngine
from vmflow.vm.engine import FUSE_BELOW, LAUNCH_COST

from .bench import Bench


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_neighbours_on_one_stream_are_fused(bench: Bench) -> None:
    bench.issue("one", writes="x", fusable=True)
    bench.issue("two", reads="x", writes="y", fusable=True)
    bench.issue("three", reads="xy", writes="z", fusable=True)
    assert bench.turn() == ["one+two+three"]
    assert [bench.writer(value) for value in "xyz"] == ["one+two+three"] * 3
    assert {bench.state(name) for name in ("one", "two", "three")} == {"LAUNCHED"}
    bench.finish("one+two+three")
    assert {bench.state(name) for name in ("one", "two", "three")} == {"DONE"}
    assert all(bench.instructions[name].policy is None for name in ("one", "two", "three"))
    assert bench.turn() == []
    assert bench.erased() == ["one", "two", "three"]
    assert {bench.state(name) for name in ("one", "two", "three")} == {"ERASED"}
    assert [bench.writer(value) for value in "xyz"] == [None] * 3


def test_one_alone_stays_alone(bench: Bench) -> None:
    bench.issue("one", fusable=True)
    bench.issue("two")
    bench.issue("three", fusable=True)
    assert bench.turn() == ["one", "two", "three"]


def test_another_stream_in_between_ends_it(bench: Bench) -> None:
    bench.issue("one", "a", fusable=True)
    bench.issue("two", "b", fusable=True)
    bench.issue("three", "a", fusable=True)
    assert sorted(bench.turn()) == ["one", "three", "two"]


def test_priorities_are_not_mixed(bench: Bench) -> None:
    bench.issue("one", priority=1, fusable=True)
    bench.issue("two", priority=1, fusable=True)
    bench.issue("three", fusable=True)
    bench.issue("four", fusable=True)
    assert bench.turn() == ["one+two", "three+four"]


def test_a_fused_one_has_the_priority_of_its_members(bench: Bench) -> None:
    bench.issue("ordinary", fusable=True)
    bench.issue("too", fusable=True)
    bench.issue("urgent", priority=2, fusable=True)
    bench.issue("as well", priority=2, fusable=True)
    assert bench.turn() == ["urgent+as well", "ordinary+too"]


def test_no_more_work_is_fused_than_allowed(bench: Bench) -> None:
    cost = FUSE_BELOW // 4 - LAUNCH_COST
    for name in ("one", "two", "three", "four", "five", "six"):
        bench.issue(name, cost=cost, fusable=True)
    bench.issue("large", cost=FUSE_BELOW + 1, fusable=True)
    bench.issue("small", fusable=True)
    assert bench.turn() == ["one+two+three+four", "five+six", "large", "small"]


def test_an_instruction_that_needs_memory_of_the_allocator_is_launched_alone(bench: Bench) -> None:
    """Or memory that is given back in between would be needed twice."""
    for name, prepares in (("one", True), ("two", False), ("three", False), ("four", True), ("five", True)):
        bench.issue(name, fusable=True, prepares=prepares)
    assert bench.turn() == ["one", "two+three", "four", "five"]


def test_work_counts_as_if_it_were_not_fused(bench: Bench) -> None:
    bench.issue("one", cost=2_000, fusable=True)
    bench.issue("two", cost=3_000, fusable=True)
    bench.issue("alone", "b", cost=5_000)
    bench.turn()
    assert bench.stream("a").outstanding == 5_000 + 2 * LAUNCH_COST
    assert bench.stream("b").outstanding == 5_000 + LAUNCH_COST
    bench.finish("one+two", "alone")
    assert bench.stream("a").outstanding == bench.stream("b").outstanding == 0


def test_it_can_be_switched_off() -> None:
    bench = Bench(VirtualMachineEngine(fuse_below=0))
    bench.issue("one", fusable=True)
    bench.issue("two", fusable=True)
    assert bench.turn() == ["one", "two"]
    with pytest.raises(ValueError, match="fuse_below must be nanoseconds, 0 to fuse nothing, not -1"):
        VirtualMachineEngine(fuse_below=-1)


def test_it_waits_for_all_that_its_members_wait_for(bench: Bench) -> None:
    """On other streams, for the first member; the others are on their own then, see below."""
    bench.issue("elsewhere", "b", writes="x")
    bench.issue("one", reads="x", fusable=True)
    bench.issue("two", writes="y", fusable=True)
    assert bench.turn() == ["elsewhere"]
    bench.finish("elsewhere")
    assert bench.turn() == ["one+two"]


def test_reading_a_storage_written_elsewhere_does_not_delay_earlier_members(bench: Bench) -> None:
    _does_not_hold_up(bench, reads="x")


def test_writing_a_storage_used_elsewhere_does_not_delay_earlier_members(bench: Bench) -> None:
    _does_not_hold_up(bench, writes="x")


def test_writing_a_storage_read_elsewhere_does_not_delay_earlier_members(bench: Bench) -> None:
    _does_not_hold_up(bench, writes="y")


def _does_not_hold_up(bench: Bench, reads: str = "", writes: str = "") -> None:
    bench.issue("elsewhere", "b", writes="x", reads="y")
    bench.issue("one", fusable=True)
    bench.issue("two", reads=reads, writes=writes, fusable=True)
    assert bench.turn() == ["elsewhere", "one"]
    bench.finish("elsewhere")
    assert bench.turn() == ["two"]


def test_others_wait_for_all_of_it(bench: Bench) -> None:
    bench.issue("one", writes="x", fusable=True)
    bench.issue("two", reads="z", fusable=True)
    bench.issue("reader", "b", reads="x")
    bench.issue("writer", "b", writes="z")
    bench.issue("behind", reads="x")
    assert bench.turn() == ["one+two", "behind"]
    bench.finish("one+two")
    assert bench.turn() == ["reader", "writer"]


def test_a_barrier_waits_for_it(bench: Bench) -> None:
    bench.issue("one", fusable=True)
    bench.issue("two", fusable=True)
    bench.barrier("fence")
    bench.issue("three", fusable=True)
    bench.issue("four", fusable=True)
    assert bench.turn() == ["one+two", "three+four"]
    bench.finish("three+four", "one+two")
    assert bench.turn() == ["fence"]


def test_program_order_is_kept_on_a_sequential_stream(bench: Bench) -> None:
    bench.stream("a", sequential=True)
    bench.issue("elsewhere", "b", writes="x")
    bench.issue("zero", reads="x")
    bench.issue("one", writes="y", fusable=True)
    bench.issue("two", writes="z", fusable=True)
    assert bench.turn() == ["elsewhere"]
    bench.finish("elsewhere")
    assert bench.turn() == ["zero", "one+two"]


def test_members_are_forgotten_with_it(bench: Bench) -> None:
    bench.issue("elsewhere", "b", writes="x")
    bench.issue("one", reads="x", fusable=True)
    bench.issue("two", fusable=True)
    bench.issue("three", cost=FUSE_BELOW, fusable=True)
    bench.turn()
    forgotten = bench.engine.abandon([bench.instructions["three"]], lambda instruction: None)
    bench.engine.check_invariants()
    assert [value.name for value in forgotten] == ["three", "one", "two"]
    assert {bench.state(name) for name in ("one", "two", "three")} == {"ERASED"}
    assert all(bench.instructions[name].policy is None for name in ("one", "two", "three"))


def test_the_story_tells_of_members(bench: Bench) -> None:
    bench.issue("one", fusable=True)
    two = bench.issue("two", fusable=True)
    bench.turn()
    bench.engine.remember_failure(two, ValueError("no"))
    bench.finish("one+two")
    bench.turn()
    assert bench.engine.story.events(two) == [
        ("absorbed", 1, "two on a"),
        ("launched", 1, "two on a"),
        ("failed", 1, "ValueError: no"),
        ("erased", 1, "two on a"),
    ]
    assert bench.engine.story.events("one") == [
        ("absorbed", 0, "one on a"),
        ("launched", 0, "one on a"),
        ("erased", 0, "one on a"),
    ]


def test_a_member_issued_twice_is_found(bench: Bench) -> None:
    bench.issue("one", fusable=True)
    bench.engine.receive(bench.issue("two", fusable=True))
    with pytest.raises(InternalError, match=r"two.*was issued twice"):
        bench.engine.schedule()


def test_outstanding_counts_members(bench: Bench) -> None:
    for name in ("one", "two", "three"):
        bench.issue(name, fusable=True)
    assert bench.engine.outstanding() == 3
    bench.turn()
    assert bench.engine.outstanding() == 3
    bench.finish("one+two+three")
    bench.turn()
    assert bench.engine.outstanding() == 0


def test_its_repr_names_the_members(bench: Bench) -> None:
    bench.issue("one", fusable=True)
    bench.issue("two", fusable=True)
    bench.turn()
    assert repr(bench.instructions["one+two"]) == "<fuse(one, two) #0 LAUNCHED on a>"
    bench.drain()
