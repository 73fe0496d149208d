"""The engine's memory is proportional to the lively instructions, not to the past ones."""

from __future__ import annotations

import sys
from typing import Any

from vmflow.instructions import Dependence, Instruction
from vmflow.vm import VirtualMachineEngine

from .bench import Bench, Step


def _holdings(engine: Any) -> dict[str, int]:
    """The lengths of all lists of the engine."""
    return {
        name: len(getattr(engine, name))
        for name in ("pending", "local_pending", "ready", "lively", "barriers", "active_streams")
    }


EMPTY = dict.fromkeys(("pending", "local_pending", "ready", "lively", "barriers", "active_streams"), 0)


def test_a_storage_that_is_only_read_remembers_no_reader(bench: Bench) -> None:
    """A parameter that is read at each step and never written."""
    for step in range(200):
        bench.issue(f"read {step}", "ab"[step % 2], reads="p")
        bench.turn()
        bench.finish(f"read {step}")
        bench.turn()
        assert bench.readers("p") == []


def test_a_parameter_read_by_a_hundred_thousand_instructions() -> None:
    bench = Bench()
    engine = bench.engine
    parameter, stream, policy = bench.storage("p"), bench.stream("a"), Step("read")
    sizes: set[int] = set()
    for step in range(100_000):
        instruction = Instruction(stream, policy, (parameter,), ())
        engine.receive(instruction)
        for launched in engine.schedule():
            engine.completed(launched)
        if step % 10_000 == 0:
            assert parameter.readers == {instruction: None}
            sizes.add(sys.getsizeof(parameter.readers))
    engine.schedule()
    assert parameter.readers is None
    assert max(sizes) < 1000, "the table of the readers has not grown with their number"
    assert _holdings(engine) == EMPTY
    assert engine.total_erased == 100_000
    assert len(engine.story.turns) == engine.story.turns.maxlen


def test_many_lively_readers_leave_nothing_behind() -> None:
    bench = Bench()
    engine = bench.engine
    parameter, policy = bench.storage("p"), Step("read")
    for number in range(20_000):
        engine.receive(Instruction(bench.stream("ab"[number % 2]), policy, (parameter,), ()))
    launched: list[Instruction] = []
    while engine.has_work():
        launched += engine.schedule()
    assert len(launched) == len(engine.lively) == 20_000
    for instruction in reversed(launched):
        engine.completed(instruction)
    engine.schedule()
    assert _holdings(engine) == EMPTY
    assert not parameter.readers
    # A dict keeps the memory of removed entries until the next write.
    engine.receive(Instruction(bench.stream("a"), policy, (), (parameter,)))
    for instruction in engine.schedule():
        engine.completed(instruction)
    engine.receive(Instruction(bench.stream("a"), policy, (parameter,), ()))
    for instruction in engine.schedule():
        engine.completed(instruction)
    engine.schedule()
    assert sys.getsizeof(parameter.readers) < 1000


def test_one_storage_written_many_times_has_one_writer() -> None:
    bench = Bench()
    engine = bench.engine
    state, stream, policy = bench.storage("s"), bench.stream("a"), Step("update")
    for _ in range(2000):
        engine.receive(Instruction(stream, policy, (state,), (state,)))
    launched: list[Instruction] = []
    while engine.has_work():
        launched += engine.schedule()
    assert state.writer is launched[-1]
    assert not state.readers
    assert all(value.on_launch is None and value.on_finish is None for value in launched), "no edges on one stream"
    for instruction in launched:
        engine.completed(instruction)
    engine.schedule()
    assert state.writer is None
    assert _holdings(engine) == EMPTY


def test_edges_go_when_their_source_does() -> None:
    """A producer that many wait for is not kept by them, nor they by it."""
    bench = Bench()
    bench.issue("write", "a", writes="x")
    readers = [bench.issue(f"read {number}", "b", reads="x") for number in range(50)]
    bench.turn()
    assert len(bench.instructions["write"].on_finish or []) == 50
    bench.finish("write")
    bench.turn()
    assert bench.instructions["write"].on_finish is None
    assert all(reader.waits == 0 for reader in readers)
    bench.drain()


def test_instructions_are_freed() -> None:
    """Once the story has forgotten it, nothing holds an instruction that has been erased."""
    engine = VirtualMachineEngine(story=4)
    stream, dependence, policy = Bench().stream("a"), Dependence(), Step("it")
    before = 0
    for step in range(2000):
        engine.receive(Instruction(stream, policy, (dependence,), (dependence,)))
        for instruction in engine.schedule():
            engine.completed(instruction)
        del instruction
        if step == 100:
            before = sys.getrefcount(policy)
    engine.schedule()
    assert sys.getrefcount(policy) <= before, "the policy is held by no more instructions than after a hundred"
    assert len(engine.story.turns) == 4
