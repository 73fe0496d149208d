"""Optimizers that scale each step by the gradients seen: `Adagrad`, `Adadelta`, `RMSprop`, `Rprop`; and `ASGD`."""

from __future__ import annotations

from typing import Any, ClassVar, Unpack

from vmflow.kernels.problems import updates
from vmflow.scopes import scope
from vmflow.tensors import Tensor

from .optimizer import COUNTS, NUMBERS, Execution, Optimizer, Parameters, Step, are_numbers, check_not_negative, rate_of


class Adagrad(Optimizer):
    """Adagrad (Duchi, Hazan and Singer, 2011): steps divided by the root of the sum of all squared gradients.

    Args:
        params: parameters, or dicts of groups; see `Optimizer`.
        lr: the learning rate, a number or a scalar tensor.
        lr_decay: the rate after t steps is ``lr / (1 + lr_decay * t)``.
        weight_decay: adds ``weight_decay * p`` to the gradient of parameter ``p``.
        initial_accumulator_value: the first value of the sum of squares.
        eps: added to the root.
        maximize: maximize the loss instead of minimizing it.
        execution: see `Execution`.

    Raises:
        ValueError: for settings out of range; a tensor `lr` may have any value.

    Example:
        >>> p = flow.tensor([1.0], requires_grad=True)
        >>> p.sum().backward()
        >>> flow.optim.Adagrad([p], lr=0.5).step()
        >>> p
        tensor([0.5000], requires_grad=True)
    """

    shaped = ("sum",)

    def __init__(
        self,
        params: Parameters,
        lr: float | Tensor = 1e-2,
        lr_decay: float = 0,
        weight_decay: float = 0,
        initial_accumulator_value: float = 0,
        eps: float = 1e-10,
        *,
        maximize: bool = False,
        **execution: Unpack[Execution],
    ) -> None:
        settings = {
            "lr": lr,
            "lr_decay": lr_decay,
            "weight_decay": weight_decay,
            "initial_accumulator_value": initial_accumulator_value,
            "eps": eps,
            "maximize": maximize,
        }
        super().__init__(params, settings, execution)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        super().add_param_group(param_group)
        group = self.param_groups[-1]
        first = group["initial_accumulator_value"]
        with scope(shield=True):
            for parameter in group["params"]:
                self._remembered(parameter, {"sum": complex(first, first) if parameter.is_complex() else first})

    def check_group(self, group: dict[str, Any]) -> None:
        check_not_negative("Adagrad", group, "lr", "lr_decay", "weight_decay", "initial_accumulator_value", "eps")

    def update(self, group: dict[str, Any]) -> Step | None:
        settings = updates.Adagrad(
            rate_of(group),
            group["lr_decay"],
            group["eps"],
            group["weight_decay"],
            group["maximize"],
        )
        return self._group_update(group, "adagrad", settings, {"sum": group["initial_accumulator_value"]})


class Adadelta(Optimizer):
    """Adadelta (Zeiler, 2012): gradients times the ratio of the root mean squares of recent steps and gradients.

    Args:
        params: parameters, or dicts of groups; see `Optimizer`.
        lr: the factor of each step, a number or a scalar tensor.
        rho: the decay factor of the running averages of squared gradients and of squared steps without `lr`.
        eps: added under the roots.
        weight_decay: adds ``weight_decay * p`` to the gradient of parameter ``p``.
        maximize: maximize the loss instead of minimizing it.
        execution: see `Execution`.

    Raises:
        ValueError: for settings out of range; a tensor `lr` may have any value.

    Example:
        >>> p = flow.tensor([1.0], requires_grad=True)
        >>> p.sum().backward()
        >>> flow.optim.Adadelta([p], lr=0.5).step()
        >>> p
        tensor([0.9984], requires_grad=True)
    """

    shaped = ("square_avg", "acc_delta")

    def __init__(
        self,
        params: Parameters,
        lr: float | Tensor = 1.0,
        rho: float = 0.9,
        eps: float = 1e-6,
        weight_decay: float = 0,
        *,
        maximize: bool = False,
        **execution: Unpack[Execution],
    ) -> None:
        settings = {"lr": lr, "rho": rho, "eps": eps, "weight_decay": weight_decay, "maximize": maximize}
        super().__init__(params, settings, execution)

    def check_group(self, group: dict[str, Any]) -> None:
        check_not_negative("Adadelta", group, "lr", "rho", "eps", "weight_decay")
        if group["rho"] > 1:
            raise ValueError(f"Adadelta: rho must be within [0, 1], got {group['rho']!r}")

    def update(self, group: dict[str, Any]) -> Step | None:
        settings = updates.Adadelta(
            rate_of(group),
            group["rho"],
            group["eps"],
            group["weight_decay"],
            group["maximize"],
        )
        return self._group_update(group, "adadelta", settings, dict.fromkeys(self.shaped, 0.0))


