"""`Adam` and its kin `AdamW`, `NAdam`, `RAdam` and `Adamax`: steps scaled by running averages of the gradient."""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt
from typing import Any, ClassVar, Unpack

import numpy as np

from vmflow.instructions.blob import Array
from vmflow.multi_tensor import Update
from vmflow.tensors import Tensor

from .elementwise import AVERAGES, COUNTS, average, average_square, decayed, elementwise_update, root, step_along
from .optimizer import Execution, Optimizer, Parameters, check_averaging


class Adam(Optimizer):
    """Adam (Kingma and Ba, 2015), with AMSGrad (Reddi, Kale and Kumar, 2018) on request.

    Args:
        params: parameters, or dicts of groups; see `Optimizer`.
        lr: the learning rate, a number or a scalar tensor.
        betas: how much of the running averages of the gradient and of its square stays at each step.
        eps: added to the root of the latter.
        weight_decay: adds so much of the parameter to its gradient; 0 if None, 0.01 with `AdamW`.
        amsgrad: scale by the largest average of the square so far.
        maximize: go up instead of down.
        decoupled_weight_decay: decay as `AdamW` does.
        execution: see `Execution`.

    Raises:
        ValueError: for settings that make no sense.
    """

    shaped = (*AVERAGES, "max_exp_avg_sq")
    decoupled: ClassVar[bool] = False
    usual_decay: ClassVar[float] = 0

    def __init__(
        self,
        params: Parameters,
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float | None = None,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        decoupled_weight_decay: bool = False,
        **execution: Unpack[Execution],
    ) -> None:
        settings = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": self.usual_decay if weight_decay is None else weight_decay,
            "amsgrad": amsgrad,
            "maximize": maximize,
            "decoupled_weight_decay": decoupled_weight_decay or self.decoupled,
        }
        super().__init__(params, settings, execution)

    def check_group(self, group: dict[str, Any]) -> None:
        check_averaging(type(self).__name__, group)

    def update(self, group: dict[str, Any]) -> Update | None:
        (beta1, beta2), eps, amsgrad = group["betas"], group["eps"], group["amsgrad"]
        decay = _decay_of(group, self.decoupled)

        def plan(lr: float, counts: list[Array]) -> tuple[float, float, float]:
            counts[0] += 1
            taken = float(counts[0])
            return lr, lr / (1 - beta1**taken), sqrt(1 - beta2**taken)

        def move(planned: tuple[float, float, float], arrays: list[Array]) -> None:
            lr, size, correction = planned
            parameter, running, square, *largest, gradient, room, work = arrays
            gradient = decay(lr, parameter, gradient, room)
            average(running, gradient, 1 - beta1, work)
            average_square(square, gradient, beta2, work)
            if amsgrad:
                square = np.maximum(largest[0], square, out=largest[0])
            # The correction of the root, taken out of the fraction, is a number and not one more pass.
            step_along(parameter, running, root(square, eps * correction, work), size * correction)

        apart, weight_decay = _decays_apart(group, self.decoupled), group["weight_decay"]
        maximize = group["maximize"]

        added = 0.0 if apart else weight_decay

        def numbers(planned: tuple[float, float, float]) -> tuple[float, float, float]:
            lr, size, correction = planned
            return 1 - lr * weight_decay if apart else 1.0, eps * correction, size * correction

        if amsgrad:
            shaped = {**AVERAGES, "max_exp_avg_sq": 0.0}
            return elementwise_update(self, group, plan, move, counts=COUNTS, shaped=shaped, scratch=2, cost=4)
        settings = added, maximize, beta1, beta2
        return elementwise_update(
            self, group, plan, move, counts=COUNTS, shaped=AVERAGES, scratch=2, cost=4,
            steps=self._steps_of(group, "adam_steps"), numbers=numbers, settings=settings,
        )  # fmt: skip


class AdamW(Adam):
    """Adam with decoupled weight decay (Loshchilov and Hutter, 2019): ``p -= lr * weight_decay * p`` at each step.

    The decay does not pass through the running averages.  The arguments are those of `Adam`; `weight_decay` is 0.01
    unless given.
    """

    decoupled = True
    usual_decay = 1e-2


