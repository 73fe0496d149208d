"""Reading and writing parts: random index expressions against numpy, gradients, gather and scatter, errors."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import vmflow as flow
from tests.support import arrays_for, check_gradients
from vmflow import interpreter
from vmflow.ops.indexing.gathering import one_hot, scatter_slice
from vmflow.ops.indexing.index_expression import _NONZERO

from .narrow_rows import gradient_of
from .oracle import (
    ALL,
    FRACTIONAL,
    INTEGERS,
    REAL,
    Array,
    KernelContract,
    Row,
    Shapes,
    check,
    gradient_test,
    layouts,
    sample,
    values,
)

MATRIX: tuple[Shapes, ...] = (((3, 4),),)
PICK = np.array([2, 0, -1, 2])
MASK = np.array([True, False, True])


def _put(x: Array, place: Any, value: Any) -> Array:
    copy = x.copy()
    copy[place] = value
    return copy


def _added(x: Array, place: Any, value: Any) -> Array:
    copy = x.copy()
    np.add.at(copy, place, value)
    return copy


def _written(x: flow.Tensor, place: Any, value: Any) -> flow.Tensor:
    # Only for tensors with gradients, a part is written as a change of the whole.
    copy = (x if x.requires_grad or not x.is_floating_point() else x.clone().requires_grad_()) * 1
    copy[place] = value
    return copy


ALONG = np.array([[2, 0, 1, 2], [0, 0, 2, 1]])
PAIRED = ((3, 4), (2, 4))
NUMERIC = (*FRACTIONAL, *INTEGERS)

SMALL: tuple[Shapes, ...] = (((5,),), ((),), ((0,),), ((3, 0),), ((3, 4),))
TWO_SMALL: tuple[Shapes, ...] = tuple([(value, value) for (value,) in SMALL])


ROWS_OF_FOUR: tuple[Shapes, ...] = (((4,),), ((3, 4),), ((0, 4),))


def _backwards(x: flow.Tensor) -> flow.Tensor:
    """Places that name the last dimension's elements from the end."""
    if not x.ndim:
        return flow.tensor(0)
    return flow.arange(x.shape[-1]).flip(0).expand(x.shape)


def _turned(x: Array) -> Array:
    return np.flip(x, -1) if x.ndim else x


def _part(x: flow.Tensor) -> flow.Tensor:
    return x[flow.arange(x.shape[0])] if x.ndim else x[flow.tensor(True)]