class RMSprop(Optimizer):
    """RMSprop (Hinton, 2012): steps divided by the root of a running average of the squared gradient.

    Args:
        params: parameters, or dicts of groups; see `Optimizer`.
        lr: the learning rate, a number or a scalar tensor.
        alpha: the decay factor of the running average.
        eps: added to the root.
        weight_decay: adds ``weight_decay * p`` to the gradient of parameter ``p``.
        momentum: the factor of the last step without `lr`, which the next step adds; 0 for no momentum.
        centered: divide by the estimated standard deviation of the gradient instead (Graves, 2013).
        maximize: maximize the loss instead of minimizing it.
        execution: see `Execution`.

    Raises:
        ValueError: for negative settings; a tensor `lr` may have any value.

    Example:
        >>> p = flow.tensor([1.0], requires_grad=True)
        >>> p.sum().backward()
        >>> flow.optim.RMSprop([p], lr=0.05).step()
        >>> p
        tensor([0.5000], requires_grad=True)
    """

    shaped = ("square_avg", "momentum_buffer", "grad_avg")

    def __init__(
        self,
        params: Parameters,
        lr: float | Tensor = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum: float = 0,
        centered: bool = False,
        *,
        maximize: bool = False,
        **execution: Unpack[Execution],
    ) -> None:
        settings = {
            "lr": lr,
            "alpha": alpha,
            "eps": eps,
            "weight_decay": weight_decay,
            "momentum": momentum,
            "centered": centered,
            "maximize": maximize,
        }
        super().__init__(params, settings, execution)

    def check_group(self, group: dict[str, Any]) -> None:
        check_not_negative("RMSprop", group, "lr", "alpha", "eps", "weight_decay", "momentum")

    def update(self, group: dict[str, Any]) -> Step | None:
        momentum, centered = group["momentum"], group["centered"]
        settings = updates.RMSprop(
            rate_of(group),
            group["alpha"],
            group["eps"],
            group["weight_decay"],
            momentum,
            centered,
            group["maximize"],
        )
        wanted = {"square_avg": True, "momentum_buffer": momentum, "grad_avg": centered}
        shaped = {name: 0.0 for name, used in wanted.items() if used}
        return self._group_update(group, "rmsprop", settings, shaped)


