"""Random numbers: they depend on the seed and the order of issue alone, and are distributed as they should be."""

from __future__ import annotations

import asyncio
import math
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import vmflow as flow
from tests.ops.oracle import INTEGERS, REAL, KernelContract
from tests.support import Array
from vmflow.random import Generator, standard_gamma

DRAWS: list[tuple[str, Callable[[Generator | None], flow.Tensor]]] = [
    ("randn", lambda source: flow.randn(3, 4, generator=source)),
    ("rand", lambda source: flow.rand(7, generator=source)),
    ("randint", lambda source: flow.randint(0, 1000, (5,), generator=source)),
    ("randperm", lambda source: flow.randperm(20, generator=source)),
    ("normal", lambda source: flow.normal(1.0, 2.0, (4,), generator=source)),
    ("bernoulli", lambda source: flow.bernoulli(flow.full((30,), 0.5), generator=source)),
    ("multinomial", lambda source: flow.multinomial(flow.ones(20), 10, generator=source)),
    ("poisson", lambda source: flow.poisson(flow.full((20,), 4.0), source)),
    ("gamma", lambda source: standard_gamma(flow.full((7,), 0.7), source)),
    ("exponential_", lambda source: flow.zeros(4).exponential_(generator=source)),
    ("normal_", lambda source: flow.zeros(4).normal_(generator=source)),
    ("uniform_", lambda source: flow.zeros(4).uniform_(generator=source)),
    ("bernoulli_", lambda source: flow.zeros(30).bernoulli_(generator=source)),
]
NAMES = [name for name, _ in DRAWS]


@pytest.fixture
def contract() -> Any:
    with KernelContract().entered() as entered:
        yield entered


def _numbers(tensor: flow.Tensor) -> Array:
    array = tensor.numpy()
    return np.asarray(array, np.complex128 if array.dtype.kind == "c" else np.float64)


# Dependence on seeds, devices and threads


@pytest.mark.parametrize(("name", "draw"), DRAWS, ids=NAMES)
def test_one_seed_gives_one_sequence(name: str, draw: Callable[[Generator | None], flow.Tensor]) -> None:
    first, second = Generator().manual_seed(5), Generator().manual_seed(5)
    other = Generator().manual_seed(6)
    sequence = [_numbers(draw(first)) for _ in range(3)]
    for numbers in sequence:
        np.testing.assert_array_equal(_numbers(draw(second)), numbers)
    assert any((_numbers(draw(other)) != numbers).any() for numbers in sequence)
    assert (sequence[0] != sequence[1]).any()


@pytest.mark.parametrize(("name", "draw"), DRAWS, ids=NAMES)
def test_generators_do_not_interfere(name: str, draw: Callable[[Generator | None], flow.Tensor]) -> None:
    alone = Generator().manual_seed(1)
    expected = [_numbers(draw(alone)) for _ in range(3)]
    left, right = Generator().manual_seed(1), Generator().manual_seed(2)
    flow.manual_seed(1)
    for numbers in expected:
        draw(right)
        draw(None)
        np.testing.assert_array_equal(_numbers(draw(left)), numbers)


def test_the_order_of_issue_decides_not_that_of_running_or_reading() -> None:
    flow.manual_seed(3)
    expected = [_numbers(flow.randn(1000)) for _ in range(4)]
    flow.manual_seed(3)
    unread = [flow.randn(1000) for _ in range(4)]
    for tensor, numbers in reversed(list(zip(unread, expected, strict=True))):
        np.testing.assert_array_equal(_numbers(tensor), numbers)


