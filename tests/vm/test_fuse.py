"""Small instructions are scheduled several at a time; each keeps its own fate, origin and waiters."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

import vmflow as flow
from tests.support import weak_storage
from vmflow.context import MODE
from vmflow.errors import Cancelled, OutOfMemory, VirtualMachineClosed
from vmflow.vm import VirtualMachine, VirtualMachineEngine
from vmflow.vm.stream_table import SIMULATED_BYTES

from .gates import call

pytestmark = pytest.mark.host


@pytest.fixture(params=["never", "always"])
def machine(request: pytest.FixtureRequest) -> Iterator[VirtualMachine]:
    """One that does nothing before it is waited for, so that all that is issued is seen together."""
    machine = VirtualMachine("fusing", cpu_worker=request.param, gather=1 << 60)
    machine.engine = VirtualMachineEngine(story=1 << 10)
    before = MODE.get()
    MODE.set(before.replace(machine=machine, device=flow.device("cpu")))
    yield machine
    MODE.set(before)
    machine.drain()
    machine.engine.check_invariants()
    machine.close()


def launches(machine: VirtualMachine) -> list[list[str]]:
    """The names of the instructions that were launched together."""
    return [
        [member.name for member in instruction.members or (instruction,)]
        for turn in machine.engine.story.turns
        for instruction in turn.launched
    ]


def test_a_chain_is_launched_in_one_turn(machine: VirtualMachine) -> None:
    x = flow.ones(4)
    y = ((x + 1) * 2).sqrt() - 3
    assert y.tolist() == [-1.0] * 4
    assert ["fill", "add_scalar", "mul_scalar", "sqrt", "sub_scalar"] in launches(machine)


def test_an_expensive_instruction_is_launched_alone(machine: VirtualMachine) -> None:
    x = flow.ones(300, 300)
    (x + 1).sum().item()
    assert [len(launch) for launch in launches(machine) if "add_scalar" in launch] == [1]


def test_a_failure_spoils_dependent_results_and_names_its_own_line(machine: VirtualMachine) -> None:
    x = flow.ones(3)
    bad = flow.gather(x, 0, flow.tensor([7]))  # this line
    worse = bad + 1
    good = x + 1
    assert good.tolist() == [2.0, 2.0, 2.0]
    assert any("gather" in launch and "add_scalar" in launch for launch in launches(machine))
    with pytest.raises(IndexError) as caught:
        worse.numpy()
    notes = "\n".join(caught.value.__notes__)
    with open(__file__) as source:
        line = next(number for number, text in enumerate(source, 1) if text.rstrip().endswith("# this line"))
    assert f"issued at {__file__}:{line}, in" in notes
    assert "while running gather(float32[3], int64[1])" in notes
    failed = [event for event in machine.story("gather") if event[0] == "failed"]
    assert len(failed) == 1
    assert "IndexError" in failed[0][2]


def test_members_keep_their_own_scopes(machine: VirtualMachine) -> None:
    x = flow.ones(3)
    with flow.scope(name="given up") as scope:
        dropped = x * 2
    kept = x * 3
    scope.cancel()
    assert kept.tolist() == [3.0, 3.0, 3.0]
    with pytest.raises(Cancelled, match="given up"):
        dropped.numpy()
    assert any(launch.count("mul_scalar") == 2 for launch in launches(machine))


def test_members_cancelled_in_the_middle_stop_in_the_middle(machine: VirtualMachine) -> None:
    """A member that has begun finishes; those behind it in the same launch do not begin."""
    x = flow.ones(3)
    with flow.scope() as scope:
        begun = call(lambda array: scope.cancel(), x)
        behind = begun + 1
    outside = x * 5
    assert outside.tolist() == [5.0] * 3
    assert ["fill", "planted", "add_scalar", "mul_scalar"] in launches(machine)
    assert begun.isfinite().item()
    with pytest.raises(Cancelled):
        behind.numpy()


async def test_members_are_awaited_one_by_one(machine: VirtualMachine) -> None:
    x = flow.ones(3)
    results = [x + number for number in range(6)]

    async def value(result: flow.Tensor) -> list[float]:
        await result
        values: list[float] = result.tolist()
        return values

    values = await asyncio.gather(*[value(entry) for entry in results])
    assert values == [[1.0 + number] * 3 for number in range(6)]
    assert machine.has_waiters() == 0


def test_closing_drops_members_that_have_not_begun(machine: VirtualMachine) -> None:
    x = flow.ones(3)
    results = [x + 1, x + 2, x + 3]
    machine.close()
    for result in results:
        with pytest.raises(VirtualMachineClosed):
            result.numpy()
    assert machine.engine.outstanding() == 0


def test_an_exception_that_ends_the_program_does_so_after_the_other_members(machine: VirtualMachine) -> None:
    def leave() -> None:
        raise SystemExit(3)

    x = flow.ones(3)
    bad = call(leave)
    good = x + 1
    with pytest.raises(SystemExit):
        good.numpy()
    assert good.tolist() == [2.0] * 3
    with pytest.raises(SystemExit):
        bad.numpy()


def test_results_that_nobody_wants_are_given_back(machine: VirtualMachine) -> None:
    """Nothing of a member outlives its fused instruction."""
    x = flow.ones(3)
    y = x + 1
    gone = weak_storage(y * 2)
    assert (y * 3).tolist() == [6.0] * 3
    machine.drain()
    assert gone() is None


def test_without_memory_for_one_member_the_others_go_on() -> None:
    device = flow.device("sim:10")
    machine = VirtualMachine("small", gather=1 << 60)
    machine.engine = VirtualMachineEngine(story=1 << 10)
    before = MODE.get()
    MODE.set(before.replace(machine=machine, device=device))
    flow.set_memory_limit(4 << 20, device)
    try:
        first = flow.ones(4)
        huge = call(lambda: None, shape=(1 << 21,), device="sim:10")
        second = first + 1
        assert second.cpu().tolist() == [2.0] * 4
        with pytest.raises(OutOfMemory, match=r"8\.00 MiB were requested"):
            huge.cpu().numpy()
        assert all(len(launch) == 1 for launch in launches(machine)), "memory comes and goes between launches"
    finally:
        flow.set_memory_limit(SIMULATED_BYTES, device)
        MODE.set(before)
        machine.close()
