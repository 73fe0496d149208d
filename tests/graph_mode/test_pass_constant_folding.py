"""Results that are equal at each launch are computed when the graph is built."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import vmflow as flow
from vmflow.graph_mode.passes.constant_folding import SMALL
from vmflow.tensors import Tensor

from .agreement import Setting, agreed, names

ALONE = Setting(passes=("constant_folding",))


def _x() -> Tensor:
    return flow.tensor([[0.5, -0.0, 3.0], [4.0, float("inf"), 6.0]], device="cpu")


def test_ops_on_constants_alone_become_constants() -> None:
    def program(state: list[Tensor], x: Tensor) -> Any:
        weights = flow.tensor([1.0, 2.0, 4.0], device="cpu") * 3
        positions = flow.arange(3, dtype=flow.float32, device="cpu").flip(0)
        return x * (weights.sqrt() + positions)

    graph = agreed(program, _x(), setting=ALONE)
    assert len(names(graph.job)) == 6
    assert names(graph.full_job) == ["mul"]
    (constant,) = graph.full_job.constants.values()
    np.testing.assert_array_equal(constant, np.sqrt(np.array([3, 6, 12], np.float32)) + np.array([2, 1, 0], np.float32))


def test_constants_are_seen_through_views() -> None:
    def program(state: list[Tensor], x: Tensor) -> Any:
        table = flow.arange(6, dtype=flow.float32, device="cpu").reshape(3, 2).t()
        return x + table.exp()[:, 1:].sum(1, keepdim=True)

    graph = agreed(program, _x(), setting=ALONE)
    assert names(graph.full_job) == ["add"]


def test_random_ops_and_results_written_later_are_kept() -> None:
    def program(state: list[Tensor], x: Tensor) -> Any:
        noise = flow.rand(3, device="cpu")
        target = flow.zeros(3, device="cpu")
        target.add_(x[0])
        return noise + target

    graph = agreed(program, _x(), setting=ALONE)
    assert graph.full_job is graph.job


def test_no_large_constants_are_made_of_small_ones() -> None:
    size = SMALL // 4 + 1

    def program(state: list[Tensor], x: Tensor) -> Any:
        return x[0, 0] + flow.zeros(size, device="cpu"), x[0, 0] + flow.zeros(size - 1, device="cpu")

    graph = agreed(program, _x(), setting=ALONE)
    assert names(graph.full_job) == ["fill", "add", "add"]


def test_an_op_that_fails_fails_at_the_call() -> None:
    def program(state: list[Tensor], x: Tensor) -> Any:
        return flow.tensor([1, 2], device="cpu") // flow.tensor([1, 0], device="cpu")

    with pytest.raises(ZeroDivisionError):
        agreed(program, _x(), setting=ALONE)
    from .agreement import as_graph

    with pytest.raises(ZeroDivisionError):
        as_graph(program, list, [(_x(),)], ALONE)


def test_on_other_devices_nothing_is_folded() -> None:
    def program(state: list[Tensor], x: Tensor) -> Any:
        return x + flow.ones(3, device="sim")

    graph = agreed(program, _x().to("sim"), setting=ALONE)
    assert names(graph.full_job) == ["fill", "add"]
