"""`LAMB`: Adam's direction, with a step for each parameter in proportion to its norm."""

from __future__ import annotations

from typing import Any, Unpack

from vmflow.kernels.problems import updates
from vmflow.multi_tensor import Update
from vmflow.tensors import Tensor

from .elementwise import AVERAGES, group_update, rate_of
from .optimizer import Execution, Optimizer, Parameters, check_averaging


class LAMB(Optimizer):
    """LAMB (You and others, 2020), for large batches; arguments and rule are OneFlow's.

    Adam's direction ``u`` of each parameter is scaled by the norms of parameter and direction,
    ``p -= lr * (|p| / |u|) * (u + weight_decay * p)``; the ratio is 1 where one of the norms is 0.

    Args:
        params: parameters, or dicts of groups; see `Optimizer`.
        lr: the learning rate, a number or a scalar tensor.
        betas: how much of the running averages of the gradient and of its square stays at each step.
        eps: added to the root of the latter.
        weight_decay: how much of the parameter is taken off, as above.
        adam_w_mode: if False, the decay is added to the gradient instead.
        do_bias_correction: make up for the averages' beginning at 0.
        amsgrad: not supported.
        maximize: go up instead of down.
        execution: see `Execution`.

    Raises:
        ValueError: for settings that make no sense, and for `amsgrad`.
    """

    shaped = tuple(AVERAGES)

    def __init__(
        self,
        params: Parameters,
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        adam_w_mode: bool = True,
        do_bias_correction: bool = True,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        **execution: Unpack[Execution],
    ) -> None:
        settings = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "adam_w_mode": adam_w_mode,
            "do_bias_correction": do_bias_correction,
            "amsgrad": amsgrad,
            "maximize": maximize,
        }
        super().__init__(params, settings, execution)

    def check_group(self, group: dict[str, Any]) -> None:
        check_averaging("LAMB", group)
        if group["amsgrad"]:
            raise ValueError("LAMB: amsgrad is not supported; Adam has it")

    def update(self, group: dict[str, Any]) -> Update | None:
        beta1, beta2 = group["betas"]
        settings = updates.LAMB(
            rate_of(group),
            beta1,
            beta2,
            group["eps"],
            group["weight_decay"],
            group["adam_w_mode"],
            group["do_bias_correction"],
            group["maximize"],
        )
        return group_update(self, group, "lamb", settings, shaped=AVERAGES)
