"""The rules of the general actor and the light one, as scripts of events and decisions."""

from __future__ import annotations

from typing import Any

import pytest

from vmflow.errors import InternalError
from vmflow.graph_mode.actors import ActorSystem
from vmflow.graph_mode.actors.light import LightActor

from .bench import Bench, Sketch

# Every script takes a class of systems, so that it can be run with a broken one.


def pair(slots: int = 1, reader_on: int = 1) -> Sketch:
    """A source on one thread and a reader of it on another."""
    return Sketch().source(writes=f"x*{slots}").task("reader", reads="x", on=reader_on)


def test_an_act_needs_a_free_slot_and_gets_it_by_the_ack(system: Any) -> None:
    bench = Bench(pair(), system)
    bench.launch("first", "second")
    assert bench.turn(0) == ["source"]
    bench.finish(0)
    assert bench.deliver() == ["full x to reader"]
    assert bench.turn(0) == []
    assert bench.turn(1) == ["reader"]
    bench.finish(1)
    assert bench.deliver() == ["free x to source"]
    assert bench.turn(0) == ["source"]
    bench.finish(0)
    bench.end()
    assert bench.acted == ["source", "reader", "source", "reader"]


def test_credits_are_all_slots_in_order(system: Any) -> None:
    bench = Bench(pair(slots=2), system)
    bench.launch(*"abc")
    assert bench.turn(0) == ["source", "source"]
    bench.finish(0, 2)
    assert bench.deliver() == ["full x[0] to reader", "full x[1] to reader"]
    assert bench.turn(1) == ["reader", "reader"]
    bench.finish(1)
    assert bench.deliver() == ["free x[0] to source"]
    assert bench.turn(0) == ["source"]
    assert bench.flights[0][0].item == "c"
    bench.end()


def test_other_threads_hear_of_an_act_when_it_has_completed(system: Any) -> None:
    bench = Bench(pair(), system)
    bench.launch(1)
    bench.turn(0)
    assert bench.deliver() == []
    bench.finish(0)
    assert bench.deliver() == ["full x to reader"]
    bench.end()


def test_the_same_thread_hears_of_it_at_once(system: Any) -> None:
    bench = Bench(pair(reader_on=0), system)
    bench.launch(1, 2)
    # The stream orders them, so that not even the slot has to be waited for.
    assert bench.turn(0) == ["source", "reader", "source", "reader"]
    assert bench.deliver() == []
    bench.end()


def test_an_act_needs_every_input(system: Any) -> None:
    sketch = Sketch().source(writes="a b").task("left", reads="a", writes="c", on=1)
    sketch.task("both", reads="b c", on=2)
    for light in (True, False):
        sketch.counts["b"] = 1 if light else 2
        bench = Bench(sketch, system)
        assert (type(bench.actor("both")).__name__ == LightActor.__name__) == light
        bench.launch(1)
        bench.turn(0)
        bench.finish(0)
        bench.deliver()
        assert bench.turn(2) == []
        bench.turn(1)
        bench.finish(1)
        bench.deliver()
        assert bench.turn(2) == ["both"]
        bench.end()


def _two_readers(slots: int) -> Sketch:
    sketch = Sketch().source(writes="a").task("writer", reads="a", writes=f"x*{slots}", on=1)
    return sketch.task("one", reads="x", on=2).task("other", reads="x", on=3)


@pytest.mark.parametrize("slots", [1, 2])
def test_a_slot_is_free_when_all_its_readers_have_given_it_back(slots: int, system: Any) -> None:
    bench = Bench(_two_readers(slots), system)

    def feed() -> None:
        bench.launch(0)
        for on in (0, 1):
            bench.turn(on)
            bench.finish(on, len(bench.flights[on]))
            bench.deliver()

    for _ in range(slots):
        feed()
    feed()
    assert bench.actor("writer").acted == slots
    bench.turn(2)
    bench.finish(2, slots)
    bench.deliver()
    assert bench.turn(1) == []
    bench.turn(3)
    bench.finish(3)
    bench.deliver()
    assert bench.turn(1) == ["writer"]
    bench.end()


def _slots_1(system: Any) -> None:
    test_a_slot_is_free_when_all_its_readers_have_given_it_back(1, system)


def _slots_2(system: Any) -> None:
    test_a_slot_is_free_when_all_its_readers_have_given_it_back(2, system)


