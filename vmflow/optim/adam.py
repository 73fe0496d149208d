"""`Adam` and its kin `AdamW`, `NAdam`, `RAdam`, `Adamax` and `LAMB`: steps computed from averages of the gradient."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Final, Unpack

from vmflow.dtypes import float32, promote_types
from vmflow.kernels.problems import updates
from vmflow.multi_tensor import Update
from vmflow.ops.elementwise.selection import where
from vmflow.tensors import Tensor
from vmflow.transfers import beside

from .optimizer import (
    COUNTS,
    Execution,
    Optimizer,
    Parameters,
    Step,
    are_numbers,
    check_not_negative,
    rate_of,
    with_gradients,
)

# The first values of the running averages of the gradient and of its square.
AVERAGES: Final = {"exp_avg": 0.0, "exp_avg_sq": 0.0}


class _Averaging(Optimizer):
    """The base of optimizers with two running averages (`Adamax`: one and a maximum), decaying by the setting `betas`.

    Attributes:
        not_negative: the names of the settings that `check_group` requires to be numbers >= 0; "lr" may be a tensor.
    """

    shaped = tuple(AVERAGES)
    not_negative: ClassVar[tuple[str, ...]] = ("lr", "eps", "weight_decay")

    def check_group(self, group: dict[str, Any]) -> None:
        name, betas = type(self).__name__, group["betas"]
        check_not_negative(name, group, *self.not_negative)
        if not are_numbers(betas, 2) or not all([0 <= beta < 1 for beta in betas]):
            raise ValueError(f"{name}: betas must be two numbers within [0, 1), got {betas!r}")


def _common(group: dict[str, Any]) -> tuple[float | None, float, float, float, float]:
    """The first settings of all kernels of Adam's kin: rate (None if a tensor), both betas, eps and weight decay."""
    beta1, beta2 = group["betas"]
    return rate_of(group), beta1, beta2, group["eps"], group["weight_decay"]


