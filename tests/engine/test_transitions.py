"""The life of an instruction: through the lists in order, out of its stream in order."""

from __future__ import annotations

import pytest

from vmflow.errors import InternalError
from vmflow.vm import VirtualMachineEngine

from .bench import Bench


def test_the_six_states(bench: Bench) -> None:
    bench.issue("first", "a", writes="x")
    bench.issue("second", "b", reads="x")
    assert (bench.state("first"), bench.state("second")) == ("NEW", "NEW")
    assert bench.turn() == ["first"]
    assert (bench.state("first"), bench.state("second")) == ("LAUNCHED", "WAITING")
    bench.finish("first")
    assert (bench.state("first"), bench.state("second")) == ("DONE", "WAITING")
    assert bench.turn() == ["second"]
    assert (bench.state("first"), bench.state("second")) == ("ERASED", "LAUNCHED")
    assert bench.erased() == ["first"]


def test_ready_is_the_state_between_the_last_edge_and_the_launch(bench: Bench) -> None:
    """No instruction is READY between turns, except on a full stream."""
    bench.stream("a", depth=1)
    bench.issue("first", "a")
    bench.issue("it", "a")
    assert bench.turn() == ["first"]
    assert bench.state("it") == "READY"
    bench.finish("first")
    assert bench.turn() == ["it"]
    assert bench.state("it") == "LAUNCHED"


def test_an_instruction_that_became_ready_later_goes_first_if_it_was_issued_first(bench: Bench) -> None:
    """A chain is followed before another is begun, as in a sequential program."""
    bench.issue("make", "a", writes="x")
    bench.issue("use", "a", reads="x")
    bench.issue("other", "a", writes="y")
    assert bench.turn() == ["make", "use", "other"]


def test_nothing_to_do(bench: Bench) -> None:
    assert bench.turn() == []
    assert bench.engine.idle()
    assert not bench.engine.has_work()
    assert bench.engine.story.turns == VirtualMachineEngine().story.turns, "an empty turn is nothing to remember"


def test_independent_instructions_are_launched_in_the_order_of_issue(bench: Bench) -> None:
    for name in ("one", "two", "three", "four"):
        bench.issue(name, "ab"[len(name) % 2])
    assert bench.turn() == ["one", "two", "three", "four"]
    assert bench.lively() == ["one", "two", "three", "four"]


def test_instructions_that_become_ready_together_are_launched_in_the_order_of_issue(bench: Bench) -> None:
    """In any order of reports."""
    for number, (name, stream) in enumerate(zip("wvu", "abc", strict=True)):
        bench.issue(f"write {name}", stream, writes="uvw"[2 - number])
    for name in "uvw":
        bench.issue(f"read {name}", "d", reads=name)
    bench.turn()
    bench.finish("write w", "write v", "write u")
    assert bench.turn() == ["read u", "read v", "read w"]


def test_serial_numbers_and_totals_follow_arrival(bench: Bench) -> None:
    first, second = bench.issue("first"), bench.issue("second")
    assert (first.serial, second.serial) == (-1, -1)
    bench.turn()
    assert (first.serial, second.serial) == (0, 1)
    assert (bench.engine.total_inserted, bench.engine.total_erased) == (2, 0)
    bench.finish("first")
    bench.turn()
    assert (bench.engine.total_inserted, bench.engine.total_erased) == (2, 1)


# Completion is in order per stream


def test_only_the_head_of_a_stream_is_erased(bench: Bench) -> None:
    for name in ("first", "second", "third"):
        bench.issue(name)
    bench.turn()
    bench.finish("third", "second")
    assert bench.turn() == []
    assert bench.erased() == []
    assert bench.state("third") == "DONE"
    bench.finish("first")
    bench.turn()
    assert bench.erased() == ["first", "second", "third"]


def test_a_successor_waits_for_everything_ahead_on_its_predecessors_stream(bench: Bench) -> None:
    bench.issue("slow", "a")
    bench.issue("quick", "a", writes="x")
    bench.issue("reader", "b", reads="x")
    assert bench.turn() == ["slow", "quick"]
    bench.finish("quick")
    assert bench.turn() == []
    bench.finish("slow")
    assert bench.turn() == ["reader"]


