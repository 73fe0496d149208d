"""Jobs and plans as JSON: everything comes back, and text that does not fit is refused by its place."""

from __future__ import annotations

import enum
import json
import math
import os
import struct
import sys
from collections.abc import Callable
from typing import Any

import attrs
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import vmflow as flow
from tests.ops.oracle import Row
from tests.ops.test_coverage import MADE, ROWS
from tests.ops.test_registry import SPECIAL
from vmflow import nn
from vmflow.context import MODE
from vmflow.devices import device
from vmflow.graph_mode import args_tree
from vmflow.graph_mode.compiled import CompiledGraph
from vmflow.graph_mode.compiler import compile_job
from vmflow.graph_mode.job import Drawn, Job
from vmflow.graph_mode.plan import Plan
from vmflow.graph_mode.structured_json import decode, encode
from vmflow.instructions.blob import Size, meta
from vmflow.ops.nn import pooling
from vmflow.ops.table import OPS, ViewExpr
from vmflow.tensor_fields import blobs_of

from .support import computing


class Forward(nn.Graph):
    """A graph of any function."""

    def __init__(self, call: Any) -> None:
        super().__init__()
        self.call = call

    def build(self, *args: Any) -> Any:
        return self.call(*args)


class Train(nn.Graph):
    """A training step."""

    def __init__(self) -> None:
        super().__init__()
        self.model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 1))
        self.add_optimizer(flow.optim.Adam(self.model.parameters(), lr=0.1))

    def build(self, x: flow.Tensor) -> flow.Tensor:
        loss: flow.Tensor = self.model(x).square().mean()
        loss.backward()
        return loss


def compiled(graph: nn.Graph, *args: Any) -> CompiledGraph:
    graph._compile(*args)
    (found,) = graph._forms
    return found


def read_again(made: CompiledGraph) -> CompiledGraph:
    """The same, of the job's text."""
    job = Job.from_json(made.job.to_json(), made.job.constants)
    return CompiledGraph(job, made.outside, made.settings, made.tree, made.metas, made.out_tree)


def bits(value: Any) -> list[bytes]:
    return [tensor.detach().numpy().tobytes() for tensor in args_tree.flatten(value)[1]]


# Every op


def differentiated(row: Row) -> Any:
    """The row's call with its gradients, so that the ops of backward passes are recorded as well."""

    def call(*operands: flow.Tensor) -> Any:
        inputs = [operand.detach().requires_grad_() for operand in operands if operand.dtype.is_floating_point]
        if not row.order or not inputs:
            return row.call(*operands)
        left = iter(inputs)
        result = row.call(*[next(left) if operand.dtype.is_floating_point else operand for operand in operands])
        # Without a gradient, some ops are others.
        return row.call(*operands), result, flow.autograd.grad(result.sum(), inputs, allow_unused=True)

    return call


recorded: set[str] = set()


def check_round_trip(graph: nn.Graph, *args: flow.Tensor) -> None:
    try:
        made = compiled(graph, *args)
    except RuntimeError as error:
        if "while the graph is being built" not in str(error) or flow.empty(0).device.type == "cpu":
            raise
        return  # an index that is a mask, on a device
    text = made.job.to_json()
    for value in computing(made.job):
        OPS[value.op].forget()  # in which a named tuple counts as any tuple
    back = Job.from_json(text, made.job.constants)
    assert back == made.job
    assert list(map(repr, back.ops)) == list(map(repr, made.job.ops))
    assert Plan.from_json(made.plan.to_json()) == made.plan
    assert Job.from_json(made.full_job.to_json(), made.full_job.constants) == made.full_job
    recorded.update([op.op for op in (*made.job.ops, *made.full_job.ops)])
    again = read_again(made)
    flow.manual_seed(3)
    expected = bits(made.call(blobs_of(args), [], MODE.get()))
    flow.manual_seed(3)
    found = bits(again.call(blobs_of(args), [], MODE.get()))
    if [op.op for op in computing(made.job)] != ["empty"]:  # its content is undefined
        assert found == expected


@pytest.mark.parametrize(
    "op", [pytest.param(op, marks=pytest.mark.not_on_cuda) if op == "to_device" else op for op in sorted(ROWS)]
)
def test_a_job_with_any_op_comes_back_and_runs_the_same(op: str) -> None:
    for row in ROWS[op]:
        operands = [flow.tensor(operand) for operand in row.operands(row.usual(), row.dtypes[0])]
        check_round_trip(Forward(differentiated(row)), *operands)


