"""Schedulers made of other schedulers: `SequentialLR`, `ChainedScheduler`, and `WarmUpLR`."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Any

from vmflow.optim.optimizer import Optimizer

from .measured import ReduceLROnPlateau
from .scheduler import LRScheduler, check_optimizer, number


class _Combined(LRScheduler):
    """The base of schedulers that step other schedulers; the state dict contains the others' state dicts."""

    unsaved = ("optimizer", "_schedulers")
    _schedulers: list[LRScheduler]

    def _take(self, schedulers: Sequence[Any], optimizer: Optimizer | None) -> None:
        name = type(self).__name__
        if not schedulers:
            raise ValueError(f"{name}: needs at least one schedule")
        for position, scheduler in enumerate(schedulers):
            if isinstance(scheduler, ReduceLROnPlateau) or not isinstance(scheduler, LRScheduler):
                raise TypeError(f"{name}: schedule {position} is {type(scheduler).__name__}, which cannot be combined")
        self.optimizer = optimizer or schedulers[0].optimizer
        check_optimizer(name, self.optimizer)
        for position, scheduler in enumerate(schedulers):
            if scheduler.optimizer is not self.optimizer:
                raise ValueError(f"{name}: schedule {position} belongs to another optimizer")
        self._schedulers = list(schedulers)
        self.base_lrs = [number(group["initial_lr"]) for group in self.optimizer.param_groups]

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "_schedulers": [scheduler.state_dict() for scheduler in self._schedulers]}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        super().load_state_dict({key: value for key, value in state_dict.items() if key != "_schedulers"})
        for scheduler, state in zip(self._schedulers, state_dict["_schedulers"], strict=True):
            scheduler.load_state_dict(state)

    def _no_number(self, epoch: int | None) -> None:
        if epoch is not None:
            raise NotImplementedError(f"{type(self).__name__}: goes on from step to step and takes no epoch")


class ChainedScheduler(_Combined):
    """Step several schedulers, one after another: those that multiply the present learning rates combine.

    Args:
        schedulers: schedulers of one optimizer.
        optimizer: the schedulers' optimizer; if given, it is only checked.

    Raises:
        TypeError: for a `ReduceLROnPlateau`, elements that are no schedulers, and an `optimizer` that is none.
        ValueError: for an empty list, and for schedulers of several optimizers.

    Example:
        >>> optimizer = flow.optim.SGD([flow.ones(1, requires_grad=True)], lr=1.0)
        >>> halve = flow.optim.lr_scheduler.ExponentialLR
        >>> schedule = flow.optim.lr_scheduler.ChainedScheduler([halve(optimizer, 0.5), halve(optimizer, 0.5)])
        >>> schedule.step()
        >>> schedule.get_last_lr()
        [0.25]
    """

    def __init__(self, schedulers: Sequence[LRScheduler], optimizer: Optimizer | None = None) -> None:
        self._take(schedulers, optimizer)
        self.last_epoch = self._schedulers[-1].last_epoch
        self._last_lr = self._schedulers[-1].get_last_lr()

    def step(self, epoch: int | None = None) -> None:
        self._no_number(epoch)
        for scheduler in self._schedulers:
            scheduler.step()
        self.last_epoch += 1
        self._last_lr = self._schedulers[-1].get_last_lr()

    def restart(self) -> None:
        for scheduler in self._schedulers:
            scheduler.restart()
        self.last_epoch = 0
        self._last_lr = self._schedulers[-1].get_last_lr()


