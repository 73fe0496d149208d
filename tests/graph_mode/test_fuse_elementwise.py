"""Fusing elementwise ops of a job: some ops become one, others stay apart, and nothing else changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import vmflow as flow
from vmflow import nn
from vmflow.graph_mode.chain_memory import workspace_of
from vmflow.graph_mode.compiler import compile_job
from vmflow.graph_mode.job import Job, JobOp
from vmflow.graph_mode.lifetimes import ALIGNMENT, aligned
from vmflow.graph_mode.passes.fuse_elementwise import fuse_elementwise
from vmflow.ops.table import decoded

from .support import computing

Built = Callable[..., Any]


class _Graph(nn.Graph):
    """A graph of a function, that does nothing but fuse."""

    def __init__(self, function: Built, fusion: bool = True, **modules: nn.Module) -> None:
        super().__init__()
        self.config.fusion = fusion
        self.function = function
        for name, module in modules.items():
            setattr(self, name, module)

    def build(self, *args: flow.Tensor) -> Any:
        return self.function(*args)


def _job(function: Built, *args: flow.Tensor) -> Job:
    """As recorded, before all passes."""
    graph = _Graph(function)
    graph._compile(*args)
    (compiled,) = graph._forms
    return compiled.job


def _ops(job: Job) -> list[str]:
    """The ops, fused ones with their steps."""
    return [
        f"fused({', '.join([step[0] for step in op.attributes[0]])})" if op.op == "fused" else op.op
        for op in computing(job)
    ]


def _changed(function: Built, *args: flow.Tensor) -> tuple[list[str], list[str]]:
    """The ops before and after; the results are made sure to be the same."""
    job = _job(function, *args)
    after = fuse_elementwise(job)
    after.check()
    _agree(function, *args)
    return _ops(job), _ops(after)


def _bits(results: Any) -> list[bytes]:
    several = results if isinstance(results, Sequence) else [results]
    return [tensor.detach().numpy().tobytes() for tensor in several]


def _agree(function: Built, *args: flow.Tensor) -> None:
    """Fused or not, by actors or by the machine, the bits are those of eager ops."""
    eager = _bits(function(*args))
    for fusion in (True, False):
        graph = _Graph(function, fusion)
        for _ in range(2):
            assert _bits(graph(*args)) == eager
        assert _bits(graph.run_by_vm(*args)) == eager


X = (2, 3)


def test_a_chain_becomes_one_op() -> None:
    before, after = _changed(lambda x, y: ((x + y) * 2.0).exp() - y, flow.randn(*X), flow.randn(*X))
    assert before == ["add", "mul_scalar", "exp", "sub"]
    assert after == ["fused(add, mul_scalar, exp, sub)"]


def test_the_program_is_plain_data() -> None:
    job = fuse_elementwise(_job(lambda x, y: x * 2.0 + y, flow.randn(*X), flow.randn(3)))
    (op,) = computing(job)
    assert op.attributes == (
        (("mul_scalar", (), (("float", "0x1.0000000000000p+1"),), (0,)), ("add", (), (), (2, 1))),
        (1,),
    )
    assert decoded(op.attributes[0][0][2][0]) == 2.0
    assert [operand.meta.shape for operand in op.inputs] == [(2, 3), (3,)]
    assert op.scalars == ()
    assert op.line.startswith(__file__)


def test_what_is_used_elsewhere_is_an_output() -> None:
    def function(x: flow.Tensor) -> list[flow.Tensor]:
        a = x * 2.0
        b = a.exp()
        return [a, b + a, a.sum()]

    before, after = _changed(function, flow.randn(*X))
    assert before == ["mul_scalar", "exp", "add", "sum"]
    assert after == ["fused(mul_scalar, exp, add)", "sum"]
    job = fuse_elementwise(_job(function, flow.randn(*X)))
    assert computing(job)[0].attributes[1] == (0, 2)


def test_a_single_op_stays_as_it_is() -> None:
    job = _job(lambda x: x.exp().sum(), flow.randn(*X))
    assert fuse_elementwise(job) is job


def test_a_group_ends_where_something_else_needs_it() -> None:
    def function(x: flow.Tensor) -> flow.Tensor:
        a = (x * 2.0).exp()
        return (a - a.sum()).tanh()

    before, after = _changed(function, flow.randn(*X))
    assert before == ["mul_scalar", "exp", "sum", "sub", "tanh"]
    assert after == ["fused(mul_scalar, exp)", "sum", "fused(sub, tanh)"]


def test_small_results_are_not_computed_for_each_element() -> None:
    before, after = _changed(lambda x, y: x * (y * 2.0 + 1.0), flow.randn(*X), flow.randn(3))
    assert before == ["mul_scalar", "add_scalar", "mul"]
    assert after == ["fused(mul_scalar, add_scalar)", "mul"]


def test_what_is_seen_in_another_order_is_not_fused() -> None:
    _, after = _changed(lambda x: x.exp() + x.exp().T, flow.randn(3, 3))
    assert after == ["exp", "fused(exp, add)"] or after == ["exp", "exp", "add"] or after == ["fused(exp, add)", "exp"]
    _, after = _changed(lambda x: x.exp().reshape(3, 2) * 2.0, flow.randn(*X))
    assert after == ["exp", "mul_scalar"]


def test_in_place_ops_come_between() -> None:
    def function(x: flow.Tensor, y: flow.Tensor) -> list[flow.Tensor]:
        z = y * 1.0
        a = x + z
        z.mul_(2.0)
        return [a * 3.0 + z, z]

    before, after = _changed(function, flow.randn(*X), flow.randn(*X))
    assert before == ["mul_scalar", "add", "mul_scalar", "mul_scalar", "add"]
    # The first two must read the values that the third overwrites, and the others the new values.
    assert after == ["fused(mul_scalar, add)", "mul_scalar", "fused(mul_scalar, add)"]


def test_waiting_must_not_keep_more_memory() -> None:
    def waits(x: flow.Tensor, w: flow.Tensor) -> flow.Tensor:
        a = x.sum(0, keepdim=True) * 1.0  # a row, of which a matrix is made
        b = a.exp()
        return b * (w @ w)[:1]

    def keeps(x: flow.Tensor, y: flow.Tensor, w: flow.Tensor) -> flow.Tensor:
        a = (x @ w) + (y @ w)  # two matrices, of which one is made
        return a * (w @ w)

    square = [flow.randn(4, 4) for _ in range(3)]
    _, after = _changed(waits, *square[:2])
    assert after[-1].startswith("fused(mul_scalar, exp, mul")
    before, after = _changed(keeps, *square)
    assert before == after == ["matmul", "matmul", "add", "matmul", "mul"]


def test_whole_number_divisions_keep_their_lines() -> None:
    x = flow.tensor([4, 6])
    _, after = _changed(lambda x: (x + 1) // x * 2, x)
    assert after == ["add_scalar", "floor_divide", "mul_scalar"]
    graph = _Graph(lambda x: (x + 1) // x * 2)
    result = graph(flow.tensor([0, 1]))
    with pytest.raises(ZeroDivisionError) as caught:
        result.numpy()
    assert any(["floor_divide" in note for note in caught.value.__notes__])


def test_casts_and_choices_are_fused() -> None:
    def function(x: flow.Tensor) -> flow.Tensor:
        wide = x.to(flow.float64) * 2.0
        return flow.where(wide > 0, wide, 0.0).to(flow.float32)

    _, after = _changed(function, flow.randn(*X))
    assert after == ["fused(cast, mul_scalar, gt_scalar, where, cast)"]


def test_random_numbers_stay_apart() -> None:
    def function(x: flow.Tensor) -> flow.Tensor:
        return (x * 2.0 + flow.rand(*X)) * 3.0

    job = _job(function, flow.randn(*X))
    assert _ops(job) == ["mul_scalar", "rand", "add", "mul_scalar"]
    assert "rand" in _ops(fuse_elementwise(job))
    x = flow.randn(*X)
    flow.manual_seed(5)
    eager = _bits(function(x))
    flow.manual_seed(5)
    assert _bits(_Graph(function)(x)) == eager


def test_the_switch_leaves_all_as_it_is() -> None:
    graph = _Graph(lambda x: (x + 1.0).exp(), fusion=False)
    graph._compile(flow.randn(*X))
    assert [op.op for op in computing(graph.full_job)] == ["add_scalar", "exp"]
    named = _Graph(lambda x: (x + 1.0).exp())
    named.config.disable_pass("fuse_elementwise")
    named._compile(flow.randn(*X))
    assert [op.op for op in computing(named.full_job)] == ["add_scalar", "exp"]


def test_modules_have_theirs_in_common() -> None:
    class Inner(nn.Module):
        def forward(self, x: flow.Tensor) -> flow.Tensor:
            return x.exp()

    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = Inner(), Inner()

        def forward(self, x: flow.Tensor) -> Any:
            return self.two(self.one(x))

    class Graph(nn.Graph):
        def __init__(self) -> None:
            super().__init__()
            self.net = Outer()

        def build(self, x: flow.Tensor) -> Any:
            return self.net(x)

    graph = Graph()
    graph._compile(flow.randn(*X))
    assert [(op.op, op.module) for op in computing(graph.full_job)] == [("fused", "net")]


# Memory


def test_no_more_memory_is_planned() -> None:
    def function(x: flow.Tensor, y: flow.Tensor) -> flow.Tensor:
        t = x + y
        t = (t * 1.5 - y) * x
        return (t + 1.5).clamp(min=0.0) * y - 1.5

    for shape in [(64,), (100, 100), (512, 512)]:
        job = _job(function, flow.randn(*shape), flow.randn(*shape))
        assert compile_job(fuse_elementwise(job)).nbytes <= compile_job(job).nbytes


# Training


@pytest.mark.parametrize("fusion", [True, False])
def test_a_trained_network_has_the_losses_of_eager(fusion: bool) -> None:
    def network() -> nn.Module:
        flow.manual_seed(3)
        return nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4), nn.Tanh())

    batches = [flow.randn(6, 8) for _ in range(4)]
    goal = flow.randn(6, 4)

    class Train(nn.Graph):
        def __init__(self, model: nn.Module) -> None:
            super().__init__()
            self.model = model
            self.config.fusion = fusion
            self.add_optimizer(flow.optim.Adam(model.parameters(), lr=1e-2))

        def build(self, x: flow.Tensor) -> Any:
            loss = ((self.model(x) - goal) ** 2).mean()
            loss.backward()
            return loss

    graph = Train(network())
    found = [graph(x).item() for x in batches]
    model = network()
    optimizer = flow.optim.Adam(model.parameters(), lr=1e-2)
    for x, value in zip(batches, found, strict=True):
        optimizer.zero_grad()
        loss = ((model(x) - goal) ** 2).mean()
        loss.backward()
        optimizer.step()
        assert loss.item() == value
    assert any([op.op == "fused" for op in graph.full_job.ops]) is fusion


# Any program

UNARY: list[Callable[[flow.Tensor], flow.Tensor]] = [
    lambda x: x.exp(),
    lambda x: x.tanh(),
    lambda x: x * 0.3,
    lambda x: 2 - x,
    lambda x: x.abs(),
    lambda x: x > 0.5,
    lambda x: x.to(flow.float32),
    lambda x: x.to(flow.float64),
    lambda x: x.to(flow.float16),
    lambda x: x.to(flow.bfloat16),
    lambda x: x.clamp(-1, 1),
    lambda x: x.sigmoid(),
    lambda x: x.sum(),
    lambda x: x.sum(-1, keepdim=True),
    lambda x: x.reshape(-1).flip(0).reshape(x.shape),
    lambda x: x.mT,
    lambda x: (x * 1).mul_(2),
]
BINARY: list[Callable[[flow.Tensor, flow.Tensor], flow.Tensor]] = [
    lambda x, y: x + y,
    lambda x, y: x * y,
    lambda x, y: x / y,
    lambda x, y: flow.maximum(x, y),
    lambda x, y: x < y,
    lambda x, y: flow.where(x < y, x, y),
]


def _program(choices: Sequence[tuple[int, int, int]], picks: Sequence[int]) -> Built:
    """A function that applies ops, by their numbers, to the available tensors; ops that do not fit are left out."""

    def function(*args: flow.Tensor) -> list[flow.Tensor]:
        values = list(args)
        for which, first, second in choices:
            # The most recent ones above all, so that chains become long.
            one, other = values[-1 - first % len(values)], values[-1 - second % len(values)]
            try:
                if which < len(UNARY):
                    values.append(UNARY[which](one))
                else:
                    values.append(BINARY[which - len(UNARY)](one, other))
            except (TypeError, ValueError, IndexError, RuntimeError):
                continue
        return [values[-1], *[values[pick % len(values)] for pick in picks]]

    return function


DTYPES = [flow.float32, flow.float64, flow.float16, flow.bfloat16, flow.int64, flow.int32, flow.uint8, flow.bool]
SHAPES: list[list[tuple[int, ...]]] = [
    [(3, 3), (3,), (3, 1), ()],
    [(2, 3, 5), (3, 5), (2, 1, 5), (1,)],
    [(70, 70), (70,), (70, 1), ()],
    [(0, 3), (3,), (1,), ()],
]


@settings(max_examples=60)
@given(
    st.sampled_from(SHAPES),
    st.lists(st.sampled_from(DTYPES), min_size=4, max_size=4),
    st.lists(
        st.tuples(st.integers(0, len(UNARY) + len(BINARY) - 1), st.integers(0, 3), st.integers(0, 5)), max_size=14
    ),
    st.lists(st.integers(0, 20), max_size=2),
)
def test_any_program_has_the_bits_of_eager(
    shapes: list[tuple[int, ...]], kinds: list[Any], choices: list[tuple[int, int, int]], picks: list[int]
) -> None:
    generator = np.random.default_rng(len(choices))
    args = [
        flow.tensor(generator.standard_normal(shape) * 2).to(kind) for shape, kind in zip(shapes, kinds, strict=True)
    ]
    function = _program(choices, picks)
    _agree(function, *args)
    job = _job(function, *args)
    after = fuse_elementwise(job)
    more = max([_held(job, op) for op in after.ops if op.op == "fused"], default=0)
    assert compile_job(after).nbytes <= compile_job(job).nbytes + more


def _held(job: Job, fused: JobOp) -> int:
    """The bytes that a fused op needs beyond its last op: its tiles, and the operands of earlier ones."""
    made = set(fused.writes())
    last = max([position for position, op in enumerate(job.ops) if made & set(op.writes())])
    later = {buffer for op in job.ops[last:] for buffer in op.reads()}
    read = [job.buffers[value] for value in set(fused.reads()) - later]
    over = [value for value in read if value.role in ("temporary", "input")]
    return workspace_of(fused) + sum([aligned(value.meta.nbytes, ALIGNMENT) for value in over])