ROWS: list[Row] = [
    Row("index", _part, lambda x: x if x.ndim else x[None], ALL, shapes=SMALL, order=2, label="-small"),
    Row("count_nonzero", lambda x: x.count_nonzero(), np.count_nonzero, ALL, result="int64"),
    Row(
        "nonzero",
        lambda x: interpreter.dispatch(_NONZERO, (flow.ones_like(x),), (x.numel(), False)),
        lambda x: np.argwhere(np.ones(x.shape)),
        ALL,
        result="int64",
    ),
    Row(
        "index_put",
        lambda x, y: flow.index_put(x, (flow.arange(x.shape[0]) if x.ndim else flow.tensor(True),), y),
        lambda x, y: y,
        ALL,
        shapes=TWO_SMALL,
        order=2,
        label="-small",
    ),
    Row(
        "index",
        lambda x: x[flow.tensor(1)],
        lambda x: x[1],
        ALL,
        shapes=(((3, 4),), ((5,),), ((2, 0),)),
        order=2,
        label="-one",
    ),
    Row(
        "index_add_to_zeros",
        gradient_of(lambda x: x[flow.tensor(1)]),
        lambda x: _put(0 * x, 1, 2 * np.conj(x[1])),
        FRACTIONAL,
        shapes=(((3, 4),), ((5,),), ((2, 0),)),
        label="-one",
    ),
    Row("gather", lambda x: x.gather(-1, _backwards(x)), _turned, ALL, shapes=SMALL, order=2, label="-small"),
    Row(
        "scatter",
        lambda x, y: x.scatter(-1, _backwards(x), y),
        lambda x, y: _turned(y),
        ALL,
        shapes=TWO_SMALL,
        order=2,
        label="-small",
    ),
    Row(
        "index_add_to_zeros",
        gradient_of(_part),
        lambda x: 2 * np.conj(x),
        FRACTIONAL,
        shapes=SMALL,
        label="-small",
    ),
    Row(
        "index",
        lambda x: x[flow.tensor(PICK)],
        lambda x: x[PICK],
        ALL,
        shapes=(*MATRIX, ((3,),), ((3, 2, 4),)),
        order=2,
        graded=((3, 2),),
    ),
    Row("index", lambda x: x[MASK], lambda x: x[MASK], ALL, shapes=MATRIX, order=2, graded=((3, 2),), label="-mask"),
    Row(
        "index",
        lambda x: x.index_select(1, flow.tensor([1, 0, 1])),
        lambda x: x[:, [1, 0, 1]],
        ALL,
        shapes=MATRIX,
        order=2,
        graded=((2, 2),),
        label="-select",
    ),
    Row(
        "index_put",
        lambda x: flow.index_put(x, (flow.tensor(PICK),), x[:1]),
        lambda x: _put(x, PICK, x[:1]),
        ALL,
        shapes=MATRIX,
    ),
    Row(
        "index_put",
        lambda x, y: flow.index_put(x, (flow.tensor([2, 0]),), y),
        lambda x, y: _put(x, [2, 0], y),
        ALL,
        shapes=(PAIRED,),
        order=2,
        graded=((3, 2), (2, 2)),
        label="-two",
    ),
    Row(
        "index_put",
        lambda x, y: flow.index_put(x, (flow.tensor([2, 2]),), y, True),
        lambda x, y: _added(x, [2, 2], y),
        NUMERIC,
        shapes=(PAIRED,),
        order=2,
        graded=((3, 2), (2, 2)),
        label="-added",
    ),
    Row(
        "gather",
        lambda x: x.gather(0, flow.tensor(ALONG)),
        lambda x: np.take_along_axis(x, ALONG, 0),
        ALL,
        shapes=MATRIX,
        order=2,
        graded=((3, 4),),
    ),
    Row(
        "scatter",
        lambda x, y: x.scatter(0, flow.tensor([[2, 0, 1, 2]]), y),
        lambda x, y: _put(x, ([2, 0, 1, 2], [0, 1, 2, 3]), y[0]),
        ALL,
        shapes=(PAIRED,),
        order=2,
        graded=((3, 4), (2, 4)),
    ),
    Row(
        "scatter",
        lambda x, y: x.scatter_add(0, flow.tensor(ALONG), y),
        lambda x, y: _added(x, (ALONG, np.arange(4)), y),
        NUMERIC,
        shapes=(PAIRED,),
        order=2,
        graded=((3, 4), (2, 4)),
        label="-added",
    ),
    Row(
        "index_add_to_zeros",
        lambda x: _gradient_of_index(x),
        lambda x: _added(np.zeros((4, 4), x.dtype), PICK[:3], x),
        FRACTIONAL,
        shapes=MATRIX,
    ),
    Row(
        "scatter_slices",
        lambda x: scatter_slice(x, flow.zeros(3, 9)._blob.meta, (1, 1, 4, 2)),
        lambda x: _put(np.zeros((3, 9), x.dtype), (slice(None), slice(1, 9, 2)), x),
        ALL,
        shapes=MATRIX,
        order=2,
        graded=((3, 4),),
    ),
    Row(
        "strided_put",
        lambda x: _written(x, (slice(None), 1), x[:, 0]),
        lambda x: _put(x, (slice(None), 1), x[:, 0]),
        REAL,
        shapes=MATRIX,
        order=2,
    ),
    Row(
        "strided_put",
        lambda x: _written(x, (..., 0), x[..., 1]),
        lambda x: _put(x, (..., 0), x[..., 1]),
        REAL,
        shapes=ROWS_OF_FOUR,
        order=2,
        label="-small",
    ),
    Row(
        "scatter_slices",
        gradient_of(lambda x: x[..., 0]),
        lambda x: _put(0 * x, (..., 0), 2 * np.conj(x[..., 0])),
        FRACTIONAL,
        shapes=ROWS_OF_FOUR,
        label="-small",
    ),
    Row(
        "one_hot",
        lambda x: one_hot(x, 4),
        lambda x: np.eye(4, dtype=np.int64)[x],
        INTEGERS,
        result="int64",
        shapes=(((3, 4),), ((),), ((5,),), ((0,),)),
        domain=((0.0, 3.0),),
    ),
]


def _gradient_of_index(x: flow.Tensor) -> flow.Tensor:
    source = flow.zeros(4, 4, dtype=x.dtype, requires_grad=True)
    (found,) = flow.autograd.grad(source[flow.tensor(PICK)[:3]], source, x)
    assert found is not None
    return found


def test_rows_that_record_need_a_gradient(contract: KernelContract) -> None:
    tracked = flow.tensor(sample((3, 4), "float64"), requires_grad=True)
    _written(tracked, (slice(None), 1), tracked[:, 0]).sum().backward()
    assert {"strided_put", "strided_get"} <= contract.seen


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_forward(row: Row, contract: KernelContract) -> None:
    row.check_forward()
    assert row.op in contract.seen or row.op == "strided_put"


test_gradient = gradient_test(ROWS)


# Random index expressions

SHAPE = (3, 2, 4, 2)


