"""`Adafactor` and `Muon`: optimizers that compute their steps by ops."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Unpack

from vmflow import dtypes
from vmflow.devices import device as Device
from vmflow.multi_tensor import Update
from vmflow.ops.creation import creation
from vmflow.ops.reduction.extrema import minimum
from vmflow.tensors import Tensor
from vmflow.transfers import beside

from .optimizer import NUMBERS, Execution, Optimizer, Parameters, are_numbers, check_not_negative, with_gradients


class Adafactor(Optimizer):
    """Adafactor (Shazeer and Stern, 2018): keeps only row and column means of a matrix's squared gradients.

    The root mean square of a step is about that of the parameter times a rate, ``min(lr, 1 / sqrt(t))`` in step t, and
    at most `d` times as much.

    Args:
        params: parameters, or dicts of groups; see `Optimizer`.
        lr: the upper bound of the rate, a number or a scalar tensor.
        beta2_decay: step t has the weight ``t ** beta2_decay`` in the averages of squares.
        eps: two lower bounds: of the root of the estimated squares, the dtype's ``finfo.eps`` if None; and of the
            parameter's root mean square.
        d: the largest ratio of a step's root mean square to its usual value.
        weight_decay: each step first multiplies the parameter by ``1 - lr * weight_decay``.
        maximize: maximize the loss instead of minimizing it.
        execution: see `Execution`.

    Raises:
        ValueError: for settings out of range; a tensor `lr` may have any value.
        TypeError: for complex parameters.

    Example:
        >>> p = flow.tensor([1.0], requires_grad=True)
        >>> p.sum().backward()
        >>> flow.optim.Adafactor([p], lr=0.5).step()
        >>> p
        tensor([0.5000], requires_grad=True)
    """

    shaped = ("variance",)

    def __init__(
        self,
        params: Parameters,
        lr: float | Tensor = 1e-2,
        beta2_decay: float = -0.8,
        eps: tuple[float | None, float] = (None, 1e-3),
        d: float = 1.0,
        weight_decay: float = 0.0,
        *,
        maximize: bool = False,
        **execution: Unpack[Execution],
    ) -> None:
        settings = {
            "lr": lr,
            "beta2_decay": beta2_decay,
            "eps": eps,
            "d": d,
            "weight_decay": weight_decay,
            "maximize": maximize,
        }
        super().__init__(params, settings, execution)

    def check_group(self, group: dict[str, Any]) -> None:
        check_not_negative("Adafactor", group, "lr", "weight_decay")
        eps = group["eps"]
        if not isinstance(eps, (tuple, list)) or len(eps) != 2 or not all([_is_least(ep) for ep in eps[1:]]):
            raise ValueError(f"Adafactor: eps must be two numbers that are not negative, got {eps!r}")
        if eps[0] is not None and not _is_least(eps[0]):
            raise ValueError(f"Adafactor: eps must be two numbers that are not negative, got {eps!r}")
        if not isinstance(group["beta2_decay"], NUMBERS) or not group["beta2_decay"] <= 0:
            raise ValueError(f"Adafactor: beta2_decay must be a number of at most 0, got {group['beta2_decay']!r}")
        if not isinstance(group["d"], NUMBERS) or not group["d"] >= 1:
            raise ValueError(f"Adafactor: d must be a number of at least 1, got {group['d']!r}")
        _check_real("Adafactor", group)

    def update(self, group: dict[str, Any]) -> Callable[[], Update] | None:
        parameters = with_gradients(group)
        states = [self._state_of(parameter) for parameter in parameters]

        def step() -> Update:
            values: list[Tensor] = []
            outputs: list[Tensor] = []
            settings = _settings_on(parameters[0].device, group)
            for parameter, state in zip(parameters, states, strict=True):
                new = _adafactor(settings, parameter, state)
                values += new.values()
                outputs += [parameter, *[state[name] for name in new if name]]
            return self._assignment(values, outputs)

        return step if parameters else None

    def _state_of(self, parameter: Tensor) -> dict[str, Any]:
        if parameter.ndim < 2:
            return self._remembered(parameter, {"variance": 0.0})
        state = self._remembered(parameter, {})
        *batch, rows, columns = parameter.shape
        for name, shape in (("row_var", (*batch, rows, 1)), ("col_var", (*batch, 1, columns))):
            if name not in state:
                state[name] = creation.zeros(shape, dtype=parameter.dtype, device=parameter.device)
            state[name] = beside(state[name], parameter)  # also if it was loaded from the state of a local parameter
        return state


def _adafactor(group: dict[str, Any], parameter: Tensor, state: dict[str, Any]) -> dict[str, Tensor]:
    """Return a dict with the new values of a step: the parameter's under "", its state's tensors' under their names."""
    gradient = parameter.grad
    assert gradient is not None
    if group["maximize"]:
        gradient = -gradient
    smallest, shortest = group["eps"]
    if smallest is None:
        smallest = dtypes.finfo(parameter.dtype).eps
    lr, length = group["lr"], math.sqrt(max(1, parameter.numel()))
    # `rate`, `weight` and `alpha` are float64 tensors for parameters of any dtype.
    taken = state["step"].double() + 1
    most = lr.double() if isinstance(lr, Tensor) else creation.full((), lr, dtype=dtypes.float64, device=taken.device)
    rate = beside(minimum(most, taken**-0.5), parameter)
    weight = beside(taken ** group["beta2_decay"], parameter)
    alpha = (parameter.norm().double() / length).clamp(min=shortest) * rate
    squares = gradient * gradient
    new: dict[str, Tensor] = {"": parameter, "step": taken}
    if parameter.ndim > 1:
        row = new["row_var"] = _moved(state["row_var"], squares.mean(-1, True), weight)
        column = new["col_var"] = _moved(state["col_var"], squares.mean(-2, True), weight)
        estimate = row @ column / row.mean(-2, True).clamp(min=smallest)
    else:
        estimate = new["variance"] = _moved(state["variance"], squares, weight)
    way = estimate.clamp(min=smallest * smallest).rsqrt() * gradient
    excess = (way.norm().double() / (length * group["d"])).clamp(min=1.0)
    kept = parameter * _beside(1 - lr * group["weight_decay"], parameter) if group["weight_decay"] else parameter
    new[""] = kept - way * (alpha / excess)
    return new


