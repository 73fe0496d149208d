"""Barriers: run when oldest, one after the other, and hold nobody back."""

from __future__ import annotations

import vmflow as flow
from vmflow.instructions import Barrier, GlobalSync, Instruction, InstructionPolicy, physical_run
from vmflow.streams import ControlStreamPolicy, Stream, StreamPolicy
from vmflow.vm import VirtualMachineEngine, default_machine

from .bench import Bench


def test_a_barrier_runs_when_everything_earlier_is_erased(bench: Bench) -> None:
    bench.issue("first", "a")
    bench.issue("second", "b")
    bench.barrier("fence")
    assert bench.turn() == ["first", "second"]
    bench.finish("second")
    assert bench.turn() == []
    bench.finish("first")
    assert bench.turn() == ["fence"]


def test_a_barrier_waits_for_done_instructions_that_are_not_erased(bench: Bench) -> None:
    bench.issue("first")
    bench.issue("second")
    bench.barrier("fence")
    bench.turn()
    bench.finish("second")
    assert bench.turn() == []
    bench.finish("first")
    assert bench.turn() == ["fence"]


def test_a_barrier_waits_for_instructions_that_are_not_launched(bench: Bench) -> None:
    bench.issue("write", "a", writes="x")
    bench.issue("read", "b", reads="x")
    bench.barrier("fence")
    bench.turn()
    bench.finish("write")
    assert bench.turn() == ["read"]
    bench.finish("read")
    assert bench.turn() == ["fence"]


def test_a_barrier_does_not_hold_back_later_instructions(bench: Bench) -> None:
    bench.issue("slow", "a")
    bench.barrier("fence")
    bench.issue("later", "a")
    bench.issue("elsewhere", "b")
    assert bench.turn() == ["slow", "later", "elsewhere"]
    bench.finish("elsewhere")
    assert bench.turn() == []
    assert bench.erased() == ["elsewhere"], "and they may end before it begins"
    bench.finish("slow")
    assert bench.turn() == ["fence"], "it does not wait for the later one, which is still running"
    assert bench.state("later") == "LAUNCHED"


def test_two_barriers_run_in_order_one_at_a_time(bench: Bench) -> None:
    bench.issue("work")
    bench.barrier("first")
    bench.barrier("second")
    assert bench.turn() == ["work"]
    bench.finish("work")
    assert bench.turn() == ["first"]
    assert bench.turn() == []
    bench.finish("first")
    assert bench.turn() == ["second"]


def test_a_barrier_waits_for_instructions_since_the_barrier_before(bench: Bench) -> None:
    bench.barrier("first")
    bench.issue("between")
    bench.barrier("second")
    assert bench.turn() == ["between"]
    assert bench.turn() == ["first"]
    bench.finish("first")
    assert bench.turn() == []
    bench.finish("between")
    assert bench.turn() == ["second"]


def test_a_barrier_with_nothing_before_it_runs_without_a_further_event(bench: Bench) -> None:
    bench.barrier("fence")
    assert bench.turn() == [], "a turn tries the barriers before it absorbs"
    assert bench.engine.has_work()
    assert bench.turn() == ["fence"]
    assert not bench.engine.has_work()


def test_a_barrier_whose_predecessor_ended_before_it_came(bench: Bench) -> None:
    bench.issue("work")
    bench.turn()
    bench.finish("work")
    bench.barrier("fence")
    bench.turn()
    assert bench.turn() == ["fence"]


def test_a_barrier_alone_is_work_only_when_it_may_run(bench: Bench) -> None:
    bench.issue("work")
    bench.barrier("fence")
    bench.turn()
    assert not bench.engine.has_work()
    bench.finish("work")
    assert bench.engine.has_work()


def test_a_barrier_behind_a_full_window(bench: Bench) -> None:
    bench.engine.window = 1
    bench.issue("work")
    bench.barrier("fence")
    bench.issue("later")
    assert [bench.turn(), bench.turn(), bench.turn()] == [["work"], [], ["later"]]
    bench.finish("work")
    assert bench.turn() == ["fence"]


def test_a_failed_barrier_lets_the_next_one_run(bench: Bench) -> None:
    bench.barrier("first")
    bench.barrier("second")
    bench.turn()
    assert bench.turn() == ["first"]
    bench.fail("first", ValueError("the callback raised"))
    assert bench.turn() == ["second"]


# The policies


class Device(StreamPolicy):
    """A device on which work goes on behind the back of the engine until it is synchronised."""

    def __init__(self) -> None:
        self.queued: list[str] = []
        self.finished: list[str] = []

    def synchronize(self) -> None:
        self.finished += self.queued
        self.queued.clear()


class Enqueue(InstructionPolicy):
    """Done when launched, as on a CUDA stream without an event."""

    __slots__ = ("device", "name")

    def __init__(self, device: Device, name: str) -> None:
        self.device = device
        self.name = name

    def compute(self) -> None:
        self.device.queued.append(self.name)


def _run(engine: VirtualMachineEngine) -> None:
    while engine.has_work():
        for instruction in engine.schedule():
            assert instruction.policy is not None
            instruction.policy.compute()
            engine.completed(instruction)


def test_a_global_sync_drains_every_stream_before_its_callback() -> None:
    engine = VirtualMachineEngine()
    one, other = Device(), Device()
    streams = [Stream("one", None, one), Stream("other", None, other)]
    control = Stream("control", None, ControlStreamPolicy())
    seen: list[list[str]] = []
    engine.receive(Instruction(streams[0], Enqueue(one, "first")))
    engine.receive(Instruction(streams[1], Enqueue(other, "second")))
    engine.receive(Instruction(control, Barrier(lambda: seen.append(one.finished + other.finished))))
    engine.receive(
        Instruction(control, GlobalSync(lambda: streams, lambda: seen.append(one.finished + other.finished)))
    )
    _run(engine)
    assert seen == [[], ["first", "second"]], "a barrier waits for launches, a global sync for the ends"
    assert engine.idle()


def test_a_global_sync_asks_for_the_streams_when_it_runs_not_when_it_is_made() -> None:
    engine = VirtualMachineEngine()
    device = Device()
    device.queued.append("opened meanwhile")
    streams: list[Stream] = []
    engine.receive(Instruction(Stream("control", None, ControlStreamPolicy()), GlobalSync(lambda: streams)))
    streams.append(Stream("late", None, device))
    _run(engine)
    assert device.finished == ["opened meanwhile"]


def test_barriers_need_no_callback() -> None:
    engine = VirtualMachineEngine()
    control = Stream("control", None, ControlStreamPolicy())
    engine.receive(Instruction(control, Barrier()))
    engine.receive(Instruction(control, GlobalSync(lambda: [])))
    _run(engine)
    assert engine.total_erased == 2


def test_a_barrier_on_a_machine_sees_all_that_was_issued_before_it() -> None:
    tensor = flow.zeros(3)
    seen: list[list[float]] = []

    def look() -> None:
        array = tensor._blob.storage.array
        assert array is not None
        seen.append(array.tolist())

    tensor.add_(1)
    barrier = physical_run(default_machine(), lambda builder: builder.barrier(look))
    tensor.add_(1)
    default_machine().wait(barrier)
    assert seen in ([[1, 1, 1]], [[2, 2, 2]]), "a fence for its own callback only: the second add may be done as well"
    assert tensor.tolist() == [2, 2, 2]
