"""Learning rates that change from epoch to epoch: `StepLR`, `CosineAnnealingLR`, `LambdaLR`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from vmflow.autograd import no_grad
from vmflow.tensors import Tensor

from .optimizer import Optimizer


class LRScheduler:
    """Sets the learning rates of an optimizer's groups.  Subclasses define `get_lr`.

    The optimizer's learning rates at first are kept in its groups as "initial_lr".  A learning rate that is a tensor is
    changed in place.

    Args:
        optimizer: whose learning rates to set.
        last_epoch: the number of the last epoch when resuming, -1 when starting.

    Attributes:
        base_lrs: the initial learning rates, one per group.
        last_epoch: the number of the present epoch, counted by `step`.

    Raises:
        TypeError: if it is no optimizer.
        KeyError: when resuming with an optimizer that has no initial learning rates.
    """

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"{type(self).__name__}: expected an optimizer, got {type(optimizer).__name__}")
        self.optimizer = optimizer
        for position, group in enumerate(optimizer.param_groups):
            if last_epoch == -1:
                group.setdefault("initial_lr", _number(group["lr"]))
            elif "initial_lr" not in group:
                raise KeyError(
                    f"{type(self).__name__}: group {position} has no 'initial_lr', which resuming from epoch "
                    f"{last_epoch} needs; load the optimizer's state dict first"
                )
        self.base_lrs: list[float] = [_number(group["initial_lr"]) for group in optimizer.param_groups]
        self.last_epoch = last_epoch
        self.step()

    def get_lr(self) -> list[float]:
        """The learning rates of epoch `last_epoch`, one per group, given those of the epoch before."""
        raise NotImplementedError(f"{type(self).__name__} defines no get_lr()")

    def get_last_lr(self) -> list[float]:
        """The learning rates that were set last."""
        return self._last_lr

    def step(self) -> None:
        """Begin the next epoch."""
        self.last_epoch += 1
        rates = self.get_lr()
        for group, rate in zip(self.optimizer.param_groups, rates, strict=True):
            if isinstance(group["lr"], Tensor):
                with no_grad():
                    group["lr"].fill_(rate)
            else:
                group["lr"] = rate
        self._last_lr = rates

    def _present(self) -> list[float]:
        """The groups' learning rates, without waiting for those that are tensors."""
        if not hasattr(self, "_last_lr"):
            return [_number(group["lr"]) for group in self.optimizer.param_groups]
        return [
            last if isinstance(group["lr"], Tensor) else group["lr"]
            for group, last in zip(self.optimizer.param_groups, self._last_lr, strict=True)
        ]

    def state_dict(self) -> dict[str, Any]:
        """What `load_state_dict` needs: everything but the optimizer and functions."""
        return {key: value for key, value in self.__dict__.items() if key != "optimizer" and not _calls(value)}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Go on from where another scheduler stood.  The learning rates are part of the optimizer's state."""
        self.__dict__.update(state_dict)


def _number(lr: float | Tensor) -> float:
    return float(lr.item()) if isinstance(lr, Tensor) else lr


def _calls(value: Any) -> bool:
    """Whether it is a function, or a list of them, which cannot be saved."""
    return callable(value) or (isinstance(value, list) and any(callable(it) for it in value))


class StepLR(LRScheduler):
    """Multiply by `gamma` every `step_size` epochs."""

    def __init__(self, optimizer: Optimizer, step_size: int, gamma: float = 0.1, last_epoch: int = -1) -> None:
        if step_size < 1:
            raise ValueError(f"StepLR: step_size must be at least 1, got {step_size}")
        self.step_size = step_size
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        factor = self.gamma if self.last_epoch and self.last_epoch % self.step_size == 0 else 1.0
        return [rate * factor for rate in self._present()]


class CosineAnnealingLR(LRScheduler):
    """Follow half a cosine from the initial rate down to `eta_min` in `T_max` epochs, then up again, and so on.

    Loshchilov and Hutter, 2017, without the restarts.  Each rate is made from the one before, so that it goes together
    with other changes of the learning rate.
    """

    def __init__(self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0, last_epoch: int = -1) -> None:
        if T_max < 1:
            raise ValueError(f"CosineAnnealingLR: T_max must be at least 1, got {T_max}")
        self.T_max = T_max
        self.eta_min = eta_min
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        present = self._present()
        epoch = self.last_epoch
        if epoch == 0:
            return present
        before = 1 + math.cos(math.pi * (epoch - 1) / self.T_max)
        if (epoch - 1 - self.T_max) % (2 * self.T_max) == 0:
            # At the bottom there is nothing to multiply.
            rise = (1 - math.cos(math.pi / self.T_max)) / 2
            return [rate + (base - self.eta_min) * rise for rate, base in zip(present, self.base_lrs, strict=True)]
        factor = (1 + math.cos(math.pi * epoch / self.T_max)) / before
        return [factor * (rate - self.eta_min) + self.eta_min for rate in present]


class LambdaLR(LRScheduler):
    """Multiply the initial rates by a function of the epoch's number.

    Args:
        optimizer: whose learning rates to set.
        lr_lambda: one function for all groups, or one for each.
        last_epoch: the number of the last epoch when resuming, -1 when starting.

    Raises:
        ValueError: if there are not as many functions as groups.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        lr_lambda: Callable[[int], float] | Sequence[Callable[[int], float]],
        last_epoch: int = -1,
    ) -> None:
        groups = len(optimizer.param_groups)
        self.lr_lambdas = [lr_lambda] * groups if callable(lr_lambda) else list(lr_lambda)
        if len(self.lr_lambdas) != groups:
            raise ValueError(f"LambdaLR: got {len(self.lr_lambdas)} functions for {groups} groups")
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        return [base * function(self.last_epoch) for base, function in zip(self.base_lrs, self.lr_lambdas, strict=True)]
