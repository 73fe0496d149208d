"""`ReduceLROnPlateau`: go down when a measure no longer gets better."""

from __future__ import annotations

import math
from typing import Any

from vmflow.optim.optimizer import Optimizer

from .scheduler import LRScheduler, number, per_group


class ReduceLROnPlateau(LRScheduler):
    """Multiply the rates by `factor` when a measure has not become better for more than `patience` epochs.

    Args:
        optimizer: whose learning rates to set.
        mode: "min" if less is better, "max" if more is.
        factor: below 1.
        patience: how many epochs may pass without the measure's becoming better.
        threshold: by how much it has to become better to count.
        threshold_mode: "rel", of the best so far, or "abs".
        cooldown: how many epochs after going down are not counted.
        min_lr: the lowest rate, or one for each group.
        eps: a smaller change is not made.

    Raises:
        TypeError: if it is no optimizer.
        ValueError: for settings that make no sense.

    Example:
        >>> optimizer = flow.optim.SGD([flow.ones(1, requires_grad=True)], lr=1.0)
        >>> schedule = flow.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=0)
        >>> for loss in (3.0, 3.0):
        ...     schedule.step(loss)
        >>> schedule.get_last_lr()
        [0.5]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        mode: str = "min",
        factor: float = 0.1,
        patience: int = 10,
        threshold: float = 1e-4,
        threshold_mode: str = "rel",
        cooldown: int = 0,
        min_lr: float | list[float] = 0,
        eps: float = 1e-8,
    ) -> None:
        if not factor < 1:
            raise ValueError(f"ReduceLROnPlateau: factor must be below 1, got {factor}")
        if mode not in ("min", "max"):
            raise ValueError(f"ReduceLROnPlateau: mode must be 'min' or 'max', got {mode!r}")
        if threshold_mode not in ("rel", "abs"):
            raise ValueError(f"ReduceLROnPlateau: threshold_mode must be 'rel' or 'abs', got {threshold_mode!r}")
        self.min_lrs: list[float] = per_group("ReduceLROnPlateau", optimizer, "lowest rates", min_lr)
        self.optimizer = optimizer
        self.mode = mode
        self.factor = factor
        self.patience = patience
        self.threshold = threshold
        self.threshold_mode = threshold_mode
        self.cooldown = cooldown
        self.eps = eps
        self.best = math.inf if mode == "min" else -math.inf
        self.cooldown_counter = 0
        self.num_bad_epochs = 0
        self.last_epoch = 0
        self._last_lr = [number(group["lr"]) for group in optimizer.param_groups]

    def step(self, metrics: Any, epoch: int | None = None) -> None:  # type: ignore[override]
        """End an epoch.

        Args:
            metrics: the measure, a number or a scalar tensor, which is waited for.
            epoch: the number of the next one, by default one more.
        """
        current = float(metrics)
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        if self._is_better(current):
            self.best = current
            self.num_bad_epochs = 0
        else:
            self.num_bad_epochs += 1
        if self.cooldown_counter:
            self.cooldown_counter -= 1
            self.num_bad_epochs = 0
        if self.num_bad_epochs > self.patience:
            lower = [max(rate * self.factor, least) for rate, least in zip(self.present(), self.min_lrs, strict=True)]
            pairs = zip(self.present(), lower, strict=True)
            self.set_rates([low if rate - low > self.eps else rate for rate, low in pairs])
            self.cooldown_counter = self.cooldown
            self.num_bad_epochs = 0
        else:
            self._last_lr = self.present()

    def _is_better(self, current: float) -> bool:
        sign = 1 if self.mode == "min" else -1
        if self.threshold_mode == "rel":
            return sign * current < sign * self.best * (1 - sign * self.threshold)
        return sign * current < sign * self.best - self.threshold
