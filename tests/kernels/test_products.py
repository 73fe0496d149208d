"""Products of matrices in C agree with numpy's in double precision, and are always the same, for any layout."""

from __future__ import annotations

import pickle
import platform
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from numpy.typing import NDArray

import vmflow as flow
from tests.support import run_program
from vmflow import nn
from vmflow.kernels import blas_core
from vmflow.kernels.native import products
from vmflow.kernels.native.compiling import compiler_command
from vmflow.kernels.native.loading import LOADER
from vmflow.kernels.native.rows import ColumnSums
from vmflow.kernels.numpy import products as in_numpy

from .support import helpers, same_bits

pytestmark = [pytest.mark.usefixtures("panels"), pytest.mark.host]

Array = NDArray[Any]

# Around the sizes at which something begins: vectors, panels, blocks.
SIZES = (1, 2, 3, 5, 8, 11, 12, 13, 15, 16, 17, 24, 31, 32, 33, 47, 64, 65, 100, 120, 121, 130, 250)
DEPTHS = (1, 2, 15, 16, 17, 40, 100, 799, 800, 801, 1601)


def normal(shape: Sequence[int], seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def laid_out(rows: int, columns: int, way: int, seed: int) -> Array:
    """A matrix that lies in one of many ways."""
    if way == 0:
        return normal((rows, columns), seed)
    if way == 1:
        return normal((columns, rows), seed).T
    if way == 2:
        return normal((rows, columns + 3), seed)[:, 2 : columns + 2]
    if way == 3:
        return normal((2 * rows, columns), seed)[::-2]
    if way == 4:
        return normal((columns, rows + 5), seed)[:, :rows].T
    if way == 5:
        return normal((rows, 2 * columns), seed)[:, ::2]
    return np.broadcast_to(normal((1, columns), seed), (rows, columns))


WAYS = 7


def in_c() -> products.MatrixProduct:
    """The product in C, with a call site of its own."""
    found = products.MatrixProduct.of()
    assert found is not None
    return found


def multiplied(left: Array, right: Array, out: Array | None = None, added: Array | None = None) -> Array:
    product = in_c()
    found: Any = product(left, right, out, added)
    assert found is not None
    first = found.copy()
    found = product(left, right, out, added)  # which may repeat a remembered call
    assert found is not None
    assert same_bits(found, first)
    result: Array = found
    return result


def check(found: Array, left: Array, right: Array) -> None:
    """Whether it is the product, within the rounding errors of sums of so many numbers."""
    expected = left.astype(np.float64) @ right.astype(np.float64)
    scale = np.abs(left.astype(np.float64)) @ np.abs(right.astype(np.float64))
    assert found.shape == expected.shape
    assert (np.abs(found - expected) <= 4e-6 * scale + 1e-30).all()


@given(
    sizes=st.tuples(st.sampled_from(SIZES), st.sampled_from(SIZES), st.sampled_from(DEPTHS)),
    ways=st.tuples(st.integers(0, WAYS - 1), st.integers(0, WAYS - 1)),
    count=st.integers(1, 5),
    part=st.tuples(st.floats(0, 0.99), st.floats(0, 0.99)),
)
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_shape_and_layout_by_any_number_of_threads(
    threads: None, sizes: tuple[int, int, int], ways: tuple[int, int], count: int, part: tuple[float, float]
) -> None:
    rows, columns, depth = sizes
    left, right = laid_out(rows, depth, ways[0], 1), laid_out(depth, columns, ways[1], 2)
    flow.set_num_threads(count)
    found = multiplied(left, right)
    check(found, left, right)
    # Nothing but its row and its column matters to an element: not the other elements, nor the layouts.
    flow.set_num_threads(1)
    row, column = int(part[0] * rows), int(part[1] * columns)
    assert same_bits(
        multiplied(left[row : row + 9].copy(), right[:, column : column + 40]), found[row:, column:][:9, :40]
    )


@given(
    sizes=st.tuples(st.sampled_from(SIZES), st.sampled_from(SIZES), st.sampled_from(DEPTHS)),
    ways=st.tuples(st.integers(0, WAYS - 1), st.integers(0, WAYS - 1)),
    count=st.integers(1, 5),
    step=st.sampled_from((-1, 1, 2)),
    given_out=st.booleans(),
)
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_row_is_added_to_each_row_of_the_product(
    threads: None, sizes: tuple[int, int, int], ways: tuple[int, int], count: int, step: int, given_out: bool
) -> None:
    rows, columns, depth = sizes
    left, right = laid_out(rows, depth, ways[0], 1), laid_out(depth, columns, ways[1], 2)
    added = normal((2 * columns,), 3)[::step][:columns]
    out = np.full((rows, columns + 2), np.nan, np.float32)[:, 1:-1] if given_out else None
    flow.set_num_threads(count)
    found = multiplied(left, right, out, added)
    assert out is None or found is out
    assert same_bits(found, multiplied(left, right) + added)


@pytest.mark.parametrize("batch", [(3,), (2, 3)])
@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("count", [1, 3])
def test_a_row_is_added_to_each_row_in_batches(threads: None, batch: tuple[int, ...], shared: bool, count: int) -> None:
    left, right = normal((*batch, 70, 90), 1), normal((90, 40) if shared else (3, 90, 40), 2)
    added = normal((40,), 3)
    flow.set_num_threads(count)
    found = multiplied(left, right, None, added)
    assert same_bits(found, multiplied(left, right) + added)


@given(
    sizes=st.tuples(st.sampled_from(SIZES), st.sampled_from(SIZES), st.sampled_from(DEPTHS)),
    way=st.integers(0, WAYS - 1),
    count=st.integers(1, 5),
)
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_sums_of_rows_are_those_of_the_columns_of_the_transpose(
    threads: None, sizes: tuple[int, int, int], way: int, count: int
) -> None:
    rows, columns, depth = sizes
    of, right = normal((depth, rows), 1), laid_out(depth, columns, way, 2)
    flow.set_num_threads(count)
    product, expected = in_c(), np.empty(rows, np.float32)
    column_sums = ColumnSums.of("column_sums", of.dtype, of.size)
    assert column_sums is not None
    assert column_sums.call(of, expected)
    for _ in range(2):  # the second time as it was remembered
        sums = np.full(rows, np.nan, np.float32)
        found = product.with_sums(of.T, right, None, sums)[0]
        assert found is not None
        assert same_bits(sums, expected)
        assert same_bits(found, multiplied(of.T, right))


@pytest.mark.parametrize("batch", [8, 64, 513])
@pytest.mark.parametrize("trained", [(True, True), (True, False), (False, True)])
def test_a_layer_computes_the_same_by_itself_and_within_a_graph(batch: int, trained: tuple[bool, bool]) -> None:
    layer = nn.Linear(300, 120)
    layer.weight.requires_grad_(trained[0])
    layer.bias.requires_grad_(trained[1])
    given = flow.tensor(normal((batch, 2, 300), 1))

    def gradients(given: flow.Tensor) -> list[flow.Tensor]:
        found = layer(given)
        wanted = [tensor for tensor in (layer.weight, layer.bias) if tensor.requires_grad]
        return [found, *flow.autograd.grad((found * found).sum(), wanted)]

    class Gradients(nn.Graph):
        def build(self, given: flow.Tensor) -> list[flow.Tensor]:
            return gradients(given)

    graph = Gradients()
    alone = gradients(given)
    weight, bias = [tensor.detach().numpy().astype(np.float64) for tensor in (layer.weight, layer.bias)]
    expected = given.numpy().astype(np.float64) @ weight.T + bias
    np.testing.assert_allclose(alone[0].numpy(force=True), expected, rtol=1e-4, atol=1e-4)
    flat = 2 * expected.reshape(-1, 120)
    by_hand = [flat.T @ given.numpy().reshape(-1, 300), flat.sum(0)]
    for found, wanted in zip(
        alone[1:], [value for value, has in zip(by_hand, trained, strict=True) if has], strict=True
    ):
        np.testing.assert_allclose(found.numpy(force=True), wanted, rtol=1e-3, atol=2e-2)
    for one, other in zip(alone, graph(given), strict=True):
        assert same_bits(one.numpy(force=True), other.numpy(force=True))


@pytest.mark.parametrize("sizes", [(300, 2100, 70), (1100, 530, 900), (9, 4100, 33), (4100, 9, 33), (700, 20, 2500)])
@pytest.mark.parametrize("ways", [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_more_than_is_packed_at_once(threads: None, sizes: tuple[int, int, int], ways: tuple[int, int]) -> None:
    rows, columns, depth = sizes
    left, right = laid_out(rows, depth, ways[0], 1), laid_out(depth, columns, ways[1], 2)
    flow.set_num_threads(1)
    found = multiplied(left, right)
    check(found, left, right)
    for count in (2, 3, 8):
        flow.set_num_threads(count)
        assert same_bits(multiplied(left, right), found)


def test_sums_do_not_drift_where_all_rounding_goes_one_way() -> None:
    left, right = np.full((8, 40000), 0.1, np.float32), np.ones((40000, 32), np.float32)
    np.testing.assert_allclose(multiplied(left, right), float(left[0, 0]) * 40000, rtol=2e-5)


def test_nan_and_infinity_stay_in_their_row_and_column() -> None:
    left, right = normal((70, 90)), normal((90, 50), 1)
    expected = multiplied(left, right)
    left[3, 5], right[7, 49] = np.nan, np.inf
    found = multiplied(left, right)
    assert np.isnan(found[3]).all()
    assert np.isinf(found[np.arange(70) != 3, 49]).all()
    untouched = np.ix_(np.arange(70) != 3, np.arange(50) != 49)
    assert same_bits(found[untouched].copy(), expected[untouched].copy())


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ((3, 20, 30), (3, 30, 40)),
        ((3, 20, 30), (30, 40)),
        ((20, 30), (3, 30, 40)),
        ((2, 1, 20, 30), (5, 30, 40)),
        ((4, 2, 7, 30), (4, 2, 30, 9)),
        ((1, 1, 20, 30), (1, 1, 30, 40)),
    ],
)
def test_batches(threads: None, first: tuple[int, ...], second: tuple[int, ...]) -> None:
    left, right = normal(first), normal(second, 1)
    for count in (1, 4):
        flow.set_num_threads(count)
        check(multiplied(left, right), left, right)
    turned = normal((*second[:-2], second[-1], second[-2]), 1).swapaxes(-1, -2)
    check(multiplied(left, turned), left, turned)
    spaced = normal((*first[:-2], 2 * first[-2], first[-1]))[..., ::2, :]
    check(multiplied(spaced, right), spaced, right)


class TestWhereTheResultGoes:
    def test_a_place_that_can_take_it(self) -> None:
        left, right = normal((40, 50)), normal((50, 60), 1)
        for out in (np.empty((40, 60), np.float32), np.empty((40, 99), np.float32)[:, 7:67]):
            assert multiplied(left, right, out) is out
            assert same_bits(out.copy(), multiplied(left, right))

    def test_nothing_is_written_beside_it(self) -> None:
        around = np.zeros((44, 70), np.float32)
        multiplied(normal((40, 50)), normal((50, 60), 1), around[2:42, 5:65])
        assert around[2:42, 5:65].all()
        around[2:42, 5:65] = 0
        assert not around.any()

    @pytest.mark.parametrize("kind", ["turned", "gaps", "double", "left", "right", "overlap"])
    def test_elsewhere_and_then_there(self, kind: str) -> None:
        memory = normal((80, 100), 1)
        left, right = normal((100, 100)), memory[:, :].T.copy()
        right = normal((100, 100), 2)
        expected = multiplied(left, right).copy()
        out = {
            "turned": np.empty((100, 100), np.float32).T,
            "gaps": np.empty((100, 200), np.float32)[:, ::2],
            "double": np.empty((100, 100)),
            "left": left,
            "right": right,
            "overlap": right.T,
        }[kind]
        assert in_c()(left, right, out) is out
        assert np.array_equal(out, expected)


def test_where_nothing_may_be_written_nothing_is() -> None:
    left = normal((20, 20))
    out = np.zeros((20, 20), np.float32)
    out.flags.writeable = False
    multiply = in_c()
    for _ in range(2):
        with pytest.raises(ValueError, match="read-only"):
            multiply(left, left, out)
        multiply(left, left)
    assert not out.any()


def test_the_added_row_is_not_mistaken_for_the_memory_of_sums() -> None:
    left, right, added = normal((30, 12)), normal((30, 12), 1), normal((12,), 2)
    product = in_c()
    for _ in range(2):
        with_row = product(left.T, right, None, added)
        sums = np.zeros(12, np.float32)
        plain = product.with_sums(left.T, right, None, sums)[0]
        assert with_row is not None
        assert plain is not None
        check(plain, left.T, right)
        assert same_bits(with_row, plain + added)
        np.testing.assert_allclose(sums, left.sum(0), rtol=1e-4, atol=1e-5)


def test_rows_of_a_transposed_matrix_at_an_odd_address_are_summed() -> None:
    left = np.zeros(30 * 12 * 4 + 1, np.uint8)[1:].view(np.float32).reshape(30, 12)
    left[...] = normal((30, 12))
    product, sums = in_c().with_sums(left.T, normal((30, 12), 1))
    check(product, left.T, normal((30, 12), 1))
    np.testing.assert_allclose(sums, left.sum(0), rtol=1e-4, atol=1e-5)


def test_two_threads_of_the_program_multiply_at_once(threads: None) -> None:
    flow.set_num_threads(2)
    operands = [(normal((90, 200), seed), normal((200, 70), seed + 9)) for seed in range(4)]
    expected = [multiplied(*operand) for operand in operands]
    wrong: list[int] = []

    def work(number: int) -> None:
        for _ in range(200):
            if not same_bits(multiplied(*operands[number]), expected[number]):
                wrong.append(number)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert not wrong


class TestWho:
    """Whether C is asked, which shapes and dtypes say."""

    @pytest.fixture
    def asked(self, monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
        shapes: list[tuple[int, ...]] = []

        def watch(name: str) -> None:
            usual = getattr(products.MatrixProduct, name)

            def seen(product: products.MatrixProduct, left: Array, right: Array, *others: Array | None) -> Any:
                shapes.append((*left.shape, right.shape[-1]))
                return usual(product, left, right, *others)

            monkeypatch.setattr(products.MatrixProduct, name, seen)

        watch("__call__")
        watch("with_sums")
        return shapes

    @pytest.mark.parametrize(
        ("first", "second", "dtype", "is_asked"),
        [
            ((64, 64), (64, 64), "float32", True),
            ((64, 64), (64, 63), "float32", False),
            ((40, 1), (1, 50), "float32", True),
            ((4, 1), (1, 5000), "float32", False),
            ((3, 40, 1), (3, 1, 50), "float32", False),
            ((8, 1000), (1000, 100), "float32", True),
            ((7, 1000), (1000, 100), "float32", False),
            ((1000, 100), (100, 7), "float32", False),
            ((64, 64), (64, 64), "float64", False),
            ((64, 64), (64, 64), "int32", False),
            ((64, 64), (64, 64), "float16", True),
            ((64, 64), (64, 64), "complex64", False),
            ((4, 32, 64), (4, 64, 64), "float32", True),
            ((1 << 19,), (1 << 19,), "float32", False),
            ((512, 1024), (1024,), "float32", False),
        ],
    )
    def test_matmul(
        self, asked: list[Any], first: tuple[int, ...], second: tuple[int, ...], dtype: str, is_asked: bool
    ) -> None:
        left, right = [flow.tensor(normal(value, 3).astype(dtype)) for value in (first, second)]
        found = flow.matmul(left, right)
        expected = np.matmul(left.numpy().astype("complex128"), right.numpy().astype("complex128"))
        assert found.shape == expected.shape
        np.testing.assert_allclose(found.numpy(), expected, rtol=2e-3 if dtype == "float16" else 1e-4, atol=1e-2)
        assert bool(asked) == is_asked

    def test_dense_layers(self, asked: list[Any]) -> None:
        layer = nn.Linear(100, 80)
        source = flow.tensor(normal((2, 30, 100))).requires_grad_()
        layer(source).square().sum().backward()
        assert asked == [(60, 100, 80), (60, 80, 100), (80, 60, 100)]
        layer(source[0, :4])
        assert len(asked) == 3

    def test_where_blas_leaves_out_half_of_the_vectors_it_is_never_better(
        self, asked: list[Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(in_numpy, "_MOST", 1 << 19)
        # Sizes that no other test has: the function for given sizes is chosen once in a process.
        for size, hint, expected in ((109, None, 0), (113, "use others", 1)):
            in_numpy._most.cache_clear()
            monkeypatch.setattr(blas_core, "hint", lambda *_, hint=hint: hint)
            large = flow.ones(size, size)
            assert ((large @ large).numpy() == size).all()
            assert len(asked) == expected
        in_numpy._most.cache_clear()

    def test_the_repeated_operand_makes_no_difference(self, asked: list[Any]) -> None:
        left, right = flow.tensor(normal((32, 64))), flow.tensor(normal((20, 64, 64), 1))
        repeated = left.expand(20, 32, 64)
        assert same_bits((left @ right).numpy(), (repeated @ right).numpy())
        assert len(asked) == 2

    def test_how_a_gradient_lies_makes_no_difference(self) -> None:
        x, w, b = flow.tensor(normal((120, 90))), flow.tensor(normal((100, 90), 1)), flow.zeros(100).requires_grad_()
        outer = normal((120, 100), 2)
        y = flow.nn.functional.linear(x.requires_grad_(), w.requires_grad_(), b)
        turned = flow.tensor(np.ascontiguousarray(outer.T)).T
        found = [flow.autograd.grad(y, [x, w, b], [value], retain_graph=True) for value in (flow.tensor(outer), turned)]
        for one, other in zip(*found, strict=True):
            assert one is not None
            assert other is not None
            assert same_bits(one.numpy(), other.numpy())

    def test_arrays_that_were_pickled(self, asked: list[Any]) -> None:
        """Their dtype is another object."""
        x, w = normal((100, 150)), normal((150, 90), 1)
        found = flow.from_numpy(pickle.loads(pickle.dumps(x))) @ flow.tensor(w)
        assert same_bits(found.numpy(), (flow.tensor(x) @ flow.tensor(w)).numpy())
        again: flow.Tensor = pickle.loads(pickle.dumps(flow.tensor(x)))
        assert same_bits(found.numpy(), (again @ flow.tensor(w)).numpy())
        assert len(asked) == 3

    def test_nobody_where_c_is_switched_off(self) -> None:
        LOADER.mode = "off"
        assert products.MatrixProduct.of() is None
        assert in_numpy.product_kernel(flow.float32, 70, 80, 90) is np.matmul


def test_a_layers_gradients_are_the_same_however_that_of_its_result_lies() -> None:
    LOADER.mode = "off"
    x, weight, bias = flow.tensor(normal((100, 80))), flow.tensor(normal((90, 80), 1)), flow.tensor(normal((90,), 2))
    leaves = [weight.requires_grad_(), bias.requires_grad_()]
    gradient = normal((100, 90), 3)
    found = []
    for slope in (flow.tensor(gradient), flow.tensor(np.repeat(gradient, 2, 1))[:, ::2]):
        result = flow.nn.functional.linear(x, weight, bias)
        found.append([tensor.numpy() for tensor in flow.autograd.grad(result, leaves, [slope]) if tensor is not None])
    for one, other in zip(*found, strict=True):
        assert same_bits(one, other)


class TwoLayers(nn.Graph):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def build(self, x: flow.Tensor) -> Any:
        x = x.detach().requires_grad_()
        weights = flow.matmul(x, x.mT)
        return [
            weights.detach(),
            *flow.autograd.grad(self.model(weights).square().sum(), [x, *self.model.parameters()]),
        ]


@pytest.mark.parametrize("count", [1, 2])
def test_graphs_and_eager_ops_compute_the_same(threads: None, count: int) -> None:
    flow.set_num_threads(count)
    flow.manual_seed(0)
    model = nn.Sequential(nn.Linear(90, 120), nn.ReLU(), nn.Linear(120, 70))
    graph = TwoLayers(model)
    for seed in range(3):
        x = flow.tensor(normal((2, 90, 60), seed))
        expected, found = TwoLayers(model).build(x), graph(x)
        assert all([same_bits(one.numpy(), other.numpy()) for one, other in zip(found, expected, strict=True)])


class InPlace(nn.Graph):
    """Results that go where an operand is."""

    def build(self, a: flow.Tensor, w: flow.Tensor) -> Any:
        first, second, third = a * 1, a * 1, a * 1
        flow.matmul(first, w, out=first)
        flow.matmul(w, second, out=second)
        flow.matmul(third.mT, third, out=third)
        memory = flow.zeros(230, 128)
        memory[64:192] = a
        flow.matmul(memory[64:192], w, out=memory[100:228])
        return first, second, third, memory


def test_results_that_go_where_an_operand_is() -> None:
    a, w = flow.tensor(normal((128, 128))), flow.tensor(normal((128, 128), 1))
    graph = InPlace()
    expected = [a @ w, w @ a, a.mT @ a, a @ w]
    for results in (graph.build(a, w), graph(a, w), graph(a, w)):
        found = [*results[:3], results[3][100:228]]
        assert all([same_bits(one.numpy(), other.numpy()) for one, other in zip(found, expected, strict=True)])


def test_rows_of_one_in_a_batch() -> None:
    left, right = normal((20, 30)), normal((30, 40), 1)
    assert same_bits(multiplied(left[:, None, :], right)[:, 0].copy(), multiplied(left, right))
    out = np.empty((20, 3, 40), np.float32)[:, :1]
    assert same_bits(multiplied(left[:, None, :], right, out)[:, 0].copy(), multiplied(left, right))


def test_while_others_wait_for_the_compiler_or_switch_it_off() -> None:
    """Then the chosen kernels are forgotten at any moment."""
    program = """
    import sys, threading
    import vmflow as flow
    sys.setswitchinterval(1e-6)
    flow.set_num_threads(2)
    wrong = []

    def work():
        for number in range(150):
            size = 96 + number % 50
            ones = flow.ones(2, size, size)
            if not ((ones @ ones).numpy() == size).all() or not ((ones[0] @ ones[1]).numpy() == size).all():
                wrong.append(size)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    while any([thread.is_alive() for thread in threads]):
        flow.backends.codegen.wait()
        flow.backends.codegen.mode = "off"
        flow.backends.codegen.mode = "wait"
    print(wrong)
    """
    assert run_program(program, VMFLOW_JIT="1") == "[]"


def test_several_threads_begin_at_once() -> None:
    """All find the library on disk, or none: a thread that comes during another's lookup waits for it."""
    program = """
    import threading
    import numpy as np
    from vmflow.kernels.native import products
    barrier, found = threading.Barrier(4), []

    def work():
        barrier.wait()
        found.append(products.MatrixProduct.of() is not None)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(found)
    """
    multiplied(np.ones((9, 9), np.float32), np.ones((9, 9), np.float32))  # so that it is on disk
    for _ in range(4):
        assert run_program(program, VMFLOW_JIT="") == "[True, True, True, True]"


def test_helpers_share_it(threads: None) -> None:
    flow.set_num_threads(3)
    left, right, out = normal((300, 300)), normal((300, 300)), np.empty((300, 300), np.float32)
    call = in_c().placed(left, right, out)
    assert call is not None
    call[0](*call[1])
    assert same_bits(out, multiplied(left, right))
    assert helpers() >= 2


def test_without_memory_to_work_in() -> None:
    program = """
    import pathlib, resource
    import numpy as np
    import vmflow as flow
    from vmflow.kernels.native import products

    flow.set_num_threads(1)
    random = np.random.default_rng(0)
    left, right = [random.standard_normal((1000, 1000)).astype(np.float32) for _ in range(2)]
    out = np.empty((1000, 1000), np.float32)
    product = products.MatrixProduct.of()
    product(left[:8, :8].copy(), right[:8, :8].copy(), None)
    lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    (size,) = [line.split()[1] for line in lines if "VmSize" in line]
    unlimited = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (int(size) * 1024 + (1 << 20), unlimited[1]))
    try:
        np.empty(1 << 20, np.float32).fill(0)
    except MemoryError:
        print("none")
    product(left, right, out)
    resource.setrlimit(resource.RLIMIT_AS, unlimited)
    print((out == product(left, right, None)).all())
    """
    for _ in range(2):  # the first leaves memory behind in which it has made the kernels
        found = run_program(program, VMFLOW_JIT="1", OPENBLAS_NUM_THREADS="1")
    assert found == "none\nTrue"


@pytest.mark.slow
@pytest.mark.skipif(platform.machine() != "x86_64", reason="the flags that leave vectors out are those of x86-64")
def test_where_vectors_are_of_no_use_it_is_left_to_blas() -> None:
    program = """
    import numpy as np
    import vmflow as flow
    from vmflow.kernels.native import attention, functions, products

    assert functions.function("softmax", 1 << 20) is not None
    assert products.MatrixProduct.of() is None
    x = flow.ones(100, 100)
    assert ((x @ x).numpy() == 100).all()
    assert functions.function("attention", 1 << 20) is None
    print(round(flow.nn.functional.scaled_dot_product_attention(x, x, x).mean().item(), 5))
    """
    assert run_program(program, VMFLOW_JIT="1", CC=f"{compiler_command()[0]} -mno-fma") == "1.0"


def test_in_a_forked_child(threads: None) -> None:
    program = """
    import os
    import numpy as np
    import vmflow as flow
    from vmflow.kernels.native import products

    flow.set_num_threads(2)
    random = np.random.default_rng(0)
    left, right = [random.standard_normal((300, 300)).astype(np.float32) for _ in range(2)]
    product = products.MatrixProduct.of()
    expected = product(left, right, None)
    child = os.fork()
    if not child:
        os._exit(0 if (product(left, right, None) == expected).all() else 1)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """
    assert run_program(program, VMFLOW_JIT="1") == "0"
