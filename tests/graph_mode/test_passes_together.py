"""Random programs: after any passes, a graph's results and changed tensors have eager's bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Literal, TypeAlias

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import vmflow as flow
from vmflow import dtypes
from vmflow.graph_mode.passes import PASSES, Settings, run_passes
from vmflow.graph_mode.passes.flow import check_same_flow
from vmflow.multi_tensor import Update, issue_update
from vmflow.tensors import Tensor

from .agreement import ProgramGraph, Setting, as_graph, eagerly
from .plan_order import unordered

# An op, and the indices of its operands among the tensors and values.
Step: TypeAlias = tuple[str, int, int, int]

_FLOATS: Final = (dtypes.float32, dtypes.float16, dtypes.bfloat16, dtypes.float64)
_DTYPES: Final = (*_FLOATS, dtypes.int32, dtypes.uint8, dtypes.bool_)
_SCALARS: Final[tuple[Any, ...]] = (0, 1, 0.0, -0.0, 1.0, 2, -1.5, True)
_DATA: Final = ([0.0, -0.0, 1.0], [2.0, -3.0, 0.5], [1.0, 1.0, 1.0], [float("inf"), -1.0, 100.0], [0.0, -0.0, 1.0])


def _bounded(tensor: Tensor, dtype: dtypes.dtype) -> Tensor:
    """A cast whose result C defines."""
    if tensor.dtype.is_floating_point and not dtype.is_floating_point:
        tensor = tensor.nan_to_num(0.0, 50.0, -50.0).clamp(-50.0, 50.0)
        tensor = tensor.abs() if not dtype.is_signed else tensor
    return tensor.to(dtype)


def _halve(inputs: list[Any], outputs: list[Any]) -> None:
    for out in outputs:
        if out.dtype.kind != "b":
            out[...] = out * out.dtype.type(1) + sum([(operand != 0).sum() for operand in inputs])
        else:
            np.logical_not(out, out)


def _update(tensor: Tensor, other: Tensor) -> None:
    issue_update(Update("halve", _halve, [other], [tensor], 100))


# In each, of two tensors, a number for choosing among scalars and so on, and the state.
_MAKING: Final[dict[str, Callable[[Tensor, Tensor, int], Any]]] = {
    "data": lambda x, y, n: flow.tensor(_DATA[n % 5], dtype=_FLOATS[n % 4], device=x.device),
    "zeros": lambda x, y, n: flow.zeros_like(x),
    "range": lambda x, y, n: flow.arange(3, dtype=_DTYPES[n % 6], device=x.device),
    "cast": lambda x, y, n: _bounded(x, _DTYPES[n % 7]),
    "there and back": lambda x, y, n: _bounded(_bounded(x, _DTYPES[n % 7]), x.dtype),
    "clone": lambda x, y, n: x.clone(),
    "neg": lambda x, y, n: -x,
    "sin": lambda x, y, n: x.sin(),
    "sum": lambda x, y, n: x.sum(-1),
    "cumulated": lambda x, y, n: x.cumsum(-1),
    "add": lambda x, y, n: x + y,
    "mul": lambda x, y, n: x * y,
    "less": lambda x, y, n: x < y,
    "where": lambda x, y, n: flow.where(x > 0, x, y),
    "matmul": lambda x, y, n: x @ y.t(),
    "add number": lambda x, y, n: x + _SCALARS[n % 8],
    "number minus": lambda x, y, n: _SCALARS[n % 8] - x,
    "minus number": lambda x, y, n: x - _SCALARS[n % 8],
    "times number": lambda x, y, n: x * _SCALARS[n % 8],
    "over number": lambda x, y, n: x / _SCALARS[(n % 2) * 4 + 1],
    "transposed": lambda x, y, n: x.t(),
    "moved": lambda x, y, n: x.to("sim" if x.device.type == "cpu" else "cpu"),
    "row": lambda x, y, n: x[n % 2],
    "tail": lambda x, y, n: x[..., 1:],
    "flat": lambda x, y, n: x.reshape(-1),
    "random": lambda x, y, n: flow.rand(3, device=x.device),
    "split": lambda x, y, n: x.sort(-1)[n % 2],
}
_CHANGING: Final[dict[str, Callable[[Tensor, Tensor, int], Any]]] = {
    "add_": lambda x, y, n: x.add_(y),
    "mul_": lambda x, y, n: x.mul_(_SCALARS[n % 8]),
    "copy_": lambda x, y, n: x.copy_(y),
    "neg_": lambda x, y, n: x.neg_(),
    "sin_": lambda x, y, n: x.sin_(),
    "zero_": lambda x, y, n: x.zero_(),
    "uniform_": lambda x, y, n: x.uniform_(),
    "update": lambda x, y, n: _update(x, y),
}


def _program(steps: list[Step], results: list[int]) -> Callable[..., Any]:
    def program(state: list[Tensor], *arguments: Tensor) -> Any:
        known = [*state, *arguments]
        with flow.no_grad():
            for name, one, other, number in steps:
                # Counted from the newest.
                x, y = known[-1 - one % len(known)], known[-1 - other % len(known)]
                try:
                    if name in _MAKING:
                        known.append(_MAKING[name](x, y, number))
                    else:
                        _CHANGING[name](x, y, number)
                except (TypeError, ValueError, RuntimeError, IndexError):
                    # Does not fit in shape or dtype, which a graph has to find just as well.
                    continue
        handed_out = [known[-1 - result % len(known)] for result in results]
        return {"first": handed_out[0], "others": (handed_out[1:], [{"last": handed_out[-1]}])}

    return program


_steps = st.lists(
    st.tuples(
        st.sampled_from([*_MAKING] * 2 + [*_CHANGING] * 3), st.integers(0, 5), st.integers(0, 5), st.integers(0, 13)
    ),
    min_size=1,
    max_size=14,
)
_results = st.lists(st.integers(0, 8), min_size=1, max_size=4)


def _state() -> list[Tensor]:
    return [
        flow.tensor([[0.5, -0.0, 3.0], [4.0, 0.0, -6.0]]),
        flow.tensor([1, -2, 0], dtype=dtypes.int32),
        flow.tensor([1.5, -0.0, 0.25], dtype=dtypes.float16),
    ]


def _arguments() -> list[Tensor]:
    return [flow.tensor([[1.0, 2.0, -0.0], [0.25, -1.0, 7.0]]), flow.tensor([2.0, 0.0, -1.0], dtype=dtypes.bfloat16)]


_ALL: Final = tuple([each.name for each in PASSES])
_SETTINGS: Final = (
    Setting(),
    Setting(order="speed"),
    Setting(fusion=True),
    Setting(passes=()),
    *[Setting(passes=(name,)) for name in _ALL],
)


@pytest.mark.slow
@settings(max_examples=60)
@given(_steps, _results)
def test_every_bit_is_eagers(steps: list[Step], results: list[int]) -> None:
    program = _program(steps, results)
    rounds = [_arguments()] * 2
    wanted = eagerly(program, _state, rounds)
    for setting in _SETTINGS:
        found, graph = as_graph(program, _state, rounds, setting)
        assert found == wanted, (setting, graph.full_job.ops)
        assert unordered(graph.full_job, graph.plan) == []
        assert len(graph.full_job.draws) == len(graph.job.draws)
    for setting in (Setting(), Setting(fusion=True), Setting(passes=())):
        found, graph = as_graph(program, _state, rounds, setting, by_vm=True)
        assert found == wanted, (setting, graph.full_job.ops)


@pytest.mark.not_on_cuda
@settings(max_examples=60)
@given(_steps, _results, st.sampled_from(["memory", "speed"]))
def test_jobs_give_the_same_results_after_all_passes(
    steps: list[Step], results: list[int], order: Literal["memory", "speed"]
) -> None:
    graph = ProgramGraph(_program(steps, results), _state())
    graph.config.set_execution_order("given")
    graph._compile(*_arguments())
    again = Settings(graph.config)
    job = graph.full_job
    # A job that needs no change is returned as it is.
    dropped = next(each for each in PASSES if each.name == "dead_ops")
    assert dropped.apply(job, again) is job
    graph.config.set_execution_order(order)
    ordered = next(each for each in PASSES if each.name == "order").apply(job, again)
    check_same_flow(job, ordered)
    assert len(run_passes(graph.job, again).ops) <= len(graph.job.ops)


@pytest.mark.parametrize("name", [*_MAKING, *_CHANGING])
def test_there_are_operands_for_each_step(name: str) -> None:
    steps = {**_MAKING, **_CHANGING}
    first, second = _arguments()[0], _state()[0]
    steps[name](first, second, 0)
