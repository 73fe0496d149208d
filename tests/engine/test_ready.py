"""Ready instructions are launched by urgency until their stream is full; a device may order two of its streams."""

from __future__ import annotations

from itertools import pairwise

import pytest

from vmflow.instructions.scope import Scope
from vmflow.vm.engine import AGEING, LAUNCH_COST
from vmflow.vm.replay import replay

from .bench import Bench


def test_a_stream_that_follows_another_needs_a_launch_there(bench: Bench) -> None:
    bench.issue("copy", "a", writes="x")
    bench.issue("wait", "b", writes="x", follows="a")
    bench.issue("use", "b", reads="x")
    assert bench.turn() == ["copy", "wait", "use"]


def test_following_one_stream_is_not_following_all(bench: Bench) -> None:
    bench.issue("elsewhere", "c", reads="x")
    bench.issue("copy", "a", reads="x")
    bench.issue("wait", "b", writes="x", follows="a")
    assert bench.turn() == ["elsewhere", "copy"]
    bench.finish("elsewhere")
    assert bench.turn() == ["wait"]


def test_an_instruction_that_follows_waits_for_launches(bench: Bench) -> None:
    bench.issue("first", "c", writes="x")
    bench.issue("copy", "a", writes="x")
    bench.issue("wait", "b", writes="x", follows="a")
    assert bench.turn() == ["first"]
    bench.finish("first")
    assert bench.turn() == ["copy", "wait"]


def test_the_most_urgent_goes_first(bench: Bench) -> None:
    bench.stream("a", depth=1)
    bench.issue("running", "a")
    assert bench.turn() == ["running"]
    bench.issue("low", "a", priority=-1)
    bench.issue("ordinary", "a")
    bench.issue("high", "a", priority=2)
    bench.issue("higher", "a", priority=3)
    assert one_at_a_time(bench, "running") == ["higher", "high", "ordinary", "low"]


def test_equals_go_in_the_order_in_which_they_became_ready(bench: Bench) -> None:
    bench.stream("a", depth=1)
    bench.issue("running", "a")
    bench.turn()
    for name in ("one", "two", "three"):
        bench.issue(name, "a", priority=7)
    assert one_at_a_time(bench, "running") == ["one", "two", "three"]


def test_urgency_is_per_stream(bench: Bench) -> None:
    bench.stream("a", depth=1)
    bench.issue("running", "a")
    bench.turn()
    bench.issue("urgent", "a", priority=9)
    bench.issue("elsewhere", "b", priority=-9)
    assert bench.turn() == ["elsewhere"]
    assert bench.state("urgent") == "READY"


def test_nothing_waits_for_ever(bench: Bench) -> None:
    """Under a load of urgent work that never ends, the rest gets one turn in `AGEING` for each step of priority."""
    bench.stream("a", depth=1)
    bench.issue("running", "a")
    bench.turn()
    for number in range(5):
        bench.issue(f"low {number}", "a")
    when: list[int] = []
    launched = "running"
    for number in range(5 * AGEING):
        # Two are always waiting, so that there is no gap.
        bench.issue(f"urgent {number}", "a", priority=1)
        if number == 0:
            bench.issue("urgent too", "a", priority=1)
        bench.finish(launched)
        (launched,) = bench.turn()
        if launched.startswith("low"):
            when.append(number)
    assert len(when) >= 3
    gaps = [later - earlier for earlier, later in pairwise(when)]
    assert all(AGEING <= gap <= AGEING + 2 for gap in gaps), gaps


def test_a_full_stream_gets_no_more(bench: Bench) -> None:
    bench.stream("a", depth=2 * LAUNCH_COST)
    for name in ("one", "two", "three"):
        bench.issue(name, "a")
    bench.issue("elsewhere", "b")
    assert sorted(bench.turn()) == ["elsewhere", "one", "two"]
    assert bench.state("three") == "READY"
    assert not bench.engine.has_work(), "a turn would change nothing until something finishes"
    bench.engine.check_invariants()


def test_depth_is_counted_in_estimated_work(bench: Bench) -> None:
    bench.stream("a", depth=1_000_000)
    bench.issue("heavy", "a", cost=2_000_000)
    bench.issue("light", "a")
    assert bench.turn() == ["heavy"], "the first goes out however heavy it is"
    bench.finish("heavy")
    assert bench.turn() == ["light"]


def test_finished_work_lets_the_next_be_launched(bench: Bench) -> None:
    bench.stream("a", depth=LAUNCH_COST)
    for name in ("one", "two", "three"):
        bench.issue(name, "a")
    assert bench.turn() == ["one"]
    bench.finish("one")
    assert bench.engine.has_work()
    assert bench.turn() == ["two"]
    bench.finish("two")
    assert bench.turn() == ["three"]


def test_an_end_out_of_order_lets_the_next_be_launched_too(bench: Bench) -> None:
    bench.stream("a", depth=2 * LAUNCH_COST)
    for name in ("one", "two", "three"):
        bench.issue(name, "a")
    assert bench.turn() == ["one", "two"]
    bench.finish("two")
    assert bench.turn() == ["three"]
    assert bench.state("two") == "DONE"


def test_abandoning_empties_the_ready_lists(bench: Bench) -> None:
    bench.stream("a", depth=1)
    bench.issue("running", "a")
    bench.turn()
    bench.issue("ready", "a")
    bench.issue("urgent", "a", priority=3)
    bench.turn()
    dropped = bench.engine.abandon([], lambda instruction: None)
    assert {value.name for value in dropped} == {"ready", "urgent"}
    bench.engine.check_invariants()
    bench.finish("running")
    bench.turn()
    assert bench.engine.idle()
    bench.issue("later", "a")
    assert bench.turn() == ["later"]


def one_at_a_time(bench: Bench, running: str) -> list[str]:
    """The launches on a stream that takes one at a time, each after the one before has finished."""
    order: list[str] = []
    while True:
        bench.finish(running)
        launched = bench.turn()
        if not launched:
            return order
        (running,) = launched
        order.append(running)


@pytest.mark.parametrize(("outer", "inner", "found"), [(None, None, 0), (3, None, 3), (3, 1, 1), (None, -2, -2)])
def test_priority_is_inherited(outer: int | None, inner: int | None, found: int) -> None:
    assert Scope(Scope(priority=outer), priority=inner).priority == found


def test_ranks_replay(bench: Bench) -> None:
    bench.stream("a", depth=LAUNCH_COST)
    bench.issue("running", "a", writes="x")
    bench.issue("low", "a")
    bench.issue("high", "a", priority=2)
    bench.issue("follower", "b", writes="x", follows="a")
    launched = bench.turn()
    for name in launched:
        bench.finish(name)
    for name in bench.turn():
        bench.finish(name)
    bench.turn()
    replay(bench.engine.story.script())
