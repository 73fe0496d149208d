"""Arguments and constants are the same at each launch, also if `build` writes them in place."""

from __future__ import annotations

from typing import Any

import vmflow as flow
from vmflow.tensors import Tensor

from .agreement import ProgramGraph, Setting, agreed, bits

PLAIN = Setting(passes=())


def test_constants_written_through_a_view_are_the_same_at_each_launch() -> None:
    def program(state: list[Tensor], x: Tensor) -> Any:
        constant = flow.tensor([[1.0, 2.0], [3.0, 4.0]])
        row = constant[0]
        row.neg_()
        constant[:, 1].mul_(2)
        return constant, row + x

    agreed(program, flow.ones(2), setting=PLAIN, rounds=3)


def test_the_callers_arguments_stay_as_they_are() -> None:
    def program(state: list[Tensor], x: Tensor) -> Any:
        view = x[1:]
        view.mul_(3)
        x.add_(1)
        return x * 1, view

    agreed(program, flow.ones(3), setting=PLAIN)
    graph = ProgramGraph(program, ())
    given = flow.ones(3)
    graph(given)
    graph.run_by_vm(given)
    assert bits(given) == bits(flow.ones(3))
