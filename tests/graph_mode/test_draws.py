"""Each op that draws random numbers gives the same ones eagerly, in a graph and where the machine runs the job."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import vmflow as flow
from tests.test_random import DRAWS, NAMES
from vmflow import nn
from vmflow.random import Generator


class Draws(nn.Graph):
    """Draws from the default generator, twice."""

    def __init__(self, draw: Callable[[Generator | None], flow.Tensor]) -> None:
        super().__init__()
        self._draw = draw

    def build(self, x: flow.Tensor) -> tuple[flow.Tensor, flow.Tensor]:
        first = self._draw(None)
        return first + 0 * x, self._draw(None) + 0 * x


@pytest.mark.parametrize(("name", "draw"), DRAWS, ids=NAMES)
def test_graphs_draw_the_same_numbers_as_eager_ops(name: str, draw: Callable[[Generator | None], flow.Tensor]) -> None:
    graph, x = Draws(draw), flow.zeros(())
    flow.manual_seed(5)
    expected = [(draw(None) + 0 * x).numpy() for _ in range(4)]
    for run in (graph, graph.run_by_vm):
        flow.manual_seed(5)
        found = [tensor.numpy() for _ in range(2) for tensor in run(x)]
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_array_equal(one, other)
