"""The kernels of the softmax along a dimension, and of its logarithm."""

from __future__ import annotations

from typing import Any

from vmflow.kernels.choosing import Kernel, Problem, builds
from vmflow.streams.cuda.arrays import DeviceArray
from vmflow.streams.cuda.launching import Launcher

from .arrays import PACKAGE, into_outs
from .pointwise import copy_array
from .rows import as_rows, back_from_rows, softmax_rows


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
        copy_array(launcher, back_from_rows(result, out.shape, dim), out)

    return Kernel(into_outs(launch, problem), casts=True)