def _in_place(slots: int, reader_on: int) -> Sketch:
    sketch = Sketch().source(writes=f"x*{slots}").task("over", reads="x", writes="y@x", on=1)
    return sketch.task("reader", reads="y", on=reader_on)


@pytest.mark.parametrize("slots", [1, 2])
def test_an_input_goes_back_after_the_output_in_its_memory(slots: int, system: Any) -> None:
    bench = Bench(_in_place(slots, 2), system)
    bench.launch(1)
    bench.turn(0)
    bench.finish(0)
    bench.deliver()
    assert bench.turn(1) == ["over"]
    bench.finish(1)
    zero = "[0]" if slots > 1 else ""
    assert bench.deliver() == [f"full y{zero} to reader"]
    bench.turn(2)
    bench.finish(2)
    assert bench.deliver() == [f"free y{zero} to over"]
    # All readers are on other threads and have completed: the stream need not be waited for.
    assert bench.turn(1) == []
    assert bench.deliver() == [f"free x{zero} to source"]
    bench.end()


def _in_place_1(system: Any) -> None:
    test_an_input_goes_back_after_the_output_in_its_memory(1, system)


def _in_place_2(system: Any) -> None:
    test_an_input_goes_back_after_the_output_in_its_memory(2, system)


@pytest.mark.parametrize("slots", [1, 2])
def test_a_slot_that_the_stream_still_reads_goes_back_later(slots: int, system: Any) -> None:
    bench = Bench(_in_place(slots, 1), system)
    bench.launch(1)
    bench.turn(0)
    bench.finish(0)
    bench.deliver()
    assert bench.turn(1) == ["over", "reader", "-"]
    bench.finish(1, 2)
    assert bench.deliver() == []
    bench.finish(1)
    zero = "[0]" if slots > 1 else ""
    assert bench.deliver() == [f"free x{zero} to source"]
    bench.end()


def _behind_1(system: Any) -> None:
    test_a_slot_that_the_stream_still_reads_goes_back_later(1, system)


def _behind_2(system: Any) -> None:
    test_a_slot_that_the_stream_still_reads_goes_back_later(2, system)


def test_a_slot_without_readers_is_free_after_the_act(system: Any) -> None:
    sketch = Sketch().source(writes="x").task("over", reads="x", writes="y@x", on=1).task("more", reads="x2", on=2)
    sketch.tasks[0]["writes"].append(sketch._write("source", "x2"))
    bench = Bench(sketch, system)
    bench.launch(*range(5))
    bench.settle()
    assert bench.actor("over").acted == 5
    bench.end()


# The end


def test_the_end_is_told_once_behind_everything_else(system: Any) -> None:
    bench = Bench(pair(slots=2), system)
    bench.launch(1)
    bench.turn(0)
    bench.system.close()
    # After the act that is still running.
    assert bench.turn(0) == ["-"]
    assert bench.deliver() == []
    bench.finish(0, 2)
    assert bench.deliver() == ["full x[0] to reader", "eord x to reader"]
    assert bench.destroyed() == []
    assert bench.turn(1) == ["reader"]
    assert bench.destroyed() == ["reader"]
    bench.finish(1)
    assert bench.deliver() == ["free x[0] to source"]
    assert bench.turn(0) == []
    assert bench.destroyed() == ["source", "reader"]
    assert bench.system.ended()


def test_a_zombie_gives_slots_back_unread(system: Any) -> None:
    # The tick's own buffer ends, though its input goes on.
    sketch = Sketch().source(writes="x").task("tick", "critical_section_wait_tick", reads="x", on=1)
    bench = Bench(sketch, system)
    bench.system._construction.buffers["tick"].close()
    bench.system._poke()
    bench.turn(1)
    assert bench.actor("tick").zombie
    bench.system._construction.buffers["source"].put("piece")
    bench.system._poke()
    bench.turn(0)
    bench.finish(0)
    assert bench.deliver() == ["full x to tick"]
    assert bench.turn(1) == []
    assert bench.deliver() == ["free x to source"]
    assert bench.destroyed() == []
    bench.end()
    assert bench.acted == ["source"]


