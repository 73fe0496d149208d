"""Ops that put tensors together, repeat them or turn them round."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import vmflow as flow
from tests.support import arrays_for, check_gradients
from vmflow import interpreter
from vmflow.ops.shape.joining import _REPEATED_PLACES, _REPETITIONS

from .oracle import (
    ALL,
    INTEGERS,
    REAL,
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

MATRICES: tuple[Shapes, ...] = (((3, 4),), ((2, 3, 4),), ((2, 0, 3),))
PAIRS: tuple[Shapes, ...] = (((3, 4), (3, 4)), ((3, 4), (1, 4)), ((0, 4), (3, 4)), ((2, 3, 4), (5, 3, 4)), ((5,), (2,)))
SAME: tuple[Shapes, ...] = (((3, 4), (3, 4)), ((), ()), ((0,), (0,)), ((2, 3, 4), (2, 3, 4)))


def _repeat(x: Array) -> Array:
    return np.tile(x, (2, *(3,) * x.ndim))


ROWS: list[Row] = [
    Row("cat", lambda x, y: flow.cat([x, y]), lambda x, y: np.concatenate([x, y]), ALL, shapes=PAIRS, order=2),
    Row(
        "cat",
        lambda x, y: flow.stack([x, y], -1),
        lambda x, y: np.stack([x, y], -1),
        ALL,
        shapes=SAME,
        order=2,
        label="-stack",
    ),
    Row("repeat", lambda x: x.repeat(2, *(3,) * x.ndim), _repeat, ALL, order=2),
    Row("flip", lambda x: x.flip(0), lambda x: np.flip(x, 0), ALL, shapes=MATRICES, order=2),
    Row("flip", lambda x: x.flip(0, -1), lambda x: np.flip(x, (0, -1)), ALL, shapes=MATRICES, order=2, label="-two"),
    Row("flip", lambda x: x.flip(*range(x.ndim)), lambda x: np.flip(x), ALL, order=2, label="-all"),
    Row("roll", lambda x: x.roll(2, 1), lambda x: np.roll(x, 2, 1), ALL, shapes=MATRICES, order=2),
    Row("roll", lambda x: x.roll(3), lambda x: np.roll(x, 3), ALL, order=2, label="-flat"),
    Row("triangle", lambda x: x.tril(), lambda x: np.tril(x), ALL, shapes=MATRICES, order=2),
    Row("triangle", lambda x: x.triu(1), lambda x: np.triu(x, 1), ALL, shapes=MATRICES, order=2, label="-upper"),
    Row(
        "scatter_diagonal", lambda x: flow.diag(x, 1), lambda x: np.diag(x, 1), ALL, shapes=(((5,),), ((0,),)), order=2
    ),
    Row(
        "repetitions",
        lambda x: interpreter.dispatch(_REPETITIONS, (flow.ones_like(x),)),
        np.size,
        (*INTEGERS, "bool"),
        result="int64",
        shapes=(((5,),), ((0,),)),
    ),
    Row(
        "repeated_places",
        lambda x: interpreter.dispatch(_REPEATED_PLACES, (flow.ones_like(x),), (x.numel(),)),
        lambda x: np.arange(x.size),
        (*INTEGERS, "bool"),
        result="int64",
        shapes=(((5,),), ((0,),)),
    ),
]


test_forward = forward_test(ROWS)
test_gradient = gradient_test(ROWS)


def test_cat_promotes_and_skips_vectors_of_nothing(contract: KernelContract) -> None:
    array = sample((2, 3), "float32")
    tensor = flow.tensor(array)
    check(flow.cat([tensor, tensor.long()]), np.concatenate([array, array.astype(np.int64)]), "float32")
    check(flow.cat([tensor.long(), tensor > 0], 1), np.concatenate([array.astype(np.int64), array > 0], 1), "int64")
    check(flow.cat([flow.zeros(0), tensor]), array, "float32")
    check(flow.cat([tensor, flow.zeros(0)], 1), array, "float32")
    check(flow.cat([flow.zeros(0, dtype=flow.float64), tensor]), array, "float64")
    check(flow.cat([flow.zeros(0), flow.zeros(0)]), np.zeros(0), "float32")
    check(flow.concat([tensor[:0], tensor]), array, "float32")
    check(flow.cat([tensor]), array, "float32")
    check(flow.stack([tensor, tensor.double()]), np.stack([array, array]), "float64")
    for dtype in (*REAL, *INTEGERS):
        other = sample((2, 3), dtype)
        expected = np.concatenate([array, other.astype(np.float64)])
        result = "float64" if dtype == "float64" else "float32"
        check(flow.cat([tensor, flow.tensor(other)]), expected, result)


def test_cat_of_views(contract: KernelContract) -> None:
    array = sample((3, 4), "float64")
    for (_, first), (_, second) in zip(layouts(array), reversed(list(layouts(array))), strict=True):
        check(
            flow.cat([first, second, first[:1].expand(2, 4)], 0),
            np.concatenate([array, array, array[:1], array[:1]]),
            "float64",
        )
    check_gradients(lambda x, y: flow.cat([x.T, y, x.T[:1]]), *arrays_for(0, (2, 3), (1, 2)), second=True)


def test_side_by_side(contract: KernelContract) -> None:
    array = sample((2, 3), "float64")
    tensor = flow.tensor(array)
    check(flow.hstack([tensor, tensor]), np.hstack([array, array]), "float64")
    check(flow.hstack([tensor[0, 0], tensor[0]]), np.hstack([array[0, 0], array[0]]), "float64")
    check(flow.vstack([tensor[0], tensor]), np.vstack([array[0], array]), "float64")
    check(flow.vstack([tensor[0, 0], tensor[0, 1]]), np.vstack([array[0, 0], array[0, 1]]), "float64")


def test_repetitions(contract: KernelContract) -> None:
    array = sample((2, 3), "float64")
    tensor = flow.tensor(array)
    check(tensor.repeat(2, 0), np.zeros((4, 0)), "float64")
    check(tensor.repeat(0, 2, 1), np.zeros((0, 4, 3)), "float64")
    check(tensor.repeat((1, 1)), array, "float64")
    check(tensor.repeat(repeats=(3, 1)), np.tile(array, (3, 1)), "float64")
    check(flow.tensor(2.0).repeat(3), [2.0] * 3, "float32")
    check(flow.tensor(2.0).repeat(()), 2.0, "float32")
    for times in ((2,), (2, 2), (2, 1, 3), (0,)):
        check(tensor.tile(times), np.tile(array, times), "float64")
    check(flow.tile(tensor, dims=(2,)), np.tile(array, 2), "float64")
    check(tensor.repeat_interleave(2), np.repeat(array, 2), "float64")
    check(tensor.repeat_interleave(2, dim=0), np.repeat(array, 2, 0), "float64")
    check(tensor.repeat_interleave(3, dim=1), np.repeat(array, 3, 1), "float64")
    check(tensor.repeat_interleave(flow.tensor([2, 0, 1]), 1), np.repeat(array, [2, 0, 1], 1), "float64")
    check(tensor.repeat_interleave(flow.tensor([2]), 0), np.repeat(array, 2, 0), "float64")
    check(flow.tensor(5.0).repeat_interleave(2), [5.0, 5.0], "float32")
    check_gradients(lambda x: x.repeat_interleave(2, 0), *arrays_for(0, (2, 3)), second=True)
    check_gradients(lambda x: x.repeat_interleave(flow.tensor([2, 1, 0]), 1), *arrays_for(0, (2, 3)))
    check_gradients(lambda x: x.repeat(2, 0).sum() + x.sum(), *arrays_for(0, (2, 3)))


def test_turns(contract: KernelContract) -> None:
    array = sample((2, 3, 4), "float64")
    tensor = flow.tensor(array)
    check(tensor.flip(()), array, "float64")
    check(tensor.flip([0, 2]), np.flip(array, (0, 2)), "float64")
    check(flow.flip(tensor, dims=(1,)), np.flip(array, 1), "float64")
    check(tensor.fliplr(), np.fliplr(array), "float64")
    check(tensor.flipud(), np.flipud(array), "float64")
    check(tensor.roll((1, -2), (0, 2)), np.roll(array, (1, -2), (0, 2)), "float64")
    check(tensor.roll((1, 1), (0, 0)), np.roll(array, (1, 1), (0, 0)), "float64")
    check(tensor.roll(-7, 2), np.roll(array, -7, 2), "float64")
    check(tensor[:0].roll(1, 0), array[:0], "float64")
    check(flow.tensor(3.0).flip(0), 3.0, "float32")
    check(flow.tensor(3.0).roll(1), 3.0, "float32")


@pytest.mark.parametrize("diagonal", [-5, -1, 0, 1, 5])
def test_triangles_and_diagonals(diagonal: int, contract: KernelContract) -> None:
    array = sample((3, 4), "float64")
    tensor = flow.tensor(array)
    check(tensor.tril(diagonal), np.tril(array, diagonal), "float64")
    check(tensor.triu(diagonal), np.triu(array, diagonal), "float64")
    check(flow.diag(tensor, diagonal), np.diag(array, diagonal), "float64")
    check(flow.diag(tensor[0], diagonal), np.diag(array[0], diagonal), "float64")
    infinite = flow.full((2, 2), float("inf"))
    check(infinite.tril(-1), [[0.0, 0.0], [np.inf, 0.0]], "float32")


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x: flow.cat([]), ValueError, "at least one tensor"),
        (lambda x: flow.stack([]), ValueError, "at least one tensor"),
        (lambda x: flow.cat([x[0, 0]]), ValueError, "0-d tensors cannot be concatenated"),
        (lambda x: flow.cat([x, x[0, 0]]), ValueError, "0-d tensors cannot be concatenated"),
        (lambda x: flow.cat([x, x[:, :2]]), ValueError, "must agree in all dimensions except 0"),
        (lambda x: flow.cat([x, x[None]]), ValueError, "must agree"),
        (lambda x: flow.cat([x, flow.zeros(1)]), ValueError, "must agree"),
        (lambda x: flow.cat([x], 2), IndexError, "dim 2 is out of range"),
        (lambda x: flow.stack([x, x[:1]]), ValueError, "differ"),
        (lambda x: flow.stack([x], 3), IndexError, "dim 3 is out of range"),
        (lambda x: x.repeat(2), ValueError, "fewer numbers than"),
        (lambda x: x.repeat(2, -1), ValueError, "cannot be negative"),
        (lambda x: x.repeat_interleave(-1, 0), ValueError, "cannot be negative"),
        (lambda x: x.repeat_interleave(2.5, 0), TypeError, "repeats must be an integer, not 2.5"),
        (lambda x: x.repeat_interleave(flow.tensor([1, 2]), 1), ValueError, "expected 3 numbers"),
        (
            lambda x: x.repeat_interleave(flow.tensor([1, -2, 0]), 1),
            ValueError,
            r"not negative, got (\[1, -2, 0\]|-2 at 1)",
        ),
        (lambda x: x.repeat_interleave(flow.tensor([[1]]), 1), ValueError, "expected 3 numbers"),
        (lambda x: x.repeat_interleave(flow.ones(3), 1), TypeError, "must be integers, not float32"),
        (lambda x: x.repeat_interleave(flow.ones(3).bool(), 1), TypeError, "must be integers, not bool"),
        (lambda x: x.flip(2), IndexError, "dim 2 is out of range"),
        (lambda x: x.flip(0, 0), ValueError, "names one dimension twice"),
        (lambda x: x.roll((1, 2)), ValueError, "2 shifts need as many dims"),
        (lambda x: x.roll(1, (0, 1)), ValueError, "1 shifts and 2 dims"),
        (lambda x: x.roll(1, 2), IndexError, "dim 2 is out of range"),
        (lambda x: x[0, 0].roll(1, 0), IndexError, "0-d tensor has no dimension"),
        (lambda x: x[0].tril(), ValueError, "at least 2 dimensions"),
        (lambda x: x[0].triu(), ValueError, "at least 2 dimensions"),
        (lambda x: flow.diag(x[None]), ValueError, "a vector or a matrix"),
    ],
)
def test_bad_arguments(call: Callable[[flow.Tensor], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call(flow.ones(2, 3))