class NAdam(Optimizer):
    """Adam with Nesterov's momentum (Dozat, 2016).

    Args:
        params: parameters, or dicts of groups; see `Optimizer`.
        lr: the learning rate, a number or a scalar tensor.
        betas: how much of the running averages of the gradient and of its square stays at each step.
        eps: added to the root of the latter.
        weight_decay: adds so much of the parameter to its gradient.
        momentum_decay: how fast the momentum comes up to the first beta.
        decoupled_weight_decay: decay as `AdamW` does.
        maximize: go up instead of down.
        execution: see `Execution`.

    Raises:
        ValueError: for settings that make no sense.
    """

    shaped = tuple(AVERAGES)

    def __init__(
        self,
        params: Parameters,
        lr: float | Tensor = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum_decay: float = 4e-3,
        decoupled_weight_decay: bool = False,
        *,
        maximize: bool = False,
        **execution: Unpack[Execution],
    ) -> None:
        settings = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "momentum_decay": momentum_decay,
            "decoupled_weight_decay": decoupled_weight_decay,
            "maximize": maximize,
        }
        super().__init__(params, settings, execution)

    def check_group(self, group: dict[str, Any]) -> None:
        check_averaging("NAdam", group, "momentum_decay")

    def update(self, group: dict[str, Any]) -> Update | None:
        (beta1, beta2), eps, slowness = group["betas"], group["eps"], group["momentum_decay"]
        decay = _decay_of(group, False)

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
            gradient = decay(lr, parameter, gradient, room)
            average(running, gradient, 1 - beta1, work)
            average_square(square, gradient, beta2, work)
            root(square, eps, below, correction)
            work[...] = below
            step_along(parameter, gradient, work, by_gradient)
            step_along(parameter, running, below, by_average)

        counts = {"step": 0.0, "mu_product": 1.0}
        return elementwise_update(self, group, plan, move, counts=counts, shaped=AVERAGES, scratch=3, cost=6)


class RAdam(Optimizer):
    """Adam whose first steps are not scaled while too little is known of the square (Liu and others, 2020).

    Args:
        params: parameters, or dicts of groups; see `Optimizer`.
        lr: the learning rate, a number or a scalar tensor.
        betas: how much of the running averages of the gradient and of its square stays at each step.
        eps: added to the root of the latter.
        weight_decay: adds so much of the parameter to its gradient.
        decoupled_weight_decay: decay as `AdamW` does.
        maximize: go up instead of down.
        execution: see `Execution`.

    Raises:
        ValueError: for settings that make no sense.
    """

    shaped = tuple(AVERAGES)

    def __init__(
        self,
        params: Parameters,
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        decoupled_weight_decay: bool = False,
        *,
        maximize: bool = False,
        **execution: Unpack[Execution],
    ) -> None:
        settings = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "decoupled_weight_decay": decoupled_weight_decay,
            "maximize": maximize,
        }
        super().__init__(params, settings, execution)

    def check_group(self, group: dict[str, Any]) -> None:
        check_averaging("RAdam", group)

    def update(self, group: dict[str, Any]) -> Update | None:
        (beta1, beta2), eps = group["betas"], group["eps"]
        decay = _decay_of(group, False)
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
            gradient = decay(lr, parameter, gradient, room)
            average(running, gradient, 1 - beta1, work)
            average_square(square, gradient, beta2, work)
            if scaled:
                step_along(parameter, running, root(square, eps, work), size)
            else:
                np.multiply(running, size, out=work)
                np.subtract(parameter, work, out=parameter)

        return elementwise_update(self, group, plan, move, counts=COUNTS, shaped=AVERAGES, scratch=2, cost=4)


class Adamax(Optimizer):
    """Adam scaled by the largest gradient, which is slowly forgotten (Kingma and Ba, 2015).

    Args:
        params: parameters, or dicts of groups; see `Optimizer`.
        lr: the learning rate, a number or a scalar tensor.
        betas: how much of the running average of the gradient and of the largest one stays at each step.
        eps: added to the gradient's magnitude.
        weight_decay: adds so much of the parameter to its gradient.
        maximize: go up instead of down.
        execution: see `Execution`.

    Raises:
        ValueError: for settings that make no sense.
    """

    shaped = ("exp_avg", "exp_inf")

    def __init__(
        self,
        params: Parameters,
        lr: float | Tensor = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        *,
        maximize: bool = False,
        **execution: Unpack[Execution],
    ) -> None:
        settings = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "maximize": maximize}
        super().__init__(params, settings, execution)

    def check_group(self, group: dict[str, Any]) -> None:
        check_averaging("Adamax", group)

    def update(self, group: dict[str, Any]) -> Update | None:
        (beta1, beta2), eps = group["betas"], group["eps"]
        weight_decay, maximize = group["weight_decay"], group["maximize"]

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

        shaped = dict.fromkeys(self.shaped, 0.0)
        return elementwise_update(self, group, plan, move, counts=COUNTS, shaped=shaped, scratch=2, cost=4)


def _decays_apart(group: dict[str, Any], decoupled: bool) -> bool:
    """Whether the decay of weights does not pass through the averages."""
    return bool(group["weight_decay"] and (decoupled or group["decoupled_weight_decay"]))


def _decay_of(group: dict[str, Any], decoupled: bool) -> Callable[[float, Array, Array, Array], Array]:
    """The decay of weights, of either kind: from (learning rate, parameter, gradient, room), the gradient to use."""
    weight_decay, maximize = group["weight_decay"], group["maximize"]
    apart = _decays_apart(group, decoupled)

    def decay(lr: float, parameter: Array, gradient: Array, room: Array) -> Array:
        if apart:
            np.multiply(parameter, 1 - lr * weight_decay, out=parameter)
        return decayed(parameter, gradient, 0 if apart else weight_decay, maximize, room)

    return decay
