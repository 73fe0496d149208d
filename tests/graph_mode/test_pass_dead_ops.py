"""Unused ops are left out, but their random numbers are drawn all the same."""

from __future__ import annotations

from typing import Any

import vmflow as flow
from vmflow.tensors import Tensor

from .agreement import Setting, agreed, names

ALONE = Setting(passes=("dead_ops",))


def _x() -> Tensor:
    return flow.arange(6, dtype=flow.float32).reshape(2, 3).clone()


def test_unused_ops_are_left_out_with_their_operands() -> None:
    def program(state: list[Tensor], x: Tensor) -> Any:
        unseen = x.exp()
        unseen.sin().sum()
        return x + 1

    graph = agreed(program, _x(), setting=ALONE)
    assert names(graph.job) == ["exp", "sin", "sum", "add_scalar"]
    assert names(graph.full_job) == ["add_scalar"]
    assert len(graph.full_job.buffers) == 2


def test_writes_to_variables_stay() -> None:
    def program(state: list[Tensor], x: Tensor) -> Any:
        state[0].mul_(2)
        state[0][1].add_(x.exp().sum())
        return x + 1

    graph = agreed(program, _x(), state=lambda: [flow.ones(3)], setting=ALONE)
    assert graph.full_job is graph.job


def test_results_overwritten_unread_are_left_out() -> None:
    def program(state: list[Tensor], x: Tensor) -> Any:
        y = x * 2
        z = y.exp()
        y.sin_()  # nobody sees this one
        w = flow.zeros_like(x)
        w.copy_(x)
        return z, w

    graph = agreed(program, _x(), setting=ALONE)
    assert names(graph.job) == ["mul_scalar", "exp", "sin", "fill", "copy_"]
    assert names(graph.full_job) == ["mul_scalar", "exp", "copy_"]


def test_writing_a_part_needs_the_rest() -> None:
    def program(state: list[Tensor], x: Tensor) -> Any:
        y = flow.zeros_like(x)
        y[0].copy_(x[1])
        return y

    graph = agreed(program, _x(), setting=ALONE)
    assert names(graph.full_job) == ["fill", "copy_"]


def test_draws_stay_in_place_of_dead_random_ops() -> None:
    def program(state: list[Tensor], x: Tensor) -> Any:
        flow.rand(5, device=x.device)
        return flow.rand(3, device=x.device)

    graph = agreed(program, _x(), setting=ALONE)
    assert len(names(graph.job)) == 2
    assert len(names(graph.full_job)) == 1
    assert len(graph.full_job.draws) == 2


def test_a_job_of_which_nothing_is_left_runs() -> None:
    def program(state: list[Tensor], x: Tensor) -> Any:
        x.exp()
        return x

    graph = agreed(program, _x(), setting=ALONE)
    assert names(graph.full_job) == []


def test_variables_that_nothing_uses_are_not_fed() -> None:
    def program(state: list[Tensor], x: Tensor, unused: Tensor) -> Any:
        state[0].exp()
        state[1].mul_(2)
        return x + state[2]

    graph = agreed(program, _x(), _x(), state=lambda: [flow.ones(3) for _ in range(3)], setting=ALONE)
    assert [len(job.variables()) for job in (graph.job, graph.full_job)] == [3, 2]
    assert graph.full_job.inputs == graph.job.inputs == (0, 1)
    assert graph.full_job.outputs == graph.job.outputs
