"""Saved graphs that somebody has changed are refused or run: none ends the process, hangs, or fails otherwise.

The long form is `tests.benchmarks.load_mutations`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import vmflow as flow
from vmflow import nn
from vmflow.graph_mode.job import Job
from vmflow.graph_mode.op_forms import fits
from vmflow.graph_mode.serialization import declare_all_ops
from vmflow.ops.table import OPS, ViewExpr

from .test_serialization import Forward, changed, compiled

# Files are mutated as they are written of graphs on the host.
pytestmark = pytest.mark.host

ROOT = Path(flow.__file__).parents[1]


@pytest.mark.slow
@pytest.mark.host
@pytest.mark.skipif(not hasattr(os, "fork"), reason="the children are forked")
def test_changed_saved_graphs_are_refused_or_run() -> None:
    pytest.importorskip("safetensors")
    call = [sys.executable, "-m", "tests.benchmarks.load_mutations", "--few", "--count", "1000", "--seed", "11"]
    outside = {**os.environ, "PYTHONPATH": str(ROOT), "VMFLOW_JIT": "0"}
    done = subprocess.run(call, capture_output=True, text=True, env=outside, cwd=ROOT, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("1000 changed graphs in ")


def test_every_op_has_a_form() -> None:
    declare_all_ops()
    assert not [name for name, op in OPS.items() if op.form is None and not isinstance(op, ViewExpr)]


def text_of(call: Callable[..., Any], *args: flow.Tensor) -> str:
    return compiled(Forward(call), *args).job.to_json()


def operand(buffer: int, shape: list[int], dtype: str = "float32") -> dict[str, Any]:
    return {"buffer": buffer, "meta": [dtype, shape, "cpu"]}


@pytest.mark.host  # the devices in the texts
@pytest.mark.parametrize("count", [0, 2, 3])
@pytest.mark.parametrize("name", ["sigmoid", "neg", "softmax", "cumsum", "flip", "inverse"])
def test_operands_that_are_doubled_or_missing_are_refused(name: str, count: int) -> None:
    calls: dict[str, Callable[[flow.Tensor], Any]] = {
        "softmax": lambda x: x.softmax(0),
        "cumsum": lambda x: x.cumsum(0),
        "flip": lambda x: x.flip(0),
    }
    text = text_of(calls.get(name, lambda x: getattr(x, name)()), flow.ones(3, 3))
    with pytest.raises(ValueError, match=rf"job\.ops\[1\]: .* called like this: expected 1 inputs, found {count}"):
        Job.from_json(changed(text, "ops", 1, "inputs", to=[operand(0, [3, 3])] * count))


CONVOLUTION = nn.Conv2d(2, 2, 3)


def convolution_gradients(x: flow.Tensor) -> Any:
    x = x.detach().requires_grad_()
    return flow.autograd.grad(CONVOLUTION(x).sum(), [x, *CONVOLUTION.parameters()])


def where(text: str, op: str) -> int:
    """The place of an op in a job."""
    found = [place for place, value in enumerate(Job.from_json(text).ops) if value.op == op]
    return found[0]


@pytest.mark.parametrize("stride", [0, -1, 1 << 40, 1 << 62, True, 1.0, None])
def test_impossible_windows_are_refused(stride: Any) -> None:
    text = text_of(convolution_gradients, flow.ones(1, 2, 5, 5))
    place = where(text, "conv2d_gradient")
    path = ("ops", place, "attributes", 0, "named", 1, 0, "tuple", 0)
    with pytest.raises(ValueError, match=rf"job\.ops\[{place}\]: conv2d_gradient cannot be called like this"):
        Job.from_json(changed(text, *path, to=stride))


def test_gradients_that_do_not_fit_their_convolution_are_refused() -> None:
    text = text_of(convolution_gradients, flow.ones(1, 2, 5, 5))
    place = where(text, "conv2d_gradient")
    # Two samples seen where there is one.
    for shape in ([2, 2, 3, 3], [1, 2, 4, 3], [1, 3, 3, 3]):
        twice = {**operand(0, shape), "strides": [0, 0, 0, 0]}
        with pytest.raises(ValueError, match=r"a gradient of shape .* does not fit a result of shape"):
            Job.from_json(changed(text, "ops", place, "inputs", 0, to=twice))


@pytest.mark.parametrize("part", [[[3], [1], 1 << 20], [[1 << 20], [1], 0], [[3], [-1], 0], [[3], [1 << 60], 0]])
def test_parts_beyond_their_tensor_are_refused(part: list[Any]) -> None:
    def call(x: flow.Tensor) -> flow.Tensor:
        buffer: flow.Tensor = flow.zeros(3)
        x = x.detach().requires_grad_()
        buffer[1:] = x[1:]
        (found,) = flow.autograd.grad(buffer.sum(), x)
        assert found is not None
        return found

    text = text_of(call, flow.ones(3))
    place = where(text, "strided_get")
    shape, strides, offset = part
    to = [{"tuple": [{"tuple": shape}, {"tuple": strides}, offset]}]
    with pytest.raises(ValueError, match=r"does not lie within|makes .* from these inputs"):
        Job.from_json(changed(text, "ops", place, "attributes", to=to))


def test_dimensions_are_counted_from_the_front_and_must_be_there() -> None:
    text = text_of(lambda x: x.cumprod(1), flow.ones(3, 3))
    for dim in (-1, 2, 1 << 31, True, 0.0):
        with pytest.raises(ValueError, match="its attributes cannot be"):
            Job.from_json(changed(text, "ops", 1, "attributes", 0, to=dim))


def test_results_of_another_dtype_are_refused_but_in_place() -> None:
    text = text_of(lambda x: x.sigmoid(), flow.ones(3))
    number = str(Job.from_json(text).outputs[0].buffer)
    other = ["int32", [3], "cpu"]
    for path in (("buffers", number, "meta"), ("ops", 1, "outputs", 0, "meta"), ("ops", 2, "inputs", 0, "meta")):
        text = changed(text, *path, to=other)
    with pytest.raises(ValueError, match=r"sigmoid makes \[float32\[3\]\] from these inputs, not \[int32\[3\]\]"):
        Job.from_json(text)


@pytest.mark.parametrize("kind", ["unpack", "accumulate", "pack"])
def test_ops_of_micro_batches_need_some(kind: str) -> None:
    text = text_of(lambda x: x.clone(), flow.ones(3))
    with pytest.raises(ValueError, match=f"'{kind}' needs micro-batches, and the job has none"):
        Job.from_json(changed(text, "ops", 1, "kind", to=kind))


def test_only_copies_to_devices_are_transfers() -> None:
    text = text_of(lambda x: x.neg(), flow.ones(3))
    with pytest.raises(ValueError, match="neg cannot be of the kind 'transfer'"):
        Job.from_json(changed(text, "ops", 1, "kind", to="transfer"))


@pytest.mark.parametrize("stride", [1 << 31, 1 << 62])
def test_functions_refuse_windows_whose_products_overflow(stride: int) -> None:
    x, weight = flow.ones(1, 1, 4, 4), flow.ones(1, 1, 2, 2)
    for call in (
        lambda: nn.functional.conv2d(x, weight, stride=stride),
        lambda: nn.functional.conv2d(x, weight, dilation=stride),
        lambda: nn.functional.max_pool2d(x, 2, stride),
        lambda: nn.functional.avg_pool2d(x, 2, stride),
    ):
        with pytest.raises(ValueError, match="must be at most 2147483647"):
            call()


@pytest.mark.parametrize(
    ("value", "declared", "expected"),
    [
        *((1, int, True), (True, int, False), (1.0, int, False), (1 << 63, int, False), (1, float, True)),
        *((True, bool, True), (1, bool, False), (None, int | None, True), ("x", int | None, False)),
        *(((1, 2), tuple[int, int], True), ((1,), tuple[int, int], False), ((), tuple[int, ...], True)),
        *(([1], tuple[int, ...], False), ((1, True), tuple[int, ...], False)),
    ],
)
def test_values_are_compared_with_types(value: Any, declared: Any, expected: bool) -> None:
    assert fits(value, declared, 2) is expected
