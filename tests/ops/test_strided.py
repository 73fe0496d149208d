"""Views by sizes and strides, windows, and tensors with a part replaced."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import vmflow as flow
from tests.support import arrays_for, check_gradients
from vmflow.ops.indexing.indexing import respread

from .narrow_rows import gradient_of
from .oracle import (
    ALL,
    FRACTIONAL,
    Array,
    KernelContract,
    Row,
    Shapes,
    check,
    forward_test,
    gradient_test,
    layouts,
    sample,
)

MATRIX: tuple[Shapes, ...] = (((3, 4),),)
# The geometry of a view whose elements overlap, and of its base.
GEOMETRIES = ((3, 4), (2, 1), 1), ((3, 4), (4, 1), 0)


def _seen(array: Array, size: tuple[int, ...], stride: tuple[int, ...], offset: int = 0) -> Array:
    flat = np.ascontiguousarray(array).reshape(-1)
    return np.lib.stride_tricks.as_strided(flat[offset:], size, [value * flat.itemsize for value in stride]).copy()


def _respread_oracle(x: Array) -> Array:
    memory = np.zeros(12, x.dtype)
    np.add.at(memory, np.arange(3)[:, None] * 2 + np.arange(4) + 1, x)
    return memory.reshape(3, 4)


ROWS: list[Row] = [
    Row(
        "as_strided",
        lambda x: x.clone().as_strided((3, 3), (2, 1), 1),
        lambda x: _seen(x, (3, 3), (2, 1), 1),
        ALL,
        shapes=MATRIX,
        order=2,
        graded=((3, 4),),
    ),
    Row(
        "as_strided",
        lambda x: x.clone().as_strided(x.shape, x.contiguous().stride()),
        lambda x: x,
        ALL,
        order=2,
        label="-same",
    ),
    Row(
        "respread",
        gradient_of(lambda x: x.clone().as_strided(x.shape, x.contiguous().stride())),
        lambda x: 2 * np.conj(x),
        FRACTIONAL,
        label="-same",
    ),
    Row(
        "unfold",
        lambda x: x.unfold(-1, 2, 1),
        lambda x: np.lib.stride_tricks.sliding_window_view(x, 2, -1),
        ALL,
        shapes=(((5,),), ((0, 4),), ((3, 4),)),
        order=2,
        label="-last",
    ),
    Row(
        "unfold",
        lambda x: x.unfold(1, 3, 1),
        lambda x: np.lib.stride_tricks.sliding_window_view(x, 3, 1),
        ALL,
        shapes=(*MATRIX, ((2, 5, 3),)),
        order=2,
        graded=((3, 4),),
    ),
    Row(
        "respread", lambda x: respread(x, *GEOMETRIES), _respread_oracle, ALL, shapes=MATRIX, order=2, graded=((3, 4),)
    ),
]


test_forward = forward_test(ROWS)
test_gradient = gradient_test(ROWS)


def test_as_strided_starts_where_the_tensor_does(contract: KernelContract) -> None:
    array = sample((3, 4), "float64")
    tensor = flow.tensor(array)
    check(tensor[1:].as_strided((2, 2), (1, 2)), _seen(array, (2, 2), (1, 2), 4), "float64")
    check(tensor[1:].as_strided((2, 2), (1, 2), 5), _seen(array, (2, 2), (1, 2), 5), "float64")
    check(tensor.T.as_strided((3, 4), (4, 1)), array, "float64")
    check(tensor.as_strided((), ()), array[0, 0], "float64")
    check(tensor.as_strided((0, 3), (9, 9), 100), np.zeros((0, 3)), "float64")
    view = tensor.as_strided((2,), (5,), 1)
    view.zero_()
    check(tensor, np.where(np.isin(np.arange(12).reshape(3, 4), [1, 6]), 0, array), "float64")
    tensor.as_strided_((2, 2), (4, 1))
    assert tensor.shape == (2, 2)


def test_gradient_of_as_strided_of_overlapping_elements(contract: KernelContract) -> None:
    """Each element in one place gets its share, so that the gradient of the expanded tensor is whole."""
    (x,) = arrays_for(0, (3, 1))
    check_gradients(lambda a: (a * 1).expand(3, 5).as_strided((3, 2), (1, 0)), x)
    check_gradients(lambda a: (a * 1)[1:].as_strided((2, 2), (1, 0)), x, second=True)
    check_gradients(lambda a: a.T.as_strided((2, 2), (1, 1)) ** 2, x, second=True)


def test_windows(contract: KernelContract) -> None:
    array = sample((2, 7), "float64")
    for _, tensor in layouts(array):
        check(tensor.unfold(1, 3, 2), np.stack([array[:, number : number + 3] for number in (0, 2, 4)], 1), "float64")
        check(tensor.unfold(-1, 2, 4), np.stack([array[:, :2], array[:, 4:6]], 1), "float64")
        check(tensor.unfold(0, 2, 1), array.T[None], "float64")
        check(tensor.unfold(0, 0, 1), np.zeros((3, 7, 0)), "float64")
    check(flow.tensor(5.0).unfold(0, 1, 1), [5.0], "float32")
    check(flow.tensor(5.0).unfold(0, 0, 1), np.zeros(0), "float32")
    check_gradients(lambda a: a.unfold(1, 2, 3), array)
    tensor = flow.tensor(array)
    tensor.unfold(1, 2, 3)[0] = 0.0
    assert int((tensor == 0).sum().item()) == 4


def test_replaced_parts(contract: KernelContract) -> None:
    array, source = sample((3, 4), "float64"), sample((3,), "float64", 1)
    columns = sample((3, 2), "float64", 2)
    part = flow.tensor(source)
    for _, tensor in layouts(array):
        expected = array.copy()
        expected[:, -1] = source
        check(flow.select_scatter(tensor, part, 1, -1), expected, "float64")
        expected = array.copy()
        expected[:, -3::2] = columns
        check(tensor.slice_scatter(flow.tensor(columns), 1, -3, 100, 2), expected, "float64")
        check(tensor.slice_scatter(flow.zeros(0, 4, dtype=flow.float64), 0, 2, 1), array, "float64")
        expected = array.copy()
        expected[range(3), range(1, 4)] = source
        check(tensor.diagonal_scatter(part, 1), expected, "float64")
        check(tensor, array, "float64")
    check_gradients(lambda a, b: a.select_scatter(b, 1, 2), array, source, second=True)
    check_gradients(lambda a, b: a.T.slice_scatter(b, 1, 0, 3, 2), array, sample((4, 2), "float64"), second=True)
    check_gradients(lambda a, b: a.diagonal_scatter(b, -2), array, source[:1], second=True)
    check(flow.zeros(2, dtype=flow.int64).select_scatter(flow.tensor(2.7), 0, 1), [0, 2], "int64")


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x: x.as_strided((2, 2), (1,)), ValueError, r"2 sizes \[2, 2\] need as many strides"),
        (lambda x: x.as_strided((-1,), (1,)), ValueError, "cannot be negative"),
        (lambda x: x.as_strided((2,), (-1,)), ValueError, "cannot be negative"),
        (lambda x: x.as_strided((2, 3), (6, 1)), RuntimeError, "beyond the tensor's memory"),
        (lambda x: x[1:].as_strided((2,), (1,), 0), RuntimeError, "beyond the tensor's memory"),
        (lambda x: x.unfold(1, 4, 1), ValueError, "a window of 4 does not fit into dimension 1 of size 3"),
        (lambda x: x.unfold(1, -1, 1), ValueError, "does not fit"),
        (lambda x: x.unfold(1, 2, 0), ValueError, "the step must be positive"),
        (lambda x: x.unfold(2, 2, 1), IndexError, "dim 2 is out of range"),
        (lambda x: x.select_scatter(x, 0, 0), ValueError, r"expected a source of shape \[3\], got \[2, 3\]"),
        (lambda x: x.select_scatter(x[0], 0, 2), IndexError, "index 2 is out of range"),
        (lambda x: x.slice_scatter(x, 0, 1), ValueError, "expected a source"),
        (lambda x: x.slice_scatter(x, 0, step=0), ValueError, "the step must be positive"),
        (lambda x: x[0, 0].slice_scatter(x), IndexError, "a 0-d tensor"),
        (lambda x: x.diagonal_scatter(x), ValueError, "expected a source"),
        (lambda x: x.diagonal_scatter(x[0], 0, 1, -1), ValueError, "the same dimension"),
    ],
)
def test_bad_arguments(call: Callable[[flow.Tensor], object], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call(flow.zeros(2, 3))
