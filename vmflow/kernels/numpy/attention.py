"""Attention, computed block by block: the scores of a block stay in the cache.

A block is some rows of the scores of some neighbouring heads, with all keys that these rows attend to; so each of its
softmaxes is complete.  Causal attention skips the keys behind a block's last row.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from math import prod
from typing import Any, Final, NamedTuple, TypeAlias, cast

import numpy as np

from vmflow.instructions.blob import Array, TensorMeta, meta
from vmflow.kernels.choosing import Function, Problem, builds
from vmflow.kernels.native.attention import Attention, pays
from vmflow.kernels.native.rows import Softmax
from vmflow.kernels.problems.attention import Extent

from . import sums
from .half import computes_in
from .random import kept_elements

# The most scores in a block of several rows.
BLOCK: Final = 1 << 18

# The most rows of a block if attention is causal: fewer would skip more keys, but make products too small for BLAS.
_CAUSAL_ROWS: Final = 64

# Rows of up to this many elements are summed by BLAS; see `sums`.
_SHORT: Final = 1024

Index = tuple[Any, ...]

# weights(index, rows, keys), for a block as in `Scores.blocks`, returns the block's softmaxes.
Weights: TypeAlias = Callable[[Index, slice, int], Array]


class Scores(NamedTuple):
    """The sizes of attention's scores, one for each query and key, and their division into blocks.

    Attributes:
        leading: the shape to which the operands' dimensions before the last two broadcast.
        length, others: the numbers of queries and keys.
        factor: the factor of the scores, in the dtype to compute in.
        causal: whether query l attends to keys up to l only.
    """

    leading: tuple[int, ...]
    length: int
    others: int
    factor: Any
    causal: bool

    def spread(self, array: Array) -> Array:
        """Return a view of an operand, broadcast to all leading dimensions."""
        return np.broadcast_to(array, (*self.leading, *array.shape[-2:]))

    def blocks(self) -> Iterator[tuple[Index, slice, int]]:
        """Yield each block's index of heads, its rows, and the most keys they attend to, the last rows first."""
        most = max(min(self.length, _CAUSAL_ROWS) if self.causal else self.length, 1)
        rows = max(min(most, BLOCK // max(self.others, 1)), 1)
        together = max(BLOCK // (rows * max(self.others, 1)), 1)
        heads = (
            [slice(start, start + together) for start in range(0, self.leading[-1], together)]
            if self.leading
            else [...]
        )
        for outer in np.ndindex(self.leading[:-1]):
            for some in heads:
                for start in range(0, self.length, rows)[::-1]:
                    stop = min(start + rows, self.length)
                    yield (*outer, some), slice(start, stop), min(stop, self.others) if self.causal else self.others

    def block(self, query: Array, key: Array, mask: Array | None, index: Index, rows: slice, keys: int) -> Array:
        """Return a block's scores, plus a floating-point mask; -inf where a query must not attend to a key."""
        found = np.matmul(query[index][..., rows, :] * self.factor, key[index][..., :keys, :].swapaxes(-1, -2))
        if self.causal and keys > rows.start + 1:
            corner = found[..., rows.start :]
            np.copyto(corner, -np.inf, where=_behind(*corner.shape[-2:]))
        if mask is not None:
            part = mask[index][..., rows, :keys]
            if mask.dtype == bool:
                np.copyto(found, -np.inf, where=~part)
            else:
                np.add(found, part.astype(found.dtype, copy=False), found)
        return found


@functools.lru_cache(64)
def _behind(rows: int, keys: int) -> Array:
    """Return a read-only bool matrix (rows, keys): whether the key's number is greater than the row's."""
    result: Array = ~np.tri(rows, keys, dtype=bool)
    result.flags.writeable = False
    return result


def _sum_of_rows(array: Array) -> Array:
    if array.shape[-1] > _SHORT:
        return np.add.reduce(array, -1)
    return np.matmul(array, sums.ones(array.shape[-1], array.dtype))


def _softmax(scores: Array, masked: bool, logarithms: Array | None, in_c: Softmax | None) -> None:
    """Compute the softmax in place along the last dimension; if `masked`, a row of only -inf becomes zeros.

    Args:
        masked: whether there may be rows of only -inf.
        logarithms: receives each row's `logsumexp`, but 0 for a row of only -inf if `masked`; or None.
        in_c: the C function to try first, which handles no masks and writes no logarithms; or None.
    """
    if in_c is not None and scores.flags.c_contiguous and in_c.call(scores, scores) is not None:
        return
    highest = scores.max(-1, keepdims=True)
    if masked:
        np.copyto(highest, 0, where=highest == -np.inf)
    np.subtract(scores, highest, scores)
    np.exp(scores, scores)
    total = _sum_of_rows(scores)[..., None]
    if masked:
        np.copyto(total, 1, where=total == 0)
    np.multiply(scores, 1 / total, scores)
    if logarithms is not None:
        logarithms[...] = (highest + np.log(total))[..., 0]


def forward(
    all_scores: Scores,
    operands: Sequence[Array],
    scale: Array | None,
    result: Array,
    probabilities: Array | None,
    logarithms: Array | None,
    softmax: Softmax | None,
) -> None:
    """Compute attention into `result`, block by block.

    Args:
        operands: query, key, value, and perhaps a mask; all but the mask with all leading dimensions.
        scale: the factors of the weights after the softmax (dropout), or None.
        probabilities: (..., length, others), receives the softmaxes, or None.
        logarithms: (..., length), receives the logarithms of `_softmax`, or None.
        softmax: the `in_c` of `_softmax`.
    """
    query, key, value = operands[:3]
    mask = (
        np.broadcast_to(operands[3], (*all_scores.leading, all_scores.length, all_scores.others))
        if len(operands) > 3
        else None
    )
    if not all_scores.others:
        result[...] = 0
        if logarithms is not None:
            logarithms[...] = 0
        return
    for index, rows, keys in all_scores.blocks():
        scores = all_scores.block(query, key, mask, index, rows, keys)
        _softmax(scores, mask is not None, None if logarithms is None else logarithms[index][..., rows], softmax)
        if probabilities is not None:
            place = probabilities[index][..., rows, :]
            place[..., :keys] = scores
            place[..., keys:] = 0
        if scale is not None:
            np.multiply(scores, scale[index][..., rows, :keys], scores)
        np.matmul(scores, value[index][..., :keys, :], result[index][..., rows, :])


def backward(
    all_scores: Scores,
    by_result: Array | None,
    by_weights: Array | None,
    weights_of: Weights,
    operands: Sequence[Array],
    scale: Array | None,
    found: Sequence[Array | None],
) -> None:
    """Compute the gradients by query, key, value and mask, block by block, into the arrays in `found`.

    Args:
        by_result, by_weights: the gradients by attention's result and by its weights; one of them may be None.
        weights_of: returns the softmaxes of a block, from its index of heads, its rows, and their number of keys.
        operands: query, key and value, with all leading dimensions.
        scale: see `forward`.
        found: memory for the gradients; the one by the mask has the scores' shape; None for an unwanted one.
    """
    query, key, value = operands
    by_query, by_key, by_value, by_mask = found
    for array in found:
        # A gradient begins as zeros if blocks might leave some of its elements unwritten.
        if array is not None and (
            array is by_mask or not all_scores.length or all_scores.length < all_scores.others or by_result is None
        ):
            array[...] = 0
    for index, rows, keys in all_scores.blocks():
        weights = weights_of(index, rows, keys)
        part = None if scale is None else scale[index][..., rows, :keys]
        if by_result is None:
            assert by_weights is not None
            slopes = by_weights[index][..., rows, :keys].copy()
        else:
            outer = by_result[index][..., rows, :]
            if by_value is not None:
                used = weights if part is None else weights * part
                _put(all_scores, by_value[index], used, outer, rows, keys)
            slopes = np.matmul(outer, value[index][..., :keys, :].swapaxes(-1, -2))
            if part is not None:
                np.multiply(slopes, part, slopes)
            if by_weights is not None:
                np.add(slopes, by_weights[index][..., rows, :keys], slopes)
        np.subtract(slopes, np.vecdot(slopes, weights)[..., None], slopes)
        np.multiply(slopes, weights, slopes)
        if by_mask is not None:
            by_mask[index][..., rows, :keys] = slopes
        if by_query is not None:
            np.matmul(slopes, key[index][..., :keys, :], by_query[index][..., rows, :])
        if by_key is not None:
            _put(all_scores, by_key[index], slopes, query[index][..., rows, :], rows, keys)
    for array in (by_query, by_key):
        if array is not None:
            np.multiply(array, all_scores.factor, array)


def _put(all_scores: Scores, target: Array, weights: Array, outer: Array, rows: slice, keys: int) -> None:
    """Add ``weights.T @ outer`` to the first `keys` rows of `target`; the block of the last rows overwrites them.

    That block comes first; if its rows do not attend to all keys, `target` is 0 beforehand.
    """
    turned = weights.swapaxes(-1, -2)
    place = target[..., :keys, :]
    if rows.stop == all_scores.length:
        np.matmul(turned, outer, place)
    else:
        np.add(place, np.matmul(turned, outer), place)


# The ops

# (factor of the scores, whether attention is causal, probability of dropping a weight, whether the softmax weights are
# kept for the gradient; otherwise the logarithms of their divisors are)
_Options = tuple[float, bool, float, bool]


def _probabilities(all_scores: Scores, query: TensorMeta) -> TensorMeta:
    """Return the meta of the softmax weights, one for each query and key."""
    return meta((*all_scores.leading, all_scores.length, all_scores.others), query.dtype, query.device)


def _in_c(problem: Problem, all_scores: Scores, query: TensorMeta, value: TensorMeta, keeps: bool) -> Attention | None:
    """Return the C function of the op, without mask and dropout; None if none is loaded now, or BLAS is as fast."""
    if not pays(all_scores.others, max(query.shape[-1], value.shape[-1])):
        return None
    name = "attention_gradient" if problem.op.endswith("_gradient") else "attention"
    elements = prod((*all_scores.leading, all_scores.length, all_scores.others))
    return Attention.of(name, computes_in(query.dtype), elements, float(all_scores.factor), all_scores.causal, keeps)


def _dropout(probabilities: TensorMeta, p: float, compute: np.dtype[Any]) -> Callable[[int, int], Array] | None:
    """Return a function of seed and offset that draws the weights' factors, 0 for dropped ones; None if `p` is 0."""
    if not p:
        return None
    kept, factor = kept_elements(probabilities, p), compute.type(1 / (1 - p) if p < 1 else 0.0)
    return lambda seed, offset: np.asarray(kept(seed, offset) * factor)


@builds("scaled_dot_product_attention")
def _attention(problem: Problem) -> Function:
    factor, causal, p, keeps = cast("_Options", problem.attributes)
    query = problem.inputs[0]
    inputs = len(problem.inputs)
    compute, to = computes_in(query.dtype), query.dtype.numpy
    extent: Extent = problem.details
    all_scores = Scores(*extent, compute.type(factor), causal)
    weights = _probabilities(all_scores, query)
    output, kept = problem.outputs
    masked = inputs > 3
    dropout = _dropout(weights, p, compute)
    in_c = None if masked or p else _in_c(problem, all_scores, query, problem.inputs[2], keeps)
    # C's softmax is requested only if it is needed: a program with attention in C need not wait for its compilation.
    by_blocks = in_c is None and keeps and not masked
    softmax = Softmax.of("softmax", compute, weights.numel, False) if by_blocks else None

    def kernel(*arguments: Any) -> tuple[Array, Array]:
        out = arguments[-1]
        arrays = [all_scores.spread(array.astype(compute, copy=False)) for array in arguments[:3]]
        scale = None if dropout is None else dropout(*arguments[-3:-1])
        result, memory = [
            np.empty(wanted.shape, compute) if out is None or out[place].dtype != compute else out[place]
            for place, wanted in enumerate((output, kept))
        ]
        if in_c is None or not in_c.forward(arrays, result, memory):
            probabilities, logarithms = (memory, None) if keeps else (None, memory)
            forward(all_scores, (*arrays, *arguments[3:inputs]), scale, result, probabilities, logarithms, softmax)
        return result.astype(to, copy=False), memory.astype(kept.dtype.numpy, copy=False)

    return kernel


@builds("scaled_dot_product_attention_gradient")
def _attention_gradient(problem: Problem) -> Function:
    """Build the kernel of attention's gradients.

    Attributes: the forward op's; for each of its results, whether its gradient exists; for each operand, whether its
    gradient is wanted.  Operands: the existing gradients, the array kept by the forward op, query, key, value; and the
    mask, if there is one and the weights were not kept.
    """
    options, present, wanted = cast("tuple[_Options, tuple[bool, bool], tuple[bool, ...]]", problem.attributes)
    factor, causal, p, keeps = options
    gradients = sum(present)
    query = problem.inputs[gradients + 1]
    masked = len(problem.inputs) > gradients + 4
    compute, to = computes_in(query.dtype), query.dtype.numpy
    extent: Extent = problem.details
    all_scores = Scores(*extent, compute.type(factor), causal)
    dropout = _dropout(_probabilities(all_scores, query), p, compute)
    whole = problem.outputs
    by_mask = (*wanted, False)[3]
    is_plain = present == (True, False) and not (p or masked or by_mask)
    in_c = _in_c(problem, all_scores, query, problem.inputs[gradients + 3], keeps) if is_plain else None

    def kernel(*arguments: Any) -> tuple[Array, ...]:
        out = arguments[-1]
        arrays = [array.astype(compute, copy=False) for array in arguments[: gradients + 4]]
        given = iter(arrays[:gradients])
        by_result, by_weights = [next(given) if there else None for there in present]
        kept, three = arrays[gradients], [all_scores.spread(array) for array in arrays[gradients + 1 :]]
        mask = None
        if masked:
            mask = np.broadcast_to(
                arguments[gradients + 4], (*all_scores.leading, all_scores.length, all_scores.others)
            )
        scale = None if dropout is None else dropout(*arguments[-3:-1])

        def weights_of(index: Index, rows: slice, keys: int) -> Array:
            if keeps:
                return kept[index][..., rows, :keys]
            # The kept logarithms do not tell which scores were masked, so these are masked again.
            scores = all_scores.block(three[0], three[1], mask, index, rows, keys)
            np.subtract(scores, kept[index][..., rows, None], scores)
            return np.exp(scores, scores)

        fits = out is not None and to == compute
        results = list(out) if fits else [np.empty(each.shape, compute) for each in whole]
        places = iter(results)
        found = [next(places) if want else None for want in (*wanted, False)[:4]]
        if in_c is None or not in_c.gradient(three, by_result, kept, found[:3]):
            backward(all_scores, by_result, by_weights, weights_of, three, scale, found)
        return tuple([array.astype(to, copy=False) for array in results])

    return kernel
