"""From numpy arrays to the kernels of attention: each function here computes, or says that it cannot.

As in `arrays`, which has what rows of numbers need.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, Final, TypeAlias

import numpy as np

from . import team
from .addresses import address, is_aligned
from .arrays import as_call, fits
from .functions import function

Array: TypeAlias = Any

_SINGLE: Final = np.dtype(np.float32)
_WORD: Final = np.dtype(np.int64)

# See attention.c, where vectors are widest.
_PANEL: Final = 32

# Of a head: more is left to BLAS, since keys and values are to stay in the cache.
_LARGEST: Final = 1 << 18

# So many products take as long as an addition from memory, where all of a head is in the cache.
_AS_AN_ADDITION: Final = 7


def attention(
    query: Array, key: Array, value: Array, factor: float, causal: bool, result: Array, kept: Array, keeps: bool
) -> bool:
    """Attention without a mask; whether it was computed.

    Args:
        query, key, value: of float32, with the same leading dimensions; see `scaled_dot_product_attention`.
        factor: by which scores are multiplied.
        causal: whether query l attends to keys up to l only.
        result: C-contiguous, as `kept`.
        kept: (..., length, others), takes the weights, or (..., length), the logarithms of what they were divided by.
        keeps: whether it is the weights.
    """
    given = _of_heads(query, key, value)
    if given is None or not all([fits(it) for it in (result, kept)]):
        return False
    return _compute("attention", [*given, result, kept], query, value, factor, causal, keeps)


def attention_gradient(
    query: Array,
    key: Array,
    value: Array,
    factor: float,
    causal: bool,
    by_result: Array,
    kept: Array,
    keeps: bool,
    found: Sequence[Array | None],
) -> bool:
    """The gradients by query, key and value, into those of `found` that are not None; whether they were computed.

    Args:
        query, key, value, factor, causal, kept, keeps: see `attention`.
        by_result: the gradient by the result.
        found: C-contiguous.
    """
    given = _of_heads(query, key, value, by_result)
    if given is None or not fits(kept) or not all([it is None or fits(it) for it in found]):
        return False
    return _compute("attention_gradient", [*given, kept, *found], query, value, factor, causal, keeps, 2.5)


def _of_heads(*arrays: Array) -> list[Array] | None:
    """Arrays of the same leading dimensions in whose rows one element follows the other; None if they cannot be."""
    if len({it.shape[:-2] for it in arrays}) != 1 or not all([it.dtype is _SINGLE and it.size for it in arrays]):
        return None
    return [it if _in_rows(it) else it.copy() for it in arrays]


def _in_rows(array: Array) -> bool:
    """Whether C may read them, one element follows the other, and a whole number of them lies from row to row."""
    to_next_row, to_next = array.strides[-2:]
    return bool(
        is_aligned(array) and to_next == array.itemsize and to_next_row > 0 and to_next_row % array.itemsize == 0
    )


def _compute(
    name: str,
    arrays: Sequence[Array | None],
    query: Array,
    value: Array,
    factor: float,
    causal: bool,
    keeps: bool,
    products: float = 1.0,
) -> bool:
    """Call a kernel for all heads; whether it is there, and had memory to work in.

    Args:
        arrays: what it takes of each head, in order.
        query, value: for their shapes.
        products: how many there are, where a query, a key and a value of one element each make one.
    """
    leading, (length, size) = query.shape[:-2], query.shape[-2:]
    others, value_size = value.shape[-2:]
    heads, scores = prod(leading), length * others
    if others * _padded(max(size, value_size)) > _LARGEST:
        return False
    kernel = function(name, heads * scores)
    if kernel is None:
        return False
    rows = [it.strides[-2] // it.itemsize for it in arrays[:4] if it is not None]
    problem = np.array([length, others, size, value_size, *rows, causal, keeps, 0, 0], _WORD)
    problem[-2:-1].view(np.float64)[0] = factor
    table = np.empty((heads, len(arrays)), _WORD)
    for column, array in enumerate(arrays):
        table[:, column] = 0 if array is None else _places(array, leading)
    work = products * heads * scores * (size + value_size) / (2 if causal else 1) / _AS_AN_ADDITION
    words = address(table), heads, address(problem)
    call, arguments, _ = as_call(name, kernel, words, lambda: team.Cut(1, ((0, table.strides[0]),)), work)
    call(*arguments)
    return int(problem[-1]) == 0


def _padded(size: int) -> int:
    """As wide as a row of so many elements is worked on, at most."""
    return -(-size // _PANEL) * _PANEL


def _places(array: Array, leading: Sequence[int]) -> Array:
    """Where each head is."""
    found = np.full(1, address(array), _WORD)
    for count, stride in zip(leading, array.strides, strict=False):
        found = (found[:, np.newaxis] + np.arange(count) * stride).reshape(-1)
    return found