@st.composite
def _indices(draw: st.DrawFn) -> tuple[Any, ...]:
    """An index expression for an array of SHAPE, with its tensors as numpy arrays."""
    joint = draw(st.sampled_from([(3,), (2, 1), (2, 3), (1,), ()]))
    items: list[Any] = []
    dim = 0
    ellipsis = False
    for _ in range(draw(st.integers(0, 6))):
        kinds = ["none", "bool"] + ([] if ellipsis else ["ellipsis"])
        if dim < len(SHAPE):
            kinds += ["int", "slice", "slice", "array", "array", "mask"]
        kind = draw(st.sampled_from(kinds))
        if kind == "none":
            items.append(None)
        elif kind == "bool":
            items.append(draw(st.booleans()))
        elif kind == "ellipsis":
            ellipsis = True
            items.append(Ellipsis)
        else:
            # Behind an ellipsis dimensions count from the end; sizes are chosen to fit either way below.
            size = SHAPE[dim]
            dim += 1
            if kind == "int":
                items.append(draw(st.integers(-2, 1)))
            elif kind == "slice":
                bound = st.none() | st.integers(-size - 1, size + 1)
                items.append(slice(draw(bound), draw(bound), draw(st.none() | st.integers(1, 3))))
            elif kind == "array":
                count = math.prod(joint)
                numbers = draw(st.lists(st.integers(-2, 1), min_size=count, max_size=count))
                items.append(np.array(numbers, np.int64).reshape(joint))
            elif not ellipsis:
                items.append(np.array(draw(st.lists(st.booleans(), min_size=size, max_size=size))))
            else:
                items.append(slice(None))
    return tuple(items)


def _oracle(array: Array, index: tuple[Any, ...]) -> tuple[Array, tuple[Any, ...]]:
    """The array and the index that remain once integers, slices and None are applied as views.

    numpy counts an integer as an index array where there are others; PyTorch applies it first, as here.
    """
    consumed = sum([0 if value is None or value is Ellipsis or isinstance(value, bool) else 1 for value in index])
    if Ellipsis not in [value for value in index if not isinstance(value, np.ndarray)]:
        index = (*index, Ellipsis)
    first: list[Any] = []
    then: list[Any] = []
    for item in index:
        if isinstance(item, bool):
            first.append(None)
            then.append(np.array([0] if item else [], np.int64))
        elif isinstance(item, np.ndarray) and item.ndim == 0:
            first.append(int(item))
        elif isinstance(item, np.ndarray):
            first.append(slice(None))
            then.append(item)
        elif item is Ellipsis:
            first += [slice(None)] * (array.ndim - consumed)
            then += [slice(None)] * (array.ndim - consumed)
        elif isinstance(item, int):
            first.append(item)
        else:
            first.append(item)
            then.append(slice(None))
    return array[(*first, Ellipsis)], tuple(then)


