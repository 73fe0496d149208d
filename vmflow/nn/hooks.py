"""Hooks around `forward` and on gradients, of a module or of all; hooks on registering parameters, buffers, modules."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from vmflow.autograd import Function
from vmflow.changes import Registry
from vmflow.tensors import Handle, Tensor

if TYPE_CHECKING:
    from .module import Module

Hooks = dict[int, Callable[..., Any]]
Gradients = tuple[Tensor | None, ...]


class HookOfAll(NamedTuple):
    """A global hook, called for all modules; a call of a module puts its own forward hooks into this form, too.

    Attributes:
        place: when the hook is called: "before" or "after" `forward`, on the gradients of the module's "results" or
            "arguments", or when a module registers a "parameter", "buffer" or "module".
        function: the user's function.
        with_kwargs: whether a hook before or after `forward` gets the keyword arguments, too.
        always_call: of a hook after `forward`, as for `Module.register_forward_hook`.
    """

    place: str
    function: Callable[..., Any]
    with_kwargs: bool = False
    always_call: bool = False


# The global hooks of all places are in one dict, so that a call of a module tests a single dict for them.
OF_ALL: Final[dict[int, HookOfAll]] = Registry()


def _of_all(place: str) -> list[tuple[int, HookOfAll]]:
    return [(number, hook) for number, hook in list(OF_ALL.items()) if hook.place == place]


def registered(hooks: Hooks, hook: Callable[..., Any], prepend: bool) -> Handle:
    """Add a hook at the end of `hooks`, or with `prepend` at the front, and return the handle that removes the hook."""
    handle = Handle(hooks, hook)
    if prepend:
        # A dict keeps the order of insertion: the older hooks are removed and inserted again, behind the new one.
        hooks.update({number: hooks.pop(number) for number in list(hooks) if number != handle.number})
    return handle


def register_module_forward_pre_hook(hook: Callable[..., Any]) -> Handle:
    """Call ``hook(module, args)`` before the forward of every module; see `Module.register_forward_pre_hook`.

    Global hooks are called before a module's own hooks, and slow down all modules.
    """
    return Handle(OF_ALL, HookOfAll("before", hook))


def register_module_forward_hook(
    hook: Callable[..., Any], *, with_kwargs: bool = False, always_call: bool = False
) -> Handle:
    """Call ``hook(module, args, result)`` after the forward of every module; see `Module.register_forward_hook`."""
    return Handle(OF_ALL, HookOfAll("after", hook, with_kwargs, always_call))


def register_module_full_backward_pre_hook(hook: Callable[..., Any]) -> Handle:
    """Call ``hook(module, grad_output)`` before the backward of every module.

    See `Module.register_full_backward_pre_hook`.
    """
    return Handle(OF_ALL, HookOfAll("results", hook))


def register_module_full_backward_hook(hook: Callable[..., Any]) -> Handle:
    """Call ``hook(module, grad_input, grad_output)`` after the backward of every module.

    See `Module.register_full_backward_hook`.
    """
    return Handle(OF_ALL, HookOfAll("arguments", hook))


def register_module_backward_hook(hook: Callable[..., Any]) -> Handle:
    """The same as `register_module_full_backward_hook`: ``grad_input`` are the gradients of the module's arguments."""
    return register_module_full_backward_hook(hook)


def register_module_parameter_registration_hook(hook: Callable[..., Any]) -> Handle:
    """Call ``hook(module, name, param)`` when a module registers a parameter; register the result if not None."""
    return Handle(OF_ALL, HookOfAll("parameter", hook))


def register_module_buffer_registration_hook(hook: Callable[..., Any]) -> Handle:
    """Call ``hook(module, name, buffer)`` when a module registers a buffer or None; register the result if not None."""
    return Handle(OF_ALL, HookOfAll("buffer", hook))


def register_module_module_registration_hook(hook: Callable[..., Any]) -> Handle:
    """Call ``hook(module, name, submodule)`` when a module registers a submodule or None.

    A result other than None is registered instead.
    """
    return Handle(OF_ALL, HookOfAll("module", hook))


def on_registering(kind: str, module: Module, name: str, value: Any) -> Any:
    """Return `value`, or its last replacement by the global registration hooks of place `kind`, called in turn."""
    for _, hook in _of_all(kind):
        changed = hook.function(module, name, value)
        value = value if changed is None else changed
    return value


