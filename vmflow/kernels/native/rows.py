"""Calls of C functions in rows.c: softmax, layer norm, reductions of rows, sums of columns, and adding a row to all."""

from __future__ import annotations

from typing import Any, Final, Self

import numpy as np

from vmflow.kernels.choosing import Call

from . import team
from .addresses import Array, address, realigned
from .arrays import SINGLE, InC, NativeCall, clear_of, cut_by_row, fits, takes
from .functions import LAYER_NORM_PART, CFunction

# Threads share columns in multiples of this many float32 elements, a cache line.
_COLUMNS: Final = 16

# A single long row is reduced in blocks of this many elements, so that threads can share it.
_BLOCK: Final = 1 << 14


class Softmax(InC):
    """Softmax along the last dimension of arrays, or log_softmax.

    Args:
        kernel, dtype: see `InC`.
        logarithm: whether to compute log_softmax.
    """

    def __init__(self, kernel: CFunction, dtype: np.dtype[Any], logarithm: bool) -> None:
        super().__init__(kernel, dtype)
        self._logarithm = logarithm

    def call(self, array: Array, out: Array | None) -> Array | None:
        """Compute softmax or log_softmax along the last dimension.

        Args:
            array: (..., values).
            out: memory for the result, or None.

        Returns:
            The result, in other memory if C cannot write it to `out`; None if C cannot compute it.
        """
        found = self.site.result((array,), out)
        return self._found(array, out) if found is None else found

    def _found(self, array: Array, out: Array | None) -> Array | None:
        array = realigned(array)
        if not fits(array) or not array.size:
            return None
        if out is None or not takes(out, array.shape) or not self._may_go_to(out, array):
            out = np.empty(array.shape, SINGLE)
        length = array.shape[-1]
        rows, nbytes = array.size // length, length * array.itemsize
        NativeCall(
            self.kernel,
            (address(array), address(out), rows, length),
            lambda: team.Cut(2, ((0, nbytes), (1, nbytes))),
            array.size * 4,
            (array, out),
            in_place=not self._logarithm,
        ).make(self.site)
        return out

    def _may_go_to(self, out: Array, array: Array) -> bool:
        return clear_of(out, array) and not (self._logarithm and address(out) == address(array))


class LayerNorm(InC):
    """Layer norm of the rows of a matrix.

    Args:
        kernel, dtype: see `InC`.
        eps: the number that is added to the variance.
    """

    def __init__(self, kernel: CFunction, dtype: np.dtype[Any], eps: float) -> None:
        super().__init__(kernel, dtype)
        self._eps = eps

    def call(
        self, array: Array, weight: Array | None, bias: Array | None, out: Array
    ) -> tuple[Array, Array, Array] | None:
        """Normalise each row of a matrix.

        Args:
            array: (rows, features).
            weight, bias: (features,), or None.
            out: memory for the result, of the shape of `array`.

        Returns:
            The result, and each row's mean and scale, 1 / sqrt(variance + eps); None if C cannot compute them.
        """
        means, scales = np.empty(len(array), SINGLE), np.empty(len(array), SINGLE)
        given = [value for value in (array, weight, bias) if value is not None]
        if self.site.again((*given, out, means, scales)):
            return out, means, scales
        array, weight, bias = realigned(array), realigned(weight), realigned(bias)
        given = [value for value in (array, weight, bias) if value is not None]
        arrays = (*given, out, means, scales)
        if (
            not array.size
            or not all([fits(array) for array in arrays])
            or not all([clear_of(out, array) for array in given])
        ):
            return None
        by_row = array, out, means, scales
        NativeCall(
            self.kernel,
            (*map(address, by_row), *array.shape, _address(weight), _address(bias), self._eps),
            lambda: cut_by_row(by_row),
            array.size * 2,
            arrays,
            places=(0, *[place for place, value in ((6, weight), (7, bias)) if value is not None], 1, 2, 3),
            written=3,
            in_place=True,
        ).make(self.site)
        return out, means, scales


