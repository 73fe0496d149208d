"""Fusing updates: which become one, that the order and the results stay, and that a step cannot be torn."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
import pytest

import vmflow as flow
from vmflow import nn
from vmflow.graph_mode.job import Buffer, Job, JobOp, Operand, between_feeds_and_fetches
from vmflow.graph_mode.passes.fuse_updates import fuse_updates
from vmflow.instructions.blob import meta

from .support import computing

VECTOR = meta((2,), flow.float32, flow.device("cpu"))


def _update(name: str, reads: list[int], writes: list[int], *, story: list[str], overwrites: bool = False) -> JobOp:
    def kernel(inputs: list[Any], outputs: list[Any]) -> None:
        story.append(name)
        assert (len(inputs), len(outputs)) == (len(reads), len(writes))
        for out in outputs:
            out *= 2
            for given in inputs:
                out += given

    kind = name.rstrip("0123456789")
    inputs, outputs = [tuple([Operand(value, VECTOR) for value in those]) for those in (reads, writes)]
    return JobOp(kind, inputs, outputs, kind="update", cost=10, overwrites=overwrites, update=kernel)


def _call(op: str, reads: list[int], write: int) -> JobOp:
    return JobOp(op, tuple([Operand(read, VECTOR) for read in reads]), (Operand(write, VECTOR),))


def _job(ops: list[JobOp], variables: list[int]) -> Job:
    used = {operand.buffer for op in ops for operand in (*op.inputs, *op.outputs)}
    buffers = {value: Buffer(value, VECTOR, "variable" if value in variables else "temporary") for value in used}
    job = Job("test", buffers, between_feeds_and_fetches(ops, buffers))
    job.check()
    return job


def _names(job: Job) -> list[str]:
    return [op.op for op in computing(job)]


def _run(job: Job) -> dict[int, list[float]]:
    """The variables afterwards."""
    arrays = {number: np.array([number + 1, -number], np.float32) for number in job.buffers}
    for op in computing(job):
        inputs, outputs = [[arrays[value.buffer] for value in those] for those in (op.inputs, op.outputs)]
        if op.update is not None:
            op.update(inputs, outputs)
        else:
            outputs[0][:] = op.infer().kernel.function(*inputs, None)
    return {variable.id: arrays[variable.id].tolist() for variable in job.variables()}


def _same(ops: list[JobOp], variables: list[int]) -> list[str]:
    """The names after fusing; checks that the results are the same."""
    job = _job(ops, variables)
    after = fuse_updates(job)
    after.check()
    assert _run(after) == _run(job)
    return _names(after)


def test_neighbours_become_one() -> None:
    story: list[str] = []
    ops = [_update("step1", [2], [0], story=story), _update("step2", [3, 2], [1], story=story)]
    job = _job(ops, [0, 1, 2, 3])
    (op,) = computing(fuse_updates(job))
    assert [operand.buffer for operand in op.inputs] == [2, 3, 2]
    assert [output.buffer for output in op.outputs] == [0, 1]
    assert op.cost == 20
    assert _same(ops, [0, 1, 2, 3]) == ["step"]
    assert story == ["step1", "step2"] * 2


def test_the_same_tensor_is_updated_in_order() -> None:
    story: list[str] = []
    ops = [_update("step1", [1], [0], story=story), _update("step2", [2], [0], story=story)]
    assert _same(ops, [0, 1, 2]) == ["step"]
    assert story[:2] == ["step1", "step2"]


def test_others_stay_apart() -> None:
    story: list[str] = []
    step = _update("step1", [2], [0], story=story)
    others = [
        _update("other", [2], [1], story=story),
        _update("step2", [2], [1], story=story, overwrites=True),
        attrs.evolve(_update("step2", [2], [1], story=story), phase="micro"),
        attrs.evolve(_update("step2", [2], [1], story=story), stage=1),
    ]
    for other in others:
        assert len(_same([step, other], [0, 1, 2])) == 2
    job = _job([step, attrs.evolve(others[0], op="step", update=None)], [0, 1, 2])
    assert fuse_updates(job) is job  # nobody could run a part of it


def test_ops_between_that_need_the_update_come_behind_it() -> None:
    story: list[str] = []
    first, second = _update("step1", [2], [0], story=story), _update("step2", [3], [1], story=story)
    assert _same([first, _call("exp", [0], 3), second], [0, 1, 2]) == ["step", "exp", "step"]
    change = attrs.evolve(_call("exp", [1], 2), kind="into")
    assert _same([first, change, _update("step2", [1], [1], story=story)], [0, 1, 2]) == ["step", "exp", "step"]


def test_ops_between_that_do_not_are_no_hindrance() -> None:
    story: list[str] = []
    first, second = _update("step1", [2], [0], story=story), _update("step2", [3], [1], story=story)
    assert _same([first, _call("exp", [2], 3), second], [0, 1, 2]) == ["exp", "step"]


def test_gradients_are_not_kept_for_it() -> None:
    story: list[str] = []
    ops = [
        _call("exp", [2], 4),
        _update("step1", [4], [0], story=story),
        _call("exp", [2], 3),
        _update("step2", [3], [1], story=story),
    ]
    assert _same(ops, [0, 1, 2]) == ["exp", "step", "exp", "step"]
    # Both are there already: nothing is kept.
    assert _same([ops[0], ops[2], ops[1], ops[3]], [0, 1, 2]) == ["exp", "exp", "step"]


# Graphs


class _Train(nn.Graph):
    """Two optimizers over the two halves of a network."""

    def __init__(self, fusion: bool, clip: bool) -> None:
        super().__init__()
        flow.manual_seed(1)
        self.one, self.two = nn.Linear(4, 5), nn.Linear(5, 3)
        self.config.fusion = fusion
        for part in (self.one, self.two):
            group: dict[str, Any] = {"params": list(part.origin.parameters())}
            if clip:
                group |= {"clip_grad_max_norm": 0.1, "clip_grad_norm_type": 2.0}
            self.add_optimizer(flow.optim.SGD([group], lr=0.1, momentum=0.9))

    def build(self, x: flow.Tensor) -> Any:
        loss = self.two(self.one(x).tanh()).square().sum()
        loss.backward()
        return loss

    def parameters(self) -> list[bytes]:
        return [
            parameter.detach().numpy().tobytes()
            for part in (self.one, self.two)
            for parameter in part.origin.parameters()
        ]


@pytest.mark.parametrize("clip", [False, True])
def test_two_optimizers_give_the_same_results_as_separately(clip: bool) -> None:
    batches = [flow.randn(6, 4) for _ in range(3)]
    fused, apart = _Train(True, clip), _Train(False, clip)
    for x in batches:
        assert fused(x).item() == apart(x).item()
        assert fused.parameters() == apart.parameters()
    steps = [[op.op for op in value.full_job.ops if op.kind == "update"] for value in (fused, apart)]
    assert len(steps[0]) <= len(steps[1])
    if not clip:
        assert (len(steps[0]), len(steps[1])) == (1, 2)


@pytest.mark.not_on_cuda
def test_a_failure_before_a_fused_step_changes_neither_part() -> None:
    class Guarded(_Train):
        def build(self, x: flow.Tensor, divisor: flow.Tensor) -> Any:  # type: ignore[override]
            loss = self.two(self.one(x).tanh()).square().sum() * (6 // divisor)
            loss.backward()
            return loss

    graph = Guarded(True, False)
    x = flow.randn(6, 4)
    graph(x, flow.tensor(2)).item()
    before = graph.parameters()
    with pytest.raises(ZeroDivisionError):
        graph(x, flow.tensor(0)).item()
    assert graph.parameters() == before
    graph(x, flow.tensor(1)).item()
    assert all([one != other for one, other in zip(graph.parameters(), before, strict=True)])
