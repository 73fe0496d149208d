"""Random programs in random interleavings: in every order of events, values are those of sequential execution."""

from __future__ import annotations

import pytest

from vmflow.vm import VirtualMachineEngine

from .simulation import DROPPED, FENCE, HOST, STEP, simulate


@pytest.mark.parametrize("first", range(0, 240, 30))
def test_random_programs(first: int) -> None:
    for seed in range(first, first + 30):
        simulate(seed, VirtualMachineEngine())


def test_long_programs() -> None:
    for seed in range(3):
        simulate(seed, VirtualMachineEngine(), length=200)


def test_the_programs_contain_the_cases_to_test() -> None:
    """Otherwise the two tests above would prove less than they say."""
    kinds: set[str] = set()
    sequential = prescheduled = out_of_order = fused = 0
    for seed in range(30):
        simulation = simulate(seed, VirtualMachineEngine(story=1 << 20))
        program = simulation.program
        kinds |= {operation.kind for operation in program.operations}
        sequential += any(program.sequential)
        launched_of = [[value.serial for value in turn.launched] for turn in simulation.engine.story.turns]
        prescheduled += any(len(launched) > 1 for launched in launched_of)
        fused += simulation.fused > 0
        out_of_order += simulation.launched != sorted(simulation.launched)
    assert kinds == {STEP, HOST, DROPPED, FENCE}
    assert sequential > 5
    assert prescheduled > 20
    assert out_of_order > 20
    assert fused > 5
