"""From numpy arrays to the kernels of rows.c: what works on the rows of matrices, or on their columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Self, TypeAlias

import numpy as np

from . import team
from .addresses import address, realigned
from .arrays import NativeCall, clear_of, fits, takes
from .call_site import CallSite
from .functions import LAYER_NORM_PART, function

Array: TypeAlias = Any

_SINGLE: Final = np.dtype(np.float32)
_INDEX: Final = np.dtype(np.int64)

# Columns of a piece: whole lines of the cache.
_COLUMNS: Final = 16

# Numbers of a long row that are summed up together, by one thread.
_BLOCK: Final = 1 << 14


class Softmax:
    """The softmax of the rows of arrays, or its logarithm, as it is called from one place.

    Args:
        name: "softmax" or "log_softmax".
        kernel: the C function.
    """

    __slots__ = ("_kernel", "_logarithm", "_name", "_site")

    def __init__(self, name: str, kernel: Callable[..., Any]) -> None:
        self._name = name
        self._kernel = kernel
        self._logarithm = name == "log_softmax"
        self._site = CallSite()

    @classmethod
    def of(cls, name: str, dtype: np.dtype[Any], elements: int) -> Self | None:
        """The op of this name for arrays of this dtype and so many elements; None if C has none now."""
        kernel = function(name, elements) if dtype == _SINGLE else None
        return None if kernel is None else cls(name, kernel)

    def call(self, array: Array, out: Array | None) -> Array | None:
        """Compute it along the last dimension.

        Args:
            array: (..., values).
            out: where the result should go, or None.

        Returns:
            The result, which is elsewhere if it cannot be put there; None if it cannot be computed so.
        """
        found = self._site.result((array,), out)
        return self._found(array, out) if found is None else found

    def _found(self, array: Array, out: Array | None) -> Array | None:
        array = realigned(array)
        if not fits(array) or not array.size:
            return None
        if out is None or not takes(out, array.shape) or not self._may_go_to(out, array):
            out = np.empty(array.shape, _SINGLE)
        length = array.shape[-1]
        rows, nbytes = array.size // length, length * array.itemsize
        NativeCall(
            self._name,
            self._kernel,
            (address(array), address(out), rows, length),
            lambda: team.Cut(2, ((0, nbytes), (1, nbytes))),
            array.size * 4,
            (array, out),
            in_place=not self._logarithm,
        ).make(self._site)
        return out

    def _may_go_to(self, out: Array, array: Array) -> bool:
        return clear_of(out, array) and not (self._logarithm and address(out) == address(array))


class CrossEntropy:
    """The loss of rows of scores, as it is called from one place.

    Args:
        averages: whether to take the mean instead of the sum.
    """

    __slots__ = ("_averages", "_rows", "_sum")

    def __init__(self, averages: bool) -> None:
        self._averages = averages
        self._rows = CallSite()
        self._sum = CallSite()

    def call(self, scores: Array, classes: Array) -> tuple[Array, Array, Array] | None:
        """Compute it.

        Args:
            scores: (rows, classes).
            classes: the right ones.

        Returns:
            The loss, how many rows there are, and their `log_softmax`; None if that is not possible, as for arrays of
            other kinds, and where a class does not exist.
        """
        if scores.ndim != 2 or function("class_losses", scores.size) is None:
            return None
        logs, losses, wrong = np.empty(scores.shape, _SINGLE), np.empty(len(scores), _SINGLE), np.zeros((), _INDEX)
        loss, total = np.empty((), _SINGLE), np.empty((), _SINGLE)
        if not self._rows.again((scores, classes, logs, losses, wrong)):
            by_row = _losses(scores, classes, logs, losses, wrong)
            if by_row is None:
                return None
            by_row.make(self._rows)
        if wrong.item():
            return None
        if not self._sum.again((losses, loss, total)):
            whole = _loss(losses, loss, total, self._averages)
            if whole is None:
                return None
            whole.make(self._sum)
        return loss, total, logs


def cross_entropy_call(
    scores: Array, classes: Array, averages: bool, outs: Sequence[Array]
) -> Callable[[], bool] | None:
    """What `CrossEntropy` does for arrays that stay where they are: it says whether it could, by the classes."""
    loss, total, logs = outs
    losses, wrong = np.empty(len(scores), _SINGLE), np.zeros((), _INDEX)
    by_row, whole = _losses(scores, classes, logs, losses, wrong), _loss(losses, loss, total, averages)
    if by_row is None or whole is None:
        return None
    return _UnlessWrong(wrong, by_row, whole)


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


def _losses(scores: Array, classes: Array, logs: Array, losses: Array, wrong: Array) -> NativeCall | None:
    """The logarithms of each row's softmax, and what it has lost."""
    kernel = function("class_losses", scores.size)
    if kernel is None or not scores.size or not fits(classes, _INDEX) or classes.shape != losses.shape:
        return None
    if not all([fits(it) for it in (scores, logs)]) or not clear_of(logs, scores) or address(logs) == address(scores):
        return None
    by_row = scores, classes, logs, losses
    return NativeCall(
        "class_losses",
        kernel,
        (*[address(it) for it in by_row], *scores.shape, address(wrong)),
        lambda: _by_row(by_row),
        scores.size * 4,
        (*by_row, wrong),
        places=(0, 1, 2, 3, 6),
        written=3,
    )


