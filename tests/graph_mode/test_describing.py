"""Descriptions of graphs: the tree, the output of a build, and the use of memory."""

from __future__ import annotations

import re
from typing import Any

import attrs
import numpy as np
import pytest

import vmflow as flow
from vmflow import nn
from vmflow.graph_mode import passes
from vmflow.graph_mode.describing import changes, memory_report
from vmflow.graph_mode.job import Job, fetch
from vmflow.graph_mode.passes import Pass, Settings
from vmflow.graph_mode.plan import Plan

from .test_serialization import Forward, Train, compiled


class Small(nn.Module):
    """A module with a buffer, and a module in it."""

    scale: flow.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 2, bias=False)
        self.register_buffer("scale", flow.tensor([2.0, 3.0]))

    def forward(self, x: flow.Tensor) -> flow.Tensor:
        out: flow.Tensor = self.linear(x) * self.scale
        return out


class Predict(nn.Graph):
    """A graph of it."""

    def __init__(self) -> None:
        super().__init__()
        self.model = Small()
        self.config.allow_fusion(False)

    def build(self, x: flow.Tensor, *, mask: flow.Tensor) -> flow.Tensor:
        out: flow.Tensor = self.model(x) + mask
        return out


@pytest.fixture
def graph() -> Predict:
    return Predict()


BEFORE = """\
(GRAPH:NAME:Predict): (
  (CONFIG:config:GraphConfig(fusion=False))
  (MODULE:model:Small()): (
    (BUFFER:model.scale:tensor(..., size=(2,), dtype=vmflow.float32)): ()
    (MODULE:model.linear:Linear()): (
      (PARAMETER:model.linear.weight:tensor(..., size=(2, 3), dtype=vmflow.float32, requires_grad=True)): ()
    )
  )
)"""

AFTER = """\
(GRAPH:NAME:Predict): (
  (CONFIG:config:GraphConfig(fusion=False))
  (INPUT:_NAME_input.args[0]:tensor(..., size=(4, 3), dtype=vmflow.float32))
  (INPUT:_NAME_input.kwargs['mask']:tensor(..., size=(), dtype=vmflow.float32))
  (MODULE:model:Small()): (
    (INPUT:_model_input.0:tensor(..., size=(4, 3), dtype=vmflow.float32))
    (BUFFER:model.scale:tensor(..., size=(2,), dtype=vmflow.float32)): ()
    (MODULE:model.linear:Linear()): (
      (INPUT:_model.linear_input.0:tensor(..., size=(4, 3), dtype=vmflow.float32))
      (PARAMETER:model.linear.weight:tensor(..., size=(2, 3), dtype=vmflow.float32, requires_grad=True)): ()
      (OPERATOR:model.linear.linear(float32[4, 3], float32[2, 3]) -> (float32[4, 2]), at LINE)
      (OUTPUT:_model.linear_output.0:tensor(..., size=(4, 2), dtype=vmflow.float32))
    )
    (OPERATOR:model.mul(float32[4, 2], float32[2]) -> (float32[4, 2]), at LINE)
    (OUTPUT:_model_output.0:tensor(..., size=(4, 2), dtype=vmflow.float32))
  )
  (OPERATOR:add(float32[4, 2], float32[]) -> (float32[4, 2]), at LINE)
  (OUTPUT:_NAME_output.0:tensor(..., size=(4, 2), dtype=vmflow.float32))
)"""


@pytest.mark.host  # which the text does not name
def test_the_tree_before_and_after_building(graph: Predict) -> None:
    assert repr(graph) == BEFORE.replace("NAME", graph.name)
    graph(flow.ones(4, 3), mask=flow.tensor(1.0)).numpy()
    assert re.sub(r"at [^)]*, in \w+\)", "at LINE)", repr(graph)) == AFTER.replace("NAME", graph.name)


def test_the_tree_of_a_training_step_tells_backward_ops_and_updates() -> None:
    graph = Train()
    graph(flow.ones(5, 3)).numpy()
    lines = repr(graph).splitlines()
    assert any(
        [line.strip().startswith("(OPERATOR:model.3.linear_gradient") and "[backward]" in line for line in lines]
    )
    assert any(["Adam.step" in line and "[update]" in line for line in lines])
    (output,) = [line for line in lines if "(OUTPUT:_model.1_output" in line]
    assert "size=(5, 4)" in output  # and not the statistics, which only the module's own backward pass needs
    assert sum([line.count("(") - line.count(")") for line in lines]) == 0


