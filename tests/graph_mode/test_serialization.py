"""Jobs and plans as JSON: everything comes back, and whatever does not fit is refused by its place."""

from __future__ import annotations

import json
import math
import struct
from typing import Any

import attrs
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import vmflow as flow
from tests.ops.oracle import Row
from tests.ops.test_coverage import MADE, ROWS
from tests.ops.test_registry import SPECIAL
from vmflow import nn
from vmflow.devices import device
from vmflow.graph_mode.compiled import CompiledGraph
from vmflow.graph_mode.compiler import compile_job
from vmflow.graph_mode.job import Drawn, Job
from vmflow.graph_mode.passes import Settings
from vmflow.graph_mode.plan import Plan
from vmflow.graph_mode.structured_json import decode, encode
from vmflow.instructions.blob import Size, meta
from vmflow.ops import pooling
from vmflow.ops.table import OPS


class Forward(nn.Graph):
    """A graph of any function."""

    def __init__(self, call: Any) -> None:
        super().__init__()
        self.call = call

    def build(self, *args: Any) -> Any:
        return self.call(*args)


class Train(nn.Graph):
    """A training step."""

    def __init__(self) -> None:
        super().__init__()
        self.model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 1))
        self.add_optimizer(flow.optim.Adam(self.model.parameters(), lr=0.1))

    def build(self, x: flow.Tensor) -> flow.Tensor:
        loss = self.model(x).square().mean()
        loss.backward()
        return loss


def compiled(graph: nn.Graph, *args: Any) -> CompiledGraph:
    graph._compile(*args)
    (found,) = graph._compiled.values()
    return found


def read_again(made: CompiledGraph) -> CompiledGraph:
    """The same, of the job's text."""
    job = Job.from_json(made.job.to_json(), made.job.constants)
    return CompiledGraph(job, made.outside, made.settings, made.tree, made.metas, made.out_tree)


def bits(value: Any) -> list[bytes]:
    return [it.detach().numpy().tobytes() for it in flow.graph_mode.args_tree.flatten(value)[1]]


# Every op


def differentiated(row: Row) -> Any:
    """The row's call with its gradients, so that the ops of backward passes are recorded as well."""

    def call(*operands: flow.Tensor) -> Any:
        inputs = [it for it in operands if it.dtype.is_floating_point or it.dtype.is_complex]
        if not row.order or not inputs:
            return row.call(*operands)
        inputs = [it.detach().requires_grad_() for it in inputs]
        left = iter(inputs)
        result = row.call(*[next(left) if it.dtype.is_floating_point or it.dtype.is_complex else it for it in operands])
        return result, flow.autograd.grad(result.sum(), inputs, allow_unused=True)

    return call


recorded: set[str] = set()


def check_round_trip(graph: nn.Graph, *args: flow.Tensor) -> None:
    try:
        made = compiled(graph, *args)
    except RuntimeError as error:
        assert "while the graph is being built" in str(error)  # ops whose shapes depend on values
        pytest.skip("needs values")
    text = made.job.to_json()
    assert Job.from_json(text, made.job.constants) == made.job
    assert Plan.from_json(made.plan.to_json()) == made.plan
    recorded.update([op.op for op in made.job.ops])
    again = read_again(made)
    flow.manual_seed(3)
    expected = bits(made.call(args, []))
    flow.manual_seed(3)
    assert bits(again.call(args, [])) == expected


@pytest.mark.parametrize("op", sorted(ROWS))
def test_a_job_with_any_op_comes_back_and_runs_the_same(op: str) -> None:
    for row in ROWS[op]:
        operands = [flow.tensor(it) for it in row.operands(row.usual(), row.dtypes[0])]
        check_round_trip(Forward(differentiated(row)), *operands)


@pytest.mark.parametrize("op", sorted(MADE))
def test_a_job_with_an_op_that_makes_tensors_comes_back(op: str) -> None:
    call, accepted = MADE[op]
    check_round_trip(Forward(lambda: call(flow.dtypes.by_name(accepted[0]))))


@pytest.mark.parametrize("op", sorted(SPECIAL))
def test_a_job_with_a_special_op_comes_back(op: str) -> None:
    call, _ = SPECIAL[op]
    check_round_trip(Forward(call))
