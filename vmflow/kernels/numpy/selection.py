"""Choosing between two tensors (``where``), and limiting one (``clamp``)."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from vmflow import dtypes
from vmflow.instructions.blob import Array
from vmflow.kernels.choosing import Kernel, Problem, builds
from vmflow.kernels.problems.elementwise import CHEAP, REVERSED

from .spreading import spread
from .ufuncs import constant, saturated

# Integers as wide as the elements, by their bytes.
_WORDS: Final = {1: "i1", 2: "i2", 4: "i4", 8: "i8"}


def chosen(condition: Array, first: Array, second: Array, out: Array) -> Array:
    """Write `first` where the condition holds, else `second`, into `out`, these three of one dtype; return `out`.

    `out` may be one of the operands.

    Elements of up to 8 bytes are selected by arithmetic on their bits, since numpy's own selection is slower where the
    condition follows no pattern.
    """
    word = _WORDS.get(out.dtype.itemsize)
    if word is None:
        np.copyto(out, np.where(condition, first, second))
        return out
    one, other, bits = first.view(word), second.view(word), out.view(word)
    if not other.ndim and not other:
        np.multiply(one, condition, out=bits)
    elif not one.ndim and not one:
        np.multiply(other, np.logical_not(condition), out=bits)
    else:
        difference = np.asarray(np.bitwise_xor(one, other))
        difference = np.multiply(difference, condition, out=difference if difference.shape == out.shape else None)
        np.bitwise_xor(difference, other, out=bits)
    return out


@builds("where")
def _where(problem: Problem) -> Kernel:
    (output,) = problem.outputs
    shape, to = output.shape, output.dtype.numpy
    arrays = len(problem.inputs) - 1
    reversed_ = problem.attributes == REVERSED

    def kernel(condition: Array, *operands: Any) -> Array:
        values = [array.astype(to, copy=False) for array in operands[:arrays]]
        values += [constant(number, to) for number in operands[arrays:-1]]
        if reversed_:
            values.reverse()
        out = operands[-1]
        return chosen(condition, values[0], values[1], np.empty(shape, to) if out is None else out)

    sharing = [(operand, 0) for operand in range(len(problem.inputs))]
    return Kernel(spread(kernel, output, CHEAP * 3), sharing=sharing)


@builds("clamp")
def _clamp(problem: Problem) -> Kernel:
    (output,) = problem.outputs
    to = output.dtype.numpy
    has_clip = output.dtype is not dtypes.bfloat16  # numpy has clip for its own dtypes

    def kernel(array: Array, low: Any, high: Any, out: Array | None) -> Array:
        array = array.astype(to, copy=False)
        least, most = saturated(low, to), saturated(high, to)
        if has_clip:
            return np.clip(array, least, most, out=out)
        return np.minimum(np.maximum(array, least, out=out), most, out=out)

    return Kernel(spread(kernel, output, CHEAP), sharing=[(0, 0)])