class Rprop(Optimizer):
    """Rprop (Riedmiller and Braun, 1993): each element has a step size, which grows while the gradient keeps its sign.

    Args:
        params: parameters, or dicts of groups; see `Optimizer`.
        lr: the first step size, a number or a scalar tensor; clamped to `step_sizes`.
        etas: the factors by which a step size shrinks when the sign changes, and grows when it stays; at a change of
            the sign, the element does not move, and its size stays in the next step.
        step_sizes: the smallest and the largest step size, neither negative.
        maximize: maximize the loss instead of minimizing it.
        execution: see `Execution`.

    Raises:
        ValueError: for settings out of range; a tensor `lr` may have any value.

    Example:
        >>> p = flow.tensor([1.0], requires_grad=True)
        >>> p.sum().backward()
        >>> flow.optim.Rprop([p], lr=0.5).step()
        >>> p
        tensor([0.5000], requires_grad=True)
    """

    shaped = ("prev", "step_size")

    def __init__(
        self,
        params: Parameters,
        lr: float | Tensor = 1e-2,
        etas: tuple[float, float] = (0.5, 1.2),
        step_sizes: tuple[float, float] = (1e-6, 50),
        *,
        maximize: bool = False,
        **execution: Unpack[Execution],
    ) -> None:
        settings = {"lr": lr, "etas": etas, "step_sizes": step_sizes, "maximize": maximize}
        super().__init__(params, settings, execution)

    def check_group(self, group: dict[str, Any]) -> None:
        check_not_negative("Rprop", group, "lr")
        etas, sizes = group["etas"], group["step_sizes"]
        if not are_numbers(etas, 2) or not 0 < etas[0] < 1 < etas[1]:
            raise ValueError(f"Rprop: etas must be a factor within (0, 1) and one above 1, got {etas!r}")
        if not are_numbers(sizes, 2) or not 0 <= sizes[0] <= sizes[1]:
            raise ValueError(
                f"Rprop: step_sizes must be a smallest size that is not negative and a largest, got {sizes!r}"
            )

    def update(self, group: dict[str, Any]) -> Step | None:
        (shrink, grow), (least, most) = group["etas"], group["step_sizes"]
        settings = updates.Rprop(
            rate_of(group),
            shrink,
            grow,
            least,
            most,
            group["maximize"],
        )
        return self._group_update(group, "rprop", settings, dict.fromkeys(self.shaped, 0.0))


class ASGD(Optimizer):
    """Averaged stochastic gradient descent (Polyak and Juditsky, 1992): plain steps, whose results are averaged.

    The average is ``optimizer.state[p]["ax"]``; parameter ``p`` itself holds the last step's result.

    Args:
        params: parameters, or dicts of groups; see `Optimizer`.
        lr: the learning rate of the first step, a number or a scalar tensor; the rate after t steps is
            ``lr / (1 + lambd * lr * t) ** alpha``.
        lambd: how fast the rate falls; each step also multiplies the parameter by ``1 - lambd * rate``.
        alpha: the exponent in the formula of the rate.
        t0: the results of step ``t0 + 2`` and later are averaged; until then the average is the parameter itself.
        weight_decay: adds ``weight_decay * p`` to the gradient of parameter ``p``.
        maximize: maximize the loss instead of minimizing it.
        execution: see `Execution`.

    Raises:
        ValueError: for a negative number as `lr` or `weight_decay`.

    Example:
        >>> p = flow.tensor([1.0], requires_grad=True)
        >>> p.sum().backward()
        >>> flow.optim.ASGD([p], lr=0.5).step()
        >>> p
        tensor([0.4999], requires_grad=True)
    """

    shaped = ("ax",)
    counts: ClassVar = {**COUNTS, "eta": 0.0, "mu": 1.0}

    def __init__(
        self,
        params: Parameters,
        lr: float | Tensor = 1e-2,
        lambd: float = 1e-4,
        alpha: float = 0.75,
        t0: float = 1e6,
        weight_decay: float = 0,
        *,
        maximize: bool = False,
        **execution: Unpack[Execution],
    ) -> None:
        settings = {
            "lr": lr,
            "lambd": lambd,
            "alpha": alpha,
            "t0": t0,
            "weight_decay": weight_decay,
            "maximize": maximize,
        }
        super().__init__(params, settings, execution)

    def check_group(self, group: dict[str, Any]) -> None:
        check_not_negative("ASGD", group, "lr", "weight_decay")
        for name in ("lambd", "alpha", "t0"):
            if not isinstance(group[name], NUMBERS):
                raise ValueError(f"ASGD: {name} must be a number, got {group[name]!r}")

    def update(self, group: dict[str, Any]) -> Step | None:
        settings = updates.ASGD(
            rate_of(group),
            group["lambd"],
            group["alpha"],
            group["t0"],
            group["weight_decay"],
            group["maximize"],
        )
        return self._group_update(group, "asgd", settings, {"ax": 0.0}, self.counts)
