"""Biases of dense layers go with the elementwise ops behind them; every bit stays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import vmflow as flow
from vmflow import nn
from vmflow.tensors import Tensor

from .agreement import Setting, agreed, bits, names
from .support import computing

ALONE = Setting(passes=("split_biases",), fusion=True)
FUSED = Setting(passes=("split_biases", "fuse_elementwise"), fusion=True)
F = nn.functional

ACTIVATIONS: list[Callable[[Tensor], Tensor]] = [
    *(F.relu, F.gelu, F.silu, flow.sigmoid, flow.tanh, F.leaky_relu, F.elu, F.hardtanh, F.softplus),
]


def _tensors(dtype: flow.dtype = flow.float32) -> list[Tensor]:
    """A batch, a weight and a bias."""
    random = np.random.default_rng(0)
    return [flow.tensor(random.standard_normal(value).astype(np.float32)).to(dtype) for value in ((9, 5), (7, 5), (7,))]


def test_a_bias_goes_with_the_activation() -> None:
    def program(state: list[Tensor], x: Tensor, weight: Tensor, bias: Tensor) -> Any:
        return F.relu(F.linear(x, weight, bias))

    graph = agreed(program, *_tensors(), setting=ALONE)
    assert names(graph.job) == ["linear", "relu"]
    assert names(graph.full_job) == ["linear", "add", "relu"]
    product, addition, _ = computing(graph.full_job)
    (layer, _) = computing(graph.job)
    assert [operand.meta.shape for operand in product.inputs] == [(9, 5), (7, 5)]
    assert addition.inputs == (product.outputs[0], layer.inputs[2])
    assert addition.outputs == layer.outputs
    fused = agreed(program, *_tensors(), setting=FUSED)
    assert names(fused.full_job) == ["linear", "fused"]
    assert [step[0] for step in computing(fused.full_job)[1].attributes[0]] == ["add", "relu"]


@pytest.mark.parametrize("activation", ACTIVATIONS, ids=lambda x: x.__name__)
@pytest.mark.parametrize("dtype", [flow.float32, flow.float64])
def test_a_training_step_computes_the_same(activation: Callable[[Tensor], Tensor], dtype: flow.dtype) -> None:
    def program(state: list[Tensor], x: Tensor) -> Any:
        weight, bias = state
        y = activation(F.linear(x, weight, bias))
        y.square().sum().backward()
        return y, weight.grad, bias.grad

    x, *_ = _tensors(dtype)

    def state() -> list[Tensor]:
        return [tensor.requires_grad_() for tensor in _tensors(dtype)[1:]]

    agreed(program, x, state=state, setting=FUSED, rounds=1)


def test_bias_and_activation_are_computed_where_the_product_was() -> None:
    model = nn.Sequential(nn.Linear(300, 200), nn.ReLU(), nn.Linear(200, 100), nn.ReLU())
    x = flow.randn(64, 300, generator=flow.Generator().manual_seed(0))

    class Predict(nn.Graph):
        def __init__(self, fusion: bool) -> None:
            super().__init__()
            self.model = model
            self.config.allow_fusion(fusion)

        def build(self, x: Tensor) -> Tensor:
            with flow.no_grad():
                result: Tensor = self.model(x)
            return result

    split, whole = Predict(True), Predict(False)
    assert bits(split(x)) == bits(whole(x))
    assert names(split.full_job) == ["linear", "fused"] * 2
    assert split.plan.nbytes == whole.plan.nbytes


def test_biases_stay_where_nothing_takes_them_along() -> None:
    def last(state: list[Tensor], x: Tensor, weight: Tensor, bias: Tensor) -> Any:
        return F.linear(x, weight, bias)

    def summed(state: list[Tensor], x: Tensor, weight: Tensor, bias: Tensor) -> Any:
        y = F.linear(x, weight, bias)
        return y.sum(), F.relu(y)

    def turned(state: list[Tensor], x: Tensor, weight: Tensor, bias: Tensor) -> Any:
        return F.relu(F.linear(x, weight, bias).t())

    def changed(state: list[Tensor], x: Tensor, weight: Tensor, bias: Tensor) -> Any:
        y = F.linear(x, weight, bias)
        y.add_(1)
        return F.relu(y)

    def without(state: list[Tensor], x: Tensor, weight: Tensor, bias: Tensor) -> Any:
        return F.relu(F.linear(x, weight))

    for program in (last, summed, turned, changed, without):
        graph = agreed(program, *_tensors(), setting=ALONE)
        assert names(graph.full_job) == names(graph.job), program.__name__


def test_half_precision_is_rounded_once() -> None:
    def program(state: list[Tensor], x: Tensor, weight: Tensor, bias: Tensor) -> Any:
        return F.relu(F.linear(x, weight, bias))

    for dtype in (flow.float16, flow.bfloat16):
        graph = agreed(program, *_tensors(dtype), setting=FUSED)
        assert names(graph.full_job) == ["linear", "relu"]
