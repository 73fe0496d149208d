"""The whole system: commands, launches, the end, several ranks, and descriptions of stalls."""

from __future__ import annotations

from typing import Any

import pytest

from vmflow.errors import InternalError
from vmflow.graph_mode.actors import ActorSystem, Message

from .bench import Bench, Sketch


def line(slots: int = 1, on: tuple[int, int, int] = (0, 1, 2)) -> Sketch:
    """Source, middle, sink."""
    sketch = Sketch().source(writes=f"x*{slots}", on=on[0]).task("middle", reads="x", writes=f"y*{slots}", on=on[1])
    return sketch.sink(reads="y", on=on[2])


def test_sources_wait_for_the_start(system: Any) -> None:
    made = system(*line(on=(0, 0, 0)).plan(), {})
    (thread,) = made.threads
    made.launch()
    assert not made.has_work(thread)
    made.construct()
    assert made.turn(thread) == []
    assert made.constructed()
    made.start()
    assert len(made.turn(thread)) == 3


def test_the_start_waits_for_all_threads() -> None:
    system = ActorSystem(*line().plan(), {})
    with pytest.raises(RuntimeError, match="call construct"):
        system.start()
    system.construct()
    for thread in system.threads[1:]:
        system.turn(thread)
    with pytest.raises(RuntimeError, match=rf"threads \[{system.threads[0]}\] have no actors yet"):
        system.start()


def test_stopping_needs_all_actors_gone() -> None:
    bench = Bench(line())
    bench.launch(1)
    with pytest.raises(RuntimeError, match=r"(?s)close.*middle .* waits for register 0 from source"):
        bench.system.stop()
    bench.end()
    bench.system.stop()
    bench.deliver()
    bench.turn(0)
    with pytest.raises(RuntimeError, match="has been stopped"):
        bench.turn(0)


def test_a_launch_fills_the_buffers_in_order(system: Any) -> None:
    sketch = Sketch().source(writes="x").sink(reads="x").task("tick", "critical_section_wait_tick", reads="y")
    sketch.tasks[0]["writes"].append(sketch._write("source", "y"))
    bench = Bench(sketch, system)
    assert list(bench.system._construction.buffers) == ["tick", "sink", "source"]
    bench.end()


def test_all_launches_run_before_the_end(system: Any) -> None:
    for slots in (1, 2):
        sketch = Sketch().source(writes=f"x*{slots} w*{slots}").task("slow", reads="w", writes=f"z*{slots}", on=3)
        sketch.task("middle", reads="x z", writes=f"y*{slots}", on=1)
        bench = Bench(sketch.sink(reads="y", on=2), system)
        bench.launch(*range(slots))
        bench.system.close()
        bench.turn(0)
        bench.finish(0, len(bench.flights[0]))
        # One input has come and ended, the other has not even come.
        assert "eord x to middle" in bench.deliver()
        assert bench.turn(1) == []
        bench.end()
        assert bench.acted.count("middle") == bench.acted.count("sink") == slots


def test_launches_that_have_not_begun_can_be_dropped() -> None:
    bench = Bench(line())
    bench.launch(*"abcd")
    bench.turn(0)
    assert bench.system.close(discard=True) == ["b", "c", "d"]
    bench.end()
    assert bench.acted == ["source", "middle", "sink"]


def test_several_launches_run_together() -> None:
    bench = Bench(line(slots=2))
    bench.launch(*"abcdef")
    for on in (0, 1, 0, 1):
        bench.turn(on)
        bench.finish(on, len(bench.flights[on]))
        bench.deliver()
    assert bench.acted == ["source"] * 2 + ["middle"] * 2 + ["source"] * 2
    bench.end()


def test_a_turn_stops_at_its_limit(system: Any) -> None:
    bench = Bench(line(on=(0, 0, 0)), system)
    bench.launch(*range(10))
    assert bench.turn(0, limit=4) == ["source", "middle", "sink", "source"]
    assert bench.system.has_work(bench.threads[0])
    assert not bench.system.idle()
    bench.settle()
    assert bench.acted == ["source", "middle", "sink"] * 10
    bench.end()


def test_it_is_idle_when_nothing_will_happen() -> None:
    bench = Bench(line())
    assert bench.system.idle()
    bench.launch(1)
    assert not bench.system.idle()
    bench.turn(0)
    assert not bench.system.idle()
    bench.finish(0)
    bench.turn(2)
    # The driver has to look after posted messages.
    assert bench.system.idle()
    assert not bench.system.ended()
    bench.end()
    assert bench.system.idle()


