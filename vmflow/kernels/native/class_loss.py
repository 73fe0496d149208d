"""Calls of the functions in rows.c that compute losses of class indices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np

from vmflow.kernels.choosing import Call

from . import team
from .addresses import Array, address
from .arrays import INDEX, SINGLE, InC, NativeCall, clear_of, cut_by_row, fits
from .functions import CFunction


class CrossEntropy:
    """The loss of rows of scores of float32, as it is called from one place.

    Args:
        by_row: computes each row's loss.
        whole: reduces the losses.
        averages: whether to take the mean instead of the sum.
    """

    def __init__(self, by_row: InC, whole: InC, averages: bool) -> None:
        self._by_row = by_row
        self._whole = whole
        self._averages = averages

    @classmethod
    def of(cls, averages: bool, elements: int) -> Self | None:
        """Return an instance for so many scores; None if C has no function for them now."""
        by_row, whole = [InC.of(name, SINGLE, elements) for name in ("class_losses", "class_loss")]
        return None if by_row is None or whole is None else cls(by_row, whole, averages)

    def call(self, scores: Array, classes: Array) -> tuple[Array, Array, Array] | None:
        """Compute the loss.

        Args:
            scores: (rows, classes).
            classes: the right classes.

        Returns:
            The loss, the number of rows, and their `log_softmax`; None if C cannot compute them, as for arrays of other
            kinds, or if a class does not exist.
        """
        logs, losses, wrong = np.empty(scores.shape, SINGLE), np.empty(len(scores), SINGLE), np.zeros((), INDEX)
        loss, total = np.empty((), SINGLE), np.empty((), SINGLE)
        by_row, whole = self._by_row, self._whole
        done = by_row.site.again((scores, classes, logs, losses, wrong)) or by_row.makes(
            self._losses(scores, classes, logs, losses, wrong)
        )
        if not done or wrong.item():
            return None
        if whole.site.again((losses, loss, total)) or whole.makes(self._loss(losses, loss, total)):
            return loss, total, logs
        return None

    def placed(
        self, arrays: tuple[Array, Array, Array, Array, Array], otherwise: Callable[[], None]
    ) -> list[Call] | None:
        """Return calls that compute the loss of arrays that stay at their addresses.

        Args:
            arrays: scores, classes, loss, number of rows, and logarithms.
            otherwise: called instead where a class does not exist.
        """
        scores, classes, loss, total, logs = arrays
        losses, wrong = np.empty(len(scores), SINGLE), np.zeros((), INDEX)
        by_row, whole = self._losses(scores, classes, logs, losses, wrong), self._loss(losses, loss, total)
        return None if by_row is None or whole is None else _unless_wrong(wrong, (by_row, whole), otherwise)

    def _losses(self, scores: Array, classes: Array, logs: Array, losses: Array, wrong: Array) -> NativeCall | None:
        """Each row's log_softmax and loss."""
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
        """The mean, or the sum, of the losses, and their number."""
        if not fits(loss) or not fits(total):
            return None
        arrays = losses, loss, total
        arguments = (*[address(array) for array in arrays], losses.size, self._averages)
        # The call is not cut into pieces, since there is too little work to share.
        return NativeCall(self._whole.kernel, arguments, lambda: team.Cut(3, ()), 0, arrays, written=2)


class CrossEntropyGradient(InC):
    """The gradient of `CrossEntropy` by the scores.

    Args:
        kernel, dtype: see `InC`.
        averages: see `CrossEntropy`.
    """

    def __init__(self, kernel: CFunction, dtype: np.dtype[Any], averages: bool) -> None:
        super().__init__(kernel, dtype)
        self._averages = averages

    def call(self, gradient: Array, classes: Array, total: Array, logs: Array) -> Array | None:
        """Compute the gradient from that of the loss; None if C cannot, as where a class does not exist."""
        result, wrong = np.empty(logs.shape, SINGLE), np.zeros((), INDEX)
        done = self.site.again((logs, classes, gradient, total, result, wrong)) or self.makes(
            self._found(gradient, classes, total, logs, result, wrong)
        )
        return result if done and not wrong.item() else None

    def placed(
        self, arrays: tuple[Array, Array, Array, Array, Array], otherwise: Callable[[], None]
    ) -> list[Call] | None:
        """Return the calls of `call` for arrays that stay at their addresses, its arguments and the result."""
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
    """Return a call that makes `calls` in order, and calls `otherwise` as soon as one of them has set `wrong`."""
    placed = [call.placed() for call in calls]

    def compute(*kept: Any) -> None:
        wrong[...] = 0
        for kernel, arguments, _ in placed:
            kernel(*arguments)
            if wrong.item():
                otherwise()
                return

    # The calls have only the addresses of their arrays, which are kept alive here.
    return [(compute, tuple([call.arrays for call in calls]), None)]
