"""How attention is computed: block by block, each small enough for its scores to stay in the cache.

A block is some rows of the scores of some neighbouring heads, with all keys that these rows may see; so each of its
softmaxes is complete.  Of causal attention, what lies wholly behind a block's last row is left out.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from vmflow.instructions.blob import Array
from vmflow.kernels.native import attention as in_c
from vmflow.kernels.native.rows import Softmax

from . import sums

# Elements of the scores in a block.
BLOCK: Final = 1 << 18

# Rows of a block where attention is causal: with fewer more is left out, and products become too small for BLAS.
_CAUSAL_ROWS: Final = 64

# Up to here sums go by BLAS; see `sums`.
_SHORT: Final = 1024

_SOFTMAX_IN_C: Final = Softmax(logarithm=False)

Index = tuple[Any, ...]


class Problem(NamedTuple):
    """One attention.

    Attributes:
        xp: the array module.
        leading: the dimensions before the last two.
        length, others: how many queries and keys there are.
        factor: the scores are multiplied by it; of the dtype to compute in.
        causal: whether query l attends to keys up to l only.
    """

    xp: Any
    leading: tuple[int, ...]
    length: int
    others: int
    factor: Any
    causal: bool

    def spread(self, array: Array) -> Array:
        """A view of an operand with all leading dimensions."""
        return self.xp.broadcast_to(array, (*self.leading, *array.shape[-2:]))

    def blocks(self) -> Iterator[tuple[Index, slice, int]]:
        """Of each block the index of its heads, its rows, and how many keys they see; the last rows come first."""
        most = max(min(self.length, _CAUSAL_ROWS) if self.causal else self.length, 1)
        rows = max(min(most, BLOCK // max(self.others, 1)), 1)
        together = max(BLOCK // (rows * max(self.others, 1)), 1)
        heads = [slice(it, it + together) for it in range(0, self.leading[-1], together)] if self.leading else [...]
        for outer in self.xp.ndindex(self.leading[:-1]):
            for some in heads:
                for start in range(0, self.length, rows)[::-1]:
                    stop = min(start + rows, self.length)
                    yield (*outer, some), slice(start, stop), min(stop, self.others) if self.causal else self.others

    def scores(self, query: Array, key: Array, mask: Array | None, index: Index, rows: slice, keys: int) -> Array:
        """The scores of a block, -inf where nothing may be attended to."""
        xp = self.xp
        found = xp.matmul(query[index][..., rows, :] * self.factor, key[index][..., :keys, :].swapaxes(-1, -2))
        if self.causal and keys > rows.start + 1:
            corner = found[..., rows.start :]
            xp.copyto(corner, -xp.inf, where=_behind(xp, *corner.shape[-2:]))
        if mask is not None:
            part = mask[index][..., rows, :keys]
            if mask.dtype == bool:
                xp.copyto(found, -xp.inf, where=~part)
            else:
                xp.add(found, part.astype(found.dtype, copy=False), found)
        return found


@functools.lru_cache(64)
def _behind(xp: Any, rows: int, keys: int) -> Array:
    """Which keys come behind which rows."""
    result: Array = ~xp.tri(rows, keys, dtype=bool)
    result.flags.writeable = False
    return result


def _sum_of_rows(xp: Any, array: Array) -> Array:
    if array.shape[-1] > _SHORT:
        return xp.add.reduce(array, -1)
    return xp.matmul(array, sums.ones(array.shape[-1], array.dtype))


def _softmax(xp: Any, scores: Array, masked: bool, logarithms: Array | None) -> None:
    """In place along the last dimension, where a row of -inf alone becomes zeros.

    Args:
        masked: whether there may be such rows.
        logarithms: takes the logarithm of what each row was divided by, 0 for those of -inf, if given.
    """
    plain = not masked and logarithms is None and scores.flags.c_contiguous
    if plain and _SOFTMAX_IN_C.call(scores, scores) is not None:
        return
    highest = scores.max(-1, keepdims=True)
    if masked:
        xp.copyto(highest, 0, where=highest == -xp.inf)
    xp.subtract(scores, highest, scores)
    xp.exp(scores, scores)
    total = _sum_of_rows(xp, scores)[..., None]
    if masked:
        xp.copyto(total, 1, where=total == 0)
    xp.multiply(scores, 1 / total, scores)
    if logarithms is not None:
        logarithms[...] = (highest + xp.log(total))[..., 0]


def forward(
    it: Problem,
    operands: Sequence[Array],
    scale: Array | None,
    result: Array,
    probabilities: Array | None,
    logarithms: Array | None,
) -> None:
    """Compute attention into `result`.

    Args:
        operands: query, key, value, and perhaps a mask.
        scale: what weights are multiplied by after the softmax, or None.
        probabilities: (..., length, others), takes the softmaxes if given.
        logarithms: (..., length), takes those of `_softmax` if given.
    """
    xp = it.xp
    query, key, value = map(it.spread, operands[:3])
    mask = xp.broadcast_to(operands[3], (*it.leading, it.length, it.others)) if len(operands) > 3 else None
    if not it.others:
        result[...] = 0
        if logarithms is not None:
            logarithms[...] = 0
        return
    if mask is None and scale is None and it.xp is np:
        kept = logarithms if probabilities is None else probabilities
        if kept is not None and in_c.attention(
            query, key, value, float(it.factor), it.causal, result, kept, probabilities is not None
        ):
            return
    for index, rows, keys in it.blocks():
        scores = it.scores(query, key, mask, index, rows, keys)
        _softmax(xp, scores, mask is not None, None if logarithms is None else logarithms[index][..., rows])
        if probabilities is not None:
            place = probabilities[index][..., rows, :]
            place[..., :keys] = scores
            place[..., keys:] = 0
        if scale is not None:
            xp.multiply(scores, scale[index][..., rows, :keys], scores)
        xp.matmul(scores, value[index][..., :keys, :], result[index][..., rows, :])


class Kept(NamedTuple):
    """What the backward pass has of the forward one.

    Attributes:
        probabilities: as from `forward`, or None.
        logarithms: likewise; one of both is there.
        mask: the mask, which the logarithms alone do not tell.
    """

    probabilities: Array | None
    logarithms: Array | None
    mask: Array | None

    def block(self, it: Problem, query: Array, key: Array, index: Index, rows: slice, keys: int) -> Array:
        """The softmaxes of a block."""
        if self.probabilities is not None:
            return self.probabilities[index][..., rows, :keys]
        assert self.logarithms is not None
        scores = it.scores(query, key, self.mask, index, rows, keys)
        it.xp.subtract(scores, self.logarithms[index][..., rows, None], scores)
        return it.xp.exp(scores, scores)


def backward(
    it: Problem,
    by_result: Array | None,
    by_weights: Array | None,
    kept: Kept,
    operands: Sequence[Array],
    scale: Array | None,
    found: Sequence[Array | None],
) -> None:
    """The gradients by query, key, value and, of the shape of the scores, by the mask, into `found` where not None.

    Args:
        by_result, by_weights: the gradients by what the forward pass returned; one of them may be None.
        operands: query, key and value.
        scale: as for `forward`.
    """
    xp = it.xp
    query, key, value = map(it.spread, operands)
    by_query, by_key, by_value, by_mask = found
    if by_result is not None and by_weights is None and by_mask is None and scale is None and kept.mask is None:
        memory = kept.logarithms if kept.probabilities is None else kept.probabilities
        if xp is np and in_c.attention_gradient(
            *(query, key, value, float(it.factor), it.causal, by_result, memory),
            *(kept.probabilities is not None, found[:3]),
        ):
            return
    for array in found:
        # Where there is no block, or no block reaches, nothing would be written.
        if array is not None and (array is by_mask or not it.length or it.length < it.others or by_result is None):
            array[...] = 0
    for index, rows, keys in it.blocks():
        weights = kept.block(it, query, key, index, rows, keys)
        part = None if scale is None else scale[index][..., rows, :keys]
        if by_result is None:
            assert by_weights is not None
            slopes = by_weights[index][..., rows, :keys].copy()
        else:
            outer = by_result[index][..., rows, :]
            if by_value is not None:
                used = weights if part is None else weights * part
                _put(it, by_value[index], used, outer, rows, keys)
            slopes = xp.matmul(outer, value[index][..., :keys, :].swapaxes(-1, -2))
            if part is not None:
                xp.multiply(slopes, part, slopes)
            if by_weights is not None:
                xp.add(slopes, by_weights[index][..., rows, :keys], slopes)
        xp.subtract(slopes, xp.vecdot(slopes, weights)[..., None], slopes)
        xp.multiply(slopes, weights, slopes)
        if by_mask is not None:
            by_mask[index][..., rows, :keys] = slopes
        if by_query is not None:
            xp.matmul(slopes, key[index][..., :keys, :], by_query[index][..., rows, :])
        if by_key is not None:
            _put(it, by_key[index], slopes, query[index][..., rows, :], rows, keys)
    for array in (by_query, by_key):
        if array is not None:
            xp.multiply(array, it.factor, array)


def _put(it: Problem, target: Array, weights: Array, outer: Array, rows: slice, keys: int) -> None:
    """Add the transposed weights times `outer` to the first keys of `target`; the last rows, which come first, set it.

    Where the last rows do not reach all keys, the rest is 0 beforehand.
    """
    turned = weights.swapaxes(-1, -2)
    place = target[..., :keys, :]
    if rows.stop == it.length:
        it.xp.matmul(turned, outer, place)
    else:
        it.xp.add(place, it.xp.matmul(turned, outer), place)
