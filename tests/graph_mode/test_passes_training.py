"""Training steps: after any passes, parameters and states change as they do eagerly, bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest

import vmflow as flow
from vmflow.graph_mode import Graph
from vmflow.graph_mode.passes import PASSES
from vmflow.graph_mode.passes.flow import flow_of
from vmflow.tensors import Tensor

from .agreement import Bits, Setting, bits
from .plan_order import unordered

STEPS: Final = 3
SETTINGS: Final = {
    "none": Setting(passes=()),
    "all": Setting(),
    "all, for speed": Setting(order="speed"),
    "all, fused": Setting(fusion=True),
    **{each.name: Setting(passes=(each.name,), fusion=True) for each in PASSES},
}


def _model() -> flow.nn.Module:
    nn = flow.nn
    return nn.Sequential(
        nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.25), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 3)
    )


def _sgd(model: flow.nn.Module) -> flow.optim.Optimizer:
    return flow.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True)


def _adam(model: flow.nn.Module) -> flow.optim.Optimizer:
    return flow.optim.AdamW(model.parameters(), lr=0.01)


OPTIMIZERS: Final[dict[str, Callable[[flow.nn.Module], flow.optim.Optimizer]]] = {"sgd": _sgd, "adam": _adam}


def _loss(model: flow.nn.Module, x: Tensor, y: Tensor) -> Tensor:
    # Casts and copies such as passes leave out, and some that they must not.
    out: Tensor = model(x.clone() * 1.0)
    return flow.nn.functional.cross_entropy(out.double().float().half().float(), y)


class _Training(Graph):
    def __init__(self, model: flow.nn.Module, optimizer: flow.optim.Optimizer) -> None:
        super().__init__()
        self.model = model
        self.add_optimizer(optimizer)

    def build(self, x: Tensor, y: Tensor) -> Any:
        loss = _loss(self.model, x, y)
        loss.backward()
        return loss


def _batches() -> list[tuple[Tensor, Tensor]]:
    return [(flow.randn(8, 6), flow.randint(0, 3, (8,))) for _ in range(STEPS)]


def _state(model: flow.nn.Module) -> list[Bits]:
    return [bits(value) for value in model.state_dict().values()]


def _eagerly(make: Callable[[flow.nn.Module], flow.optim.Optimizer]) -> list[Any]:
    flow.manual_seed(3)
    model = _model()
    optimizer = make(model)
    found: list[Any] = []
    for x, y in _batches():
        optimizer.zero_grad()
        loss = _loss(model, x, y)
        loss.backward()
        optimizer.step()
        found += [bits(loss), _state(model)]
    return found


def _as_graph(
    make: Callable[[flow.nn.Module], flow.optim.Optimizer],
    setting: Setting,
    by_vm: bool = False,
    micro_batches: int = 1,
) -> tuple[list[Any], _Training]:
    flow.manual_seed(3)
    model = _model()
    graph = _Training(model, make(model))
    setting.configure(graph)
    graph.config.set_gradient_accumulation_steps(micro_batches)
    found: list[Any] = []
    for x, y in _batches():
        loss = graph.run_by_vm(x, y) if by_vm else graph(x, y)
        found += [bits(loss), _state(model)]
    return found, graph


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("setting", SETTINGS)
def test_as_eagerly(optimizer: str, setting: str) -> None:
    wanted = _eagerly(OPTIMIZERS[optimizer])
    found, graph = _as_graph(OPTIMIZERS[optimizer], SETTINGS[setting])
    assert found == wanted
    found, _ = _as_graph(OPTIMIZERS[optimizer], SETTINGS[setting], by_vm=True)
    assert found == wanted
    assert unordered(graph.full_job, graph.plan) == []


@pytest.mark.parametrize("setting", SETTINGS)
def test_in_micro_batches(setting: str) -> None:
    wanted, _ = _as_graph(_sgd, SETTINGS["none"], micro_batches=2)
    found, graph = _as_graph(_sgd, SETTINGS[setting], micro_batches=2)
    assert found == wanted
    found, _ = _as_graph(_sgd, SETTINGS[setting], by_vm=True, micro_batches=2)
    assert found == wanted
    assert graph.full_job.micro_batches == 2


@pytest.mark.parametrize("setting", SETTINGS)
def test_updates_come_after_all_readers_of_the_old_values(setting: str) -> None:
    _, graph = _as_graph(_adam, SETTINGS[setting])
    job = graph.full_job
    versions = flow_of(job)
    weights = [
        variable.id
        for variable in job.variables()
        if variable.name.endswith("weight") and variable.name.startswith("model")
    ]
    assert len(weights) == 4
    for weight in weights:
        _, update = versions.writers[weight]
        assert job.ops[update].kind == "update"
        assert max(versions.readers[weight]) == update
        assert len(versions.readers[weight]) > 1


def test_ops_that_change_nothing_are_left_out() -> None:
    _, graph = _as_graph(_sgd, SETTINGS["all"])
    casts = [op for op in graph.full_job.ops if op.op == "cast" and not op.backward]
    assert [op.outputs[0].meta.dtype for op in casts] == [flow.float16, flow.float32]
