"""What the elementwise optimizers share: collecting a group's tensors into one `Update`, and walking through them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

import numpy as np

from vmflow.instructions.blob import Array
from vmflow.kernels.updates import Steps, change_pieces
from vmflow.multi_tensor import Update
from vmflow.ops.creation import full, full_like
from vmflow.tensors import Tensor

if TYPE_CHECKING:
    from .optimizer import Optimizer

# First values of what most of them keep: how many steps a parameter took, and Adam's two running averages.
COUNTS: Final = {"step": 0.0}
AVERAGES: Final = {"exp_avg": 0.0, "exp_avg_sq": 0.0}

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


def with_gradients(group: dict[str, Any]) -> list[Tensor]:
    """The parameters of a group that have a gradient."""
    return [it for it in group["params"] if it.grad is not None]


def remember(
    optimizer: Optimizer, parameter: Tensor, counts: Mapping[str, float], shaped: Mapping[str, complex]
) -> dict[str, Any]:
    """The parameter's state, in which what was missing now has its first value.

    Args:
        optimizer: whose state it is.
        parameter: whose state it is.
        counts: first values of the numbers that are kept with it.
        shaped: first values of every element of the tensors of its shape.
    """
    state = optimizer.state[parameter]
    for name, value in counts.items():
        if name not in state:
            state[name] = full((), value, device=parameter.device)
    for name, fill in shaped.items():
        if name not in state:
            state[name] = full_like(parameter, fill, requires_grad=False)
    return state


def group_update(
    optimizer: Optimizer,
    group: dict[str, Any],
    change: Change,
    *,
    counts: Mapping[str, float],
    shaped: Mapping[str, complex],
    cost: int,
    together: Together | None = None,
) -> Update | None:
    """A step of a group, parameter by parameter; None if no parameter of it has a gradient.

    Args:
        optimizer: whose state to use and to begin.
        group: one of its groups.
        change: see `Change`.
        counts, shaped: see `remember`.
        cost: nanoseconds per element, estimated.
        together: asked first, see `Together`.
    """
    parameters = with_gradients(group)
    if not parameters:
        return None
    states = [remember(optimizer, it, counts, shaped) for it in parameters]
    rate = group["lr"]
    by_tensor = isinstance(rate, Tensor)

    def kernel(inputs: list[Array], outputs: list[Array]) -> None:
        taken = float(inputs[-1].item()) if by_tensor else rate
        count = len(inputs) - by_tensor
        done = set(() if together is None else together(taken, inputs[:count], outputs))
        for position, gradient in enumerate(inputs[:count]):
            if position not in done:
                change(taken, gradient, outputs[position::count])

    inputs = [it.grad for it in parameters] + ([rate] if by_tensor else [])
    outputs = [*parameters]
    for name in (*shaped, *counts):
        outputs += [state[name] for state in states]
    elements = sum([it.numel() for it in parameters])
    return Update(f"{type(optimizer).__name__}.step", kernel, inputs, outputs, cost * elements)


def elementwise_update(
    optimizer: Optimizer,
    group: dict[str, Any],
    plan: Plan[Planned],
    move: Move[Planned],
    *,
    counts: Mapping[str, float],
    shaped: Mapping[str, complex],
    scratch: int,
    cost: int,
    steps: Steps | None = None,
    numbers: Callable[[Planned], tuple[float, ...]] | None = None,
    settings: tuple[float, ...] = (),
) -> Update | None:
    """A step of a group, piece by piece; None if no parameter of it has a gradient.

    Args:
        optimizer: whose state to use and to begin.
        group: one of its groups.
        plan, move: see `Plan` and `Move`.
        steps, numbers, settings: the same in C of many parameters at once, what each of them has for itself, and what
            all have in common; see `Steps`.
        counts, shaped: see `remember`.
        scratch: how many arrays `move` wants to work in.
        cost: nanoseconds per element, estimated.
    """
    kinds = 1 + len(shaped)

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
        step.take(own, *settings)
        return step.positions

    many = None if steps is None else together
    return group_update(optimizer, group, change, counts=counts, shaped=shaped, cost=cost, together=many)


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
