"""Ops change places for memory or speed, and find the same values as in the given order."""

from __future__ import annotations

from typing import Any, Literal

import attrs
import pytest

import vmflow as flow
from vmflow.graph_mode import Graph, Job
from vmflow.graph_mode.job import Buffer, JobOp, Operand
from vmflow.graph_mode.passes.flow import check_same_flow, dependences, flow_of
from vmflow.instructions.blob import meta
from vmflow.tensors import Tensor

from .agreement import Setting, agreed, names

ALONE = Setting(passes=("order",))


def _x() -> Tensor:
    return flow.tensor([[0.5, -0.0, 3.0], [4.0, 5.0, 6.0]])


def _wide_and_narrow(state: list[Tensor], x: Tensor) -> Any:
    wide = [x[0, 0] + flow.full((1000,), float(index), device=x.device) for index in range(4)]
    return flow.stack([tensor.sum() for tensor in wide]).sum()


def test_memory_first_lets_less_live_at_a_time() -> None:
    graph = agreed(_wide_and_narrow, _x(), setting=ALONE)
    assert names(graph.job) == ["fill", "add"] * 4 + ["sum"] * 4 + ["cat", "sum"]
    assert names(graph.full_job) == ["fill", "add", "sum"] * 4 + ["cat", "sum"]
    check_same_flow(graph.job, graph.full_job)
    given = agreed(_wide_and_narrow, _x(), setting=Setting(("order",), "given"))
    assert given.full_job is given.job
    assert graph.plan.nbytes < given.plan.nbytes / 2


@pytest.mark.parametrize("order", ["memory", "speed"])
def test_readers_and_writers_stay_in_their_order(order: Literal["memory", "speed"]) -> None:
    def program(state: list[Tensor], x: Tensor) -> Any:
        weight, bias = state
        early = (x * weight).exp()
        weight.add_(1)
        middle = (x * weight).exp()
        bias[1:].mul_(weight[1:])
        weight.mul_(bias)
        target = flow.zeros_like(x)
        target[0].copy_(weight)
        late = target.sum()
        target.sin_()
        return early.sum(), middle.sum() * late, target

    graph = agreed(
        program, _x(), state=lambda: [flow.ones(3), flow.arange(3) * 0.5], setting=Setting(("order",), order)
    )
    check_same_flow(graph.job, graph.full_job)


def test_random_ops_take_their_own_numbers_wherever_they_run() -> None:
    def program(state: list[Tensor], x: Tensor) -> Any:
        drawn = [flow.rand(1000, device=x.device) for _ in range(3)]
        return flow.stack([tensor.sum() for tensor in drawn])

    graph = agreed(program, _x(), setting=ALONE)
    assert names(graph.job) != names(graph.full_job)


class _Training(Graph):
    def __init__(self, model: flow.nn.Module, optimizer: flow.optim.Optimizer) -> None:
        super().__init__()
        self.model = model
        self.add_optimizer(optimizer)

    def build(self, x: Tensor) -> Any:
        loss = self.model(x).square().mean()
        loss.backward()
        return loss, self.model.weight.sum()


@pytest.mark.parametrize("order", ["memory", "speed"])
def test_updates_wait_for_all_readers_of_the_variable(order: Literal["memory", "speed"]) -> None:
    model = flow.nn.Linear(3, 2)
    graph = _Training(model, flow.optim.SGD(model.parameters(), lr=0.1))
    graph.config.set_execution_order(order)
    before = float(model.weight.sum())
    _, total = graph(_x())
    assert float(total) == before
    flow_ = flow_of(graph.full_job)
    weight = next(variable.id for variable in graph.full_job.variables() if variable.name == "model.weight")
    _, update = flow_.writers[weight]
    assert len(flow_.readers[weight]) >= 3
    assert max(flow_.readers[weight]) == update


# By hand


_META = meta((4,), flow.float32, flow.device("cpu"))


def _job(*ops: tuple[tuple[int, ...], tuple[int, ...]], partly: tuple[int, ...] = ()) -> Job:
    """Ops that read and write these buffers; 0 and 1 are variables."""
    numbers = {read for reads, writes in ops for read in (*reads, *writes)}
    buffers = {number: Buffer(number, _META, "variable" if number < 2 else "temporary") for number in numbers}

    def operands(chosen: tuple[int, ...], position: int) -> tuple[Operand, ...]:
        strides = (1,) if position in partly else None
        return tuple([Operand(value, _META, strides) for value in chosen])

    made = [
        JobOp("exp", tuple([Operand(read, _META) for read in reads]), operands(writes, position))
        for position, (reads, writes) in enumerate(ops)
    ]
    return Job("by hand", buffers, tuple(made))


def test_dependences() -> None:
    job = _job(((0,), (2,)), ((2,), (3,)), ((0, 2), (0,)), ((0,), (4,)), ((3,), (2,)), ((), (0,)))
    # Values: 0 to 1 and 2, 2 to 3.  Before being overwritten: variable 0 by 2 and 5, buffer 2 by 4.
    assert dependences(job.ops) == [(0, 1), (0, 2), (0, 4), (1, 4), (2, 3), (2, 4), (2, 5), (3, 5)]


def test_versions() -> None:
    job = _job(((0,), (2,)), ((2,), (0,)), ((0,), (2,)), ((2,), (0,)), partly=(2,))
    flow_ = flow_of(job)
    assert [flow_.version(0, index) for index in range(5)] == [(0, 0), (0, 0), (0, 1), (0, 1), (0, 2)]
    assert [flow_.version(2, index) for index in range(5)] == [(2, 0), (2, 1), (2, 1), (2, 2), (2, 2)]
    assert flow_.producer((2, 2)) is job.ops[2]
    assert flow_.producer((0, 0)) is None
    assert flow_.readers == {0: [0, 2], 2: [1, 2, 3]}
    assert [flow_.last_use(number) for number in (0, 2, 9)] == [3, 3, -1]


def test_the_check_of_an_order_names_the_op_at_fault() -> None:
    job = _job(((0,), (2,)), ((2,), (3,)), ((3,), (0,)))
    check_same_flow(job, job)
    with pytest.raises(ValueError, match=r"op 0 \(exp\) has to find version 1 of buffer 3, but finds 0"):
        check_same_flow(job, attrs.evolve(job, ops=(job.ops[2], job.ops[0], job.ops[1])))
    with pytest.raises(ValueError, match="do not have the same ops"):
        check_same_flow(job, attrs.evolve(job, ops=job.ops[:2]))
    # An update that overtakes a reader of the old value.
    job = _job(((0,), (2,)), ((1,), (3,)), ((3,), (0,)))
    with pytest.raises(ValueError, match=r"op 2 \(exp\) has to find version 0 of buffer 0, but finds 1"):
        check_same_flow(job, attrs.evolve(job, ops=(job.ops[1], job.ops[2], job.ops[0])))


def test_passes_that_do_not_exist_cannot_be_disabled() -> None:
    graph = agreed(_wide_and_narrow, _x())
    with pytest.raises(ValueError, match=r"there is no pass 'fuse_all' to disable; choose from constant_folding, "):
        graph.config.disable_pass("fuse_all")
    assert graph.config.disabled == set()
    graph.config.disabled |= {"dead_op"}
    graph.close()
    with pytest.raises(ValueError, match="there is no pass 'dead_op' to disable"):
        graph(_x())