class Adam(_Averaging):
    """Adam (Kingma and Ba, 2015), with AMSGrad (Reddi, Kale and Kumar, 2018) on request.

    Args:
        params: parameters, or dicts of groups; see `Optimizer`.
        lr: the learning rate, a number or a scalar tensor.
        betas: the decay factors of the running averages of the gradient and of its square.
        eps: added to the root of the average square.
        weight_decay: adds ``weight_decay * p`` to the gradient of parameter ``p``; None is 0, or 0.01 for `AdamW`.
        amsgrad: divide by the root of the largest average of the square so far.
        do_bias_correction: correct the averages' bias towards their first value, 0; an argument of OneFlow's.
        maximize: maximize the loss instead of minimizing it.
        decoupled_weight_decay: decay parameters as `AdamW` does.
        execution: see `Execution`.

    Raises:
        ValueError: for settings out of range; a tensor `lr` may have any value.

    Example:
        >>> p = flow.tensor([1.0], requires_grad=True)
        >>> p.sum().backward()
        >>> flow.optim.Adam([p], lr=0.5).step()
        >>> p
        tensor([0.5000], requires_grad=True)
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
        do_bias_correction: bool = True,
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
        if not do_bias_correction:  # no key if True, since PyTorch has no such key
            settings["do_bias_correction"] = False
        super().__init__(params, settings, execution)

    def update(self, group: dict[str, Any]) -> Step | None:
        amsgrad = group["amsgrad"]
        settings = updates.Adam(
            *_common(group),
            self.decoupled or group["decoupled_weight_decay"],
            amsgrad,
            group["maximize"],
            group.get("do_bias_correction", True),
        )
        shaped = {**AVERAGES, "max_exp_avg_sq": 0.0} if amsgrad else AVERAGES
        return self._group_update(group, "adam", settings, shaped)


class AdamW(Adam):
    """Adam with decoupled weight decay (Loshchilov and Hutter, 2019): ``p -= lr * weight_decay * p`` at each step.

    The arguments are those of `Adam`; `weight_decay` is 0.01 by default, and `decoupled_weight_decay` has no effect.
    Parameters have any shape.

    Raises:
        ValueError: for settings out of range; a tensor `lr` may have any value.

    Example:
        >>> p = flow.tensor([1.0], requires_grad=True)
        >>> p.sum().backward()
        >>> flow.optim.AdamW([p], lr=0.5).step()
        >>> p
        tensor([0.4950], requires_grad=True)
    """

    decoupled = True
    usual_decay = 1e-2


class NAdam(_Averaging):
    """Adam with Nesterov's momentum (Dozat, 2016).

    Args:
        params: parameters, or dicts of groups; see `Optimizer`.
        lr: the learning rate, a number or a scalar tensor.
        betas: the decay factors of the running averages of the gradient and of its square.
        eps: added to the root of the average square.
        weight_decay: adds ``weight_decay * p`` to the gradient of parameter ``p``.
        momentum_decay: how fast the momentum factor grows towards ``betas[0]``.
        decoupled_weight_decay: decay parameters as `AdamW` does.
        maximize: maximize the loss instead of minimizing it.
        execution: see `Execution`.

    Raises:
        ValueError: for settings out of range; a tensor `lr` may have any value.

    Example:
        >>> p = flow.tensor([1.0], requires_grad=True)
        >>> p.sum().backward()
        >>> flow.optim.NAdam([p], lr=0.5).step()
        >>> p
        tensor([0.4718], requires_grad=True)
    """

    counts: ClassVar = {**COUNTS, "mu_product": 1.0}
    not_negative = ("lr", "eps", "weight_decay", "momentum_decay")

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

    def update(self, group: dict[str, Any]) -> Step | None:
        settings = updates.NAdam(
            *_common(group), group["decoupled_weight_decay"], group["momentum_decay"], group["maximize"]
        )
        return self._group_update(group, "nadam", settings, AVERAGES, self.counts)


class RAdam(_Averaging):
    """RAdam (Liu and others, 2020): Adam without scaling while the average of the square is unreliable.

    Args:
        params: parameters, or dicts of groups; see `Optimizer`.
        lr: the learning rate, a number or a scalar tensor.
        betas: the decay factors of the running averages of the gradient and of its square.
        eps: added to the root of the average square.
        weight_decay: adds ``weight_decay * p`` to the gradient of parameter ``p``.
        decoupled_weight_decay: decay parameters as `AdamW` does.
        maximize: maximize the loss instead of minimizing it.
        execution: see `Execution`.

    Raises:
        ValueError: for settings out of range; a tensor `lr` may have any value.

    Example:
        >>> p = flow.tensor([1.0], requires_grad=True)
        >>> p.sum().backward()
        >>> flow.optim.RAdam([p], lr=0.5).step()
        >>> p
        tensor([0.5000], requires_grad=True)
    """

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

    def update(self, group: dict[str, Any]) -> Step | None:
        settings = updates.RAdam(*_common(group), group["decoupled_weight_decay"], group["maximize"])
        return self._group_update(group, "radam", settings, AVERAGES)


class Adamax(_Averaging):
    """Adamax (Kingma and Ba, 2015): Adam whose divisor is a decaying maximum of the gradient's magnitude.

    Args:
        params: parameters, or dicts of groups; see `Optimizer`.
        lr: the learning rate, a number or a scalar tensor.
        betas: the decay factors of the running average of the gradient and of the maximum of its magnitude.
        eps: added to the gradient's magnitude.
        weight_decay: adds ``weight_decay * p`` to the gradient of parameter ``p``.
        maximize: maximize the loss instead of minimizing it.
        execution: see `Execution`.

    Raises:
        ValueError: for settings out of range; a tensor `lr` may have any value.

    Example:
        >>> p = flow.tensor([1.0], requires_grad=True)
        >>> p.sum().backward()
        >>> flow.optim.Adamax([p], lr=0.5).step()
        >>> p
        tensor([0.5000], requires_grad=True)
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

    def update(self, group: dict[str, Any]) -> Step | None:
        settings = updates.Adamax(*_common(group), group["maximize"])
        return self._group_update(group, "adamax", settings, dict.fromkeys(self.shaped, 0.0))


