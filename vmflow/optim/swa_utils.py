"""Averaging the weights of a model over its training: `AveragedModel`, `SWALR` and `update_bn`."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import attrs

from vmflow.autograd import no_grad
from vmflow.devices import device as Device
from vmflow.dtypes import int64
from vmflow.kernels.problems.updates import Averages
from vmflow.kernels.updates import choose_update
from vmflow.multi_tensor import Update, issue_update
from vmflow.nn.module import Module
from vmflow.nn.normalization_layers import _BatchNorm
from vmflow.ops.creation.creation import zeros
from vmflow.tensors import Tensor

from .lr_scheduler import LRScheduler
from .lr_scheduler.scheduler import per_group
from .optimizer import Optimizer

# ``avg_fn(averaged, current, n_averaged)`` returns the new average of one parameter.
AverageOne = Callable[[Tensor, Tensor, Any], Tensor]

# ``multi_avg_fn(averaged, current, n_averaged)`` changes the averages of all parameters in place.
AverageAll = Callable[[Sequence[Tensor], Sequence[Tensor], Any], None]


@attrs.frozen(eq=False)
class Weighted:
    """A running average of tensors of any shape: ``average += (newest - average) * weight``.

    A `weight` of None stands for ``1 / (n_averaged + 1)``, for the plain mean of all tensors.  `AveragedModel` computes
    the average by one instruction for each device, without waiting for `n_averaged`; its first update copies.

    The constructor raises no errors.

    Example:
        >>> flow.optim.swa_utils.Weighted(0.25)(flow.zeros(2), flow.ones(2), 1)
        tensor([0.2500, 0.2500])
    """

    weight: float | None

    def __call__(self, averaged: Any, current: Any, number: Any) -> Any:
        """Return the new average of a tensor, as an `avg_fn`; change the averages in a list, as a `multi_avg_fn`."""
        weight = 1 / (int(number) + 1) if self.weight is None else self.weight
        if isinstance(averaged, Tensor):
            return averaged + (current - averaged) * weight
        with no_grad():
            for old, new in zip(averaged, current, strict=True):
                old.add_((new.detach() - old) * weight)
        return None


def get_swa_avg_fn() -> Weighted:
    """Return the `avg_fn` of stochastic weight averaging: the plain mean of all parameter values so far.

    Example:
        >>> flow.optim.swa_utils.get_swa_avg_fn()(flow.tensor(1.0), flow.tensor(3.0), 1)
        tensor(2.)
    """
    return Weighted(None)


def get_ema_avg_fn(decay: float = 0.999) -> Weighted:
    """Return the `avg_fn` of an exponential moving average: ``decay * average + (1 - decay) * current``.

    Raises:
        ValueError: if `decay` is not within [0, 1].

    Example:
        >>> flow.optim.swa_utils.get_ema_avg_fn(0.75)(flow.tensor(1.0), flow.tensor(3.0), 1)
        tensor(1.5000)
    """
    if not 0 <= decay <= 1:
        raise ValueError(f"get_ema_avg_fn: decay must be within [0, 1], got {decay}")
    return Weighted(1 - decay)


get_swa_multi_avg_fn = get_swa_avg_fn
get_ema_multi_avg_fn = get_ema_avg_fn


class AveragedModel(Module):
    """A copy of a model; the copy's parameters are averages of the model's at several moments of the training.

    Izmailov and others, 2018.  With the functions of this module, one instruction updates all averages on a device, so
    a cancelled scope does not drop a part of these.

    Args:
        model: the model to copy.
        device: the device of the copy, by default that of the model.
        avg_fn: computes the new average of one parameter; by default the plain mean.
        multi_avg_fn: instead of `avg_fn`; computes the new averages of all parameters in place.  Functions for
            either argument, but those of this module, are not called at the first update, and make `update_parameters`
            wait for `n_averaged`.
        use_buffers: average floating-point buffers as well; `update_parameters` copies all other buffers of the model.

    Attributes:
        module: the copy of the model.
        n_averaged: a scalar tensor: the number of calls of `update_parameters`.

    Raises:
        ValueError: if both `avg_fn` and `multi_avg_fn` are given.

    Example:
        >>> model = flow.nn.Linear(2, 2)
        >>> averaged = flow.optim.swa_utils.AveragedModel(model)
        >>> averaged.update_parameters(model)
        >>> averaged.n_averaged
        tensor(1)
    """

    n_averaged: Tensor

    def __init__(
        self,
        model: Module,
        device: Device | str | None = None,
        avg_fn: AverageOne | None = None,
        multi_avg_fn: AverageAll | None = None,
        use_buffers: bool = False,
    ) -> None:
        super().__init__()
        if avg_fn is not None and multi_avg_fn is not None:
            raise ValueError("AveragedModel: give avg_fn or multi_avg_fn, not both")
        self.module = copy.deepcopy(model)
        if device is not None:
            self.module = self.module.to(device)
        home = next((parameter.device for parameter in self.module.parameters()), device)
        self.register_buffer("n_averaged", zeros((), dtype=int64, device=home))
        self.avg_fn = avg_fn
        self.multi_avg_fn = multi_avg_fn
        self.use_buffers = use_buffers

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)

    def update_parameters(self, model: Module) -> None:
        """Include the present parameters of `model` in the average.

        Raises:
            ValueError: if `model` has parameters or buffers of another number or shape than the copy.
        """
        averaged, copied = self._pairs(model)
        function = self.multi_avg_fn or self.avg_fn or get_swa_avg_fn()
        if not isinstance(function, Weighted):
            self._average_by_functions(averaged)
            averaged, function = [], Weighted(1.0)
        devices = dict.fromkeys([self.n_averaged.device, *[mine.device for mine, _ in (*averaged, *copied)]])
        # The update of each device counts: the first one in `n_averaged`, the others in copies made before.
        numbers = [self.n_averaged.to(device) for device in devices]
        for device, number in zip(devices, numbers, strict=True):
            weighed = [pair for pair in averaged if pair[0].device is device]
            pairs = [*weighed, *[pair for pair in copied if pair[0].device is device]]
            outputs = [*[mine for mine, _ in pairs], number]
            kernel = choose_update("average", device).kernel(Averages(len(weighed), function.weight))
            elements = sum([output.numel() for output in outputs])
            issue_update(Update("AveragedModel.update", kernel, [theirs for _, theirs in pairs], outputs, 2 * elements))

    def _pairs(self, model: Module) -> tuple[list[tuple[Tensor, Tensor]], list[tuple[Tensor, Tensor]]]:
        """Return the tensors to average and the tensors to copy, as pairs of the average's and the model's tensor."""
        shapes = [
            [list(tensor.shape) for tensor in (*each.parameters(), *each.buffers())] for each in (self.module, model)
        ]
        if shapes[0] != shapes[1]:
            raise ValueError(
                f"AveragedModel: the averages have the shapes {shapes[0]!s:.200}, and the model's tensors "
                f"{shapes[1]!s:.200}; give a model like the one that was copied"
            )
        averaged: list[tuple[Tensor, Tensor]] = [*zip(self.module.parameters(), model.parameters(), strict=True)]
        copied: list[tuple[Tensor, Tensor]] = []
        for mine, theirs in zip(self.module.buffers(), model.buffers(), strict=True):
            (averaged if self.use_buffers and mine.is_floating_point() else copied).append((mine, theirs))
        moved = [[(mine, theirs.detach().to(mine.device)) for mine, theirs in pairs] for pairs in (averaged, copied)]
        return moved[0], moved[1]

    def _average_by_functions(self, pairs: list[tuple[Tensor, Tensor]]) -> None:
        mine, theirs = [old for old, _ in pairs], [new for _, new in pairs]
        with no_grad():
            if not self.n_averaged.item():
                for old, new in pairs:
                    old.copy_(new)
            elif self.multi_avg_fn is not None:
                self.multi_avg_fn([old.detach() for old in mine], theirs, self.n_averaged)
            elif self.avg_fn is not None:
                for old, new in pairs:
                    old.copy_(self.avg_fn(old.detach(), new, self.n_averaged))


def update_bn(loader: Iterable[Any], model: Module, device: Device | str | None = None) -> None:
    """Recompute the running statistics of all batch norms of a model, by one pass over the data.

    Instance norms are no batch norms: each batch changes their running statistics as in training.

    Args:
        loader: an iterable of batches; if a batch is a tuple or list, its first item is the model's input.
        model: the model.  If it has batch norms, it is run in training mode; then it and all modules below it are put
            into the mode in which the model itself was.
        device: the device to move the batches to.

    Raises:
        Exception: the model's own errors.

    Example:
        >>> model = flow.nn.BatchNorm1d(1)
        >>> flow.optim.swa_utils.update_bn([flow.tensor([[1.0], [3.0]])], model)
        >>> model.running_mean
        tensor([2.])
    """
    norms = [module for module in model.modules() if isinstance(module, _BatchNorm)]
    if not norms:
        return
    was_training = model.training
    momenta = [norm.momentum for norm in norms]
    try:
        model.train()
        for norm in norms:
            norm.reset_running_stats()
            norm.momentum = None  # the plain mean over all batches
        with no_grad():
            for batch in loader:
                data = batch[0] if isinstance(batch, (list, tuple)) else batch
                model(data if device is None else data.to(device))
    finally:
        for norm, momentum in zip(norms, momenta, strict=True):
            norm.momentum = momentum
        model.train(was_training)


class SWALR(LRScheduler):
    """Move the learning rates from their present values to the constant `swa_lr` within `anneal_epochs` epochs.

    Args:
        optimizer: the optimizer whose learning rates to set.
        swa_lr: the last rate, a number or a list with one for each group.
        anneal_epochs: the number of epochs until the rates are `swa_lr`.
        anneal_strategy: "cos" or "linear".
        last_epoch: the number of the last epoch when resuming, -1 when starting.

    Raises:
        TypeError, KeyError: as for `LRScheduler`.
        ValueError: for another strategy, an `anneal_epochs` that is negative or no integer, or if there are not as many
            rates as groups.

    Example:
        >>> optimizer = flow.optim.SGD([flow.ones(1, requires_grad=True)], lr=1.0)
        >>> schedule = flow.optim.swa_utils.SWALR(optimizer, 0.5, anneal_epochs=2, anneal_strategy="linear")
        >>> [schedule.rate_at(epoch, 1.0) for epoch in range(4)]
        [1.0, 0.75, 0.5, 0.5]
    """

    begins_at_present = True

    def __init__(
        self,
        optimizer: Optimizer,
        swa_lr: float | list[float],
        anneal_epochs: int = 10,
        anneal_strategy: str = "cos",
        last_epoch: int = -1,
    ) -> None:
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(f"SWALR: anneal_strategy must be 'cos' or 'linear', got {anneal_strategy!r}")
        if not isinstance(anneal_epochs, int) or anneal_epochs < 0:
            raise ValueError(f"SWALR: anneal_epochs must be an integer that is not negative, got {anneal_epochs!r}")
        self.swa_lrs: list[float] = per_group("SWALR", optimizer, "rates", swa_lr)
        self.anneal_epochs = anneal_epochs
        self.anneal_strategy = anneal_strategy
        super().__init__(optimizer, last_epoch)

    def _share(self, epoch: int) -> float:
        """The weight of `swa_lr` in the learning rate of an epoch, from 0 to 1."""
        if not self.anneal_epochs:
            return float(epoch >= 1)
        done = max(0.0, min(1.0, epoch / self.anneal_epochs))
        return (1 - math.cos(math.pi * done)) / 2 if self.anneal_strategy == "cos" else done

    def rate_at(self, epoch: int, base: float, group: int = 0) -> float:
        share = self._share(max(1, epoch) if not self.anneal_epochs else epoch)
        return self.swa_lrs[group] * share + base * (1 - share)

    def get_lr(self) -> list[float]:
        if self._is_initial and self.anneal_epochs:
            return self.present()
        epoch = self.last_epoch if self.anneal_epochs else max(1, self.last_epoch)
        before, now = self._share(epoch - 1), self._share(epoch)
        return [
            goal if before == 1 else goal * now + (rate - before * goal) / (1 - before) * (1 - now)
            for rate, goal in zip(self.present(), self.swa_lrs, strict=True)
        ]
