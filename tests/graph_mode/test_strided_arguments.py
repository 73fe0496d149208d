"""Graphs give the same for arguments that lie in memory in any way, however they are run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import vmflow as flow
from vmflow.tensors import Tensor

from .agreement import ProgramGraph, agreed, bits, names
from .strided_programs import LAYOUTS, Given, GraphCheck, drawn


@pytest.mark.parametrize("layout", LAYOUTS)
def test_op_by_op(layout: str) -> None:
    given = Given((3, 2), "float32", 5)

    def program(state: list[Tensor], x: Tensor) -> Any:
        return x * 2, x.t() + 1, x[1]

    graph = ProgramGraph(program, ())
    graph(flow.ones(3, 2))
    x = given.made(layout)
    wanted = [bits(value) for value in program([], x)]
    assert [bits(value) for value in graph(x)] == wanted
    assert [bits(value) for value in graph.run_by_vm(x)] == wanted


def test_a_buffer_that_is_made_twice_in_what_is_fused() -> None:
    def program(state: list[Tensor], x: Tensor, y: Tensor) -> Any:
        product = x * x
        product.addcmul_(y, y)
        return product.sin_()

    graph = ProgramGraph(program, ())
    x, y = flow.linspace(-1, 1, 6).reshape(2, 3), flow.linspace(0, 3, 6).reshape(2, 3)
    expected = (x * x + y * y).sin()
    assert flow.allclose(graph(x, y), expected)
    assert names(graph.full_job) == ["fused"]
    agreed(program, x, y)


def test_a_saved_view_without_elements(tmp_path: Path) -> None:
    pytest.importorskip("safetensors", reason="the values of saved graphs are written by it")
    graph = ProgramGraph(lambda state, x: x.narrow(1, 2, 1) * 2, ())
    graph(flow.ones(0, 3))
    flow.save(graph, tmp_path / "saved")
    assert flow.load_graph(tmp_path / "saved")(flow.ones(0, 3)).shape == (0, 1)


@pytest.mark.host  # elsewhere masks made in a build are copied, and have no values there
def test_random_programs(tmp_path: Path) -> None:
    pytest.importorskip("safetensors", reason="the values of saved graphs are written by it")
    check = GraphCheck(tmp_path)
    for seed in range(12):
        assert check.problem(drawn(seed), seed) is None, seed
    assert check.counts["programs"] == 12
    assert check.counts["calls compared to the bit"] > 100
