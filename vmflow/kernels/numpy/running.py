"""Running sums, products, extrema and logsumexps, and the recurrence behind gradients of products."""

from __future__ import annotations

from typing import Final

import numpy as np

from vmflow import dtypes
from vmflow.instructions.blob import Array
from vmflow.kernels.choosing import Function, Problem, builds, kernel_of
from vmflow.kernels.native.running import Running

from .ordering import comparable
from .reduction import accumulated

_UFUNCS: Final = {"cumsum": np.add, "cumprod": np.multiply, "cummax": np.maximum, "cummin": np.minimum}


@builds("cumsum", "cumprod")
def _running(problem: Problem) -> Function:
    dim, reverses = problem.attributes
    (source,), (output,) = problem.inputs, problem.outputs
    accumulate = _UFUNCS[problem.op].accumulate
    to = output.dtype.numpy
    kept = accumulated(source.dtype, output.dtype)
    # Rounding errors of float32 would add up; C also accumulates in float64.
    wide = dtypes.float64.numpy if kept == dtypes.float32.numpy else kept
    is_for_c = source.shape and source.device.type == "cpu"
    in_c = Running.of(problem.op, kept, source.numel, dim, reverses) if is_for_c else None

    def kernel(array: Array, out: Array | None) -> Array:
        if array.ndim == 0:
            return array.astype(to)
        if in_c is not None:
            found = in_c.call(array.astype(kept, order="C", copy=False), out)
            if found is not None:
                return found.astype(to, copy=False)
        view = np.flip(array, dim) if reverses else array
        result = accumulate(view, dim, wide).astype(kept, copy=False).astype(to, copy=False)
        return np.ascontiguousarray(np.flip(result, dim)) if reverses else result

    return kernel


@kernel_of("recurrence")
def _recurrence(problem: Problem, factor: Array, term: Array, out: Array | None) -> Array:
    (dim,) = problem.attributes
    (output,) = problem.outputs
    wide, length = accumulated(output.dtype, output.dtype), output.shape[dim]
    # y[i] = term[i] + factor[i + 1] * y[i + 1] in about log2(length) rounds: after each, `total` covers twice as many
    # terms, and `product` the factors between.
    total = np.moveaxis(term.astype(wide, order="C"), dim, -1)
    product = np.moveaxis(factor.astype(wide, order="C"), dim, -1)[..., 1:]
    reach = 1
    while reach < length:
        total[..., :-reach] += product * total[..., reach:]
        product = product[..., :-reach] * product[..., reach:]
        reach *= 2
    return np.ascontiguousarray(np.moveaxis(total, -1, dim)).astype(output.dtype.numpy, copy=False)


@kernel_of("cummax", "cummin")
def _places(problem: Problem, array: Array, out: Array | None) -> Array:
    """Return the index of the extremum up to each element; the last one of equal extrema."""
    (dim,) = problem.attributes
    if array.ndim == 0:
        return np.zeros((), np.int64)
    array = comparable(array)
    # A nan is the extremum from its position on; it equals nothing.
    reached = (array == _UFUNCS[problem.op].accumulate(array, dim)) | (array != array)
    places = np.arange(array.shape[dim]).reshape([-1 if axis == dim else 1 for axis in range(array.ndim)])
    return np.maximum.accumulate(np.where(reached, places, 0), dim)


@kernel_of("logcumsumexp")
def _logcumsumexp(problem: Problem, array: Array, out: Array | None) -> Array:
    if array.ndim == 0:
        return array.copy()
    wide = array.astype(np.float32) if array.dtype.itemsize == 2 else array
    return np.logaddexp.accumulate(wide, *problem.attributes).astype(array.dtype, copy=False)
