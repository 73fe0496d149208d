"""The loss of unaligned sequences, against a sum over every alignment and against PyTorch."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import vmflow as flow
import vmflow.nn.functional as F
from tests.support import check_gradients

pytestmark = pytest.mark.usefixtures("contract")

Array = NDArray[Any]


def log_probabilities(seed: int, *shape: int) -> Array:
    x = np.random.default_rng(seed).uniform(-2, 2, shape)
    result: Array = x - np.log(np.exp(x).sum(-1, keepdims=True))
    return result


def by_enumeration(logs: Array, target: list[int], blank: int = 0) -> float:
    """The loss of one case, over all sequences of classes that merge into the target."""
    total = 0.0
    for path in itertools.product(range(logs.shape[1]), repeat=logs.shape[0]):
        merged = [value for value, _ in itertools.groupby(path)]
        if [value for value in merged if value != blank] == target:
            total += math.exp(sum(logs[step, value] for step, value in enumerate(path)))
    return -math.log(total) if total else math.inf


@pytest.mark.parametrize("blank", [0, 2])
@pytest.mark.parametrize("target", [[], [1], [1, 1], [3, 1], [1, 3, 1], [1, 1, 1], [1, 3, 1, 3, 1]])
def test_is_the_sum_over_all_alignments(target: list[int], blank: int) -> None:
    logs = log_probabilities(0, 4, 1, 4)
    targets = flow.tensor([target], dtype=flow.int64).reshape(1, len(target))
    loss = F.ctc_loss(flow.tensor(logs), targets, [4], [len(target)], blank, "sum")
    assert loss.item() == pytest.approx(by_enumeration(logs[:, 0], target, blank), rel=1e-12)


def test_cases_use_their_own_lengths() -> None:
    logs = log_probabilities(1, 5, 4, 3)
    targets = [[1, 2], [2], [], [1, 1]]
    padded = np.array([[1, 2, 9], [2, -1, 9], [0, 0, 0], [1, 1, 0]])
    times = [5, 3, 0, 4]
    want = [by_enumeration(logs[:count, case], targets[case]) for case, count in enumerate(times)]
    assert want[2] == 0
    lengths = [len(target) for target in targets]
    losses = F.ctc_loss(flow.tensor(logs), flow.tensor(padded), times, lengths, reduction="none")
    np.testing.assert_allclose(losses.numpy(), want, rtol=1e-12)
    joined = flow.tensor(list(itertools.chain(*targets)))
    again = F.ctc_loss(flow.tensor(logs), joined, flow.tensor(times), flow.tensor(lengths), reduction="none")
    assert again.tolist() == losses.tolist()
    mean = F.ctc_loss(flow.tensor(logs), joined, times, lengths)
    assert mean.item() == pytest.approx(np.mean(np.array(want) / np.maximum(lengths, 1)))


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_gradients_through_a_softmax_are_the_numerical_ones(reduction: str) -> None:
    x = np.random.default_rng(2).uniform(-2, 2, (5, 3, 3))
    targets = flow.tensor([[1, 2], [1, 1], [2, 0]])
    check_gradients(lambda x: F.ctc_loss(F.log_softmax(x, -1), targets, [5, 4, 3], [2, 2, 1], reduction=reduction), x)


@pytest.mark.parametrize("zero_infinity", [False, True])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("joined", [False, True])
def test_results_and_gradients_are_those_of_pytorch(zero_infinity: bool, reduction: str, joined: bool) -> None:
    torch = pytest.importorskip("torch")
    logs = log_probabilities(3, 7, 4, 5)
    padded = np.random.default_rng(3).integers(1, 5, (4, 4))
    padded[1] = 2
    lengths = np.array([4, 4, 0, 2])  # four times the same class needs seven times
    times = np.array([7, 6 if zero_infinity else 7, 5, 3])
    targets = np.concatenate([row[:count] for row, count in zip(padded, lengths, strict=True)]) if joined else padded
    found = []
    for lib in (flow, torch):
        source = lib.tensor(logs, requires_grad=True)
        given = [lib.tensor(value) for value in (targets, times, lengths)]
        loss = lib.nn.functional.ctc_loss(source, *given, reduction=reduction, zero_infinity=zero_infinity)
        (loss * 1.5).sum().backward()
        found.append((loss.detach().numpy(), source.grad.numpy()))
    np.testing.assert_allclose(found[0][0], found[1][0], rtol=1e-10)
    np.testing.assert_allclose(found[0][1], found[1][1], rtol=1e-9, atol=1e-12)


def test_a_target_without_an_alignment() -> None:
    logs = flow.tensor(log_probabilities(4, 2, 2, 3), requires_grad=True)
    targets = flow.tensor([[1, 1], [1, 2]])
    losses = F.ctc_loss(logs, targets, [2, 2], [2, 2], reduction="none")
    assert losses[0].item() == math.inf
    assert math.isfinite(losses[1].item())
    zeroed = F.ctc_loss(logs, targets, [2, 2], [2, 2], reduction="none", zero_infinity=True)
    assert zeroed[0].item() == 0
    zeroed.sum().backward()
    assert logs.grad is not None
    gradient = logs.grad.numpy()
    assert (gradient[:, 0] == 0).all()
    assert np.isfinite(gradient).all()
    assert gradient[:, 1].any()


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_other_dtypes(dtype: str) -> None:
    logs = log_probabilities(5, 6, 2, 4)
    x = flow.tensor(logs, dtype=getattr(flow, dtype), requires_grad=True)
    targets = flow.tensor([[1, 2], [3, 3]], dtype=flow.int32)
    loss = F.ctc_loss(x, targets, [6, 5], [2, 2], reduction="none")
    assert loss.dtype is x.dtype
    exact = [by_enumeration(logs[:6, 0], [1, 2]), by_enumeration(logs[:5, 1], [3, 3])]
    np.testing.assert_allclose(loss.detach().double().numpy(), exact, rtol=1e-5 if dtype == "float32" else 2e-2)
    loss.sum().backward()
    assert x.grad is not None
    assert x.grad.dtype is x.dtype


def test_a_single_case() -> None:
    logs = log_probabilities(6, 4, 3)
    loss = F.ctc_loss(flow.tensor(logs), flow.tensor([1, 2]), [4], [2], reduction="none")
    assert tuple(loss.shape) == ()
    assert loss.item() == pytest.approx(by_enumeration(logs, [1, 2]))


def test_nothing() -> None:
    assert F.ctc_loss(flow.zeros(3, 0, 2), flow.zeros(0, 1).long(), [], [], reduction="sum").item() == 0
    losses = F.ctc_loss(flow.zeros(0, 2, 3), flow.tensor([[1], [1]]), [0, 0], [0, 1], reduction="none")
    assert losses.tolist() == [0.0, math.inf]


@pytest.mark.parametrize(
    ("targets", "times", "lengths", "blank", "error", "complaint"),
    [
        ([[1, 2]], [4], [2], 3, ValueError, "blank must be one of 3 classes"),
        ([[1, 2], [1, 2]], [4], [2], 0, ValueError, "1 cases do not fit targets"),
        ([[1, 2]], [4, 4], [2], 0, ValueError, "1 cases need as many input lengths"),
        ([[1, 2]], [4], [2, 2], 0, ValueError, "1 cases need as many target lengths"),
        ([[1.0, 2.0]], [4], [2], 0, TypeError, "class indices must be integers"),
        ([[1, 2]], [5], [2], 0, ValueError, "input lengths must be within 0 and 4"),
        ([[1, 2]], [4], [3], 0, ValueError, "are beyond targets"),
        ([1, 2, 1], [4], [2], 0, ValueError, "must add up to the 3 targets"),
        ([[1, 2]], [4], [-1], 0, ValueError, "cannot be negative"),
        ([[1, 3]], [4], [2], 0, IndexError, "class index 3 is out of range for 3 classes"),
    ],
)
def test_operands_that_do_not_fit_raise(
    targets: Any, times: list[int], lengths: list[int], blank: int, error: type[Exception], complaint: str
) -> None:
    logs = flow.tensor(log_probabilities(0, 4, 1, 3))
    with pytest.raises(error, match=complaint):
        F.ctc_loss(logs, flow.tensor(targets), times, lengths, blank).numpy()


def test_other_operands_that_do_not_fit() -> None:
    with pytest.raises(ValueError, match="expected log-probabilities"):
        F.ctc_loss(flow.zeros(3), flow.tensor([1]), [1], [1])
    with pytest.raises(TypeError, match="not defined for int64"):
        F.ctc_loss(flow.zeros(3, 1, 2).long(), flow.tensor([[1]]), [1], [1])
    with pytest.raises(TypeError, match="input lengths must be integers"):
        F.ctc_loss(flow.zeros(3, 1, 2), flow.tensor([[1]]), flow.ones(1), [1])
