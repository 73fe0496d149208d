"""From numpy arrays to the kernels of rows.c: what works on the rows of matrices, or on their columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Final, Self, TypeAlias

import numpy as np

from . import team
from .addresses import address, realigned
from .arrays import Call, NativeCall, clear_of, fits, takes
from .call_site import CallSite
from .functions import LAYER_NORM_PART, CFunction, function

Array: TypeAlias = Any

_SINGLE: Final = np.dtype(np.float32)

# Columns of a piece: whole lines of the cache.
_COLUMNS: Final = 16

# Numbers of a long row that are summed up together, by one thread.
_BLOCK: Final = 1 << 14


class Softmax:
    """The softmax of the rows of arrays, or its logarithm, as it is called from one place.

    Args:
        kernel: the C function.
        logarithm: whether it finds the logarithm.
    """

    __slots__ = ("_kernel", "_logarithm", "_site")

    def __init__(self, kernel: CFunction, logarithm: bool) -> None:
        self._kernel = kernel
        self._logarithm = logarithm
        self._site = CallSite()

    @classmethod
    def of(cls, name: str, dtype: np.dtype[Any], elements: int) -> Self | None:
        """The op for arrays of this dtype and so many elements; None if C has none now.

        Args:
            name: "softmax" or "log_softmax".
            dtype, elements: of the array.
        """
        kernel = function(name, elements) if dtype == _SINGLE else None
        return None if kernel is None else cls(kernel, name == "log_softmax")

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


def cut_by_row(arrays: Sequence[Array]) -> team.Cut:
    """For kernels whose arguments begin with the addresses of what has something for each row, and how many rows."""
    return team.Cut(len(arrays), tuple([(place, it.nbytes // len(it)) for place, it in enumerate(arrays)]))


class LayerNorm:
    """Rows normalised, as it is called from one place.

    Args:
        kernel: the C function.
        eps: added to the variance.
    """

    __slots__ = ("_eps", "_kernel", "_site")

    def __init__(self, kernel: CFunction, eps: float) -> None:
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
            self._kernel,
            (*map(address, by_row), *array.shape, _address(weight), _address(bias), self._eps),
            lambda: cut_by_row(by_row),
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

    def __init__(self, kernel: CFunction) -> None:
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


class RowReduction:
    """One number of each row, as they are found from one place.

    Args:
        rows: of each row, from its elements.
        parts: of each row, from what was found for its parts.
    """

    __slots__ = ("_parts", "_rows", "_site", "_whole")

    def __init__(self, rows: CFunction, parts: CFunction) -> None:
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
        rows = function(f"row_{name}", elements)
        parts = function("row_sums", elements) if name == "squares" else rows
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


def _reduced(kernel: CFunction, site: CallSite, array: Array, rows: int, length: int) -> Array | None:
    found = np.empty(rows, _SINGLE)
    if site.again((array, array, found)):
        return found
    if not fits(array):
        return None
    NativeCall(
        kernel,
        (address(array), address(found), rows, length, address(array), array.size),
        lambda: team.Cut(2, ((0, length * array.itemsize), (1, array.itemsize))),
        array.size,
        (array, array, found),
        places=(0, 4, 1),
    ).make(site)
    return found


class _ReadAndWrite:
    """A C function that reads an array and writes another, as it is called from one place.

    Args:
        kernel: the C function.

    Attributes:
        NAME: of the C function.
    """

    __slots__ = ("_kernel", "_site")

    NAME: ClassVar[str]

    def __init__(self, kernel: CFunction) -> None:
        self._kernel = kernel
        self._site = CallSite()

    @classmethod
    def of(cls, dtype: np.dtype[Any], elements: int) -> Self | None:
        """The function for matrices of this dtype and so many elements; None if C has none now."""
        kernel = function(cls.NAME, elements) if dtype == _SINGLE and elements else None
        return None if kernel is None else cls(kernel)

    def call(self, read: Array, written: Array) -> bool:
        """Compute it; whether that was possible."""
        if self._site.again((read, written)):
            return True
        found = self._found(read, written)
        if found is not None:
            found.make(self._site)
        return found is not None

    def placed(self, read: Array, written: Array) -> Call | None:
        """The same as one call, for arrays that stay where they are; None if it is not possible."""
        found = self._found(read, written)
        return None if found is None else found.placed()

    def _found(self, read: Array, written: Array) -> NativeCall | None:
        raise NotImplementedError


class AddToRows(_ReadAndWrite):
    """``matrix += row``, in place; the row is read and the matrix written."""

    __slots__ = ()

    NAME = "add_to_rows"

    def _found(self, read: Array, written: Array) -> NativeCall | None:
        row, matrix = read, written
        if not matrix.size or not fits(matrix) or not fits(row) or not clear_of(matrix, row):
            return None
        by_row = (matrix,)
        arguments = address(matrix), *matrix.shape, address(row)
        return NativeCall(
            self._kernel, arguments, lambda: cut_by_row(by_row), matrix.size, (row, matrix), places=(3, 0)
        )


class ColumnSums(_ReadAndWrite):
    """The sum of each column of matrices: a matrix is read and a vector written."""

    __slots__ = ()

    NAME = "column_sums"

    def _found(self, read: Array, written: Array) -> NativeCall | None:
        if not read.size or not fits(read) or not fits(written) or not clear_of(written, read):
            return None
        rows, length = read.shape
        moves = ((0, read.itemsize), (1, read.itemsize))
        return NativeCall(
            self._kernel,
            (address(read), address(written), length, rows, length),
            lambda: team.Cut(2, moves, _COLUMNS, 1),
            read.size,
            (read, written),
        )


def _address(array: Array | None) -> int | None:
    return None if array is None else address(array)
