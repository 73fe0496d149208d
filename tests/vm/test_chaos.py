"""Chaos: random programs in which things go wrong, against an oracle; bugs that they have found; and mistakes."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from typing import Any, Final

import pytest

import vmflow as flow
from tests.vm import chaos
from tests.vm.chaos import MODES, Case, Setting, Step, fails, make_case, run, shrink
from tests.vm.gates import PATIENCE, call, eager, entered, gate
from vmflow.context import MODE
from vmflow.instructions.blob import Storage
from vmflow.instructions.builder import physical_run
from vmflow.instructions.failure import Failure
from vmflow.instructions.instruction import Dependence, Instruction
from vmflow.instructions.multi_tensor_update import MultiTensorUpdate
from vmflow.instructions.op_call import OpCall
from vmflow.instructions.policy import InstructionPolicy
from vmflow.instructions.release_tensor import ReleaseTensor
from vmflow.instructions.scope import Scope
from vmflow.instructions.stream_events import StreamWait
from vmflow.streams import Allocation, BinAllocator, Stream
from vmflow.vm import VirtualMachine, memory
from vmflow.vm.engine import VirtualMachineEngine
from vmflow.vm.stall_watch import StallWatch
from vmflow.vm.virtual_machine import live_machines
from vmflow.vm.wakers import ThreadWaker

# They name their devices themselves.
pytestmark = pytest.mark.host

CASES: Final = 26  # about 38 programs

# Programs on simulated devices take four times as long as those on the CPU.  With these many the random programs alone
# find each of the mistakes below.
MANY: Final = {"lazy": 50, "random": 50, "eager": 50, "cpu": 200}


@pytest.fixture(autouse=True, scope="module")
def _collections_look_at_programs_only() -> None:
    """A program without memory collects garbage: let it visit only the programs' own objects."""
    gc.collect()
    gc.freeze()


def run_many(first: int, count: int, mode: str) -> None:
    for seed in range(first, first + count):
        case = make_case(seed, mode)
        try:
            run(case)
        except Exception as error:
            error.add_note(f"seed {seed}, mode {mode}; python -m tests.vm.chaos shrinks it:\n{case}")
            raise


@pytest.mark.parametrize("part", range(2))
@pytest.mark.parametrize("mode", MODES)
def test_random_programs(mode: str, part: int) -> None:
    run_many(part * CASES, CASES, mode)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
@pytest.mark.parametrize("mode", MODES)
def test_many_random_programs(mode: str, part: int) -> None:
    run_many(1000 + part * MANY[mode], MANY[mode], mode)


def test_a_seed_is_a_case() -> None:
    assert make_case(7, "random") == make_case(7, "random")
    assert make_case(7, "random") != make_case(8, "random")
    namespace = {"Case": Case, "Setting": Setting, "Step": Step}
    assert eval(str(make_case(7, "random")), namespace) == make_case(7, "random")


# Bugs that random programs have found.

SCRIPT: Final = Setting("lazy", 0, "never", "script", 1, True, False, 32, 64, 40_000)
WATCHED: Final = SCRIPT._replace(race_check=True)
HUGE: Final = ((chaos.HUGE,), "float32", "sim:8", 1)


def strictly(setting: Setting, *steps: Step) -> None:
    run(Case(setting, (steps,)), forgiven=frozenset())


def test_a_dropped_request_for_memory_is_no_error_to_report() -> None:
    strictly(SCRIPT, Step("open", "s", (), ("cancelled",)), Step("full", "v", (), HUGE))


def test_an_upload_for_which_there_is_no_memory_fails_once() -> None:
    strictly(
        SCRIPT,
        Step("full", "v", (), ((), "float32", "cpu", 1)),
        Step("flood", "w", ("v",), ("sim:8", chaos.HUGE)),
    )


def test_a_callback_that_writes_a_result_without_memory_gets_some_of_the_device() -> None:
    strictly(
        SCRIPT,
        Step("full", "v", (), HUGE),
        Step("slice", "part", ("v",), (0, 3, 1)),
        Step("unary", "w", ("part",), ("neg",)),
        Step("poke", "", ("w",), (4,)),
    )


def test_a_result_written_over_a_dropped_one_is_in_memory_of_the_device() -> None:
    strictly(
        SCRIPT,
        Step("open", "s", (), ("cancelled",)),
        Step("full", "v", (), ((4, 3), "float32", "sim:8", 1)),
        Step("close", "s"),
        Step("fill_", "", ("v",), (4,)),
    )


