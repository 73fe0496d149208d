"""`Adam` and `AdamW`: steps scaled by running averages of the gradient and its square."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import Any

import numpy as np

from vmflow.instructions.blob import Array
from vmflow.multi_tensor import Update, updated
from vmflow.ops.creation import zeros, zeros_like
from vmflow.tensors import Tensor

from .optimizer import Optimizer, Parameters, check_not_negative

_AVERAGES = ("exp_avg", "exp_avg_sq", "max_exp_avg_sq")


class Adam(Optimizer):
    """Adam (Kingma and Ba, 2015), with AMSGrad (Reddi, Kale and Kumar, 2018) on request.

    Args:
        params: parameters, or dicts of groups; see `Optimizer`.
        lr: the learning rate, a number or a scalar tensor.
        betas: how much of the running averages of the gradient and of its square stays at each step.
        eps: added to the root of the latter.
        weight_decay: adds so much of the parameter to its gradient.
        amsgrad: scale by the largest average of the square so far.
        maximize: go up instead of down.

    Raises:
        ValueError: for settings that make no sense.
    """

    shaped = _AVERAGES

    def __init__(
        self,
        params: Parameters,
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
    ) -> None:
        super().__init__(params, _defaults(lr, betas, eps, weight_decay, amsgrad, maximize))

    def check_group(self, group: dict[str, Any]) -> None:
        _check("Adam", group)

    def update(self, group: dict[str, Any]) -> Update | None:
        return _update(self, group, decoupled=False)


class AdamW(Optimizer):
    """Adam with decoupled weight decay (Loshchilov and Hutter, 2019): ``p -= lr * weight_decay * p`` at each step.

    The decay does not pass through the running averages.

    Args:
        params: parameters, or dicts of groups; see `Optimizer`.
        lr: the learning rate, a number or a scalar tensor.
        betas: how much of the running averages of the gradient and of its square stays at each step.
        eps: added to the root of the latter.
        weight_decay: as above.
        amsgrad: scale by the largest average of the square so far.
        maximize: go up instead of down.

    Raises:
        ValueError: for settings that make no sense.
    """

    shaped = _AVERAGES

    def __init__(
        self,
        params: Parameters,
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
    ) -> None:
        super().__init__(params, _defaults(lr, betas, eps, weight_decay, amsgrad, maximize))

    def check_group(self, group: dict[str, Any]) -> None:
        _check("AdamW", group)

    def update(self, group: dict[str, Any]) -> Update | None:
        return _update(self, group, decoupled=True)


def _defaults(
    lr: float | Tensor, betas: tuple[float, float], eps: float, weight_decay: float, amsgrad: bool, maximize: bool
) -> dict[str, Any]:
    return {
        "lr": lr,
        "betas": betas,
        "eps": eps,
        "weight_decay": weight_decay,
        "amsgrad": amsgrad,
        "maximize": maximize,
    }


def _check(name: str, group: dict[str, Any]) -> None:
    check_not_negative(name, group, "lr", "eps", "weight_decay")
    betas = group["betas"]
    if len(betas) != 2 or not all(0 <= beta < 1 for beta in betas):
        raise ValueError(f"{name}: betas must be two numbers within [0, 1), got {betas!r}")


def _update(optimizer: Optimizer, group: dict[str, Any], decoupled: bool) -> Update | None:
    parameters = [it for it in group["params"] if it.grad is not None]
    if not parameters:
        return None
    names = _AVERAGES if group["amsgrad"] else _AVERAGES[:2]
    states = [optimizer.state[it] for it in parameters]
    for parameter, state in zip(parameters, states, strict=True):
        if "step" not in state:
            state["step"] = zeros((), device=parameter.device)
        for name in names:
            if name not in state:
                state[name] = zeros_like(parameter)
    lr = group["lr"]
    kernel = _Step(
        lr=None if isinstance(lr, Tensor) else lr,
        betas=tuple(group["betas"]),
        eps=group["eps"],
        weight_decay=group["weight_decay"],
        amsgrad=group["amsgrad"],
        maximize=group["maximize"],
        decoupled=decoupled,
    )
    inputs = [it.grad for it in parameters] + ([lr] if kernel.lr is None else [])
    outputs = [*parameters]
    for name in (*names, "step"):
        outputs += [state[name] for state in states]
    return Update(
        f"{type(optimizer).__name__}.step", kernel, inputs, outputs, 4 * sum([it.numel() for it in parameters])
    )


@dataclass(frozen=True, slots=True)
class _Step:
    """The kernel of one step.

    Inputs: gradients, and the learning rate if it is a tensor (`lr` is None then).  Outputs: parameters, averages of
    the gradients, of the squares, the largest of those if `amsgrad`, and the counts of steps.
    """

    lr: float | None
    betas: tuple[float, ...]
    eps: float
    weight_decay: float
    amsgrad: bool
    maximize: bool
    decoupled: bool

    def __call__(self, inputs: list[Array], outputs: list[Array]) -> None:
        lr = float(inputs.pop().item()) if self.lr is None else self.lr
        count = len(inputs)
        for position, gradient in enumerate(inputs):
            *written, steps = outputs[position::count]
            steps += 1
            taken = float(steps)
            size = lr / (1 - self.betas[0] ** taken)
            correction = sqrt(1 - self.betas[1] ** taken)
            for arrays in updated(written, [gradient], scratch=2):
                self._move(arrays, lr, size, correction)

    def _move(self, arrays: list[Array], lr: float, size: float, correction: float) -> None:
        parameter, average, square, *largest, gradient, room, work = arrays
        beta1, beta2 = self.betas
        if self.weight_decay and self.decoupled:
            np.multiply(parameter, 1 - lr * self.weight_decay, out=parameter)
        elif self.weight_decay:
            decay = np.multiply(parameter, self.weight_decay, out=room)
            combine = np.subtract if self.maximize else np.add
            gradient = combine(decay, gradient, out=room)
        if self.maximize and gradient is not room:
            gradient = np.negative(gradient, out=room)
        # average += (1 - beta1) * (gradient - average)
        np.subtract(gradient, average, out=work)
        np.multiply(work, 1 - beta1, out=work)
        np.add(average, work, out=average)
        # square = beta2 * square + (1 - beta2) * gradient ** 2
        np.multiply(gradient, gradient, out=work)
        np.multiply(work, 1 - beta2, out=work)
        np.multiply(square, beta2, out=square)
        np.add(square, work, out=square)
        if self.amsgrad:
            square = np.maximum(largest[0], square, out=largest[0])
        # parameter -= size * average / (sqrt(square) / correction + eps)
        np.sqrt(square, out=work)
        np.divide(work, correction, out=work)
        np.add(work, self.eps, out=work)
        np.divide(average, work, out=work)
        np.multiply(work, size, out=work)
        np.subtract(parameter, work, out=parameter)
