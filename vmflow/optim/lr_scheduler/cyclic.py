"""`CyclicLR` and `OneCycleLR`: learning rates that rise and fall, while the momentum falls and rises."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from vmflow.optim.optimizer import Optimizer

from .scheduler import LRScheduler, per_group

Rates = float | list[float]


class _WithMomentum(LRScheduler):
    """The base of schedulers that also set the momentum, or ``betas[0]``, unless `cycle_momentum` is False."""

    cycle_momentum: bool

    def momentum_at(self, epoch: int, group: int = 0) -> float:
        """The momentum of a parameter group in an epoch; subclasses define this method."""
        raise NotImplementedError

    def check_momentum(self, optimizer: Optimizer) -> None:
        if self.cycle_momentum and not {"momentum", "betas"} & optimizer.defaults.keys():
            raise ValueError(
                f"{type(self).__name__}: {type(optimizer).__name__} has neither momentum nor betas; "
                "pass cycle_momentum=False"
            )

    def set_rates(self, rates: Any) -> None:
        super().set_rates(rates)
        if not self.cycle_momentum:
            return
        for position, group in enumerate(self.optimizer.param_groups):
            momentum = self.momentum_at(self.last_epoch, position)
            if "betas" in group:
                group["betas"] = (momentum, *group["betas"][1:])
            else:
                group["momentum"] = momentum


class CyclicLR(_WithMomentum):
    """Move the learning rate up and down between two bounds (Smith, 2017).

    Args:
        optimizer: the optimizer whose learning rates to set.
        base_lr, max_lr: the bounds, each a number or a list with one for each group.
        step_size_up, step_size_down: the numbers of steps up and down in a cycle; equal by default.
        mode: "triangular"; "triangular2", which halves the height of the upper bound above the lower with each cycle;
            "exp_range", which multiplies the height by `gamma` with each step.
        gamma: the factor of the height in each step, for "exp_range".
        scale_fn: in place of a mode: a function that returns the factor of the height for the number of the cycle, from
            1, or of the step, from 0.
        scale_mode: the argument of `scale_fn`: "cycle" or "iterations".
        cycle_momentum: move the momentum down while the rate goes up, and up while it goes down.
        base_momentum, max_momentum: the momentum's bounds, each a number or a list with one for each group.
        last_epoch: the number of the last step when resuming, -1 when starting.

    Raises:
        TypeError, KeyError: as for `LRScheduler`.
        ValueError: for another mode, lists that do not fit, or an optimizer with neither momentum nor betas, if
            `cycle_momentum`.

    Example:
        >>> optimizer = flow.optim.SGD([flow.ones(1, requires_grad=True)], lr=1.0, momentum=0.5)
        >>> schedule = flow.optim.lr_scheduler.CyclicLR(optimizer, base_lr=0.5, max_lr=1.5, step_size_up=2)
        >>> [schedule.rate_at(epoch, 1.0) for epoch in range(4)]
        [0.5, 1.0, 1.5, 1.0]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        base_lr: Rates,
        max_lr: Rates,
        step_size_up: int = 2000,
        step_size_down: int | None = None,
        mode: str = "triangular",
        gamma: float = 1.0,
        scale_fn: Callable[[float], float] | None = None,
        scale_mode: str = "cycle",
        cycle_momentum: bool = True,
        base_momentum: Rates = 0.8,
        max_momentum: Rates = 0.9,
        last_epoch: int = -1,
    ) -> None:
        if scale_fn is None and mode not in ("triangular", "triangular2", "exp_range"):
            raise ValueError(f"CyclicLR: mode must be 'triangular', 'triangular2' or 'exp_range', got {mode!r}")
        self.cycle_momentum = cycle_momentum
        self.lows: list[float] = per_group("CyclicLR", optimizer, "rates", base_lr)
        self.max_lrs: list[float] = per_group("CyclicLR", optimizer, "rates", max_lr)
        self.base_momentums: list[float] = per_group("CyclicLR", optimizer, "momentums", base_momentum)
        self.max_momentums: list[float] = per_group("CyclicLR", optimizer, "momentums", max_momentum)
        self.check_momentum(optimizer)
        self.total_size = step_size_up + (step_size_up if step_size_down is None else step_size_down)
        self.step_ratio = step_size_up / self.total_size
        self.mode = mode
        self.gamma = gamma
        self.scale_mode = scale_mode
        self.scale_fn = scale_fn
        super().__init__(optimizer, last_epoch)
        self.base_lrs = list(self.lows)

    def _height_at(self, epoch: int) -> float:
        """The height of the rate between its bounds in a step: 0 at the lower bound, 1 at the upper."""
        cycle = 1 + epoch // self.total_size
        done = epoch / self.total_size + 1 - cycle
        height = done / self.step_ratio if done < self.step_ratio else (done - 1) / (self.step_ratio - 1)
        if self.scale_fn is not None:
            return height * self.scale_fn(cycle if self.scale_mode == "cycle" else epoch)
        if self.mode == "triangular2":
            return height / 2.0 ** (cycle - 1)
        return height * float(self.gamma**epoch) if self.mode == "exp_range" else height

    def rate_at(self, epoch: int, base: float, group: int = 0) -> float:
        return self.lows[group] + (self.max_lrs[group] - self.lows[group]) * self._height_at(epoch)

    def momentum_at(self, epoch: int, group: int = 0) -> float:
        most = self.max_momentums[group]
        return most - (most - self.base_momentums[group]) * self._height_at(epoch)


