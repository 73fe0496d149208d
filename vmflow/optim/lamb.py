"""`LAMB`: Adam's direction, with a step for each parameter in proportion to its norm."""

from __future__ import annotations

from math import sqrt
from typing import Any, Unpack

import numpy as np

from vmflow.instructions.blob import Array
from vmflow.kernels.updates import updated
from vmflow.multi_tensor import Update
from vmflow.tensors import Tensor

from .elementwise import AVERAGES, COUNTS, average, average_square, decayed, group_update, root
from .optimizer import Execution, Optimizer, Parameters, check_averaging


class LAMB(Optimizer):
    """LAMB (You and others, 2020), for large batches; arguments and rule are OneFlow's.

    Adam's direction ``u`` of each parameter is scaled by the norms of parameter and direction,
    ``p -= lr * (|p| / |u|) * (u + weight_decay * p)``; the ratio is 1 where one of the norms is 0.

    Args:
        params: parameters, or dicts of groups; see `Optimizer`.
        lr: the learning rate, a number or a scalar tensor.
        betas: how much of the running averages of the gradient and of its square stays at each step.
        eps: added to the root of the latter.
        weight_decay: how much of the parameter is taken off, as above.
        adam_w_mode: if False, the decay is added to the gradient instead.
        do_bias_correction: make up for the averages' beginning at 0.
        amsgrad: not supported.
        maximize: go up instead of down.
        execution: see `Execution`.

    Raises:
        ValueError: for settings that make no sense, and for `amsgrad`.
    """

    shaped = tuple(AVERAGES)

    def __init__(
        self,
        params: Parameters,
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        adam_w_mode: bool = True,
        do_bias_correction: bool = True,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        **execution: Unpack[Execution],
    ) -> None:
        settings = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "adam_w_mode": adam_w_mode,
            "do_bias_correction": do_bias_correction,
            "amsgrad": amsgrad,
            "maximize": maximize,
        }
        super().__init__(params, settings, execution)

    def check_group(self, group: dict[str, Any]) -> None:
        check_averaging("LAMB", group)
        if group["amsgrad"]:
            raise ValueError("LAMB: amsgrad is not supported; Adam has it")

    def update(self, group: dict[str, Any]) -> Update | None:
        settings = dict(group)

        def change(lr: float, gradient: Array, written: list[Array]) -> None:
            _step(settings, lr, gradient, *written)

        return group_update(self, group, change, counts=COUNTS, shaped=AVERAGES, cost=8)


def _step(
    settings: dict[str, Any], lr: float, gradient: Array, parameter: Array, running: Array, square: Array, step: Array
) -> None:
    """One parameter, in two passes: both norms must be known before anything moves."""
    (beta1, beta2), eps, maximize = settings["betas"], settings["eps"], settings["maximize"]
    apart, coupled = (settings["weight_decay"], 0.0)[:: 1 if settings["adam_w_mode"] else -1]
    step += 1
    corrected = settings["do_bias_correction"]
    first = 1 - beta1 ** float(step) if corrected else 1.0
    second = sqrt(1 - beta2 ** float(step)) if corrected else 1.0

    def direction(mean: Array, variance: Array, out: Array) -> Array:
        root(variance, eps, out, second)
        np.divide(mean, out, out=out)
        return np.divide(out, first, out=out)

    of_parameter, of_direction = 0.0, 0.0
    for piece in updated([running, square], [parameter, gradient], scratch=2):
        mean, variance, place, slope, room, work = piece
        slope = decayed(place, slope, coupled, maximize, room)
        average(mean, slope, 1 - beta1, work)
        average_square(variance, slope, beta2, work)
        of_parameter += _sum_of_squares(place)
        of_direction += _sum_of_squares(direction(mean, variance, work))
    ratio = sqrt(of_parameter / of_direction) if of_parameter > 0 and of_direction > 0 else 1.0
    for place, mean, variance, room, work in updated([parameter], [running, square], scratch=2):
        way = direction(mean, variance, work)
        if apart:
            way = np.add(way, np.multiply(place, apart, out=room), out=way)
        np.subtract(place, np.multiply(way, lr * ratio, out=way), out=place)


def _sum_of_squares(array: Array) -> float:
    flat = array.reshape(-1)
    return float(np.dot(flat, flat))