def _loss(losses: Array, loss: Array, total: Array, averages: bool) -> NativeCall | None:
    """The mean, or the sum, of what rows have lost, and how many there are."""
    kernel = function("class_loss", losses.size)
    if kernel is None or not all([fits(it) for it in (loss, total)]):
        return None
    arrays = losses, loss, total
    arguments = (*[address(it) for it in arrays], losses.size, averages)
    # It cannot be cut: there is no work that could be shared.
    return NativeCall("class_loss", kernel, arguments, lambda: team.Cut(3, ()), 0, arrays, written=2)


class CrossEntropyGradient:
    """The gradient of `CrossEntropy` by the scores, as it is called from one place.

    Args:
        averages: see there.
    """

    __slots__ = ("_averages", "_site")

    def __init__(self, averages: bool) -> None:
        self._averages = averages
        self._site = CallSite()

    def call(self, gradient: Array, classes: Array, total: Array, logs: Array) -> Array | None:
        """Compute it, of the gradient of the loss; None if that is not possible, as where a class does not exist."""
        result, wrong = np.empty(logs.shape, _SINGLE), np.zeros((), _INDEX)
        if not self._site.again((logs, classes, gradient, total, result, wrong)):
            found = _loss_gradient(gradient, classes, total, logs, self._averages, result, wrong)
            if found is None:
                return None
            found.make(self._site)
        return None if wrong.item() else result


def cross_entropy_gradient_call(
    gradient: Array, classes: Array, total: Array, logs: Array, averages: bool, out: Array
) -> Callable[[], bool] | None:
    """What `CrossEntropyGradient` does for arrays that stay where they are; see `cross_entropy_call`."""
    wrong = np.zeros((), _INDEX)
    found = _loss_gradient(gradient, classes, total, logs, averages, out, wrong)
    return None if found is None else _UnlessWrong(wrong, found)


def _loss_gradient(
    gradient: Array, classes: Array, total: Array, logs: Array, averages: bool, out: Array, wrong: Array
) -> NativeCall | None:
    kernel = function("cross_entropy_gradient", logs.size)
    if kernel is None or not logs.size or not fits(classes, _INDEX) or classes.shape != logs.shape[:1]:
        return None
    if not all([fits(it) for it in (gradient, total, logs, out)]) or not clear_of(out, logs):
        return None
    by_row, numbers = (logs, classes, out), (gradient, total)
    return NativeCall(
        "cross_entropy_gradient",
        kernel,
        (*map(address, by_row), *logs.shape, *map(address, numbers), averages, address(wrong)),
        lambda: _by_row(by_row),
        logs.size * 3,
        (logs, classes, *numbers, out, wrong),
        places=(0, 1, 5, 6, 2, 8),
        written=2,
    )


