"""From numpy arrays to the kernels of rows.c that compute losses of class indices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Self, TypeAlias

import numpy as np

from . import team
from .addresses import address
from .arrays import NativeCall, clear_of, fits
from .call_site import CallSite
from .functions import CFunction, function
from .rows import cut_by_row

Array: TypeAlias = Any

_SINGLE: Final = np.dtype(np.float32)
_INDEX: Final = np.dtype(np.int64)


class CrossEntropy:
    """The loss of rows of scores of float32, as it is called from one place.

    Args:
        by_row: the C function that finds what each row loses.
        whole: the C function that finds what all of them lose.
        averages: whether to take the mean instead of the sum.
    """

    __slots__ = ("_averages", "_by_row", "_rows", "_sum", "_whole")

    def __init__(self, by_row: CFunction, whole: CFunction, averages: bool) -> None:
        self._by_row = by_row
        self._whole = whole
        self._averages = averages
        self._rows = CallSite()
        self._sum = CallSite()

    @classmethod
    def of(cls, averages: bool, elements: int) -> Self | None:
        """The loss of so many scores; None if C has none now."""
        by_row, whole = [function(name, elements) if elements else None for name in ("class_losses", "class_loss")]
        return None if by_row is None or whole is None else cls(by_row, whole, averages)

    def call(self, scores: Array, classes: Array) -> tuple[Array, Array, Array] | None:
        """Compute it.

        Args:
            scores: (rows, classes).
            classes: the right ones.

        Returns:
            The loss, how many rows there are, and their `log_softmax`; None if that is not possible, as for arrays of
            other kinds, and where a class does not exist.
        """
        logs, losses, wrong = np.empty(scores.shape, _SINGLE), np.empty(len(scores), _SINGLE), np.zeros((), _INDEX)
        loss, total = np.empty((), _SINGLE), np.empty((), _SINGLE)
        if not self._rows.again((scores, classes, logs, losses, wrong)):
            by_row = self._losses(scores, classes, logs, losses, wrong)
            if by_row is None:
                return None
            by_row.make(self._rows)
        if wrong.item():
            return None
        if not self._sum.again((losses, loss, total)):
            whole = self._loss(losses, loss, total)
            if whole is None:
                return None
            whole.make(self._sum)
        return loss, total, logs

    def placed(
        self, scores: Array, classes: Array, loss: Array, total: Array, logs: Array
    ) -> Callable[[], bool] | None:
        """The same for arrays that stay where they are: it says whether it could, by the classes."""
        losses, wrong = np.empty(len(scores), _SINGLE), np.zeros((), _INDEX)
        by_row, whole = self._losses(scores, classes, logs, losses, wrong), self._loss(losses, loss, total)
        return None if by_row is None or whole is None else _UnlessWrong(wrong, by_row, whole)

    def _losses(self, scores: Array, classes: Array, logs: Array, losses: Array, wrong: Array) -> NativeCall | None:
        """The logarithms of each row's softmax, and what it has lost."""
        if not scores.size or not fits(classes, _INDEX) or classes.shape != losses.shape:
            return None
        if not fits(scores) or not fits(logs) or not clear_of(logs, scores) or address(logs) == address(scores):
            return None
        by_row = scores, classes, logs, losses
        return NativeCall(
            self._by_row,
            (*[address(it) for it in by_row], *scores.shape, address(wrong)),
            lambda: cut_by_row(by_row),
            scores.size * 4,
            (*by_row, wrong),
            places=(0, 1, 2, 3, 6),
            written=3,
        )

    def _loss(self, losses: Array, loss: Array, total: Array) -> NativeCall | None:
        """The mean, or the sum, of what rows have lost, and how many there are."""
        if not fits(loss) or not fits(total):
            return None
        arrays = losses, loss, total
        arguments = (*[address(it) for it in arrays], losses.size, self._averages)
        # It cannot be cut: there is no work that could be shared.
        return NativeCall(self._whole, arguments, lambda: team.Cut(3, ()), 0, arrays, written=2)


class CrossEntropyGradient:
    """The gradient of `CrossEntropy` by the scores, as it is called from one place.

    Args:
        kernel: the C function.
        averages: see there.
    """

    __slots__ = ("_averages", "_kernel", "_site")

    def __init__(self, kernel: CFunction, averages: bool) -> None:
        self._kernel = kernel
        self._averages = averages
        self._site = CallSite()

    @classmethod
    def of(cls, averages: bool, elements: int) -> Self | None:
        """The gradient by so many scores; None if C has none now."""
        kernel = function("cross_entropy_gradient", elements) if elements else None
        return None if kernel is None else cls(kernel, averages)

    def call(self, gradient: Array, classes: Array, total: Array, logs: Array) -> Array | None:
        """Compute it, of the gradient of the loss; None if that is not possible, as where a class does not exist."""
        result, wrong = np.empty(logs.shape, _SINGLE), np.zeros((), _INDEX)
        if not self._site.again((logs, classes, gradient, total, result, wrong)):
            found = self._found(gradient, classes, total, logs, result, wrong)
            if found is None:
                return None
            found.make(self._site)
        return None if wrong.item() else result

    def placed(
        self, gradient: Array, classes: Array, total: Array, logs: Array, out: Array
    ) -> Callable[[], bool] | None:
        """The same for arrays that stay where they are; see `CrossEntropy.placed`."""
        wrong = np.zeros((), _INDEX)
        found = self._found(gradient, classes, total, logs, out, wrong)
        return None if found is None else _UnlessWrong(wrong, found)

    def _found(
        self, gradient: Array, classes: Array, total: Array, logs: Array, out: Array, wrong: Array
    ) -> NativeCall | None:
        if not logs.size or not fits(classes, _INDEX) or classes.shape != logs.shape[:1]:
            return None
        if not all([fits(it) for it in (gradient, total, logs, out)]) or not clear_of(out, logs):
            return None
        by_row, numbers = (logs, classes, out), (gradient, total)
        return NativeCall(
            self._kernel,
            (*map(address, by_row), *logs.shape, *map(address, numbers), self._averages, address(wrong)),
            lambda: cut_by_row(by_row),
            logs.size * 3,
            (logs, classes, *numbers, out, wrong),
            places=(0, 1, 5, 6, 2, 8),
            written=2,
        )


class _UnlessWrong:
    """Calls for arrays that stay where they are, one after the other, but none behind one that is `wrong`."""

    def __init__(self, wrong: Array, *calls: NativeCall) -> None:
        self._wrong = wrong
        self._calls = [it.placed() for it in calls]
        self._arrays = [it.arrays for it in calls]  # of which those know the addresses only

    def __call__(self) -> bool:
        """Whether all was well."""
        self._wrong[...] = 0
        for kernel, arguments, _ in self._calls:
            kernel(*arguments)
            if self._wrong.item():
                return False
        return True
