"""Calls of the C functions in attention.c: scaled dot-product attention, and its gradients."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, Final

import numpy as np

from . import team
from .addresses import Array, address, is_aligned, places_of
from .arrays import INDEX, SINGLE, InC, NativeCall, fits
from .functions import CFunction

# The width of a panel of packed columns in attention.c, in floats, on processors with the widest vectors.
_PANEL: Final = 32

# The most numbers of one head's keys or values that stay in the cache; attention with larger heads is left to BLAS.
_LARGEST: Final = 1 << 18

# The number of multiplications that take as long as an addition of arrays in memory, if a head is in the cache; for
# `intra_op.LEAST`.
_AS_AN_ADDITION: Final = 7


class Attention(InC):
    """Attention of float32 without a mask ("attention"), or its gradients ("attention_gradient").

    Args:
        kernel, dtype: see `InC`.
        factor: the number by which scores are multiplied.
        causal: whether query l attends to keys up to l only.
        keeps: whether the attention weights are kept for the gradient, (..., length, others); otherwise the logarithms
            of the softmax's divisors are, (..., length).
    """

    def __init__(self, kernel: CFunction, dtype: np.dtype[Any], factor: float, causal: bool, keeps: bool) -> None:
        super().__init__(kernel, dtype)
        self._factor = factor
        self._causal = causal
        self._keeps = keeps

    def forward(self, operands: Sequence[Array], result: Array, kept: Array) -> bool:
        """Compute attention; returns whether C could.

        Args:
            operands: query, key and value, with the same leading dimensions; see `scaled_dot_product_attention`.
            result: C-contiguous memory for the attention.
            kept: C-contiguous memory for the weights, or for the divisors' logarithms; see `keeps`.
        """
        given = _of_heads(*operands)
        if given is None or not fits(result) or not fits(kept):
            return False
        return self._compute([*given, result, kept], operands, 1.0)

    def gradient(self, operands: Sequence[Array], by_result: Array, kept: Array, found: Sequence[Array | None]) -> bool:
        """Compute the gradients by query, key and value; returns whether C could.

        Args:
            operands: see `forward`.
            by_result: the gradient by the result.
            kept: the weights or logarithms from `forward`.
            found: C-contiguous memory for the three gradients; None for a gradient that is not wanted.
        """
        given = _of_heads(*operands, by_result)
        if given is None or not fits(kept) or not all([array is None or fits(array) for array in found]):
            return False
        return self._compute([*given, kept, *found], operands, 2.5)

    def _compute(self, arrays: Sequence[Array | None], operands: Sequence[Array], products: float) -> bool:
        """Call the kernel for all heads; returns False if it could not allocate its scratch memory.

        Args:
            arrays: the arrays; the kernel takes the addresses of their heads in this order, and 0 for None.
            operands: query, key and value, for their shapes.
            products: the multiplications for each score and each element of a key or value, to estimate the work.
        """
        query, _, value = operands
        leading, (length, size) = query.shape[:-2], query.shape[-2:]
        others, value_size = value.shape[-2:]
        heads, scores = prod(leading), length * others
        rows = [array.strides[-2] // array.itemsize for array in arrays[:4] if array is not None]
        problem = np.array([length, others, size, value_size, *rows, self._causal, self._keeps, 0, 0], INDEX)
        problem[-2:-1].view(np.float64)[0] = self._factor
        table = np.empty((heads, len(arrays)), INDEX)
        for column, array in enumerate(arrays):
            table[:, column] = 0 if array is None else places_of(array, leading)
        work = products * heads * scores * (size + value_size) / (2 if self._causal else 1) / _AS_AN_ADDITION
        words = address(table), heads, address(problem)
        NativeCall(self.kernel, words, lambda: team.Cut(1, ((0, table.strides[0]),)), work, ()).make(None)
        return int(problem[-1]) == 0


def _of_heads(*arrays: Array) -> list[Array] | None:
    """Return the arrays, each copied unless `_in_rows`, for a kernel that takes single heads.

    None if their leading dimensions differ, or one is empty or not of float32.
    """
    if len({array.shape[:-2] for array in arrays}) != 1 or not all(
        [array.dtype is SINGLE and array.size for array in arrays]
    ):
        return None
    return [array if _in_rows(array) else array.copy() for array in arrays]


def _in_rows(array: Array) -> bool:
    """Whether an array is aligned, its rows are contiguous, and each row begins whole elements after the row before."""
    to_next_row, to_next = array.strides[-2:]
    return bool(
        is_aligned(array) and to_next == array.itemsize and to_next_row > 0 and to_next_row % array.itemsize == 0
    )


def pays(others: int, size: int) -> bool:
    """Whether attention in C should be faster than by BLAS, for `others` keys and vectors of `size` elements."""
    padded = -(-size // _PANEL) * _PANEL  # no less than the width of a row of keys, padded to whole panels
    return others * padded <= _LARGEST
