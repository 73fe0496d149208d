"""Sums of floating-point numbers as products with ones, which BLAS often computes faster than numpy adds.

Sums of large float32 arrays along columns or rows that are not short are left to C, if its functions are loaded.  C
starts none of BLAS's threads, which keep their cores busy after the product.

BLAS adds into fewer partial sums than numpy does, and rounding errors grow with the length of each.  So no row longer
than `_LONGEST` is left to it in one piece; the sums of the pieces are added pairwise.  Columns are left to it at any
length: numpy adds several columns in order, and so is not more accurate.
"""

from __future__ import annotations

import functools
from math import prod
from typing import Any, Final

import numpy as np

from vmflow.instructions.blob import Array
from vmflow.kernels.choosing import Call
from vmflow.kernels.native.rows import ColumnSums, RowReduction

# The most numbers of a row that BLAS sums in one piece.
_LONGEST: Final = 1024

_SINGLE: Final = np.dtype(np.float32)

# A product pays for arrays of at least `_FEW` elements; for sums of columns, only from `_ROWS` rows on.
_ROWS: Final = 8
_FEW: Final = 8192

# Shorter rows are left to BLAS, which may be faster there.
_LONG: Final = 128


def suits(array: Array) -> bool:
    """Return whether this module may sum an array faster than numpy: large, contiguous, of float32 or float64."""
    return array.dtype.char in "fd" and array.flags.c_contiguous and array.size >= _FEW


@functools.lru_cache(64)
def ones(count: int, dtype: np.dtype[Any]) -> Array:
    """Return `count` ones, in memory that must not be written to."""
    result = np.ones(count, dtype)
    result.flags.writeable = False
    return result


def of_rows(matrix: Array, in_c: RowReduction | None = None) -> Array:
    """Return the sum of each row of a floating-point matrix; `in_c`, if given, is tried for long rows of float32."""
    rows, length = matrix.shape
    if in_c is not None and matrix.dtype is _SINGLE and length >= _LONG:
        found = in_c.call(matrix)
        if found is not None:
            return found
    if length <= _LONGEST:
        return np.dot(matrix, ones(length, matrix.dtype))
    if rows == 1:
        return np.reshape(_of_vector(matrix[0]), 1)
    # `dot` would copy each slice of the matrix.
    parts = [
        np.matmul(matrix[:, start : start + _LONGEST], ones(min(_LONGEST, length - start), matrix.dtype))
        for start in range(0, length, _LONGEST)
    ]
    return np.add.reduce(np.stack(parts, 1), 1)


def _of_vector(vector: Array) -> Array:
    whole = vector.size // _LONGEST * _LONGEST
    parts = np.dot(vector[:whole].reshape(-1, _LONGEST), ones(_LONGEST, vector.dtype))
    return np.add(np.add.reduce(parts), np.add.reduce(vector[whole:]))


def columns_in_c(dtype: np.dtype[Any], elements: int) -> ColumnSums | None:
    """Return the C function that sums the columns of matrices of this dtype and at most so many elements, or None."""
    return ColumnSums.of("column_sums", dtype, elements) if elements >= _FEW else None


def of_columns(matrix: Array, out: Array | None = None, in_c: ColumnSums | None = None) -> Array:
    """Return the sum of each column of a matrix; in `out`, if given, which is contiguous and of the matrix's dtype."""
    if _is_for_c(matrix):
        matrix = np.ascontiguousarray(matrix)  # so that the sum is the same for all layouts
        result = np.empty(matrix.shape[1], _SINGLE) if out is None else out
        if in_c is not None and in_c.call(matrix, result):
            return result
    if len(matrix) < _ROWS or not suits(matrix):
        return np.add.reduce(matrix, 0, None, out)
    return np.dot(ones(len(matrix), matrix.dtype), matrix, out=out)


def of_columns_call(matrix: Array, out: Array, in_c: ColumnSums | None) -> Call:
    """Return `of_columns` as one call, for arrays that stay where they are."""
    call = in_c.placed(matrix, out) if in_c is not None and _is_for_c(matrix) else None
    return call or (of_columns, (matrix, out, in_c), out)


def _is_for_c(matrix: Array) -> bool:
    return matrix.dtype is _SINGLE and len(matrix) >= _ROWS and matrix.size >= _FEW


def over(
    array: Array, dims: tuple[int, ...], for_rows: RowReduction | None = None, for_columns: ColumnSums | None = None
) -> Array | None:
    """Sum an array that `suits` over ascending `dims`, and drop them; return None if one lies between kept dimensions.

    Args:
        for_rows, for_columns: the C functions for `of_rows` and `of_columns`, or None.
    """
    rank = array.ndim
    behind = 0
    while behind < len(dims) and dims[-1 - behind] == rank - 1 - behind:
        behind += 1
    before = len(dims) - behind
    if dims[:before] != tuple(range(before)):
        return None
    kept = array.shape[before : rank - behind]
    if behind:
        array = of_rows(array.reshape(-1, prod(array.shape[rank - behind :])), for_rows)
    if before:
        array = of_columns(array.reshape(-1, prod(kept)), in_c=for_columns)
    return array.reshape(kept)
