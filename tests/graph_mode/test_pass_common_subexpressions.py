"""Equal expressions are computed once."""

from __future__ import annotations

from typing import Any

import vmflow as flow
from vmflow.graph_mode.job import exact
from vmflow.graph_mode.passes.constant_folding import SMALL
from vmflow.tensors import Tensor

from .agreement import Setting, agreed, names

ALONE = Setting(passes=("common_subexpressions",))


def _x() -> Tensor:
    return flow.tensor([[0.5, -0.0, 3.0], [4.0, 5.0, 6.0]])


def test_equal_ops_on_equal_operands_are_one() -> None:
    def program(state: list[Tensor], x: Tensor) -> Any:
        one = (x.exp() * 2).sum(1)
        other = (x.exp() * 2).sum(1)
        return one, other, x.exp().t().sum(0)

    graph = agreed(program, _x(), setting=ALONE)
    assert names(graph.job) == ["exp", "mul_scalar", "sum", "exp", "mul_scalar", "sum", "exp", "sum"]
    # The last sum is of another view.
    assert names(graph.full_job) == ["exp", "mul_scalar", "sum", "sum"]
    one, other, _ = graph.full_job.outputs
    assert one == other


def test_scalars_differ_by_type_and_sign() -> None:
    def program(state: list[Tensor], x: Tensor) -> Any:
        return x + 0.0, x + -0.0, x + 0, x + False

    graph = agreed(program, _x(), setting=ALONE)
    assert len(names(graph.full_job)) == 4
    assert exact((1, (0.0,))) == exact((1, (0.0,)))
    assert len({exact(value) for value in (1, 1.0, True, 1 + 0j, complex(1, -0.0), (1,))}) == 6
    assert exact(float("nan")) == exact(float("nan"))


def test_a_buffer_that_was_written_again_is_another_operand() -> None:
    def program(state: list[Tensor], x: Tensor) -> Any:
        first = state[0].exp()
        same = state[0].exp()
        state[0].add_(x[0])
        return first, same, state[0].exp()

    graph = agreed(program, _x(), state=lambda: [flow.ones(3)], setting=ALONE)
    assert names(graph.job) == ["exp", "exp", "add", "exp"]
    assert names(graph.full_job) == ["exp", "add", "exp"]


def test_results_that_are_written_again_are_not_shared() -> None:
    def program(state: list[Tensor], x: Tensor) -> Any:
        first, second, third = x.exp(), x.exp(), x.exp()
        second.mul_(2)
        return first, second, third

    graph = agreed(program, _x(), setting=ALONE)
    assert names(graph.full_job) == ["exp", "exp", "mul_scalar"]


def test_ops_called_under_different_default_dtypes_are_two() -> None:
    def program(state: list[Tensor], x: Tensor) -> Any:
        before = flow.get_default_dtype()
        results = []
        for default in (flow.float32, flow.float64):
            flow.set_default_dtype(default)
            results.append(x < 16777216.5)
        flow.set_default_dtype(before)
        return results

    graph = agreed(program, flow.tensor([16777216, 16777217]), setting=ALONE)
    assert names(graph.full_job) == names(graph.job)
    assert len(names(graph.job)) == 2


def test_random_ops_are_never_equal() -> None:
    def program(state: list[Tensor], x: Tensor) -> Any:
        return flow.rand(3, device=x.device), flow.rand(3, device=x.device)

    graph = agreed(program, _x(), setting=ALONE)
    assert graph.full_job is graph.job


def test_equal_constants_are_one() -> None:
    def program(state: list[Tensor], x: Tensor) -> Any:
        return x + flow.tensor([1.0, 2.0, 3.0]), x + flow.tensor([1.0, 2.0, 3.0]), x + flow.tensor([1.0, 2.0, -0.0])

    graph = agreed(program, _x(), setting=ALONE)
    assert len(graph.job.constants) == 3
    assert len(graph.full_job.constants) == 2
    assert names(graph.full_job).count("add") == 2


def test_what_is_large_and_made_of_nothing_is_made_again() -> None:
    size = SMALL // 4 + 1

    def program(state: list[Tensor], x: Tensor) -> Any:
        return [x[0, 0] + flow.ones(value, device=x.device) for value in (size, size, 3, 3)]

    graph = agreed(program, _x(), setting=ALONE)
    assert names(graph.full_job) == ["fill", "add", "fill", "add", "fill", "add"]
