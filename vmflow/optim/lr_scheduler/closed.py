"""Schedulers, such as `StepLR`, whose rates depend on the epoch's number alone, unless other code changes the rates."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, overload

from vmflow.optim.optimizer import Optimizer

from .scheduler import LRScheduler, per_group

Factor = Callable[[int], float]


class StepLR(LRScheduler):
    """Multiply the learning rates by `gamma` every `step_size` epochs.

    Raises:
        TypeError, KeyError: as for `LRScheduler`.
        ValueError: if `step_size` is less than 1.

    Example:
        >>> optimizer = flow.optim.SGD([flow.ones(1, requires_grad=True)], lr=1.0)
        >>> schedule = flow.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.5)
        >>> [schedule.rate_at(epoch, 1.0) for epoch in range(4)]
        [1.0, 1.0, 0.5, 0.5]
    """

    def __init__(self, optimizer: Optimizer, step_size: int, gamma: float = 0.1, last_epoch: int = -1) -> None:
        if step_size < 1:
            raise ValueError(f"StepLR: step_size must be at least 1, got {step_size}")
        self.step_size = step_size
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def rate_at(self, epoch: int, base: float, group: int = 0) -> float:
        return base * float(self.gamma ** (epoch // self.step_size))

    def get_lr(self) -> list[float]:
        return self.scaled(self.gamma if self.last_epoch and self.last_epoch % self.step_size == 0 else 1.0)


class MultiStepLR(LRScheduler):
    """Multiply the learning rates by `gamma` at each milestone, an epoch; twice if an epoch is listed twice.

    Raises:
        TypeError, KeyError: as for `LRScheduler`.

    Example:
        >>> optimizer = flow.optim.SGD([flow.ones(1, requires_grad=True)], lr=1.0)
        >>> schedule = flow.optim.lr_scheduler.MultiStepLR(optimizer, [1, 3], gamma=0.5)
        >>> [schedule.rate_at(epoch, 1.0) for epoch in range(4)]
        [1.0, 0.5, 0.5, 0.25]
    """

    def __init__(
        self, optimizer: Optimizer, milestones: Iterable[int], gamma: float = 0.1, last_epoch: int = -1
    ) -> None:
        self.milestones = sorted(milestones)
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def rate_at(self, epoch: int, base: float, group: int = 0) -> float:
        return base * float(self.gamma ** bisect_right(self.milestones, epoch))

    def get_lr(self) -> list[float]:
        return self.scaled(self.gamma ** self.milestones.count(self.last_epoch))


class ConstantLR(LRScheduler):
    """Multiply the learning rates by `factor` in epoch 0, and divide them by `factor` after `total_iters` epochs.

    If `factor` is 0, the initial rates return instead.

    Raises:
        TypeError, KeyError: as for `LRScheduler`.
        ValueError: if `factor` is not within [0, 1].

    Example:
        >>> optimizer = flow.optim.SGD([flow.ones(1, requires_grad=True)], lr=1.0)
        >>> schedule = flow.optim.lr_scheduler.ConstantLR(optimizer, factor=0.5, total_iters=2)
        >>> [schedule.rate_at(epoch, 1.0) for epoch in range(4)]
        [0.5, 0.5, 1.0, 1.0]
    """

    def __init__(self, optimizer: Optimizer, factor: float = 1 / 3, total_iters: int = 5, last_epoch: int = -1) -> None:
        if not 0 <= factor <= 1:
            raise ValueError(f"ConstantLR: factor must be within [0, 1], got {factor}")
        self.factor = factor
        self.total_iters = total_iters
        super().__init__(optimizer, last_epoch)

    def rate_at(self, epoch: int, base: float, group: int = 0) -> float:
        return base * (self.factor if epoch < self.total_iters else 1.0)

    def get_lr(self) -> list[float]:
        if self.last_epoch == 0:
            return self.scaled(self.factor if self.total_iters > 0 else 1.0)
        if not self.last_epoch - 1 < self.total_iters <= self.last_epoch:
            return self.present()
        return self.scaled(1 / self.factor) if self.factor else list(self.base_lrs)


class LinearLR(LRScheduler):
    """Multiply the initial rates by a factor that goes from `start_factor` to `end_factor` in `total_iters` even steps.

    Raises:
        TypeError, KeyError: as for `LRScheduler`.
        ValueError: if a factor is not within [0, 1].

    Example:
        >>> optimizer = flow.optim.SGD([flow.ones(1, requires_grad=True)], lr=1.0)
        >>> schedule = flow.optim.lr_scheduler.LinearLR(optimizer, start_factor=0.5, total_iters=2)
        >>> [schedule.rate_at(epoch, 1.0) for epoch in range(4)]
        [0.5, 0.75, 1.0, 1.0]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        start_factor: float = 1 / 3,
        end_factor: float = 1.0,
        total_iters: int = 5,
        last_epoch: int = -1,
    ) -> None:
        if not 0 <= start_factor <= 1:
            raise ValueError(f"LinearLR: start_factor must be within [0, 1], got {start_factor}")
        if not 0 <= end_factor <= 1:
            raise ValueError(f"LinearLR: end_factor must be within [0, 1], got {end_factor}")
        self.start_factor = start_factor
        self.end_factor = end_factor
        self.total_iters = total_iters
        super().__init__(optimizer, last_epoch)

    def factor_at(self, epoch: int) -> float:
        """The factor of the initial learning rates in an epoch."""
        done = min(epoch, self.total_iters) / self.total_iters if self.total_iters else 1.0
        return self.start_factor + (self.end_factor - self.start_factor) * done

    def rate_at(self, epoch: int, base: float, group: int = 0) -> float:
        return base * self.factor_at(epoch)

    def get_lr(self) -> list[float]:
        epoch = self.last_epoch
        if epoch == 0:
            return self.scaled(self.factor_at(0))
        if self._is_initial or epoch > self.total_iters:
            return self.present()
        if not self.factor_at(epoch - 1):  # the present rate is 0, and no factor turns 0 into the next rate
            return self.rates_at(epoch)
        return self.scaled(self.factor_at(epoch) / self.factor_at(epoch - 1))