def _by_row(arrays: Sequence[Array]) -> team.Cut:
    """For kernels whose arguments begin with the addresses of what has something for each row, and how many rows."""
    return team.Cut(len(arrays), tuple([(place, it.nbytes // len(it)) for place, it in enumerate(arrays)]))


class LayerNorm:
    """Rows normalised, as it is called from one place.

    Args:
        kernel: the C function.
        eps: added to the variance.
    """

    __slots__ = ("_eps", "_kernel", "_site")

    def __init__(self, kernel: Callable[..., Any], eps: float) -> None:
        self._kernel = kernel
        self._eps = eps
        self._site = CallSite()

    @classmethod
    def of(cls, dtype: np.dtype[Any], eps: float, elements: int) -> Self | None:
        """The op for arrays of this dtype and so many elements; None if C has none now."""
        kernel = function("layer_norm", elements) if dtype == _SINGLE else None
        return None if kernel is None else cls(kernel, eps)

    def call(
        self, array: Array, weight: Array | None, bias: Array | None, out: Array | None
    ) -> tuple[Array, Array, Array] | None:
        """Compute it.

        Args:
            array: (rows, features).
            weight, bias: (features,), or None.
            out: of the shape of the array, or None.

        Returns:
            The result, and the means and scales; None if that is not possible.
        """
        result = np.empty(array.shape, _SINGLE) if out is None else out
        means, scales = np.empty(len(array), _SINGLE), np.empty(len(array), _SINGLE)
        parameters = [it for it in (weight, bias) if it is not None]
        arrays = (array, *parameters, result, means, scales)
        if self._site.again(arrays):
            return result, means, scales
        array, weight, bias = realigned(array), realigned(weight), realigned(bias)
        parameters = [it for it in (weight, bias) if it is not None]
        arrays = (array, *parameters, result, means, scales)
        if not array.size or not all([fits(it) for it in arrays]):
            return None
        if not all([clear_of(result, it) for it in (array, *parameters)]):
            return None
        by_row = array, result, means, scales
        NativeCall(
            "layer_norm",
            self._kernel,
            (*map(address, by_row), *array.shape, _address(weight), _address(bias), self._eps),
            lambda: _by_row(by_row),
            array.size * 2,
            arrays,
            places=(0, *[place for place, it in ((6, weight), (7, bias)) if it is not None], 1, 2, 3),
            written=3,
            in_place=True,
        ).make(self._site)
        return result, means, scales


class LayerNormGradient:
    """The gradients of `LayerNorm`, as it is called from one place.

    Args:
        kernel: the C function.
    """

    __slots__ = ("_kernel", "_site")

    def __init__(self, kernel: Callable[..., Any]) -> None:
        self._kernel = kernel
        self._site = CallSite()

    @classmethod
    def of(cls, dtype: np.dtype[Any], elements: int) -> Self | None:
        """The gradients for arrays of this dtype and so many elements; None if C has none now."""
        kernel = function("layer_norm_gradient", elements) if dtype == _SINGLE else None
        return None if kernel is None else cls(kernel)

    def call(
        self, gradient: Array, array: Array, mean: Array, scale: Array, weight: Array | None, out: Array | None
    ) -> tuple[Array, Array, Array] | None:
        """The gradients by the array, the weight and the bias; None if that is not possible."""
        rows, features = array.shape
        result = np.empty(array.shape, _SINGLE) if out is None else out
        # Of each, the gradients by weight and bias, and room for two rows to work in.
        parts = np.empty((-(-rows // LAYER_NORM_PART), 4, features), _SINGLE)
        read = (array, gradient, mean, scale, *([] if weight is None else [weight]))
        if not self._site.again((*read, result, parts)):
            if not array.size or not all([fits(it) for it in (*read, result)]):
                return None
            if not all([clear_of(result, it) for it in read]):
                return None
            places = [address(it) for it in (array, gradient, result, mean, scale)]
            NativeCall(
                "layer_norm_gradient",
                self._kernel,
                (*places, 0, len(parts), rows, features, _address(weight), address(parts)),
                lambda: team.Cut(6, ((5, 1),)),
                array.size * 4,
                (*read, result, parts),
                places=(0, 1, 3, 4, *([] if weight is None else [9]), 2, 10),
                written=2,
                in_place=True,
            ).make(self._site)
        return result, *np.add.reduce(parts[:, :2], 0)


# A function's name, and the function.
_OfRows: TypeAlias = tuple[str, Callable[..., Any]]


class RowReduction:
    """One number of each row, as they are found from one place.

    Args:
        rows: of each row, from its elements.
        parts: of each row, from what was found for its parts.
    """

    __slots__ = ("_parts", "_rows", "_site", "_whole")

    def __init__(self, rows: _OfRows, parts: _OfRows) -> None:
        self._rows = rows
        self._parts = parts
        self._site = CallSite()
        self._whole = CallSite()

    @classmethod
    def of(cls, name: str, dtype: np.dtype[Any], elements: int) -> Self | None:
        """The reduction of matrices of this dtype and so many elements; None if C has none now.

        Args:
            name: "sums", "squares" (their sums), "products", "largest" or "smallest".
            dtype, elements: of the matrix.
        """
        if dtype != _SINGLE:
            return None
        rows = _of_rows(f"row_{name}", elements)
        parts = _of_rows("row_sums", elements) if name == "squares" else rows
        return None if rows is None or parts is None else cls(rows, parts)

    def call(self, matrix: Array) -> Array | None:
        """That of each row of a matrix, which is not empty; None if that is not possible.

        Of a single row that is long, it is found for blocks first, the same for any number of threads.
        """
        rows, length = matrix.shape
        if rows > 1 or length <= _BLOCK:
            return _reduced(self._rows, self._site, matrix, rows, length)
        parts = _reduced(self._rows, self._site, matrix, -(-length // _BLOCK), _BLOCK)
        return None if parts is None else _reduced(self._parts, self._whole, parts, 1, len(parts))


def _of_rows(name: str, elements: int) -> _OfRows | None:
    kernel = function(name, elements)
    return None if kernel is None else (name, kernel)


def _reduced(of_rows: _OfRows, site: CallSite, array: Array, rows: int, length: int) -> Array | None:
    found = np.empty(rows, _SINGLE)
    if site.again((array, array, found)):
        return found
    if not fits(array):
        return None
    NativeCall(
        *of_rows,
        (address(array), address(found), rows, length, address(array), array.size),
        lambda: team.Cut(2, ((0, length * array.itemsize), (1, array.itemsize))),
        array.size,
        (array, array, found),
        places=(0, 4, 1),
    ).make(site)
    return found


def add_to_rows(array: Array, row: Array) -> NativeCall | None:
    """``array += row``, for a matrix; None if it cannot be had."""
    kernel = function("add_to_rows", array.size)
    if kernel is None or not array.size or not fits(array) or not fits(row) or not clear_of(array, row):
        return None
    by_row = (array,)
    arguments = address(array), *array.shape, address(row)
    return NativeCall("add_to_rows", kernel, arguments, lambda: _by_row(by_row), array.size, (array, row))


def column_sums(array: Array, out: Array) -> NativeCall | None:
    """The sum of each column of a matrix; None if it cannot be had."""
    kernel = function("column_sums", array.size)
    if kernel is None or not array.size or not fits(array) or not fits(out) or not clear_of(out, array):
        return None
    rows, length = array.shape
    moves = ((0, array.itemsize), (1, array.itemsize))
    return NativeCall(
        "column_sums",
        kernel,
        (address(array), address(out), length, rows, length),
        lambda: team.Cut(2, moves, _COLUMNS, 1),
        array.size,
        (array, out),
    )


def _address(array: Array | None) -> int | None:
    return None if array is None else address(array)
