"""In-place forms of functions that no single op computes in place: ``x.cumsum_(0)`` copies the result into x.

Forms that a single op computes are declared with the op, see `pointwise`.
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
            # The elements that the gradient reads must stay unchanged.
            before = clone(input) if MODE.get().grad and input.requires_grad else input
            result = function(before, *args, **kwargs)
            check_fits(f"{name}_", result._blob.meta, input)
            return copy_(input, result)

        _enter(form, name, ())
        return function

    return declare


def viewed_in_place(*others: str, documented: bool = False) -> Callable[[Declared], Declared]:
    """Declare the in-place form of the decorated view: only this tensor views its memory differently.

    Args:
        others: further names of the function.
        documented: whether the function's docstring is that of the in-place form, the only public one.
    """

    def declare(function: Declared) -> Declared:
        name = function.__name__

        def form(input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
            if MODE.get().grad and input.requires_grad and input.is_leaf:
                raise changed_leaf(f"{name}_", input.shape)
            whole = new_alias(input)
            # The history of a non-leaf must describe its view, even while no gradients are recorded.
            with set_grad_enabled(MODE.get().grad or not input.is_leaf):
                viewed = function(input, *args, **kwargs)
            input._blob, input._lease = viewed._blob, viewed._lease
            if input._base is None and viewed._base is not None:
                input._base = whole  # the input itself is a view now
            if viewed._autograd is not None and viewed.requires_grad:
                input._autograd = viewed._autograd.follow(input._autograd)
            return input

        _enter(form, name, others)
        if documented:
            form.__doc__ = function.__doc__
        return function

    return declare


def _enter(form: Callable[..., Tensor], name: str, others: tuple[str, ...]) -> None:
    form.__module__ = declaring_module()
    form.__name__ = form.__qualname__ = f"{name}_"
    form.__doc__ = f"In-place `{name}`."
    for alias in (name, *others):
        METHODS[f"{alias}_"] = form