def test_the_tree_has_modules_that_are_no_attributes_of_others() -> None:
    outside = Small()

    class Outer(nn.Module):
        def forward(self, x: flow.Tensor) -> flow.Tensor:
            out: flow.Tensor = outside(x).relu()
            return out

    class Twice(nn.Graph):
        def __init__(self) -> None:
            super().__init__()
            self.outer = Outer()
            self.config.allow_fusion(False)

        def build(self, x: flow.Tensor) -> flow.Tensor:
            out: flow.Tensor = free(self.outer(x))
            return out

    free = nn.Sequential(nn.ReLU())
    graph = Twice()
    graph(flow.ones(4, 3)).numpy()
    shown = [line.partition("(float32")[0] for line in repr(graph).splitlines() if "MODULE" in line or "OPERA" in line]
    assert shown == [
        "  (MODULE:outer:Outer()): (",
        "    (MODULE:outer.small_0): (",
        "      (MODULE:outer.small_0.linear): (",
        "        (OPERATOR:outer.small_0.linear.linear",
        "      (OPERATOR:outer.small_0.mul",
        "    (OPERATOR:outer.relu",
        "  (MODULE:sequential_0): (",
        "    (MODULE:sequential_0.0): (",
        "      (OPERATOR:sequential_0.0.relu",
    ]


# Debugging


@pytest.fixture
def one_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """A table of two passes: one that drops additions of zero, and one that does nothing."""

    def drop(job: Job, settings: Settings) -> Job:
        (add,) = [op for op in job.ops if op.op == "add_scalar"]
        kept = [op for op in job.ops if op is not add and op.kind != "fetch_output"]
        return job.with_ops([*kept, *[fetch(add.inputs[0]) for _ in job.outputs]])

    table = (Pass("drop_zero", "a test", drop), Pass("nothing", "a test", lambda job, settings: job))
    monkeypatch.setattr(passes, "PASSES", table)


def lines_of(level: int, capsys: pytest.CaptureFixture[str]) -> list[str]:
    graph = Forward(lambda x: (x * 2) + 0)
    graph.debug(level)
    assert graph(flow.ones(3)).tolist() == [2.0, 2.0, 2.0]
    said = capsys.readouterr().out.splitlines()
    assert all([line.startswith(f"[{graph.name}] ") for line in said])
    assert graph(flow.ones(3)).tolist() == [2.0, 2.0, 2.0]
    later = capsys.readouterr().out  # it is built but once
    if flow.ones(3).device.type == "cuda" and level >= 0:
        assert re.fullmatch(r"\[\w+\] 1 ops on cuda:0 run as one launch from now on\n", later)
    else:
        assert later == ""
    return [line.removeprefix(f"[{graph.name}] ") for line in said]


@pytest.mark.usefixtures("one_pass")
def test_debug_tells_more_at_each_level(capsys: pytest.CaptureFixture[str]) -> None:
    assert lines_of(-1, capsys) == []
    times = [r"building 4 ops took [\d.]+ ms", r"passes to 3 ops took [\d.]+ ms", r"compiling into 1 tasks took .* ms"]
    for pattern, line in zip(times, lines_of(0, capsys), strict=True):
        assert re.fullmatch(pattern, line)
    with_ops = lines_of(1, capsys)
    for name in ("FeedInput", "mul_scalar", "FetchOutput"):
        assert [line for line in with_ops if f"(OPERATOR:{name}(" in line]
    assert [line for line in with_ops if "memory of Forward" in line]
    assert not [line for line in with_ops if "  pass " in line]
    with_passes = lines_of(2, capsys)
    assert [line.strip() for line in with_passes if "  pass " in line] == [
        "pass drop_zero: 4 -> 3 ops: add_scalar 1 -> 0",
        "pass nothing: left all 3 ops as they were",
    ]


