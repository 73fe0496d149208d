"""Kernels of matrix rows, which take a few rows at a time, so that all passes over short rows stay in the cache.

Matrices here are contiguous, in the dtype to compute in: float32 or float64.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np

from vmflow.instructions.blob import Array
from vmflow.kernels import intra_op
from vmflow.kernels.native.addresses import address
from vmflow.kernels.native.rows import ColumnSums

from . import sums

# The most bytes of a group of several rows.  Smaller groups would need more calls.
GROUP: Final = 1 << 19


def groups(matrix: Array) -> Iterator[slice]:
    """Iterate over slices of the rows of `matrix`, one for each group."""
    count, together = len(matrix), _together(matrix)
    return (slice(start, min(start + together, count)) for start in range(0, count, together))


def _together(matrix: Array) -> int:
    length: int = matrix.itemsize * matrix.shape[1]
    return max(GROUP // max(length, 1), 1)


def _by_groups(matrix: Array, function: Callable[[slice], None]) -> None:
    """Call a function with the slice of each group of rows, on several threads if that is worth it."""

    def some(start: int, stop: int) -> None:
        for part in groups(matrix[start:stop]):
            function(slice(start + part.start, start + part.stop))

    intra_op.over(len(matrix), 4 * matrix.size, some, _together(matrix))


def destination(out: Array | None, matrix: Array) -> Array:
    """Return memory for a result like `matrix`: `out`, of as many elements, in the matrix's shape, or new memory.

    The memory is new if `out` is None, not contiguous, or of another dtype than the matrix.
    """
    if out is None or out.dtype != matrix.dtype or not out.flags.c_contiguous:
        return np.empty_like(matrix)
    return out.reshape(matrix.shape)


def handed(result: Array, out: Array | None, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Return `out` if the contiguous `result` lies there; else `result` in this shape and dtype."""
    if out is not None and out.dtype == result.dtype and address(out) == address(result):
        return out
    return result.reshape(shape).astype(dtype, copy=False)


def softmax(matrix: Array, out: Array, logarithm: bool) -> None:
    """Compute the softmax of each row, or its `logarithm`, into `out`, which may be `matrix`; rows are not empty."""

    def group(part: slice) -> None:
        result = out[part]
        np.subtract(matrix[part], matrix[part].max(1, keepdims=True), result)
        if logarithm:
            total = sums.of_rows(np.exp(result))
            np.subtract(result, np.log(total, total)[:, None], result)
        else:
            np.exp(result, result)
            total = sums.of_rows(result)
            np.multiply(result, np.reciprocal(total, total)[:, None], result)

    _by_groups(matrix, group)


def normalize(
    matrix: Array, weight: Array | None, bias: Array | None, eps: np.floating[Any], out: Array
) -> tuple[Array, Array]:
    """Shift and scale each row to mean 0 and variance 1, times a weight, plus a bias, into `out`.

    Returns:
        The mean of each row, and its scale, 1 / sqrt(variance + eps).
    """
    share = np.array(1 / max(matrix.shape[1], 1), matrix.dtype)
    least = np.array(eps, matrix.dtype)
    means, scales = np.empty((2, len(matrix)), matrix.dtype)

    def group(part: slice) -> None:
        result, scale = out[part], scales[part]
        mean = np.multiply(sums.of_rows(matrix[part]), share, means[part])
        np.subtract(matrix[part], mean[:, None], result)
        np.multiply(np.vecdot(result, result), share, scale)
        np.add(scale, least, scale)
        np.reciprocal(np.sqrt(scale, scale), scale)
        np.multiply(result, scale[:, None], result)
        if weight is not None:
            np.multiply(result, weight, result)
        if bias is not None:
            np.add(result, bias, result)

    _by_groups(matrix, group)
    return means, scales


def normalize_backward(
    gradient: Array,
    matrix: Array,
    means: Array,
    scales: Array,
    weight: Array | None,
    out: Array,
    columns: ColumnSums | None,
) -> tuple[Array, Array]:
    """Compute the gradient of `normalize` by the matrix into `out`, which is none of the operands.

    Args:
        columns: the C function that adds up columns, or None; see `sums.of_columns`.

    Returns:
        The gradients by weight and bias.
    """
    share = np.array(1 / max(matrix.shape[1], 1), matrix.dtype)
    by_weight, by_bias = np.zeros((2, matrix.shape[1]), matrix.dtype)
    work = np.empty_like(gradient[next(groups(matrix), slice(0))])
    for part in groups(matrix):
        outer, result, scale = gradient[part], out[part], scales[part]
        scratch = work[: len(outer)]
        centred = np.subtract(matrix[part], means[part, None], result)
        by_weight += np.dot(scale, np.multiply(outer, centred, scratch))
        by_bias += sums.of_columns(outer, in_c=columns)
        weighted = outer if weight is None else np.multiply(outer, weight, scratch)
        # By the matrix: scale * (weighted - mean(weighted) - normalized * mean(weighted * normalized))
        slope = np.multiply(np.vecdot(weighted, centred), share)
        np.multiply(np.multiply(slope, scale, slope), scale, slope)
        np.multiply(centred, slope[:, None], result)
        np.subtract(weighted, result, result)
        offset = sums.of_rows(weighted)
        np.subtract(result, np.multiply(offset, share, offset)[:, None], result)
        np.multiply(result, scale[:, None], result)
    return by_weight, by_bias
