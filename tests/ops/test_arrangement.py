"""Functions composed of views, joins and other ops: against numpy, and their errors."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import vmflow as flow
from tests.support import check_gradients

from .oracle import KernelContract, check, layouts, sample

NUMBER, VECTOR = sample((), "float64"), sample((4,), "float64")
MATRIX, CUBE = sample((3, 4), "float64"), sample((2, 3, 4), "float64")


@pytest.mark.parametrize("name", ["atleast_1d", "atleast_2d", "atleast_3d"])
def test_at_least_so_many_dimensions(name: str, contract: KernelContract) -> None:
    ours, theirs = getattr(flow, name), getattr(np, name)
    for array in (NUMBER, VECTOR, MATRIX, CUBE):
        check(ours(flow.tensor(array)), theirs(array), "float64")
    pair = [flow.tensor(NUMBER), flow.tensor(MATRIX)]
    for several in (ours(*pair), ours(tuple(pair)), ours(pair)):
        assert isinstance(several, tuple)
        for found, array in zip(several, (NUMBER, MATRIX), strict=True):
            check(found, theirs(array), "float64")
    (alone,) = ours([flow.tensor(NUMBER)])
    check(alone, theirs(NUMBER), "float64")


def test_joins(contract: KernelContract) -> None:
    for arrays in ([NUMBER, NUMBER], [VECTOR, VECTOR], [MATRIX, MATRIX], [CUBE, CUBE]):
        tensors = [flow.tensor(array) for array in arrays]
        check(flow.dstack(tensors), np.dstack(arrays), "float64")
        if arrays[0].ndim:
            check(flow.column_stack(tensors), np.column_stack(arrays), "float64")
    check(
        flow.column_stack([flow.tensor(VECTOR), flow.tensor(MATRIX.T)]), np.column_stack([VECTOR, MATRIX.T]), "float64"
    )
    check(flow.column_stack([flow.tensor(NUMBER)] * 2), [[NUMBER, NUMBER]], "float64")
    check_gradients(lambda a, b: flow.column_stack([a, b.T]), VECTOR, MATRIX, second=True)
    check_gradients(lambda a: flow.dstack([a, a * a]), MATRIX, second=True)


def test_blocks_along_a_diagonal(contract: KernelContract) -> None:
    expected = np.zeros((5, 9))
    expected[:3, :4] = MATRIX
    expected[3, 4:8] = VECTOR
    expected[4, 8] = NUMBER
    check(flow.block_diag(*[flow.tensor(value) for value in (MATRIX, VECTOR, NUMBER)]), expected, "float64")
    check(flow.block_diag(), np.zeros((1, 0)), "float32")
    check(flow.block_diag(flow.tensor([1]), flow.tensor([2.5])), [[1, 0], [0, 2.5]], "float32")
    check(flow.block_diag(flow.zeros(0, 2), flow.ones(1, 1)), [[0, 0, 1]], "float32")
    check_gradients(lambda a, b: flow.block_diag(a, b), MATRIX, VECTOR, second=True)


def test_cuts(contract: KernelContract) -> None:
    cases: list[tuple[Callable[..., Any], Callable[..., Any], Any]] = [
        (flow.hsplit, np.hsplit, MATRIX),
        (flow.hsplit, np.hsplit, VECTOR),
        (flow.vsplit, np.vsplit, MATRIX.T),
        (flow.dsplit, np.dsplit, CUBE),
    ]
    for ours, theirs, array in cases:
        for how in (2, [1, 3], (0, 2)):
            found, expected = ours(flow.tensor(array), how), theirs(array, how)
            assert len(found) == len(expected)
            for one, other in zip(found, expected, strict=True):
                check(one, other, "float64")
    first, second = flow.tensor(MATRIX).split_with_sizes([1, 3], 1)
    check(first, MATRIX[:, :1], "float64")
    check(second, MATRIX[:, 1:], "float64")


def test_quarter_turns(contract: KernelContract) -> None:
    for k in range(-2, 6):
        for _, tensor in layouts(CUBE):
            check(tensor.rot90(k), np.rot90(CUBE, k), "float64")
            check(flow.rot90(tensor, k, (-1, 0)), np.rot90(CUBE, k, (-1, 0)), "float64")
    check_gradients(lambda a: a.rot90(), MATRIX, second=True)
    tensor = flow.tensor(MATRIX)
    tensor.rot90(0).zero_()
    check(tensor, MATRIX, "float64")


def test_on_diagonals(contract: KernelContract) -> None:
    for offset in (-2, 0, 1):
        for _, tensor in layouts(MATRIX):
            found = tensor.diag_embed(offset)
            assert found.shape == (3, 4 + abs(offset), 4 + abs(offset))
            check(found.diagonal(offset, -2, -1), MATRIX, "float64")
            assert int((found != 0).sum().item()) == 12
            check(tensor.diag_embed(offset, 0, 2), np.moveaxis(found.numpy(), 0, 1), "float64")
            check(tensor.diag_embed(offset, -1, -2), found.numpy().swapaxes(1, 2), "float64")
            check(tensor.diagflat(offset), np.diagflat(MATRIX, offset), "float64")
    check(flow.diagflat(flow.tensor(NUMBER), 1), [[0, NUMBER], [0, 0]], "float64")
    check_gradients(lambda a: a.diag_embed(1, 0, 1), MATRIX, second=True)


def test_products_and_combinations(contract: KernelContract) -> None:
    vectors = [flow.tensor(value) for value in ([1, 2], [3], [4, 5, 6])]
    check(flow.cartesian_prod(*vectors), list(itertools.product([1, 2], [3], [4, 5, 6])), "int64")
    check(flow.cartesian_prod(vectors[0]), [1, 2], "int64")
    check(flow.cartesian_prod(vectors[0], vectors[0][:0]), np.zeros((0, 2)), "int64")
    check_gradients(lambda a, b: flow.cartesian_prod(a, b), VECTOR, VECTOR[:2])
    tensor = flow.tensor(VECTOR)
    for r in (1, 2, 3, 5):
        check(flow.combinations(tensor, r), np.array(list(itertools.combinations(VECTOR, r))).reshape(-1, r), "float64")
        repeating = list(itertools.combinations_with_replacement(VECTOR, r))
        check(flow.combinations(tensor, r, with_replacement=True), repeating, "float64")
    check(flow.combinations(tensor, 0), [], "float64")
    check_gradients(lambda a: flow.combinations(a), VECTOR, second=True)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x: flow.block_diag(x[None]), ValueError, "at most 2 dimensions"),
        (lambda x: x.hsplit(2), ValueError, "dimension 1 of size 3 cannot be cut into 2 equal pieces"),
        (lambda x: x.hsplit(0), ValueError, "cannot be cut into 0"),
        (lambda x: x[0, 0].hsplit(1), ValueError, "at least 1 dimensions"),
        (lambda x: x[0].vsplit(1), ValueError, "at least 2 dimensions"),
        (lambda x: x.dsplit(1), ValueError, "at least 3 dimensions"),
        (lambda x: x.split_with_sizes([1, 3], 1), ValueError, "do not add up"),
        (lambda x: x.rot90(1, (0,)), ValueError, "expected two dims"),
        (lambda x: x.rot90(1, (1, -1)), ValueError, "not two different dimensions"),
        (lambda x: x[0].rot90(), IndexError, "dim 1 is out of range"),
        (lambda x: x.diag_embed(0, 0, -3), ValueError, "the same dimension"),
        (lambda x: x[0, 0].diag_embed(), IndexError, "a 0-d tensor"),
        (lambda x: flow.cartesian_prod(x), ValueError, "expected vectors"),
        (lambda x: flow.cartesian_prod(), ValueError, "expected vectors"),
        (lambda x: flow.combinations(x), ValueError, "expected a vector"),
        (lambda x: flow.combinations(x[0], -1), ValueError, "r cannot be negative"),
    ],
)
def test_bad_arguments(call: Callable[[flow.Tensor], object], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call(flow.zeros(2, 3))