def test_memory_of_something_dropped_is_given_back_in_order() -> None:
    strictly(
        WATCHED,
        Step("open", "s", (), ("cancelled",)),
        Step("full", "v", (), ((3,), "float32", "sim:8", 1)),
        Step("close", "s"),
        Step("sync"),
        Step("full", "x", (), ((3,), "float32", "sim:8", 1)),
        Step("to", "w", ("v",), ("cpu",)),
    )


def test_a_result_that_a_worker_is_making_is_updated_and_not_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parameters that were being made when the optimizer's step was handed over became garbage."""
    allocate = BinAllocator.allocate
    with entered(eager()) as machine, gate(cost=0) as closed:

        def late(self: BinAllocator, nbytes: int, owner: object = None) -> Allocation:
            """An object that was missing while another thread made it exists by now."""
            closed.open()
            worker = machine.stream(closed.tensor.device).worker
            assert worker is not None
            assert worker.wait_until_idle(PATIENCE)
            return allocate(self, nbytes, owner)

        monkeypatch.setattr(BinAllocator, "allocate", late)
        assert closed.begun.wait(PATIENCE)
        blob = closed.tensor._blob
        physical_run(machine, lambda builder: builder.multi_tensor_update("update", chaos.add_one, (), (blob,)))
        assert blob.storage.allocation is None
        closed.open()
        assert closed.tensor.item() == 2.0


def test_nobody_is_left_asleep_while_a_device_has_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """One thread drives and leaves; the other, which could not drive, waits for the work that the first launched."""
    asleep = threading.Event()
    woken: list[bool] = []

    def sleep(self: StallWatch, waker: ThreadWaker, patience: float | None) -> None:
        asleep.set()
        woken.append(waker.sleep(1.0))

    monkeypatch.setattr(StallWatch, "sleep", sleep)
    machine = VirtualMachine("two threads", cpu_worker="never", gather=1)
    opened = threading.Event()
    begun = threading.Event()

    def hold() -> float:
        begun.set()
        assert opened.wait(PATIENCE)
        return 1.0

    def drive() -> None:
        MODE.set(MODE.get().replace(machine=machine))
        call(hold)

    def wait() -> None:
        MODE.set(MODE.get().replace(machine=machine))
        flow.full((3,), 1.0, device="sim:8")
        flow.synchronize()

    threads = [threading.Thread(target=function) for function in (drive, wait)]
    threads[0].start()
    assert begun.wait(PATIENCE)
    threads[1].start()
    assert asleep.wait(PATIENCE)
    opened.set()
    for thread in threads:
        thread.join(PATIENCE)
        assert not thread.is_alive()
    machine.close()
    assert woken
    assert all(woken)


# Mistakes.  Each takes one rule out of the machine; some seed must notice.

Plant = Callable[[pytest.MonkeyPatch], None]


def streams_do_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StreamWait, "prepare", lambda self, instruction: None)


def writes_do_not_wait_for_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    connect = VirtualMachineEngine._connect

    def without(self: Any, instruction: Instruction, preschedulable: bool, follows: Stream | None) -> None:
        for dependence in instruction.writes:
            dependence.readers = None
        connect(self, instruction, preschedulable, follows)

    monkeypatch.setattr(VirtualMachineEngine, "_connect", without)


def memory_is_freed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    release = VirtualMachine.release

    def without(self: VirtualMachine, storage: Storage) -> None:
        if storage.allocation is not None:
            storage.allocation.free()
        release(self, storage)

    monkeypatch.setattr(VirtualMachine, "release", without)


def memory_is_never_freed(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[Storage] = []
    monkeypatch.setattr(VirtualMachine, "release", lambda self, storage: kept.append(storage))


def releases_free_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ReleaseTensor, "prepare", lambda self, instruction: None)
    monkeypatch.setattr(ReleaseTensor, "compute", lambda self: None)


def storages_are_taken_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def without(self: VirtualMachine, storage: Storage) -> Dependence:
        if storage.machine is not self:
            home = self.home_of(storage.stream) if storage.stream is not None else None
            storage.take_over(home, Dependence(self), None, self.engine.pending)
        return storage.dependence

    monkeypatch.setattr(VirtualMachine, "take_over", without)


def dropping_spoils_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(InstructionPolicy, "drop", lambda self, failure: None)


def nothing_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Scope, "dropped", lambda self: None)