class OneCycleLR(_WithMomentum):
    """Raise the learning rate once to `max_lr`, then lower it far below the first rate (Smith and Topin, 2018).

    Args:
        optimizer: the optimizer whose learning rates to set.
        max_lr: the highest rate, a number or a list with one for each group.
        total_steps: the number of steps; by default, ``epochs * steps_per_epoch``.
        epochs, steps_per_epoch: both needed without `total_steps`.
        pct_start: the fraction of the steps in which the rate goes up.
        anneal_strategy: "cos" or "linear".
        cycle_momentum: move the momentum down while the rate goes up, and up while it goes down.
        base_momentum, max_momentum: the momentum's bounds, each a number or a list with one for each group.
        div_factor: the rise begins at ``max_lr / div_factor``.
        final_div_factor: the last rate is the rise's first rate divided by this factor.
        three_phase: whether to go down to the first rate in as many steps as up, and then to the last rate.
        last_epoch: the number of the last step when resuming, -1 when starting.

    Raises:
        TypeError, KeyError: as for `LRScheduler`.
        ValueError: for settings out of range, with `cycle_momentum` for an optimizer with neither momentum nor betas,
            and for step numbers above `total_steps`.

    Example:
        >>> optimizer = flow.optim.SGD([flow.ones(1, requires_grad=True)], lr=1.0, momentum=0.5)
        >>> schedule = flow.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1.0, total_steps=4, pct_start=0.5)
        >>> [round(schedule.rate_at(epoch, 0.04), 2) for epoch in range(4)]
        [0.04, 1.0, 0.5, 0.0]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        max_lr: Rates,
        total_steps: int | None = None,
        epochs: int | None = None,
        steps_per_epoch: int | None = None,
        pct_start: float = 0.3,
        anneal_strategy: str = "cos",
        cycle_momentum: bool = True,
        base_momentum: Rates = 0.85,
        max_momentum: Rates = 0.95,
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
        three_phase: bool = False,
        last_epoch: int = -1,
    ) -> None:
        if total_steps is None:
            if epochs is None or steps_per_epoch is None:
                raise ValueError("OneCycleLR: give total_steps, or epochs and steps_per_epoch")
            total_steps = epochs * steps_per_epoch
        if not isinstance(total_steps, int) or total_steps < 1:
            raise ValueError(f"OneCycleLR: the number of steps must be a positive integer, got {total_steps!r}")
        if not 0 <= pct_start <= 1:
            raise ValueError(f"OneCycleLR: pct_start must be within [0, 1], got {pct_start}")
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(f"OneCycleLR: anneal_strategy must be 'cos' or 'linear', got {anneal_strategy!r}")
        self.cycle_momentum = cycle_momentum
        self.max_lrs: list[float] = per_group("OneCycleLR", optimizer, "rates", max_lr)
        self.base_momentums: list[float] = per_group("OneCycleLR", optimizer, "momentums", base_momentum)
        self.max_momentums: list[float] = per_group("OneCycleLR", optimizer, "momentums", max_momentum)
        self.check_momentum(optimizer)
        self.total_steps = total_steps
        self.pct_start = pct_start
        self.anneal_strategy = anneal_strategy
        self.final_div_factor = final_div_factor
        self.three_phase = three_phase
        if last_epoch == -1:
            for group, most in zip(optimizer.param_groups, self.max_lrs, strict=True):
                group["initial_lr"] = most / div_factor
        super().__init__(optimizer, last_epoch)

    def rate_at(self, epoch: int, base: float, group: int = 0) -> float:
        if epoch > self.total_steps:
            raise ValueError(f"OneCycleLR: step {epoch} is beyond the last, which is {self.total_steps}")
        top, least = self.max_lrs[group], base / self.final_div_factor
        return self._along(epoch, [base, top, base, least] if self.three_phase else [base, top, least])

    def momentum_at(self, epoch: int, group: int = 0) -> float:
        least, most = self.base_momentums[group], self.max_momentums[group]
        return self._along(epoch, [most, least, most, most] if self.three_phase else [most, least, most])

    def _along(self, epoch: int, corners: list[float]) -> float:
        """Return the value at `epoch`, interpolated between `corners`, the values at the ends of the phases."""
        rise = self.pct_start * self.total_steps
        ends = [0.0, rise - 1, 2 * rise - 2][: len(corners) - 1] + [self.total_steps - 1.0]
        phase = next((index for index in range(1, len(corners)) if epoch <= ends[index]), len(corners) - 1)
        length = ends[phase] - ends[phase - 1]
        done = (epoch - ends[phase - 1]) / length if length else 1.0
        start, end = corners[phase - 1], corners[phase]
        if self.anneal_strategy == "linear":
            return start + (end - start) * done
        return end + (start - end) / 2 * (1 + math.cos(math.pi * done))