def _as_tensors(index: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple([flow.tensor(value) if isinstance(value, np.ndarray) else value for value in index])


def _indexed(index: tuple[Any, ...], array: Array) -> Array | None:
    """The elements, by the oracle, or None if the expression does not fit."""
    part, rest = _oracle(array, index)
    try:
        return np.asarray(part[rest])
    except IndexError:
        return None


@given(_indices())
@settings(max_examples=300)
def test_reading(index: tuple[Any, ...]) -> None:
    array = np.arange(float(math.prod(SHAPE))).reshape(SHAPE)
    expected = _indexed(index, array)
    if expected is None:
        with pytest.raises((IndexError, ValueError)):
            flow.tensor(array)[_as_tensors(index)].numpy()
        return
    check(flow.tensor(array)[_as_tensors(index)], expected, "float64")
    # Also a view, whose strides are not those of its shape.
    turned = flow.tensor(np.ascontiguousarray(array.T)).T
    check(turned[_as_tensors(index)], expected, "float64")


@given(_indices(), st.data())
@settings(max_examples=300)
def test_writing(index: tuple[Any, ...], data: st.DataObject) -> None:
    array = np.arange(float(math.prod(SHAPE))).reshape(SHAPE)
    indexed = _indexed(index, array)
    if indexed is None:
        return
    shape = indexed.shape
    form = data.draw(st.sampled_from(["number", "0-d", "full", "tail", "ones"]))
    arrays = [entry for entry in index if isinstance(entry, np.ndarray) and entry.dtype.kind == "i"]
    # If several values go to one place, it is undefined which comes last.
    if arrays or form == "number":
        form = form if form in ("number", "0-d") else "0-d"
    value: Any = {
        "number": -7.0,
        "0-d": np.array(-7.0),
        "full": -np.arange(float(math.prod(shape))).reshape(shape),
        "tail": -np.arange(float(math.prod(shape[1:]))).reshape(shape[1:]),
        "ones": -np.ones((1, 1, *shape)),
    }[form]
    given_value = value if isinstance(value, float) else flow.tensor(value)
    expected = array.copy()
    part, rest = _oracle(expected, index)
    part[rest] = value.reshape(shape) if form == "ones" else value
    plain, turned = flow.tensor(array), flow.tensor(np.ascontiguousarray(array.T)).T
    for tensor in (plain, turned):
        tensor[_as_tensors(index)] = given_value
        check(tensor, expected, "float64")


@given(_indices(), st.integers(0, 100))
@settings(max_examples=100)
def test_gradients_of_reading_and_writing(index: tuple[Any, ...], seed: int) -> None:
    """Both are linear: their gradient is the adjoint, computed by indexing an array of positions."""
    positions = np.arange(math.prod(SHAPE)).reshape(SHAPE)
    chosen = _indexed(index, positions)
    if chosen is None:
        return
    generator = np.random.default_rng(seed)
    source = flow.tensor(generator.uniform(-1, 1, SHAPE), requires_grad=True)
    weights = generator.uniform(-1, 1, chosen.shape)
    (source[_as_tensors(index)] * flow.tensor(weights)).sum().backward()
    expected = np.zeros(math.prod(SHAPE))
    np.add.at(expected, chosen.reshape(-1), weights.reshape(-1))
    check(source.grad, expected.reshape(SHAPE), "float64", tolerance=1e-12)

    source.grad = None
    number = flow.tensor(0.5, dtype=flow.float64, requires_grad=True)
    weights = generator.uniform(-1, 1, SHAPE)
    target = source * 1
    target[_as_tensors(index)] = number
    (target * flow.tensor(weights)).sum().backward()
    replaced = np.isin(positions, chosen)
    # Where everything was replaced, nothing flows back at all.
    gradient = source.grad if source.grad is not None or not replaced.all() else flow.zeros(SHAPE, dtype=flow.float64)
    check(gradient, np.where(replaced, 0.0, weights), "float64")
    # Each place of an index tensor counts, also those that name one element twice.
    check(number.grad, weights.reshape(-1)[chosen.reshape(-1)].sum(), "float64", tolerance=1e-12)


def test_gradients_of_assigned_values_against_numerical_ones() -> None:
    index = flow.tensor([2, 0])
    mask = flow.tensor([True, False, True])
    x, row, pair = arrays_for(0, (3, 4), (4,), (2, 2))
    check_gradients(lambda a, b: _written(a, 1, b), x, row)
    check_gradients(lambda a, b: _written(a, (slice(None), slice(0, 4, 3)), b[:2]), x, row)
    check_gradients(lambda a, b: _written(a, index, b), x, row, second=True)
    check_gradients(lambda a, b: _written(a, (index, slice(1, 3)), b), x, pair)
    check_gradients(lambda a, b: _written(a, (slice(0, 2), index), b), x, pair)
    check_gradients(lambda a, b: _written(a, (mask, slice(None, None, 2)), b), x, pair)
    check_gradients(lambda a, b: _written(a, mask, b[0, 0]), x, pair)
    check_gradients(
        lambda a, b: _written(a, mask.unsqueeze(1) & flow.tensor([True, False, True, False]), b.reshape(4)), x, pair
    )
    check_gradients(lambda a: _written(a, (..., -1), 3.0) * a, x, second=True)

    def into_zeros(a: flow.Tensor) -> flow.Tensor:
        buffer = flow.zeros(4, 3, dtype=flow.float64)
        buffer[1:3] = a[:2, :3]
        buffer[0, index] = a[2, :2]
        return buffer * buffer

    check_gradients(into_zeros, x, second=True)


def test_gradient_of_a_value_with_more_dimensions_than_its_place(contract: KernelContract) -> None:
    """Its gradient has its leading dimensions of size 1 as well."""
    x, row, flags = *arrays_for(0, (3, 4), (1, 1, 2, 4)), flow.tensor([False, False, False])
    check_gradients(lambda a, b: _written(a, flow.tensor([2, 0]), b), x, row)
    check_gradients(lambda a, b: flow.index_put(a, (flow.tensor([2, 0]),), b, True), x, row, second=True)
    nothing = flow.ones(1, 1, 1, 4, dtype=flow.float64, requires_grad=True)
    _written(flow.tensor(x), flags, nothing).sum().backward()
    check(nothing.grad, np.zeros((1, 1, 1, 4)), "float64")


# Single forms


def test_forms_of_an_index(contract: KernelContract) -> None:
    array = sample((3, 4), "float64")
    for _, tensor in layouts(array):
        check(tensor[[0, 2]], array[[0, 2]], "float64")
        check(tensor[[[0], [2]], [1, 2]], array[[[0], [2]], [1, 2]], "float64")
        check(tensor[[True, False, True]], array[[True, False, True]], "float64")
        check(tensor[np.array([0, 2], np.int32)], array[[0, 2]], "float64")
        check(tensor[np.array([True, False, True])], array[[0, 2]], "float64")
        check(tensor[range(2)], array[:2], "float64")
        check(tensor[[]], array[[]], "float64")
        check(tensor[np.int64(1)], array[1], "float64")
        check(tensor[flow.tensor(1)], array[1], "float64")
        check(tensor[flow.tensor([0, 1], dtype=flow.uint8)], array[:2], "float64")
        check(tensor[flow.tensor(1) : flow.tensor(3)], array[1:3], "float64")
        check(tensor[tensor > 0], array[array > 0], "float64")
        check(tensor[(tensor > 0).any(1)], array[(array > 0).any(1)], "float64")
        check(tensor[True], array[None], "float64")
        check(tensor[False], array[None][:0], "float64")
        check(tensor[flow.tensor(True)], array[None], "float64")
        check(tensor[None, 0, ..., None], array[None, 0, ..., None], "float64")
        check(tensor[()], array, "float64")
        check(tensor[5:], array[5:], "float64")
        check(tensor[-2:100:2], array[-2::2], "float64")
    number = flow.tensor(3.0)
    check(number[None], [3.0], "float32")
    check(number[...], 3.0, "float32")
    check(number[True], [3.0], "float32")
    check(number[flow.tensor(False)], np.zeros(0), "float32")


def test_integers_before_index_tensors_do_not_move_their_dimensions(contract: KernelContract) -> None:
    """PyTorch's rule where numpy's differs: x[0, :, i] has the shape (b, len(i))."""
    tensor = flow.tensor(sample((2, 3, 4), "float64"))
    index = flow.tensor([1, 0, 1, 2, 0])
    assert tensor[0, :, index].shape == (3, 5)
    assert tensor[flow.tensor(0), :, index].shape == (3, 5)
    assert tensor[index[:2], :, index[:2]].shape == (2, 3)
    assert tensor[:, index, index].shape == (2, 5)
    assert tensor[index[:3] * 0, 0].shape == (3, 4)


def test_writing_casts_and_broadcasts(contract: KernelContract) -> None:
    tensor = flow.zeros(2, 3, dtype=flow.int64)
    tensor[0] = 2.7
    tensor[1, 1:] = flow.tensor([1.9, -1.9])
    check(tensor, [[2, 2, 2], [0, 1, -1]], "int64")
    tensor[flow.tensor([True, False])] = flow.tensor(9.9)
    check(tensor, [[9, 9, 9], [0, 1, -1]], "int64")
    tensor[:, flow.tensor([0])] = flow.tensor([[4.5], [5.5]])
    check(tensor, [[4, 9, 9], [5, 1, -1]], "int64")
    tensor[...] = flow.tensor([[1], [2]])
    check(tensor, [[1, 1, 1], [2, 2, 2]], "int64")
    tensor[True] = 7
    tensor[False] = 8
    check(tensor, np.full((2, 3), 7), "int64")
    tensor[1] = [1, 2, 3]
    tensor[0, :2] = np.array([4.0, 5.0])
    tensor[:0] = flow.ones(0, 3)
    check(tensor, [[4, 5, 7], [1, 2, 3]], "int64")
    flags = flow.zeros(3, dtype=flow.bool)
    flags[1] = 5
    check(flags, [False, True, False], "bool")
    real = flow.zeros(2)
    real[flow.tensor([0])] = flow.tensor([1 + 2j])
    check(real, [1.0, 0.0], "float32")


def test_writing_overlapping_parts(contract: KernelContract) -> None:
    tensor = flow.arange(5.0)
    tensor[1:] = tensor[:-1]
    check(tensor, [0.0, 0.0, 1.0, 2.0, 3.0], "float32")
    tensor[flow.tensor([0, 1, 2])] = tensor[2:]
    check(tensor, [1.0, 2.0, 3.0, 2.0, 3.0], "float32")
    indices = flow.tensor([1, 2, 0])
    indices[indices] = indices
    check(indices, [0, 1, 2], "int64")
    square = flow.arange(4.0).reshape(2, 2)
    square[:] = square.T
    check(square, [[0.0, 2.0], [1.0, 3.0]], "float32")


def test_writing_through_views_under_no_grad() -> None:
    tensor = flow.zeros(3, 4, requires_grad=True)
    with flow.no_grad():
        tensor[1] = 1.0
        tensor.T[0] = 2.0
        tensor[:, 2:][flow.tensor([0, 2])] = 3.0
        tensor[tensor == 1.0] = 4.0
    check(tensor, [[2, 0, 3, 3], [2, 4, 4, 4], [2, 0, 3, 3]], "float32")
    assert tensor.is_leaf
    assert tensor.requires_grad
    with pytest.raises(RuntimeError, match="a leaf tensor that requires a gradient"):
        tensor[0] = 1.0
    product = tensor * 1
    product[0][1:] = 1.0
    product.sum().backward()
    assert tensor.grad is not None
    check(tensor.grad, [[1, 0, 0, 0], [1, 1, 1, 1], [1, 1, 1, 1]], "float32")


async def test_masked_assignment_of_a_number_does_not_wait() -> None:
    tensor = flow.ones(1000, 1000)
    tensor[tensor.exp() > 3] = 0.0  # a blocking read would warn, which is an error here
    tensor[(tensor > 0).any(1)] = 2.0
    assert float((await tensor.sum()).item()) == 2e6


def test_index_put(contract: KernelContract) -> None:
    array = sample((3, 4), "float64")
    tensor = flow.tensor(array)
    one = flow.ones((), dtype=flow.float64)
    check(
        flow.index_put(tensor, (flow.tensor([0, 2]), flow.tensor([1, 3])), one),
        _put(array, ([0, 2], [1, 3]), 1),
        "float64",
    )
    check(
        flow.index_put(tensor, (None, flow.tensor([1, 1])), one, True),
        _added(array, (slice(None), [1, 1]), 1),
        "float64",
    )
    check(flow.index_put(tensor, (flow.tensor(MASK),), one), _put(array, MASK, 1), "float64")
    check(tensor.clone().index_put_((flow.tensor([0]),), one), _put(array, 0, 1), "float64")
    strided = flow.tensor(np.ascontiguousarray(array.T))
    strided.T.index_put_((flow.tensor([0, 0]),), one, accumulate=True)
    check(strided.T, _added(array, [0, 0], 1), "float64")
    with pytest.raises(ValueError, match="at least one index tensor"):
        flow.index_put(tensor, (None,), one)
    with pytest.raises(TypeError, match="a tuple of tensors"):
        flow.index_put(tensor, flow.tensor([0]), one)  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_repeated_indices_add_up_in_half_precision(dtype: str, contract: KernelContract) -> None:
    source = flow.zeros(2, dtype=getattr(flow, dtype), requires_grad=True)
    index = flow.zeros(4096, dtype=flow.int64)
    source[index].sum().backward()
    check(source.grad, [4096.0, 0.0], dtype)
    check(
        flow.zeros(1, dtype=getattr(flow, dtype)).scatter_add(0, index, flow.ones(4096, dtype=getattr(flow, dtype))),
        [4096.0],
        dtype,
    )


def test_index_of_slices(contract: KernelContract) -> None:
    array = sample((3, 4), "float64")
    source = sample((2, 4), "float64", 1)
    tensor, index, slices = flow.tensor(array), flow.tensor([2, 0]), flow.tensor(source)
    check(tensor.index_add(0, index, slices, alpha=2), _added(array, [2, 0], 2 * source), "float64")
    check(tensor.index_copy(0, index, slices), _put(array, [2, 0], source), "float64")
    check(tensor.index_fill(1, index, 5.0), _put(array, (slice(None), [2, 0]), 5), "float64")
    check(tensor.index_fill(1, index, flow.tensor(5.0)), _put(array, (slice(None), [2, 0]), 5), "float64")
    check(tensor.clone().index_add_(0, index * 0, slices), _added(array, [0, 0], source), "float64")
    check(tensor.index_select(0, flow.tensor(1)), array[1:2], "float64")
    check(flow.tensor(3.0).index_select(0, flow.tensor([0])), 3.0, "float32")
    check(flow.take_along_dim(tensor, tensor.argsort(1), 1), np.sort(array, 1), "float64")
    check(flow.take_along_dim(tensor, flow.tensor([[1]]), 0), array[1:2], "float64")
    check(flow.take_along_dim(tensor, flow.tensor([5, 0])), array.reshape(-1)[[5, 0]], "float64")
    check(flow.take_along_dim(flow.tensor(3.0), flow.tensor(0), 0), 3.0, "float32")
    check_gradients(lambda a, b: a.index_add(0, index, b), array, source, second=True)
    check_gradients(lambda a, b: a.index_copy(0, index, b), array, source)
    check_gradients(lambda a: a.index_fill(1, index, 2.0), array)


def test_gather_and_scatter(contract: KernelContract) -> None:
    array = sample((3, 4), "float64")
    for _, tensor in layouts(array):
        for dim in (0, 1, -1):
            places = flow.tensor(np.random.default_rng(1).integers(0, 3, (2, 3)))
            columns = np.arange(3)[None], np.arange(2)[:, None]
            place = (places.numpy(), columns[0]) if dim == 0 else (columns[1], places.numpy())
            check(tensor.gather(dim, places), array[place], "float64")
            check(tensor.scatter_add(dim, places, tensor), _added(array, place, array[:2, :3]), "float64")
        check(tensor.scatter(1, flow.tensor([[3]]), 9.0), _put(array, (0, 3), 9), "float64")
        check(tensor.scatter(1, flow.tensor([[3]]), value=9.0), _put(array, (0, 3), 9), "float64")
        check(
            tensor.scatter(0, flow.tensor([[1, 2]]), tensor, reduce="multiply"),
            _put(array, ([1, 2], [0, 1]), array[[1, 2], [0, 1]] * array[0, :2]),
            "float64",
        )
        check(
            tensor.scatter(0, flow.tensor([[1, 2]]), 2.0, reduce="add"), _added(array, ([1, 2], [0, 1]), 2), "float64"
        )
    number = flow.tensor(5.0)
    check(number.gather(0, flow.tensor(0)), 5.0, "float32")
    check(number.scatter(0, flow.tensor(0), flow.tensor(7.0)), 7.0, "float32")
    check(number.scatter_add(0, flow.tensor(0), flow.tensor(7.0)), 12.0, "float32")
    check(flow.zeros(3, 0).gather(0, flow.zeros(2, 0, dtype=flow.int64)), np.zeros((2, 0)), "float32")
    tracked = flow.ones(2, requires_grad=True) * 1
    with pytest.raises(RuntimeError, match="has no gradient"):
        tracked.scatter(0, flow.tensor([0]), 2.0, reduce="multiply").sum().backward()


@pytest.mark.parametrize("bad", [3, -1, 100])
def test_indices_out_of_range_are_found_when_the_result_is_looked_at(bad: int) -> None:
    tensor = flow.ones(3, 4)
    index = flow.tensor([[0, bad]])
    for result in (
        tensor.gather(0, index),
        tensor.scatter(0, index, 1.0),
        tensor.scatter_add(0, index, flow.ones(1, 2)),
        tensor.index_select(0, index[0]),
        flow.tensor(1.0).gather(0, flow.tensor(bad)),
    ):
        with pytest.raises(IndexError, match=f"index {bad} is out of range for dimension 0 of size"):
            result.numpy()
    with pytest.raises(ValueError, match="are not all classes from 0 to 2"):
        one_hot(index, 3).numpy()
    with pytest.raises(ValueError, match="are not all classes from 0 to 0"):
        one_hot(flow.tensor([-3 - bad, -102])).numpy()
    if bad >= 0:
        for wrong in (tensor[index], tensor[flow.tensor(bad)]):
            with pytest.raises(IndexError):
                wrong.numpy()
        target = flow.ones(3)
        target[flow.tensor([bad])] = 1.0
        with pytest.raises(IndexError):
            target.numpy()


def test_a_complex_number_in_a_tensor_of_bools_is_whether_it_is_not_zero() -> None:
    x = flow.zeros(4, dtype=flow.bool_)
    x[flow.tensor([0, 1])] = flow.tensor([1j, 0j])
    x[2] = flow.tensor(2j)
    assert x.tolist() == [True, False, True, False]


def test_a_tensor_that_changes_while_its_elements_are_counted_fails() -> None:
    found = interpreter.dispatch(_NONZERO, (flow.tensor([1, 0, 2]),), (3, False))
    with pytest.raises(RuntimeError, match="3 elements were counted, and 2 found: the tensor was changed meanwhile"):
        found.numpy()


def test_masks_and_nonzero(contract: KernelContract) -> None:
    array = sample((3, 4), "int64", low=-1, high=1)
    tensor = flow.tensor(array)
    check(tensor.nonzero(), np.argwhere(array), "int64")
    for found, expected in zip(tensor.nonzero(as_tuple=True), np.nonzero(array), strict=True):
        check(found, expected, "int64")
    check(flow.tensor(5).nonzero(), np.zeros((1, 0)), "int64")
    check(flow.tensor(0).nonzero(), np.zeros((0, 0)), "int64")
    (found,) = flow.tensor(5).nonzero(as_tuple=True)
    check(found, [0], "int64")
    check(flow.zeros(0, 3).nonzero(), np.zeros((0, 2)), "int64")
    check(tensor.masked_select(tensor > 0), array[array > 0], "int64")
    check(tensor.masked_select(flow.tensor([True, False, False, True])), array[:, [0, 3]].reshape(-1), "int64")
    check(flow.tensor(5).masked_select(flow.tensor([True, False, True])), [5, 5], "int64")
    check_gradients(lambda x: x.masked_select(x > 0), *arrays_for(0, (3, 4)))
    check(one_hot(flow.tensor([1, 3])), np.eye(4, dtype=int)[[1, 3]], "int64")


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x: x[0, 0, 0], IndexError, "too many indices"),
        (lambda x: x[..., ...], IndexError, "only once"),
        (lambda x: x[2], IndexError, "index 2 is out of range for dimension 0 of size 2"),
        (lambda x: x[-3], IndexError, "index -3 is out of range"),
        (lambda x: x[0.5], IndexError, "valid indices"),
        (lambda x: x["a"], IndexError, "valid indices"),
        (lambda x: x[flow.ones(2)], IndexError, "must be integers or bools, not float32"),
        (lambda x: x[[0.5]], IndexError, "must be integers or bools"),
        (lambda x: x[::-1], ValueError, "step of a slice must be positive"),
        (lambda x: x[flow.ones(3, dtype=flow.bool)], IndexError, "the mask's shape"),
        (lambda x: x[flow.ones(2, 2, dtype=flow.bool)], IndexError, "the mask's shape"),
        (lambda x: x[flow.tensor([0, 1]), flow.tensor([0, 1, 2])], ValueError, "do not broadcast"),
        (lambda x: x.__setitem__(2, 0.0), IndexError, "out of range"),
        (lambda x: x.__setitem__(0, flow.ones(2)), ValueError, "do not broadcast"),
        (lambda x: x.__setitem__(0, flow.ones(2, 3)), ValueError, "does not fit"),
        (lambda x: x.__setitem__(flow.tensor([0]), flow.ones(2, 3)), ValueError, "does not fit"),
        (lambda x: x.__setitem__(flow.tensor([0, 1]), flow.ones(3, 3)), ValueError, "do not broadcast"),
        (lambda x: x.__setitem__(slice(None), "a"), TypeError, "expected numbers"),
        (lambda x: x.long().__setitem__(0, math.nan), ValueError, "nan does not fit"),
        (lambda x: x.__setitem__([0], 1e300), ValueError, "does not fit into float32"),
        (
            lambda x: flow.nonzero(x, as_tuple=True, out=flow.zeros(6, dtype=flow.int64)),
            TypeError,
            "a tuple of indices has no out",
        ),
        (lambda x: x.gather(0, flow.tensor([0])), ValueError, "needs as many dimensions"),
        (lambda x: x.gather(0, flow.zeros(1, 4, dtype=flow.int64)), ValueError, "no larger sizes"),
        (lambda x: x.gather(0, flow.zeros(1, 1)), TypeError, "must be an integer tensor"),
        (lambda x: x.gather(2, flow.zeros(1, 1, dtype=flow.int64)), IndexError, "dim 2 is out of range"),
        (lambda x: x.scatter(0, flow.zeros(1, 1), x), TypeError, "must be an integer tensor"),
        (lambda x: x.scatter(0, flow.zeros(1, 1, dtype=flow.int64), x.double()), TypeError, "expected one dtype"),
        (
            lambda x: x.scatter(0, flow.zeros(1, 3, dtype=flow.int64), x[:, :2]),
            ValueError,
            "a source at least as large",
        ),
        (lambda x: x.scatter(0, flow.zeros(1, 1, dtype=flow.int64)), TypeError, "either src or value"),
        (lambda x: x.scatter(0, [[0]], 1.0), TypeError, "expected tensors, got Tensor, list"),
        (lambda x: x.scatter_reduce(0, flow.tensor([[0]]), 1.0, "sum"), TypeError, "expected tensors"),
        (
            lambda x: flow.index_put(x, (0, flow.tensor([1])), x[0, 0]),  # type: ignore[arg-type]
            TypeError,
            "expected tensors, got int",
        ),
        (lambda x: x.scatter(0, flow.zeros(1, 1, dtype=flow.int64), x, reduce="max"), ValueError, "reduce must be"),
        (lambda x: x.scatter_add(0, flow.zeros(4, 4, dtype=flow.int64), x), ValueError, "no larger sizes"),
        (lambda x: x.index_select(0, flow.zeros(1, 1, dtype=flow.int64)), ValueError, "must be a vector"),
        (lambda x: x.index_select(0, flow.ones(2, dtype=flow.bool)), TypeError, "must be an integer tensor"),
        (lambda x: x.index_add(0, flow.tensor([0]), x), ValueError, "expected a source of shape"),
        (lambda x: x.index_add(0, flow.tensor([0]), x[:1].double()), TypeError, "expected one dtype"),
        (lambda x: x[0, 0].index_add(0, flow.tensor([0]), x[0]), ValueError, "no dimension to index"),
        (lambda x: x.index_fill(0, flow.tensor([0]), flow.ones(2)), ValueError, "a number or a 0-d tensor"),
        (lambda x: x.masked_select(flow.tensor([0, 1, 1])), TypeError, "must be a bool tensor"),
        (lambda x: x.masked_select(flow.ones(4, dtype=flow.bool)), ValueError, "do not broadcast"),
        (lambda x: flow.take_along_dim(x, flow.tensor([0]), 0), ValueError, "2 dimensions"),
        (lambda x: one_hot(x), TypeError, "expected an integer tensor"),
        (lambda x: one_hot(flow.tensor([1]), 0), ValueError, "must be positive"),
        (lambda x: one_hot(flow.zeros(0, dtype=flow.int64)), ValueError, "give num_classes"),
    ],
)
def test_bad_arguments(call: Callable[[flow.Tensor], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call(flow.ones(2, 3))


@pytest.mark.parametrize("shape", [(), (3,), (2, 3)])
def test_a_mask_without_dimensions_puts_everything_or_nothing(shape: tuple[int, ...], contract: KernelContract) -> None:
    x = flow.ones(shape)
    for mask, expected in ((True, 3.0), (False, 1.0)):
        indices = (flow.tensor(mask),)
        check(flow.index_put(x, indices, flow.tensor(3.0)), np.full(shape, expected), "float32")
        check(x.clone().index_put_(indices, flow.tensor(3.0)), np.full(shape, expected), "float32")
        copy = x.clone()
        copy[flow.tensor(mask)] = 3.0
        check(copy, np.full(shape, expected), "float32")
    if shape:
        check_gradients(
            lambda x, y: flow.index_put(x, (flow.tensor(True),), y), np.ones(shape), np.full(shape, 2.0), second=True
        )


def test_values_are_those_of_the_moment(contract: KernelContract) -> None:
    """A copy made by an index tensor does not see later writes; a view does."""
    tensor = flow.zeros(3)
    view, copy = tensor[:2], tensor[flow.tensor([0, 1])]
    tensor[0] = 5.0
    np.testing.assert_array_equal(values(view), [5.0, 0.0])
    np.testing.assert_array_equal(values(copy), [0.0, 0.0])


@pytest.mark.parametrize("dtype", ["float32", "uint8", "float16", "int64", "complex64"])
def test_a_value_that_is_repeated_for_an_index_of_two_dimensions(dtype: str, contract: KernelContract) -> None:
    target, value = flow.zeros(8, dtype=getattr(flow, dtype)), flow.tensor([1, 2]).to(getattr(flow, dtype))
    places = flow.tensor([[0, 1], [2, 3], [4, 0]])
    check(flow.index_put(target, (places,), value, accumulate=True), [3, 2, 1, 2, 1, 0, 0, 0], dtype)


def test_lists_index_tensors_that_are_not_on_the_default_device() -> None:
    other = "cpu" if flow.ones(()).device.type == "sim" else "sim"
    x = flow.arange(6, device=other).view(2, 3)
    for index in ([1, 0], np.array([1]), [True, False], True, ([0, 1], [2, 0])):
        found = x[index]
        assert found.device.type == other
        np.testing.assert_array_equal(found.numpy(), x.numpy()[index])
    x[[1]] = 7
    x[True] = x[True] * 2
    assert x.tolist() == [[0, 2, 4], [14, 14, 14]]
