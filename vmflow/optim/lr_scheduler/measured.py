"""`ReduceLROnPlateau`: reduce the learning rates when a metric no longer improves."""

from __future__ import annotations

import math
from typing import Any

from vmflow.optim.optimizer import Optimizer

from .scheduler import LRScheduler, number, per_group


class ReduceLROnPlateau(LRScheduler):
    """Multiply the learning rates by `factor` when a metric has not improved for more than `patience` epochs.

    Args:
        optimizer: the optimizer whose learning rates to set.
        mode: "min" if a smaller metric is better, "max" if a larger one is.
        factor: the factor of the rates, below 1.
        patience: the number of epochs in a row that may pass without improvement.
        threshold: the change of the metric that an improvement must exceed.
        threshold_mode: "rel" for a threshold relative to the best metric so far, which should be positive; or "abs".
        cooldown: the number of epochs after a reduction that do not count as epochs without improvement.
        min_lr: the lowest rate, or a list with one for each group.
        eps: a rate that would change by no more than this stays as it is.

    Raises:
        TypeError: if `optimizer` is no optimizer.
        ValueError: for settings out of range.

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
        self.base_lrs = [number(group.get("initial_lr", group["lr"])) for group in optimizer.param_groups]
        self.restart()

    def restart(self) -> None:
        """Begin epoch 0 again and forget all metrics; the caller must have set the optimizer's rates before."""
        self.best = math.inf if self.mode == "min" else -math.inf
        self.cooldown_counter = 0
        self.num_bad_epochs = 0
        self.last_epoch = 0
        self._last_lr = [number(group["lr"]) for group in self.optimizer.param_groups]

    def rate_at(self, epoch: int, base: float, group: int = 0) -> float:
        """Not supported, since the rates depend on the metrics.

        Raises:
            NotImplementedError: always.
        """
        raise NotImplementedError("ReduceLROnPlateau: the rates depend on the metrics, so no rate is known in advance")

    def step(self, metrics: Any, epoch: int | None = None) -> None:  # type: ignore[override]
        """Compare an epoch's metric with the best so far, and reduce the learning rates if `patience` is exceeded.

        Args:
            metrics: the metric, a number, or a scalar tensor, for which the call waits.
            epoch: the new `last_epoch`, by default one more than before.
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
