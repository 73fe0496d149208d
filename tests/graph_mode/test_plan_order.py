"""Tasks on several streams keep the order that a job needs, also where no register goes from one to the other."""

from __future__ import annotations

from typing import Any

import vmflow as flow
from vmflow.tensors import Tensor

from .agreement import Setting, agreed, names
from .plan_order import unordered

PLAIN = Setting(passes=())


def _state() -> list[Tensor]:
    return [flow.arange(1000, dtype=flow.float32, device="cpu")]


def test_an_update_waits_for_a_copy_of_the_variable_on_another_stream() -> None:
    def program(state: list[Tensor], x: Tensor) -> Any:
        copy = state[0].to("sim")
        state[0].add_(1)
        return copy

    graph = agreed(program, flow.ones(1, device="cpu"), state=_state, setting=PLAIN, rounds=4)
    assert len(graph.plan.chains) >= 2
    assert unordered(graph.full_job, graph.plan) == []
    assert graph.plan.launches_at_once == 1


def test_a_copy_on_another_stream_waits_for_the_update() -> None:
    def program(state: list[Tensor], x: Tensor) -> Any:
        state[0].mul_(0.5)
        return state[0].to("sim")

    graph = agreed(program, flow.ones(1, device="cpu"), state=_state, setting=PLAIN, rounds=4)
    assert unordered(graph.full_job, graph.plan) == []


def test_what_is_handed_over_is_written_again_only_after_it_was_read() -> None:
    def program(state: list[Tensor], x: Tensor) -> Any:
        made = state[0] + x
        first = made.to("sim")
        made.mul_(2)
        second = made.to("sim")
        return first, second, made

    graph = agreed(program, flow.ones(1, device="cpu"), state=_state, setting=PLAIN, rounds=4)
    assert unordered(graph.full_job, graph.plan) == []


def test_the_copy_that_protects_a_variable_from_an_update_may_go() -> None:
    def program(state: list[Tensor], x: Tensor) -> Any:
        copy = state[0].clone().to("sim")
        state[0].add_(1)
        return copy

    graph = agreed(program, flow.ones(1, device="cpu"), state=_state, rounds=4)
    assert sorted(names(graph.full_job)) == ["add_scalar", "to_device"]
    assert unordered(graph.full_job, graph.plan) == []


def test_what_is_handed_out_is_what_the_last_op_has_left() -> None:
    def program(state: list[Tensor], x: Tensor) -> Any:
        made = state[0] + x
        moved = made.to("sim").cpu()
        made.mul_(moved)
        state[0].add_(made)
        return made, state[0], state[0].to("sim")

    agreed(program, flow.ones(1, device="cpu"), state=_state, setting=PLAIN, rounds=4)
    graph = agreed(program, flow.ones(1, device="cpu"), state=_state, rounds=4)
    assert unordered(graph.full_job, graph.plan) == []
