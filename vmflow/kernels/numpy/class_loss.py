"""Losses whose targets are class indices: the negative log-likelihood, and the cross-entropy of scores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from vmflow.dtypes import float32
from vmflow.instructions.blob import Array
from vmflow.kernels.choosing import Call, Kernel, Problem, builds, kernel_of
from vmflow.kernels.native.class_loss import CrossEntropy, CrossEntropyGradient
from vmflow.kernels.problems.class_loss import Cases

from . import rows


def _rows(cases: Cases, array: Array) -> Array:
    """Return the scores as a matrix (rows, classes) of the dtype to compute in."""
    moved = np.moveaxis(array, cases.axis, -1) if array.ndim > 2 else array
    return np.ascontiguousarray(moved, cases.compute.numpy).reshape(cases.rows, cases.classes)


def _weight(cases: Cases, rest: Sequence[Any]) -> Array | None:
    """Return the weights of the classes, the first of a kernel's last arguments; None if `rest` is only (out,)."""
    return rest[0].astype(cases.compute.numpy, copy=False) if len(rest) > 1 else None


def _back(cases: Cases, matrix: Array) -> Array:
    """Return a matrix (rows, classes) in the shape of the scores."""
    rest = cases.shape[: cases.axis] + cases.shape[cases.axis + 1 :]
    result = matrix.reshape(*rest, cases.classes)
    return np.moveaxis(result, -1, cases.axis) if len(cases.shape) > 2 else result.reshape(cases.shape)


def _none_ignored(cases: Cases) -> bool:
    return not 0 <= cases.ignored < cases.classes


def _places(cases: Cases, target: Array) -> tuple[Array, Array | None]:
    """Return each row's class, 0 for an ignored row, and whether each row counts; None only if all do.

    Raises:
        IndexError: if a class is out of range.
    """
    target = target.reshape(-1)
    # If `ignored` is no class, only the lowest and the highest target need a check.
    if _none_ignored(cases) and cases.rows and target.min() >= 0 and target.max() < cases.classes:
        return target, None
    kept = target != cases.ignored
    wrong = kept & ((target < 0) | (target >= cases.classes))
    if wrong.any():
        raise IndexError(
            f"{cases.name}: class index {int(target[wrong][0])} is out of range for {cases.classes} classes"
        )
    return np.where(kept, target, 0), kept


def _is_plain(cases: Cases) -> bool:
    """Return whether the loss is a mean or sum in float32, without smoothing, and `ignored` is no class."""
    return (
        _none_ignored(cases)
        and not cases.smoothing
        and cases.reduction != "none"
        and cases.compute is float32
        and cases.dtype is float32
    )


def _reduced(cases: Cases, logs: Array, target: Array, weight: Array | None) -> tuple[Array, Array]:
    """Return the reduced loss of log-probabilities, and the divisor of the mean: the sum of the rows' weights.

    With the reduction "none", the loss has the shape of `target`.
    """
    reduction = cases.reduction
    places, kept = _places(cases, target)
    smoothing = logs.dtype.type(cases.smoothing)
    losses = -logs[np.arange(cases.rows), places]
    weights = kept if weight is None else _counted(kept, weight[places])
    if weights is None:
        total = logs.dtype.type(cases.rows)
    else:
        weights = weights.astype(logs.dtype, copy=False)
        losses = _counted(kept, losses * weights)  # 0 for ignored rows, even if their loss is nan
        total = weights.sum()
    if smoothing:
        spread = logs.sum(1) if weight is None else logs @ weight
        losses = losses * (1 - smoothing) - _counted(kept, spread) * (smoothing / cases.classes)
    if reduction == "none":
        return losses.reshape(target.shape), total
    loss = losses.sum() + 0  # so that it is not -0
    return np.asarray(loss / total if reduction == "mean" else loss), np.asarray(total)


def _factors(cases: Cases, gradient: Array, total: Array, kept: Array | None) -> Array:
    """Return the gradient by each row's loss, before class weights.

    It has one element for all rows if the loss is reduced and `kept` is None.
    """
    if cases.reduction == "mean":
        gradient = gradient / total
    return _counted(kept, np.asarray(gradient).astype(cases.compute.numpy, copy=False).reshape(-1))


def _counted(kept: Array | None, values: Array) -> Array:
    """Return a value for each row, 0 for ignored rows; or `values` as they are if `kept` is None."""
    return values if kept is None else np.where(kept, values, 0)


@kernel_of("nll_loss")
def _nll_loss(problem: Problem, array: Array, target: Array, *rest: Any) -> tuple[Array, Array]:
    cases: Cases = problem.details
    loss, total = _reduced(cases, _rows(cases, array), target, _weight(cases, rest))
    return loss.astype(cases.dtype.numpy, copy=False), total


