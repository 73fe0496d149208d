"""Parameters that lie behind each other in memory."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

import vmflow as flow
from vmflow import nn
from vmflow.nn.utils.parameters_grouping import ContiguousParamsGroup


def net() -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 200), nn.ReLU(), nn.Linear(200, 2))


def test_a_parameter_given_twice_has_one_place() -> None:
    parameter = nn.Parameter(flow.tensor([1.0, 2.0]))
    group = ContiguousParamsGroup([[parameter, parameter], [parameter]])
    parameter.sum().backward()
    assert [tensor.numel() for tensor in group.grouped_parameters] == [128]
    assert nn.utils.clip_grad_norm_(group.grouped_parameters, 100.0).item() == pytest.approx(2**0.5)


@pytest.mark.parametrize("zeroing", ["optimizer", "optimizer to zero", "module", "module to zero"])
def test_training_gives_the_same_values_as_without_grouping(zeroing: str) -> None:
    ours = net()
    other = copy.deepcopy(ours)
    group = ContiguousParamsGroup([list(ours.parameters())])
    assert [parameter.shape for parameter in group.grouped_parameters] == [
        (1536,)
    ]  # each begins at a multiple of 512 bytes
    optimizers = [
        flow.optim.Adam(group.grouped_parameters, lr=0.1),
        flow.optim.Adam(other.parameters(), lr=0.1),
    ]
    x = flow.rand(5, 3)
    for _ in range(3):
        for module, optimizer in zip((ours, other), optimizers, strict=True):
            for _ in range(2):  # added up
                module(x).square().sum().backward()
            optimizer.step()
            zeroed: Any = optimizer if "optimizer" in zeroing else module
            zeroed.zero_grad(set_to_none="to zero" not in zeroing)
    for one, two in zip(ours.parameters(), other.parameters(), strict=True):
        np.testing.assert_allclose(one.detach().numpy(), two.detach().numpy(), rtol=1e-4, atol=1e-6)


def test_values_and_gradients_are_shared() -> None:
    layer = nn.Linear(3, 2)
    layer(flow.ones(1, 3)).sum().backward()
    weight = layer.weight.tolist()
    group = ContiguousParamsGroup(list(layer.parameters()))
    (buffer,), (slopes,) = group.grouped_parameters, group.grouped_parameters_grad
    assert slopes is not None
    assert layer.weight.tolist() == weight
    assert slopes[:6].tolist() == [1] * 6
    assert slopes[128:130].tolist() == [1] * 2
    assert slopes.sum().item() == 8
    with flow.no_grad():
        buffer.mul_(2)
        slopes.mul_(3)
    np.testing.assert_allclose(layer.weight.detach().numpy(), np.array(weight) * 2, rtol=1e-6)
    assert layer.bias.grad is not None
    assert layer.bias.grad.tolist() == [3, 3]
    buffer.grad = flow.full_like(slopes, 5)
    assert layer.bias.grad.tolist() == [5, 5]
    nn.utils.clip_grad_value_(layer.parameters(), 1.0)
    assert buffer.grad[0].item() == 1


def test_parameters_of_one_list_and_dtype_share_a_buffer() -> None:
    layers = [nn.Linear(2, 2), nn.Linear(2, 2).double(), nn.Linear(2, 2)]
    layers[2].bias.requires_grad_(False)
    lists = [[*layers[0].parameters(), *layers[1].parameters()], [*layers[2].parameters(), layers[0].bias]]
    group = ContiguousParamsGroup(lists)
    assert [(parameter.dtype, parameter.numel()) for parameter in group.grouped_parameters] == [
        (flow.float32, 256),
        (flow.float64, 128),
        (flow.float32, 128),
    ]
    assert [parameter.numel() for parameter in ContiguousParamsGroup(layers[0].weight).grouped_parameters] == [128]
    assert ContiguousParamsGroup([]).grouped_parameters == []


def test_a_graph_reads_the_values_that_the_optimizer_changes() -> None:
    class Graph(nn.Graph):
        def __init__(self) -> None:
            super().__init__()
            self.module = module

        def build(self, x: flow.Tensor) -> Any:
            return self.module(x)

    module = net()
    group = ContiguousParamsGroup(list(module.parameters()))
    graph, x = Graph(), flow.rand(2, 3)
    optimizer = flow.optim.SGD(group.grouped_parameters, lr=0.1)
    for _ in range(2):
        np.testing.assert_allclose(graph(x).detach().numpy(), module(x).detach().numpy(), rtol=1e-5, atol=1e-6)
        module(x).sum().backward()
        optimizer.step()


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ([3], TypeError, "got one with a int"),
        ([["a"]], TypeError, "got one with a str"),
        ([flow.ones(2), [flow.ones(2)]], TypeError, "NoneType"),
        ([flow.ones(2, dtype=flow.int64)], ValueError, "got int64"),
    ],
)
def test_tensors_that_are_refused(given: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        ContiguousParamsGroup(given)