class SequentialLR(_Combined):
    """Run one scheduler after another; each begins at its milestone, from the initial learning rates.

    An `SWALR` begins with the present learning rates.

    Args:
        optimizer: the optimizer of all schedulers.
        schedulers: the schedulers in their order.
        milestones: the epochs at which the second scheduler and the following ones begin.
        last_epoch: the number of the last epoch, -1 when starting.  As in PyTorch, the first scheduler begins with its
            epoch 0 all the same, so use `load_state_dict` to resume.
        interval_rescaling: OneFlow's: whether a scheduler begins with its epoch 0 at its milestone, as by default;
            False: with the epoch that the scheduler would have reached if it had run from the start.  A bool for all
            milestones, or a list with one for each; also in the position of `last_epoch`, where OneFlow has it.

    Raises:
        TypeError, ValueError: as for `ChainedScheduler`, and for other arguments that do not fit.
        NotImplementedError: with ``interval_rescaling=False``, for a scheduler that does not define `rate_at`.

    Example:
        >>> optimizer = flow.optim.SGD([flow.ones(1, requires_grad=True)], lr=1.0)
        >>> low = flow.optim.lr_scheduler.ConstantLR(optimizer, factor=0.5, total_iters=9)
        >>> high = flow.optim.lr_scheduler.ConstantLR(optimizer, factor=1.0)
        >>> schedule = flow.optim.lr_scheduler.SequentialLR(optimizer, [low, high], milestones=[1])
        >>> schedule.get_last_lr()
        [0.5]
        >>> schedule.step()
        >>> schedule.get_last_lr()
        [1.0]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        schedulers: Sequence[LRScheduler],
        milestones: Sequence[int],
        last_epoch: int | bool | Sequence[bool] = -1,
        *,
        interval_rescaling: bool | Sequence[bool] | None = None,
    ) -> None:
        if isinstance(last_epoch, (bool, list, tuple)):
            interval_rescaling, last_epoch = last_epoch, -1
        if not isinstance(last_epoch, int):
            raise TypeError(f"SequentialLR: last_epoch must be an integer, got {last_epoch!r}")
        self._take(schedulers, optimizer)
        if len(milestones) != len(schedulers) - 1:
            raise ValueError(
                f"SequentialLR: {len(schedulers)} schedules need {len(schedulers) - 1} milestones, "
                f"got {len(milestones)}"
            )
        if list(milestones) != sorted(milestones):
            raise ValueError(f"SequentialLR: the milestones must not go down, got {list(milestones)}")
        rescaled = True if interval_rescaling is None else interval_rescaling
        self._rescaled = [rescaled] * len(milestones) if isinstance(rescaled, bool) else list(rescaled)
        if len(self._rescaled) != len(milestones) or not all([isinstance(choice, bool) for choice in self._rescaled]):
            raise ValueError(
                f"SequentialLR: interval_rescaling must be a bool, or one for each of {len(milestones)} milestones, "
                f"got {rescaled!r}"
            )
        for chosen, again in enumerate(self._rescaled):
            if not again:
                schedulers[chosen + 1].rates_at(0)  # raises NotImplementedError without `rate_at`
        self._milestones = list(milestones)
        self.restart()
        self.last_epoch = last_epoch + 1

    def restart(self) -> None:
        self.last_epoch = 0
        self.set_rates(self.base_lrs)
        self._begin(bisect_right(self._milestones, 0))

    def step(self, epoch: int | None = None) -> None:
        self._no_number(epoch)
        self.last_epoch += 1
        chosen = bisect_right(self._milestones, self.last_epoch)
        if chosen and not self._rescaled[chosen - 1]:
            self._schedulers[chosen].step(self.last_epoch)
            self._last_lr = self._schedulers[chosen].get_last_lr()
        elif chosen and self._milestones[chosen - 1] == self.last_epoch:
            if not self._schedulers[chosen].begins_at_present:
                self.set_rates(self.base_lrs)
            self._begin(chosen)
        else:
            self._schedulers[chosen].step()
            self._last_lr = self._schedulers[chosen].get_last_lr()

    def _begin(self, chosen: int) -> None:
        self._schedulers[chosen].restart()
        self._last_lr = self._schedulers[chosen].get_last_lr()


class WarmUpLR(LRScheduler):
    """Begin with small learning rates, then use another scheduler's rates, or the initial rates; OneFlow's.

    Args:
        scheduler_or_optimizer: the scheduler to use after the warm-up, or the optimizer.
        warmup_factor: the factor of the initial rates at step 0, with "constant" in all steps of the warm-up.
        warmup_iters: the number of steps of the warm-up.
        warmup_method: "linear", to go evenly to the first rate after the warm-up, or "constant".
        warmup_prefix: whether the scheduler begins with its step 0 after the warm-up; else it continues with step
            `warmup_iters`, as if it had run during the warm-up.
        last_step: the number of the last step when resuming, -1 when starting.

    Raises:
        TypeError, KeyError: as for `LRScheduler`.
        ValueError: for another method, or a `warmup_iters` below 1 (with a scheduler, below 0).
        NotImplementedError: for a scheduler that does not define `rate_at`.

    Example:
        >>> optimizer = flow.optim.SGD([flow.ones(1, requires_grad=True)], lr=1.0)
        >>> schedule = flow.optim.lr_scheduler.WarmUpLR(optimizer, warmup_factor=0.5, warmup_iters=2)
        >>> [schedule.rate_at(epoch, 1.0) for epoch in range(4)]
        [0.5, 0.75, 1.0, 1.0]
    """

    unsaved = ("optimizer", "_schedule")

    def __init__(
        self,
        scheduler_or_optimizer: LRScheduler | Optimizer,
        warmup_factor: float = 1 / 3,
        warmup_iters: int = 5,
        warmup_method: str = "linear",
        warmup_prefix: bool = False,
        last_step: int = -1,
    ) -> None:
        schedule = scheduler_or_optimizer if isinstance(scheduler_or_optimizer, LRScheduler) else None
        optimizer: Any = scheduler_or_optimizer if schedule is None else schedule.optimizer
        if warmup_method not in ("linear", "constant"):
            raise ValueError(f"WarmUpLR: warmup_method must be 'linear' or 'constant', got {warmup_method!r}")
        if warmup_iters < (schedule is None):
            raise ValueError(f"WarmUpLR: warmup_iters must be at least 1, got {warmup_iters}")
        check_optimizer("WarmUpLR", optimizer)
        if schedule is not None:
            schedule.rates_at(0)
        self._schedule = schedule
        self.warmup_factor = warmup_factor
        self.warmup_iters = warmup_iters
        self.warmup_method = warmup_method
        self.warmup_prefix = warmup_prefix
        super().__init__(optimizer, last_step)

    def rate_at(self, epoch: int, base: float, group: int = 0) -> float:
        if epoch >= self.warmup_iters:
            return self._behind(epoch, base, group)
        first = base * self.warmup_factor
        if self.warmup_method == "constant":
            return first
        return first + (self._behind(self.warmup_iters, base, group) - first) * epoch / self.warmup_iters

    def _behind(self, epoch: int, base: float, group: int) -> float:
        """The rate after the warm-up: that of the wrapped scheduler or, without one, the initial rate.

        With `warmup_prefix`, the scheduler's epochs are counted from the end of the warm-up.
        """
        if self._schedule is None:
            return base
        return self._schedule.rate_at(epoch - self.warmup_iters * self.warmup_prefix, base, group)
