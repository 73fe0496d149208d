"""Steps scaled by running averages of the gradient: Adam and related optimizers."""

from __future__ import annotations

from math import sqrt
from typing import Final, TypeAlias

import numpy as np

from vmflow.instructions.blob import Array
from vmflow.kernels.native.steps import Steps
from vmflow.kernels.problems.updates import COSTS, LAMB, Adam, Adamax, NAdam, RAdam
from vmflow.kernels.updates import declares_rule

from .elementwise import Moving, average, average_both, decayed, moves, rate_of, root, slope_of, step_along
from .pieces import updated

# The learning rate; the learning rate corrected for the gradient's average, which begins at 0; and the divisor that
# corrects the root of the squares' average.
_Rates: TypeAlias = tuple[float, float, float]


def _plan_adam(settings: Adam, lr: float, counts: list[Array]) -> _Rates:
    counts[0] += 1
    taken = float(counts[0])
    if not settings.corrected:
        return lr, lr, 1.0
    return lr, lr / (1 - settings.beta1**taken), sqrt(1 - settings.beta2**taken)


def _move_adam(settings: Adam, rates: _Rates, arrays: list[Array]) -> None:
    lr, size, correction = rates
    parameter, running, square, *largest, gradient, scratch, work = arrays
    gradient = slope_of(settings, lr, parameter, gradient, scratch)
    average_both(settings, running, square, gradient, work)
    if settings.amsgrad:
        square = np.maximum(largest[0], square, out=largest[0])
    # The bias correction of the root moves into two numbers, eps and the step's size, which saves a pass.
    step_along(parameter, running, root(square, settings.eps * correction, work), size * correction)


_ADAM: Final = Moving(_move_adam, _plan_adam, scratch=2, counts=1, cost=COSTS["adam"])


@declares_rule("adam", memory=lambda: Steps("adam_steps"))
def _adam(steps: Steps, settings: Adam, inputs: list[Array], outputs: list[Array]) -> None:
    lr = rate_of(settings, inputs)
    done = () if settings.amsgrad else set(_together(steps, settings, lr, inputs, outputs))
    _ADAM.step(settings, lr, inputs, outputs, done)


def _together(steps: Steps, settings: Adam, lr: float, gradients: list[Array], outputs: list[Array]) -> list[int]:
    """Take the steps of the parameters for which C can; return these parameters' positions."""
    count = len(gradients)
    step = steps.begin([outputs[start : start + count] for start in range(0, 3 * count, count)], gradients)
    if step is None:
        return []
    apart = settings.weight_decay if settings.decoupled else 0.0
    own: list[float] = []
    for position in step.positions:
        _, size, correction = _plan_adam(settings, lr, [outputs[3 * count + position]])
        own += [1 - lr * apart if apart else 1.0, settings.eps * correction, size * correction]
    coupled = 0.0 if settings.decoupled else settings.weight_decay
    step.take(own, coupled, settings.maximize, settings.beta1, settings.beta2)
    return step.positions


def _plan_nadam(settings: NAdam, lr: float, counts: list[Array]) -> tuple[float, float, float, float]:
    step, product = counts
    step += 1
    taken = float(step)
    now, ahead = [
        settings.beta1 * (1 - 0.5 * 0.96 ** (value * settings.momentum_decay)) for value in (taken, taken + 1)
    ]
    product *= now
    so_far = float(product)
    correction = sqrt(1 - settings.beta2**taken)
    return lr, lr * (1 - now) / (1 - so_far), lr * ahead / (1 - so_far * ahead), correction


@moves("nadam", _plan_nadam, scratch=3, counts=2)
def _nadam(settings: NAdam, planned: tuple[float, float, float, float], arrays: list[Array]) -> None:
    lr, by_gradient, by_average, correction = planned
    parameter, running, square, gradient, scratch, work, below = arrays
    gradient = slope_of(settings, lr, parameter, gradient, scratch)
    average_both(settings, running, square, gradient, work)
    root(square, settings.eps, below, correction)
    work[...] = below
    step_along(parameter, gradient, work, by_gradient)
    step_along(parameter, running, below, by_average)


