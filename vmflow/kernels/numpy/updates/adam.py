"""Steps scaled by running averages of the gradient: Adam and its kin."""

from __future__ import annotations

from math import sqrt

import numpy as np

from vmflow.instructions.blob import Array
from vmflow.kernels.native.steps import Steps
from vmflow.kernels.problems.updates import COSTS, Adam, Adamax, NAdam, RAdam
from vmflow.kernels.updates import UpdateKernel, builds_update

from .elementwise import average, average_square, decayed, elementwise_kernel, root, step_along


@builds_update("adam", memory=lambda: Steps("adam_steps"))
def _adam(steps: Steps, settings: Adam) -> UpdateKernel:
    lr, beta1, beta2, eps, weight_decay, decoupled, amsgrad, maximize = settings
    coupled, apart = _decays(weight_decay, decoupled)

    def plan(lr: float, counts: list[Array]) -> tuple[float, float, float]:
        counts[0] += 1
        taken = float(counts[0])
        return lr, lr / (1 - beta1**taken), sqrt(1 - beta2**taken)

    def move(planned: tuple[float, float, float], arrays: list[Array]) -> None:
        lr, size, correction = planned
        parameter, running, square, *largest, gradient, room, work = arrays
        if apart:
            np.multiply(parameter, 1 - lr * apart, out=parameter)
        gradient = decayed(parameter, gradient, coupled, maximize, room)
        average(running, gradient, 1 - beta1, work)
        average_square(square, gradient, beta2, work)
        if amsgrad:
            square = np.maximum(largest[0], square, out=largest[0])
        # The correction of the root, taken out of the fraction, is a number and not one more pass.
        step_along(parameter, running, root(square, eps * correction, work), size * correction)

    def numbers(planned: tuple[float, float, float]) -> tuple[float, float, float]:
        lr, size, correction = planned
        return 1 - lr * apart if apart else 1.0, eps * correction, size * correction

    cost = COSTS["adam"]
    if amsgrad:
        return elementwise_kernel(lr, plan, move, kinds=4, scratch=2, cost=cost)
    shared = coupled, maximize, beta1, beta2
    return elementwise_kernel(
        lr, plan, move, kinds=3, scratch=2, cost=cost, steps=steps, numbers=numbers, shared=shared
    )


@builds_update("nadam")
def _nadam(settings: NAdam) -> UpdateKernel:
    lr, beta1, beta2, eps, weight_decay, decoupled, slowness, maximize = settings
    coupled, apart = _decays(weight_decay, decoupled)

    def momentum(step: float) -> float:
        return float(beta1 * (1 - 0.5 * 0.96 ** (step * slowness)))

    def plan(lr: float, counts: list[Array]) -> tuple[float, float, float, float]:
        step, product = counts
        step += 1
        taken = float(step)
        now, ahead = momentum(taken), momentum(taken + 1)
        product *= now
        so_far = float(product)
        return (
            lr,
            lr * (1 - now) / (1 - so_far),
            lr * ahead / (1 - so_far * ahead),
            sqrt(1 - beta2**taken),
        )

    def move(planned: tuple[float, float, float, float], arrays: list[Array]) -> None:
        lr, by_gradient, by_average, correction = planned
        parameter, running, square, gradient, room, work, below = arrays
        if apart:
            np.multiply(parameter, 1 - lr * apart, out=parameter)
        gradient = decayed(parameter, gradient, coupled, maximize, room)
        average(running, gradient, 1 - beta1, work)
        average_square(square, gradient, beta2, work)
        root(square, eps, below, correction)
        work[...] = below
        step_along(parameter, gradient, work, by_gradient)
        step_along(parameter, running, below, by_average)

    return elementwise_kernel(lr, plan, move, kinds=3, scratch=3, cost=COSTS["nadam"])


@builds_update("radam")
def _radam(settings: RAdam) -> UpdateKernel:
    lr, beta1, beta2, eps, weight_decay, decoupled, maximize = settings
    coupled, apart = _decays(weight_decay, decoupled)
    longest = 2 / (1 - beta2) - 1

    def plan(lr: float, counts: list[Array]) -> tuple[float, float, bool]:
        counts[0] += 1
        taken = float(counts[0])
        left = 1 - beta2**taken
        size = lr / (1 - beta1**taken)
        length = longest - 2 * taken * beta2**taken / left
        if length <= 5:
            return lr, size, False
        trust = (length - 4) * (length - 2) * longest / ((longest - 4) * (longest - 2) * length)
        return lr, size * sqrt(trust) * sqrt(left), True

    def move(planned: tuple[float, float, bool], arrays: list[Array]) -> None:
        lr, size, scaled = planned
        parameter, running, square, gradient, room, work = arrays
        if apart:
            np.multiply(parameter, 1 - lr * apart, out=parameter)
        gradient = decayed(parameter, gradient, coupled, maximize, room)
        average(running, gradient, 1 - beta1, work)
        average_square(square, gradient, beta2, work)
        if scaled:
            step_along(parameter, running, root(square, eps, work), size)
        else:
            np.multiply(running, size, out=work)
            np.subtract(parameter, work, out=parameter)

    return elementwise_kernel(lr, plan, move, kinds=3, scratch=2, cost=COSTS["radam"])


@builds_update("adamax")
def _adamax(settings: Adamax) -> UpdateKernel:
    lr, beta1, beta2, eps, weight_decay, maximize = settings

    def plan(lr: float, counts: list[Array]) -> float:
        counts[0] += 1
        return float(lr / (1 - beta1 ** float(counts[0])))

    def move(size: float, arrays: list[Array]) -> None:
        parameter, running, largest, gradient, room, work = arrays
        gradient = decayed(parameter, gradient, weight_decay, maximize, room)
        average(running, gradient, 1 - beta1, work)
        np.abs(gradient, out=work)
        np.add(work, eps, out=work)
        np.multiply(largest, beta2, out=largest)
        np.maximum(largest, work, out=largest)
        work[...] = largest
        step_along(parameter, running, work, size)

    return elementwise_kernel(lr, plan, move, kinds=3, scratch=2, cost=COSTS["adamax"])


def _decays(weight_decay: float, decoupled: bool) -> tuple[float, float]:
    """The decay of weights that passes through the averages, and that which does not; one of them is 0."""
    return (0.0, weight_decay) if decoupled else (weight_decay, 0.0)
