"""`SGD`: gradient descent, with momentum."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Unpack

import numpy as np

from vmflow.instructions.blob import Array
from vmflow.kernels.updates import Steps, change_pieces
from vmflow.multi_tensor import Update
from vmflow.ops.creation import zeros_like
from vmflow.tensors import Tensor

from .elementwise import decayed, with_gradients
from .optimizer import Execution, Optimizer, Parameters, check_not_negative


class SGD(Optimizer):
    """Stochastic gradient descent: ``p -= lr * gradient``.

    With momentum, a running sum ``b = momentum * b + (1 - dampening) * gradient`` takes the gradient's place;
    Nesterov's form takes ``gradient + momentum * b`` (Sutskever and others, 2013).

    Args:
        params: parameters, or dicts of groups; see `Optimizer`.
        lr: the learning rate, a number or a scalar tensor.
        momentum: 0 for none.
        dampening: of the gradient within the running sum; the first one is taken whole.
        weight_decay: adds so much of the parameter to its gradient.
        nesterov: needs momentum and no dampening.
        maximize: go up instead of down.
        execution: see `Execution`.

    Raises:
        ValueError: for settings that make no sense.
    """

    shaped = ("momentum_buffer",)

    def __init__(
        self,
        params: Parameters,
        lr: float | Tensor = 1e-3,
        momentum: float = 0,
        dampening: float = 0,
        weight_decay: float = 0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
        **execution: Unpack[Execution],
    ) -> None:
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "dampening": dampening,
            "weight_decay": weight_decay,
            "nesterov": nesterov,
            "maximize": maximize,
        }
        super().__init__(params, defaults, execution)
        self._filled: dict[Tensor, list[bool]] = {}

    def check_group(self, group: dict[str, Any]) -> None:
        check_not_negative("SGD", group, "lr", "momentum", "weight_decay")
        if group["nesterov"] and (not group["momentum"] or group["dampening"]):
            raise ValueError("SGD: Nesterov's momentum needs a momentum and no dampening")

    def _filled_flag(self, parameter: Tensor) -> list[bool]:
        """Whether the parameter's running sum holds anything, for kernels to read and set."""
        if "momentum_buffer" not in self.state[parameter]:
            self._filled[parameter] = [False]
        return self._filled.setdefault(parameter, [True])  # loaded, or set by hand

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        super().load_state_dict(state_dict)
        self._filled = {}

    def update(self, group: dict[str, Any]) -> Update | None:
        parameters = with_gradients(group)
        if not parameters:
            return None
        states = [self.state[it] for it in parameters] if group["momentum"] else []
        lr = group["lr"]
        kernel = _Step(
            lr=None if isinstance(lr, Tensor) else lr,
            momentum=group["momentum"],
            dampening=group["dampening"],
            weight_decay=group["weight_decay"],
            nesterov=group["nesterov"],
            maximize=group["maximize"],
            filled=tuple([self._filled_flag(parameter) for parameter in parameters]) if states else (),
            steps=self._steps_of(group, "sgd_momentum_steps" if states else "sgd_steps"),
        )
        for parameter, state in zip(parameters, states, strict=False):
            if "momentum_buffer" not in state:
                state["momentum_buffer"] = zeros_like(parameter)
        inputs = [it.grad for it in parameters] + ([lr] if kernel.lr is None else [])
        outputs = parameters + [state["momentum_buffer"] for state in states]
        return Update("SGD.step", kernel, inputs, outputs, sum([it.numel() for it in parameters]))


# Not frozen, which would take 6 us for each.
@dataclass(slots=True)
class _Step:
    """The kernel of one step.

    Inputs: gradients, and the learning rate if it is a tensor (`lr` is None then).  Outputs: parameters, and the
    running sums if there is momentum; `filled` says of each whether a step has been added to it, which may be found out
    only now: the steps before may have been dropped.
    """

    lr: float | None
    momentum: float
    dampening: float
    weight_decay: float
    nesterov: bool
    maximize: bool
    filled: tuple[list[bool], ...]
    steps: Steps = field(compare=False)

    def __call__(self, inputs: list[Array], outputs: list[Array]) -> None:
        lr = float(inputs.pop().item()) if self.lr is None else self.lr
        count = len(inputs)
        taken = set(self._together(inputs, outputs, lr))
        for position, gradient in enumerate(inputs):
            if position in taken:
                continue
            written, first = outputs[position::count], bool(self.momentum) and not self.filled[position][0]
            move = partial(self._move, lr, first)
            change_pieces(move, written, [gradient], scratch=1 + self.nesterov, cost=2 + len(written))
        for flag in self.filled:
            flag[0] = True

    def _move(self, lr: float, first: bool, arrays: list[Array]) -> None:
        gradient, *room = arrays[2 if self.momentum else 1 :]
        direction = decayed(arrays[0], gradient, self.weight_decay, self.maximize, room[0])
        if self.momentum:
            direction = self._with_momentum(direction, arrays[1], room, first)
        step = np.multiply(direction, lr, out=room[0])
        np.subtract(arrays[0], step, out=arrays[0])

    def _together(self, inputs: list[Array], outputs: list[Array], lr: float) -> list[int]:
        """Take the steps that C can take, and say of which parameters."""
        count = len(inputs)
        kinds = [outputs[start : start + count] for start in range(0, len(outputs), count)]
        step = self.steps.begin(kinds, inputs)
        if step is None:
            return []
        decay, maximize = self.weight_decay, self.maximize
        if self.momentum:
            empty = [float(not self.filled[it][0]) for it in step.positions]
            step.take(empty, lr, decay, self.momentum, 1 - self.dampening, maximize, self.nesterov)
        else:
            step.take((), lr, decay, maximize)
        return step.positions

    def _with_momentum(self, direction: Array, running: Array, room: list[Array], first: bool) -> Array:
        if first:
            running[...] = direction
        else:
            np.multiply(running, self.momentum, out=running)
            taken = np.multiply(direction, 1 - self.dampening, out=room[0]) if self.dampening else direction
            np.add(running, taken, out=running)
        if not self.nesterov:
            return running
        ahead = np.multiply(running, self.momentum, out=room[1])
        return np.add(direction, ahead, out=ahead)
