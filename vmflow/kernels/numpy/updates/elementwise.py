"""Code that elementwise optimizers share: steps of one parameter after the other, and arithmetic."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial, wraps
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np

from vmflow.instructions.blob import Array
from vmflow.kernels.problems.updates import COSTS
from vmflow.kernels.updates import declares_rule

from .pieces import change_pieces

# plan(settings, learning rate, the parameter's counts): advances the counts, and returns the numbers that `Move` needs.
Plan: TypeAlias = Callable[[Any, float, list[Array]], Any]

# move(settings, the plan's result, [parameter, *state, gradient, *scratch]) changes one piece of a parameter.
Move = TypeVar("Move", bound=Callable[..., None])


def rate_of(settings: Any, inputs: list[Array]) -> float:
    """Return the learning rate; if it is an array, it is the last of the inputs, and removed from them."""
    rate: float = float(inputs.pop().item()) if settings.lr is None else settings.lr
    return rate


def counted(settings: Any, lr: float, counts: list[Array]) -> float:
    """Count a step and return the learning rate: the plan of optimizers that need nothing else."""
    counts[0] += 1
    return lr


class Moving(NamedTuple):
    """An optimizer's steps, one parameter after the other, each piece by piece.

    Attributes:
        move: see `Move`.
        plan: called before each parameter is moved; see `Plan`.
        scratch: the number of scratch arrays of `move`.
        counts: the number of counts of each parameter.
        cost: nanoseconds per element, estimated.
    """

    move: Callable[..., None]
    plan: Plan
    scratch: int
    counts: int
    cost: int

    def step(
        self, settings: Any, lr: float, gradients: list[Array], outputs: list[Array], done: Collection[int] = ()
    ) -> None:
        """Move all parameters except those at the positions `done`."""
        for position, gradient in enumerate(gradients):
            if position not in done:
                written = outputs[position :: len(gradients)]
                shaped, counts = written[: -self.counts], written[-self.counts :]
                move = partial(self.move, settings, self.plan(settings, lr, counts))
                change_pieces(move, shaped, [gradient], self.scratch, self.cost)


def moves(rule: str, plan: Plan = counted, *, scratch: int, counts: int = 1) -> Callable[[Move], Move]:
    """Declare that the decorated function moves parameters by this rule; see `Moving`."""

    def declare(move: Move) -> Move:
        moving = Moving(move, plan, scratch, counts, COSTS[rule])

        @declares_rule(rule)
        @wraps(move)
        def step(settings: Any, inputs: list[Array], outputs: list[Array]) -> None:
            moving.step(settings, rate_of(settings, inputs), inputs, outputs)

        return move

    return declare


def decayed(parameter: Array, gradient: Array, weight_decay: float, maximize: bool, scratch: Array) -> Array:
    """Return the gradient to descend along, with ``weight_decay * parameter`` added; in `scratch` unless unchanged."""
    if weight_decay:
        decay = np.multiply(parameter, weight_decay, out=scratch)
        return np.subtract(decay, gradient, out=scratch) if maximize else np.add(decay, gradient, out=scratch)
    return np.negative(gradient, out=scratch) if maximize else gradient


def slope_of(settings: Any, lr: float, parameter: Array, gradient: Array, scratch: Array) -> Array:
    """Like `decayed`, but a decoupled decay scales down the parameter itself, immediately."""
    decay, decoupled = settings.weight_decay, settings.decoupled
    if decay and decoupled:
        np.multiply(parameter, 1 - lr * decay, out=parameter)
    return decayed(parameter, gradient, 0.0 if decoupled else decay, settings.maximize, scratch)


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


def average_both(settings: Any, running: Array, square: Array, gradient: Array, work: Array) -> None:
    """Advance the averages of the gradient and of its square."""
    average(running, gradient, 1 - settings.beta1, work)
    average_square(square, gradient, settings.beta2, work)


def root(square: Array, eps: float, out: Array, correction: float = 1.0) -> Array:
    """``sqrt(square) / correction + eps``."""
    np.sqrt(square, out=out)
    if correction != 1.0:
        np.divide(out, correction, out=out)
    return np.add(out, eps, out=out)


def step_along(parameter: Array, numerator: Array, denominator: Array, size: float) -> None:
    """``parameter -= size * numerator / denominator``; overwrites the denominator."""
    np.divide(numerator, denominator, out=denominator)
    np.multiply(denominator, size, out=denominator)
    np.subtract(parameter, denominator, out=parameter)