def test_debug_refuses_other_levels(graph: Predict) -> None:
    for level in (-2, 4, "all"):
        with pytest.raises(ValueError, match="must be -1, 0, 1, 2 or 3"):
            graph.debug(level)  # type: ignore[arg-type]
    for ranks in (-2, [0, "all"], 1.5, flow.ones(())):
        with pytest.raises(ValueError, match="numbers of ranks"):
            graph.debug(0, ranks=ranks)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="max_py_stack_depth"):
        graph.debug(0, max_py_stack_depth=-1)
    graph.debug(0, max_py_stack_depth=np.int64(1))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("ranks", "prints"),
    [
        (None, True),
        (0, True),
        (-1, True),
        ([1, 0], True),
        (np.int64(0), True),
        (np.array([1]), False),
        (1, False),
        ([], False),
    ],
)
def test_debug_prints_on_some_ranks(ranks: Any, prints: bool, capsys: pytest.CaptureFixture[str]) -> None:
    graph = Forward(lambda x: x * 2)
    graph.debug(3, ranks=ranks)
    assert graph(flow.ones(2)).tolist() == [2, 2]
    assert bool(capsys.readouterr().out) == prints


def test_debug_tells_the_calls_that_led_to_an_op(capsys: pytest.CaptureFixture[str]) -> None:
    def inner(x: flow.Tensor) -> flow.Tensor:
        return x * 2

    def calls_of(**settings: Any) -> list[str]:
        graph = Forward(lambda x: inner(x))
        graph.debug(1, **settings)
        graph(flow.ones(2)).numpy()
        lines = capsys.readouterr().out.splitlines()
        (at,) = [place for place, line in enumerate(lines) if "(OPERATOR:mul_scalar(" in line]
        following = [line.partition("called at ")[2] for line in lines[at + 1 :]]
        return following[: following.index("")]

    assert calls_of() == []
    assert calls_of(max_py_stack_depth=3) == []
    calls = calls_of(op_repr_with_py_stack=True)
    assert [call.rpartition(" in ")[2] for call in calls] == ["inner", "<lambda>"]
    assert all(call.startswith(f"{__file__}:") for call in calls)
    assert calls_of(op_repr_with_py_stack=True, max_py_stack_depth=1) == calls[:1]
    assert calls_of(op_repr_with_py_stack=True, max_py_stack_depth=0) == []
    everything = calls_of(op_repr_with_py_stack=True, max_py_stack_depth=50, only_user_py_stack=False)
    assert [call for call in everything if call in calls] == calls
    assert any("graph_mode" in call and "in _built" in call for call in everything)


def test_changes_that_are_no_change_of_numbers() -> None:
    job = compiled(Forward(lambda x: x.exp() + x.sin()), flow.ones(2)).job
    turned = attrs.evolve(job, ops=(job.ops[0], job.ops[2], job.ops[1], *job.ops[3:]))
    assert changes(job, turned) == "5 -> 5 ops: the same ops in another order or form"
    assert changes(job, attrs.evolve(job)) == "left all 5 ops as they were"


# Memory


def test_the_memory_report_adds_up() -> None:
    plan = compiled(Forward(lambda x: x.exp().sin().cos().sum()), flow.ones(1000)).plan
    (chain,) = plan.chains.values()
    assert plan.lower_bound <= plan.nbytes < plan.without_reuse
    assert plan.without_reuse == chain.arena.without_reuse
    first, second = plan.memory_report().splitlines()
    assert first.startswith(f"memory of {plan.name}: {plan.nbytes / 1024:.1f} KiB, ")
    assert f"without reuse {plan.without_reuse / 1024:.1f} KiB" in first
    assert f"for {len(chain.arena.offsets)} buffers ({chain.arena.strategy})" in second


def test_registers_are_in_the_memory_report() -> None:
    plan = compiled(Forward(lambda x: (x.to("sim:0") + 1).to("cpu")), flow.ones(100, device="cpu")).plan
    said = memory_report(plan)
    for number, contents in plan.contents.items():
        assert f"register {number} from " in said
        assert f"1 x {contents.nbytes} bytes for 1 buffers" in said


def test_a_plan_without_memory_has_a_report() -> None:
    plan = Plan("none", (), (), {}, {}, {}, flow.device("cpu"), 1)
    assert (
        memory_report(plan) == "memory of none: 0 bytes, 0.0 % above the least possible 0 bytes; without reuse 0 bytes"
    )
