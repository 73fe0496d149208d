"""Gradients set to zero, and clipped, by element and by norm."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from vmflow.instructions.blob import Array
from vmflow.kernels.problems.updates import Clip, ScaleToNorm, TotalNorm
from vmflow.kernels.updates import UpdateKernel, builds_update

from .pieces import widened


@builds_update("zero")
def _zero() -> UpdateKernel:
    return _set_to_zero


def _set_to_zero(inputs: list[Array], outputs: list[Array]) -> None:
    for array in outputs:
        array[...] = 0


@builds_update("clip")
def _clip(settings: Clip) -> UpdateKernel:
    limit = settings.limit

    def clip(inputs: list[Array], outputs: list[Array]) -> None:
        for array in outputs:
            np.maximum(array, np.asarray(-limit, array.dtype), out=array)
            np.minimum(array, np.asarray(limit, array.dtype), out=array)

    return clip


@builds_update("total_norm")
def _total_norm(settings: TotalNorm) -> UpdateKernel:
    norm_of = _NORMS.get(settings.order) or _power_norm(settings.order)

    def measure(inputs: list[Array], outputs: list[Array]) -> None:
        each = [norm_of(widened(array).reshape(-1)) for array in inputs]
        outputs[0][...] = norm_of(np.array(each, np.float64))

    return measure


def _power_norm(order: float) -> Callable[[Array], float]:
    return lambda array: float(np.sum(np.abs(array) ** order) ** (1 / order))


_NORMS: dict[float, Callable[[Array], float]] = {
    2.0: lambda array: float(np.linalg.norm(array)),
    math.inf: lambda array: float(np.max(np.abs(array), initial=0.0)),
}


@builds_update("scale_to_norm")
def _scale_to_norm(settings: ScaleToNorm) -> UpdateKernel:
    limit = settings.limit

    def scale(inputs: list[Array], outputs: list[Array]) -> None:
        factor = limit / (float(inputs[0]) + 1e-6)
        if not factor >= 1.0:  # so that a NaN reaches the gradients, as plain arithmetic would have it
            for array in outputs:
                np.multiply(array, np.asarray(factor, array.dtype), out=array)

    return scale