@pytest.mark.parametrize("op", sorted(MADE))
def test_a_job_with_an_op_that_makes_tensors_comes_back(op: str) -> None:
    call, accepted = MADE[op]
    check_round_trip(Forward(lambda: call(flow.dtypes.by_name(accepted[0]))))


# Backward passes that call ops which no row does, with results that can be compared.
BACKWARD: dict[str, Callable[[flow.Tensor], flow.Tensor]] = {
    "gelu_gradient": nn.functional.gelu,
    "relu_gradient": lambda x: nn.functional.relu(x),
    "recurrence": lambda x: x.cumprod(0),
    "strided_get": lambda x: _assigned(x),
}


def _assigned(x: flow.Tensor) -> flow.Tensor:
    buffer: flow.Tensor = flow.zeros(3)
    buffer[1:] = x[1:]
    return buffer


@pytest.mark.parametrize("op", sorted(set(SPECIAL) - set(BACKWARD)))
def test_a_job_with_a_special_op_comes_back(op: str) -> None:
    call, _ = SPECIAL[op]
    check_round_trip(Forward(call))


@pytest.mark.parametrize("op", sorted(BACKWARD))
def test_a_job_with_an_op_of_backward_passes_comes_back(op: str) -> None:
    def call(x: flow.Tensor) -> Any:
        x = x.detach().requires_grad_()
        return flow.autograd.grad(BACKWARD[op](x).sum(), x)

    check_round_trip(Forward(call), flow.ones(3))
    assert op in recorded


def test_fused_ops_come_back() -> None:
    check_round_trip(Forward(lambda x: ((x * 2.5 + 1).exp() - x).sin()), flow.ones(2000))
    assert "fused" in recorded


def test_a_job_comes_back_that_was_written_before_a_class_was_moved() -> None:
    resized = Forward(lambda x: flow.nn.functional.interpolate(x, (5,), mode="linear"))
    made = compiled(resized, flow.ones(1, 2, 3))
    text = made.job.to_json()
    assert '"vmflow.kernels.problems.resampling.Along"' in text
    before = text.replace("vmflow.kernels.problems.resampling.Along", "vmflow.ops.resampling._Along")
    assert Job.from_json(before, made.job.constants) == made.job


def test_a_graph_that_does_nothing_comes_back() -> None:
    graph = Forward(lambda x: None)
    assert graph(flow.ones(1)) is None
    flow.synchronize()
    made = compiled(graph, flow.ones(1))
    assert Plan.from_json(made.plan.to_json()) == made.plan
    assert Job.from_json(made.job.to_json()) == made.job


@pytest.mark.host
def test_every_op_was_in_a_job() -> None:
    """Must run behind the tests above; alone it says nothing."""
    if len(recorded) < len(OPS) // 2 or "PYTEST_XDIST_WORKER" in os.environ:
        pytest.skip("the tests of single ops have not run, or not all in this process")
    views = {name for name, op in OPS.items() if isinstance(op, ViewExpr)}
    formulas = {name for name, op in OPS.items() if op.infer.__module__ == "vmflow.ops.formula"}  # recorded as steps
    assert not set(OPS) - recorded - views - formulas


# Values


EXAMPLES: list[Any] = [
    *(None, True, False, 0, -5, 1 << 80, 0.1, -0.0, 5e-324, math.inf, -math.inf, "", '\ud800 "x"', b"\0\xff", ...),
    *(1 + 2j, complex(math.inf, -0.0), (), (1, (2.0, ("a", None))), Size((2, 3)), frozenset({1})),
    *(flow.float32, flow.bool, device("cpu"), device("sim:1"), meta((2, 0), flow.bfloat16, device("sim"))),
    *(Drawn(3, 1), pooling._Shape((2,), (1,), (0,), (1,), True)),
]


@pytest.mark.parametrize("value", EXAMPLES, ids=repr)
def test_values_come_back_as_they_were(value: Any) -> None:
    found = decode(json.loads(json.dumps(encode(value))), "here")
    assert type(found) is type(value)
    assert found == value
    assert repr(found) == repr(value)  # of which -0.0 is another than 0.0
    assert hash(found) == hash(value)


ONE: Any = np.int64(1)


class Level(enum.IntEnum):
    """A number with a name."""

    LOW = 2


@pytest.mark.parametrize(("value", "plain"), [(Level.LOW, 2), (np.float64(0.5), 0.5), (np.float64("inf"), math.inf)])
def test_numbers_of_derived_types_come_back_as_plain_numbers(value: Any, plain: Any) -> None:
    found = decode(json.loads(json.dumps(encode(value))), "here")
    assert type(found) is type(plain)
    assert found == plain


