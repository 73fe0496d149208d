"""Calls of the functions in rows.c that compute losses of class indices, and their gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np

from vmflow.kernels.choosing import Call

from . import team
from .addresses import Array, address, realigned
from .arrays import INDEX, SINGLE, InC, NativeCall, clear_of, cut_by_row, fits
from .functions import CFunction


class CrossEntropy:
    """The cross entropy of rows of float32 scores and class indices, computed by two C functions.

    Args:
        by_row: the C function that computes each row's log_softmax and negative loss.
        whole: the C function that reduces the rows' negative losses to the loss.
        averages: whether to take the mean of the rows' losses instead of the sum.
    """

    def __init__(self, by_row: InC, whole: InC, averages: bool) -> None:
        self._by_row = by_row
        self._whole = whole
        self._averages = averages

    @classmethod
    def of(cls, averages: bool, elements: int) -> Self | None:
        """Make an instance for `elements` scores; None if there are none, or the C functions may not be used now."""
        by_row, whole = [InC.of(name, SINGLE, elements) for name in ("class_losses", "class_loss")]
        return None if by_row is None or whole is None else cls(by_row, whole, averages)

    def call(self, scores: Array, classes: Array) -> tuple[Array, Array, Array] | None:
        """Compute the cross entropy of scores.

        Args:
            scores: (rows, classes).
            classes: each row's right class, int64 of shape (rows,).

        Returns:
            The loss, the number of rows, and their `log_softmax`; None if C cannot compute them, as for other dtypes
            or strides, or if a class does not exist.
        """
        logs, losses, wrong = np.empty(scores.shape, SINGLE), np.empty(len(scores), SINGLE), np.zeros((), INDEX)
        loss, total = np.empty((), SINGLE), np.empty((), SINGLE)
        by_row, whole = self._by_row, self._whole
        done = by_row.site.again((scores, classes, logs, losses, wrong)) or by_row.makes(
            self._losses(realigned(scores), realigned(classes), logs, losses, wrong)
        )
        if not done or wrong.item():
            return None
        if whole.site.again((losses, loss, total)) or whole.makes(self._loss(losses, loss, total)):
            return loss, total, logs
        return None

    def placed(
        self, arrays: tuple[Array, Array, Array, Array, Array], otherwise: Callable[[], None]
    ) -> list[Call] | None:
        """Prepare the loss as one call for arrays that keep their addresses; None if C cannot compute it.

        Args:
            arrays: the operands and results of `call`: scores, classes, loss, number of rows, and `log_softmax`.
            otherwise: called if a class does not exist, instead of the remaining work.
        """
        scores, classes, loss, total, logs = arrays
        losses, wrong = np.empty(len(scores), SINGLE), np.zeros((), INDEX)
        by_row, whole = self._losses(scores, classes, logs, losses, wrong), self._loss(losses, loss, total)
        return None if by_row is None or whole is None else _unless_wrong(wrong, (by_row, whole), otherwise)

    def _losses(self, scores: Array, classes: Array, logs: Array, losses: Array, wrong: Array) -> NativeCall | None:
        """Return the C call of each row's log_softmax and negative loss; None if C cannot take the arrays."""
        if not scores.size or not fits(classes, INDEX) or classes.shape != losses.shape:
            return None
        if not fits(scores) or not fits(logs) or not clear_of(logs, scores) or address(logs) == address(scores):
            return None
        by_row = scores, classes, logs, losses
        return NativeCall(
            self._by_row.kernel,
            (*[address(array) for array in by_row], *scores.shape, address(wrong)),
            lambda: cut_by_row(by_row),
            scores.size * 4,
            (*by_row, wrong),
            places=(0, 1, 2, 3, 6),
            written=3,
        )

    def _loss(self, losses: Array, loss: Array, total: Array) -> NativeCall | None:
        """Return the C call that writes the mean or sum of the rows' losses, of which `losses` has the negatives, to
        `loss`, and their number to `total`.

        None if C cannot write to `loss` or `total`.
        """
        if not fits(loss) or not fits(total):
            return None
        arrays = losses, loss, total
        arguments = (*[address(array) for array in arrays], losses.size, self._averages)
        # With a work of 0, the call is never cut: summing the losses is too little work for threads to share.
        return NativeCall(self._whole.kernel, arguments, lambda: team.Cut(3, ()), 0, arrays, written=2)


class CrossEntropyGradient(InC):
    """The gradient of `CrossEntropy` by the scores, computed by a C function.

    Args:
        kernel, dtype: see `InC`.
        averages: see `CrossEntropy`.
    """

    def __init__(self, kernel: CFunction, dtype: np.dtype[Any], averages: bool) -> None:
        super().__init__(kernel, dtype)
        self._averages = averages

    def call(self, gradient: Array, classes: Array, total: Array, logs: Array) -> Array | None:
        """Compute the gradient by the scores; None if C cannot, or a class does not exist.

        Args:
            gradient: the gradient by the loss.
            classes, total, logs: an operand and the last two results of `CrossEntropy.call`.
        """
        result, wrong = np.empty(logs.shape, SINGLE), np.zeros((), INDEX)
        done = self.site.again((logs, classes, gradient, total, result, wrong)) or self.makes(
            self._found(realigned(gradient), realigned(classes), realigned(total), realigned(logs), result, wrong)
        )
        return result if done and not wrong.item() else None

    def placed(
        self, arrays: tuple[Array, Array, Array, Array, Array], otherwise: Callable[[], None]
    ) -> list[Call] | None:
        """Prepare the gradient as a call for arrays that keep their addresses; None if C cannot compute it.

        Args:
            arrays: the arguments of `call`, and the result.
            otherwise: called after the C function if a class does not exist.
        """
        wrong = np.zeros((), INDEX)
        found = self._found(*arrays, wrong)
        return None if found is None else _unless_wrong(wrong, (found,), otherwise)

    def _found(
        self, gradient: Array, classes: Array, total: Array, logs: Array, out: Array, wrong: Array
    ) -> NativeCall | None:
        if not logs.size or not fits(classes, INDEX) or classes.shape != logs.shape[:1]:
            return None
        if not all([fits(array) for array in (gradient, total, logs, out)]) or not clear_of(out, logs):
            return None
        by_row, numbers = (logs, classes, out), (gradient, total)
        return NativeCall(
            self.kernel,
            (*map(address, by_row), *logs.shape, *map(address, numbers), self._averages, address(wrong)),
            lambda: cut_by_row(by_row),
            logs.size * 3,
            (logs, classes, *numbers, out, wrong),
            places=(0, 1, 5, 6, 2, 8),
            written=2,
        )


def _unless_wrong(wrong: Array, calls: Sequence[NativeCall], otherwise: Callable[[], None]) -> list[Call]:
    """Return one call that makes `calls` in order, and once one of them has set `wrong`, only calls `otherwise`."""
    placed = [call.placed() for call in calls]

    def compute(*kept: Any) -> None:
        wrong[...] = 0
        for kernel, arguments, _ in placed:
            kernel(*arguments)
            if wrong.item():
                otherwise()
                return

    # The arrays stay alive as arguments of `compute`, since the C calls know only their addresses.
    return [(compute, tuple([call.arrays for call in calls]), None)]