def called(module: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a module's `forward`, and its forward hooks, own and global; watch for backward hooks; return the result."""
    done: set[int] = set()
    result: Any = None
    try:
        args, kwargs = _before(module, args, kwargs)
        watch = None
        backward = [hook.function for _, hook in _of_all("arguments")] + list(module._backward_hooks.values())
        before = [hook.function for _, hook in _of_all("results")] + list(module._backward_pre_hooks.values())
        if backward or before:
            watch = BackwardWatch(module, backward, before)
            args = watch.before(args)
        result = module.forward(*args, **kwargs)
        for number, hook in _hooks_after(module):
            done.add(number)
            changed = _after(module, hook, args, kwargs, result)
            if changed is not None:
                result = changed
        return result if watch is None else watch.after(result)
    except BaseException as error:
        _despite(error, module, done, args, kwargs, result)
        raise


def _hooks_before(module: Module) -> list[HookOfAll]:
    own = [
        HookOfAll("before", hook, number in module._hooks_with_kwargs)
        for number, hook in module._forward_pre_hooks.items()
    ]
    return [hook for _, hook in _of_all("before")] + own


def _hooks_after(module: Module) -> list[tuple[int, HookOfAll]]:
    own = [
        (number, HookOfAll("after", hook, number in module._hooks_with_kwargs, number in module._hooks_always_called))
        for number, hook in module._forward_hooks.items()
    ]
    return _of_all("after") + own


def _before(module: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    for hook in _hooks_before(module):
        if not hook.with_kwargs:
            changed = hook.function(module, args)
            if changed is not None:
                args = changed if isinstance(changed, tuple) else (changed,)
            continue
        changed = hook.function(module, args, kwargs)
        if changed is None:
            continue
        if not isinstance(changed, tuple) or len(changed) != 2:
            raise RuntimeError(
                f"a hook with keyword arguments before {type(module).__name__}.forward must return None or the pair "
                f"(args, kwargs), not {changed!r}"
            )
        args, kwargs = changed
    return args, kwargs


def _after(module: Module, hook: HookOfAll, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    if hook.with_kwargs:
        return hook.function(module, args, kwargs, result)
    return hook.function(module, args, result)


def _despite(
    error: BaseException, module: Module, done: set[int], args: tuple[Any, ...], kwargs: dict[str, Any], result: Any
) -> None:
    """After `error` in a module's call, call the forward hooks with `always_call` whose numbers are not in `done`."""
    for number, hook in _hooks_after(module):
        if hook.always_call and number not in done:
            try:
                _after(module, hook, args, kwargs, result)
            except Exception as another:
                # The hook's own error must not hide `error`, so the former becomes a note of `error`.
                error.add_note(f"then the forward hook {hook.function!r} raised {type(another).__name__}: {another}")


class BackwardWatch:
    """Calls the backward hooks for one call of a module.

    One identity function is applied to the positional arguments that require gradients, another to such results; in
    the backward pass the gradients reach these functions, which call the hooks.  No gradients reach the hooks through
    tensors within lists, dicts or nested tuples.

    Args:
        module: the module, an argument of the hooks.
        hooks: functions ``hook(module, grad_input, grad_output)``; a result other than None replaces ``grad_input``.
        pre_hooks: functions ``hook(module, grad_output)``; a result other than None replaces ``grad_output``.
    """

    def __init__(
        self, module: Module, hooks: Sequence[Callable[..., Any]], pre_hooks: Sequence[Callable[..., Any]] = ()
    ) -> None:
        self._module = module
        self._hooks = hooks
        self._pre_hooks = pre_hooks
        # None until the gradients have reached the results, and again after `self._hooks` have been called.
        self._grad_output: Gradients | None = None
        self._arguments = self._results = 0
        self._positions: list[int] = []
        self._result_positions: list[int] = []

    def before(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return `args`; tensors that require gradients have passed through an identity whose backward calls hooks."""
        self._arguments = len(args)
        self._positions = _with_gradients(args)
        return _watched(args, self._positions, self._reached_inputs)

    def after(self, result: Any) -> Any:
        """Return `result`, a tensor or a tuple, likewise: tensors that require gradients pass through an identity.

        Other results, such as lists and dicts, are returned as they are, with a warning that no hook will be called.
        """
        if not isinstance(result, (Tensor, tuple)):
            warnings.warn(
                f"{type(self._module).__name__}: backward hooks are called only for results that are a tensor or a "
                f"tuple of tensors, not for {type(result).__name__}",
                stacklevel=4,
            )
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
        if not self._positions:  # no argument requires a gradient, so `_reached_inputs` will not be called
            self._call((None,) * self._arguments, grad_output)
        return tuple([grad_output[position] for position in self._result_positions])

    def _reached_inputs(self, gradients: Gradients) -> Gradients:
        if self._grad_output is None:  # no gradient has come through the watched results: call no hooks
            return gradients
        changed = self._call(_spread(gradients, self._positions, self._arguments), self._grad_output)
        return tuple([changed[position] for position in self._positions])

    def _call(self, grad_input: Gradients, grad_output: Gradients) -> Gradients:
        for hook in self._hooks:
            grad_input = self._replaced(grad_input, hook(self._module, grad_input, grad_output), "arguments")
        self._grad_output = None
        return grad_input

    def _replaced(self, gradients: Gradients, returned: Any, kind: str) -> Gradients:
        if returned is None:
            return gradients
        changed: Gradients = returned if isinstance(returned, tuple) else (returned,)
        if len(changed) != len(gradients):
            raise RuntimeError(
                f"a backward hook of {type(self._module).__name__} returned {len(changed)} gradients "
                f"for {len(gradients)} {kind}; return one for each, None where there is none"
            )
        return changed


def _with_gradients(values: tuple[Any, ...]) -> list[int]:
    """The positions in `values` of the tensors that require gradients."""
    return [position for position, value in enumerate(values) if isinstance(value, Tensor) and value.requires_grad]


def _spread(gradients: Gradients, positions: list[int], count: int) -> Gradients:
    """Return a tuple of `count` gradients: `gradients` at their `positions`, None elsewhere."""
    by_position = dict(zip(positions, gradients, strict=True))
    return tuple([by_position.get(position) for position in range(count)])


def _watched(
    values: tuple[Any, ...], positions: list[int], reached: Callable[[Gradients], Gradients]
) -> tuple[Any, ...]:
    """Return `values`, those at `positions` passed through an identity; its backward returns ``reached(gradients)``."""
    if not positions:
        return values
    changed = list(values)
    passed = _Watched.apply(reached, *[values[position] for position in positions])
    for position, value in zip(positions, passed, strict=True):
        changed[position] = value
    # A named tuple is made from its fields, a plain tuple from an iterable.
    return tuple(changed) if type(values) is tuple else type(values)(*changed)


class _Watched(Function):
    """The identity of `tensors`; its backward pass returns ``reached(gradients)`` as their gradients."""

    @staticmethod
    def forward(ctx: Any, reached: Callable[[Gradients], Gradients], *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.reached = reached
        ctx.set_materialize_grads(False)
        return tensors

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> Gradients:
        return (None, *ctx.reached(gradients))