class LayerNormGradient(InC):
    """The gradients of `LayerNorm`."""

    def call(
        self, gradient: Array, array: Array, mean: Array, scale: Array, weight: Array | None, out: Array
    ) -> tuple[Array, Array, Array] | None:
        """Compute the gradients of layer norm by input (into `out`), weight and bias; None if C cannot.

        Args:
            gradient: the gradient of the result, (rows, features).
            array: the input, (rows, features).
            mean, scale: each row's mean and scale, (rows,), as `LayerNorm` returns them.
            weight: (features,), or None for ones.
            out: memory for the gradient by the input.
        """
        rows, features = array.shape
        # For each part of the rows: its gradients by weight and bias, and two vectors of scratch memory.
        parts = np.empty((-(-rows // LAYER_NORM_PART), 4, features), SINGLE)
        read = (array, gradient, mean, scale, *([] if weight is None else [weight]))
        if not self.site.again((*read, out, parts)):
            read = tuple([realigned(value) for value in read])
            array, gradient, mean, scale, *rest = read
            weight = rest[0] if rest else None
            if not array.size or not all([fits(array) for array in (*read, out)]):
                return None
            if not all([clear_of(out, array) for array in read]):
                return None
            places = [address(value) for value in (array, gradient, out, mean, scale)]
            NativeCall(
                self.kernel,
                (*places, 0, len(parts), rows, features, _address(weight), address(parts)),
                lambda: team.Cut(6, ((5, 1),)),
                array.size * 4,
                (*read, out, parts),
                places=(0, 1, 3, 4, *([] if weight is None else [9]), 2, 10),
                written=2,
                in_place=True,
            ).make(self.site)
        return out, *np.add.reduce(parts[:, :2], 0)


class _EachRow(InC):
    """A C function that reduces each row to one number, such as "row_sums"."""

    def call(self, array: Array, rows: int, length: int) -> Array | None:
        """Reduce `rows` rows of `length` elements of `array`; the last row may be shorter.  None if C cannot."""
        found = np.empty(rows, SINGLE)
        if self.site.again((array, array, found)):
            return found
        array = realigned(array)
        if not fits(array):
            return None
        NativeCall(
            self.kernel,
            (address(array), address(found), rows, length, address(array), array.size),
            lambda: team.Cut(2, ((0, length * array.itemsize), (1, array.itemsize))),
            array.size,
            (array, array, found),
            places=(0, 4, 1),
        ).make(self.site)
        return found


class RowReduction:
    """A reduction of each row of a matrix to one number, such as the sum, computed in C.

    Args:
        rows: the C function that reduces the elements of each row.
        parts: the C function that reduces the results of a long row's blocks.
    """

    def __init__(self, rows: _EachRow, parts: _EachRow) -> None:
        self._rows = rows
        self._parts = parts

    @classmethod
    def of(cls, name: str, dtype: np.dtype[Any], elements: int) -> Self | None:
        """Make an instance for matrices of a size; None unless `dtype` is float32 and C may be used now.

        Args:
            name: "sums", "squares" (the sums of squares), "products", "largest" or "smallest".
            dtype: the dtype of the matrix.
            elements: the number of its elements.
        """
        rows = _EachRow.of(f"row_{name}", dtype, elements)
        parts = _EachRow.of("row_sums" if name == "squares" else f"row_{name}", dtype, elements)
        return None if rows is None or parts is None else cls(rows, parts)

    def call(self, matrix: Array) -> Array | None:
        """Reduce each row of a matrix that is not empty; None if C cannot.

        A single long row is reduced block by block first, in the same blocks for any number of threads.
        """
        rows, length = matrix.shape
        if rows > 1 or length <= _BLOCK:
            return self._rows.call(matrix, rows, length)
        parts = self._rows.call(matrix, -(-length // _BLOCK), _BLOCK)
        return None if parts is None else self._parts.call(parts, 1, len(parts))


class _ReadAndWrite(InC):
    """A C function of rows.c that reads one array and writes another."""

    def call(self, read: Array, written: Array) -> bool:
        """Compute `written` from `read`; returns whether C could."""
        return self.site.again((read, written)) or self.makes(self._found(realigned(read), written))

    def placed(self, read: Array, written: Array) -> Call | None:
        """Prepare the computation as one call for arrays that keep their addresses; None if C cannot take them."""
        found = self._found(read, written)
        return None if found is None else found.placed()

    def _found(self, read: Array, written: Array) -> NativeCall | None:
        raise NotImplementedError


class AddToRows(_ReadAndWrite):
    """Computes ``matrix += row`` in place, in C: `call` and `placed` take the row and the matrix."""

    def _found(self, read: Array, written: Array) -> NativeCall | None:
        row, matrix = read, written
        if not matrix.size or not fits(matrix) or not fits(row) or not clear_of(matrix, row):
            return None
        by_row = (matrix,)
        arguments = address(matrix), *matrix.shape, address(row)
        return NativeCall(self.kernel, arguments, lambda: cut_by_row(by_row), matrix.size, (row, matrix), places=(3, 0))


class ColumnSums(_ReadAndWrite):
    """Computes the sum of each column of a matrix in C: `call` and `placed` take the matrix and memory for the sums."""

    def _found(self, read: Array, written: Array) -> NativeCall | None:
        if not read.size or not fits(read) or not fits(written) or not clear_of(written, read):
            return None
        rows, length = read.shape
        moves = ((0, read.itemsize), (1, read.itemsize))
        return NativeCall(
            self.kernel,
            (address(read), address(written), length, rows, length),
            lambda: team.Cut(2, moves, _COLUMNS, 1),
            read.size,
            (read, written),
        )


def _address(array: Array | None) -> int | None:
    return None if array is None else address(array)
