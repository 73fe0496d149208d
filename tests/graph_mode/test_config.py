"""Settings of graphs, under the names of OneFlow."""

from __future__ import annotations

import math
from typing import Any

import pytest

import vmflow as flow
from vmflow import nn
from vmflow.graph_mode.config import GraphConfig

from .support import computing


class Chain(nn.Graph):
    def build(self, x: flow.Tensor) -> flow.Tensor:
        return (x * 2 + 1).relu()


@pytest.mark.parametrize("name", ["allow_fuse_add_to_output", "allow_fuse_cast_scale"])
def test_elementwise_fusion_can_be_switched(name: str) -> None:
    for mode, ops in ((True, ["fused"]), (False, ["mul_scalar", "add_scalar", "relu"])):
        graph = Chain()
        getattr(graph.config, name)(not mode)
        getattr(graph.config, name)(mode)
        assert graph(flow.ones(4)).tolist() == [3.0] * 4
        assert [op.op for op in computing(graph.full_job)] == ops


@pytest.mark.parametrize("name", ["allow_fuse_model_update_ops", "enable_multi_tensor_update"])
def test_updates_of_several_optimizers_can_be_kept_apart(name: str) -> None:
    class Train(nn.Graph):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = nn.Linear(2, 2), nn.Linear(2, 1)
            for block in (self.one, self.two):
                self.add_optimizer(flow.optim.SGD(block.origin.parameters(), lr=0.1))

        def build(self, x: flow.Tensor) -> flow.Tensor:
            loss: flow.Tensor = self.two(self.one(x)).sum()
            loss.backward()
            return loss

    for mode, count in ((True, 1), (False, 2)):
        graph = Train()
        getattr(graph.config, name)(mode)
        graph(flow.ones(3, 2))
        assert sum([op.kind == "update" for op in graph.full_job.ops]) == count


def test_the_order_has_three_ways() -> None:
    config = GraphConfig()
    for mode, order in (("SpeedFirst", "speed"), ("Disable", "given"), ("MemoryFirst", "memory")):
        config.enable_straighten_algorithm(mode)
        assert config.order == order
    with pytest.raises(ValueError, match=r"expected one of .*MemoryFirst.* got 'Fast'"):
        config.enable_straighten_algorithm("Fast")
    with pytest.raises(ValueError, match="expected one of"):
        config.enable_straighten_algorithm([])  # type: ignore[arg-type]


def test_settings_without_effect_are_accepted() -> None:
    graph = Chain()
    graph.config.enable_cudnn_conv_heuristic_search_algo(False)
    graph.config.enable_choose_best_memory_allocation(True)
    graph.config.enable_compress_memory(True)
    assert graph(flow.ones(2)).tolist() == [3.0, 3.0]


def test_unknown_settings_are_refused() -> None:
    config: Any = GraphConfig()
    with pytest.raises(AttributeError, match="fusoin"):
        config.fusoin = False
    assert repr(config) == "GraphConfig()"


@pytest.mark.parametrize("name", ["enable_zero", "enable_auto_parallel"])
def test_settings_for_several_ranks_are_refused(name: str) -> None:
    ask: Any = getattr(GraphConfig(), name)
    ask(False)
    with pytest.raises(RuntimeError, match="there is one rank"):
        ask()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda config: config.set_outputs_buffer_size(0), "at least 1, not 0"),
        (lambda config: config.set_gradient_accumulation_steps(0), "at least 1, not 0"),
        (lambda config: config.enable_amp(dtype=flow.float64), "float16 or bfloat16, not"),
        (lambda config: config.allow_recomputation(-0.1), "must be 0 or more, not -0.1"),
        (lambda config: config.allow_recomputation(float("nan")), "must be 0 or more, not nan"),
        (lambda config: config.set_execution_order("fast"), "got 'fast'"),
        (lambda config: config.disable_pass("magic"), "there is no pass 'magic'"),
    ],
)
def test_bad_settings(call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call(GraphConfig())


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda graph: graph.config.set_outputs_buffer_size(1.5), "the size must be an integer, not 1.5"),
        (lambda graph: graph.config.set_gradient_accumulation_steps(math.nan), "must be an integer, not nan"),
        (lambda graph: graph.config.allow_recomputation("0.5"), "must be a real number, not '0.5'"),
        (lambda graph: graph.model.config.set_stage(1.0), "the number of a stage must be an integer, not 1.0"),
        (lambda graph: graph.with_dynamic_input_shape(size=2.0), "size must be an integer, not 2.0"),
        (lambda graph: graph.set_grad_scaler(5), "expected a GradScaler, got int"),
    ],
)
def test_settings_of_wrong_types(call: Any, message: str) -> None:
    graph = nn.Graph()
    graph.model = nn.Linear(2, 2)
    with pytest.raises(TypeError, match=message):
        call(graph)
