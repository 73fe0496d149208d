"""`SGD`: gradient descent, with momentum."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack

from vmflow.kernels.problems import updates
from vmflow.tensors import Tensor

from .optimizer import Execution, Optimizer, Parameters, Step, check_not_negative, rate_of, with_gradients


class SGD(Optimizer):
    """Stochastic gradient descent: ``p -= lr * gradient``.

    With momentum, a running sum ``b = momentum * b + (1 - dampening) * gradient`` replaces the gradient; with
    `nesterov`, ``gradient + momentum * b`` replaces it (Sutskever and others, 2013).

    Args:
        params: parameters, or dicts of groups; see `Optimizer`.
        lr: the learning rate, a number or a scalar tensor.
        momentum: the factor of the running sum at each step; 0 for no momentum.
        dampening: the `dampening` of the formula above; the first gradient is added undamped.
        weight_decay: adds ``weight_decay * p`` to the gradient of parameter ``p``.
        nesterov: use Nesterov's momentum, which needs `momentum` and no `dampening`.
        maximize: maximize the loss instead of minimizing it.
        execution: see `Execution`.

    Raises:
        ValueError: for a negative number as `lr`, `momentum` or `weight_decay`, and for `nesterov` without momentum or
            with dampening.

    Example:
        >>> p = flow.tensor([1.0], requires_grad=True)
        >>> p.sum().backward()
        >>> flow.optim.SGD([p], lr=0.5).step()
        >>> p
        tensor([0.5000], requires_grad=True)
    """

    shaped = ("momentum_buffer",)

    def __init__(
        self,
        params: Parameters,
        lr: float | Tensor = 1e-3,
        momentum: float = 0,
        dampening: float = 0,
        weight_decay: float = 0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
        **execution: Unpack[Execution],
    ) -> None:
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "dampening": dampening,
            "weight_decay": weight_decay,
            "nesterov": nesterov,
            "maximize": maximize,
        }
        super().__init__(params, defaults, execution)
        self._filled: dict[Tensor, list[bool]] = {}

    def check_group(self, group: dict[str, Any]) -> None:
        check_not_negative("SGD", group, "lr", "momentum", "weight_decay")
        if group["nesterov"] and (not group["momentum"] or group["dampening"]):
            raise ValueError("SGD: Nesterov's momentum needs a momentum and no dampening")

    def _filled_flag(self, parameter: Tensor) -> list[bool]:
        """A list of one bool, which kernels read and set: whether the parameter's running sum has a gradient yet."""
        if "momentum_buffer" not in self.state[parameter]:
            self._filled[parameter] = [False]
        return self._filled.setdefault(parameter, [True])  # True: the sum was loaded, or set by the user

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        super().load_state_dict(state_dict)
        self._filled = {}

    def update(self, group: dict[str, Any]) -> Step | None:
        momentum = group["momentum"]
        settings = updates.SGD(
            rate_of(group),
            momentum,
            group["dampening"],
            group["weight_decay"],
            group["nesterov"],
            group["maximize"],
            tuple([self._filled_flag(parameter) for parameter in with_gradients(group)]) if momentum else (),
        )
        return self._group_update(group, "sgd", settings, {"momentum_buffer": 0.0} if momentum else {}, {})
