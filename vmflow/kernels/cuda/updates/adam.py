"""Steps scaled by running averages of the gradient: Adam and its kin."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from vmflow.kernels.problems.updates import LAMB, Adam, Adamax, NAdam, RAdam

from .declaring import (
    as_factor,
    average,
    average_square,
    decayed,
    exactly,
    moves,
    slope_and_start,
)


@moves("adam")
def _adam(
    xp: Any,
    settings: Adam,
    lr: Any,
    counts: list[Any],
    gradient: Any,
    parameter: Any,
    mean: Any,
    square: Any,
    *top: Any,
) -> Sequence[Any]:
    taken = exactly(counts[0] + 1)
    gradient, parameter = slope_and_start(settings, lr, gradient, parameter)
    mean = average(mean, gradient, 1 - settings.beta1)
    square = average_square(square, gradient, settings.beta2)
    largest = [xp.maximum(largest, square) for largest in top]
    correction = xp.sqrt(1 - settings.beta2**taken)
    root = xp.sqrt((largest or [square])[0]) + as_factor(settings.eps * correction, square)
    size = as_factor(lr / (1 - settings.beta1**taken) * correction, mean)
    return parameter - mean / root * size, mean, square, *largest, taken


@moves("nadam", counts=2)
def _nadam(
    xp: Any, settings: NAdam, lr: Any, counts: list[Any], gradient: Any, parameter: Any, mean: Any, square: Any
) -> Sequence[Any]:
    taken = exactly(counts[0] + 1)
    now, ahead = [settings.beta1 * (1 - 0.5 * 0.96 ** (at * settings.momentum_decay)) for at in (taken, taken + 1)]
    product = counts[1] * as_factor(now, counts[1])
    so_far = exactly(product)  # as it is kept
    gradient, parameter = slope_and_start(settings, lr, gradient, parameter)
    mean = average(mean, gradient, 1 - settings.beta1)
    square = average_square(square, gradient, settings.beta2)
    root = xp.sqrt(square) / as_factor(xp.sqrt(1 - settings.beta2**taken), square) + settings.eps
    by_gradient = as_factor(lr * (1 - now) / (1 - so_far), mean)
    by_mean = as_factor(lr * ahead / (1 - so_far * ahead), mean)
    return parameter - gradient / root * by_gradient - mean / root * by_mean, mean, square, taken, product


@moves("radam")
def _radam(
    xp: Any, settings: RAdam, lr: Any, counts: list[Any], gradient: Any, parameter: Any, mean: Any, square: Any
) -> Sequence[Any]:
    taken = exactly(counts[0] + 1)
    gradient, parameter = slope_and_start(settings, lr, gradient, parameter)
    mean = average(mean, gradient, 1 - settings.beta1)
    square = average_square(square, gradient, settings.beta2)
    left = 1 - settings.beta2**taken
    trusted, trust = _trust(xp, settings.beta2, taken, left)
    size = lr / (1 - settings.beta1**taken)
    scaled = mean / (xp.sqrt(square) + settings.eps) * as_factor(size * trust * xp.sqrt(left), mean)
    step = xp.where(trusted, scaled, mean * as_factor(size, mean))
    return parameter - step, mean, square, taken


def _trust(xp: Any, beta2: float, taken: Any, left: Any) -> tuple[Any, Any]:
    """Whether so many steps tell the variance of the gradient, and how far it is trusted then."""
    longest = 2 / (1 - beta2) - 1
    length = longest - 2 * taken * beta2**taken / left
    trusted = length > 5
    length = xp.where(trusted, length, longest)
    ratio = (length - 4) * (length - 2) * longest / ((longest - 4) * (longest - 2) * length)
    return trusted, xp.sqrt(ratio)


@moves("adamax")
def _adamax(
    xp: Any, settings: Adamax, lr: Any, counts: list[Any], gradient: Any, parameter: Any, mean: Any, largest: Any
) -> Sequence[Any]:
    taken = exactly(counts[0] + 1)
    gradient = decayed(settings, gradient, parameter)
    mean = average(mean, gradient, 1 - settings.beta1)
    largest = xp.maximum(largest * settings.beta2, xp.abs(gradient) + settings.eps)
    size = as_factor(lr / (1 - settings.beta1**taken), mean)
    return parameter - mean / largest * size, mean, largest, taken


# Adam's direction, with a step for each parameter in proportion to its norm


@moves("lamb")
def _lamb(
    xp: Any, settings: LAMB, lr: Any, counts: list[Any], gradient: Any, parameter: Any, mean: Any, square: Any
) -> Sequence[Any]:
    taken = exactly(counts[0] + 1)
    slope = -gradient if settings.maximize else gradient
    if settings.weight_decay and not settings.decoupled:
        slope = slope + parameter * settings.weight_decay
    mean = average(mean, slope, 1 - settings.beta1)
    square = average_square(square, slope, settings.beta2)
    direction = _direction_of_lamb(xp, settings, taken, mean, square)
    of_parameter = xp.sum(parameter * parameter, dtype=np.float64)
    of_direction = xp.sum(direction * direction, dtype=np.float64)
    known = (of_parameter > 0) & (of_direction > 0)
    ratio = xp.sqrt(xp.where(known, of_parameter / xp.where(known, of_direction, 1), 1))
    if settings.decoupled and settings.weight_decay:
        direction = direction + parameter * settings.weight_decay
    return parameter - direction * as_factor(lr * ratio, direction), mean, square, taken


def _direction_of_lamb(xp: Any, settings: LAMB, taken: Any, mean: Any, square: Any) -> Any:
    root = xp.sqrt(square)
    if not settings.corrected:
        return mean / (root + settings.eps)
    root = root / as_factor(xp.sqrt(1 - settings.beta2**taken), root) + settings.eps
    return mean / root / as_factor(1 - settings.beta1**taken, mean)