def test_streams_finish_independently(bench: Bench) -> None:
    bench.issue("slow", "a")
    bench.issue("quick", "b")
    bench.turn()
    bench.finish("quick")
    bench.turn()
    assert bench.erased() == ["quick"]
    assert bench.lively() == ["slow"]


def test_active_streams_are_those_with_something_running(bench: Bench) -> None:
    bench.issue("one", "a", writes="x")
    bench.issue("two", "b", reads="x")
    bench.turn()
    assert list(bench.engine.active_streams) == [bench.stream("a")]
    bench.finish("one")
    bench.turn()
    assert list(bench.engine.active_streams) == [bench.stream("b")]


def test_the_engine_keeps_no_policy_of_an_instruction_that_has_run(bench: Bench) -> None:
    instruction = bench.issue("it", writes="x")
    bench.turn()
    assert instruction.policy is not None
    bench.finish("it")
    assert instruction.policy is None, "dropped when it has run, not when its stream gets to it"
    bench.turn()
    assert bench.writer("x") is None
    assert (instruction.on_launch, instruction.on_finish) == (None, None)


# The window


def test_a_turn_takes_no_more_than_its_window(bench: Bench) -> None:
    bench.engine.window = 2
    for name in ("one", "two", "three", "four", "five"):
        bench.issue(name)
    assert bench.turn() == ["one", "two"]
    assert bench.engine.has_work()
    assert bench.turn() == ["three", "four"]
    assert bench.turn() == ["five"]
    assert not bench.engine.has_work()


def test_a_window_of_one_still_finds_the_edges(bench: Bench) -> None:
    bench.engine.window = 1
    bench.issue("write", "a", writes="x")
    bench.issue("read", "b", reads="x")
    assert bench.turn() == ["write"]
    assert bench.turn() == []
    bench.finish("write")
    assert bench.turn() == ["read"]


def test_a_window_must_hold_something() -> None:
    with pytest.raises(ValueError, match="window must be at least 1, not 0"):
        VirtualMachineEngine(window=0)


# has_work says whether a turn without further events would change anything


def test_has_work_after_each_event(bench: Bench) -> None:
    bench.issue("write", "a", writes="x")
    bench.issue("read", "b", reads="x")
    assert bench.engine.has_work()
    bench.turn()
    assert not bench.engine.has_work()
    bench.finish("write")
    assert bench.engine.has_work()
    bench.turn()
    assert not bench.engine.has_work()
    assert not bench.engine.idle()


# Failure


def test_a_failed_instruction_unlocks_its_successors_like_any_other(bench: Bench) -> None:
    bench.issue("write", "a", writes="x")
    bench.issue("read", "b", reads="x")
    bench.turn()
    bench.fail("write", ValueError("nothing to write"))
    assert bench.turn() == ["read"]
    assert ("failed", 0, "ValueError: nothing to write") in bench.engine.story.events()


# Misuse


def test_finishing_an_instruction_that_is_not_running_raises_with_the_story(bench: Bench) -> None:
    bench.issue("earlier")
    waiting = bench.issue("waiting", "b", reads="x")
    with pytest.raises(InternalError, match=r"waiting.*was reported finished but is not running"):
        bench.finish("waiting")
    bench.turn()
    bench.finish("waiting")
    with pytest.raises(InternalError, match=r"(?s)was reported finished but is not running.*launched  #0 earlier on a"):
        bench.finish("waiting")
    bench.turn()
    with pytest.raises(InternalError, match="ERASED on b> was reported finished"):
        bench.engine.failed(waiting, ValueError("too late"))
    assert not [event for event in bench.engine.story.events() if event[0] == "failed"]


@pytest.mark.parametrize("when", ["in one window", "while running", "when done", "when erased"])
def test_issuing_twice_raises_with_the_story(when: str) -> None:
    bench = Bench()
    bench.issue("earlier")
    bench.turn()
    twice = bench.issue("it")
    if when != "in one window":
        bench.turn()
    if when in ("when done", "when erased"):
        bench.finish("it")
    if when == "when erased":
        bench.finish("earlier")
        bench.turn()
    bench.engine.receive(twice)
    with pytest.raises(InternalError, match=r"(?s)<it #\d.*was issued twice.*launched  #0 earlier on a"):
        bench.engine.schedule()