class ExponentialLR(LRScheduler):
    """Multiply the learning rates by `gamma` in every epoch but the first.

    Raises:
        TypeError, KeyError: as for `LRScheduler`.

    Example:
        >>> optimizer = flow.optim.SGD([flow.ones(1, requires_grad=True)], lr=1.0)
        >>> schedule = flow.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.5)
        >>> [schedule.rate_at(epoch, 1.0) for epoch in range(4)]
        [1.0, 0.5, 0.25, 0.125]
    """

    def __init__(self, optimizer: Optimizer, gamma: float, last_epoch: int = -1) -> None:
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def rate_at(self, epoch: int, base: float, group: int = 0) -> float:
        return base * float(self.gamma**epoch)

    def get_lr(self) -> list[float]:
        return self.present() if self._is_initial else self.scaled(self.gamma)


# The arguments of `PolynomialLR` behind the optimizer, in PyTorch's order and in OneFlow's.
_PYTORCH: Final = ("total_iters", "power", "last_epoch")
_ONEFLOW: Final = ("decay_batch", "end_learning_rate", "power", "cycle", "last_epoch")


class PolynomialLR(LRScheduler):
    """Decrease the learning rates as a power of the fraction of the epochs that is left.

    PyTorch's form, ``PolynomialLR(optimizer, total_iters, power)``, ends at 0; OneFlow's form,
    ``PolynomialLR(optimizer, decay_batch, end_learning_rate, power, cycle)``, ends at `end_learning_rate`.  A call has
    OneFlow's form if it names `decay_batch`, `end_learning_rate` or `cycle`, names `power` behind three positional
    arguments, or has five positional arguments or more, or four and the fourth is no integer:
    ``PolynomialLR(optimizer, 100, 0.001, 2.0)``.  Every other call has PyTorch's form.

    Args:
        optimizer: the optimizer whose learning rates to set.
        total_iters: the number of epochs until the end, 5 by default.
        power: the exponent of the fraction that is left.
        last_epoch: the number of the last epoch when resuming, -1 when starting.
        decay_batch: OneFlow's name of `total_iters`.
        end_learning_rate: the last learning rate of OneFlow's form, 0.0001 by default.
        cycle: instead of keeping the last rate, add `decay_batch` epochs to the length whenever the end is passed.

    Raises:
        ValueError: if `total_iters` comes with OneFlow's arguments, OneFlow's form lacks `decay_batch`, or the number
            of epochs is below 1.
        TypeError, KeyError: as for `LRScheduler`; TypeError also for arguments that are unknown or given twice.

    Example:
        >>> optimizer = flow.optim.SGD([flow.ones(1, requires_grad=True)], lr=1.0)
        >>> schedule = flow.optim.lr_scheduler.PolynomialLR(optimizer, total_iters=4)
        >>> [schedule.rate_at(epoch, 1.0) for epoch in range(4)]
        [1.0, 0.75, 0.5, 0.25]
    """

    @overload
    def __init__(
        self, optimizer: Optimizer, total_iters: int = 5, power: float = 1.0, last_epoch: int = -1
    ) -> None: ...

    @overload
    def __init__(
        self,
        optimizer: Optimizer,
        decay_batch: int,
        end_learning_rate: float = 1e-4,
        power: float = 1.0,
        cycle: bool = False,
        last_epoch: int = -1,
    ) -> None: ...

    def __init__(self, optimizer: Optimizer, *args: Any, **kwargs: Any) -> None:
        oneflows = (
            not kwargs.keys().isdisjoint({"decay_batch", "end_learning_rate", "cycle"})
            or (len(args) == 2 and "power" in kwargs)
            or (len(args) == 3 and (isinstance(args[2], bool) or not isinstance(args[2], int)))
            or len(args) > 3
        )
        given = _bound(_ONEFLOW if oneflows else _PYTORCH, args, kwargs)
        self.total_iters: int = given.get("decay_batch", 5) if oneflows else given.get("total_iters", 5)
        if self.total_iters < 1:
            raise ValueError(f"PolynomialLR: needs at least one epoch, got {self.total_iters}")
        self.power: float = given.get("power", 1.0)
        self.end: float = given.get("end_learning_rate", 1e-4) if oneflows else 0.0
        self.cycle: bool = given.get("cycle", False)
        self.chained = not oneflows
        super().__init__(optimizer, given.get("last_epoch", -1))

    def rate_at(self, epoch: int, base: float, group: int = 0) -> float:
        length = self.total_iters * (max(1, math.ceil(epoch / self.total_iters)) if self.cycle else 1)
        left = 1 - min(epoch, length) / length
        return (base - self.end) * float(left**self.power) + self.end

    def get_lr(self) -> list[float]:
        if not self.chained:
            return super().get_lr()
        epoch, length = self.last_epoch, self.total_iters
        if self._is_initial or epoch > length:
            return self.present()
        return self.scaled(((1 - epoch / length) / (1 - (epoch - 1) / length)) ** self.power)


