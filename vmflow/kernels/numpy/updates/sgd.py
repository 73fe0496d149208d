"""Gradient descent, with momentum."""

from __future__ import annotations

from functools import partial
from typing import TypeAlias

import numpy as np

from vmflow.instructions.blob import Array
from vmflow.kernels.native.steps import Steps
from vmflow.kernels.problems.updates import SGD
from vmflow.kernels.updates import declares_rule

from .elementwise import decayed, rate_of
from .pieces import change_pieces

# Steps without momentum and with it, which write different arrays.
_Steps: TypeAlias = tuple[Steps, Steps]


@declares_rule("sgd", memory=lambda: (Steps("sgd_steps"), Steps("sgd_momentum_steps")))
def _sgd(memory: _Steps, settings: SGD, inputs: list[Array], outputs: list[Array]) -> None:
    lr, count = rate_of(settings, inputs), len(inputs)
    taken = set(_together(settings, memory[1 if settings.momentum else 0], inputs, outputs, lr))
    for position, gradient in enumerate(inputs):
        if position in taken:
            continue
        written, first = outputs[position::count], bool(settings.momentum) and not settings.filled[position][0]
        move = partial(_move, settings, lr, first)
        change_pieces(move, written, [gradient], scratch=1 + settings.nesterov, cost=2 + len(written))
    for flag in settings.filled:
        flag[0] = True


def _together(settings: SGD, steps: Steps, inputs: list[Array], outputs: list[Array], lr: float) -> list[int]:
    """Take the steps of the parameters for which C can; return these parameters' positions."""
    count = len(inputs)
    kinds = [outputs[start : start + count] for start in range(0, len(outputs), count)]
    step = steps.begin(kinds, inputs)
    if step is None:
        return []
    _, momentum, dampening, decay, nesterov, maximize, filled = settings
    if momentum:
        empty = [float(not filled[position][0]) for position in step.positions]
        step.take(empty, lr, decay, momentum, 1 - dampening, maximize, nesterov)
    else:
        step.take((), lr, decay, maximize)
    return step.positions


def _move(settings: SGD, lr: float, first: bool, arrays: list[Array]) -> None:
    gradient, *scratch = arrays[2 if settings.momentum else 1 :]
    direction = decayed(arrays[0], gradient, settings.weight_decay, settings.maximize, scratch[0])
    if settings.momentum:
        direction = _with_momentum(settings, direction, arrays[1], scratch, first)
    step = np.multiply(direction, lr, out=scratch[0])
    np.subtract(arrays[0], step, out=arrays[0])


def _with_momentum(settings: SGD, direction: Array, running: Array, scratch: list[Array], first: bool) -> Array:
    if first:
        running[...] = direction
    else:
        np.multiply(running, settings.momentum, out=running)
        dampening = settings.dampening
        taken = np.multiply(direction, 1 - dampening, out=scratch[0]) if dampening else direction
        np.add(running, taken, out=running)
    if not settings.nesterov:
        return running
    ahead = np.multiply(running, settings.momentum, out=scratch[1])
    return np.add(direction, ahead, out=ahead)
