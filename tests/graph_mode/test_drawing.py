"""Pictures of jobs and plans: the text is DOT, and has the facts of the job and the plan."""

from __future__ import annotations

import re
from collections.abc import Iterator

import attrs
import pytest

import vmflow as flow
from vmflow import nn
from vmflow.graph_mode.actors import RegisterDescriptor

from .test_serialization import Forward, Train, compiled

_TOKENS = re.compile(r'\s*(?:("(?:[^"\\]|\\.)*")|(->|[{}\[\];=,])|([A-Za-z0-9_]+))')


@attrs.define
class Picture:
    """The content of a text in DOT.

    Attributes:
        name: of the whole.
        nodes: their labels.
        edges: from, to, label, whether dashed.
        clusters: for each label, the nodes directly in it.
    """

    name: str = ""
    nodes: dict[str, str] = attrs.field(factory=dict)
    edges: list[tuple[str, str, str, bool]] = attrs.field(factory=list)
    clusters: dict[str, list[str]] = attrs.field(factory=dict)


def parsed(text: str) -> Picture:
    """The picture; fails where the text is not of the part of DOT that is used here."""
    tokens = list(_tokens(text))
    assert tokens[0] == "digraph"
    picture = Picture(_text(tokens[1]))
    rest = _block(tokens, 2, picture, [])
    assert rest == len(tokens)
    return picture


def _tokens(text: str) -> Iterator[str]:
    position = 0
    while text[position:].strip():
        found = _TOKENS.match(text, position)
        assert found is not None, f"no DOT: {text[position : position + 40]!r}"
        position = found.end()
        yield found.group(1) or found.group(2) or found.group(3)


def _text(token: str) -> str:
    if not token.startswith('"'):
        return token
    return re.sub(r"\\(.)", lambda x: "\n" if x.group(1) == "n" else x.group(1), token[1:-1])


def _block(tokens: list[str], at: int, picture: Picture, inside: list[str]) -> int:
    assert tokens[at] == "{"
    at += 1
    label = ""
    while tokens[at] != "}":
        if tokens[at] == "subgraph":
            at = _block(tokens, at + 2, picture, [*inside, _text(tokens[at + 1])])
            continue
        first = _text(tokens[at])
        if tokens[at + 1] == "=":
            assert first == "label"
            label = _text(tokens[at + 2])
            picture.clusters.setdefault(label, [])
            at += 3
        elif tokens[at + 1] == "->":
            second = _text(tokens[at + 2])
            said, at = _attributes(tokens, at + 3)
            picture.edges.append((first, second, said["label"], said.get("style") == "dashed"))
        else:
            said, at = _attributes(tokens, at + 1)
            assert first not in picture.nodes
            picture.nodes[first] = said["label"]
            if inside:
                picture.clusters[label].append(first)
        assert tokens[at] == ";"
        at += 1
    return at + 1


def _attributes(tokens: list[str], at: int) -> tuple[dict[str, str], int]:
    assert tokens[at] == "["
    said: dict[str, str] = {}
    at += 1
    while True:
        assert tokens[at + 1] == "="
        said[tokens[at]] = _text(tokens[at + 2])
        at += 3
        if tokens[at] == "]":
            return said, at + 1
        assert tokens[at] == ","
        at += 1


class Twice(nn.Graph):
    """Two modules in one, one of which is called twice."""

    def __init__(self) -> None:
        super().__init__()
        self.model = nn.Sequential(nn.Linear(3, 3), nn.ReLU())

    def build(self, x: flow.Tensor) -> tuple[flow.Tensor, flow.Tensor]:
        hidden = self.model(self.model(x))
        return hidden, hidden + flow.tensor([1.0, 2.0, 3.0])


@pytest.mark.host  # elsewhere, the constant is copied there
def test_a_drawn_job_shows_ops_in_their_modules_and_the_buffers_between_them() -> None:
    job = compiled(Twice(), flow.ones(2, 3)).job
    picture = parsed(job.to_dot())
    assert picture.name == job.name
    assert picture.clusters == {"model": [], "model.0": ["op3", "op5"], "model.1": ["op4", "op6"]}
    assert picture.nodes["op3"] == "linear\nfloat32[2, 3]"
    labels = {label.split("\n")[0] for label in picture.nodes.values()}
    assert labels == {
        *("linear", "relu", "add", "output 0", "output 1", "input args[0]"),
        *("variable model.0.weight", "variable model.0.bias", "constant constant_0"),
    }
    flows = {(source, target) for source, target, _, _ in picture.edges}
    assert flows >= {("op3", "op4"), ("op4", "op5"), ("op5", "op6"), ("op6", "op7"), ("op6", "op8")}
    assert ("op7", "op9") in flows
    assert ("op0", "op3") in flows
    assert {value for flow_ in flows for value in flow_} <= picture.nodes.keys()


def test_a_training_step_writes_back_to_its_variables() -> None:
    job = compiled(Train(), flow.ones(5, 3)).job
    picture = parsed(job.to_dot())
    written = [(source, target) for source, target, label, _ in picture.edges if label == "writes"]
    names = {picture.nodes[target].split("\n")[0] for _, target in written}
    assert "variable model.0.weight" in names
    assert "variable model.1.running_mean" in names
    assert any(["Adam.step (update)" in label for label in picture.nodes.values()])
    assert any(["backward" in label for label in picture.nodes.values()])


def test_names_of_all_kinds_are_quoted() -> None:
    job = attrs.evolve(compiled(Forward(lambda x: x + 1), flow.ones(2)).job, name='a "b" \\ {c}\nd')
    assert parsed(job.to_dot()).name == job.name


def test_a_plan_shows_tasks_by_stream_and_registers_with_their_slots() -> None:
    plan = compiled(Train(), flow.ones(5, 3)).plan
    picture = parsed(plan.to_dot())
    assert picture.nodes.keys() == {f"task{task.id}" for task in plan.tasks}
    assert sorted([value for those in picture.clusters.values() for value in those]) == sorted(picture.nodes)
    assert len(picture.clusters) == 3  # the source, the sink, and the stream between them
    expected = [
        (f"task{register.producer}", f"task{consumer}", f"register {register.id} x {register.count}", register.control)
        for register in plan.registers
        for consumer in register.consumers
    ]
    assert picture.edges == expected


def test_registers_that_hold_data_tell_how_much() -> None:
    plan = compiled(Forward(lambda x: (x.to("sim:0") + 1).to("cpu") * 2), flow.ones(100, device="cpu")).plan
    data = [register for register in plan.registers if register.id in plan.contents]
    assert data
    picture = parsed(plan.to_dot())
    labels = {label for _, _, label, dashed in picture.edges if not dashed}
    assert labels == {f"register {datum.id} x {datum.count}\n{plan.contents[datum.id].nbytes} bytes" for datum in data}
    assert all([isinstance(datum, RegisterDescriptor) for datum in data])
    assert any(["sim" in label for label in picture.clusters])


@pytest.mark.parametrize("text", ["", "graph {}", "digraph x {", 'digraph x { a [label="1" }'])
def test_the_parser_of_these_tests_refuses_other_text_than_dot(text: str) -> None:
    with pytest.raises((AssertionError, IndexError)):
        parsed(text)
