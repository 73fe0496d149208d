"""Creation, shapes, searching, sorting, sets and statistics of the standard against numpy, at random."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, strategies as st

import vmflow as flow
from vmflow import array_api as xp

from .support import (
    ALL,
    COMPLEX,
    FLOATING,
    FLOATS,
    INTEGERS,
    NUMERIC,
    REAL,
    UNSIGNED,
    broadcasting,
    few,
    full_shapes,
    kinds,
    made,
    quiet,
    same,
    seeds,
    shapes,
    some,
    tensor,
)

dtypes = st.sampled_from(ALL)


@st.composite
def arrays(draw: Any, among: tuple[str, ...] = ALL, full: bool = False, least: int = 0) -> Any:
    """Arrays of `least` or more dimensions, none of size 0 if `full`."""
    shape = draw(full_shapes if full else shapes)
    assume(len(shape) >= least)
    return made(shape, draw(st.sampled_from(among)), draw(seeds))


@st.composite
def with_axis(draw: Any, among: tuple[str, ...] = ALL, full: bool = False) -> Any:
    array = draw(arrays(among, full, 1))
    return array, draw(st.integers(-array.ndim, array.ndim - 1))


@st.composite
def with_axes(draw: Any, among: tuple[str, ...] = ALL, full: bool = False) -> Any:
    """An array, and None, an axis or several."""
    array = draw(arrays(among, full))
    if not array.ndim or draw(st.booleans()):
        return array, None
    one = st.integers(-array.ndim, array.ndim - 1)
    several = st.lists(one, unique_by=lambda axis: axis % array.ndim, max_size=array.ndim).map(tuple)
    return array, draw(st.one_of(one, several))


# Creation


@some
@given(shapes, dtypes, st.integers(0, 5))
def test_full_and_its_relatives(shape: tuple[int, ...], name: str, number: int) -> None:
    kind = getattr(xp, name)
    for maker in ("zeros", "ones"):
        same(getattr(xp, maker)(shape, dtype=kind), getattr(np, maker)(shape, name))
        same(getattr(xp, f"{maker}_like")(tensor(np.empty(shape, name))), getattr(np, maker)(shape, name))
        assert getattr(xp, maker)(shape).dtype is xp.float32
    same(xp.full(shape, number, dtype=kind), np.full(shape, number, name))
    same(xp.full_like(tensor(np.zeros(shape)), number, dtype=kind), np.full(shape, number, name))
    for maker in ("empty", "empty_like"):
        made_ = xp.empty(shape, dtype=kind) if maker == "empty" else xp.empty_like(tensor(np.zeros(shape)), dtype=kind)
        assert (tuple(made_.shape), made_.dtype) == (shape, kind)
    if len(shape) == 1:
        same(xp.zeros(shape[0], dtype=kind), np.zeros(shape, name))


def test_full_has_the_dtype_of_the_number() -> None:
    for number, expected in ((True, xp.bool), (1, xp.int64), (1.5, xp.float32), (1j, xp.complex64)):
        assert xp.full((2,), number).dtype is expected
    for name in INTEGERS:
        limits = np.iinfo(name)
        for number in (limits.min, limits.max):
            assert xp.full((1,), int(number), dtype=getattr(xp, name)).tolist() == [number]
            assert xp.asarray([int(number)], dtype=getattr(xp, name)).tolist() == [number]
    for number in (math.nan, math.inf, -math.inf):
        np.testing.assert_equal(xp.full((), number).item(), number)


@some
@given(st.integers(-20, 20), st.integers(-20, 20), st.integers(-6, 6), st.sampled_from(REAL))
def test_arange(start: int, stop: int, step: int, name: str) -> None:
    assume(step and (name not in UNSIGNED or min(start, stop) >= 0))
    assume(name not in UNSIGNED or step > 0)
    expected: Any = np.asarray(np.arange(start, stop, step)).astype(name)
    same(xp.arange(start, stop, step, dtype=getattr(xp, name)), expected)
    same(xp.arange(stop), np.arange(stop))
    same(xp.arange(start, stop=stop, step=step), np.arange(start, stop, step))
    halves = xp.arange(start / 2, stop / 2, step / 4, dtype=xp.float64)
    same(halves, np.arange(start / 2, stop / 2, step / 4))
    assert xp.arange(float(stop)).dtype is xp.float32


@some
@given(st.floats(-50, 50, width=32), st.floats(-50, 50, width=32), st.integers(0, 12), st.booleans())
def test_linspace(start: float, stop: float, number: int, endpoint: bool) -> None:
    for name in FLOATS:
        expected = np.linspace(start, stop, number, endpoint=endpoint, dtype=name)
        found = xp.linspace(start, stop, number, endpoint=endpoint, dtype=getattr(xp, name))
        assert (tuple(found.shape), found.dtype.name) == (expected.shape, name)
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-5, atol=1e-4)
        if endpoint and number > 1:
            assert found[-1].item() == expected[-1]
        if number:
            assert found[0].item() == expected[0]


def test_linspace_of_complex_numbers() -> None:
    expected = np.linspace(1 + 1j, 3 - 1j, 5)
    np.testing.assert_allclose(xp.linspace(1 + 1j, 3 - 1j, 5, dtype=xp.complex128).numpy(), expected)
    assert xp.linspace(1 + 1j, 3 - 1j, 5).dtype is xp.complex64


@some
@given(st.integers(0, 5), st.none() | st.integers(0, 5), st.integers(-6, 6), dtypes)
def test_eye(rows: int, columns: int | None, k: int, name: str) -> None:
    same(xp.eye(rows, columns, k=k, dtype=getattr(xp, name)), np.eye(rows, columns, k, name))
    assert xp.eye(rows, columns, k=k).dtype is xp.float32


@some
@given(arrays(least=2), st.integers(-4, 4))
def test_triangles(array: Any, k: int) -> None:
    same(xp.tril(tensor(array), k=k), np.tril(array, k))
    same(xp.triu(tensor(array), k=k), np.triu(array, k))


@few
@given(st.lists(st.integers(0, 4), max_size=4), dtypes, st.sampled_from(["xy", "ij"]), seeds)
def test_meshgrid(sizes: list[int], name: str, indexing: Any, seed: int) -> None:
    given_ = [made((size,), name, seed + place) for place, size in enumerate(sizes)]
    found = xp.meshgrid(*map(tensor, given_), indexing=indexing)
    same(list(found), list(np.meshgrid(*given_, indexing=indexing)))


@few
@given(arrays(), st.sampled_from(ALL))
def test_asarray(array: Any, name: str) -> None:
    same(xp.asarray(array), array)
    same(xp.asarray(tensor(array), copy=True), array)
    if array.dtype.kind != "c" or name in COMPLEX:
        same(xp.asarray(np.abs(array), dtype=getattr(xp, name)), np.abs(array).astype(name))
    if array.size:
        ours = xp.asarray(array.tolist(), dtype=xp.from_dlpack(tensor(array)).dtype)
        same(ours, np.asarray(array.tolist(), array.dtype))


# Shapes


@few
@given(broadcasting(3), dtypes, seeds)
def test_broadcasting(three: list[tuple[int, ...]], name: str, seed: int) -> None:
    given_ = [made(shape, name, seed + place) for place, shape in enumerate(three)]
    same(list(xp.broadcast_arrays(*map(tensor, given_))), list(np.broadcast_arrays(*given_)))
    whole = np.broadcast_shapes(*three)
    same(xp.broadcast_to(tensor(given_[0]), whole), np.broadcast_to(given_[0], whole))


@some
@given(with_axis(), st.integers(1, 3), st.data())
def test_joining(given_: Any, count: int, data: st.DataObject) -> None:
    array, axis = given_
    mixed = data.draw(kinds((array.dtype.name,), count)) if array.dtype.kind == "b" else (array.dtype.name,) * count
    parts = [array.astype(name) for name in mixed]
    same(xp.concat([*map(tensor, parts)], axis=axis), np.concatenate(parts, axis=axis))
    same(xp.concat((*map(tensor, parts), tensor(array[:0])), axis=None), np.concatenate(parts, axis=None))
    place = data.draw(st.integers(-array.ndim - 1, array.ndim))
    same(xp.stack([*map(tensor, parts)], axis=place), np.stack(parts, axis=place))
    same(xp.unstack(tensor(array), axis=axis), np.unstack(array, axis=axis))


@few
@given(kinds(NUMERIC, 3), seeds)
def test_joining_promotes(names: tuple[str, ...], seed: int) -> None:
    parts = [made((2, place + 1), name, seed) for place, name in enumerate(names)]
    same(xp.concat([*map(tensor, parts)], axis=1), np.concatenate(parts, axis=1))
    rows = [part[:, 0] for part in parts]
    same(xp.stack([*map(tensor, rows)]), np.stack(rows))


@some
@given(arrays(), st.data())
def test_dimensions(array: Any, data: st.DataObject) -> None:
    x = tensor(array)
    place = data.draw(st.integers(-array.ndim - 1, array.ndim))
    same(xp.expand_dims(x, axis=place), np.expand_dims(array, place))
    wide = np.expand_dims(array, (0, array.ndim + 1))
    same(xp.squeeze(tensor(wide), axis=(0, -1)), array)
    same(xp.squeeze(tensor(wide), axis=0), wide[0])
    order = tuple(data.draw(st.permutations(range(array.ndim))))
    same(xp.permute_dims(x, order), np.permute_dims(array, order))
    several = data.draw(st.integers(0, array.ndim))
    sources, targets = order[:several], tuple(data.draw(st.permutations(range(array.ndim))))[:several]
    same(xp.moveaxis(x, sources, targets), np.moveaxis(array, sources, targets))
    if array.ndim:
        same(xp.moveaxis(x, order[0], -1), np.moveaxis(array, order[0], -1))
    if array.ndim > 1:
        same(xp.matrix_transpose(x), np.matrix_transpose(array))


@some
@given(arrays(), st.data())
def test_reshape(array: Any, data: st.DataObject) -> None:
    divisor = data.draw(st.sampled_from([index for index in range(1, 10) if array.size % index == 0]))
    copy = data.draw(st.sampled_from([None, True]))
    targets: list[tuple[int, ...]] = [(-1,), (divisor, array.size // divisor), (1, *array.shape, 1)]
    if array.size:
        targets.append((divisor, -1))
    if array.size == 1:
        targets.append(())
    for target in targets:
        same(xp.reshape(tensor(array), target, copy=copy), np.reshape(array, target))


@some
@given(with_axes(), st.data())
def test_flip_and_roll(given_: Any, data: st.DataObject) -> None:
    array, axes = given_
    same(xp.flip(tensor(array), axis=axes), np.flip(array, axes))
    shift = data.draw(st.integers(-5, 5))
    same(xp.roll(tensor(array), shift, axis=axes), np.roll(array, shift, axes))
    if isinstance(axes, tuple):
        shifts = tuple(data.draw(st.lists(st.integers(-5, 5), min_size=len(axes), max_size=len(axes))))
        same(xp.roll(tensor(array), shifts, axis=axes), np.roll(array, shifts, axes))
    else:
        same(xp.roll(tensor(array), (1, shift), axis=axes), np.roll(array, (1, shift), axes))


@some
@given(with_axis(), st.data())
def test_repetitions(given_: Any, data: st.DataObject) -> None:
    array, axis = given_
    times = data.draw(st.integers(0, 3))
    same(xp.repeat(tensor(array), times, axis=axis), np.repeat(array, times, axis))
    same(xp.repeat(tensor(array), times), np.repeat(array, times))
    each = np.array(data.draw(st.lists(st.integers(0, 3), min_size=array.shape[axis], max_size=array.shape[axis])), int)
    for kind in ("int64", "uint8", "uint64"):
        expected = np.repeat(array, each, axis)
        same(xp.repeat(tensor(array), tensor(each.astype(kind)), axis=axis), expected)
    same(xp.repeat(tensor(array), tensor(np.array([times])), axis=axis), np.repeat(array, times, axis))
    tiles = tuple(data.draw(st.lists(st.integers(0, 2), max_size=array.ndim + 1)))
    same(xp.tile(tensor(array), tiles), np.tile(array, tiles))


# Indexing, searching, sorting and sets


@some
@given(with_axis(full=True), st.data())
def test_take(given_: Any, data: st.DataObject) -> None:
    array, axis = given_
    size = array.shape[axis]
    places = np.array(data.draw(st.lists(st.integers(0, size - 1), max_size=5)), data.draw(st.sampled_from(INTEGERS)))
    same(xp.take(tensor(array), tensor(places), axis=axis), np.take(array, places.astype(int), axis))
    same(xp.take(tensor(array.reshape(-1)), tensor(places)), np.take(array.reshape(-1), places.astype(int)))
    shape = list(array.shape)
    shape[axis] = data.draw(st.integers(0, 4))
    along = np.random.default_rng(3).integers(0, size, shape)
    for kind in ("int64", "int32", "uint16", "uint64"):
        found = xp.take_along_axis(tensor(array), tensor(along.astype(kind)), axis=axis)
        same(found, np.take_along_axis(array, along, axis))


@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_indices_of_extrema(name: str) -> None:
    @some
    @given(with_axis(REAL, True), st.booleans())
    def test(given_: Any, keepdims: bool) -> None:
        array, axis = given_
        ours, theirs = getattr(xp, name), getattr(np, name)
        same(ours(tensor(array), axis=axis, keepdims=keepdims), theirs(array, axis, keepdims=keepdims))
        same(ours(tensor(array), keepdims=keepdims), np.asarray(theirs(array, keepdims=keepdims)))

    test()


@some
@given(with_axes(), st.booleans())
def test_counting(given_: Any, keepdims: bool) -> None:
    array, axes = given_
    expected = np.asarray(np.count_nonzero(array, axis=axes, keepdims=keepdims))
    same(xp.count_nonzero(tensor(array), axis=axes, keepdims=keepdims), expected)
    if array.ndim:
        same(xp.nonzero(tensor(array)), np.nonzero(array))


@some
@given(st.sampled_from(REAL), seeds, st.integers(0, 12), shapes, st.sampled_from(["left", "right"]), st.booleans())
def test_searchsorted(name: str, seed: int, count: int, shape: tuple[int, ...], side: Any, shuffled: bool) -> None:
    values, wanted = made((count,), name, seed), made(shape, name, seed + 1)
    order = np.argsort(values)
    if shuffled:
        for kind in ("int64", "int32"):
            found = xp.searchsorted(tensor(values), tensor(wanted), side=side, sorter=tensor(order.astype(kind)))
            same(found, np.asarray(np.searchsorted(values, wanted, side, order)))
    else:
        found = xp.searchsorted(tensor(values[order]), tensor(wanted), side=side)
        same(found, np.asarray(np.searchsorted(values[order], wanted, side)))


@some
@given(with_axis(REAL), st.booleans())
def test_sorting(given_: Any, descending: bool) -> None:
    """Equal elements keep their order, also in a descending sort."""
    array, axis = given_
    x = tensor(array)
    backwards = np.flip(np.sort(array, axis), axis) if descending else np.sort(array, axis)
    same(xp.sort(x, axis=axis, descending=descending), backwards)
    keys = np.unique(array, return_inverse=True)[1].reshape(array.shape)
    places = np.argsort(-keys if descending else keys, axis, stable=True)
    same(xp.argsort(x, axis=axis, descending=descending), places)
    unstable = xp.argsort(x, axis=axis, descending=descending, stable=False)
    same(xp.take_along_axis(x, unstable, axis=axis), backwards)


@some
@given(arrays())
def test_sets(array: Any) -> None:
    x = tensor(array)
    values, indices, inverse, counts = np.unique_all(array)
    found = xp.unique_all(x)
    assert found._fields == ("values", "indices", "inverse_indices", "counts")
    same(found, (values, indices, inverse, counts))
    assert xp.unique_counts(x)._fields == ("values", "counts")
    same(xp.unique_counts(x), (values, counts))
    assert xp.unique_inverse(x)._fields == ("values", "inverse_indices")
    same(xp.unique_inverse(x), (values, inverse))
    same(xp.unique_values(x), values)


def test_each_nan_is_distinct_and_zeros_of_both_signs_are_equal() -> None:
    array = np.array([np.nan, 0.0, -0.0, np.nan, 1.0])
    found = xp.unique_all(tensor(array))
    assert found.counts.tolist() == [2, 1, 1, 1]
    assert found.inverse_indices.tolist() == np.unique_all(array).inverse_indices.tolist()


# Statistics


@pytest.mark.parametrize("name", ["sum", "prod"])
def test_sums_and_products(name: str) -> None:
    @some
    @given(with_axes(NUMERIC), st.booleans(), st.sampled_from([None, *NUMERIC]))
    def test(given_: Any, keepdims: bool, into: str | None) -> None:
        array, axes = given_
        assume(into is None or array.dtype.kind != "c" or into in COMPLEX)
        array = array % 4 if array.dtype.kind in "iuf" else array
        wanted = None if into is None else getattr(xp, into)
        found = getattr(xp, name)(tensor(array), axis=axes, dtype=wanted, keepdims=keepdims)
        assume(into is None or array.dtype.kind != "f" or into in FLOATING)
        expected = quiet(getattr(np, name), array, axis=axes, dtype=into, keepdims=keepdims)
        if found.dtype.name in INTEGERS:
            same(found, expected)
        else:
            assert found.dtype.name == expected.dtype.name
            np.testing.assert_allclose(found.numpy(), expected, rtol=1e-4, atol=1e-4)

    test()


@pytest.mark.parametrize("name", ["max", "min"])
def test_extrema(name: str) -> None:
    @some
    @given(with_axes(REAL, True), st.booleans())
    def test(given_: Any, keepdims: bool) -> None:
        array, axes = given_
        expected = getattr(np, name)(array, axis=axes, keepdims=keepdims)
        same(getattr(xp, name)(tensor(array), axis=axes, keepdims=keepdims), expected)

    test()


@pytest.mark.parametrize("name", ["all", "any"])
def test_all_and_any(name: str) -> None:
    @some
    @given(with_axes(), st.booleans())
    def test(given_: Any, keepdims: bool) -> None:
        array, axes = given_
        expected = getattr(np, name)(array, axis=axes, keepdims=keepdims)
        same(getattr(xp, name)(tensor(array), axis=axes, keepdims=keepdims), expected)

    test()


@pytest.mark.parametrize("name", ["mean", "std", "var"])
def test_means(name: str) -> None:
    @some
    @given(with_axes(FLOATING if name == "mean" else FLOATS, True), st.booleans(), st.sampled_from([0, 1, 0.5, 2.0]))
    def test(given_: Any, keepdims: bool, correction: float) -> None:
        array, axes = given_
        options: dict[str, Any] = {} if name == "mean" else {"correction": correction}
        count = array.size if axes is None else math.prod(np.array(array.shape)[list(np.atleast_1d(axes))])
        assume(name == "mean" or count > correction)
        expected = getattr(np, name)(array, axis=axes, keepdims=keepdims, **options)
        found = getattr(xp, name)(tensor(array), axis=axes, keepdims=keepdims, **options)
        assert (tuple(found.shape), found.dtype.name) == (expected.shape, expected.dtype.name)
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-4, atol=1e-5)

    test()


@pytest.mark.parametrize("name", ["cumulative_sum", "cumulative_prod"])
def test_cumulative_functions(name: str) -> None:
    @some
    @given(with_axis(NUMERIC), st.booleans(), st.sampled_from([None, "float64", "complex128"]))
    def test(given_: Any, initial: bool, into: str | None) -> None:
        array, axis = given_
        assume(array.dtype.kind != "c" or into in (None, "complex128"))
        wanted = None if into is None else getattr(xp, into)
        found = getattr(xp, name)(tensor(array), axis=axis, dtype=wanted, include_initial=initial)
        expected = getattr(np, name)(array, axis=axis, dtype=into, include_initial=initial)
        assert found.dtype.name == expected.dtype.name
        assert tuple(found.shape) == expected.shape
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-4, atol=1e-4)
        if array.ndim == 1:
            assert getattr(xp, name)(tensor(array)).dtype.name == getattr(np, name)(array).dtype.name

    test()


@some
@given(with_axis(NUMERIC), st.integers(0, 3), st.booleans(), st.booleans(), seeds)
def test_diff(given_: Any, times: int, before: bool, behind: bool, seed: int) -> None:
    array, axis = given_
    shape = list(array.shape)
    shape[axis] = 2
    ends = {
        name: made(tuple(shape), array.dtype.name, seed)
        for name, wanted in (("prepend", before), ("append", behind))
        if wanted
    }
    ours = {name: tensor(end) for name, end in ends.items()}
    same(xp.diff(tensor(array), axis=axis, n=times, **ours), np.diff(array, times, axis, **ends))


@few
@given(arrays(NUMERIC, True), arrays(NUMERIC, True))
def test_gradients_of_functions_of_several_tensors(one: Any, other: Any) -> None:
    x = tensor(np.abs(one).astype(float)).requires_grad_()
    total = xp.sum(xp.roll(xp.flip(x), 1)) + xp.sum(xp.tile(x, (2,))) + xp.sum(xp.cumulative_sum(xp.reshape(x, (-1,))))
    total.backward()
    assert x.grad is not None
    expected = 3.0 + np.arange(one.size, 0, -1).reshape(one.shape)
    np.testing.assert_allclose(x.grad.numpy(), expected)
    assert flow.is_tensor(total)
