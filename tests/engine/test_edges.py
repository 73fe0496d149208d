"""Which access waits for which: reads and writes of one storage, on one stream and across streams."""

from __future__ import annotations

import pytest

from vmflow.errors import InternalError

from .bench import Bench

# Across streams, each instruction needs its predecessor to be finished.


def test_a_read_waits_for_the_write(bench: Bench) -> None:
    bench.issue("write", "a", writes="x")
    bench.issue("read", "b", reads="x")
    assert bench.turn() == ["write"]
    bench.finish("write")
    assert bench.turn() == ["read"]


def test_a_write_waits_for_every_read_since_the_last_write(bench: Bench) -> None:
    bench.issue("left", "a", reads="x")
    bench.issue("right", "b", reads="x")
    bench.issue("write", "c", writes="x")
    assert bench.turn() == ["left", "right"]
    bench.finish("left")
    assert bench.turn() == []
    bench.finish("right")
    assert bench.turn() == ["write"]


def test_a_write_waits_for_the_first_read_too(bench: Bench) -> None:
    bench.issue("left", "a", reads="x")
    bench.issue("right", "b", reads="x")
    bench.issue("write", "c", writes="x")
    bench.turn()
    bench.finish("right")
    assert bench.turn() == []
    bench.finish("left")
    assert bench.turn() == ["write"]


def test_a_write_waits_for_the_write(bench: Bench) -> None:
    bench.issue("first", "a", writes="x")
    bench.issue("second", "b", writes="x")
    assert bench.turn() == ["first"]
    bench.finish("first")
    assert bench.turn() == ["second"]


def test_reads_run_together(bench: Bench) -> None:
    bench.issue("write", "a", writes="x")
    bench.issue("left", "b", reads="x")
    bench.issue("right", "c", reads="x")
    bench.turn()
    bench.finish("write")
    assert bench.turn() == ["left", "right"]


def test_a_read_does_not_wait_for_reads_issued_before_it(bench: Bench) -> None:
    bench.issue("left", "a", reads="x")
    bench.turn()
    bench.issue("right", "b", reads="x")
    assert bench.turn() == ["right"]


def test_different_storages_do_not_order(bench: Bench) -> None:
    bench.issue("one", "a", writes="x")
    bench.issue("other", "b", reads="y", writes="z")
    assert bench.turn() == ["one", "other"]


def test_accesses_of_all_operands_count(bench: Bench) -> None:
    bench.issue("first", "a", writes="x")
    bench.issue("second", "b", writes="y")
    bench.issue("both", "c", reads="xy", writes="z")
    bench.turn()
    bench.finish("first")
    assert bench.turn() == []
    bench.finish("second")
    assert bench.turn() == ["both"]


def test_several_outputs_are_all_ordered(bench: Bench) -> None:
    bench.issue("write", "a", writes="xy")
    bench.issue("one", "b", reads="x")
    bench.issue("other", "c", reads="y")
    assert bench.turn() == ["write"]
    bench.finish("write")
    assert bench.turn() == ["one", "other"]


def test_a_chain_across_streams_goes_one_link_at_a_time(bench: Bench) -> None:
    bench.issue("first", "a", writes="x")
    bench.issue("second", "b", reads="x", writes="y")
    bench.issue("third", "a", reads="y")
    assert bench.turn() == ["first"]
    bench.finish("first")
    assert bench.turn() == ["second"]
    bench.finish("second")
    assert bench.turn() == ["third"]


# A dependence remembers at most one write, and the reads since then


def test_a_write_drops_older_accesses(bench: Bench) -> None:
    bench.issue("first", "a", writes="x")
    bench.issue("left", "a", reads="x")
    bench.issue("right", "b", reads="x")
    bench.turn()
    assert (bench.writer("x"), bench.readers("x")) == ("first", ["left", "right"])
    bench.issue("second", "c", writes="x")
    bench.turn()
    assert (bench.writer("x"), bench.readers("x")) == ("second", [])


def test_a_read_leaves_the_write_in_front(bench: Bench) -> None:
    bench.issue("write", "a", writes="x")
    bench.issue("read", "a", reads="x")
    bench.turn()
    bench.finish("write")
    bench.turn()
    assert (bench.writer("x"), bench.readers("x")) == (None, ["read"])
    bench.issue("later", "b", writes="x")
    assert bench.turn() == [], "the read alone is enough to wait for"


def test_finished_accesses_are_forgotten(bench: Bench) -> None:
    bench.issue("write", "a", writes="x")
    bench.issue("read", "b", reads="x")
    bench.turn()
    bench.finish("write")
    bench.turn()
    bench.finish("read")
    bench.turn()
    assert (bench.writer("x"), bench.readers("x")) == (None, [])