@kernel_of("nll_loss_gradient")
def _nll_loss_gradient(problem: Problem, gradient: Array, target: Array, total: Array, *rest: Any) -> Array:
    cases: Cases = problem.details
    places, kept = _places(cases, target)
    factors, weight = _factors(cases, gradient, total, kept), _weight(cases, rest)
    if weight is not None:
        factors = factors * weight[places]
    result = np.zeros((cases.rows, cases.classes), cases.dtype.numpy)
    result[np.arange(cases.rows), places] = _counted(kept, -factors)
    return np.ascontiguousarray(_back(cases, result))


@builds("cross_entropy")
def _cross_entropy(problem: Problem) -> Kernel:
    cases: Cases = problem.details
    plain = _is_plain(cases) and len(problem.inputs) == 2
    in_c = CrossEntropy.of(cases.reduction == "mean", cases.rows * cases.classes) if plain else None
    is_matrix = len(cases.shape) == 2 and cases.compute is cases.dtype
    kept = tuple(problem.outputs[2].shape)

    def kernel(array: Array, target: Array, *rest: Any) -> tuple[Array, Array, Array]:
        scores = array if is_matrix and array.flags.c_contiguous else _rows(cases, array)
        if in_c is not None:
            found = in_c.call(scores, target if is_matrix else target.reshape(-1))
            if found is not None:
                return found if is_matrix else (*found[:2], found[2].reshape(kept))
        weight = _weight(cases, rest)
        logs = rows.destination(None if rest[-1] is None else rest[-1][2], scores)
        if scores.size:
            rows.softmax(scores, logs, logarithm=True)
        loss, total = _reduced(cases, logs, target, weight)
        return loss.astype(cases.dtype.numpy, copy=False), total, logs.reshape(kept)

    def placed(inputs: Sequence[Array], outputs: Sequence[Array], scratch: Array | None) -> list[Call] | None:
        scores, target = inputs
        if in_c is None or not (scores.flags.c_contiguous and target.flags.c_contiguous):
            return None

        def otherwise() -> None:
            for out, result in zip(outputs, kernel(*inputs, None), strict=True):
                np.copyto(out, result)

        loss, total, logs = outputs
        scores, logs = [array.reshape(cases.rows, cases.classes) for array in (scores, logs)]
        return in_c.placed((scores, target.reshape(-1), loss, total, logs), otherwise)

    return Kernel(kernel, placed=placed if in_c is not None and len(cases.shape) < 3 else None)


@builds("cross_entropy_gradient")
def _cross_entropy_gradient(problem: Problem) -> Kernel:
    cases: Cases = problem.details
    to, compute = cases.dtype.numpy, cases.compute.numpy
    smoothing = compute.type(cases.smoothing)
    share = compute.type(cases.smoothing / max(cases.classes, 1))
    plain = _is_plain(cases) and len(problem.inputs) == 4
    is_matrix = len(cases.shape) == 2
    elements, averages = cases.rows * cases.classes, cases.reduction == "mean"
    in_c = CrossEntropyGradient.of(problem.op, np.dtype(np.float32), elements, averages) if plain else None

    def kernel(gradient: Array, target: Array, total: Array, logs: Array, *rest: Any) -> Array:
        logs = logs if is_matrix else logs.reshape(cases.rows, cases.classes)
        if in_c is not None:
            found = in_c.call(gradient, target.reshape(-1), total, logs)
            if found is not None:
                return np.ascontiguousarray(_back(cases, found))
        weight = _weight(cases, rest)
        places, kept = _places(cases, target)
        factors = _factors(cases, gradient, total, kept)
        hard = factors * (1 - smoothing) if weight is None else factors * weight[places] * (1 - smoothing)
        soft = factors * share
        whole = hard + soft * (cases.classes if weight is None else weight.sum())
        result = np.exp(logs)
        result *= whole[:, None]
        if smoothing:
            result -= soft[:, None] if weight is None else soft[:, None] * weight
        result[np.arange(cases.rows), places] -= hard
        return np.ascontiguousarray(_back(cases, result.astype(to, copy=False)))

    def placed(inputs: Sequence[Array], outputs: Sequence[Array], scratch: Array | None) -> list[Call] | None:
        gradient, target, total, logs = inputs
        if in_c is None or not (target.flags.c_contiguous and outputs[0].flags.c_contiguous):
            return None
        out, logs = [array.reshape(cases.rows, cases.classes) for array in (outputs[0], logs)]
        return in_c.placed(
            (gradient, target.reshape(-1), total, logs, out), lambda: np.copyto(outputs[0], kernel(*inputs, None))
        )

    return Kernel(kernel, placed=placed if in_c is not None and len(cases.shape) < 3 else None)
