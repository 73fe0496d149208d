"""Views: their elements, shared memory, the cases in which they are possible, and their gradients."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import vmflow as flow
from tests.support import arrays_for, check_gradients
from vmflow.ops.shape.view import reshaped_strides

from .oracle import ALL, Array, KernelContract, Row, check, forward_test, gradient_test, sample, values

SQUARE = (((3, 4),), ((2, 3, 4),), ((2, 0, 3),))
CUBE = (((2, 3, 4),),)

ROWS: list[Row] = [
    Row("reshape", lambda x: x.reshape(1, x.numel()), lambda x: x.reshape(1, x.size), ALL, order=2),
    Row("reshape", lambda x: x.unsqueeze(0), lambda x: x[None], ALL, order=2, label="-unsqueeze"),
    Row("permute", lambda x: x.transpose(0, 1), lambda x: x.swapaxes(0, 1), ALL, shapes=SQUARE, order=2),
    Row("permute", lambda x: x.permute(*range(x.ndim)[::-1]), np.transpose, ALL, order=2, label="-all"),
    Row("slice", lambda x: x[1:], lambda x: x[1:], ALL, shapes=(((5,),), ((0,),), ((3, 0),)), order=2, label="-rest"),
    Row("permute", lambda x: x.permute(2, 0, 1), lambda x: x.transpose(2, 0, 1), ALL, shapes=CUBE, order=2, label="-3"),
    Row("expand", lambda x: x.expand(2, *x.shape), lambda x: np.stack([x, x]), ALL, order=2),
    Row("slice", lambda x: x[1:, ::2], lambda x: x[1:, ::2], ALL, shapes=SQUARE, order=2, graded=((3, 4),)),
    Row("slice", lambda x: x.select(0, 1), lambda x: x[1], ALL, shapes=SQUARE, order=2, label="-select"),
    Row("diagonal", lambda x: x.diagonal(), lambda x: np.diagonal(x), ALL, shapes=SQUARE, order=2),
    Row(
        "diagonal",
        lambda x: x.diagonal(1, 2, 0),
        lambda x: np.diagonal(x, 1, 2, 0),
        ALL,
        shapes=CUBE,
        order=2,
        label="-1",
    ),
]


test_forward = forward_test(ROWS)
test_gradient = gradient_test(ROWS)


CALLS: list[Callable[[Any], Any]] = [
    lambda x: x.reshape(6, 4),
    lambda x: x.reshape(-1),
    lambda x: x.reshape((2, 12)),
    lambda x: x.reshape(4, -1),
    lambda x: x.swapaxes(0, 2),
    lambda x: x.squeeze(),
    lambda x: x[None].squeeze(0),
    lambda x: x[:, None].squeeze(),
    lambda x: x[None].squeeze((0,)),
    lambda x: x[0],
    lambda x: x[-1, 1:],
    lambda x: x[..., 0],
    lambda x: x[:, 1],
    lambda x: x[:, None, 1:3, ..., ::3],
    lambda x: x.ravel(),
    lambda x: x.T,
]


@pytest.mark.parametrize("call", CALLS)
def test_same_spelling_as_numpy(call: Callable[[Any], Any]) -> None:
    array = sample((2, 3, 4), "float64")
    check(call(flow.tensor(array)), call(array), "float64")


def _shares(view: flow.Tensor, tensor: flow.Tensor) -> bool:
    """Whether writing through one is seen in the other."""
    before = values(tensor)
    view.add_(1)
    changed = not np.array_equal(values(tensor), before)
    view.sub_(1)
    return changed


def test_views_share_memory() -> None:
    tensor = flow.tensor(sample((2, 3, 4), "float64"))
    for view in (
        tensor.view(6, 4),
        tensor.reshape(24),
        tensor.T,
        tensor.mT,
        tensor.permute(1, 2, 0),
        tensor.transpose(0, 1)[1],
        tensor[:, 1:, ::2],
        tensor[0],
        tensor[...],
        tensor[:],
        tensor[None],
        tensor.unsqueeze(1).squeeze(1),
        tensor.narrow(1, 1, 2),
        tensor.diagonal(0, 1, 2),
        tensor.split(2, 2)[1],
        tensor.chunk(2)[1],
        tensor.unbind(1)[2],
        tensor.flatten(0, 1),
        tensor.unflatten(2, (2, 2)),
        tensor.movedim(0, 2),
        tensor.view_as(tensor),
        tensor.detach(),
    ):
        assert _shares(view, tensor)
        assert view is not tensor
    for copy in (tensor.clone(), tensor.transpose(0, 1).reshape(24), tensor.T.contiguous(), tensor.T.flatten()):
        assert not _shares(copy, tensor)
    assert tensor.contiguous() is tensor


def test_strides_and_offsets() -> None:
    tensor = flow.zeros(2, 3, 4)
    assert tensor.stride() == (12, 4, 1)
    assert tensor.stride(-1) == 1
    assert tensor.T.stride() == (1, 4, 12)
    assert tensor[1, :, ::2].stride() == (4, 2)
    assert tensor[1, 1:].storage_offset() == 16
    assert tensor[:, :1].expand(2, 5, 4).stride() == (12, 0, 1)
    assert not tensor.T.is_contiguous()
    assert tensor[1].is_contiguous()
    assert tensor[:, :1].is_contiguous() is False
    assert tensor[:1, :1].is_contiguous()
    assert flow.zeros(0, 3).T.is_contiguous()


# When a view is possible


@st.composite
def _strided(draw: st.DrawFn) -> Array:
    """An array that was permuted, sliced and broadcast at random."""
    shape = draw(st.lists(st.integers(0, 4), min_size=0, max_size=4))
    array = np.arange(math.prod(shape)).reshape(shape)
    for _ in range(draw(st.integers(0, 3))):
        if array.ndim and draw(st.booleans()):
            array = array.transpose(draw(st.permutations(range(array.ndim))))
        if array.ndim and draw(st.booleans()):
            axis = draw(st.integers(0, array.ndim - 1))
            step, start = draw(st.integers(1, 3)), draw(st.integers(0, 2))
            array = array[(slice(None),) * axis + (slice(start, None, step),)]
        if draw(st.booleans()):
            axis = draw(st.integers(0, array.ndim))
            array = np.expand_dims(array, axis)
            if draw(st.booleans()):
                shape = list(array.shape)
                shape[axis] = draw(st.integers(1, 3))
                array = np.broadcast_to(array, shape)
    return array


def _factorings(size: int, draw: st.DrawFn) -> list[int]:
    """A shape of so many elements."""
    shape: list[int] = []
    while size > 1 and draw(st.booleans()):
        factor = draw(st.sampled_from([index for index in range(1, size + 1) if size % index == 0]))
        shape.append(factor)
        size //= factor
    shape.append(size)
    for _ in range(draw(st.integers(0, 2))):
        shape.insert(draw(st.integers(0, len(shape))), 1)
    return shape


@given(st.data())
@settings(max_examples=400)
def test_reshapes_are_views_exactly_where_numpy_makes_them(data: st.DataObject) -> None:
    array = data.draw(_strided())
    new = data.draw(st.composite(lambda draw: _factorings(array.size, draw))()) if array.size else [0, 3]
    strides = [stride // array.itemsize for stride in array.strides]
    found = reshaped_strides(array.shape, tuple(strides), tuple(new))
    reshaped = array.reshape(new)
    if not array.size:
        assert found is not None
        return
    assert (found is not None) == np.shares_memory(reshaped, array)
    if found is not None:
        seen = np.lib.stride_tricks.as_strided(array, new, [value * array.itemsize for value in found])
        np.testing.assert_array_equal(seen, reshaped)


@given(st.data())
@settings(max_examples=60)
def test_reshape_and_view_of_random_views(data: st.DataObject) -> None:
    base = np.arange(24.0).reshape(2, 3, 4)
    order = data.draw(st.permutations(range(3)))
    step = data.draw(st.integers(1, 3))
    array = base.transpose(order)[::step]
    tensor = flow.tensor(base).permute(order)[::step]
    new = data.draw(st.composite(lambda draw: _factorings(array.size, draw))())
    check(tensor.reshape(new), array.reshape(new), "float64")
    if np.shares_memory(array.reshape(new), array):
        check(tensor.view(new), array.reshape(new), "float64")
    else:
        with pytest.raises(RuntimeError, match="cannot be viewed as"):
            tensor.view(new)


# Forms of the arguments, and errors


def test_arguments_by_name() -> None:
    tensor = flow.zeros(2, 3)
    assert tensor.reshape(shape=(3, 2)).shape == (3, 2)
    assert flow.permute(tensor, dims=(1, 0)).shape == (3, 2)
    assert tensor.view(size=(6,)).shape == (6,)
    assert tensor.expand(size=(4, 2, 3)).shape == (4, 2, 3)
    with pytest.raises(TypeError, match="unexpected arguments"):
        tensor.reshape(dims=(3, 2))
    with pytest.raises(TypeError, match="unexpected arguments"):
        tensor.reshape(3, 2, shape=(3, 2))


def test_expand(contract: KernelContract) -> None:
    column = flow.tensor([[1.0], [2.0]])
    check(column.expand(-1, 3), [[1.0] * 3, [2.0] * 3], "float32")
    check(column.expand(2, 2, 3), [[[1.0] * 3, [2.0] * 3]] * 2, "float32")
    check(column.expand(2, 0), np.zeros((2, 0)), "float32")
    check(flow.tensor(1.0).expand(2, 2), np.ones((2, 2)), "float32")
    check(flow.tensor(1.0).expand(()), 1.0, "float32")
    check(flow.zeros(1, 0).expand(3, 0), np.zeros((3, 0)), "float32")
    check(column.expand_as(flow.zeros(2, 3)), [[1.0] * 3, [2.0] * 3], "float32")
    check(column.broadcast_to((2, 3)), [[1.0] * 3, [2.0] * 3], "float32")
    first, second = flow.broadcast_tensors(column, flow.tensor([5.0, 6.0, 7.0]))
    check(first, [[1.0] * 3, [2.0] * 3], "float32")
    check(second, [[5.0, 6.0, 7.0]] * 2, "float32")
    assert flow.broadcast_tensors() == ()


def test_splits(contract: KernelContract) -> None:
    array = np.arange(10.0).reshape(5, 2)
    tensor = flow.tensor(array)
    for pieces, bounds in (
        (tensor.split(2), [2, 2, 1]),
        (tensor.split([1, 0, 4]), [1, 0, 4]),
        (tensor.split(7), [5]),
        (tensor.chunk(2), [3, 2]),
        (tensor.chunk(4), [2, 2, 1]),
        (tensor.chunk(7), [1] * 5),
        (tensor[:0].split(3), [0]),
        (tensor[:0].split(0), [0]),
        (tensor[:0].chunk(3), [0, 0, 0]),
    ):
        assert [piece.shape[0] for piece in pieces] == bounds
        check(flow.cat(pieces), array[: sum(bounds)], "float64")
    assert [value.shape for value in tensor.split(1, dim=1)] == [(5, 1)] * 2
    assert [value.item() for value in tensor.unbind(1)[1][:2]] == [1.0, 3.0]
    assert tensor[:0].unbind() == ()
    assert len(list(tensor)) == 5
    check_gradients(lambda x: x.split([1, 2])[1] * 2 + x.chunk(3)[0], *arrays_for(0, (3, 2)))
    check_gradients(lambda x: x.unbind(1)[0] * x.unbind(1)[1], *arrays_for(0, (3, 2)), second=True)


def test_grids_and_uneven_pieces(contract: KernelContract) -> None:
    x, y, z = np.arange(3.0), np.arange(2.0), np.arange(4.0)
    for indexing in ("ij", "xy"):
        for arrays in ([x], [x, y], [x, y, z]):
            tensors = [flow.tensor(value) for value in arrays]
            for found, expected in zip(
                flow.meshgrid(*tensors, indexing=indexing), np.meshgrid(*arrays, indexing=indexing), strict=True
            ):
                check(found, expected, "float64")
    first, second = flow.meshgrid([flow.tensor(x), flow.tensor(5.0)])
    check(first, x[:, None], "float64")
    check(second, np.full((3, 1), 5.0), "float32")
    assert [tensor.shape for tensor in flow.meshgrid(flow.zeros(0), flow.zeros(2))] == [(0, 2)] * 2
    array = np.arange(14.0).reshape(7, 2)
    for sections in (1, 2, 3, 7, 9, [2, 5], [5, 2], [-3], [0, 20]):
        pieces = flow.tensor_split(flow.tensor(array), sections)
        for found, expected in zip(pieces, np.array_split(array, sections), strict=True):
            check(found, expected, "float64")
    assert [piece.shape for piece in flow.tensor(array).tensor_split(flow.tensor(2))] == [(4, 2), (3, 2)]  # type: ignore[arg-type]


def test_diagonals(contract: KernelContract) -> None:
    array = sample((3, 4, 5), "float64")
    tensor = flow.tensor(array)
    for offset in range(-5, 6):
        for dims in ((0, 1), (1, 2), (2, 0), (-1, -2)):
            check(tensor.diagonal(offset, *dims), np.diagonal(array, offset, *dims), "float64")
    check_gradients(lambda x: x.diagonal(-1, 0, 2), *arrays_for(0, (3, 2, 3)), second=True)


def test_names_of_the_same_dimensions(contract: KernelContract) -> None:
    array = sample((2, 3, 4), "float64")
    tensor = flow.tensor(array)
    check(tensor.movedim((0, 1), (-1, 0)), np.moveaxis(array, (0, 1), (-1, 0)), "float64")
    check(tensor.swapdims(0, 2), array.swapaxes(0, 2), "float64")
    check(tensor[0].t(), array[0].T, "float64")
    check(tensor[0, 0].t(), array[0, 0], "float64")
    check(tensor.mT, array.swapaxes(1, 2), "float64")
    check(tensor.flatten(1), array.reshape(2, 12), "float64")
    check(tensor.flatten(-2, -1), array.reshape(2, 12), "float64")
    check(tensor.unflatten(-1, (2, -1)), array.reshape(2, 3, 2, 2), "float64")
    check(tensor.reshape_as(flow.zeros(4, 6)), array.reshape(4, 6), "float64")
    check(tensor.view_as(flow.zeros(4, 6)), array.reshape(4, 6), "float64")
    check(flow.zeros(1, 2, 1).squeeze((0, 1)), np.zeros((2, 1)), "float32")
    number = flow.tensor(5.0)
    for same in (number.flatten().squeeze(), number.transpose(0, -1), number.squeeze(0), number.reshape(()), number.T):
        check(same, 5.0, "float32")
    check(number.flatten(), [5.0], "float32")
    check(number.unsqueeze(-1), [5.0], "float32")


def test_in_place_changes_of_shape() -> None:
    tensor = flow.tensor(sample((2, 3), "float64"))
    alias = tensor.view(6)
    assert tensor.transpose_(0, 1) is tensor
    assert tensor.shape == (3, 2)
    assert tensor.unsqueeze_(0).squeeze_(0).t_().swapaxes_(0, 1).shape == (3, 2)
    tensor[0, 1] = 7.0
    assert alias[3].item() == 7.0
    check_gradients(lambda x: (x * 2).t_() * x.T, *arrays_for(0, (2, 3)))
    leaf = flow.ones(2, 3, requires_grad=True)
    with pytest.raises(RuntimeError, match="a leaf tensor that requires a gradient"):
        leaf.t_()
    with flow.no_grad():
        leaf.t_()
    assert leaf.shape == (3, 2)
    assert leaf.requires_grad


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x: x.reshape(-1, -1), ValueError, "only one size can be -1"),
        (lambda x: x.reshape(5, -1), ValueError, "6 elements do not fit"),
        (lambda x: x.reshape(7), ValueError, "6 elements do not fit"),
        (lambda x: x.reshape(-2, 3), ValueError, "cannot be negative"),
        (lambda x: x[:0].reshape(0, -1), ValueError, "0 elements do not fit"),
        (lambda x: x.reshape(2.0, 3), TypeError, "sizes are integers"),
        (lambda x: x.reshape(True, 6), TypeError, "sizes are integers"),
        (lambda x: x.view(flow.int64), TypeError, "sizes are integers"),
        (lambda x: x.T.view(6), RuntimeError, "cannot be viewed as"),
        (lambda x: x.flatten(1, 0), ValueError, "comes after end_dim"),
        (lambda x: x.flatten(0, 2), IndexError, "dim 2 is out of range"),
        (lambda x: x.unsqueeze(3), IndexError, "dim 3 is out of range"),
        (lambda x: x.unsqueeze(-4), IndexError, "dim -4 is out of range"),
        (lambda x: x.squeeze(2), IndexError, "dim 2 is out of range"),
        (lambda x: x.squeeze((0, 0)), ValueError, "names one dimension twice"),
        (lambda x: x.permute(0), ValueError, "needs 2 dims"),
        (lambda x: x.permute(0, 0), ValueError, "name one dimension twice"),
        (lambda x: x.transpose(0, 2), IndexError, "dim 2 is out of range"),
        (lambda x: x[None].t(), ValueError, "at most 2 dimensions"),
        (lambda x: x.movedim((0, 0), (0, 1)), ValueError, "named twice"),
        (lambda x: x.movedim((0, 1), 0), ValueError, "2 sources and 1 destinations"),
        (lambda x: x.expand(3), ValueError, "fewer dimensions"),
        (lambda x: x.expand(2, 4), ValueError, "does not expand"),
        (lambda x: x.expand(-1, 2, 3), ValueError, "does not expand"),
        (lambda x: x.expand(2, -2), ValueError, "does not expand"),
        (lambda x: flow.broadcast_tensors(x, flow.ones(4)), ValueError, "do not broadcast"),
        (lambda x: x.narrow(1, 2, 2), IndexError, "not within dimension 1 of size 3"),
        (lambda x: x.narrow(1, -4, 1), IndexError, "not within dimension"),
        (lambda x: x.narrow(1, 0, -1), IndexError, "not within dimension"),
        (lambda x: x.select(1, 3), IndexError, "index 3 is out of range"),
        (lambda x: x.split(0), ValueError, "must be positive"),
        (lambda x: x.split(-1), ValueError, "must be positive"),
        (lambda x: x.split([1, 2]), ValueError, "do not add up"),
        (lambda x: x.split([3, -1]), ValueError, "do not add up"),
        (lambda x: x.chunk(0), ValueError, "must be positive"),
        (lambda x: x.tensor_split(0), ValueError, "must be positive"),
        (lambda x: flow.meshgrid(x), ValueError, "expected vectors"),
        (lambda x: flow.meshgrid(x[0], indexing="yx"), ValueError, "must be 'ij' or 'xy'"),
        (lambda x: x.diagonal(0, 1, 1), ValueError, "the same dimension"),
        (lambda x: x[0].diagonal(), IndexError, "dim 1 is out of range"),
        (lambda x: x[0, 0].select(0, 0), IndexError, "a 0-d tensor has no dimension"),
        (lambda x: x[0, 0].narrow(0, 0, 1), IndexError, "a 0-d tensor has no dimension"),
        (lambda x: x[0, 0].split(1), IndexError, "a 0-d tensor has no dimension"),
        (lambda x: x[0, 0].chunk(1), IndexError, "a 0-d tensor has no dimension"),
        (lambda x: x[0, 0].unbind(), IndexError, "a 0-d tensor has no dimension"),
        (lambda x: x.unflatten(1, (2, 2)), ValueError, "3 elements do not fit"),
        (lambda x: x.transpose(0, 1.0), TypeError, "a dimension is an integer"),
    ],
)
def test_bad_arguments(call: Callable[[flow.Tensor], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call(flow.ones(2, 3))


def test_views_of_every_dtype_in_and_out(contract: KernelContract) -> None:
    for dtype in ALL:
        array = sample((3, 4), dtype)
        tensor = flow.tensor(array)
        check(tensor.T[1:, ::2].clone(), array.T[1:, ::2], dtype)
        check(
            tensor[1].unsqueeze(0) + tensor[2],
            array[1][None] + array[2] if dtype != "bool" else array[1][None] | array[2],
            dtype,
        )
