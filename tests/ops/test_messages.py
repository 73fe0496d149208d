"""Errors of frequent mistakes: each names the wrong argument and the remedy, and changes nothing."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import vmflow as flow
from tests.support import instructions_issued
from vmflow import nn

functional = nn.functional

ADVICE = r"make a tensor of the array: vmflow\.from_numpy\(array\) shares its memory, vmflow\.tensor\(array\) copies it"


def array(*shape: int) -> Any:
    return np.ones(shape)


X, Y, SQUARE, FLAGS = flow.ones(2), flow.ones(2), flow.ones(2, 2), flow.ones(2, dtype=flow.bool)


@pytest.mark.parametrize(
    "expression",
    [
        lambda: X + array(2),
        lambda: array(2) + X,
        lambda: X - array(2),
        lambda: array(2) - X,
        lambda: X * array(2),
        lambda: array(2) * X,
        lambda: X / array(2),
        lambda: array(2) / X,
        lambda: X // array(2),
        lambda: array(2) // X,
        lambda: X % array(2),
        lambda: array(2) % X,
        lambda: X ** array(2),
        lambda: array(2) ** X,
        lambda: operator.eq(X, array(2)),
        lambda: operator.eq(array(2), X),
        lambda: operator.ne(X, array(2)),
        lambda: operator.ne(array(2), X),
        lambda: operator.lt(X, array(2)),
        lambda: operator.lt(array(2), X),
        lambda: operator.ge(X, array(2)),
        lambda: operator.ge(array(2), X),
        lambda: FLAGS & (array(2) > 0),
        lambda: (array(2) > 0) & FLAGS,
        lambda: (array(2) > 0) | FLAGS,
        lambda: (array(2) > 0) ^ FLAGS,
        lambda: flow.add(X, array(2)),
        lambda: flow.maximum(X, array(2)),
        lambda: flow.where(X > 0, array(2), 1.0),
    ],
)
def test_operators_do_not_mix_tensors_and_arrays(expression: Callable[[], object]) -> None:
    """Which of the two the result would be, and where, is for the program to say."""
    with pytest.raises(TypeError, match=r"got .*ndarray (float64|bool)\[2\].*; " + ADVICE):
        expression()


@pytest.mark.parametrize(
    "expression",
    [
        lambda: SQUARE @ array(2, 2),
        lambda: array(2, 2) @ SQUARE,
        lambda: flow.matmul(array(2, 2), SQUARE),
        lambda: flow.exp(array(2, 2)),
        lambda: flow.cat([SQUARE, array(2, 2)]),
        lambda: nn.Linear(2, 2)(array(2, 2)),
        lambda: functional.mse_loss(SQUARE, array(2, 2)),
        lambda: functional.cross_entropy(SQUARE, array(2, 2)),
        lambda: functional.nll_loss(array(2, 2), flow.tensor([0, 1])),
    ],
)
def test_functions_of_tensors_take_no_arrays(expression: Callable[[], object]) -> None:
    with pytest.raises(TypeError, match=r"expected tensors, got .*ndarray float64\[2, 2\].*; " + ADVICE):
        expression()


def test_assigned_in_place_an_array_changes_nothing() -> None:
    x, y = flow.ones(2), array(2)
    with pytest.raises(TypeError, match="ndarray"):
        x += y
    with pytest.raises(TypeError, match="ndarray"):
        y += x
    assert x.tolist() == y.tolist() == [1, 1]


def test_numpys_scalars_are_numbers_and_sequences_are_not() -> None:
    assert (np.float64(2) + X).tolist() == (X + np.float64(2)).tolist() == [3, 3]
    assert (np.float64(1) == X).tolist() == [True, True]
    with pytest.raises(TypeError, match=r"add: .*, got list; make a tensor of numbers in sequences"):
        X + [1, 2]
    with pytest.raises(TypeError, match=r"matmul: expected tensors, got list, Tensor; make a tensor of numbers"):
        [1, 2] @ X
    with pytest.raises(TypeError, match=r"add: expected a tensor or a number, got NoneType$"):
        X + None
    assert (X == [1, 1]) is False
    assert (X == None) is False  # noqa: E711


def test_another_librarys_tensors_are_told_from_ours() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    with pytest.raises(TypeError, match=r"got torch\.Tensor; vmflow\.from_dlpack"):
        X + torch.ones(2)
    with pytest.raises(TypeError, match=r"got Tensor, torch\.Tensor; vmflow\.from_dlpack"):
        functional.mse_loss(X, torch.ones(2))


# Leaves that are changed


@pytest.mark.parametrize(
    ("change", "name"),
    [
        (lambda x: x.__setitem__(0, 1), r"x\[\.\.\.\] = \.\.\."),
        (lambda x: x.__setitem__((slice(None), 0), 1), r"x\[\.\.\.\] = \.\.\."),
        (lambda x: x.__setitem__(flow.tensor([0]), 1), r"x\[\.\.\.\] = \.\.\."),
        (lambda x: x.__setitem__(x.detach() > 0, 1), r"x\[\.\.\.\] = \.\.\."),
        (lambda x: x.add_(1), "add"),
        (lambda x: x[0].mul_(2), "mul"),
        (lambda x: x.t_(), "t_"),
    ],
)
def test_changing_a_leaf_says_how_to_do_it(change: Callable[[flow.Tensor], object], name: str) -> None:
    x = flow.ones(2, 2, requires_grad=True)
    pattern = f"^({name}): a leaf tensor that requires a gradient .*vmflow.no_grad\\(\\), or change a copy, x = x.clone"
    with pytest.raises(RuntimeError, match=pattern):
        change(x)
    assert x.tolist() == [[1, 1], [1, 1]]
    assert tuple(x.shape) == (2, 2)
    copied = x.clone()
    copied[0] = 5
    copied.sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [[0, 0], [1, 1]]
    with flow.no_grad():
        x[0] = 5
    assert x.tolist() == [[5, 5], [1, 1]]


# Losses

ROW, COLUMN = (3,), (3, 1)


@pytest.mark.parametrize(
    "loss",
    [
        functional.mse_loss,
        functional.l1_loss,
        functional.smooth_l1_loss,
        functional.huber_loss,
        functional.binary_cross_entropy,
        functional.binary_cross_entropy_with_logits,
        functional.kl_div,
        functional.poisson_nll_loss,
        functional.soft_margin_loss,
        functional.hinge_embedding_loss,
        functional.multilabel_soft_margin_loss,
        lambda input, target: functional.gaussian_nll_loss(input, target, 1.0),
    ],
)
def test_predictions_and_targets_of_other_shapes_are_not_broadcast(loss: Any) -> None:
    """All pairs would be compared, and training would go on with a loss that means nothing."""
    column, row = flow.full(COLUMN, 0.5), flow.full(ROW, 0.5)
    with instructions_issued() as issued:
        with pytest.raises(
            ValueError, match=r"shape \[3, 1\] .* \[3\] must agree; use target\.unsqueeze\(-1\), or input"
        ):
            loss(column, row)
        with pytest.raises(ValueError, match=r"shape \[3\] .* \[3, 1\] must agree; use target\.squeeze\(-1\)"):
            loss(row, column)
        with pytest.raises(ValueError, match=r"shape \[3\] .* \[\] must agree; neither is broadcast"):
            loss(row, row.mean())
    assert [name for name in issued if "mean" not in name] == []
    loss(column, row.unsqueeze(-1)).item()


def test_a_normal_distributions_values_broadcast_where_as_many_dimensions_show_it() -> None:
    found = functional.gaussian_nll_loss(flow.zeros(3, 2), flow.ones(3, 1), 1.0, reduction="none")
    assert found.tolist() == [[0.5, 0.5]] * 3


@pytest.mark.parametrize("loss", [functional.mse_loss, functional.l1_loss])
def test_the_error_of_a_mean_of_integers_proposes_a_conversion(loss: Any) -> None:
    ones = flow.ones(3, dtype=flow.int64)
    with pytest.raises(TypeError, match=rf"{loss.__name__}: there is no mean of int64 losses; convert .*\.float\(\)"):
        loss(ones, ones)
    assert loss(ones, ones, reduction="sum").item() == 0
    assert loss(ones.float(), ones).item() == 0


@pytest.mark.parametrize(
    ("target", "error", "match"),
    [
        (
            [1.0, 2.0, 3.0],
            ValueError,
            r"float32 targets are the probabilities .* \[3, 4\]; got \[3\]\. .*\.long\(\)",
        ),
        ([[1.0], [2.0], [3.0]], ValueError, r"got \[3, 1\]\. If they are class indices, convert them with \.long\(\)"),
        ([[1], [2], [3]], ValueError, r"class indices of shape \[3, 1\]; use target\.squeeze\(-1\)"),
        (
            [[0, 1, 0, 0]] * 3,
            ValueError,
            r"indices of shape \[3, 4\]; if they are the probabilities .*\.float\(\)",
        ),
        ([1, 2], ValueError, r"class indices of shape \[2\]; expected \[3\]"),
        ([True, False, True], TypeError, r"class indices must be integers, not bool; convert with \.long\(\)"),
    ],
)
def test_targets_of_cross_entropy(target: Any, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match="^cross_entropy: .*" + match):
        functional.cross_entropy(flow.zeros(3, 4), flow.tensor(target))


def test_targets_of_other_losses_of_classes() -> None:
    scores, floats = flow.zeros(3, 4), flow.tensor([1.0, 2.0, 3.0])
    for loss in (functional.nll_loss, functional.multi_margin_loss):
        with pytest.raises(TypeError, match=r"class indices must be integers, not float32; convert with \.long\(\)"):
            loss(scores, floats)
    with pytest.raises(ValueError, match=r"nll_loss: .* indices of shape \[3, 1\]; use target\.squeeze\(-1\)"):
        functional.nll_loss(scores, flow.tensor([[1], [2], [3]]))
    with pytest.raises(ValueError, match=r"nll_loss: .* indices of shape \[2, 1, 5\]; use target\.squeeze\(1\)"):
        functional.nll_loss(flow.zeros(2, 4, 5), flow.zeros(2, 1, 5, dtype=flow.int64))
    integers = flow.tensor([0, 1, 1])
    for binary in (functional.binary_cross_entropy, functional.binary_cross_entropy_with_logits):
        with pytest.raises(TypeError, match=r"got float32 and int64; convert with \.float\(\) or target\.to\(input"):
            binary(flow.full((3,), 0.5), integers)
        binary(flow.full((3,), 0.5), integers.float()).item()