@pytest.mark.parametrize(
    "call",
    [
        lambda x: x * Level.LOW,
        lambda x: x + np.float32(0.5),
        lambda x: nn.functional.one_hot(x.long(), ONE + 1),
        lambda x: x.kthvalue(ONE),
        lambda x: x.histc(ONE, 0, 1),
        lambda x: nn.functional.embedding(x.long(), flow.ones(2, 1), ONE),
    ],
)
def test_a_job_with_numbers_of_other_types_comes_back(call: Any) -> None:
    made = compiled(Forward(call), flow.tensor([0.0, 1.0]))
    assert Job.from_json(made.job.to_json()) == made.job


def test_nan_comes_back() -> None:
    assert math.isnan(decode(encode(math.nan), "here"))


@given(st.floats())
def test_floats_come_back_to_the_bit(number: float) -> None:
    found = decode(json.loads(json.dumps(encode(number))), "here")
    assert math.isnan(number) if math.isnan(found) else struct.pack("d", found) == struct.pack("d", number)


@pytest.mark.parametrize("value", [[1], {}, object(), np.float32(1), int, len])
def test_what_is_no_data_is_refused(value: Any) -> None:
    with pytest.raises(TypeError, match="cannot be written as JSON"):
        encode(value)


def test_the_op_with_an_attribute_that_is_no_data_is_named() -> None:
    job = compiled(Forward(lambda x: x + 1), flow.ones(2)).job
    (add,) = computing(job)
    odd = attrs.evolve(job, ops=(attrs.evolve(add, attributes=(len,), module="model"),))
    with pytest.raises(TypeError, match=r"the op model\.add_scalar cannot be written as JSON: <built-in function len>"):
        odd.to_json()


@pytest.mark.parametrize(
    "value",
    [
        *({"float": "1"}, {"complex": [1, 2]}, {"tuple": 3}, {"size": ["a"]}, {"slice": [1]}, {"ellipsis": 1}),
        pytest.param(
            {"set": [{"slice": [None, None, None]}]},
            marks=pytest.mark.skipif(sys.version_info >= (3, 12), reason="slices can be hashed since Python 3.12"),
        ),
        *({"bytes": "zz"}, {"bytes": 3}, {"dtype": "int3"}),
        *({"device": "tpu"}, {"device": 3}, {"meta": ["float32", [-1], "cpu"]}, {"meta": ["float32", [2], "x"]}),
        *({"meta": ["float32", [1 << 40, 1 << 40], "cpu"]}, {"meta": ["float32", [1] * 50, "cpu"]}),
        *({"named": ["vmflow.ops.nn.pooling._Shape", [1]]}, {"named": ["os.system", ["ls"]]}, {"named": [3, []]}),
        *(
            {"named": ["vmflow.ops.nn.pooling.Window", [1, 1, 1, 1, 0, 1]]},
            {"record": ["vmflow.graph_mode.job.Drawn", {"draw": 1}]},
            {"record": ["vmflow.graph_mode.surroundings.ClassMember", {"kind": {"draw": 1}, "name": "x"}]},
        ),
        *({"record": ["vmflow.graph_mode.graph.Graph", {}]}, {"other": 1}, {}, [], {"float": "nan", "x": 1}),
    ],
    ids=repr,
)
def test_what_stands_for_no_value_is_refused_by_its_place(value: Any) -> None:
    with pytest.raises(ValueError, match=r"^here"):
        decode(value, "here")


# Jobs that are wrong


def training() -> CompiledGraph:
    return compiled(Train(), flow.ones(5, 3))


def test_a_training_step_read_from_text_lacks_its_updates_and_refuses_to_run() -> None:
    made = training()
    job = Job.from_json(made.job.to_json(indent=2), made.job.constants)
    assert job == made.job
    updates = [op for op in job.ops if op.kind == "update"]
    assert [op.op for op in updates] == ["batch_norm.running", "Adam.step"]
    assert all([op.update is None for op in updates])
    with pytest.raises(ValueError, match=r"op \d+ \(model\.1\.batch_norm\.running\) .* cannot run: its kernel"):
        compile_job(job)
    assert Plan.from_json(made.plan.to_json(indent=1)) == made.plan


def test_constants_are_given_apart() -> None:
    made = compiled(Forward(lambda x: x + flow.tensor([1.0, 2.0])), flow.ones(2))
    text = made.job.to_json()
    ((number, array),) = made.job.constants.items()
    without = Job.from_json(text)
    assert without == made.job
    with pytest.raises(ValueError, match=rf"constant {number} \(constant_0\) .* has no value"):
        compile_job(without)
    with pytest.raises(ValueError, match=rf"constant {number}: it is missing"):
        Job.from_json(text, {})
    with pytest.raises(ValueError, match="constant 77: the job has no such constant"):
        Job.from_json(text, {number: array, 77: array})
    for wrong in (array[:1], array.astype(np.float64)):
        with pytest.raises(ValueError, match=rf"constant {number}: expected float32\[2\], found"):
            Job.from_json(text, {number: wrong})


