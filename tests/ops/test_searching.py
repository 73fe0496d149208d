"""Searching in sorted sequences, and membership: against numpy."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import vmflow as flow
from vmflow import interpreter
from vmflow.ops.reduction.counting import _BINCOUNT, _BINCOUNT_LENGTH, _DISTINCT

from .oracle import (
    ALL,
    INTEGERS,
    ORDERED,
    UNSIGNED,
    Array,
    KernelContract,
    Row,
    Shapes,
    check,
    forward_test,
    layouts,
    sample,
)

SORTED = np.array([-2, 0, 0, 1, 2])
MATRIX: tuple[Shapes, ...] = (((3, 4),), ((),), ((0,),), ((2, 0, 3),), ((5,),))


def _row(right: bool) -> Row:
    return Row(
        "searchsorted",
        lambda x: flow.searchsorted(flow.tensor(SORTED).to(x.dtype), x, right=right),
        lambda x: np.searchsorted(SORTED, x, "right" if right else "left"),
        tuple([value for value in ORDERED if value not in (*UNSIGNED, "bool")]),
        result="int64",
        shapes=MATRIX,
        label="-right" if right else "",
    )


def _neighbours(x: Array) -> Array:
    flat = x.reshape(-1)
    return _padded(flat[np.append(np.ones(min(flat.size, 1), bool), flat[1:] != flat[:-1])], x)


def _padded(found: Array, x: Array) -> Array:
    """With zeros behind, as many as there might have been."""
    return np.append(found, np.zeros(x.size - found.size, x.dtype))


def _distinct(x: flow.Tensor, consecutive: bool) -> flow.Tensor:
    return interpreter.dispatch_several(_DISTINCT, (x,), (consecutive, None))[0]


ROWS: list[Row] = [
    _row(False),
    _row(True),
    Row(
        "searchsorted",
        lambda x: flow.searchsorted(flow.tensor([0, 1]).to(x.dtype), x),
        lambda x: np.searchsorted(np.array([0, 1]), x),
        (*UNSIGNED, "bool"),
        result="int64",
        shapes=MATRIX,
        label="-unsigned",
    ),
    Row(
        "isin",
        lambda x: flow.isin(x, flow.tensor([0, 2, 5]).to(x.dtype)),
        lambda x: np.isin(x, [0, 1] if x.dtype.kind == "b" else [0, 2, 5]),
        ALL,
        result="bool",
        shapes=MATRIX,
    ),
    Row("distinct", lambda x: _distinct(x, False), lambda x: _padded(np.unique(x), x), ORDERED),
    Row("distinct", lambda x: _distinct(x, True), _neighbours, ORDERED, label="-neighbours"),
    Row(
        "bincount_length",
        lambda x: interpreter.dispatch(_BINCOUNT_LENGTH, (x.clamp(0, 9),)),
        lambda x: x.max(initial=-1) + 1,
        INTEGERS,
        result="int64",
        shapes=(((5,),), ((0,),)),
        domain=((0, 9),),
    ),
    Row(
        "bincount",
        lambda x: interpreter.dispatch(_BINCOUNT, (x.clamp(0, 9),), (10,)),
        lambda x: np.bincount(x, minlength=10),
        INTEGERS,
        result="int64",
        shapes=(((5,),), ((0,),)),
        domain=((0, 9),),
    ),
]


test_forward = forward_test(ROWS)


def test_sequences_and_values(contract: KernelContract) -> None:
    array, sought = np.sort(sample((3, 4), "float64")), sample((3, 6), "float64", 1)
    expected = np.stack([np.searchsorted(row, values) for row, values in zip(array, sought, strict=True)])
    for _, tensor in layouts(array):
        check(flow.searchsorted(tensor, flow.tensor(sought)), expected, "int64")
        check(flow.searchsorted(tensor, flow.tensor(sought), out_int32=True), expected, "int32")
        check(flow.searchsorted(tensor, tensor, side="right"), np.broadcast_to([1, 2, 3, 4], (3, 4)), "int64")
    vector = flow.tensor(SORTED)
    check(flow.searchsorted(vector, 0), 1, "int64")
    check(flow.searchsorted(vector, 0.5), 3, "int64")
    check(flow.searchsorted(vector, 0, side="right"), 3, "int64")
    check(flow.searchsorted(flow.tensor([3, 1, 2]), 2, sorter=flow.tensor([1, 2, 0])), 1, "int64")
    check(flow.searchsorted(flow.zeros(0), flow.ones(2)), [0, 0], "int64")


def test_buckets(contract: KernelContract) -> None:
    values = sample((3, 4), "int64")
    for _, tensor in layouts(values):
        check(flow.bucketize(tensor, flow.tensor(SORTED)), np.digitize(values, SORTED, right=True), "int64")
        check(flow.bucketize(tensor, flow.tensor(SORTED), right=True), np.digitize(values, SORTED), "int64")
    check(flow.bucketize(1.5, flow.tensor(SORTED), out_int32=True), 4, "int32")


def test_membership(contract: KernelContract) -> None:
    values = sample((3, 4), "int64")
    tensor = flow.tensor(values)
    check(flow.isin(tensor, flow.tensor([[0, 1]]), invert=True), ~np.isin(values, [0, 1]), "bool")
    check(flow.isin(tensor, 1), values == 1, "bool")
    check(flow.isin(1, tensor), (values == 1).any(), "bool")
    check(flow.isin(tensor, flow.tensor([0.5, 1.0])), values == 1, "bool")
    check(flow.isin(tensor, flow.zeros(0)), np.zeros((3, 4)), "bool")


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda x: flow.searchsorted(x, x[0]),
            ValueError,
            r"shape \[2, 3\] does not fit values of \[3\]",
        ),
        (lambda x: flow.searchsorted(x[0, 0], x), ValueError, "must be a vector"),
        (lambda x: flow.searchsorted(x, x, side="middle"), ValueError, "side must be 'left' or 'right'"),
        (lambda x: flow.searchsorted(x, x, side="left", right=True), ValueError, "contradicts"),
        (lambda x: flow.searchsorted(x, x, sorter=flow.tensor([0])), ValueError, "the sorter's shape"),
        (lambda x: flow.searchsorted(x[0] * 1j, x), TypeError, "not defined for complex64"),
        (lambda x: flow.searchsorted(x[0], "a"), TypeError, "searchsorted"),  # type: ignore[arg-type]
        (lambda x: flow.bucketize(x, x), ValueError, "boundaries must be a vector"),
        (lambda x: flow.isin(1, 2), TypeError, "one of them must be a tensor"),
    ],
)
def test_bad_arguments(call: Callable[[flow.Tensor], object], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call(flow.ones(2, 3))