def test_an_access_dropped_by_a_write_is_still_waited_for_through_it(bench: Bench) -> None:
    """The reader knows of the last write only, which must not be erased before those it has displaced."""
    bench.issue("reading", "b", reads="x")
    bench.issue("write", "a", writes="x")
    bench.issue("again", "a", writes="x")
    bench.issue("reader", "c", reads="x")
    assert bench.turn() == ["reading"]
    bench.finish("reading")
    assert bench.turn() == ["write", "again"]
    assert bench.writer("x") == "again"
    bench.finish("again")
    assert bench.turn() == []
    bench.finish("write")
    assert bench.turn() == ["reader"]


def test_the_end_of_a_displaced_write_does_not_hide_the_one_that_displaced_it(bench: Bench) -> None:
    bench.issue("first", "a", writes="x")
    bench.issue("second", "b", writes="x")
    bench.turn()
    bench.finish("first")
    assert bench.turn() == ["second"]
    assert bench.writer("x") == "second"
    bench.issue("reader", "c", reads="x")
    assert bench.turn() == []
    bench.finish("second")
    assert bench.turn() == ["reader"]


# One instruction that accesses a storage more than once


def test_an_instruction_that_reads_and_writes_one_storage_does_not_wait_for_itself(bench: Bench) -> None:
    in_place = bench.issue("in place", reads="x", writes="x")
    assert bench.turn() == ["in place"]
    assert in_place.waits == 0
    assert (bench.writer("x"), bench.readers("x")) == ("in place", []), "it is the write, not a reader of itself"


def test_an_instruction_that_writes_one_storage_twice_does_not_wait_for_itself(bench: Bench) -> None:
    bench.issue("before", "a", reads="x")
    bench.issue("twice", "b", writes="xx", reads="x")
    assert bench.turn() == ["before"]
    bench.finish("before")
    assert bench.turn() == ["twice"]


def test_an_in_place_instruction_waits_as_reader_and_as_writer(bench: Bench) -> None:
    bench.issue("write", "a", writes="x")
    bench.issue("read", "b", reads="x")
    bench.issue("in place", "c", reads="x", writes="x")
    bench.issue("later", "d", reads="x")
    assert bench.turn() == ["write"]
    bench.finish("write")
    assert bench.turn() == ["read"]
    bench.finish("read")
    assert bench.turn() == ["in place"]
    bench.finish("in place")
    assert bench.turn() == ["later"]


def test_outputs_are_consumed_before_inputs(bench: Bench) -> None:
    """An in-place instruction meets itself as the writer: it must not be entered among the readers."""
    bench.issue("in place", "a", reads="x", writes="x")
    bench.issue("read", "b", reads="x")
    bench.turn()
    assert bench.readers("x") == ["read"]
    assert bench.writer("x") == "in place"


def test_reading_one_storage_twice_draws_one_edge(bench: Bench) -> None:
    bench.issue("write", "a", writes="xy")
    square = bench.issue("square", "b", reads="xxy")
    bench.turn()
    assert square.waits == 1
    assert bench.readers("x") == ["square"]


def test_views_share_the_dependence_of_their_storage(bench: Bench) -> None:
    """Two halves of one storage are one storage here: a write to one half waits for the read of the other."""
    half = other_half = "x"
    bench.issue("read a half", "a", reads=half)
    bench.issue("write the other", "b", writes=other_half)
    assert bench.turn() == ["read a half"]
    bench.finish("read a half")
    assert bench.turn() == ["write the other"]


# On one stream a launch is enough: prescheduling


def test_a_chain_on_one_stream_is_launched_in_one_turn(bench: Bench) -> None:
    bench.issue("first", reads="x", writes="y")
    bench.issue("second", reads="y", writes="z")
    bench.issue("third", reads="z", writes="x")
    assert bench.turn() == ["first", "second", "third"]


def test_a_successor_that_comes_later_is_launched_behind_its_running_predecessor(bench: Bench) -> None:
    bench.issue("first", writes="x")
    bench.turn()
    second = bench.issue("second", reads="x")
    assert bench.turn() == ["second"]
    assert second.waits == 0
    assert bench.instructions["first"].on_finish is None, "an edge that already passes is not drawn"


def test_a_successor_is_launched_behind_a_predecessor_that_is_done_and_not_erased(bench: Bench) -> None:
    bench.issue("ahead")
    bench.issue("first", writes="x")
    bench.turn()
    bench.finish("first")
    bench.issue("second", reads="x")
    assert bench.turn() == ["second"]


def test_being_prescheduled_is_not_being_finished(bench: Bench) -> None:
    bench.issue("first", writes="x")
    bench.issue("second", reads="x", writes="y")
    bench.issue("elsewhere", "b", reads="y")
    assert bench.turn() == ["first", "second"]
    bench.finish("second")
    assert bench.turn() == [], "the end of a stream's second is not believed before its first"
    assert bench.state("second") == "DONE"
    bench.finish("first")
    assert bench.turn() == ["elsewhere"]
    assert bench.erased() == ["first", "second"]