def changed(text: str, *path: Any, to: Any) -> str:
    content = json.loads(text)
    at = content
    for step in path[:-1]:
        at = at[step]
    if to is KeyError:
        del at[path[-1]]
    else:
        at[path[-1]] = to
    return json.dumps(content)


# The places of the first op that computes, and of the fetch, in the training step.
LINEAR, FETCH = 28, 44

WRONG: list[tuple[tuple[Any, ...], Any, str]] = [
    (("version",), 3, r"vmflow\.job: the format's version is 3, and this vmflow reads 1 and 2: a newer version"),
    (("version",), 1, r"op 28 \(FeedVariable\) feeds buffer 2, which has been fed before"),
    (("version",), 0, r"there is no such version"),
    (("version",), True, r"there is no such version"),
    (("kind",), "vmflow.plan", r"expected an object of the kind 'vmflow\.job', found 'vmflow\.plan'"),
    (("name",), 3, r"job\.name: expected a string, found 3"),
    (("name",), KeyError, r"job: 'name' is missing"),
    (("more",), 3, r"job: there is no field 'more'"),
    (("ops",), {}, r"job\.ops: expected a list"),
    (("ops", LINEAR, "op"), "explode", r"job\.ops\[28\]\.op: this vmflow has no op 'explode'"),
    (("ops", LINEAR, "op"), "permute", r"job\.ops\[28\]\.op: this vmflow has no op 'permute'"),
    (("ops", LINEAR, "kind"), "magic", r"job\.ops\[28\]\.kind: expected one of 'feed_input', .* found 'magic'"),
    (("ops", LINEAR, "kind"), "transfer", r"job\.ops\[28\]: 'transfer' does not turn"),
    (("ops", LINEAR, "inputs", 0, "buffer"), 99, r"job\.ops\[28\]\.inputs\[0\]\.buffer: the job has no buffer 99"),
    (("ops", LINEAR, "inputs", 0, "strides"), [3, 2], r"job\.ops\[28\]\.inputs\[0\]: it reaches beyond buffer 0"),
    (("ops", LINEAR, "inputs", 0, "strides"), [-3, 1], r"job\.ops\[28\]\.inputs\[0\]: it reaches beyond buffer 0"),
    (("ops", LINEAR, "inputs", 0, "strides"), [1], r"strides: expected one for each of 2 dimensions"),
    (("ops", LINEAR, "inputs", 0, "offset"), 1, r"this is not the whole of buffer 0"),
    (("ops", LINEAR, "inputs", 0, "meta"), ["float32", [1 << 50, 3], "cpu"], r"this is not the whole of buffer 0"),
    (("ops", LINEAR, "inputs", 0, "meta"), ["float64", [5, 3], "cpu"], r"buffer 0 is float32\[5, 3\]"),
    (("ops", LINEAR, "inputs"), [], r"job\.ops\[28\]: linear cannot be called like this"),
    (("ops", LINEAR, "outputs"), [], r"job\.ops\[28\]\.outputs: an op has at least one output"),
    (("ops", LINEAR, "scalars"), ["x"], r"job\.ops\[28\]\.scalars\[0\]: 'x' is no number"),
    (("ops", LINEAR, "cost"), -1, r"job\.ops\[28\]\.cost: expected 0 or more"),
    (("buffers", "0", "id"), 7, r"job\.buffers\[0\]: its id is 7"),
    (("buffers", "x"), 7, r"job\.buffers: expected numbers as keys, found 'x'"),
    (("buffers", "0", "role"), "temporary", r"op 0 \(FeedInput\) feeds buffer 0, whose role is 'temporary'"),
    (("buffers", "4", "role"), "variable", "no op feeds buffer 4, whose role is 'variable'"),
    (("ops", 0, "op"), "FeedVariable", r"job\.ops\[0\]: expected a FeedInput of operands and nothing else"),
    (("ops", 0, "scalars"), [1], r"job\.ops\[0\]: expected a FeedInput of operands and nothing else"),
    (("ops", 0, "outputs"), [], r"op 0 \(FeedInput\) has to feed one buffer"),
    (("ops", 1, "kind"), "feed_input", r"job\.ops\[1\]: expected a FeedInput"),
    (("ops", FETCH, "inputs"), [], r"op 44 \(FetchOutput\) has to fetch one operand"),
    (("numbers",), [1, 1], r"job\.numbers: all buffers of the role 'number' belong here, each once"),
    (("draws",), [], r"scalars\[0\]: the job does not draw"),
    (("micro_batches",), 0, r"job\.micro_batches: expected 1 or more"),
    (("ops", FETCH, "inputs", 0, "buffer"), 1000, r"job\.ops\[44\]\.inputs\[0\]\.buffer: the job has no buffer 1000"),
]