def _moved(average: Tensor, value: Tensor, weight: Tensor) -> Tensor:
    return average + (value - average) * weight


class Muon(Optimizer):
    """Muon (Jordan and others, 2024), for the weight matrices of hidden layers.

    A step follows the running average of the gradient, with the average's singular values moved near 1 by Newton-Schulz
    iterations in bfloat16.

    Args:
        params: parameters of two dimensions, or dicts of groups; see `Optimizer`.
        lr: the learning rate, a number or a scalar tensor.
        weight_decay: each step first multiplies the parameter by ``1 - lr * weight_decay``.
        momentum: the decay factor of the running average.
        nesterov: use the average that would result if the same gradient was added once more.
        ns_coefficients: the coefficients of the powers 1, 3 and 5 in the iteration's polynomial.
        eps: the lower bound of the norm by which the average is divided before the iterations.
        ns_steps: the number of iterations, below 100.
        adjust_lr_fn: the factor of the rate: "original", also if None, is ``sqrt(max(1, rows / columns))``,
            "match_rms_adamw" is ``0.2 * sqrt(max(rows, columns))``.

    Raises:
        ValueError: for parameters that are not matrices, and for settings out of range; a tensor `lr` may have any
            value.
        TypeError: for complex parameters.

    Example:
        >>> p = flow.zeros(2, 3, requires_grad=True)
        >>> optimizer = flow.optim.Muon([p], lr=0.5)
        >>> p.sum().backward()
        >>> optimizer.step()
        >>> (p < 0).all()
        tensor(True)
    """

    shaped = ("momentum_buffer",)

    def __init__(
        self,
        params: Parameters,
        lr: float | Tensor = 1e-3,
        weight_decay: float = 0.1,
        momentum: float = 0.95,
        nesterov: bool = True,
        ns_coefficients: tuple[float, float, float] = (3.4445, -4.7750, 2.0315),
        eps: float = 1e-7,
        ns_steps: int = 5,
        adjust_lr_fn: str | None = None,
    ) -> None:
        settings = {
            "lr": lr,
            "weight_decay": weight_decay,
            "momentum": momentum,
            "nesterov": nesterov,
            "ns_coefficients": ns_coefficients,
            "eps": eps,
            "ns_steps": ns_steps,
            "adjust_lr_fn": adjust_lr_fn,
        }
        super().__init__(params, settings)

    def check_group(self, group: dict[str, Any]) -> None:
        check_not_negative("Muon", group, "lr", "weight_decay", "momentum", "eps")
        if group["adjust_lr_fn"] not in (None, "original", "match_rms_adamw"):
            raise ValueError(
                f"Muon: adjust_lr_fn must be None, 'original' or 'match_rms_adamw', got {group['adjust_lr_fn']!r}"
            )
        if not are_numbers(group["ns_coefficients"], 3):
            raise ValueError(f"Muon: ns_coefficients must be three numbers, got {group['ns_coefficients']!r}")
        if not isinstance(group["ns_steps"], int) or not 0 <= group["ns_steps"] < 100:
            raise ValueError(f"Muon: ns_steps must be an integer from 0 to 99, got {group['ns_steps']!r}")
        for position, parameter in enumerate(group["params"]):
            if parameter.ndim != 2:
                raise ValueError(
                    f"Muon: parameter {position} has shape {list(parameter.shape)}, and only matrices can be "
                    "optimized; give the others to AdamW"
                )
        _check_real("Muon", group)

    def update(self, group: dict[str, Any]) -> Callable[[], Update] | None:
        parameters = with_gradients(group)
        buffers = [
            self._remembered(parameter, {"momentum_buffer": 0.0}, {})["momentum_buffer"] for parameter in parameters
        ]

        def step() -> Update:
            settings = _settings_on(parameters[0].device, group)
            pairs = [_muon(settings, *pair) for pair in zip(parameters, buffers, strict=True)]
            values = [tensor for pair in pairs for tensor in pair]
            outputs = [tensor for pair in zip(parameters, buffers, strict=True) for tensor in pair]
            return self._assignment(values, outputs)

        return step if parameters else None


