"""Moves of L-BFGS."""

from __future__ import annotations

import numpy as np

from vmflow.instructions.blob import Array
from vmflow.kernels.problems.updates import Along
from vmflow.kernels.updates import UpdateKernel, builds_update


@builds_update("move_along")
def _move_along(settings: Along) -> UpdateKernel:
    distance, from_origin = settings

    def kernel(inputs: list[Array], outputs: list[Array]) -> None:
        way, *origins = inputs
        begin = 0
        for array in outputs:
            end = begin + array.size
            base = origins[0][begin:end].reshape(array.shape) if from_origin else array
            np.add(base, (way[begin:end] * distance).reshape(array.shape).astype(array.dtype, copy=False), out=array)
            begin = end

    return kernel
