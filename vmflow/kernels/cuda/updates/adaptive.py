"""Steps of each element scaled by the gradients it has seen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vmflow.kernels.problems.updates import Adadelta, Adagrad, RMSprop, Rprop

from .declaring import as_factor, average, average_square, decayed, exactly, moves


@moves("adagrad")
def _adagrad(
    xp: Any, settings: Adagrad, lr: Any, counts: list[Any], gradient: Any, parameter: Any, total: Any
) -> Sequence[Any]:
    taken = exactly(counts[0] + 1)
    gradient = decayed(settings, gradient, parameter)
    total = total + gradient * gradient
    size = as_factor(lr / (1 + (taken - 1) * settings.lr_decay), gradient)
    return parameter - gradient / (xp.sqrt(total) + settings.eps) * size, total, taken


@moves("adadelta")
def _adadelta(
    xp: Any, settings: Adadelta, lr: Any, counts: list[Any], gradient: Any, parameter: Any, square: Any, moved: Any
) -> Sequence[Any]:
    gradient = decayed(settings, gradient, parameter)
    square = average_square(square, gradient, settings.rho)
    step = xp.sqrt(moved + settings.eps) / xp.sqrt(square + settings.eps) * gradient
    moved = average_square(moved, step, settings.rho)
    return parameter - step * as_factor(lr, step), square, moved, counts[0] + 1


@moves("rmsprop")
def _rmsprop(
    xp: Any, settings: RMSprop, lr: Any, counts: list[Any], gradient: Any, parameter: Any, square: Any, *kept: Any
) -> Sequence[Any]:
    more = list(kept)
    gradient = decayed(settings, gradient, parameter)
    square = average_square(square, gradient, settings.alpha)
    variance = square
    if settings.centered:
        more[-1] = average(more[-1], gradient, 1 - settings.alpha)
        variance = square - more[-1] * more[-1]
    step = gradient / (xp.sqrt(variance) + settings.eps)
    if settings.momentum:
        step = more[0] = more[0] * settings.momentum + step
    return parameter - step * as_factor(lr, step), square, *more, counts[0] + 1


@moves("rprop")
def _rprop(
    xp: Any, settings: Rprop, lr: Any, counts: list[Any], gradient: Any, parameter: Any, before: Any, size: Any
) -> Sequence[Any]:
    taken = exactly(counts[0] + 1)
    size = xp.where(taken == 1, as_factor(lr, size), size)
    slope = -gradient if settings.maximize else gradient
    turned = slope * before
    grown, shrunk = size * settings.grow, size * settings.shrink
    size = xp.clip(xp.where(turned > 0, grown, xp.where(turned < 0, shrunk, size)), settings.least, settings.most)
    before = xp.where(turned < 0, xp.zeros((), slope.dtype), slope)
    return parameter - xp.sign(before) * size, before, size, taken