@pytest.mark.parametrize("slots", [1, 2])
def test_slots_that_wait_when_another_input_ends_go_back_unread(slots: int, system: Any) -> None:
    sketch = Sketch().source(writes="a b").task("tick", "critical_section_wait_tick", reads="a", writes="c", on=1)
    sketch.task("both", reads="b c", writes=f"d*{slots}", on=2).task("last", reads="d", on=3)
    bench = Bench(sketch, system)
    bench.system._construction.buffers["source"].put(1)
    bench.system._poke()
    bench.settle()
    assert bench.actor("both").holds(sketch.numbers["b"])
    assert not bench.actor("both").holds(sketch.numbers["c"])
    bench.system._construction.buffers["tick"].close()
    bench.system._poke()
    bench.turn(1)
    bench.finish(1, len(bench.flights[1]))
    bench.deliver()
    bench.turn(2)
    bench.finish(2, len(bench.flights[2]))
    told = bench.deliver()
    assert "free b to source" in told
    assert told.count("eord d to last") == 1
    assert bench.actor("both").zombie
    # The source has not ended, and may send more of b.
    assert not bench.actor("both").destroyed
    bench.end()


def _left_1(system: Any) -> None:
    test_slots_that_wait_when_another_input_ends_go_back_unread(1, system)


def _left_2(system: Any) -> None:
    test_slots_that_wait_when_another_input_ends_go_back_unread(2, system)


@pytest.mark.parametrize("slots", [1, 2])
def test_a_zombie_stays_until_everything_is_back(slots: int, system: Any) -> None:
    sketch = Sketch().source(writes="x").task("middle", reads="x", writes=f"y*{slots}", on=1)
    sketch.task("reader", reads="y", on=2)
    bench = Bench(sketch, system)
    bench.launch(1)
    bench.system.close()
    for on in (0, 1):
        bench.turn(on)
        bench.finish(on, len(bench.flights[on]))
        bench.deliver()
    assert bench.actor("middle").zombie
    assert not bench.actor("middle").destroyed
    bench.turn(2)
    bench.finish(2)
    bench.deliver()
    bench.turn(1)
    assert bench.actor("middle").destroyed
    bench.end()


def _stays_1(system: Any) -> None:
    test_a_zombie_stays_until_everything_is_back(1, system)


def _stays_2(system: Any) -> None:
    test_a_zombie_stays_until_everything_is_back(2, system)


def test_closing_twice_and_launching_afterwards() -> None:
    bench = Bench(pair())
    bench.launch(1)
    bench.end()
    bench.end()
    with pytest.raises(RuntimeError, match="closed and launches nothing more"):
        bench.launch(2)


# Kinds


def _indices(bench: Bench, name: str) -> list[tuple[int, list[int], list[int]]]:
    """The parts of all acts of a task: the index, the slots read and the slots written."""
    actor = bench.actor(name)
    return [
        (flight.index, [slot.slot for slot in flight.inputs], [slot.slot for slot in flight.outputs])
        for flights in bench.flights.values()
        for flight in flights
        if flight.actor is actor
    ]


@pytest.mark.parametrize("kind", ["acc", "pack"])
def test_gathering_writes_one_slot_in_several_acts(kind: str, system: Any) -> None:
    sketch = (
        Sketch().source(writes="x*2").task("gather", kind, reads="x", writes="y*2", count=3).task("reader", reads="y")
    )
    bench = Bench(sketch, system)
    bench.launch(*range(7))
    order = bench.turn()
    assert (order.count("gather"), order.count("reader")) == (7, 2)
    assert _indices(bench, "gather") == [
        (0, [0], [0]),
        (1, [1], [0]),
        (2, [0], [0]),
        (0, [1], [1]),
        (1, [0], [1]),
        (2, [1], [1]),
        (0, [0], [0]),
    ]
    # An incomplete group is nobody's.
    bench.end()


def _acc(system: Any) -> None:
    test_gathering_writes_one_slot_in_several_acts("acc", system)


