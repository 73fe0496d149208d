"""Losses of class indices: the negative log-likelihood, and the cross-entropy of scores.

The nearest class stands in for an index that names none, until the error is reported.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vmflow.kernels.choosing import Problem
from vmflow.kernels.problems.class_loss import Cases

from .arrays import by_arrays
from .softmax import log_softmax


def _rows(xp: Any, cases: Cases, array: Any) -> Any:
    """The scores as a matrix of the dtype to compute in."""
    moved = xp.moveaxis(array, cases.axis, -1) if array.ndim > 2 else array
    return moved.astype(cases.compute.numpy, copy=False).reshape(cases.rows, cases.classes)


def _back(xp: Any, cases: Cases, matrix: Any) -> Any:
    """A matrix in the shape of the scores."""
    if len(cases.shape) < 3:
        return matrix.reshape(cases.shape)
    rest = cases.shape[: cases.axis] + cases.shape[cases.axis + 1 :]
    return xp.moveaxis(matrix.reshape(*rest, cases.classes), -1, cases.axis)


def _weight(cases: Cases, given: Sequence[Any]) -> Any:
    """The weights of the classes, None if there are none."""
    return given[0].astype(cases.compute.numpy, copy=False) if given else None


def _no_class(problem: Problem, number: int) -> Exception:
    cases: Cases = problem.details
    return IndexError(f"{cases.name}: class index {number} is out of range for {cases.classes} classes")


def _note_wrong(xp: Any, cases: Cases, target: Any, number: Any) -> None:
    """Write the first index that names no class, 0 if there is none."""
    number.fill(0)
    if target.size:
        target = target.reshape(-1)
        wrong = xp.logical_and(target != cases.ignored, xp.logical_or(target < 0, target >= cases.classes))
        first = xp.argmax(wrong)
        xp.copyto(number, xp.where(xp.take(wrong, first), xp.take(target, first), 0))


def _places(xp: Any, cases: Cases, target: Any) -> tuple[Any, Any]:
    """The class of each row, and whether the row counts."""
    target = target.reshape(-1)
    return xp.clip(target, 0, max(cases.classes - 1, 0)), target != cases.ignored


def _weights(cases: Cases, places: Any, kept: Any, weight: Any) -> Any:
    """How much each row counts."""
    return kept.astype(cases.compute.numpy) * (1 if weight is None else weight[places])


def _put_loss(xp: Any, problem: Problem, logs: Any, target: Any, weight: Any, loss: Any, total: Any) -> None:
    """The loss, and what the mean is divided by."""
    cases: Cases = problem.details
    places, kept = _places(xp, cases, target)
    weights = _weights(cases, places, kept, weight)
    # An ignored element does not count, even if it is nan.
    losses = xp.where(kept, logs[xp.arange(cases.rows), places] * weights, 0)
    if cases.smoothing:
        spread = xp.sum(logs if weight is None else logs * weight, axis=1)
        spread = xp.where(kept, spread, 0) * (cases.smoothing / cases.classes)
        losses = losses * (1 - cases.smoothing) + spread
    sum_of_weights = xp.sum(weights)
    xp.copyto(total, sum_of_weights)
    if cases.reduction == "none":
        xp.copyto(loss, -losses.reshape(target.shape), casting="unsafe")
        return
    whole = 0 - xp.sum(losses)  # of nothing it is 0, not -0
    xp.copyto(loss, xp.true_divide(whole, sum_of_weights) if cases.reduction == "mean" else whole, casting="unsafe")


def _factors(xp: Any, cases: Cases, gradient: Any, total: Any, kept: Any) -> Any:
    """The gradient by the loss of each row, before weights; 0 for rows that do not count."""
    gradient = gradient.astype(cases.compute.numpy, copy=False)
    gradient = xp.true_divide(gradient, total) if cases.reduction == "mean" else gradient
    return xp.where(kept, gradient.reshape(-1), cases.compute.numpy.type(0))


@by_arrays("nll_loss", verify=_no_class)
def _nll_loss(xp: Any, problem: Problem, array: Any, target: Any, *arguments: Any) -> None:
    *given, loss, total, number = arguments
    cases: Cases = problem.details
    _note_wrong(xp, cases, target, number)
    _put_loss(xp, problem, _rows(xp, cases, array), target, _weight(cases, given), loss, total)


@by_arrays("nll_loss_gradient")
def _nll_loss_gradient(xp: Any, problem: Problem, gradient: Any, target: Any, total: Any, *arguments: Any) -> None:
    *given, out = arguments
    cases: Cases = problem.details
    places, kept = _places(xp, cases, target)
    factors, weight = _factors(xp, cases, gradient, total, kept), _weight(cases, given)
    factors = factors if weight is None else factors * weight[places]
    result = xp.zeros((cases.rows, cases.classes), cases.compute.numpy)
    result[xp.arange(cases.rows), places] = -factors
    xp.copyto(out, _back(xp, cases, result), casting="unsafe")


@by_arrays("cross_entropy", verify=_no_class)
def _cross_entropy(xp: Any, problem: Problem, array: Any, target: Any, *arguments: Any) -> None:
    *given, loss, total, logs, number = arguments
    cases: Cases = problem.details
    _note_wrong(xp, cases, target, number)
    found = _rows(xp, cases, array)
    if found.size:
        found = log_softmax(xp, found, 1)
    xp.copyto(logs, found.reshape(logs.shape))
    _put_loss(xp, problem, found, target, _weight(cases, given), loss, total)


@by_arrays("cross_entropy_gradient")
def _cross_entropy_gradient(
    xp: Any, problem: Problem, gradient: Any, target: Any, total: Any, logs: Any, *arguments: Any
) -> None:
    *given, out = arguments
    cases: Cases = problem.details
    weight = _weight(cases, given)
    places, kept = _places(xp, cases, target)
    factors = _factors(xp, cases, gradient, total, kept)
    hard = (factors if weight is None else factors * weight[places]) * (1 - cases.smoothing)
    soft = factors * (cases.smoothing / max(cases.classes, 1))
    whole = hard + soft * (cases.classes if weight is None else xp.sum(weight))
    result = xp.exp(logs.reshape(cases.rows, cases.classes)) * whole[:, None]
    if cases.smoothing:
        result = result - (soft[:, None] if weight is None else soft[:, None] * weight)
    # Each row has one place, and adding there needs no order.
    rows = xp.arange(cases.rows)
    result[rows, places] = result[rows, places] - hard
    xp.copyto(out, _back(xp, cases, result), casting="unsafe")
