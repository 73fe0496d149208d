"""Jobs and plans that earlier versions of vmflow have saved are still read, with the same meaning.

The files in `saved_before` are of the version that had arguments and results in lists beside the ops of a job.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import vmflow as flow
from vmflow import nn
from vmflow.graph_mode import Job

from .test_serialization import JUNK, any_of, changed, compiled, places

# The files name the host.
pytestmark = pytest.mark.host

SAVED = Path(__file__).parent / "saved_before"


class Predict(nn.Graph):
    """Two results of two arguments, one of them a view of the other."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 2)
        # Sums of small integers are exact, in any order of adding.
        with flow.no_grad():
            self.layer.weight.copy_(flow.tensor([[1.0, 2.0, 3.0], [-4.0, 5.0, -6.0]]))
            self.layer.bias.copy_(flow.tensor([7.0, -8.0]))

    def build(self, x: flow.Tensor, scale: flow.Tensor) -> tuple[flow.Tensor, flow.Tensor]:
        scores = self.layer(x) * scale + flow.tensor([10.0, 20.0])
        return scores, scores.t()[:, 1:]


class Train(nn.Graph):
    """A training step of two micro-batches, whose learning rate comes from outside."""

    def __init__(self) -> None:
        super().__init__()
        self.model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
        optimizer = flow.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9)
        self.add_optimizer(optimizer, lr_sch=flow.optim.lr_scheduler.StepLR(optimizer, 2))
        self.config.set_gradient_accumulation_steps(2)

    def build(self, x: flow.Tensor) -> flow.Tensor:
        loss: flow.Tensor = self.model(x).square().mean()
        loss.backward()
        return loss


def arguments() -> tuple[flow.Tensor, flow.Tensor]:
    return flow.arange(12, dtype=flow.float32).reshape(4, 3), flow.tensor([2.0, -1.0])


def recorded(graph: nn.Graph, *args: Any) -> Job:
    """The job that is recorded now, under the name of the saved graph."""
    return attrs.evolve(compiled(graph, *args).job, name=type(graph).__name__)


def comparable(job: Job) -> Job:
    """Without the parts that depend on the place and the earlier tests of the recording."""
    return attrs.evolve(job, ops=tuple([attrs.evolve(op, line="", default_dtype=None) for op in job.ops]))


def test_a_graph_saved_by_an_earlier_version_gives_the_same_results() -> None:
    pytest.importorskip("safetensors")
    loaded = flow.load_graph(SAVED / "predict")
    x, scale = arguments()
    expected = (x @ flow.tensor([[1.0, -4.0], [2.0, 5.0], [3.0, -6.0]]) + flow.tensor([7.0, -8.0])) * scale
    expected = (expected + flow.tensor([10.0, 20.0])).numpy()
    for call in (loaded, loaded.run_by_vm):
        scores, turned = call(x, scale)
        assert np.array_equal(scores.numpy(), expected)
        assert np.array_equal(turned.numpy(), expected.T[:, 1:])
    assert sorted(loaded.state_dict()) == ["layer.bias", "layer.weight"]


FILES: list[tuple[str, type[nn.Graph], int]] = [("predict/job_0.json", Predict, 2), ("train.json", Train, 1)]


@pytest.mark.parametrize(("file", "kind", "results"), FILES)
def test_a_saved_job_equals_a_newly_recorded_one(file: str, kind: type[nn.Graph], results: int) -> None:
    text = (SAVED / file).read_text("ascii")
    job = Job.from_json(text)
    assert comparable(job) == comparable(recorded(kind(), *(arguments() if kind is Predict else (flow.ones(4, 3),))))
    said = json.loads(text)
    assert job.inputs == tuple(said["inputs"])
    assert [output.buffer for output in job.outputs] == [entry["buffer"] for entry in said["outputs"]]
    assert len(job.outputs) == results
    roles = {int(number): value.get("role") for number, value in said["buffers"].items()}
    assert [variable.id for variable in job.variables()] == [
        number for number, role in roles.items() if role == "variable"
    ]
    assert Job.from_json(job.to_json()) == job


@settings(max_examples=300)
@given(data=st.data())
def test_changed_texts_are_read_or_refused(data: st.DataObject) -> None:
    text = (SAVED / "train.json").read_text("ascii")
    for _ in range(data.draw(st.integers(1, 3))):
        content = json.loads(text)
        known = places(content)
        path, moved = any_of(data, known), content
        for step in any_of(data, known):
            moved = moved[step]
        to = data.draw(st.sampled_from([KeyError, moved]) | st.integers(-3, 1 << 70) | JUNK)
        text = changed(text, *path, to=to)
    try:
        found = Job.from_json(text)
    except ValueError:
        return
    assert Job.from_json(found.to_json()) == found
