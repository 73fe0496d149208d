"""Watching a module's gradients: what goes into its backward pass and what comes out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from vmflow.autograd import Function
from vmflow.tensor import Tensor

if TYPE_CHECKING:
    from .module import Module

Gradients = tuple[Tensor | None, ...]


class BackwardWatch:
    """Calls the hooks of one call of a module.

    An identity is put in front of the module and another one behind it; the gradients pass through them.

    Args:
        module: handed to the hooks.
        hooks: ``hook(module, grad_input, grad_output)``; what one returns takes the place of ``grad_input``.
    """

    def __init__(self, module: Module, hooks: Sequence[Callable[..., Any]]) -> None:
        self._module = module
        self._hooks = hooks
        self._grad_output: Gradients = ()
        self._arguments = 0
        self._positions: list[int] = []

    def before(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """The positional arguments, with the front identity on the tensors among them."""
        self._arguments = len(args)
        positions = [position for position, it in enumerate(args) if isinstance(it, Tensor)]
        if not any([args[position].requires_grad for position in positions]):
            return args
        self._positions = positions
        passed = _Watched.apply(self._reached_inputs, *[args[position] for position in positions])
        return _replaced(args, positions, passed)

    def after(self, result: Any) -> Any:
        """The result, a tensor or a tuple, with the back identity on its tensors."""
        outputs = result if isinstance(result, tuple) else (result,)
        positions = [position for position, it in enumerate(outputs) if isinstance(it, Tensor)]
        if not any([outputs[position].requires_grad for position in positions]):
            return result
        passed = _Watched.apply(self._reached_outputs, *[outputs[position] for position in positions])
        outputs = _replaced(outputs, positions, passed)
        return outputs if isinstance(result, tuple) else outputs[0]

    def _reached_outputs(self, gradients: Gradients) -> Gradients:
        self._grad_output = gradients
        if not self._positions:  # no gradient will ever arrive at the front
            self._call((None,) * self._arguments)
        return gradients

    def _reached_inputs(self, gradients: Gradients) -> Gradients:
        grad_input: list[Tensor | None] = [None] * self._arguments
        for position, gradient in zip(self._positions, gradients, strict=True):
            grad_input[position] = gradient
        changed = self._call(tuple(grad_input))
        return tuple([changed[position] for position in self._positions])

    def _call(self, grad_input: Gradients) -> Gradients:
        for hook in self._hooks:
            returned = hook(self._module, grad_input, self._grad_output)
            if returned is None:
                continue
            changed: Gradients = returned if isinstance(returned, tuple) else (returned,)
            if len(changed) != len(grad_input):
                raise RuntimeError(
                    f"a backward hook of {type(self._module).__name__} returned {len(changed)} gradients "
                    f"for {len(grad_input)} arguments; return one for each, None where there is none"
                )
            grad_input = changed
        return grad_input


def _replaced(values: tuple[Any, ...], positions: list[int], by: tuple[Any, ...]) -> tuple[Any, ...]:
    changed = list(values)
    for position, value in zip(positions, by, strict=True):
        changed[position] = value
    return tuple(changed)


class _Watched(Function):
    """The identity; on the way back `reached` sees the gradients and may replace them."""

    @staticmethod
    def forward(ctx: Any, reached: Callable[[Gradients], Gradients], *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.reached = reached
        ctx.set_materialize_grads(False)
        return tensors

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> Gradients:
        return (None, *ctx.reached(gradients))
