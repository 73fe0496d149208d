"""`nn.functional.depend`: an order that no value asks for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import vmflow as flow
from vmflow import nn
from vmflow.nn import functional as F
from vmflow.tensors import Tensor

from .agreement import agreed, names


def test_outside_of_graphs_it_is_the_input() -> None:
    x = flow.rand(3)
    assert F.depend(x, flow.ones(2)) is x
    assert F.depend(x, [flow.ones(2), x]) is x
    assert F.depend(x, []) is x
    with pytest.raises(TypeError, match="expected tensors, got int"):
        F.depend(x, [3])  # type: ignore[list-item]


@pytest.mark.parametrize("dtype", [flow.float32, flow.bool_], ids=lambda x: x.name)
def test_dependences_are_kept_and_come_first(dtype: flow.dtype) -> None:
    def program(state: list[Tensor], x: Tensor) -> Any:
        first, second = x.exp().to(dtype), x.sum()
        return F.depend(x, [first, second]).cos()

    def alone(state: list[Tensor], x: Tensor) -> Any:
        x.exp(), x.sum()
        return x.cos()

    x = flow.rand(3, 4)
    found = names(agreed(program, x).full_job)
    assert found.index("cos") > max(found.index("exp"), found.index("sum"))
    assert "exp" not in names(agreed(alone, x).full_job)


def test_gradients_flow_into_the_input_alone() -> None:
    layer, other = nn.Linear(3, 2).double(), nn.Linear(3, 2).double()

    class Graph(nn.Graph):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.other = layer, other
            self.add_optimizer(flow.optim.SGD(layer.parameters(), lr=0.5))

        def build(self, x: Tensor) -> Any:
            loss = F.depend(self.layer(x), self.other(x)).sum()
            loss.backward()
            return loss

    before = layer.bias.detach().numpy().copy()
    Graph()(flow.rand(4, 3, dtype=flow.float64))
    np.testing.assert_allclose(layer.bias.detach().numpy(), before - 2)
    assert other.bias.grad is None
