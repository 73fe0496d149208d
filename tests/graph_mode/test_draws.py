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


def test_a_graph_built_in_a_fork_draws_from_the_callers_generator() -> None:
    graph, x = nn.Graph.trace(lambda x: flow.rand(3) + 0 * x), flow.zeros(3)
    with flow.fork_rng():
        graph(x)
    flow.manual_seed(5)
    expected = flow.rand(3).numpy()
    flow.manual_seed(5)
    np.testing.assert_array_equal(graph(x).numpy(), expected)
    with flow.fork_rng():
        flow.manual_seed(5)
        np.testing.assert_array_equal(graph(x).numpy(), expected)


def test_a_fork_within_build_has_draws_of_its_own() -> None:
    def f(x: flow.Tensor) -> tuple[flow.Tensor, flow.Tensor]:
        with flow.fork_rng():
            inner = flow.rand(3) + 0 * x
        return inner, flow.rand(3) + 0 * x

    flow.manual_seed(5)
    inner, outer = nn.Graph.trace(f)(flow.zeros(3))
    np.testing.assert_array_equal(inner.numpy(), outer.numpy())
    flow.manual_seed(5)
    np.testing.assert_array_equal(outer.numpy(), flow.rand(3).numpy())
