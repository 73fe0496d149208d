"""Random index expressions for tensors of random shapes: reading, writing and gradients against numpy, and PyTorch.

The elements that an expression names are found by indexing an array of positions with numpy.  Two rules differ from
numpy's, as in PyTorch: integers and 0-d tensors are applied before index tensors and do not count as such, and the step
of a slice must be positive.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import vmflow as flow

from .oracle import Array, check

SHAPES = st.lists(st.integers(0, 4), min_size=0, max_size=4).map(tuple)
INTEGERS = ("int64", "int32", "int8")

_seeded = settings(derandomize=True, database=None)


class Given:
    """A wrapped array, in contrast to the objects that numpy and vmflow treat as arrays."""

    def __init__(self, array: Array, form: str) -> None:
        self.array = array
        self.form = form

    def __repr__(self) -> str:
        return f"{self.form}({self.array.tolist()}, {self.array.dtype})"


@st.composite
def _arrays(draw: st.DrawFn, size: int, joint: tuple[int, ...]) -> Given:
    count = math.prod(joint)
    numbers = draw(st.lists(st.integers(-size, max(size, 1) - 1), min_size=count, max_size=count))
    array = np.array(numbers, draw(st.sampled_from(INTEGERS))).reshape(joint)
    return Given(array, draw(st.sampled_from(["tensor", "array", "list"] if count else ["tensor", "array"])))


@st.composite
def _slices(draw: st.DrawFn, size: int) -> slice:
    bound = st.none() | st.integers(-size - 2, size + 2)
    return slice(draw(bound), draw(bound), draw(st.none() | st.integers(1, 3)))


@st.composite
def _items(draw: st.DrawFn, sizes: tuple[int, ...], joint: tuple[int, ...]) -> list[Any]:
    """An item for each of these dimensions, with None and truth values among them."""
    items: list[Any] = []
    dim = 0
    while True:
        while draw(st.integers(0, 9)) == 9:
            items.append(draw(st.sampled_from([None, True, False])))
        if dim == len(sizes):
            return items
        size = sizes[dim]
        kinds = ["slice", "slice", "mask"]
        if size:
            kinds += ["int", "number", "0-d"]
        if size or 0 in joint:
            kinds += ["array", "array"]
        if dim + 1 < len(sizes):
            kinds.append("wide mask")
        kind = draw(st.sampled_from(kinds))
        dim += 2 if kind == "wide mask" else 1
        if kind == "slice":
            items.append(draw(_slices(size)))
        elif kind == "array":
            items.append(draw(_arrays(size, joint)))
        elif kind in ("int", "number", "0-d"):
            place = draw(st.integers(-size, size - 1))
            items.append({"int": place, "number": np.int64(place), "0-d": Given(np.array(place), "tensor")}[kind])
        else:
            shape = (size,) if kind == "mask" else sizes[dim - 2 : dim]
            count = math.prod(shape)
            flags = draw(st.lists(st.booleans(), min_size=count, max_size=count))
            items.append(Given(np.array(flags, bool).reshape(shape), "tensor"))


@st.composite
def _expressions(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[Any, ...]]:
    """A shape, and an expression that indexes it."""
    shape = draw(SHAPES)
    joint = draw(st.sampled_from([(2,), (2, 1), (3, 2), (1,), (0,)]))
    first = draw(st.integers(0, len(shape)))
    items = draw(_items(shape[:first], joint))
    if draw(st.booleans()):
        last = draw(st.integers(first, len(shape)))
        items = [*items, Ellipsis, *draw(_items(shape[last:], joint))]
    return shape, tuple(items)


def _consumed(item: Any) -> int:
    if item is None or item is Ellipsis or isinstance(item, bool):
        return 0
    return item.array.ndim if isinstance(item, Given) and item.array.dtype.kind == "b" else 1


def _named(shape: tuple[int, ...], index: tuple[Any, ...]) -> Array | None:
    """The positions that an expression names, or None if its index tensors do not broadcast."""
    rest = len(shape) - sum([_consumed(value) for value in index])
    first: list[Any] = []
    then: list[Any] = []
    for item in index if Ellipsis in [value for value in index if value is Ellipsis] else (*index, Ellipsis):
        if item is Ellipsis:
            first += [slice(None)] * rest
            then += [slice(None)] * rest
        elif isinstance(item, bool):
            first.append(None)
            then.append(np.array([0] if item else [], np.int64))
        elif isinstance(item, Given) and item.array.ndim:
            first += [slice(None)] * _consumed(item)
            then.append(item.array)
        elif isinstance(item, Given):
            first.append(int(item.array))
        else:
            first.append(item)
            if item is None or isinstance(item, slice):
                then.append(slice(None))
    part = np.arange(math.prod(shape)).reshape(shape)[(*first, Ellipsis)]
    try:
        return np.asarray(part[tuple(then)])
    except IndexError:
        return None


def _ours(index: tuple[Any, ...]) -> Any:
    """The expression as it is given to vmflow; a single item not always as a tuple."""
    made = tuple([_made(value) for value in index])
    return made[0] if len(made) == 1 else made


def _made(item: Any) -> Any:
    if not isinstance(item, Given):
        return item
    if item.form == "tensor":
        return flow.tensor(item.array)
    return item.array if item.form == "array" else item.array.tolist()


def _values(shape: tuple[int, ...]) -> Array:
    return np.random.default_rng([5, *shape]).uniform(-1, 1, shape)


@given(_expressions())
@settings(_seeded, max_examples=250)
def test_reading(case: tuple[tuple[int, ...], tuple[Any, ...]]) -> None:
    shape, index = case
    array, chosen = _values(shape), _named(shape, index)
    whole = flow.tensor(array)
    turned = flow.tensor(np.ascontiguousarray(array.T)).T if array.ndim else whole
    for tensor in (whole, turned):
        if chosen is None:
            with pytest.raises((IndexError, ValueError)):
                tensor[_ours(index)].numpy()
        else:
            check(tensor[_ours(index)], array.reshape(-1)[chosen], "float64")


@st.composite
def _values_for(draw: st.DrawFn, chosen: Array) -> Array:
    """Values that broadcast to the chosen places; one number if places repeat, since either value may win."""
    if len(np.unique(chosen)) < chosen.size:
        return np.array(draw(st.integers(2, 9)), np.float64)
    kept = chosen.shape[draw(st.integers(0, chosen.ndim)) :]
    shape = tuple([draw(st.sampled_from([size, 1])) for size in kept])
    ones = draw(st.integers(0, 2)) if len(shape) == chosen.ndim else 0
    return np.random.default_rng(chosen.size).uniform(2, 9, (1,) * ones + shape)


@given(_expressions(), st.data())
@settings(_seeded, max_examples=250)
def test_writing(case: tuple[tuple[int, ...], tuple[Any, ...]], data: st.DataObject) -> None:
    shape, index = case
    array, chosen = _values(shape), _named(shape, index)
    whole = flow.tensor(array)
    turned = flow.tensor(np.ascontiguousarray(array.T)).T if array.ndim else whole.clone()
    value = np.array(7.0) if chosen is None else data.draw(_values_for(chosen))
    expected = array.copy()
    if chosen is not None:
        expected.reshape(-1)[chosen] = value.reshape(value.shape[max(value.ndim - chosen.ndim, 0) :])
    form = data.draw(st.sampled_from(["tensor", "array", "number"]))
    written: Any = flow.tensor(value) if form == "tensor" else value
    if form == "number" and value.ndim == 0:
        written = float(value)
    for tensor in (whole, turned):
        if chosen is None and 0 not in shape:
            with pytest.raises((IndexError, ValueError)):
                _written(tensor, index, written).numpy()
        elif chosen is not None:
            check(_written(tensor, index, written), expected, "float64")


def _written(tensor: flow.Tensor, index: tuple[Any, ...], value: Any) -> flow.Tensor:
    tensor[_ours(index)] = value
    return tensor


@given(_expressions(), st.data())
@settings(_seeded, max_examples=150)
def test_gradients(case: tuple[tuple[int, ...], tuple[Any, ...]], data: st.DataObject) -> None:
    """Both are linear: the gradient of each place is the sum over the places that it went to."""
    shape, index = case
    chosen = _named(shape, index)
    if chosen is None:
        return
    source = flow.tensor(_values(shape), requires_grad=True)
    weights = _values(chosen.shape) + 2
    (found,) = flow.autograd.grad((source[_ours(index)] * flow.tensor(weights)).sum(), source)
    expected = np.zeros(math.prod(shape))
    np.add.at(expected, chosen.reshape(-1), weights.reshape(-1))
    check(found, expected.reshape(shape), "float64", tolerance=1e-12)

    value = data.draw(_values_for(chosen))
    given_value = flow.tensor(value, requires_grad=True)
    target = source * 1
    target[_ours(index)] = given_value
    weights = _values(shape) + 2
    kept, put = flow.autograd.grad((target * flow.tensor(weights)).sum(), (source, given_value), allow_unused=True)
    replaced = np.isin(np.arange(math.prod(shape)).reshape(shape), chosen)
    check(_or_zeros(kept, source), np.where(replaced, 0.0, weights), "float64")
    summed = weights.reshape(-1)[chosen]
    narrow = value.reshape(value.shape[max(value.ndim - chosen.ndim, 0) :])
    summed = summed.sum(tuple(range(chosen.ndim - narrow.ndim)))
    summed = summed.sum(tuple([entry for entry, size in enumerate(narrow.shape) if size == 1]), keepdims=True)
    check(_or_zeros(put, given_value), summed.reshape(value.shape), "float64", tolerance=1e-12)


def _or_zeros(gradient: flow.Tensor | None, of: flow.Tensor) -> flow.Tensor:
    """Where nothing is left of a tensor, nothing flows back at all."""
    return flow.zeros_like(of) if gradient is None else gradient


@given(_expressions())
@settings(_seeded, max_examples=120)
def test_shapes_and_elements_are_those_of_pytorch(case: tuple[tuple[int, ...], tuple[Any, ...]]) -> None:
    torch = pytest.importorskip("torch")
    shape, index = case
    chosen = _named(shape, index)
    if chosen is None:
        return
    array = np.arange(math.prod(shape)).reshape(shape)
    theirs = tuple(
        [torch.tensor(value.array.astype(_theirs(value))) if isinstance(value, Given) else value for value in index]
    )
    check(flow.tensor(array)[_ours(index)], torch.tensor(array)[theirs].numpy(), "int64")


def _theirs(item: Given) -> Any:
    """PyTorch indexes by int8 only where it means a mask."""
    return np.bool_ if item.array.dtype.kind == "b" else np.int64


@given(SHAPES, st.data())
@settings(_seeded, max_examples=150)
def test_integers_out_of_range_and_too_many(shape: tuple[int, ...], data: st.DataObject) -> None:
    tensor = flow.zeros(shape)
    if not shape or data.draw(st.booleans()):
        index: Any = (slice(None),) * (len(shape) + 1)
    else:
        dim = data.draw(st.integers(0, len(shape) - 1))
        wrong = data.draw(st.sampled_from([shape[dim], -shape[dim] - 1, 100]))
        item = data.draw(st.sampled_from([wrong, np.int64(wrong)]))
        index = (slice(None),) * dim + (item,)
    with pytest.raises(IndexError):
        _ = tensor[index]
    with pytest.raises(IndexError):
        tensor[index] = 1.0


@given(st.integers(-4, 0), st.integers(-5, 5), st.integers(-5, 5))
@settings(_seeded, max_examples=50)
def test_steps_that_are_not_positive_are_refused(step: int, start: int, stop: int) -> None:
    tensor = flow.zeros(4, 3)
    with pytest.raises(ValueError, match=r"must be positive, got .*; use flip\(\)"):
        _ = tensor[start:stop:step]
    with pytest.raises(ValueError, match="must be positive"):
        tensor[:, start:stop:step] = 1.0
