"""The story has all events, can be replayed, and keeps nothing alive."""

from __future__ import annotations

import gc
import json
import weakref
from collections.abc import Iterator

import numpy as np
import pytest

import vmflow as flow
from tests.vm.gates import entered
from vmflow.errors import InternalError
from vmflow.instructions import Instruction
from vmflow.vm import VirtualMachine, VirtualMachineEngine
from vmflow.vm.replay import replay
from vmflow.vm.story import Script

from .bench import Bench, Step
from .simulation import simulate


def _told(bench: Bench, *about: Instruction | int | str) -> list[str]:
    return [f"{event} #{serial} {detail}" for event, serial, detail in bench.engine.story.events(*about)]


# Reading it


def test_events_are_told_in_the_order_in_which_a_turn_happens(bench: Bench) -> None:
    bench.issue("write", "a", writes="x")
    bench.turn()
    bench.issue("read", "b", reads="x")
    bench.turn()
    bench.fail("write", ValueError("disk full"))
    bench.turn()
    assert _told(bench) == [
        "absorbed #0 write on a",
        "launched #0 write on a",
        "absorbed #1 read on b",
        "failed #0 ValueError: disk full",
        "erased #0 write on a",
        "launched #1 read on b",
    ]


def test_events_about_one_instruction(bench: Bench) -> None:
    first, second = bench.issue("first"), bench.issue("second", "b")
    bench.turn()
    bench.fail("first", ValueError("no"))
    bench.turn()
    expected = ["absorbed #0 first on a", "launched #0 first on a", "failed #0 ValueError: no", "erased #0 first on a"]
    assert _told(bench, first) == expected
    assert _told(bench, 0) == expected
    assert _told(bench, "first") == expected
    assert _told(bench, second) == ["absorbed #1 second on b", "launched #1 second on b"]
    assert _told(bench, 7) == []
    assert _told(bench, "nobody") == []


def test_events_about_a_name_are_about_all_of_that_name() -> None:
    bench = Bench()
    policy = Step("matrix product")
    for name in ("a", "b"):
        bench.engine.receive(Instruction(bench.stream(name), policy))
    bench.issue("matrix", "c")
    bench.turn()
    assert _told(bench, "matrix product") == [
        "absorbed #0 matrix product on a",
        "absorbed #1 matrix product on b",
        "launched #0 matrix product on a",
        "launched #1 matrix product on b",
    ]
    bench.drain()


def test_a_failure_is_told_although_its_instruction_is_not_erased_yet(bench: Bench) -> None:
    bench.issue("slow")
    bench.issue("quick")
    bench.turn()
    bench.fail("quick", ValueError("no"))
    bench.issue("other", "b")
    bench.turn()
    assert "failed #1 ValueError: no" in _told(bench)
    assert "erased #1 quick on a" not in _told(bench)


def test_as_text() -> None:
    bench = Bench()
    bench.issue("write", "a", writes="x")
    bench.turn()
    assert str(bench.engine.story) == "absorbed  #0 write on a\nlaunched  #0 write on a"
    bench.drain()


def test_abandoned_instructions_are_in_the_story() -> None:
    bench = Bench()
    bench.issue("running", "a", writes="x")
    waiting = bench.issue("waiting", "b", reads="x")
    bench.turn()
    bench.issue("pending")
    bench.abandon()
    assert _told(bench, waiting) == ["absorbed #1 waiting on b", "abandoned #1 waiting on b"]
    assert not any("pending" in line for line in _told(bench)), "the engine had not seen it"


def test_only_the_last_turns_are_remembered() -> None:
    engine = VirtualMachineEngine(story=3)
    bench = Bench(engine)
    for number in range(10):
        bench.issue(f"it {number}")
        bench.turn()
        assert len(engine.story.turns) <= 3
    assert [event for event in engine.story.events() if event[0] == "launched"] == [
        ("launched", number, f"it {number} on a") for number in (7, 8, 9)
    ]
    bench.drain()


# Replaying it


def _recorded(engine: VirtualMachineEngine) -> Script:
    """The script, through a file."""
    script: Script = json.loads(json.dumps(engine.story.script()))
    assert script == engine.story.script()
    return script