def deadlines_pass_unnoticed(monkeypatch: pytest.MonkeyPatch) -> None:
    dropped = Scope.dropped

    def without(self: Scope) -> Failure | None:
        self.deadline = None
        return dropped(self)

    monkeypatch.setattr(Scope, "dropped", without)


def shields_do_not_shield(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Scope, "around", lambda self: self.outer)


def a_part_mends_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    compute = OpCall.compute

    def without(self: OpCall) -> None:
        for blob in self.outputs:
            if not any(blob.storage is operand.storage for operand in self.inputs) and blob.storage.array is not None:
                blob.storage.failure = None
        compute(self)

    monkeypatch.setattr(OpCall, "compute", without)


def the_whole_mends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    compute = OpCall.compute

    def without(self: OpCall) -> None:
        failures = [output.storage.failure for output in self.outputs]
        compute(self)
        for blob, failure in zip(self.outputs, failures, strict=True):
            blob.storage.failure = blob.storage.failure or failure

    monkeypatch.setattr(OpCall, "compute", without)


def failures_do_not_spread(monkeypatch: pytest.MonkeyPatch) -> None:
    compute = OpCall.compute

    def without(self: OpCall) -> None:
        for blob in self.inputs:
            if blob.storage.array is not None:
                blob.storage.failure = None
        compute(self)

    monkeypatch.setattr(OpCall, "compute", without)


def updates_ignore_failures(monkeypatch: pytest.MonkeyPatch) -> None:
    def without(self: MultiTensorUpdate) -> None:
        self.kernel([blob.array() for blob in self.inputs], [blob.destination() for blob in self.outputs])

    monkeypatch.setattr(MultiTensorUpdate, "compute", without)


def failures_are_reported_although_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def without(self: Failure) -> None:
        raise self.error.with_traceback(self.origin)

    monkeypatch.setattr(Failure, "throw", without)


def failures_are_never_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Failure, "report", lambda self: None)


def barriers_come_early(monkeypatch: pytest.MonkeyPatch) -> None:
    def without(self: VirtualMachineEngine, launches: list[Instruction]) -> None:
        self._launch(self.barriers.popleft(), launches)

    monkeypatch.setattr(VirtualMachineEngine, "_try_barrier", without)


def memory_about_to_be_released_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "release_early", lambda lively, unrun: None)


MISTAKES: Final[tuple[tuple[Plant, str], ...]] = (
    (streams_do_not_wait, "lazy"),
    (writes_do_not_wait_for_reads, "random"),
    (memory_is_freed_at_once, "lazy"),
    (memory_is_never_freed, "eager"),
    (releases_free_nothing, "lazy"),
    (storages_are_taken_at_once, "lazy"),
    (dropping_spoils_nothing, "cpu"),
    (nothing_is_dropped, "cpu"),
    (deadlines_pass_unnoticed, "cpu"),
    (shields_do_not_shield, "cpu"),
    (a_part_mends_the_whole, "cpu"),
    (the_whole_mends_nothing, "cpu"),
    (failures_do_not_spread, "eager"),
    (updates_ignore_failures, "cpu"),
    (failures_are_reported_although_seen, "cpu"),
    (failures_are_never_reported, "cpu"),
    (barriers_come_early, "random"),
    (memory_about_to_be_released_is_not_taken, "lazy"),
)


@pytest.mark.slow
@pytest.mark.parametrize(("plant", "mode"), MISTAKES, ids=[plant.__name__ for plant, _ in MISTAKES])
def test_a_mistake_is_found(plant: Plant, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cases = (case for case in (make_case(seed, mode) for seed in range(400)) if case.setting.surroundings == "script")
    plant(monkeypatch)
    found = any(fails(case) is not None for case in cases)
    for machine in live_machines():
        if machine.races is not None:
            machine.races.detector.races.clear()  # also the planted ones
    assert found, "the scripts among 400 programs ran as if nothing were wrong"


def test_a_failing_case_is_made_small(monkeypatch: pytest.MonkeyPatch) -> None:
    shields_do_not_shield(monkeypatch)
    cases = (make_case(seed, "cpu") for seed in range(400))
    failing = next(case for case in cases if case.setting.surroundings == "script" and fails(case) is not None)
    small = shrink(failing)
    assert fails(small) is not None
    assert len(small.programs[0]) <= 6 < len(failing.programs[0])
    assert "shield" in str(small)