class LAMB(_Averaging):
    """LAMB (You and others, 2020), for large batches; arguments and rule are OneFlow's.

    Adam's direction ``u`` of each parameter is scaled by the norms of parameter and direction,
    ``p -= lr * (|p| / |u|) * (u + weight_decay * p)``; the ratio is 1 where one of the norms is 0.

    Args:
        params: parameters, or dicts of groups; see `Optimizer`.
        lr: the learning rate, a number or a scalar tensor.
        betas: the decay factors of the running averages of the gradient and of its square.
        eps: added to the root of the average square.
        weight_decay: the `weight_decay` of the formula above.
        adam_w_mode: if False, ``weight_decay * p`` is added to the gradient instead.
        do_bias_correction: correct the averages' bias towards their first value, 0.
        amsgrad: not supported.
        maximize: maximize the loss instead of minimizing it.
        execution: see `Execution`.

    Raises:
        ValueError: for settings out of range, and for `amsgrad`; a tensor `lr` may have any value.

    Example:
        >>> p = flow.tensor([1.0], requires_grad=True)
        >>> p.sum().backward()
        >>> flow.optim.LAMB([p], lr=0.5).step()
        >>> p
        tensor([0.5000], requires_grad=True)
    """

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
        super().check_group(group)
        if group["amsgrad"]:
            raise ValueError("LAMB: amsgrad is not supported; Adam has it")

    def update(self, group: dict[str, Any]) -> Step | None:
        if any([parameter.is_global for parameter in with_gradients(group)]):
            return self._update_by_ops(group)
        settings = updates.LAMB(*_common(group), group["adam_w_mode"], group["do_bias_correction"], group["maximize"])
        return self._group_update(group, "lamb", settings, AVERAGES)

    def _update_by_ops(self, group: dict[str, Any]) -> Callable[[], Update]:
        """Return a function that computes the step by ops, for global parameters: kernels see only a rank's part."""
        parameters = with_gradients(group)
        states = [self._remembered(parameter, AVERAGES) for parameter in parameters]

        def step() -> Update:
            values: list[Tensor] = []
            outputs: list[Tensor] = []
            for parameter, state in zip(parameters, states, strict=True):
                values += _lamb(group, parameter, state)
                outputs += [parameter, state["exp_avg"], state["exp_avg_sq"], state["step"]]
            return self._assignment(values, outputs)

        return step


def _lamb(group: dict[str, Any], parameter: Tensor, state: dict[str, Tensor]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the values, after a step, of the parameter, of both averages, and of the count of steps."""
    gradient, lr, decay = parameter.grad, group["lr"], group["weight_decay"]
    assert gradient is not None
    beta1, beta2 = group["betas"]
    dtype = promote_types(parameter.dtype, float32)
    averages = state["exp_avg"], state["exp_avg_sq"]
    place, slope, mean, square = [tensor.to(dtype) for tensor in (parameter, gradient, *averages)]
    if group["maximize"]:
        slope = -slope
    if not group["adam_w_mode"]:
        slope = slope + place * decay
    mean = mean + (slope - mean) * (1 - beta1)
    square = square + (slope * slope - square) * (1 - beta2)
    taken = state["step"] + 1
    unbiased, spread = mean, square
    if group["do_bias_correction"]:
        first, second = [beside(1 - beta ** taken.double(), parameter) for beta in (beta1, beta2)]
        unbiased, spread = mean / first, square / second
    way = unbiased / (spread.sqrt() + group["eps"])
    of_parameter, of_way = place.norm(), way.norm()
    ratio = where((of_parameter > 0) & (of_way > 0), of_parameter / of_way, 1.0)
    if group["adam_w_mode"]:
        way = way + place * decay
    rate = beside(lr, parameter) if isinstance(lr, Tensor) else lr
    return place - way * (ratio * rate), mean, square, taken
