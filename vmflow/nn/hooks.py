"""Calling a module that has hooks: around its forward, and on the gradients that pass through it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from vmflow.autograd import Function
from vmflow.tensors import Handle, Tensor

if TYPE_CHECKING:
    from .module import Module

Hooks = dict[int, Callable[..., Any]]
Gradients = tuple[Tensor | None, ...]


def registered(hooks: Hooks, hook: Callable[..., Any], prepend: bool) -> Handle:
    """Put a hook behind the others, or before them."""
    handle = Handle(hooks, hook)
    if prepend:
        # Those that are taken out and put in again come last.
        hooks.update({number: hooks.pop(number) for number in list(hooks) if number != handle.number})
    return handle


def called(module: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The result of `forward`, with all the module's hooks called around it."""
    done: set[int] = set()
    result: Any = None
    try:
        args, kwargs = _before(module, args, kwargs)
        watch = None
        if module._backward_hooks or module._backward_pre_hooks:
            backward, before = list(module._backward_hooks.values()), list(module._backward_pre_hooks.values())
            watch = BackwardWatch(module, backward, before)
            args = watch.before(args)
        result = module.forward(*args, **kwargs)
        for number, hook in list(module._forward_hooks.items()):
            done.add(number)
            changed = _after(module, number, hook, args, kwargs, result)
            if changed is not None:
                result = changed
        return result if watch is None else watch.after(result)
    except BaseException as error:
        _despite(error, module, done, args, kwargs, result)
        raise


def _before(module: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    for number, hook in list(module._forward_pre_hooks.items()):
        if number not in module._hooks_with_kwargs:
            changed = hook(module, args)
            if changed is not None:
                args = changed if isinstance(changed, tuple) else (changed,)
            continue
        changed = hook(module, args, kwargs)
        if changed is None:
            continue
        if not isinstance(changed, tuple) or len(changed) != 2:
            raise RuntimeError(
                f"a hook with keyword arguments before {type(module).__name__}.forward must return None or the pair "
                f"(args, kwargs), not {changed!r}"
            )
        args, kwargs = changed
    return args, kwargs


def _after(
    module: Module, number: int, hook: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], result: Any
) -> Any:
    if number in module._hooks_with_kwargs:
        return hook(module, args, kwargs, result)
    return hook(module, args, result)


def _despite(
    error: BaseException, module: Module, done: set[int], args: tuple[Any, ...], kwargs: dict[str, Any], result: Any
) -> None:
    """Call the hooks that are to be called in any case and have not been."""
    for number, hook in list(module._forward_hooks.items()):
        if number in module._hooks_always_called and number not in done:
            try:
                _after(module, number, hook, args, kwargs, result)
            except Exception as another:
                # The first error is the one to tell of; the hook's own must not hide it.
                error.add_note(f"then the forward hook {hook!r} raised {type(another).__name__}: {another}")


class BackwardWatch:
    """Calls the hooks of one call of a module.

    An identity is put in front of the module and another one behind it; the gradients pass through them.

    Args:
        module: handed to the hooks.
        hooks: ``hook(module, grad_input, grad_output)``; a result replaces ``grad_input``.
        pre_hooks: ``hook(module, grad_output)``; a result replaces ``grad_output``.
    """

    def __init__(
        self, module: Module, hooks: Sequence[Callable[..., Any]], pre_hooks: Sequence[Callable[..., Any]] = ()
    ) -> None:
        self._module = module
        self._hooks = hooks
        self._pre_hooks = pre_hooks
        self._grad_output: Gradients = ()
        self._arguments = self._results = 0
        self._positions: list[int] = []
        self._result_positions: list[int] = []

    def before(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """The positional arguments, with the front identity on the tensors among them."""
        self._arguments = len(args)
        self._positions = _with_gradients(args)
        return _watched(args, self._positions, self._reached_inputs)

    def after(self, result: Any) -> Any:
        """The result, a tensor or a tuple, with the back identity on its tensors."""
        outputs = result if isinstance(result, tuple) else (result,)
        self._results = len(outputs)
        self._result_positions = _with_gradients(outputs)
        outputs = _watched(outputs, self._result_positions, self._reached_outputs)
        return outputs if isinstance(result, tuple) else outputs[0]

    def _reached_outputs(self, gradients: Gradients) -> Gradients:
        grad_output = _spread(gradients, self._result_positions, self._results)
        for hook in self._pre_hooks:
            grad_output = self._replaced(grad_output, hook(self._module, grad_output), "results")
        self._grad_output = grad_output
        if not self._positions:  # no gradient will ever arrive at the front
            self._call((None,) * self._arguments)
        return tuple([grad_output[position] for position in self._result_positions])

    def _reached_inputs(self, gradients: Gradients) -> Gradients:
        changed = self._call(_spread(gradients, self._positions, self._arguments))
        return tuple([changed[position] for position in self._positions])

    def _call(self, grad_input: Gradients) -> Gradients:
        for hook in self._hooks:
            grad_input = self._replaced(grad_input, hook(self._module, grad_input, self._grad_output), "arguments")
        return grad_input

    def _replaced(self, gradients: Gradients, returned: Any, what: str) -> Gradients:
        if returned is None:
            return gradients
        changed: Gradients = returned if isinstance(returned, tuple) else (returned,)
        if len(changed) != len(gradients):
            raise RuntimeError(
                f"a backward hook of {type(self._module).__name__} returned {len(changed)} gradients "
                f"for {len(gradients)} {what}; return one for each, None where there is none"
            )
        return changed


def _with_gradients(values: tuple[Any, ...]) -> list[int]:
    """The positions of the tensors into which gradients flow."""
    return [position for position, it in enumerate(values) if isinstance(it, Tensor) and it.requires_grad]


def _spread(gradients: Gradients, positions: list[int], count: int) -> Gradients:
    """`count` gradients, None where there is none."""
    by_position = dict(zip(positions, gradients, strict=True))
    return tuple([by_position.get(position) for position in range(count)])


def _watched(
    values: tuple[Any, ...], positions: list[int], reached: Callable[[Gradients], Gradients]
) -> tuple[Any, ...]:
    """The values, with the identity on those at these positions."""
    if not positions:
        return values
    changed = list(values)
    passed = _Watched.apply(reached, *[values[position] for position in positions])
    for position, value in zip(positions, passed, strict=True):
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
