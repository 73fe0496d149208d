"""The memory of a training step, measured by the simulated device's allocator: eagerly, as a graph, and as planned.

Memory that is alive before and after a step (parameters, the optimizer's state, the batch) is left out everywhere.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import vmflow as flow
from tests.benchmarks import graph_memory
from tests.benchmarks.graph_memory import MODELS, Footprint, Step, Trained
from vmflow.vm.virtual_machine import current_machine

# Of a loss in float32, the only result.
LOSS = 4

pytestmark = pytest.mark.host  # the tests choose their device themselves


@pytest.fixture(autouse=True)
def _on_the_simulated_device() -> Iterator[None]:
    with graph_memory.on_device():
        yield


def beside_the_plan(graph: Step) -> int:
    """The memory of a call beyond the plan's: its result, and constants."""
    constants = [buffer.meta.nbytes for buffer in graph.full_job.buffers.values() if buffer.role == "constant"]
    return LOSS + sum(constants)


@pytest.mark.slow
def test_a_gpts_graph_takes_the_planned_memory_and_much_less_than_eager_code() -> None:
    subject = graph_memory.trained(MODELS["GPT"])
    eager = subject.eager()
    plain, graph = subject.graph()
    assert plain.peak == plain.kept == graph.plan.nbytes + beside_the_plan(graph)
    assert graph.plan.nbytes <= 1.15 * graph.plan.lower_bound
    # The same values are kept for the backward pass, so that little can be gained.
    assert plain.peak <= 0.95 * eager.peak
    graph.close()

    for way, most in zip(graph_memory.RECOMPUTED, (0.85, 0.6), strict=True):
        recomputed, graph = subject.graph(way)
        assert recomputed.peak == recomputed.kept == graph.plan.nbytes + beside_the_plan(graph)
        assert graph.plan.nbytes <= 1.15 * graph.plan.lower_bound
        assert recomputed.peak <= most * eager.peak
        graph.close()

    checkpointed, graph = subject.graph(graph_memory.CHECKPOINTED)
    assert checkpointed.peak == checkpointed.kept == graph.plan.nbytes + beside_the_plan(graph)
    assert graph.plan.nbytes <= 1.15 * graph.plan.lower_bound
    assert checkpointed.peak <= 0.6 * eager.peak
    assert checkpointed.handed_out <= 0.6 * eager.handed_out
    # Eager code can do the same, and takes more for it.
    assert checkpointed.peak <= 0.95 * subject.eager(graph_memory.CHECKPOINTED).peak
    graph.close()


@pytest.mark.parametrize("name", ["digits CNN", "MLP"])
def test_other_graphs_take_the_planned_memory_and_hardly_more_than_eager_code(name: str) -> None:
    subject = graph_memory.trained(MODELS[name])
    eager = subject.eager()
    for way in graph_memory.WAYS:
        measured, graph = subject.graph(way)
        assert measured.peak == measured.kept == graph.plan.nbytes + beside_the_plan(graph)
        assert graph.plan.nbytes <= 1.15 * graph.plan.lower_bound
        # Of a narrow network nearly all are gradients, which both keep until the update.
        assert measured.peak <= 1.05 * eager.peak
        graph.close()


def test_later_calls_take_nothing_but_their_results() -> None:
    subject = graph_memory.trained(MODELS["MLP"])
    _, graph = subject.graph()

    def call() -> flow.Tensor:
        loss: flow.Tensor = graph(subject.model.inputs, subject.model.targets)
        return loss

    assert call().item() > 0
    assert [(value.peak, value.kept) for value in (graph_memory.footprint(call) for _ in range(3))] == [
        (LOSS, LOSS)
    ] * 3
    before = flow.memory_stats("sim")["requested_bytes.all.current"]
    planned = graph.plan.nbytes
    graph.close()
    current_machine().drain()
    assert flow.memory_stats("sim")["requested_bytes.all.current"] == before - planned


def test_the_measured_memory_is_the_requested_memory() -> None:
    """A step whose memory can be told by hand."""

    def step() -> flow.Tensor:
        first = flow.ones(1000)
        second = first + 1
        return (first.sum() + second.sum()).detach()

    found = graph_memory.footprint(step)
    # Two of a thousand numbers, two sums and theirs; each piece is a multiple of 512 bytes.
    assert found == Footprint(found.lives, peak=2 * 4000 + 3 * 4, handed_out=2 * 4096 + 3 * 512, kept=4)


def test_a_trained_model_has_its_state_before_anything_is_measured() -> None:
    subject: Trained = graph_memory.trained(MODELS["MLP"])
    parameters = sum([parameter.numel() * 4 for parameter in subject.model.module.parameters()])
    measured = subject.eager()
    # Two moments for each parameter; and a step leaves the gradients.
    assert measured.lives >= 3 * parameters
    assert parameters <= measured.kept < measured.peak
