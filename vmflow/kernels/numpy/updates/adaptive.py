"""Optimizers that scale the step of each element by its past gradients, and ASGD, which averages the parameters."""

from __future__ import annotations

import numpy as np

from vmflow.instructions.blob import Array
from vmflow.kernels.problems.updates import ASGD, Adadelta, Adagrad, RMSprop, Rprop

from .elementwise import average, average_square, decayed, moves, root, step_along


def _plan_adagrad(settings: Adagrad, lr: float, counts: list[Array]) -> float:
    counts[0] += 1
    return float(lr / (1 + (float(counts[0]) - 1) * settings.lr_decay))


@moves("adagrad", _plan_adagrad, scratch=2)
def _adagrad(settings: Adagrad, size: float, arrays: list[Array]) -> None:
    parameter, total, gradient, scratch, work = arrays
    gradient = decayed(parameter, gradient, settings.weight_decay, settings.maximize, scratch)
    np.multiply(gradient, gradient, out=work)
    np.add(total, work, out=total)
    step_along(parameter, gradient, root(total, settings.eps, work), size)


@moves("adadelta", scratch=3)
def _adadelta(settings: Adadelta, lr: float, arrays: list[Array]) -> None:
    parameter, square, moved, gradient, scratch, work, change = arrays
    gradient = decayed(parameter, gradient, settings.weight_decay, settings.maximize, scratch)
    average_square(square, gradient, settings.rho, work)
    np.sqrt(np.add(square, settings.eps, out=work), out=work)
    np.sqrt(np.add(moved, settings.eps, out=change), out=change)
    np.divide(change, work, out=change)
    np.multiply(change, gradient, out=change)
    average_square(moved, change, settings.rho, work)
    np.multiply(change, lr, out=change)
    np.subtract(parameter, change, out=parameter)


@moves("rmsprop", scratch=2)
def _rmsprop(settings: RMSprop, lr: float, arrays: list[Array]) -> None:
    parameter, square, *more, gradient, scratch, work = arrays
    gradient = decayed(parameter, gradient, settings.weight_decay, settings.maximize, scratch)
    average_square(square, gradient, settings.alpha, work)
    if settings.centered:
        mean = more[-1]
        average(mean, gradient, 1 - settings.alpha, work)
        np.multiply(mean, mean, out=work)
        square = np.subtract(square, work, out=work)
    root(square, settings.eps, work)
    if settings.momentum:
        repeated = np.multiply(more[0], settings.momentum, out=more[0])
        np.add(repeated, np.divide(gradient, work, out=work), out=repeated)
        np.subtract(parameter, np.multiply(repeated, lr, out=work), out=parameter)
    else:
        step_along(parameter, gradient, work, lr)


def _plan_rprop(settings: Rprop, lr: float, counts: list[Array]) -> float | None:
    """Return the initial step size at a parameter's first step, else None; steps that were dropped do not count."""
    counts[0] += 1
    return lr if float(counts[0]) == 1 else None


@moves("rprop", _plan_rprop, scratch=2)
def _rprop(settings: Rprop, first: float | None, arrays: list[Array]) -> None:
    parameter, before, size, gradient, scratch, work = arrays
    if first is not None:
        size[...] = first
    slope = np.negative(gradient, out=scratch) if settings.maximize else gradient
    turned = np.multiply(slope, before, out=work)
    factors = np.where(turned > 0, settings.grow, np.where(turned < 0, settings.shrink, 1.0))
    np.multiply(size, factors, out=size)
    np.clip(size, settings.least, settings.most, out=size)
    before[...] = np.where(turned < 0, 0, slope)
    np.multiply(np.sign(before, out=work), size, out=work)
    np.subtract(parameter, work, out=parameter)


def _plan_asgd(settings: ASGD, lr: float, counts: list[Array]) -> tuple[float, float]:
    """Return the rate and weight of this step, which the one before has stored, and store those of the next.

    The first step's rate is `lr`.
    """
    step, eta, mu = counts
    step += 1
    taken = float(step)
    if taken == 1:
        eta[...] = lr
    rate, weight = float(eta), float(mu)
    eta[...] = lr / (1 + settings.lambd * lr * taken) ** settings.alpha
    mu[...] = 1 / max(1.0, taken - settings.t0)
    return rate, weight


@moves("asgd", _plan_asgd, scratch=2, counts=3)
def _asgd(settings: ASGD, planned: tuple[float, float], arrays: list[Array]) -> None:
    rate, weight = planned
    parameter, mean, gradient, scratch, work = arrays
    gradient = decayed(parameter, gradient, settings.weight_decay, settings.maximize, scratch)
    np.multiply(parameter, 1 - settings.lambd * rate, out=parameter)
    np.subtract(parameter, np.multiply(gradient, rate, out=work), out=parameter)
    if weight == 1:
        mean[...] = parameter  # exactly
    else:
        average(mean, parameter, weight, work)
