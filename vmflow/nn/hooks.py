"""Calling a module that has hooks, and keeping hooks in order."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from vmflow.tensors import Handle

from .backward_hooks import BackwardWatch

if TYPE_CHECKING:
    from .module import Module

Hooks = dict[int, Callable[..., Any]]


def registered(hooks: Hooks, hook: Callable[..., Any], prepend: bool) -> Handle:
    """Put a hook behind the others, or before them."""
    others = dict(hooks)
    if prepend:
        hooks.clear()
    handle = Handle(hooks, hook)
    if prepend:
        hooks.update(others)
    return handle


def called(module: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What `forward` returns, with all the module's hooks around it."""
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
