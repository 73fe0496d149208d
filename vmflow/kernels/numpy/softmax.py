"""The softmax along a dimension, and its logarithm."""

from __future__ import annotations

import numpy as np

from vmflow import dtypes
from vmflow.instructions.blob import Array
from vmflow.kernels.choosing import Function, Problem, builds
from vmflow.kernels.native.rows import Softmax

from . import rows


@builds("softmax", "log_softmax")
def _softmax(problem: Problem) -> Function:
    logarithm = problem.op == "log_softmax"
    (dim,) = problem.attributes
    (source,) = problem.inputs
    to = source.dtype.numpy
    half = dtypes.is_half(source.dtype)
    is_last = dim == max(len(source.shape), 1) - 1
    in_c = Softmax.of(problem.op, np.dtype(np.float32) if half else to, source.numel, logarithm) if is_last else None

    def kernel(array: Array, out: Array | None) -> Array:
        if array.ndim == 0:
            return kernel(array.reshape(1), None).reshape(())
        if array.size == 0:
            return np.empty(array.shape, to)
        if half:
            array = array.astype(np.float32)
        if dim == array.ndim - 1:
            array = np.ascontiguousarray(array)
            found = None if in_c is None else in_c.call(array, out)
            if found is not None:
                return found.astype(to, copy=False)
            matrix = array.reshape(-1, array.shape[-1])
            result = rows.destination(out, matrix)
            rows.softmax(matrix, result, logarithm)
            return result.reshape(array.shape).astype(to, copy=False)
        result = np.subtract(array, array.max(axis=dim, keepdims=True), order="C")
        if logarithm:
            result -= np.log(np.exp(result).sum(axis=dim, keepdims=True))
        else:
            np.exp(result, result)
            result /= result.sum(axis=dim, keepdims=True)
        return result.astype(to, copy=False)

    return kernel
