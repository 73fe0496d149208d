"""The softmax along a dimension, and its logarithm."""

from __future__ import annotations

from typing import Any

from vmflow.kernels.choosing import Kernel, Problem, builds
from vmflow.streams.cuda.arrays import DeviceArray, contiguous_strides
from vmflow.streams.cuda.launching import Launcher

from .arrays import PACKAGE, into_outs
from .pointwise import copy_array
from .rows import as_rows, softmax_rows


@builds("softmax", "log_softmax", package=PACKAGE)
def _softmax(problem: Problem) -> Kernel:
    (dim,) = problem.attributes
    logarithm = problem.op == "log_softmax"

    def launch(launcher: Launcher, operands: tuple[Any, ...], outs: tuple[DeviceArray, ...]) -> None:
        (array,), (out,) = operands, outs
        if array.ndim == 0:
            array, out = array.strided((1,), array.dtype), out.strided((1,), out.dtype)
        matrix = as_rows(launcher, array, (dim,))
        if out.contiguous and dim == out.ndim - 1:
            softmax_rows(launcher, matrix, out.strided(matrix.shape, out.dtype), logarithm)
            return
        result = launcher.scratch(matrix.shape, out.dtype)
        softmax_rows(launcher, matrix, result, logarithm)
        copy_array(launcher, _moved_back(result, out.shape, dim), out)

    return Kernel(into_outs(launch, problem), casts=True)


def _moved_back(matrix: DeviceArray, shape: tuple[int, ...], dim: int) -> DeviceArray:
    """Rows along `dim`, which is their last dimension, as an array of that shape."""
    kept = [axis for axis in range(len(shape)) if axis != dim]
    order = [*kept, dim]
    strides = contiguous_strides(tuple([shape[axis] for axis in order]), matrix.itemsize)
    by_axis = dict(zip(order, strides, strict=True))
    return matrix.strided(shape, matrix.dtype, 0, tuple([by_axis[axis] for axis in range(len(shape))]))


def softmax(xp: Any, array: Any, dim: int) -> Any:
    """The softmax along a dimension of an array that is not empty."""
    powers = xp.exp(array - xp.amax(array, axis=dim, keepdims=True))
    return xp.true_divide(powers, xp.sum(powers, axis=dim, keepdims=True))


def log_softmax(xp: Any, array: Any, dim: int) -> Any:
    """The logarithm of the softmax along a dimension of an array that is not empty."""
    shifted = array - xp.amax(array, axis=dim, keepdims=True)
    return shifted - xp.log(xp.sum(xp.exp(shifted), axis=dim, keepdims=True))
