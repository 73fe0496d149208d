"""Stages of a pipeline: streams of their own, slots by distance, and the gain of overlapping."""

from __future__ import annotations

from typing import Any

import pytest

import vmflow as flow
from tests.graph_mode.actors.bench import Sketch
from tests.graph_mode.virtual_time import makespan, simulate, with_slots
from vmflow import nn
from vmflow.graph_mode.actors import check
from vmflow.graph_mode.plan import Plan
from vmflow.vm.virtual_machine import VirtualMachine, current_machine

LAUNCHES = 100


class Stages(nn.Module):
    """Three layers."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.three = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: flow.Tensor) -> Any:
        return self.three(self.two(self.one(x).tanh()).tanh())


class Pipeline(nn.Graph):
    """The layers as stages."""

    def __init__(self, model: Stages, optimizer: Any = None) -> None:
        super().__init__()
        self.model = model
        self.config.allow_fusion(False)
        for stage, block in enumerate((self.model.one, self.model.two, self.model.three)):
            block.config.set_stage(stage)
        if optimizer is not None:
            self.add_optimizer(optimizer)

    def build(self, x: flow.Tensor) -> Any:
        result = self.model(x)
        if self._optimizers:
            result = (result * result).mean()
            result.backward()
        return result


def _durations(plan: Plan) -> dict[int, float]:
    return dict.fromkeys(plan.chains, 1.0)


def test_stages_are_tasks_on_streams_of_their_own_and_agree_with_eager_code() -> None:
    model = Stages()
    graph = Pipeline(model)
    given = [flow.randn(3, 4) for _ in range(12)]
    results = [graph(value) for value in given]
    with flow.no_grad():
        for x, result in zip(given, results, strict=True):
            assert (result.numpy() == model(x).numpy()).all()
    assert [chain.stream for chain in graph.plan.chains.values()] == ["compute", "compute:1", "compute:2"]
    names = {stream.name for stream in current_machine().streams()}
    device = flow.zeros(()).device
    assert {f"{device}:compute:1", f"{device}:compute:2"} <= names
    assert f"{device}:compute:1" in repr(current_machine().snapshot())


def test_ops_between_stages_go_where_their_operands_are_and_gradients_with_their_forward() -> None:
    model = Stages()
    graph = Pipeline(model, flow.optim.SGD(model.parameters(), lr=0.1))
    graph._compile(flow.randn(3, 4))
    forward = [op.stage for op in graph.job.ops if not op.backward and op.kind == "call"]
    assert forward[:5] == [0, 0, 1, 1, 2]
    for op in graph.job.ops:
        if op.backward and op.module in ("model.one", "model.two", "model.three"):
            assert op.stage == ("model.one", "model.two", "model.three").index(op.module)
    assert {op.stage for op in graph.job.ops if op.backward} == {0, 1, 2}


def test_training_in_stages_agrees_with_eager_code() -> None:
    pipelined, plain = Stages(), Stages()
    plain.load_state_dict(pipelined.state_dict())
    graph = Pipeline(pipelined, flow.optim.SGD(pipelined.parameters(), lr=0.1))
    optimizer = flow.optim.SGD(plain.parameters(), lr=0.1)
    for number in range(5):
        x = flow.full((3, 4), 0.25 * number)
        loss = graph(x)
        optimizer.zero_grad()
        result = plain(x)
        wanted = (result * result).mean()
        wanted.backward()
        optimizer.step()
        assert loss.numpy() == wanted.detach().numpy()
    for one, other in zip(pipelined.parameters(), plain.parameters(), strict=True):
        assert (one.detach().numpy() == other.detach().numpy()).all()


def test_what_the_backward_pass_needs_has_slots_for_all_that_is_in_the_pipeline() -> None:
    model = Stages()
    graph = Pipeline(model, flow.optim.SGD(model.parameters(), lr=0.1))
    graph._compile(flow.randn(3, 4))
    plan = graph.plan
    stages = {task: int(chain.stream.partition(":")[2] or 0) for task, chain in plan.chains.items()}
    backward = {
        task for task, value in plan.chains.items() if any([graph.full_job.ops[op].backward for op in value.ops])
    }
    kept = [
        register.count
        for register in plan.registers
        if register.producer in stages
        and stages[register.producer] == 0
        and register.producer not in backward
        and not register.control
        if set(register.consumers) & backward
    ]
    assert kept
    assert all([count >= 6 for count in kept])


def test_two_slots_nearly_double_the_throughput_of_three_stages() -> None:
    graph = Pipeline(Stages())
    graph._compile(flow.randn(3, 4))
    durations = _durations(graph.plan)
    one, two = [makespan(with_slots(graph.plan, slots), durations, LAUNCHES) for slots in (1, 2)]
    assert two == LAUNCHES + 2
    assert one / two >= 1.8
    # The compiler's choice is as good.
    assert makespan(graph.plan, durations, LAUNCHES) == two


def test_slots_take_up_what_stages_of_changing_speed_lack() -> None:
    """More slots never make it slower, and with one the slowest stage is not the limit."""
    graph = Pipeline(Stages())
    graph._compile(flow.randn(3, 4))
    durations = dict(zip(graph.plan.chains, (1.0, 3.0, 2.0), strict=True))
    spans = [makespan(with_slots(graph.plan, slots), durations, LAUNCHES) for slots in (1, 2, 3)]
    assert spans[0] > spans[1] >= spans[2]
    assert spans[1] == 1.0 + 3.0 * LAUNCHES + 2.0


def test_too_few_slots_in_a_circle_are_refused_by_name() -> None:
    """Two results of `first` have to be packed before the other input can be used."""

    def plan(slots: int) -> Any:
        sketch = Sketch().source(writes="fed")
        sketch.task("first", reads="fed", writes=f"made*{slots}", on=1)
        sketch.task("pack", "pack", reads="made", writes="packed", count=2, on=2)
        sketch.task("unpack", "unpack", reads="packed", writes="parts", count=2, on=3)
        return sketch.task("join", reads="made parts", writes="joined", on=4).sink(reads="joined", on=5).plan()

    check(*plan(2))
    with pytest.raises(ValueError, match="wait for each other in a circle") as caught:
        check(*plan(1))
    assert all([name in str(caught.value).splitlines()[0] for name in ("first", "join", "unpack", "pack")])


def test_the_compiler_refuses_a_plan_that_cannot_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """The compiler checks its own plans: here, one whose registers are all read by their writers."""
    from vmflow.graph_mode import compiler

    def backwards(self: Any) -> Any:
        shared = linked(self)
        (maker, _, buffers), (_, others, more) = shared[:2]
        others[0].reads[buffers[0]] = None
        return [*shared, (others[0], [maker], more)]

    linked = compiler._Linking._shared
    monkeypatch.setattr(compiler._Linking, "_shared", backwards)
    with pytest.raises(ValueError, match="wait for each other in a circle"):
        Pipeline(Stages())._compile(flow.randn(3, 4))


def test_acts_of_one_stage_do_not_overlap_and_others_do() -> None:
    graph = Pipeline(Stages())
    graph._compile(flow.randn(3, 4))
    acts = simulate(graph.plan.tasks, graph.plan.registers, _durations(graph.plan), 10)
    for task in graph.plan.chains:
        mine = [act for act in acts if act.task == task]
        assert [value.begin for value in mine[1:]] == [value.end for value in mine[:-1]]
    assert len({act.task for act in acts if act.begin == 5.0}) == 3


@pytest.mark.host
def test_a_stage_has_a_worker_in_a_script_too() -> None:
    machine = VirtualMachine("staged")
    policy = machine.stream(flow.device("cpu"), "compute:1").policy
    assert policy.kind == "compute:1"
    assert not policy.on_scheduler_thread(1, False)
    with pytest.raises(ValueError, match="no stream of kind 'compute:x'"):
        machine.stream(flow.device("cpu"), "compute:x")
    machine.close()
