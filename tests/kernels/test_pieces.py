"""Kernels cut into pieces for several threads compute the same as in one piece, to the bit."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import vmflow as flow
from vmflow.kernels import intra_op
from vmflow.kernels.native import team
from vmflow.ops.table import OPS

functional = flow.nn.functional

pytestmark = pytest.mark.host

Array = Any

# Threads that are tried against one.
NUMBERS = (2, 3, 7)

# Work that is worth a piece in these tests, so that small arrays are cut.
WORTH = 1 << 8


@pytest.fixture
def cuts(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Small arrays are cut, too; into how many pieces each was."""
    found: list[int] = []
    run = intra_op.run

    def counted(function: Callable[..., object], pieces: Any) -> None:
        found.extend([len(pieces)] if len(pieces) > 1 else [])
        run(function, pieces)

    job = team.job

    def seen(function: int, words: Sequence[int], cut: team.Cut, work: float) -> team.Job | None:
        made = job(function, words, cut, work)
        if made is not None:
            found.append(-(-made[3] // made[4]))
        return made

    monkeypatch.setattr(intra_op, "LEAST", WORTH)
    monkeypatch.setattr(intra_op, "run", counted)
    monkeypatch.setattr(team, "LEAST", WORTH)
    monkeypatch.setattr(team, "job", seen)
    monkeypatch.setattr("vmflow.kernels.numpy.spreading.IN_C_FROM", 2 * WORTH)
    monkeypatch.setattr("vmflow.kernels.native.loops._COMPILED_FROM", 0)
    # Short arrays have another kernel, which takes the other of two zeros; pieces are never so short.
    monkeypatch.setattr("vmflow.kernels.numpy.arithmetic._MANY", 0)
    before = flow.get_num_threads()
    _forget()
    yield found
    flow.set_num_threads(before)
    _forget()


def _forget() -> None:
    """Whether to cut is decided once for each shape."""
    for op in OPS.values():
        op.forget()


def check(compute: Callable[[], list[Array]], cuts: list[int], cut: bool = True) -> None:
    """Whether all numbers of threads make the same, and whether anything is cut at all."""
    flow.set_num_threads(1)
    cuts.clear()
    expected = compute()
    assert cuts == []
    for threads in NUMBERS:
        flow.set_num_threads(threads)
        cuts.clear()
        for one, other in zip(expected, compute(), strict=True):
            same_bits(one, other)
        if cut:
            assert cuts
            assert max(cuts) <= 4 * threads
    flow.set_num_threads(1)


def same_bits(one: Array, other: Array) -> None:
    """Even for zeros; only the bits of nan do not matter."""
    assert one.dtype == other.dtype
    np.testing.assert_array_equal(one, other)
    if one.dtype.kind == "f":
        np.testing.assert_array_equal(np.signbit(one[~np.isnan(one)]), np.signbit(other[~np.isnan(other)]))


def numbers(shape: tuple[int, ...], dtype: str = "float32", seed: int = 0) -> Array:
    random = np.random.default_rng(seed)
    if dtype == "bool":
        return random.random(shape) < 0.5
    if dtype.startswith("int"):
        return random.integers(-9, 9, shape).astype(dtype)
    values = random.standard_normal(shape) * 10.0 ** random.integers(-3, 3, shape)
    special = random.choice([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, 90.0, -105.0], shape)
    values = np.where(random.random(shape) < 0.2, special, values)
    return values.astype(dtype)


# x, y: floats that broadcast; p: positive ones of x's shape; m: bools; i: integers.
ELEMENTWISE: dict[str, Callable[..., flow.Tensor]] = {
    "add": lambda x, y, p, m, i: x + y,
    "sub, number": lambda x, y, p, m, i: 1.5 - x,
    "mul, number": lambda x, y, p, m, i: x * 3,
    "div": lambda x, y, p, m, i: x / y,
    "mixed dtypes": lambda x, y, p, m, i: x * i,
    "pow": lambda x, y, p, m, i: p**y,
    "remainder": lambda x, y, p, m, i: x % 0.7,
    "whole numbers": lambda x, y, p, m, i: i // 3 + (i << 2),
    "maximum": lambda x, y, p, m, i: flow.maximum(x, y),
    "minimum, number": lambda x, y, p, m, i: x.clamp(max=0.0),
    "clamp": lambda x, y, p, m, i: x.clamp(-0.5, 0.5),
    "abs": lambda x, y, p, m, i: -x.abs(),
    "relu": lambda x, y, p, m, i: x.relu(),
    "exp": lambda x, y, p, m, i: x.exp(),
    "log": lambda x, y, p, m, i: x.log(),
    "sqrt, rsqrt": lambda x, y, p, m, i: p.sqrt() + p.rsqrt(),
    "sin": lambda x, y, p, m, i: x.sin(),
    "tanh": lambda x, y, p, m, i: x.tanh(),
    "sigmoid": lambda x, y, p, m, i: x.sigmoid(),
    "gelu": lambda x, y, p, m, i: functional.gelu(x),
    "silu": lambda x, y, p, m, i: functional.silu(x),
    "erf": lambda x, y, p, m, i: x.erf(),
    "lgamma": lambda x, y, p, m, i: x.lgamma(),
    "sinc": lambda x, y, p, m, i: flow.sinc(x),
    "comparisons": lambda x, y, p, m, i: (x < y) ^ (x == 0.0),
    "isnan": lambda x, y, p, m, i: x.isnan(),
    "where": lambda x, y, p, m, i: flow.where(m, x, y),
    "where, number": lambda x, y, p, m, i: flow.where(m, 2.0, x),
    "masked_fill": lambda x, y, p, m, i: x.masked_fill(m, -1.0),
    "cast": lambda x, y, p, m, i: x.to(flow.float64),
    "cast to half": lambda x, y, p, m, i: x.to(flow.float16),
    "cast of integers": lambda x, y, p, m, i: i.to(flow.float32),
    "copy": lambda x, y, p, m, i: x.clone(),
    "transposed copy": lambda x, y, p, m, i: x.transpose(0, -1).contiguous(),
    "copied into": lambda x, y, p, m, i: flow.zeros(x.shape).copy_(y),
    "a 0-d operand": lambda x, y, p, m, i: x * y.reshape(-1)[0],
    "complex": lambda x, y, p, m, i: (flow.complex(x, p) * flow.complex(p, x)).abs(),
    "in place": lambda x, y, p, m, i: x.clone().mul_(2).add_(y),
    "in place, shifted": lambda x, y, p, m, i: _shifted(x),
    "in place, own element": lambda x, y, p, m, i: _own_element(x),
    "out": lambda x, y, p, m, i: flow.add(x, y, out=flow.empty(x.shape)),
    "out with gaps": lambda x, y, p, m, i: _with_gaps(x),
}


def _shifted(x: flow.Tensor) -> flow.Tensor:
    """Each element is added to the next one, which is read before it is written."""
    flat = x.clone().reshape(-1)
    flat[1:] += flat[:-1]
    return flat


def _own_element(x: flow.Tensor) -> flow.Tensor:
    flat = x.clone().reshape(-1)
    flat += flat[flat.numel() // 2 : flat.numel() // 2 + 1]
    return flat


def _with_gaps(x: flow.Tensor) -> flow.Tensor:
    wide = flow.zeros(*x.shape, 2)
    wide[..., 0] = x
    wide[..., 1].add_(x)
    return wide


SHAPES: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = (
    ((2 * WORTH,), (2 * WORTH,)),
    ((2 * WORTH + 1,), (1,)),
    ((8 * WORTH - 1,), (8 * WORTH - 1,)),
    ((40, 50), (50,)),
    ((40, 50), (40, 1)),
    ((1, 3000), (1, 3000)),
    ((2, 1500), (2, 1)),
    ((1, 3, 700), (3, 1)),
    ((1500, 2), (1, 2)),
    ((7, 11, 13, 3), (11, 1, 3)),
)


def _operands(one: tuple[int, ...], other: tuple[int, ...], seed: int = 0) -> list[flow.Tensor]:
    x, y = numbers(one, seed=seed), numbers(other, seed=seed + 1)
    mask, whole = numbers(one, "bool", seed + 2), numbers(one, "int64", seed + 3)
    return [flow.tensor(value) for value in (x, y, np.abs(x), mask, whole)]


@pytest.mark.parametrize("shapes", SHAPES)
def test_elementwise_ops(shapes: tuple[tuple[int, ...], tuple[int, ...]], cuts: list[int]) -> None:
    operands = _operands(*shapes)
    check(lambda: [op(*operands).numpy() for op in ELEMENTWISE.values()], cuts)


@pytest.mark.parametrize("name", [value for value in ELEMENTWISE if value != "out with gaps"])
def test_each_is_cut(name: str, cuts: list[int]) -> None:
    operands = _operands((64, 128), (128,))
    check(lambda: [ELEMENTWISE[name](*operands).numpy()], cuts)


# A number, on either side of a tensor.
WITH_A_NUMBER: dict[str, Callable[[Any, Any], flow.Tensor]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": operator.truediv,
    "floor": operator.floordiv,
    "remainder": operator.mod,
    "pow": operator.pow,
    "less": operator.lt,
    "equal": operator.eq,
    "and": operator.and_,
    "shift": operator.lshift,
}
DTYPES = ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", WITH_A_NUMBER)
def test_a_number_on_either_side(name: str, dtype: str, cuts: list[int]) -> None:
    """The op may compute in another dtype than the tensor, whose pieces are read in its own dtype."""
    compute, tensor = WITH_A_NUMBER[name], flow.tensor(abs(numbers((40, 50), "int64")) + 1).to(getattr(flow, dtype))
    for number in (3, 1.5, True):
        for operands in ((number, tensor), (tensor, number)):
            flow.set_num_threads(1)
            try:
                compute(*operands)
            except (TypeError, ValueError, ZeroDivisionError):
                continue
            check(partial(_computed, compute, *operands), cuts, cut=False)


def _computed(compute: Callable[[Any, Any], flow.Tensor], one: Any, other: Any) -> list[Array]:
    return [compute(one, other).numpy()]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    shape=st.lists(st.integers(1, 40), min_size=1, max_size=4),
    ones=st.integers(0, 15),
    missing=st.integers(0, 3),
    name=st.sampled_from(sorted(ELEMENTWISE)),
    layout=st.sampled_from(["whole", "transposed", "with gaps", "backwards"]),
    seed=st.integers(0, 99),
)
def test_any_shape_and_layout(
    shape: list[int], ones: int, missing: int, name: str, layout: str, seed: int, cuts: list[int]
) -> None:
    if np.prod(shape) > 20000:
        shape = shape[:2]
    other = [1 if ones >> axis & 1 else size for axis, size in enumerate(shape)][missing % (len(shape) + 1) :]
    operands = _operands(tuple(shape), tuple(other), seed)
    if layout == "transposed":
        operands = [
            operand.transpose(0, -1).contiguous().transpose(0, -1) if operand.ndim == len(shape) else operand
            for operand in operands
        ]
    elif layout == "with gaps":
        operands = [flow.stack([operand, operand], -1)[..., 1] for operand in operands]
    elif layout == "backwards":
        operands = [operand.flip(0) if operand.ndim else operand for operand in operands]
    check(lambda: [ELEMENTWISE[name](*operands).numpy()], cuts, cut=False)


# Kernels that go by rows

ROWS: dict[str, Callable[[flow.Tensor], flow.Tensor]] = {
    "softmax": lambda x: functional.softmax(x, -1),
    "log_softmax": lambda x: functional.log_softmax(x, -1),
    "layer_norm": lambda x: functional.layer_norm(x, (x.shape[-1],), x[0], x[1]),
    "sum": lambda x: x.sum(-1),
    "mean": lambda x: x.mean(-1),
    "amax": lambda x: x.amax(-1, keepdim=True),
    "amin": lambda x: x.amin(-1),
    "prod": lambda x: x.prod(-1),
    "all": lambda x: (x > -3).all(-1),
    "any": lambda x: (x > 3).any(-1),
    "sum of integers": lambda x: (x * 100).to(flow.int64).sum(-1),
    "everything": lambda x: flow.stack([x.sum(), x.amax(), x.mean(), (x > 0).sum()]),
    "columns": lambda x: flow.stack([x.sum(0), x.amax(0)]),
    "norm": lambda x: x.norm(dim=-1),
    "var": lambda x: x.var(-1),
    "cumsum": lambda x: x.cumsum(-1),
    "logsumexp": lambda x: x.logsumexp(-1),
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(2, 4000), (63, 100), (64, 100), (130, 64), (3000, 3), (1, 9000), (257, 33)])
def test_rows(shape: tuple[int, int], dtype: str, cuts: list[int]) -> None:
    x = flow.tensor(np.random.default_rng(1).standard_normal(shape).astype(dtype))
    ops = {name: op for name, op in ROWS.items() if shape[0] > 1 or name != "layer_norm"}
    check(lambda: [op(x).numpy() for op in ops.values()], cuts)


@pytest.mark.parametrize("shape", [(64, 100), (200, 33), (129, 64)])
def test_gradients_of_rows(shape: tuple[int, int], cuts: list[int]) -> None:
    features = shape[1]
    target = flow.tensor(np.random.default_rng(2).integers(0, features, shape[0]))

    def compute() -> list[Array]:
        x, weight, bias, offset = (
            flow.tensor(np.random.default_rng(3).standard_normal(value).astype(np.float32)).requires_grad_()
            for value in (shape, (features,), (features,), (features,))
        )
        y = functional.layer_norm(x, (features,), weight, bias) + functional.softmax(x, -1) * functional.gelu(x)
        y = functional.linear(y.relu(), flow.eye(features), offset)
        loss = functional.cross_entropy(y, target) + functional.cross_entropy(y, target, reduction="sum")
        loss.backward()
        return [
            loss.detach().numpy(),
            *[tensor.grad.numpy() for tensor in (x, weight, bias, offset) if tensor.grad is not None],
        ]

    check(compute, cuts)


def test_several_dimensions_that_are_last(cuts: list[int]) -> None:
    x = flow.tensor(np.random.default_rng(4).standard_normal((30, 9, 17)).astype(np.float32))
    check(lambda: [x.amax((1, 2)).numpy(), x.amin((1, 2), keepdim=True).numpy(), x.amax((0, 1)).numpy()], cuts)


# Optimizers

OPTIMIZERS: dict[str, tuple[Any, dict[str, Any]]] = {
    "SGD": (flow.optim.SGD, {"lr": 0.1, "weight_decay": 0.1}),
    "momentum": (flow.optim.SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True}),
    "Adam": (flow.optim.Adam, {}),
    "AdamW": (flow.optim.AdamW, {"lr": 0.1}),
    "amsgrad": (flow.optim.Adam, {"amsgrad": True}),
    "NAdam": (flow.optim.NAdam, {}),
    "RMSprop": (flow.optim.RMSprop, {"momentum": 0.5}),
    "Adagrad": (flow.optim.Adagrad, {}),
}


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers(name: str, dtype: str, cuts: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    # numpy's kernels are cut at the borders of its own pieces.
    monkeypatch.setattr("vmflow.kernels.numpy.updates.pieces.PIECE", 64)
    kind, settings = OPTIMIZERS[name]

    def compute() -> list[Array]:
        random = np.random.default_rng(5)
        parameters = [
            flow.tensor(random.standard_normal(size).astype(dtype)).requires_grad_() for size in (4001, 3, (30, 70))
        ]
        optimizer = kind(parameters, **settings)
        for _ in range(2):
            for parameter in parameters:
                gradient = random.standard_normal(tuple(parameter.shape)).astype(dtype)
                parameter.grad = flow.tensor(gradient)
            optimizer.step()
        return [value.detach().numpy() for value in parameters]

    check(compute, cuts)


@pytest.mark.parametrize("name", ["SGD", "momentum", "Adam"])
def test_parameters_of_one_memory_have_their_steps_in_turn(name: str, cuts: list[int]) -> None:
    kind, settings = OPTIMIZERS[name]

    def compute() -> list[Array]:
        random = np.random.default_rng(5)
        memory = flow.tensor(random.standard_normal(6000).astype("float32"))
        parameters = [memory[start : start + 4000].detach().requires_grad_() for start in (0, 0, 1000, 2000)]
        for parameter in parameters:
            parameter.grad = flow.tensor(random.standard_normal(4000).astype("float32"))
        optimizer = kind(parameters, **settings)
        for _ in range(20):
            optimizer.step()
        return [memory.numpy()]

    check(compute, cuts, cut=False)


def test_gradients_in_the_memory_of_other_parameters(cuts: list[int]) -> None:
    def compute() -> list[Array]:
        random = np.random.default_rng(5)
        parameters = [flow.tensor(random.standard_normal(4000).astype("float32")).requires_grad_() for _ in range(4)]
        for number, parameter in enumerate(parameters):
            parameter.grad = parameters[number - 1].detach()
        optimizer = flow.optim.SGD(parameters, lr=0.1)
        for _ in range(20):
            optimizer.step()
        return [value.detach().numpy() for value in parameters]

    check(compute, cuts, cut=False)


# Graphs


class Chain(flow.nn.Graph):
    """Fused ops of every kind, with operands that broadcast, and several results."""

    def build(self, x: flow.Tensor, row: flow.Tensor, column: flow.Tensor) -> tuple[flow.Tensor, ...]:
        y = (x + row) * column - 0.5
        z = (y.exp() + 1).log() * flow.where(x > row, y, x)
        return y.relu() * z, z > 0


@pytest.mark.parametrize("shape", [(64, 128), (2, 5000), (5000, 2), (3, 40, 50), (1, 7777)])
def test_graphs(shape: tuple[int, ...], cuts: list[int]) -> None:
    operands = [flow.tensor(numbers(value, seed=6)) for value in (shape, shape[-1:], (*shape[:-1], 1))]
    graph = Chain()

    def compute() -> list[Array]:
        return [tensor.numpy() for tensor in graph(*operands)]

    # The same graph, whose calls are bound anew for each number.
    check(compute, cuts)


def test_a_training_step(cuts: list[int]) -> None:
    def compute() -> list[Array]:
        flow.manual_seed(0)
        model = flow.nn.Sequential(
            flow.nn.Linear(64, 64), flow.nn.LayerNorm(64), flow.nn.GELU(), flow.nn.Linear(64, 64)
        )
        optimizer = flow.optim.Adam(model.parameters())

        class Step(flow.nn.Graph):
            def __init__(self) -> None:
                super().__init__()
                self.model = model
                self.add_optimizer(optimizer)

            def build(self, x: flow.Tensor, target: flow.Tensor) -> flow.Tensor:
                loss = functional.cross_entropy(self.model(x), target)
                loss.backward()
                return loss

        step = Step()
        x, target = flow.randn(200, 64), flow.randint(0, 64, (200,))
        losses = [step(x, target).numpy() for _ in range(3)]
        return [*losses, *[parameter.detach().numpy() for parameter in model.parameters()]]

    check(compute, cuts)