def _bound(names: tuple[str, ...], args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return a dict of the arguments behind the optimizer by `names`, the arguments of one form of `PolynomialLR`.

    Raises ValueError or TypeError for arguments that this form lacks, does not take, or gets twice.
    """
    if "total_iters" in kwargs and "total_iters" not in names:
        raise ValueError(
            "PolynomialLR: end_learning_rate and cycle belong to OneFlow's form, and total_iters to PyTorch's; name "
            "the time decay_batch, not both"
        )
    if "total_iters" not in names and "decay_batch" not in kwargs and not args:
        raise ValueError("PolynomialLR: end_learning_rate and cycle belong to OneFlow's form; give decay_batch too")
    if len(args) > len(names):
        raise TypeError(f"PolynomialLR: takes {', '.join(names)}, got {len(args)} arguments behind the optimizer")
    given = dict(zip(names, args, strict=False))
    for name, value in kwargs.items():
        if name not in names:
            raise TypeError(f"PolynomialLR: got an unexpected argument {name!r}; it takes {', '.join(names)}")
        if name in given:
            raise TypeError(f"PolynomialLR: {name} is given by its position and by its name")
        given[name] = value
    return given


class CosineAnnealingLR(LRScheduler):
    """Follow half a cosine from the initial rate down to `eta_min` in `T_max` epochs, then up in `T_max`, and so on.

    Loshchilov and Hutter, 2017, without the restarts.  `step` without an epoch computes each rate from the present one,
    so that other changes of the learning rate remain in effect.

    Raises:
        TypeError, KeyError: as for `LRScheduler`.
        ValueError: if `T_max` is less than 1.

    Example:
        >>> optimizer = flow.optim.SGD([flow.ones(1, requires_grad=True)], lr=1.0)
        >>> schedule = flow.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=2)
        >>> [round(schedule.rate_at(epoch, 1.0), 3) for epoch in range(4)]
        [1.0, 0.5, 0.0, 0.5]
    """

    def __init__(self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0, last_epoch: int = -1) -> None:
        if T_max < 1:
            raise ValueError(f"CosineAnnealingLR: T_max must be at least 1, got {T_max}")
        self.T_max = T_max
        self.eta_min = eta_min
        super().__init__(optimizer, last_epoch)

    def rate_at(self, epoch: int, base: float, group: int = 0) -> float:
        return self.eta_min + (base - self.eta_min) * (1 + math.cos(math.pi * epoch / self.T_max)) / 2

    def get_lr(self) -> list[float]:
        present = self.present()
        epoch = self.last_epoch
        if self._is_initial:
            return present
        before = 1 + math.cos(math.pi * (epoch - 1) / self.T_max)
        if (epoch - 1 - self.T_max) % (2 * self.T_max) == 0:
            # At eta_min, the bottom, (rate - eta_min) is 0, and no factor turns 0 into the next rate.
            rise = (1 - math.cos(math.pi / self.T_max)) / 2
            return [rate + (base - self.eta_min) * rise for rate, base in zip(present, self.base_lrs, strict=True)]
        factor = (1 + math.cos(math.pi * epoch / self.T_max)) / before
        return [factor * (rate - self.eta_min) + self.eta_min for rate in present]


class CosineAnnealingWarmRestarts(LRScheduler):
    """Follow half a cosine down, restart at the top, each descent `T_mult` times as long (Loshchilov and Hutter, 2017).

    Args:
        optimizer: the optimizer whose learning rates to set.
        T_0: the number of epochs until the first restart.
        T_mult: the factor between the lengths of one descent and the next.
        eta_min: the lowest rate.
        last_epoch: the number of the last epoch when resuming, -1 when starting.
        decay_rate: each restart multiplies the top, which is the initial rate at first, by this factor; an
            argument of OneFlow's.
        restart_limit: the number of descents, after which the rate stays at `eta_min`, 0 for no end; an argument of
            OneFlow's.

    `step` also takes fractions of epochs, from 0, to change the rate within an epoch.

    Raises:
        TypeError, KeyError: as for `LRScheduler`.
        ValueError: if `T_0`, `T_mult` or `restart_limit` is no integer, or too small.

    Example:
        >>> optimizer = flow.optim.SGD([flow.ones(1, requires_grad=True)], lr=1.0)
        >>> schedule = flow.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, T_0=2)
        >>> [round(schedule.rate_at(epoch, 1.0), 3) for epoch in range(4)]
        [1.0, 0.5, 1.0, 0.5]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        T_0: int,
        T_mult: int = 1,
        eta_min: float = 0.0,
        last_epoch: int = -1,
        *,
        decay_rate: float = 1.0,
        restart_limit: int = 0,
    ) -> None:
        for name, value in (("T_0", T_0), ("T_mult", T_mult)):
            if not isinstance(value, int) or value < 1:
                raise ValueError(f"CosineAnnealingWarmRestarts: {name} must be an integer of at least 1, got {value!r}")
        self.T_0 = T_0
        if not isinstance(restart_limit, int) or restart_limit < 0:
            raise ValueError(
                f"CosineAnnealingWarmRestarts: restart_limit must be an integer of at least 0, got {restart_limit!r}"
            )
        self.T_mult = T_mult
        self.eta_min = eta_min
        self.decay_rate = decay_rate
        self.restart_limit = restart_limit
        super().__init__(optimizer, last_epoch)

    def rate_at(self, epoch: float, base: float, group: int = 0) -> float:
        begin, length, restarts = 0, self.T_0, 0
        if self.T_mult == 1:
            restarts = int(epoch // length)
            begin = restarts * length
        while epoch >= begin + length:
            begin, length, restarts = begin + length, length * self.T_mult, restarts + 1
        if 0 < self.restart_limit <= restarts:
            return self.eta_min
        top = base * float(self.decay_rate**restarts)
        return self.eta_min + (top - self.eta_min) * (1 + math.cos(math.pi * (epoch - begin) / length)) / 2

    def step(self, epoch: float | None = None) -> None:
        if epoch is None:
            epoch = self.last_epoch + 1
        elif epoch < 0:
            raise ValueError(f"CosineAnnealingWarmRestarts: there is no epoch before 0, got {epoch}")
        rates = [self.rate_at(epoch, base) for base in self.base_lrs]
        self.last_epoch = math.floor(epoch)
        self.set_rates(rates)


class CosineDecayLR(LRScheduler):
    """Follow half a cosine to `alpha` times the initial rate in `decay_steps` steps, and keep that rate; OneFlow's.

    Raises:
        TypeError, KeyError: as for `LRScheduler`.
        ValueError: if `decay_steps` is less than 1.

    Example:
        >>> optimizer = flow.optim.SGD([flow.ones(1, requires_grad=True)], lr=1.0)
        >>> schedule = flow.optim.lr_scheduler.CosineDecayLR(optimizer, decay_steps=2)
        >>> [round(schedule.rate_at(epoch, 1.0), 3) for epoch in range(4)]
        [1.0, 0.5, 0.0, 0.0]
    """

    def __init__(self, optimizer: Optimizer, decay_steps: int, alpha: float = 0.0, last_step: int = -1) -> None:
        if decay_steps < 1:
            raise ValueError(f"CosineDecayLR: decay_steps must be at least 1, got {decay_steps}")
        self.decay_steps = decay_steps
        self.alpha = alpha
        super().__init__(optimizer, last_step)

    def rate_at(self, epoch: int, base: float, group: int = 0) -> float:
        cosine = (1 + math.cos(math.pi * min(epoch, self.decay_steps) / self.decay_steps)) / 2
        return base * ((1 - self.alpha) * cosine + self.alpha)


class _ByFunction(LRScheduler):
    """The base of schedulers with a user's function of the epoch for each parameter group."""

    def __init__(self, optimizer: Optimizer, lr_lambda: Factor | Sequence[Factor], last_epoch: int = -1) -> None:
        self.lr_lambdas: list[Factor] = per_group(type(self).__name__, optimizer, "functions", lr_lambda)
        super().__init__(optimizer, last_epoch)


class LambdaLR(_ByFunction):
    """Set the learning rates to the initial rates times a function of the epoch's number.

    Args:
        optimizer: the optimizer whose learning rates to set.
        lr_lambda: one function for all groups, or a list with one for each.
        last_epoch: the number of the last epoch when resuming, -1 when starting.

    Raises:
        TypeError, KeyError: as for `LRScheduler`.
        ValueError: if there are not as many functions as groups.

    Example:
        >>> optimizer = flow.optim.SGD([flow.ones(1, requires_grad=True)], lr=1.0)
        >>> schedule = flow.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 0.5**epoch)
        >>> [schedule.rate_at(epoch, 1.0) for epoch in range(4)]
        [1.0, 0.5, 0.25, 0.125]
    """

    def rate_at(self, epoch: int, base: float, group: int = 0) -> float:
        return base * self.lr_lambdas[group](epoch)


class MultiplicativeLR(_ByFunction):
    """Multiply the present learning rates by a function of the epoch's number, except in the constructor.

    Args:
        optimizer: the optimizer whose learning rates to set.
        lr_lambda: one function for all groups, or a list with one for each.
        last_epoch: the number of the last epoch when resuming, -1 when starting.

    Raises:
        TypeError, KeyError: as for `LRScheduler`.
        ValueError: if there are not as many functions as groups.

    Example:
        >>> optimizer = flow.optim.SGD([flow.ones(1, requires_grad=True)], lr=1.0)
        >>> schedule = flow.optim.lr_scheduler.MultiplicativeLR(optimizer, lambda epoch: 0.5)
        >>> [schedule.rate_at(epoch, 1.0) for epoch in range(4)]
        [1.0, 0.5, 0.25, 0.125]
    """

    def rate_at(self, epoch: int, base: float, group: int = 0) -> float:
        return math.prod([self.lr_lambdas[group](index) for index in range(1, epoch + 1)], start=base)

    def get_lr(self) -> list[float]:
        if self._is_initial:
            return self.present()
        return [rate * self.lr_lambdas[group](self.last_epoch) for group, rate in enumerate(self.present())]
