"""Random numbers of CUDA devices: kernels that draw them, from any place in a sequence, into memory of any layout."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import vmflow as flow
from vmflow import interpreter
from vmflow.dtypes import by_name
from vmflow.instructions.blob import meta
from vmflow.kernels.choosing import Problem, choose
from vmflow.multi_tensor import Update, issue_update
from vmflow.ops.table import OPS

from .comparing import equal, results
from .compiling import ARCHITECTURES, check_usage, loaded_kernels
from .emulated import emulated

pytestmark = [pytest.mark.emulated, pytest.mark.host]

_SEED, _OFFSET = 0xFEDCBA9876543210, (1 << 64) - 3

# Dtype and further attributes of ops without operands.
DRAWS: dict[str, tuple[str, tuple[Any, ...]]] = {
    "rand": ("float32", ()),
    "randn": ("float64", ()),
    "exponential": ("float32", ()),
    "randint": ("int64", (-5, 1 << 40)),
    "randperm": ("int64", ()),
    "trunc_normal_": ("float64", (0.0, 1.0, -2.0, 2.0)),
}

# Numbers with logarithms of the device's library.
_ROUNDED = {"trunc_normal_", "poisson", "standard_gamma"}


def _attributes(op: str, shape: tuple[int, ...], dtype: str, device: str, more: Sequence[Any] = ()) -> tuple[Any, ...]:
    return (meta(shape, by_name(dtype), flow.device(device)), *more)


def _on_cpu(op: str, shape: tuple[int, ...], seed: int = _SEED, offset: int = _OFFSET) -> NDArray[Any]:
    dtype, more = DRAWS[op]
    return results(op, (), _attributes(op, shape, dtype, "cpu", more), (seed, offset))[0]


def _drawn_into(op: str, out: flow.Tensor, *place: Any) -> None:
    """Draw into memory that is there already, from a place whose seed and offset may be tensors."""
    dtype, more = DRAWS[op]
    attributes = _attributes(op, tuple(out.shape), dtype, "cuda:0", more)
    problem = Problem(op, OPS[op].family, attributes, (), (int, int), (attributes[0],), None)
    kernel = choose(problem, out.device)
    tensors = [number for number in place if isinstance(number, flow.Tensor)]

    def draw(inputs: list[Any], outputs: list[Any]) -> None:
        given = iter(inputs)
        kernel.function(*[next(given) if isinstance(number, flow.Tensor) else number for number in place], outputs[0])

    issue_update(Update(op, draw, tensors, [out], 1))


@pytest.mark.parametrize("op", DRAWS)
def test_places_in_a_sequence_may_be_in_the_memory_of_the_device(op: str) -> None:
    expected, next_ones = [_on_cpu(op, (37,), _SEED, _OFFSET + drawn & (1 << 64) - 1) for drawn in (0, 37)]
    exact = op not in _ROUNDED
    with emulated("lazy"):
        out = flow.empty(37, dtype=by_name(DRAWS[op][0]), device="cuda")
        seed = flow.tensor(_SEED - (1 << 64), device="cuda")
        offset = flow.tensor(_OFFSET - (1 << 64), device="cuda")
        for place in ((_SEED, _OFFSET), (seed, offset), (_SEED, offset), (seed, _OFFSET)):
            out.fill_(0)
            _drawn_into(op, out, *place)
            equal(out.cpu().numpy(), expected, exact=exact)
        offset.add_(37)
        _drawn_into(op, out, seed, offset)
        equal(out.cpu().numpy(), next_ones, exact=exact)


@pytest.mark.parametrize("op", DRAWS)
def test_numbers_are_drawn_into_memory_of_any_layout(op: str) -> None:
    shape = (30,) if op == "randperm" else (5, 6)
    expected = _on_cpu(op, shape)
    with emulated("lazy"):
        memory = flow.zeros(200, dtype=by_name(DRAWS[op][0]), device="cuda")
        flat = memory[1:31].reshape(shape)  # not where several numbers can be stored together
        apart = memory[40:100:2] if op == "randperm" else memory[40:70].reshape(6, 5).t()
        for out in (flat, apart):
            _drawn_into(op, out, _SEED, _OFFSET)
            equal(out.cpu().numpy(), expected, exact=op not in _ROUNDED)
        around = memory.cpu().numpy()[[0, 31, 39, 100]]
        assert not around.any()


@pytest.mark.parametrize("count", [3, 1024, 1025, 5000])
def test_permutations_longer_than_the_rows_that_a_block_sorts(count: int) -> None:
    expected = _on_cpu("randperm", (count,))
    with emulated("random", 2):
        out = flow.empty(count, dtype=flow.int64, device="cuda")
        _drawn_into("randperm", out, _SEED, _OFFSET)
        np.testing.assert_array_equal(out.cpu().numpy(), expected)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64", "uint8"])
def test_permutations_of_other_dtypes(dtype: str) -> None:
    flow.manual_seed(0)
    expected = flow.randperm(40, dtype=by_name(dtype), device="cpu").numpy()
    with emulated("lazy"):
        flow.manual_seed(0)
        equal(flow.randperm(40, dtype=by_name(dtype), device="cuda").cpu().numpy(), expected, exact=True)


def _chosen(
    op: str, operand: NDArray[Any], device: str, shape: tuple[int, ...], dtype: str, *more: Any
) -> NDArray[Any]:
    tensor = flow.tensor(operand, device=device)
    return results(op, (tensor,), _attributes(op, shape, dtype, device, more), (_SEED, _OFFSET))[0]


@pytest.mark.parametrize("given", ["float16", "bfloat16", "float32", "float64"])
def test_choices_by_probabilities_of_any_dtype(given: str) -> None:
    numbers = by_name(given).numpy
    probabilities = np.linspace(0, 1, 35).reshape(7, 5).astype(numbers)
    weights = np.random.default_rng(0).uniform(0, 3, (3, 300)).round().astype(numbers)  # many are 0, or the same
    cases: list[tuple[Any, ...]] = [
        ("bernoulli", probabilities.T, (5, 7), given),
        ("multinomial", weights, (3, 50), "int64", True),
        ("multinomial", weights, (3, 120), "int64", False),
        ("multinomial", weights[0], (120,), "int64", False),
    ]
    for op, operand, shape, dtype, *more in cases:
        expected = _chosen(op, operand, "cpu", shape, dtype, *more)
        with emulated("lazy"):
            equal(_chosen(op, operand, "cuda:0", shape, dtype, *more), expected, exact=True)


@pytest.mark.parametrize(
    ("op", "dtype", "more", "wrong", "message"),
    [
        ("bernoulli", "float32", (), (1.5, -0.1, np.nan), "a probability is not within"),
        ("multinomial", "int64", (True,), (-1.0, np.inf, np.nan), "the weights of each row"),
        ("multinomial", "int64", (False,), (-1.0, np.inf, np.nan), "the weights of each row"),
        ("poisson", "float32", (), (-1.0, np.inf, np.nan), "the rates must be finite"),
        ("standard_gamma", "float32", (), (0.0, -1.0, np.inf, np.nan), "the concentrations must be finite"),
    ],
)
def test_operands_that_are_wrong(
    op: str, dtype: str, more: tuple[Any, ...], wrong: Sequence[float], message: str
) -> None:
    with emulated("lazy"):
        for value in wrong:
            operand = np.full((2, 9), 0.5, np.float32)
            operand[1, 7] = value
            with pytest.raises(ValueError, match=message):
                _chosen(op, operand, "cuda:0", (2, 9), dtype, *more)
        if op == "multinomial":
            with pytest.raises(ValueError, match=message):
                _chosen(op, np.array([[1, 0], [0, 0]], np.float32), "cuda:0", (2, 2), dtype, *more)
        assert _chosen(op, np.full((2, 9), 0.5, np.float32), "cuda:0", (2, 9), dtype, *more).shape == (2, 9)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "complex64"])
@pytest.mark.parametrize("p", [0.5, 0.3, 1 - 2.0**-14])
def test_dropout_of_any_layout(dtype: str, p: float) -> None:
    numbers = np.random.default_rng(1).standard_normal((12, 11))
    array = (numbers + 1j * numbers if dtype == "complex64" else numbers).astype(by_name(dtype).numpy)

    def both(device: str, lay: Any) -> list[NDArray[Any]]:
        x = lay(flow.tensor(array, device=device))
        y, kept = interpreter.dispatch_several(OPS["dropout"], (x,), (p,), (_SEED, _OFFSET))
        (slope,) = interpreter.dispatch_several(OPS["dropout_gradient"], (x, kept), (p,))
        return [tensor.cpu().numpy() for tensor in (y, kept, slope)]

    for lay in (lambda x: x, lambda x: x.t(), lambda x: x[1:, :7], lambda x: x.reshape(-1)[1:]):
        expected = both("cpu", lay)
        with emulated("lazy"):
            for have, want in zip(both("cuda", lay), expected, strict=True):
                equal(have, want, exact=True)


def test_sixteen_bits_that_do_not_decide() -> None:
    """A probability below 2**-16 is in the rest alone: of so many elements about one has bits that equal its limit."""
    x = np.ones(1 << 18, np.float32)
    for seed, p in ((3, 2.0**-17), (5, 1.5 * 2.0**-16)):
        kept = results("dropout", (flow.tensor(x, device="cpu"),), (p,), (seed, 0))[1]
        assert 0 < np.count_nonzero(~kept) < 20
        with emulated("lazy"):
            found = results("dropout", (flow.tensor(x, device="cuda"),), (p,), (seed, 0))[1]
        np.testing.assert_array_equal(found, kept)


IN_GRAPHS: dict[str, Callable[[flow.Tensor], flow.Tensor]] = {
    "normal": lambda x: x + flow.randn(40, device="cuda"),
    "integers": lambda x: x + flow.randint(-9, 9, (40,), device="cuda"),
    "permutation": lambda x: x + flow.randperm(40, device="cuda"),
    "exponential": lambda x: flow.empty_like(x).exponential_(),
    "bernoulli": lambda x: flow.bernoulli(x),
    "multinomial": lambda x: flow.multinomial(x, 5),
    "poisson": lambda x: flow.poisson(20 * x),
    "dropout": lambda x: flow.nn.functional.dropout(x, 0.4),
}


@pytest.mark.parametrize("name", IN_GRAPHS)
def test_each_replay_of_a_graph_draws_anew(name: str) -> None:
    function = IN_GRAPHS[name]
    with emulated("random", 3) as devices:
        graph = flow.nn.Graph.trace(function)
        x = flow.full((40,), 0.5, device="cuda")
        flow.manual_seed(7)
        found = [graph(x).tolist() for _ in range(4)]
        assert devices.driver.graphs == 3
        flow.manual_seed(7)
        assert found == [function(x).tolist() for _ in range(4)]
        assert found[2] != found[3]


def test_no_function_of_numpy_stands_in() -> None:
    with emulated("lazy") as devices:
        x = flow.full((40,), 0.5, device="cuda")
        flow.synchronize()
        before = devices.driver.launches
        results("dropout", (x,), (0.5,), (_SEED, _OFFSET))
        assert devices.driver.launches == before + 1
        results("bernoulli", (x,), _attributes("bernoulli", (40,), "float32", "cuda:0"), (_SEED, _OFFSET))
        assert devices.driver.launches == before + 2
        results("rand", (), _attributes("rand", (40,), "float32", "cuda:0"), (_SEED, _OFFSET))
        assert devices.driver.launches == before + 3


@pytest.mark.slow
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_kernels_compile_for_gpus_without_spills(architecture: int) -> None:
    with emulated("lazy"):
        for dtype in ("float16", "float32", "float64", "complex128"):
            x = flow.ones(40, dtype=by_name(dtype), device="cuda")
            results("dropout", (x,), (0.3,), (_SEED, _OFFSET))
            for op in ("rand", "randn"):
                results(op, (), _attributes(op, (40,), dtype, "cuda:0"), (_SEED, _OFFSET))
        for op, (dtype, more) in DRAWS.items():
            results(op, (), _attributes(op, (2000,), dtype, "cuda:0", more), (_SEED, _OFFSET))
        for op in ("bernoulli", "poisson", "standard_gamma"):
            _chosen(op, np.full(9, 0.5), "cuda:0", (9,), "float64")
        for replacement in (True, False):
            _chosen("multinomial", np.full((2, 9), 0.5), "cuda:0", (2, 3), "int64", replacement)
        kernels = loaded_kernels()
    assert len(kernels) > 20
    check_usage(kernels, architecture)