def test_random_programs_replay_turn_by_turn() -> None:
    for seed in range(40):
        engine = VirtualMachineEngine(story=1 << 20)
        simulate(seed, engine)
        script = _recorded(engine)
        again = replay(script)
        assert again.story.script() == script
        assert again.total_erased == engine.total_erased == 24
        assert again.idle()
        again.check_invariants()


def test_an_unfinished_program_replays_to_the_same_state() -> None:
    bench = Bench()
    bench.issue("write", "a", writes="x")
    bench.issue("behind", "a", reads="x")
    bench.issue("elsewhere", "b", reads="x")
    bench.issue("look", "a", reads="x", preschedulable=False)
    bench.barrier("fence")
    bench.turn()
    again = replay(_recorded(bench.engine))
    assert [(value.name, value.state, value.waits) for value in again.lively] == [
        (value.name, value.state, value.waits) for value in bench.engine.lively
    ]
    assert [barrier.name for barrier in again.barriers] == ["fence"]
    bench.drain()


def test_streams_of_one_name_stay_apart() -> None:
    bench, other = Bench(), Bench()
    write = bench.issue("write", "a", writes="x")
    read = Instruction(other.stream("a"), Step("read"), (bench.storage("x"),))
    bench.engine.receive(read)
    assert bench.turn() == ["write"], "two streams, though of one name"
    bench.engine.completed(write)
    bench.turn()
    script = _recorded(bench.engine)
    assert [entry["stream"] for turn in script for entry in turn["absorbed"]] == ["a", "a#1"]
    assert replay(script).story.script() == script
    bench.drain()


@pytest.mark.parametrize(
    ("fusable", "launched"), [(False, ["first", "second", "third"]), (True, ["first+second", "third"])]
)
def test_a_sequential_stream_is_replayed_by_its_order(fusable: bool, launched: list[str]) -> None:
    bench = Bench()
    bench.stream("transport", sequential=True)
    bench.issue("far", "a", writes="x")
    bench.issue("first", "transport", reads="x", fusable=fusable)
    bench.issue("second", "transport", fusable=fusable)
    bench.issue("third", "transport")
    bench.turn()
    bench.finish("far")
    assert bench.turn() == launched
    script = _recorded(bench.engine)
    assert replay(script).story.script() == script
    bench.drain()


def test_abandoning_fused_instructions_is_replayed() -> None:
    bench = Bench()
    bench.issue("running", "a", writes="x")
    for name in ("one", "two"):
        bench.issue(name, "b", fusable=True)
        bench.issue(f"waiting {name}", "c", reads="x", fusable=True)
    assert bench.turn() == ["running", "one", "two"]
    bench.issue("three", "b", fusable=True)
    bench.issue("four", "b", fusable=True)
    assert bench.turn() == ["three+four"]
    bench.engine.abandon([bench.instructions[name] for name in ("three+four", "two", "one")], lambda instruction: None)
    bench.finish("running")
    bench.turn()
    script = _recorded(bench.engine)
    again = replay(script)
    assert again.story.script() == script
    assert again.idle()


def test_abandoning_is_replayed() -> None:
    bench = Bench()
    bench.issue("running", "a", writes="x")
    bench.issue("unrun", "a")
    bench.issue("waiting", "b", reads="x")
    bench.barrier("fence")
    bench.turn()
    bench.abandon("unrun")
    bench.finish("running")
    bench.turn()
    script = _recorded(bench.engine)
    again = replay(script)
    assert again.story.script() == script
    assert again.idle()


def test_the_replay_of_nothing() -> None:
    assert replay([]).idle()


def test_the_story_of_a_machine_can_be_replayed() -> None:
    engine = VirtualMachineEngine(story=1 << 16)
    machine = flow.VirtualMachine("recorded", cpu_worker="never", gather=32)
    machine.engine = engine
    mode = flow.context.MODE
    token = mode.set(mode.get().replace(machine=machine))
    try:
        x = flow.ones(8, device="cpu")  # a simulated accelerator fuses nothing
        for _ in range(20):
            x = (x * 2 - 1).relu()
            x[2:4].add_(1)
        assert x.numpy().shape == (8,)
        flow.synchronize()
    finally:
        mode.reset(token)
    script = _recorded(engine)
    assert replay(script).story.script() == script
    assert sum(len(turn["absorbed"]) for turn in script) == engine.total_inserted > 60
    assert sum(len(turn["launched"]) for turn in script) < 30, "most of it was fused"
    machine.close()