def test_unpacking_reads_one_slot_in_several_acts(system: Any) -> None:
    sketch = Sketch().source(writes="x").task("unpack", "unpack", reads="x", writes="y*2", count=3, on=1)
    bench = Bench(sketch.task("reader", reads="y", on=2), system)
    bench.launch(1, 2)
    bench.turn(0)
    bench.finish(0)
    bench.deliver()
    assert bench.turn(1) == ["unpack", "unpack"]
    assert _indices(bench, "unpack") == [(0, [0], [0]), (1, [0], [1])]
    bench.finish(1, 2)
    # It is still being read.
    assert bench.deliver() == ["full y[0] to reader", "full y[1] to reader"]
    bench.turn(2)
    bench.finish(2)
    bench.deliver()
    assert bench.turn(1) == ["unpack"]
    bench.finish(1)
    assert bench.deliver() == ["full y[0] to reader", "free x to source"]
    bench.end()
    assert bench.acted.count("reader") == 6


@pytest.mark.parametrize("written", ["y", "y@x"])
def test_repeating_hands_out_one_slot_several_times(written: str, system: Any) -> None:
    sketch = Sketch().source(writes="x").task("repeat", "repeat", reads="x", writes=written, count=3, on=1)
    bench = Bench(sketch.task("reader", reads="y", on=2), system)
    bench.launch(1, 2)
    bench.turn(0)
    bench.finish(0)
    bench.deliver()
    assert bench.turn(1) == ["repeat"]
    bench.finish(1)
    assert bench.deliver() == ["full y to reader"] * 3
    assert bench.turn(2) == ["reader"] * 3
    bench.finish(2, 2)
    assert bench.deliver() == ["free y to repeat"] * 2
    bench.turn(1)
    assert bench.deliver() == []
    bench.finish(2)
    bench.deliver()
    bench.turn(1)
    # Only now the repeated slot goes back.
    assert bench.deliver() == ["free x to source"]
    bench.end()
    assert bench.acted.count("reader") == 6


def _repeat(system: Any) -> None:
    test_repeating_hands_out_one_slot_several_times("y", system)


def test_a_sink_gets_the_piece_of_its_launch(system: Any) -> None:
    bench = Bench(Sketch().source(writes="x*2").sink(reads="x", on=1), system)
    bench.launch("first", "second")
    bench.turn(0)
    bench.finish(0, 2)
    bench.deliver()
    assert bench.turn(1) == ["sink", "sink"]
    assert [flight.item for flight in bench.flights[1]] == ["first", "second"]
    bench.end()


def test_a_tick_without_an_act_still_keeps_the_order() -> None:
    tasks, registers = Sketch().source(writes="!c").task("tick", "tick", reads="!c", on=1).plan()
    system = ActorSystem(tasks, registers, {})
    first, second = system.threads
    system.construct()
    assert system.turn(first) == system.turn(second) == []
    system.start()
    system.launch()
    (action,) = system.turn(first)
    assert action.run is None
    assert (action.inputs, action.outputs) == ((), ())
    assert system.turn(second) == []
    system.completed(first)
    (action,) = system.turn(second)
    assert action.actor is not None
    assert action.actor.id == tasks[1].id


def test_which_actors_are_light(system: Any) -> None:
    sketch = Sketch().source(writes="a b*2").task("one", reads="a", writes="c").task("two", reads="b", writes="d")
    sketch.task("three", reads="c", writes="e*2").task("again", "repeat", reads="d", writes="f", count=2)
    sketch.task("often", reads="f").task("gather", "acc", reads="e", writes="g", count=2).task("after", reads="g")
    bench = Bench(sketch, system)
    light = {name for name in sketch.ids if type(bench.actor(name)).__name__ == LightActor.__name__}
    assert light == {"one", "after"}
    bench.end()


# Contradictions


@pytest.mark.parametrize("slots", [1, 2])
def test_giving_back_twice_is_told(slots: int, system: Any) -> None:
    sketch = Sketch().source(writes="a").task("writer", reads="a", writes=f"x*{slots}", on=1)
    bench = Bench(sketch.task("reader", reads="x", on=2), system)
    bench.launch(1)
    for on in (0, 1, 2):
        bench.turn(on)
        bench.finish(on)
        message = bench.posted[-1]
        bench.deliver()
    bench.turn(1)
    bench.system.deliver(message.thread, message)
    with pytest.raises(InternalError, match="more often than handed out"):
        bench.turn(1)


def test_more_completions_than_actions_are_told() -> None:
    bench = Bench(pair())
    bench.launch(1)
    bench.turn(0)
    with pytest.raises(InternalError, match=r"2 actions .* reported completed, but only 1 are running"):
        bench.system.completed(bench.threads[0], 2)
    bench.end()
