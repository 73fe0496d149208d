"""What elementwise rules of optimizers share: one parameter after the other, each piece by piece, and arithmetic."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias, TypeVar

import numpy as np

from vmflow.instructions.blob import Array
from vmflow.kernels.native.steps import Steps
from vmflow.kernels.updates import UpdateKernel

from .pieces import change_pieces

Planned = TypeVar("Planned")

# plan(learning rate, the parameter's counts): advances the counts, and returns what `Move` needs of them.
Plan: TypeAlias = Callable[[float, list[Array]], Planned]

# move(what was planned, [parameter, *shaped, gradient, *scratch]) for one piece of a parameter.
Move: TypeAlias = Callable[[Planned, list[Array]], None]

# change(learning rate, gradient, [parameter, *shaped, *counts]) for one parameter.
Change: TypeAlias = Callable[[float, Array, list[Array]], None]

# together(learning rate, gradients, [*parameters, *shaped of the first kind, ..., *counts]): changes some parameters by
# one call, and says which, by position.
Together: TypeAlias = Callable[[float, list[Array], list[Array]], list[int]]


def group_kernel(lr: float | None, change: Change, together: Together | None = None) -> UpdateKernel:
    """A step of some parameters, one after the other.

    Args:
        lr: the learning rate; None if it is the last input.
        change: see `Change`.
        together: asked first, see `Together`.
    """

    def kernel(inputs: list[Array], outputs: list[Array]) -> None:
        rate = float(inputs[-1].item()) if lr is None else lr
        count = len(inputs) - (lr is None)
        done = set(() if together is None else together(rate, inputs[:count], outputs))
        for position, gradient in enumerate(inputs[:count]):
            if position not in done:
                change(rate, gradient, outputs[position::count])

    return kernel


def elementwise_kernel(
    lr: float | None,
    plan: Plan[Planned],
    move: Move[Planned],
    *,
    kinds: int,
    scratch: int,
    cost: int,
    steps: Steps | None = None,
    numbers: Callable[[Planned], tuple[float, ...]] | None = None,
    shared: tuple[float, ...] = (),
) -> UpdateKernel:
    """A step of some parameters, piece by piece.

    Args:
        lr: see `group_kernel`.
        plan, move: see `Plan` and `Move`.
        kinds: how many arrays of its shape are written of each parameter, itself among them.
        scratch: how many arrays `move` wants to work in.
        cost: nanoseconds per element, estimated.
        steps, numbers, shared: the same in C of many parameters at once, what each of them has for itself, and what all
            have in common; see `Steps`.
    """

    def change(rate: float, gradient: Array, written: list[Array]) -> None:
        planned = plan(rate, written[kinds:])
        change_pieces(lambda arrays: move(planned, arrays), written[:kinds], [gradient], scratch, cost)

    def together(rate: float, gradients: list[Array], outputs: list[Array]) -> list[int]:
        assert steps is not None
        assert numbers is not None
        count = len(gradients)
        columns = [outputs[kind * count : (kind + 1) * count] for kind in range(kinds)]
        step = steps.begin(columns, gradients)
        if step is None:
            return []
        own = [number for it in step.positions for number in numbers(plan(rate, outputs[it::count][kinds:]))]
        step.take(own, *shared)
        return step.positions

    return group_kernel(lr, change, None if steps is None else together)


def counted(lr: float, counts: list[Array]) -> float:
    """The plan of a rule that needs the rate alone."""
    counts[0] += 1
    return lr


def decayed(parameter: Array, gradient: Array, weight_decay: float, maximize: bool, room: Array) -> Array:
    """The gradient to go down by, with so much of the parameter added to it; in `room` unless it is the gradient."""
    if weight_decay:
        decay = np.multiply(parameter, weight_decay, out=room)
        return np.subtract(decay, gradient, out=room) if maximize else np.add(decay, gradient, out=room)
    return np.negative(gradient, out=room) if maximize else gradient


def average(running: Array, value: Array, weight: float, work: Array) -> None:
    """``running += weight * (value - running)``."""
    np.subtract(value, running, out=work)
    np.multiply(work, weight, out=work)
    np.add(running, work, out=running)


def average_square(running: Array, value: Array, keep: float, work: Array) -> None:
    """``running = keep * running + (1 - keep) * value ** 2``."""
    np.multiply(value, value, out=work)
    np.multiply(work, 1 - keep, out=work)
    np.multiply(running, keep, out=running)
    np.add(running, work, out=running)


def root(square: Array, eps: float, out: Array, correction: float = 1.0) -> Array:
    """``sqrt(square) / correction + eps``."""
    np.sqrt(square, out=out)
    if correction != 1.0:
        np.divide(out, correction, out=out)
    return np.add(out, eps, out=out)


def step_along(parameter: Array, numerator: Array, denominator: Array, size: float) -> None:
    """``parameter -= size * numerator / denominator``, in the memory of the denominator."""
    np.divide(numerator, denominator, out=denominator)
    np.multiply(denominator, size, out=denominator)
    np.subtract(parameter, denominator, out=parameter)