def _plan_radam(settings: RAdam, lr: float, counts: list[Array]) -> tuple[float, float, bool]:
    counts[0] += 1
    taken = float(counts[0])
    beta2 = settings.beta2
    longest = 2 / (1 - beta2) - 1
    left = 1 - beta2**taken
    size = lr / (1 - settings.beta1**taken)
    length = longest - 2 * taken * beta2**taken / left
    if length <= 5:
        return lr, size, False
    trust = (length - 4) * (length - 2) * longest / ((longest - 4) * (longest - 2) * length)
    return lr, size * sqrt(trust) * sqrt(left), True


@moves("radam", _plan_radam, scratch=2)
def _radam(settings: RAdam, planned: tuple[float, float, bool], arrays: list[Array]) -> None:
    lr, size, scaled = planned
    parameter, running, square, gradient, scratch, work = arrays
    gradient = slope_of(settings, lr, parameter, gradient, scratch)
    average_both(settings, running, square, gradient, work)
    if scaled:
        step_along(parameter, running, root(square, settings.eps, work), size)
    else:
        np.multiply(running, size, out=work)
        np.subtract(parameter, work, out=parameter)


def _plan_adamax(settings: Adamax, lr: float, counts: list[Array]) -> float:
    counts[0] += 1
    return float(lr / (1 - settings.beta1 ** float(counts[0])))


@moves("adamax", _plan_adamax, scratch=2)
def _adamax(settings: Adamax, size: float, arrays: list[Array]) -> None:
    parameter, running, largest, gradient, scratch, work = arrays
    gradient = decayed(parameter, gradient, settings.weight_decay, settings.maximize, scratch)
    average(running, gradient, 1 - settings.beta1, work)
    np.abs(gradient, out=work)
    np.add(work, settings.eps, out=work)
    np.multiply(largest, settings.beta2, out=largest)
    np.maximum(largest, work, out=largest)
    work[...] = largest
    step_along(parameter, running, work, size)


# Adam's direction, and steps in proportion to each parameter's norm


@declares_rule("lamb")
def _lamb(settings: LAMB, inputs: list[Array], outputs: list[Array]) -> None:
    lr = rate_of(settings, inputs)
    for position, gradient in enumerate(inputs):
        _step_of_lamb(settings, lr, gradient, outputs[position :: len(inputs)])


def _step_of_lamb(settings: LAMB, lr: float, gradient: Array, written: list[Array]) -> None:
    """Take one parameter's step in two passes: the norms of parameter and direction are needed first."""
    parameter, running, square, step = written
    apart, coupled = (settings.weight_decay, 0.0)[:: 1 if settings.decoupled else -1]
    step += 1
    first = 1 - settings.beta1 ** float(step) if settings.corrected else 1.0
    second = sqrt(1 - settings.beta2 ** float(step)) if settings.corrected else 1.0

    def direction(mean: Array, variance: Array, out: Array) -> Array:
        root(variance, settings.eps, out, second)
        np.divide(mean, out, out=out)
        return np.divide(out, first, out=out)

    of_parameter, of_direction = 0.0, 0.0
    for mean, variance, place, slope, scratch, work in updated([running, square], [parameter, gradient], scratch=2):
        slope = decayed(place, slope, coupled, settings.maximize, scratch)
        average_both(settings, mean, variance, slope, work)
        of_parameter += _sum_of_squares(place)
        of_direction += _sum_of_squares(direction(mean, variance, work))
    ratio = sqrt(of_parameter / of_direction) if of_parameter > 0 and of_direction > 0 else 1.0
    for place, mean, variance, scratch, work in updated([parameter], [running, square], scratch=2):
        way = direction(mean, variance, work)
        if apart:
            way = np.add(way, np.multiply(place, apart, out=scratch), out=way)
        np.subtract(place, np.multiply(way, lr * ratio, out=way), out=place)


def _sum_of_squares(array: Array) -> float:
    flat = array.reshape(-1)
    return float(np.dot(flat, flat))