def _muon(group: dict[str, Any], parameter: Tensor, average: Tensor) -> tuple[Tensor, Tensor]:
    """Return the new values of a step: of the parameter, and of the running average of its gradient."""
    gradient, momentum, lr = parameter.grad, group["momentum"], _beside(group["lr"], parameter)
    assert gradient is not None
    average = average + (gradient - average) * (1 - momentum)
    way = gradient + (average - gradient) * momentum if group["nesterov"] else average
    rows, columns = parameter.shape
    if group["adjust_lr_fn"] == "match_rms_adamw":
        factor = 0.2 * math.sqrt(max(rows, columns))
    else:
        factor = math.sqrt(max(1.0, rows / max(1, columns)))
    way = _orthogonal(way, group["ns_coefficients"], group["ns_steps"], group["eps"]).to(parameter.dtype)
    return parameter * (1 - lr * group["weight_decay"]) - way * (lr * factor), average


def _orthogonal(matrix: Tensor, coefficients: tuple[float, float, float], steps: int, eps: float) -> Tensor:
    first, third, fifth = coefficients
    turned = matrix.shape[0] > matrix.shape[1]  # transpose tall matrices, to iterate on the smaller of X @ X.T, X.T @ X
    found = (matrix.T if turned else matrix).bfloat16()
    found = found / found.norm().clamp(min=eps)
    unit = beside(creation.eye(found.shape[0], device=found.device, dtype=dtypes.float32), found)
    for _ in range(steps):
        # The terms of the polynomial cancel each other, so they are added in float32, and the sum is rounded.
        square = found @ found.T
        factor = (unit * third + square.float() * fifth).bfloat16() @ square
        found = (unit * first + factor.float()).bfloat16() @ found
    return found.T if turned else found


def _settings_on(device: Device, group: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of a group for ops on a device: a learning rate in a tensor is moved there."""
    lr = group["lr"]
    return {**group, "lr": lr.to(device)} if isinstance(lr, Tensor) else group


def _beside(rate: float | Tensor, parameter: Tensor) -> float | Tensor:
    return beside(rate, parameter) if isinstance(rate, Tensor) else rate


def _check_real(name: str, group: dict[str, Any]) -> None:
    if any([parameter.is_complex() for parameter in group["params"]]):
        raise TypeError(f"{name}: complex parameters are not supported; optimize their real and imaginary parts")


def _is_least(value: Any) -> bool:
    return isinstance(value, NUMBERS) and bool(value >= 0)
