"""What most optimizers share: what they remember, and collecting a group's tensors into one `Update`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from vmflow.kernels.problems.updates import COSTS
from vmflow.multi_tensor import Update
from vmflow.ops.creation import full, full_like
from vmflow.tensors import Tensor

if TYPE_CHECKING:
    from .optimizer import Optimizer

# First values of what most of them keep: how many steps a parameter took, and Adam's two running averages.
COUNTS: Final = {"step": 0.0}
AVERAGES: Final = {"exp_avg": 0.0, "exp_avg_sq": 0.0}


def with_gradients(group: dict[str, Any]) -> list[Tensor]:
    """The parameters of a group that have a gradient."""
    return [it for it in group["params"] if it.grad is not None]


def remember(
    optimizer: Optimizer, parameter: Tensor, counts: Mapping[str, float], shaped: Mapping[str, complex]
) -> dict[str, Any]:
    """The parameter's state, in which what was missing now has its first value.

    Args:
        optimizer: whose state it is.
        parameter: whose state it is.
        counts: first values of the numbers that are kept with it.
        shaped: first values of every element of the tensors of its shape.
    """
    state = optimizer.state[parameter]
    for name, value in counts.items():
        if name not in state:
            state[name] = full((), value, device=parameter.device)
    for name, fill in shaped.items():
        if name not in state:
            state[name] = full_like(parameter, fill, requires_grad=False)
    return state


def rate_of(group: dict[str, Any]) -> float | None:
    """The learning rate, for the settings of a rule: None if it is a tensor, whose array the kernel is given."""
    rate = group["lr"]
    return None if isinstance(rate, Tensor) else rate


def group_update(
    optimizer: Optimizer,
    group: dict[str, Any],
    rule: str,
    settings: Any,
    *,
    shaped: Mapping[str, complex],
    counts: Mapping[str, float] = COUNTS,
) -> Update | None:
    """A step of a group; None if no parameter of it has a gradient.

    Args:
        optimizer: whose state to use and to begin.
        group: one of its groups.
        rule, settings: see `vmflow.kernels.problems.updates`.
        shaped, counts: see `remember`.
    """
    parameters = with_gradients(group)
    if not parameters:
        return None
    states = [remember(optimizer, it, counts, shaped) for it in parameters]
    inputs: list[Any] = [it.grad for it in parameters]
    if settings.lr is None:
        inputs.append(group["lr"])
    outputs = [*parameters]
    for name in (*shaped, *counts):
        outputs += [state[name] for state in states]
    kernel = optimizer._rule_of(group, rule, parameters[0].device).kernel(settings)
    elements = sum([it.numel() for it in parameters])
    return Update(f"{type(optimizer).__name__}.step", kernel, inputs, outputs, COSTS[rule] * elements)
