"""Steps of each element scaled by the gradients it has seen."""

from __future__ import annotations

import numpy as np

from vmflow.instructions.blob import Array
from vmflow.kernels.problems.updates import COSTS, Adadelta, Adagrad, RMSprop, Rprop
from vmflow.kernels.updates import UpdateKernel, builds_update

from .elementwise import average, average_square, counted, decayed, elementwise_kernel, root, step_along


@builds_update("adagrad")
def _adagrad(settings: Adagrad) -> UpdateKernel:
    lr, slowing, eps, weight_decay, maximize = settings

    def plan(lr: float, counts: list[Array]) -> float:
        counts[0] += 1
        return float(lr / (1 + (float(counts[0]) - 1) * slowing))

    def move(size: float, arrays: list[Array]) -> None:
        parameter, total, gradient, room, work = arrays
        gradient = decayed(parameter, gradient, weight_decay, maximize, room)
        np.multiply(gradient, gradient, out=work)
        np.add(total, work, out=total)
        step_along(parameter, gradient, root(total, eps, work), size)

    return elementwise_kernel(lr, plan, move, kinds=2, scratch=2, cost=COSTS["adagrad"])


@builds_update("adadelta")
def _adadelta(settings: Adadelta) -> UpdateKernel:
    lr, rho, eps, weight_decay, maximize = settings

    def move(lr: float, arrays: list[Array]) -> None:
        parameter, square, moved, gradient, room, work, change = arrays
        gradient = decayed(parameter, gradient, weight_decay, maximize, room)
        average_square(square, gradient, rho, work)
        np.sqrt(np.add(square, eps, out=work), out=work)
        np.sqrt(np.add(moved, eps, out=change), out=change)
        np.divide(change, work, out=change)
        np.multiply(change, gradient, out=change)
        average_square(moved, change, rho, work)
        np.multiply(change, lr, out=change)
        np.subtract(parameter, change, out=parameter)

    return elementwise_kernel(lr, counted, move, kinds=3, scratch=3, cost=COSTS["adadelta"])


@builds_update("rmsprop")
def _rmsprop(settings: RMSprop) -> UpdateKernel:
    lr, alpha, eps, weight_decay, momentum, centered, maximize = settings

    def move(lr: float, arrays: list[Array]) -> None:
        parameter, square, *more, gradient, room, work = arrays
        gradient = decayed(parameter, gradient, weight_decay, maximize, room)
        average_square(square, gradient, alpha, work)
        if centered:
            mean = more[-1]
            average(mean, gradient, 1 - alpha, work)
            np.multiply(mean, mean, out=work)
            square = np.subtract(square, work, out=work)
        root(square, eps, work)
        if momentum:
            repeated = np.multiply(more[0], momentum, out=more[0])
            np.add(repeated, np.divide(gradient, work, out=work), out=repeated)
            np.subtract(parameter, np.multiply(repeated, lr, out=work), out=parameter)
        else:
            step_along(parameter, gradient, work, lr)

    kinds = 2 + bool(momentum) + bool(centered)
    return elementwise_kernel(lr, counted, move, kinds=kinds, scratch=2, cost=COSTS["rmsprop"])


@builds_update("rprop")
def _rprop(settings: Rprop) -> UpdateKernel:
    lr, shrink, grow, least, most, maximize = settings

    def plan(lr: float, counts: list[Array]) -> float | None:
        """The first step size at the first step, found out only here: earlier steps may have been dropped."""
        counts[0] += 1
        return lr if float(counts[0]) == 1 else None

    def move(first: float | None, arrays: list[Array]) -> None:
        parameter, before, size, gradient, room, work = arrays
        if first is not None:
            size[...] = first
        slope = np.negative(gradient, out=room) if maximize else gradient
        turned = np.multiply(slope, before, out=work)
        np.multiply(size, np.where(turned > 0, grow, np.where(turned < 0, shrink, 1.0)), out=size)
        np.clip(size, least, most, out=size)
        before[...] = np.where(turned < 0, 0, slope)
        np.multiply(np.sign(before, out=work), size, out=work)
        np.subtract(parameter, work, out=parameter)

    return elementwise_kernel(lr, plan, move, kinds=3, scratch=2, cost=COSTS["rprop"])