def test_check_invariants_finds_a_forgotten_edge() -> None:
    bench = Bench()
    bench.issue("write", "a", writes="x")
    read = bench.issue("read", "b", reads="x")
    bench.turn()
    read.waits += 1
    with pytest.raises(InternalError, match="<read #1 WAITING on b> waits for 2 edges and has 1"):
        bench.engine.check_invariants()
    read.waits = 0
    with pytest.raises(InternalError, match="waits for nothing and is not ready"):
        bench.engine.check_invariants()


def test_check_invariants_finds_a_stranger_and_a_lost_one() -> None:
    bench = Bench()
    write = bench.issue("write", "a", writes="x")
    bench.turn()
    bench.engine.lively.remove(write)
    with pytest.raises(InternalError, match=r"1 inserted - 0 erased is not 0 lively.*is in a list but not lively"):
        bench.engine.check_invariants()
    bench.engine.lively.add(write)
    bench.stream("a").running.clear()
    with pytest.raises(InternalError, match="<write #0 LAUNCHED on a> and its stream disagree"):
        bench.engine.check_invariants()


# Probes


def test_a_probe_is_called_after_each_turn_until_it_returns_true(bench: Bench) -> None:
    launched: list[int] = []

    def probe() -> bool:
        launched.append(bench.engine.total_inserted)
        return len(launched) == 3

    bench.engine.add_probe(probe)
    bench.issue("one")
    bench.issue("two")
    for _ in range(5):
        bench.turn()
    assert launched == [2, 2, 2], "at the end of the turn, and not once more after it returned True"


def test_a_probe_may_add_a_probe(bench: Bench) -> None:
    calls: list[str] = []

    def second() -> bool:
        calls.append("second")
        return True

    def first() -> bool:
        calls.append("first")
        bench.engine.add_probe(second)
        return True

    bench.engine.add_probe(first)
    bench.turn()
    bench.turn()
    bench.turn()
    assert calls == ["first", "second"]


# Abandoning


def test_abandon_forgets_all_that_has_not_begun() -> None:
    bench = Bench()
    bench.issue("running", "a", writes="x")
    bench.issue("behind", "a", writes="y")
    bench.issue("waiting", "b", reads="x")
    bench.barrier("fence")
    bench.turn()
    bench.issue("pending", "a", writes="z")
    forgotten = bench.abandon("behind")
    assert forgotten == ["behind", "waiting", "fence", "pending"], "predecessors first"
    assert {bench.state(value) for value in forgotten} == {"ERASED"}
    assert all(bench.instructions[value].policy is None for value in forgotten)
    assert bench.lively() == ["running"]
    assert (bench.writer("x"), bench.writer("y"), bench.readers("x")) == ("running", None, [])
    bench.finish("running")
    assert bench.turn() == [], "the waiting one must not come back"
    assert bench.engine.idle()
    assert not bench.engine.has_work()
    assert not bench.engine.active_streams


def test_an_abandoned_instruction_fails_before_its_state_says_that_it_has_ended() -> None:
    bench = Bench()
    bench.issue("write", "a", writes="x")
    bench.issue("waiting", "b", reads="x")
    bench.turn()
    bench.issue("pending")
    states: list[str] = []
    bench.engine.abandon([], lambda instruction: states.append(bench.state(instruction.name)))
    assert states == ["WAITING", "NEW"]
    bench.drain()


def test_abandon_leaves_streams_without_anything_running() -> None:
    bench = Bench()
    bench.issue("unrun", "a")
    bench.turn()
    assert bench.abandon("unrun") == ["unrun"]
    assert not bench.engine.active_streams
    assert not bench.stream("a").running
    assert bench.engine.idle()


def test_abandoning_an_instruction_that_has_run_is_refused() -> None:
    bench = Bench()
    bench.issue("first")
    bench.issue("done")
    bench.turn()
    bench.finish("done")
    with pytest.raises(InternalError, match="has run and cannot be abandoned"):
        bench.abandon("done")


def test_abandoning_nothing() -> None:
    bench = Bench()
    assert bench.abandon() == []
    assert bench.engine.story.events() == []