def test_large_draws_on_the_worker_and_small_ones_between() -> None:
    def drawn(read: bool) -> list[Array]:
        flow.manual_seed(9)
        tensors = []
        for size in (300_000, 3, 300_000, 5):
            tensors.append(flow.randn(size))
            if read:
                tensors[-1].numpy()
        return [_numbers(tensor) for tensor in tensors]

    for one, other in zip(drawn(True), drawn(False), strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_thread_draws_the_numbers_the_main_thread_would() -> None:
    flow.manual_seed(4)
    expected = [_numbers(flow.randn(5)) for _ in range(3)]
    flow.manual_seed(4)
    found = [_numbers(flow.randn(5))]
    thread = threading.Thread(target=lambda: found.append(_numbers(flow.randn(5))))
    thread.start()
    thread.join()
    found.append(_numbers(flow.randn(5)))
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


def test_threads_take_stretches_that_do_not_overlap() -> None:
    flow.manual_seed(8)
    drawn: list[Array] = []

    def draw() -> None:
        for _ in range(20):
            drawn.append(_numbers(flow.rand(50, dtype=flow.float64)))

    threads = [threading.Thread(target=draw) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    together = np.concatenate(drawn)
    assert len(np.unique(together)) == together.size
    flow.manual_seed(8)
    expected = np.concatenate([_numbers(flow.rand(50, dtype=flow.float64)) for _ in range(80)])
    np.testing.assert_array_equal(np.sort(together), np.sort(expected))


async def test_tasks_share_the_default_generator_in_the_order_of_issue() -> None:
    flow.manual_seed(2)
    expected = [_numbers(await flow.randn(3)) for _ in range(4)]
    flow.manual_seed(2)

    async def draw() -> Array:
        return _numbers(await flow.randn(3))

    for one, other in zip(await asyncio.gather(*[draw() for _ in range(4)]), expected, strict=True):
        np.testing.assert_array_equal(one, other)


def test_another_run_of_the_program_draws_the_same() -> None:
    program = (
        "import vmflow as flow; flow.manual_seed(123); "
        "print(flow.randn(3, dtype=flow.float64).tolist(), flow.randint(100, (4,)).tolist(), flow.randperm(6).tolist())"
    )
    flow.manual_seed(123)
    expected = (
        f"{flow.randn(3, dtype=flow.float64).tolist()} {flow.randint(100, (4,)).tolist()} {flow.randperm(6).tolist()}"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert found.stdout.strip() == expected


def test_numbers_are_these_and_stay_these() -> None:
    """A change of the numbers would change every program that sets a seed."""
    words = [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]  # of Philox 4x32-10 for the key 0 and the counter 0
    flow.manual_seed(0)
    assert flow.rand(4).tolist() == [(word >> 8) * 2.0**-24 for word in words]
    flow.manual_seed(0)
    wide = [words[0] | words[1] << 32, words[2] | words[3] << 32]
    assert flow.rand(2, dtype=flow.float64).tolist() == [(word >> 11) * 2.0**-53 for word in wide]
    flow.manual_seed(0)
    assert flow.randint(0, 1000, (2,)).tolist() == [word * 1000 >> 64 for word in wide]
    flow.manual_seed(0)
    expected = []
    for one, other in (words[:2], words[2:]):
        radius, angle = math.sqrt(-2 * math.log((one + 0.5) * 2.0**-32)), other * 2 * math.pi / 2**32
        expected += [radius * math.cos(angle), radius * math.sin(angle)]
    np.testing.assert_allclose(flow.randn(4).numpy(), expected, rtol=1e-6)


# Seeds and states


def test_seeds() -> None:
    source = Generator()
    assert source.manual_seed(7) is source
    assert source.initial_seed() == 7
    assert source.manual_seed(-1).initial_seed() == (1 << 64) - 1
    assert source.manual_seed((1 << 64) - 1).initial_seed() == (1 << 64) - 1
    assert source.seed() == source.initial_seed()
    assert Generator().initial_seed() != Generator().initial_seed()
    assert source.manual_seed(np.int64(3)).initial_seed() == 3  # type: ignore[arg-type]
    assert flow.manual_seed(11) is flow.default_generator
    assert flow.initial_seed() == 11
    assert flow.seed() == flow.initial_seed()
    assert "seed=7" in repr(Generator().manual_seed(7))
    assert source.device is flow.device("cpu")
    for wrong in (1.5, "1", True, None):
        with pytest.raises(TypeError, match="must be an integer"):
            source.manual_seed(wrong)  # type: ignore[arg-type]
    for wrong in (1 << 64, -(1 << 63) - 1):
        with pytest.raises(ValueError, match="must fit into 64 bits"):
            source.manual_seed(wrong)
    with pytest.raises(TypeError, match=r"expected a vmflow\.Generator"):
        flow.randn(2, generator=np.random.default_rng())  # type: ignore[arg-type]


def test_states_of_earlier_versions_are_refused() -> None:
    source = Generator().manual_seed(3)
    old = flow.tensor(list((7).to_bytes(16, "little") + (9).to_bytes(16, "little")), dtype=flow.uint8)
    with pytest.raises(ValueError, match="from an earlier version of vmflow, which drew other numbers"):
        source.set_state(old)
    with pytest.raises(ValueError, match="no state of a generator"):
        source.set_state(flow.full((32,), 255, dtype=flow.uint8))
    old_pickle = (
        b"\x80\x02cvmflow.random\n_rebuild_generator\n(cvmflow.devices\ndevice\nX\x03\x00\x00\x00cpu\x85RK\x07K\x09tR."
    )
    with pytest.raises(ValueError, match="from an earlier version of vmflow"):
        pickle.loads(old_pickle)
    assert source.initial_seed() == 3


def test_states() -> None:
    source = Generator().manual_seed(3)
    flow.randn(5, generator=source)
    state = source.get_state()
    assert state.dtype is flow.uint8
    assert state.shape == (32,)
    expected = _numbers(flow.randn(5, generator=source))
    assert (_numbers(flow.randn(5, generator=source)) != expected).any()
    assert source.set_state(state) is source
    np.testing.assert_array_equal(_numbers(flow.randn(5, generator=source)), expected)
    np.testing.assert_array_equal(_numbers(flow.randn(5, generator=Generator().set_state(state))), expected)
    flow.manual_seed(3)
    before = flow.get_rng_state()
    expected = _numbers(flow.rand(3))
    flow.set_rng_state(before)
    np.testing.assert_array_equal(_numbers(flow.rand(3)), expected)
    for wrong in (state[:16], state.float(), flow.zeros(8)):
        with pytest.raises(ValueError, match="expected the 32 bytes"):
            source.set_state(wrong)
    with pytest.raises(TypeError, match="set_state: expected tensors, got bytes"):
        source.set_state(b"")  # type: ignore[arg-type]


def test_fork_rng() -> None:
    flow.manual_seed(1)
    flow.randn(2)
    with flow.fork_rng() as inner:
        forked = _numbers(flow.randn(4))
        assert _numbers(flow.randn(4, generator=inner)).shape == (4,)
        flow.manual_seed(77)
        flow.rand(100)
        assert flow.default_generator.initial_seed() == 1
    np.testing.assert_array_equal(_numbers(flow.randn(4)), forked)
    with pytest.raises(KeyError), flow.fork_rng():
        raise KeyError
    assert flow.manual_seed(1) is flow.default_generator


async def test_fork_rng_is_of_one_task() -> None:
    flow.manual_seed(1)
    expected = _numbers(await flow.randn(4))
    flow.manual_seed(1)
    entered, leave = asyncio.Event(), asyncio.Event()

    async def forked() -> None:
        with flow.fork_rng():
            flow.manual_seed(5)
            flow.randn(10)
            entered.set()
            await leave.wait()

    task = asyncio.create_task(forked())
    await entered.wait()
    np.testing.assert_array_equal(_numbers(await flow.randn(4)), expected)
    leave.set()
    await task


# Dtypes, shapes, limits


def test_dtypes_and_shapes(contract: KernelContract) -> None:
    for dtype in (*REAL, "complex64", "complex128"):
        for function in (flow.randn, flow.rand):
            for shape in ((), (0,), (2, 0), (3, 4)):
                found = function(*shape or ((),), dtype=getattr(flow, dtype))
                assert found.shape == shape
                assert found.dtype is getattr(flow, dtype)
                assert np.isfinite(_numbers(found)).all()
    for dtype in (*REAL, *INTEGERS, "bool"):
        assert flow.randint(0, 2, (3,), dtype=getattr(flow, dtype)).dtype is getattr(flow, dtype)
    for dtype in (*REAL, *INTEGERS):
        assert flow.randperm(5, dtype=getattr(flow, dtype)).dtype is getattr(flow, dtype)
    assert flow.randn(size=(2, 3)).shape == (2, 3)
    assert flow.rand([4]).shape == (4,)
    assert flow.randn(3, requires_grad=True).requires_grad
    source = flow.zeros(2, 3, dtype=flow.float64)
    assert flow.randn_like(source).dtype is flow.float64
    assert flow.rand_like(source, dtype=flow.float32).shape == (2, 3)
    assert flow.randperm(0).shape == (0,)
    assert len(set(flow.randperm(2049, dtype=flow.float16).tolist())) == 2049
    assert flow.bernoulli(source).dtype is flow.float64
    assert flow.multinomial(flow.ones(3, 5), 2).shape == (3, 2)
    assert flow.multinomial(flow.ones(5), 8, replacement=True).shape == (8,)
    assert flow.normal(flow.zeros(3), flow.ones(2, 1)).shape == (2, 3)
    assert flow.normal(flow.zeros(3, dtype=flow.float64)).dtype is flow.float64
    assert flow.normal(0.0, flow.ones(2)).shape == (2,)


def test_forms_of_randint() -> None:
    assert flow.randint(5, (3,)).shape == (3,)
    assert flow.randint(2, 5, (3,)).shape == (3,)
    assert flow.randint(5, size=(3,)).shape == (3,)
    assert flow.randint(high=5, size=(3,)).shape == (3,)
    assert flow.randint(low=2, high=3, size=[3]).tolist() == [2, 2, 2]
    assert flow.randint(-(1 << 63), (1 << 63) - 1, (2,)).dtype is flow.int64
    assert flow.randint(np.int64(3), (2,)).shape == (2,)
    assert flow.randint_like(flow.zeros(2), flow.tensor(2), flow.tensor(3)).tolist() == [2, 2]
    assert flow.zeros(2, 3).bernoulli_(flow.tensor([0.0, 1.0, 0.0])).tolist() == [[0, 1, 0]] * 2


def test_writing_in_place_through_views(contract: KernelContract) -> None:
    tensor = flow.zeros(4, 4)
    flow.manual_seed(0)
    tensor[:, ::2].normal_()
    found = tensor.numpy()
    assert (found[:, ::2] != 0).all()
    assert (found[:, 1::2] == 0).all()
    flow.manual_seed(0)
    np.testing.assert_array_equal(found[:, ::2], flow.randn(4, 2).numpy())
    assert tensor.uniform_(2, 3).min().item() >= 2
    leaf = flow.zeros(3, requires_grad=True)
    with pytest.raises(RuntimeError, match="a leaf tensor that requires a gradient"):
        leaf.normal_()
    with flow.no_grad():
        assert leaf.normal_() is leaf
    product = leaf * 2
    product.normal_()
    (product * leaf).sum().backward()
    np.testing.assert_array_equal(leaf.grad.numpy(), product.detach().numpy())  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: flow.randn(2, dtype=flow.int64), TypeError, "randn: expected a floating-point or complex dtype"),
        (lambda: flow.rand(2, dtype=flow.bool), TypeError, "rand: expected a floating-point"),
        (lambda: flow.randn_like(flow.ones(2, dtype=flow.int64)), TypeError, "randn_like: expected a floating-point"),
        (lambda: flow.rand_like(flow.ones(2), dtype=flow.int8), TypeError, "rand_like: expected a floating-point"),
        (lambda: flow.randn(-1), ValueError, "cannot be negative"),
        (lambda: flow.randn(2.0), TypeError, "sizes are integers"),
        (lambda: flow.randn(), TypeError, "expected sizes"),
        (lambda: flow.randint(5, 5, (2,)), ValueError, "there is no integer from 5"),
        (lambda: flow.randint(5), TypeError, "expected integers"),
        (lambda: flow.randint(2.5, (2,)), TypeError, "expected integers"),
        (lambda: flow.randint(0, 300, (2,), dtype=flow.uint8), ValueError, "299 does not fit into uint8"),
        (lambda: flow.randint(-1, 3, (2,), dtype=flow.uint8), ValueError, "-1 does not fit into uint8"),
        (lambda: flow.randint(0, 3, (2,), dtype=flow.bool), ValueError, "2 does not fit into bool"),
        (lambda: flow.randint(3, (2,), dtype=flow.complex64), TypeError, "randint is not defined for complex64"),
        (
            lambda: flow.randint_like(flow.ones(2, dtype=flow.complex128), 3),
            TypeError,
            "randint_like is not defined for complex128",
        ),
        (lambda: flow.randperm(-1), ValueError, "cannot be negative"),
        (lambda: flow.randperm(300, dtype=flow.uint8), ValueError, "299 does not fit into uint8"),
        (lambda: flow.randperm(2050, dtype=flow.float16), ValueError, "float16 does not hold all integers below 2050"),
        (lambda: flow.normal(0.0, -1.0, (2,)), ValueError, "cannot be negative"),
        (lambda: flow.normal(0.0, 1.0), TypeError, "give a size"),
        (lambda: flow.normal(flow.zeros(2), 1.0, (2,)), TypeError, "and none if one is a tensor"),
        (lambda: flow.normal(flow.zeros(2), flow.ones(3)), ValueError, "do not broadcast"),
        (lambda: flow.bernoulli(flow.ones(2, dtype=flow.int64)), TypeError, "must be floating-point"),
        (lambda: flow.bernoulli(flow.ones(2), 1.5), ValueError, r"within \[0, 1\]"),
        (lambda: flow.bernoulli(flow.tensor([0.5, 2.0])).numpy(), ValueError, "not within"),
        (lambda: flow.bernoulli(flow.tensor([math.nan])).numpy(), ValueError, "not within"),
        (lambda: flow.multinomial(flow.ones(3), 4), ValueError, "cannot draw 4 of 3"),
        (lambda: flow.multinomial(flow.ones(3), 0), ValueError, "cannot draw 0 of 3"),
        (lambda: flow.multinomial(flow.ones(1, 1, 3), 1), ValueError, "expected weights of shape"),
        (lambda: flow.multinomial(flow.ones(3, 0), 1), ValueError, "expected weights of shape"),
        (lambda: flow.multinomial(flow.ones(3, dtype=flow.int64), 1), TypeError, "must be floating-point"),
        (lambda: flow.multinomial(flow.tensor([-1.0, 2.0]), 1).numpy(), ValueError, "not negative"),
        (lambda: flow.multinomial(flow.tensor([0.0, 0.0]), 1).numpy(), ValueError, "not all zero"),
        (lambda: flow.multinomial(flow.tensor([math.inf, 0.0]), 1).numpy(), ValueError, "must be finite"),
        (lambda: flow.zeros(2).normal_(0, -1), ValueError, "cannot be negative"),
        (lambda: flow.zeros(2, dtype=flow.int64).normal_(), TypeError, "normal_: expected a floating-point"),
        (lambda: flow.randperm(3, dtype=flow.bool), TypeError, "randperm is not defined for bool"),
        (lambda: flow.randperm(3, dtype=flow.complex64), TypeError, "randperm is not defined for complex64"),
        (lambda: flow.zeros(2, dtype=flow.complex64).bernoulli_(), TypeError, "bernoulli_ is not defined for"),
        (lambda: flow.zeros(2, dtype=flow.complex64).geometric_(0.5), TypeError, "geometric_ is not defined for"),
        (lambda: flow.zeros(2, dtype=flow.bool).geometric_(0.5), TypeError, "geometric_ is not defined for bool"),
        (lambda: flow.zeros(2).uniform_(1, 0), ValueError, "above the upper limit"),
        (lambda: flow.zeros(2, dtype=flow.int64).uniform_(), TypeError, "uniform_: expected a floating-point"),
        (lambda: flow.zeros(2, dtype=flow.float16).uniform_(1, 1e5), ValueError, "float16 does not hold 1.0, 100000.0"),
        (lambda: flow.zeros(2).bernoulli_(flow.ones(2).long()), TypeError, "must be floating-point"),
        (lambda: flow.zeros(2).bernoulli_(flow.tensor([0.0, 2.0])).numpy(), ValueError, r"not within \[0, 1\]"),
        (lambda: flow.zeros(2).bernoulli_(2), ValueError, r"within \[0, 1\]"),
        (lambda: flow.zeros(2).exponential_(0), ValueError, "exponential_: the rate must be positive, got 0"),
        (lambda: flow.zeros(2).exponential_(math.nan), ValueError, "the rate must be positive"),
        (lambda: flow.zeros(2, dtype=flow.int64).exponential_(), TypeError, "exponential_: expected a floating-point"),
        (lambda: flow.poisson(flow.ones(2, dtype=flow.int64)), TypeError, "poisson: expected a floating-point"),
        (lambda: flow.poisson(flow.tensor([-1.0])).numpy(), ValueError, "must be finite, and not negative"),
        (lambda: flow.poisson(flow.tensor([math.inf])).numpy(), ValueError, "must be finite, and not negative"),
        (lambda: standard_gamma(flow.tensor([0.0])).numpy(), ValueError, "must be finite and positive"),
    ],
)
def test_bad_arguments(call: Callable[[], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()


@pytest.mark.parametrize(
    ("name", "given", "argument"),
    [
        ("bernoulli", ["a"], "p"),
        ("bernoulli_", ["a"], "p"),
        ("cauchy_", ["a"], "median"),
        ("exponential_", ["a"], "lambd"),
        ("geometric_", ["a"], "p"),
        ("log_normal_", [0, "a"], "std"),
        ("normal_", [0, "a"], "std"),
        ("uniform_", [0, "a"], "to"),
    ],
)
def test_arguments_that_are_no_numbers(name: str, given: list[Any], argument: str) -> None:
    with pytest.raises(TypeError, match=f"{name}: {argument} must be a real number, not 'a'"):
        getattr(flow.zeros(2), name)(*given)


# Distributions, for seeds that are fixed: an assertion holds in all runs or in none

COUNT = 40_000


def _close(found: float, expected: float, spread: float) -> bool:
    """Within five standard errors of a mean of COUNT numbers with this standard deviation."""
    return abs(found - expected) < 5 * spread / math.sqrt(COUNT)


@pytest.mark.parametrize("dtype", REAL)
def test_normal_distribution(dtype: str) -> None:
    flow.manual_seed(10)
    numbers = _numbers(flow.randn(COUNT, dtype=getattr(flow, dtype)))
    assert _close(numbers.mean(), 0, 1)
    assert _close((numbers**2).mean(), 1, math.sqrt(2))
    assert _close((numbers**3).mean(), 0, math.sqrt(15))
    assert _close((np.abs(numbers) < 1).mean(), math.erf(math.sqrt(0.5)), 0.5)
    assert _close((numbers[1:] * numbers[:-1]).mean(), 0, 1)
    shifted = _numbers(flow.normal(3.0, 2.0, (COUNT,)))
    assert _close(shifted.mean(), 3, 2)
    assert _close(((shifted - 3) ** 2).mean(), 4, 4 * math.sqrt(2))
    filled = _numbers(flow.zeros(COUNT).normal_(-1, 0.5))
    assert _close(filled.mean(), -1, 0.5)


@pytest.mark.parametrize("dtype", REAL)
def test_uniform_distribution(dtype: str) -> None:
    flow.manual_seed(11)
    numbers = _numbers(flow.rand(COUNT, dtype=getattr(flow, dtype)))
    assert numbers.min() >= 0
    assert numbers.max() < 1
    step = {"bfloat16": 2.0**-8, "float16": 2.0**-11}.get(dtype, 0.0)
    assert _close(numbers.mean() + step / 2, 0.5, math.sqrt(1 / 12))
    assert _close((numbers < 0.25).mean(), 0.25, 0.5)
    filled = _numbers(flow.zeros(COUNT).uniform_(-3, 5))
    assert filled.min() >= -3
    assert filled.max() < 5
    assert _close(filled.mean(), 1, 8 * math.sqrt(1 / 12))


@pytest.mark.parametrize("dtype", [*REAL, "complex64"])
def test_sums_that_are_rounded_up_to_the_upper_limit(dtype: str) -> None:
    """A tenth of the draws lies within half a step of the dtype below the upper limit."""
    flow.manual_seed(13)
    kind = getattr(flow, dtype)
    step = flow.finfo(kind).eps
    numbers = flow.zeros(1000, dtype=kind).uniform_(1, 1 + 5 * step).numpy()
    assert sorted({*numbers.real.tolist()}) == [1 + count * step for count in range(5)]
    if kind.is_complex:
        assert numbers.imag.max() < 1 + 5 * step
    # Both limits are the same number of this dtype.
    assert flow.zeros(2, dtype=kind).uniform_(1, 1 + step / 4).real.tolist() == [1, 1]


def test_complex_distribution() -> None:
    flow.manual_seed(12)
    numbers = _numbers(flow.randn(COUNT, dtype=flow.complex64))
    assert _close(float((np.abs(numbers) ** 2).mean()), 1, 1)
    assert _close(float(numbers.real.mean()), 0, math.sqrt(0.5))
    assert _close(float((numbers.real * numbers.imag).mean()), 0, 0.5)


def test_integers_are_evenly_distributed() -> None:
    flow.manual_seed(13)
    numbers = _numbers(flow.randint(-2, 3, (COUNT,)))
    assert set(numbers) == {-2, -1, 0, 1, 2}
    for value in range(-2, 3):
        assert _close((numbers == value).mean(), 0.2, 0.4)
    assert set(_numbers(flow.randint(0, 256, (COUNT,), dtype=flow.uint8))) == set(range(256))


def test_permutations() -> None:
    flow.manual_seed(14)
    firsts = []
    for _ in range(2000):
        numbers = flow.randperm(4).tolist()
        assert sorted(numbers) == [0, 1, 2, 3]
        firsts.append(numbers[0])
    for value in range(4):
        assert abs(firsts.count(value) / 2000 - 0.25) < 5 * math.sqrt(0.25 * 0.75 / 2000)


def test_bernoulli_distribution() -> None:
    flow.manual_seed(15)
    for p in (0.0, 0.3, 1.0):
        spread = math.sqrt(p * (1 - p)) + 1e-9
        assert _close(_numbers(flow.bernoulli(flow.full((COUNT,), p))).mean(), p, spread)
        assert _close(_numbers(flow.bernoulli(flow.zeros(COUNT), p)).mean(), p, spread)
        assert _close(_numbers(flow.zeros(COUNT, dtype=flow.int64).bernoulli_(p)).mean(), p, spread)


def test_categories() -> None:
    flow.manual_seed(16)
    weights = flow.tensor([[1.0, 0.0, 3.0], [2.0, 2.0, 0.0]])
    numbers = _numbers(flow.multinomial(weights, COUNT, replacement=True))
    for row, expected in zip(numbers, ([0.25, 0, 0.75], [0.5, 0.5, 0]), strict=True):
        for category, share in enumerate(expected):
            assert _close((row == category).mean(), share, 0.5 if share else 1e-9)
    rows = _numbers(flow.multinomial(flow.tensor([1.0, 2.0, 1.0]).expand(10_000, 3), 2))
    assert (rows[:, 0] != rows[:, 1]).all()
    # The probability at the first draw is 1/2, and at the second 2/3 if 1 was not drawn before.
    assert abs((rows[:, 0] == 1).mean() - 0.5) < 5 * 0.5 / 100
    assert abs((rows[rows[:, 0] != 1][:, 1] == 1).mean() - 2 / 3) < 5 * 0.5 / 70
    certain = flow.multinomial(flow.tensor([0.0, 1.0, 0.0, 2.0]), 2).tolist()
    assert sorted(certain) == [1, 3]
