"""Adam's direction, with a step for each parameter in proportion to its norm."""

from __future__ import annotations

from functools import partial
from math import sqrt

import numpy as np

from vmflow.instructions.blob import Array
from vmflow.kernels.problems.updates import LAMB
from vmflow.kernels.updates import UpdateKernel, builds_update

from .elementwise import average, average_square, decayed, group_kernel, root
from .pieces import updated


@builds_update("lamb")
def _lamb(settings: LAMB) -> UpdateKernel:
    return group_kernel(settings.lr, partial(_step, settings))


def _step(settings: LAMB, lr: float, gradient: Array, written: list[Array]) -> None:
    """One parameter, in two passes: both norms must be known before anything moves."""
    parameter, running, square, step = written
    beta1, beta2, eps, maximize = settings.beta1, settings.beta2, settings.eps, settings.maximize
    apart, coupled = (settings.weight_decay, 0.0)[:: 1 if settings.decoupled else -1]
    step += 1
    first = 1 - beta1 ** float(step) if settings.corrected else 1.0
    second = sqrt(1 - beta2 ** float(step)) if settings.corrected else 1.0

    def direction(mean: Array, variance: Array, out: Array) -> Array:
        root(variance, eps, out, second)
        np.divide(mean, out, out=out)
        return np.divide(out, first, out=out)

    of_parameter, of_direction = 0.0, 0.0
    for piece in updated([running, square], [parameter, gradient], scratch=2):
        mean, variance, place, slope, room, work = piece
        slope = decayed(place, slope, coupled, maximize, room)
        average(mean, slope, 1 - beta1, work)
        average_square(variance, slope, beta2, work)
        of_parameter += _sum_of_squares(place)
        of_direction += _sum_of_squares(direction(mean, variance, work))
    ratio = sqrt(of_parameter / of_direction) if of_parameter > 0 and of_direction > 0 else 1.0
    for place, mean, variance, room, work in updated([parameter], [running, square], scratch=2):
        way = direction(mean, variance, work)
        if apart:
            way = np.add(way, np.multiply(place, apart, out=room), out=way)
        np.subtract(place, np.multiply(way, lr * ratio, out=way), out=place)


def _sum_of_squares(array: Array) -> float:
    flat = array.reshape(-1)
    return float(np.dot(flat, flat))
