"""The kernels that reach elements by index, through the ops that use them, against numpy's."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import vmflow as flow
from vmflow.kernels.native.indexing import AddRows, Gather, Scatter

from .support import Array, hard_numbers, in_both_ways, same_bits

pytestmark = [pytest.mark.usefixtures("compiled"), pytest.mark.host]

DTYPES = ("float32", "float64", "float16", "int8", "int32", "int64", "uint8", "bool", "complex64")

# The array's shape, that of the index, and the dimension.
PLACES = [
    ((7,), (5,), 0),
    ((7,), (90,), 0),
    ((300, 200), (300, 200), 0),
    ((300, 200), (300, 200), 1),
    ((90, 70), (40, 70), 0),
    ((90, 70), (60, 1), 1),
    ((90, 70), (40, 60), 0),
    ((6, 50, 30), (6, 80, 30), 1),
    ((6, 50, 30), (4, 50, 30), 2),
    ((6, 50, 30), (6, 20, 10), 0),
    ((6, 50, 30), (0, 50, 30), 0),
    ((2, 3, 4, 5), (2, 3, 4, 9), -1),
]


def _index(shape: tuple[int, ...], size: int, kind: str = "int64") -> Array:
    return np.random.default_rng(1).integers(0, size, shape).astype(kind)


def _numbers(shape: tuple[int, ...], dtype: str, seed: int = 0) -> Array:
    return hard_numbers(shape, "float32" if dtype == "complex64" else dtype, seed).astype(dtype)


def _of_several_threads(compute: Callable[[], Array]) -> Array:
    """Computed by each number of threads, as found out and as remembered, which must make no difference."""
    found: list[Array] = []
    for number in (1, 2, 3):
        flow.set_num_threads(number)
        found += [compute(), compute()]
    assert all([same_bits(value, found[0]) for value in found])
    return found[0]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("shape", "places", "dim"), PLACES)
def test_gather(shape: tuple[int, ...], places: tuple[int, ...], dim: int, dtype: str, threads: None) -> None:
    array = _numbers(shape, dtype)
    x, index = flow.tensor(array), flow.tensor(_index(places, shape[dim]))
    expected, found = in_both_ways(lambda: _of_several_threads(lambda: x.gather(dim, index).numpy()))
    np.testing.assert_array_equal(expected, found)
    assert expected.dtype == found.dtype
    seen = np.moveaxis(np.asarray(array, order="F"), 0, -1)
    across = flow.tensor(seen).movedim(-1, 0)
    np.testing.assert_array_equal(across.gather(dim, index.int()).numpy(), found)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("op", ["scatter", "scatter_add"])
@pytest.mark.parametrize(("shape", "places", "dim"), PLACES)
def test_scatter(shape: tuple[int, ...], places: tuple[int, ...], dim: int, op: str, dtype: str, threads: None) -> None:
    larger = tuple([size + 1 for size in places])
    x, values = flow.tensor(_numbers(shape, dtype)), flow.tensor(_numbers(larger, dtype, 1))
    index = flow.tensor(_index(places, shape[dim]))
    with np.errstate(all="ignore"):
        expected, found = in_both_ways(lambda: _of_several_threads(lambda: getattr(x, op)(dim, index, values).numpy()))
    np.testing.assert_array_equal(expected, found)
    assert expected.dtype == found.dtype


@pytest.mark.parametrize("dtype", [dtype for dtype in DTYPES if dtype != "bool"])
@pytest.mark.parametrize("shape", [(7,), (300, 200), (40, 33, 5)])
@pytest.mark.parametrize("places", [(3,), (900,), (20, 4), (0,)])
def test_rows_are_added(shape: tuple[int, ...], places: tuple[int, ...], dtype: str, threads: None) -> None:
    size = shape[0]
    where = flow.tensor(_index(places, 2 * size) - size)
    x, new = flow.tensor(_numbers(shape, dtype)), flow.tensor(_numbers((*places, *shape[1:]), dtype, 1))
    with np.errstate(all="ignore"):
        expected, found = in_both_ways(
            lambda: _of_several_threads(lambda: flow.index_put(x, (where,), new, accumulate=True).numpy())
        )
        np.testing.assert_array_equal(expected, found)
        if len(shape) > 1 and len(places) == 1:
            swapped = x.transpose(0, 1).contiguous().index_add(1, where % size, new.transpose(0, 1))
            np.testing.assert_array_equal(swapped.transpose(0, 1).numpy(), found)


@pytest.mark.parametrize("shape", [(500,), (90, 60)])
def test_gradients_of_looked_up_rows(shape: tuple[int, ...], threads: None) -> None:
    x = flow.tensor(hard_numbers(shape), requires_grad=True)
    index = flow.tensor(_index((400,), shape[0]))
    weight = flow.tensor(np.random.default_rng(2).standard_normal((400, *shape[1:])).astype("float32"))

    def gradient() -> Array:
        x.grad = None
        (x[index] * weight).sum().backward()
        assert x.grad is not None
        result: Array = x.grad.numpy().copy()
        return result

    expected, found = in_both_ways(lambda: _of_several_threads(gradient))
    assert same_bits(expected, found)


@pytest.mark.parametrize("wrong", [-1, 50, 1 << 40, -(1 << 63)])
def test_an_index_out_of_range_is_told_of(wrong: int) -> None:
    x, values = flow.tensor(hard_numbers((50, 200))), flow.ones(50, 200)
    index = _index((50, 200), 50)
    for _ in range(2):  # the second time behind calls that are remembered
        index[49, 199] = wrong
        with pytest.raises(IndexError, match=f"gather: index {wrong} is out of range"):
            x.gather(0, flow.tensor(index)).numpy()
        with pytest.raises(IndexError, match=f"scatter.*: index {wrong} is out of range"):
            x.scatter(0, flow.tensor(index), values).numpy()
        with pytest.raises(IndexError, match=f"scatter.*: index {wrong} is out of range"):
            x.scatter_add(0, flow.tensor(index), values).numpy()
        if wrong != -1:
            with pytest.raises(IndexError, match=f"index {wrong} is out of bounds"):
                x.index_put((flow.tensor(index[:, -1]),), values, accumulate=True).numpy()
        index[49, 199] = 0
        x.gather(0, flow.tensor(index)).numpy()
        x.scatter(0, flow.tensor(index), values).numpy()
        x.scatter_add(0, flow.tensor(index), values).numpy()


def test_a_wrong_index_leaves_memory_shared_with_numpy_as_it_was(threads: None) -> None:
    base, index = np.zeros((100, 100), np.float32), np.arange(100)
    for count in (1, 2):
        flow.set_num_threads(count)
        for wrong in (1000, 99):  # the second is right, and remembered
            index[50] = wrong
            target = flow.from_numpy(base)
            target.index_put_((flow.tensor(index),), flow.ones(100, 100), accumulate=True)
            if wrong == 1000:
                with pytest.raises(IndexError, match="index 1000 is out of bounds"):
                    target.numpy()
                assert base.sum() == 10_000 * (count - 1)
            else:
                assert target.sum().item() == 10_000 * count


def test_calls_that_are_left_to_numpy() -> None:
    array, places = hard_numbers((500, 400)), _index((500, 400), 400)
    assert Gather.of("gather", np.dtype("complex128"), places.size, 1) is None
    gather = Gather.of("gather", array.dtype, places.size, 1)
    assert gather is not None
    assert gather.call(array[:, ::2], places[:3]) is None  # a copy would cost more than it wins
    few = gather.call(array[:, ::2], places % 200)
    assert few is not None
    np.testing.assert_array_equal(few, np.take_along_axis(array[:, ::2], places % 200, 1))
    target = array.copy()
    assert Scatter.of("scatter_add", np.dtype("float16"), 81, 1) is None
    puts = Scatter.of("scatter", array.dtype, places.size, 1)
    assert puts is not None
    assert not puts.call(target.T, places.T, array.T)
    adds = Scatter.of("scatter_add", array.dtype, places.size, 0)
    assert adds is not None
    assert not adds.call(target, places, target)  # added to itself while it is read
    assert not adds.call(np.ones((9, 9), "float16"), places[:9, :9] % 9, np.ones((9, 9), "float16"))
    locked = array.copy()
    locked.flags.writeable = False
    rows = AddRows.of("add_rows", array.dtype, array[:400].size, 0)
    assert rows is not None
    assert not rows.call(locked, places[0], array[:400])
    np.testing.assert_array_equal(target, array)
