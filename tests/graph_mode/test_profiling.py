"""Graphs in traces, snapshots and stall reports."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import vmflow as flow
from tests.test_profiler import arrows, chains, exported, of, slice_at, track_names
from tests.vm.gates import entered
from vmflow import nn, profiler
from vmflow.vm import VirtualMachine


class Chain(nn.Graph):
    def build(self, x: flow.Tensor) -> flow.Tensor:
        return (x * 2 + 1).exp()


class There(nn.Graph):
    """Computes on a device and on the host."""

    def build(self, x: flow.Tensor) -> flow.Tensor:
        return (x * 2).to("sim").exp().to("cpu") + 1


def acts(trace: Any, graph: nn.Graph) -> list[Any]:
    """The slices in which a graph has computed; they are named for its task where it has several."""
    return [value for value in of(trace, "run") if value["name"].partition(":")[0] == graph.name]


@pytest.mark.host
async def test_what_a_graph_does_is_on_the_tracks_of_its_streams(tmp_path: Path) -> None:
    graph = There()
    await graph(flow.ones(4))
    async with VirtualMachine():
        await graph(flow.ones(4))
        with profiler.profile() as prof:
            for _ in range(3):
                await graph(flow.ones(4))
    trace = exported(prof, tmp_path)
    names = track_names(trace)
    found = {names[act["pid"], act["tid"]] for act in acts(trace, graph)}
    assert any("cpu" in value for value in found)
    assert any("sim" in value for value in found)
    per_launch = len([task for task in graph.plan.tasks if task.id in graph.plan.chains])
    assert per_launch > 1
    assert len(acts(trace, graph)) == 3 * per_launch


@pytest.mark.not_on_cuda
async def test_launches_have_arrows_and_lines(tmp_path: Path) -> None:
    graph = Chain()
    await graph(flow.ones(4))
    with profiler.profile() as prof:
        result = graph(flow.ones(4))
        await result
    trace = exported(prof, tmp_path)
    launches = of(trace, "issue", f"launch_lazy_job: {graph.name}")
    assert len(launches) == 1
    assert "test_profiling.py" in launches[0]["args"]["line"]
    led = [[slice_at(trace, end)["name"] for end in chain] for chain in arrows(trace)]
    assert any(value[0] == value[1] == f"launch_lazy_job: {graph.name}" for value in led), led
    assert chains(trace)
    assert acts(trace, graph)


@pytest.mark.not_on_cuda
def test_in_a_script(tmp_path: Path) -> None:
    graph = Chain()
    with profiler.profile() as prof:
        for _ in range(3):
            graph(flow.ones(4)).numpy()
    trace = exported(prof, tmp_path)
    assert len(acts(trace, graph)) == 3
    # No span is left open: every launch has ended.
    assert all(
        value["args"]["state"] in ("ran", "deferred") for value in of(trace, "run", f"launch_lazy_job: {graph.name}")
    )


@pytest.mark.not_on_cuda
def test_a_failing_launch_leaves_the_trace_well_formed(tmp_path: Path) -> None:
    graph = nn.Graph.trace(lambda x, at: flow.gather(x, 0, at))
    graph(flow.ones(3), flow.tensor([1])).numpy()
    with profiler.profile() as prof:
        bad, good = graph(flow.ones(3), flow.tensor([7])), graph(flow.ones(3), flow.tensor([1]))
        with pytest.raises(IndexError):
            bad.numpy()
        good.numpy()
    trace = exported(prof, tmp_path)
    assert len(acts(trace, graph.graph)) == 2


def test_the_story_names_the_graph() -> None:
    graph = Chain()
    # In its own time, for a launch that runs within the call is no instruction.
    with entered(VirtualMachine("late", gather=1000)) as machine:
        graph(flow.ones(4)).numpy()
        text = "\n".join([" ".join(map(str, event)) for event in machine.story()])
    assert "launch_lazy_job" in text
    assert re.search(rf"{graph.name}\b", text)