def test_across_streams_a_launch_is_not_enough(bench: Bench) -> None:
    bench.issue("first", "a", writes="x")
    bench.turn()
    bench.issue("second", "b", reads="x")
    assert bench.turn() == []
    bench.finish("first")
    assert bench.turn() == ["second"]


def test_a_successor_waits_for_an_unlaunched_predecessor_on_its_stream(bench: Bench) -> None:
    bench.issue("far", "b", writes="x")
    bench.issue("first", "a", reads="x", writes="y")
    bench.issue("second", "a", reads="y")
    assert bench.turn() == ["far"]
    bench.finish("far")
    assert bench.turn() == ["first", "second"], "the second right behind the first, in the same turn"


def test_prescheduled_only_when_the_other_edges_pass_too(bench: Bench) -> None:
    bench.issue("far", "b", writes="x")
    bench.issue("near", "a", writes="y")
    both = bench.issue("both", "a", reads="xy")
    assert bench.turn() == ["far", "near"]
    assert both.waits == 1
    bench.finish("near")
    assert bench.turn() == []
    bench.finish("far")
    assert bench.turn() == ["both"]


def test_independent_work_overtakes_waiting_work_of_the_same_stream(bench: Bench) -> None:
    bench.issue("far", "b", writes="x")
    bench.issue("waits", "a", reads="x")
    bench.issue("free", "a")
    assert bench.turn() == ["far", "free"]


def test_an_instruction_that_is_not_preschedulable_needs_its_predecessor_finished(bench: Bench) -> None:
    bench.issue("write", "a", writes="x")
    bench.issue("look", "a", reads="x", preschedulable=False)
    assert bench.turn() == ["write"]
    bench.finish("write")
    assert bench.state("look") == "WAITING"
    assert bench.turn() == ["look"]


def test_one_that_is_not_preschedulable_waits_for_a_predecessor_done_and_not_erased(bench: Bench) -> None:
    bench.issue("ahead", "a")
    bench.issue("write", "a", writes="x")
    bench.turn()
    bench.finish("write")
    bench.issue("look", "a", reads="x", preschedulable=False)
    assert bench.turn() == []
    bench.finish("ahead")
    assert bench.turn() == ["look"]


def test_others_may_be_prescheduled_behind_one_that_is_not(bench: Bench) -> None:
    bench.issue("look", "a", writes="x", preschedulable=False)
    bench.issue("read", "a", reads="x")
    assert bench.turn() == ["look", "read"]


# Sequential streams: program order, also where no data asks for it


def test_a_sequential_stream_keeps_program_order(bench: Bench) -> None:
    bench.stream("transport", sequential=True)
    bench.issue("far", "a", writes="x")
    bench.issue("first", "transport", reads="x")
    bench.issue("second", "transport")
    bench.issue("third", "transport", writes="y")
    assert bench.turn() == ["far"], "no data holds the second back, but the first does"
    bench.finish("far")
    assert bench.turn() == ["first", "second", "third"]


def test_transport_order(bench: Bench) -> None:
    """All communication leaves in program order, however long its operands take: ranks would deadlock otherwise."""
    bench.stream("transport", sequential=True)
    for letter in "pqrs":
        bench.issue(f"make {letter}", letter, writes=letter)
        bench.issue(f"send {letter}", "transport", reads=letter)
    bench.turn()
    left: list[str] = []
    for letter in "srqp":
        bench.finish(f"make {letter}")
        left += bench.turn()
    assert left == ["send p", "send q", "send r", "send s"]


def test_order_on_one_sequential_stream_does_not_touch_others(bench: Bench) -> None:
    bench.stream("transport", sequential=True)
    bench.stream("other transport", sequential=True)
    bench.issue("far", "a", writes="x")
    bench.issue("held", "transport", reads="x")
    bench.issue("free", "other transport")
    bench.issue("free too", "b")
    assert bench.turn() == ["far", "free", "free too"]


def test_a_sequential_stream_orders_instructions_that_are_not_preschedulable(bench: Bench) -> None:
    bench.stream("transport", sequential=True)
    bench.issue("first", "transport")
    bench.issue("second", "transport", preschedulable=False)
    assert bench.turn() == ["first"]
    bench.finish("first")
    assert bench.turn() == ["second"]


def test_a_plain_stream_has_no_order_of_its_own(bench: Bench) -> None:
    bench.issue("one")
    bench.turn()
    assert bench.stream("a").order is None


def test_check_invariants_sees_an_access_that_outlived_its_instruction() -> None:
    bench = Bench()
    bench.issue("write", "a", writes="x")
    bench.issue("read", "a", reads="x")
    bench.turn()
    bench.finish("write")
    bench.turn()
    bench.storage("x").writer = bench.instructions["write"]
    with pytest.raises(InternalError, match="<write #0 ERASED on a> is remembered by a dependence of <read #1"):
        bench.engine.check_invariants()