def test_chains_are_replayed_as_they_were_made() -> None:
    engine = VirtualMachineEngine(story=1 << 16)
    with entered(VirtualMachine(gather=32)) as machine:
        machine.engine = engine
        x = flow.ones(1000, 1000, device="cpu")
        y = x * 2 + 1
        z = (y * 3 - x).relu()
        assert z[0, 0].item() == 8.0
    launched = [turn.launched for turn in engine.story.turns]
    assert "chain" in [instruction.name for launches in launched for instruction in launches]
    script = _recorded(engine)
    assert replay(script).story.script() == script


def test_instructions_are_fused_as_they_were_by_an_engine_with_another_limit() -> None:
    bench = Bench(VirtualMachineEngine(fuse_below=1_000_000))
    for name in "abcd":
        bench.issue(name, cost=100_000, fusable=True)
    assert bench.turn() == ["a+b+c+d"]
    script = _recorded(bench.engine)
    assert replay(script).story.script() == script
    bench.drain()


def test_a_script_whose_beginning_was_forgotten_is_refused() -> None:
    engine = VirtualMachineEngine(story=2)
    bench = Bench(engine)
    for number in range(4):
        bench.issue(f"it {number}")
        bench.turn()
    with pytest.raises(ValueError, match="introduces #2 where #0 is due: its first turns were forgotten"):
        replay(engine.story.script())
    bench.finish("it 0")
    bench.turn()
    bench.finish("it 1")
    bench.turn()
    with pytest.raises(ValueError, match="mentions #0, which it has not introduced"):
        replay(engine.story.script())
    bench.drain()


def test_a_replay_that_decides_otherwise_raises() -> None:
    bench = Bench()
    bench.issue("write", "a", writes="x")
    bench.issue("read", "b", reads="x")
    bench.turn()
    script = bench.engine.story.script()
    script[0]["launched"] = [0, 1]
    with pytest.raises(InternalError, match=r"(?s)turn 0 of the replay launched \[0\], the script \[0, 1\].*absorbed"):
        replay(script)
    bench.drain()


# Objects that it keeps


@pytest.fixture
def turning() -> Iterator[VirtualMachine]:
    """A machine that runs nothing inline: inline calls are in no story."""
    with entered(VirtualMachine(gather=32)) as machine:
        yield machine


def test_the_story_keeps_no_array_alive(turning: VirtualMachine) -> None:
    gc.disable()  # objects that reference counting does not free are kept by something
    try:
        arrays: list[weakref.ref[object]] = []
        x = flow.tensor(np.arange(6.0))
        total = flow.zeros((), dtype=flow.float64)
        for step in range(10):
            y = (x.reshape(2, 3) * step).relu()
            y[0].add_(1)
            total = total + y.sum()
            total.item()
            arrays += [weakref.ref(tensor._blob.storage.array) for tensor in (x, y, total)]
            del y
        flow.synchronize()
        engine = turning.engine
        assert len(engine.story.events("add_scalar")) > 0, "the story remembers these ops"
        del x, total
        flow.synchronize()  # memory goes back in order, by an instruction
        assert all(array() is None for array in arrays)
    finally:
        gc.enable()


def test_the_story_of_a_failure_keeps_no_array_alive(turning: VirtualMachine) -> None:
    gc.disable()
    try:
        x = flow.tensor([0, 5])
        y = flow.ones(3)[x]
        with pytest.raises(IndexError):
            y.numpy()
        array = weakref.ref(x._blob.storage.array)
        engine = turning.engine
        assert any(event == "failed" for event, _, _ in engine.story.events("index"))
        del x, y
        flow.synchronize()
        assert array() is None
    finally:
        gc.enable()
        gc.collect()
