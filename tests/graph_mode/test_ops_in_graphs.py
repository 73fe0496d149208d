"""Every op of the table gives the same in a graph as eagerly, to the bit, forwards and backwards."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import vmflow as flow
from tests.ops import test_coverage, test_registry
from tests.ops.oracle import Row

from .support import check_in_graph, flattened

ROWS = [row for rows in test_coverage.ROWS.values() for row in rows]


def _named(rows: list[Row]) -> list[Any]:
    return [pytest.param(row, id=f"{row}-{position}", marks=_marks(row)) for position, row in enumerate(rows)]


def _marks(row: Row) -> list[pytest.MarkDecorator]:
    # A mask that is made while building has a value only on the host.
    if row.label == "-mask":
        return [pytest.mark.host]
    return [pytest.mark.not_on_cuda] if row.op == "to_device" else []


@pytest.mark.parametrize("row", _named(ROWS))
def test_an_op_gives_the_same_in_a_graph(row: Row) -> None:
    arrays = row.operands(row.usual(), row.dtypes[0])
    check_in_graph(row.call, lambda: [flow.tensor(array) for array in arrays])


@pytest.mark.parametrize("row", _named([row for row in ROWS if row.order]))
def test_its_gradients_do(row: Row) -> None:
    arrays = row.operands(row.usual(), "float64")
    check_in_graph(_gradients(row.call, row.order), lambda: [flow.tensor(array) for array in arrays])


@pytest.mark.parametrize("name", sorted(test_coverage.MADE))
def test_ops_without_operands_give_the_same_results(name: str) -> None:
    """Random numbers too: a graph takes them from the generator as eager ops do."""
    call, dtypes = test_coverage.MADE[name]

    def made() -> flow.Tensor:
        result = call(flow.dtypes.by_name(dtypes[0]))
        return result if name != "empty" else flow.zeros_like(result)

    check_in_graph(made, list)


@pytest.mark.parametrize("name", sorted(test_registry.SPECIAL))
def test_special_ops_can_be_recorded(name: str) -> None:
    graph = _Recording(test_registry.SPECIAL[name][0])
    graph()
    flow.synchronize()
    assert name in {op.op for op in graph.job.ops}


class _Recording(flow.nn.Graph):
    def __init__(self, call: Callable[[], Any]) -> None:
        super().__init__()
        self.call = call

    def build(self) -> None:
        self.call()


def _gradients(call: Callable[..., Any], order: int) -> Callable[..., Any]:
    """The gradients of a call by its operands, and by those again if it can be differentiated twice."""

    def gradients(*given: flow.Tensor) -> list[flow.Tensor]:
        operands = [tensor.detach().requires_grad_() for tensor in given]
        results = [tensor for tensor in flattened(call(*operands)) if tensor.requires_grad]
        found = _of(flow.stack([_weighted(result) for result in results]).sum(), operands, order > 1)
        if order > 1:
            total = flow.stack([value.square().sum() for value in found]).sum()
            if total.requires_grad:
                found += _of(total, operands, False)
        return found

    return gradients


def _weighted(result: flow.Tensor) -> flow.Tensor:
    weights = flow.arange(result.numel(), dtype=flow.float64).reshape(result.shape)
    return (result.square() * weights).sum()


def _of(total: flow.Tensor, operands: list[flow.Tensor], further: bool) -> list[flow.Tensor]:
    found = flow.autograd.grad(total, operands, allow_unused=True, create_graph=further)
    return [value for value in found if value is not None]
