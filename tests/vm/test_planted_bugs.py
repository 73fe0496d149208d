"""Rules that keep memory safe, taken out one at a time: the race detector must find each, under every seed."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, Final

import pytest

import vmflow as flow
from vmflow.context import MODE
from vmflow.errors import RaceDetected
from vmflow.instructions import ReleaseTensor
from vmflow.instructions.instruction import ERASED, Instruction
from vmflow.instructions.stream_events import StreamWait
from vmflow.vm import VirtualMachine, running, virtual_machine
from vmflow.vm.engine import VirtualMachineEngine
from vmflow.vm.stream_table import simulated_device
from vmflow.vm.virtual_machine import current_machine

SEEDS: Final = range(100)
DEVICE: Final = flow.device("sim:6")

Plant = Callable[[pytest.MonkeyPatch], None]
Program = Callable[[random.Random], None]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[VirtualMachine]:
    """One that is watched, made current, and does nothing before it is waited for."""
    monkeypatch.setattr(virtual_machine, "_HEAVY", 1 << 60)
    device = simulated_device(DEVICE)
    before_mode, device.mode = device.mode, "lazy"
    machine = VirtualMachine("planted", race_check=True, gather=1 << 60)
    assert machine.races is not None
    machine.races.detector.strict = False  # so that the programs run to their ends
    before = MODE.get()
    MODE.set(before.replace(machine=machine, device=DEVICE))
    yield machine
    MODE.set(before)
    device.mode = before_mode
    machine.races.detector.races.clear()  # the tests provoke them
    machine.close()


def races(machine: VirtualMachine) -> list[RaceDetected]:
    assert machine.races is not None
    return machine.races.detector.races


# Programs.  Each has a situation in which one of the rules matters, among others chosen by the seed.


def filler(choose: random.Random) -> None:
    x = flow.ones(choose.choice((3, 50, 30_000)))
    for _ in range(choose.randrange(4)):
        x = choose.choice((lambda value: value + 1, lambda value: value * 2, lambda tensor: tensor.cpu().to(DEVICE)))(x)


def drive() -> None:
    """Let the machine hand everything to the device, which does nothing yet."""
    current_machine().driver.drive()


def copies_and_uses(choose: random.Random) -> None:
    """Up on one stream, used on another, down on a third, and written again."""
    filler(choose)
    x = flow.tensor([1.0] * choose.choice((5, 40_000)))
    y = x + 1
    filler(choose)
    down = y.cpu()
    y.add_(3)
    filler(choose)
    values(y.cpu(), 5)
    values(down, 2)


def copies_and_changes(choose: random.Random) -> None:
    """An array is changed on the host right after its copy to the device was issued."""
    filler(choose)
    x = flow.ones(choose.choice((5, 40_000)), device="cpu")
    up = x.to(DEVICE)
    drive()
    x.add_(1)
    filler(choose)
    values(up.cpu(), 1)
    values(x, 2)


def releases_and_reuses(choose: random.Random) -> None:
    """A tensor copied to the host is dropped immediately, and the next one needs its memory."""
    size = choose.choice((70_000, 90_000))  # nothing else that has become free would do
    filler(choose)
    x = flow.full((size,), 3.0)
    down = x.cpu()
    drive()
    del x
    drive()
    later = [flow.full((size,), 9.0) for _ in range(choose.randint(1, 3))]
    filler(choose)
    values(later[-1].cpu(), 9)
    values(down, 3)


def releases_in_the_middle(choose: random.Random) -> None:
    """A dropped tensor has uses that have not even been launched."""
    size = choose.choice((30_000, 50_000))
    x = flow.full((size,), 3.0)
    down = x.cpu()
    del x
    drive()
    later = flow.full((size,), 9.0)
    filler(choose)
    values(later.cpu(), 9)
    values(down, 3)


def values(tensor: flow.Tensor, expected: float) -> None:
    assert (tensor.numpy() == expected).all()


# Rules


def no_event_wait(patch: pytest.MonkeyPatch) -> None:
    """A stream does not wait for the event of another."""
    patch.setattr(StreamWait, "prepare", lambda self, instruction: None)


def not_held_until_finished(patch: pytest.MonkeyPatch) -> None:
    """Memory goes back when the last tensor goes, even if instructions still use it."""

    def release(self: VirtualMachine, storage: Any) -> None:
        if storage.allocation is not None:
            storage.allocation.free()

    patch.setattr(VirtualMachine, "release", release)


def no_host_sync_before_read(patch: pytest.MonkeyPatch) -> None:
    """The program reads a copy when it has been launched, not when it has ended."""

    def wait(self: VirtualMachine, instruction: Instruction) -> None:
        while self.engine.has_work():
            for launched in self.engine.schedule():
                running.launch(self, launched)

    patch.setattr(VirtualMachine, "wait", wait)


def no_edge_from_read_to_write(patch: pytest.MonkeyPatch) -> None:
    """A write does not wait for the reads since the last write."""
    edge = VirtualMachineEngine._edge

    def without(self: Any, source: Instruction, target: Instruction, *rest: Any) -> None:
        if any(dependence.writer is target for dependence in source.reads) or not any(
            dependence in source.reads and dependence not in source.writes for dependence in target.writes
        ):
            edge(self, source, target, *rest)

    patch.setattr(VirtualMachineEngine, "_edge", without)


def releases_out_of_order(patch: pytest.MonkeyPatch) -> None:
    """A release does not wait for anything, nor stand in the order of its stream."""
    connect = VirtualMachineEngine._connect

    def without(self: Any, instruction: Instruction, *rest: Any) -> None:
        if isinstance(instruction.policy, ReleaseTensor):
            return
        connect(self, instruction, *rest)

    patch.setattr(VirtualMachineEngine, "_connect", without)


PLANTED: Final[list[tuple[Plant, Program]]] = [
    (no_event_wait, copies_and_uses),
    (not_held_until_finished, releases_and_reuses),
    (no_host_sync_before_read, copies_and_uses),
    (no_edge_from_read_to_write, copies_and_changes),
    (releases_out_of_order, releases_in_the_middle),
]


def run(program: Program, seed: int) -> None:
    """The program, whose values may be wrong, and which may find nothing where there should be something."""
    with suppress(AssertionError, TypeError, AttributeError):
        program(random.Random(seed))
    current_machine().completion.synchronize()


@pytest.mark.parametrize(("plant", "program"), PLANTED, ids=lambda name: name.__name__)
def test_the_detector_finds_it_under_every_seed(
    plant: Plant, program: Program, machine: VirtualMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    missed: list[int] = []
    for seed in SEEDS:
        races(machine).clear()
        run(program, seed)
        if not races(machine):
            missed.append(seed)
    monkeypatch.undo()
    machine.drain()
    assert missed == []


@pytest.mark.parametrize("program", dict.fromkeys([program for _, program in PLANTED]), ids=lambda x: x.__name__)
def test_nothing_is_found_where_nothing_is_wrong(program: Program, machine: VirtualMachine) -> None:
    """Else the test above would pass for the wrong reason."""
    for seed in SEEDS:
        program(random.Random(seed))
    flow.synchronize()
    assert races(machine) == []
    assert all(value.state == ERASED for value in machine.engine.lively)