@pytest.mark.host  # the devices in the texts above
@pytest.mark.parametrize(("path", "to", "message"), WRONG, ids=[f"{path} {to}" for path, to, _ in WRONG])
def test_a_wrong_job_is_refused_by_its_place(path: tuple[Any, ...], to: Any, message: str) -> None:
    text = changed(training().job.to_json(), *path, to=to)
    with pytest.raises(ValueError, match=message):
        Job.from_json(text)


@pytest.mark.parametrize("text", ["", "{", "[]", "3", "NaN", '{"kind": 1}', "[" * 100_000, "9" * 5000, '"\ud800"'])
def test_what_is_no_json_of_a_job_is_refused(text: str) -> None:
    for kind in (Job, Plan):
        with pytest.raises(ValueError, match=r"^vmflow\."):
            kind.from_json(text)


def test_a_plan_of_another_version_is_refused() -> None:
    """It names the ops of a job by positions that are others now."""
    text = training().plan.to_json()
    for version, who in ((1, "an older version"), (3, "a newer version")):
        with pytest.raises(ValueError, match=rf"^vmflow\.plan: .* reads 2: {who} of vmflow has written it"):
            Plan.from_json(changed(text, "version", to=version))


def test_a_plan_that_could_not_run_is_refused() -> None:
    text = training().plan.to_json()
    with pytest.raises(ValueError, match=r"^plan: register 0 names task 5"):
        Plan.from_json(changed(text, "registers", 0, "producer", to=5))
    with pytest.raises(ValueError, match=r"^plan\.registers\[0\]\.count: there are more than"):
        Plan.from_json(changed(text, "registers", 0, "count", to=1 << 40))


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


def places(content: Any) -> list[tuple[Any, ...]]:
    """The paths to all that is inside."""
    found: list[tuple[Any, ...]] = []

    def look(at: Any, path: tuple[Any, ...]) -> None:
        for key, value in at.items() if isinstance(at, dict) else enumerate(at):
            found.append((*path, key))
            if isinstance(value, dict | list):
                look(value, found[-1])

    look(content, ())
    return found


def any_of(data: st.DataObject, paths: list[tuple[Any, ...]]) -> tuple[Any, ...]:
    """One of them, of which there are so many that looking for strategies among them takes longest."""
    return paths[data.draw(st.integers(0, len(paths) - 1))]


def texts() -> dict[type, str]:
    made = training()
    return {Job: made.job.to_json(), Plan: made.plan.to_json()}


@pytest.fixture(scope="module")
def valid() -> dict[type, str]:
    return texts()


@pytest.mark.slow
@pytest.mark.parametrize("kind", [Job, Plan])
@settings(max_examples=400)
@given(data=st.data())
def test_changed_texts_are_read_or_refused(kind: Any, valid: dict[type, str], data: st.DataObject) -> None:
    text = valid[kind]
    for _ in range(data.draw(st.integers(1, 3))):
        content = json.loads(text)
        known = places(content)
        path, other = any_of(data, known), any_of(data, known)
        moved: Any = content
        for step in other:
            moved = moved[step]
        to = data.draw(st.sampled_from([KeyError, moved]) | st.integers(-3, 1 << 70) | JUNK)
        text = changed(text, *path, to=to)
    try:
        found = kind.from_json(text)
    except ValueError:
        return
    assert kind.from_json(found.to_json()) == found


def test_jobs_are_equal_by_the_bits_of_their_numbers() -> None:
    """Jobs with nan were not equal to their copies, and 0.0 equalled -0.0."""

    def job(number: float) -> Job:
        return compiled(Forward(lambda x: (x * number).clamp(number, 2.0)), flow.ones(2)).job

    assert job(float("nan")).ops == job(float("nan")).ops
    for number in (math.nan, -math.nan, 0.0, -0.0, math.inf):
        made = job(number)
        back = Job.from_json(made.to_json(), made.constants)
        assert back == made
        assert hash(back.ops) == hash(made.ops)
    assert job(0.0).ops != job(-0.0).ops
    assert job(1).ops != job(1.0).ops
