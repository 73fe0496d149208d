"""`GradScaler`: scale losses up so that small gradients survive float16, and skip steps whose gradients overflowed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from vmflow import dtypes
from vmflow.devices import device as Device
from vmflow.interpreter import eagerly
from vmflow.kernels.problems.updates import AdaptScale
from vmflow.kernels.updates import choose_update
from vmflow.multi_tensor import Update, by_device, issue_update
from vmflow.ops.creation.creation import full, zeros
from vmflow.optim.optimizer import Optimizer
from vmflow.scopes import scope
from vmflow.tensors import Tensor
from vmflow.transfers import beside

# The stage of an optimizer since the last `GradScaler.update`: no call, `unscale_` was called, or `step` was called.
_READY, _UNSCALED, _STEPPED = "ready", "unscaled", "stepped"


class GradScaler:
    """Multiplies losses by a scale, divides gradients by it before a step, and skips steps if gradients are not finite.

    No call waits unless its docstring says so.  Gradients may be summed over several backward passes before the step,
    if `update` is called only after the step.  If a rank finds that its part of a global gradient is not finite
    (infinite or NaN), no rank takes the optimizer's step, and all ranks of the placements of gradients, of one
    optimizer or of several, change the scale alike; the scale of other ranks may differ.

    Args:
        device: the device of the scale; by default, that of the first tensor that is scaled.  Gradients may be on
            other devices.
        init_scale: the first scale.
        growth_factor: multiplies the scale after `growth_interval` updates in a row that found all gradients finite,
            unless the scale would become infinite.
        backoff_factor: multiplies the scale at an update that found a gradient that is not finite.
        growth_interval: see `growth_factor`.
        enabled: False to scale nothing and skip no step: `step` only calls `optimizer.step`.

    Raises:
        ValueError: if enabled, for a `growth_factor` not above 1 or a `backoff_factor` not between 0 and 1.

    Example:
        >>> p = flow.tensor([1.0], requires_grad=True)
        >>> optimizer, scaler = flow.optim.SGD([p], lr=0.5), flow.amp.GradScaler(init_scale=4.0)
        >>> scaler.scale(p.sum()).backward()
        >>> scaler.step(optimizer)
        >>> scaler.update()
        >>> p
        tensor([0.5000], requires_grad=True)
    """

    def __init__(
        self,
        device: str | None = None,
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        if enabled and not growth_factor > 1:
            raise ValueError(f"GradScaler: growth_factor must be above 1, got {growth_factor}")
        if enabled and not 0 < backoff_factor < 1:
            raise ValueError(f"GradScaler: backoff_factor must be within (0, 1), got {backoff_factor}")
        self._device = device
        self._enabled = enabled
        self._growth_factor = growth_factor
        self._backoff_factor = backoff_factor
        self._growth_interval = growth_interval
        self._init_scale = init_scale
        self._init_growth_tracker = 0
        self._scale: Tensor | None = None
        self._growth_tracker: Tensor | None = None
        self._stages: dict[Optimizer, str] = {}
        self._found: dict[Optimizer, Tensor] = {}
        # For each optimizer of global gradients, the ranks that have agreed on what was found.
        self._agreed: dict[Optimizer, tuple[int, ...]] = {}

    def _tensors(self, device: Device | None = None) -> tuple[Tensor, Tensor]:
        """The tensors of the scale and of the count of updates towards the scale's next growth; made if there are none.

        They are made on the scaler's own device, else on `device`, else on the CPU.
        """
        if self._scale is None or self._growth_tracker is None:
            chosen = self._device or device or "cpu"
            # The two tensors are kept for later steps, so a surrounding scope must not cancel them, and a graph that
            # is being built must not record them.
            with scope(shield=True), eagerly():
                self._scale = full((), self._init_scale, dtype=dtypes.float32, device=chosen)
                self._growth_tracker = full((), self._init_growth_tracker, dtype=dtypes.int32, device=chosen)
        return self._scale, self._growth_tracker

    def scale(self, outputs: Any) -> Any:
        """Return a tensor, or the tensors in nested iterables, times the scale; `outputs` itself if not enabled.

        Tuples give tuples, other iterables lists.

        Raises:
            TypeError: if the scaler is enabled and `outputs` is or contains anything else, such as a dict.
        """
        if not self._enabled:
            return outputs
        if isinstance(outputs, Tensor):
            return outputs * beside(self._tensors(outputs.device)[0].clone().to(outputs.device), outputs)
        if isinstance(outputs, Iterable) and not isinstance(outputs, (str, bytes, Mapping)):
            scaled = [self.scale(output) for output in outputs]
            return tuple(scaled) if isinstance(outputs, tuple) else scaled
        raise TypeError(f"GradScaler.scale: expected a tensor or several, got {type(outputs).__name__}")

    def unscale_(self, optimizer: Optimizer) -> None:
        """Divide the gradients of an optimizer by the scale, for instance to clip them; without this call `step` does.

        Raises:
            RuntimeError: if enabled, when `unscale_` or `step` was called for this optimizer since the last `update`.
            ValueError: if enabled, for gradients in float16, which division by the scale might turn into 0.
        """
        if not self._enabled:
            return
        stage = self._stages.get(optimizer, _READY)
        if stage != _READY:
            done = "unscale_() was" if stage == _UNSCALED else "step() was"
            raise RuntimeError(f"GradScaler.unscale_: {done} called for this optimizer since the last update()")
        gradients = [
            parameter.grad
            for group in optimizer.param_groups
            for parameter in group["params"]
            if parameter.grad is not None
        ]
        for gradient in gradients:
            if gradient.dtype is dtypes.float16:
                raise ValueError("GradScaler.unscale_: gradients are in float16; keep the parameters in float32")
        self._found[optimizer] = self._unscaled(gradients)
        ranks = {rank for gradient in gradients if gradient.is_global for rank in gradient.placement.group}
        if ranks:
            self._agreed[optimizer] = tuple(sorted(ranks))
        self._stages[optimizer] = _UNSCALED

    def _unscaled(self, gradients: list[Tensor]) -> Tensor:
        """Divide gradients by the scale, an instruction per device; return a scalar, above 0 if some are not finite."""
        scale, _ = self._tensors()
        findings: list[Tensor] = []
        for device, chosen in by_device(gradients).items():
            with scope(shield=True):
                # This flag is 1 until the instruction has checked the gradients: if a cancelled scope drops that
                # instruction, the optimizer's step must be skipped.
                findings.append(full((), 1.0, device=device, dtype=dtypes.float32))
            size = sum([gradient.numel() for gradient in chosen])
            kernel = choose_update("unscale", device).kernel()
            issue_update(Update("unscale_", kernel, [scale.to(device)], [findings[-1], *chosen], size))
        total = zeros((), dtype=dtypes.float32, device=scale.device) if not findings else findings[0].to(scale.device)
        for other in findings[1:]:
            total = total + other.to(scale.device)
        if not any([gradient.is_global for gradient in gradients]):
            return total
        from vmflow.distributed.totals import largest_of_ranks  # imported here, as few programs need it

        with scope(shield=True):
            return largest_of_ranks(total, gradients)

    def step(self, optimizer: Optimizer, *args: Any, **kwargs: Any) -> Any:
        """Take an optimizer's step; if enabled, the step changes nothing if a gradient is infinite or NaN.

        If enabled, and if the optimizer's class overrides `Optimizer.step`, this call first waits to know whether
        gradients are finite.  The result is that of the optimizer's `step`, or None.

        Args:
            optimizer: an optimizer whose parameters' gradients come from a scaled loss.
            args, kwargs: the arguments of an overridden `step`; if enabled, `Optimizer.step` gets none.

        Raises:
            RuntimeError: if enabled, when `step` was called for this optimizer since the last `update` already.
            ValueError: if enabled, for a closure, whose loss is not scaled, for the keyword `closure` even if it is
                None, or as `unscale_`.
        """
        if not self._enabled:
            return optimizer.step(*args, **kwargs)
        if "closure" in kwargs or (args and callable(args[0])):
            raise ValueError("GradScaler.step: a closure is not supported; call scale(loss).backward() before")
        stage = self._stages.get(optimizer, _READY)
        if stage == _STEPPED:
            raise RuntimeError("GradScaler.step: called for this optimizer since the last update()")
        if stage == _READY:
            self.unscale_(optimizer)
        found = self._found[optimizer]
        self._stages[optimizer] = _STEPPED
        if type(optimizer).step is not Optimizer.step:
            return None if found.item() else optimizer.step(*args, **kwargs)
        return optimizer.step_unless(found)

    def update(self, new_scale: float | Tensor | None = None) -> None:
        """Change the scale as `growth_factor` and `backoff_factor` say, or set the scale to `new_scale`.

        Raises:
            RuntimeError: if enabled, without `new_scale` and without gradients unscaled since the last `update`.
        """
        if not self._enabled:
            return
        scale, tracker = self._tensors()
        if new_scale is not None:
            given = new_scale if isinstance(new_scale, Tensor) else full((), float(new_scale), device=scale.device)
            kernel = choose_update("assign", scale.device).kernel()
            issue_update(Update("GradScaler.update", kernel, [given.to(scale.device)], [scale], 0))
        elif not self._found:
            raise RuntimeError("GradScaler.update: no gradients were unscaled since the last update()")
        else:
            settings = AdaptScale(self._growth_factor, self._backoff_factor, self._growth_interval)
            kernel = choose_update("adapt_scale", scale.device).kernel(settings)
            issue_update(Update("GradScaler.update", kernel, self._all_found(scale.device), [scale, tracker], 0))
        self._stages, self._found, self._agreed = {}, {}, {}

    def _all_found(self, device: Device) -> list[Tensor]:
        """Tensors, one of which is above 0 if a rank of an optimizer's gradients has found a gradient not finite."""
        found = [*self._found.values()]
        groups = [*self._agreed.values()]
        if len(set(groups)) < 2:
            return found
        from vmflow.distributed.totals import largest_of_groups  # imported here, as few programs need it

        with scope(shield=True):
            total = found[0].to(device)
            for other in found[1:]:
                total = total + other.to(device)
            return [largest_of_groups(total, groups)]

    @contextmanager
    def between_updates(self) -> Iterator[None]:
        """Make a block that begins with the scaler as right after `update`.

        The end of the block restores the scaler's record of earlier `unscale_` and `step` calls, also after an error.
        """
        kept = self._stages, self._found, self._agreed
        self._stages, self._found, self._agreed = {}, {}, {}
        try:
            yield
        finally:
            self._stages, self._found, self._agreed = kept

    # Settings and state

    @property
    def scale_tensor(self) -> Tensor | None:
        """The scale, which `update` changes in place; None until the first use, also after `load_state_dict`."""
        return self._scale

    def is_enabled(self) -> bool:
        """The argument `enabled`: whether the scaler scales losses and skips steps."""
        return self._enabled

    def get_scale(self) -> float:
        """The scale as a number, 1.0 if the scaler is not enabled; waits for the scale."""
        if not self._enabled:
            return 1.0
        return float(self._init_scale if self._scale is None else self._scale.item())

    def get_growth_factor(self) -> float:
        """The growth factor."""
        return self._growth_factor

    def set_growth_factor(self, new_factor: float) -> None:
        """Change the growth factor."""
        self._growth_factor = new_factor

    def get_backoff_factor(self) -> float:
        """The backoff factor."""
        return self._backoff_factor

    def set_backoff_factor(self, new_factor: float) -> None:
        """Change the backoff factor."""
        self._backoff_factor = new_factor

    def get_growth_interval(self) -> int:
        """The growth interval."""
        return self._growth_interval

    def set_growth_interval(self, new_interval: int) -> None:
        """Change the growth interval."""
        self._growth_interval = new_interval

    def state_dict(self) -> dict[str, Any]:
        """The scale and settings for `load_state_dict`, {} if the scaler is not enabled; waits for the scale."""
        if not self._enabled:
            return {}
        tracker = self._init_growth_tracker if self._growth_tracker is None else self._growth_tracker
        return {
            "scale": self.get_scale(),
            "growth_factor": self._growth_factor,
            "backoff_factor": self._backoff_factor,
            "growth_interval": self._growth_interval,
            "_growth_tracker": int(tracker if isinstance(tracker, int) else tracker.item()),
        }

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take over scale and settings of another scaler from its `state_dict()`, unless this scaler is not enabled.

        Raises:
            RuntimeError: if `state_dict` is {}, the state of a scaler that is not enabled.
        """
        if not self._enabled:
            return
        if not state_dict:
            raise RuntimeError("GradScaler.load_state_dict: the state is empty: that scaler was not enabled")
        self._init_scale = state_dict["scale"]
        self._growth_factor = state_dict["growth_factor"]
        self._backoff_factor = state_dict["backoff_factor"]
        self._growth_interval = state_dict["growth_interval"]
        self._init_growth_tracker = state_dict["_growth_tracker"]
        self._scale = self._growth_tracker = None
