"""`LBFGS`: a quasi-Newton method with limited memory, for smooth losses of whole data sets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from vmflow.arguments import whole_number
from vmflow.autograd import enable_grad, no_grad
from vmflow.kernels.problems.updates import Along
from vmflow.kernels.updates import choose_update
from vmflow.multi_tensor import Update, issue_update
from vmflow.ops.creation.creation import zeros
from vmflow.ops.shape.joining import cat
from vmflow.scopes import scope
from vmflow.tensors import Tensor
from vmflow.transfers import spread_like

from .line_search import Point, strong_wolfe
from .optimizer import Optimizer, Parameters, check_not_negative


class LBFGS(Optimizer):
    """L-BFGS (Liu and Nocedal, 1989).

    A step may evaluate the loss several times, and the values decide the next move of the parameters.  Hence `step`
    waits, unlike other optimizers' steps; on an event loop run it in a thread:
    ``await asyncio.to_thread(optimizer.step, closure)``.  Each single move of the parameters is one instruction.  If
    the closure raises, or is cancelled, during a line search, the parameters return to the start of the line.

    Args:
        params: parameters, all in one group and on one device.
        lr: the factor of the search direction in a move without line search; the first try of a line search.  In the
            first step's first move it is divided by the sum of the gradient's magnitudes, if that exceeds 1.
        max_iter: the most search directions per step.
        max_eval: the step ends after a move if it has called the closure this many times; by default
            ``max_iter * 5 // 4``.
        tolerance_grad: the step ends when no element of the gradient has a larger magnitude.
        tolerance_change: the step ends when a move changes no element of a parameter by more, or the loss by less, or
            if the loss would fall more slowly along the next direction.
        history_size: how many moves are remembered; each takes twice the memory of the parameters.
        line_search_fn: None, or "strong_wolfe".

    Raises:
        ValueError: for several parameter groups, negative numbers, a `history_size` of 0, and unknown line searches.
        TypeError: for complex parameters, a `max_iter` or `history_size` that is no integer, and from `step` without a
            closure and from `step_unless`.

    Example:
        >>> p = flow.tensor([1.0], requires_grad=True)
        >>> optimizer = flow.optim.LBFGS([p], max_iter=1)
        >>> def closure():
        ...     optimizer.zero_grad()
        ...     loss = (p * p).sum() / 4
        ...     loss.backward()
        ...     return loss
        >>> optimizer.step(closure).item()
        0.25
    """

    def __init__(
        self,
        params: Parameters,
        lr: float | Tensor = 1,
        max_iter: int = 20,
        max_eval: int | None = None,
        tolerance_grad: float = 1e-7,
        tolerance_change: float = 1e-9,
        history_size: int = 100,
        line_search_fn: str | None = None,
    ) -> None:
        max_iter = whole_number("LBFGS", "max_iter", max_iter)
        settings = {
            "lr": lr,
            "max_iter": max_iter,
            "max_eval": max_iter * 5 // 4 if max_eval is None else max_eval,
            "tolerance_grad": tolerance_grad,
            "tolerance_change": tolerance_change,
            "history_size": history_size,
            "line_search_fn": line_search_fn,
        }
        super().__init__(params, settings)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        if self.param_groups:
            raise ValueError("LBFGS: takes one group of parameters; one step size and memory are for all of them")
        super().add_param_group(param_group)

    def check_group(self, group: dict[str, Any]) -> None:
        for name in ("max_iter", "history_size"):
            whole_number("LBFGS", name, group[name])
        check_not_negative("LBFGS", group, "lr", "max_iter", "max_eval", "tolerance_grad", "tolerance_change")
        if group["history_size"] < 1:
            raise ValueError(f"LBFGS: history_size must be at least 1, got {group['history_size']!r}")
        if group["line_search_fn"] not in (None, "strong_wolfe"):
            raise ValueError(f"LBFGS: line_search_fn must be None or 'strong_wolfe', got {group['line_search_fn']!r}")
        if any([parameter.is_complex() for parameter in group["params"]]):
            raise TypeError("LBFGS: complex parameters are not supported; optimize their real and imaginary parts")

    def take_step(self, skip: Tensor | None, closure: Callable[[], Any] | None = None) -> Any:
        if closure is None or skip is not None:
            raise TypeError("LBFGS.step: needs a closure that computes the gradients anew and returns the loss")
        if not self.param_groups[0]["params"]:
            with enable_grad():
                return closure()
        with no_grad():
            return _Search(self, closure).run()

    def step_unless(self, skip: Tensor) -> Any:
        raise TypeError("LBFGS: evaluates the loss several times in one step, which cannot be skipped by a number")


class _Search:
    """One step of `LBFGS`: its moves, line searches and evaluations of the closure.

    Attributes:
        loss, gradient: the loss and its flattened gradient at the last evaluation, or at the point that the last line
            search found.
        evaluations: the number of this step's calls of the closure.
    """

    def __init__(self, optimizer: LBFGS, closure: Callable[[], Any]) -> None:
        self.settings = optimizer.param_groups[0]
        self.parameters: list[Tensor] = self.settings["params"]
        self.state = optimizer.state[self.parameters[0]]
        self.closure = closure
        self.evaluations = 0
        rate = self.settings["lr"]
        self.rate = float(rate.item()) if isinstance(rate, Tensor) else float(rate)

    def run(self) -> Any:
        state, settings = self.state, self.settings
        state.setdefault("func_evals", 0)
        state.setdefault("n_iter", 0)
        first = self.evaluate()
        for iteration in range(1, settings["max_iter"] + 1):
            if self.settled():
                break
            with scope(shield=True):
                direction = self.direction()
                slope = _number(self.gradient.dot(direction))
                place = self.rate
                if state["n_iter"] == 1:
                    place *= min(1.0, 1.0 / _number(self.gradient.abs().sum()))
                state.update(d=direction, t=place, prev_flat_grad=self.gradient, prev_loss=self.loss)
            if slope > -settings["tolerance_change"]:
                break
            before = self.loss
            if settings["line_search_fn"] is None or not place:  # a rate of 0 leaves no line to search
                _move(self.parameters, None, direction, place)
                if iteration == settings["max_iter"]:
                    break
                self.evaluate()
            else:
                place = state["t"] = self.search_line(direction, slope, place)
            longest = place * _number(direction.abs().max())
            if (
                self.evaluations >= settings["max_eval"]
                or self.settled()
                or longest <= settings["tolerance_change"]
                or abs(self.loss - before) < settings["tolerance_change"]
            ):
                break
        return first

    def settled(self) -> bool:
        return _number(self.gradient.abs().max()) <= float(self.settings["tolerance_grad"])

    def evaluate(self) -> Any:
        """Call the closure and return its loss; set `loss`, and `gradient`, a vector of all gradients (0 for None)."""
        with enable_grad():
            loss = self.closure()
        self.evaluations += 1
        self.state["func_evals"] += 1
        self.loss = float(loss)
        self.gradient = cat(
            [
                zeros(parameter.numel(), dtype=parameter.dtype, device=parameter.device)
                if parameter.grad is None
                else _whole(parameter.grad.detach()).reshape(-1)
                for parameter in self.parameters
            ]
        )
        return loss

    def direction(self) -> Tensor:
        """Return minus the estimated inverse Hessian times the gradient.

        The last move is first added to the estimate, if the loss curves upwards along it.
        """
        state = self.state
        state["n_iter"] += 1
        if state["n_iter"] == 1:
            state.update(old_dirs=[], old_stps=[], ro=[], H_diag=1.0)
            return -self.gradient
        moves, changes, weights = state["old_stps"], state["old_dirs"], state["ro"]
        change = self.gradient - state["prev_flat_grad"]
        move = state["d"] * state["t"]
        curvature = _number(change.dot(move))
        if curvature > 1e-10:
            if len(moves) == self.settings["history_size"]:
                for remembered in (moves, changes, weights):
                    del remembered[0]
            moves.append(move)
            changes.append(change)
            weights.append(1.0 / curvature)
            state["H_diag"] = curvature / _number(change.dot(change))
        result: Tensor = -self.gradient
        shares = []
        for past, bend, weight in zip(reversed(moves), reversed(changes), reversed(weights), strict=True):
            shares.append(past.dot(result) * weight)
            result = result - bend * shares[-1]
        result = result * state["H_diag"]
        for past, bend, weight, share in zip(moves, changes, weights, reversed(shares), strict=True):
            result = result + past * (share - bend.dot(result) * weight)
        return result

    def search_line(self, direction: Tensor, slope: float, place: float) -> float:
        """Move the parameters along `direction` to the point that `strong_wolfe` finds, and return the distance.

        The distance `place` is tried first.
        """
        with scope(shield=True):
            origin = cat([_whole(parameter.detach()).reshape(-1) for parameter in self.parameters]).clone()
            length = _number(direction.abs().max())

        def look(distance: float) -> Point:
            _move(self.parameters, origin, direction, distance)
            self.evaluate()
            return Point(distance, self.loss, self.gradient, _number(self.gradient.dot(direction)))

        start = Point(0.0, self.loss, self.gradient, slope)
        left = self.settings["max_eval"] - self.evaluations
        try:
            found, _ = strong_wolfe(look, start, place, length, self.settings["tolerance_change"], left)
        except BaseException:
            with scope(shield=True):
                _move(self.parameters, origin, direction, 0.0)
            raise
        _move(self.parameters, origin, direction, found.place)
        self.loss, self.gradient = found.loss, found.gradient
        return found.place


def _whole(tensor: Tensor) -> Tensor:
    """Return all of a global tensor as a local tensor; a local tensor as it is."""
    if not tensor.is_global:
        return tensor
    from vmflow.distributed.global_tensors import whole  # imported here, as few programs need it

    return whole(tensor)


def _of_parts(vector: Tensor, parameters: list[Tensor]) -> Tensor:
    """The elements, of a vector of all parameters, that are in this rank's parts; all elements of local parameters."""
    if not any([parameter.is_global for parameter in parameters]):
        return vector
    parts: list[Tensor] = []
    begin = 0
    for parameter in parameters:
        piece = vector[begin : begin + parameter.numel()].reshape(parameter.shape)
        begin += parameter.numel()
        spread = spread_like(piece, parameter)
        parts.append((spread.to_local() if spread.is_global else spread).reshape(-1))
    return cat(parts)


def _number(scalar: Tensor) -> float:
    return float(scalar.item())


def _move(parameters: list[Tensor], origin: Tensor | None, direction: Tensor, distance: float) -> None:
    """Set the parameters to ``origin + distance * direction``, or add ``distance * direction`` if `origin` is None."""
    inputs = [_of_parts(vector, parameters) for vector in (direction, origin) if vector is not None]
    kernel = choose_update("move_along", parameters[0].device).kernel(Along(distance, origin is not None))
    issue_update(Update("LBFGS.step", kernel, inputs, parameters, 2 * direction.numel()))
