"""The in-place forms of functions that no one op writes into the tensor: ``x.cumsum_(0)`` puts the result into x.

Those that one op writes are declared with it, see `pointwise`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from vmflow.autograd.grad_mode import set_grad_enabled
from vmflow.context import MODE
from vmflow.operands import changed_leaf, check_fits
from vmflow.tensor_fields import new_alias

from .copying import clone, copy_
from .declaration import METHODS, Declared, declaring_module

if TYPE_CHECKING:
    from vmflow.tensors import Tensor


def copied_in_place(called: str | None = None) -> Callable[[Declared], Declared]:
    """Declare the in-place form of the decorated function: its result is copied into the tensor.

    Args:
        called: the function's name, if that of the method differs.
    """

    def declare(function: Declared) -> Declared:
        name = called or function.__name__

        def form(input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
            # What the gradient needs of the tensor must stay as it was.
            before = clone(input) if MODE.get().grad and input.requires_grad else input
            result = function(before, *args, **kwargs)
            check_fits(f"{name}_", result._blob.meta, input)
            return copy_(input, result)

        _enter(form, name, ())
        return function

    return declare


def reseen_in_place(*others: str) -> Callable[[Declared], Declared]:
    """Declare the in-place form of the decorated view: the tensor sees its memory so, and no other tensor changes.

    Args:
        others: further names of the function.
    """

    def declare(function: Declared) -> Declared:
        name = function.__name__

        def form(input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
            if MODE.get().grad and input.requires_grad and input.is_leaf:
                raise changed_leaf(f"{name}_", input.shape)
            whole = new_alias(input)
            # The history of what is no leaf has to say how it is seen, also where nothing is recorded.
            with set_grad_enabled(MODE.get().grad or not input.is_leaf):
                seen = function(input, *args, **kwargs)
            input._blob, input._lease = seen._blob, seen._lease
            if input._base is None and seen._base is not None:
                input._base = whole  # which the input itself is no longer
            if seen._autograd is not None and seen.requires_grad:
                input._autograd = seen._autograd.follow(input._autograd)
            return input

        _enter(form, name, others)
        return function

    return declare


def _enter(form: Callable[..., Tensor], name: str, others: tuple[str, ...]) -> None:
    form.__module__ = declaring_module()
    form.__name__ = form.__qualname__ = f"{name}_"
    form.__doc__ = f"In-place `{name}`."
    for each in (name, *others):
        METHODS[f"{each}_"] = form