def test_a_stall_is_described() -> None:
    bench = Bench(line(slots=2))
    bench.launch(*"abc")
    bench.turn(0)
    bench.finish(0, 2)
    bench.deliver()
    assert bench.turn(1) == ["middle", "middle"]
    lines = bench.system.describe().splitlines()
    assert lines == [
        "source (rank 0 cpu:0 stream 0 task 0) has acted 2 times and waits for one of the 2 slots of register 0, which "
        "is on its way back",
        "middle (rank 0 cpu:0 stream 1 task 1) has acted 2 times and waits for register 0 from source (rank 0 cpu:0 "
        "stream 0 task 0); one of the 2 slots of register 1, which is on its way back",
        "sink (rank 0 cpu:0 stream 2 task 2) has acted 0 times and waits for register 1 from middle (rank 0 cpu:0 "
        "stream 1 task 1)",
    ]
    bench.end()
    assert bench.system.describe() == ""


def test_a_stall_names_the_holder_of_a_slot() -> None:
    sketch = Sketch().source(writes="x").task("never", reads="x y", on=1).task("tick", "tick", reads="z", writes="y")
    sketch.tasks[0]["writes"].append(sketch._write("source", "z"))
    bench = Bench(sketch)
    bench.launch(1, 2)
    bench.turn(0)
    bench.finish(0)
    bench.deliver()
    bench.turn(1)
    assert "the slot of register 0, held by never" in bench.system.describe()
    assert "never (rank 0 cpu:0 stream 1 task 1) has acted 0 times and waits for register 1" in bench.system.describe()
    bench.end()


def test_two_ranks_talk_by_ids() -> None:
    sketch = Sketch().source(writes="x", rank=0).task("middle", reads="x", writes="y", rank=1)
    tasks, registers = sketch.sink(reads="y", rank=0).plan()
    posted: list[tuple[int, Message]] = []
    done: list[object] = []
    acts = {tasks[2].id: lambda action: done.append(action.item)}
    systems = [ActorSystem(tasks, registers, acts, lambda *it: posted.append(it), rank) for rank in (0, 1)]
    owner = {thread: system for system in systems for thread in system.threads}
    assert len(owner) == 2

    def settle() -> None:
        while posted or any([system.has_work(thread) for thread, system in owner.items()]):
            for thread, message in posted[:]:
                # As if it had been sent by its numbers alone.
                copy = Message(message.kind, message.thread, message.target, message.register, message.slot)
                owner[thread].deliver(thread, copy if message.target >= 0 else message)
                posted.remove((thread, message))
            for thread, system in owner.items():
                actions = system.turn(thread)
                for action in actions:
                    if action.run is not None:
                        action.run(action)
                system.completed(thread, len(actions))

    for step in (ActorSystem.construct, ActorSystem.start):
        for system in systems:
            step(system)
        settle()
    for piece in range(5):
        for system in systems:
            system.launch(piece)
    settle()
    assert done == list(range(5))
    for system in systems:
        system.close()
    settle()
    assert all([system.ended() for system in systems])


def test_a_message_to_the_wrong_system_is_refused() -> None:
    sketch = Sketch().source(writes="x", rank=0).task("reader", reads="x", rank=1)
    tasks, registers = sketch.plan()
    system = ActorSystem(tasks, registers, {}, None, 0)
    (thread,) = system.threads
    with pytest.raises(InternalError, match="no such actor"):
        system.deliver(thread, Message(0, thread, tasks[1].id, 0))
    with pytest.raises(InternalError, match="has no thread 12"):
        system.deliver(12, Message(1, 12, tasks[0].id, 0))


def test_a_plan_that_cannot_run_is_refused() -> None:
    plan = Sketch().task("one", reads="b", writes="a").task("two", reads="a", writes="b").plan()
    with pytest.raises(ValueError, match="in a circle"):
        ActorSystem(*plan, {})
    assert not ActorSystem(*plan, {}, checked=True).ended()


def test_acts_of_nobody_are_refused() -> None:
    with pytest.raises(ValueError, match=r"tasks that do not exist: \[7\]"):
        ActorSystem(*line().plan(), {7: print})


def test_acts_know_their_slots() -> None:
    bench = Bench(line(slots=2))
    bench.launch(1)
    bench.turn(0)
    assert repr(bench.flights[0][0].outputs[0]) == "<RegisterSlot 0[0]>"
    bench.end()
