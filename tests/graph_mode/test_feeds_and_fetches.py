"""Arguments, variables and results are ops of a job."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

import vmflow as flow
from vmflow.graph_mode import Job
from vmflow.graph_mode.chain_memory import cost_of
from vmflow.graph_mode.job import BOUNDARY, Buffer, JobOp, Operand, between_feeds_and_fetches, feed, fetch
from vmflow.instructions.blob import meta
from vmflow.tensors import Tensor

from .agreement import agreed, names
from .support import computing

OF = meta((4,), flow.float32, flow.device("cpu"))


def test_they_are_recorded_in_order() -> None:
    def program(state: list[Tensor], x: Tensor, y: Tensor) -> Any:
        first = y * state[1] + state[0]
        return first[1:], first, x

    graph = agreed(program, flow.ones(4), flow.ones(4), state=lambda: [flow.ones(4), flow.zeros(4)])
    job = graph.job
    feeds, fetches = ["FeedInput", "FeedInput", "FeedVariable", "FeedVariable"], ["FetchOutput"] * 3
    assert [op.op for op in job.ops] == [*feeds, *names(job), *fetches]
    assert job.inputs == tuple([op.outputs[0].buffer for op in job.ops[:2]]) == (0, 1)
    assert job.variables() == [job.buffers[op.outputs[0].buffer] for op in job.ops[2:4]]
    assert job.outputs == tuple([op.inputs[0] for op in job.ops[-3:]])
    assert [output.strides for output in job.outputs] == [(1,), None, None]


def test_they_belong_to_no_task_and_cost_nothing() -> None:
    graph = agreed(lambda state, x: (x * state[0], x), flow.ones(4), state=lambda: [flow.ones(4)])
    job = graph.full_job
    (chain,) = graph.plan.chains.values()
    assert [job.ops[value] for value in chain.ops] == computing(job)
    assert (chain.inputs, chain.outputs) == (job.inputs, (0, 1))
    assert {cost_of(op) for op in job.ops if op.kind in BOUNDARY} == {0}


BUFFERS = {0: Buffer(0, OF, "input", "x"), 1: Buffer(1, OF, "variable", "v"), 2: Buffer(2, OF)}
WHOLE = {number: Operand(number, OF) for number in BUFFERS}
ADD = JobOp("add", (WHOLE[0], WHOLE[1]), (WHOLE[2],))
FEEDS = (feed(BUFFERS[0]), feed(BUFFERS[1]))
FETCH = fetch(WHOLE[2])


def test_a_job_that_is_right() -> None:
    job = Job("right", BUFFERS, (*FEEDS, ADD, FETCH))
    job.check()
    assert job.ops == between_feeds_and_fetches([ADD], BUFFERS, [0], [WHOLE[2]])
    assert (job.inputs, job.variables(), job.outputs) == ((0,), [BUFFERS[1]], (WHOLE[2],))
    assert job.written() == set()


PART = Operand(0, meta((2,), flow.float32, flow.device("cpu")), (1,))
WRONG: dict[str, tuple[tuple[JobOp, ...], str]] = {
    "nothing fed": ((ADD, FETCH), r"op 0 \(add\) reads buffer 0, to which nothing was written"),
    "an input is not fed": ((FEEDS[1],), "no op feeds buffer 0, whose role is 'input'"),
    "a variable is not fed": ((FEEDS[0],), "no op feeds buffer 1, whose role is 'variable'"),
    "fed twice": ((*FEEDS, FEEDS[0]), r"op 2 \(FeedInput\) feeds buffer 0, which has been fed before"),
    "fed late": ((FEEDS[0], JobOp("exp", (WHOLE[0],), (WHOLE[2],)), FEEDS[1]), "op 2 .* comes behind op 1 .exp"),
    "fetched early": ((*FEEDS, FETCH, ADD), r"op 2 \(FetchOutput\) reads buffer 2, to which nothing was written"),
    "an op behind a fetch": ((*FEEDS, fetch(WHOLE[0]), ADD), r"op 3 \(add\) comes behind op 2 \(FetchOutput\)"),
    "another role": ((attrs.evolve(FEEDS[0], outputs=(WHOLE[2],)),), "feeds buffer 2, whose role is 'temporary'"),
    "a part is fed": ((attrs.evolve(FEEDS[0], outputs=(PART,)),), "feeds buffer 0, but only a part of it"),
    "a feed that reads": ((attrs.evolve(FEEDS[0], inputs=(WHOLE[0],)),), "has to feed one buffer"),
    "a fetch that writes": ((*FEEDS, attrs.evolve(FETCH, outputs=(WHOLE[2],))), "has to fetch one operand"),
    "a fetch of a micro-batch": ((*FEEDS, ADD, attrs.evolve(FETCH, phase="micro")), "once for each launch"),
    "no such buffer to feed": ((feed(Buffer(9, OF, "variable")),), "feeds buffer 9, which the job does not have"),
    "no such buffer": ((*FEEDS, fetch(Operand(9, OF))), r"op 2 \(FetchOutput\) uses buffer 9"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_said(name: str) -> None:
    ops, message = WRONG[name]
    with pytest.raises(ValueError, match=message):
        Job("wrong", BUFFERS, ops).check()
